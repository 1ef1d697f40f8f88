from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Sequence
from types import SimpleNamespace
from typing import Any, TypeVar

import pytest

from tests.builders.clock import Clock
from workbench.deploy.serving import batching
from workbench.deploy.serving.batching import Answer, BatchQueue, BatchTimes, QueueFullError, Row

Found = TypeVar("Found")
SLOW = BatchTimes(fixed_s=0.01, row_s=0.001)
"""Batches that are handed to a thread."""


class Model:
    """Doubles numbers; waits in each batch until it may continue, and fails for a negative one."""

    def __init__(self, *, waits: bool = False) -> None:
        self.batches: list[list[int]] = []
        self.may_continue = threading.Event()
        if not waits:
            self.may_continue.set()

    def __call__(self, rows: Sequence[Row]) -> list[Answer]:
        self.batches.append([row[0] for row in rows])
        assert self.may_continue.wait(120)
        if any(row[0] < 0 for row in rows):
            raise ValueError("negative")
        return [{"values": 2 * row[0]} for row in rows]


def rows_of(*values: int) -> list[Row]:
    return [(value,) for value in values]


def values_of(answers: list[Answer]) -> list[int]:
    return [answer["values"] for answer in answers]


def in_queue(
    use: Callable[[BatchQueue], Awaitable[Found]],
    model: Any,
    times: BatchTimes = SLOW,
    **options: Any,
) -> Found:
    """Use a queue while it is emptied."""

    async def main() -> Found:
        limits = {"max_batch": 4, "latency_s": 1.0, "limit_rows": 100} | options
        queue = BatchQueue(model, times, **limits)
        task = asyncio.create_task(queue.run())
        try:
            return await use(queue)
        finally:
            task.cancel()
            queue.close()

    return asyncio.run(main())


async def begin(
    queue: BatchQueue, model: Model, *requests: list[Row]
) -> list[asyncio.Task[list[Answer]]]:
    """Send requests one after another; the first is being computed when the others arrive."""
    tasks = []
    for rows in requests:
        tasks.append(asyncio.create_task(queue.answer(rows)))
        while not model.batches:
            await asyncio.sleep(0.001)
    await asyncio.sleep(0)
    return tasks


def test_what_arrives_while_the_model_computes_is_the_next_batch() -> None:
    model = Model(waits=True)

    async def use(queue: BatchQueue) -> list[list[Answer]]:
        tasks = await begin(queue, model, *(rows_of(number) for number in range(7)))
        assert queue.num_waiting == 6
        model.may_continue.set()
        return await asyncio.gather(*tasks)

    answers = in_queue(use, model)
    assert [values_of(answer) for answer in answers] == [[2 * number] for number in range(7)]
    assert model.batches == [[0], [1, 2, 3, 4], [5, 6]]


def test_a_single_request_waits_for_no_other() -> None:
    model = Model()
    assert values_of(in_queue(lambda queue: queue.answer(rows_of(5)), model)) == [10]
    assert model.batches == [[5]]


@pytest.mark.parametrize("times", [SLOW, BatchTimes(0.0, 1e-6)])
def test_a_large_request_is_computed_in_parts_and_answered_in_order(times: BatchTimes) -> None:
    model = Model()
    answers = in_queue(lambda queue: queue.answer(rows_of(*range(10))), model, times)
    assert values_of(answers) == [2 * number for number in range(10)]
    assert max(map(len, model.batches)) == 4


def test_rows_that_do_not_fit_are_refused_with_the_time_until_they_do() -> None:
    model = Model(waits=True)

    async def use(queue: BatchQueue) -> int:
        tasks = await begin(queue, model, rows_of(0), rows_of(*range(3)), rows_of(*range(3)))
        with pytest.raises(QueueFullError) as refused:
            await queue.answer(rows_of(1, 2))
        assert queue.num_waiting == 6
        tasks.append(asyncio.create_task(queue.answer(rows_of(1))))
        await asyncio.sleep(0)
        model.may_continue.set()
        assert [len(answer) for answer in await asyncio.gather(*tasks)] == [1, 3, 3, 1]
        return refused.value.retry_after_s

    slow = BatchTimes(0.0, 1.0)
    assert in_queue(use, model, slow, limit_rows=7, latency_s=100.0) == 6


def test_a_batch_is_only_as_large_as_is_computed_within_the_latency(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # On a busy machine the first batch takes longer, and the next ones are smaller.
    monkeypatch.setattr(batching, "time", SimpleNamespace(perf_counter=Clock()))
    model = Model(waits=True)

    async def use(queue: BatchQueue) -> None:
        tasks = await begin(queue, model, rows_of(0), *(rows_of(number) for number in range(4)))
        model.may_continue.set()
        await asyncio.gather(*tasks)

    in_queue(use, model, BatchTimes(0.01, 0.02), latency_s=0.05)
    assert model.batches == [[0], [0, 1], [2, 3]]
    assert BatchTimes(0.0, 0.1).most_rows(0.01) == 1


def test_one_bad_request_does_not_spoil_the_others_of_its_batch() -> None:
    model = Model(waits=True)

    async def use(queue: BatchQueue) -> list[Any]:
        tasks = await begin(queue, model, rows_of(0), rows_of(1), rows_of(-1), rows_of(2))
        model.may_continue.set()
        return await asyncio.gather(*tasks, return_exceptions=True)

    good, first, bad, second = in_queue(use, model)
    assert [values_of(answer) for answer in (good, first, second)] == [[0], [2], [4]]
    assert isinstance(bad, ValueError)


def test_a_client_that_is_gone_does_not_disturb_the_others() -> None:
    model = Model(waits=True)

    async def use(queue: BatchQueue) -> list[Answer]:
        tasks = await begin(queue, model, rows_of(0), rows_of(1), rows_of(2))
        tasks[1].cancel()
        await asyncio.sleep(0)
        model.may_continue.set()
        await tasks[0]
        return await tasks[2]

    assert values_of(in_queue(use, model)) == [4]


def test_another_model_takes_over_with_the_next_batch() -> None:
    model, newer = Model(waits=True), Model()

    async def use(queue: BatchQueue) -> list[list[Answer]]:
        tasks = await begin(queue, model, rows_of(1), rows_of(2))
        queue.replace(newer, SLOW)
        model.may_continue.set()
        return await asyncio.gather(*tasks)

    assert [values_of(answer) for answer in in_queue(use, model)] == [[2], [4]]
    assert (model.batches, newer.batches) == ([[1]], [[2]])


def test_a_quick_model_that_takes_single_rows_answers_without_a_turn_of_the_loop() -> None:
    async def use() -> list[Answer]:
        queue = BatchQueue(
            Model(), BatchTimes(0.0, 1e-5), max_batch=1, latency_s=1.0, limit_rows=100
        )  # nothing empties it
        with pytest.raises(ValueError, match="negative"):
            await asyncio.wait_for(queue.answer(rows_of(-1)), 120)
        return await asyncio.wait_for(queue.answer(rows_of(3)), 120)

    assert values_of(asyncio.run(use())) == [6]
