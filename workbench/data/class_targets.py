"""The class of each sample, from targets in any form that has one meaning.

Values are not judged.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from workbench.foundation.errors import DataError


def are_shares(targets: np.ndarray, num_classes: int) -> bool:
    """Return whether targets of samples with one class each are shares of the classes, such as
    one-hot.

    Args:
        targets: Of some samples.
        num_classes: Number of classes.
    """
    return targets.ndim == 2 and targets.shape[1] == num_classes > 1


def class_of_each(targets: Any, num_classes: int) -> np.ndarray:
    """Return the class of each sample.

    Args:
        targets: Class numbers, (samples,) or (samples, 1), or shares of the classes, (samples,
            classes).
        num_classes: Number of classes.

    Returns:
        Class numbers, (samples,).

    Raises:
        DataError: If samples have other targets than one class each.

    Example:
        >>> class_of_each(np.array([[2.0], [0.0]]), 3).tolist()
        [2, 0]
        >>> class_of_each(np.array([[0, 0, 1], [1, 0, 0]]), 3).tolist()
        [2, 0]
    """
    values = np.asarray(targets)
    if are_shares(values, num_classes):
        return values.argmax(axis=1)
    if values.shape[1:] not in ((), (1,)):
        raise DataError(
            f"the targets are of shape {values.shape}, which is not one class of each sample",
            field="data",
            allowed=f"({len(values)},), ({len(values)}, 1) or ({len(values)}, {num_classes})",
            next_step="Give each sample the number of its class, from 0.",
        )
    return values.reshape(-1).astype(np.int64)
