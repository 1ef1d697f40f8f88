"""`place`: where the stages of a model run, on devices, near them or in the cloud."""

from __future__ import annotations

import contextlib
import functools
import math
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from workbench.cli.declarations import takes
from workbench.cli.lazy_groups import LazyGroup
from workbench.cli.options import example
from workbench.cli.output import echo, make_console, print_json, print_note, progress
from workbench.cli.parameters import (
    BATCH,
    BUNDLE,
    DEVICE,
    JSON,
    PYTHON,
    REQUESTS,
    SEED,
    STORE,
    STORED,
    THREADS,
    TIERS_FILE,
    TO,
)
from workbench.cli.place_run import NEEDS_MODEL, placing
from workbench.foundation.formatting import (
    format_bytes,
    format_duration,
    format_number,
    format_percent,
    format_range,
)

if TYPE_CHECKING:
    from workbench.tiers.placement.scheduler_plans import Plan
    from workbench.tiers.placement.system import System
    from workbench.tiers.placement.tiers_file import TiersFile
    from workbench.tiers.processes.leak import Leak

COMMANDS = {
    "profile": "workbench.cli.place:profile",
    "plan": "workbench.cli.place:plan",
    "simulate": "workbench.cli.place:simulate",
    "run": "workbench.cli.place_run:run",
}


@click.group(
    "place", cls=LazyGroup, table=COMMANDS, context_settings={"help_option_names": ["-h", "--help"]}
)
@example("workbench place profile best --to pi.json", "workbench place plan docs/guides/tiers.yaml")
def place() -> None:
    """Place the stages of a model on devices and servers.

    TIERS is a file that describes machines and links. See the guide on tiers.
    """


@click.command()
@takes(
    BUNDLE,
    STORE,
    TO(is_required=True),
    DEVICE(default="here"),
    BATCH(default=(1,), is_repeatable=True),
    THREADS(default=1),
    PYTHON(default="python3"),
    JSON,
)
@example(
    "workbench place profile best --to pi.json --device ssh://pi@board.local --batch 1 --batch 16"
)
def profile(
    *,
    bundle: Path,
    to: Path,
    device: str,
    batch: tuple[int, ...],
    threads: int,
    python: str,
    as_json: bool,
) -> None:
    """Measure the stages of a model, and the frames between tiers, on the machine they will run on.

    BUNDLE is a folder that you exported with --format onnx. Its model must have early exits.
    BUNDLE may also be a file of tiers. Then the models are measured as the file places them.
    """
    from workbench.cli.output import make_table
    from workbench.foundation.errors import ArgumentError
    from workbench.tiers.processes.profiling import profile_stages

    batches = tuple(sorted(set(batch)))
    with contextlib.ExitStack() as opened:
        show = opened.enter_context(progress("preparing the model"))
        if bundle.is_file():
            bundle = Path(opened.enter_context(placing(bundle)).place.source or "")
        profiled = profile_stages(
            bundle,
            device=device,
            batches=batches,
            threads=threads,
            python=python,
            on_progress=show,
        )
    try:
        profiled.write(to)
    except OSError as error:
        raise ArgumentError(f"cannot write {to}: {error.strerror}", field="--to") from error
    if as_json:
        print_json({"path": str(to), **profiled.model_dump()})
        return
    table = make_table("stage", "batch", "mean ms", "p50 ms", "p95 ms")
    for timing in profiled.timings:
        table.add_row(
            timing.file,
            str(timing.batch),
            *(f"{value * 1e3:.3f}" for value in (timing.mean_s, timing.p50_s, timing.p95_s)),
        )
    make_console().print(table)
    frames = make_table(
        "frame", "features", "transport", "mean ms", "p50 ms", "p95 ms", "sender ms", "receiver ms"
    )
    for frame in profiled.frames:
        times_s = (
            frame.mean_s,
            frame.p50_s,
            frame.p95_s,
            frame.sender_busy_s,
            frame.receiver_busy_s,
        )
        words = (frame.what, frame.features, frame.transport)
        frames.add_row(*words, *(f"{value * 1e3:.3f}" for value in times_s))
    make_console().print(frames)
    echo(f"wrote {to}. Add it to a file of tiers as the profile of this machine.")


@click.command()
@takes(TIERS_FILE, STORED)
@example("workbench place plan docs/guides/tiers.yaml", needs=NEEDS_MODEL)
def plan(file: Path, as_json: bool) -> None:
    """Predict latency, accuracy, bytes and load of each scheduler.

    Predictions are computed from measured times. The column "95 %" is a 95 % interval of p95. With
    privacy.report_leak, decoders try to recover the inputs from the features that leave the first
    tier.
    """
    from workbench.tiers.placement.scheduler_plans import expected_plans

    with placing(file) as tiers:
        system, spread = _assemble(tiers, file.parent)
        leaks = _leaks(tiers, file.parent) if tiers.privacy.report_leak else None
    _show(tiers, system, expected_plans(system, spread), leaks, as_json=as_json)


@click.command()
@takes(TIERS_FILE, STORE, REQUESTS(default=600_000), SEED(default=0), JSON)
@example("workbench place simulate docs/guides/tiers.yaml --requests 100000", needs=NEEDS_MODEL)
def simulate(file: Path, requests: int, seed: int, as_json: bool) -> None:
    """Simulate many requests on all devices and servers under each scheduler.

    The first tenth of the requests is not counted, because queues are empty at the start.
    """
    from workbench.tiers.placement.scheduler_plans import played_plans

    with placing(file) as tiers:
        system, _ = _assemble(tiers, file.parent)
    if tiers.privacy.report_leak:
        print_note(
            "privacy.report_leak: `workbench place plan` measures what can be recovered from"
            " features"
        )
    _show(tiers, system, played_plans(system, requests, seed=seed), None, as_json=as_json)


def _assemble(tiers: TiersFile, folder: Path) -> tuple[System, float]:
    from workbench.tiers.placement.assembly import assemble
    from workbench.tiers.processes.profiling import profile_stages

    with progress("preparing the model") as show:
        measure = functools.partial(profile_stages, on_progress=show)
        system, spread = assemble(tiers, folder, measure=measure)
    return _with_privacy(tiers, folder, system), spread


def _with_privacy(tiers: TiersFile, folder: Path, system: System) -> System:
    """Return the system with the answers to quantised or noisy features, if the data is here."""
    from workbench.foundation.errors import WorkbenchError
    from workbench.tiers.placement.assembly import bundle_of
    from workbench.tiers.processes.samples import bundle_samples
    from workbench.tiers.processes.sent_evidence import changes_answers, with_sent_evidence

    labels, missing = tiers.place.labels, tiers.place.missing_views
    if not changes_answers(tiers) and not labels:
        return system
    bundle = bundle_of(tiers, folder)
    try:
        inputs, targets = bundle_samples(bundle)
    except WorkbenchError as error:
        if labels or missing:
            raise
        print_note(
            f"privacy: the accuracy of schedulers does not include quantisation and noise: {error}"
        )
        return system
    return with_sent_evidence(
        system, tiers.privacy, bundle, inputs, targets, labels=labels, missing=missing
    )


def _leaks(tiers: TiersFile, folder: Path) -> list[Leak]:
    from workbench.foundation.errors import ExperimentError
    from workbench.tiers.placement.assembly import bundle_of, stages_of
    from workbench.tiers.processes.leak import Samples, measure_leak
    from workbench.tiers.processes.samples import bundle_samples

    if tiers.place.scene is not None:
        raise ExperimentError(
            "it is measured for samples that one device sees",
            field="privacy.report_leak",
            next_step="Remove it, or remove place.scene and place a model of one view.",
        )
    bundle = bundle_of(tiers, folder)
    known, held_out = (
        Samples(*bundle_samples(bundle, part=part)) for part in ("train", "validation")
    )
    stages, noise = stages_of(tiers, bundle), tiers.privacy.noise
    with progress("preparing the model") as show:
        return measure_leak(bundle, stages, known, held_out, noise=noise, on_progress=show)


def _show(
    tiers: TiersFile, system: System, plans: list[Plan], leaks: list[Leak] | None, *, as_json: bool
) -> None:
    from workbench.cli.output import make_table
    from workbench.tiers.placement.scheduler_plans import recommend, verdict

    chosen = recommend(plans, tiers.place.objective, system)
    if as_json:
        document: dict[str, Any] = {"plans": [plan.to_json() for plan in plans]}
        document["recommended"] = None if chosen is None else chosen.scheduler
        document["cut"] = None if system.cut is None else system.cut.to_json()
        document["heartbeats"] = _heartbeats(system)
        print_json(
            document if leaks is None else {**document, "leak": [asdict(leak) for leak in leaks]}
        )
        return
    groups = ["of groups"] if tiers.place.labels else []
    link = ["busiest link"] if len(system.names) > 1 else []
    table = make_table(
        "scheduler",
        "accuracy",
        *groups,
        "p50",
        "p95",
        "95 %",
        "bytes",
        "energy",
        *(f"load {name}" for name in system.names),
        *link,
    )
    for plan in plans:
        joules = plan.outcome.joules_per_sample
        energy = f"{format_number(joules * 1e3)} mJ" if joules else ""
        table.add_row(
            plan.scheduler,
            f"{plan.outcome.accuracy:.4f}",
            *([] if plan.group_accuracy is None else [f"{plan.group_accuracy:.4f}"]),
            format_duration(plan.p50_s),
            format_duration(plan.p95_s),
            format_range(plan.low, plan.high, format_duration),
            format_bytes(plan.outcome.bytes_per_sample),
            energy,
            *(format_percent(plan.outcome.load[name]) for name in system.names),
            *(format_percent(max(plan.outcome.link_load.values(), default=0.0)) for _ in link),
        )
    make_console().print(table)
    echo()
    if link and (extra := _traffic_without_frames(tiers)):
        echo(f"The column bytes counts frames. Busiest link also counts {' and '.join(extra)}.")
    if (heartbeats := _heartbeats(system)) is not None:
        echo(_about_heartbeats(tiers, heartbeats))
    for line in verdict(system, plans, chosen):
        echo(line)
    if leaks is not None:
        _show_leaks(tiers, leaks)


def _traffic_without_frames(tiers: TiersFile) -> list[str]:
    """Return what links carry in addition to frames."""
    from workbench.tiers.placement.links import TLS_BYTES

    traffic = []
    if tiers.privacy.transport == "mtls":
        traffic.append(f"{format_bytes(TLS_BYTES)} of TLS per frame")
    if tiers.place.monitoring != "none":
        traffic.append("heartbeats")
    return traffic


def _heartbeats(system: System) -> dict[str, float] | None:
    """Return how often each device sends heartbeats to all further tiers, and their traffic."""
    from workbench.tiers.placement.links import ALIVE_BYTES, HEADER_BYTES

    if math.isinf(system.heartbeat_s) or len(system.names) == 1:
        return None
    per_s = (len(system.names) - 1) / system.heartbeat_s
    return {
        "period_s": system.heartbeat_s,
        "sent_bytes_per_s": per_s * HEADER_BYTES,
        "received_bytes_per_s": per_s * ALIVE_BYTES,
    }


def _about_heartbeats(tiers: TiersFile, heartbeats: dict[str, float]) -> str:
    from workbench.tiers.placement.links import HEARTBEAT_SHARE
    from workbench.tiers.processes.next_tier import MISSED

    first, *further = tiers.tiers
    sent, received = (
        format_bytes(heartbeats[f"{what}_bytes_per_s"]) for what in ("sent", "received")
    )
    period_s, wanted_s = heartbeats["period_s"], tiers.place.heartbeat_period
    timeout = format_duration(tiers.place.timeout)
    line = (
        f"Each machine of {first} sends a heartbeat to {' and '.join(further)} every "
        f"{format_duration(period_s)}: {sent} per second, and {received} back."
    )
    if period_s <= wanted_s:
        return line
    return (
        f"{line} That is less often than place.heartbeat_period, because heartbeats every"
        f" {format_duration(wanted_s)} would take more than {format_percent(HEARTBEAT_SHARE)} of a"
        f" link or a machine. A silent tier is given up after {format_duration(MISSED * period_s)}."
        f" Until then, the tier before it answers every request that takes longer than"
        f" place.timeout, {timeout}."
    )


def _show_leaks(tiers: TiersFile, leaks: list[Leak]) -> None:
    from workbench.cli.output import make_table
    from workbench.tiers.processes.leak import sentences

    table = make_table("features", "noise", "recovered", "95 %", "decoder", "accuracy", "bytes")
    for leak in leaks:
        table.add_row(
            leak.features,
            format_number(leak.noise),
            format_percent(leak.recovered),
            format_range(leak.low, leak.high, format_percent),
            leak.decoder,
            f"{leak.accuracy:.4f}",
            format_bytes(leak.bytes_per_sample),
        )
    echo()
    make_console().print(table)
    echo()
    privacy = tiers.privacy
    for line in sentences(
        leaks, features=privacy.features, noise=privacy.noise, first_tier=next(iter(tiers.tiers))
    ):
        echo(line)
