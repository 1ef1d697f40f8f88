from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from workbench.foundation.errors import ExperimentError
from workbench.models.adapters import build_model
from workbench.models.detected_boxes import (
    MAX_OVERLAP,
    MIN_SCORE,
    FoundBox,
    find_boxes,
    mean_average_precision,
    overlaps,
)
from workbench.models.detector import (
    NUM_EDGES,
    MeanAveragePrecision,
    assign,
    centres,
    detection_loss,
    generalised_overlap,
)

NOTHING = [-1.0, 0.0, 0.0, 0.0, 0.0]


def cells_of(boxes: np.ndarray, num_classes: int) -> torch.Tensor:
    """Return the answers of a detector that finds exactly these boxes, on a grid of 8 x 8."""
    cells = torch.zeros(1, 8, 8, NUM_EDGES + num_classes)
    cells[..., NUM_EDGES:] = -12.0
    owner = assign(torch.from_numpy(boxes[None]), 8, 8)[0].reshape(8, 8)
    for number, box in enumerate(boxes):
        rows, columns = torch.nonzero(owner == number, as_tuple=True)
        cells[0, rows, columns, :NUM_EDGES] = torch.from_numpy(box[1:])
        cells[0, rows, columns, NUM_EDGES + int(box[0])] = 12.0
    return cells


@st.composite
def some_boxes(draw: st.DrawFn) -> np.ndarray:
    """Boxes of different classes, so that none hides another."""
    number = draw(st.integers(1, 4))
    share, size = st.integers(0, 60), st.integers(15, 40)
    rows = []
    for place in range(number):
        left, top = draw(share), draw(share)
        rows.append([100 * place, left, top, left + draw(size), top + draw(size)])
    return np.array(rows, dtype=np.float32) / 100


@given(some_boxes())
def test_each_cell_learns_a_box_that_holds_its_centre_and_the_centre_of_each_alone_has_one(boxes):
    owner = assign(torch.from_numpy(np.array([[*boxes, NOTHING]], dtype=np.float32)), 8, 8)[0]
    places = centres(8, 8).flatten(0, 1)
    assert owner.max() < len(boxes)
    for place, number in zip(places, owner.tolist(), strict=True):
        if number >= 0:
            box = torch.from_numpy(boxes[number])
            middle = (box[1:3] + box[3:]) / 2
            assert ((place - middle).abs() <= 1 / 8 + 1e-6).all()
    alone = assign(torch.from_numpy(boxes[None, :1]), 8, 8)
    assert (alone == 0).any()


def test_of_two_boxes_in_one_place_the_smaller_one_is_learned():
    boxes = torch.tensor([[[0.0, 0.1, 0.1, 0.9, 0.9], [1.0, 0.4, 0.4, 0.6, 0.6]]])
    owner = assign(boxes, 9, 9)[0].reshape(9, 9)
    assert owner[4, 4] == 1
    assert (owner == 0).any()


@given(some_boxes(), st.integers(0, 10**6))
def test_the_loss_is_smallest_for_the_right_boxes(boxes, seed):
    exact = cells_of(boxes, 4)
    targets = torch.from_numpy(boxes[None])
    right = detection_loss(exact, targets)
    noise = torch.randn(exact.shape, generator=torch.Generator().manual_seed(seed))
    assert right < 1e-3
    assert detection_loss(exact + 0.3 * noise, targets) > right


def test_the_loss_of_a_batch_is_the_mean_over_its_images_however_it_is_cut():
    random = torch.Generator().manual_seed(1)
    outputs = torch.randn(4, 8, 8, 7, generator=random)
    rows = [[[0.0, 0.1, 0.1, 0.4, 0.5], [2.0, 0.5, 0.5, 0.9, 0.8]], [NOTHING, NOTHING]] * 2
    targets = torch.tensor(rows)
    parts = [detection_loss(outputs[at : at + 1], targets[at : at + 1]) for at in range(4)]
    torch.testing.assert_close(detection_loss(outputs, targets), torch.stack(parts).mean())


def test_answers_of_another_kind_are_refused():
    with pytest.raises(ExperimentError, match="returns outputs of shape"):
        detection_loss(torch.zeros(2, 10), torch.zeros(2, 3, 5))
    shapes = {"input_shape": (1, 16, 16), "num_outputs": 10}
    with pytest.raises(ExperimentError, match="predicts boxes, but the data has none"):
        build_model("detector", {}, **shapes)
    with pytest.raises(ExperimentError, match="predicts boxes"):
        build_model("detector", {}, **shapes, target_shape=(16, 16))
    with pytest.raises(ExperimentError, match="makes one prediction for a sample"):
        build_model("convnet", {}, **shapes, target_shape=(3, 5))


@given(some_boxes())
def test_equal_boxes_overlap_fully_and_distant_ones_are_told_apart(boxes):
    edges = torch.from_numpy(boxes[:, 1:])
    torch.testing.assert_close(generalised_overlap(edges, edges), torch.ones(len(boxes)))
    assert (generalised_overlap(edges, edges + 2) < 0).all()
    assert (generalised_overlap(edges, edges + 2) > generalised_overlap(edges, edges + 4)).all()
    np.testing.assert_allclose(overlaps(boxes[0, 1:], boxes[:1, 1:]), 1.0, rtol=1e-6)


@given(st.integers(0, 10**6), st.integers(1, 4))
def test_what_is_found_is_ordered_and_shows_nothing_twice(seed, num_classes):
    random = np.random.default_rng(seed)
    low = random.random((30, 2)) * 0.6
    high, scores = low + 0.3 * random.random((30, 2)), random.random((30, num_classes))
    cells = np.concatenate([low, high, scores], axis=1)
    boxes = find_boxes(cells)
    ranked = [box.score for box in boxes]
    assert ranked == sorted(ranked, reverse=True)
    assert min(ranked) >= MIN_SCORE
    for place, box in enumerate(boxes):
        beside = [other for other in boxes[:place] if other.number == box.number]
        for other in beside:
            assert overlaps(np.array(box[2:]), np.array([other[2:]]))[0] <= MAX_OVERLAP
    assert boxes[0].score == scores.max()
    assert boxes[0].number in np.flatnonzero((scores == scores.max()).any(axis=0))


@given(some_boxes())
def test_a_perfect_detector_has_a_precision_of_one(boxes):
    metric = MeanAveragePrecision()
    for detected in (boxes, boxes[:1]):
        targets = np.array([[*detected, *[NOTHING] * (5 - len(detected))]], dtype=np.float32)
        visible = set(assign(torch.from_numpy(targets), 8, 8)[0].tolist())
        if visible >= set(range(len(detected))):
            metric.update(cells_of(detected, 4), torch.from_numpy(targets))
    assert metric.compute() == pytest.approx(1.0)


def test_the_average_precision_of_a_known_ranking():
    wanted = [np.array([[0, 0.0, 0.0, 0.2, 0.2], [0, 0.5, 0.5, 0.8, 0.8], [1, 0.0, 0.5, 0.2, 0.9]])]
    right = FoundBox(0, 0.9, 0.0, 0.0, 0.2, 0.2)
    again = right._replace(score=0.8)
    late = FoundBox(0, 0.7, 0.5, 0.5, 0.8, 0.8)
    # Precision is 1 at a recall of one half, and 2 / 3 at 1: the same thing found again counts as
    # wrong.
    assert mean_average_precision([[right, again, late]], wanted) == pytest.approx((5 / 6 + 0) / 2)
    assert math.isnan(mean_average_precision([[right]], [np.array([NOTHING])]))
