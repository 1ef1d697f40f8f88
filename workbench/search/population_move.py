"""What a population knows of the parts of its trainings, from which it chooses how to continue."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from workbench.experiment.space import Params


@dataclass(frozen=True)
class Move:
    """One part of a training: what it was trained with, and what that gained.

    Attributes:
        number: Which part of the training, from 0.
        params: The configuration.
        before: The score at its start. Larger is better.
        gain: By how much the score was higher at its end.
    """

    number: int
    params: Params
    before: float
    gain: float


@dataclass(frozen=True)
class Moves:
    """What is known when the next part of a training is chosen.

    Attributes:
        made: What earlier parts of all members have gained.
        chosen: The parts that other members will train beside it.
        following: The part itself, of which only its number and its score at the start count.
    """

    made: Sequence[Move]
    chosen: Sequence[Move]
    following: Move
