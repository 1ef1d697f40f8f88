"""The parts of a process that a trial may change and that can be restored, as one table.

Parts of torch, numpy, pandas and matplotlib only count if their library is loaded. Nothing is
imported here. State of a single thread, such as torch's autocast mode, ends with the thread of the
trial. Random generators are seeded at the start of each trial. So neither is listed.
`process_state` reads and restores the parts.
"""

from __future__ import annotations

import asyncio
import builtins
import contextlib
import decimal
import faulthandler
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
import tempfile
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from workbench.cluster.remote.code_origin import is_installed

UNKNOWN: Any = object()
"""The value of a part that cannot be read, or was not."""
_NO_TIMER = (0.0, 0.0)
_SIGNALS = sorted(signal.valid_signals())
_SET_LOCALE = functools.partial(
    locale.setlocale, locale.LC_ALL
)  # without another argument it reads
_CONTEXT_FIELDS = ("prec", "rounding", "Emin", "Emax", "capitals", "clamp")
_MATPLOTLIB_KEPT = frozenset({"backend", "backend_fallback", "interactive", "toolbar", "timezone"})
"""Settings that matplotlib does not reset when it restores the settings of its file."""
_PRINT_OPTIONS = {
    "precision": 4,
    "threshold": 1000,
    "edgeitems": 3,
    "linewidth": 80,
    "sci_mode": None,
}
_MODULE_HOOKS = (
    "buffer_registration_hooks",
    "module_registration_hooks",
    "parameter_registration_hooks",
    "backward_pre_hooks",
    "backward_hooks",
    "forward_pre_hooks",
    "forward_hooks",
    "forward_hooks_always_called",
    "forward_hooks_with_kwargs",
)


@dataclass(frozen=True)
class Part:
    """One thing that a trial may change.

    Attributes:
        name: Its name in messages.
        read: Returns its value. Values are compared with `==`.
        write: Restores a value.
        module: The module that must be loaded for the part to exist.
        default: Its value after its module was imported, if known.
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
    """The configuration of all loggers.

    Equal to an earlier one where nothing has to be restored.
    """

    by_name: dict[str, LoggerState]

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, LoggerStates):
            return NotImplemented
        return next(self.differing(other), None) is None

    def differing(self, before: LoggerStates) -> Iterator[tuple[str, LoggerState]]:
        """Yield the name and the earlier state of each logger that differs.

        A logger that a library made when it was imported belongs to it, and the library stays
        loaded.

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
        {
            name: _state_of(logger)
            for name, logger in loggers.items()
            if isinstance(logger, logging.Logger)
        }
    )


def _state_of(logger: logging.Logger) -> LoggerState:
    return LoggerState(
        logger.level,
        tuple(logger.handlers),
        tuple(logger.filters),
        logger.disabled,
        logger.propagate,
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


def _read_time_zone() -> tuple[Any, ...]:
    return time.tzname, time.timezone, time.altzone, time.daylight


def _write_time_zone(before: tuple[Any, ...]) -> None:
    time.tzset()  # reads the environment variable, which is restored by then


def _read_umask() -> int:
    # The file is read because setting the mask to read it would change it for other threads
    # meanwhile.
    with contextlib.suppress(OSError):
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith("Umask:"):
                return int(line.split()[1], 8)
    mask = os.umask(0o077)
    os.umask(mask)
    return mask


def _read_limits() -> dict[str, tuple[int, int]]:
    import resource

    names = [name for name in dir(resource) if name.startswith("RLIMIT_")]
    return {name: resource.getrlimit(getattr(resource, name)) for name in names}


def _write_limits(before: Mapping[str, tuple[int, int]]) -> None:
    import resource

    now = _read_limits()
    for name, limits in before.items():
        if now[name] != limits:
            # A hard limit that was lowered cannot be raised again. The others are restored anyway.
            with contextlib.suppress(ValueError, OSError):
                resource.setrlimit(getattr(resource, name), limits)


@dataclass(eq=False)
class ThreadStates:
    """A setting that Linux keeps for each thread.

    Equal to an earlier one where nothing must be restored.
    """

    by_thread: dict[int, Any]

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ThreadStates):
            return NotImplemented
        return next(self.differing(other), None) is None

    def differing(self, before: ThreadStates) -> Iterator[tuple[int, Any]]:
        """Yield the id of each thread whose value differs, and the earlier value.

        A thread that was started in the meantime has inherited its value. It should have the main
        thread's.

        Args:
            before: The earlier states.
        """
        usual = before.by_thread.get(os.getpid())
        for thread, value in self.by_thread.items():
            earlier = before.by_thread.get(thread, usual)
            if earlier is not None and value != earlier:
                yield thread, earlier


def _by_thread(
    name: str, read_one: Callable[[int], Any], write_one: Callable[[int, Any], Any]
) -> Part:
    """A setting that Linux keeps for each thread of the process."""

    def read() -> ThreadStates:
        values = {}
        for thread in map(int, os.listdir("/proc/self/task")):
            with contextlib.suppress(ProcessLookupError):  # it has just ended
                values[thread] = read_one(thread)
        return ThreadStates(values)

    def write(before: ThreadStates) -> None:
        for thread, value in list(read().differing(before)):
            with contextlib.suppress(ProcessLookupError):
                write_one(thread, value)

    return Part(name, read, write)


def _contexts() -> tuple[decimal.Context, ...]:
    # The first three are templates for new threads. The last is the context of this thread.
    return (
        decimal.DefaultContext,
        decimal.BasicContext,
        decimal.ExtendedContext,
        decimal.getcontext(),
    )


def _read_decimals() -> list[tuple[list[Any], dict[Any, bool]]]:
    return [
        ([getattr(context, name) for name in _CONTEXT_FIELDS], dict(context.traps))
        for context in _contexts()
    ]


def _write_decimals(before: list[tuple[list[Any], dict[Any, bool]]]) -> None:
    for context, (values, traps) in zip(_contexts(), before, strict=True):
        for name, value in zip(_CONTEXT_FIELDS, values, strict=True):
            setattr(context, name, value)
        context.traps.update(traps)


def _read_policy() -> Any:
    # The default one is made when it is first used, which changes nothing.
    policy = getattr(asyncio.events, "_event_loop_policy", None)
    return None if type(policy) is getattr(asyncio, "DefaultEventLoopPolicy", None) else policy


def _write_policy(before: Any) -> None:
    asyncio.set_event_loop_policy(before)


def _attribute(holder: Any, name: str, path: str) -> Part:
    """A plain attribute of a loaded object."""
    return Part(
        name, functools.partial(getattr, holder, path), lambda value: setattr(holder, path, value)
    )


ENVIRONMENT = Part("environment variables", lambda: dict(os.environ), _write_environment)
PYTHON: tuple[Part, ...] = (
    Part("the working directory", _read_folder, _write_folder),
    ENVIRONMENT,
    Part(
        "sys.path",
        lambda: list(sys.path),
        lambda before: operator.setitem(sys.path, slice(None), before),
    ),
    Part(
        "sys.argv",
        lambda: list(sys.argv),
        lambda before: operator.setitem(sys.argv, slice(None), before),
    ),
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
        "the alarm timer",
        lambda: signal.getitimer(signal.ITIMER_REAL) > _NO_TIMER,
        lambda before: before or signal.setitimer(signal.ITIMER_REAL, 0.0),
    ),
    Part(
        "blocked signals",
        lambda: signal.pthread_sigmask(signal.SIG_BLOCK, []),
        lambda before: signal.pthread_sigmask(signal.SIG_SETMASK, before),
    ),
    Part("sys.settrace", sys.gettrace, sys.settrace),
    Part("sys.setprofile", sys.getprofile, sys.setprofile),
    Part(
        "garbage collection", gc.isenabled, lambda before: gc.enable() if before else gc.disable()
    ),
    Part(
        "the thresholds of garbage collection",
        gc.get_threshold,
        lambda before: gc.set_threshold(*before),
    ),
    Part("the locale", _SET_LOCALE, _SET_LOCALE),
    Part("the socket timeout", socket.getdefaulttimeout, socket.setdefaulttimeout),
    Part(
        "the start method of processes",
        lambda: multiprocessing.get_start_method(allow_none=True),
        lambda before: multiprocessing.set_start_method(before, force=True),
    ),
    Part("the time zone", _read_time_zone, _write_time_zone),
    Part("the umask", _read_umask, os.umask),
    Part("the switch interval of threads", sys.getswitchinterval, sys.setswitchinterval),
    Part("the limit of digits", sys.get_int_max_str_digits, sys.set_int_max_str_digits),
    Part("the stack size of threads", threading.stack_size, threading.stack_size),
    Part("the trace function of threads", threading.gettrace, threading.settrace),
    Part("the profile function of threads", threading.getprofile, threading.setprofile),
    Part("decimal contexts", _read_decimals, _write_decimals),
    Part("the flags of debugging garbage collection", gc.get_debug, gc.set_debug),
    Part(
        "faulthandler",
        faulthandler.is_enabled,
        lambda before: faulthandler.enable() if before else faulthandler.disable(),
    ),
    Part("the policy of event loops", _read_policy, _write_policy),
    *(
        Part(
            f"the {name} timer",
            lambda which=which: signal.getitimer(which) > _NO_TIMER,
            lambda before, which=which: before or signal.setitimer(which, 0.0),
        )
        for name, which in (("virtual", signal.ITIMER_VIRTUAL), ("profiling", signal.ITIMER_PROF))
    ),
    _attribute(tempfile, "the folder of temporary files", "tempdir"),
    _attribute(sys, "sys.unraisablehook", "unraisablehook"),
    _attribute(sys, "sys.displayhook", "displayhook"),
    _attribute(sys, "sys.breakpointhook", "breakpointhook"),
    _attribute(sys, "sys.dont_write_bytecode", "dont_write_bytecode"),
    _attribute(warnings, "warnings.formatwarning", "formatwarning"),
    _attribute(logging, "captured warnings", "_warnings_showwarning"),
    _attribute(logging, "logging.raiseExceptions", "raiseExceptions"),
    Part("the class of loggers", logging.getLoggerClass, logging.setLoggerClass),
    Part("the factory of log records", logging.getLogRecordFactory, logging.setLogRecordFactory),
    *((Part("soft limits", _read_limits, _write_limits),) if sys.platform != "win32" else ()),
    *(
        (
            _by_thread("the affinity to processors", os.sched_getaffinity, os.sched_setaffinity),
            _by_thread(
                "niceness",
                functools.partial(os.getpriority, os.PRIO_PROCESS),
                functools.partial(os.setpriority, os.PRIO_PROCESS),
            ),
        )
        if sys.platform == "linux"
        else ()
    ),
)


def _find(path: str) -> tuple[Any, str]:
    """Return the loaded object that holds the last name of a dotted path, and that name."""
    holder_path, _, name = path.rpartition(".")
    module, rest = holder_path, []
    while module not in sys.modules:
        module, _, last = module.rpartition(".")
        rest.insert(0, last)
    holder = sys.modules[module]
    for attribute in rest:
        holder = getattr(holder, attribute)
    return holder, name


def _get(path: str) -> Any:
    holder, name = _find(path)
    return getattr(holder, name)


def _set(path: str, value: Any) -> None:
    holder, name = _find(path)
    setattr(holder, name, value)


def _flag(path: str, default: Any) -> Part:
    """A setting that is a plain attribute."""
    return Part(path, lambda: _get(path), lambda value: _set(path, value), "torch", default)


def _call(name: str, read: str, write: str, default: Any) -> Part:
    """A setting with a function that returns it and one that sets it."""
    return Part(name, lambda: _get(read)(), lambda value: _get(write)(value), "torch", default)


def _hooks(path: str) -> Part:
    """A table of hooks that all modules, or all optimizers, share."""

    def write(before: Mapping[Any, Any]) -> None:
        table = _get(path)
        table.clear()
        table.update(before)

    return Part(path, lambda: dict(_get(path)), write, "torch", {})


def _read_dtype() -> Any:
    return str(_get("torch.get_default_dtype")())


def _write_dtype(before: str) -> None:
    _get("torch.set_default_dtype")(_get(before))


def _read_device() -> str:
    return _get("torch.empty")(0).device.type


def _write_device(before: str) -> None:
    torch = sys.modules["torch"]
    dtype = torch.get_default_dtype()
    torch.set_default_device(None)
    if _read_device() != before:
        torch.set_default_tensor_type(torch.FloatTensor)  # also sets the type
        torch.set_default_dtype(dtype)


def _read_print_options() -> dict[str, Any]:
    return dict(vars(_get("torch._tensor_str.PRINT_OPTS")))


def _write_print_options(before: Mapping[str, Any]) -> None:
    options = vars(_get("torch._tensor_str.PRINT_OPTS"))
    options.clear()
    options.update(before)


def _cannot(value: Any) -> None:
    raise RuntimeError("it cannot be set twice in one process")


TORCH: tuple[Part, ...] = (
    Part("torch's default device", _read_device, _write_device, "torch", "cpu"),
    Part("torch's default dtype", _read_dtype, _write_dtype, "torch", "torch.float32"),
    _call(
        "torch's deterministic algorithms",
        "torch.get_deterministic_debug_mode",
        "torch.set_deterministic_debug_mode",
        0,
    ),
    _flag("torch.utils.deterministic.fill_uninitialized_memory", True),
    _call(
        "anomaly detection", "torch.is_anomaly_enabled", "torch.autograd.set_detect_anomaly", False
    ),
    _call(
        "whether gradients are computed", "torch.is_grad_enabled", "torch.set_grad_enabled", True
    ),
    _call("torch's warnings", "torch.is_warn_always_enabled", "torch.set_warn_always", False),
    _flag("torch.backends.cudnn.enabled", True),
    _flag("torch.backends.cudnn.benchmark", False),
    _flag("torch.backends.cudnn.deterministic", False),
    _call(
        "the precision of products of float32 matrices",
        "torch.get_float32_matmul_precision",
        "torch.set_float32_matmul_precision",
        "highest",
    ),
    _flag("torch.backends.fp32_precision", "none"),
    _flag("torch.backends.cuda.matmul.fp32_precision", "none"),
    _flag("torch.backends.cudnn.fp32_precision", "none"),
    _flag("torch.backends.cudnn.conv.fp32_precision", "tf32"),
    _flag("torch.backends.cudnn.rnn.fp32_precision", "tf32"),
    _flag("torch.backends.mkldnn.matmul.fp32_precision", "none"),
    _flag("torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction", True),
    _flag("torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction", True),
    *(
        _call(
            name, f"torch.backends.cuda.{name}_enabled", f"torch.backends.cuda.enable_{name}", True
        )
        for name in ("flash_sdp", "mem_efficient_sdp", "math_sdp", "cudnn_sdp")
    ),
    Part(
        "how torch shares tensors",
        lambda: _get("torch.multiprocessing.get_sharing_strategy")(),
        lambda before: _get("torch.multiprocessing.set_sharing_strategy")(before),
        "torch.multiprocessing",
        "file_descriptor" if sys.platform == "linux" else "file_system",
    ),
    _flag("torch.backends.cudnn.benchmark_limit", 10),
    _flag("torch.backends.opt_einsum.enabled", True),
    _flag("torch.backends.opt_einsum.strategy", "auto"),
    _call(
        "torch's swapping of parameters",
        "torch.__future__.get_swap_module_params_on_conversion",
        "torch.__future__.set_swap_module_params_on_conversion",
        False,
    ),
    _call(
        "torch's overwriting of parameters",
        "torch.__future__.get_overwrite_module_params_on_conversion",
        "torch.__future__.set_overwrite_module_params_on_conversion",
        False,
    ),
    Part(
        "torch's interop threads", lambda: _get("torch.get_num_interop_threads")(), _cannot, "torch"
    ),
    Part(
        "torch's print options", _read_print_options, _write_print_options, "torch", _PRINT_OPTIONS
    ),
    *(_hooks(f"torch.nn.modules.module._global_{name}") for name in _MODULE_HOOKS),
    _flag("torch.nn.modules.module._global_is_full_backward_hook", None),
    _hooks("torch.optim.optimizer._global_optimizer_pre_hooks"),
    _hooks("torch.optim.optimizer._global_optimizer_post_hooks"),
)


def _read_rc() -> bool:
    """Return whether the settings of matplotlib equal the ones in its file."""
    matplotlib = sys.modules["matplotlib"]
    return all(
        dict.get(matplotlib.rcParams, name) == value
        for name, value in dict.items(matplotlib.rcParamsOrig)
        if name not in _MATPLOTLIB_KEPT
    )


def _read_figures() -> list[int]:
    return _get("matplotlib.pyplot.get_fignums")()


def _close_figures(before: list[int]) -> None:
    for number in set(_read_figures()) - set(before):
        _get("matplotlib.pyplot.close")(number)


def _read_pandas() -> dict[str, Any]:
    """Return the options of pandas that are not as they are after its import."""
    config = sys.modules["pandas._config.config"]
    return {
        name: config.get_option(name)
        for name, option in config._registered_options.items()
        if name not in config._deprecated_options and config.get_option(name) != option.defval
    }


def _write_pandas(before: Mapping[str, Any]) -> None:
    config = sys.modules["pandas._config.config"]
    for name in _read_pandas().keys() - before.keys():
        config.reset_option(name)
    for name, value in before.items():
        config.set_option(name, value)


OTHERS: tuple[Part, ...] = (
    Part("pandas' options", _read_pandas, _write_pandas, "pandas._config.config", {}),
    Part(
        "numpy's print options",
        lambda: _get("numpy.get_printoptions")(),
        lambda before: _get("numpy.set_printoptions")(**before),
        "numpy",
    ),
    Part(
        "what numpy does about errors",
        lambda: _get("numpy.geterr")(),
        lambda before: _get("numpy.seterr")(**before),
        "numpy",
    ),
    Part("open figures", _read_figures, _close_figures, "matplotlib.pyplot", []),
    Part(
        "matplotlib's settings",
        _read_rc,
        lambda before: before and _get("matplotlib.rc_file_defaults")(),
        "matplotlib",
        True,
    ),
)
