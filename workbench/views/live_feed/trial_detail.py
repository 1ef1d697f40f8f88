"""The details of one trial, from its events; what it printed is left to `trial_log`."""

from __future__ import annotations

from workbench.foundation.strict_json import plain
from workbench.store.history.lineage import describe_segment
from workbench.store.history.trial_columns import values_of_trial
from workbench.views.live_feed.attached import attached_files
from workbench.views.live_feed.available_actions import offers_of_trial
from workbench.views.live_feed.outcome import EndedAttempt
from workbench.views.live_feed.protocol import TrialDetail
from workbench.views.live_feed.run_tail import RunTail


def trial_detail(tail: RunTail, number: int) -> TrialDetail | None:
    """Return the details of one trial, or None if there is no such trial.

    Args:
        tail: The run, locked by the caller.
        number: Number of the trial.
    """
    trial = tail.data.history.trials.get(number)
    if trial is None:
        return None
    part = describe_segment(tail.data.history, trial)
    source = trial.source if part is None else f"{trial.source}: {part}"
    hosts = trial.hosts or ["this machine"] * len(trial.worker_pids)
    return TrialDetail(
        number=number,
        state=trial.state,
        reason=tail.data.history.reason_of(trial),
        message=trial.message,
        traceback=trial.traceback,
        params=trial.params,
        plan=trial.plan.describe(in_full=True),
        values=plain(values_of_trial(tail.data.history, trial)),
        source=source,
        seed=trial.seed,
        step=trial.last_step,
        epoch=trial.last_epoch,
        duration_s=trial.duration_s,
        samples_per_s=trial.samples_per_s,
        parts_s=dict(trial.parts_s),
        attempts=trial.attempts,
        setbacks=tuple(
            EndedAttempt(
                attempt=setback.attempt,
                reason=setback.reason,
                message=setback.message,
                next_plan=setback.next_plan,
            )
            for setback in trial.setbacks
        ),
        resizes=tuple(resize.describe() for resize in trial.resizes),
        workers=tuple(
            f"{pid} on {host}" for pid, host in zip(trial.worker_pids, hosts, strict=False)
        ),
        attachments=attached_files(trial),
        offers=offers_of_trial(tail.run_id, tail.row.state, tail.data.history, trial),
    )
