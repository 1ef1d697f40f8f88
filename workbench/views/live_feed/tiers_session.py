"""A view of a file of tiers, over any transport: the plan, the running tiers, and the result.

`tiers_picture` defines the messages. Notebooks transport them through the kernel, the panel through
`tiers_process`. Runs reach a view by the journal of the file, whichever process they belong to.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
import threading
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

from workbench.foundation.errors import Problem, WorkbenchError
from workbench.tiers.placement.tiers_file import TiersFile, read_tiers
from workbench.views.live_feed.tiers_journal import JournalReader, measure_and_report
from workbench.views.live_feed.tiers_picture import (
    RunTiers,
    StopTiers,
    ThresholdPoint,
    TiersHello,
    TiersMessage,
    TiersPicture,
    TiersRun,
    TiersStatus,
    point_of,
    read_tiers_request,
    still_page,
)

_MAX_KEPT = 240
_PERIOD_S = 0.2


class TiersSession:
    """What is shown of a file of tiers.

    `measured` is what the last run that was started here gave.
    """

    def __init__(self, path: Path, file: TiersFile, send: Callable[[TiersMessage], None]) -> None:
        """Measure the stages in the background, and send what they give.

        Args:
            path: The file of tiers.
            file: What it holds.
            send: Takes messages, from any thread.
        """
        self._path, self._file, self._send = path, file, send
        self._made = Path(tempfile.mkdtemp(prefix="workbench-place-"))
        weakref.finalize(self, shutil.rmtree, self._made, ignore_errors=True)
        self._ended, self._stopped = threading.Event(), threading.Event()
        self._picture: TiersPicture | None = None
        self._run = TiersRun(state="measuring")
        self._statuses: list[TiersStatus] = []
        self._cut_at: Any = None
        self.measured: Any = None
        self.work = _start(self._planned)

    def receive(self, content: Any) -> None:
        """Handle a message of the view. Anything else is ignored.

        Args:
            content: The message.
        """
        request = read_tiers_request(content) if isinstance(content, dict) else None
        match request:
            case TiersHello():
                for message in (self._picture, self._run, *self._statuses):
                    if message is not None:
                        self._send(message)
            case RunTiers() if self._run.state in ("idle", "done") and self._picture is not None:
                self._stopped.clear()
                self._take(
                    TiersRun(
                        state="starting",
                        scheduler=request.scheduler,
                        threshold=request.threshold,
                        time_s=request.time_s,
                    )
                )
                self.work = _start(lambda: self._guarded(lambda: self._measure(request)))
            case StopTiers():
                self._stopped.set()
            case _:
                pass

    @property
    def mark(self) -> tuple[bool, str]:
        """Changes when the picture without a live view does."""
        return self._picture is not None, self._run.state

    def page(self) -> str:
        """Return the plan and the last result as HTML, for places without a live view."""
        return still_page(self._picture, self._run)

    def close(self) -> None:
        """End the tiers that were started here."""
        self._ended.set()

    def _planned(self) -> None:
        self._guarded(self._plan)
        if self._picture is not None:
            _start(self._follow)

    def _guarded(self, work: Callable[[], None]) -> None:
        try:
            work()
        except WorkbenchError as error:
            self._take(TiersRun(state="idle", problem=error.to_problem()))
        except Exception as error:  # nobody else would see it: this is a thread
            self._take(
                TiersRun(state="idle", problem=Problem(problem=f"{type(error).__name__}: {error}"))
            )

    def _follow(self) -> None:
        """Send what is reported of the runs of the file, until the view is closed."""
        reader = JournalReader(self._path)
        while not self._ended.is_set():
            for message in reader.read():
                self._take(message)
            self._ended.wait(_PERIOD_S)

    def _take(self, message: TiersRun | TiersStatus) -> None:
        if isinstance(message, TiersStatus):
            self._statuses = [*self._statuses[1 - _MAX_KEPT :], message]
        else:
            if message.state == "starting":
                self._statuses = []
            self._run = message
        self._send(message)

    def _plan(self) -> None:
        from workbench.deploy.stages import read_stages
        from workbench.tiers.placement.assembly import assemble, bundle_of
        from workbench.tiers.placement.scheduler_plans import exit_curve
        from workbench.tiers.placement.schedulers import policies_for
        from workbench.tiers.processes.placing import placed
        from workbench.tiers.processes.profiling import profile_stages
        from workbench.tiers.processes.samples import bundle_samples
        from workbench.tiers.processes.sent_evidence import changes_answers, with_sent_evidence
        from workbench.tiers.processes.spreading import RUNNABLE

        folder = self._path.parent
        file = self._file = placed(self._file, folder, self._made, export=_export)
        bundle = bundle_of(file, folder)
        system, _ = assemble(file, folder, measure=profile_stages)
        note = ""
        labels = file.place.labels
        if changes_answers(file) or labels:
            try:
                samples = bundle_samples(bundle)
                system = with_sent_evidence(
                    system,
                    file.privacy,
                    bundle,
                    *samples,
                    labels=labels,
                    missing=file.place.missing_views,
                )
            except WorkbenchError as error:
                note = f"The accuracy is that without quantisation and noise: {error}"
        planned = policies_for(system)
        runnable = [scheduler for scheduler in RUNNABLE if scheduler in planned]
        if system.cut is not None:
            self._cut_at = system.cut.is_there
            runnable.append("cut")
        exported = read_stages(bundle).stages[0].threshold
        self._picture = TiersPicture(
            file=self._path.name,
            tiers=list(system.names),
            counts=list(system.counts),
            scheduler=file.place.scheduler,
            runnable=runnable,
            threshold=min(1.0, system.thresholds[0]),
            exported=exported,
            busy=system.busy,
            note=note,
            points=[
                ThresholdPoint(
                    threshold=point.threshold,
                    share=point.share,
                    schedulers=[
                        point_of(name, outcome, point.group_accuracy.get(name))
                        for name, outcome in point.outcomes.items()
                    ],
                )
                for point in exit_curve(system)
            ],
        )
        self._send(self._picture)
        self._take(TiersRun(state="idle"))

    def _measure(self, request: RunTiers) -> None:
        from workbench.tiers.placement.assembly import bundle_of
        from workbench.tiers.processes.measured_run import poisson_moments_s
        from workbench.tiers.processes.prediction import system_here
        from workbench.tiers.processes.samples import bundle_samples
        from workbench.tiers.processes.sent_evidence import with_sent_evidence

        folder = self._path.parent
        # Devices that see one scene have no threshold: they always send their features.
        threshold = None if self._file.place.scene is not None else request.threshold
        place = self._file.place.model_copy(update={"threshold": threshold})
        file = self._file.model_copy(update={"place": place})
        moments_s = poisson_moments_s(request.rate_per_s, request.time_s)
        bundle = bundle_of(file, folder)
        samples, targets = bundle_samples(bundle)
        here = system_here(file, folder, len(moments_s) / moments_s[-1], cut_at=self._cut_at)
        system = with_sent_evidence(
            here,
            file.privacy,
            bundle,
            samples,
            targets,
            labels=file.place.labels,
            missing=file.place.missing_views,
        )
        self.measured, *_ = measure_and_report(
            self._path,
            request.scheduler,
            file,
            bundle,
            system=system,
            samples=(samples, targets),
            moments_s=moments_s,
            time_s=request.time_s,
            is_wanted=lambda: not (self._stopped.is_set() or self._ended.is_set()),
        )


def _start(work: Callable[[], None]) -> threading.Thread:
    thread = threading.Thread(target=work, name="workbench-tiers", daemon=True)
    thread.start()
    return thread


def _export(name: str, folder: Path) -> None:
    from workbench.runs import attach

    run_id, _, trial = name.rpartition("/")
    attach(run_id).export(folder, trial=int(trial) if trial.isdigit() else None, format="onnx")


_END_S = 10.0


def main(words: list[str]) -> int:
    """Serve the views of a file until the input ends.

    Args:
        words: The file.

    Returns:
        The exit code.
    """
    output = os.fdopen(os.dup(sys.stdout.fileno()), "w", encoding="utf-8")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # what libraries print is no message
    lock = threading.Lock()

    def send(message: TiersMessage) -> None:
        with lock:
            output.write(message.model_dump_json() + "\n")
            output.flush()

    path = Path(words[0])
    try:
        session = TiersSession(path, read_tiers(path), send)
    except WorkbenchError as error:
        problem = TiersRun(state="idle", problem=error.to_problem())
        for _ in sys.stdin:
            send(problem)
        return 0
    for line in sys.stdin:
        session.receive(json.loads(line))
    session.close()
    session.work.join(_END_S)  # its processes are ended with it
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
