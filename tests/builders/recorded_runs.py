"""Runs as a driver would have written them: real stores, real events, no training."""

from __future__ import annotations

import json
import math
import os
import socket
import time
from collections.abc import Iterable
from pathlib import Path

from workbench.experiment import Experiment
from workbench.foundation.events import (
    AttachmentSaved,
    CheckpointSaved,
    DriverStarted,
    Event,
    RunStateChanged,
    TrialEnded,
    TrialProposed,
    TrialReported,
    TrialStarted,
)
from workbench.store.database import Store

EXPERIMENT = {
    "name": "digits-small",
    "model": "convnet",
    "data": "digits",
    "objectives": [{"metric": "val_accuracy", "goal": "maximize"}],
    "search": {"lr": {"low": 1e-4, "high": 0.5, "log": True}, "width": {"choices": [8, 16]}},
    "budget": {"trials": 5},
}
START_UNIX_S = time.time()
WHY_PRUNED = "val_accuracy 0.5 at epoch 2 is not the best of 3 trials there (0.95)"
PLAN = {
    "workers": 1,
    "micro_batch": 32,
    "accumulation": 2,
    "global_batch": 64,
    "precision": "fp32",
    "strategy": "single",
}


def append(store: Store, run_id: str, events: Iterable[Event]) -> None:
    """Write events as a driver does."""
    with store.writer(run_id, owner_pid=os.getpid(), owner_host=socket.gethostname()) as writer:
        writer.append(*events)


def begin(at_s: float = 0.0) -> list[Event]:
    now = START_UNIX_S + at_s
    return [
        DriverStarted(pid=4711, host="somewhere", num_cpus=2, time_unix_s=now),
        RunStateChanged(state="running", time_unix_s=now),
    ]


def trial_events(
    number: int,
    *,
    at_s: float,
    lr: float = 0.01,
    width: int = 16,
    state: str = "complete",
    accuracy: float = 0.9,
    reason: str | None = None,
    checkpoint: str | None = None,
) -> list[Event]:
    """A whole trial of two epochs.

    `at_s` seconds after the start it is proposed, 3 s later it ends.
    """
    now = START_UNIX_S + at_s
    events: list[Event] = [
        TrialProposed(
            trial=number,
            params={"lr": lr, "width": width},
            configuration=number,
            seed=7,
            time_unix_s=now,
        ),
        TrialStarted(trial=number, attempt=0, worker_pids=[99], plan=PLAN, time_unix_s=now + 0.1),
    ]
    events += [
        TrialReported(
            trial=number,
            step=20 * epoch,
            epoch=epoch,
            values={"val_accuracy": accuracy * epoch / 2},
            samples_per_s=1234.5,
            time_unix_s=now + epoch,
        )
        for epoch in (1, 2)
    ]
    if checkpoint is not None:
        events.append(CheckpointSaved(trial=number, attempt=0, step=40, path=checkpoint, best=True))
    if state == "running":
        return events
    values = {"val_accuracy": math.nan if reason == "diverged" else accuracy}
    traceback = (
        'Traceback (most recent call last):\n  File "x.py", line 1, in f\nValueError: too wide'
    )
    events.append(
        TrialEnded(
            trial=number,
            attempt=0,
            state=state,
            reason=reason,
            values=values,
            step=40,  # pyright: ignore
            message={"failed": "ValueError: too wide", "pruned": WHY_PRUNED}.get(state),
            traceback=traceback if state == "failed" else None,
            time_unix_s=now + 3,
        )
    )
    return events


def finish(at_s: float, state: str = "complete", reason: str = "trials") -> list[Event]:
    now = START_UNIX_S + at_s
    return [RunStateChanged(state=state, reason=reason, time_unix_s=now)]  # pyright: ignore


def record_run(place: Path | str, *, ended: bool = True, **changes: object) -> str:
    """Store a run with two complete trials, one pruned, one that failed and one that diverged.

    Args:
        place: The URL of a store, or the folder of its `store.sqlite`.
        ended: Whether the run has ended.
        **changes: What is different in the experiment.

    Returns:
        The run id.
    """
    with Store.open(place if isinstance(place, str) else str(place / "store.sqlite")) as store:
        run_id = store.create_run(Experiment(**{**EXPERIMENT, **changes}))
        events = [
            *begin(),
            *trial_events(0, at_s=1, lr=0.01, accuracy=0.91),
            *trial_events(1, at_s=2, lr=0.1, width=8, accuracy=0.95),
            *trial_events(2, at_s=3, state="pruned", accuracy=0.5),
            *trial_events(3, at_s=4, state="failed", reason="error"),
            *trial_events(4, at_s=5, state="failed", reason="diverged"),
        ]
        append(store, run_id, [*events, *finish(9)] if ended else events)
    return run_id


def finished_run(url: str, **changes: object) -> str:
    """Store a run that has ended, with a trial of every kind."""
    with Store.open(url) as store:
        run_id = store.create_run(Experiment(**{**EXPERIMENT, **changes}))
        events = [*begin()]
        for number, accuracy in enumerate((0.91, 0.95, 0.5, 0.8)):
            state = "pruned" if accuracy == 0.5 else "complete"
            events += trial_events(number, at_s=1 + number, state=state, accuracy=accuracy)
        events += trial_events(4, at_s=5, state="failed", reason="error")
        append(store, run_id, [*events, *finish(9)])
    return run_id


HOSTILE = "<img src=x onerror=alert(1)><script>alert(1)</script>"
SVG = (
    b'<svg xmlns="http://www.w3.org/2000/svg"><script>alert(1)</script><rect width="9"'
    b' height="9"/></svg>'
)


def attach(store: Store, run_id: str, trial: int) -> dict[str, str]:
    """Attach a hostile picture, table and text to a trial, and return their files by name."""
    rows = {"columns": [HOSTILE], "rows": [[HOSTILE]], "num_rows": 9}
    contents = {
        "picture": ("image", "svg", SVG),
        "words": ("table", "json", json.dumps(rows).encode()),
        "sample": ("text", "txt", HOSTILE.encode()),
    }
    events, files = [], {}
    for number, (name, (kind, suffix, content)) in enumerate(contents.items()):
        files[name] = f"0-{number:05d}-{name}.{suffix}"
        store.artifacts_of(run_id).write(f"trials/{trial:05d}/attachments/{files[name]}", content)
        saved = {"trial": trial, "step": 40, "name": name, "kind": kind, "size_bytes": len(content)}
        file = f"attachments/{files[name]}"
        events.append(
            AttachmentSaved.model_validate({**saved, "file": file, "time_unix_s": START_UNIX_S + 8})
        )
    append(store, run_id, events)
    return files
