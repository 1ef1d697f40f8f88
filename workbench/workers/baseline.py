"""Whether a worker's memory is back at its baseline after a trial.

The baseline of the device is nothing; that of the host is what the first trial of a run left behind, as
the data and the imports that its trials share stay. What follows from it is left to `worker` and `gang`.
"""

from __future__ import annotations

import gc
import sys

from workbench.resources import resident_bytes

HOST_ALLOWANCE_BYTES = 256 * 2**20
HOST_ALLOWANCE_PART = 0.25
DEVICE_ALLOWANCE_BYTES = 64 * 2**20


class Baseline:
    """What one worker holds when it is as it should be."""

    def __init__(self) -> None:
        self._run_id: str | None = None
        self._host_bytes = 0

    def excess(self, run_id: str) -> str | None:
        """Compare what this process holds after a trial with its baseline.

        Args:
            run_id: The run of the trial.

        Returns:
            What it holds too much of, in words; None where it is back at its baseline.
        """
        found = self._find(run_id)
        if found is not None:
            gc.unfreeze()
            gc.collect()  # what refers to itself is only gone now
            found = self._find(run_id)
        if found is None and run_id != self._run_id:
            self._run_id, self._host_bytes = run_id, resident_bytes()
        return found

    def _find(self, run_id: str) -> str | None:
        torch = sys.modules.get("torch")
        device_bytes = torch.cuda.memory_allocated() if torch and torch.cuda.is_initialized() else 0
        if device_bytes > DEVICE_ALLOWANCE_BYTES:
            return f"still held {show_bytes(device_bytes)} of its GPU after the trial"
        allowed = self._host_bytes + max(HOST_ALLOWANCE_BYTES, HOST_ALLOWANCE_PART * self._host_bytes)
        held_bytes = resident_bytes()
        if run_id == self._run_id and held_bytes > allowed:
            return (
                f"held {show_bytes(held_bytes)} of memory after the trial, "
                f"where its baseline is {show_bytes(self._host_bytes)}"
            )
        return None


def show_bytes(num_bytes: int) -> str:
    """Return a number of bytes for people."""
    return f"{num_bytes / 2**30:.2f} GiB"
