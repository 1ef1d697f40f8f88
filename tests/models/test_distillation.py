"""A few trees answer like the larger model that taught them, also where it learned nothing."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from workbench.models.distillation import distilled, most_rows_in, rows_to_teach

RANDOM = np.random.default_rng(3)
NUMBERS = RANDOM.normal(size=(600, 2)).astype(np.float32)
KINDS = np.eye(3, dtype=np.float32)[RANDOM.integers(0, 3, size=600)]
INPUTS = np.concatenate([NUMBERS, KINDS], axis=1)
WIDTHS = [1, 1, 3]
NEW = np.concatenate(
    [RANDOM.normal(size=(300, 2)), np.eye(3)[RANDOM.integers(0, 3, size=300)]], axis=1
).astype(np.float32)


def numbers_of(rows: np.ndarray) -> np.ndarray:
    return np.stack([rows[:, 0] * 2.0 + rows[:, 2], np.abs(rows[:, 1])], axis=1)


def shares_of(rows: np.ndarray) -> np.ndarray:
    scores = np.stack([rows[:, 0], rows[:, 1] * rows[:, 3], 0.0 * rows[:, 0]], axis=1)
    shares = np.exp(scores)
    return shares / shares.sum(axis=1, keepdims=True)


def answers(model: torch.nn.Module, rows: np.ndarray) -> np.ndarray:
    with torch.inference_mode():
        return model(torch.from_numpy(rows)).double().numpy()


def test_numbers_are_answered_like_the_teacher() -> None:
    model = distilled(
        INPUTS, numbers_of, widths=WIDTHS, are_probabilities=False, most_rows=3_000, seed=0
    )
    truth = numbers_of(NEW)
    error = ((answers(model, NEW) - truth) ** 2).mean(axis=0)
    assert (error < 0.05 * truth.var(axis=0)).all()


@pytest.mark.parametrize("num_classes", [2, 3])
def test_probabilities_are_answered_like_the_teacher(num_classes: int) -> None:
    def taught(rows: np.ndarray) -> np.ndarray:
        shares = shares_of(rows)
        if num_classes == 3:
            return shares
        return np.stack([shares[:, 0], shares[:, 1:].sum(axis=1)], axis=1)

    model = distilled(
        INPUTS, taught, widths=WIDTHS, are_probabilities=True, most_rows=3_000, seed=0
    )
    scores = answers(model, NEW)
    assert scores.shape == (300, num_classes)
    shares = np.exp(scores) / np.exp(scores).sum(axis=1, keepdims=True)
    assert np.abs(shares - taught(NEW)).mean() < 0.03


def test_a_made_up_row_has_whole_columns_of_rows_that_exist() -> None:
    rows = rows_to_teach(INPUTS, WIDTHS, 1_800, 0)
    assert len(rows) == 1_800
    np.testing.assert_array_equal(rows[:600], INPUTS)
    made_up = rows[600:]
    assert (made_up[:, 2:].sum(axis=1) == 1.0).all()
    assert NUMBERS[:, 0].min() <= made_up[:, 0].min()
    assert made_up[:, 0].max() <= NUMBERS[:, 0].max()
    known = {row.tobytes() for row in INPUTS}
    assert np.mean([row.tobytes() in known for row in made_up]) < 0.5


@pytest.mark.parametrize(("num_rows", "most_rows", "expected"), [(600, 200, 200), (1, 50, 5)])
def test_there_are_no_more_rows_than_allowed(num_rows: int, most_rows: int, expected: int) -> None:
    assert len(rows_to_teach(INPUTS[:num_rows], WIDTHS, most_rows, 0)) == expected


def test_less_time_and_more_answers_allow_fewer_rows() -> None:
    assert most_rows_in(2.0, 1) == 2 * most_rows_in(2.0, 2) > 0
    assert most_rows_in(-1.0, 3) == 0
    assert most_rows_in(float("inf"), 1) > 10_000
