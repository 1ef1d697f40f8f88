"""Records the kernels of micro batches in CUDA graphs and replays them, which saves launches.

A recording is a forward and a backward pass over samples of one shape. Its gradients are added to
the existing ones. The update, and everything between steps, is computed as usual. Which plans can
be recorded is left to `capabilities`.

Source: PyTorch documentation, "CUDA semantics", section "CUDA Graphs" (whole-network capture).
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils._pytree import tree_flatten, tree_unflatten

from workbench.foundation.errors import ExperimentError

NUM_AS_THEY_ARE = 2
"""How many micro batches of a shape are computed before one is recorded.

Libraries such as cuDNN choose kernels and allocate workspaces in the first ones. That must not be
part of a recording.
"""
MAX_RECORDED = 16
"""Maximum number of recorded shapes. Micro batches of other shapes are computed as usual."""

Forward = Callable[[Any, Any, float], tuple[Tensor, Tensor]]


@dataclass(frozen=True)
class _Recording:
    """The recording of one shape: the tensors for its samples, its two passes, and its loss."""

    samples: Sequence[Tensor]
    forward: torch.cuda.CUDAGraph
    backward: torch.cuda.CUDAGraph
    loss: Tensor


class Recorder:
    """Computes micro batches, and replays those of a shape that it has seen often enough."""

    def __init__(self, forward: Forward, mark: Callable[[str], None]) -> None:
        """Make a recorder for one model.

        Args:
            forward: (inputs, targets, part) -> the loss, and where the backward pass starts: the
                loss times its part of the step, scaled.
            mark: Called at the end of each pass with its name.
        """
        self._forward = forward
        self._mark = mark
        self._num_seen: Counter[Hashable] = Counter()
        self._recorded: dict[Hashable, _Recording] = {}
        self._pool: Any = None

    def add_gradient(self, inputs: Any, targets: Any, part: float) -> Tensor:
        """Add the gradient of a micro batch to the gradients of the step.

        Args:
            inputs: The inputs, on the device.
            targets: The targets, on the device.
            part: The factor of its loss in the step.

        Returns:
            Its loss.

        Raises:
            ExperimentError: If the model cannot be recorded, or a replay would compute something
                else.
        """
        leaves, structure = tree_flatten((inputs, targets))
        samples = [leaf for leaf in leaves if isinstance(leaf, Tensor)]
        shape = _shape_of(leaves, (str(structure), part))
        recording = self._recorded.get(shape)
        if recording is None:
            self._num_seen[shape] += 1
            if self._num_seen[shape] <= NUM_AS_THEY_ARE or len(self._recorded) >= MAX_RECORDED:
                return self._compute(inputs, targets, part)
            recording = self._recorded[shape] = self._record(leaves, structure, part)
        # A graph always reads the same memory, so the samples are copied there.
        for held, sample in zip(recording.samples, samples, strict=True):
            held.copy_(sample, non_blocking=True)
        recording.forward.replay()
        self._mark("forward")
        recording.backward.replay()
        self._mark("backward")
        return recording.loss.clone()  # the next replay writes over it

    def _compute(self, inputs: Any, targets: Any, part: float) -> Tensor:
        before = _random_states()
        loss, scaled = self._forward(inputs, targets, part)
        self._mark("forward")
        scaled.backward()
        self._mark("backward")
        # Random numbers of the GPU are no problem: torch advances its generator with each replay.
        if not all(map(np.array_equal, before, _random_states())):
            raise _cannot_record(
                "it draws random numbers on the CPU, and each replay would repeat them"
            )
        return loss.detach()

    def _record(self, leaves: Sequence[Any], structure: Any, part: float) -> _Recording:
        held = [leaf.clone() if isinstance(leaf, Tensor) else leaf for leaf in leaves]
        inputs, targets = tree_unflatten(held, structure)
        forward = torch.cuda.CUDAGraph()
        backward = torch.cuda.CUDAGraph()
        self._pool = self._pool or torch.cuda.graph_pool_handle()
        try:
            # By default, CUDA calls of other threads are errors during a recording. But threads
            # that load samples may use the device now.
            with torch.cuda.graph(forward, pool=self._pool, capture_error_mode="thread_local"):
                loss, scaled = self._forward(inputs, targets, part)
            with torch.cuda.graph(backward, pool=self._pool, capture_error_mode="thread_local"):
                scaled.backward()
        except RuntimeError as error:
            # If memory runs out, ending the recording also fails, and hides the first error.
            for cause in (error, error.__context__):
                if isinstance(cause, torch.OutOfMemoryError):
                    raise cause from error
            raise _cannot_record(_first_line(error)) from error
        samples = [leaf for leaf in held if isinstance(leaf, Tensor)]
        return _Recording(samples, forward, backward, loss.detach())


def _shape_of(leaves: Sequence[Any], rest: Hashable) -> Hashable:
    """Return a key that is equal for micro batches that can share a recording."""
    return rest, tuple(
        (leaf.shape, leaf.dtype, leaf.stride()) if isinstance(leaf, Tensor) else repr(leaf)
        for leaf in leaves
    )


def _random_states() -> tuple[Any, ...]:
    """Return the states of the generators on the CPU, of Python, NumPy and torch."""
    numpy_state = np.random.get_state(legacy=False)
    return (
        random.getstate()[1],
        numpy_state["state"]["key"],  # type: ignore[call-overload]
        numpy_state["state"]["pos"],  # type: ignore[call-overload]
        torch.get_rng_state(),
    )


def _first_line(error: RuntimeError) -> str:
    return str(error).strip().split("\n", maxsplit=1)[0]


def _cannot_record(reason: str) -> ExperimentError:
    return ExperimentError(
        f"the steps of this model cannot be recorded in CUDA graphs: {reason}",
        field="plan.compile",
        allowed="auto, none, default",
        next_step="Set it to none.",
    )
