"""The system from which placements are computed.

Measured times, bytes, links and the exits of a model, as arrays.

`assembly` fills it from files, and `policies` decide with it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from typing_extensions import Self

from workbench.deploy.stages import Evidence, Scene, exits_at


@dataclass(frozen=True)
class Cut:
    """The model without early exits, cut where one request is answered first.

    Attributes:
        scheduler: How it is placed: by `end-cloud`, or whole by `end` or `cloud`.
        is_there: (nodes,): whether each node of the graph is computed on the last tier.
        sent: The names of the values that are sent.
        stage_s: (tiers, parts): time of a part, as `System.stage_s`.
        row_s: As `System.row_s`, of the parts.
        send_s: As `System.send_s`, of the values.
        received_s: As `System.received_s`, of the values.
        sent_bytes: As `System.sent_bytes`, of the values.
        send_j: As `System.send_j`, of the values.
        alone_s: Time of one request on an idle system, by scheduler: cut here, `end` and `cloud`.
        links_s: As `System.links_s`, of the values.
        sent_evidence: How the model does on values as they are received, or None if that changes
            nothing.
    """

    scheduler: str
    is_there: np.ndarray
    sent: tuple[str, ...]
    stage_s: np.ndarray
    row_s: np.ndarray
    send_s: np.ndarray
    received_s: np.ndarray
    sent_bytes: np.ndarray
    send_j: np.ndarray
    alone_s: dict[str, float]
    links_s: np.ndarray
    sent_evidence: Evidence | None = None

    def to_json(self) -> dict[str, Any]:
        """Return where it is, and what one request takes, as plain values."""
        return {
            "scheduler": self.scheduler,
            "after": list(self.sent),
            "num_nodes": len(self.is_there),
            "num_nodes_here": int((~self.is_there).sum()),
            "bytes_per_sample": float(self.sent_bytes[-1]),
            "alone_s": self.alone_s,
        }


@dataclass(frozen=True)
class Hops:
    """What each tier sends to the next one if every tier computes a part and sends on the rest.

    The arrays are over links. A tier without the memory for its part only passes requests on.

    Attributes:
        send_s: Time until what is sent is at the next tier.
        received_s: Time in which a machine of the next tier reads it and sends the answer.
        num_bytes: Its bytes.
        energy_j: Energy of the sender, in joules.
        links_s: How long a link is occupied by it.
        back_s: Time of the answer over the link.
        evidence: How the exits do on what is received at each tier, or None if that changes
            nothing.
    """

    send_s: np.ndarray
    received_s: np.ndarray
    num_bytes: np.ndarray
    energy_j: np.ndarray
    links_s: np.ndarray
    back_s: np.ndarray
    evidence: Evidence | None = None


@dataclass(frozen=True)
class System:
    """Tiers in order, what each takes for the parts of a model, and how requests go between them.

    Attributes:
        names: The tiers.
        counts: Number of machines of each.
        arrivals_per_s: Requests that start at one machine of the first tier, per second.
        stage_s: (tiers, stages): time of a stage for one request on one machine, or infinite if the
            tier has no memory for it.
        send_s: For each tier, the time of the features from the first tier to it.
        send_raw_s: Likewise of the inputs.
        received_s: For each tier, how long a machine works on a request with features in addition
            to its stages: it reads the frame and sends the answer.
        received_raw_s: Likewise on a request with inputs.
        back_s: For each tier, the time of the answer back to the first.
        sent_bytes: Bytes that are sent if a request continues to a tier after the first stage.
        raw_bytes: Likewise where its inputs are sent.
        send_j: Energy of the sender for `sent_bytes`, in joules.
        raw_j: Likewise for `raw_bytes`.
        links_s: For each link, how long one is occupied by the features of a request. Each machine
            of a tier has its own link to the next tier.
        links_raw_s: Likewise by the inputs.
        power: Power of a machine of each tier while it computes, in watts, or 0 if it is unknown.
        evidence: How each exit did on the validation split, if the first tier computes everything.
        sent_evidence: Likewise where the features are sent after the first stage, as they are
            received, or None if that changes nothing.
        raw_evidence: Likewise where the inputs are sent.
        thresholds: The probability from which an answer leaves at each exit.
        busy: Load of the last tier from which `threshold` sends less there.
        cut: Where the model without exits is cut, or None if its nodes were not measured.
        group_threshold: The probability from which the first exit is sure of a group of classes, or
            None if there are no groups.
        has_own_models: Whether the stages are models of their own, one for each tier, which all use
            the inputs.
        row_s: (tiers, stages): by how much a request makes the call of a batch longer. None for the
            time of the stage, so that batches save nothing.
        batches: For each tier, how many of the requests that wait a machine computes at once. Empty
            for one everywhere.
        hops: What each tier sends to the next one, or None for fewer than three tiers.
        limits: For each tier, the largest load that the file allows. Empty for none.
        heartbeat_s: How often each machine of the first tier sends a heartbeat to every further
            tier.
        heartbeat_load: For each link, the share of the time that it carries heartbeats.
        num_views: Number of machines of the first tier that see each scene. Together they count as
            one machine of it: they compute at the same time, and each has its own link.
        accuracy_without: The accuracy of the last exit without each of the views.
    """

    names: tuple[str, ...]
    counts: tuple[int, ...]
    arrivals_per_s: float
    stage_s: np.ndarray
    send_s: np.ndarray
    send_raw_s: np.ndarray
    received_s: np.ndarray
    received_raw_s: np.ndarray
    back_s: np.ndarray
    sent_bytes: np.ndarray
    raw_bytes: np.ndarray
    send_j: np.ndarray
    raw_j: np.ndarray
    links_s: np.ndarray
    links_raw_s: np.ndarray
    power: np.ndarray
    evidence: Evidence
    thresholds: tuple[float, ...]
    busy: float = 0.7
    sent_evidence: Evidence | None = None
    raw_evidence: Evidence | None = None
    cut: Cut | None = None
    group_threshold: float | None = None
    has_own_models: bool = False
    row_s: np.ndarray | None = None
    batches: tuple[int, ...] = ()
    hops: Hops | None = None
    limits: tuple[float, ...] = ()
    heartbeat_s: float = np.inf
    heartbeat_load: np.ndarray | float = 0.0
    num_views: int = 1
    accuracy_without: tuple[float, ...] = ()

    def of_scenes(self, scene: Scene, *, missing: int = 0) -> Self:
        """Return it where several machines of the first tier see each scene.

        All of them send their features to the next tier, which joins them.

        Args:
            scene: How many see it, of which the number of machines is a multiple.
            missing: How many of them are missing.
        """
        num_views, num_there = scene.num_views, scene.num_views - missing
        is_joined = np.arange(self.stage_s.shape[1]) > 0
        stage_s, row_s = self.stage_s.copy(), self.added_s.copy()
        stage_s[0, is_joined] = row_s[0, is_joined] = np.inf  # a device has only its own view
        hops = self.hops
        if hops is not None:
            times = np.where(np.arange(len(hops.num_bytes)) == 0, num_there, 1)
            hops = replace(
                hops,
                received_s=hops.received_s * times,
                num_bytes=hops.num_bytes * times,
                energy_j=hops.energy_j * times,
            )
        return replace(
            self,
            counts=(self.counts[0] // num_views, *self.counts[1:]),
            stage_s=stage_s,
            row_s=row_s,
            received_s=self.received_s * num_there,
            sent_bytes=self.sent_bytes * num_there,
            send_j=self.send_j * num_there,
            power=self.power * np.where(np.arange(len(self.power)) == 0, num_there, 1),
            thresholds=(2.0, *self.thresholds[1:]),  # no probability reaches 2
            cut=None,
            hops=hops,
            num_views=num_views,
            accuracy_without=scene.accuracy_without,
        )

    def as_cut(self) -> tuple[Self, str]:
        """Return it without early exits, and the scheduler that places the model as it is cut."""
        assert self.cut is not None
        cut, num_parts = self.cut, self.cut.stage_s.shape[1]
        last = [
            None if evidence is None else evidence.last(num_parts)
            for evidence in (self.evidence, self.raw_evidence)
        ]
        assert last[0] is not None
        return (
            replace(
                self,
                stage_s=cut.stage_s,
                row_s=cut.row_s,
                send_s=cut.send_s,
                links_s=cut.links_s,
                received_s=cut.received_s,
                sent_bytes=cut.sent_bytes,
                send_j=cut.send_j,
                evidence=last[0],
                raw_evidence=last[1],
                sent_evidence=cut.sent_evidence,
                # No probability reaches 2, so nothing leaves before the last part.
                thresholds=(2.0,) * (num_parts - 1) + (0.0,),
                cut=None,
                hops=None,
            ),
            cut.scheduler,
        )

    def by_group(self) -> Self:
        """Return it with answers as correct where their group is."""
        kinds = (self.evidence, self.sent_evidence, self.raw_evidence)
        evidence, sent, raw = (None if known is None else known.by_group() for known in kinds)
        assert evidence is not None
        cut = self.cut
        if cut is not None and cut.sent_evidence is not None:
            cut = replace(cut, sent_evidence=cut.sent_evidence.by_group())
        hops = self.hops
        if hops is not None and hops.evidence is not None:
            hops = replace(hops, evidence=hops.evidence.by_group())
        return replace(
            self, evidence=evidence, sent_evidence=sent, raw_evidence=raw, cut=cut, hops=hops
        )

    def with_times(self, factors: np.ndarray) -> Self:
        """Return it with the times of stages multiplied by a factor for each tier, (tiers, 1)."""
        cut = self.cut
        if cut is not None:
            cut = replace(cut, stage_s=cut.stage_s * factors, row_s=cut.row_s * factors)
        return replace(self, stage_s=self.stage_s * factors, row_s=self.added_s * factors, cut=cut)

    def sending(self) -> Self:
        """Return it as a scheduler sees it that sends features from the first tier to the last."""
        thresholds = self.thresholds
        if self.has_own_models:  # those of the tiers between them take no part in it
            between = (2.0,) * (len(thresholds) - 2)
            thresholds = (thresholds[0], *between, *thresholds[1:][-1:])
        return replace(self, evidence=self.sent_evidence or self.evidence, thresholds=thresholds)

    def sending_raw(self) -> Self:
        """Return it as a scheduler sees it that sends inputs."""
        evidence = self.raw_evidence or self.evidence
        if self.has_own_models:  # the first model takes no part in it
            evidence = evidence.last(evidence.confidence.shape[1])
        return replace(self, evidence=evidence)

    def of_samples(self, samples: np.ndarray) -> Self:
        """Return it with some of the validation samples, by their numbers."""
        sent, raw, cut = self.sent_evidence, self.raw_evidence, self.cut
        if cut is not None and cut.sent_evidence is not None:
            cut = replace(cut, sent_evidence=cut.sent_evidence.of(samples))
        hops = self.hops
        if hops is not None and hops.evidence is not None:
            hops = replace(hops, evidence=hops.evidence.of(samples))
        return replace(
            self,
            evidence=self.evidence.of(samples),
            cut=cut,
            hops=hops,
            sent_evidence=None if sent is None else sent.of(samples),
            raw_evidence=None if raw is None else raw.of(samples),
        )

    @property
    def total_per_s(self) -> float:
        """Requests per second of all machines of the first tier."""
        return self.arrivals_per_s * self.counts[0]

    def passing_on(self) -> Self:
        """Return it as a scheduler sees it that sends features from each tier to the next."""
        known = None if self.hops is None else self.hops.evidence
        return replace(self, evidence=known or self.sent_evidence or self.evidence)

    @cached_property
    def added_s(self) -> np.ndarray:
        """(tiers, stages): by how much a request makes the call of a batch longer."""
        return self.stage_s if self.row_s is None else self.row_s

    def batch(self, tier: int) -> int:
        """Return how many requests a machine of a tier computes at once, at most."""
        return self.batches[tier] if self.batches else 1

    @cached_property
    def parts(self) -> list[tuple[int, ...]]:
        """For each tier, the stages that it computes if every tier computes one and sends on.

        The last tier computes all that is left. A tier without the memory for a stage has none.
        """
        next_stage, parts = 0, []
        for tier, times_s in enumerate(self.stage_s):
            held = int(np.isfinite(times_s[next_stage:]).sum()) if next_stage < len(times_s) else 0
            if held and tier < len(self.names) - 1:
                held = 1
            parts.append(tuple(range(next_stage, next_stage + held)))
            next_stage += held
        return parts

    @cached_property
    def until_s(self) -> np.ndarray:
        """(tiers, exits): time of all stages until an exit."""
        return np.cumsum(self.stage_s, axis=1)

    @cached_property
    def rest_s(self) -> np.ndarray:
        """(tiers, exits): time of a machine from receiving features until an exit.

        0 for the first.
        """
        rest = np.zeros_like(self.stage_s)
        rest[:, 1:] = np.cumsum(self.stage_s[:, 1:], axis=1) + self.received_s[:, None]
        return rest

    @cached_property
    def whole_s(self) -> np.ndarray:
        """(tiers, exits): time of a machine from receiving inputs until an exit."""
        return self.until_s + self.received_raw_s[:, None]

    @cached_property
    def rest_rows_s(self) -> np.ndarray:
        """(tiers, exits): as `rest_s`, what a request adds to the call of a batch."""
        return replace(self, stage_s=self.added_s).rest_s

    @cached_property
    def whole_rows_s(self) -> np.ndarray:
        """(tiers, exits): as `whole_s`, what a request adds to the call of a batch."""
        return replace(self, stage_s=self.added_s).whole_s

    @cached_property
    def exits(self) -> np.ndarray:
        """The exit of each validation sample."""
        return exits_at(self.evidence, self.thresholds)

    @property
    def can_finish_here(self) -> bool:
        """Whether a machine of the first tier can compute the whole model."""
        return bool(np.isfinite(self.stage_s[0]).all())

    def with_load(self, load: float) -> Self:
        """Return the system with as many requests as give the last tier a certain load."""
        mean_s = float(self.rest_s[-1][self.exits].mean())
        return replace(self, arrivals_per_s=load * self.counts[-1] / mean_s / self.counts[0])
