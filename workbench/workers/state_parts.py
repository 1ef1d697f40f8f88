"""The parts of a Python process that a trial may change and that can be read and restored, as one table.

Those of libraries are left to `library_parts`, and when all of them are read and restored to `process_state`.
"""

from __future__ import annotations

import builtins
import contextlib
import functools
import gc
import locale
import logging
import multiprocessing
import operator
import os
import signal
import socket
import sys
import threading
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from workbench.remote.code_origin import is_installed

UNKNOWN: Any = object()
"""The value of a part that cannot be read, or was not."""
_NO_TIMER = (0.0, 0.0)
_SIGNALS = sorted(signal.valid_signals())
_SET_LOCALE = functools.partial(locale.setlocale, locale.LC_ALL)  # without another argument it reads


@dataclass(frozen=True)
class Part:
    """One thing that a trial may change.

    Attributes:
        name: What it is, for messages.
        read: Returns its value; values are compared with `==`.
        write: Restores a value.
        module: The module without which there is nothing to read.
        default: What it is when its module has just been imported, where that is known.
    """

    name: str
    read: Callable[[], Any]
    write: Callable[[Any], Any]
    module: str | None = None
    default: Any = UNKNOWN

    @property
    def is_there(self) -> bool:
        """Whether its module is loaded."""
        return self.module is None or self.module in sys.modules


class LoggerState(NamedTuple):
    """How a logger is configured."""

    level: int = logging.NOTSET
    handlers: tuple[logging.Handler, ...] = ()
    filters: tuple[Any, ...] = ()
    disabled: bool = False
    propagate: bool = True


@dataclass(eq=False)
class LoggerStates:
    """The configuration of all loggers; equal to an earlier one where nothing has to be restored."""

    by_name: dict[str, LoggerState]

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, LoggerStates):
            return NotImplemented
        return next(self.differing(other), None) is None

    def differing(self, before: LoggerStates) -> Iterator[tuple[str, LoggerState]]:
        """Yield the name and the earlier state of each logger that differs.

        A logger that a library made when it was imported belongs to it, and the library stays loaded.

        Args:
            before: The earlier states.
        """
        for name, state in self.by_name.items():
            earlier = before.by_name.get(name)
            if earlier is None and state != LoggerState() and not _is_of_library(name):
                yield name, LoggerState()
            elif earlier is not None and earlier != state:
                yield name, earlier


def _is_of_library(logger: str) -> bool:
    module = sys.modules.get(logger.partition(".")[0])
    file = getattr(module, "__file__", None)
    return file is not None and _is_installed(file)


@functools.lru_cache(maxsize=1024)
def _is_installed(file: str) -> bool:
    return is_installed(file)


def _read_loggers() -> LoggerStates:
    loggers: dict[str, Any] = {"": logging.root, **logging.root.manager.loggerDict}
    return LoggerStates(
        {name: _state_of(logger) for name, logger in loggers.items() if isinstance(logger, logging.Logger)}
    )


def _state_of(logger: logging.Logger) -> LoggerState:
    return LoggerState(
        logger.level, tuple(logger.handlers), tuple(logger.filters), logger.disabled, logger.propagate
    )


def _write_loggers(before: LoggerStates) -> None:
    for name, state in list(_read_loggers().differing(before)):
        logger = logging.getLogger(name) if name else logging.root
        for handler in set(logger.handlers) - set(state.handlers):
            with contextlib.suppress(Exception):  # a handler of the user, whatever it does
                handler.close()
        logger.handlers[:], logger.filters[:] = state.handlers, state.filters
        logger.setLevel(state.level)  # also drops what the manager cached
        logger.disabled, logger.propagate = state.disabled, state.propagate


def _write_environment(before: Mapping[str, str]) -> None:
    for name in os.environ.keys() - before.keys():
        del os.environ[name]
    for name, value in before.items():
        if os.environ.get(name) != value:
            os.environ[name] = value


def _read_folder() -> str | None:
    try:
        return os.getcwd()
    except FileNotFoundError:
        return None


def _write_folder(before: str | None) -> None:
    if before is not None:
        os.chdir(before)


def _write_warnings(before: list[Any]) -> None:
    warnings.filters[:] = before  # type: ignore[index]
    with warnings.catch_warnings():
        pass  # makes Python forget which filters it applied where


def _write_builtins(before: Mapping[str, Any]) -> None:
    for name in vars(builtins).keys() - before.keys():
        delattr(builtins, name)
    for name, value in before.items():
        if getattr(builtins, name, None) is not value:
            setattr(builtins, name, value)


def _read_builtins() -> dict[str, Any]:
    return {name: value for name, value in vars(builtins).items() if name != "_"}


def _read_signals() -> dict[int, Any]:
    return {number: signal.getsignal(number) for number in _SIGNALS}


def _write_signals(before: Mapping[int, Any]) -> None:
    for number, handler in before.items():
        if signal.getsignal(number) != handler:
            signal.signal(number, handler)  # possible in the main thread only


def _attribute(holder: Any, name: str, path: str) -> Part:
    """A plain attribute of a loaded object."""
    return Part(
        name, functools.partial(getattr, holder, path), lambda value: setattr(holder, path, value)
    )  # fmt: skip


ENVIRONMENT = Part("environment variables", lambda: dict(os.environ), _write_environment)
PYTHON: tuple[Part, ...] = (
    Part("the working directory", _read_folder, _write_folder),
    ENVIRONMENT,
    Part("sys.path", lambda: list(sys.path), lambda before: operator.setitem(sys.path, slice(None), before)),
    Part("sys.argv", lambda: list(sys.argv), lambda before: operator.setitem(sys.argv, slice(None), before)),
    Part("the recursion limit", sys.getrecursionlimit, sys.setrecursionlimit),
    _attribute(sys, "sys.excepthook", "excepthook"),
    _attribute(threading, "threading.excepthook", "excepthook"),
    _attribute(sys, "sys.stdout", "stdout"),
    _attribute(sys, "sys.stderr", "stderr"),
    _attribute(sys, "sys.stdin", "stdin"),
    Part("built-in functions", _read_builtins, _write_builtins),
    Part("warning filters", lambda: list(warnings.filters), _write_warnings),
    _attribute(warnings, "warnings.showwarning", "showwarning"),
    Part("loggers", _read_loggers, _write_loggers),
    Part("logging.disable", lambda: logging.root.manager.disable, logging.disable),
    Part("signal handlers", _read_signals, _write_signals),
    Part(
        "the alarm timer", lambda: signal.getitimer(signal.ITIMER_REAL) > _NO_TIMER,
        lambda before: before or signal.setitimer(signal.ITIMER_REAL, 0.0),
    ),
    Part("garbage collection", gc.isenabled, lambda before: gc.enable() if before else gc.disable()),
    Part("the thresholds of garbage collection", gc.get_threshold, lambda before: gc.set_threshold(*before)),
    Part("the locale", _SET_LOCALE, _SET_LOCALE),
    Part("the socket timeout", socket.getdefaulttimeout, socket.setdefaulttimeout),
    Part(
        "the start method of processes", lambda: multiprocessing.get_start_method(allow_none=True),
        lambda before: multiprocessing.set_start_method(before, force=True),
    ),
)  # fmt: skip
