"""Copies each version of the code of a run when it starts, and compares the versions.

A version of git, or a patch, becomes a folder for a moment. From it the files are chosen and packed
as those of a run with one version are. The packed files have the paths of the run's own folder, so
a trial cannot tell which version it is. Naming versions is left to `experiment.code_versions`, and
running one to `sweeps`.
"""

from __future__ import annotations

import contextlib
import dataclasses
import difflib
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from workbench.cluster.remote.code_origin import Origin
from workbench.cluster.remote.kept_code import KeptCode, Tree, find, keep
from workbench.experiment import Experiment
from workbench.experiment.code_versions import CODE, CodeVersion
from workbench.experiment.command import arguments_of
from workbench.foundation.errors import ExperimentError
from workbench.foundation.events import KeptVersion

_TIMEOUT_S = 120.0
_TARGET = re.compile(r"^(?:---|\+\+\+) ([^\t\n]+)", re.MULTILINE)
_NAMED_FIRST = 200
_NO_FILE = "/dev/null"


@dataclasses.dataclass(frozen=True)
class VersionOfCode:
    """A version of the code, packed.

    Attributes:
        code: Its files.
        event: What is stored about it.
    """

    code: KeptCode
    event: KeptVersion


def keep_versions(experiment: Experiment, origin: Origin) -> list[VersionOfCode]:
    """Copy every version of the code of an experiment.

    Args:
        experiment: An experiment that searches versions of its code.
        origin: Where the run is started, on this machine.

    Returns:
        The versions in the order in which they are written.

    Raises:
        ExperimentError: If a version does not exist, a patch does not apply, or two versions have
            the same content. The error has the dotted field.
    """
    _refuse_fixed_paths(experiment, origin)
    versions: list[VersionOfCode] = []
    present = [path.absolute() for path in find(experiment, origin).sources]
    for index, (name, version) in enumerate(experiment.search.code_versions.items()):
        field = f"search.{CODE}.versions.{index}"
        with _tree(experiment, version, origin, field) as (tree, source):
            code = keep(experiment, origin, tree=tree, gone=present)
        if code is None:
            raise ExperimentError(
                f"{version.describe()} contains no code that the trials run",
                field=field,
                next_step="Check the command, and the folder in which you start the run.",
            )
        twin = next(
            (item for item in versions if not _changes(experiment, origin, item.code, code)), None
        )
        if twin is not None:
            raise ExperimentError(
                f"{version.describe()} has the same code as {twin.event.name}",
                field=field,
                allowed="versions that differ in a file that the trials run",
                next_step="Remove one of the two.",
            )
        first = versions[0].code if versions else code
        changes = _changes(experiment, origin, first, code)
        event = KeptVersion(
            name=name, source=source, code_sha256=code.sha256, num_files=code.num_files
        )
        difference = _difference(first, code, changes, origin.directory)
        versions.append(VersionOfCode(code, event.model_copy(update=difference)))
    return versions


def copy_code(experiment: Experiment, origin: Origin, target: Path) -> None:
    """Copy the files that the trials of an experiment run.

    Args:
        experiment: The experiment. If it starts a command, its trials get working folders.
        origin: Where the run is started, on this machine.
        target: The folder to copy them to.
    """
    if experiment.command is not None and experiment.links is None:
        experiment = experiment.replace(workdir="fresh")
    target.mkdir(parents=True, exist_ok=True)
    _copy_present(experiment, origin, Path(origin.directory), target, untracked_only=False)


def _refuse_fixed_paths(experiment: Experiment, origin: Origin) -> None:
    """Raise an error if the command names code by its whole path, which no version can replace."""
    arguments = arguments_of(experiment.command) if experiment.command else []
    for path in map(Path, arguments):
        if path.is_absolute() and path.is_relative_to(origin.directory):
            raise ExperimentError(
                f"{path} would be the same file for every version of the code",
                field="command",
                next_step=f"Write {path.relative_to(origin.directory)}.",
            )


def _changes(
    experiment: Experiment, origin: Origin, first: KeptCode, second: KeptCode
) -> list[str]:
    """Return the files that differ between two versions.

    A file that is only next to the code of one of them says nothing, nor do the folders of others.
    """
    folders = [
        Path(os.path.abspath(os.path.join(origin.directory, os.path.expanduser(version.folder))))
        for version in experiment.search.code_versions.values()
        if version.folder is not None
    ]
    inside = [folder for folder in folders if folder != Path(origin.directory)]
    changes: list[str] = []
    for path in sorted(first.hashes.keys() | second.hashes.keys()):
        is_beside = path in first.beside | second.beside
        is_in_both = path in first.hashes and path in second.hashes
        if is_beside and not is_in_both:
            continue
        if any(Path(path).is_relative_to(folder) for folder in inside):
            continue
        if first.hashes.get(path) != second.hashes.get(path):
            changes.append(path)
    return changes


def _difference(
    first: KeptCode, code: KeptCode, changes: Sequence[str], directory: str
) -> dict[str, Any]:
    """Return the fields of an event on how a version differs from the first one."""
    counts = [
        count_lines(first.texts.get(path, b""), code.texts.get(path, b"")) for path in changes
    ]
    return {
        "changed": [os.path.relpath(path, directory) for path in changes],
        "lines_added": sum(added for added, _ in counts),
        "lines_removed": sum(removed for _, removed in counts),
    }


def count_lines(before: bytes, after: bytes) -> tuple[int, int]:
    """Return how many lines a change adds and removes.

    Args:
        before: The content of a file.
        after: Its new content.
    """
    old, new = (content.decode("utf-8", "replace").splitlines() for content in (before, after))
    added = removed = 0
    for line in difflib.unified_diff(old, new, lineterm="", n=0):
        added += line.startswith("+") and not line.startswith("+++")
        removed += line.startswith("-") and not line.startswith("---")
    return added, removed


@contextlib.contextmanager
def _tree(
    experiment: Experiment, version: CodeVersion, origin: Origin, field: str
) -> Iterator[tuple[Tree, str]]:
    """Yield the folder with a version, and where it comes from. It is temporary, or the user's."""
    directory = Path(origin.directory)
    if version.folder is not None:
        folder = directory / Path(version.folder).expanduser()
        if not folder.is_dir():
            raise ExperimentError(
                f"{folder} is not a folder", field=f"{field}.folder", allowed="a folder with code"
            )
        if version.patch is None:
            yield Tree(folder.resolve(), directory), version.describe()
            return
        with tempfile.TemporaryDirectory(prefix="workbench-version-") as name:
            target = Path(name).resolve()
            shutil.copytree(folder, target, dirs_exist_ok=True, symlinks=True)
            patch = directory / Path(version.patch).expanduser()
            _apply(patch, target, target, target, f"{field}.patch")
            _refuse_ways_out(target, field)
            yield Tree(target, directory), version.describe()
        return
    root = _root_of_repository(directory)
    if version.git is not None and root is None:
        raise ExperimentError(
            f"{directory} is in no git repository",
            field=f"{field}.git",
            next_step="Start the run in the repository, or give a folder or a patch.",
        )
    with tempfile.TemporaryDirectory(prefix="workbench-version-") as name:
        target = Path(name).resolve()
        source = version.describe()
        top = root or directory
        _copy_present(experiment, origin, top, target, untracked_only=version.git is not None)
        if version.git is not None:
            commit = _check_out(top, version.git, target, f"{field}.git")
            source = source.replace(f"git {version.git}", f"git {version.git} ({commit[:10]})", 1)
        if version.patch is not None:
            patch = directory / Path(version.patch).expanduser()
            _apply(patch, top, directory, target, f"{field}.patch")
        _refuse_ways_out(target, field)
        yield Tree(target, top), source


def _root_of_repository(directory: Path) -> Path | None:
    shown = _git(directory, "rev-parse", "--show-toplevel", may_fail=True)
    return None if shown is None else Path(shown.stdout.decode().strip())


def _copy_present(
    experiment: Experiment, origin: Origin, top: Path, target: Path, *, untracked_only: bool
) -> None:
    """Copy the files that the trials would run now.

    Args:
        experiment: The experiment.
        origin: Where the run is started.
        top: The folder above all files of the version.
        target: Where to copy them.
        untracked_only: Whether to leave out the files of the repository: a check-out brings them.
    """
    needed = find(experiment, origin)
    paths = needed.sources | set(needed.workdir.values())
    inside = [path.absolute() for path in paths if path.absolute().is_relative_to(top)]
    names = {path.relative_to(top).as_posix() for path in inside}
    if untracked_only:
        listed = _git(top, "ls-files", "-z")
        names -= set(os.fsdecode(listed.stdout).split("\0")) if listed is not None else set()
    for name in sorted(names):
        (target / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(top / name, target / name)


def _check_out(top: Path, wanted: str, target: Path, field: str) -> str:
    """Write the files of a commit into a folder, and return the hash of the commit."""
    parsed = _git(top, "rev-parse", "--verify", "--quiet", f"{wanted}^{{commit}}", may_fail=True)
    if parsed is None:
        listed = _git(top, "for-each-ref", "--format=%(refname:short)", "--count=12")
        known = [] if listed is None else listed.stdout.decode().split()
        raise ExperimentError(
            f"the repository {top} has no commit {wanted}",
            field=field,
            allowed=known or "a branch, a tag or a commit",
        )
    commit = parsed.stdout.decode().strip()
    with tempfile.TemporaryDirectory(prefix="workbench-index-") as name:
        index = {"GIT_INDEX_FILE": str(Path(name, "index"))}
        _git(top, "read-tree", commit, variables=index, field=field)
        prefix = f"--prefix={target}{os.sep}"
        _git(top, "checkout-index", "--all", "--force", prefix, variables=index, field=field)
    return commit


def _apply(patch: Path, top: Path, directory: Path, target: Path, field: str) -> None:
    """Apply a patch whose paths are relative to the repository, or to the folder of the run."""
    try:
        text = patch.read_text("utf-8", "surrogateescape")
    except OSError as error:
        raise ExperimentError(
            f"{patch} cannot be read: {error.strerror}", field=field, allowed="a unified diff"
        ) from error
    if not _TARGET.search(text) and "diff --git" not in text:
        raise ExperimentError(
            f"{patch} is not a patch",
            field=field,
            allowed="a unified diff",
            next_step="Write it with git diff, or with diff -u.",
        )
    problem = ""
    for base in dict.fromkeys((top, directory)):
        for strip in (1, 0):
            _copy_patched(text, base, top, target, strip)
            where = target / base.relative_to(top)
            where.mkdir(parents=True, exist_ok=True)
            # Above the folder git would find no repository, and it then applies to plain files.
            applied = _run(
                ["git", "apply", f"-p{strip}", "--whitespace=nowarn", str(patch.absolute())],
                where,
                {"GIT_CEILING_DIRECTORIES": str(target.parent)},
            )
            if applied.returncode == 0:
                return
            problem = problem or applied.stderr.decode(errors="replace").strip()
    lines = [line.removeprefix("error: ") for line in problem.splitlines()]
    raise ExperimentError(
        f"the patch does not apply: {'; '.join(lines[:3])}",
        field=field,
        next_step=f"Write it again: git diff > {patch.name}, or name the commit it is for: git.",
    )


def _copy_patched(text: str, base: Path, top: Path, target: Path, strip: int) -> None:
    """Copy the files that a patch changes, unless they are there already."""
    for given in list(dict.fromkeys(_TARGET.findall(text)))[:_NAMED_FIRST]:
        parts = Path(given.strip().strip('"')).parts[strip:]
        if not parts or given.strip() == _NO_FILE or ".." in parts or Path(*parts).is_absolute():
            continue
        source = base.joinpath(*parts)
        copy = target / base.relative_to(top) / Path(*parts)
        if source.is_file() and not copy.exists():
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, copy)


def _refuse_ways_out(target: Path, field: str) -> None:
    """Raise an error for links to files outside of a version: they would be read from there."""
    for parent, folders, names in os.walk(target):
        for name in (*folders, *names):
            path = Path(parent, name)
            if path.is_symlink() and not path.resolve().is_relative_to(target):
                raise ExperimentError(
                    f"{path.relative_to(target)} is a link to {os.readlink(path)}, outside of the"
                    " version",
                    field=field,
                    next_step="Remove the link. To link data, use workdir: {link: [PATH]}.",
                )


def _git(
    folder: Path,
    *arguments: str,
    may_fail: bool = False,
    variables: Mapping[str, str] | None = None,
    field: str | None = None,
) -> subprocess.CompletedProcess[bytes] | None:
    """Run git in a repository. None if it failed and may fail."""
    done = _run(["git", *arguments], folder, variables or {})
    if done.returncode == 0:
        return done
    if may_fail:
        return None
    problem = done.stderr.decode(errors="replace").strip()
    raise ExperimentError(f"git {arguments[0]} failed: {problem}", field=field)


def _run(
    command: list[str], folder: Path, variables: Mapping[str, str]
) -> subprocess.CompletedProcess[bytes]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    try:
        return subprocess.run(
            command,
            cwd=folder,
            env={**environment, **variables},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_TIMEOUT_S,
            check=False,
        )
    except FileNotFoundError as error:
        raise ExperimentError(
            "versions of the code need git, which is not installed",
            next_step="Install git, or give each version as a folder.",
        ) from error
    except subprocess.TimeoutExpired as error:
        raise ExperimentError(
            f"git did not end within {_TIMEOUT_S:.0f} seconds", next_step="Use a smaller folder."
        ) from error
