"""A folder for code that only works with paths, stored with the artifacts of the run.

If the artifacts are on this machine, it is their own folder. Otherwise it is a local copy, and its
changes are uploaded whenever the trial reports.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from pydantic import JsonValue

from workbench.foundation.artifacts import Artifacts, open_artifacts
from workbench.foundation.errors import ArtifactsError
from workbench.foundation.events import Event, TrialReported
from workbench.training.programs.kept_scripts import Layout
from workbench.training.worker_task import TrialTask

BRANCHES = "branches"
"""The folder, below that of a trial, with the checkpoints that its clones continue from."""
TRUNK = "trunk"
"""The folder with those from which trials continue that have trained the same so far."""
BEFORE_RESIZE = "before_resize"
"""The folder with those that a trial had when its number of workers changed."""
_ABOUT_TRUNK = "trunk.json"
_KEPT = "kept"
_TAKEN_OVER = "taken_over"
_LAYOUT = "workdir.json"


class Mirror:
    """A folder on this machine that mirrors a folder of the artifacts."""

    def __init__(self, place: Artifacts) -> None:
        """Mirror `place`."""
        self._place = place
        self._folder = place.working_folder
        self._kept: dict[str, tuple[int, int]] = {}
        self.layout = Layout()
        """What was put there and is not kept: the code and the data of a working folder."""

    def open(self) -> Path:
        """Return the folder, with the files of the artifacts.

        Raises:
            ArtifactsError: If the place cannot be reached, or the folder cannot be made.
        """
        if self._place.is_local:
            self._place.prepare()
            return self._folder
        shutil.rmtree(self._folder, ignore_errors=True)
        local = open_artifacts(self._folder)
        local.prepare()
        for name, (_, changed_ns) in self._place.stamps().items():
            local.write(name, self._place.read(name))
            # The newest of several files is the one to continue from.
            os.utime(self._folder / name, ns=(changed_ns, changed_ns))
        self._kept = self._signatures()
        return self._folder

    def keep(self) -> None:
        """Upload the changes since the last time.

        Raises:
            ArtifactsError: If the place cannot be written to.
        """
        if self._place.is_local:
            return
        signatures = self._signatures()
        # The oldest first, so that the order in which files were written survives.
        for name, signature in sorted(signatures.items(), key=lambda item: item[1]):
            if self._kept.get(name) != signature:
                self._carry(name)
        for name in self._kept.keys() - signatures.keys():
            self._place.delete(name)
        self._kept = signatures

    def close(self) -> None:
        """Upload the remaining changes, and remove the copy."""
        if not self._place.is_local:
            self.keep()
            shutil.rmtree(self._folder, ignore_errors=True)

    def _carry(self, name: str) -> None:
        twin = self._folder.with_name(f"{self._folder.name}.{os.getpid()}.tmp")
        try:
            twin.unlink(missing_ok=True)
            try:
                os.link(self._folder / name, twin)
            except OSError:
                shutil.copyfile(self._folder / name, twin)
            self._place.put(twin, name)
        except OSError as error:
            raise ArtifactsError(f"{error.filename}: {error.strerror}") from error

    def _signatures(self) -> dict[str, tuple[int, int]]:
        signatures: dict[str, tuple[int, int]] = {}
        for path in self._folder.rglob("*"):
            if path.is_file():
                status, name = path.stat(), path.relative_to(self._folder).as_posix()
                if not self.layout.has(name, (status.st_size, status.st_mtime_ns)):
                    signatures[name] = status.st_mtime_ns, status.st_size
        return signatures


def read_layout(trial: Artifacts) -> Layout:
    """Return what was put into the working folder of a trial, if it has one.

    Args:
        trial: The folder of the trial.
    """
    if not trial.exists(_LAYOUT):
        return Layout()
    return Layout.read(trial.read(_LAYOUT))


def write_layout(trial: Artifacts, layout: Layout) -> None:
    """Store what was put into the working folder of a trial.

    Args:
        trial: The folder of the trial.
        layout: What was put there.
    """
    trial.write(_LAYOUT, layout.write())


def written_files(trial: Artifacts) -> dict[str, int]:
    """Return the files that the program or function of a trial has left, with their sizes.

    Args:
        trial: The folder of the trial.
    """
    layout = read_layout(trial)
    stamps = trial.below("checkpoints").stamps()
    return {
        name: stamp[0]
        for name, stamp in stamps.items()
        if not layout.has(name, stamp) and "__pycache__" not in Path(name).parts
    }


def take_over(task: TrialTask) -> None:
    """Copy the folder of the continued trial into this trial's folder, once, on rank 0.

    Args:
        task: The order.

    Raises:
        RunError: If that folder is empty, and this trial is a later part of its training. A resumed
            trial starts from the beginning instead.
        ArtifactsError: If a folder cannot be read or written.
    """
    source = task.continued_checkpoints
    if source is None or task.rank != 0 or task.artifacts.exists(_TAKEN_OVER):
        return
    assert task.continued is not None
    names = written_files(open_artifacts(task.continued))
    if not names and (task.segment is not None or task.clone is not None):
        raise task.nothing_to_continue()
    target = task.checkpoints
    target.delete("")
    copy_files(source, target, names)
    # If the process is killed before this line, the next one copies again.
    task.artifacts.write(_TAKEN_OVER, b"")


def copy_files(
    source: Artifacts, target: Artifacts, names: Iterable[str], *, may_link: bool = False
) -> None:
    """Copy files into another folder. Those that changed last are also written last.

    Args:
        source: Their folder.
        target: The other folder. It is created if it is missing.
        names: The files, relative to the folder.
        may_link: Whether the files are only ever replaced, so that links to them are copies.

    Raises:
        ArtifactsError: If a file cannot be read or written.
    """
    target.prepare()
    stamps = source.stamps()
    for name in sorted(names, key=lambda name: stamps[name][1] if name in stamps else 0):
        if source.is_local and target.is_local:
            _copy_here(source.working_folder / name, target.working_folder / name, may_link)
        else:
            target.write(name, source.read(name))


def _copy_here(source: Path, target: Path, may_link: bool) -> None:
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        if may_link:
            with contextlib.suppress(OSError):
                os.link(source, target)
                return
        shutil.copy2(source, target)
    except OSError as error:
        raise ArtifactsError(f"{error.filename}: {error.strerror}") from error


def branch_at(trial: Artifacts, step: int) -> Artifacts:
    """Return the folder from which clones of a trial continue after a step.

    Args:
        trial: The folder of the trial.
        step: The step.
    """
    return trial.below(f"{BRANCHES}/{step}")


def has_branch(trial: Artifacts, step: int) -> bool:
    """Return whether a trial has completely kept its checkpoint at a step for its clones.

    Args:
        trial: The folder of the trial.
        step: The step.
    """
    return branch_at(trial, step).exists(_KEPT)


def keep_branch(trial: Artifacts, step: int, copy: Callable[[Artifacts], None]) -> None:
    """Keep a checkpoint of a trial for its clones, unless it is kept already.

    Args:
        trial: The folder of the trial.
        step: The step that the trial has reached.
        copy: Writes the checkpoint into a folder.

    Raises:
        ArtifactsError: If a file cannot be read or written.
    """
    if has_branch(trial, step):
        return
    branch = branch_at(trial, step)
    branch.delete("")
    copy(branch.below("checkpoints"))
    mark_kept(branch)


def mark_kept(branch: Artifacts) -> None:
    """Note that the checkpoint of a branch is complete.

    Args:
        branch: Its folder, from `branch_at`.

    Raises:
        ArtifactsError: If that cannot be written.
    """
    branch.write(_KEPT, b"")


def trunk_at(trial: Artifacts, epochs: int) -> Artifacts:
    """Return the folder from which trials continue that are equal to a trial until an epoch.

    Args:
        trial: The folder of the trial.
        epochs: The epochs that both have in common.
    """
    return trial.below(f"{TRUNK}/{epochs}")


def keep_trunk(trial: Artifacts, epochs: int, about: Mapping[str, JsonValue]) -> None:
    """Keep the present checkpoints of a trial, also the best one, for trials that are equal so far.

    Args:
        trial: The folder of the trial.
        epochs: The epochs that it has done.
        about: What `read_trunk` returns.

    Raises:
        ArtifactsError: If a file cannot be read or written.
    """
    trunk, source = trunk_at(trial, epochs), trial.below("checkpoints")
    if trunk.exists(_ABOUT_TRUNK):
        return
    names = [name for name in source.stamps() if not name.rpartition("/")[2].startswith(".")]
    trunk.delete("")
    copy_files(source, trunk.below("checkpoints"), names, may_link=True)
    trunk.write(_ABOUT_TRUNK, json.dumps(about).encode())  # last, so that the rest is complete


def read_trunk(trunk: Artifacts) -> dict[str, Any] | None:
    """Return what a trial has written about checkpoints that it kept, or None if there are none.

    Args:
        trunk: Their folder, from `trunk_at`.

    Raises:
        ArtifactsError: If it cannot be read.
    """
    if not trunk.exists(_ABOUT_TRUNK):
        return None
    return json.loads(trunk.read(_ABOUT_TRUNK))


class BranchKeeper:
    """Keeps the files of a function or a program at the steps from which its clones continue."""

    def __init__(self, task: TrialTask, report: Callable[[Event], bool]) -> None:
        """Keep the files before a report is passed on to `report`."""
        self._task, self._report = task, report

    def __call__(self, event: Event) -> bool:
        """Pass on a report."""
        task = self._task
        if isinstance(event, TrialReported) and event.step in task.branches:
            names = written_files(task.artifacts)
            keep_branch(
                task.artifacts,
                event.step,
                lambda target: copy_files(task.checkpoints, target, names),
            )
        return self._report(event)
