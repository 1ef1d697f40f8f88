"""A worker notices when its memory grows."""

from __future__ import annotations

import pytest
import torch

from workbench.cluster.workers.worker_memory import Baseline


@pytest.mark.slow
def test_a_gpu_on_which_a_kernel_has_failed_is_of_no_use_to_another_trial(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def synchronize() -> None:
        raise RuntimeError(
            "CUDA error: device-side assert triggered\nCompile with TORCH_USE_CUDA_DSA"
        )

    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "synchronize", synchronize)
    excess = Baseline().excess("r")
    assert excess == "can no longer use its GPU: CUDA error: device-side assert triggered"
