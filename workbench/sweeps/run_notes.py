"""What is notable about what a run of an experiment will try: nothing of it prevents the start.

`check`, the form's dry run and the run itself note the same. What is notable about the data is left
to it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from workbench.experiment import Experiment
from workbench.experiment.metric_declarations import computed_goal
from workbench.experiment.populations import describe_short_budget
from workbench.experiment.same_trials import describe_same_trials
from workbench.experiment.space import Domain, Int
from workbench.experiment.what_is_trained import longest_training
from workbench.foundation.formatting import format_count


def notes_of_limits(experiment: Experiment, num_gpus: float | None) -> list[str]:
    """Return notes on limits and objectives that cannot mean what they state.

    A run records them, too.

    Args:
        experiment: The experiment.
        num_gpus: The GPUs that there are, >= 0; None where that is not known yet.
    """
    of_trials = (describe_same_trials(experiment), describe_short_budget(experiment))
    notes = [f"budget.trials: {note}" for note in of_trials if note is not None]
    notes += _notes_of_goals(experiment)
    resources = experiment.resources
    if resources.per_gpu != 1 and num_gpus == 0 and not resources.autoscaling:
        notes.append(
            "resources.per_gpu: there is no GPU here that trials could share, so it has no effect; "
            "resources.concurrency has"
        )
    return notes


def notes_of_run(experiment: Experiment, num_gpus: float | None) -> list[str]:
    """Return everything that is notable before a run starts; arguments as of `notes_of_limits`."""
    return [
        *notes_of_limits(experiment, num_gpus),
        *_notes_of_few_whole_numbers(experiment.search.root),
        *_notes_of_grace(experiment),
    ]


def _notes_of_goals(experiment: Experiment) -> Iterator[str]:
    """Name the objectives that look for the worst value of a metric, as it is declared."""
    for index, objective in enumerate(experiment.objectives):
        declared = computed_goal(experiment, objective.metric)
        if declared is not None and declared != objective.goal:
            better, wanted = (
                ("higher", "lowest") if declared == "maximize" else ("lower", "highest")
            )
            yield (
                f"objectives.{index}.goal: {objective.metric} is better the {better} it is, and"
                f" this run looks for the {wanted}. Write {declared} unless that is meant."
            )


def _notes_of_few_whole_numbers(domains: Mapping[str, Domain]) -> Iterator[str]:
    """Name the ranges that are whole numbers only because their ends are, where two values may
    surprise.
    """
    for name, domain in domains.items():
        is_meant = domain.model_fields_set & {"step", "type"}
        if isinstance(domain, Int) and not is_meant and domain.high - domain.low == 1:
            low, high = domain.low, domain.high
            yield (
                f"search.{name} tries only the whole numbers {low} and {high}. If real numbers are"
                f" meant, write {low}.0 and {high}.0."
            )


def _notes_of_grace(experiment: Experiment) -> Iterator[str]:
    early_stop, epochs = experiment.early_stop, longest_training(experiment)
    reads_grace = early_stop.pruner != "none" and not early_stop.kind.compares_repeats
    if reads_grace and epochs is not None and early_stop.grace >= epochs:
        most = " at most" if "epochs" in experiment.search.root else ""
        yield (
            f"early_stop never stops a trial: grace is {format_count(early_stop.grace, 'epoch')}"
            f" and trials have {epochs}{most}."
        )
