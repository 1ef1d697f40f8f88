"""The parts of the form by themselves; each takes what `app` takes, also another form to share its draft."""

from __future__ import annotations

from workbench.store import Store
from workbench.widgets.experiment_form import ExperimentForm, Given, form


def model(experiment: Given = None, *, store: Store | str | None = None) -> ExperimentForm:
    """Choose and look at the model of an experiment; arguments as in `app`."""
    return form(experiment, ("model",), store=store)


def data(experiment: Given = None, *, store: Store | str | None = None) -> ExperimentForm:
    """Choose and look at the data of an experiment; arguments as in `app`."""
    return form(experiment, ("data",), store=store)


def space(experiment: Given = None, *, store: Store | str | None = None) -> ExperimentForm:
    """Draw the search space of an experiment; arguments as in `app`."""
    return form(experiment, ("space",), store=store)


def advice(experiment: Given = None, *, store: Store | str | None = None) -> ExperimentForm:
    """Ask the advisor about an experiment; arguments as in `app`."""
    return form(experiment, ("advice",), store=store)


def run(experiment: Given = None, *, store: Store | str | None = None) -> ExperimentForm:
    """Run an experiment and watch it; arguments as in `app`."""
    return form(experiment, ("run",), store=store)


def result(experiment: Given = None, *, store: Store | str | None = None) -> ExperimentForm:
    """Look at what came out of a run, and go on from there; arguments as in `app`."""
    return form(experiment, ("result",), store=store)
