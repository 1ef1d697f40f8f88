"""Which settings only a train function has, and which it would never receive."""

from __future__ import annotations

from typing import TYPE_CHECKING

from workbench.errors import ExperimentError

if TYPE_CHECKING:
    from workbench.experiment import Experiment


def refuse_what_is_ignored(experiment: Experiment) -> None:
    """Refuse settings that a train function would never receive."""
    next_step = "Remove it, or pass it to the function: under train, beside its name."
    for section in ("training", "plan"):
        for name in getattr(experiment, section).model_dump():
            if (section, name) != ("plan", "workers"):
                raise ExperimentError(
                    "a train function decides this itself", field=f"{section}.{name}", next_step=next_step
                )
    if experiment.metrics:
        raise ExperimentError("a train function reports its own", field="metrics", next_step="Remove it.")


def check_unit(experiment: Experiment) -> None:
    """Refuse a unit of early stopping in which the training does not count."""
    unit = experiment.early_stop.unit
    if experiment.train is None and unit not in (None, "epochs"):
        raise ExperimentError(
            f"a model is not counted in {unit}", field="early_stop.unit", allowed="epochs",
            next_step="Remove it; only a train function chooses its unit.",
        )  # fmt: skip
    if unit in [objective.metric for objective in experiment.objectives]:
        raise ExperimentError(
            f"{unit} is an objective and so does not measure progress", field="early_stop.unit",
            allowed="steps, or another metric that the function reports",
        )  # fmt: skip
