"""How a training ended, for the loop, functions and programs."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from typing import Literal

from workbench.foundation.events import Reason
from workbench.store.history.failure_text import failure_message

FAILED_EXCHANGE = (
    "gloo",
    "Gloo",
    "NCCL",
    "DistBackendError",
    "DistStoreError",
    "DistNetworkError",
    "ServerLeft",
)
"""Parts of the errors of a rank after another rank has left."""
ALLOCATION_FAILURES = (
    "DefaultCPUAllocator: can't allocate memory",
    "CUDA out of memory",
    "CUDA error: out of memory",
    "CUBLAS_STATUS_ALLOC_FAILED",
)
"""Torch's messages if host or device had no memory left, for tensors or for libraries."""
_DETAILS_OF_MEMORY = " Including non-PyTorch memory"
"""Start of the second half of torch's message about a device: parts, settings and a link."""


@dataclass(frozen=True)
class Outcome:
    """How a training ended.

    Attributes:
        state: complete, stopped because a report was answered with a stop, or failed.
        step: The last step reported.
        values: The result of the training, by metric. For a model, these are the values of the
            exported checkpoint. For a function, the last value of each metric.
        reason: Why it failed.
        message: The failure in one line.
        traceback: The traceback that Python printed, if the training was another program.
        is_unreported: Whether it failed because it never reported an objective.
        ends_turn: Whether it is only stopped because its turn is over.
    """

    state: Literal["complete", "stopped", "failed"]
    step: int
    values: dict[str, float] = field(default_factory=dict)
    reason: Reason | None = None
    message: str | None = None
    traceback: str | None = None
    is_unreported: bool = False
    ends_turn: bool = False


def ran_out_of_memory(error: BaseException) -> bool:
    """Return whether an error means that host or device had no memory left."""
    torch = sys.modules.get("torch")
    return (
        isinstance(error, MemoryError)
        or (torch is not None and isinstance(error, torch.OutOfMemoryError))
        or (
            isinstance(error, RuntimeError)
            and any(text in str(error) for text in ALLOCATION_FAILURES)
        )
    )


def is_failed_exchange(error: BaseException) -> bool:
    """Return whether an error means that an exchange with another worker failed."""
    text = f"{type(error).__name__}: {error}"
    return isinstance(error, RuntimeError) and any(sign in text for sign in FAILED_EXCHANGE)


def describe(error: BaseException) -> str:
    """Return type and message of an error. If a device ran out of memory, details are cut."""
    return failure_message(error).partition(_DETAILS_OF_MEMORY)[0]


def diverged(name: str, value: float, step: int, values: dict[str, float]) -> Outcome:
    """Return the outcome of a training if an important number has become NaN or infinite.

    Args:
        name: The metric.
        value: Its value.
        step: The step at which it was seen.
        values: All metrics of that step.
    """
    return Outcome("failed", step, values, "diverged", f"{name} is {value} at step {step}")
