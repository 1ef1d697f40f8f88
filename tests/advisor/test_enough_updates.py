"""Advice leaves a training enough updates, unless a training showed that fewer suffice."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workbench.advisor.enough_updates import describe_fewer_updates, largest_batch
from workbench.advisor.recommend import describe_overrun
from workbench.experiment import Experiment
from workbench.hardware.performance.goodput import efficiency


@given(st.integers(1, 4096), st.none() | st.floats(0.0, 1e6), st.none() | st.integers(1, 10**7))
def test_no_batch_needs_more_than_twice_the_samples_of_the_default(default, noise, num_samples):
    largest = largest_batch(default, noise, num_samples)
    assert largest >= default
    # A sample at the largest batch is worth at least half of one at the default.
    assert float(efficiency(largest, default, noise or 0.0)) >= 0.5 - 1e-9


@pytest.mark.parametrize(
    ("default", "noise", "num_samples", "largest"),
    [
        (16, None, 455, 32),  # 29 steps an epoch become 15
        (128, None, 455, 128),  # twice as many would leave 2 steps an epoch
        (128, None, None, 256),
        (16, 480.0, 455, 512),  # measured noise allows more
    ],
)
def test_the_largest_batch_follows_the_noise_and_the_steps_of_an_epoch(
    default, noise, num_samples, largest
):
    assert largest_batch(default, noise, num_samples) == largest


def test_the_reason_counts_updates():
    objectives = [{"metric": "val_loss", "goal": "minimize"}]
    experiment = Experiment(
        model="mlp", data="digits", objectives=objectives, training={"epochs": 20}
    )
    assert (
        describe_fewer_updates(experiment, 256, 16, 455)
        == "a batch of 256 has faster steps, but leaves 40 updates in 20 epochs instead of 580 at"
        " 16, and no training showed that it converges"
    )
    assert "leaves 16 times fewer updates than 16" in describe_fewer_updates(
        experiment, 256, 16, None
    )


def test_time_beyond_the_limit_is_explained_by_what_took_most_of_it():
    spent_s = {"measuring plans": 80.0, "trainings": 10.0}
    assert (
        describe_overrun(spent_s, 60.0)
        == "30 s more than the 1 min that were allowed; most of it was measuring plans: 1 min 20 s"
    )
    assert describe_overrun(spent_s, 89.5) is None
