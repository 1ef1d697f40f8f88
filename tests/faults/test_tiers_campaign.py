from __future__ import annotations

from pathlib import Path

import pytest

from tests.faults.tiers import Fault, play

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("victim", ["cloud-0", "end-1"])
def test_every_request_is_answered_when_a_tier_is_killed(tmp_path: Path, victim: str) -> None:
    assert play(tmp_path, Fault(victim, "kill", "heartbeat", 0.8, 0.0), 0) == []
