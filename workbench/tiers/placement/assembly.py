"""Build the system to compute with, from a file of tiers, a bundle and profiles of machines."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np

from workbench.deploy.stages import STAGES, Stages, read_evidence, read_stages
from workbench.foundation.errors import ExperimentError
from workbench.foundation.files import sha256_of
from workbench.tiers.placement.cut_choice import best_cut
from workbench.tiers.placement.machine_profile import Profile, StageTiming, read_profile
from workbench.tiers.placement.sending_costs import ANSWER_BYTES, Sending
from workbench.tiers.placement.system import Hops, System
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
    _check_scene(file, stages)
    if file.place.threshold is None or len(stages.stages) == 1:
        return stages
    first = stages.stages[0].model_copy(update={"threshold": file.place.threshold})
    return stages.model_copy(update={"stages": (first, *stages.stages[1:])})


def _check_scene(file: TiersFile, stages: Stages) -> None:
    """Raise an error if the file and the model do not agree on who sees a scene."""
    scene, first = stages.scene, next(iter(file.tiers))
    if file.place.scene is None:
        if scene is not None:
            raise ExperimentError(
                f"the model joins the views of {scene.num_views} devices that see one scene",
                field="place.scene",
                next_step="Add scene: {} to place.",
            )
        return
    if scene is None:
        raise ExperimentError(
            "the model does not join the views of several devices",
            field="place.scene",
            next_step=(
                "Train a model with exits and views, such as convnet with exits: 1 and views: mean,"
                " or remove scene."
            ),
        )
    num_views, missing = scene.num_views, set(file.place.scene.missing)
    if file.tiers[first].count % num_views:
        raise ExperimentError(
            f"{num_views} devices see each scene, and {file.tiers[first].count} is not a multiple"
            " of it",
            field=f"tiers.{first}.count",
            allowed=f"a multiple of {num_views}",
        )
    if missing and (max(missing) >= num_views or len(missing) == num_views):
        raise ExperimentError(
            f"a scene has the views 0 to {num_views - 1}, and at least one is there",
            field="place.scene.missing",
            allowed=f"at most {num_views - 1} numbers from 0 to {num_views - 1}",
        )


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
        with_frames: Whether making, protecting and reading frames counts on tiers that are measured
            on this machine. That on other machines, and the time of links, always counts.
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
    times = [
        _stage_times(partial(_timing, name, profiles[name], bundle), tier.batch, stages, held)
        for (name, tier), held in zip(tiers, _held(file, bundle, stages), strict=True)
    ]
    stage_s, row_s = (np.array([time[part] for time in times]) for part in (0, 1))
    sending = Sending(file, folder, profiles, stages, with_frames)
    features = sending.frame(sending.input_bytes(stages.stages[min(1, len(stages.stages) - 1)]))
    raw = sending.frame(sending.input_bytes(stages.stages[0]))
    system = System(
        names=tuple(file.tiers),
        counts=tuple(tier.count for _, tier in tiers),
        arrivals_per_s=tiers[0][1].arrivals or 0.0,
        stage_s=stage_s,
        row_s=row_s,
        batches=tuple(tier.batch for _, tier in tiers),
        limits=tuple(_limit(tier) for _, tier in tiers),
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
        cut=None if file.place.models or stages.scene else best_cut(bundle, sending, at=cut_at),
        has_own_models=bool(file.place.models),
        links_s=features.links_s,
        links_raw_s=raw.links_s,
        heartbeat_s=sending.heartbeat_s,
        heartbeat_load=sending.heartbeat_load,
    )
    if len(tiers) > 2:
        system = replace(system, hops=_hops(system, sending))
    if stages.scene is not None:
        system = system.of_scenes(stages.scene, missing=len(set(file.place.missing_views)))
    return system, max(spread for _, _, spread in times)


def _hops(system: System, sending: Sending) -> Hops:
    """Return what each tier sends to the next one if every tier computes a part."""
    stages, sent, next_stage = sending.stages.stages, [], 0
    for link, part in enumerate(system.parts[:-1]):
        next_stage = part[-1] + 1 if part else next_stage
        # Where nothing is left to compute, nothing is sent.
        stage = stages[min(next_stage, len(stages) - 1)]
        sent.append(sending.hop(link, sending.input_bytes(stage)))
    send_s, received_s, num_bytes, energy_j, links_s, back_s = np.array(sent).T
    return Hops(
        send_s=send_s,
        received_s=received_s,
        num_bytes=num_bytes,
        energy_j=energy_j,
        links_s=links_s,
        back_s=back_s,
    )


def _limit(tier: Tier) -> float:
    """Return the largest load of a tier that the file allows."""
    limit = np.inf if tier.max_load is None else tier.max_load
    if tier.max_power is not None and tier.power is not None:
        limit = min(limit, tier.max_power / tier.power)
    return float(limit)


def _held(file: TiersFile, bundle: Path, stages: Stages) -> list[tuple[int, ...]]:
    """Return the stages that each tier has the memory for.

    Stages are held in order, as each one needs what those before it compute. With models of their
    own, a tier holds its model.

    Raises:
        ExperimentError: If the first tier cannot hold the first stage, or a tier its own model.
    """
    num_bytes = [(bundle / stage.file).stat().st_size for stage in stages.stages]
    held = []
    for number, (name, tier) in enumerate(file.tiers.items()):
        wanted = tuple(range(len(num_bytes)))
        if file.place.models:
            wanted = (list(file.tier_models()).index(name),) if name in file.tier_models() else ()
        sizes = np.cumsum([num_bytes[stage] for stage in wanted])
        fitting = wanted
        if tier.memory is not None:
            fitting = wanted[: int((sizes <= tier.memory).sum())]
        if wanted and not fitting and (number == 0 or file.place.models):
            what = "its model" if file.place.models else "the first stage"
            raise ExperimentError(
                f"{what} needs {num_bytes[wanted[0]]:,} bytes",
                field=f"tiers.{name}.memory",
                next_step="Give the tier more memory, or train a smaller model.",
            )
        held.append(fitting)
    return held


def _profiles(file: TiersFile, folder: Path, bundle: Path, measure: Measure) -> dict[str, Profile]:
    batches = {tier.batch for tier in file.tiers.values() if tier.machine == HERE}
    here = tuple(sorted({1, *batches})) if batches else ()
    measured = measure(bundle, batches=here) if here else None
    profiles = {}
    for name, tier in file.tiers.items():
        if tier.machine == HERE and measured is not None:
            profiles[name] = measured
        else:
            profiles[name] = read_profile(folder / tier.machine, field=f"tiers.{name}.machine")
    return profiles


def _stage_times(
    timing: Callable[[str, int], StageTiming], batch: int, stages: Stages, held: Sequence[int]
) -> tuple[list[float], list[float], float]:
    """Return the time of each stage alone, what it adds to a batch, and by how much it varies.

    A tier needs infinitely long for what it does not hold, but nothing for the models of others.
    """
    seconds, rows, spreads = [], [], []
    own = min(held, default=0) if len(held) == 1 and held[0] > 0 else 0
    for number, stage in enumerate(stages.stages):
        if number not in held:
            seconds.append(0.0 if number < own else np.inf)
            rows.append(seconds[-1])
            continue
        alone, full = timing(stage.file, 1), timing(stage.file, batch)
        # The median, as for cuts: other work of a machine slows few calls, but changes a mean a
        # lot.
        seconds.append(alone.p50_s)
        row_s = alone.p50_s
        if batch > 1:
            row_s = (full.p50_s - alone.p50_s) / (batch - 1)
        rows.append(float(np.clip(row_s, 0.0, alone.p50_s)))
        spreads.append(abs(alone.p95_s / alone.p50_s - 1.0) / 2.0)
    return seconds, rows, float(np.clip(np.mean(spreads or [0.0]), 0.03, 0.3))


def _timing(name: str, profile: Profile, bundle: Path, file: str, batch: int) -> StageTiming:
    timing = profile.timing(sha256_of(bundle / file), batch)
    if timing is None:
        raise ExperimentError(
            f"its profile has no times for {file} with batch {batch}",
            field=f"tiers.{name}.machine",
            next_step=(
                f"Measure this bundle there: workbench place profile {bundle} --batch 1"
                + (f" --batch {batch}" if batch > 1 else "")
            ),
        )
    return timing
