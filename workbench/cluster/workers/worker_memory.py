"""The memory of a worker, which is back at its baseline after a trial.

The baseline of the device is 0. The baseline of the host is the memory after the first trial of a
run, because data and imports are shared by the trials of a run. `worker` and `gang` act on the
result of the check.
"""

from __future__ import annotations

import gc
import sys

from workbench.foundation.errors import first_line_of
from workbench.foundation.formatting import format_bytes
from workbench.foundation.freed_memory import return_freed_memory
from workbench.hardware.resources import resident_bytes

HOST_ALLOWANCE_BYTES = 256 * 2**20
HOST_ALLOWANCE_FRACTION = 0.25
DEVICE_LIBRARIES_BYTES = 512 * 2**20
"""What the kernels of a GPU take of a process that loads them when they are first used.

Fp16 has its own.
"""
DEVICE_ALLOWANCE_BYTES = 64 * 2**20
RETURNED_BYTES = 32 * 2**20
"""By how much a process grows before freed memory is returned.

Small trials would only fetch it again.
"""


class Baseline:
    """The memory that one worker should hold between trials."""

    def __init__(self) -> None:
        self._run_id: str | None = None
        self._host_bytes = 0
        self._returned_bytes = 0

    def excess(self, run_id: str) -> str | None:
        """Compare the memory of this process after a trial with its baseline, in the same thread.

        Args:
            run_id: The run of the trial.

        Returns:
            The excess, in words, or None if it is back at its baseline.
        """
        self._return_freed()
        excess = self._find(run_id)
        if excess is not None:
            gc.unfreeze()
            gc.collect()  # reference cycles are freed only now
            excess = self._find(run_id)
        if excess is None and run_id != self._run_id:
            self._run_id, self._host_bytes = run_id, resident_bytes()
        return excess

    def _return_freed(self) -> None:
        if resident_bytes() > self._returned_bytes + RETURNED_BYTES:
            return_freed_memory()
            self._returned_bytes = resident_bytes()

    def _find(self, run_id: str) -> str | None:
        try:
            device_bytes = _device_bytes()
        # For good: a kernel of the trial failed, as by an index out of range.
        except RuntimeError as error:
            return f"can no longer use its GPU: {first_line_of(error)}"
        if device_bytes > DEVICE_ALLOWANCE_BYTES:
            return f"still held {format_bytes(device_bytes)} of its GPU after the trial"
        allowed = self._host_bytes + max(
            HOST_ALLOWANCE_BYTES, HOST_ALLOWANCE_FRACTION * self._host_bytes
        )
        if _uses_gpu():
            allowed += DEVICE_LIBRARIES_BYTES
        held_bytes = resident_bytes()
        if run_id == self._run_id and held_bytes > allowed:
            return (
                f"held {format_bytes(held_bytes)} of memory after the trial, "
                f"but its baseline is {format_bytes(self._host_bytes)}"
            )
        return None


def _uses_gpu() -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and torch.cuda.is_initialized()


def _device_bytes() -> int:
    """Return what tensors hold of this process's GPU, or 0 if it uses none.

    Raises:
        RuntimeError: If the GPU does not respond to this process.
    """
    if not _uses_gpu():
        return 0
    torch = sys.modules["torch"]
    torch.cuda.synchronize()
    # Torch keeps one workspace of up to 32 MiB for each thread that multiplied matrices.
    torch._C._cuda_clearCublasWorkspaces()
    return torch.cuda.memory_allocated()
