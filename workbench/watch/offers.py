"""What can be done with a run or a trial, each with the command and the Python that do the same."""

from __future__ import annotations

import json
import shlex
from typing import Any

from workbench.events import RunState
from workbench.history import History, Trial
from workbench.space import Params
from workbench.watch.protocol import Offer

_ALIVE: frozenset[RunState] = frozenset({"waiting", "running", "stopping"})


def offers_of_run(run_id: str, state: RunState, history: History, *, is_advice: bool) -> tuple[Offer, ...]:
    """Return what can be done with a run as it is."""
    alive, ended = state in _ALIVE, state in ("stopped", "failed", "lost")
    run = f"wb.attach({run_id!r})"
    has_best = history.best() is not None
    offers = []
    if alive:
        offers.append(_offer("stop", "Stop", run_id, "", f"{run}.stop()", dangerous=True))
    if alive and not is_advice:
        changed = "--concurrency 2"
        offers.append(_offer("set", "Change limits", run_id, changed, f"{run}.set(concurrency=2)"))
        offers.append(_offer("enqueue", "Add a trial", run_id, "--set NAME=VALUE", f"{run}.enqueue({{}})"))
    if ended and not is_advice:
        offers.append(_offer("resume", "Resume", run_id, "", f"{run}.resume()"))
    if not is_advice and history.replay_of is None and (alive or state == "complete"):
        offers.append(_offer("extend", "Extend", run_id, "--trials 10", f"{run}.extend(trials=10)"))
    if not alive and not is_advice and history.trials:
        offers.append(_offer("replay", "Replay", run_id, "", f"{run}.replay()"))
    offers.append(_offer("report", "Report", run_id, "", f"{run}.report()"))
    if has_best:
        offers.append(_offer("export", "Export the best", run_id, "--to best", f'{run}.export("best")'))
    offers.append(Offer(kind="attach", label="Follow", command=f"workbench follow {run_id}", python=run))
    return tuple(offers)


def offers_of_trial(run_id: str, state: RunState, trial: Trial) -> tuple[Offer, ...]:
    """Return what can be done with a trial as it is."""
    run, offers = f"wb.attach({run_id!r})", []
    if state in _ALIVE and not trial.finished:
        command, python = stop_trial(run_id, trial.number)
        offers.append(
            Offer(kind="stop_trial", label="Stop this trial", command=command, python=python, dangerous=True)
        )
    if state in _ALIVE:
        command, python = enqueue(run_id, trial.params)
        offers.append(Offer(kind="enqueue", label="Copy to a new trial", command=command, python=python))
    if trial.state == "complete":
        number = f"--trial {trial.number} --to trial-{trial.number}"
        python = f'{run}.export("trial-{trial.number}", trial={trial.number})'
        offers.append(_offer("export", "Export", run_id, number, python))
    return tuple(offers)


def stop_trial(run_id: str, trial: int) -> tuple[str, str]:
    """Return the command and the Python that stop a trial."""
    return f"workbench stop {run_id} --trial {trial}", f"wb.attach({run_id!r}).stop(trial={trial})"


def enqueue(run_id: str, params: Params) -> tuple[str, str]:
    """Return the command and the Python that enqueue a configuration."""
    words = " ".join(f"--set {shlex.quote(f'{name}={json.dumps(value)}')}" for name, value in params.items())
    return f"workbench enqueue {run_id} {words}".rstrip(), f"wb.attach({run_id!r}).enqueue({dict(params)!r})"


def _offer(
    kind: Any, label: str, run_id: str, options: str, python: str, *, dangerous: bool = False
) -> Offer:
    command = f"workbench {kind} {run_id} {options}".rstrip()
    return Offer(kind=kind, label=label, command=command, python=python, dangerous=dangerous)
