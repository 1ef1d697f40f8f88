from __future__ import annotations

import math
import random
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.builders.examples import examples
from tests.builders.measured import find_measured
from workbench.advisor.adapter_rates import (
    AdapterPoint,
    fit_adapter_law,
    read_trained_adapters,
    shipped_law,
)
from workbench.foundation.errors import DataError

RATES, RANKS = (4e-5, 1e-4, 3e-4, 1e-3, 3e-3), (4, 16, 64)


def loss_of(size_b: float, rate: float, rank: int, luck: tuple[float, float, float]) -> float:
    """A world whose best rate falls with the size of the model."""
    too_low = 0.008 * size_b**-0.5 * (rate / 3e-4) ** -0.6
    too_high = 0.0006 * size_b**0.4 * (rate / 3e-4) ** 2 * (rank / 16) ** -0.4
    return too_low * luck[0] + too_high * luck[1] + 0.002 * rank**-0.7 * luck[2]


def trained(size_b: float, seed: int) -> list[AdapterPoint]:
    luck = random.Random(seed)
    shares = (luck.lognormvariate(0, 0.2), luck.lognormvariate(0, 0.2), luck.lognormvariate(0, 0.2))
    floor = luck.uniform(0.5, 0.9)
    return [
        AdapterPoint(
            size_b,
            size_b,
            False,
            rate,
            rank,
            f"model of {size_b}",
            floor + loss_of(size_b, rate, rank, shares) + luck.gauss(0, 1e-4),
        )
        for rate in RATES
        for rank in RANKS
    ]


def considered(points: list[AdapterPoint]) -> list[AdapterPoint]:
    return [replace(point, test_nll=None) for point in points]


def excess_of(points: list[AdapterPoint]) -> list[float]:
    losses = [point.test_nll or math.nan for point in points]
    return [loss - min(losses) for loss in losses]


def test_the_rate_and_the_rank_of_models_that_never_ran_are_nearly_the_best() -> None:
    sizes = [0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0]
    worlds = {size: trained(size, seed) for seed, size in enumerate(sizes)}
    regrets, in_interval = [], []
    for size, truth in worlds.items():
        others = [point for other in worlds if other != size for point in worlds[other]]
        predictions = fit_adapter_law(others).predict(considered(truth))
        excess = excess_of(truth)
        best = min(range(len(truth)), key=lambda index: predictions[index].excess_nll)
        regrets.append(excess[best])
        in_interval += [
            predicted.low <= value <= predicted.high
            for predicted, value in zip(predictions, excess, strict=True)
        ]
    assert sum(regrets) / len(regrets) < 0.001
    assert max(regrets) < 0.005
    assert sum(in_interval) / len(in_interval) >= 0.8


def test_a_model_that_was_trained_before_gets_its_own_curve() -> None:
    others = [point for seed, size in enumerate((1.0, 4.0, 16.0)) for point in trained(size, seed)]
    # Ten times more sensitive to high rates than others of its size.
    own = [
        AdapterPoint(8, 8, False, rate, rank, "own", 0.7 + loss_of(8, rate, rank, (1, 10, 1)))
        for rate in RATES
        for rank in RANKS
    ]
    excess = excess_of(own)
    known = fit_adapter_law([*others, *own]).predict(considered(own))
    unknown = fit_adapter_law(others).predict(considered(own))

    def error_of(predictions: list[float]) -> float:
        return sum(abs(a - b) for a, b in zip(predictions, excess, strict=True))

    assert error_of([point.excess_nll for point in known]) < 0.3 * error_of(
        [point.excess_nll for point in unknown]
    )


def test_trainings_that_diverged_raise_the_chance_that_others_do() -> None:
    calm = [point for seed, size in enumerate((1.0, 4.0, 16.0)) for point in trained(size, seed)]
    wild = [
        replace(point, test_nll=math.nan) if point.learning_rate >= 1e-3 else point
        for point in calm
    ]
    asked = [AdapterPoint(8, 8, False, rate, 16) for rate in RATES]
    few = [point.diverges for point in fit_adapter_law(calm).predict(asked)]
    many = [point.diverges for point in fit_adapter_law(wild).predict(asked)]
    assert few == sorted(few)
    assert many == sorted(many)
    assert few[-1] < 0.2 < 0.8 < many[-1]
    assert many[0] < 0.2


def test_a_loss_above_two_nats_is_a_divergence_and_teaches_no_loss() -> None:
    points = [point for seed, size in enumerate((1.0, 4.0)) for point in trained(size, seed)]
    failed = replace(points[0], learning_rate=1e-2, test_nll=2.5)
    assert failed.diverged
    asked = considered(points[:5])
    with_failed = fit_adapter_law([*points, failed]).predict(asked)
    without = fit_adapter_law(points).predict(asked)
    assert [point.excess_nll for point in with_failed] == [point.excess_nll for point in without]


@examples(25)
@given(
    size_b=st.floats(0.1, 2000),
    rate=st.floats(1e-6, 1e-1),
    rank=st.integers(1, 1024),
    base=st.booleans(),
)
def test_the_included_law_answers_for_any_training(
    size_b: float, rate: float, rank: int, base: bool
) -> None:
    (answer,) = shipped_law().predict([AdapterPoint(size_b, size_b, base, rate, rank)])
    assert 0 <= answer.low <= answer.excess_nll
    assert answer.low <= answer.high
    assert 0 <= answer.diverges <= 1


@pytest.mark.parametrize("rate", [1e-12, 10.0])
def test_no_loss_is_above_that_of_guessing_words_however_odd_the_rate(rate: float) -> None:
    (answer,) = shipped_law().predict([AdapterPoint(8.0, 8.0, False, rate, 16)])
    most = 18 * math.log(2)  # of 262,144 words
    assert 1.0 < answer.excess_nll <= answer.high <= most * (1 + 1e-12)


def test_the_included_law_prefers_higher_rates_for_smaller_models() -> None:
    law = shipped_law()
    best = []
    for size_b in (1.0, 70.0):
        points = [AdapterPoint(size_b, size_b, True, rate, 64) for rate in RATES]
        predictions = law.predict(points)
        best.append(min(range(5), key=lambda index: predictions[index].excess_nll))
    assert RATES[best[0]] == 1e-3
    assert RATES[best[1]] == 3e-4


def test_equal_points_get_equal_intervals() -> None:
    point = AdapterPoint(3, 3, True, 1e-3, 64)
    first, _, second = shipped_law().predict([point, replace(point, rank=16), point])
    assert first == second


@pytest.mark.parametrize("alpha", [8.0, 64.0])
def test_another_alpha_counts_like_another_rate(alpha: float) -> None:
    given = [AdapterPoint(3, 3, True, rate, 64, alpha=alpha) for rate in RATES]
    alike = [AdapterPoint(3, 3, True, rate * (alpha / 32) ** 0.6, 64) for rate in RATES]
    assert shipped_law().predict(given) == shipped_law().predict(alike)


@pytest.mark.parametrize("rate", RATES)
def test_an_unknown_kind_of_model_is_between_both_kinds(rate: float) -> None:
    unknown, tuned, base = (
        shipped_law().predict([AdapterPoint(8, 8, kind, rate, 16)])[0]
        for kind in (None, False, True)
    )
    losses = sorted([tuned.excess_nll, base.excess_nll])
    assert losses[0] * 0.95 <= unknown.excess_nll <= losses[1] * 1.05
    narrower = min(tuned.high - tuned.low, base.high - base.low)
    assert unknown.high - unknown.low >= 0.95 * narrower


def test_a_law_can_be_fitted_without_the_kinds_of_models() -> None:
    points = [replace(point, base=None) for size in (1.0, 2.0, 4.0) for point in trained(size, 1)]
    left_out = considered([replace(point, base=None) for point in trained(3.0, 1)])
    predictions = fit_adapter_law(points).predict(left_out)
    best = min(range(len(left_out)), key=lambda index: predictions[index].excess_nll)
    assert excess_of(trained(3.0, 1))[best] < 0.001


def test_one_model_is_too_few_to_fit_a_law() -> None:
    with pytest.raises(DataError, match="15 trainings of 1 model") as caught:
        fit_adapter_law(trained(1.0, 0))
    assert "Leave out --measured" in str(caught.value)


@pytest.mark.filterwarnings("ignore:.*unknown columns")
def test_public_models_that_are_left_out_are_chosen_nearly_the_best() -> None:
    folder = find_measured("fine_tuning")
    if folder is None:
        pytest.skip("needs the public measurements")
    points = read_trained_adapters(folder / "adapter_rates.csv")
    regrets = []
    for model in {point.model for point in points}:
        own = [point for point in points if point.model == model]
        others = [point for point in points if point.model != model]
        predictions = fit_adapter_law(others).predict(considered(own))
        best = min(range(len(own)), key=lambda index: predictions[index].excess_nll)
        regrets.append(excess_of(own)[best])
    assert sum(regrets) / len(regrets) < 0.0015
    assert max(regrets) < 0.004


@pytest.mark.parametrize(
    ("model", "family"),
    [
        ("Qwen/Qwen3.5-9B-Base", "qwen3.5"),
        ("Qwen/Qwen3-VL-235B-A22B-Instruct", "qwen3"),
        ("meta-llama/Llama-3.2-1B", "llama-3.2"),
        ("./models/Llama-3.2-1B-Instruct/", "llama-3.2"),
        ("openai/gpt-oss-20b", "gpt-oss"),
        ("google/gemma-3-1b-it", "gemma-3"),
        ("HuggingFaceTB/SmolLM2-1.7B", "smollm2"),
        ("meta-llama/Llama-2-7b-hf", "llama-2"),
        ("own", "own"),
        (None, None),
    ],
)
def test_the_family_of_a_model_is_its_name_up_to_its_version(
    model: str | None, family: str | None
) -> None:
    assert AdapterPoint(1.0, 1.0, True, 1e-4, 8, model).family == family


def test_models_of_one_family_move_the_prediction_of_another() -> None:
    """The high rates of one family cost five times as much as those of the other."""

    def family_of(name: str, luck: float) -> list[AdapterPoint]:
        return [
            AdapterPoint(
                size_b,
                size_b,
                False,
                rate,
                rank,
                f"{name}-{size_b:g}B",
                0.6 + loss_of(size_b, rate, rank, (1.0, luck, 1.0)),
            )
            for size_b in (2.0, 5.0, 12.0)
            for rate in RATES
            for rank in RANKS
        ]

    law = fit_adapter_law([*family_of("calm1", 0.5), *family_of("wild2", 2.5)])
    point = AdapterPoint(8.0, 8.0, False, 3e-3, 16)
    calm, wild, unknown = (
        law.predict([replace(point, model=model)])[0].excess_nll
        for model in ("calm1-8B", "wild2-8B", "other3-8B")
    )
    assert calm < unknown < wild
    assert wild > 2 * calm
    rates = [
        law.best(replace(point, model=model), [16]).learning_rate for model in ("calm1-8B", "wild2")
    ]
    assert rates[0] > rates[1]
