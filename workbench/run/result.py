"""What came out of a run, for somebody who decides what to do next.

The best configuration, the others behind it, what the default configuration reached beside it, and the
commands that go on from here. What nobody tried is said to be unknown.
"""

from __future__ import annotations

import json
import math
import shlex
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pydantic import JsonValue

from workbench.errors import WorkbenchError
from workbench.events import FINISHED_RUN_STATES
from workbench.experiment import Experiment
from workbench.history import History, Trial
from workbench.run.view import RunView
from workbench.run.words import format_counts, format_number, format_numbers

NUM_ROWS = 20
# A rate that is written with fewer digits is still the same.
_SAME = 1e-6


def result_of(run: RunView, *, num_rows: int = NUM_ROWS) -> dict[str, Any]:
    """Tell what came out of a run, or what it has come to so far.

    Args:
        run: The run.
        num_rows: Rows of the leaderboard, at most.

    Returns:
        Plain values: run_id, state, counts (in words), metric (the first objective), objectives, best (None
        where no trial is complete), leaderboard (one row a configuration, best first), default_comparison,
        commands (each a kind, a label, the command and the Python).
    """
    row, history = run.row, run.history
    ranked = history.ranked()
    return {
        "run_id": row.run_id,
        "state": row.state,
        "counts": format_counts(history),
        "metric": history.objectives[0].metric,
        "objectives": [item.model_dump(mode="json") for item in history.objectives],
        "best": _entry(history, ranked[0], 1) if ranked else None,
        "leaderboard": [
            _entry(history, trial, place)
            for place, trial in enumerate(_one_a_configuration(ranked)[:num_rows], start=1)
        ],
        "default_comparison": compare_with_default(history, row.run_id, row.state),
        "commands": list(_commands(row.run_id, row.state, history)),
    }


def compare_with_default(history: History, run_id: str, state: str) -> dict[str, Any]:
    """Hold the best configuration against the default one.

    Args:
        history: The run.
        run_id: Its id, for commands.
        state: How it stands.

    Returns:
        Plain values: params (as far as they are known), unknown (parameters whose default only the person's
        own code knows), default (a trial that tried it, as in the leaderboard; None without one), values
        (means over the complete trials that did; None without one), gain (of the best over it in the first
        objective, above 0 where the best is better; None where one is missing), words, enqueue (what to try;
        None where it was tried, or cannot be), try_it (the command and the Python that have it tried).
    """
    from workbench.training.defaults import default_configuration

    experiment = history.experiment
    try:
        default = default_configuration(experiment)
    except WorkbenchError as error:
        return _compared({}, (), None, None, None, f"the default configuration is none: {error}")
    if default.unknown:
        names = ", ".join(default.unknown)
        words = f"what the model does without {names} only its own code knows, so no default is compared"
        return _compared(default.params, default.unknown, None, None, None, words)
    trials = [trial for trial in history.trials.values() if _is_same(trial.params, default.params)]
    complete = [trial for trial in trials if trial.state == "complete" and history.is_feasible(trial)]
    if not complete:
        words, try_it = _untried(experiment, history, trials, default.params, run_id, state)
        entry = _entry(history, trials[-1], None) if trials else None
        return _compared(default.params, (), entry, None, None, words, try_it)
    values = {
        item.metric: math.fsum(trial.values[item.metric] for trial in complete) / len(complete)
        for item in history.objectives
    }
    gain, words = _gain(history, complete, values)
    return _compared(default.params, (), _entry(history, complete[0], None), values, gain, words)


def _compared(
    params: Mapping[str, JsonValue], unknown: Sequence[str], default: dict[str, Any] | None,
    values: Mapping[str, float] | None, gain: float | None, words: str, try_it: dict[str, str] | None = None,
) -> dict[str, Any]:  # fmt: skip
    return {
        "params": dict(params), "unknown": list(unknown), "default": default, "values": values, "gain": gain,
        "words": words, "enqueue": None if try_it is None else dict(params), "try_it": try_it,
    }  # fmt: skip


def _is_same(params: Mapping[str, JsonValue], other: Mapping[str, JsonValue]) -> bool:
    if params.keys() != other.keys():
        return False
    for name, value in params.items():
        wanted = other[name]
        is_number = [isinstance(each, int | float) and not isinstance(each, bool) for each in (value, wanted)]
        if all(is_number):
            assert isinstance(value, int | float)
            assert isinstance(wanted, int | float)
            if not math.isclose(value, wanted, rel_tol=_SAME):
                return False
        elif value != wanted or is_number[0] != is_number[1]:
            return False
    return True


def _gain(history: History, complete: Sequence[Trial], values: Mapping[str, float]) -> tuple[float, str]:
    """Say how much better the best is than the default, by the means over their trainings."""
    objective = history.objectives[0]
    best = history.best()
    assert best is not None
    of_best = [trial.values[objective.metric] for trial in history.in_state("complete")
               if trial.configuration == best.configuration and history.is_feasible(trial)]  # fmt: skip
    best_value, default_value = math.fsum(of_best) / len(of_best), values[objective.metric]
    gain = best_value - default_value if objective.goal == "maximize" else default_value - best_value
    told = f"{objective.metric} {format_number(best_value)} instead of {format_number(default_value)}"
    if any(trial.number == best.number for trial in complete):
        return gain, f"nothing that was tried is better than the default: {told.split(' instead')[0]}"
    fewest = min(len(of_best), len(complete))
    doubt = "" if fewest > 1 else "; one training each, so a small difference may be luck"
    return gain, f"{told} with the default ({format_numbers([trial.number for trial in complete])}){doubt}"


def _untried(
    experiment: Experiment, history: History, trials: Sequence[Trial], params: Mapping[str, JsonValue],
    run_id: str, state: str,
) -> tuple[str, dict[str, str] | None]:  # fmt: skip
    """Say why nothing is known of the default, and how to find out."""
    if trials:
        last = trials[-1]
        return (
            f"trial {last.number} tried the default and is {last.state}: what it would reach is not known",
            None,
        )
    try:
        experiment.search.check(params)
    except WorkbenchError as error:
        return f"the default lies outside of the search space, so it cannot be tried here: {error}", None
    words = "nobody tried the default configuration: what it reaches is not known"
    return words, _try_it(history, params, run_id, state)


def _try_it(history: History, params: Mapping[str, JsonValue], run_id: str, state: str) -> dict[str, str]:
    """Return what has a configuration tried: by a run under way, or by one that goes on for that."""
    run = f"wb.attach({run_id!r})"
    written = " ".join(
        f"--set {shlex.quote(f'{name}={json.dumps(value)}')}" for name, value in params.items()
    )
    if state not in FINISHED_RUN_STATES:
        return {
            "command": f"workbench enqueue {run_id} {written}", "python": f"{run}.enqueue({dict(params)!r})"
        }  # fmt: skip
    option, argument = (
        ("--trials 1", "trials=1") if history.max_trials() is not None else ("--time 5m", 'time="5m"')
    )
    return {
        "command": f"workbench extend {run_id} {option} {written}",
        "python": f"{run}.extend({argument}, enqueue={dict(params)!r})",
    }


def _one_a_configuration(ranked: Sequence[Trial]) -> list[Trial]:
    first: dict[int, Trial] = {}
    for trial in ranked:
        first.setdefault(trial.configuration, trial)
    return list(first.values())


def _entry(history: History, trial: Trial, place: int | None) -> dict[str, Any]:
    """Return what a leaderboard tells of a trial: the repeat nearest to the mean of its configuration."""
    same = [each for each in history.in_state("complete") if each.configuration == trial.configuration]
    started, ended = trial.started_unix_s, trial.ended_unix_s
    return {
        "place": place,
        "trial": trial.number,
        "state": trial.state,
        "values": dict(trial.values or trial.last_values),
        "num_trainings": len(same),
        "params": dict(trial.params),
        "plan": dict(trial.plan),
        "duration_s": None if started is None or ended is None else ended - started,
    }


def _commands(run_id: str, state: str, history: History) -> Iterator[dict[str, str]]:
    """Yield what a person may do next with what came out."""
    run = f"wb.attach({run_id!r})"
    offers = []
    if state in ("lost", "stopped", "failed"):
        offers.append(("resume", "Go on", f"resume {run_id}", "resume()"))
    elif state in FINISHED_RUN_STATES and history.replay_of is None:
        offers.append(
            ("extend", "Continue with more trials", f"extend {run_id} --trials 10", "extend(trials=10)")
        )
    if history.best() is not None:
        offers.append(("export", "Take the best along", f"export {run_id} --to best", 'export("best")'))
    for kind, label, command, python in offers:
        yield {"kind": kind, "label": label, "command": f"workbench {command}", "python": f"{run}.{python}"}
