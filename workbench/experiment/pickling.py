"""Pickles objects from a notebook, so that their bytes change only if their code changes.

cloudpickle gives each class a random number. It also stores the path of a function's cell, which
contains the process number of the kernel. So the same cell would have other bytes when you run it
again. Both are replaced here. If something cannot be pickled, the error says which variable is the
reason. `components` identifies the bytes by their hash.
"""

from __future__ import annotations

import functools
import hashlib
import inspect
import io
import pickletools
import re
import socket
import threading
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Executor
from types import CodeType, FunctionType, GeneratorType, MethodType
from typing import Any

import cloudpickle
from cloudpickle.cloudpickle import _DYNAMIC_CLASS_TRACKER_BY_CLASS, _extract_code_globals

from workbench.foundation.errors import ExperimentError, first_line_of

_CELL_FILE = re.compile(r"ipykernel_\d+|^<ipython-input-")
_CELL = "<notebook cell>"
_TEXTS = {"SHORT_BINUNICODE": 2, "BINUNICODE": 5, "BINUNICODE8": 9}
"""The number of bytes before a text in a pickle, by the name of its opcode."""
_REDUCE_CODE = cloudpickle.Pickler.dispatch_table[CodeType]
_PLACE_OF_FILE = 10
"""The place of the file's name among the arguments of CodeType, in Python 3.10 to 3.14."""


def _reduce_code(code: CodeType) -> Any:
    """Reduce code without the path of the cell in which it was written."""
    if _CELL_FILE.search(code.co_filename):
        code = code.replace(co_filename=_CELL)
    make, arguments, *others = _REDUCE_CODE(code)
    # cloudpickle 3.1.3 forgets the file, which tracebacks and the source need.
    before, after = arguments[:_PLACE_OF_FILE], arguments[_PLACE_OF_FILE + 1 :]
    return make, (*before, code.co_filename, *after), *others


class _Pickler(cloudpickle.Pickler):
    dispatch_table = {**cloudpickle.Pickler.dispatch_table, CodeType: _reduce_code}


def dumps(target: Any) -> bytes:
    """Pickle a function or class. The same code gives the same bytes.

    Args:
        target: Anything that cloudpickle takes.

    Returns:
        Bytes for `cloudpickle.loads`.

    Raises:
        ExperimentError: If it cannot be pickled. The message shows the variable that is the reason.
    """
    buffer = io.BytesIO()
    try:
        _Pickler(buffer).dump(target)
    except Exception as error:  # the objects of a user may raise anything
        raise _refusal(target, error) from error
    return _number_classes(buffer.getvalue())


def _number_classes(payload: bytes) -> bytes:
    """Replace the random number of each class by one that follows from the content of the pickle.

    A process uses the number to recognise a class that it has already loaded. Bytes within a value,
    such as the payload of another component, stay the same.
    """
    # First all classes get their index as number. The hash of these bytes is the same in every
    # process, and makes the final numbers.
    numbers = set(_DYNAMIC_CLASS_TRACKER_BY_CLASS.values())
    if not any(number.encode() in payload for number in numbers):
        return payload
    places = [
        (place + _TEXTS[code.name], str(text))
        for code, text, place in pickletools.genops(payload)
        if code.name in _TEXTS and place is not None and text in numbers
    ]
    used = list(dict.fromkeys(text for _, text in places))
    plain = _with_texts(payload, places, {text: f"{index:032x}" for index, text in enumerate(used)})
    content = hashlib.sha256(plain).hexdigest()
    stable = {
        text: hashlib.sha256(f"{content} {index}".encode()).hexdigest()[:32]
        for index, text in enumerate(used)
    }
    return _with_texts(payload, places, stable)


def _with_texts(
    payload: bytes, places: Sequence[tuple[int, str]], texts: Mapping[str, str]
) -> bytes:
    """Return the bytes with texts at some places replaced by others of the same length."""
    changed = bytearray(payload)
    for place, text in places:
        changed[place : place + len(text)] = texts[text].encode()
    return bytes(changed)


def _refusal(target: Any, error: Exception) -> ExperimentError:
    """Return the error for an object that cannot be pickled, with the variable that prevents it."""
    title = getattr(target, "__name__", None) or type(target).__name__
    reason = _find(target, f"`{title}`", set())
    if reason is None:
        return ExperimentError(
            f"{title} cannot be sent to other processes: {first_line_of(error)}",
            next_step="Define it in a module, and write module:name.",
        )
    user, path, value = reason
    return ExperimentError(
        f"{title} cannot be sent to other processes, because {user} uses the variable `{path}`,"
        f" which is {_describe(value)}: {first_line_of(error)}",
        next_step=(
            "Make it inside of the function, or move both into a module and write module:function."
        ),
    )


def _find(value: Any, user: str, seen: set[int], path: str = "") -> tuple[str, str, Any] | None:
    """Find the innermost variable that cannot be pickled.

    Args:
        value: A value that cannot be pickled.
        user: The function that uses it, for the message.
        seen: The ids of objects that were already visited.
        path: How it is reached from a variable of the function. "" for the function itself.

    Returns:
        The function that uses the variable, the path of the variable, and its value. None if no
        variable is the reason.
    """
    seen.add(id(value))
    is_function = isinstance(value, FunctionType)
    if is_function and path:
        user = f"`{path}`"
    for name, inner in _parts_of(value):
        if id(inner) in seen or _can_be_pickled(inner):
            continue
        inner_path = f"{path}{name}"
        if is_function or not path:
            inner_path = name.lstrip(".")
        # An object of a class from the notebook, or of an unknown type: look into its attributes.
        is_own = type(inner).__module__ == "__main__"
        if is_own or _describe(inner).startswith("of type "):
            return _find(inner, user, seen, inner_path) or (user, inner_path, inner)
        return user, inner_path, inner
    return None


def _parts_of(value: Any) -> Iterator[tuple[str, Any]]:
    """Yield everything that is pickled together with a value, with its name."""
    if isinstance(value, FunctionType):
        yield from _parts_of_function(value)
    elif isinstance(value, MethodType):
        yield "self", value.__self__
        yield value.__name__, value.__func__
    elif isinstance(value, functools.partial):
        yield getattr(value.func, "__name__", "func"), value.func
        yield from value.keywords.items()
        yield from ((f"args[{number}]", item) for number, item in enumerate(value.args))
    elif isinstance(value, Mapping):
        yield from ((f"[{key!r}]", item) for key, item in list(value.items()))
    elif isinstance(value, list | tuple):
        yield from ((f"[{number}]", item) for number, item in enumerate(value))
    else:
        yield from _parts_of_object(value)


def _parts_of_function(function: FunctionType) -> Iterator[tuple[str, Any]]:
    """Yield the outer variables that a function uses, and the defaults of its parameters."""
    cells = function.__closure__ or ()
    for name, cell in zip(function.__code__.co_freevars, cells, strict=True):
        try:
            yield name, cell.cell_contents
        except ValueError:  # not assigned yet
            continue
    for name in _extract_code_globals(function.__code__):
        if name in function.__globals__:
            yield name, function.__globals__[name]
    for name, parameter in inspect.signature(function).parameters.items():
        if parameter.default is not inspect.Parameter.empty:
            yield name, parameter.default


def _parts_of_object(value: Any) -> Iterator[tuple[str, Any]]:
    """Yield the attributes of an object or a class, and its type or base classes."""
    for name, item in list(getattr(value, "__dict__", {}).items()):
        if name != "__dict__":
            yield f".{name}", item
    kinds: tuple[type, ...] = (type(value),)
    if isinstance(value, type):
        kinds = value.__bases__
    for kind in kinds:
        yield f".{kind.__name__}", kind


def _can_be_pickled(value: Any) -> bool:
    try:
        _Pickler(io.BytesIO()).dump(value)
    except Exception:
        return False
    return True


def _describe(value: Any) -> str:
    """Describe a value in words, with its type."""
    kind = type(value)
    name = f"{kind.__module__}.{kind.__qualname__}".removeprefix("builtins.")
    if isinstance(value, io.IOBase):
        return f"an open file ({name})"
    if isinstance(value, GeneratorType):
        return "a generator, which cannot leave its process"
    if isinstance(value, socket.socket):
        return f"an open connection ({name})"
    if isinstance(value, type(threading.Lock()) | type(threading.RLock())):
        return f"a lock ({name})"
    if isinstance(value, Executor):
        return f"a pool of threads or processes ({name})"
    if kind.__name__.endswith(("Connection", "Cursor", "Engine", "Session", "Client")):
        return f"a connection or client ({name})"
    return f"of type {name}"
