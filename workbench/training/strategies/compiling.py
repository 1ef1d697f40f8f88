"""Compiles models for training with torch.compile. Evaluations use the model itself.

The compiled module shares the parameters of the model, and their names stay the same.
"""

from __future__ import annotations

import importlib
from contextlib import AbstractContextManager
from typing import Any, cast

import torch
from torch import nn


def compiled(model: nn.Module) -> nn.Module:
    """Return a module to call in training instead of a model. The first call compiles it."""
    return cast(nn.Module, _compile(model))


def compile_forward(module: nn.Module) -> None:
    """Compile the forward pass of a module, but not the hooks around it."""
    module.forward = _compile(module.forward)  # type: ignore[method-assign]


def as_it_is() -> AbstractContextManager[Any]:
    """Let compiled modules run without their compiled code for a while.

    Otherwise evaluations would compile them a second time.
    """
    return torch.compiler.set_stance("force_eager")


def _compile(target: Any) -> Any:
    # With more threads, inductor starts processes that outlive the trial.
    settings: Any = importlib.import_module("torch._inductor.config")
    settings.compile_threads = 1
    return torch.compile(target)


def num_compiled() -> int:
    """Return how many graphs this process has compiled. A new kind of batch may need another."""
    utils: Any = importlib.import_module("torch._dynamo.utils")
    return int(utils.counters["stats"]["unique_graphs"])


def forget_compiled() -> None:
    """Drop all compiled code of this process, because it keeps models alive."""
    torch._dynamo.reset()
