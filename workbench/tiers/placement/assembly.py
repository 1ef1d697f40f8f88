"""Build the system to compute with, from a file of tiers, a bundle and profiles of machines."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np

from workbench.deploy.stages import STAGES, Stages, read_evidence, read_stages
from workbench.foundation.errors import ExperimentError
from workbench.foundation.files import sha256_of
from workbench.tiers.placement.cut_choice import best_cut
from workbench.tiers.placement.profile import Profile, read_profile
from workbench.tiers.placement.sending import ANSWER_BYTES, Sending
from workbench.tiers.placement.system import System
from workbench.tiers.placement.tiers_file import HERE, Tier, TiersFile

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
            "the models of the tiers are separate bundles",
            field="place.models",
            next_step="Use `workbench place`.",
        )
    bundle = folder / file.place.source
    if not (bundle / STAGES).exists():
        raise ExperimentError(
            f"{bundle} is not a bundle with early exits",
            field="place.from",
            next_step=(
                "Train mlp, convnet or resnet with the parameter exits: 1, and export it with "
                "--format onnx."
            ),
        )
    return bundle


def stages_of(file: TiersFile, bundle: Path) -> Stages:
    """Return the stages of a bundle, with the first exit's threshold from the file if it has one.

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
    file: TiersFile,
    folder: Path,
    *,
    measure: Measure,
    with_frames: bool = True,
    cut_at: np.ndarray | None = None,
) -> tuple[System, float]:
    """Return the system of a file, and how much its times vary.

    Args:
        file: The file of tiers.
        folder: The folder that its paths are relative to.
        measure: Measures the stages of a bundle on this machine, as `profile_stages` of
            `workbench.tiers.processes` does.
        with_frames: Whether making, protecting and reading frames counts. The time of links always
            does.
        cut_at: Where the model is cut without exits, like `Cut.is_there`. By default, the best cut
            is used.

    Returns:
        The system, and the relative standard deviation of measured times.

    Raises:
        ExperimentError: If a file is missing or does not fit the bundle. It has the dotted field.
        RunError: If the stages cannot be measured here.
    """
    bundle = bundle_of(file, folder)
    stages = stages_of(file, bundle)
    profiles = _profiles(file, folder, bundle, measure)
    tiers = list(file.tiers.items())
    times = [_stage_times(name, tier, profiles[name], bundle, stages) for name, tier in tiers]
    stage_s = np.array([seconds for seconds, _ in times])
    if file.place.models:
        stage_s = _with_own_models(stage_s)
    batches = np.array([tier.batch for _, tier in tiers])
    finite_s = np.where(np.isfinite(stage_s), stage_s, 0.0)
    sending = Sending(file, folder, profiles, stages, with_frames)
    features = sending.frame(sending.input_bytes(stages.stages[min(1, len(stages.stages) - 1)]))
    raw = sending.frame(sending.input_bytes(stages.stages[0]))
    return System(
        names=tuple(file.tiers),
        counts=tuple(tier.count for _, tier in tiers),
        arrivals_per_s=tiers[0][1].arrivals or 0.0,
        stage_s=stage_s,
        mates_s=finite_s.sum(axis=1) * (batches - 1),
        send_s=features.send_s,
        send_raw_s=raw.send_s,
        received_s=features.received_s,
        received_raw_s=raw.received_s,
        back_s=sending.ways(ANSWER_BYTES),
        sent_bytes=features.num_bytes,
        raw_bytes=raw.num_bytes,
        send_j=features.energy_j,
        raw_j=raw.energy_j,
        power=np.array([tier.power or 0.0 for _, tier in tiers]),
        evidence=read_evidence(bundle),
        thresholds=tuple(stage.threshold for stage in stages.stages),
        busy=file.place.busy,
        cut=None if file.place.models else best_cut(bundle, sending, at=cut_at),
        has_own_models=bool(file.place.models),
        links_s=features.links_s,
        links_raw_s=raw.links_s,
        heartbeat_s=sending.heartbeat_s,
        heartbeat_load=sending.heartbeat_load,
    ), max(spread for _, spread in times)


def _with_own_models(stage_s: np.ndarray) -> np.ndarray:
    """Return the times if the first tier has only the first model, and the last only the last."""
    own_s = np.full(stage_s.shape, np.inf)
    # The last model starts from the inputs, so it needs none of the stages before it.
    own_s[0, 0], own_s[-1, :-1], own_s[-1, -1] = stage_s[0, 0], 0.0, stage_s[-1, -1]
    return own_s


def _profiles(file: TiersFile, folder: Path, bundle: Path, measure: Measure) -> dict[str, Profile]:
    here = tuple(sorted({tier.batch for tier in file.tiers.values() if tier.machine == HERE}))
    measured = measure(bundle, batches=here) if here else None
    profiles = {}
    for name, tier in file.tiers.items():
        if tier.machine == HERE and measured is not None:
            profiles[name] = measured
        else:
            profiles[name] = read_profile(folder / tier.machine, field=f"tiers.{name}.machine")
    return profiles


def _stage_times(
    name: str, tier: Tier, profile: Profile, bundle: Path, stages: Stages
) -> tuple[list[float], float]:
    """Return the time of each stage for one request, and by how much it varies."""
    seconds, spreads, used_bytes = [], [], 0
    for number, stage in enumerate(stages.stages):
        path = bundle / stage.file
        timing = profile.timing(sha256_of(path), tier.batch)
        if timing is None:
            raise ExperimentError(
                f"its profile has no times for {stage.file} with batch {tier.batch}",
                field=f"tiers.{name}.machine",
                next_step=(
                    f"Measure this bundle there: workbench place profile {bundle} --batch"
                    f" {tier.batch}"
                ),
            )
        used_bytes += path.stat().st_size
        fits = tier.memory is None or used_bytes <= tier.memory
        if not fits and number == 0:
            raise ExperimentError(
                f"the first stage needs {used_bytes:,} bytes",
                field=f"tiers.{name}.memory",
                next_step="Give the tier more memory, or train a smaller model.",
            )
        # The median, as for cuts: other work of a machine slows few calls, but changes a mean a
        # lot.
        seconds.append(timing.p50_s / tier.batch if fits else np.inf)
        spreads.append(abs(timing.p95_s / timing.p50_s - 1.0) / 2.0)
    return seconds, float(np.clip(np.mean(spreads), 0.03, 0.3))
