"""The metrics of a model server in the text format of Prometheus."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from workbench.deploy.distributions import needs
from workbench.deploy.serving.served_models import ServedModel

with needs("prometheus_client"):
    import prometheus_client
    from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
    from prometheus_client.core import GaugeMetricFamily
    from prometheus_client.registry import Collector

_LATENCY_BUCKETS_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
_BATCH_BUCKETS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)
_OF_QUEUES = {
    "workbench_queue_rows": ("Rows that wait.", lambda model: model.queue.num_waiting),
    "workbench_queue_limit_rows": ("Rows that may wait.", lambda model: model.queue.limit_rows),
    "workbench_batch_limit_rows": (
        "Rows that a batch may have at the moment.",
        lambda model: model.queue.batch_limit,
    ),
    "workbench_swaps": (
        "Number of times that a newer bundle took over.",
        lambda model: model.num_swaps,
    ),
    "workbench_latency_drift": (
        "How much longer batches take than when the model was opened.",
        lambda model: model.queue.slower,
    ),
}


class ServerMetrics:
    """Counts requests, rows and batches, and reads the state of queues and models when asked."""

    def __init__(self, models: Mapping[str, ServedModel]) -> None:
        """Count nothing yet.

        Args:
            models: What is served, by name.
        """
        # The creation times of counters are of no use, because a restarted server counts from 0.
        prometheus_client.disable_created_metrics()
        self._registry = CollectorRegistry()
        self._requests = self._counter(
            "workbench_requests_total", "Requests to predict, by status.", "code"
        )
        self._rejected = self._counter(
            "workbench_rejected_total",
            "Requests to predict that were rejected, by reason.",
            "reason",
        )
        self._rows = self._counter("workbench_rows_total", "Rows that were answered.")
        self._latency = Histogram(
            "workbench_request_seconds",
            "Seconds from a request to its answer.",
            ("model",),
            buckets=_LATENCY_BUCKETS_S,
            registry=self._registry,
        )
        self._batches = Histogram(
            "workbench_batch_rows",
            "Rows in a batch.",
            ("model",),
            buckets=_BATCH_BUCKETS,
            registry=self._registry,
        )
        self._computing = self._counter(
            "workbench_batch_seconds_total", "Seconds that batches were computed."
        )
        self._registry.register(_ModelState(models))
        self._of_models: dict[str, _ModelCounts] = {}

    def _counter(self, name: str, meaning: str, *labels: str) -> Counter:
        return Counter(name, meaning, ("model", *labels), registry=self._registry)

    def count_answer(self, model: str, num_rows: int, seconds: float) -> None:
        """Count a request that was answered, with the seconds that it took."""
        counts = self._counts_of(model)
        counts.latency.observe(seconds)
        counts.answered.inc()
        counts.rows.inc(num_rows)

    def count_refusal(self, model: str, status: int, reason: str) -> None:
        """Count a rejected request by its HTTP status and reason."""
        self._requests.labels(model, str(status)).inc()
        self._rejected.labels(model, reason).inc()

    def count_batch(self, model: str, num_rows: int, seconds: float) -> None:
        """Count a batch that was computed."""
        counts = self._counts_of(model)
        counts.batches.observe(num_rows)
        counts.computing.inc(seconds)

    def _counts_of(self, model: str) -> _ModelCounts:
        counts = self._of_models.get(model)
        if counts is None:
            counts = self._of_models[model] = _ModelCounts(
                answered=self._requests.labels(model, "200"),
                rows=self._rows.labels(model),
                latency=self._latency.labels(model),
                batches=self._batches.labels(model),
                computing=self._computing.labels(model),
            )
        return counts

    def write(self) -> bytes:
        """Return all values."""
        return generate_latest(self._registry)


@dataclass(frozen=True)
class _ModelCounts:
    """The counts of one model: looking them up by labels takes longer than counting does."""

    answered: Counter
    rows: Counter
    latency: Histogram
    batches: Histogram
    computing: Counter


class _ModelState(Collector):
    """Reads the current state of queues, models and their drift."""

    def __init__(self, models: Mapping[str, ServedModel]) -> None:
        self._models = models

    def collect(self) -> Iterator[GaugeMetricFamily]:
        for name, (meaning, read) in _OF_QUEUES.items():
            gauge = _gauge(name, meaning, "model")
            for model in self._models.values():
                gauge.add_metric((model.name,), read(model))
            yield gauge
        yield from self._drift()
        info = _gauge("workbench_model_info", "Which model is served.", "model", "version", "run")
        for model in self._models.values():
            version = model.version
            info.add_metric((model.name, version.sha256[:12], version.card.run_id), 1.0)
        yield info

    def _drift(self) -> Iterator[GaugeMetricFamily]:
        of_columns = _gauge(
            "workbench_drift",
            "Population stability index of a column. Notable from 0.2 on.",
            "model",
            "column",
        )
        of_answers = _gauge(
            "workbench_answer_drift", "Population stability index of the answers.", "model"
        )
        drifted = _gauge(
            "workbench_drifted",
            "Whether a column or the answers have drifted by more than chance.",
            "model",
        )
        dropped = _gauge("workbench_kept_dropped", "Samples that could not be kept.", "model")
        for name, model in self._models.items():
            if model.watch is None:
                continue
            monitor = model.watch.monitor
            columns, answers = monitor.columns(), monitor.answers()
            for column in columns:
                of_columns.add_metric((name, column.name), column.index)
            if answers is not None:
                of_answers.add_metric((name,), answers.index)
            has_drifted = any(drift.has_drifted for drift in columns) or (
                answers is not None and answers.has_drifted
            )
            drifted.add_metric((name,), float(has_drifted))
            dropped.add_metric((name,), model.watch.kept.num_dropped)
        yield from (of_columns, of_answers, drifted, dropped)


def _gauge(name: str, meaning: str, *labels: str) -> GaugeMetricFamily:
    return GaugeMetricFamily(name, meaning, labels=labels)
