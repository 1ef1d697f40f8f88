"""Streams and samplers.

Every worker sees the same order, and each sample goes to exactly one of them.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.data import BatchSampler, DataLoader, DistributedSampler, SequentialSampler

from tests.builders.examples import examples
from tests.builders.structured import Stream, numbers, weighted
from workbench.data import Datasets, load
from workbench.data.own_data import as_split
from workbench.data.preview import preview
from workbench.foundation.errors import DataError, ExperimentError
from workbench.training.tensor_source import Source, WorkerBatch

OPTIONS = {"samples_per_epoch": 7, "validation_samples": 4}


def split(kind: str, num_samples: int) -> Any:
    """Return a split of the numbers below `num_samples`, which each worker makes for itself."""
    if kind == "stream":
        return as_split(
            Stream(num_samples), {"samples_per_epoch": num_samples}, part="train", name="made"
        )[0]
    if kind == "sampler":
        return as_split(weighted(num_samples), {}, part="train", name="made")[0]
    pairs = numbers(num_samples)
    loader = DataLoader(pairs, shuffle=True, batch_size=3)
    return as_split(loader if kind == "loader" else pairs, {}, part="train", name="made")[0]


def read_epoch(
    source: Source,
    rank: int,
    num_workers: int,
    *,
    batch: int,
    micro_batch: int,
    epoch: int,
    start: int = 0,
) -> list[list[float]]:
    """Return what one worker sees of each step of an epoch.

    What only fills up the count is left out.
    """
    steps = []
    for indices in source.batches(global_batch=batch, epoch=epoch, seed=5, start=start):
        torch.rand(1 + rank)  # the training of each worker draws numbers of its own
        parts = WorkerBatch(
            source, indices, micro_batch=micro_batch, replica=rank, num_replicas=num_workers
        )
        steps.append([value for part in parts if part.weight for value in part.targets.tolist()])
    return steps


@examples(25)
@given(
    kind=st.sampled_from(["plain", "loader", "sampler", "stream"]),
    num_samples=st.integers(1, 30),
    num_workers=st.integers(1, 4),
    batch=st.integers(1, 12),
    micro_batch=st.integers(1, 5),
    start=st.integers(0, 2),
)
def test_workers_share_an_epoch_without_loss_or_repetition(
    *, kind: str, num_samples: int, num_workers: int, batch: int, micro_batch: int, start: int
) -> None:
    settings = {"batch": batch, "micro_batch": micro_batch}
    alone = Source(split(kind, num_samples), torch.device("cpu"))
    sources = [Source(split(kind, num_samples), torch.device("cpu")) for _ in range(num_workers)]
    orders = []
    for epoch in range(2):
        whole = read_epoch(alone, 0, 1, batch=batch, micro_batch=batch, epoch=epoch)
        shared = [
            read_epoch(source, rank, num_workers, epoch=epoch, **settings)
            for rank, source in enumerate(sources)
        ]
        for step, wanted in enumerate(whole):
            assert [value for worker in shared for value in worker[step]] == wanted
        orders.append([value for step in whole for value in step])
        if kind != "sampler":
            assert sorted(orders[-1]) == [float(number) for number in range(num_samples)]
        again = Source(split(kind, num_samples), torch.device("cpu"))
        resumed = read_epoch(again, 0, 1, batch=batch, micro_batch=batch, epoch=epoch, start=start)
        assert resumed == whole[start:], "a resumed training goes on in the middle of the epoch"
    assert num_samples < 10 or orders[0] != orders[1]


class Forgetful:
    """A stream without a length that draws from Python's and numpy's generators."""

    def __iter__(self) -> Iterator[tuple[np.ndarray, float]]:
        for _ in range(5):
            yield np.ones(2), random.random() + float(np.random.rand())


def test_reading_a_stream_changes_no_random_numbers_of_the_training() -> None:
    stream = as_split(Forgetful(), OPTIONS, part="train", name="made")[0]
    torch.manual_seed(1)
    random.seed(1)
    expected = torch.rand(3), random.random()
    torch.manual_seed(1)
    random.seed(1)
    first = stream.batch(np.arange(7))[1].tolist()
    assert torch.equal(torch.rand(3), expected[0])
    assert random.random() == expected[1]
    assert stream.batch(np.arange(7))[1].tolist() == first, "it begins again where it ended"
    assert len(set(first)) == 7


def test_streams_train_and_evaluate_by_the_lengths_that_are_stated() -> None:
    loaded = load(lambda options: (Forgetful(), Forgetful()), {"task": "regression", **OPTIONS})
    assert isinstance(loaded, Datasets)
    assert (len(loaded.train), len(loaded.validation)) == (7, 4)
    seen = preview(loaded, num_samples=3)
    assert (seen["sizes"]["train"], len(seen["samples"])) == (7, 3)


def test_a_stream_without_a_length_is_refused_by_the_option_that_is_missing() -> None:
    with pytest.raises(ExperimentError, match="does not know its length") as caught:
        load(
            lambda options: (Forgetful(), Forgetful()),
            {"task": "regression", "samples_per_epoch": 7},
        )
    assert caught.value.field == "data.validation_samples"


def test_validation_never_counts_a_sample_twice() -> None:
    stream = as_split(Forgetful(), {"validation_samples": 6}, part="validation", name="made")[0]
    with pytest.raises(DataError, match="ended after 5 of 6 samples"):
        stream.batch(np.arange(6))


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        (
            {
                "batch_sampler": type("Buckets", (BatchSampler,), {})(
                    SequentialSampler(range(4)), 2, False
                )
            },
            "batch_sampler of type Buckets",
        ),
        ({"batch_size": None}, "makes no batches"),
        ({"sampler": DistributedSampler(numbers(4), 2, 0)}, "DistributedSampler"),
    ],
)
def test_what_a_loader_decides_and_the_plan_decides_too_is_refused(
    settings: Any, problem: str
) -> None:
    loader = DataLoader(numbers(4), **settings)
    with pytest.raises(DataError, match=problem):
        as_split(loader, {}, part="train", name="made")[0]


INPUTS = np.arange(8, dtype=np.float32).reshape(4, 2)
TARGETS = np.array([0, 1, 2, 1])


@pytest.mark.parametrize("whole", [tuple, list])
@pytest.mark.parametrize(
    ("inputs", "targets"),
    [
        (INPUTS, TARGETS),
        (torch.tensor(INPUTS), torch.tensor(TARGETS)),
        (torch.tensor(INPUTS), TARGETS),
        (INPUTS[:2], TARGETS[:2]),
    ],
)
def test_inputs_and_targets_may_be_an_array_each(inputs: Any, targets: Any, whole: Any) -> None:
    made = as_split(whole((inputs, targets)), {}, part="train", name="made")[0]
    some, wanted = made.batch(np.array([1, 0]))
    assert len(made) == len(targets)
    assert np.asarray(some).tolist() == [[2, 3], [0, 1]]
    assert np.asarray(wanted).tolist() == [1, 0]


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ((INPUTS, TARGETS[:3]), "same number of samples"),
        ((torch.tensor(INPUTS), torch.tensor(TARGETS[:3])), "same number of samples"),
        ({"x": INPUTS, "y": TARGETS}, "it is not clear which member is the target"),
        ((pd.DataFrame(INPUTS), pd.Series(TARGETS)), "it is not clear which column is the target"),
    ],
)
def test_columns_that_are_no_pairs_are_refused(given: Any, problem: str) -> None:
    with pytest.raises(DataError, match=problem):
        as_split(given, {}, part="train", name="made")


def test_samples_of_different_lengths_are_refused_with_what_pads_them() -> None:
    samples = [(torch.zeros(2), 0), (torch.zeros(3), 1)]
    with pytest.raises(DataError, match="collate_fn pads them"):
        as_split(samples, {}, part="train", name="made")[0].batch(np.arange(2))


def test_named_inputs_are_shown_by_name() -> None:
    options = {"kind": "named", "task": "classification", "num_outputs": 2}
    loaded = load("tests.builders.structured:load", options)
    seen = preview(loaded, num_samples=2)
    assert list(seen["samples"][0]["cells"]) == ["features", "labels", "name"]
    assert seen["samples"][0]["cells"]["features"].startswith("[6]: ")
    assert sum(seen["class_counts"]) == 50
