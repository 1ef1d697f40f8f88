"""Models of several named or positional inputs leave training as ONNX."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from tests.deploy.trained import exported
from workbench.deploy.image_files import answers_for
from workbench.deploy.predictor import Predictor
from workbench.deploy.serving.rows import RowReader, feeds_of_rows
from workbench.foundation.errors import DataError
from workbench.models.calls import needed_inputs

HERE = "tests.deploy.test_several_inputs"


@dataclass
class Answer:
    """As models of transformers answer."""

    hidden: tuple[Tensor, ...]
    logits: Tensor


class Tagger(nn.Module):
    """Takes tokens and, if it is given one, a mask of those that count."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.out = nn.Embedding(12, 8), nn.Linear(8, 2)

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor | None = None, labels: Tensor | None = None
    ) -> Answer:
        hidden = self.embedding(input_ids)
        if attention_mask is not None:
            hidden = hidden * torch.where(attention_mask, 1.0, 0.0).unsqueeze(-1)
        return Answer((hidden,), self.out(hidden.mean(dim=1)))


class Pair(nn.Module):
    """Takes two arrays."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(4, 2), nn.Linear(3, 2)

    def forward(self, a: Tensor, b: Tensor) -> dict[str, Tensor]:
        return {"logits": self.first(a) + self.second(b)}


class Whole(Pair):
    """Takes the mapping."""

    def forward(self, batch: dict[str, Tensor]) -> dict[str, Tensor]:  # type: ignore[override]
        return super().forward(batch["a"], batch["b"])


def tagger(config: dict[str, Any]) -> nn.Module:
    return Tagger()


def pair(config: dict[str, Any]) -> nn.Module:
    return Pair()


def whole(config: dict[str, Any]) -> nn.Module:
    return Whole()


def tags(options: dict[str, Any]) -> Any:
    random = np.random.default_rng(0)
    samples = [
        {
            "input_ids": random.integers(1, 12, 8),
            "attention_mask": random.random(8) > 0.3,
            "number": row,
            "labels": row % 2,
        }
        for row in range(60)
    ]
    return samples[:40], samples[40:]


def pairs(options: dict[str, Any]) -> Any:
    random = np.random.default_rng(0)
    samples = [
        {"a": random.normal(size=4), "b": random.normal(size=3), "labels": row % 2}
        for row in range(60)
    ]
    return samples[:40], samples[40:]


def tuples(options: dict[str, Any]) -> Any:
    return tuple(
        [(sample["a"], sample["b"], sample["labels"]) for sample in part] for part in pairs({})
    )


@pytest.mark.parametrize(
    ("model", "data", "names"),
    [
        ("tagger", "tags", ["input_ids", "attention_mask"]),
        ("pair", "pairs", ["a", "b"]),
        ("pair", "tuples", ["inputs_0", "inputs_1"]),
        ("whole", "pairs", ["a", "b"]),
    ],
)
def test_a_model_of_several_inputs_takes_samples_in_every_form(
    tmp_path: Path, model: str, data: str, names: list[str]
) -> None:
    given = {"name": f"{HERE}:{data}", "task": "classification", "num_outputs": 2}
    made, loaded, card = exported(tmp_path / "bundle", f"{HERE}:{model}", given)
    # Neither the target nor what `forward` does not take is an input.
    assert [taken.name for taken in card.inputs] == names
    batch = loaded.train.batch(np.arange(5))[0]
    arrays = {
        name: np.asarray(batch[name] if isinstance(batch, dict) else batch[place])
        for place, name in enumerate(names)
    }
    tensors = {name: torch.from_numpy(values) for name, values in arrays.items()}
    with torch.inference_mode():
        if model == "tagger":
            known = made(**tensors).logits
        elif model == "whole":
            known = made(tensors)["logits"]
        else:
            known = made(*tensors.values())["logits"]
    predictor = Predictor.open(tmp_path / "bundle", threads=1)
    np.savez(tmp_path / "rows.npz", **arrays)  # type: ignore[arg-type]
    (tmp_path / "rows").mkdir()
    for name, values in arrays.items():
        np.save(tmp_path / "rows" / f"{name}.npy", values)
    rows = [
        {name: np.asarray(values[row], dtype=float).tolist() for name, values in arrays.items()}
        for row in range(5)
    ]
    (tmp_path / "rows.jsonl").write_text("\n".join(map(json.dumps, rows)))
    forms = (arrays, rows, tmp_path / "rows.npz", tmp_path / "rows", tmp_path / "rows.jsonl")
    for form in forms:
        answers = answers_for(predictor, form)
        assert answers.probabilities == pytest.approx(known.softmax(-1).numpy(), abs=1e-5)
    read = RowReader(predictor.card).read(rows)
    served = predictor.compute(feeds_of_rows(predictor.card, read))
    assert served.probabilities == pytest.approx(known.softmax(-1).numpy(), abs=1e-5)
    scripts = [
        subprocess.run(
            [sys.executable, str(tmp_path / "bundle" / "predict.py"), str(tmp_path / path)],
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for path in ("rows.npz", "rows")
    ]
    assert scripts[0] == scripts[1]
    assert len(scripts[0].splitlines()) == 6


def test_a_folder_without_an_input_names_the_file_that_it_needs(tmp_path: Path) -> None:
    given = {"name": f"{HERE}:pairs", "task": "classification", "num_outputs": 2}
    exported(tmp_path / "bundle", f"{HERE}:pair", given)
    predictor = Predictor.open(tmp_path / "bundle", threads=1)
    np.save(tmp_path / "a.npy", np.zeros((2, 4)))
    with pytest.raises(DataError, match=r"has no b\.npy"):
        answers_for(predictor, tmp_path)
    np.savez(tmp_path / "rows.npz", b=np.zeros((2, 3)))
    with pytest.raises(DataError, match=r"has no array 'a'"):
        answers_for(predictor, tmp_path / "rows.npz")


def test_targets_that_change_an_answer_are_still_needed() -> None:
    class Shifted(nn.Module):
        def forward(self, a: Tensor, labels: Tensor) -> Tensor:
            return a + labels

    batch = {"a": torch.ones(2, 1), "labels": torch.ones(2, 1), "id": torch.ones(2)}
    assert set(needed_inputs(Shifted(), batch, ("labels",))) == {"a", "labels"}
    assert needed_inputs(nn.Identity(), batch["a"], ("labels",)) is batch["a"]
