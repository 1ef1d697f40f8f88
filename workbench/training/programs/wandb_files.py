"""The files through which wandb and the workbench exchange metrics and configurations.

Metrics are read from the file that wandb keeps for a run without a connection. It is a log of
LevelDB: blocks of 32 KiB with records, which may be cut across blocks. Each record is a protocol
buffer. History records hold the arguments of one call of `wandb.log`. The configuration is written
to the file in the variable WANDB_SWEEP_PARAM_PATH, which wandb reads as YAML 1.1.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

from pydantic import JsonValue

from workbench.training.programs.documents import Values, read_json
from workbench.training.programs.written_metrics import Found, fields_of

_HEADER, _BLOCK, _RECORD_HEADER = 7, 32768, 7
_FULL, _FIRST, _MIDDLE, _LAST = 1, 2, 3, 4
_HISTORY = 2
_SEARCH_S = 0.1
_MAX_READ = 2**22


class WandbFolder:
    """The folder into which wandb writes its runs, each in its own subfolder."""

    def __init__(self, folder: Path) -> None:
        """Skip existing runs.

        Args:
            folder: The folder in the variable WANDB_DIR.
        """
        self._folder = folder
        self._logs: dict[Path, WandbLog | None] = dict.fromkeys(self._find())
        self._searched_s = -1.0

    def poll(self, *, at_end: bool = False) -> Iterator[Found]:
        """Yield the values that were logged since the last call, with wandb's step."""
        if not at_end and time.monotonic() - self._searched_s < _SEARCH_S:
            return
        self._searched_s = time.monotonic()
        for path in self._find():
            log = self._logs.setdefault(path, WandbLog(path))
            for record in log.records() if log is not None else ():
                values = _history(record)
                if not values.is_empty:
                    step = values.get("_step")
                    yield _without_own(values), None if step is None else int(step)

    def _find(self) -> list[Path]:
        return sorted(self._folder.glob("wandb/*run-*/*.wandb"))


class WandbLog:
    """One growing file of records."""

    def __init__(self, path: Path) -> None:
        """Start at the beginning of a file."""
        self._path = path
        self._offset = _HEADER
        self._begun = b""

    def records(self) -> Iterator[bytes]:
        """Yield the records that are complete now."""
        with self._path.open("rb") as file:
            file.seek(self._offset)
            data = file.read(_MAX_READ)
        place = 0
        while True:
            left = _BLOCK - (self._offset + place) % _BLOCK
            if left < _RECORD_HEADER:  # padding at the end of a block
                if place + left > len(data):
                    break
                place += left
                continue
            if place + _RECORD_HEADER > len(data):
                break
            length, kind = int.from_bytes(data[place + 4 : place + 6], "little"), data[place + 6]
            end = place + _RECORD_HEADER + length
            if end > len(data) or kind == 0:
                break
            part, place = data[place + _RECORD_HEADER : end], end
            if kind in (_FULL, _FIRST):
                self._begun = part
            else:
                self._begun += part
            if kind in (_FULL, _LAST):
                yield self._begun
        self._offset += place


def _history(record: bytes) -> Values:
    """Return the numbers of a history record. Other records have none."""
    history = Values()
    try:
        for number, content in fields_of(record):
            if number == _HISTORY and isinstance(content, bytes):
                for inner, item in fields_of(content):
                    if inner == 1 and isinstance(item, bytes):
                        history.merge(_item(item))
    except (ValueError, IndexError):
        return Values()
    return history


def _item(item: bytes) -> Values:
    """Return one value by its name.

    Field 1 is the key, field 2 has the parts of a nested key, and field 16 is the value as JSON.
    """
    key, nested, written = "", [], b"null"
    for number, content in fields_of(item):
        if isinstance(content, bytes):
            if number == 1:
                key = content.decode(errors="replace")
            elif number == 2:
                nested.append(content.decode(errors="replace"))
            elif number == 16:
                written = content
    name = key or ".".join(nested)
    return read_json(b"{%s:%s}" % (json.dumps(name).encode(), written)) if name else Values()


def _without_own(values: Values) -> Values:
    """Return values without the values that wandb adds by itself."""
    return Values(
        {name: value for name, value in values.items() if not name.startswith("_")},
        {name: word for name, word in values.words.items() if not name.startswith("_")},
    )


def wandb_configuration(params: Mapping[str, JsonValue]) -> str:
    """Return the content of the file with the configuration.

    Args:
        params: Values by name. Nested parameters are mappings.

    Example:
        >>> from workbench.training.programs.wandb_files import wandb_configuration
        >>> print(wandb_configuration({"lr": 1e-05, "optimizer": {"name": "no"}}), end="")
        wandb_version: 1
        "lr": {"value": 1.0e-05}
        "optimizer": {"value": {"name": "no"}}
    """
    lines = [
        f'{json.dumps(name)}: {{"value": {_written(value)}}}' for name, value in params.items()
    ]
    return "\n".join(["wandb_version: 1", *lines, ""])


def _written(value: JsonValue) -> str:
    """Return a value as JSON that is also YAML 1.1. There, 1e-05 needs a point: 1.0e-05."""
    if isinstance(value, dict):
        parts = (f"{json.dumps(name)}: {_written(part)}" for name, part in value.items())
        return f"{{{', '.join(parts)}}}"
    if isinstance(value, list):
        return f"[{', '.join(map(_written, value))}]"
    text = json.dumps(value)
    if isinstance(value, float) and "e" in text and "." not in text:
        return text.replace("e", ".0e")
    return text
