"""The parts of torch, numpy and matplotlib that a trial may change and that can be read and
restored.

They count once their library is loaded; nothing is imported here. What belongs to one thread, such
as torch's autocast mode, ends with the thread of the trial, and random generators are seeded at the
start of each trial, so neither is listed.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

from workbench.cluster.workers.state_parts import Part

_MATPLOTLIB_KEPT = frozenset({"backend", "backend_fallback", "interactive", "toolbar", "timezone"})
"""Settings that matplotlib itself does not restore to those of its file."""


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
    """Return whether the settings of matplotlib are those of its file."""
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
