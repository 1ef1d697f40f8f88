"""Hugging Face's Trainer: a callback that reports evaluations and resumes from checkpoints."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from workbench.bridges import Bridge, missing

try:
    from transformers.trainer_callback import (  # pyright: ignore[reportMissingImports]
        TrainerCallback,
    )
except ModuleNotFoundError as error:
    raise missing("transformers") from error

_CHECKPOINT = re.compile(r"checkpoint-(\d+)$")
_WHOLE = "whole"
"""A file in a checkpoint that is written last, so that it marks the checkpoint as complete."""


class TrialCallback(Bridge, TrainerCallback):
    """Reports each evaluation as a step, or each logged loss if there are no evaluations.

    The trainer saves after each report, into the folder of the trial. To resume, call
    `trainer.train(resume_from_checkpoint=callback.resume_from)`. With several workers, make one on
    each of them.
    """

    def __init__(self, report: Callable[..., bool], folder: Path | str | None = None) -> None:
        """See Bridge. The arguments of the trainer decide how often it reports."""
        super().__init__(report, folder)
        if self._folder is not None:
            whole = [path for path in self._folder.glob("checkpoint-*") if (path / _WHOLE).exists()]
            self._resume_from = max(whole, key=_step_of, default=None)
            self._num_done = 0 if self._resume_from is None else _step_of(self._resume_from)

    def on_train_begin(self, args: Any, *_: Any, **__: Any) -> None:
        """Let the trainer save checkpoints in the folder of the trial. See TrainerCallback."""
        if self._folder is not None:
            args.output_dir = str(self._folder)
            args.save_total_limit = args.save_total_limit or 1

    def on_evaluate(self, args: Any, state: Any, control: Any, **given: Any) -> None:
        """Report an evaluation. See TrainerCallback."""
        del args
        losses = [entry["loss"] for entry in state.log_history if "loss" in entry]
        logged = {"loss": losses[-1]} if losses else {}
        count = sum(any(name.startswith("eval_") for name in entry) for entry in state.log_history)
        self._report_step(control, count, {**logged, **given["metrics"]})

    def on_log(self, args: Any, state: Any, control: Any, **given: Any) -> None:
        """Report a loss if there are no evaluations. See TrainerCallback."""
        if args.eval_strategy == "no" and "loss" in given["logs"]:
            self._report_step(
                control, sum("loss" in entry for entry in state.log_history), given["logs"]
            )

    def on_save(self, args: Any, state: Any, *_: Any, **__: Any) -> None:
        """Mark a checkpoint as complete. See TrainerCallback."""
        folder = Path(args.output_dir) / f"checkpoint-{state.global_step}"
        if self._folder is not None and state.is_world_process_zero and folder.is_dir():
            (folder / _WHOLE).touch()

    def _report_step(self, control: Any, step: int, metrics: Mapping[str, Any]) -> None:
        if self.advance(step, metrics):
            control.should_training_stop = True
        control.should_save = control.should_save or self._folder is not None


def _step_of(checkpoint: Path) -> int:
    match = _CHECKPOINT.match(checkpoint.name)
    if match is None:
        return -1
    return int(match[1])
