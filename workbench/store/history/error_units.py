"""Whether new trials of a run would report its errors in another unit than its earlier ones did.

Errors of a table were in standard deviations of its target, and are in the unit of the target now.
What follows from that is left to those that continue runs.
"""

from __future__ import annotations

from workbench.store.history.history import History

_ERRORS = ("mean_absolute_error", "root_mean_squared_error", "mean_squared_error")


def errors_in_another_unit(history: History) -> list[str]:
    """Return what the run is judged by and earlier trials reported in standard deviations of the
    target.

    Args:
        history: The run.
    """
    experiment, data = history.experiment, history.experiment.data
    if data is None or data.name != "table" or data.options.get("standardise_target") is False:
        return []
    if all(driver.errors_in_unit_of_target for driver in history.drivers):
        return []
    judged = dict.fromkeys(
        item.metric for item in (*experiment.objectives, *experiment.constraints)
    )
    errors = [metric for metric in judged if metric.partition("_")[2] in _ERRORS]
    return (
        errors
        if any(set(errors) & set(trial.last_values) for trial in history.trials.values())
        else []
    )
