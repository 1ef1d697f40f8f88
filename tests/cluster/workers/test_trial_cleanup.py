from __future__ import annotations

import pytest
import ray

from workbench.cluster.workers.trial_cleanup import TrialCleanup


def test_a_trial_cannot_cut_its_process_off_from_ray(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(ray, "shutdown", ray.shutdown)  # brought back after the test
    TrialCleanup()
    for _ in range(2):  # in every trial
        caplog.clear()
        ray.shutdown()
        assert "ray.shutdown() has no effect in a trial" in caplog.text
