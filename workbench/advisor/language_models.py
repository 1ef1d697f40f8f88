"""Reads the sizes of a language model from its `config.json`, and predicts a trial's memory.

No weights are opened.

Source: the configurations of transformers. Older models call the same sizes by other names.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import JsonValue

from workbench.advisor.fine_tuning_costs import FineTuningPlan, shipped_law
from workbench.experiment import Experiment, Training
from workbench.foundation.errors import DataError, WorkbenchError
from workbench.foundation.events import PredictedMemory
from workbench.foundation.model_config import max_positions, read_model_config
from workbench.hardware.performance.memory import SCORES_AT_ONCE
from workbench.training.planning.settings import searched_training

_NAMES = {
    "hidden": ("hidden_size", "n_embd", "d_model"),
    "layers": ("num_hidden_layers", "n_layer", "num_layers", "n_layers"),
    "heads": ("num_attention_heads", "n_head", "n_heads"),
    "kv_heads": ("num_key_value_heads", "num_kv_heads"),
    "feed_forward": ("intermediate_size", "n_inner", "ffn_dim", "ffn_hidden_size", "d_ff"),
    "vocabulary": ("vocab_size",),
}
_NEEDED = ("hidden", "layers", "heads", "vocabulary")
# Models with two matrices in a feed-forward layer. All others have a gate.
_WITHOUT_GATE = frozenset(
    ("gpt2", "gpt_neo", "gpt_neox", "gptj", "falcon", "phi", "opt", "bloom", "mpt", "starcoder2")
)


def read_language_model(folder: Path) -> FineTuningPlan:
    """Read a model's sizes and count its parameters.

    Args:
        folder: The folder of a model of transformers, or its `config.json`.

    Returns:
        A plan with the sizes of the model. The rest is not known.

    Raises:
        DataError: If there is no `config.json`, or it lacks a size.
    """
    path = folder / "config.json" if folder.is_dir() else folder
    config = read_model_config(path)
    sizes: dict[str, Any] = {}
    for name, keys in _NAMES.items():
        sizes[name] = next((config[key] for key in keys if config.get(key) is not None), None)
    lacking = [name for name in _NEEDED if not _is_size(sizes[name])]
    if lacking:
        given = sizes[lacking[0]]
        if given is not None:
            raise DataError(
                f"{given!r} in {path} is not a size",
                field=next(key for key in _NAMES[lacking[0]] if config.get(key) is not None),
                allowed="a whole number above 0",
            )
        raise DataError(
            f"{path} has no {_NAMES[lacking[0]][0]}, so it does not describe a language model",
            field=_NAMES[lacking[0]][0],
            next_step="Give the folder of a model of transformers, or use --points.",
        )
    hidden = int(sizes["hidden"])
    if not _is_size(sizes["feed_forward"]):
        sizes["feed_forward"] = 4 * hidden
    if config.get("multi_query"):
        sizes["kv_heads"] = sizes["kv_heads"] or 1
    if not _is_size(sizes["kv_heads"]):
        sizes["kv_heads"] = sizes["heads"]
    is_tied = bool(config.get("tie_word_embeddings", True))
    parameters = _num_parameters(config, {name: int(size) for name, size in sizes.items()}, is_tied)
    return FineTuningPlan(
        parameters_b=parameters / 1e9,
        tied=is_tied,
        hidden=sizes["hidden"],
        layers=sizes["layers"],
        heads=sizes["heads"],
        kv_heads=sizes["kv_heads"],
        feed_forward=sizes["feed_forward"],
        vocabulary=sizes["vocabulary"],
    )


def predict_memory(
    experiment: Experiment,
    params: Mapping[str, JsonValue],
    plan: Mapping[str, Any],
    *,
    here: Path | None = None,
) -> PredictedMemory | None:
    """Predict the peak GPU memory of a trial, by the same law as `what-if fine-tuning`.

    Args:
        experiment: The experiment.
        params: The configuration of the trial.
        plan: The plan of the trial, as `TrialPlanned` holds it.
        here: Where relative paths start, or None for the working directory.

    Returns:
        The prediction, or None if the trial trains no language model in a folder whose
        `config.json` can be read here.
    """
    model = experiment.model
    data = experiment.data
    if model is None or model.name != "hf" or not model.options.get("path"):
        return None
    if data is None or data.name in ("labelled_text", "text_pairs"):  # no scores of tokens
        return None
    try:
        folder = Path(str(model.options["path"])).expanduser()
        sizes = read_language_model((here or Path()) / folder)
        training = searched_training(experiment, params)
    except WorkbenchError:  # the training itself says what is wrong
        return None
    is_divided = plan.get("strategy") == "fsdp"
    micro_batch = plan.get("micro_batch")
    if micro_batch is not None and data.name == "preferences":
        micro_batch *= 2  # both answers of a pair are read at once
    written = dataclasses.replace(
        sizes,
        **_way_of(training),
        weights=training.base_weights,
        optimizer=training.optimizer,
        recompute=plan.get("recompute", "none") != "none",
        sequence=data.options.get("sequence"),
        micro_batch=micro_batch,
        gpus=plan.get("workers") if is_divided else None,
        scores_at_once=float(SCORES_AT_ONCE),
    )
    [predicted] = shipped_law().predict([written])
    return PredictedMemory(
        gb=predicted.memory_gb, low_gb=predicted.low_gb, high_gb=predicted.high_gb
    )


def _way_of(training: Training) -> dict[str, Any]:
    """Return what is trained, in the words of a plan for a fine-tuning."""
    adapter = training.adapter
    if adapter is None:
        return {"method": "full"}
    targets = adapter.targets
    adapted = "all-linear" if isinstance(targets, str) else "+".join(targets)
    is_quantised = training.base_weights == "nf4"
    return {
        "method": "qlora" if is_quantised else "lora",
        "dora": adapter.kind == "dora",
        "rank": adapter.rank,
        "adapted": adapted,
    }


def _is_size(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value > 0


def _num_parameters(config: Mapping[str, Any], sizes: Mapping[str, int], is_tied: bool) -> int:
    """Count the parameters of all matrices and embeddings. Norms and biases are negligible."""
    hidden, heads = sizes["hidden"], sizes["heads"]
    head_width = config.get("head_dim") or hidden // heads
    attention = hidden * head_width * 2 * (heads + sizes["kv_heads"])
    num_matrices = 2 if config.get("model_type") in _WITHOUT_GATE else 3
    num_experts = config.get("num_local_experts") or config.get("num_experts") or 0
    if num_experts:
        width = config.get("moe_intermediate_size") or sizes["feed_forward"]
        shared = config.get("shared_expert_intermediate_size") or 0
        feed_forward = num_matrices * hidden * (num_experts * width + shared) + hidden * num_experts
    else:
        feed_forward = num_matrices * hidden * sizes["feed_forward"]
    embedded = sizes["vocabulary"] * hidden * (1 if is_tied else 2)
    positions = 0
    if config.get("model_type") in ("gpt2", "opt", "gpt_neo"):
        positions = hidden * (max_positions(config) or 0)
    return sizes["layers"] * (attention + feed_forward) + embedded + positions
