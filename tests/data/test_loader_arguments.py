"""Arguments of a user's DataLoader.

What torch would read is read, or the argument is refused by name.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    DistributedSampler,
    IterableDataset,
    RandomSampler,
    Sampler,
    SequentialSampler,
    SubsetRandomSampler,
    WeightedRandomSampler,
)

from tests.builders.structured import Stream, numbers
from workbench.data import load
from workbench.data.loader_arguments import LoaderArguments, notes_on
from workbench.data.own_data import as_split
from workbench.foundation.errors import DataError
from workbench.training.tensor_source import Source, WorkerBatch

NUM_SAMPLES, BATCH, NUM_EPOCHS = 11, 4, 3


class Drawing(Sampler[int]):
    """A sampler that keeps a generator of its own, of numpy or of Python."""

    def __init__(self, generator: Any) -> None:
        self.generator = generator

    def __len__(self) -> int:
        return 6

    def __iter__(self) -> Iterator[int]:
        draw = self.generator.choice if hasattr(self.generator, "choice") else None
        assert draw is not None
        yield from (int(draw(range(NUM_SAMPLES))) for _ in range(6))


class Turning(Sampler[int]):
    """A sampler whose order follows from the epoch."""

    epoch = -1

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def __len__(self) -> int:
        return NUM_SAMPLES

    def __iter__(self) -> Iterator[int]:
        yield from np.roll(np.arange(NUM_SAMPLES), self.epoch).tolist()


def seeded() -> torch.Generator:
    return torch.Generator().manual_seed(7)


def loader(dataset: Any = None, **settings: Any) -> DataLoader[Any]:
    return DataLoader(numbers(NUM_SAMPLES) if dataset is None else dataset, **settings)


def sharing(**settings: Any) -> DataLoader[Any]:
    generator = seeded()
    return loader(
        sampler=WeightedRandomSampler(range(1, 12), 9, generator=generator),
        generator=generator,
        **settings,
    )


LOADERS: dict[str, Any] = {
    "shuffle=False": lambda: loader(batch_size=BATCH, shuffle=False),
    "drop_last": lambda: loader(batch_size=BATCH, drop_last=True),
    "shuffle with a generator": lambda: loader(batch_size=BATCH, shuffle=True, generator=seeded()),
    "all with a generator": lambda: loader(
        batch_size=BATCH, shuffle=True, generator=seeded(), drop_last=True
    ),
    "persistent processes": lambda: loader(
        batch_size=BATCH, shuffle=True, generator=seeded(), num_workers=1, persistent_workers=True
    ),
    "a list": lambda: loader(batch_size=BATCH, sampler=[3, 1, 4, 1, 5]),
    "a part in order": lambda: loader(batch_size=BATCH, sampler=SequentialSampler(range(5))),
    "a part at random": lambda: loader(
        batch_size=BATCH, sampler=SubsetRandomSampler([2, 4, 8, 9, 10], generator=seeded())
    ),
    "weights": lambda: loader(
        batch_size=BATCH, sampler=WeightedRandomSampler(range(1, 12), 9, generator=seeded())
    ),
    "one generator for both": lambda: sharing(batch_size=BATCH),
    "replacement": lambda: loader(
        batch_size=BATCH,
        sampler=RandomSampler(
            range(NUM_SAMPLES), replacement=True, num_samples=40, generator=seeded()
        ),
    ),
    "numpy's generator": lambda: loader(
        batch_size=BATCH, sampler=Drawing(np.random.default_rng(5))
    ),
    "numpy's old generator": lambda: loader(
        batch_size=BATCH, sampler=Drawing(np.random.RandomState(5))
    ),
    "Python's generator": lambda: loader(batch_size=BATCH, sampler=Drawing(random.Random(5))),
    "batch_sampler": lambda: loader(
        batch_sampler=BatchSampler(
            RandomSampler(range(NUM_SAMPLES), generator=seeded()), BATCH, True
        )
    ),
    "batch_sampler in order": lambda: loader(
        batch_sampler=BatchSampler(SequentialSampler(range(NUM_SAMPLES)), BATCH, False)
    ),
    "in_order": lambda: loader(batch_size=BATCH, shuffle=False, in_order=True, num_workers=1),
}


def source_of(given: DataLoader[Any], part: str = "train") -> Source:
    split, arguments = as_split(given, {}, part=part, name="own")
    return Source(split, torch.device("cpu"), order=arguments)


def read(source: Source, epoch: int, rank: int = 0, num_workers: int = 1) -> list[list[float]]:
    """Return the targets of each step of an epoch that a worker sees."""
    steps = []
    for indices in source.batches(global_batch=BATCH, epoch=epoch, seed=3):
        batch = WorkerBatch(
            source, indices, micro_batch=BATCH, replica=rank, num_replicas=num_workers
        )
        steps.append([value for part in batch if part.weight for value in part.targets.tolist()])
    return steps


@pytest.mark.parametrize("kind", LOADERS)
def test_the_batches_of_every_epoch_are_those_of_torch(kind: str) -> None:
    theirs = LOADERS[kind]()
    expected = [[batch[1].tolist() for batch in theirs] for _ in range(NUM_EPOCHS)]
    ours = source_of(LOADERS[kind]())
    assert [read(ours, epoch) for epoch in range(NUM_EPOCHS)] == expected
    assert ours.num_batches(BATCH) == len(expected[0])
    assert read(ours, 1) == expected[1], "a trial on the same worker begins again"
    resumed = source_of(LOADERS[kind]())
    assert read(resumed, 2) == expected[2], "an interrupted training goes on in its third epoch"
    shared = [source_of(LOADERS[kind]()) for _ in range(2)]
    for epoch in range(NUM_EPOCHS):
        parts = [read(loader, epoch, rank, 2) for rank, loader in enumerate(shared)]
        assert [first + second for first, second in zip(*parts, strict=True)] == expected[epoch]


def test_two_workers_share_the_steps_of_a_distributed_sampler() -> None:
    """Which of the workers has a sample differs, and the gradient of a step does not depend on
    it.
    """
    for epoch in range(NUM_EPOCHS):
        dealt = []
        for rank in range(2):
            sampler = DistributedSampler(range(NUM_SAMPLES - 1), 2, rank, shuffle=False)
            dealt.append(
                [batch[1].tolist() for batch in loader(batch_size=BATCH // 2, sampler=sampler)]
            )
        expected = [sorted(first + second) for first, second in zip(*dealt, strict=True)]
        sources = [
            source_of(loader(numbers(NUM_SAMPLES - 1), batch_size=BATCH // 2)) for _ in range(2)
        ]
        ours = [read(source, epoch, rank, 2) for rank, source in enumerate(sources)]
        assert [sorted(first + second) for first, second in zip(*ours, strict=True)] == expected


def test_a_sampler_is_told_the_epoch() -> None:
    source = source_of(loader(sampler=Turning()))
    for epoch in range(NUM_EPOCHS):
        expected = np.roll(np.arange(NUM_SAMPLES), epoch).tolist()
        assert [value for step in read(source, epoch) for value in step] == expected


def test_weights_without_a_generator_are_drawn_by_the_seed_and_keep_their_distribution() -> None:
    weights = [0.0, 1.0, 3.0]
    given = loader(numbers(3), sampler=WeightedRandomSampler(weights, 3000))
    source = source_of(given)
    first = [value for step in read(source, 0) for value in step]
    assert np.bincount(np.array(first, int), minlength=3) / 3000 == pytest.approx(
        [0, 0.25, 0.75], abs=0.05
    )
    assert first != [value for step in read(source, 1) for value in step]


def test_shuffling_without_a_generator_follows_from_the_seed() -> None:
    source = source_of(loader(batch_size=BATCH, shuffle=True))
    orders = [[value for step in read(source, epoch) for value in step] for epoch in range(2)]
    assert (
        sorted(orders[0]) == sorted(orders[1]) == [float(number) for number in range(NUM_SAMPLES)]
    )
    assert orders[0] != orders[1]


@pytest.mark.parametrize("dataset", [numbers(NUM_SAMPLES), Stream(NUM_SAMPLES)])
@pytest.mark.parametrize("settings", [{}, {"shuffle": True}, {"sampler": list(range(NUM_SAMPLES))}])
def test_drop_last_leaves_out_what_torch_leaves_out_of_an_evaluation(
    dataset: Any, settings: Any
) -> None:
    if isinstance(dataset, Stream) and settings:
        return  # which torch refuses
    given = DataLoader(dataset, batch_size=BATCH, drop_last=True, **settings)
    options = {"validation_samples": NUM_SAMPLES}
    split, _ = as_split(given, options, part="validation", name="own")
    assert len(split) == sum(len(batch[1]) for batch in given) == 8


def test_drop_last_that_would_leave_nothing_is_refused() -> None:
    with pytest.raises(DataError, match="too few for a batch of 16"):
        as_split(loader(batch_size=16, drop_last=True), {}, part="validation", name="own")


class Batches(IterableDataset[Any]):
    """A stream of whole batches."""

    def __iter__(self) -> Iterator[Any]:
        yield torch.zeros(4, 2), torch.zeros(4)


class OwnLoader(DataLoader[Any]):
    def __iter__(self) -> Any:
        return iter([])


class Endless(Sampler[int]):
    def __iter__(self) -> Iterator[int]:
        yield 0


REFUSED: dict[str, Any] = {
    r"batch_size=None": lambda: loader(batch_size=None),
    r"makes no batches": lambda: DataLoader(Batches(), batch_size=None),
    r"batch_sampler of type Buckets": lambda: loader(
        batch_sampler=type("Buckets", (BatchSampler,), {})(SequentialSampler(range(4)), 2, False)
    ),
    r"batch_sampler of type list": lambda: loader(batch_sampler=[[0, 1], [2]]),
    r"has a DistributedSampler": lambda: loader(sampler=DistributedSampler(numbers(4), 2, 0)),
    r"a DistributedSampler, but": lambda: loader(
        batch_sampler=BatchSampler(DistributedSampler(numbers(4), 2, 0), 2, False)
    ),
    r"has no length": lambda: loader(sampler=Endless()),
    r"OwnLoader, which makes its batches itself": lambda: OwnLoader(numbers(4)),
    r"multiprocessing_context='spawn'": lambda: loader(
        num_workers=1, multiprocessing_context="spawn"
    ),
    r"a stream with a worker_init_fn": lambda: DataLoader(Stream(4), worker_init_fn=print),
}


@pytest.mark.parametrize("problem", REFUSED)
@pytest.mark.parametrize("part", ["train", "validation"])
def test_what_cannot_be_followed_is_refused_by_name_and_with_what_to_do(
    problem: str, part: str
) -> None:
    with pytest.raises(DataError, match=problem) as caught:
        as_split(
            REFUSED[problem](),
            {"samples_per_epoch": 4, "validation_samples": 4},
            part=part,
            name="own",
        )
    assert caught.value.next_step
    assert caught.value.field == "data"


def test_what_is_followed_in_another_way_is_noted() -> None:
    arguments = LoaderArguments(
        keeps_order=True, batch_size=32, num_workers=4, is_in_order=False, drops_last=True
    )
    notes = notes_on({"train": arguments}, global_batch=64, num_loaders=2, draws_samples=True)
    for words in ("batch_size=32", "shuffle=False", "num_workers=4", "in_order=False"):
        assert sum(words in note for note in notes) == 1, words
    assert notes_on({"train": arguments}, global_batch=32, num_loaders=4, draws_samples=False) == [
        notes[-1]
    ]
    of_validation = {"validation": LoaderArguments(batch_size=7)}
    assert notes_on(of_validation, global_batch=64, num_loaders=0, draws_samples=False) == []


def test_every_argument_of_torch_is_known_here() -> None:
    """A new version of torch with another argument makes this fail: decide what it means."""
    import inspect

    import workbench.data.loader_arguments as rules

    names = [name for name in inspect.signature(DataLoader.__init__).parameters if name != "self"]
    assert [name for name in names if name not in (rules.__doc__ or "")] == []


def test_arguments_reach_the_training_through_the_function_of_the_user() -> None:
    def own(_options: Any) -> Any:
        return (
            loader(batch_size=2, drop_last=True, num_workers=2, prefetch_factor=5, timeout=9),
            loader(batch_size=3, drop_last=True),
        )

    loaded = load(own, {"task": "regression"})
    assert loaded.order.drops_last
    assert loaded.order.keeps_order
    assert (loaded.order.num_workers, loaded.order.prefetch_factor, loaded.order.timeout_s) == (
        2,
        5,
        9,
    )
    assert (len(loaded.train), len(loaded.validation)) == (NUM_SAMPLES, 9)
