"""Tasks for searches: what 18 public trainings of a network gave, for any setting of seven
parameters.

`find_measured` says where the measurements are, and skips the test or benchmark where they are
absent.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from onnxruntime import InferenceSession

EPOCHS = 52
SEARCH = {
    "batch_size": {"low": 16, "high": 512, "log": True},
    "learning_rate": {"low": 1e-4, "high": 1e-1, "log": True},
    "momentum": {"low": 0.1, "high": 0.99},
    "weight_decay": {"low": 1e-5, "high": 0.1},
    "num_layers": {"low": 1, "high": 5},
    "max_units": {"low": 64, "high": 1024, "log": True},
    "max_dropout": {"low": 0.0, "high": 1.0},
}
"""The space of the trainings, as an experiment writes it."""

_NUM_DRAWS = 20_000


@dataclass(frozen=True)
class SearchTask:
    """One data set on which the network was trained.

    The predictions are those of the published surrogate.
    """

    name: str
    code: int
    session: InferenceSession = field(repr=False)
    best: float
    """Highest validation accuracy [%] of 20,000 random configurations after all epochs."""
    median: float
    """Median of the same."""

    def curves(self, params: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return validation accuracy [%] and seconds since the start after every epoch.

        Args:
            params: Shape [n, 7], in the order of `SEARCH`.

        Returns:
            Two arrays of shape [n, 52].
        """
        epochs = np.tile(np.arange(1, EPOCHS + 1, dtype=np.float32), len(params))
        features = np.column_stack([epochs, np.repeat(params.astype(np.float32), EPOCHS, axis=0)])
        outputs = _predict(self.session, self.code, features)
        accuracy, seconds = (outputs[:, column].reshape(len(params), EPOCHS) for column in (1, 0))
        return accuracy, np.maximum.accumulate(seconds, axis=1)

    def regret(self, accuracy: float) -> float:
        """Return how far an accuracy is from the best.

        0 at the best random one, 1 at their median.
        """
        return (self.best - accuracy) / (self.best - self.median)


def read_search_tasks(folder: Path, num: int | None = None) -> list[SearchTask]:
    """Read the tasks, each with the reference of its regret.

    Args:
        folder: Folder with `model.onnx` and `encoding.json`.
        num: How many tasks, spread evenly over all; None for all.
    """
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    session = onnxruntime.InferenceSession(str(folder / "model.onnx"), options)
    codes = json.loads((folder / "encoding.json").read_text())["OpenML_task_id"]
    draws = draw(_NUM_DRAWS, np.random.default_rng(0))
    tasks, known = [], [(name, code) for name, code in codes.items() if code != 0]
    if num is not None and num < len(known):
        known = [known[index * len(known) // num] for index in range(num)]
    for name, code in known:
        last = np.column_stack(
            [np.full(_NUM_DRAWS, EPOCHS, dtype=np.float32), draws.astype(np.float32)]
        )
        accuracy = _predict(session, code, last)[:, 1]
        tasks.append(
            SearchTask(name, code, session, float(accuracy.max()), float(np.median(accuracy)))
        )
    return tasks


def _predict(session: InferenceSession, code: int, features: np.ndarray) -> np.ndarray:
    codes = np.full((len(features), 1), code, dtype=np.int32)
    return np.asarray(session.run(None, {"x_cat": codes, "x_cont": features.astype(np.float32)})[0])


def draw(num: int, random: np.random.Generator) -> np.ndarray:
    """Draw configurations, uniformly on the scale of each parameter; shape [num, 7]."""
    columns = []
    for domain in SEARCH.values():
        low, high, log = domain["low"], domain["high"], domain.get("log", False)
        whole = isinstance(low, int)
        shift = 0.5 if whole else 0.0
        ends = (
            np.log([max(low - shift, 1e-9), high + shift]) if log else (low - shift, high + shift)
        )
        values = random.uniform(*ends, size=num)
        values = np.exp(values) if log else values
        columns.append(np.clip(np.round(values), low, high) if whole else values)
    return np.column_stack(columns)
