from __future__ import annotations

import pytest

from tests.faults.cluster_demo import play
from tests.services.postgresql import find_programs
from workbench.foundation.events import AttemptEnded, TrialEnded, TrialStarted


@pytest.mark.ray
@pytest.mark.skipif(find_programs() is None, reason="PostgreSQL is not installed")
@pytest.mark.slow
def test_a_submitted_run_survives_the_loss_of_a_machine_and_its_report_says_so(tmp_path):
    seen = play(tmp_path, print)
    assert seen.hosts_before == 2
    assert seen.submitted[0] == 0, seen.submitted[1]
    assert seen.followed[0] == 0, seen.followed[1]
    ended = [event for event in seen.events if isinstance(event, TrialEnded)]
    assert [event.state for event in ended].count("complete") >= 1
    assert {event.trial for event in ended} == {0, 1}
    lost = [event for event in seen.events if isinstance(event, AttemptEnded)]
    assert [event.reason for event in lost] == ["lost"]
    again = [
        event for event in seen.events if isinstance(event, TrialStarted) and event.attempt == 1
    ]
    assert again[0].resumed_from is not None
    assert "left the cluster" in seen.report
    assert f"ended early (lost): {lost[0].message}" in seen.report
