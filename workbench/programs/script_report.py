"""What a program may call instead of printing its metrics; outside of a run it does nothing.

In a train function it is the function's own `report`; what becomes of the values is left to the receiver.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

_VARIABLE = "WORKBENCH_REPORTS"
_receiver: ContextVar[Callable[..., bool] | None] = ContextVar("receiver", default=None)


@contextmanager
def reports_go_to(receiver: Callable[..., bool]) -> Iterator[None]:
    """Let `report` call another function in this thread, as long as the context is open.

    Args:
        receiver: Takes the metrics by name; returns whether the trial should stop.
    """
    token = _receiver.set(receiver)
    try:
        yield
    finally:
        _receiver.reset(token)


def report(**metrics: Any) -> bool:
    """Report metrics of the trial that this program is run for.

    In a train function it does what the function's argument `report` does. Outside of a run of the workbench,
    and in all workers of a program but the first, it does nothing.

    Args:
        **metrics: Numbers by name, what `step` of the experiment names among them. Pictures (arrays, images
            of Pillow, figures of matplotlib, paths), tables (lists of mappings, data frames) and texts are
            kept with the trial.

    Returns:
        Whether a train function should return soon; False in a program, which is ended by SIGTERM.

    Example:
        >>> wb.report(epoch=1, val_loss=0.25)
        False
    """
    if (receiver := _receiver.get()) is not None:
        return receiver(**metrics)
    path = os.environ.get(_VARIABLE)
    if path is None:
        return False
    plain = {name: _plain(value) for name, value in metrics.items()}
    numbers = {name: value for name, value in plain.items() if _holds_numbers(value)}
    if numbers:
        _append(path, json.dumps(numbers).encode() + b"\n")
    for name, value in metrics.items():
        if name not in numbers:
            _attach(path, name, value, numbers)
    return False


def _plain(value: Any) -> Any:
    """Return a number of any library as one of Python; anything else as it is."""
    is_scalar = getattr(value, "ndim", None) == 0 or getattr(value, "size", None) == 1
    return value.item() if is_scalar and hasattr(value, "item") else value


def _holds_numbers(value: Any) -> bool:
    """Return whether a value is a number, written as text too, or a mapping of such."""
    if isinstance(value, str):
        try:
            float(value)
        except ValueError:
            return False
        return True
    if isinstance(value, Mapping):
        return all(map(_holds_numbers, value.values()))
    return value is None or isinstance(value, int | float)


def _append(path: str, line: bytes) -> None:
    file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    try:
        os.write(file, line)
    finally:
        os.close(file)


def _attach(path: str, name: str, value: Any, numbers: dict[str, Any]) -> None:
    from workbench.attachments import attachment_of
    from workbench.errors import ArgumentError
    from workbench.programs.attached import write_attached

    try:
        found = attachment_of(name, value)
    except ArgumentError as error:
        write_attached(path, name, str(error), numbers)
        return
    if found is None:
        kind = type(value).__name__
        write_attached(path, name, f"{kind} is neither a number nor a picture, a table or a text", numbers)
        return
    write_attached(path, name, found, numbers)
