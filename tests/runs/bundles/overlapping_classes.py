"""Data of a sweep. A run keeps all that its module imports, and this one imports no test."""

from __future__ import annotations

import numpy as np

from workbench.data import Datasets
from workbench.data.splits import ArraySplit


def noisy_classes(options: dict[str, object]) -> Datasets:
    """Return data of three classes that overlap, with a test part."""
    random = np.random.default_rng(0)
    inputs = random.standard_normal((400, 4)).astype(np.float32)
    targets = (inputs[:, :3] + random.standard_normal((400, 3))).argmax(axis=1)
    train, validation, test = (
        ArraySplit(inputs[part], targets[part])
        for part in (slice(0, 200), slice(200, 300), slice(300, 400))
    )
    return Datasets("classes", "classification", train, validation, (4,), 3, test=test)
