"""The gains of a population's parts, from which it chooses the parameters of the next part."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from workbench.experiment.space import Params


@dataclass(frozen=True)
class Move:
    """One part of a training, with its configuration and its gain.

    Attributes:
        number: The number of the part, from 0.
        params: The configuration.
        before: The score at its start. Larger is better.
        gain: The score at its end minus the score at its start.
    """

    number: int
    params: Params
    before: float
    gain: float


@dataclass(frozen=True)
class Moves:
    """The knowledge from which the next part of a training is chosen.

    Attributes:
        made: Earlier parts of all members.
        chosen: Parts that other members will train at the same time.
        following: The next part itself. Only its number and its score at the start are used.
    """

    made: Sequence[Move]
    chosen: Sequence[Move]
    following: Move
