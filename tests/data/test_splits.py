from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from workbench.data.splits import (
    ArraySplit,
    Datasets,
    MapSplit,
    TokenSplit,
    split_indices,
    standardise,
)


@given(
    classes=st.none() | st.lists(st.integers(0, 4), min_size=2, max_size=120),
    num_samples=st.integers(2, 120),
    validation_fraction=st.floats(0.01, 0.99),
    seed=st.integers(0, 2**32),
)
def test_a_division_is_disjoint_complete_and_the_same_for_the_same_seed(
    classes, num_samples, validation_fraction, seed
):
    labels = None if classes is None else np.array(classes)
    num_samples = num_samples if labels is None else len(labels)
    options = {"validation_fraction": validation_fraction, "seed": seed, "classes": labels}
    train, validation = split_indices(num_samples, **options)
    assert sorted([*train, *validation]) == list(range(num_samples))
    assert len(train)
    assert len(validation)
    again = split_indices(num_samples, **options)
    assert (train.tolist(), validation.tolist()) == (again[0].tolist(), again[1].tolist())


@given(
    counts=st.lists(st.integers(2, 60), min_size=1, max_size=5),
    validation_fraction=st.floats(0.05, 0.95),
    seed=st.integers(0, 100),
)
def test_each_class_is_held_out_by_its_share_and_stays_in_both(counts, validation_fraction, seed):
    classes = np.repeat(np.arange(len(counts)), counts)
    train, validation = split_indices(
        len(classes), validation_fraction=validation_fraction, seed=seed, classes=classes
    )
    for number, count in enumerate(counts):
        held_out = int((classes[validation] == number).sum())
        assert abs(held_out - count * validation_fraction) <= 1
        assert number in classes[train]
        assert held_out >= 1


@given(
    num_tokens=st.integers(0, 300),
    context=st.integers(1, 20),
    stride=st.integers(1, 20),
    data=st.data(),
)
def test_windows_are_the_text_and_what_follows_it(num_tokens, context, stride, data):
    tokens = np.arange(num_tokens, dtype=np.uint16)
    split = TokenSplit(tokens, context, stride)
    starts = [start for start in range(0, num_tokens, stride) if start + context + 1 <= num_tokens]
    assert len(split) == len(starts)
    if starts:
        chosen = data.draw(st.lists(st.integers(0, len(starts) - 1), min_size=1, max_size=8))
        inputs, targets = split.batch(np.array(chosen))
        assert inputs.dtype == targets.dtype == np.int64
        expected = [[starts[index] + offset for offset in range(context)] for index in chosen]
        assert inputs.tolist() == expected
        assert (targets - inputs == 1).all()


def test_an_array_split_hands_out_rows_in_the_order_asked_for():
    split = ArraySplit(np.arange(10.0).reshape(5, 2), np.arange(5))
    inputs, targets = split.batch(np.array([3, 0]))
    assert inputs.tolist() == [[6, 7], [0, 1]]
    assert targets.tolist() == [3, 0]


def test_only_the_train_samples_decide_the_scale():
    inputs = np.array([[0.0, 5.0], [2.0, 5.0], [100.0, 7.0]])
    scaled = standardise(inputs, np.array([0, 1]), axis=0)
    assert scaled.tolist() == [[-1, 0], [1, 0], [99, 2]]


class Pairs(torch.utils.data.Dataset):
    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        return torch.full((2, 3), float(index)), index % 2


def test_a_torch_dataset_is_collated_into_tensors():
    inputs, targets = MapSplit(Pairs()).batch(np.array([3, 1]))
    assert isinstance(inputs, torch.Tensor)
    assert inputs.shape == (2, 2, 3)
    assert inputs[:, 0, 0].tolist() == [3, 1]
    assert targets.tolist() == [1, 1]


@pytest.mark.parametrize(
    "samples", [[([1.0, 2.0], 0), ([3.0, 4.0], 1)], [(np.ones(2), 0.5), (np.zeros(2), 1.5)]]
)
def test_a_plain_sequence_of_pairs_is_collated_into_arrays(samples):
    inputs, targets = MapSplit(samples).batch(np.array([1, 0]))
    assert inputs.dtype == np.float32
    assert inputs.tolist() == [list(samples[1][0]), list(samples[0][0])]
    assert targets.tolist() == [samples[1][1], samples[0][1]]


def test_tokens_of_a_sample_do_not_count_padding():
    rows = np.array([[3, 4, 0, 0], [5, 6, 7, 0], [8, 0, 0, 0]])
    padded = ArraySplit(rows, np.zeros(3))
    described = {"name": "t", "task": "classification", "validation": padded, "num_outputs": 2}
    known = Datasets(
        train=padded, input_shape=(4,), vocabulary_size=9, token_names=("", "a"), **described
    )
    assert known.tokens_per_sample == 2.0
    windows = TokenSplit(np.arange(100), context=7, stride=7)
    corpus = Datasets(train=windows, input_shape=(7,), vocabulary_size=100, **described)
    assert corpus.tokens_per_sample == 7.0
    assert Datasets(train=padded, input_shape=(4,), **described).tokens_per_sample is None

    class Packed(ArraySplit):
        num_tokens = 6

    packed = Datasets(train=Packed(rows, np.zeros(3)), input_shape=(4,), **described)
    assert packed.tokens_per_sample == 2.0
