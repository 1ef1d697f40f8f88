"""The commands that continue a run, as the terminal and the report show them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from workbench.experiment.actions import suggest
from workbench.foundation.errors import Suggestion
from workbench.runs.descriptions import first_traceback, has_nothing_left, how_to_extend
from workbench.store.history.compression import BASE_RUN, BASE_TRIAL, base_of, is_compression
from workbench.store.history.failures import began_nothing

if TYPE_CHECKING:
    from workbench.store.history import History

_LARGER_DROP = 0.02


def next_steps(run_id: str, state: str, history: History) -> list[Suggestion]:
    """Return the commands that continue a run, or that show why it did not continue.

    Args:
        run_id: The run.
        state: The state of the run. It may be lost, which no history knows.
        history: The history of the run.
    """
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
        offers.append(suggest("show", run_id, lead="read the traceback", trial=failed.number))
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
