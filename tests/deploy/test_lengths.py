"""Models whose samples have several lengths leave training with dimensions of any size."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader

from tests.deploy.trained import exported
from workbench.deploy.card import Input
from workbench.deploy.image_files import answers_for
from workbench.deploy.lengths import lengths_in, other_size, run_by_size
from workbench.deploy.predictor import Predictor
from workbench.deploy.rows import table_of
from workbench.deploy.serving.client_rows import (
    RowReader,
    RowsError,
    answers_as_json,
    feeds_of_rows,
)
from workbench.deploy.serving.openapi import row_schema
from workbench.foundation.errors import DataError

HERE = "tests.deploy.test_lengths"
SIZES = (3, 8, 5)


class Mean(nn.Module):
    """The class of a text is read from the mean of the tokens that its mask keeps."""

    def __init__(self, config: dict[str, Any]) -> None:
        super().__init__()
        self.embedding, self.out = nn.Embedding(12, 8), nn.Linear(8, 2)

    def forward(self, tokens: Tensor, mask: Tensor | None = None) -> dict[str, Tensor]:
        hidden = self.embedding(tokens)
        if mask is None:
            return {"logits": self.out(hidden.mean(dim=1))}
        kept = mask.unsqueeze(-1).float()
        return {"logits": self.out((hidden * kept).sum(dim=1) / kept.sum(dim=1))}


class Tags(nn.Module):
    """Each step of a series has a class."""

    def __init__(self, config: dict[str, Any]) -> None:
        super().__init__()
        self.memory = nn.GRU(2, 6, batch_first=True, bidirectional=True)
        self.out = nn.Linear(12, 3)

    def forward(self, series: Tensor) -> tuple[Tensor, Tensor]:
        steps, state = self.memory(series)
        return self.out(steps), state


class Whole(nn.Module):
    """Takes series of one length only."""

    def __init__(self, config: dict[str, Any]) -> None:
        super().__init__()
        self.out = nn.Linear(2 * max(SIZES), 3)

    def forward(self, series: Tensor) -> Tensor:
        missing = max(SIZES) - series.shape[1]
        if missing:
            raise ValueError("too short")
        return self.out(series.flatten(1))


def texts(options: dict[str, Any]) -> Any:
    draw = torch.Generator().manual_seed(0)
    samples = [
        {"tokens": torch.randint(1, 12, (SIZES[row % 3],), generator=draw), "labels": row % 2}
        for row in range(60)
    ]

    def padded(some: list[dict[str, Any]]) -> dict[str, Tensor]:
        tokens = pad_sequence([sample["tokens"] for sample in some], batch_first=True)
        return {
            "tokens": tokens,
            "mask": tokens > 0,
            "labels": torch.tensor([sample["labels"] for sample in some]),
        }

    return loaders(samples, padded)


def loaders(samples: Any, collate_fn: Any) -> Any:
    return tuple(DataLoader(part, collate_fn=collate_fn) for part in (samples[:40], samples[40:]))


def series(options: dict[str, Any]) -> Any:
    draw = torch.Generator().manual_seed(0)
    per_step = options["per_step"]
    samples = []
    for row in range(60):
        steps = torch.randn(SIZES[row % 3], 2, generator=draw)
        samples.append((steps, (steps[:, 0] > 0).long() if per_step else row % 3))

    def padded(some: list[tuple[Tensor, Any]]) -> tuple[Tensor, Tensor]:
        steps = pad_sequence([sample[0] for sample in some], batch_first=True)
        targets = [sample[1] for sample in some]
        if per_step:
            return steps, pad_sequence(targets, batch_first=True, padding_value=-100)
        return steps, torch.tensor(targets)

    return loaders(samples, padded)


def script_on(bundle: Path, rows: Path) -> list[str]:
    return subprocess.run(
        [sys.executable, str(bundle / "predict.py"), str(rows)],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.splitlines()


def test_texts_of_several_lengths_are_answered_alone_and_together(tmp_path: Path) -> None:
    given = {"name": f"{HERE}:texts", "task": "classification", "num_outputs": 2}
    made, _, card = exported(tmp_path / "bundle", f"{HERE}:Mean", given)
    assert [(taken.name, taken.lengths) for taken in card.inputs] == [
        ("tokens", ("length",)),
        ("mask", ("length",)),
    ]
    draw = np.random.default_rng(3)
    # 13 is longer than any text of the training.
    rows = [
        {"tokens": draw.integers(1, 12, size).tolist(), "mask": [1] * size}
        for size in (2, 13, 5, 2)
    ]
    with torch.inference_mode():
        known = torch.cat(
            [made(torch.tensor([row["tokens"]]))["logits"].softmax(-1) for row in rows]
        ).numpy()
    predictor = Predictor.open(tmp_path / "bundle", threads=1)
    (tmp_path / "rows.jsonl").write_text("\n".join(map(json.dumps, rows)))
    for form in (rows, tmp_path / "rows.jsonl"):
        answers = answers_for(predictor, form)
        assert answers.probabilities == pytest.approx(known, abs=1e-5)
    read = RowReader(predictor.card).read(rows)
    served = predictor.compute(feeds_of_rows(predictor.card, read))
    assert served.probabilities == pytest.approx(known, abs=1e-5)
    printed = script_on(tmp_path / "bundle", tmp_path / "rows.jsonl")
    shares = [list(map(float, line.split(",")[1:])) for line in printed[1:]]
    assert np.array(shares) == pytest.approx(known, abs=1e-5)
    # The mask of the training is true or false, and so may be those of a request.
    truths = [row | {"mask": [True] * len(row["mask"])} for row in rows]
    example = {taken.name: taken.example for taken in card.inputs}
    read = RowReader(predictor.card).read([example, *truths])[1:]
    served = predictor.compute(feeds_of_rows(predictor.card, read))
    assert served.probabilities == pytest.approx(known, abs=1e-5)
    schema = row_schema(predictor.card)["properties"]["tokens"]
    assert "minItems" not in schema


def test_sizes_that_must_be_equal_are_checked_at_each_door(tmp_path: Path) -> None:
    given = {"name": f"{HERE}:texts", "task": "classification", "num_outputs": 2}
    exported(tmp_path / "bundle", f"{HERE}:Mean", given)
    predictor = Predictor.open(tmp_path / "bundle", threads=1)
    rows: list[dict[str, Any]] = [
        {"tokens": [1, 2], "mask": [1, 1]},
        {"tokens": [1], "mask": [1, 1]},
    ]
    with pytest.raises(DataError, match=r"row 1.*'mask' has the length 2, but 'tokens' has 1"):
        answers_for(predictor, rows)
    with pytest.raises(RowsError) as refused:
        RowReader(predictor.card).read(rows)
    assert (refused.value.problems[0].row, refused.value.problems[0].column) == (1, "mask")
    with pytest.raises(DataError, match=r"shape \(0,\)"):
        answers_for(predictor, [{"tokens": [], "mask": []}])


def test_answers_for_each_step_are_as_long_as_their_sample(tmp_path: Path) -> None:
    data = {"name": f"{HERE}:series", "task": "classification", "num_outputs": 3, "per_step": True}
    made, _, card = exported(tmp_path / "bundle", f"{HERE}:Tags", data)
    assert card.inputs[0].lengths == ("length", "")
    assert card.outputs[0].lengths == ("length", "")
    draw = np.random.default_rng(3)
    rows = [draw.normal(size=(size, 2)).astype(np.float32) for size in (4, 11, 1)]
    with torch.inference_mode():
        known = [made(torch.from_numpy(row[None]))[0][0].argmax(-1).tolist() for row in rows]
    predictor = Predictor.open(tmp_path / "bundle", threads=1)
    given = [{"inputs": row.tolist()} for row in rows]
    answers = answers_for(predictor, given)
    words = [" ".join(map(str, classes)) for classes in known]
    assert table_of(predictor.card, answers)[1] == [[text] for text in words]
    read = RowReader(predictor.card).read(given)
    served = predictor.compute(feeds_of_rows(predictor.card, read))
    assert answers_as_json(predictor.card, served) == [
        {"classes": list(map(str, classes))} for classes in known
    ]
    (tmp_path / "rows.jsonl").write_text("\n".join(map(json.dumps, given)))
    assert script_on(tmp_path / "bundle", tmp_path / "rows.jsonl")[1:] == words


def test_a_model_of_one_length_keeps_it(tmp_path: Path) -> None:
    data = {"name": f"{HERE}:series", "task": "classification", "num_outputs": 3, "per_step": False}
    _, _, card = exported(tmp_path / "bundle", f"{HERE}:Whole", data)
    assert (card.inputs[0].shape, card.inputs[0].lengths) == ((max(SIZES), 2), ())


def test_dimensions_that_always_have_the_same_size_have_one_name() -> None:
    shapes = [
        {"text": (size,), "mask": (size, size), "other": (size + size % 2, 4)} for size in (4, 7, 5)
    ]
    found = lengths_in(shapes)
    assert dict(found.names) == {
        "text": ("length",),
        "mask": ("length", "length"),
        "other": ("length2", ""),
    }
    assert not lengths_in([{"text": (4,)}, {"text": (4,)}])
    # Inputs whose number of dimensions changes have no shape at all.
    assert not lengths_in([{"text": (4,)}, {"text": (4, 1)}])


def test_outputs_of_several_sizes_are_filled_up() -> None:
    rows = np.empty(3, dtype=object)
    rows[:] = [np.arange(2.0), np.arange(3.0), np.arange(2.0) + 5]
    calls = []

    def run(feeds: dict[str, np.ndarray]) -> list[np.ndarray]:
        calls.append(feeds["a"].shape)
        return [feeds["a"] * 2 + feeds["b"][:, None]]

    (joined,) = run_by_size(run, {"a": rows, "b": np.array([0.0, 10.0, 20.0])})
    assert joined[:, :2].tolist() == [[0, 2], [10, 12], [30, 32]]
    assert np.isnan(joined[:, 2]).tolist() == [True, False, True]
    assert sorted(calls) == [(1, 3), (2, 2)]


def test_only_named_sizes_are_compared() -> None:
    inputs = [
        Input(name="a", kind="array", shape=(4, 2), lengths=("length", ""), dtype="float32"),
        Input(name="b", kind="array", shape=(4,), lengths=("length",), dtype="float32"),
        Input(name="c", kind="array", shape=(3,), dtype="float32"),
    ]
    assert other_size(inputs, [(9, 2), (9,), (3,)]) is None
    assert other_size(inputs, [(9, 2), (8,), (3,)]) == ("b", "has the length 8, but 'a' has 9")
