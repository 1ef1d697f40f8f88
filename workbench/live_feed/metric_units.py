"""In which unit a run's metrics are shown: errors of AutoML are in that of the target, not standardised."""

from __future__ import annotations

from workbench.experiment import Experiment
from workbench.experiment.automl import is_automl


def shown_as(experiment: Experiment, metric: str) -> tuple[str, float]:
    """Return what a metric is called where it is shown, and the factor of its values.

    Args:
        experiment: The experiment of the run.
        metric: The metric, as trials report it.
    """
    if not is_automl(experiment):
        return metric, 1.0
    # Loaded for such runs only.
    from workbench.automl_pipeline.candidate_results import metrics_in_unit_of_target

    return metrics_in_unit_of_target(experiment).get(metric, (metric, 1.0))
