"""The files that are sent with a submitted run: the experiment, its objects, the user's code.

The code is the folder in which the run is submitted, and the modules outside it that the experiment
names, with their imports, unless they are installed. Files that the workbench wrote into the folder
(bundles, reports, stores, studies, logs), other experiments, known secrets and links are skipped:
they are not code, or belong to other runs. The same experiment with the same files makes the same
package. Sending it is left to `runs`.
"""

from __future__ import annotations

import contextlib
import os
import re
import sqlite3
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from workbench.cluster.remote.code_archive import CodeArchive, pack
from workbench.cluster.remote.code_dependencies import (
    NamedPath,
    files_of,
    modules_of,
    named_paths,
)
from workbench.experiment import Experiment
from workbench.foundation.errors import DataError
from workbench.foundation.formatting import format_bytes, format_count
from workbench.foundation.known_secrets import is_secret
from workbench.store.database.rows import words_of

FOLDER = ".workbench"
EXPERIMENT_NAME = f"{FOLDER}/experiment.yaml"
MODULES_FOLDER = f"{FOLDER}/modules"
_MAX_LISTED = 20
"""Up to this many files are listed one by one."""
_BUNDLE = frozenset({"configuration.json", "environment.txt", "experiment.yaml", "retrain.sh"})
_PAGE = b'<meta name="generator" content="workbench">'
_DATABASE = b"SQLite format 3\0"
_OUR_TABLES = ({"runs", "events", "commands"}, {"studies", "trials", "version_info"})
_BESIDE_DATABASE = ("-wal", "-shm", "-journal", ".lock")
_EXPERIMENT = re.compile(rb"^(objectives|search) *:", re.MULTILINE)
_HEAD_BYTES = 64 * 2**10


@dataclass(frozen=True)
class JobPackage:
    """All that a cluster needs to run an experiment."""

    archive: CodeArchive
    run_id: str
    """Made of the experiment's name and the content, so that sending the same again is the same
    run.
    """

    def describe(self) -> list[str]:
        """Describe which files are sent, and which files of the folder were skipped and why."""
        archive = self.archive
        user_files = [name for name in archive.names if not name.startswith(f"{FOLDER}/")]
        lines = [
            f"sends the experiment and {format_count(len(user_files), 'file')} of this folder, "
            f"{format_bytes(len(archive.content))}: {_listed(user_files)}"
        ]
        modules = [name for name in archive.names if name.startswith(f"{MODULES_FOLDER}/")]
        if modules:
            names = [name.removeprefix(f"{MODULES_FOLDER}/") for name in modules]
            lines.append(f"sends modules from other folders that it imports: {_listed(names)}")
        if archive.secrets:
            counted = format_count(len(archive.secrets), "known secret")
            lines.append(f"skipped {counted}: {_listed(archive.secrets)}")
        if archive.links:
            counted = format_count(len(archive.links), "link")
            lines.append(
                f"skipped {counted}, because links are not followed: {_listed(archive.links)}"
            )
        return lines


def _listed(names: Sequence[str]) -> str:
    """Return names in one line. If there are many, a folder becomes one entry with a number."""
    if not names:
        return "nothing"
    if len(names) <= _MAX_LISTED:
        return ", ".join(names)
    counts = Counter(name.partition("/")[0] for name in names)
    entries = [
        name if name in names else f"{name}/ ({format_count(count, 'file')})"
        for name, count in counts.items()
    ]
    more = len(entries) - _MAX_LISTED
    return ", ".join(entries[:_MAX_LISTED]) + (f" and {more} more" if more > 0 else "")


def make_package(experiment: Experiment, folder: Path) -> JobPackage:
    """Pack an experiment with the code of a folder.

    Args:
        experiment: What to tune, with its embedded objects available.
        folder: The folder to which paths of data and names of modules are relative.

    Raises:
        DataError: If the data is not at the path in the experiment.
        RunError: If the package is too large, or an embedded object is not available.
    """
    added = {EXPERIMENT_NAME: experiment.to_yaml().encode()}
    added |= {
        f"{FOLDER}/objects/{sha256}": content for sha256, content in experiment.payloads().items()
    }
    for name, path in files_of(modules_of(experiment), [str(folder)]).items():
        place = path.parents[len(Path(name).parts) - 1]
        is_kept_back = path.is_symlink() or is_secret(path, below=place)
        if not path.is_relative_to(folder.absolute()) and not is_kept_back:
            added[f"{MODULES_FOLDER}/{name}"] = path.read_bytes()
    also = [
        _within(named, folder)
        for named in named_paths(experiment)
        if named.is_relative and (named.is_required or named.file_from(folder).exists())
    ]
    archive = pack(folder, also=also, added=added, without=results_among)
    return JobPackage(archive, f"{words_of(experiment.name)}-{archive.identity[:10]}")


def _within(named: NamedPath, folder: Path) -> str:
    """Return a relative path, if it lies in the folder. Any other is a path of the cluster."""
    path, place = named.path, named.file_from(folder)
    if not place.exists():
        raise DataError(
            f"there is no {path} in {folder}",
            field=named.field,
            next_step=(
                "Submit from the folder that contains it, or give a path that exists on the"
                " cluster."
            ),
        )
    if not place.resolve().is_relative_to(folder.resolve()):
        raise DataError(
            f"{path} lies outside {folder}, and only that folder is sent",
            field=named.field,
            next_step=(
                "Submit from a folder that contains it, or give a path that exists on the cluster."
            ),
        )
    real = place.resolve().relative_to(folder.resolve())
    written = Path(os.path.normpath(named.file_from(folder.absolute())))
    if written.is_relative_to(folder.absolute()) and written.relative_to(folder.absolute()) != real:
        raise DataError(
            f"{path} is a link or lies behind one, and links are not sent",
            field=named.field,
            next_step=f"Use the path that it leads to: {real}.",
        )
    return real.as_posix()


def is_of_bundle(path: Path) -> bool:
    """Return whether a file is one of those that make a folder a bundle."""
    return path.name in _BUNDLE and all((path.parent / name).exists() for name in _BUNDLE)


def results_among(folder: Path, names: Iterable[str]) -> set[str]:
    """Return the files of a folder that the workbench wrote, logs, and other experiments.

    Args:
        folder: The folder. If it is itself an exported trial, its files are kept.
        names: Its files, by relative name with slashes.
    """
    names = list(names)
    by_place: dict[str, set[str]] = {}
    for name in names:
        path = PurePosixPath(name)
        by_place.setdefault(str(path.parent), set()).add(path.name)
    places = {
        f"{place}/" for place, inside in by_place.items() if place != "." and inside >= _BUNDLE
    }
    results = {name for name in names if _is_log(name) or _is_page(folder / name)}
    results |= {name for name in names if _is_experiment(folder / name)}
    for name in filter(lambda name: _is_workbench_database(folder / name), names):
        results |= {name, *(name + suffix for suffix in _BESIDE_DATABASE)}
        beside = str(PurePosixPath(name).parent / "artifacts")
        places.add(f"{beside}/")
    return {name for name in names if name in results or name.startswith(tuple(places))}


def _is_log(name: str) -> bool:
    return name.endswith(
        (".log", "nohup.out")
    )  # the output of a followed run, redirected to a file


def _is_page(path: Path) -> bool:
    return path.suffix == ".html" and _PAGE in _head(path)


def _is_experiment(path: Path) -> bool:
    return path.suffix in (".yaml", ".yml") and len({*_EXPERIMENT.findall(_head(path))}) == 2


def _is_workbench_database(path: Path) -> bool:
    if _head(path, len(_DATABASE)) != _DATABASE:
        return False
    with contextlib.suppress(sqlite3.Error):
        connection = sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)
        with contextlib.closing(connection):
            tables = {name for (name,) in connection.execute("select name from sqlite_master")}
        return any(tables >= ours for ours in _OUR_TABLES)
    return False


def _head(path: Path, num_bytes: int = _HEAD_BYTES) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(num_bytes)
    except OSError:
        return b""  # packing the file reports the error
