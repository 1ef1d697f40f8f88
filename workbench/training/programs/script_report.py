"""`report`, which a program may call instead of printing metrics.

Outside of a run, it does nothing. Numbers are written as lines of a file. Pictures, tables and
texts become files in a folder next to it. The process that follows the program reads both. In a
train function, `report` is the same as the function's argument.
"""

from __future__ import annotations

import json
import math
import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from workbench.foundation.attachments import MAX_IMAGE_BYTES, MEDIA_TYPES, Attachment
from workbench.foundation.reported_values import sort_values

_VARIABLE = "WORKBENCH_REPORTS"
_receiver: ContextVar[Callable[..., bool] | None] = ContextVar("receiver", default=None)
_SUFFIX = ".attached"
_MAX_BYTES = MAX_IMAGE_BYTES + 2**20
_KINDS = ("image", "table", "text")


@contextmanager
def reports_go_to(receiver: Callable[..., bool]) -> Iterator[None]:
    """Let `report` call another function in this thread, as long as the context is open.

    Args:
        receiver: Receives the metrics by name, and returns whether the trial should stop.
    """
    token = _receiver.set(receiver)
    try:
        yield
    finally:
        _receiver.reset(token)


def report(**metrics: Any) -> bool:
    """Report metrics of the trial that this program runs.

    In a train function, it does the same as the argument `report`. Outside of a run, and in all
    workers of a program except the first, it does nothing.

    Args:
        **metrics: Numbers by name, including the `step` of the experiment. Pictures (arrays, images
            of Pillow, figures of matplotlib, paths), tables (lists of mappings, data frames) and
            texts are kept with the trial. Any other value is dropped with a note, or is an error if
            it is an objective.

    Returns:
        Whether a train function should return soon. In a program it is always False, because
        programs are stopped by SIGTERM.

    Example:
        >>> wb.report(epoch=1, val_loss=0.25)
        False
    """
    if (receiver := _receiver.get()) is not None:
        return receiver(**metrics)
    path = os.environ.get(_VARIABLE)
    if path is None:
        return False
    reported = sort_values(metrics)
    # Booleans stay booleans in JSON, so the reader can tell them from numbers.
    numbers = {**reported.numbers, **reported.booleans}
    if numbers:
        _append(path, json.dumps(numbers).encode() + b"\n")
    for name, attached in {**reported.attachments, **reported.problems}.items():
        what = f"{reported.what[name]} is not a number"
        write_attached(path, name, attached, numbers, what)
    return False


def _append(path: str, line: bytes) -> None:
    file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    try:
        os.write(file, line)
    finally:
        os.close(file)


@dataclass(frozen=True)
class Attached:
    """An attachment of a report, or why it cannot be kept."""

    name: str
    content: Attachment | str
    """The attachment, or why it cannot be kept."""
    values: Mapping[str, float]
    """The numbers of the same report."""
    why_no_result: str = "it is not a number"
    """Why it cannot be the value of an objective."""


def write_attached(
    reported: str,
    name: str,
    attached: Attachment | str,
    values: Mapping[str, Any],
    why_no_result: str,
) -> None:
    """Write an attachment for the process that follows the program.

    Args:
        reported: The file of the program's reports. The folder is next to it.
        name: The reported name.
        attached: The attachment, or why it cannot be kept.
        values: The numbers of the same report.
        why_no_result: Why it cannot be the value of an objective.
    """
    folder = _folder(reported)
    folder.mkdir(exist_ok=True)
    header: dict[str, Any] = {"name": name, "values": values, "why_no_result": why_no_result}
    content = b""
    if isinstance(attached, str):
        header["problem"] = attached
    else:
        header |= {"kind": attached.kind, "suffix": attached.suffix}
        content = attached.content
    path = folder / f"{time.time_ns():020d}-{os.getpid()}"
    path.write_bytes(json.dumps(header).encode() + b"\n" + content)
    path.rename(path.with_suffix(_SUFFIX))


def read_attached(reported: Path) -> Iterator[Attached]:
    """Yield new attachments, the oldest first, and remove them.

    Args:
        reported: The file of the program's reports.
    """
    for path in sorted(_folder(reported).glob(f"*{_SUFFIX}")):
        try:
            content = b""
            if path.stat().st_size <= _MAX_BYTES:
                content = path.read_bytes()
            path.unlink()
            yield _parse(content)
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            continue  # something other than `write_attached` has written it


def _parse(content: bytes) -> Attached:
    first, _, rest = content.partition(b"\n")
    header = json.loads(first)
    name = str(header["name"])
    values = {
        str(key): float(value)
        for key, value in header["values"].items()
        if isinstance(value, int | float) and math.isfinite(value)
    }
    why = str(header["why_no_result"])[:500]
    if "problem" in header:
        return Attached(name, str(header["problem"])[:500], values, why)
    if header["kind"] not in _KINDS or header["suffix"] not in MEDIA_TYPES:
        raise ValueError(header["kind"])
    return Attached(name, Attachment(name, header["kind"], header["suffix"], rest), values, why)


def _folder(reported: str | Path) -> Path:
    return Path(f"{reported}.attached")
