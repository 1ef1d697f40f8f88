"""Keeps a sample of the rows and answers of a served model, and compares it with training data.

Samples are stored as JSON lines in the bundle. Only their owner can read them, and the oldest are
removed first. A full or slow disk never delays a request. Samples are then dropped and counted.
Only the last rows count for drift, so it is forgotten when it is over.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import shlex
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from workbench.deploy.card import Card, Statistics, read_card
from workbench.deploy.distributions import Drift, bin_of, drift_of, num_bins
from workbench.deploy.predictor import classes_in
from workbench.deploy.serving.batching import Answer, Row
from workbench.deploy.serving.client_rows import RowReader, RowsError
from workbench.experiment.actions import suggest
from workbench.foundation.errors import ArgumentError, DataError, Suggestion

WINDOW_ROWS = 5000
"""The number of rows in a window. Drift is calculated over the last one to two windows."""
FOLDER = "kept"
_NUM_FILES = 10
_MAX_PENDING = 1000


class Watch:
    """Keeps and counts a share of the rows of one bundle."""

    def __init__(self, bundle: Path, card: Card, *, share: float, limit_bytes: int) -> None:
        """Start to watch.

        Args:
            bundle: The bundle itself, not a link to it.
            card: Its card.
            share: The share of the rows that are kept, above 0 and at most 1.
            limit_bytes: Size of the kept files, at most.
        """
        self.kept = KeptSamples(bundle, limit_bytes=limit_bytes)
        self.monitor = DriftMonitor(card)
        self._share = share
        self._draw = random.Random()

    def add(
        self, given: Sequence[Any], rows: Sequence[Row], answers: Sequence[Answer], seconds: float
    ) -> None:
        """Keep and count some rows of a request.

        Args:
            given: The rows as they were received.
            rows: The same rows as they were read.
            answers: Their answers.
            seconds: How long the request took.
        """
        for raw, row, answer in zip(given, rows, answers, strict=True):
            if self._draw.random() < self._share:
                self.kept.keep(raw, answer, seconds)
                self.monitor.add(row, answer)


class KeptSamples:
    """The kept samples of one bundle, while it is served."""

    def __init__(self, bundle: Path, *, limit_bytes: int) -> None:
        """Prepare the folder.

        Args:
            bundle: The bundle, itself and not a link to it.
            limit_bytes: Size of all files together, at most.

        Raises:
            ArgumentError: If the folder cannot be written.
        """
        self.folder = bundle / FOLDER
        self._file_bytes = max(limit_bytes // _NUM_FILES, 1)
        self._limit_bytes = limit_bytes
        self._pending = 0
        self._file: Path | None = None
        self._size = 0
        self.num_dropped = 0
        """Samples that could not be written."""
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="keep")
        try:
            self.folder.mkdir(mode=0o700, exist_ok=True)
            (self.folder / ".writable").touch()
            (self.folder / ".writable").unlink()
        except OSError as error:
            raise ArgumentError(
                f"cannot write {self.folder}: {error.strerror}",
                field="--keep",
                next_step="Serve a copy of the bundle in a folder that you can write to.",
            ) from error

    def keep(self, row: Any, answer: Any, seconds: float) -> None:
        """Queue a row and its answer for writing.

        Args:
            row: The received row.
            answer: The answer that was sent.
            seconds: How long the request took.
        """
        if self._pending >= _MAX_PENDING:
            self.num_dropped += 1
            return
        self._pending += 1
        sample = {
            "time_unix_s": round(time.time(), 3),
            "seconds": seconds,
            "row": row,
            "answer": answer,
        }
        self._thread.submit(self._write, sample)

    def close(self) -> None:
        """Write what is pending."""
        self._thread.shutdown()

    def _write(self, sample: dict[str, Any]) -> None:
        try:
            line = (json.dumps(sample, separators=(",", ":")) + "\n").encode()
            if self._file is None or self._size + len(line) > self._file_bytes:
                self._file, self._size = self.folder / f"{time.time_ns()}.jsonl", 0
                self._make_room(len(line))
            descriptor = os.open(self._file, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
            with os.fdopen(descriptor, "wb", buffering=0) as file:
                file.write(line)
            self._size += len(line)
        except OSError:
            self.num_dropped += 1
        finally:
            self._pending -= 1

    def _make_room(self, num_bytes: int) -> None:
        """Remove the oldest files, so that a new one fits."""
        files = sorted(self.folder.glob("*.jsonl"))
        sizes = {path: path.stat().st_size for path in files}
        total = sum(sizes.values()) + max(self._file_bytes, num_bytes)
        for path in files:
            if total <= self._limit_bytes:
                return
            path.unlink(missing_ok=True)
            total -= sizes[path]


class DriftMonitor:
    """Counts rows and answers of one model in the bins of its card."""

    def __init__(self, card: Card, *, window_rows: int = WINDOW_ROWS) -> None:
        """Count nothing yet.

        Args:
            card: The card of the model, with the statistics of its training data.
            window_rows: The number of rows in a window.
        """
        self._card = card
        self._window_rows = window_rows
        self._columns = [
            (at, column.name, card.statistics[column.name])
            for at, column in enumerate(card.inputs)
            if column.name in card.statistics and card.statistics[column.name].shares
        ]
        self._now, self._before = self._zeros(), self._zeros()
        self._num_now = 0
        self.num_rows = 0
        """Rows in the windows that count."""

    def add(self, row: Row, answer: Answer) -> None:
        """Count a row and its answer."""
        if self._num_now >= self._window_rows:
            self._before, self._now = self._now, self._zeros()
            self.num_rows, self._num_now = self._num_now, 0
        for (at, _, statistics), counts in zip(self._columns, self._now, strict=False):
            value = row[at]
            counts[
                bin_of(statistics, float(value.mean()) if isinstance(value, np.ndarray) else value)
            ] += 1
        if self._answers is not None:
            for value in _values_of(answer):
                self._now[-1][bin_of(self._answers, value)] += 1
        self._num_now += 1
        self.num_rows += 1

    def columns(self) -> list[Drift]:
        """Return the drift of each column, the largest first."""
        drifts = [
            drift_of(
                name, statistics, self._counts(index), num_trained=self._card.num_train_samples
            )
            for index, (_, name, statistics) in enumerate(self._columns)
        ]
        return sorted(
            (drift for drift in drifts if drift is not None), key=lambda drift: -drift.index
        )

    def answers(self) -> Drift | None:
        """Return the drift of the answers, or None if their distribution in training is unknown."""
        if self._answers is None:
            return None
        num_trained = self._card.num_train_samples
        return drift_of("answers", self._answers, self._counts(-1), num_trained=num_trained)

    def describe(self) -> dict[str, Any]:
        """Return the drift as plain values, with the next steps if anything has drifted."""
        columns, answers = self.columns(), self.answers()
        drifted = any(drift.has_drifted for drift in [*columns, *([answers] if answers else [])])
        return {
            "num_rows": self.num_rows,
            "drifted": drifted,
            "columns": [_plain(drift) for drift in columns],
            "answers": _plain(answers) if answers else None,
            "next_steps": list(next_steps(self._card)) if drifted else [],
        }

    @property
    def _answers(self) -> Statistics | None:
        return self._card.answers if self._card.answers and self._card.answers.shares else None

    def _zeros(self) -> list[list[int]]:
        all_statistics = [statistics for _, _, statistics in self._columns]
        if self._answers is not None:
            all_statistics.append(self._answers)
        return [[0] * (num_bins(statistics) + 1) for statistics in all_statistics]

    def _counts(self, index: int) -> list[int]:
        return [
            now + before for now, before in zip(self._now[index], self._before[index], strict=True)
        ]


def drift_of_kept(bundle: Path) -> dict[str, Any]:
    """Return the drift of all kept samples of a bundle.

    Returns:
        The same values as `DriftMonitor.describe`, and `latency_ratio`: the time of the last
        quarter of the requests, divided by the time of the first.

    Raises:
        RunError: If it is not a bundle.
        DataError: If nothing was kept.
    """
    card = read_card(bundle)
    reader = RowReader(card)
    monitor = DriftMonitor(card, window_rows=2**62)
    seconds: list[float] = []
    for sample in read_samples(bundle):
        try:
            [row] = reader.read([sample["row"]])
        except (RowsError, KeyError, TypeError):  # the folder had another card at that time
            continue
        monitor.add(row, sample["answer"])
        seconds.append(sample["seconds"])
    quarter = max(len(seconds) // 4, 1)
    first_s, last_s = seconds[:quarter], seconds[-quarter:]
    ratio = median(last_s) / median(first_s) if seconds else None
    return monitor.describe() | {"latency_ratio": ratio}


def read_samples(bundle: Path) -> Iterator[dict[str, Any]]:
    """Yield the kept samples of a bundle, the oldest first. A line that was cut off is skipped.

    Raises:
        DataError: If there are none.
    """
    files = sorted((bundle.resolve() / FOLDER).glob("*.jsonl"))
    if not files:
        raise DataError(
            f"{bundle} has no kept samples",
            next_step="Serve it with --keep 0.1, which keeps a tenth of the rows.",
        )
    for path in files:
        with contextlib.suppress(FileNotFoundError), path.open(encoding="utf-8") as file:
            for line in file:
                with contextlib.suppress(ValueError):
                    yield json.loads(line)


def next_steps(card: Card) -> Iterator[str]:
    """Yield commands for when the data of a model has changed."""
    lead = "To search further, if its data was brought up to date"
    yield _for_shell(suggest("extend", card.run_id, trials=10, lead=lead))
    lead = "To train on its data as it is now in a new run that learns from it"
    yield _for_shell(suggest("sweep", warm_start=[card.run_id], lead=lead))


def _for_shell(suggestion: Suggestion) -> str:
    return suggestion.write(shlex.join(["workbench", *suggestion.words]))


def _values_of(answer: Answer) -> list[Any]:
    """Return the values of an answer: its class, the classes of its parts, or its only number."""
    if "class" in answer:
        return [answer["class"]]
    if "classes" in answer:
        return np.array(answer["classes"], dtype=object).ravel().tolist()
    if "boxes" in answer:
        return classes_in(answer["boxes"])
    values = answer["values"]
    if isinstance(values, dict) and len(values) == 1:
        [values] = values.values()
    return [values] if isinstance(values, int | float) else []


def _plain(drift: Drift) -> dict[str, Any]:
    return {
        "name": drift.name,
        "index": drift.index,
        "limit": drift.limit,
        "drifted": drift.has_drifted,
        "values": drift.num_values,
        "missing": drift.missing,
    }
