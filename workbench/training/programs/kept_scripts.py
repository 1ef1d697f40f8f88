"""Puts the kept version of scripts where their interpreter finds it.

Python imports kept code by itself, see `kept_imports`. Any other interpreter reads the file in its
command. If the file has changed, the copy is put next to it during the trial, so that paths
relative to the script still work. If each trial has its own working folder, the code is copied
there, and data is linked.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from workbench.foundation.errors import RunError
from workbench.training.programs.kept_imports import MANIFEST, STARTUP, VARIABLE, KeptFiles

_ISOLATED = re.compile(r"-[A-Za-z]*[IES][A-Za-z]*")
"""Options that make Python ignore its environment variables, and so the kept code."""


@dataclass(frozen=True)
class Layout:
    """What was put into the working folder of a trial, to tell it from what its program wrote."""

    stamps: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    """The size and the time of change of each copied file, by its name in the folder."""
    links: Sequence[str] = ()
    """The names of the links."""

    @classmethod
    def read(cls, written: bytes) -> Layout:
        """Read a layout that `write` has written."""
        document = json.loads(written)
        stamps = {name: (size, time) for name, (size, time) in document["files"].items()}
        return cls(stamps, document["links"])

    def write(self) -> bytes:
        """Return the layout as JSON."""
        return json.dumps({"files": self.stamps, "links": list(self.links)}).encode()

    def has(self, name: str, stamp: tuple[int, int] | None) -> bool:
        """Return whether a file was put there and has not been changed by the program.

        Args:
            name: Its name in the folder.
            stamp: Its size and time of change now.
        """
        path = Path(name)
        is_linked = any(path.is_relative_to(link) for link in self.links)
        return is_linked or (stamp is not None and self.stamps.get(name) == stamp)

    def others_in(self, folder: Path) -> Iterator[Path]:
        """Yield the files that the program has written into its working folder."""
        for parent, folders, names in os.walk(folder):
            folders[:] = sorted(name for name in folders if name != "__pycache__")
            for path in (Path(parent, name) for name in sorted(names)):
                if not self.has(path.relative_to(folder).as_posix(), _stamp(path)):
                    yield path


def lay_out(folder: Path, links: Mapping[str, str], before: Layout) -> Layout:
    """Copy the kept code of the run into the working folder of a trial, and link data.

    A file that the program has written or changed stays as it is.

    Args:
        folder: The working folder.
        links: What to link, by its name there. A path is relative to the folder of this process.
        before: What an earlier attempt has put there.

    Raises:
        RunError: If data to link is not on this machine, or a file cannot be written.
    """
    stamps: dict[str, tuple[int, int]] = {}
    code = os.environ.get(VARIABLE)
    try:
        if code:
            kept = KeptFiles(code)
            manifest = json.loads(Path(code, MANIFEST).read_text("utf-8"))
            for name, entry in manifest.get("workdir", {}).items():
                target = folder / name
                content = kept.content(entry["path"])
                if _copy(content, target, before, name, is_program=entry["executable"]):
                    stamps[name] = _stamp(target)
        for name, path in links.items():
            _link(Path(os.path.abspath(path)), folder / name, name)
    except OSError as error:
        raise RunError(
            f"the working folder of the trial cannot be filled: {error.filename}: {error.strerror}"
        ) from error
    return Layout(stamps, list(links))


def _copy(content: bytes, target: Path, before: Layout, name: str, *, is_program: bool) -> bool:
    """Copy a file, and return whether it is the copy. If not, the program has changed it."""
    if target.is_file():
        if target.read_bytes() == content:
            return True
        if not before.has(name, _stamp(target)):
            return False
    target.parent.mkdir(parents=True, exist_ok=True)
    unfinished = target.with_name(f".{target.name}.{os.getpid()}")
    unfinished.write_bytes(content)
    if is_program:
        unfinished.chmod(0o755)
    unfinished.replace(target)
    return True


def _link(source: Path, target: Path, name: str) -> None:
    if not source.exists():
        raise RunError(
            f"{source}, which workdir.link.{name} links, is not on this machine",
            next_step="Put it there, or write the path that it has on every machine.",
        )
    target.parent.mkdir(parents=True, exist_ok=True)
    if target.is_symlink():
        if os.readlink(target) == str(source):
            return
        target.unlink()
    elif target.exists():
        raise RunError(
            f"{name} cannot be linked into the working folder, because the program has made a file"
            " of this name there",
            field=f"workdir.link.{name}",
        )
    target.symlink_to(source)


def _stamp(path: Path) -> tuple[int, int]:
    status = path.lstat()
    return status.st_size, status.st_mtime_ns


@contextlib.contextmanager
def kept_scripts(arguments: Sequence[str], workdir: Path | None = None) -> Iterator[list[str]]:
    """Give the arguments of a command, with the kept versions of scripts that have changed.

    Args:
        arguments: The program and its arguments.
        workdir: The working folder of the trial, which has the kept versions already. None is that
            of this process.

    Raises:
        RunError: If a copy cannot be put next to its script.
    """
    folder = os.environ.get(VARIABLE)
    if not folder:
        yield list(arguments)
        return
    kept, written = KeptFiles(folder), list[Path]()
    own = served_by_name(arguments)
    if workdir is not None:
        own = {argument for argument in own if os.path.isabs(argument)}
    try:
        yield [
            _placed(argument, kept, written) if argument in own else argument
            for argument in _with_startup(arguments, folder)
        ]
    finally:
        for path in written:
            path.unlink(missing_ok=True)


def _with_startup(arguments: Sequence[str], folder: str) -> list[str]:
    """Return a command whose `env PYTHONPATH=..` leaves the kept code of a folder first."""
    if not arguments or Path(arguments[0]).name != "env":
        return list(arguments)
    name, startup = "PYTHONPATH=", os.path.join(folder, STARTUP)
    return [
        f"{name}{startup}{os.pathsep}{word.removeprefix(name)}" if word.startswith(name) else word
        for word in arguments
    ]


def served_by_name(arguments: Sequence[str]) -> set[str]:
    """Return the arguments that `kept_scripts` replaces if scripts have changed.

    Args:
        arguments: The program and its arguments.
    """
    is_isolated = any(_ISOLATED.fullmatch(argument) for argument in arguments[1:])
    return {argument for argument in arguments if is_isolated or not argument.endswith(".py")}


def _placed(argument: str, kept: KeptFiles, written: list[Path]) -> str:
    if "\0" in argument:  # not a path
        return argument
    path = Path(os.path.abspath(argument))
    if kept.place(str(path)) is None or not kept.has_changed(str(path)):
        return argument
    copy = path.with_name(f".{path.stem}-kept-{os.getpid()}-{len(written)}{path.suffix}")
    try:
        copy.write_bytes(kept.content(str(path)))
        copy.chmod(0o755)
    except OSError as error:
        raise RunError(
            f"{path.name} has changed since the run started, and the kept version cannot be written"
            f" next to it: {error.strerror}",
            next_step="Continue the run with --code current, or restore the file.",
        ) from error
    written.append(copy)
    return str(copy)
