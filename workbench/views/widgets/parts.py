"""The parts of the form on their own; each accepts what `app` accepts, such as a form to share."""

from __future__ import annotations

from workbench.store.database import Store
from workbench.views.widgets.experiment_form import ExperimentForm, Given, form


def model(experiment: Given = None, *, store: Store | str | None = None) -> ExperimentForm:
    """Choose and inspect the model of an experiment; arguments as in `app`."""
    return form(experiment, ("model",), store=store)


def data(experiment: Given = None, *, store: Store | str | None = None) -> ExperimentForm:
    """Choose and inspect the data of an experiment; arguments as in `app`."""
    return form(experiment, ("data",), store=store)


def space(experiment: Given = None, *, store: Store | str | None = None) -> ExperimentForm:
    """Edit the search space of an experiment; arguments as in `app`."""
    return form(experiment, ("space",), store=store)


def advice(experiment: Given = None, *, store: Store | str | None = None) -> ExperimentForm:
    """Ask the advisor about an experiment; arguments as in `app`."""
    return form(experiment, ("advice",), store=store)


def run(experiment: Given = None, *, store: Store | str | None = None) -> ExperimentForm:
    """Run an experiment and watch it; arguments as in `app`."""
    return form(experiment, ("run",), store=store)


def result(experiment: Given = None, *, store: Store | str | None = None) -> ExperimentForm:
    """Show the result of a run, and continue from there; arguments as in `app`."""
    return form(experiment, ("result",), store=store)
