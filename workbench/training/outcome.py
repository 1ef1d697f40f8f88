"""How a training ended, as the loop and a user function both report it."""

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
"""What the error of a rank mentions when another rank has gone."""
ALLOCATION_FAILURES = (
    "DefaultCPUAllocator: can't allocate memory",
    "CUDA out of memory",
    "CUDA error: out of memory",
    "CUBLAS_STATUS_ALLOC_FAILED",
)
"""What torch writes when host or device had no memory left, for tensors or for what libraries
need.
"""
_DETAILS_OF_MEMORY = " Including non-PyTorch memory"
"""How the second half begins of what it writes about a device: parts, settings and a link."""


@dataclass(frozen=True)
class Outcome:
    """How a training ended.

    Attributes:
        state: complete, stopped because the receiver of the reports requested it, or failed.
        step: The last step reported.
        values: What the training is worth, by metric: of a model of ours, what the checkpoint
            reached that is exported; of a function, the last value of each metric.
        reason: Why it failed.
        message: What failed, in one line.
        traceback: What Python printed, where the training was another program.
        is_unreported: Whether it failed because it never reported an objective.
    """

    state: Literal["complete", "stopped", "failed"]
    step: int
    values: dict[str, float] = field(default_factory=dict)
    reason: Reason | None = None
    message: str | None = None
    traceback: str | None = None
    is_unreported: bool = False


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
    """Return the type and the message of an error.

    Where a device has no memory left, without details.
    """
    return failure_message(error).partition(_DETAILS_OF_MEMORY)[0]


def diverged(name: str, value: float, step: int, values: dict[str, float]) -> Outcome:
    """Return the outcome of a training in which a number that matters became NaN or infinite.

    Args:
        name: The metric.
        value: Its value.
        step: The step at which it was seen.
        values: All metrics of that step.
    """
    return Outcome("failed", step, values, "diverged", f"{name} is {value} at step {step}")
