from __future__ import annotations

import numpy as np
import pytest

from tests.tiers.placement.systems import system
from workbench.tiers.placement.policies import EndCloud
from workbench.tiers.placement.scheduler_plans import exit_curve
from workbench.tiers.placement.schedulers import SCHEDULERS


def test_thresholds_range_from_all_to_none_and_hold_that_of_the_system() -> None:
    given = system()
    points = exit_curve(given)
    thresholds = [point.threshold for point in points]
    assert thresholds == sorted(set(thresholds))
    assert (thresholds[0], thresholds[-1]) == (0.0, 1.0)
    assert (points[0].share, points[-1].share) == (1.0, 0.0)
    (own,) = [point for point in points if point.threshold == 0.5]
    assert list(own.outcomes) == [name for name in SCHEDULERS.names() if name != "cut"]
    assert own.share == pytest.approx(float((given.exits == 0).mean()))
    expected = EndCloud().expect(given)
    assert np.array_equal(own.outcomes["end-cloud"].response_s, expected.response_s)


def test_the_more_leave_early_the_less_is_sent_and_the_less_is_right() -> None:
    sent = [point.outcomes["end-cloud"] for point in exit_curve(system(servers=100))]
    assert np.all(np.diff([one.bytes_per_sample for one in sent]) >= 0)
    assert np.all(np.diff([one.load["cloud"] for one in sent]) >= 0)
    assert sent[0].accuracy < sent[-1].accuracy
    assert sent[0].bytes_per_sample == 0
