"""Let torch's optimizers do without torch's compiler as long as nothing is compiled.

The first optimizer of a process imports the compiler, to keep out of what it compiles: that takes
as long as importing torch, and 80 MB. Here they leave that until something else has imported the
compiler, and do from then on what torch has them do. A version of torch that is built otherwise is
left as it is.
"""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable
from typing import Any

import torch
from torch.optim import Optimizer

_COMPILER = "torch._dynamo"
_MARK = "__dynamo_disable"  # where torch keeps the version of a function that is never compiled


def defer_compiler() -> None:
    """Let the optimizers of torch work without its compiler, unless it is imported already."""
    if _COMPILER in sys.modules:
        return
    for kind in {Optimizer, *filter(inspect.isclass, vars(torch.optim).values())}:
        for name, function in list(vars(kind).items()):
            match _origin(function):
                case ("inner", "_compile.py"):
                    _defer_exclusion(function)
                case ("_use_grad", "optimizer.py"):
                    setattr(kind, name, _without_graph_breaks(function))


def _origin(function: Any) -> tuple[str, str]:
    """Return how a function that wraps another one is named where it is written, and that file's
    name.
    """
    code = getattr(function, "__code__", None)
    if code is None or not hasattr(function, "__wrapped__"):
        return "", ""
    return code.co_name, code.co_filename.rpartition("/")[2]


def _defer_exclusion(function: Any) -> None:
    """Let a function that torch excludes from compilation run as it is, until there is a
    compiler.
    """
    wrapped = function.__wrapped__
    if hasattr(wrapped, _MARK):
        return

    def run(*arguments: Any, **named: Any) -> Any:
        if _COMPILER not in sys.modules:
            return wrapped(*arguments, **named)
        delattr(wrapped, _MARK)
        return function(*arguments, **named)

    setattr(wrapped, _MARK, run)


def _without_graph_breaks(function: Any) -> Callable[..., Any]:
    """Return a step that needs the compiler only to tell it where a compiled graph must end."""
    wrapped = function.__wrapped__

    @functools.wraps(wrapped)
    def step(self: Optimizer, *arguments: Any, **named: Any) -> Any:
        if _COMPILER in sys.modules:
            return function(self, *arguments, **named)
        with torch.set_grad_enabled(self.defaults["differentiable"]):
            return wrapped(self, *arguments, **named)

    return step
