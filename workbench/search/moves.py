"""What a population knows of the parts of its trainings, from which it chooses how to continue."""

from __future__ import annotations

from dataclasses import dataclass

from workbench.experiment.space import Params


@dataclass(frozen=True)
class Move:
    """One part of a training: what it was trained with, and what that gained.

    Attributes:
        number: Which part of the training, from 0.
        params: The configuration.
        before: The score at its beginning; larger is better.
        gain: By how much the score was higher at its end.
    """

    number: int
    params: Params
    before: float
    gain: float
