from __future__ import annotations

import math

import pytest

from workbench.tiers.processes.next_tier import STATUS
from workbench.views.live_feed.tiers_picture import (
    RunTiers,
    finite,
    read_tiers_request,
    status_between,
)


def report(**values: float) -> dict[str, float]:
    return {**dict.fromkeys(STATUS, 0.0), **values}


def test_a_status_is_what_happened_between_two_reports() -> None:
    before = [report(now_s=10, busy_s=1, num_answered=5), report(now_s=3)]
    now = [report(now_s=12, busy_s=1.5, num_answered=11, num_waiting=4), report(now_s=3, busy_s=1)]
    status = status_between(before, now, at_s=7.5)
    first, second = status.tiers
    assert (status.at_s, first.num_waiting) == (7.5, 4)
    assert (first.load, first.answers_per_s) == pytest.approx((0.25, 3.0))
    # Two reports of the same moment say nothing.
    assert (second.load, second.answers_per_s) == (0, 0)


def test_only_messages_of_the_protocol_are_read() -> None:
    sent = {"type": "run", "scheduler": "end", "threshold": 0.5, "rate_per_s": 2, "time_s": 30}
    assert read_tiers_request(sent) == RunTiers(**sent)
    assert read_tiers_request({**sent, "rate_per_s": "fast"}) is None
    assert read_tiers_request({"type": "format"}) is None
    assert read_tiers_request({}) is None


def test_what_grows_without_end_has_no_number() -> None:
    assert (finite(math.inf), finite(0.5)) == (None, 0.5)
