"""What it takes to send something from the first tier to each: links, frames, bytes, energy.

Frames are timed with inputs and with features. The cost of other sizes is interpolated. Times of
links follow from `links`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from workbench.deploy.stages import Stage, Stages
from workbench.foundation.errors import ExperimentError
from workbench.tiers.placement.links import HEADER_BYTES, beats_per_link, heartbeat_s, occupied_s
from workbench.tiers.placement.machine_profile import FrameTiming, Profile
from workbench.tiers.placement.tiers_file import HERE, TiersFile

ANSWER_BYTES = HEADER_BYTES + 64
_MIN_SHARE = 1e-6


@dataclass(frozen=True)
class Sent:
    """What one frame from the first tier to each costs.

    Attributes:
        send_s: Time until it is there.
        received_s: Processor time of the other tier, sending the answer included.
        num_bytes: Its bytes.
        energy_j: Energy of the sender, in joules.
        links_s: For each link, how long it is occupied by the frame, in the time that heartbeats
            leave.
    """

    send_s: np.ndarray
    received_s: np.ndarray
    num_bytes: np.ndarray
    energy_j: np.ndarray
    links_s: np.ndarray


@dataclass(frozen=True)
class Sending:
    """The ways between tiers.

    Attributes:
        file: The file of tiers.
        folder: The folder that its paths are relative to.
        profiles: What was measured on the machines of each tier.
        stages: The stages whose inputs and features were sent then.
        with_frames: Whether making, protecting and reading frames counts on tiers that are measured
            on this machine. That on other machines, and the time of links, always counts.
    """

    file: TiersFile
    folder: Path
    profiles: Mapping[str, Profile]
    stages: Stages
    with_frames: bool

    def frame(self, num_bytes: int) -> Sent:
        """Return what a frame costs.

        Args:
            num_bytes: Its bytes, header included.

        Raises:
            ExperimentError: If frames were not timed, or a trace cannot be read.
        """
        tiers = list(self.file.tiers.values())
        joules = np.cumsum([0.0, *(link.energy or 0.0 for link in self.file.links_in_order())])
        sender_s, receiver_s, idle_s = self._processes(num_bytes)
        is_far = (np.arange(len(tiers)) > 0).astype(float)
        return Sent(
            self.ways(num_bytes) + is_far * (sender_s[0] + (idle_s[0] + idle_s) / 2),
            is_far * receiver_s,
            is_far * num_bytes,
            joules * num_bytes + is_far * sender_s[0] * (tiers[0].power or 0.0),
            self._links_s(num_bytes) / np.maximum(1.0 - self.heartbeat_load, _MIN_SHARE),
        )

    def hop(self, link: int, num_bytes: int) -> tuple[float, float, int, float, float, float]:
        """Return what a frame costs from a tier to the next one, as the fields of `Hops`.

        Args:
            link: The number of the link between them.
            num_bytes: Bytes of the frame, header included.

        Raises:
            ExperimentError: If frames were not timed, or a trace cannot be read.
        """
        given = self.file.links_in_order()[link]
        power = list(self.file.tiers.values())[link].power or 0.0
        sender_s, receiver_s, idle_s = self._processes(num_bytes)
        link_s, answer_s = (self._links_s(size)[link] for size in (num_bytes, ANSWER_BYTES))
        beats = self.heartbeat_load[link]
        return (
            float(given.rtt / 2 + link_s + sender_s[link] + (idle_s[link] + idle_s[link + 1]) / 2),
            float(receiver_s[link + 1]),
            num_bytes,
            float((given.energy or 0.0) * num_bytes + sender_s[link] * power),
            float(link_s / max(1.0 - beats, _MIN_SHARE)),
            float(given.rtt / 2 + answer_s),
        )

    def ways(self, num_bytes: float) -> np.ndarray:
        """Return the time of a frame over the links from the first tier to each."""
        rtts_s = np.array([link.rtt for link in self.file.links_in_order()])
        return np.cumsum([0.0, *(rtts_s / 2 + self._links_s(num_bytes))])

    @cached_property
    def heartbeat_s(self) -> float:
        """How often a device sends a heartbeat to every further tier, in seconds.

        Infinite for never.
        """
        if self.file.place.monitoring == "none":
            return np.inf
        _, answering_s, _ = self._processes(HEADER_BYTES)
        return heartbeat_s(self.file, self.folder, self._counts, answering_s.tolist())

    @property
    def heartbeat_load(self) -> np.ndarray:
        """For each link, the share of the time that it carries heartbeats to all further tiers."""
        return beats_per_link(self._counts) * self._links_s(HEADER_BYTES) / self.heartbeat_s

    @property
    def _counts(self) -> list[int]:
        return [tier.count for tier in self.file.tiers.values()]

    def _links_s(self, num_bytes: float) -> np.ndarray:
        """Return how long each link is occupied by a frame."""
        return occupied_s(num_bytes, self.file, self.folder)

    def bytes_of(self, num_values: int, dtype: str) -> int:
        """Return the bytes of a frame with `num_values` numbers of a type."""
        is_quantised = self.file.privacy.features == "uint8" and dtype.startswith("float")
        return HEADER_BYTES + num_values * (1 if is_quantised else np.dtype(dtype).itemsize)

    def input_bytes(self, stage: Stage) -> int:
        """Return the bytes of a frame with what a stage takes."""
        return self.bytes_of(int(np.prod(stage.wire_shape, dtype=np.int64)), stage.wire_dtype)

    def _processes(self, num_bytes: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return, for each tier, the times of sending, receiving, and waking up processes."""
        if len(self.profiles) == 1:
            none = np.zeros(len(self.profiles))
            return none, none, none
        kinds = {self.input_bytes(self.stages.stages[0]): "inputs"}
        if len(self.stages.stages) > 1:
            kinds.setdefault(self.input_bytes(self.stages.stages[1]), "features")
        known = sorted(kinds)
        busy_s = []
        for name, profile in self.profiles.items():
            if not self.with_frames and self.file.tiers[name].machine == HERE:
                busy_s.append([0.0, 0.0, 0.0])
                continue
            timings = [self._timing(name, profile, kinds[size]) for size in known]
            times_s = [
                (timing.sender_busy_s, timing.receiver_busy_s, timing.idle_s) for timing in timings
            ]
            busy_s.append(
                [np.interp(num_bytes, known, seconds) for seconds in zip(*times_s, strict=True)]
            )
        sender_s, receiver_s, idle_s = np.array(busy_s).T
        return sender_s, receiver_s, idle_s

    def _timing(self, name: str, profile: Profile, what: str) -> FrameTiming:
        timing = profile.frame(what, self.file.privacy.features, self.file.privacy.transport)
        if timing is None:
            raise ExperimentError(
                "its profile has no times for frames",
                field=f"tiers.{name}.machine",
                next_step=(
                    "Measure the bundle there again: workbench place profile BUNDLE --to FILE"
                ),
            )
        return timing
