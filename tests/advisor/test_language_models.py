from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from workbench.advisor.fine_tuning_costs import nearest_that_fits, shipped_law
from workbench.advisor.language_models import predict_memory, read_language_model
from workbench.experiment import Experiment
from workbench.foundation.errors import DataError


def llama_like(hidden: int, layers: int, heads: int, kv_heads: int, width: int) -> dict[str, Any]:
    return {
        "model_type": "llama",
        "hidden_size": hidden,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "intermediate_size": width,
    }


# The sizes and the numbers of parameters are those of the model cards.
MODELS = {
    "Llama-3.2-1B": (
        {**llama_like(2048, 16, 32, 8, 8192), "vocab_size": 128_256, "tie_word_embeddings": True},
        1.236e9,
    ),
    "Mistral-7B": (
        {**llama_like(4096, 32, 32, 8, 14336), "vocab_size": 32_000, "tie_word_embeddings": False},
        7.242e9,
    ),
    "Qwen2.5-0.5B": (
        {**llama_like(896, 24, 14, 2, 4864), "vocab_size": 151_936, "tie_word_embeddings": True},
        0.494e9,
    ),
    "Gemma-2-9B, in a model with images": (
        {
            "model_type": "other",
            "text_config": {
                **llama_like(3584, 42, 16, 8, 14336),
                "head_dim": 256,
                "vocab_size": 256_000,
            },
        },
        9.242e9,
    ),
    "GPT-2": (
        {
            "model_type": "gpt2",
            "n_embd": 768,
            "n_layer": 12,
            "n_head": 12,
            "n_positions": 1024,
            "vocab_size": 50_257,
        },
        0.1244e9,
    ),
    "Phi-2": (
        {
            **llama_like(2560, 32, 32, 32, 10_240),
            "model_type": "phi",
            "vocab_size": 51_200,
            "tie_word_embeddings": False,
        },
        2.78e9,
    ),
    "Mixtral-8x7B": (
        {
            **llama_like(4096, 32, 32, 8, 14336),
            "num_local_experts": 8,
            "vocab_size": 32_000,
            "tie_word_embeddings": False,
        },
        46.7e9,
    ),
}


@pytest.mark.parametrize("name", MODELS)
def test_parameters_are_counted_from_the_configuration_alone(tmp_path: Path, name: str) -> None:
    config, num_parameters = MODELS[name]
    (tmp_path / "config.json").write_text(json.dumps(config))
    plan = read_language_model(tmp_path)
    assert plan.parameters_b == pytest.approx(num_parameters / 1e9, rel=0.005)
    assert read_language_model(tmp_path / "config.json") == plan


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ('{"model_type": "vit", "hidden_size": 768}', "has no num_hidden_layers"),
        ('{"num_hidden_layers": 2}', "has no hidden_size"),
        ('{"hidden_size": true, "num_hidden_layers": 2}', "hidden_size: True in .* is not a size"),
        ('{"n_embd": "big", "n_layer": 2}', "n_embd: 'big' in .* is not a size"),
        ("[1]", "contains no configuration of a model"),
        ("{", "cannot be read"),
    ],
)
def test_what_describes_no_language_model_is_an_error(
    tmp_path: Path, text: str, problem: str
) -> None:
    (tmp_path / "config.json").write_text(text)
    with pytest.raises(DataError, match=problem):
        read_language_model(tmp_path)


def test_a_folder_without_a_configuration_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"config\.json cannot be read") as caught:
        read_language_model(tmp_path)
    assert "Give the folder of a model of transformers" in str(caught.value)


def test_the_nearest_plan_changes_as_little_as_possible(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(MODELS["Llama-3.2-1B"][0]))
    law = shipped_law()
    plan = replace(
        read_language_model(tmp_path),
        method="lora",
        adapted="all-linear",
        rank=16,
        sequence=2048,
        micro_batch=4,
        recompute=False,
    )
    (prediction,) = law.predict([plan])
    generous = replace(plan, gpu_memory_gb=1.1 * prediction.memory_gb)
    assert nearest_that_fits(generous, law) == generous
    tight = replace(plan, gpu_memory_gb=0.9 * prediction.memory_gb)
    near = nearest_that_fits(tight, law)
    assert near == replace(tight, recompute=True)
    small = replace(plan, gpu_memory_gb=0.3 * prediction.memory_gb)
    near = nearest_that_fits(small, law)
    assert near is not None
    assert (near.method, near.sequence) == ("lora", 2048)
    assert near.micro_batch in (1, 2)
    assert nearest_that_fits(replace(plan, gpu_memory_gb=0.1), law) is None


def test_the_memory_of_a_trial_is_that_of_its_own_way_to_train(tmp_path: Path) -> None:
    config, _ = MODELS["Llama-3.2-1B"]
    (tmp_path / "config.json").write_text(json.dumps(config))
    experiment = Experiment(
        model={"name": "hf", "path": str(tmp_path)},
        data={"name": "conversations", "path": "train.jsonl", "sequence": 2048},
        objectives=[{"metric": "val_loss", "goal": "minimize"}],
        search={"adapter.rank": {"choices": [8, 256]}},
        training={"adapter": {"alpha": 32}, "base_weights": "bf16", "tokens": 1_000_000},
    )
    plan = {"micro_batch": 4, "recompute": "none", "workers": 1, "strategy": "single"}
    peak = predict_memory(experiment, {"adapter.rank": 8}, plan)
    assert peak is not None
    assert peak.low_gb < peak.gb < peak.high_gb
    # A driver works in another folder than the one in which its run was started.
    in_folder = {"name": "hf", "path": f"./{tmp_path.name}"}
    relative = Experiment.model_validate({**experiment.model_dump(), "model": in_folder})
    assert predict_memory(relative, {"adapter.rank": 8}, plan, here=tmp_path.parent) == peak
    assert predict_memory(relative, {"adapter.rank": 8}, plan, here=tmp_path) is None
    as_asked = replace(
        read_language_model(tmp_path),
        **{"rank": 8, "adapted": "all-linear", "weights": "bf16", "sequence": 2048},
        micro_batch=4,
    )
    [whole_scores] = shipped_law().predict([as_asked])
    # The scores of 8,192 tokens never exist as a whole.
    assert 2.47 < peak.gb < whole_scores.memory_gb
    others = [
        ({"adapter.rank": 256}, {}, True),
        ({"adapter.rank": 8}, {"recompute": "all"}, False),
        ({"adapter.rank": 8}, {"micro_batch": 1}, False),
    ]
    for params, changes, is_larger in others:
        other = predict_memory(experiment, params, plan | changes)
        assert other is not None
        assert (other.gb > peak.gb) is is_larger
    full = experiment.model_copy(
        update={
            "training": experiment.training.model_copy(
                update={"adapter": None, "base_weights": "fp32"}
            )
        }
    )
    all_weights = predict_memory(full, {}, plan)
    assert all_weights is not None
    assert all_weights.gb > 4 * 1.236 + peak.gb - 2 * 1.236


def test_nothing_is_predicted_without_the_folder_of_a_language_model(tmp_path: Path) -> None:
    objectives = [{"metric": "val_loss", "goal": "minimize"}]
    plan = {"micro_batch": 4}
    other = Experiment(model="mlp", data="digits", objectives=objectives)
    assert predict_memory(other, {}, plan) is None
    absent = Experiment(
        model={"name": "hf", "path": str(tmp_path / "absent")},
        data={"name": "conversations", "path": "train.jsonl"},
        objectives=objectives,
    )
    assert predict_memory(absent, {}, plan) is None
