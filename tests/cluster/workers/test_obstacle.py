from __future__ import annotations

import pytest

from workbench.cluster.workers.pool_client import Obstacle


@pytest.mark.parametrize(
    ("obstacle", "text"),
    [
        (Obstacle(0, (), ("run a has 2 workers",)), "run a has 2 workers, this run is next"),
        (
            Obstacle(1, (), ("run a has 2 workers",)),
            "run a has 2 workers, 1 request of other runs served first",
        ),
        (
            Obstacle(3, ("node b is silent",), ()),
            "node b is silent, 3 requests of other runs served first",
        ),
        (Obstacle(None, ("node b is silent",), ()), "node b is silent"),
        (Obstacle(0, (), ()), ""),
    ],
)
def test_a_run_that_waits_states_what_comes_first_in_words(obstacle: Obstacle, text: str) -> None:
    assert str(obstacle) == text
