"""Reads folders of TensorBoard. Each folder with event files is a trial.

Hyper-parameters come from the plug-in `hparams`, whose records are kept in the first or a nested
event file, and from a file such as `hparams.yaml` next to the event files.
"""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from pydantic import JsonValue

from workbench.foundation.errors import DataError
from workbench.runs.importing.old_runs import OldRun, OldRuns, Point, key_of
from workbench.runs.importing.run_folders import params_next_to
from workbench.training.programs.written_metrics import fields_of, scalars_of

_PATTERN = "*tfevents*"
_HEAD_BYTES, _CHECKSUM_BYTES = 12, 4
_MAX_RECORD = 2**26
_EXACT = 2**53
_CURVE = "curve:"
# Fields of Event, Summary, Summary.Value and the data of the plug-in.
_WALL_TIME, _SUMMARY, _VALUE, _TAG, _METADATA = 1, 5, 1, 1, 9
_PLUGIN_DATA, _CONTENT, _START_INFO, _END_INFO = 1, 2, 3, 4
_HPARAMS, _KEY, _MAP_VALUE, _STATUS, _FAILURE = 1, 1, 2, 1, 2
_NUMBER_VALUE, _STRING_VALUE, _BOOL_VALUE = 2, 3, 4
_OF_HPARAMS = b"_hparams_/"
_TRAIN_SPLITS = frozenset(("train", "training"))
_SPLITS = _TRAIN_SPLITS | {"validation", "val", "valid", "eval", "test", "dev"}


@dataclass
class _Folder:
    """What the event files of one folder say."""

    paths: list[Path]
    points: list[Point] = field(default_factory=list)
    params: dict[str, JsonValue] = field(default_factory=dict)
    has_failed: bool = False
    has_hparams: bool = False


def find_event_files(folder: Path) -> list[Path]:
    """Return the event files below a folder."""
    return sorted(path for path in folder.rglob(_PATTERN) if path.is_file())


def read_tensorboard_folder(folder: Path) -> list[OldRuns]:
    """Read the runs below a folder.

    Args:
        folder: A folder with event files, at any depth.

    Raises:
        DataError: If an event file cannot be read.
    """
    group = OldRuns("tensorboard", str(folder.absolute()), folder.absolute().name, [])
    folders: dict[Path, _Folder] = {}
    for path in find_event_files(folder):
        folders.setdefault(path.parent, _Folder([])).paths.append(path)
    for read in folders.values():
        for path in read.paths:
            for record in _records(path, group.left_out):
                _apply(read, record)
    for place, parts in _runs(folders).items():
        run = _run(folder, place, parts)
        if not run.metrics and not run.params:
            group.left_out["runs without scalars"] += 1
            continue
        group.runs.append(run)
    return [group]


def _runs(folders: dict[Path, _Folder]) -> dict[Path, list[tuple[str, _Folder]]]:
    """Return the parts of each run, with the prefix that their scalars get.

    Keras writes a folder for each split of the data, and PyTorch one for each curve of
    `add_scalars` and for each call of `add_hparams`.
    """
    runs: dict[Path, list[tuple[str, _Folder]]] = {}
    for place, read in sorted(folders.items()):
        if place.parent.parent in folders and _tags(read) == {place.parent.name}:
            curve = f"{_CURVE}{place.parent.name}/{place.name}"  # as tensorboardX writes it
            runs.setdefault(place.parent.parent, []).append((curve, read))
        elif place.name in _SPLITS and _is_run(place.parent, folders):
            runs.setdefault(place.parent, []).append((place.name, read))
        elif place.parent in folders and read.has_hparams:
            runs.setdefault(place.parent, []).append(("", read))
        elif place.parent in folders and _is_curve(place.name, read):
            runs.setdefault(place.parent, []).append((_CURVE + place.name, read))
        else:
            runs.setdefault(place, []).append(("", read))
    return runs


def _is_run(folder: Path, folders: Collection[Path]) -> bool:
    """Return whether a folder is a run, or only contains runs that may be called `test`.

    It is one if it has event files of its own, or folders of splits only, with one to train on.
    """
    names = {place.name for place in folders if place.parent == folder}
    return folder in folders or (names <= _SPLITS and not names.isdisjoint(_TRAIN_SPLITS))


def _tags(read: _Folder) -> set[str]:
    return {point.metric for point in read.points}


def _is_curve(name: str, read: _Folder) -> bool:
    tags = _tags(read)
    return len(tags) == 1 and name.startswith(next(iter(tags)).replace("/", "_") + "_")


def _records(path: Path, left_out: Counter[str]) -> Iterator[bytes]:
    """Yield the records: length, checksum of the length, content, checksum of it."""
    try:
        size = path.stat().st_size
        with path.open("rb") as file:
            offset = 0
            while offset + _HEAD_BYTES <= size:
                file.seek(offset)
                (length,) = struct.unpack("<Q4x", file.read(_HEAD_BYTES))
                end = offset + _HEAD_BYTES + length + _CHECKSUM_BYTES
                if end > size:
                    break
                if length <= _MAX_RECORD:
                    yield file.read(length)
                offset = end
            if offset < size:
                left_out["torn ends of event files"] += 1
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror}") from error


def _apply(read: _Folder, record: bytes) -> None:
    step, values = scalars_of(record)
    if not values.is_empty:
        time_unix_s = _wall_time(record)
        read.points += [Point(step, tag, value, time_unix_s) for tag, value in values.items()]
    elif _OF_HPARAMS in record:
        for content in _plugin_contents(record):
            _apply_hparams(read, content)


def _wall_time(record: bytes) -> float | None:
    for number, content in fields_of(record):
        if number == _WALL_TIME and isinstance(content, bytes) and len(content) == 8:
            return struct.unpack("<d", content)[0]
    return None


def _parts(message: bytes, number: int) -> Iterator[bytes]:
    try:
        for field_number, content in fields_of(message):
            if field_number == number and isinstance(content, bytes):
                yield content
    except (ValueError, IndexError):  # it is not such a message
        return


def _plugin_contents(record: bytes) -> Iterator[bytes]:
    for summary in _parts(record, _SUMMARY):
        for value in _parts(summary, _VALUE):
            if any(tag.startswith(_OF_HPARAMS) for tag in _parts(value, _TAG)):
                for metadata in _parts(value, _METADATA):
                    for plugin in _parts(metadata, _PLUGIN_DATA):
                        yield from _parts(plugin, _CONTENT)


def _apply_hparams(read: _Folder, content: bytes) -> None:
    read.has_hparams = True
    for start in _parts(content, _START_INFO):
        for item in _parts(start, _HPARAMS):
            names = [name.decode(errors="replace") for name in _parts(item, _KEY)]
            for value in _parts(item, _MAP_VALUE):
                read.params[names[0]] = _value(value)
    for end in _parts(content, _END_INFO):
        read.has_failed |= any(
            number == _STATUS and status == _FAILURE for number, status in fields_of(end)
        )


def _value(message: bytes) -> JsonValue:
    for number, content in fields_of(message):
        if number == _NUMBER_VALUE and isinstance(content, bytes):
            (value,) = struct.unpack("<d", content)
            return int(value) if value.is_integer() and abs(value) < _EXACT else value
        if number == _STRING_VALUE and isinstance(content, bytes):
            return content.decode(errors="replace")
        if number == _BOOL_VALUE:
            return bool(content)
    return None


def _run(root: Path, place: Path, parts: list[tuple[str, _Folder]]) -> OldRun:
    points: list[Point] = []
    params = params_next_to(place)
    for prefix, read in parts:
        params |= read.params
        points += [point._replace(metric=_name(point.metric, prefix)) for point in read.points]
    points.sort(key=lambda point: (point.step, point.time_unix_s or 0.0))
    times = [point.time_unix_s for point in points if point.time_unix_s is not None]
    name = place.relative_to(root).as_posix() if place != root.parent else place.name
    files = sorted(path.name for _, read in parts for path in read.paths)
    return OldRun(
        key=key_of("tensorboard", name, files),
        name=root.absolute().name if name == "." else name,
        state="failed" if any(read.has_failed for _, read in parts) else "complete",
        params=params,
        metrics=sorted({point.metric for point in points}),
        read_points=partial(list, points),
        begun_unix_s=min(times, default=None),
        ended_unix_s=max(times, default=None),
    )


def _name(tag: str, prefix: str) -> str:
    if prefix.startswith(_CURVE):
        return prefix.removeprefix(_CURVE)
    return f"{prefix}/{tag}" if prefix else tag
