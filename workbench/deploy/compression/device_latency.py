"""Measures a compressed model on the device where it will run.

The compressed and the unchanged model are called in turn. Measurements of each device are stored in
the user's data folder, and reused for a day if both files are the same. This helps if a model is
compressed again, or if several trials create the same file. `workbench.deploy.device` connects to
the device.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from workbench.deploy.device import time_model
from workbench.deploy.device_runner import Comparison
from workbench.foundation.artifacts.local import make_private
from workbench.foundation.files import write_atomically
from workbench.store.database.urls import user_data_folder

_REUSED_FOR_S = 24 * 3600.0
"""Older measurements are not reused, because programs on the device may have changed."""
_MAX_KEPT = 1000
_NUM_CALLS = 500


@dataclass(frozen=True)
class OnDevice:
    """The measurement on a device.

    Attributes:
        compared: The latency, compared with the unchanged model in turn.
        machine: The machine, its processor and number of cores.
        runtime: What ran the models, with its version.
        p95_s: 95 of 100 calls of the model alone were at most this long, in seconds.
        memory_bytes: Peak memory of a process that only runs the model.
        energy_j: The energy of all processors of the machine for a call, in joules, or None if it
            is not counted.
        measured_unix_s: The time of the measurement.
        values: The scores of its answers there, by metric. Empty if no samples were given.
    """

    compared: Comparison
    machine: str
    runtime: str
    p95_s: float
    memory_bytes: int
    energy_j: float | None
    measured_unix_s: float
    values: Mapping[str, float] = field(default_factory=dict)


def measure_there(
    model: Path,
    base: Path,
    feeds: Mapping[str, np.ndarray],
    *,
    device: str,
    python: str,
    threads: int,
    samples: np.ndarray | None = None,
    evaluate: Callable[[np.ndarray], Mapping[str, float]] | None = None,
) -> OnDevice:
    """Measure a model and its base on a device, or return a measurement of both of the last day.

    Args:
        model: The compressed model.
        base: The unchanged model.
        feeds: The input of the model.
        device: ssh://[USER@]HOST[:PORT].
        python: The Python there, which has numpy and onnxruntime.
        threads: Number of threads that compute a call.
        samples: Inputs that the model also answers there, or None for none.
        evaluate: Returns the scores of these answers, by metric.

    Raises:
        ArgumentError: If the device is unknown.
        RunError: If the machine cannot be reached, or a model cannot be run there.
    """
    [inputs] = feeds.values()
    parts = [model.read_bytes(), base.read_bytes(), f"{python} {threads} {inputs.shape}".encode()]
    if samples is not None:
        parts.append(np.ascontiguousarray(samples).tobytes())
    key = hashlib.sha256(b"".join(hashlib.sha256(part).digest() for part in parts)).hexdigest()
    path = kept_file(device)
    kept = _read(path)
    known = kept.get(key)
    if known is not None and 0 <= time.time() - known["measured_unix_s"] < _REUSED_FOR_S:
        return OnDevice(**{**known, "compared": Comparison(**known["compared"])})
    timing = time_model(
        model,
        feeds,
        device,
        threads=threads,
        num_calls=_NUM_CALLS,
        python=python,
        base=base,
        samples=samples,
    )
    values = {} if samples is None or evaluate is None else dict(evaluate(timing["answers"]))
    kept[key] = {
        "compared": timing["in_turn"],
        "runtime": timing["runtime"],
        "machine": f"{timing['host']}, {timing['processor']}, {timing['num_cores']} cores",
        "p95_s": timing["p95_s"],
        "memory_bytes": timing["memory_bytes"],
        "energy_j": timing["energy_j"],
        "measured_unix_s": time.time(),
        "values": values,
    }
    _write(path, dict(list(kept.items())[-_MAX_KEPT:]))
    return OnDevice(**{**kept[key], "compared": Comparison(**kept[key]["compared"])})


def kept_file(device: str) -> Path:
    """Return the file that stores the measurements of a device."""
    name = hashlib.sha256(device.encode()).hexdigest()[:16]
    return user_data_folder() / "devices" / f"{name}.json"


def _read(path: Path) -> dict[str, Any]:
    try:
        kept = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):  # an unreadable file only means that models are measured again
        return {}
    return kept if isinstance(kept, dict) else {}


def _write(path: Path, kept: Mapping[str, Any]) -> None:
    make_private(path.parent)
    write_atomically(path, json.dumps(kept))
