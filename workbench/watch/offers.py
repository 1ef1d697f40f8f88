"""What can be done with a run or a trial, each with the command and the Python that do the same."""

from __future__ import annotations

from typing import Any

from workbench.events import RunState
from workbench.history import History, Trial
from workbench.watch.protocol import Offer
from workbench.watch.same import folder_of, report_of, same_as

_ALIVE: frozenset[RunState] = frozenset({"waiting", "running", "stopping"})


def offers_of_run(run_id: str, state: RunState, history: History, *, is_advice: bool) -> tuple[Offer, ...]:
    """Return what can be done with a run as it is."""
    alive, ended = state in _ALIVE, state in ("stopped", "failed", "lost")
    best = history.best()
    offers = []
    if alive:
        offers.append(_offer("stop", "Stop", run_id, dangerous=True))
    if alive and not is_advice:
        offers.append(_offer("set", "Change limits", run_id, concurrency=2))
        params = best.params if best is not None else {"NAME": "VALUE"}
        offers.append(_offer("enqueue", "Add a trial", run_id, params=params))
    if ended and not is_advice:
        offers.append(_offer("resume", "Resume", run_id))
    if not is_advice and history.replay_of is None and (alive or state == "complete"):
        offers.append(_offer("extend", "Extend", run_id, trials=10))
    if not alive and not is_advice and history.trials:
        offers.append(_offer("replay", "Replay", run_id))
    saved = same_as("save_report", run_id, {"to": report_of(run_id)})
    # Opens as a page; the command writes the same page to a file.
    offers.append(Offer(kind="report", label="Report", command=saved.command, python=saved.python))
    offers.append(_offer("save_report", "Save report", run_id, to=report_of(run_id)))
    if best is not None:
        offers.append(_offer("export", "Export the best", run_id, to=folder_of(None)))
    offers.append(_offer("attach", "Follow", run_id))
    return tuple(offers)


def offers_of_trial(run_id: str, state: RunState, trial: Trial) -> tuple[Offer, ...]:
    """Return what can be done with a trial as it is."""
    offers = []
    if state in _ALIVE and not trial.finished:
        offers.append(_offer("stop_trial", "Stop this trial", run_id, dangerous=True, trial=trial.number))
    if state in _ALIVE:
        offers.append(_offer("enqueue", "Copy to a new trial", run_id, params=trial.params))
    if trial.state == "complete":
        to = folder_of(trial.number)
        offers.append(_offer("export", "Export", run_id, to=to, trial=trial.number))
    return tuple(offers)


def _offer(kind: Any, label: str, run_id: str, *, dangerous: bool = False, **arguments: Any) -> Offer:
    same = same_as(kind, run_id, arguments)
    return Offer(kind=kind, label=label, command=same.command, python=same.python, dangerous=dangerous)
