"""What a placement is computed from: measured times, bytes, links and the exits of a model, as arrays.

Reading files into it is left to `assembly`; what a scheduler makes of it, to `policies`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from typing_extensions import Self

from workbench.deploy.placement.cascade import exits_at
from workbench.deploy.placement.stages import Evidence


@dataclass(frozen=True)
class System:
    """Tiers in order, what each takes for the parts of a model, and how requests go between them.

    Attributes:
        names: The tiers.
        counts: Number of machines of each.
        arrivals_per_s: Requests that begin at one machine of the first tier, per second.
        stage_s: (tiers, stages): time of a stage for one request on one machine; infinite where the tier
            cannot run it.
        mates_s: For each tier, how much longer a request takes because it is computed in a batch.
        send_s: For each tier, the time of the features from the first tier to it.
        send_raw_s: Likewise of the inputs.
        received_s: For each tier, how long a machine works on a request with features beside its stages: it
            reads the frame and sends the answer.
        received_raw_s: Likewise on a request with inputs.
        back_s: For each tier, the time of the answer back to the first.
        sent_bytes: Bytes that are sent if a request goes on to a tier after the first stage.
        raw_bytes: Likewise where its inputs are sent.
        send_j: Energy of the sender for `sent_bytes`, in joules.
        raw_j: Likewise for `raw_bytes`.
        power: Power of a machine of each tier while it computes, in watts; 0 where it is unknown.
        evidence: How each exit did on the validation split, where the first tier computes all.
        sent_evidence: Likewise where the features are sent after the first stage, as they are received; None
            if that changes nothing.
        raw_evidence: Likewise where the inputs are sent.
        thresholds: The probability from which an answer leaves at each exit.
        busy: Load of the last tier from which `threshold` sends less there.
    """

    names: tuple[str, ...]
    counts: tuple[int, ...]
    arrivals_per_s: float
    stage_s: np.ndarray
    mates_s: np.ndarray
    send_s: np.ndarray
    send_raw_s: np.ndarray
    received_s: np.ndarray
    received_raw_s: np.ndarray
    back_s: np.ndarray
    sent_bytes: np.ndarray
    raw_bytes: np.ndarray
    send_j: np.ndarray
    raw_j: np.ndarray
    power: np.ndarray
    evidence: Evidence
    thresholds: tuple[float, ...]
    busy: float = 0.7
    sent_evidence: Evidence | None = None
    raw_evidence: Evidence | None = None

    def sending(self) -> Self:
        """Return it as a scheduler sees it that sends features."""
        return replace(self, evidence=self.sent_evidence or self.evidence)

    def sending_raw(self) -> Self:
        """Return it as a scheduler sees it that sends inputs."""
        return replace(self, evidence=self.raw_evidence or self.evidence)

    def of_samples(self, samples: np.ndarray) -> Self:
        """Return it with some of the validation samples, by their numbers."""
        sent, raw = self.sent_evidence, self.raw_evidence
        return replace(
            self, evidence=self.evidence.of(samples),
            sent_evidence=None if sent is None else sent.of(samples),
            raw_evidence=None if raw is None else raw.of(samples),
        )  # fmt: skip

    @property
    def total_per_s(self) -> float:
        """Requests per second of all machines of the first tier."""
        return self.arrivals_per_s * self.counts[0]

    @cached_property
    def until_s(self) -> np.ndarray:
        """(tiers, exits): time of all stages until an exit."""
        return np.cumsum(self.stage_s, axis=1)

    @cached_property
    def rest_s(self) -> np.ndarray:
        """(tiers, exits): time of a machine from receiving features until an exit; 0 for the first."""
        rest = np.zeros_like(self.stage_s)
        rest[:, 1:] = np.cumsum(self.stage_s[:, 1:], axis=1) + self.received_s[:, None]
        return rest

    @cached_property
    def whole_s(self) -> np.ndarray:
        """(tiers, exits): time of a machine from receiving inputs until an exit."""
        return self.until_s + self.received_raw_s[:, None]

    @cached_property
    def exits(self) -> np.ndarray:
        """The exit of each validation sample."""
        return exits_at(self.evidence, self.thresholds)

    @property
    def can_finish_here(self) -> bool:
        """Whether a machine of the first tier can compute the whole model."""
        return bool(np.isfinite(self.stage_s[0]).all())

    def with_load(self, load: float) -> Self:
        """Return it with as many requests as give the last tier a load if all that do not leave go there."""
        mean_s = float(self.rest_s[-1][self.exits].mean())
        return replace(self, arrivals_per_s=load * self.counts[-1] / mean_s / self.counts[0])
