"""What tiers that run on this machine report, in a file, so that all views of a file of tiers
follow them.

It does not matter which process started them: a terminal, a notebook or the panel. A reader follows
the run that is under way. One that had ended before is not shown. Planning is left to
`tiers_session`.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil

from workbench.foundation.artifacts.local import make_private
from workbench.foundation.errors import Problem, WorkbenchError
from workbench.store.database.urls import user_data_folder
from workbench.views.live_feed.tiers_picture import (
    SchedulerPoint,
    TiersRun,
    TiersStatus,
    point_of,
    status_between,
)

if TYPE_CHECKING:
    import numpy as np

    from workbench.tiers.placement.system import System
    from workbench.tiers.placement.tiers_file import TiersFile
    from workbench.tiers.processes.measured_run import Measured
    from workbench.tiers.processes.prediction import Expected

_LOST = Problem(
    problem="the process that ran the tiers has ended before it had a result",
    next_step="Run them again.",
)


def journal_path(file: Path) -> Path:
    """Return where the runs of a file of tiers are reported.

    Args:
        file: The file of tiers.
    """
    name = hashlib.sha256(str(file.resolve()).encode()).hexdigest()[:32]
    return user_data_folder() / "tiers" / f"{name}.jsonl"


class TiersJournal:
    """Reports one run, in place of the one before."""

    def __init__(
        self, file: Path, run: TiersRun, *, is_wanted: Callable[[], bool] = lambda: True
    ) -> None:
        """Start with processes that start.

        Args:
            file: The file of tiers.
            run: What runs.
            is_wanted: Returns whether the run should continue.
        """
        self._run, self._is_wanted = run, is_wanted
        self._before: list[dict[str, float]] | None = None
        self._began_s = time.monotonic()
        path = journal_path(file)
        make_private(path.parent)
        # A new file under the old name: who reads the old one notices, and who still writes it
        # harms nobody.
        beginning = path.with_name(f"{path.name}.{os.getpid()}")
        self._file = beginning.open("w", encoding="utf-8", buffering=1)
        self._write(_owner())
        self._write(run.model_dump())
        beginning.replace(path)

    def on_status(self, reports: list[dict[str, float]]) -> bool:
        """Report how the tiers do. Return whether the run should continue.

        Args:
            reports: What each tier reports of itself.
        """
        if self._before is None:
            self._change(state="running")
        else:
            at_s = time.monotonic() - self._began_s
            self._write(status_between(self._before, reports, at_s=at_s).model_dump())
        self._before = reports
        return self._is_wanted()

    def end(self, **changes: Any) -> None:
        """Report the result, or the problem, as fields of `TiersRun`."""
        self._change(**changes)
        self._file.close()

    def _change(self, **changes: Any) -> None:
        self._run = self._run.model_copy(update=changes)
        self._write(self._run.model_dump())

    def _write(self, document: dict[str, Any]) -> None:
        self._file.write(json.dumps(document) + "\n")


class JournalReader:
    """Follows the runs of a file of tiers."""

    def __init__(self, file: Path) -> None:
        """Follow the runs of a file from now on, and the one that is under way.

        Args:
            file: The file of tiers.
        """
        self._path = journal_path(file)
        self._is_first = True
        self._place = 0
        self._owner: dict[str, Any] = {}
        self._is_under_way = False

    def read(self) -> list[TiersRun | TiersStatus]:
        """Return what was reported since the last call."""
        is_first, self._is_first = self._is_first, False
        messages = [_message_of(document, self._owner) for document in self._documents()]
        states = [message.state for message in messages if isinstance(message, TiersRun)]
        if states:
            self._is_under_way = states[-1] in ("starting", "running")
        is_lost = self._is_under_way and not messages and not _is_alive(self._owner)
        if is_first and not (self._is_under_way and _is_alive(self._owner)):
            self._is_under_way = False
            return []
        if is_lost:
            self._is_under_way = False
            return [TiersRun(state="idle", problem=_LOST)]
        return messages

    def _documents(self) -> list[dict[str, Any]]:
        try:
            with self._path.open("rb") as file:
                first = file.readline()
                if (owner := json.loads(first)) != self._owner:
                    self._owner, self._place = owner, len(first)
                file.seek(self._place)
                lines = file.read().splitlines(keepends=True)
        except FileNotFoundError:
            return []
        whole = [line for line in lines if line.endswith(b"\n")]
        self._place += sum(map(len, whole))
        return [json.loads(line) for line in whole]


def measure_and_report(
    path: Path,
    scheduler: str,
    tiers: TiersFile,
    bundle: Path,
    *,
    system: System,
    samples: tuple[np.ndarray, np.ndarray],
    moments_s: Sequence[float],
    time_s: float,
    is_wanted: Callable[[], bool] = lambda: True,
) -> tuple[Measured, Expected, System]:
    """Measure a scheduler as `measure_scheduler` does, and report how the tiers do meanwhile.

    Args:
        path: The file of tiers.
        scheduler: The scheduler.
        tiers: What the file holds.
        bundle: The bundle whose stages are spread.
        system: What runs.
        samples: Inputs of the validation split, and the right classes.
        moments_s: When requests are sent, in seconds.
        time_s: For how long they are.
        is_wanted: Returns whether the measurement should continue.

    Raises:
        WorkbenchError: As `measure_scheduler`.
    """
    from workbench.tiers.processes.prediction import measure_scheduler

    run = TiersRun(
        state="starting", scheduler=scheduler, threshold=system.thresholds[0], time_s=time_s
    )
    journal = TiersJournal(path, run, is_wanted=is_wanted)
    try:
        measured, expected, ran = measure_scheduler(
            scheduler,
            tiers,
            folder=path.parent,
            bundle=bundle,
            system=system,
            samples=samples,
            moments_s=moments_s,
            on_status=journal.on_status,
        )
    except WorkbenchError as error:
        journal.end(state="idle", problem=error.to_problem())
        raise
    except BaseException as error:
        journal.end(state="idle", problem=Problem(problem=f"{type(error).__name__}: {error}"))
        raise
    journal.end(
        state="done",
        num_requests=measured.num_requests,
        num_unanswered=measured.num_unanswered,
        measured=_measured_point(measured),
        expected=_expected_point(scheduler, system, expected),
    )
    return measured, expected, ran


def _measured_point(measured: Measured) -> SchedulerPoint:
    group_accuracy = None
    if measured.groups is not None:
        group_accuracy = measured.groups.accuracy
    return SchedulerPoint(
        scheduler=measured.scheduler,
        accuracy=measured.accuracy,
        mean_s=measured.mean_s,
        p50_s=measured.p50_s,
        p95_s=measured.p95_s,
        bytes_per_sample=measured.bytes_per_sample,
        load=list(measured.load.values()),
        group_accuracy=group_accuracy,
    )


def _expected_point(name: str, system: System, times: Expected) -> SchedulerPoint:
    from workbench.tiers.placement.schedulers import SCHEDULERS

    scheduler = SCHEDULERS.load(name)()
    by_group = None
    if system.group_threshold is not None:
        by_group = scheduler.expect(system.by_group()).accuracy
    planned = point_of(name, scheduler.expect(system), by_group)
    measured_of = {name: getattr(times, name) for name in ("accuracy", "mean_s", "p50_s", "p95_s")}
    return planned.model_copy(update=measured_of)


def _owner() -> dict[str, Any]:
    began = psutil.Process().create_time()
    return {"pid": os.getpid(), "began": began, "run": time.time_ns()}


def _is_alive(owner: dict[str, Any]) -> bool:
    try:
        return psutil.Process(owner["pid"]).create_time() == owner["began"]
    except (KeyError, psutil.Error):
        return False


def _message_of(document: dict[str, Any], owner: dict[str, Any]) -> TiersRun | TiersStatus:
    if document["type"] == "status":
        return TiersStatus.model_validate(document)
    return TiersRun.model_validate({**document, "is_elsewhere": owner.get("pid") != os.getpid()})
