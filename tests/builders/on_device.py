"""Tensors on the CPU that behave like those on a GPU.

They meet no others, and looking at them is noticed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves, tree_map

_LOOKS = {
    "item",
    "tolist",
    "__bool__",
    "__float__",
    "__int__",
    "nonzero",
    "unique",
    "_local_scalar_dense",
}
DEVICE = torch.device("cuda", 0)


class OnDevice(Tensor):
    """A tensor of which operations stay on the device, and refuse tensors of the CPU as a GPU
    does.
    """

    looks: list[str] = []
    """The operations that would have waited for the device."""

    @classmethod
    def __torch_function__(
        cls, func: Callable[..., Any], types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        name, kwargs = getattr(func, "__name__", ""), kwargs or {}
        if func == Tensor.device.__get__:  # type: ignore[attr-defined]
            return DEVICE
        if func == Tensor.is_cuda.__get__:  # type: ignore[attr-defined]
            return True
        if name in ("numpy", "__array__"):
            raise TypeError("can't convert cuda:0 device type tensor to numpy")
        plain = [
            tree_leave
            for tree_leave in tree_leaves((args, kwargs))
            if isinstance(tree_leave, Tensor)
        ]
        if name == "cpu":
            cls.looks.append(name)
            return args[0].as_subclass(Tensor)
        if name == "to":
            return cls._moved(args, kwargs)
        if any(not isinstance(each, OnDevice) and each.ndim for each in plain):
            raise RuntimeError(
                "Expected all tensors to be on the same device, but found cuda:0 and cpu"
            )
        if name in _LOOKS:
            cls.looks.append(name)
        given = tree_map(
            lambda each: each.as_subclass(Tensor) if isinstance(each, OnDevice) else each, args
        )
        named = {
            key: tree_map(lambda v: v.as_subclass(Tensor) if isinstance(v, OnDevice) else v, value)
            for key, value in kwargs.items()
            if key != "device" or value != DEVICE
        }
        outputs = func(*given, **named)
        return tree_map(lambda v: v.as_subclass(cls) if type(v) is Tensor else v, outputs)

    @classmethod
    def _moved(cls, args: Any, kwargs: Any) -> Any:
        values, others = args[0], (*args[1:], *kwargs.values())
        plain = values.as_subclass(Tensor)
        goes_there = isinstance(values, OnDevice)
        for other in others:
            if isinstance(other, Tensor):
                goes_there, plain = (
                    isinstance(other, OnDevice),
                    plain.to(other.as_subclass(Tensor).dtype),
                )
            elif isinstance(other, torch.dtype):
                plain = plain.to(other)
            elif isinstance(other, torch.device | str):
                goes_there = torch.device(other).type == "cuda"
        return plain.as_subclass(cls) if goes_there else plain


class WithDevice(TorchFunctionMode):
    """Lets tensors of the CPU be moved to the device, and new ones be made there."""

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        names_device = any(isinstance(each, torch.device) and each == DEVICE for each in args[1:])
        if getattr(func, "__name__", "") == "to" and names_device:
            return OnDevice._moved(args, kwargs)
        if kwargs.get("device") == DEVICE and not any(isinstance(each, OnDevice) for each in args):
            return func(*args, **{**kwargs, "device": None}).as_subclass(OnDevice)
        return func(*args, **kwargs)


def on_device(values: Any) -> Any:
    """Return tensors as if they were on a GPU."""
    return tree_map(
        lambda each: each.as_subclass(OnDevice) if isinstance(each, Tensor) else each, values
    )
