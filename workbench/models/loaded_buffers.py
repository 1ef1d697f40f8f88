"""Buffers of models that are fitted: their sizes are known when a state is loaded."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import nn


def add_loaded_buffers(
    model: nn.Module, names: Sequence[str], *, dtype: torch.dtype = torch.float32
) -> None:
    """Register empty buffers. Loading a state gives each of them its size and type.

    Args:
        model: The model. Hooks that change a state must be registered before this call.
        names: The buffers.
        dtype: The type of the buffers while they are empty.
    """
    for name in names:
        model.register_buffer(name, torch.zeros(0, dtype=dtype))

    model.register_load_state_dict_pre_hook(functools.partial(_make_room, tuple(names)))


def _make_room(
    names: tuple[str, ...], model: nn.Module, state: Mapping[str, Any], prefix: str, *_: Any
) -> None:
    for name in names:
        if prefix + name in state:
            setattr(model, name, torch.empty_like(state[prefix + name]))
