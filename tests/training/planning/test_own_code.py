"""A program in the words of plans, and back."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest

from workbench.advisor.advice import apply_settings
from workbench.advisor.open_settings import base_params, believed_rate, choices_of
from workbench.experiment import Experiment
from workbench.experiment.plan import Hardware, PartialPlan
from workbench.training.planning.own_code import in_words_of_plans, own_settings, own_values
from workbench.training.planning.settings import resolve

SEARCH: dict[str, Any] = {
    "optimizer.lr": {"low": 0.01, "high": 1.0, "log": True},
    "batch-size": {"choices": [8, 32, 128]},
    "workers": {"choices": [4]},
    "width": {"choices": [16]},
    "extra": {"choices": [1], "when": {"width": 16}},
}


def experiment(**advise: Any) -> Experiment:
    return Experiment(
        command="python train.py {args}",
        objectives=[{"metric": "loss", "goal": "minimize"}],
        search=SEARCH,
        advise={"batch": "batch-size", **advise},
    )


def test_the_advisor_finds_the_batches_the_rates_and_the_workers() -> None:
    written = experiment(lr="optimizer.lr", workers=True)
    named = in_words_of_plans(written)
    choices = choices_of(
        named, num_train_samples=None, max_workers=4, hardware=Hardware(has_gpu=True)
    )
    assert choices.micro_batches == (8, 32, 128)
    assert choices.workers == (1, 2, 4)
    assert choices.rates == (0.01, 1.0)
    assert choices.global_batches == (8, 16, 32, 64, 128, 256, 512)
    assert believed_rate(named, choices) == 0.1
    assert {len(values) for values in choices.options.values()} == {1}


@pytest.mark.parametrize(
    "rates",
    [
        {"low": 0.001, "high": 0.2, "step": 0.001},
        {"choices": [number / 1000 for number in range(200, 0, -1)]},
    ],
)
def test_many_listed_rates_are_represented_by_evenly_spaced_ones(rates: dict[str, Any]) -> None:
    trained = Experiment(
        model="mlp",
        data="digits",
        objectives=[{"metric": "val_loss", "goal": "minimize"}],
        search={"lr": rates},
    )
    choices = choices_of(trained, num_train_samples=1000, max_workers=1, hardware=Hardware())
    assert choices.rates == pytest.approx((0.001, 0.2))
    assert choices.listed_rates is not None
    gaps = [after - before for before, after in pairwise(choices.listed_rates)]
    assert len(gaps) == 63
    assert max(gaps) <= 0.004 + 1e-9


def test_without_a_rate_and_workers_only_the_batch_is_open() -> None:
    named = in_words_of_plans(experiment())
    choices = choices_of(named, num_train_samples=None, max_workers=4, hardware=Hardware())
    assert choices.workers == (1,)
    assert not choices.is_rate_open


def test_the_program_receives_its_own_parameters_and_nothing_else() -> None:
    written = experiment(lr="optimizer.lr")
    named = in_words_of_plans(written)
    params = {**base_params(named), "global_batch": 64, "lr": 0.3}
    settings = resolve(named, params, decided=PartialPlan.of(micro_batch=32, workers=2))
    assert settings.plan.global_batch == 64
    assert settings.lr == 0.3, "a rate is meant at every batch alike"
    assert own_values(written, params, settings.plan.micro_batch, settings.lr) == {
        "optimizer.lr": 0.3,
        "batch-size": 32,
        "workers": 4,
        "width": 16,
        "extra": 1,
    }


def test_what_is_recommended_replaces_what_is_searched() -> None:
    written = experiment(lr="optimizer.lr", workers=True)
    settings = own_settings(
        written,
        {
            "plan.micro_batch": 32,
            "plan.workers": 2,
            "plan.accumulation": 1,
            "training.global_batch": 64,
            "training.lr": 0.3,
        },
    )
    assert settings == {
        "search.batch-size": 32,
        "plan.workers": 2,
        "advise.workers": False,
        "search.optimizer.lr": 0.3,
    }
    followed = apply_settings(written, settings)
    assert followed.plan.workers == 2
    assert followed.search.root["batch-size"].values() == [32]
    assert followed.search.root["optimizer.lr"].values() == [0.3]
