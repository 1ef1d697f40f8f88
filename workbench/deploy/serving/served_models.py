"""A served model: its bundle, its queue, and the change to a newer bundle without a pause."""

from __future__ import annotations

import asyncio
import re
import shlex
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from typing_extensions import Self

from workbench.deploy.card import Card, read_card
from workbench.deploy.predictor import Predictor
from workbench.deploy.serving.batching import Answer, BatchQueue, BatchTimes, Row, measure_batches
from workbench.deploy.serving.client_rows import (
    RowReader,
    answers_as_json,
    feeds_of_rows,
    intervals_as_json,
)
from workbench.deploy.serving.drift import Watch
from workbench.foundation.errors import ArgumentError, RunError, first_line_of

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")


@dataclass(frozen=True)
class Limits:
    """The limits of batches, queues and kept samples of a server.

    Attributes:
        threads: Threads that compute one batch.
        max_batch: Rows in a batch, at most.
        latency_s: Seconds that a batch may take.
        queue_rows: Rows of one model that may wait.
        body_bytes: Size of the body of a request, at most.
        keep_share: The share of rows that are kept on disk and counted for drift, or 0 for none.
        keep_bytes: Size of the kept files of a model, at most.
    """

    threads: int = 1
    max_batch: int = 64
    latency_s: float = 0.02
    queue_rows: int = 1000
    body_bytes: int = 8 * 2**20
    keep_share: float = 0.0
    keep_bytes: int = 10**9


def name_bundles(given: Iterable[str]) -> dict[str, Path]:
    """Return the folder of each model by the name under which it is served.

    Args:
        given: Folders, or NAME=FOLDER if the model should have another name than the folder.

    Raises:
        ArgumentError: If a name is not valid, or two models have the same name.

    Example:
        >>> name_bundles(["models/digits", "new=models/digits-2"])["new"].name
        'digits-2'
    """
    folders: dict[str, Path] = {}
    for text in given:
        name, equals, folder = text.partition("=")
        if not equals or "/" in name:
            name, folder = Path(text).absolute().name, text
        if not _NAME.fullmatch(name):
            raise ArgumentError(
                f"{name!r} cannot be the name of a served model",
                field="BUNDLE",
                allowed="letters, digits, _, . and -",
                next_step=f"Name it: NAME={shlex.quote(folder)}",
            )
        if name in folders:
            raise ArgumentError(
                f"{folders[name]} and {folder} would both be served as {name!r}",
                field="BUNDLE",
                next_step=f"Name one of them: NAME={shlex.quote(folder)}",
            )
        folders[name] = Path(folder)
    return folders


@dataclass(frozen=True)
class Version:
    """An opened bundle: its model, and the times of its batches."""

    card: Card
    reader: RowReader
    predict: Callable[[Sequence[Row]], list[Answer]]
    intervals: Callable[[Sequence[Row], float], list[Answer]]
    times: BatchTimes

    @classmethod
    def open(cls, folder: Path, limits: Limits) -> Self:
        """Load a bundle, compute once with it, and measure its batches.

        Raises:
            RunError: If it is not a bundle with a model, or its model cannot be run.
            MissingDependencyError: If ONNX Runtime is not installed.
        """
        card = read_card(folder.resolve())
        if card.outputs[0].kind == "texts":
            model = shlex.quote(str(folder / "model"))
            raise RunError(
                f"the model in {folder} writes texts, which needs a server for language models",
                next_step=f"Serve it with vLLM or transformers: vllm serve {model}, or transformers"
                f" serve {model}.",
            )
        predictor = Predictor.open(folder.resolve(), threads=limits.threads)
        reader = RowReader(card)

        def predict(rows: Sequence[Row]) -> list[Answer]:
            return answers_as_json(card, predictor.compute(feeds_of_rows(card, rows)))

        def intervals(rows: Sequence[Row], interval: float) -> list[Answer]:
            answers = predictor.compute(feeds_of_rows(card, rows))
            return intervals_as_json(predictor.with_interval(answers, interval))

        try:
            row = _example_row(card, reader)
            times = measure_batches(
                predict, row, max_batch=limits.max_batch, latency_s=limits.latency_s
            )
        except Exception as error:  # ONNX Runtime has no common base class for its errors
            raise RunError(
                f"the model in {folder} cannot compute: {first_line_of(error)}",
                next_step="Export the model again.",
            ) from error
        return cls(card, reader, predict, intervals, times)

    @property
    def sha256(self) -> str:
        """The digest of the model."""
        return self.card.sha256


def _example_row(card: Card, reader: RowReader) -> Row:
    """Return the example of the card, or a row of zeros and empty texts if it has none."""
    example = {column.name: column.example for column in card.inputs}
    if None not in example.values():
        return reader.read([example])[0]
    empty = {"number": 0.0, "date": 0.0, "category": "", "text": ""}
    return tuple(
        np.zeros(column.shape, dtype=column.dtype) if column.kind == "array" else empty[column.kind]
        for column in card.inputs
    )


class ServedModel:
    """A served model with its name and its queue. It belongs to one event loop."""

    def __init__(
        self,
        name: str,
        folder: Path,
        version: Version,
        limits: Limits,
        on_batch: Callable[[str, int, float], None] = lambda name, num_rows, seconds: None,
    ) -> None:
        """Create a served model. It answers while `queue.run` runs.

        Args:
            name: Its name in addresses.
            folder: The folder of its bundle. A newer one is expected in the same place.
            version: The opened bundle.
            limits: The limits of the server.
            on_batch: Receives the name, the rows and the seconds of each batch.
        """
        self.name, self.folder, self.version = name, folder, version
        self._limits = limits
        self._swapping = asyncio.Lock()
        self.num_swaps = 0
        self.watch = self._start_watch(version)
        self.queue = BatchQueue(
            version.predict,
            version.times,
            max_batch=limits.max_batch,
            latency_s=limits.latency_s,
            limit_rows=limits.queue_rows,
            on_batch=lambda num_rows, seconds: on_batch(name, num_rows, seconds),
        )

    async def swap(self) -> bool:
        """Open the bundle again. If it has another model, answer with it from the next batch on.

        Returns:
            Whether it has another model.

        Raises:
            WorkbenchError: If it cannot be opened, or has other inputs or outputs. The current
                model then stays in service.
        """
        async with self._swapping:
            version = await asyncio.to_thread(Version.open, self.folder, self._limits)
            check_same_interface(self.version.card, version.card)
            if version.sha256 == self.version.sha256:
                return False
            watch, before = self._start_watch(version), self.watch
            self.version, self.watch = version, watch
            self.queue.replace(version.predict, version.times)
            self.num_swaps += 1
            if before is not None:
                await asyncio.to_thread(before.kept.close)
            return True

    def close(self) -> None:
        """End its threads. All kept samples are on disk after that."""
        self.queue.close()
        if self.watch is not None:
            self.watch.kept.close()

    def _start_watch(self, version: Version) -> Watch | None:
        if not self._limits.keep_share:
            return None
        return Watch(
            self.folder.resolve(),
            version.card,
            share=self._limits.keep_share,
            limit_bytes=self._limits.keep_bytes,
        )


def check_same_interface(served: Card, newer: Card) -> None:
    """Check that clients of a model can use a newer one without noticing.

    Raises:
        RunError: If its inputs or outputs differ.
    """
    for what, before, after in (
        ("inputs", _inputs_of(served), _inputs_of(newer)),
        ("outputs", _outputs_of(served), _outputs_of(newer)),
    ):
        if before != after:
            names = [name for name in {**before, **after} if before.get(name) != after.get(name)]
            raise RunError(
                f"the newer bundle has other {what} than the one that is served:"
                f" {', '.join(names[:5])}",
                field=what,
                allowed=", ".join(before),
                next_step="Serve it under another name: NAME=BUNDLE.",
            )


def _inputs_of(card: Card) -> dict[str, object]:
    return {
        column.name: (column.kind, column.shape, column.dtype, column.date_format)
        for column in card.inputs
    }


def _outputs_of(card: Card) -> dict[str, object]:
    return {
        output.name: (
            output.kind,
            output.shape,
            sorted(output.classes),
            sorted(output.targets),
            output.unit,
        )
        for output in card.outputs
    }
