"""The folder and import path from which a run was started, and how workers load the code in it.

Code that was sent to a cluster as an archive is unpacked on each machine when it is first needed.

A worker serves trials of many runs while users edit their modules. So before each trial, user
modules that have changed or belong to another folder are unloaded, and the trial imports the files
that are on the disk. Installed packages stay loaded.
"""

from __future__ import annotations

import contextlib
import importlib.util
import linecache
import os
import py_compile
import sys
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

from workbench.cluster.remote.code_archive import unpacked
from workbench.foundation.artifacts import open_artifacts
from workbench.training.programs import kept_imports

ARCHIVE_NAME = "code.zip"
_INSTALLED = tuple(
    f"{Path(folder).resolve()}{os.sep}"
    for folder in {sys.prefix, sys.base_prefix, sys.exec_prefix, os.path.dirname(os.__file__)}
)
_PACKAGES = frozenset({"site-packages", "dist-packages"})  # also those outside this environment
_OURS = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Origin:
    """The directory and the import path of the process that started a run."""

    directory: str
    search_path: tuple[str, ...] = ()
    archived: str | None = None
    """The folder that was archived, for machines that do not have it."""
    archive_sha256: str = ""
    archive_place: str = ""
    """Path or URL of the folder that contains the archive or the kept code."""
    kept_sha256: str = ""
    """The hash of the archive of the kept code.

    Empty where the run has no code of the user's to keep.
    """

    def on_this_machine(self) -> Origin:
        """Return the origin of the same code on this machine.

        Raises:
            RunError: If the archive is damaged.
            ArtifactsError: If it cannot be read.
        """
        if self.archived is None:
            return self
        folder = unpacked(
            self.archive_sha256, lambda: open_artifacts(self.archive_place).read(ARCHIVE_NAME)
        )
        places = (_moved(entry, self.archived, folder) for entry in self.search_path)
        return Origin(_moved(self.directory, self.archived, folder), tuple(places))

    def kept_folder(self) -> Path | None:
        """Return the folder on this machine that holds the kept code of the run.

        None where none is kept.

        Raises:
            RunError: If the archive is damaged.
            ArtifactsError: If it cannot be read.
        """
        if not self.kept_sha256:
            return None
        name = kept_name(self.kept_sha256)
        return unpacked(self.kept_sha256, lambda: open_artifacts(self.archive_place).read(name))

    @classmethod
    def here(cls) -> Origin:
        """Return the origin of runs that this process starts."""
        directory = os.getcwd()
        entries = [
            os.path.abspath(entry) for entry in sys.path if not is_installed(entry or directory)
        ]
        return cls(directory, tuple(dict.fromkeys([*entries, directory])))


def kept_name(sha256: str) -> str:
    """Return the name of an archive of kept code among the artifacts of its run."""
    return f"kept-code/{sha256}.zip"


def use_kept_code(origin: Origin | None) -> frozenset[str]:
    """Let this process, and every Python that it starts, import the kept code of a run.

    Args:
        origin: Where the run was started, or None to import from the disk again.

    Returns:
        The paths of the files that were kept.

    Raises:
        RunError: If the kept code is damaged.
        ArtifactsError: If it cannot be read.
    """
    folder = None if origin is None else origin.kept_folder()
    kept_imports.install(None if folder is None else str(folder))
    if folder is None:
        return frozenset()
    _compile_startup(folder)
    os.environ.update(kept_imports.variables(str(folder), os.environ))
    return frozenset(kept_imports.KeptFiles(str(folder)).paths)


def _compile_startup(folder: Path) -> None:
    """Compile what each program below this process imports first.

    Those programs do not compile it themselves if their bytecode is off.
    """
    source = folder / kept_imports.STARTUP / "sitecustomize.py"
    if not os.path.exists(importlib.util.cache_from_source(str(source))):
        with contextlib.suppress(OSError):  # a program can do without
            py_compile.compile(
                str(source), invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH
            )


class UserCode:
    """Keeps the user modules of a worker in step with the disk."""

    def __init__(self) -> None:
        """Treat the modules that are loaded now as the worker's own."""
        self._own_path = [
            entry for entry in sys.path if is_installed(entry) or entry == str(_OURS.parent)
        ]
        self._seen = set(sys.modules)
        self._modules: set[str] = set()
        self._signatures: dict[str, tuple[int, int]] = {}
        self._origin: Origin | None = None
        self._run_id: str | None = None
        self._entered_ns = 0
        self._kept: frozenset[str] = frozenset()
        sys.dont_write_bytecode = True  # a .pyc cannot distinguish two edits within one second

    def leave(self, origin: Origin | None = None, run_id: str | None = None) -> bool:
        """Unload the user modules, unless they may serve the next trial.

        A run sees only what it imported.

        Args:
            origin: The origin of the next trial, or None if it is not known.
            run_id: The run of the next trial.

        Returns:
            Whether they were unloaded.
        """
        target = origin.on_this_machine() if origin else self._origin
        stays = run_id is not None and (target, run_id) == (self._origin, self._run_id)
        if stays and not self._has_changed():
            return False
        self._forget()
        self._run_id = None
        return True

    def enter(self, origin: Origin | None, run_id: str) -> None:
        """Switch to an origin, so that imports and relative paths resolve as they do there.

        Args:
            origin: The origin of the run, or None to keep the current one.
            run_id: The run.
        """
        self._entered_ns = time.time_ns()
        target = origin.on_this_machine() if origin else self._origin
        if target is not None:
            sys.path[:] = dict.fromkeys([*target.search_path, *self._own_path])
            with contextlib.suppress(OSError):  # on another node the directory may not exist
                os.chdir(target.directory)
        self._kept = use_kept_code(target)
        self._origin, self._run_id = target, run_id

    def remember(self) -> bool:
        """Record the state of the files from which user modules were loaded since the last call.

        Returns:
            Whether there were any.
        """
        if sys.modules.keys() == self._seen:  # after most trials, and much cheaper than a copy
            return False
        has_loaded = False
        loaded = set(sys.modules)
        for name in loaded - self._seen:
            if not _is_user_module(sys.modules[name]):
                continue
            self._modules.add(name)
            has_loaded = True
            file = getattr(sys.modules[name], "__file__", None)
            if file and file not in self._kept:  # what was kept does not change
                modified_ns, size = _signature(file)
                # Edited while the trial ran: which version was loaded is unknown.
                self._signatures[file] = (
                    (-1, size) if modified_ns >= self._entered_ns else (modified_ns, size)
                )
        self._seen = loaded
        return has_loaded

    def _has_changed(self) -> bool:
        return any(_signature(file) != signature for file, signature in self._signatures.items())

    def _forget(self) -> None:
        for name in self._modules:
            sys.modules.pop(name, None)
        self._seen -= self._modules
        self._modules.clear()
        self._signatures.clear()
        linecache.checkcache()
        importlib.invalidate_caches()


def _moved(entry: str, before: str, folder: Path) -> str:
    """Return the new path of an entry of a folder that was moved."""
    path = Path(entry)
    return str(folder / path.relative_to(before)) if path.is_relative_to(before) else entry


def is_installed(path: str) -> bool:
    """Return whether a path belongs to this Python installation rather than to user code."""
    return _is_in_installation(os.path.realpath(path))


def _is_in_installation(resolved: str) -> bool:
    is_below = f"{resolved}{os.sep}".startswith(_INSTALLED)
    return is_below or not _PACKAGES.isdisjoint(resolved.split(os.sep))


def is_user_file(path: str) -> bool:
    """Return whether the code of a frame is the user's: of no package, and not of the workbench."""
    if path.startswith("<frozen"):
        return False
    return not is_installed(path) and not Path(path).resolve().is_relative_to(_OURS)


def user_modules() -> dict[str, ModuleType]:
    """Return the modules of the user that this process has loaded, by name."""
    return {name: module for name, module in list(sys.modules.items()) if _is_user_module(module)}


def _is_user_module(module: ModuleType) -> bool:
    # A namespace package has only `__path__`. Some modules return an object for every attribute.
    path = getattr(module, "__path__", ())
    locations = [getattr(module, "__file__", None) or ""]
    with contextlib.suppress(KeyError):  # the package that it is a part of could not be imported
        locations += path if isinstance(path, Iterable) else ()
    places = [os.path.realpath(location) for location in locations if location]
    return bool(places) and not any(
        _is_in_installation(place) or Path(place).is_relative_to(_OURS) for place in places
    )


def _signature(file: str) -> tuple[int, int]:
    try:
        stat = os.stat(file)
    except FileNotFoundError:
        return 0, 0
    return stat.st_mtime_ns, stat.st_size
