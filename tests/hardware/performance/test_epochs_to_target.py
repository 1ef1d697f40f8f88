"""Epochs to a target by batch: what runs make of beliefs."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from workbench.hardware.performance.epochs_to_target import EpochsPrior, FullRun

BATCHES = [32, 64, 128, 256, 512, 1024, 2048]


def test_before_any_run_larger_batches_need_no_fewer_epochs_and_may_fail() -> None:
    belief = EpochsPrior(BATCHES).given([])
    assert list(np.sort(belief.log_epochs[2:])) == list(belief.log_epochs[2:])
    assert list(np.sort(belief.chance)[::-1]) == list(belief.chance)
    assert all(0.3 < chance < 1 for chance in belief.chance)


@given(least=st.floats(5, 500), critical=st.floats(100, 4000))
def test_runs_on_the_law_are_followed_between_and_near_them(least: float, critical: float) -> None:
    truth = {batch: least * (1 + batch / critical) for batch in BATCHES}
    runs = [FullRun(batch, truth[batch]) for batch in (64, 256, 1024)]
    belief = EpochsPrior(BATCHES).given(runs)
    between = np.exp(belief.log_epochs[1:6]) / [truth[batch] for batch in BATCHES[1:6]]
    assert between == pytest.approx(1.0, rel=0.12)


@given(factor=st.floats(2, 50))
def test_epochs_are_relative_to_those_of_the_runs(factor: float) -> None:
    prior = EpochsPrior(BATCHES)
    few = prior.given([FullRun(64, 1e4), FullRun(512, 2e4)])
    many = prior.given([FullRun(64, 1e4 * factor), FullRun(512, 2e4 * factor)])
    assert many.log_epochs - few.log_epochs == pytest.approx(np.log(factor), abs=1e-3)


def test_a_run_is_most_certain_of_its_own_batch_and_more_runs_of_all() -> None:
    prior = EpochsPrior(BATCHES)
    certain = prior.given([FullRun(256, 40.0)])
    two = prior.given([FullRun(256, 40.0), FullRun(2048, 90.0)])
    assert certain.deviation.argmin() == BATCHES.index(256)
    assert (two.deviation[4:] < certain.deviation[4:]).all()


def test_few_whole_epochs_say_less_than_many() -> None:
    prior = EpochsPrior(BATCHES)
    few, many = prior.given([FullRun(256, 1.0)]), prior.given([FullRun(256, 100.0)])
    assert few.deviation[3] > many.deviation[3]


def test_a_failure_makes_larger_batches_doubtful_where_a_smaller_one_succeeded() -> None:
    prior = EpochsPrior(BATCHES)
    before = prior.given([FullRun(128, 40.0)])
    after = prior.given([FullRun(128, 40.0), FullRun(512, None)])
    assert (after.chance[4:] < 0.2).all()
    assert (after.chance[4:] < before.chance[4:]).all()
    assert after.chance[2] > 0.9


def test_a_failure_makes_smaller_batches_doubtful_where_a_larger_one_succeeded() -> None:
    belief = EpochsPrior(BATCHES).given([FullRun(512, 40.0), FullRun(64, None)])
    assert (belief.chance[:2] < 0.25).all()
    assert belief.chance[5] > 0.5


def test_one_batch_alone_can_be_asked_about() -> None:
    belief = EpochsPrior([64]).given([FullRun(64, 12.0)])
    assert np.exp(belief.log_epochs) == pytest.approx([12.0])
