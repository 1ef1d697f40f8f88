from __future__ import annotations

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workbench.runs.provisioning.interruptions import slowdown


def test_without_interruptions_only_writing_checkpoints_costs() -> None:
    assert slowdown(0.0, 600.0, 300.0) == 1.0
    assert slowdown(0.0, 600.0, 300.0, write_s=6.0) == pytest.approx(1.01)


def test_the_formula_at_a_point() -> None:
    # M = 3600 s, tau = 600 s, R = 300 s: M exp(R/M) (exp(tau/M) - 1) / tau
    assert slowdown(1.0, 600.0, 300.0) == pytest.approx(
        6.0 * math.exp(1 / 12) * (math.exp(1 / 6) - 1)
    )
    assert slowdown(1.0, 600.0, 300.0) == pytest.approx(1.182728, abs=1e-6)


def test_rare_interruptions_cost_half_a_checkpoint_and_the_restart_each() -> None:
    rate = 1e-3
    assert slowdown(rate, 600.0, 300.0) == pytest.approx(
        1.0 + rate / 3600.0 * (300.0 + 300.0), rel=1e-6
    )


@given(
    rate=st.floats(0.0, 5.0),
    more=st.floats(0.0, 5.0),
    checkpoint_s=st.floats(1.0, 7200.0),
    restart_s=st.floats(0.0, 600.0),
)
def test_more_interruptions_never_cost_less(rate, more, checkpoint_s, restart_s):
    usual = slowdown(rate, checkpoint_s, restart_s)
    assert 1.0 - 1e-12 <= usual <= slowdown(rate + more, checkpoint_s, restart_s) + 1e-9


def test_a_training_that_never_ends_takes_for_ever() -> None:
    assert slowdown(3600.0, 1e6, 0.0) == math.inf


def test_it_is_what_playing_it_comes_to() -> None:
    rng, rate, tau, restart, segments = random.Random(0), 2.0, 900.0, 120.0, 4000
    elapsed_s = 0.0
    for _ in range(segments):
        fails_s = rng.expovariate(rate / 3600.0)
        while fails_s < tau:
            elapsed_s += fails_s
            while (again_s := rng.expovariate(rate / 3600.0)) < restart:
                elapsed_s += again_s
            elapsed_s += restart
            fails_s = rng.expovariate(rate / 3600.0)
        elapsed_s += tau
    assert elapsed_s / (segments * tau) == pytest.approx(slowdown(rate, tau, restart), rel=0.03)
