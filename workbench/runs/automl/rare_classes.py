"""Classes with few samples: too few to learn, or many fewer than of other classes."""

from __future__ import annotations

import numpy as np

from workbench.foundation.errors import DataError
from workbench.foundation.formatting import format_count

MIN_SAMPLES = 20
MIN_PER_CLASS = 3
# A class that is this many times rarer than the most frequent one is reported.
_IMBALANCE = 5.0


def drop_rare(
    classes: np.ndarray, class_names: list[str]
) -> tuple[np.ndarray, np.ndarray, list[str], list[str]]:
    """Leave out classes with too few samples to train, validate and test on.

    Returns:
        The rows that are kept, their classes, the names of these, and notes.
    """
    counts = np.bincount(classes, minlength=len(class_names))
    kept = np.flatnonzero(counts >= MIN_PER_CLASS)
    if len(kept) < 2:
        raise DataError(
            f"fewer than two of {len(counts)} classes (such as {class_names[0]!r}) have "
            f"{MIN_PER_CLASS} samples",
            field="target",
            allowed="classes of which there are several samples each, or numbers",
            next_step=(
                "Add samples, or convert the target to a number if it is a quantity or a date."
            ),
        )
    if len(kept) == len(counts):
        return np.arange(len(classes)), classes, class_names, []
    rare = [class_names[number] for number in np.flatnonzero(counts < MIN_PER_CLASS)]
    rows = np.flatnonzero(np.isin(classes, kept))
    of_rare = (
        f"{format_count(len(rare), 'class', 'classes')} with fewer than {MIN_PER_CLASS} samples"
    )
    of_rare += f": {', '.join(rare[:5])}"
    if len(rare) > 5:
        of_rare += ", ..."
    if len(rows) < len(classes) / 2 or len(rows) < MIN_SAMPLES:
        raise DataError(
            f"{len(classes) - len(rows)} of {len(classes)} samples are of {of_rare}",
            field="target",
            allowed=(
                f"classes of which there are at least {MIN_PER_CLASS} samples each, for most of the"
                f" samples and at least {MIN_SAMPLES} of them, or numbers"
            ),
            next_step=(
                "If the target is a quantity, write it in plain numbers, such as 2466. Otherwise"
                " merge rare classes, or choose another column."
            ),
        )
    note = f"left out {format_count(len(classes) - len(rows), 'sample')} of {of_rare}"
    names = [class_names[number] for number in kept]
    return rows, np.searchsorted(kept, classes[rows]), names, [note]


def imbalance_of(classes: np.ndarray, class_names: list[str]) -> list[str]:
    """Return a note if one class has many more samples than another.

    Args:
        classes: The class of each sample.
        class_names: The names of the classes.
    """
    counts = np.bincount(classes, minlength=len(class_names))
    most, least = int(counts.argmax()), int(counts.argmin())
    if counts[most] < _IMBALANCE * counts[least]:
        return []
    return [
        f"classes are imbalanced: {counts[most]} samples of {class_names[most]!r}, {counts[least]}"
        f" of {class_names[least]!r}. Compare balanced_accuracy, as accuracy alone is misleading"
    ]
