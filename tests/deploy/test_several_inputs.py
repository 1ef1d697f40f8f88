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
from workbench.deploy.predict_script import value_at
from workbench.deploy.predictor import Predictor
from workbench.deploy.serving.client_rows import RowReader, RowsError, feeds_of_rows
from workbench.foundation.errors import DataError, RunError
from workbench.models.model_calls import named_tensors, needed_inputs
from workbench.training.loaders import as_tensors

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


class Sides(nn.Module):
    """Takes a mapping and a tuple of arrays, by keyword only, and returns a dict of tuples."""

    def __init__(self) -> None:
        super().__init__()
        self.left, self.right, self.size = nn.Linear(4, 2), nn.Linear(4, 2), nn.Linear(3, 2)

    def forward(
        self,
        *,
        image: dict[str, Tensor],
        sizes: tuple[Tensor, Tensor],
        mask: Tensor | None = None,
    ) -> dict[str, tuple[Tensor, ...]]:
        left = image["left"] if mask is None else image["left"] * mask
        scores = self.left(left) + 2 * self.right(image["right"])
        first, second = sizes
        return {"heads": (scores + self.size(first) - 3 * self.size(second), scores)}


class InTuples(Sides):
    """Takes the same by position."""

    def forward(self, image: Any, sizes: Any) -> Any:  # type: ignore[override]
        return super().forward(image={"left": image[0], "right": image[1]}, sizes=sizes)


def sides(config: dict[str, Any]) -> nn.Module:
    return Sides()


def in_tuples(config: dict[str, Any]) -> nn.Module:
    return InTuples()


def nested(options: dict[str, Any]) -> Any:
    random = np.random.default_rng(0)
    samples = [
        {
            "image": {"right": random.normal(size=4), "left": random.normal(size=4)},
            "sizes": (random.normal(size=3), random.normal(size=3)),
            "labels": row % 2,
        }
        for row in range(60)
    ]
    return samples[:40], samples[40:]


def nested_tuples(options: dict[str, Any]) -> Any:
    return tuple(
        [
            ((row["image"]["left"], row["image"]["right"]), row["sizes"], row["labels"])
            for row in part
        ]
        for part in nested({})
    )


def plain(batch: Any, row: int) -> Any:
    """Return a sample of a batch as JSON holds it."""
    if isinstance(batch, dict):
        return {name: plain(part, row) for name, part in batch.items()}
    if isinstance(batch, tuple):
        return [plain(part, row) for part in batch]
    return batch[row].tolist()


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


@pytest.mark.slow
@pytest.mark.parametrize(
    ("model", "data", "names"),
    [
        ("sides", "nested", ["image.right", "image.left", "sizes.0", "sizes.1"]),
        ("in_tuples", "nested_tuples", [f"inputs_{n}.{m}" for n in (0, 1) for m in (0, 1)]),
    ],
)
def test_nested_samples_are_taken_as_in_training_and_flat(
    tmp_path: Path, model: str, data: str, names: list[str]
) -> None:
    given = {"name": f"{HERE}:{data}", "task": "classification", "num_outputs": 2}
    made, loaded, card = exported(tmp_path / "bundle", f"{HERE}:{model}", given)
    assert [taken.name for taken in card.inputs] == names
    # Another number of samples than those that the export compared.
    batch = loaded.validation.batch(np.arange(11))[0]
    tensors = as_tensors(batch)
    with torch.inference_mode():
        if model == "sides":
            scores = made(image=tensors["image"], sizes=tensors["sizes"])["heads"][0]
        else:
            scores = made(*tensors)["heads"][0]
    known = scores.softmax(-1).numpy()
    predictor = Predictor.open(tmp_path / "bundle", threads=1)
    whole = batch if isinstance(batch, dict) else {f"inputs_{n}": batch[n] for n in (0, 1)}
    flat: dict[str, Any] = {name: value_at(whole, name) for name in names}
    inputs = {name: part for name, part in whole.items() if name != "labels"}
    rows = [plain(inputs, row) for row in range(11)]
    np.savez(tmp_path / "rows.npz", **flat)  # type: ignore[arg-type]
    (tmp_path / "rows").mkdir()
    for name, values in flat.items():
        np.save(tmp_path / "rows" / f"{name}.npy", values)
    (tmp_path / "rows.jsonl").write_text("\n".join(map(json.dumps, rows)))
    files = [tmp_path / name for name in ("rows.npz", "rows", "rows.jsonl")]
    for form in (whole, flat, rows, *files):
        answers = answers_for(predictor, form)
        assert answers.probabilities == pytest.approx(known, abs=1e-5)
    read = RowReader(predictor.card).read(rows)
    served = predictor.compute(feeds_of_rows(predictor.card, read))
    assert served.probabilities == pytest.approx(known, abs=1e-5)
    for file in files[1:]:
        printed = subprocess.run(
            [sys.executable, str(tmp_path / "bundle" / "predict.py"), str(file)],
            capture_output=True,
            text=True,
            check=True,
        ).stdout.splitlines()
        shares = [list(map(float, line.split(",")[1:])) for line in printed[1:]]
        assert np.array(shares) == pytest.approx(known, abs=1e-5)
    del rows[0][names[0].partition(".")[0]]
    with pytest.raises(DataError):
        answers_for(predictor, rows)
    with pytest.raises(RowsError) as refused:
        RowReader(predictor.card).read(rows)
    assert refused.value.problems[0].column == names[0]


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
    # As many numbers in another order are no samples of this model either.
    np.savez(tmp_path / "rows.npz", a=np.zeros((2, 2, 2)), b=np.zeros((2, 3)))
    with pytest.raises(DataError, match=r"'a' has samples of shape \(2, 2\).*Pad or cut"):
        answers_for(predictor, tmp_path / "rows.npz")
    script = [sys.executable, str(tmp_path / "bundle" / "predict.py"), str(tmp_path / "rows.npz")]
    refused = subprocess.run(script, capture_output=True, text=True, check=False)
    assert refused.returncode == 2
    assert "have shape [2, 2], but the model takes [4]. Pad or cut them" in refused.stderr


def test_targets_that_change_an_answer_are_still_needed() -> None:
    class Shifted(nn.Module):
        def forward(self, a: Tensor, labels: Tensor) -> Tensor:
            return a + labels

    batch = {"a": torch.ones(2, 1), "labels": torch.ones(2, 1), "id": torch.ones(2)}
    assert set(needed_inputs(Shifted(), batch, ("labels",))) == {"a", "labels"}
    assert needed_inputs(nn.Identity(), batch["a"], ("labels",)) is batch["a"]


def counted(options: dict[str, Any]) -> Any:
    """Samples whose batches have a number that all samples share."""

    def gather(samples: list[dict[str, Any]]) -> dict[str, Tensor]:
        batch = torch.utils.data.default_collate(samples)
        return {**batch, "b": torch.tensor(len(samples))}

    return tuple(
        torch.utils.data.DataLoader(part, batch_size=4, collate_fn=gather) for part in pairs({})
    )


def test_a_number_of_the_whole_batch_is_refused_with_what_to_do(tmp_path: Path) -> None:
    given = {"name": f"{HERE}:counted", "task": "classification", "num_outputs": 2}
    with pytest.raises(RunError, match=r"'b' of 40 samples has shape \(\)") as refused:
        exported(tmp_path / "bundle", f"{HERE}:pair", given)
    assert "the sample first" in str(refused.value.next_step)


def test_tensors_have_the_names_of_their_places() -> None:
    tensor = torch.ones(2)
    batch = {"a": tensor, "b": {"c": (tensor, None)}, "mask": None}
    assert list(named_tensors(batch)) == ["a", "b.c.0"]
    with pytest.raises(ValueError, match=r"'b\.texts' is of type list"):
        named_tensors({"b": {"texts": ["x"]}})
    with pytest.raises(ValueError, match=r"two inputs have the name 'b\.c'"):
        named_tensors({"b.c": tensor, "b": {"c": tensor}})
