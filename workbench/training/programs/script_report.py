"""What a program may call instead of printing its metrics; outside of a run it does nothing.

In a train function it is the function's own `report`; what becomes of the values is left to the
receiver.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from workbench.foundation.reported_values import sort_values
from workbench.training.programs.attached import write_attached

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

    In a train function it does what the function's argument `report` does. Outside of a run of the
    workbench, and in all workers of a program but the first, it does nothing.

    Args:
        **metrics: Numbers by name, what `step` of the experiment names among them. Pictures
            (arrays, images of Pillow, figures of matplotlib, paths), tables (lists of mappings,
            data frames) and texts are kept with the trial. What is none of these is left out with a
            note, unless it is an objective.

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
    reported = sort_values(metrics)
    numbers = {
        **reported.numbers,
        **reported.booleans,
    }  # JSON tells them apart, and so does the reader
    if numbers:
        _append(path, json.dumps(numbers).encode() + b"\n")
    for name, found in {**reported.attachments, **reported.problems}.items():
        what = f"{reported.what[name]} is not a number"
        write_attached(path, name, found, numbers, what)
    return False


def _append(path: str, line: bytes) -> None:
    file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    try:
        os.write(file, line)
    finally:
        os.close(file)
