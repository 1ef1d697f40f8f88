"""Tiers in a notebook: what each exit threshold gives, and the tiers with their queues while they run.

What is shown is defined in `workbench.live_feed.tiers_picture`; this module computes it in the kernel, beside
the cells, and transports it.
"""

from __future__ import annotations

import html
import shutil
import tempfile
import threading
import time
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anywidget
import traitlets

from workbench.deploy.placement.tiers_file import TiersFile, read_tiers
from workbench.errors import Problem, WorkbenchError
from workbench.live_feed.tiers_picture import (
    RunTiers,
    SchedulerPoint,
    StopTiers,
    ThresholdPoint,
    TiersHello,
    TiersMessage,
    TiersPicture,
    TiersRun,
    finite,
    read_tiers_request,
    status_between,
)
from workbench.widgets.live_view import read_view

if TYPE_CHECKING:
    from workbench.deploy.placement.flows import Outcome

_VIEW = Path(__file__).parent / "static" / "tiers.js"
_MAX_KEPT = 240


class TiersView(anywidget.AnyWidget):
    """A view of a file of tiers; `measured` is what the last run of them gave."""

    _esm = traitlets.Unicode().tag(sync=True)

    def __init__(self, path: Path, file: TiersFile) -> None:
        """Measure the stages in the background, and show what they give; usually called by `tiers`.

        Args:
            path: The file of tiers.
            file: What it holds.

        Raises:
            WorkbenchError: If the front end is not built.
        """
        self._ended = threading.Event()
        super().__init__(_esm=read_view(_VIEW))
        self._path, self._file = path, file
        self._made = Path(tempfile.mkdtemp(prefix="workbench-place-"))
        weakref.finalize(self, shutil.rmtree, self._made, ignore_errors=True)
        self._picture: TiersPicture | None = None
        self._run = TiersRun(state="measuring")
        self._status: list[TiersMessage] = []
        self._stopped = threading.Event()
        self.measured: Any = None
        self._cut_at: Any = None
        self.on_msg(self._on_message)
        self._work = self._start(self._plan)

    def close(self) -> None:
        """End the tiers that run, and remove the view."""
        self._ended.set()
        super().close()

    def _start(self, work: Callable[[], None]) -> threading.Thread:
        thread = threading.Thread(target=self._guarded, args=(work,), name="workbench-tiers", daemon=True)
        thread.start()
        return thread

    def _guarded(self, work: Callable[[], None]) -> None:
        try:
            work()
        except WorkbenchError as error:
            self._show_problem(error.to_problem())
        except Exception as error:  # nobody else would see it: this is a thread
            self._show_problem(Problem(problem=f"{type(error).__name__}: {error}"))

    def _show_problem(self, problem: Problem) -> None:
        self._show_run(self._run.model_copy(update={"state": "idle", "problem": problem}))

    def _on_message(self, _widget: Any, content: Any, _buffers: Any) -> None:
        request = read_tiers_request(content) if isinstance(content, dict) else None
        match request:
            case TiersHello():
                for message in (self._picture, self._run, *self._status):
                    if message is not None:
                        self.send(message.model_dump())
            case RunTiers() if self._run.state in ("idle", "done") and self._picture is not None:
                self._show_run(
                    TiersRun(
                        state="starting", scheduler=request.scheduler, threshold=request.threshold,
                        time_s=request.time_s,
                    )
                )  # fmt: skip
                self._work = self._start(lambda: self._measure(request))
            case StopTiers():
                self._stopped.set()
            case _:
                pass

    def _plan(self) -> None:
        from workbench.deploy.placement.assembly import assemble, bundle_of
        from workbench.deploy.placement.exit_curve import exit_curve
        from workbench.deploy.placement.stages import read_stages
        from workbench.deploy.tiers.placing import placed
        from workbench.deploy.tiers.profiling import profile_stages
        from workbench.deploy.tiers.samples import bundle_samples
        from workbench.deploy.tiers.sent_evidence import changes_answers, with_sent_evidence
        from workbench.deploy.tiers.spreading import RUNNABLE

        folder = self._path.parent
        file = self._file = placed(self._file, folder, self._made)
        bundle = bundle_of(file, folder)
        system, _ = assemble(file, folder, measure=profile_stages)
        note, labels = "", file.place.labels
        if changes_answers(file.privacy) or labels:
            try:
                samples = bundle_samples(bundle)
                system = with_sent_evidence(system, file.privacy, bundle, *samples, labels=labels)
            except WorkbenchError as error:
                note = f"The accuracy is that without quantisation and noise: {error}"
        runnable: list[str] = list(RUNNABLE)
        if system.cut is not None:
            self._cut_at = system.cut.is_there
            runnable.append("cut")
        exported = read_stages(bundle).stages[0].threshold
        self._picture = TiersPicture(
            file=self._path.name, tiers=list(system.names), counts=list(system.counts),
            scheduler=file.place.scheduler, runnable=runnable, threshold=system.thresholds[0],
            exported=exported, busy=system.busy, note=note,
            points=[
                ThresholdPoint(
                    threshold=point.threshold, share=point.share,
                    schedulers=[
                        _point_of(name, one, point.group_accuracy.get(name))
                        for name, one in point.outcomes.items()
                    ],
                )
                for point in exit_curve(system)
            ],
        )  # fmt: skip
        self.send(self._picture.model_dump())
        self._show_run(TiersRun(state="idle"))

    def _measure(self, request: RunTiers) -> None:
        from workbench.deploy.placement.assembly import bundle_of
        from workbench.deploy.placement.schedulers import SCHEDULERS
        from workbench.deploy.tiers.measured_run import poisson_moments_s
        from workbench.deploy.tiers.measured_scheduler import measure_scheduler
        from workbench.deploy.tiers.prediction import system_here
        from workbench.deploy.tiers.samples import bundle_samples
        from workbench.deploy.tiers.sent_evidence import with_sent_evidence

        folder = self._path.parent
        place = self._file.place.model_copy(update={"threshold": request.threshold})
        file = self._file.model_copy(update={"place": place})
        moments_s = poisson_moments_s(request.rate_per_s, request.time_s)
        bundle = bundle_of(file, folder)
        samples, targets = bundle_samples(bundle)
        here = system_here(file, folder, len(moments_s) / moments_s[-1], cut_at=self._cut_at)
        system = with_sent_evidence(
            here, file.privacy, bundle, samples, targets, labels=file.place.labels
        )  # fmt: skip
        self._stopped.clear()
        self._status = []
        measured, times, _ = measure_scheduler(
            request.scheduler, file, folder, bundle, system, (samples, targets), moments_s,
            on_status=self._follow(),
        )  # fmt: skip
        self.measured = measured
        scheduler = SCHEDULERS.load(request.scheduler)()
        by_group = None if system.group_threshold is None else scheduler.expect(system.by_group()).accuracy
        planned = _point_of(request.scheduler, scheduler.expect(system), by_group)
        self._show_run(
            self._run.model_copy(
                update={
                    "state": "done", "num_requests": measured.num_requests,
                    "num_unanswered": measured.num_unanswered,
                    "measured": SchedulerPoint(
                        scheduler=request.scheduler, accuracy=measured.accuracy, mean_s=measured.mean_s,
                        p50_s=measured.p50_s, p95_s=measured.p95_s,
                        bytes_per_sample=measured.bytes_per_sample, load=list(measured.load.values()),
                        group_accuracy=None if measured.groups is None else measured.groups.accuracy,
                    ),
                    "expected": planned.model_copy(
                        update={"mean_s": times.mean_s, "p50_s": times.p50_s, "p95_s": times.p95_s}
                    ),
                }
            )
        )  # fmt: skip

    def _follow(self) -> Callable[[list[dict[str, float]]], bool]:
        """Return what receives the reports of tiers, and sends what they mean."""
        before: list[list[dict[str, float]]] = []
        began_s = time.monotonic()

        def receive(now: list[dict[str, float]]) -> bool:
            if not before:
                self._show_run(self._run.model_copy(update={"state": "running"}))
            else:
                status = status_between(before.pop(), now, at_s=time.monotonic() - began_s)
                self._status = [*self._status[1 - _MAX_KEPT :], status]
                self.send(status.model_dump())
            before.append(now)
            return not (self._stopped.is_set() or self._ended.is_set())

        return receive

    def _show_run(self, run: TiersRun) -> None:
        self._run = run
        self.send(run.model_dump())

    def _repr_mimebundle_(self, **options: Any) -> tuple[dict[str, Any], dict[str, Any]] | None:
        bundle = super()._repr_mimebundle_(**options)
        if bundle is not None:
            # Shown where widgets are unavailable: on a web site, or after a restart of the kernel.
            bundle[0]["text/html"] = f"<pre>{html.escape(self._path.read_text(encoding='utf-8'))}</pre>"
        return bundle


def _point_of(name: str, outcome: Outcome, group_accuracy: float | None = None) -> SchedulerPoint:
    return SchedulerPoint(
        scheduler=name, accuracy=outcome.accuracy, mean_s=finite(outcome.response_s.mean()),
        p50_s=finite(outcome.quantile_s(0.5)), p95_s=finite(outcome.quantile_s(0.95)),
        bytes_per_sample=outcome.bytes_per_sample, load=list(outcome.load.values()),
        group_accuracy=group_accuracy,
    )  # fmt: skip


def tiers(file: str | Path) -> TiersView:
    """Show what each exit threshold of a file of tiers gives, and run the tiers.

    The stages are measured first, which takes seconds; the kernel is free meanwhile.

    Args:
        file: The file of tiers.

    Raises:
        ExperimentError: If it cannot be read or is invalid.
        WorkbenchError: If the front end is not built.

    Example:
        >>> view = wb.widgets.tiers("tiers.yaml")  # doctest: +SKIP
    """
    path = Path(file)
    return TiersView(path, read_tiers(path))
