"""The folder of a bundle, and what is copied into it.

Code, data, and what a train function left.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import shutil
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from workbench.cluster.remote.code_dependencies import (
    files_of,
    find_named_files,
    modules_of,
    named_paths,
    with_paths,
)
from workbench.cluster.remote.kept_code import PACKAGES, PROJECT_FILES, SOURCE_SUFFIXES
from workbench.experiment import Experiment
from workbench.experiment.command import arguments_of
from workbench.experiment.trial_value import TrialValue
from workbench.foundation.artifacts.place import FULL
from workbench.foundation.bundle_manifest import add_manifest, complete_export, files_of_bundle
from workbench.foundation.errors import RunError
from workbench.foundation.events import TrialReported
from workbench.foundation.files import copy_into, is_unfinished
from workbench.foundation.formatting import format_bytes, format_count
from workbench.store.database.run_files import trial_folder
from workbench.sweeps.fingerprints import Fingerprints, stored_content
from workbench.training.mirrored_folder import written_files
from workbench.training.programs.kept_imports import MANIFEST, KeptFiles

if TYPE_CHECKING:
    from workbench.cluster.remote.code_origin import Origin
    from workbench.foundation.artifacts import Artifacts
    from workbench.runs.stored_run import StoredRun
    from workbench.store.history import Trial

CODE_FOLDER = "code"
"""The folder of a bundle that holds the code of its run."""
FILES_FOLDER = "files"
"""The folder of a bundle that holds what a train function left in the folder of its trial."""
MAX_DATA_BYTES = 100 * 2**20
"""Copy data up to this size. Larger data stays in place and is referred to by its absolute path."""
_NO_DATA = (
    SOURCE_SUFFIXES
    | {".cfg", ".conf", ".config", ".ini", ".lock", ".md", ".toml"}
    | {".yaml", ".yml"}
)
_MAX_LISTED = 20
_FREE_OR_ANOTHER = "Free space there, or name another folder."
_FREE_SPACE = "Free space there, or set the variable TMPDIR to another folder."


@dataclass
class Contents:
    """What was copied into a bundle, and what is missing in it."""

    missing_modules: list[str] = field(default_factory=list)
    too_large: list[str] = field(default_factory=list)
    missing_weights: list[str] = field(default_factory=list)
    num_bytes_by_file: dict[str, int] = field(default_factory=dict)
    """The files that a function left, with their sizes."""
    changed: list[str] = field(default_factory=list)
    """What the trial read, is another on this machine now, and was too large to be stored."""
    data: list[str] = field(default_factory=list)
    """Files and folders of `code/` that may be the user's data, with their sizes."""
    best_report: str | None = None
    """What is to be known where they may be newer than the value of the trial."""

    @property
    def lacks(self) -> list[str]:
        """What the code needs and the bundle does not have."""
        return [*self.missing_modules, *self.too_large, *self.missing_weights]

    def describe_function(self, folder: str, *, is_program: bool) -> list[str]:
        """Return the files of a bundle of a function or a program, or why there are none."""
        kind = "function"
        receives = "a parameter named `folder`"
        if is_program:
            kind = "program"
            receives = "`{folder}` in its command"
        if self.num_bytes_by_file:
            shown = list(self.num_bytes_by_file.items())[:_MAX_LISTED]
            files = "\n".join(f"- {name}, {format_bytes(size)}" for name, size in shown)
            more = len(self.num_bytes_by_file) - len(shown)
            left = f"`{folder}` contains what the {kind} left in its folder:\n\n{files}"
            if more:
                left += f"\n- and {more} more"
            if self.best_report:
                left += f"\n\n{self.best_report}"
        else:
            left = (
                f"The {kind} left no files, so there are no weights here. A {kind} that has"
                f" {receives} receives a folder. Everything that it saves there is exported."
            )
        return [
            left,
            (
                f"Files that the {kind} or a program that it starts finds in another way are not"
                " here. Examples are paths that are built while it runs, files outside the run's"
                " folder, and downloads."
            ),
        ]


@contextlib.contextmanager
def new_bundle(folder: Path, *, force: bool) -> Iterator[Path]:
    """Give a temporary folder, whose content becomes the bundle at the end, all or nothing.

    Args:
        folder: The bundle: a folder that is empty or does not exist.
        force: Write into a folder that is not empty. Files of the same names are replaced, and
            files of an earlier bundle are removed. Other files stay.

    Raises:
        RunError: If the folder is not empty, or a file cannot be written.
    """
    try:
        complete_export(folder)
        _check_empty(folder, force=force)
        with tempfile.TemporaryDirectory() as beside:
            with _naming_files(beside):
                yield Path(beside)
                add_manifest(Path(beside))
            _check_empty(folder, force=force)  # writing has taken a while
            # What only the earlier bundle had would seem to belong to the new one.
            copy_into(Path(beside), folder, remove=_stale(folder, Path(beside)))
    except OSError as error:
        raise RunError(
            f"cannot write {folder}: {error.strerror}",
            next_step=_FREE_OR_ANOTHER if error.errno == errno.ENOSPC else "Name another folder.",
        ) from error


@contextlib.contextmanager
def _naming_files(beside: str) -> Iterator[None]:
    """Name the file that cannot be read or written, before the user's folder has any."""
    try:
        yield
    except (OSError, RunError) as error:
        cause: BaseException | None = error
        if not isinstance(error, OSError):
            cause = error.__cause__
        if not isinstance(cause, OSError) or (cause is not error and cause.errno not in FULL):
            raise
        where = str(cause.filename or beside)
        is_temporary = Path(where).is_relative_to(beside)
        raise RunError(
            f"the bundle cannot be written: {where}: {cause.strerror}",
            next_step=_FREE_SPACE if is_temporary else None,
        ) from error


def _check_empty(folder: Path, *, force: bool) -> None:
    if (
        not force
        and folder.exists()
        and not all(is_unfinished(path.name) for path in folder.iterdir())
    ):
        raise RunError(
            f"{folder} is not empty",
            next_step="Name another folder, or use --force (force=True).",
        )


def _stale(folder: Path, new: Path) -> list[str]:
    return [name for name in files_of_bundle(folder) if not (new / name).exists()]


def copy_code(
    experiment: Experiment, origin: Origin, place: Path, contents: Contents, kept: KeptFilesOfTrial
) -> Experiment:
    """Copy the code and the data that an experiment needs.

    Args:
        experiment: The experiment, narrowed to one trial.
        origin: Where the run was started, with the code that the trial ran.
        place: The folder to copy into, created if there is anything to copy.
        contents: Receives what is missing, and what is not as the trial read it.
        kept: What the trial read.

    Returns:
        The experiment. Data that was not copied is referred to by its absolute path.
    """
    directory = Path(origin.directory)
    named = modules_of(experiment)
    code = kept.code
    if code is None:
        code = files_of(named, [origin.directory, *origin.search_path])
    kept.copy(code, place)
    tops = {name.partition("/")[0].removesuffix(".py") for name in code}
    contents.missing_modules = [name for name in named if name.partition(".")[0] not in tops]
    if experiment.trains_model:
        experiment = _copy_named(experiment, directory, place, contents, kept)
    elif experiment.links is not None and kept.workdir is not None:
        kept.copy(kept.workdir, place)
        experiment = _copy_linked(experiment, directory, place, contents, kept)
    else:
        named_in = arguments_of(experiment.command) if experiment.command else []
        options = experiment.train.options.values() if experiment.train else ()
        searched = [
            value for domain in experiment.search.root.values() for value in domain.values() or ()
        ]
        values = [*named_in, *options, *searched]
        named = find_named_files(values, code, directory, max_bytes=MAX_DATA_BYTES)
        # What was named as the run began may be gone, or the code on the disk may no longer name
        # it.
        kept.copy({**kept.named_before(directory), **named.files}, place)
        contents.too_large = named.too_large
    contents.changed = kept.changed(directory)
    return experiment


class KeptFilesOfTrial:
    """The files of a run as one trial read them.

    Code that was kept, and data as far as it was stored.
    """

    def __init__(self, origin: Origin, artifacts: Artifacts, version: int) -> None:
        """Read what was kept.

        Args:
            origin: Where the run was started, with the code that the trial ran.
            artifacts: The artifacts of the run.
            version: The version of the program that the trial ran.
        """
        folder = origin.kept_folder()
        self._kept = folder and KeptFiles(str(folder))
        self._artifacts = artifacts
        self._version = version
        self._fingerprints = Fingerprints.read(artifacts) or Fingerprints()
        self._copied: set[str] = set()
        self._hash_by_path: dict[str, str] = {}
        self.code: dict[str, Path] | None = None
        """The modules, by their name in a bundle, or None if no code was kept."""
        self.workdir: dict[str, Path] | None = None
        """What was copied into the working folder of the trial, or None if it had none."""
        if folder is not None:
            manifest = json.loads((folder / MANIFEST).read_text("utf-8"))
            self.code = {name: Path(path) for name, path in manifest["bundled"].items()}
            if manifest.get("workdir"):
                self.workdir = {
                    name: Path(entry["path"]) for name, entry in manifest["workdir"].items()
                }
            self._hash_by_path = {
                path: entry["sha256"] for path, entry in manifest["files"].items()
            }

    def copy(self, files: Mapping[str, Path], place: Path) -> None:
        """Copy files as the trial read them. If that is not possible, as they are.

        Args:
            files: The path of each file, by its name in the folder.
            place: The folder to copy into.
        """
        for name, path in files.items():
            target = place / name
            target.parent.mkdir(parents=True, exist_ok=True)
            copy = self._copy_of(str(path.absolute()))
            before = None if copy is not None else self._stored(str(path.absolute()))
            if before is None:
                shutil.copyfile(copy or path, target)
            else:
                target.write_bytes(before)
                self._copied.add(str(path.absolute()))
            if os.access(path, os.X_OK):  # a binary or a script that is started by its name
                target.chmod(0o755)

    def named_before(self, directory: Path) -> dict[str, Path]:
        """Return what the run depended on when it started, and which of its code is gone.

        Args:
            directory: The folder of the run. Files elsewhere are not copied.
        """
        sources = []
        if self._kept is not None:
            sources = [path for path in self._kept.paths if not os.path.exists(path)]
        num_bytes = 0
        named: dict[str, Path] = {}
        for path in [*sources, *sorted(self._fingerprints.hashes)]:
            if not Path(path).is_relative_to(directory) or not self._has(path):
                continue
            if os.path.exists(path):
                num_bytes += os.path.getsize(path)
            if num_bytes > MAX_DATA_BYTES:
                break
            named[Path(path).relative_to(directory).as_posix()] = Path(path)
        return named

    def _has(self, path: str) -> bool:
        """Return whether a file can be copied."""
        if self._copy_of(path) is not None:
            return True
        return os.path.isfile(path) or self._stored(path) is not None

    def _copy_of(self, path: str) -> str | None:
        """Return the copy that the trial ran.

        None if it was not kept, or the trial ran another.
        """
        # A program that is not served the copies ran what was on the disk, see
        # `Program.note_unserved`.
        ran = self._fingerprints.hash_at(path, self._version)
        if self._kept is None or ran not in (None, self._hash_by_path.get(path)):
            return None
        return self._kept.place(path)

    @property
    def packages(self) -> bytes | None:
        """The packages that were installed for the trial, or None if these are installed now."""
        return self._stored(PACKAGES)

    def _stored(self, path: str) -> bytes | None:
        """Return what a trial read from a file that has changed since.

        None if that is not known.
        """
        expected = self._fingerprints.hash_at(path, self._version)
        if not expected or expected == self._fingerprints.hash_now(path):
            return None
        return stored_content(self._artifacts, expected)

    def changed(self, directory: Path) -> list[str]:
        """Return the inputs of the trial that have changed since, except those copied before.

        Args:
            directory: The folder of the run. If this machine does not have it, nothing is
                compared.
        """
        if not directory.is_dir():
            return []
        known = self._fingerprints
        names: list[str] = []
        for path in known.hashes.keys() - self._copied - {PACKAGES}:
            if self._copy_of(path) is None and known.hash_at(path, self._version) != known.hash_now(
                path
            ):
                is_below = Path(path).is_relative_to(directory)
                if is_below:
                    path = os.path.relpath(path, directory)
                names.append(path)
        return sorted(names)


def copy_files(run: StoredRun, trial: Trial, place: Path, contents: Contents) -> None:
    """Copy what the function of a trial left in its folder.

    Args:
        run: The run.
        trial: The trial.
        place: The folder to copy into, created if there is anything to copy.
        contents: Receives the sizes.

    Raises:
        ArtifactsError: If the files cannot be read.
    """
    folder = run.store.artifacts_of(run.run_id).below(trial_folder(trial.number))
    left = folder.below("checkpoints")
    contents.best_report = describe_best_report(run, trial)
    contents.num_bytes_by_file = dict(sorted(written_files(folder).items()))
    for name in contents.num_bytes_by_file:
        with left.as_file(name) as path:
            (place / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, place / name)


def describe_best_report(run: StoredRun, trial: Trial) -> str | None:
    """Return that files may be newer than the value of a trial, or None if they are not.

    The files of a train function or a program are not copied at each report. The folder is as the
    code left it, so only a trial whose last report is its value surely has the right files.

    Args:
        run: The run.
        trial: One of its trials.
    """
    followed = TrialValue(run.experiment)
    if run.experiment.trains_model or not followed.follows_best:
        return None
    best = last = None
    events = (stored.event for stored in run.store.events(run.run_id, trial=trial.number))
    for event in events:
        if isinstance(event, TrialReported) and event.values:
            last = (event.attempt, event.step)
            is_best = followed.report(
                event.values, step=event.step, attempt=event.attempt, returned=event.returned
            )
            if is_best:
                best = last
    if best is None or last is None or best == last:
        return None
    return (
        f"Its value is from the report at step {best[1]}, but its training ended at step {last[1]}."
        " A file that was written again in between belongs to a later report. To keep the best"
        " files, only write them after a report that is better than all before."
    )


def describe_data(experiment: Experiment, place: Path) -> list[str]:
    """Describe the files of a bundle that may be data: no source, no settings and no model.

    Args:
        experiment: The experiment of the bundle.
        place: Its folder of code. It need not exist.

    Returns:
        The name and the size of each file and folder in it that is, or contains, such files.
    """
    models = [
        named.path
        for named in named_paths(experiment)
        if named.is_relative and named.field in ("model.path", "training.weights")
    ]
    num_files: Counter[str] = Counter()
    num_bytes: Counter[str] = Counter()
    for path in sorted(place.rglob("*")):
        if path.suffix.lower() in _NO_DATA or path.name in PROJECT_FILES or not path.is_file():
            continue
        inside = path.relative_to(place)
        if any(inside.is_relative_to(model) for model in models):
            continue
        parts = inside.parts
        name = parts[0] if len(parts) == 1 else f"{parts[0]}/"
        num_files[name] += 1
        num_bytes[name] += path.stat().st_size
    return [
        f"{name} ({format_count(num, 'file')}, {format_bytes(num_bytes[name])})"
        if name.endswith("/")
        else f"{name} ({format_bytes(num_bytes[name])})"
        for name, num in num_files.items()
    ]


def _copy_linked(
    experiment: Experiment, directory: Path, place: Path, contents: Contents, kept: KeptFilesOfTrial
) -> Experiment:
    """Copy the data that is linked into working folders, or refer to it by its absolute path."""
    links: dict[str, str] = {}
    for name, path in (experiment.links or {}).items():
        source = directory / path
        files = _files_below(source)
        if files and sum(file.stat().st_size for file in files) <= MAX_DATA_BYTES:
            kept.copy({str(Path(name, file.relative_to(source))): file for file in files}, place)
            links[name] = name
        else:
            contents.too_large.append(name)
            links[name] = str(source)
    return experiment.replace(workdir={"link": links}) if links else experiment


def _files_below(source: Path) -> list[Path]:
    return [item for item in [source, *source.rglob("*")] if item.is_file()]


def _copy_named(
    experiment: Experiment, directory: Path, place: Path, contents: Contents, kept: KeptFilesOfTrial
) -> Experiment:
    """Copy the data, the model and the weights that an experiment names by relative paths.

    What is not copied, because it is large or lies elsewhere, is referred to by its absolute path.
    Weights are searched like any other value, so they are listed as missing instead.
    """
    absolute: dict[str, Path] = {}
    before = kept.named_before(directory).values()
    gone = [file for file in before if not file.exists()]
    for named in named_paths(experiment):
        is_weights = named.field == "training.weights"
        is_copied = False
        if named.is_relative:
            source = named.file_from(directory)
            files = _files_below(source)
            is_small = sum(file.stat().st_size for file in files) <= MAX_DATA_BYTES
            files += [file for file in gone if file.is_relative_to(source)]
            is_copied = bool(files) and is_small and ".." not in Path(named.path).parts
            if is_copied:
                kept.copy({file.relative_to(directory).as_posix(): file for file in files}, place)
            elif not is_weights and (named.is_required or source.exists()):
                absolute[named.field] = directory / named.path
        if is_weights and not is_copied:
            contents.missing_weights.append(named.path)
    return with_paths(experiment, absolute)
