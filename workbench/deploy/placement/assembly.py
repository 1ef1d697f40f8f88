"""From a file of tiers, a bundle with stages and profiles of machines to the system that is computed with."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from workbench.deploy.card import sha256_of
from workbench.deploy.placement.links import HEADER_BYTES, TLS_BYTES, bandwidth_of, transfer_s
from workbench.deploy.placement.profile import FrameTiming, Profile, read_profile
from workbench.deploy.placement.stages import STAGES, Stage, Stages, read_evidence, read_stages
from workbench.deploy.placement.system import System
from workbench.deploy.placement.tiers_file import HERE, Tier, TiersFile
from workbench.errors import ExperimentError

_ANSWER_BYTES = HEADER_BYTES + 64

Measure = Callable[..., Profile]


def bundle_of(file: TiersFile, folder: Path) -> Path:
    """Return the bundle whose stages are placed.

    Args:
        file: The file of tiers.
        folder: The folder that its paths are relative to.

    Raises:
        ExperimentError: If there is none.
    """
    if file.place.source is None:
        raise ExperimentError(
            "several bundles cannot be planned yet: their answers are not known for the same samples",
            field="place.models", allowed="from: a bundle of one model with early exits",
        )  # fmt: skip
    bundle = folder / file.place.source
    if not (bundle / STAGES).exists():
        raise ExperimentError(
            f"{bundle} is not a bundle with early exits", field="place.from",
            next_step="Train mlp, convnet or resnet with the parameter exits: 1, and export it with "
            "--format onnx.",
        )  # fmt: skip
    return bundle


def stages_of(file: TiersFile, bundle: Path) -> Stages:
    """Return the stages of a bundle, with the threshold of the file at the first exit if it has one.

    Args:
        file: The file of tiers.
        bundle: The folder of the bundle.

    Raises:
        RunError: If they cannot be read.
    """
    stages = read_stages(bundle)
    if file.place.threshold is None or len(stages.stages) == 1:
        return stages
    first = stages.stages[0].model_copy(update={"threshold": file.place.threshold})
    return stages.model_copy(update={"stages": (first, *stages.stages[1:])})


def assemble(
    file: TiersFile, folder: Path, *, measure: Measure, with_frames: bool = True
) -> tuple[System, float]:
    """Return the system of a file, and by how much its times vary.

    Args:
        file: The file of tiers.
        folder: The folder that its paths are relative to.
        measure: Measures the stages of a bundle on this machine, as `profile_stages` of
            `workbench.deploy.tiers` does.
        with_frames: Whether making, protecting and reading frames counts; the time of links always does.

    Returns:
        The system, and the relative standard deviation of measured times.

    Raises:
        ExperimentError: If a file is missing or does not fit the bundle; it names the dotted field.
        RunError: If the stages cannot be measured here.
    """
    bundle = bundle_of(file, folder)
    stages = stages_of(file, bundle)
    profiles = _profiles(file, folder, bundle, measure)
    tiers = list(file.tiers.items())
    times = [_stage_times(name, tier, profiles[name], bundle, stages) for name, tier in tiers]
    stage_s = np.array([each for each, _ in times])
    batches = np.array([tier.batch for _, tier in tiers])
    finite_s = np.where(np.isfinite(stage_s), stage_s, 0.0)
    features, raw = (
        sent_bytes(file, stages.stages[min(1, len(stages.stages) - 1)]),
        sent_bytes(file, stages.stages[0]),
    )
    ways = {size: _ways(file, folder, size) for size in (features, raw, _ANSWER_BYTES)}
    joules = np.cumsum([0.0, *(link.energy or 0.0 for link in file.links_in_order())])
    hops = (np.arange(len(tiers)) > 0).astype(float)
    in_features, in_raw = (
        _frame_costs(file, profiles, what) if with_frames else _FrameCosts.none(len(tiers))
        for what in ("features" if len(stages.stages) > 1 else "inputs", "inputs")
    )
    watts = tiers[0][1].power or 0.0
    return System(
        names=tuple(file.tiers), counts=tuple(tier.count for _, tier in tiers),
        arrivals_per_s=tiers[0][1].arrivals or 0.0, stage_s=stage_s,
        mates_s=finite_s.sum(axis=1) * (batches - 1), send_s=ways[features] + in_features.wait_s,
        send_raw_s=ways[raw] + in_raw.wait_s, received_s=in_features.receive_s,
        received_raw_s=in_raw.receive_s, back_s=ways[_ANSWER_BYTES], sent_bytes=hops * features,
        raw_bytes=hops * raw,
        send_j=joules * features + in_features.send_s * watts, raw_j=joules * raw + in_raw.send_s * watts,
        power=np.array([tier.power or 0.0 for _, tier in tiers]), evidence=read_evidence(bundle),
        thresholds=tuple(stage.threshold for stage in stages.stages), busy=file.place.busy,
    ), max(spread for _, spread in times)  # fmt: skip


@dataclass(frozen=True)
class _FrameCosts:
    """What a request and its answer cost beside the links, from the first tier to each, in seconds.

    Attributes:
        send_s: Processor time of the first tier.
        receive_s: Processor time of the other tier.
        wait_s: Time in which the other tier does not work on it: `send_s`, and until processes wake up.
    """

    send_s: np.ndarray
    receive_s: np.ndarray
    wait_s: np.ndarray

    @classmethod
    def none(cls, num_tiers: int) -> _FrameCosts:
        return cls(np.zeros(num_tiers), np.zeros(num_tiers), np.zeros(num_tiers))


def _frame_costs(file: TiersFile, profiles: Mapping[str, Profile], what: str) -> _FrameCosts:
    costs = _FrameCosts.none(len(file.tiers))
    sender, *receivers = (_frame_timing(file, name, profiles[name], what) for name in file.tiers)
    for number, receiver in enumerate(receivers, 1):
        costs.send_s[number], costs.receive_s[number] = sender.sender_busy_s, receiver.receiver_busy_s
        costs.wait_s[number] = sender.sender_busy_s + (sender.idle_s + receiver.idle_s) / 2
    return costs


def _frame_timing(file: TiersFile, name: str, profile: Profile, what: str) -> FrameTiming:
    found = profile.frame(what, file.privacy.features, file.privacy.transport)
    if found is None:
        raise ExperimentError(
            "its profile has no times of frames", field=f"tiers.{name}.machine",
            next_step="Measure the bundle there again: workbench place profile BUNDLE --to FILE",
        )  # fmt: skip
    return found


def _profiles(file: TiersFile, folder: Path, bundle: Path, measure: Measure) -> dict[str, Profile]:
    here = tuple(sorted({tier.batch for tier in file.tiers.values() if tier.machine == HERE}))
    measured = measure(bundle, batches=here) if here else None
    return {
        name: read_profile(folder / tier.machine, field=f"tiers.{name}.machine")
        if tier.machine != HERE or measured is None else measured
        for name, tier in file.tiers.items()
    }  # fmt: skip


def _stage_times(
    name: str, tier: Tier, profile: Profile, bundle: Path, stages: Stages
) -> tuple[list[float], float]:
    """Return the time of each stage for one request, and by how much it varies."""
    found, spreads, used_bytes = [], [], 0
    for number, stage in enumerate(stages.stages):
        path = bundle / stage.file
        timing = profile.timing(sha256_of(path), tier.batch)
        if timing is None:
            raise ExperimentError(
                f"its profile has no times of {stage.file} with batch {tier.batch}",
                field=f"tiers.{name}.machine",
                next_step=f"Measure this bundle there: workbench place profile {bundle} --batch {tier.batch}",
            )
        used_bytes += path.stat().st_size
        fits = tier.memory is None or used_bytes <= tier.memory
        if not fits and number == 0:
            raise ExperimentError(
                f"the first stage takes {used_bytes:,} bytes", field=f"tiers.{name}.memory",
                next_step="Give the tier more memory, or train a smaller model.",
            )  # fmt: skip
        found.append(timing.mean_s / tier.batch if fits else np.inf)
        spreads.append(abs(timing.p95_s / timing.p50_s - 1.0) / 2.0)
    return found, float(np.clip(np.mean(spreads), 0.03, 0.3))


def sent_bytes(file: TiersFile, stage: Stage) -> int:
    """Return the bytes of a frame with what a stage takes.

    Args:
        file: The file of tiers, which says how values are sent.
        stage: The stage.
    """
    is_quantised = file.privacy.features == "uint8" and stage.input_dtype.startswith("float")
    item_bytes = np.dtype(stage.input_dtype).itemsize
    return HEADER_BYTES + stage.input_bytes // (item_bytes if is_quantised else 1)


def _ways(file: TiersFile, folder: Path, num_bytes: int) -> np.ndarray:
    """Return the time of a frame from the first tier to each."""
    on_wire = num_bytes + (TLS_BYTES if file.privacy.transport == "mtls" else 0)
    hops = [
        transfer_s(on_wire, bandwidth_of(link, folder, field=f"links.{name}"), link.rtt)
        for name, link in zip(
            [f"{a}-{b}" for a, b in zip(list(file.tiers)[:-1], list(file.tiers)[1:], strict=True)],
            file.links_in_order(), strict=True,
        )
    ]  # fmt: skip
    return np.cumsum([0.0, *hops])
