"""What a server of models counts, in the text format of Prometheus."""

from __future__ import annotations

import bisect
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence

Labels = tuple[tuple[str, str], ...]

LATENCY_BUCKETS_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
BATCH_BUCKETS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)


def labelled(**labels: str) -> Labels:
    """Return labels in the order in which they are written."""
    return tuple(labels.items())


class Counter:
    """A number that only grows, for each set of labels."""

    kind = "counter"

    def __init__(self) -> None:
        self.counts: dict[Labels, float] = defaultdict(float)

    def add(self, labels: Labels, count: float = 1) -> None:
        """Count something."""
        self.counts[labels] += count

    def lines(self, name: str) -> Iterator[str]:
        """Yield the lines of its values."""
        for labels, count in sorted(self.counts.items()):
            yield f"{name}{_braces(labels)} {count:g}"


class Gauge:
    """Numbers that are read when they are needed."""

    kind = "gauge"

    def __init__(self, read: Callable[[], Mapping[Labels, float]]) -> None:
        self._read = read

    def lines(self, name: str) -> Iterator[str]:
        """Yield the lines of its values."""
        for labels, value in sorted(self._read().items()):
            yield f"{name}{_braces(labels)} {value:.9g}"


class Histogram:
    """How often values of each size were seen, for each set of labels."""

    kind = "histogram"

    def __init__(self, bounds: Sequence[float]) -> None:
        self._bounds = bounds
        self._counts: dict[Labels, list[int]] = defaultdict(lambda: [0] * (len(bounds) + 1))
        self._sums: dict[Labels, float] = defaultdict(float)

    def observe(self, labels: Labels, value: float) -> None:
        """Count a value."""
        self._counts[labels][bisect.bisect_left(self._bounds, value)] += 1
        self._sums[labels] += value

    def lines(self, name: str) -> Iterator[str]:
        """Yield the lines of its values."""
        for labels, counts in sorted(self._counts.items()):
            seen = 0
            for bound, count in zip((*self._bounds, "+Inf"), counts, strict=True):
                seen += count
                yield f"{name}_bucket{_braces((*labels, ('le', f'{bound}')))} {seen}"
            yield f"{name}_sum{_braces(labels)} {self._sums[labels]:.9g}"
            yield f"{name}_count{_braces(labels)} {seen}"


Metric = Counter | Gauge | Histogram


class Metrics:
    """Named metrics with what they mean."""

    def __init__(self) -> None:
        self._metrics: dict[str, tuple[str, Metric]] = {}

    def counter(self, name: str, meaning: str) -> Counter:
        """Add a counter."""
        return self._add(name, meaning, Counter())

    def gauge(self, name: str, meaning: str, read: Callable[[], Mapping[Labels, float]]) -> Gauge:
        """Add numbers that are read when they are needed."""
        return self._add(name, meaning, Gauge(read))

    def histogram(self, name: str, meaning: str, bounds: Sequence[float]) -> Histogram:
        """Add a histogram with upper bounds of its buckets."""
        return self._add(name, meaning, Histogram(bounds))

    def write(self) -> str:
        """Return all values in the text format of Prometheus."""
        lines: list[str] = []
        for name, (meaning, metric) in self._metrics.items():
            lines += [
                f"# HELP {name} {meaning}",
                f"# TYPE {name} {metric.kind}",
                *metric.lines(name),
            ]
        return "\n".join(lines) + "\n"

    def _add(self, name: str, meaning: str, metric):  # type: ignore[no-untyped-def]
        self._metrics[name] = (meaning, metric)
        return metric


def _braces(labels: Labels) -> str:
    if not labels:
        return ""
    return "{" + ",".join(f'{name}="{_escaped(value)}"' for name, value in labels) + "}"


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
