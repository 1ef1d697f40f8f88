"""Recognises files that the workbench wrote into a user's folder.

Bundles, reports, stores, studies, logs.

They are not code and change often, so they are left out when the folder is submitted. Experiment
files other than the submitted one belong to other runs and are left out, too.
"""

from __future__ import annotations

import contextlib
import re
import sqlite3
from collections.abc import Iterable
from pathlib import Path, PurePosixPath

_BUNDLE = frozenset({"configuration.json", "environment.txt", "experiment.yaml", "retrain.sh"})
_PAGE = b'<meta name="generator" content="workbench">'
_DATABASE = b"SQLite format 3\0"
_OUR_TABLES = ({"runs", "events", "commands"}, {"studies", "trials", "version_info"})
_BESIDE_DATABASE = ("-wal", "-shm", "-journal", ".lock")
_EXPERIMENT = re.compile(rb"^(objectives|search) *:", re.MULTILINE)
_HEAD_BYTES = 64 * 2**10


def is_of_bundle(path: Path) -> bool:
    """Return whether a file is one of those that make a folder a bundle."""
    return path.name in _BUNDLE and all((path.parent / name).exists() for name in _BUNDLE)


def results_among(folder: Path, names: Iterable[str]) -> set[str]:
    """Return the files of a folder that the workbench wrote, logs, and other experiments.

    Args:
        folder: The folder; if it is itself an exported trial, its files are kept.
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
    found = {name for name in names if _is_log(name) or _is_page(folder / name)}
    found |= {name for name in names if _is_experiment(folder / name)}
    for name in filter(lambda name: _is_workbench_database(folder / name), names):
        found |= {name, *(name + suffix for suffix in _BESIDE_DATABASE)}
        beside = str(PurePosixPath(name).parent / "artifacts")
        places.add(f"{beside}/")
    return {name for name in names if name in found or name.startswith(tuple(places))}


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
