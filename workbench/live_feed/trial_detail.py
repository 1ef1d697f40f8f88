"""The details of one trial, from its events and its log."""

from __future__ import annotations

from pathlib import Path

from workbench.live_feed.available_actions import offers_of_trial
from workbench.live_feed.protocol import EndedAttempt, TrialDetail
from workbench.live_feed.run_tail import RunTail
from workbench.live_feed.trial_table import duration_s
from workbench.runs.descriptions import log_file, plain

_LOG_BYTES = 16_384


def trial_detail(tail: RunTail, number: int, folder: Path) -> TrialDetail | None:
    """Return the details of one trial, or None if there is no such trial.

    Args:
        tail: The run, locked by the caller.
        number: Number of the trial.
        folder: The folder of the run's files on this machine.
    """
    trial = tail.data.history.trials.get(number)
    if trial is None:
        return None
    hosts = trial.hosts or ["this machine"] * len(trial.worker_pids)
    return TrialDetail(
        number=number, state=trial.state, reason=trial.reason, message=trial.message,
        traceback=trial.traceback, params=trial.params, plan=trial.plan.describe(in_full=True),
        values=plain(trial.values or trial.last_values), source=trial.source, seed=trial.seed,
        step=trial.last_step, epoch=trial.last_epoch, duration_s=duration_s(trial),
        samples_per_s=trial.samples_per_s, parts_s=dict(trial.parts_s), attempts=trial.attempts,
        setbacks=tuple(
            EndedAttempt(
                attempt=setback.attempt, reason=setback.reason, message=setback.message,
                next_plan=setback.next_plan,
            )
            for setback in trial.setbacks
        ),
        resizes=tuple(resize.describe() for resize in trial.resizes),
        workers=tuple(f"{pid} on {host}" for pid, host in zip(trial.worker_pids, hosts, strict=False)),
        log=_read_end(log_file(folder, number)),
        offers=offers_of_trial(tail.run_id, tail.row.state, tail.data.history, trial),
    )  # fmt: skip


def _read_end(path: Path) -> str:
    """Return the last lines of a log; "" if there is none on this machine."""
    try:
        with path.open("rb") as file:
            size = file.seek(0, 2)
            file.seek(max(0, size - _LOG_BYTES))
            text = file.read().decode(errors="replace")
    except OSError:
        return ""
    return text if size <= _LOG_BYTES else text.partition("\n")[2]
