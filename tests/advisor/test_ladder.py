"""The loss of a large language model is predicted from small ones, with an interval."""

from __future__ import annotations

import math

import numpy as np
import pytest

from workbench.advisor.ladder import LadderLaw, Rung, fit_ladder, where_to_begin
from workbench.foundation.errors import DataError


class Truth:
    """A law that is known, drawn from a wider range than the beliefs."""

    def __init__(self, seed: int) -> None:
        self.random = np.random.default_rng(seed)
        self.floor = math.exp(self.random.normal(math.log(1.5), 0.3))
        self.powers = [
            math.exp(self.random.normal(math.log(power), 0.25)) for power in (0.35, 0.37)
        ]
        self.terms = [
            self.random.uniform(0.3, 2.0) * centre**power
            for centre, power in zip((5e7, 1e9), self.powers, strict=True)
        ]

    def loss(self, parameters: float, tokens: float) -> float:
        of_size, of_tokens = (
            term / number**power
            for term, number, power in zip(
                self.terms, (parameters, tokens), self.powers, strict=True
            )
        )
        return self.floor + of_size + of_tokens

    def rungs(self, noise: float = 0.005) -> list[Rung]:
        return [
            Rung(
                parameters,
                ratio * parameters,
                self.loss(parameters, ratio * parameters) * math.exp(noise * self.random.normal()),
            )
            for parameters in (1e7, 3e7, 1e8, 2e8)
            for ratio in (5, 20, 60)
        ]


def test_losses_of_models_that_are_a_hundred_times_as_large_are_in_their_intervals() -> None:
    errors, widths, num_held = [], [], 0
    for seed in range(30):
        truth = Truth(seed)
        predicted = fit_ladder(truth.rungs()).predict(1e9, 2e10)
        actual = truth.loss(1e9, 2e10)
        num_held += predicted.low <= actual <= predicted.high
        errors.append(abs(math.log(predicted.loss / actual)))
        widths.append(math.log(predicted.high / predicted.low))
    assert num_held >= 26
    assert np.median(errors) < 0.015
    assert max(widths) < 0.2, "an interval that contains everything says nothing"


def test_a_few_trainings_give_a_wider_interval() -> None:
    truth = Truth(1)
    rungs = truth.rungs()
    many, few = (
        fit_ladder(chosen).predict(1e10, 2e11) for chosen in (rungs, [*rungs[:6:2], rungs[4]])
    )
    assert few.high - few.low > 1.5 * (many.high - many.low)


def test_more_parameters_and_more_tokens_never_cost_anything() -> None:
    law: LadderLaw = fit_ladder(Truth(2).rungs())
    losses = [law.predict(1e7 * 4**step, 1e9 * 4**step).loss for step in range(6)]
    assert losses == sorted(losses, reverse=True)
    assert law.reach(2e8, 120e8) == pytest.approx(1.0)
    assert law.reach(2e9, 120e8) == pytest.approx(10.0)


@pytest.mark.parametrize(
    "rungs",
    [
        [],
        [Rung(1e7, tokens, 3.0) for tokens in (1e8, 2e8, 4e8, 8e8)],
        [Rung(parameters, 1e8, 3.0) for parameters in (1e7, 2e7, 4e7, 8e7)],
        [Rung(1e7, 1e8, 3.0), Rung(2e7, 2e8, 2.8), Rung(4e7, 4e8, 2.6)],
    ],
)
def test_one_size_or_one_length_says_nothing_about_others(rungs: list[Rung]) -> None:
    with pytest.raises(DataError, match="at least 4 trainings, of two sizes"):
        fit_ladder(rungs)


def test_where_a_pretraining_begins_follows_the_published_laws() -> None:
    begins = where_to_begin(1e9, 2e10)
    assert begins.learning_rate == pytest.approx(1.79 * 1e9**-0.713 * 2e10**0.307)
    assert begins.batch_tokens == pytest.approx(0.58 * 2e10**0.571)
    # The timescale of AdamW is 1.084 x 20^-0.527 of the training, at 20 tokens per parameter.
    timescale = begins.batch_tokens / (begins.learning_rate * begins.weight_decay * 2e10)
    assert timescale == pytest.approx(1.084 * 20**-0.527)
    assert begins.warmup_steps == 2000
    short = where_to_begin(1e6, 2e7)
    assert short.warmup_steps == round(0.1 * short.num_steps)
