"""Training by any program: it is started with the values of a trial, and read while it runs.

What it prints is kept in the log of the trial up to `resources.max_log_size`. Its metrics are read from what
it writes anyway, as `metrics` of the experiment states. It is stopped by SIGTERM, then SIGKILL, and whatever
it started ends with it. Of several workers each starts the program, with the variables that torchrun sets;
only rank 0's metrics are read.
"""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from pydantic import JsonValue

from workbench.events import Event, Noted
from workbench.experiment import Experiment
from workbench.experiment.command import expand, expand_path
from workbench.training.kept_output import KeptOutput
from workbench.training.mirror import Mirror
from workbench.training.outcome import Outcome
from workbench.training.printed_metrics import PAIR_SIGNS, Lines, Reader, pattern_reader, read_line
from workbench.training.program_end import outcome_of, unstarted
from workbench.training.program_process import ProgramProcess
from workbench.training.program_ranks import ProgramRanks, join_ranks
from workbench.training.program_reports import ProgramReports
from workbench.training.task import TrialTask
from workbench.training.written_metrics import EventFolder, MetricFile, csv_rows, json_lines

POLL_S = 0.05
READ_BYTES = 2**20
KEEP_EVERY_S = 10.0
"""How often the content of the folder is carried to where artifacts are kept, should they be elsewhere."""


def run_program(
    task: TrialTask, report: Callable[[Event], bool], should_stop: Callable[[], bool] = lambda: False
) -> Outcome:
    """Start the program that an experiment's `command` names, and follow it to its end.

    Args:
        task: The trial to run.
        report: Takes events; returns whether the trial should stop.
        should_stop: Returns whether the trial should stop, whatever the program writes.

    Returns:
        How it ended.
    """
    experiment = task.experiment
    scratch = Path(tempfile.mkdtemp(prefix="workbench-"))
    folder = Mirror(task.checkpoints)
    try:
        with join_ranks(task) as ranks:
            attempt = _Attempt(task, experiment, report, ranks, scratch, folder)
            return attempt.run(should_stop)
    finally:
        folder.close()
        shutil.rmtree(scratch, ignore_errors=True)


class _Attempt:
    """One start of a program."""

    def __init__(
        self, task: TrialTask, experiment: Experiment, report: Callable[[Event], bool], ranks: ProgramRanks,
        scratch: Path, folder: Mirror,
    ) -> None:  # fmt: skip
        self._task, self._experiment, self._report, self._ranks = task, experiment, report, ranks
        self._folder, self._path = folder, folder.open()
        self._kept_s = time.monotonic()
        has_files = task.resume and any(self._path.iterdir())
        if task.attempt and task.rank == 0:
            self._note_new_attempt(has_files)
        self._built_in: dict[str, JsonValue] = {
            "config": str(scratch / "config.json"),
            "folder": str(self._path),
            "master": ranks.master,
            "rank": task.rank,
            "resume": has_files,
            "seed": task.seed,
            "trial": task.trial,
            "world_size": task.num_workers,
        }
        (scratch / "config.json").write_text(json.dumps(dict(task.params), ensure_ascii=False), "utf-8")
        self._reported = scratch / "reports.jsonl"
        self._reports = ProgramReports(task, experiment, report)
        self._log = KeptOutput(experiment.resources.max_log_size)

    def run(self, should_stop: Callable[[], bool]) -> Outcome:
        command = self._experiment.command
        assert command is not None
        arguments = expand(command, self._task.params, self._built_in)
        if arguments[0] in ("python", "python3"):
            arguments[0] = sys.executable
        readers, files = self._sources()
        sys.stdout.flush()
        process = ProgramProcess(arguments, self._environment(), self._experiment.resources.stop_grace)
        try:
            is_stopped = self._follow(process, readers, files, should_stop)
        finally:
            end = process.end()
        self._log.close()
        if end.error is not None:
            return unstarted(arguments[0], end.error)
        if end.left and self._task.rank == 0:
            self._note("info", f"processes that outlived the program were ended: {', '.join(end.left)}")
        outcome = outcome_of(
            end, self._reports, self._experiment, self._task, self._log, is_stopped=is_stopped
        )
        self._ranks.leave(failed=outcome.state == "failed")
        return outcome

    def _follow(
        self, process: ProgramProcess, readers: dict[int, Reader], files: list[MetricFile],
        should_stop: Callable[[], bool],
    ) -> bool:  # fmt: skip
        """Read what the program writes until it ends; return whether it was stopped on request."""
        is_stopped = False
        signs = PAIR_SIGNS if self._experiment.metric_source.kind in ("auto", "stdout") else ()
        streams = {process.output: Lines(signs), process.errors: Lines(signs)}
        polled_s = 0.0
        with selectors.DefaultSelector() as selector:
            for descriptor in (*streams, process.status):
                os.set_blocking(descriptor, descriptor == process.status)
                selector.register(descriptor, selectors.EVENT_READ)
            reads = {process.output: readers.get(1), process.errors: readers.get(2)}
            while True:
                ready = {key.fd for key, _ in selector.select(POLL_S)}
                for descriptor in ready & streams.keys():
                    if not self._read(process, descriptor, streams[descriptor], reads[descriptor]):
                        selector.unregister(descriptor)
                if time.monotonic() - polled_s >= POLL_S:
                    self._poll(files)
                    polled_s = time.monotonic()
                if process.status in ready:  # nothing of it is left, so that the rest can be read to its end
                    break
                if not is_stopped and (should_stop() or self._reports.stop or self._ranks.should_stop()):
                    is_stopped = True
                    self._ranks.request_stop()
                if is_stopped or self._reports.failed is not None:
                    process.stop()
        for descriptor, lines in streams.items():
            while self._read(process, descriptor, lines, reads[descriptor]):
                pass
            self._take(lines.end(), reads[descriptor])
        self._poll(files, at_end=True)
        self._reports.end()
        return is_stopped

    def _read(self, process: ProgramProcess, descriptor: int, lines: Lines, reader: Reader | None) -> bool:
        """Take what a stream holds now; return whether there may be more."""
        try:
            data = os.read(descriptor, READ_BYTES)
        except OSError:  # there is nothing now, or never again
            return False
        if not data:
            return False
        self._log.write(data, is_error=descriptor == process.errors)
        if reader is not None:
            self._take(lines.feed(data), reader)
        return True

    def _take(self, lines: list[bytes], reader: Reader | None) -> None:
        if reader is None:
            return
        for line in lines:
            if values := reader(line):
                self._reports.take(values)

    def _poll(self, files: list[MetricFile], *, at_end: bool = False) -> None:
        for file in files:
            with contextlib.suppress(OSError):  # it is being replaced: there is another time
                for values, step in file.poll(at_end=at_end):
                    self._reports.take(values, step)
        self._reports.tick()
        if time.monotonic() - self._kept_s > KEEP_EVERY_S:
            self._folder.keep()
            self._kept_s = time.monotonic()

    def _sources(self) -> tuple[dict[int, Reader], list[MetricFile]]:
        """Return what reads the lines of each stream, and the files that are followed."""
        if self._task.rank:
            return {}, []
        source = self._experiment.metric_source
        files: list[MetricFile] = [json_lines(self._reported)]
        path = None if source.path is None else Path(expand_path(source.path, self._built_in))
        match source.kind:
            case "auto":
                return {1: read_line, 2: read_line}, files
            case "stdout":
                return {1: read_line}, files
            case "pattern":
                reader = pattern_reader(source.pattern or ())
                return {1: reader, 2: reader}, files
            case "jsonl" | "csv":
                assert path is not None
                return {}, [*files, json_lines(path) if source.kind == "jsonl" else csv_rows(path)]
            case "tensorboard":
                assert path is not None
                return {}, [*files, EventFolder(path)]
            case "wandb":
                from workbench.training.wandb_metrics import WandbFolder

                return {}, [*files, WandbFolder(self._path)]

    def _environment(self) -> dict[str, str]:
        """Return the environment variables of the program."""
        found = dict(os.environ) | self._ranks.variables
        found |= {
            "PYTHONUNBUFFERED": "1",
            "WORKBENCH_CONFIG": str(self._built_in["config"]),
            "WORKBENCH_FOLDER": str(self._path),
            "WORKBENCH_SEED": str(self._task.seed),
            "WORKBENCH_TRIAL": str(self._task.trial),
        }
        found.pop("WORKBENCH_REPORTS", None)
        if self._task.rank == 0:
            found["WORKBENCH_REPORTS"] = str(self._reported)
        if self._experiment.metric_source.kind == "wandb":
            found |= {"WANDB_MODE": "offline", "WANDB_DIR": str(self._path), "WANDB_SILENT": "true"}
        return found

    def _note_new_attempt(self, has_files: bool) -> None:
        named = "{resume" in (self._experiment.command or "")
        if has_files:
            how = "" if named else "; whether it reads them is up to the program"
            self._note("info", f"the program is started again, with the files of its folder{how}")
        else:
            self._note("info", "the program starts anew: it has left nothing in its folder")

    def _note(self, level: str, message: str) -> None:
        self._report(Noted.model_validate({"level": level, "message": message, "trial": self._task.trial}))
