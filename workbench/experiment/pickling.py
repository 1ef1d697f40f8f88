"""Python objects from a notebook as bytes that depend on what they do, not on where and when they
were made.

cloudpickle gives each class a random number and each function the path of its cell, which holds the
process of the kernel: a cell that is run again, or tomorrow, would be a new version. Here both are
replaced, so that the hash of the bytes changes with the code only. Naming and checking the bytes is
left to the components. What cannot be pickled is named by the variable that holds it.
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
"""How many bytes stand before a text in a pickle, by the name of its code."""
_REDUCE_CODE = cloudpickle.Pickler.dispatch_table[CodeType]


def _reduce_code(code: CodeType) -> Any:
    """Reduce code without the path of the cell that it was written in."""
    return _REDUCE_CODE(
        code.replace(co_filename=_CELL) if _CELL_FILE.search(code.co_filename) else code
    )


class _Pickler(cloudpickle.Pickler):
    dispatch_table = {**cloudpickle.Pickler.dispatch_table, CodeType: _reduce_code}


def dumps(target: Any) -> bytes:
    """Pickle a function or class; what does the same is the same bytes.

    Args:
        target: Anything that cloudpickle takes.

    Returns:
        Bytes for `cloudpickle.loads`.

    Raises:
        ExperimentError: If it cannot be pickled; the variable that is the reason is named.
    """
    buffer = io.BytesIO()
    try:
        _Pickler(buffer).dump(target)
    except Exception as error:  # what is pickled may raise anything
        raise _refusal(target, error) from error
    return _number_classes(buffer.getvalue())


def _number_classes(payload: bytes) -> bytes:
    """Replace the random number of each class, by which a process knows it again, by one of its
    content.

    Bytes that a value holds, such as the payload of another component, stay as they are.
    """
    numbers = set(_DYNAMIC_CLASS_TRACKER_BY_CLASS.values())
    if not any(number.encode() in payload for number in numbers):
        return payload
    places = [
        (place + _TEXTS[code.name], str(text))
        for code, text, place in pickletools.genops(payload)
        if code.name in _TEXTS and place is not None and text in numbers
    ]
    found = list(dict.fromkeys(text for _, text in places))
    plain = _with_texts(
        payload, places, {text: f"{index:032x}" for index, text in enumerate(found)}
    )
    content = hashlib.sha256(plain).hexdigest()
    own = {
        text: hashlib.sha256(f"{content} {index}".encode()).hexdigest()[:32]
        for index, text in enumerate(found)
    }
    return _with_texts(payload, places, own)


def _with_texts(
    payload: bytes, places: Sequence[tuple[int, str]], texts: Mapping[str, str]
) -> bytes:
    """Return bytes in which texts at some places are others of the same length."""
    changed = bytearray(payload)
    for place, text in places:
        changed[place : place + len(text)] = texts[text].encode()
    return bytes(changed)


def _refusal(target: Any, error: Exception) -> ExperimentError:
    """Return the error for what cannot be pickled, with the variable that is the reason."""
    title = getattr(target, "__name__", None) or type(target).__name__
    found = _find(target, f"`{title}`", set())
    why = f"cannot be embedded, which sends it to other processes: {first_line_of(error)}"
    if found is None:
        return ExperimentError(f"{title} {why}", next_step="Define it in a module, and name that.")
    user, path, value = found
    return ExperimentError(
        f"{title} {why}; {user} uses the variable `{path}`, which is {_describe(value)}",
        next_step=(
            "Make it inside the function; or move both into a module, and name the function as "
            "module:function."
        ),
    )


def _find(value: Any, user: str, seen: set[int], path: str = "") -> tuple[str, str, Any] | None:
    """Return who uses what cannot be pickled, under which name, and the value.

    None where no name has it.

    Args:
        value: What cannot be pickled itself.
        user: The function that uses it, for the message.
        seen: The objects that were looked into.
        path: How it is reached from a variable of the function; "" for the function itself.
    """
    seen.add(id(value))
    is_function = isinstance(value, FunctionType)
    if is_function and path:
        user = f"`{path}`"
    for name, inner in _parts_of(value):
        if id(inner) in seen or _can_be_pickled(inner):
            continue
        is_variable = is_function or not path
        inner_path = name.lstrip(".") if is_variable else f"{path}{name}"
        is_own = type(inner).__module__ == "__main__"  # then one of its attributes is the reason
        if is_own or _describe(inner).startswith("of type "):
            return _find(inner, user, seen, inner_path) or (user, inner_path, inner)
        return user, inner_path, inner
    return None


def _parts_of(value: Any) -> Iterator[tuple[str, Any]]:
    """Yield what is pickled with a value, with the name by which it is reached."""
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
    """Yield the variables that a function takes from outside, and the defaults of its own."""
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
    """Yield the attributes of an object or a class, and the classes that it is made of."""
    for name, item in list(getattr(value, "__dict__", {}).items()):
        if name != "__dict__":
            yield f".{name}", item
    for kind in value.__bases__ if isinstance(value, type) else (type(value),):
        yield f".{kind.__name__}", kind


def _can_be_pickled(value: Any) -> bool:
    try:
        _Pickler(io.BytesIO()).dump(value)
    except Exception:
        return False
    return True


def _describe(value: Any) -> str:
    """Return what a value is, in words and with its type."""
    kind = type(value)
    name = (
        kind.__qualname__
        if kind.__module__ == "builtins"
        else f"{kind.__module__}.{kind.__qualname__}"
    )
    if isinstance(value, io.IOBase):
        return f"an open file ({name})"
    if isinstance(value, GeneratorType):
        return "a generator, which exists in one process only"
    if isinstance(value, socket.socket):
        return f"an open connection ({name})"
    if isinstance(value, type(threading.Lock()) | type(threading.RLock())):
        return f"a lock ({name})"
    if isinstance(value, Executor):
        return f"a pool of threads or processes ({name})"
    if kind.__name__.endswith(("Connection", "Cursor", "Engine", "Session", "Client")):
        return f"a connection or client ({name})"
    return f"of type {name}"
