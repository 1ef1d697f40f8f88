"""The details of one trial, and the pictures, tables and texts that it attached to its reports.

They follow from its events. `trial_log` has what it printed.
"""

from __future__ import annotations

from collections import Counter

from workbench.foundation.artifacts import Artifacts
from workbench.foundation.attachments import MEDIA_TYPES
from workbench.foundation.errors import UnknownNameError
from workbench.foundation.python_values import plain
from workbench.runs.descriptions import attachment_file
from workbench.store.history import History, Trial
from workbench.store.history.history import INFEASIBLE, TARGET_MISSED
from workbench.store.history.lineage import describe_segment
from workbench.store.history.standings import describe_broken
from workbench.store.history.trial_columns import course_of, values_of_trial
from workbench.views.live_feed.available_actions import offers_of_trial
from workbench.views.live_feed.protocol import AttachedFile, CourseValue, EndedAttempt, TrialDetail
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
    return TrialDetail(
        number=number,
        state=trial.state,
        reason=tail.data.history.reason_of(trial),
        message=trial.message or _what_it_misses(tail.data.history, trial),
        traceback=trial.traceback,
        params=trial.params,
        plan=trial.plan.describe(),
        values=plain(values_of_trial(tail.data.history, trial)),
        source=source,
        seed=trial.seed,
        course=_course(tail.data.history, trial),
        parts_s=dict(trial.parts_s),
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
        workers=_places_of_workers(trial),
        processes=tuple(trial.worker_pids) if trial.state == "running" else (),
        attachments=attached_files(trial),
        offers=offers_of_trial(tail.run_id, tail.row.state, tail.data.history, trial),
    )


def _places_of_workers(trial: Trial) -> tuple[str, ...]:
    """Return the devices of the workers, such as "GPU 1 of vm" or "2 x CPU of vm"."""
    num_workers = len(trial.worker_pids)
    hosts = trial.hosts or ["this machine"] * num_workers
    gpus = trial.gpus or [[]] * num_workers
    devices = [" and ".join(map(_name_of_gpu, own)) or "CPU" for own in gpus]
    places = Counter(f"{device} of {host}" for device, host in zip(devices, hosts, strict=False))
    return tuple(place if num == 1 else f"{num} x {place}" for place, num in places.items())


def _name_of_gpu(gpu: str) -> str:
    """Return the name of a GPU, which is known by its number or by a UUID such as GPU-4f2a..."""
    return f"GPU {gpu}" if gpu.isdecimal() else gpu


def _what_it_misses(history: History, trial: Trial) -> str | None:
    """Return why a complete trial is no result, such as the constraint that it breaks."""
    if trial.state != "complete":
        return None
    reason = history.reason_of(trial)
    if reason == TARGET_MISSED:
        return "This trial did not reach its target in its rounds."
    broken = describe_broken(history.experiment.constraints, trial.values)
    if reason != INFEASIBLE or not broken:
        return None
    return f"This trial breaks a constraint: {broken}."


def _course(history: History, trial: Trial) -> tuple[CourseValue, ...]:
    """Return how far a trial came, in the columns that the table of trials declares for that."""
    values = ((column, column.value(history, trial)) for column in course_of(history))
    return tuple(
        CourseValue(
            key=column.identity,
            label=column.heading,
            meaning=column.meaning,
            format=column.format,
            unit=column.unit,
            value=plain(value),
        )
        for column, value in values
        if value is not None
    )


def attached_files(trial: Trial) -> tuple[AttachedFile, ...]:
    """Return what a trial attached to its reports, the oldest first."""
    return tuple(
        AttachedFile(
            name=saved.name,
            kind=saved.kind,
            step=saved.step,
            file=saved.file.rpartition("/")[2],
            size_bytes=saved.size_bytes,
        )
        for saved in trial.attachments
    )


def read_attached(artifacts: Artifacts, trial: int, file: str) -> tuple[str, bytes]:
    """Return the media type of an attachment and its content.

    Args:
        artifacts: The artifacts of the run.
        trial: Number of the trial.
        file: The name of the file, without a folder.

    Raises:
        UnknownNameError: If there is no such file.
    """
    media_type = MEDIA_TYPES.get(file.rpartition(".")[2])
    name = attachment_file(trial, file)
    if media_type is None or "/" in file or not artifacts.exists(name):
        raise UnknownNameError(f"trial {trial} has no attachment {file!r}", field="file")
    return media_type, artifacts.read(name)
