"""How long stages and frames take on one kind of machine: the file that `place profile` writes.

It also tells how such a machine is reached. The measuring itself is done by
`workbench.tiers.processes.profiling`, here or on another machine.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from workbench.deploy.device import HERE
from workbench.foundation.errors import ArgumentError, ExperimentError
from workbench.foundation.files import write_atomically
from workbench.tiers.placement.tiers_file import read_tiers


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore", allow_inf_nan=False)


class StageTiming(_Part):
    """The time of one stage on a tier, including the decision whether its answer is final.

    Attributes:
        file: Its graph.
        sha256: SHA-256 of the graph.
        batch: Samples in a call.
        mean_s: Mean time of a call, in seconds.
        p50_s: Half of the calls were at most this long.
        p95_s: 95 of 100 calls were at most this long.
    """

    file: str
    sha256: str
    batch: int = Field(ge=1)
    mean_s: float = Field(gt=0)
    p50_s: float = Field(gt=0)
    p95_s: float = Field(gt=0)


class GraphTiming(_Part):
    """The time of the entire model without early exits on a tier, and of each of its nodes.

    Attributes:
        sha256: SHA-256 of the graph of the bundle.
        batch: Samples in a call.
        call_s: Median time of a call, in seconds.
        nodes_s: Time of each node of the graph fused by ONNX Runtime, by name, without the time of
            measuring.
    """

    sha256: str
    batch: int = Field(ge=1)
    call_s: float = Field(gt=0)
    nodes_s: dict[str, float]

    @property
    def beyond_nodes_s(self) -> float:
        """The time of each call in addition to its nodes."""
        return max(0.0, self.call_s - sum(self.nodes_s.values()))


class FrameTiming(_Part):
    """How long a request takes to another process of the same machine, and an answer back.

    Attributes:
        what: Whether `inputs` or the `features` of the first stage are sent.
        features: How they are sent, as `privacy.features`.
        transport: How they are protected, as `privacy.transport`.
        mean_s: Mean time from making the frame to its answer, in seconds. Nothing is computed.
        p50_s: Half of the frames took at most this long.
        p95_s: 95 of 100 frames took at most this long.
        sender_busy_s: Processor time of the sender for one request.
        receiver_busy_s: Processor time of the receiver for one request.
    """

    what: Literal["inputs", "features"]
    features: Literal["float32", "uint8"]
    transport: Literal["mtls", "plain"]
    mean_s: float = Field(gt=0)
    p50_s: float = Field(gt=0)
    p95_s: float = Field(gt=0)
    sender_busy_s: float = Field(ge=0)
    receiver_busy_s: float = Field(ge=0)

    @property
    def idle_s(self) -> float:
        """The part of the mean time in which neither process computes: they are woken up."""
        return max(0.0, self.mean_s - self.sender_busy_s - self.receiver_busy_s)


class Profile(_Part):
    """What was measured on one machine.

    Attributes:
        machine: The machine, in words.
        device: The device that was named, which tells how to reach it from here, or None if that is
            not kept.
        runtime: What ran the stages, with its version.
        threads: Number of threads that computed.
        timings: One for each stage and batch.
        frames: One for each way in which inputs and features are sent.
        graphs: One for each batch of the entire model, if it can be cut.
    """

    machine: str
    device: str | None = None
    runtime: str
    threads: int
    timings: tuple[StageTiming, ...]
    frames: tuple[FrameTiming, ...] = ()
    graphs: tuple[GraphTiming, ...] = ()

    def write(self, path: Path) -> None:
        """Write it, all or nothing."""
        write_atomically(path, self.model_dump_json(indent=2) + "\n")

    def timing(self, sha256: str, batch: int) -> StageTiming | None:
        """Return how long a stage takes, or None if it was not measured with that batch."""
        for timing in self.timings:
            if (timing.sha256, timing.batch) == (sha256, batch):
                return timing
        return None

    def graph(self, sha256: str, batch: int) -> GraphTiming | None:
        """Return how long a whole model takes, or None if it was not measured with that batch."""
        for graph in self.graphs:
            if (graph.sha256, graph.batch) == (sha256, batch):
                return graph
        return None

    def frame(self, what: str, features: str, transport: str) -> FrameTiming | None:
        """Return how long a frame takes, or None if it was not measured."""
        for frame in self.frames:
            if (frame.what, frame.features, frame.transport) == (what, features, transport):
                return frame
        return None


def read_profile(path: Path, *, field: str) -> Profile:
    """Read a profile.

    Args:
        path: The file.
        field: The dotted field with its path, for errors.

    Raises:
        ExperimentError: If it cannot be read.
    """
    try:
        return Profile.model_validate(json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, ValidationError) as error:
        reason = getattr(error, "strerror", None) or "it is not a profile"
        raise ExperimentError(
            f"cannot read {path}: {reason}",
            field=field,
            allowed=f"{HERE} or the file of a profile",
            next_step="Write it on that machine: workbench place profile BUNDLE --to FILE",
        ) from error


def find_device(text: str) -> str:
    """Return a device as `measure` takes it.

    Args:
        text: `here`, ssh://[USER@]HOST[:PORT], or FILE:TIER, a tier of a file of tiers.

    Raises:
        ExperimentError: If the file of tiers, or the profile that it names, cannot be read.
        ArgumentError: If there is no such tier, or it is not known how its machine is reached.
    """
    file, colon, name = text.rpartition(":")
    if not colon or "://" in text:
        return text
    path = Path(file)
    tiers = read_tiers(path).tiers
    if name not in tiers:
        raise ArgumentError(f"{file} has no tier {name!r}", field="device", allowed=list(tiers))
    machine = tiers[name].machine
    if machine == HERE:
        return HERE
    device = read_profile(path.parent / machine, field=f"tiers.{name}.machine").device
    if device in (None, HERE):
        raise ArgumentError(
            f"{machine} was measured on the machine itself, so its address is not known",
            field="device",
            next_step=(
                "Give it as ssh://[USER@]HOST[:PORT], or measure the profile again with --device."
            ),
        )
    return device
