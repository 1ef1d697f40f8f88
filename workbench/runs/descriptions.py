"""Numbers, configurations, plans and next commands in words, as a terminal and a page show them."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from workbench.cluster.workers.trial_log import log_name
from workbench.experiment.actions import suggest
from workbench.experiment.automl import is_automl
from workbench.experiment.budget_units import describe_money, parse_price
from workbench.experiment.fidelity import Levels
from workbench.experiment.populations import num_parts
from workbench.experiment.trainings import tries_one_configuration
from workbench.foundation.errors import Suggestion
from workbench.foundation.events import RunState, TrialState
from workbench.foundation.formatting import compact_duration, counted_noun, format_count
from workbench.store.database.run_files import trial_folder
from workbench.store.history import cost_of
from workbench.store.history.failure_text import headline
from workbench.store.history.failures import began_nothing, failure_groups
from workbench.store.history.history import no_such_trial
from workbench.store.history.lineage import ahead

if TYPE_CHECKING:
    from workbench.experiment import Experiment
    from workbench.store.history import History, Trial
from typing import TYPE_CHECKING

from workbench.store.history.compression import BASE_RUN, BASE_TRIAL, base_of, is_compression

_STATES: tuple[TrialState, ...] = ("complete", "running", "waiting", "pruned", "stopped", "failed")
_LARGER_DROP = 0.02


def describe_search(experiment: Experiment) -> str:
    """Write what a run of an experiment will try, in one line."""
    trials = experiment.max_configurations()
    trials = experiment.max_configurations()
    num_parameters = len(experiment.search.root)
    noun = "trial"
    first = ""
    if (levels := Levels.of(experiment.fidelity)) is not None:
        num_parameters -= 1  # the search space also contains the fidelity
        noun = "configuration"
        first = f", first with {levels.name} {levels.values[0]:g} of {levels.full:g}"
    budget = f"no limit on {noun}s"
    if trials is not None:
        budget = format_count(trials, noun)
    return f"{experiment.name}, {format_count(num_parameters, 'parameter')}, {budget}{first}"


def format_counts(history: History) -> str:
    """Write how many trials are in which state, or "" if there are none."""
    counts = {state: len(history.in_state(state)) for state in _STATES}
    return ", ".join(f"{count} {state}" for state, count in counts.items() if count)


def format_tried(history: History) -> str:
    """Write how much was tried: trials by state, or how many candidates of AutoML.

    The trials of a candidate are its folds, which nobody asked for. "" if there is nothing yet.
    """
    if not history.trials or not is_automl(history.experiment):
        return format_counts(history)
    return format_count(history.num_configurations(), "candidate")


def format_numbers(numbers: Sequence[int], most: int = 8) -> str:
    """Write which trials: trial 3, or trials 1, 2, 5, ..."""
    named = ", ".join(str(number) for number in numbers[:most])
    if len(numbers) > most:
        named += ", ..."
    return f"{counted_noun(len(numbers), 'trial')} {named}"


def leaders(history: History) -> list[tuple[str, Trial, dict[str, float]]]:
    """Return what to name as best: label, trial and its objectives.

    With several, one line for each. If trials train in turns and none is complete, these are the
    trials that are ahead after the last turn of all.

    With several objectives no trial is the best: the front is named, by the best value of each
    objective.
    """
    metrics = [item.metric for item in history.objectives]
    if len(metrics) == 1:
        best = history.best()
        if best is None:
            return ahead(history)
        return [(f"best{describe_mean(history, best)}", best, history.best_values())]
    extremes: dict[int, Trial] = {trial.number: trial for trial in history.extremes().values()}
    if not extremes:
        return ahead(history)
    return [
        ("front", trial, {metric: trial.values[metric] for metric in metrics})
        for trial in extremes.values()
    ]


def describe_mean(history: History, best: Trial) -> str:
    """Write over how many trials the value of the best is a mean, to be appended.

    "" where it is of one.
    """
    num_repeats = len(history.repeats_of(best))
    if num_repeats < 2:
        return ""
    return f" (mean of {num_repeats})"


def first_line(text: str | None) -> str:
    """Return what a failure is shown by: the type and the first line of its message.

    See `headline`.
    """
    return headline(text) or "no message"


def describe_place(place: str | None) -> str:
    """Write where the user's code failed, to be appended: " (loop.py:12)".

    "" if that is unknown.
    """
    if place is None:
        return ""
    return f" ({place.removeprefix(f'{Path.cwd()}{os.sep}')})"


def describe_reports(trials: Iterable[Trial]) -> str:
    """Write how many reports of some trials are stored, or "" if all are."""
    trials = list(trials)
    left_out = sum(trial.reports_left_out for trial in trials)
    if not left_out:
        return ""
    stored = sum(trial.reports for trial in trials)
    made = format_count(left_out + stored, "report")
    return (
        f"{stored:,} of {made} are stored: they arrived faster than twice a second, extremes are"
        " kept"
    )


def first_traceback(history: History) -> Trial | None:
    """Return the first trial that failed with a traceback, by number, or None."""
    return next((trial for trial in history.in_state("failed") if trial.traceback), None)


def log_file(folder: Path, trial: int, rank: int = 0) -> Path:
    """Return where the log of one worker of a trial is, below the folder of its run.

    It need not exist.
    """
    return folder / trial_folder(trial) / log_name(rank)


def attachment_file(trial: int, file: str) -> str:
    """Return the name, among the files of a run, of what a trial attached to its reports.

    Args:
        trial: Number of the trial.
        file: The name of the file, or its path below the folder of the trial.
    """
    return f"{trial_folder(trial)}/attachments/{file.rpartition('/')[2]}"


def has_nothing_left(history: History) -> bool:
    """Return whether only a larger budget continues a run that failed.

    All trials that it may try have failed, or its budget was used up before any began.
    """
    if history.state == "failed" and began_nothing(history):
        return True
    allowed = history.in_force.max_configurations()
    is_used_up = allowed is not None and history.num_configurations() >= allowed
    all_failed = len(history.in_state("failed")) == len(history.trials)
    return history.reason == "failures" and is_used_up and all_failed


def describe_end(history: History) -> str:
    """Write why a run ended. The error of failed trials is shown elsewhere."""
    return describe_reason(history.reason, history.message)


def describe_reason(reason: str | None, message: str | None) -> str:
    """Write why a run has its state, like `describe_end`.

    Args:
        reason: The reason of the event, if it has one.
        message: Its message, if it has one.
    """
    if reason == "person":
        return "by the user"  # as in the panel
    why = message or reason or ""
    if reason == "failures":
        return why.partition(": ")[0]
    return why


def failures_of(history: History) -> dict[str, list[int]]:
    """Return the numbers of the trials that failed, by the line that says why.

    One line for each error.
    """
    grouped: dict[str, list[int]] = {}
    for group in failure_groups(history):
        line = group.message or "no message"
        if group.reason != "error":
            line = f"{group.reason}: {line}"
        numbers = [trial.number for trial in group.trials]
        grouped.setdefault(line + describe_place(group.place), []).extend(numbers)
    return grouped


def why_not_resumed(state: RunState, history: History) -> str | None:
    """Return why a run that has ended can only be extended, as the end of a sentence.

    None if it resumes.
    """
    if state == "complete":
        return "is complete, so it cannot be resumed"
    if state == "failed" and has_nothing_left(history):
        if began_nothing(history):
            return f"ended: {history.message}"
        return f"has no trial left to try: {history.message}"
    return None


def describe_cost(history: History) -> str | None:
    """Return what the run has cost, such as `cost: 1.20 EUR of 5.00 EUR (2.5 EUR/h)`."""
    budget = history.in_force.budget
    cost = cost_of(history, history.now_unix_s())
    if cost is None or budget.price is None:
        return None
    spent = f"cost: {describe_money(cost, budget.price)}"
    if budget.money is not None:
        spent += f" of {describe_money(budget.money, budget.price)}"
    return f"{spent} ({budget.price})"


def how_to_extend(history: History) -> dict[str, Any] | None:
    """Return the arguments of `extend` by which a run that has ended would continue.

    None if it would not.
    """
    budget = history.in_force.budget
    if (
        history.is_imported
        or history.replay_of is not None
        or history.reason in ("exhausted", "target")
    ):
        return None
    if history.reason == "time" and budget.time is not None:
        return {"time": compact_duration(round(budget.time))}
    if history.reason == "gpu_time" and budget.gpu_time is not None:
        return {"gpu_time": compact_duration(round(budget.gpu_time))}
    if history.reason == "energy" and budget.energy is not None:
        return {"energy": f"{budget.energy:g}Wh"}
    if history.reason == "money" and budget.money is not None and budget.price is not None:
        return {"money": f"{budget.money:g}{parse_price(budget.price).currency}"}
    if history.reason == "plateau" and budget.plateau is not None:
        return {"plateau": budget.plateau}
    if history.reason == "gain" and budget.trials is None:
        return None  # no limit that `extend` takes has ended it
    missing = (
        num_parts(history.experiment.sampler, history.experiment.training.epochs) or 0
    ) - history.num_configurations()
    if missing > 0:  # the parts that train a population to its end
        return {"trials": missing}
    if tries_one_configuration(history.in_force):
        return None
    return {"trials": 10}


def how_to_continue(run_id: str, history: History) -> str | Suggestion:
    """Return the next step that continues a run whose limits have ended it."""
    more = how_to_extend(history)
    if more is None:
        return "Start another run."
    return suggest("extend", run_id, lead="To continue it", **more)


def find_trial(history: History, number: int, *, field: str) -> Trial:
    """Return a trial that a user named.

    Args:
        history: The history of the run.
        number: The number that was named.
        field: Where, for the error.

    Raises:
        ArgumentError: If the run has no such trial.
    """
    if number not in history.trials:
        raise no_such_trial(history, number, field)
    return history.trials[number]


def next_steps(run_id: str, state: str, history: History) -> list[Suggestion]:
    """Return the commands that continue a run, or that show why it did not continue.

    Args:
        run_id: The run.
        state: The state of the run. It may be lost, which no history knows.
        history: The history of the run.
    """
    if history.is_imported:
        return [suggest("sweep", "FILE", lead="learn from it", warm_start=[run_id])]
    offers: list[Suggestion] = []
    # A run keeps the experiment with which it was started, whatever its file says now.
    corrected = suggest("sweep", "FILE", lead="run a corrected file")
    if state in ("waiting", "running", "stopping"):
        offers = [
            suggest("attach", run_id, lead="follow it"),
            suggest("stop", run_id, lead="stop it"),
        ]
        if state == "waiting":
            offers.append(suggest("resume", run_id, lead="start it, if it does not start"))
    elif state == "complete" and is_compression(history.experiment) and history.best() is None:
        offers = _beyond_compression(run_id, history)
    elif state == "complete" and (more := how_to_extend(history)):
        offers = [suggest("extend", run_id, lead="extend it", **more)]
    elif state == "failed" and has_nothing_left(history):
        offers = _after_failures(run_id, history, corrected)
    elif state in ("lost", "stopped", "failed"):
        offers = [suggest("resume", run_id, lead="resume it")]
        if history.reason == "failures":  # the same code fails again
            offers = [
                suggest("resume", run_id, lead="resume it once your code is fixed"),
                corrected,
            ]
    if (failed := first_traceback(history)) is not None:
        traceback = suggest("show", run_id, lead="read the traceback", trial=failed.number)
        is_first = state == "failed" and history.reason == "failures"
        offers.insert(0 if is_first else len(offers), traceback)
    return offers


def _beyond_compression(run_id: str, history: History) -> list[Suggestion]:
    base = base_of(history.experiment)
    more = how_to_extend(history) or {"trials": 10}
    run = base[BASE_RUN]
    trial = base[BASE_TRIAL]
    larger = {"drop": _LARGER_DROP}
    return [
        suggest("extend", run_id, lead="try more", **more),
        suggest("compress", run, lead="allow more to be lost", trial=trial, limits=larger),
        suggest("export", run, lead="export it as it is", trial=trial, to="best", format="onnx"),
    ]


def _after_failures(run_id: str, history: History, corrected: Suggestion) -> list[Suggestion]:
    """Return the commands after a run in which nothing is left to try."""
    more = how_to_extend(history)
    if began_nothing(history):
        return [suggest("extend", run_id, lead="extend it", **(more or {}))]
    if more is None:
        return [corrected]
    return [suggest("extend", run_id, lead="try more once your code is fixed", **more), corrected]
