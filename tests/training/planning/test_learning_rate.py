"""How rates follow the batch size, and their course over a training."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from workbench.training.planning.learning_rate import (
    Rule,
    Schedule,
    default_lr,
    factor,
    largest_ratio,
    legw_warmup,
    scaled_lr,
    unlimited_lr,
)

BATCHES = st.integers(1, 2**16)
RULES: list[Rule] = ["auto", "constant", "linear", "sqrt"]
SCHEDULES: list[Schedule] = ["constant", "cosine", "linear", "one_cycle", "wsd"]


@pytest.mark.parametrize(
    ("optimizer", "rule", "from_batch", "to_batch", "expected"),
    [
        ("sgd", "auto", 256, 8192, 3.2),  # Goyal et al. 2017: 0.1 x 8192 / 256
        ("SGD", "auto", 256, 64, 0.05),
        ("adamw", "auto", 256, 8192, 0.1),
        ("adamw", "auto", 256, 64, 0.05),
        ("adamw", "sqrt", 256, 1024, 0.2),  # Malladi et al. 2022
        ("adamw", "linear", 256, 1024, 0.4),
        ("sgd", "constant", 256, 8192, 0.1),
        ("sgd", "sqrt", 256, 1024, 0.2),
        ("lamb", "auto", 512, 32768, 0.8),  # You et al. 2020: 64 times the batch, 8 times the rate
        ("lars", "auto", 256, 1024, 0.4),
        ("lamb", "auto", 256, 64, 0.05),
        ("sgd", "legw", 1024, 32768, 0.1 * 2**2.5),  # You et al. 2019
    ],
)
def test_rates_follow_the_batch(
    optimizer: str, rule: Rule, from_batch: int, to_batch: int, expected: float
) -> None:
    scaled = scaled_lr(
        0.1, optimizer=optimizer, rule=rule, from_batch=from_batch, to_batch=to_batch
    )
    assert scaled == pytest.approx(expected)


# By hand: 1 - sqrt(k / 20) at the k-th of the last 20 steps.
@pytest.mark.parametrize(
    ("step", "expected"), [(0, 0.1), (9, 1.0), (79, 1.0), (80, 1.0), (85, 0.5), (99, 0.0253206)]
)
def test_wsd_is_stable_and_decays_in_the_last_fifth(step: int, expected: float) -> None:
    made = factor("wsd", step, total_steps=100, warmup_steps=10)
    assert made == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("decay", [0.1, 0.5, 1.0])
def test_wsd_decays_in_the_last_part(decay: float) -> None:
    first = round(100 * (1 - decay))
    made = [
        factor("wsd", step, total_steps=100, warmup_steps=0, decay=decay) for step in range(100)
    ]
    falling = [1 - (step / (100 - first)) ** 0.5 for step in range(100 - first)]
    assert made == pytest.approx([1.0] * first + falling)


@pytest.mark.parametrize(
    ("optimizer", "expected"), [("sgd", 8 * 0.533333), ("adamw", math.sqrt(8 * 0.533333))]
)
def test_adascale_follows_the_gain_that_the_noise_leaves(optimizer: str, expected: float) -> None:
    # Gradient variance 7 and squared norm 1 at batch 128, as in the published goodput of batch
    # 1024.
    scaled = scaled_lr(
        1.0,
        optimizer=optimizer,
        rule="adascale",
        from_batch=128,
        to_batch=1024,
        noise_scale=7 * 128,
    )
    assert scaled == pytest.approx(expected, rel=1e-5)
    with pytest.raises(ValueError, match="noise scale"):
        scaled_lr(1.0, optimizer=optimizer, rule="adascale", from_batch=128, to_batch=1024)


def test_adascale_says_nothing_of_smaller_batches() -> None:
    scaled = scaled_lr(0.1, optimizer="sgd", rule="adascale", from_batch=256, to_batch=64)
    assert scaled == pytest.approx(0.05)


@pytest.mark.parametrize(
    ("rule", "optimizer", "decays", "expected"),
    [
        ("sqrt", "adamw", None, 10.0),  # Malladi et al. 2022: ratio (1 - 0.9) < 1
        ("sqrt", "AdamW", (0.95, 0.999), 20.0),
        ("legw", "adam", (0.0, 0.999), 1.0),
        ("adascale", "rmsprop", None, 100.0),
        ("sqrt", "rmsprop", (0.9,), 10.0),
        ("sqrt", "adamw", (1.0, 1.0), math.inf),
        ("sqrt", "sgd", None, math.inf),
        ("constant", "adamw", None, math.inf),
        ("linear", "adamw", None, math.inf),
    ],
)
def test_rules_hold_up_to_a_ratio(
    rule: Rule, optimizer: str, decays: tuple[float, ...] | None, expected: float
) -> None:
    assert largest_ratio(rule, optimizer=optimizer, decays=decays) == pytest.approx(expected)


@given(from_batch=BATCHES, to_batch=BATCHES, noise_scale=st.floats(0.0, 1e6))
@pytest.mark.parametrize("rule", ["sqrt", "legw", "adascale", "auto"])
def test_a_rate_never_goes_beyond_what_its_rule_allows(
    rule: Rule, from_batch: int, to_batch: int, noise_scale: float
) -> None:
    batches = {"from_batch": from_batch, "to_batch": to_batch, "noise_scale": noise_scale}
    scaled = scaled_lr(1.0, optimizer="adamw", rule=rule, **batches)
    unlimited = unlimited_lr(1.0, optimizer="adamw", rule=rule, **batches)
    assert scaled == pytest.approx(min(unlimited, math.sqrt(10.0)))


def test_legw_warms_up_as_many_times_longer() -> None:
    # You et al. 2019: ResNet-50 for 90 epochs, 0.3125 of them warm-up at batch 1024 and 10 at
    # 32768.
    assert 90 * legw_warmup(0.3125 / 90, 32) == pytest.approx(10.0)
    assert legw_warmup(None, 1) == pytest.approx(0.01)
    assert legw_warmup(0.1, 32) == 0.5
    assert legw_warmup(0.8, 32) == 0.8


@given(
    lr=st.floats(1e-6, 10.0), batch=BATCHES, optimizer=st.sampled_from(["sgd", "adamw", "rmsprop"])
)
@pytest.mark.parametrize("rule", RULES)
def test_the_same_batch_keeps_the_rate(rule: Rule, lr: float, batch: int, optimizer: str) -> None:
    assert scaled_lr(lr, optimizer=optimizer, rule=rule, from_batch=batch, to_batch=batch) == lr


@given(lr=st.floats(1e-6, 10.0), from_batch=BATCHES, to_batch=BATCHES)
def test_auto_never_raises_the_rate_of_adam(lr: float, from_batch: int, to_batch: int) -> None:
    assert (
        scaled_lr(lr, optimizer="adamw", rule="auto", from_batch=from_batch, to_batch=to_batch)
        <= lr
    )


@given(lr=st.floats(1e-6, 10.0), first=BATCHES, second=BATCHES, third=BATCHES)
@pytest.mark.parametrize("rule", ["constant", "linear", "sqrt"])
def test_scaling_in_two_steps_is_scaling_in_one(
    rule: Rule, lr: float, first: int, second: int, third: int
) -> None:
    halfway = scaled_lr(lr, optimizer="sgd", rule=rule, from_batch=first, to_batch=second)
    in_two = scaled_lr(halfway, optimizer="sgd", rule=rule, from_batch=second, to_batch=third)
    assert in_two == pytest.approx(
        scaled_lr(lr, optimizer="sgd", rule=rule, from_batch=first, to_batch=third)
    )


@pytest.mark.parametrize(
    ("schedule", "step", "expected"),
    [
        ("constant", 0, 0.1),
        ("constant", 9, 1.0),
        ("constant", 99, 1.0),
        ("cosine", 4, 0.5),
        ("cosine", 10, 1.0),
        ("cosine", 55, 0.5),
        ("cosine", 99, 0.5 * (1 + math.cos(math.pi * 89 / 90))),
        ("linear", 10, 1.0),
        ("linear", 55, 0.5),
        ("linear", 99, 1 / 90),
        ("one_cycle", 0, 0.04),
        ("one_cycle", 9, 1.0),
        ("one_cycle", 99, 4e-6),
    ],
)
def test_courses_of_a_hundred_steps_with_ten_of_warm_up(
    schedule: Schedule, step: int, expected: float
) -> None:
    assert factor(schedule, step, total_steps=100, warmup_steps=10) == pytest.approx(expected)


@given(
    schedule=st.sampled_from(SCHEDULES),
    total_steps=st.integers(1, 500),
    data=st.data(),
)
def test_the_rate_stays_within_its_peak_and_rises_in_warm_up_only(
    schedule: Schedule, total_steps: int, data: st.DataObject
) -> None:
    warmup_steps = data.draw(st.integers(0, total_steps))
    course = [
        factor(schedule, step, total_steps=total_steps, warmup_steps=warmup_steps)
        for step in range(total_steps)
    ]
    assert all(0 < part <= 1 + 1e-12 for part in course)
    assert max(course) == pytest.approx(1.0)
    before, after = course[:warmup_steps], course[max(warmup_steps - 1, 0) :]
    assert before == sorted(before)
    assert after == sorted(after, reverse=True)


@pytest.mark.parametrize("total_steps", [10, 97, 300])
def test_one_cycle_is_that_of_torch(total_steps: int) -> None:
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=1.0)
    theirs = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, max_lr=2.0, total_steps=total_steps, pct_start=0.3, cycle_momentum=False
    )
    expected: list[float] = []
    for _ in range(total_steps):
        expected.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        if len(expected) < total_steps:
            theirs.step()
    warmup_steps = round(0.3 * total_steps)
    ours = [
        2.0 * factor("one_cycle", step, total_steps=total_steps, warmup_steps=warmup_steps)
        for step in range(total_steps)
    ]
    # Torch places its peak between two steps where 30 % is no whole number of them.
    assert ours == pytest.approx(expected, abs=0.02 if total_steps % 10 else 1e-9)


def test_rates_that_nobody_names() -> None:
    assert default_lr("SGD") == 0.1
    assert default_lr("adamw") == default_lr("NAdam") == 1e-3
