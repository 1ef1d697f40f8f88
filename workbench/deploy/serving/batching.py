"""Batches rows of concurrent requests: a bounded queue and the loop that empties it.

A row never waits for others to arrive. Rows that arrive while the model computes form the next
batch. The largest batch follows from measurements on this machine when the model was opened. A
rejected row is never queued, and a queued row is always answered. `app` handles HTTP.
"""

from __future__ import annotations

import asyncio
import math
import statistics
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

Row = tuple[Any, ...]
"""The values of one row, in the order of the model's inputs."""
Answer = dict[str, Any]
Predict = Callable[[Sequence[Row]], list[Answer]]

INLINE_S = 1e-3
"""A shorter batch is computed on the event loop, because a thread would take longer to start."""
_NUM_TIMINGS = 5
_MIN_CORRECTION, _MAX_CORRECTION = 0.25, 10.0


class QueueFullError(Exception):
    """The queue has no room for the rows of a request."""

    def __init__(self, retry_after_s: int) -> None:
        super().__init__(f"the queue is full for {retry_after_s} s")
        self.retry_after_s = retry_after_s


@dataclass(frozen=True)
class BatchTimes:
    """How long a batch takes: `fixed_s` and `row_s` for each of its rows."""

    fixed_s: float
    row_s: float

    def seconds(self, num_rows: int) -> float:
        """Return the expected time of a batch."""
        return self.fixed_s + self.row_s * num_rows

    def most_rows(self, limit_s: float, *, slower: float = 1.0) -> int:
        """Return how many rows are computed within a limit, at least one.

        Args:
            limit_s: Seconds.
            slower: How much longer than expected batches take at the moment.
        """
        if self.row_s <= 0:
            return 2**31
        return max(1, math.floor((limit_s / slower - self.fixed_s) / self.row_s))


def measure_batches(predict: Predict, row: Row, *, max_batch: int, latency_s: float) -> BatchTimes:
    """Measure what batches take, after a warm-up.

    Args:
        predict: The model.
        row: A row to compute with.
        max_batch: The largest batch that will be used.
        latency_s: The time that a batch may take. Larger batches are not measured.
    """

    def seconds(num_rows: int) -> float:
        rows = [row] * num_rows
        predict(rows)
        return statistics.median(_timed(predict, rows) for _ in range(_NUM_TIMINGS))

    one_s = seconds(1)
    many = min(max_batch, max(2, int(latency_s / one_s)))
    if max_batch == 1 or one_s > latency_s:
        return BatchTimes(0.0, one_s)
    row_s = max(seconds(many) - one_s, 0.0) / (many - 1)
    return BatchTimes(max(one_s - row_s, 0.0), row_s)


def _timed(predict: Predict, rows: Sequence[Row]) -> float:
    started_s = time.perf_counter()
    predict(rows)
    return time.perf_counter() - started_s


@dataclass
class _Waiting:
    """Rows of one request that go into one batch."""

    rows: Sequence[Row]
    answered: asyncio.Future[list[Answer]]


class BatchQueue:
    """Answers rows in batches. It belongs to one event loop."""

    def __init__(
        self,
        predict: Predict,
        times: BatchTimes,
        *,
        max_batch: int,
        latency_s: float,
        limit_rows: int,
        on_batch: Callable[[int, float], None] = lambda num_rows, seconds: None,
    ) -> None:
        """Create a queue. `run` empties it.

        Args:
            predict: The model.
            times: The times of its batches.
            max_batch: Rows in a batch, at most.
            latency_s: Seconds that a batch may take. It has one row in any case.
            limit_rows: Rows that may wait.
            on_batch: Receives the rows of each batch and the seconds that it took.
        """
        self._predict, self._times = predict, times
        self._max_batch, self._latency_s, self._limit_rows = max_batch, latency_s, limit_rows
        self._on_batch = on_batch
        self._waiting: deque[_Waiting] = deque()
        self._has_rows = asyncio.Event()
        self._slower = 1.0
        self._is_computing = False
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="predict")
        self.num_waiting = 0
        """Rows that wait."""

    @property
    def limit_rows(self) -> int:
        """Rows that may wait."""
        return self._limit_rows

    @property
    def slower(self) -> float:
        """How much longer batches take than they did when the model was opened."""
        return self._slower

    @property
    def batch_limit(self) -> int:
        """Rows in a batch at the moment, at most."""
        return min(self._max_batch, self._times.most_rows(self._latency_s, slower=self._slower))

    def check_room(self, num_rows: int = 1) -> None:
        """Check that rows may be queued.

        Raises:
            QueueFullError: If they may not.
        """
        if self.num_waiting + num_rows > self._limit_rows:
            size = self.batch_limit
            per_row_s = self._times.seconds(size) * self._slower / size
            raise QueueFullError(max(1, math.ceil(self.num_waiting * per_row_s)))

    async def answer(self, rows: Sequence[Row]) -> list[Answer]:
        """Return the answers of the model, one for each row, in their order.

        Raises:
            QueueFullError: If the queue has no room for them: then none of them is computed.
            Exception: What the model raises for these rows.
        """
        self.check_room(len(rows))
        loop = asyncio.get_running_loop()
        size = self.batch_limit
        if self._can_compute_now(len(rows)):
            alone = _Waiting(rows, loop.create_future())
            await self._compute([alone])
            return await alone.answered
        parts = [
            _Waiting(rows[at : at + size], loop.create_future()) for at in range(0, len(rows), size)
        ]
        self._waiting.extend(parts)
        self.num_waiting += len(rows)
        self._has_rows.set()
        if len(parts) == 1:
            return await parts[0].answered
        outcomes = await asyncio.gather(*(part.answered for part in parts), return_exceptions=True)
        answers: list[Answer] = []
        for outcome in outcomes:
            if isinstance(outcome, BaseException):
                raise outcome
            answers += outcome
        return answers

    def replace(self, predict: Predict, times: BatchTimes) -> None:
        """Compute with another model from the next batch on."""
        self._predict, self._times, self._slower = predict, times, 1.0

    async def run(self) -> None:
        """Compute batches until cancelled."""
        while True:
            await self._has_rows.wait()
            self._is_computing = True
            try:
                await self._compute(self._take())
            finally:
                self._is_computing = False
            await asyncio.sleep(0)  # what has arrived meanwhile is part of the next batch

    def close(self) -> None:
        """End the thread that computes."""
        self._thread.shutdown(wait=False)

    def _can_compute_now(self, num_rows: int) -> bool:
        """Return whether rows can be computed at once, because no other rows wait or arrive."""
        is_free = self.num_waiting == 0 and not self._is_computing
        return is_free and self._max_batch == num_rows == 1 and self._times.seconds(1) < INLINE_S

    def _take(self) -> list[_Waiting]:
        batch = [self._waiting.popleft()]
        num_rows, size = len(batch[0].rows), self.batch_limit
        while self._waiting and num_rows + len(self._waiting[0].rows) <= size:
            batch.append(self._waiting.popleft())
            num_rows += len(batch[-1].rows)
        self.num_waiting -= num_rows
        if not self._waiting:
            self._has_rows.clear()
        return batch

    async def _compute(self, batch: list[_Waiting]) -> None:
        predict, times = self._predict, self._times  # may be replaced meanwhile
        rows = [row for waiting in batch for row in waiting.rows]
        started_s = time.perf_counter()
        try:
            answers = await self._call(predict, times, rows)
        except Exception as error:
            if len(batch) == 1:
                _fail(batch[0], error)
            else:  # one row caused the error, so each request is computed separately
                for waiting in batch:
                    await self._compute([waiting])
            return
        took_s = time.perf_counter() - started_s
        self._on_batch(len(rows), took_s)
        if (expected_s := times.seconds(len(rows))) > 0:
            correction = min(max(took_s / expected_s, _MIN_CORRECTION), _MAX_CORRECTION)
            self._slower += (correction - self._slower) / 16
        at = 0
        for waiting in batch:
            if not waiting.answered.done():  # its client may be gone
                waiting.answered.set_result(answers[at : at + len(waiting.rows)])
            at += len(waiting.rows)

    async def _call(self, predict: Predict, times: BatchTimes, rows: list[Row]) -> list[Answer]:
        if times.seconds(len(rows)) < INLINE_S:
            return predict(rows)
        return await asyncio.get_running_loop().run_in_executor(self._thread, predict, rows)


def _fail(waiting: _Waiting, error: Exception) -> None:
    if not waiting.answered.done():
        waiting.answered.set_exception(error)
