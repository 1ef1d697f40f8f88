"""`prior: auto` is what is known about a model before its first trial."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

from tests.advisor.test_language_models import llama_like
from workbench.advisor.adapter_rates import ALPHA_POWER, AdapterPoint, shipped_law
from workbench.advisor.auto_priors import (
    describe_priors,
    rate_at,
    read_known_model,
    with_auto_priors,
)
from workbench.experiment import Experiment
from workbench.experiment.domain import Prior
from workbench.foundation.errors import ExperimentError
from workbench.foundation.events import TrialEnded
from workbench.search import Study

LLAMA = {**llama_like(2048, 16, 32, 8, 8192), "vocab_size": 128_256, "tie_word_embeddings": True}
EXPERTS = {
    **llama_like(2048, 48, 32, 4, 6144),
    "vocab_size": 151_936,
    "tie_word_embeddings": False,
    "head_dim": 128,
    "moe_intermediate_size": 768,
    "num_experts": 128,
    "num_experts_per_tok": 8,
}
RATE = {"low": 1e-6, "high": 1.0, "log": True, "prior": "auto"}
RANK = {"choices": [8, 16, 64], "prior": "auto"}


def write_model(folder: Path, config: dict[str, Any], **files: str) -> Path:
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(config))
    for name, text in files.items():
        (folder / name.replace("_json", ".json")).write_text(text)
    return folder


def make(folder: Path | None, search: dict[str, Any], **training: Any) -> Experiment:
    weights = {} if folder is None else {"weights": {"path": str(folder)}}
    return Experiment(
        model="mlp",
        data="digits",
        objectives=[{"metric": "val_loss", "goal": "minimize"}],
        search=search,
        training={"optimizer": "adamw", **weights, **training},
    )


def prior_of(experiment: Experiment, name: str = "lr") -> Prior:
    prior = with_auto_priors(experiment).search.root[name].prior  # type: ignore[union-attr]
    assert isinstance(prior, Prior)
    return prior


@pytest.fixture
def llama(tmp_path: Path) -> Path:
    return write_model(tmp_path / "Llama-3.2-1B", LLAMA)


@pytest.mark.parametrize(
    ("name", "files", "is_base"),
    [
        ("Llama-3.2-1B", {}, True),
        ("Llama-3.2-1B-Instruct", {}, False),
        ("gemma-3-1b-it", {}, False),
        ("gemma-3-1b-pt", {"tokenizer_config_json": '{"chat_template": "x"}'}, True),
        ("Qwen3-8B", {"tokenizer_config_json": '{"chat_template": "x"}'}, False),
        ("Qwen3-8B-Base", {"tokenizer_config_json": '{"chat_template": "x"}'}, True),
        ("units", {"tokenizer_config_json": "no json"}, True),
    ],
)
def test_names_and_chat_templates_tell_base_models_from_tuned_ones(
    tmp_path: Path, name: str, files: dict[str, str], is_base: bool
) -> None:
    assert read_known_model(write_model(tmp_path / name, LLAMA, **files)).is_base is is_base


def test_experts_that_a_token_does_not_use_are_not_active(tmp_path: Path) -> None:
    # 30.5 billion parameters and 3.3 billion active ones, by the model card of Qwen3-30B-A3B.
    model = read_known_model(write_model(tmp_path / "experts", EXPERTS))
    assert model.parameters_b == pytest.approx(30.5, rel=0.01)
    assert model.active_b == pytest.approx(3.3, rel=0.03)
    assert read_known_model(write_model(tmp_path / "dense", LLAMA)).active_b == pytest.approx(
        1.236, rel=1e-3
    )


def test_the_rate_and_the_rank_are_those_with_the_lowest_prediction(llama: Path) -> None:
    experiment = make(llama, {"lr": RATE, "adapter.rank": RANK}, adapter={"alpha": 32})
    rates = [1e-5 * 10 ** (step / 20) for step in range(61)]
    points = [
        AdapterPoint(1.236, 1.236, True, rate, rank, model="Llama-3.2-1B")
        for rate in rates
        for rank in (8, 16, 64)
    ]
    predictions = shipped_law().predict(points)
    best = points[min(range(len(points)), key=lambda at: predictions[at].excess_nll)]
    assert prior_of(experiment, "adapter.rank").near == best.rank
    assert prior_of(experiment).near == pytest.approx(best.learning_rate, rel=0.13)


@pytest.mark.parametrize("alpha", [4, 16, 32, 256])
def test_the_rate_falls_with_alpha_and_becomes_less_certain(llama: Path, alpha: int) -> None:
    usual, other = (
        prior_of(make(llama, {"lr": RATE}, adapter={"rank": 16, "alpha": value}))
        for value in (32, alpha)
    )
    assert isinstance(usual.near, float)
    assert isinstance(other.near, float)
    assert other.near == pytest.approx(usual.near * (32 / alpha) ** ALPHA_POWER)
    assert usual.within is not None
    assert other.within is not None
    # The power that was measured, and one as far on the other side, are within the interval.
    for power in (0.54, 0.66):
        expected = usual.near * (32 / alpha) ** power
        assert abs(math.log(expected / other.near)) <= math.log(other.within)
    assert (other.within > usual.within) is (alpha != 32)


def test_a_prior_at_the_highest_rank_says_that_trials_rarely_leave_it(llama: Path) -> None:
    search = {"lr": RATE, "adapter.rank": RANK}
    rank = prior_of(make(llama, search, adapter={"alpha": 32}), "adapter.rank")
    assert rank.near == 64
    assert "the first trials rarely try others" in str(rank.because)


def test_rslora_counts_the_root_of_the_rank(llama: Path) -> None:
    scaled = {"rank": 16, "alpha": 8, "kind": "rslora"}
    assert prior_of(make(llama, {"lr": RATE}, adapter=scaled)).near == pytest.approx(
        prior_of(make(llama, {"lr": RATE}, adapter={"rank": 16, "alpha": 32})).near
    )


def test_the_law_says_nothing_about_new_weights(llama: Path) -> None:
    def prior(training: dict[str, Any], **options: Any) -> Prior:
        return prior_of(
            Experiment(
                model={"name": "hf", "path": str(llama), **options},
                data={"name": "conversations", "path": "train.jsonl"},
                objectives=[{"metric": "val_loss", "goal": "minimize"}],
                search={"lr": RATE},
                training={"optimizer": "adamw", **training},
            )
        )

    assert "a tenth of the rate" in str(prior({}).because)
    assert prior({}, from_scratch=True).near == 1e-3
    pretraining = prior({"tokens": "20B"}, from_scratch=True)
    # Step Law: 1.79 N^-0.713 D^0.307.
    assert pretraining.near == pytest.approx(1.79 * 1.2357e9**-0.713 * 2e10**0.307, rel=1e-3)
    assert "Step Law" in str(pretraining.because)


def test_alpha_is_twice_the_rank_by_default(llama: Path) -> None:
    default = prior_of(make(llama, {"lr": RATE}, adapter={"rank": 64}))
    assert default == prior_of(make(llama, {"lr": RATE}, adapter={"rank": 64, "alpha": 128}))
    assert default.near == pytest.approx(rate_at(read_known_model(llama).best([64]), 128.0)[0])


def test_a_full_training_begins_at_a_tenth_of_the_rate(llama: Path) -> None:
    full = prior_of(make(llama, {"lr": RATE}))
    adapted = prior_of(make(llama, {"lr": RATE}, adapter={"rank": 8, "alpha": 32}))
    assert isinstance(adapted.near, float)
    assert full.near == pytest.approx(adapted.near / 10)


@pytest.mark.parametrize(("optimizer", "rate"), [("sgd", 0.1), ("adam", 1e-3)])
def test_other_models_begin_at_the_usual_rate_of_their_optimizer(
    optimizer: str, rate: float
) -> None:
    experiment = with_auto_priors(make(None, {"lr": RATE}, optimizer=optimizer))
    assert prior_of(make(None, {"lr": RATE}, optimizer=optimizer)).near == rate
    (line,) = describe_priors(experiment)
    assert f"the usual rate of {optimizer}" in line
    assert "within a factor of 3" in line


def test_a_prior_is_a_value_of_its_domain(llama: Path) -> None:
    narrow = {"lr": {"choices": [1e-5, 2e-5], "prior": "auto"}}
    assert prior_of(make(llama, narrow, adapter={"rank": 8})).near == 2e-5
    low = {"lr": {"low": 1e-6, "high": 1e-5, "log": True, "prior": "auto"}}
    assert prior_of(make(llama, low, adapter={"rank": 8})).near == 1e-5
    powers = {"adapter.rank": {"low": 4, "high": 100, "step": 32, "prior": "auto"}}
    assert prior_of(make(llama, powers), "adapter.rank").near == 100


@pytest.mark.parametrize(
    ("search", "training", "message"),
    [
        ({"dropout": {"low": 0.0, "high": 0.5, "prior": "auto"}}, {}, "auto for lr and adapter"),
        ({"lr": RATE}, {"optimizer": "sgd"}, "known for Adam, not for sgd"),
        (
            {"lr": RATE, "adapter.alpha": {"choices": [8, 32]}},
            {},
            "the best rate depends on alpha",
        ),
        (
            {"lr": RATE, "adapter": {"choices": [None, {"rank": 8}]}},
            {},
            "trials without an adapter need another rate",
        ),
    ],
)
def test_what_no_rule_covers_is_refused(
    llama: Path, search: dict[str, Any], training: dict[str, Any], message: str
) -> None:
    with pytest.raises(ExperimentError, match=message) as caught:
        with_auto_priors(make(llama, search, **training))
    assert "prior" in str(caught.value)


def test_adapters_of_other_models_are_refused_and_so_is_an_undecided_prior() -> None:
    with pytest.raises(ExperimentError, match="only known for language models"):
        with_auto_priors(make(None, {"adapter.rank": RANK}))
    with pytest.raises(ExperimentError, match="decided when a run is created"):
        Study(make(None, {"lr": RATE})).ask()


def test_trials_that_contradict_the_law_are_believed(llama: Path) -> None:
    search = {"lr": RATE, "dropout": {"low": 0.0, "high": 0.5}}
    experiment = with_auto_priors(make(llama, search, adapter={"rank": 16, "alpha": 32}))
    near = prior_of(experiment).near
    assert isinstance(near, float)
    study, tried = Study(experiment.replace(budget={"trials": 40})), []
    for _ in range(25):
        proposal = study.ask()
        assert proposal is not None
        rate = float(str(proposal.params["lr"]))
        tried.append(rate)
        loss = math.log10(rate / (100 * near)) ** 2 + float(str(proposal.params["dropout"]))
        ended = TrialEnded(
            trial=proposal.trial, attempt=0, state="complete", step=1, values={"val_loss": loss}
        )
        study.tell(proposal.trial, ended)
    assert tried[0] == pytest.approx(near)
    assert abs(math.log10(tried[-1] / (100 * near))) < 0.5


def test_a_decided_prior_is_written_and_read_again(llama: Path) -> None:
    experiment = with_auto_priors(
        make(llama, {"lr": RATE, "adapter.rank": RANK}, adapter={"alpha": 32})
    )
    assert Experiment.from_yaml(experiment.to_yaml()) == experiment
    assert with_auto_priors(experiment) is experiment
    assert len(describe_priors(experiment)) == 2
