"""Learning rates at another batch: which rule, how far it holds, how long to warm up."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workbench.advisor.rate_scaling import OPTIMIZERS, RULES, RateAdvice, RateRequest, advise_rate
from workbench.foundation.errors import ExperimentError
from workbench.training.planning.learning_rate import Rule


def advise(
    optimizer: str, lr: float, from_batch: int, to_batch: int, rule: Rule = "auto", **more: float
) -> RateAdvice:
    return advise_rate(RateRequest(optimizer, lr, from_batch, to_batch, rule, **more))


@pytest.mark.parametrize(
    ("optimizer", "from_batch", "to_batch", "rule", "factor"),
    [
        ("sgd", 256, 8192, "linear", 32.0),
        ("sgd", 256, 64, "sqrt", 0.5),
        ("adamw", 128, 1024, "constant", 1.0),
        ("adam", 128, 128 * 64, "constant", 1.0),
        ("adamw", 1024, 256, "sqrt", 0.5),
        ("rmsprop", 64, 256, "constant", 1.0),
        ("lamb", 512, 2048, "lamb", 2.0),
        ("lars", 256, 1024, "lars", 4.0),
        ("lamb", 2048, 512, "sqrt", 0.5),
    ],
)
def test_the_rule_follows_the_optimizer_and_the_direction(
    optimizer: str, from_batch: int, to_batch: int, rule: Rule, factor: float
) -> None:
    advice = advise(optimizer, 0.01, from_batch, to_batch)
    assert (advice.rule, advice.lr) == (rule, pytest.approx(0.01 * factor))
    assert advice.reason


@pytest.mark.parametrize(
    ("optimizer", "from_batch", "to_batch", "more", "is_beyond"),
    [
        ("sgd", 256, 8192, {}, False),
        ("sgd", 256, 16384, {}, True),
        ("adamw", 128, 1_000_000, {}, True),
        ("adamw", 8192, 256, {}, False),
        ("adamw", 8192, 128, {}, True),
        ("lamb", 512, 32768, {}, False),
        ("lamb", 512, 65536, {}, True),
        ("sgd", 256, 1024, {"noise_scale": 2.0}, True),
    ],
)
def test_a_rate_beyond_the_batches_for_which_rules_were_tried_is_extrapolated(
    optimizer: str, from_batch: int, to_batch: int, more: dict[str, float], is_beyond: bool
) -> None:
    advice = advise(optimizer, 0.01, from_batch, to_batch, **more)
    assert advice.extrapolated == is_beyond
    is_stated = "Extrapolated: " in advice.reason or "no rule is reliable there" in advice.reason
    assert is_stated == is_beyond


@pytest.mark.parametrize("doubling", range(7))
def test_lamb_gives_the_published_rates_and_warm_ups_of_bert(doubling: int) -> None:
    # You et al. 2020, table 4: from 5 / 2^3 / 1000 and 1/320 at batch 512 to 5 / 1000 and 1/5 at
    # 32768.
    advice = advise("lamb", 5e-3 / 2**3, 512, 512 * 2**doubling, warmup=1 / 320)
    assert advice.lr == pytest.approx(5e-3 / 2 ** (3 - doubling / 2))
    assert advice.warmup == pytest.approx(2**doubling / 320)


@pytest.mark.parametrize("doubling", range(6))
def test_legw_gives_the_published_rates_and_warm_ups_of_resnet(doubling: int) -> None:
    # You et al. 2019, ImageNet: 2^2.5 and 0.3125 epochs of 90 at batch 1024, 2^5 and 10 epochs at
    # 32768.
    advice = advise("lars", 2**2.5, 1024, 1024 * 2**doubling, "legw", warmup=0.3125 / 90)
    assert advice.lr == pytest.approx(2 ** (2.5 + doubling / 2))
    assert advice.warmup == pytest.approx(0.3125 * 2**doubling / 90)


def test_sgd_warms_up_gradually_when_its_rate_is_raised_and_keeps_a_longer_warm_up() -> None:
    assert advise("sgd", 0.1, 256, 8192).warmup == 0.05
    assert advise("sgd", 0.1, 256, 8192, warmup=0.1).warmup == 0.1
    assert advise("sgd", 0.1, 256, 64).warmup == 0.0
    assert advise("adamw", 0.1, 256, 8192).warmup == 0.0


def test_a_warm_up_that_would_fill_the_training_is_held() -> None:
    advice = advise("sgd", 0.1, 256, 256 * 128, "legw")
    assert advice.warmup == 0.5
    assert "limited to 50 %" in advice.reason


def test_adascale_goes_from_linear_where_all_is_noise_to_constant_where_none_is() -> None:
    assert advise("sgd", 0.1, 64, 1024, "adascale", noise_scale=1e12).lr == pytest.approx(1.6)
    assert advise("sgd", 0.1, 64, 1024, "adascale", noise_scale=1e-9).lr == pytest.approx(0.1)
    assert advise("sgd", 1.0, 128, 1024, "adascale", noise_scale=896).lr == pytest.approx(
        8 * 0.533333, rel=1e-5
    )
    assert advise("adamw", 1.0, 128, 512, "adascale", noise_scale=896).lr == pytest.approx(
        math.sqrt(4 * 0.727273), rel=1e-5
    )
    with pytest.raises(ExperimentError, match="--noise-scale"):
        advise("sgd", 0.1, 64, 1024, "adascale")


def test_adascale_for_a_smaller_batch_states_that_another_rule_is_used() -> None:
    advice = advise("sgd", 0.1, 128, 64, "adascale")
    assert advice.rule == "sqrt"
    assert "AdaScale is only defined for larger batches" in advice.reason


@pytest.mark.parametrize(
    ("optimizer", "ratio", "beta1", "highest"),
    [
        ("adamw", 16, 0.9, 10),
        ("adamw", 10, 0.9, 10),
        ("adam", 64, 0.95, 20),
        ("rmsprop", 200, 0.9, 100),
    ],
)
def test_the_square_root_rule_is_clamped_where_it_stops_to_hold(
    optimizer: str, ratio: int, beta1: float, highest: float
) -> None:
    advice = advise(optimizer, 1e-3, 32, 32 * ratio, "sqrt", beta1=beta1)
    assert advice.lr == pytest.approx(1e-3 * math.sqrt(highest))
    assert "is limited to" in advice.reason


def test_within_its_limits_the_square_root_rule_names_the_betas_that_belong_to_it() -> None:
    advice = advise("adamw", 1e-3, 128, 512, "sqrt")
    assert advice.lr == pytest.approx(2e-3)
    assert "0.6 and 0.996" in advice.reason
    assert "clamped" not in advice.reason
    assert "clamped" not in advise("sgd", 1e-3, 32, 32 * 64, "sqrt").reason


def test_a_linear_rule_for_adam_is_given_only_when_asked_for_and_warned_of() -> None:
    asked = advise("adamw", 3e-4, 128, 1024, "linear")
    assert (asked.rule, asked.lr) == ("linear", pytest.approx(2.4e-3))
    assert "diverge" in asked.reason
    assert "diverge" not in advise("sgd", 0.1, 128, 1024, "linear").reason


def test_a_batch_far_beyond_the_noise_scale_is_warned_of() -> None:
    assert (
        "more than 4 times the noise scale" in advise("sgd", 0.1, 128, 1024, noise_scale=255).reason
    )
    assert "noise scale" not in advise("sgd", 0.1, 128, 1024, noise_scale=256).reason


def test_rules_made_for_rates_by_layer_are_warned_of_elsewhere() -> None:
    assert "meant for LAMB" in advise("adamw", 1e-3, 512, 1024, "lamb").reason
    assert "meant for" not in advise("lamb", 1e-3, 512, 1024).reason


@given(
    optimizer=st.sampled_from(OPTIMIZERS),
    rule=st.sampled_from(RULES),
    from_batch=st.integers(1, 2**16),
    to_batch=st.integers(1, 2**16),
    warmup=st.floats(0, 1),
)
def test_rates_move_with_the_batch_and_never_by_more_than_it(
    optimizer: str, rule: Rule, from_batch: int, to_batch: int, warmup: float
) -> None:
    advice = advise(optimizer, 1.0, from_batch, to_batch, rule, noise_scale=1000.0, warmup=warmup)
    low, high = sorted((1.0, to_batch / from_batch))
    assert low * (1 - 1e-9) <= advice.lr <= high * (1 + 1e-9)
    assert advice.rule != "auto"
    assert 0 <= advice.warmup <= 1
