"""Python objects from a notebook as bytes that depend on what they do, not on where and when they were made.

cloudpickle gives each class a random number and each function the path of its cell, which holds the process
of the kernel: a cell that is run again, or tomorrow, would be a new version. Here both are replaced, so that
the hash of the bytes changes with the code only. Naming and checking the bytes is left to the components.
"""

from __future__ import annotations

import hashlib
import io
import re
from types import CodeType
from typing import Any

import cloudpickle
from cloudpickle.cloudpickle import _DYNAMIC_CLASS_TRACKER_BY_CLASS

_CELL_FILE = re.compile(r"ipykernel_\d+|^<ipython-input-")
_CELL = "<notebook cell>"
_REDUCE_CODE = cloudpickle.Pickler.dispatch_table[CodeType]


def _reduce_code(code: CodeType) -> Any:
    """Reduce code without the path of the cell that it was written in."""
    return _REDUCE_CODE(code.replace(co_filename=_CELL) if _CELL_FILE.search(code.co_filename) else code)


class _Pickler(cloudpickle.Pickler):
    dispatch_table = {**cloudpickle.Pickler.dispatch_table, CodeType: _reduce_code}


def dumps(target: Any) -> bytes:
    """Pickle a function or class; what does the same is the same bytes.

    Args:
        target: Anything that cloudpickle takes.

    Returns:
        Bytes for `cloudpickle.loads`.
    """
    buffer = io.BytesIO()
    _Pickler(buffer).dump(target)
    return _number_classes(buffer.getvalue())


def _number_classes(payload: bytes) -> bytes:
    """Replace the random number of each class, by which a process knows it again, by one of its content."""
    numbers = [number.encode() for number in _DYNAMIC_CLASS_TRACKER_BY_CLASS.values()]
    found = sorted((number for number in numbers if number in payload), key=payload.index)
    for index, number in enumerate(found):
        payload = payload.replace(number, f"{index:032x}".encode())
    content = hashlib.sha256(payload).hexdigest()
    for index in range(len(found)):
        own = hashlib.sha256(f"{content} {index}".encode()).hexdigest()[:32]
        payload = payload.replace(f"{index:032x}".encode(), own.encode())
    return payload
