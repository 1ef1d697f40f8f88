from __future__ import annotations

import base64
import io
from typing import Any

import numpy as np
import pytest
from PIL import Image

from workbench.data import load
from workbench.data.preview import preview
from workbench.data.splits import ArraySplit, Datasets, TokenSplit


def of_arrays(inputs: np.ndarray, targets: np.ndarray, **fields: Any) -> Datasets:
    split = ArraySplit(inputs, targets)
    described = {"name": "made", "task": "classification", "num_outputs": 2} | fields
    return Datasets(train=split, validation=split, input_shape=inputs.shape[1:], **described)


def decoded(url: str) -> np.ndarray:
    kind, _, data = url.partition(",")
    assert kind == "data:image/png;base64"
    return np.asarray(Image.open(io.BytesIO(base64.b64decode(data))))


def test_digits_are_pictures_with_the_classes_that_there_are() -> None:
    datasets = load("digits", {})
    seen = preview(datasets, num_samples=5)
    assert seen["sizes"] == {"train": 1438, "validation": 359, "test": None}
    assert sum(seen["class_counts"]) == seen["num_counted"] == 1438
    assert seen["class_names"] == [str(digit) for digit in range(10)]
    assert {sample["kind"] for sample in seen["samples"]} == {"image"}
    pictures = [decoded(sample["png"]) for sample in seen["samples"]]
    assert all(picture.shape == (8, 8) for picture in pictures)
    assert (
        min(picture.min() for picture in pictures),
        max(picture.max() for picture in pictures),
    ) == (
        0,
        255,
    )
    assert seen["load_samples_per_s"] > 0
    assert seen["warnings"] == []


def test_the_samples_that_are_shown_are_those_of_their_targets() -> None:
    inputs = np.repeat(np.arange(200.0, dtype=np.float32)[:, None], 2, axis=1)
    seen = preview(
        of_arrays(inputs, np.arange(200) % 2, class_names=("even", "odd")), num_samples=200
    )
    assert [list(sample["cells"].values()) for sample in seen["samples"]] == inputs.tolist()
    assert [sample["target"] for sample in seen["samples"]] == ["even", "odd"] * 100


def test_colours_and_large_pictures_are_kept_and_made_small() -> None:
    inputs = np.zeros((3, 3, 400, 200), np.float32)
    inputs[:, 0] = 1.0
    seen = preview(of_arrays(inputs, np.array([0, 1, 1])), num_samples=1)
    picture = decoded(seen["samples"][0]["png"])
    assert picture.shape == (128, 64, 3)
    assert picture[0, 0].tolist() == [255, 0, 0]


def test_text_is_readable_and_says_what_comes_next() -> None:
    vocabulary = tuple("abc")
    split = TokenSplit(np.array([0, 1, 2, 0, 1, 2, 0]), context=3, stride=3)
    datasets = Datasets(
        name="text",
        task="language_model",
        train=split,
        validation=split,
        input_shape=(3,),
        num_outputs=3,
        vocabulary_size=3,
        class_names=vocabulary,
    )
    seen = preview(datasets, num_samples=1)
    assert seen["samples"] == [{"kind": "text", "text": "abc", "target": "next: 'a'"}]
    assert seen["class_counts"] is seen["target_histogram"] is None


def test_numbers_to_predict_are_told_as_a_histogram() -> None:
    targets = np.concatenate([np.zeros(30), np.ones(10)]).astype(np.float32)
    seen = preview(
        of_arrays(np.ones((40, 2), np.float32), targets, task="regression", num_outputs=1)
    )
    assert (seen["target_histogram"]["counts"][0], seen["target_histogram"]["counts"][-1]) == (
        30,
        10,
    )
    assert len(seen["target_histogram"]["edges"]) == len(seen["target_histogram"]["counts"]) + 1
    assert seen["class_counts"] is None


class Listed:
    """A person's own data set, which must be read to be known."""

    def __len__(self) -> int:
        return 300

    def __getitem__(self, index: int) -> tuple[list[float], int]:
        return [float(index)], int(index < 100)


def test_classes_of_data_that_must_be_read_are_counted() -> None:
    datasets = load(lambda _: (Listed(), Listed()), {"task": "classification", "num_outputs": 2})
    assert preview(datasets)["class_counts"] == [200, 100]


@pytest.mark.parametrize(
    ("inputs", "targets", "needed", "said"),
    [
        (np.ones((500, 2)), np.arange(500) < 20, None, "0 is 24 times as frequent as 1"),
        (np.ones((500, 2)), np.zeros(500), None, "no train sample is of class 1"),
        (np.full((500, 2), np.nan), np.arange(500) % 2, None, "not finite"),
        (np.ones((50, 2)), np.arange(50) % 2, None, "train has 50 samples"),
        (np.ones((500, 2)), np.arange(500) % 2, 1e15, "is slower than training needs"),
    ],
)
def test_what_a_person_should_know_is_said(
    inputs: np.ndarray, targets: np.ndarray, needed: float | None, said: str
) -> None:
    datasets = of_arrays(
        inputs.astype(np.float32), targets.astype(np.int64), class_names=("0", "1")
    )
    warnings = preview(datasets, needed_samples_per_s=needed)["warnings"]
    assert any(said in warning for warning in warnings), warnings
