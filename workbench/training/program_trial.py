"""A trial that is a program: what it receives, what its reports mean, and how it ends the trial.

The output goes to the log of the trial, up to `resources.max_log_size`. If there are several
workers, each starts the program with the variables of torchrun, and only rank 0's metrics are read.
An objective is reported at once, so that the trial can be pruned. Other metrics are collected for
up to half a second. Which of many reports are stored is left to the worker. Starting, reading and
ending the program is left to `programs`.
"""

from __future__ import annotations

import json
import math
import os
import re
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path

from pydantic import JsonValue

from workbench.experiment import Experiment
from workbench.experiment.code_versions import CODE
from workbench.experiment.command import (
    RESUME_FROM,
    expand,
    expand_path,
    files_to_resume_from,
    nested,
    reads_earlier_files,
)
from workbench.experiment.goals import describe_other_metric, trained_metrics
from workbench.experiment.trial_value import find_divergence, mode_of
from workbench.foundation.errors import ExperimentError
from workbench.foundation.events import Event, Noted, TrialReported
from workbench.foundation.outside_text import storable_name
from workbench.training.kept_attachments import KeptAttachments
from workbench.training.mirrored_folder import Mirror, read_layout, take_over, write_layout
from workbench.training.outcome import ALLOCATION_FAILURES, Outcome, diverged
from workbench.training.programs.documents import Values
from workbench.training.programs.following import (
    FollowedProgram,
    KeptOutput,
    MetricReaders,
    ProgramEnd,
)
from workbench.training.programs.kept_imports import SEEN_VARIABLE, VARIABLE
from workbench.training.programs.kept_scripts import Layout, kept_scripts, lay_out
from workbench.training.programs.last_error import last_error, last_traceback
from workbench.training.programs.printed_metrics import Source, pattern_reader
from workbench.training.programs.script_report import Attached, read_attached
from workbench.training.programs.wandb_files import WandbFolder, wandb_configuration
from workbench.training.programs.written_metrics import (
    EventFolder,
    FinalValues,
    LoggedValues,
    is_rounded,
    is_same_number,
)
from workbench.training.ranks import ProgramRanks, join_ranks
from workbench.training.worker_task import TrialTask

KEEP_EVERY_S = 10.0
"""How often the content of the folder is uploaded, if artifacts are not on this machine.
"""

NOT_SERVED = (
    "the program does not reach the code that the run has kept, for example because something"
    " replaces its environment variables. So it runs the code on the disk, which is now compared"
    " for every trial"
)
_SEEN_NAME = "kept-code-seen"
SAVED_S = 0.3
"""For how long a file in the folder must not have changed to count as a complete checkpoint."""
_GROWS = re.compile(r"\.(?:csv|tsv|jsonl|ndjson|log|wandb)$|tfevents")
"""Names of files that get another row in each step, and are no checkpoint."""
SAVED_SHARE = 0.2
"""The largest part of a step between its checkpoint and its report, if it is saved before."""
NO_STEP = "the program writes no"
"""How a note about a step that is never written begins."""
_CERTAINLY_WITHOUT = 2
"""After so many objectives without a step, none is expected any more."""
OTHERS_EVERY_S = 0.5
MAX_NAMES = 200
NUM_LAST_LINES = 10
_MAX_LINE_CHARS = 200
_DIGIT = re.compile(r"\d")
_MAX_NEIGHBOURS = 5
"""How many files next to a missing one a message names."""
_MEMORY = (*ALLOCATION_FAILURES, "OutOfMemoryError", "MemoryError", "std::bad_alloc")
_FROM_OUTSIDE = frozenset({signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP})
"""Signals that come from outside, so the last output of the program need not be an error."""
_PROGRAMS = str(Path(sys.executable).parent)
_CERTAIN_CHANGES = 3
"""After so many changes between two kinds of lines, a metric is surely two numbers.

Fewer can also come from a summary at the end.
"""
_MAX_SHOWN_CHARS = 100
SHARED_NAME = "the program prints different numbers as"
"""The start of the message about a metric that may be two numbers."""
_ENDS = re.compile(r"[\r\n]+")


def run_program(
    task: TrialTask,
    report: Callable[[Event], bool],
    should_stop: Callable[[], bool] = lambda: False,
) -> Outcome:
    """Start the program in an experiment's `command`, and follow it to its end.

    Args:
        task: The trial to run.
        report: Receives events, and returns whether the trial should stop.
        should_stop: Returns whether the trial should stop, even if the program writes nothing.

    Returns:
        How the trial ended.
    """
    take_over(task)
    scratch = Path(tempfile.mkdtemp(prefix="workbench-"))
    folder = Mirror(task.checkpoints)
    try:
        attempt = _Attempt(task, report, join_ranks(task), scratch=scratch, folder=folder)
        return attempt.run(should_stop)
    finally:
        folder.close()
        shutil.rmtree(scratch, ignore_errors=True)


class _Attempt:
    """One attempt at a trial by a program."""

    def __init__(
        self,
        task: TrialTask,
        report: Callable[[Event], bool],
        ranks: ProgramRanks,
        *,
        scratch: Path,
        folder: Mirror,
    ) -> None:
        experiment = task.experiment
        self._task, self._experiment, self._report, self._ranks = task, experiment, report, ranks
        self._folder = folder
        self._path = folder.open()
        self._kept_s = time.monotonic()
        layout = self._lay_out()
        has_files = task.resume and next(layout.others_in(self._path), None) is not None
        assert experiment.command is not None
        wanted = files_to_resume_from(experiment.command)
        resumed = {
            name: newest_file(self._path, name, layout) if has_files else None for name in wanted
        }
        if (task.attempt or task.continued is not None) and task.rank == 0:
            self._note_new_attempt(has_files, resumed)
        self._built_in: dict[str, JsonValue] = {
            "config": str(scratch / "config.json"),
            "folder": str(self._path),
            "master": ranks.master,
            "rank": task.rank,
            "resume": has_files,
            RESUME_FROM: {name: path and str(path) for name, path in resumed.items()},
            "seed": task.seed,
            "trial": task.trial,
            "world_size": task.num_workers,
        }
        if experiment.search.code_versions:
            self._built_in[CODE] = task.params[CODE]
        self._params = experiment.search.without_version(task.params)
        (scratch / "config.json").write_text(json.dumps(self._params, ensure_ascii=False), "utf-8")
        if experiment.metric_source.kind == "wandb":
            (scratch / "wandb.yaml").write_text(wandb_configuration(nested(self._params)), "utf-8")
        self._scratch, self._reported = scratch, scratch / "reports.jsonl"
        self._reports = ProgramReports(task, experiment, report)
        self._metric_readers = self._readers()
        self._final_values: FinalValues | None = None
        if task.rank == 0 and experiment.metric_source.kind in ("auto", "stdout"):
            # Files of earlier attempts are skipped.
            tracked = EventFolder(self._path), WandbFolder(self._path)
            self._final_values = FinalValues(self._path, tracked)
        self._attachments = KeptAttachments(task, report)
        self._is_stopped = False
        self._ends_turn = False

    @property
    def _workdir(self) -> Path | None:
        """The working folder of the trial, or None if it runs in the folder of the run."""
        return None if self._experiment.links is None else self._path

    def _lay_out(self) -> Layout:
        """Fill the working folder of the trial, if it has one."""
        links, trial = self._experiment.links, self._task.artifacts
        if links is None:
            return Layout()
        layout = lay_out(self._path, links, read_layout(trial))
        self._folder.layout = layout
        if self._task.rank == 0:
            write_layout(trial, layout)
        return layout

    def run(self, should_stop: Callable[[], bool]) -> Outcome:
        """Start the program, and follow it to its end."""
        experiment, task = self._experiment, self._task
        assert experiment.command is not None
        arguments = expand(experiment.command, self._params, self._built_in)
        program = FollowedProgram(
            self._metric_readers,
            KeptOutput(experiment.resources.max_log_size),
            take=self._reports.take,
            tick=self._tick,
            should_end=lambda: self._should_end(should_stop),
        )
        grace_s = experiment.resources.stop_grace
        with kept_scripts(arguments, self._workdir) as started:
            end = program.run(started, self._environment(), grace_s, self._workdir)
        if end.error is None and not self._is_stopped:
            self._settle()
        self._reports.end()
        self._attachments.close()
        self._refuse_shared_names()
        self._note_doubtful_lines()
        # The remaining reports are sent before any note about how the program ended.
        if (unmeasured := self._reports.describe_unmeasured()) is not None:
            self._note("warning", unmeasured)
        if end.error is not None:
            message = f"{arguments[0]} could not be started: {end.error}"
            return Outcome("failed", 0, reason="error", message=message)
        if end.left and task.rank == 0:
            self._note(
                "info", f"processes that outlived the program were ended: {', '.join(end.left)}"
            )
        outcome = outcome_of(end, self._reports, task, program.output, is_stopped=self._is_stopped)
        if outcome.is_unreported:
            outcome = self._name_missing_file(outcome)
        if outcome.state == "stopped" and self._ends_turn:
            outcome = replace(outcome, ends_turn=True)
        if outcome.state == "complete" and task.rank == 0 and not self._runs_kept_code():
            self._report(
                Noted(level="warning", message=NOT_SERVED, trial=task.trial, is_unserved=True)
            )
        self._ranks.leave(failed=outcome.state == "failed")
        return outcome

    def _settle(self) -> None:
        """Let the logs that the program wrote decide the final values of decisive metrics.

        They are in the folder of the trial. Printed values served while it ran, but some metrics
        are never printed.
        """
        if self._final_values is None:
            return
        self._reports.unread = self._final_values.describe_unread
        logged, documents = self._final_values.read()
        for name in sorted(self._experiment.decisive_metrics):
            printed = self._reports.latest(name)
            log = logged.get(name, documents.get(name) if printed is None else None)
            if log is None:
                continue
            value = log.result(printed)
            if value is None:
                self._note_unused_log(name, log, printed)
                continue
            if printed is not None and not is_rounded(value, printed):
                self._note(
                    "warning",
                    f"the program printed {name} {printed:g} at last, but its log files end with"
                    f" {value:g}, which counts",
                )
            step = self._reports.step or None
            if printed is None and self._needs_course(name):
                for earlier in log.course[:-1]:
                    self._reports.take(Values({name: earlier}), step)
            if value != printed:
                self._reports.take(Values({name: value}), step)

    def _needs_course(self, name: str) -> bool:
        """Return whether the value of a trial does not only come from the last report."""
        return any(
            item.metric == name and mode_of(self._experiment, item) not in ("last", "returned")
            for item in self._experiment.objectives
        )

    def _note_unused_log(self, name: str, log: LoggedValues, printed: float | None) -> None:
        """Say why the last value of a log does not count, unless it is the printed one."""
        if printed is not None and is_same_number(log.values[-1], printed):
            return
        problem = f"its log files end with {log.values[-1]:g} and never have that number"
        if log.is_contradicted:
            problem = "its log files end with different values"
        if printed is None:
            self._note("warning", f"{name} was not printed, and {problem}: none of them counts")
        else:
            self._note("warning", f"{name} is {printed:g} as printed: {problem}")

    def _runs_kept_code(self) -> bool:
        return (
            VARIABLE not in os.environ
            or self._workdir is not None
            or (self._scratch / _SEEN_NAME).exists()
        )

    def _should_end(self, should_stop: Callable[[], bool]) -> bool:
        """Return whether the program should end. On rank 0, also let the other ranks stop."""
        if not self._is_stopped:
            is_asked = should_stop() or self._reports.stop or self._ranks.should_stop()
            self._ends_turn = not is_asked and self._has_ended_turn()
            self._is_stopped = is_asked or self._ends_turn
            if self._is_stopped:
                self._ranks.request_stop()
        return self._is_stopped or self._reports.failed is not None

    def _has_ended_turn(self) -> bool:
        """Return whether the turn is over and the checkpoint of its last step is complete.

        Some programs save before they report, others afterwards. A file that was written shortly
        before the report, compared with the time since the last one, is the checkpoint of its step.
        The next report shows that nothing will be saved for this one any more.
        """
        reported_unix_s = self._reports.turn_unix_s
        if reported_unix_s is None:
            return False
        if self._reports.is_past_turn:
            return True
        files = [path for path in self._path.rglob("*") if path.is_file()]
        written = [(path.name, path.stat().st_mtime) for path in files]
        return has_saved(written, (self._reports.before_turn_unix_s, reported_unix_s), time.time())

    def _note_doubtful_lines(self) -> None:
        """Warn about metrics that may be two numbers, and about rows that were not read."""
        for name, source in self._metric_readers.sources:
            if 0 < source.num_changes < _CERTAIN_CHANGES:
                self._note("warning", describe_shared_name(name, source))
        for name, row in self._metric_readers.unread_rows:
            self._note("warning", describe_unread_row(name, row))

    def _refuse_shared_names(self) -> None:
        """Fail the trial if one metric is surely two different numbers."""
        for name, source in self._metric_readers.sources:
            if source.num_changes >= _CERTAIN_CHANGES:
                self._reports.fail(describe_shared_name(name, source))

    def _tick(self) -> None:
        self._reports.tick()
        self._refuse_shared_names()
        for attached in read_attached(self._reported):
            self._keep(attached)
        if time.monotonic() - self._kept_s > KEEP_EVERY_S:
            self._folder.keep()
            self._kept_s = time.monotonic()

    def _keep(self, attached: Attached) -> None:
        """Keep an attachment of the program, at its own step or at the last reported step."""
        if self._reports.refuse(attached.name, attached.why_no_result):
            return
        if isinstance(attached.content, str):
            self._attachments.refuse(attached.name, attached.content)
            return
        step = attached.values.get(self._experiment.step or "")
        if step is None:
            step = self._reports.step
        self._attachments.take(int(step), attached.content)

    def _readers(self) -> MetricReaders:
        if self._task.rank:
            return MetricReaders()
        source = self._experiment.metric_source
        path = self._path if source.kind == "wandb" else self._metric_file()
        return MetricReaders(source, path, self._reported, self._experiment.decisive_metrics)

    def _metric_file(self) -> Path | None:
        """Return the file or folder that `metrics` names, or None if it names none."""
        named = self._experiment.metric_source.path
        if named is None:
            return None
        return Path(self._workdir or "", expand_path(named, self._built_in))

    def _name_missing_file(self, outcome: Outcome) -> Outcome:
        """Return an outcome without metrics that says so if their file does not exist."""
        path = self._metric_file()
        if path is None or path.exists():
            return outcome
        message = f"the program did not write {path}, where metrics are read"
        others = sorted(item.name for item in path.parent.glob(f"*{path.suffix}") if path.suffix)
        if others:
            message += f" (its folder has {', '.join(others[:_MAX_NEIGHBOURS])})"
        return replace(outcome, message=f"{message}; {outcome.message}")

    def _environment(self) -> dict[str, str]:
        """Return the environment variables of the program."""
        variables = dict(os.environ) | self._ranks.variables
        variables |= {
            # Programs of the environment are found even if it is not activated.
            "PATH": os.pathsep.join([os.environ.get("PATH", os.defpath), _PROGRAMS]),
            "PYTHONUNBUFFERED": "1",  # metrics are read while the program runs
            "WORKBENCH_CONFIG": str(self._built_in["config"]),
            "WORKBENCH_FOLDER": str(self._path),
            "WORKBENCH_SEED": str(self._task.seed),
            "WORKBENCH_TRIAL": str(self._task.trial),
        }
        if self._workdir is not None:
            variables |= {"PWD": str(self._workdir), "PYTHONDONTWRITEBYTECODE": "1"}
        # Without this variable, `workbench.report` does nothing, as on all ranks but the first.
        variables.pop("WORKBENCH_REPORTS", None)
        if self._task.rank == 0:
            variables[SEEN_VARIABLE] = str(self._scratch / _SEEN_NAME)
            variables["WORKBENCH_REPORTS"] = str(self._reported)
        if self._experiment.metric_source.kind == "wandb":
            variables |= {
                "WANDB_MODE": "offline",
                "WANDB_DIR": str(self._path),
                "WANDB_SILENT": "true",
            }
            variables["WANDB_SWEEP_PARAM_PATH"] = str(self._scratch / "wandb.yaml")
        return variables

    def _note_new_attempt(self, has_files: bool, resumed: Mapping[str, Path | None]) -> None:
        names = [path.name for path in resumed.values() if path is not None]
        if self._task.turn is not None and (names or (has_files and not resumed)):
            return  # each turn starts the program again
        if names:
            message = f"the program continues from {', '.join(names)}"
        elif has_files and resumed:
            missing = " or ".join(resumed)
            message = f"the program starts from the beginning, because it has not saved {missing}"
        elif has_files:
            message = "the program is started again, with the files in its folder"
            if not reads_earlier_files(self._experiment.command or ""):
                message += ". Whether it reads them is up to the program"
        else:
            message = "the program starts from the beginning, because its folder is empty"
        self._note("info", message)

    def _note(self, level: str, message: str) -> None:
        self._report(
            Noted.model_validate({"level": level, "message": message, "trial": self._task.trial})
        )


def has_saved(
    written: Iterable[tuple[str, float]], reported_unix_s: tuple[float, float], unix_s: float
) -> bool:
    """Return whether a program has saved its checkpoint of the step that it reported at last.

    Args:
        written: The names of its files, and when each was written, as Unix time.
        reported_unix_s: When it made the report before the last one, and the last one.
        unix_s: The time now.

    Example:
        >>> has_saved([("last.pt", 19.9)], (10.0, 20.0), 20.1)
        True
        >>> has_saved([("last.pt", 10.5)], (10.0, 20.0), 20.1)
        False
    """
    before_unix_s, last_unix_s = reported_unix_s
    files = list(written)
    newest_unix_s = max((time_unix_s for _, time_unix_s in files), default=0.0)
    if newest_unix_s >= last_unix_s:
        return newest_unix_s < unix_s - SAVED_S
    kept = [time_unix_s for name, time_unix_s in files if not _GROWS.search(name)]
    after_s = last_unix_s - max(kept, default=0.0)
    return after_s < SAVED_SHARE * (last_unix_s - before_unix_s)


def describe_shared_name(name: str, source: Source) -> str:
    """Return why a printed metric may be two different numbers, and what to do.

    Args:
        name: The metric.
        source: The lines that it was read from.
    """
    lines = " and ".join(repr(line[:_MAX_SHOWN_CHARS]) for line in source.lines.values())
    step = "Choose a metric that has one meaning, or give the line that counts in metrics.pattern"
    if name.isidentifier():
        step += rf", such as 'epoch .* {name} (?P<{name}>\S+)'"
    return f"{SHARED_NAME} {name!r}, in lines such as {lines}. {step}"


def describe_unread_row(name: str, row: str) -> str:
    """Return that a row below the name of a metric was not read, and what to do.

    Args:
        name: The metric.
        row: The row.
    """
    return (
        f"{name!r} is a column of a printed table, but this row below it could not be read:"
        f" {row[:_MAX_SHOWN_CHARS]!r}. Print as many values as names, or give a pattern in"
        " metrics.pattern"
    )


def newest_file(folder: Path, pattern: str, layout: Layout | None = None) -> Path | None:
    """Return the file or folder of a trial that was written last, or None if there is none.

    Args:
        folder: The folder of the trial.
        pattern: A name, or a pattern such as `ckpt_*.pt`, relative to the folder.
        layout: What was there before the program wrote anything.
    """
    paths = [path for path in folder.glob(pattern) if _is_saved(path)]
    if (folder / pattern).exists():  # a name with brackets is also a pattern
        paths = [folder / pattern]
    written = None if layout is None else set(layout.others_in(folder))
    if written is not None:
        paths = [path for path in paths if not written.isdisjoint([path, *path.rglob("*")])]
    return max(paths, key=_age_of, default=None)


def _is_saved(path: Path) -> bool:
    """Return whether a file is not empty, as it is if its program was killed while it wrote it."""
    return path.is_dir() or (path.exists() and path.stat().st_size > 0)


def _age_of(path: Path) -> tuple[int, list[tuple[int, str]]]:
    """Return the time of the last change, and the name with its numbers, so that 10 follows 9."""
    inside = [item for item in path.rglob("*") if item.is_file()] if path.is_dir() else []
    changed_ns = max(item.stat().st_mtime_ns for item in [path, *inside])
    parts = re.findall(r"(\d+)|(\D+)", path.as_posix())
    return changed_ns, [(int(number or -1), text) for number, text in parts]


class ProgramReports:
    """The reports of one attempt."""

    def __init__(
        self, task: TrialTask, experiment: Experiment, report: Callable[[Event], bool]
    ) -> None:
        """Start without reports.

        Args:
            task: The trial.
            experiment: Its experiment.
            report: Receives events, and returns whether the trial should stop.
        """
        self._task, self._report = task, report
        self._experiment, self._objectives = experiment, experiment.objectives
        self._decisive = experiment.decisive_metrics
        self._metrics = frozenset(item.metric for item in experiment.objectives)
        self._counted = experiment.step
        self._started_s = time.monotonic()
        self._flushed_s = self._started_s - OTHERS_EVERY_S
        self._pending: dict[str, float] = {}
        self._often_unmeasured: set[str] = set()
        self.step = 0
        self.values: dict[str, float] = {}
        self.words: dict[str, str] = {}
        """The last word that replaced a number, by metric of the experiment."""
        self.names: dict[str, None] = {}
        """The names that the program has written, in order."""
        self.has_step = False
        self._num_objectives = 0
        self.stop = False
        self.failed: Outcome | None = None
        self.unread: Callable[[], str] = str
        """Says in which files of the program no metric was read, and why."""
        self._has_objective = False
        self._turn_step: int | None = None
        self._reported_unix_s = time.time()
        self.before_turn_unix_s = 0.0
        """When it made the report before that, or started."""
        self.turn_unix_s: float | None = None
        """When the program reported the end of its turn."""
        self.is_past_turn = False
        """Whether it has reported an objective after that."""

    @property
    def is_over(self) -> bool:
        """Whether the program should end."""
        return self.stop or self.failed is not None

    @property
    def unmeasured(self) -> tuple[str, str] | None:
        """A metric of the experiment that ended with a word instead of a number, and the word.

        A word does not count if numbers follow it. Some programs do not measure at every step. A
        word with digits, such as 1,050, is a value that could not be read.
        """
        return next(
            (
                (name, word)
                for name, word in self.words.items()
                if name not in self._often_unmeasured or _DIGIT.search(word)
            ),
            None,
        )

    def describe_unmeasured(self) -> str | None:
        """Describe metrics that ended with words, if that does not fail the trial.

        None if there are none.
        """
        names = [name for name in self.words if name in self._often_unmeasured]
        if not names:
            return None
        written = ", ".join(f"{name} as {self.words[name]}" for name in names)
        return f"the program finally wrote {written}, so the last number before that counts"

    def refuse(self, name: str, why: str) -> bool:
        """Fail the trial if a reported metric of the experiment is not a number.

        Args:
            name: Name of the metric.
            why: Why it is not a number, as a clause.

        Returns:
            Whether the metric belongs to the experiment.
        """
        if name not in self._decisive:
            return False
        self.fail(f"report.{name}: {why}")
        return True

    def fail(self, message: str) -> None:
        """Fail the trial after the remaining reports, unless it is over.

        Args:
            message: Why it fails.
        """
        self.end()
        if not self.is_over:
            self.failed = Outcome("failed", self.step, dict(self.values), "error", message)

    def take(self, values: Mapping[str, float], step: int | None = None) -> None:
        """Take values that were written together.

        Args:
            values: Numbers by name, and words that replaced numbers.
            step: The step of the values, if the format has one.
        """
        if self.is_over:
            return
        self._follow_words(values)
        if isinstance(values, Values) and not values:
            return
        named = {storable_name(name): value for name, value in values.items()}
        numbers = {
            name: float(value) for name, value in named.items() if self._is_known(name, value)
        }
        if self._counted is not None:
            count = numbers.pop(self._counted, math.nan)
            if math.isfinite(count):
                self.has_step = True
                if int(count) > self.step and self._pending:
                    self._flush()  # the collected values belong to the previous step
                self.step = max(self.step, int(count))
        elif step is not None:
            self.step = max(self.step, step)
        elif self._objectives[0].metric in numbers:  # without any step, objectives are counted
            self.step += 1
        self._pending |= numbers
        if self._metrics & numbers.keys():
            self._flush()

    def latest(self, name: str) -> float | None:
        """Return the last value of a metric, or None if there is none."""
        return self._pending.get(name, self.values.get(name))

    def tick(self) -> None:
        """Send reports that are due."""
        if time.monotonic() - self._flushed_s >= OTHERS_EVERY_S:
            self.end()

    def end(self) -> None:
        """Send the remaining reports."""
        if self._pending and not self.is_over:
            self._flush()

    def _flush(self) -> None:
        values, self._pending = self._pending, {}
        self._flushed_s = time.monotonic()
        self.values |= values
        event = TrialReported(
            trial=self._task.trial,
            attempt=self._task.attempt,
            step=self.step,
            epoch=None,
            elapsed_s=self._flushed_s - self._started_s,
            values=values,
        )
        # Report the values first, so that a diverged trial shows what it has diverged with.
        self.stop = bool(self._report(event))
        name = find_divergence(self._experiment, values)
        if name is not None:
            self.failed = diverged(name, values[name], self.step, dict(self.values))
        elif self._metrics & values.keys():
            self._follow_objective()

    def _follow_objective(self) -> None:
        """Note whether the turn is over, or whether the program did not continue as it should."""
        self._num_objectives += 1
        if self._num_objectives == _CERTAINLY_WITHOUT and self._counted and not self.has_step:
            message = (
                f"{NO_STEP} {self._counted} with its objective, although step: names it. It writes"
                f" {', '.join(list(self.names)[:8])}. If {self._counted} never comes, the trial"
                " fails at its end: name what the program counts, or leave step: out"
            )
            self._report(Noted(level="warning", message=message, trial=self._task.trial))
        is_first, self._has_objective = not self._has_objective, True
        turn = self._task.turn
        if is_first:
            try:
                if turn is not None:
                    turn.check_continues(self.step)
                self._task.check_inherits(self.step)
            except ExperimentError as error:
                values = dict(self.values)
                self.failed = Outcome("failed", self.step, values, "error", str(error))
                return
        if turn is None:
            return
        if self._turn_step is not None:
            self.is_past_turn = self.step > self._turn_step
        elif turn.is_over(self.step):
            self._turn_step, self.turn_unix_s = self.step, time.time()
            self.before_turn_unix_s = self._reported_unix_s
        self._reported_unix_s = time.time()

    def _follow_words(self, values: Mapping[str, float]) -> None:
        """Remember a word that replaced the number of a decisive metric."""
        words = dict(values.words) if isinstance(values, Values) else {}
        for name in self._decisive & values.keys():
            if isinstance(values[name], bool):
                words[name] = str(values[name])
            elif self.words.pop(name, None) is not None:  # a number follows the word
                self._often_unmeasured.add(name)
        self.words |= {name: word for name, word in words.items() if name in self._decisive}

    def _is_known(self, name: str, value: float) -> bool:
        """Remember a name. Beyond a limit, only objectives are kept."""
        if isinstance(value, bool) and name in self._decisive:
            return False
        if name not in self.names and len(self.names) < MAX_NAMES:
            self.names[name] = None
        return name in self.names or name in self._metrics or name == self._counted


def outcome_of(
    end: ProgramEnd,
    reports: ProgramReports,
    task: TrialTask,
    output: KeptOutput,
    *,
    is_stopped: bool,
) -> Outcome:
    """Return how the trial of a program ended.

    Args:
        end: How the program ended.
        reports: Its reports.
        task: The trial.
        output: The output of the program.
        is_stopped: Whether it was requested to stop.
    """
    if reports.failed is not None:
        return reports.failed
    if is_stopped:
        return Outcome("stopped", reports.step, reports.values)
    if end.code != 0:
        return _crashed(end.code, reports, output)
    # Only the metrics of rank 0 are read.
    if task.rank == 0 and (missing := _missing(reports, task)) is not None:
        if task.clone is not None and not reports.values:
            return _failed(reports, str(task.nothing_left()))
        message = _describe_missing(missing, reports, task.experiment, output.tail())
        return replace(_failed(reports, message), is_unreported=True)
    if reports.unmeasured is not None:
        name, word = reports.unmeasured
        message = (
            f"the last {name} that the program wrote is {word}, which is not a number. If there is"
            " no value, it should write nothing"
        )
        return _failed(reports, message)
    return Outcome("complete", reports.step, reports.values)


def _failed(reports: ProgramReports, message: str) -> Outcome:
    return Outcome("failed", reports.step, reports.values, "error", message)


def _crashed(code: int | None, reports: ProgramReports, output: KeptOutput) -> Outcome:
    tail, printed = output.tail(), output.errors.decode(errors="replace")
    error = _error_of(code, printed if printed.strip() else tail)
    message = f"the program {_describe_code(code)}"
    if error:
        message += f": {error}"
    return replace(
        _failed(reports, message),
        reason="oom" if any(sign in tail[-4000:] for sign in _MEMORY) else "error",
        traceback=last_traceback(printed) or last_traceback(tail),
    )


def _describe_missing(
    missing: str, reports: ProgramReports, experiment: Experiment, tail: str
) -> str:
    """Return the message for a missing metric, with the names that the program wrote instead."""
    last_lines = "\n".join(_lines(tail)[-NUM_LAST_LINES:])
    wrote = ""
    if reports.names:
        wrote = f"it wrote: {', '.join(reports.names)}"
        other = describe_other_metric(experiment.objectives, missing, reports.names)
        if other:
            wrote += f"; {other}"
    if missing in reports.words:
        seen = f"it wrote {reports.words[missing]} instead, which is not a number"
        if wrote:
            seen += f"; {wrote}"
    else:
        seen = wrote or _describe_silence(missing, last_lines)
        if unread := reports.unread():
            seen += f". In its folder, {unread}"
    printed = f"\nIts last lines:\n{last_lines}" if last_lines else ". It printed nothing."
    return f"the program ended without writing {missing!r}; {seen}{printed}"


def _describe_silence(missing: str, last_lines: str) -> str:
    pattern = _pattern_for(missing, last_lines)
    if pattern is None:
        return "it wrote no metric at all"
    pattern = pattern.replace("'", "''")
    example = f"metrics: {{pattern: '{pattern}'}}"
    return f"it wrote no metric at all, or in a form that needs a pattern, such as {example}"


def _pattern_for(missing: str, lines: str) -> str | None:
    """Return a pattern that reads a metric in the last line that has its name and then a number."""
    if not missing.isidentifier():
        return None
    words = re.escape(missing).replace("_", "[ _-]")
    in_line = re.compile(rf"(?<![\w-])({words}(?!\w)[^\d\n]{{0,20}}?)[-+]?\.?\d", re.IGNORECASE)
    for line in reversed(lines.splitlines()):
        if (match := in_line.search(line)) is None:
            continue
        before = re.escape(match[1]).replace(r"\ ", " ")
        for number in (r"\S+", r"[-+.\deE]+"):
            pattern = rf"{before}(?P<{missing}>{number})"
            if missing in pattern_reader((pattern,))(line.encode()):
                return pattern
    return None


def _missing(reports: ProgramReports, task: TrialTask) -> str | None:
    """Return the first metric that the program should have written but has not, or None."""
    experiment = task.experiment
    known = {**task.reported, **reports.values}
    for metric in trained_metrics(experiment.objectives):
        if metric not in known:
            return metric
    if experiment.step is not None and not reports.has_step and not task.reported:
        return experiment.step
    return None


def _describe_code(code: int | None) -> str:
    if code is None:
        return "was killed"
    if code >= 0:
        return f"ended with status {code}"
    try:
        return f"was killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"was killed by signal {-code}"


def _lines(tail: str) -> list[str]:
    lines = [line.strip() for line in _ENDS.split(tail)]
    return [line[:_MAX_LINE_CHARS] for line in lines if line]


def _error_of(code: int | None, printed: str) -> str:
    """Return the error that a program has printed. If it was killed from outside, the last line."""
    if code is None or -code in _FROM_OUTSIDE:
        return (_lines(printed) or [""])[-1]
    return last_error(printed)
