"""The result of a run, as a basis for the next decision.

It consists of the best configuration, the runners-up, a comparison with the default configuration,
and possible next commands. If something was not tried, it is reported as unknown.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pydantic import JsonValue

from workbench.experiment.actions import snippet_of
from workbench.foundation.errors import WorkbenchError
from workbench.foundation.events import FINISHED_RUN_STATES
from workbench.foundation.formatting import format_number
from workbench.runs.descriptions import format_counts, format_numbers
from workbench.store.history import History, Trial
from workbench.store.history.certainty import certainty_lines

if TYPE_CHECKING:
    from workbench.runs.stored_run import StoredRun

NUM_ROWS = 20
# Numbers that differ less than this count as equal: a value may have been written with fewer
# digits.
_SAME = 1e-6


def result_of(run: StoredRun, *, num_rows: int = NUM_ROWS) -> dict[str, Any]:
    """Return the result of a run, or its result so far.

    Args:
        run: The run.
        num_rows: Maximum number of rows of the leaderboard.

    Returns:
        Plain values: run_id, state, counts (in words), metric (the first objective), objectives,
        best (None if no trial is complete), certainty (on how many samples its score rests and
        how sure it is, in sentences without their full stops), leaderboard (one row per
        configuration, best first), default_comparison, commands (each with kind, label, command and
        python).
    """
    row = run.row
    history = run.history
    ranked = history.ranked()
    best = None
    if ranked:
        best = _entry(history, ranked[0], 1)
    return {
        "run_id": row.run_id,
        "state": row.state,
        "counts": format_counts(history),
        "metric": history.objectives[0].metric,
        "objectives": [item.model_dump(mode="json") for item in history.objectives],
        "best": best,
        "certainty": certainty_lines(history),
        "leaderboard": [
            _entry(history, trial, place)
            for place, trial in enumerate(_one_per_configuration(history, ranked)[:num_rows], 1)
        ],
        "default_comparison": compare_with_default(history, row.run_id, row.state),
        "commands": list(_commands(row.run_id, row.state, history)),
    }


def compare_with_default(history: History, run_id: str, state: str) -> dict[str, Any]:
    """Compare the best configuration with the default one.

    Args:
        history: The run.
        run_id: Its run id, for commands.
        state: Its state.

    Returns:
        Plain values: params (those that are known), unknown (parameters whose default only the
        user's code knows), default (a trial of the default, as in the leaderboard, or None without
        one), values (means over the complete trials of the default, or None without one), gain (of
        the best over the default in the first objective, above 0 where the best is better, or None
        if unknown), words, enqueue (the configuration to try, or None if it was tried or cannot
        be), try_it (the command and the Python that try it).
    """
    from workbench.training.planning.typical_configurations import default_configuration

    experiment = history.experiment
    try:
        default = default_configuration(experiment)
    except WorkbenchError as error:
        return _compared({}, f"there is no valid default configuration: {error}")
    if default.unknown:
        names = ", ".join(default.unknown)
        words = (
            "there is no comparison with the default, because only the model's code knows the"
            f" default of {names}"
        )
        return _compared(default.params, words, unknown=default.unknown)
    trials = [trial for trial in history.trials.values() if _is_same(trial.params, default.params)]
    complete = [
        trial for trial in trials if trial.state == "complete" and history.is_feasible(trial)
    ]
    if not complete:
        if trials:
            last = trials[-1]
            return _compared(
                default.params,
                f"trial {last.number} tried the default and is {last.state}, so its result is"
                " unknown",
                default=_entry(history, last, None),
            )
        try:
            experiment.search.check(default.params)
        except WorkbenchError as error:
            return _compared(
                default.params,
                "the default configuration cannot be tried, because it is outside the search space:"
                f" {error}",
            )
        return _compared(
            default.params,
            "the default configuration was not tried, so its result is unknown",
            try_it=_try_it(history, default.params, run_id, state),
        )
    values = {
        item.metric: math.fsum(trial.values[item.metric] for trial in complete) / len(complete)
        for item in history.objectives
    }
    gain, words = _gain(history, complete, values)
    entry = _entry(history, complete[0], None)
    return _compared(default.params, words, default=entry, values=values, gain=gain)


def _compared(
    params: Mapping[str, JsonValue],
    words: str,
    *,
    unknown: Sequence[str] = (),
    default: dict[str, Any] | None = None,
    values: Mapping[str, float] | None = None,
    gain: float | None = None,
    try_it: dict[str, str] | None = None,
) -> dict[str, Any]:
    """Return the fields of `compare_with_default`."""
    return {
        "params": dict(params),
        "unknown": list(unknown),
        "default": default,
        "values": values,
        "gain": gain,
        "words": words,
        "enqueue": None if try_it is None else dict(params),
        "try_it": try_it,
    }


def _is_same(params: Mapping[str, JsonValue], other: Mapping[str, JsonValue]) -> bool:
    if params.keys() != other.keys():
        return False
    for name, value in params.items():
        wanted = other[name]
        is_number = [
            isinstance(number, int | float) and not isinstance(number, bool)
            for number in (value, wanted)
        ]
        if all(is_number):
            assert isinstance(value, int | float)
            assert isinstance(wanted, int | float)
            if not math.isclose(value, wanted, rel_tol=_SAME):
                return False
        elif value != wanted or is_number[0] != is_number[1]:
            return False
    return True


def _gain(
    history: History, complete: Sequence[Trial], values: Mapping[str, float]
) -> tuple[float, str]:
    """Return how much better the best is than the default, on average, and in words."""
    objective = history.objectives[0]
    best = history.best()
    assert best is not None
    of_best = [
        trial.values[objective.metric]
        for trial in history.in_state("complete")
        if trial.configuration == best.configuration and history.is_feasible(trial)
    ]
    best_value = math.fsum(of_best) / len(of_best)
    default_value = values[objective.metric]
    gain = default_value - best_value
    if objective.goal == "maximize":
        gain = -gain
    compared = (
        f"{objective.metric} {format_number(best_value)} instead of {format_number(default_value)}"
    )
    if any(trial.number == best.number for trial in complete):
        return (
            gain,
            f"no configuration was better than the default: {compared.split(' instead')[0]}",
        )
    fewest = min(len(of_best), len(complete))
    doubt = ""
    if fewest == 1:
        doubt = " (with one training each, a small difference may be chance)"
    return (
        gain,
        (
            f"{compared} with the default"
            f" ({format_numbers([trial.number for trial in complete])}){doubt}"
        ),
    )


def _try_it(
    history: History, params: Mapping[str, JsonValue], run_id: str, state: str
) -> dict[str, str] | None:
    """Return the command and the Python that try a configuration.

    In a run under way, or by extending one. None for an imported run, which cannot be extended.
    """
    if history.is_imported:
        return None
    if state not in FINISHED_RUN_STATES:
        return snippet_of("enqueue", run_id, {"params": params})._asdict()
    limit = {"time": "5m"}
    if history.max_trials() is not None:
        limit = {"trials": 1}
    return snippet_of("extend", run_id, {**limit, "enqueue": params})._asdict()


def _one_per_configuration(history: History, ranked: Sequence[Trial]) -> list[Trial]:
    first: dict[tuple[int, str], Trial] = {}
    for trial in ranked:
        first.setdefault(history.key_of(trial), trial)
    return list(first.values())


def _entry(history: History, trial: Trial, place: int | None) -> dict[str, Any]:
    """Return the row of a trial in the leaderboard."""
    same = [
        other
        for other in history.in_state("complete")
        if other.configuration == trial.configuration
    ]
    values = trial.shown_values
    if len(same) > 1:
        values = history.mean_values(trial)
    return {
        "place": place,
        "trial": trial.number,
        "state": trial.state,
        "values": values,
        "num_trainings": len(same),
        "params": dict(trial.params),
        "plan": trial.plan.to_json(),
        "duration_s": trial.duration_s,
    }


def _commands(run_id: str, state: str, history: History) -> Iterator[dict[str, str]]:
    """Yield possible next actions."""
    offers: list[tuple[str, str, dict[str, Any]]] = []
    if history.is_imported:
        learning = snippet_of("sweep", "", {"path": "FILE", "warm_start": [run_id]})
        yield {"kind": "sweep", "label": "Learn from it", **learning._asdict()}
        return
    if state in ("lost", "stopped", "failed"):
        offers.append(("resume", "Resume", {}))
    elif state in FINISHED_RUN_STATES and history.replay_of is None:
        offers.append(("extend", "Continue with more trials", {"trials": 10}))
    if history.best() is not None:
        offers.append(("export", "Export the best", {"to": "best"}))
    for kind, label, arguments in offers:
        yield {"kind": kind, "label": label, **snippet_of(kind, run_id, arguments)._asdict()}
