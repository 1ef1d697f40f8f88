"""Callbacks for other frameworks, which report, stop, save and resume a trial.

Each module has the name of its library, and is only imported if you use it. Its class
`TrialCallback(report, folder)` is for functions that train with that library.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from workbench.foundation.errors import ArgumentError, MissingDependencyError
from workbench.foundation.reported_values import NotANumber, judge

_SAVED = re.compile(r"saved-(\d+)\b")
_PARTIAL = "partial-"


class Bridge:
    """The progress of a trial: its earlier checkpoint, new reports and new checkpoints."""

    def __init__(
        self,
        report: Callable[..., bool],
        folder: Path | str | None = None,
        *,
        every: int = 1,
        save_every: int = 1,
    ) -> None:
        """Look for a checkpoint of an earlier attempt at the trial.

        Args:
            report: The `report` that the function received.
            folder: The `folder` that the function received, or None to save nothing.
            every: Only report at multiples of this step.
            save_every: Only save at multiples of this step, and when the trial is stopped.
        """
        super().__init__()
        for name, number in (("every", every), ("save_every", save_every)):
            if number < 1:
                raise ArgumentError(
                    f"{number} is not valid", field=name, allowed="a whole number from 1"
                )
        self._report = report
        self._every = every
        self._save_every = save_every
        self._folder = Path(folder) if folder is not None else None
        self._num_done, self._resume_from = 0, None
        if self._folder is not None:
            self._num_done, self._resume_from = _find_saved(self._folder)

    @property
    def num_done(self) -> int:
        """How many steps (rounds, epochs) the checkpoint of an earlier attempt contains, or 0."""
        return self._num_done

    @property
    def resume_from(self) -> str | None:
        """The path of the checkpoint of an earlier attempt, or None if there is none."""
        if self._resume_from is None:
            return None
        return str(self._resume_from)

    def num_left(self, total: int) -> int:
        """Return how many of `total` steps are left to do."""
        return max(0, total - self._num_done)

    def advance(
        self,
        step: int,
        metrics: Mapping[str, Any],
        save: Callable[[str], object] | None = None,
        *,
        suffix: str = "",
        is_first: bool = True,
    ) -> bool:
        """Report the end of a step, and save it.

        The report comes first. If a trial is killed in between, the step is made and reported
        again.

        Args:
            step: Number of steps so far, including earlier attempts.
            metrics: Values by name. Texts, arrays and similar values are dropped.
            save: Writes a checkpoint to the path that it receives.
            suffix: The end of the checkpoint's name, such as `.json`.
            is_first: Whether this is rank 0 of several workers. `save` is called on all of them.

        Returns:
            Whether the training should stop now.
        """
        stop = False
        if step % self._every == 0 and (values := _single_values(metrics)):
            stop = bool(self._report(step=step, **values))
        if save is not None and (stop or step % self._save_every == 0):
            self._save(step, save, suffix, is_first)
        return stop

    def _save(self, step: int, save: Callable[[str], object], suffix: str, is_first: bool) -> None:
        """Write a checkpoint under a temporary name, move it into place, and remove the old one."""
        if self._folder is None:
            return
        partial = self._folder / f"{_PARTIAL}{step}{suffix}"
        whole = self._folder / f"saved-{step}{suffix}"
        save(str(partial))
        if not is_first:
            return
        _remove(whole)
        os.replace(partial, whole)
        for path in self._folder.glob("saved-*"):
            if path != whole:
                _remove(path)


def _find_saved(folder: Path) -> tuple[int, Path | None]:
    """Return the checkpoint with the highest step, and remove incomplete ones."""
    for path in folder.glob(f"{_PARTIAL}*"):
        _remove(path)
    saved = [
        (int(match[1]), path) for path in folder.iterdir() if (match := _SAVED.match(path.name))
    ]
    return max(saved, default=(0, None), key=lambda checkpoint: checkpoint[0])


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def _single_values(metrics: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values that are single numbers, or that may replace one, such as None.

    Whether a value may replace a number is left to the receiver, which knows the objectives.
    """
    values: dict[str, Any] = {}
    for name, value in metrics.items():
        judged = judge(value)
        if not isinstance(judged, NotANumber):
            values[str(name)] = judged
        elif judged.is_missing:
            values[str(name)] = value
    return values


def missing(library: str) -> MissingDependencyError:
    """Return the error of a bridge whose library is not installed.

    Args:
        library: The name of its package.
    """
    return MissingDependencyError(
        f"this needs the package {library!r}, which is not installed",
        next_step=f"Install it: pip install {library}",
    )


__all__ = ["Bridge"]
