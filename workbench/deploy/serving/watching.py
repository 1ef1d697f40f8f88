"""What becomes of the rows that a server answers.

A sample of them is kept on disk and counted for drift.
"""

from __future__ import annotations

import random
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from workbench.deploy.card import Card, read_card
from workbench.deploy.serving.batching import Answer, Row
from workbench.deploy.serving.drift import DriftMonitor
from workbench.deploy.serving.kept_samples import KeptSamples, read_samples
from workbench.deploy.serving.rows import RowReader, RowsError


class Watch:
    """Keeps and counts a share of the rows of one bundle."""

    def __init__(self, bundle: Path, card: Card, *, share: float, limit_bytes: int) -> None:
        """Begin to watch; arguments as of `KeptSamples` and `DriftMonitor`.

        Args:
            bundle: The bundle, itself and not a link to it.
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


def drift_of_kept(bundle: Path) -> dict[str, Any]:
    """Return the drift of everything that was kept of a bundle, as `DriftMonitor.describe` does.

    Returns:
        In addition `latency_ratio`: how much longer the last quarter of the requests took than the
        first.

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
        except (RowsError, KeyError, TypeError):  # another card was in this folder then
            continue
        monitor.add(row, sample["answer"])
        seconds.append(sample["seconds"])
    quarter = max(len(seconds) // 4, 1)
    first_s, last_s = seconds[:quarter], seconds[-quarter:]
    ratio = statistics.median(last_s) / statistics.median(first_s) if seconds else None
    return monitor.describe() | {"latency_ratio": ratio}
