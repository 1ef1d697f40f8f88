"""How long each stage of a model takes on one kind of machine: the file that `place profile` writes.

The measuring itself is done by `workbench.deploy.device`, here or on another machine.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from workbench.deploy.card import read_card, sha256_of
from workbench.deploy.device import HERE, example_feeds, time_model
from workbench.deploy.placement.stages import INPUTS, read_stages
from workbench.errors import ExperimentError

_NUM_CALLS = 1000


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore", allow_inf_nan=False)


class StageTiming(_Part):
    """How long one stage takes.

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


class Profile(_Part):
    """What was measured on one machine.

    Attributes:
        machine: The machine, in words.
        device: The device that was named, which tells how to reach it from here; None where that is not kept.
        runtime: What ran the stages, with its version.
        threads: Number of threads that computed.
        timings: One for each stage and batch.
    """

    machine: str
    device: str | None = None
    runtime: str
    threads: int
    timings: tuple[StageTiming, ...]

    def write(self, path: Path) -> None:
        """Write it, all or nothing."""
        temporary = path.with_name(f".{path.name}.tmp")
        temporary.write_text(self.model_dump_json(indent=2) + "\n", encoding="utf-8")
        os.replace(temporary, path)

    def timing(self, sha256: str, batch: int) -> StageTiming | None:
        """Return how long a stage takes; None where it was not measured with that batch."""
        found = [each for each in self.timings if (each.sha256, each.batch) == (sha256, batch)]
        return found[0] if found else None


def profile_stages(
    folder: Path, device: str = HERE, *, batches: tuple[int, ...] = (1,), threads: int = 1,
    python: str = "python3", num_calls: int = _NUM_CALLS,
) -> Profile:  # fmt: skip
    """Measure the stages of a bundle on a device.

    Args:
        folder: A bundle with early exits.
        device: `here`, or ssh://[USER@]HOST[:PORT].
        batches: Numbers of samples in a call.
        threads: Number of threads that compute a call.
        python: The Python of the other machine, which has numpy and onnxruntime.
        num_calls: Number of calls that are timed of each stage and batch.

    Raises:
        RunError: If the bundle has no stages, or the machine cannot be reached.
    """
    stages, card = read_stages(folder), read_card(folder)
    timings, found = [], {}
    for number, stage in enumerate(stages.stages):
        for batch in batches:
            random = np.random.default_rng(0)
            feeds = (
                example_feeds(card, folder, batch) if number == 0
                else {INPUTS: random.normal(size=(batch, *stage.input_shape)).astype(np.float32)}
            )  # fmt: skip
            path = folder / stage.file
            found = time_model(path, feeds, device, threads=threads, num_calls=num_calls, python=python)
            timings.append(StageTiming(file=stage.file, sha256=sha256_of(path), **found))
    place = "" if device == HERE else f" ({device})"
    machine = f"{found['host']}, {found['processor']}, {found['num_cores']} cores{place}"
    return Profile(
        machine=machine, device=device, runtime=found["runtime"], threads=threads, timings=tuple(timings)
    )


def read_profile(path: Path, *, field: str) -> Profile:
    """Read a profile.

    Args:
        path: The file.
        field: The dotted field that names it, for errors.

    Raises:
        ExperimentError: If it cannot be read.
    """
    try:
        return Profile.model_validate(json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, ValidationError) as error:
        reason = getattr(error, "strerror", None) or "it is not a profile"
        raise ExperimentError(
            f"cannot read {path}: {reason}", field=field, allowed=f"{HERE}, or the file of a profile",
            next_step="Write it on that machine: workbench place profile BUNDLE --to FILE",
        ) from error  # fmt: skip
