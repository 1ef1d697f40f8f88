from __future__ import annotations

import pytest
import ray

from workbench.workers.trial_cleanup import TrialCleanup


def test_a_trial_cannot_cut_its_process_off_from_ray(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray, "shutdown", ray.shutdown)  # brought back after the test
    TrialCleanup()
    with pytest.warns(UserWarning, match=r"ray\.shutdown\(\) has no effect in a trial") as warned:
        ray.shutdown()
    assert warned[0].filename == __file__
