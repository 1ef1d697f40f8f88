"""Systems of two to five tiers that are drawn: their machines, links, memories and models.

The models are tiny graphs whose answers are known, and the machines are profiles with drawn times,
which processes wait for. So a system can be planned, simulated and run.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import yaml

from workbench.deploy.stages import Evidence, Stage, Stages, exits_at, softmax
from workbench.foundation.files import sha256_of
from workbench.tiers.placement.machine_profile import FrameTiming, Profile, StageTiming
from workbench.tiers.placement.tiers_file import TiersFile, read_tiers

_NUM_SAMPLES, _NUM_CLASSES = 400, 5
_SHARPER = 2.0
_FRAME_S = 2e-4
_STAGE = """
<ir_version: 10, opset_import: ["" : 20]>
stage (float[batch, {size}] inputs)
  => (float[batch, {size}] features, float[batch, {size}] probabilities)
<float factor = {{{factor}}}> {{
    features = Mul(inputs, factor)
    probabilities = Softmax<axis = -1>(inputs)
}}
"""


@dataclass(frozen=True)
class Drawn:
    """A drawn system.

    Attributes:
        path: Its file of tiers.
        bundle: The bundle that it places.
        samples: Inputs of the validation split.
        targets: The right classes.
    """

    path: Path
    bundle: Path
    samples: np.ndarray
    targets: np.ndarray

    @property
    def file(self) -> TiersFile:
        """What the file of tiers holds."""
        return read_tiers(self.path)


def draw_system(folder: Path, seed: int, *, rate_per_s: float = 15.0) -> Drawn:
    """Draw a system, and write its files.

    Args:
        folder: Where to write.
        seed: Seed of the draw.
        rate_per_s: Requests per second of all devices together.
    """
    random = np.random.default_rng(seed)
    num_tiers, num_stages = int(random.integers(2, 6)), int(random.integers(2, 5))
    bundle, samples, targets = _write_bundle(folder / "bundle", random, num_stages)
    names = ["end", "near", "edge", "far", "cloud"]
    names = [*names[: num_tiers - 1], "cloud"]
    counts = [int(random.integers(2, 12)), *random.integers(1, 4, num_tiers - 1).tolist()]
    base_s = random.uniform(0.01, 0.06, num_stages)
    sizes = np.cumsum(
        [(bundle / f"stage_{stage}.onnx").stat().st_size for stage in range(num_stages)]
    )
    tiers: dict[str, Any] = {}
    for number, name in enumerate(names):
        slower = random.uniform(0.3, 3.0) if number else random.uniform(1.0, 4.0)
        batch = int(random.choice([1, 1, 4])) if number else 1
        _profile(folder / f"{name}.json", bundle, base_s * slower, batch, random)
        tiers[name] = {"count": counts[number], "machine": f"{name}.json", "batch": batch}
        if 0 < number < num_tiers - 1 and random.random() < 0.3:
            tiers[name]["memory"] = f"{int(sizes[random.integers(num_stages)])}B"
    if random.random() < 0.4:
        tiers["end"]["memory"] = f"{int(sizes[random.integers(num_stages)])}B"
    tiers["end"]["arrivals"] = f"{rate_per_s / counts[0]:.6f}/s"
    links = {
        f"{first}-{second}": {
            "bandwidth": f"{random.uniform(0.05, 1.0):.3f}Mbit",
            "rtt": f"{random.uniform(2, 40):.1f}ms",
        }
        for first, second in pairwise(names)
    }
    document = {
        "tiers": tiers,
        "links": links,
        "place": {"from": "bundle", "scheduler": "mapping", "monitoring": "none", "timeout": "30s"},
        "privacy": {"transport": "plain"},
    }
    path = folder / "tiers.yaml"
    path.write_text(yaml.safe_dump(document, sort_keys=False))
    return Drawn(path, bundle, samples, targets)


def _write_bundle(
    bundle: Path, random: np.random.Generator, num_stages: int
) -> tuple[Path, np.ndarray, np.ndarray]:
    """Write stages that get surer one after another, and how they do on drawn samples."""
    bundle.mkdir()
    samples = random.normal(0, 1.2, (_NUM_SAMPLES, _NUM_CLASSES)).astype(np.float32)
    answers = [softmax(samples * _SHARPER**stage) for stage in range(num_stages)]
    targets = answers[-1].argmax(axis=1)
    confidence = np.stack([answer.max(axis=1) for answer in answers], axis=1)
    evidence = Evidence(confidence, np.ones(confidence.shape, dtype=bool))
    thresholds = [
        float(np.quantile(confidence[:, stage], random.uniform(0.2, 0.8)))
        for stage in range(num_stages - 1)
    ]
    thresholds.append(0.0)
    exits, stages = exits_at(evidence, thresholds), []
    for number, threshold in enumerate(thresholds):
        text = _STAGE.format(size=_NUM_CLASSES, factor=_SHARPER)
        onnx.save(onnx.parser.parse_model(text), str(bundle / f"stage_{number}.onnx"))
        stages.append(
            Stage(
                file=f"stage_{number}.onnx",
                input_shape=(_NUM_CLASSES,),
                temperature=1.0,
                accuracy=1.0,
                threshold=threshold,
                share=float((exits == number).mean()),
            )
        )
    # Equal files would have equal times, as profiles know them by their hash.
    for number in range(num_stages):
        path = bundle / f"stage_{number}.onnx"
        model = onnx.load(str(path))
        model.doc_string = f"stage {number}"
        onnx.save(model, str(path))
    evidence.write(bundle)
    Stages(stages=tuple(stages), accuracy=1.0, num_samples=_NUM_SAMPLES).write(bundle)
    return bundle, samples, targets


def _profile(
    path: Path, bundle: Path, times_s: np.ndarray, batch: int, random: np.random.Generator
) -> None:
    timings = []
    for number, alone_s in enumerate(times_s.tolist()):
        full_s = alone_s * (1 + (batch - 1) * random.uniform(0.2, 0.9))
        for size, call_s in {1: alone_s, batch: full_s if batch > 1 else alone_s}.items():
            file = f"stage_{number}.onnx"
            timings.append(
                StageTiming(
                    file=file,
                    sha256=sha256_of(bundle / file),
                    batch=size,
                    mean_s=call_s,
                    p50_s=call_s,
                    p95_s=call_s,
                )
            )
    frames = tuple(
        FrameTiming(
            what=what,
            features="float32",
            transport="plain",
            mean_s=3 * _FRAME_S,
            p50_s=3 * _FRAME_S,
            p95_s=3 * _FRAME_S,
            sender_busy_s=_FRAME_S / 10,
            receiver_busy_s=_FRAME_S / 10,
        )
        for what in ("inputs", "features")
    )
    Profile(
        machine="drawn", runtime="none", threads=1, timings=tuple(timings), frames=frames
    ).write(path)
