from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.builders.language_models import OPTIONS, conversations, write_lines, write_model
from workbench.data.conversations import ConversationsOptions
from workbench.foundation.errors import ExperimentError
from workbench.models import folder_models
from workbench.models.adapters import build_model
from workbench.models.folder_models import LanguageModel
from workbench.models.model_calls import TokenLosses, call_model


def loaded(folder: Path) -> LanguageModel:
    model = LanguageModel(folder, runs_code=False, attention="auto")
    model.load()
    return model.eval()


def split(folder: Path, **given: Any) -> Any:
    path = write_lines(folder / "a.jsonl", conversations(12))
    options = ConversationsOptions(path=path, tokenizer=folder, sequence=128, **given)
    return options.load(seed=0, cache=folder).train


def all_rows(split: Any) -> dict[str, torch.Tensor]:
    inputs, _ = split.batch(np.arange(len(split)))
    return {name: torch.from_numpy(part) for name, part in inputs.items()}


# Gemma and Mistral see only their last 8 tokens in some layers.
@pytest.mark.parametrize(
    "config",
    [
        config
        if config in ("LlamaConfig", "Gemma2Config")
        else pytest.param(config, marks=pytest.mark.slow)
        for config in OPTIONS
    ],
)
def test_losses_are_those_of_transformers_for_each_conversation_alone(config, tmp_path):
    plain = write_model(tmp_path, config)
    model = loaded(tmp_path)
    rows = split(tmp_path)
    total, num = 0.0, 0
    for row in range(len(rows)):
        [(ids, is_counted)] = rows.documents(row)
        tokens = torch.tensor(ids, dtype=torch.int64)[None]
        labels = torch.where(torch.tensor(is_counted)[None], tokens, -100)
        count = int((labels[:, 1:] != -100).sum())
        with torch.no_grad():
            total += float(plain(input_ids=tokens, labels=labels).loss) * count
        num += count
    for packing in (False, True):
        with torch.no_grad():
            measured = call_model(model, all_rows(split(tmp_path, packing=packing)))
        assert isinstance(measured, TokenLosses)
        assert int(measured.num) == num
        assert float(measured.total / measured.num) == pytest.approx(total / num, abs=1e-5)


# OPT and Bloom derive positions from a mask. Mamba reads a row from its beginning to its end.
@pytest.mark.parametrize(
    ("config", "options", "can_be_packed"),
    [
        ("LlamaConfig", {}, True),
        ("MistralConfig", {"max_position_embeddings": 6}, True),
        ("GPT2Config", {"n_positions": 512}, True),
        ("OPTConfig", {"ffn_dim": 64, "word_embed_proj_dim": 32}, False),
        ("BloomConfig", {"n_head": 4}, False),
        ("MambaConfig", {"state_size": 4}, False),
    ],
)
@pytest.mark.parametrize("stored", ["fp32", "bf16"])
def test_a_model_is_packed_only_if_documents_do_not_see_each_other(
    config, options, can_be_packed, stored, tmp_path
):
    plain = write_model(tmp_path, config, initializer_range=0.3, **options)
    second = torch.tensor([[7, 8, 9]])
    rows = torch.tensor([[30, 31, 32, 7, 8, 9], [40, 41, 42, 7, 8, 9]])
    with torch.no_grad():
        alone = plain(input_ids=second).logits
        positions = torch.tensor([[0, 1, 2] * 2] * 2)
        packed = plain(input_ids=rows, position_ids=positions, use_cache=False).logits
    assert torch.allclose(packed[:, 3:], alone.expand(2, -1, -1), atol=1e-3) is can_be_packed
    model = LanguageModel(tmp_path, runs_code=False, attention="auto")
    model.load(stored)
    if can_be_packed:
        model.check_packing()
        return
    with pytest.raises(ExperimentError, match="they see each other") as caught:
        model.check_packing()
    assert caught.value.field == "data.packing"
    assert caught.value.next_step == "Set packing: false."


def test_flash_attention_gets_all_rows_of_a_packed_batch_as_one(tmp_path, monkeypatch):
    write_model(tmp_path)
    model = loaded(tmp_path)
    inputs = all_rows(split(tmp_path, packing=True))
    assert len(inputs["labels"]) > 1
    with torch.no_grad():
        expected = model(**inputs), model(inputs["input_ids"], inputs["position_ids"]).logits
        # Without a GPU, the usual attention computes the same.
        way = property(lambda model: "flash_attention_2")
        monkeypatch.setattr(LanguageModel, "_attention", way)
        seen: list[tuple[int, ...]] = []
        model.inner.get_input_embeddings().register_forward_pre_hook(
            lambda _, given: seen.append(tuple(given[0].shape))
        )
        measured = model(**inputs), model(inputs["input_ids"], inputs["position_ids"]).logits
    assert {shape[0] for shape in seen} == {1}
    assert measured[0].total.item() == pytest.approx(expected[0].total.item(), rel=1e-5)
    torch.testing.assert_close(measured[1], expected[1], rtol=1e-4, atol=1e-4)


def test_scores_in_parts_give_the_same_loss_and_gradients(tmp_path, monkeypatch):
    write_model(tmp_path)
    model = loaded(tmp_path)
    inputs = all_rows(split(tmp_path, packing=True))
    whole = model(**inputs)
    whole.total.backward()
    expected = {name: item.grad.clone() for name, item in model.named_parameters()}
    model.zero_grad()
    monkeypatch.setattr(folder_models, "SCORES_AT_ONCE", 320 * 7)
    parts = model(**inputs)
    parts.total.backward()
    assert parts.total.item() == pytest.approx(whole.total.item(), rel=1e-6)
    assert (int(parts.num), int(parts.num_right)) == (int(whole.num), int(whole.num_right))
    for name, item in model.named_parameters():
        torch.testing.assert_close(item.grad, expected[name], rtol=1e-4, atol=1e-4)


def test_without_labels_it_returns_the_scores_of_transformers(tmp_path):
    plain = write_model(tmp_path, "Gemma2Config")
    tokens = torch.tensor([[3, 9, 4, 7]])
    with torch.no_grad():
        torch.testing.assert_close(loaded(tmp_path)(tokens).logits, plain(input_ids=tokens).logits)


def test_a_head_that_is_not_known_gives_all_scores(tmp_path, monkeypatch):
    write_model(tmp_path, "Gemma2Config")
    monkeypatch.setattr(
        folder_models._ScoreRules, "scores", lambda self, head, hidden: head(hidden) * 1.1
    )
    model = LanguageModel(tmp_path, runs_code=False, attention="auto")
    assert "keeps all scores at once" in model.load()
    inputs = all_rows(split(tmp_path))
    assert model(**inputs).logits.shape == (*inputs["labels"].shape, 320)


@pytest.mark.parametrize(
    ("length", "num_tokens", "field"),
    [(513, 320, "data.sequence"), (512, 321, "data.tokenizer")],
)
def test_rows_that_a_model_cannot_read_are_refused(length, num_tokens, field, tmp_path):
    write_model(tmp_path)
    given = {"name": "hf", "path": str(tmp_path)}
    shapes = {"num_outputs": num_tokens, "vocabulary_size": num_tokens}
    with pytest.raises(ExperimentError) as caught:
        build_model(given.pop("name"), given, input_shape=(length,), **shapes)
    assert caught.value.field == field


def _pickled(folder: Path) -> None:
    weights = loaded(folder).inner.state_dict()
    (folder / "model.safetensors").unlink()
    torch.save(weights, folder / "pytorch_model.bin")


def _with_code(folder: Path) -> None:
    (folder / "config.json").write_text(
        '{"auto_map": {"AutoConfig": "own.Own", "AutoModelForCausalLM": "own.Net"}}'
    )
    (folder / "own.py").write_text("raise SystemExit('ran')\n")


def _in_part(folder: Path) -> None:
    from safetensors.torch import load_file, save_file

    weights = load_file(folder / "model.safetensors")
    del weights["model.norm.weight"]
    save_file(weights, folder / "model.safetensors", {"format": "pt"})


@pytest.mark.parametrize(
    ("change", "problem", "field"),
    [
        (lambda folder: (folder / "config.json").unlink(), "has no config.json", "model.path"),
        (_pickled, "cannot read the model", "model.path"),
        (_with_code, "comes with its own code", "model.runs_code"),
        (_in_part, "lacks weights of the model: model.norm.weight", "model.path"),
    ],
    ids=["no model", "pickled", "code", "part"],
)
def test_a_folder_that_cannot_be_used_says_why(change, problem, field, tmp_path):
    write_model(tmp_path)
    change(tmp_path)
    with pytest.raises(ExperimentError, match=problem) as caught:
        loaded(tmp_path)
    assert caught.value.field == field
    assert caught.value.next_step
