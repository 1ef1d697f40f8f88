"""A trial by any program: what it receives, what its reports mean, and how its end ends the trial.

What it prints is kept in the log of the trial up to `resources.max_log_size`. Of several workers
each starts the program, with the variables that torchrun sets; only rank 0's metrics are read.
Starting, reading and ending the program is left to `programs`.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from pydantic import JsonValue

from workbench.experiment import Experiment
from workbench.experiment.command import expand, expand_path, nested
from workbench.foundation.events import Event, Noted
from workbench.training.kept_attachments import KeptAttachments
from workbench.training.mirror import Mirror
from workbench.training.outcome import Outcome
from workbench.training.program_end import outcome_of, unstarted
from workbench.training.program_ranks import ProgramRanks, join_ranks
from workbench.training.program_reports import ProgramReports
from workbench.training.programs.attached import Attached, read_attached
from workbench.training.programs.following import FollowedProgram, MetricReaders
from workbench.training.programs.kept_imports import SEEN_VARIABLE, VARIABLE
from workbench.training.programs.kept_output import KeptOutput
from workbench.training.programs.kept_scripts import kept_scripts
from workbench.training.programs.wandb_configuration import wandb_configuration
from workbench.training.task import TrialTask

KEEP_EVERY_S = 10.0
"""How often the content of the folder is carried to where artifacts are kept, should they be
elsewhere.
"""

NOT_SERVED = (
    "the program does not reach the code that the run has kept, for example because something"
    " replaces its environment variables: it reads the code on the disk, which is compared for"
    " every trial from here on"
)
_SEEN_NAME = "kept-code-seen"


def run_program(
    task: TrialTask,
    report: Callable[[Event], bool],
    should_stop: Callable[[], bool] = lambda: False,
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
        self,
        task: TrialTask,
        experiment: Experiment,
        report: Callable[[Event], bool],
        ranks: ProgramRanks,
        scratch: Path,
        folder: Mirror,
    ) -> None:
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
        (scratch / "config.json").write_text(
            json.dumps(dict(task.params), ensure_ascii=False), "utf-8"
        )
        if experiment.metric_source.kind == "wandb":
            (scratch / "wandb.yaml").write_text(wandb_configuration(nested(task.params)), "utf-8")
        self._scratch, self._reported = scratch, scratch / "reports.jsonl"
        self._reports = ProgramReports(task, experiment, report)
        self._attachments = KeptAttachments(task, report)
        self._is_stopped = False

    def run(self, should_stop: Callable[[], bool]) -> Outcome:
        """Start the program, and follow it to its end."""
        experiment, task = self._experiment, self._task
        assert experiment.command is not None
        arguments = expand(experiment.command, task.params, self._built_in)
        program = FollowedProgram(
            self._readers(),
            KeptOutput(experiment.resources.max_log_size),
            take=self._reports.take,
            tick=self._tick,
            should_end=lambda: self._should_end(should_stop),
        )
        with kept_scripts(arguments) as started:
            end = program.run(started, self._environment(), experiment.resources.stop_grace)
        self._reports.end()
        self._attachments.close()
        if (unmeasured := self._reports.describe_unmeasured()) is not None:
            self._note("warning", unmeasured)
        if end.error is not None:
            return unstarted(arguments[0], end.error)
        if end.left and task.rank == 0:
            self._note(
                "info", f"processes that outlived the program were ended: {', '.join(end.left)}"
            )
        outcome = outcome_of(
            end, self._reports, experiment, task, program.output, is_stopped=self._is_stopped
        )
        if outcome.state == "complete" and task.rank == 0 and not self._runs_kept_code():
            self._report(
                Noted(level="warning", message=NOT_SERVED, trial=task.trial, is_unserved=True)
            )
        self._ranks.leave(failed=outcome.state == "failed")
        return outcome

    def _runs_kept_code(self) -> bool:
        return VARIABLE not in os.environ or (self._scratch / _SEEN_NAME).exists()

    def _should_end(self, should_stop: Callable[[], bool]) -> bool:
        """Return whether the program should end.

        Where that was requested, let the other ranks stop.
        """
        if not self._is_stopped and (
            should_stop() or self._reports.stop or self._ranks.should_stop()
        ):
            self._is_stopped = True
            self._ranks.request_stop()
        return self._is_stopped or self._reports.failed is not None

    def _tick(self) -> None:
        self._reports.tick()
        for attached in read_attached(self._reported):
            self._keep(attached)
        if time.monotonic() - self._kept_s > KEEP_EVERY_S:
            self._folder.keep()
            self._kept_s = time.monotonic()

    def _keep(self, attached: Attached) -> None:
        """Keep what the program attached, at the step that it names or that was reported last."""
        if self._reports.refuse(attached.name, attached.why_no_result):
            return
        if isinstance(attached.found, str):
            self._attachments.refuse(attached.name, attached.found)
            return
        step = attached.values.get(self._experiment.step or "")
        self._attachments.take(self._reports.step if step is None else int(step), attached.found)

    def _readers(self) -> MetricReaders:
        if self._task.rank:
            return MetricReaders()
        source = self._experiment.metric_source
        path = self._path if source.kind == "wandb" else None
        if source.path is not None:
            path = Path(expand_path(source.path, self._built_in))
        return MetricReaders(source, path, self._reported, self._experiment.decisive_metrics)

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
            found[SEEN_VARIABLE] = str(self._scratch / _SEEN_NAME)
        if self._task.rank == 0:
            found["WORKBENCH_REPORTS"] = str(self._reported)
        if self._experiment.metric_source.kind == "wandb":
            found |= {"WANDB_MODE": "offline", "WANDB_DIR": str(self._path), "WANDB_SILENT": "true"}
            found["WANDB_SWEEP_PARAM_PATH"] = str(self._scratch / "wandb.yaml")
        return found

    def _note_new_attempt(self, has_files: bool) -> None:
        named = "{resume" in (self._experiment.command or "")
        if has_files:
            how = "" if named else "; whether it reads them is up to the program"
            self._note("info", f"the program is started again, with the files of its folder{how}")
        else:
            self._note("info", "the program starts anew: it has left nothing in its folder")

    def _note(self, level: str, message: str) -> None:
        self._report(
            Noted.model_validate({"level": level, "message": message, "trial": self._task.trial})
        )
