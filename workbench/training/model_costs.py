"""What a model costs those who use it, measured where an objective or a constraint names it."""

from __future__ import annotations

from statistics import median
from time import perf_counter

import torch

from workbench.experiment import Experiment
from workbench.experiment.goals import LATENCY, SIZE
from workbench.training.source import Source
from workbench.training.strategies.strategy import Strategy, Worker

_NUM_LATENCIES = 11


class ModelCosts:
    """Measures the size of a model and how long it takes to predict a sample."""

    def __init__(self, experiment: Experiment, model_bytes: int) -> None:
        """Find what is to be measured.

        Args:
            experiment: Whose objectives and constraints name it.
            model_bytes: Of the parameters of the whole model.
        """
        self._wanted = {each.metric for each in (*experiment.objectives, *experiment.constraints)}
        self._model_bytes = model_bytes

    def measure(self, strategy: Strategy, source: Source, worker: Worker) -> dict[str, float]:
        """Return what is wanted, by metric; all workers must call it after an evaluation.

        Args:
            strategy: Holds the model, which is not training at the moment.
            source: Has the sample that is predicted.
            worker: Which worker this is; the first one's seconds count.
        """
        found: dict[str, float] = {}
        if SIZE in self._wanted:
            found[SIZE] = float(self._model_bytes)
        if LATENCY in self._wanted:
            found[LATENCY] = _latency_s(strategy, source, worker)
        return found


def _latency_s(strategy: Strategy, source: Source, worker: Worker) -> float:
    inputs, _ = source.fetch(source.all_indices[:1])
    seconds = []
    for _ in range(1 + _NUM_LATENCIES):  # the first prediction may have to be prepared
        began_s = perf_counter()
        strategy.predict(inputs)
        if worker.device.type == "cuda":
            torch.cuda.synchronize(worker.device)
        seconds.append(perf_counter() - began_s)
    own = median(seconds[1:]) if worker.rank == 0 else 0.0
    return worker.group.total(torch.tensor(own, dtype=torch.float64, device=worker.device)).item()
