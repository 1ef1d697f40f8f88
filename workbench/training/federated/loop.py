"""The loop of a federation: a trial is trained, pruned, stored and resumed by rounds.

A round counts as an epoch and as a step. It ends with the same evaluation, report and checkpoint as
an epoch of the usual loop. Everything random follows from seed, round and client, so an interrupted
round is repeated exactly. Making a single round is left to `rounds`.

Validation batches are cut by client, and their totals are added in the order of the clients. So the
values are the same, bit for bit, on any number of workers.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from time import perf_counter
from typing import Any

import numpy as np
import torch

from workbench.experiment.federated import (
    ANSWERED_METRIC,
    BYTES_METRIC,
    BYTES_TO_TARGET_METRIC,
    ROUNDS_METRIC,
    SPREADS,
)
from workbench.experiment.trial_value import TrialValue, find_divergence
from workbench.foundation.events import Event
from workbench.foundation.formatting import format_count
from workbench.models.metrics import AnyMetric, BatchMetric
from workbench.training import checkpoint
from workbench.training.assembly import Parts, assemble, notes_on_assembly
from workbench.training.attempt_events import AttemptEvents, Report
from workbench.training.device import join_trial
from workbench.training.evaluation import (
    Predictor,
    in_parts_and_whole,
    measure_kept,
    measure_own,
    measure_whole,
)
from workbench.training.federated.clients import Shards, clients_of
from workbench.training.federated.rounds import RoundResult, Rounds
from workbench.training.first_batch import check_first_batch
from workbench.training.loading import load_trial_data
from workbench.training.outcome import Outcome, diverged
from workbench.training.strategies.strategy import Worker
from workbench.training.tensor_source import Source
from workbench.training.worker_task import TrialTask

_ALONE = Worker()


def federate(task: TrialTask, report: Report) -> Outcome:
    """Train the model of one trial on the clients of a federation.

    Args:
        task: The order. Its experiment has a section `federated`.
        report: Receives events, and returns whether the trial should stop. Called on rank 0 only.

    Returns:
        How the training ended.

    Raises:
        WorkbenchError: If the experiment cannot be trained with this configuration.
    """
    started_s = perf_counter()
    worker = join_trial(task)
    try:
        parts = assemble(task, worker)
        try:
            check_first_batch(parts)
            return _Federation(task, parts, report, started_s).run()
        finally:
            parts.close()
    finally:
        worker.group.close()


class _Federation:
    """One attempt at a trial, and its position in the training."""

    def __init__(self, task: TrialTask, parts: Parts, report: Report, started_s: float) -> None:
        self._task, self._parts, self._report = task, parts, report
        self._events = AttemptEvents(task, report, parts.worker, started_s=started_s)
        federated = parts.settings.federated
        assert federated is not None
        self._federated = federated
        datasets = load_trial_data(task.run_id, task.experiment, task.seed, task.params)
        self._clients = clients_of(datasets, federated, task.experiment.seed)
        self._rounds = Rounds(parts, self._clients, task.seed)
        self._value = TrialValue(task.experiment)
        self._values: dict[str, float] = {}
        self._num_rounds = parts.settings.training.epochs
        self._num_done = 0
        # The round whose weights are the best so far, if this attempt has saved them.
        self._kept_round: int | None = None
        self._is_reached = False
        self._num_bytes = 0
        self._last_loss: float | None = None

    def run(self) -> Outcome:
        """Make rounds until the end or a stop, and return how it ended."""
        if self._task.resume:
            self._resume()
        for note in notes_on_assembly(self._task, self._parts):
            self._report(note)
        parts = self._parts
        planned = self._events.planned(
            parts.settings.plan,
            parts.datasets,
            parts.metrics,
            peak_rate=parts.settings.peak_rate,
        )
        ended = self._send(planned)
        parts.strategy.train(True)
        while ended is None and self._num_done < self._num_rounds and not self._is_reached:
            ended = self._make_round()
        if ended is None and self._last_loss is None:
            rounds = format_count(self._num_done, "round")
            message = (
                f"no client answered in {rounds}: see federated.timeout and federated.failures"
            )
            return Outcome("failed", self._num_done, self._value.result(), "error", message)
        if ended is None:
            has_kept = self._kept_round == self._num_done
            measure_kept(self._task, self._parts, self._report, has_kept_weights=has_kept)
        return ended or Outcome("complete", self._num_done, self._value.result())

    def _make_round(self) -> Outcome | None:
        schedule = self._parts.schedule
        settings = self._parts.settings
        began_s = perf_counter()
        try:
            result = self._rounds.run(self._num_done, settings.lr * schedule.factor(self._num_done))
        except OverflowError:
            return diverged("a client's change", math.inf, self._num_done + 1, self._values)
        elapsed_s = perf_counter() - began_s
        schedule.after_step()
        schedule.after_epoch()
        self._num_done += 1
        self._num_bytes += result.num_bytes
        if result.mean_loss is not None:
            self._last_loss = result.mean_loss
        if self._last_loss is not None and not math.isfinite(self._last_loss):
            return diverged("train_loss", self._last_loss, self._num_done, self._values)
        return self._finish_round(result, elapsed_s)

    def _finish_round(self, result: RoundResult, elapsed_s: float) -> Outcome | None:
        """Evaluate, report and write a checkpoint, if these are due in this round."""
        training = self._parts.settings.training
        number = self._num_done
        is_last = number == self._num_rounds
        values = {}
        if self._last_loss is not None:
            values["train_loss"] = self._last_loss
        values[BYTES_METRIC] = self._num_bytes / self._federated.clients
        values[ANSWERED_METRIC] = float(result.num_answered)
        is_best = False
        if is_last or number % training.evaluate_every == 0:
            values |= self._evaluate()
            values |= self._compare_with_target(values)
            is_last = is_last or self._is_reached
            self._values = values
            self._parts.schedule.after_evaluation(values)
            is_best = self._value.report(values, step=number)
            if not self._value.follows_best:
                is_best = is_last
        samples_per_s = result.num_trained / max(elapsed_s, 1e-9)
        ended = self._send(
            self._events.reported(
                number, values, epoch=float(number), samples_per_s=samples_per_s or None
            )
        )
        name = find_divergence(self._task.experiment, values)
        if name is not None:
            return diverged(name, values[name], number, values)
        is_due = ended is None and (is_last or number % training.checkpoint_every == 0)
        if is_due or is_best:
            ended = self._save(last=is_due, best=is_best) or ended
        return ended

    def _compare_with_target(self, values: dict[str, float]) -> dict[str, float]:
        target = self._federated.target
        if target is None:
            return {}
        self._is_reached = target.violation(values[target.metric]) <= 0.0
        # One more than the number of rounds means that the target was not reached.
        num_rounds = self._num_done if self._is_reached else self._num_rounds + 1
        per_round = self._num_bytes / self._federated.clients / self._num_done
        return {ROUNDS_METRIC: float(num_rounds), BYTES_TO_TARGET_METRIC: per_round * num_rounds}

    def _evaluate(self) -> dict[str, float]:
        parts = self._parts
        measured = evaluate_clients(
            parts.strategy,
            parts.validation,
            parts.metrics,
            self._clients.validation,
            batch=parts.settings.plan.micro_batch,
            worker=parts.worker,
        )
        return {f"val_{name}": value for name, value in measured.items()}

    def _send(self, event: Event) -> Outcome | None:
        """Report, and return how the training ended if it was stopped. See AttemptEvents.send."""
        stop = self._events.send(event)
        if not stop:
            return None
        return Outcome("stopped", self._num_done, self._value.result())

    def _save(self, *, last: bool, best: bool) -> Outcome | None:
        path = ""
        if self._parts.worker.rank == 0:
            content: dict[str, Any] = {
                "strategy": self._parts.strategy.state(),
                "step": self._num_done,
                "server": self._rounds.state(),
                "num_bytes": self._num_bytes,
                "is_reached": self._is_reached,
                "last_loss": self._last_loss,
                "value": self._value.state(),
                "values": self._values,
                "schedule": self._parts.schedule.state_dict(),
            }
            path = checkpoint.save(self._task.checkpoints, content, last=last, best=best)
        if best:
            self._kept_round = self._num_done
        return self._send(self._events.saved(self._num_done, path, best=best))

    def _resume(self) -> None:
        content = checkpoint.read_latest(self._task.checkpoints)
        if content is None:
            return
        self._rounds.load(content["strategy"]["model"], content["server"])
        self._num_done = content["step"]
        self._num_bytes, self._last_loss = content["num_bytes"], content["last_loss"]
        self._is_reached, self._values = content["is_reached"], content["values"]
        self._value.load(content["value"])
        self._parts.schedule.load_state_dict(content["schedule"])


def evaluate_clients(
    strategy: Predictor,
    source: Source,
    metrics: Mapping[str, AnyMetric],
    shards: Shards,
    *,
    batch: int,
    worker: Worker,
) -> dict[str, float]:
    """Measure metrics on the validation samples of all clients.

    Args:
        strategy: Holds the model.
        source: The validation samples.
        metrics: The metrics by name.
        shards: The samples of each client.
        batch: Samples at once.
        worker: Which worker this is. Each worker measures its part of the batches.

    Returns:
        The value of each metric over all samples, and the spread over the clients that have
        samples.
    """
    means, whole = in_parts_and_whole(metrics)
    parts = [
        (client, shard[first : first + batch])
        for client, shard in enumerate(shards)
        for first in range(0, len(shard), batch)
    ]
    strategy.train(False)
    own = [
        _measure(strategy, source, means, indices, keeps=bool(whole))
        for _, indices in parts[worker.rank :: worker.num_workers]
    ]
    strategy.train(True)
    gathered = worker.group.gather(own)
    measured = [
        gathered[at % worker.num_workers][at // worker.num_workers] for at in range(len(parts))
    ]
    clients = np.array([client for client, _ in parts])
    values: dict[str, float] = {}
    for index, (name, metric) in enumerate(means.items()):
        totals = np.array([numbers[index] for numbers, _ in measured])
        values[name] = metric.finish(float(totals[:, 0].sum() / totals[:, 1].sum()))
        if name == "loss" and len(metrics) > 1:
            continue
        sums_of_clients = [totals[clients == client].sum(axis=0) for client in np.unique(clients)]
        values |= _spread(
            name, [metric.finish(float(sums[0] / sums[1])) for sums in sums_of_clients if sums[1]]
        )
    kept = [pair for _, outputs in measured for pair in outputs]
    values |= measure_whole(whole, kept, worker.device)
    functions = {name: item for name, item in whole.items() if isinstance(item, BatchMetric)}
    if len(metrics) > 1:
        functions.pop("loss", None)
    if not functions:
        return values
    of_clients: dict[str, list[float]] = {name: [] for name in functions}
    for client in np.unique(clients):
        own_pairs = [pair for at in np.flatnonzero(clients == client) for pair in measured[at][1]]
        for name, value in measure_whole(functions, own_pairs, worker.device).items():
            of_clients[name].append(value)
    for name in functions:
        values |= _spread(name, of_clients[name])
    return values


def _measure(
    strategy: Predictor,
    source: Source,
    metrics: Mapping[str, BatchMetric],
    indices: np.ndarray,
    *,
    keeps: bool,
) -> tuple[list[tuple[float, float]], list[tuple[Any, Any]]]:
    """Return total and count of each metric over one batch, and its outputs if needed."""
    kept: list[tuple[Any, Any]] | None = [] if keeps else None
    totals, counts = measure_own(
        strategy,
        source,
        metrics,
        indices,
        batch=len(indices),
        worker=_ALONE,
        kept=kept,
        keeps_all=keeps,
    )
    sums = [(float(totals[name]), float(torch.as_tensor(counts[name]))) for name in metrics]
    return sums, kept or []


def _spread(name: str, values: Sequence[float]) -> dict[str, float]:
    of_clients = np.array(values)
    spreads = zip(SPREADS, (of_clients.min(), of_clients.max(), of_clients.std()), strict=True)
    return {f"{name}_client_{kind}": float(value) for kind, value in spreads}
