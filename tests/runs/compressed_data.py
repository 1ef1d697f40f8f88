"""Data of a sweep to be compressed.

A run keeps all that its module imports. This one imports no test.
"""

from __future__ import annotations

import numpy as np

from workbench.data import Datasets
from workbench.data.splits import ArraySplit


def two_values(config: dict[str, float], report: object) -> dict[str, float]:
    return {"val_loss": config["lr"]}


def larger_of_two(options: dict[str, object]) -> Datasets:
    """Return data with a test part."""
    inputs = np.random.default_rng(0).standard_normal((300, 2)).astype(np.float32)
    targets = (inputs[:, 0] > inputs[:, 1]).astype(np.int64)
    train, validation, test = (
        ArraySplit(inputs[part], targets[part])
        for part in (slice(0, 200), slice(200, 250), slice(250, 300))
    )
    return Datasets("larger", "classification", train, validation, (2,), 2, test=test)
