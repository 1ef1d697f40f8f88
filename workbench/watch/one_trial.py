"""One trial in full, as its events and its log tell it."""

from __future__ import annotations

from pathlib import Path

from workbench.run.words import format_plan, plain
from workbench.watch.offers import offers_of_trial
from workbench.watch.protocol import AttemptPicture, TrialPicture
from workbench.watch.tail import RunTail
from workbench.watch.trials import duration_s

_LOG_BYTES = 16_384


def trial_picture(tail: RunTail, number: int, folder: Path) -> TrialPicture | None:
    """Return one trial in full; None where there is no such trial.

    Args:
        tail: The run, locked by the caller.
        number: Of the trial.
        folder: Where this machine keeps the run's files.
    """
    trial = tail.data.history.trials.get(number)
    if trial is None:
        return None
    hosts = trial.hosts or ["this machine"] * len(trial.worker_pids)
    return TrialPicture(
        number=number, state=trial.state, reason=trial.reason, message=trial.message,
        traceback=trial.traceback, params=trial.params, plan=format_plan(trial.plan),
        values=plain(trial.values or trial.last_values), source=trial.source, seed=trial.seed,
        step=trial.last_step, epoch=trial.last_epoch, duration_s=duration_s(trial),
        samples_per_s=trial.samples_per_s, parts_s=dict(trial.parts_s), attempts=trial.attempts,
        setbacks=tuple(
            AttemptPicture(
                attempt=setback.attempt, reason=setback.reason, message=setback.message,
                next_plan=setback.next_plan,
            )
            for setback in trial.setbacks
        ),
        resizes=tuple(resize.describe() for resize in trial.resizes),
        workers=tuple(f"{pid} on {host}" for pid, host in zip(trial.worker_pids, hosts, strict=False)),
        log=_read_end(folder / "trials" / f"{number:05d}" / "log.txt"),
        offers=offers_of_trial(tail.run_id, tail.row.state, trial),
    )  # fmt: skip


def _read_end(path: Path) -> str:
    """Return the last lines of a log; "" where there is none on this machine."""
    try:
        with path.open("rb") as file:
            size = file.seek(0, 2)
            file.seek(max(0, size - _LOG_BYTES))
            text = file.read().decode(errors="replace")
    except OSError:
        return ""
    return text if size <= _LOG_BYTES else text.partition("\n")[2]
