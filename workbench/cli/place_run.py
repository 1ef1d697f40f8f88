"""The command that runs a model with a real process per tier, and prints the measurements."""

from __future__ import annotations

import contextlib
import functools
import tempfile
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from workbench.cli.declarations import takes
from workbench.cli.options import attach, example
from workbench.cli.output import echo, make_console, make_table, print_json, print_note, progress
from workbench.cli.parameters import DURATION, JSON, RATE, SCHEDULER, SEED, STORE, TIERS_FILE
from workbench.foundation.errors import ArgumentError
from workbench.foundation.formatting import (
    format_bytes,
    format_duration,
    format_percent,
    format_range,
)

if TYPE_CHECKING:
    import numpy as np

    from workbench.tiers.placement.scheduler_plans import Plan
    from workbench.tiers.placement.system import System
    from workbench.tiers.placement.tiers_file import TiersFile
    from workbench.tiers.processes.measured_run import Measured, Probes
    from workbench.tiers.processes.prediction import Expected

NEEDS_MODEL = (
    "place.from in TIERS says which model to place: a bundle, or a trial such as last/best. It must"
    " exist. docs/guides/tiers.yaml needs the bundle docs/guides/digits-exits. The guide on tiers"
    " shows how to train and export it."
)


@contextlib.contextmanager
def placing(file: Path) -> Iterator[TiersFile]:
    """Read a file of tiers, and export its model while the context lasts.

    `place.from` is then the path of a bundle with stages.
    """
    from workbench.tiers.placement.tiers_file import read_tiers
    from workbench.tiers.processes.placing import placed

    with tempfile.TemporaryDirectory(prefix="workbench-place-") as temporary:
        tiers = read_tiers(file)
        if (
            tiers.place.source is not None
            and tiers.place.source not in tiers.models_of_ends().values()
        ):
            print_note(
                "place.from is not used: place.models lists the models of the first and the last"
                " tier"
            )
        yield placed(tiers, file.parent, Path(temporary), export=_export)


def _export(name: str, folder: Path) -> None:
    run_id, _, trial = name.rpartition("/")
    number = None  # the best
    if trial.isdigit():
        number = int(trial)
    attach(run_id).export(folder, trial=number, format="onnx")


_BUSY_SHARE = 0.1
_MAX_RATE_PER_S = 200.0


@click.command("run")
@takes(
    TIERS_FILE,
    STORE,
    SCHEDULER(is_repeatable=True),
    DURATION(default="30s"),
    RATE,
    SEED(default=0),
    JSON,
)
@example(
    "workbench place run docs/guides/tiers.yaml --duration 60s --scheduler cloud"
    " --scheduler end-cloud",
    needs=NEEDS_MODEL,
)
def run(
    *,
    file: Path,
    schedulers: tuple[str, ...],
    duration: float,
    rate: float | None,
    seed: int,
    as_json: bool,
) -> None:
    """Measure a model with a real process for each tier.

    The processes run on this machine. One more process per link slows the traffic down as the file
    says. Samples of the validation split are sent at random moments, as often as they arrive in the
    file, but at most 200 per second.
    """
    from workbench.tiers.placement.assembly import bundle_of
    from workbench.tiers.placement.scheduler_plans import about_limits, recommend
    from workbench.tiers.placement.schedulers import SCHEDULERS, left_out
    from workbench.tiers.processes.measured_run import poisson_moments_s
    from workbench.tiers.processes.prediction import system_here
    from workbench.tiers.processes.samples import bundle_samples
    from workbench.tiers.processes.sent_evidence import with_sent_evidence
    from workbench.views.live_feed.tiers_journal import measure_and_report

    for name in schedulers:
        if name not in SCHEDULERS:  # before the tiers are profiled
            raise ArgumentError(
                f"unknown scheduler {name!r}", field="--scheduler", allowed=SCHEDULERS.names()
            )
    folder = file.parent
    with placing(file) as tiers:
        moments_s = poisson_moments_s(_rate_per_s(tiers, rate), duration, seed=seed)
        bundle = bundle_of(tiers, folder)
        samples, targets = bundle_samples(bundle)
        field = "--scheduler" if schedulers else "place.scheduler"
        schedulers = schedulers or (tiers.place.scheduler,)
        cut_at = _planned_cut(tiers, folder) if "cut" in schedulers else None
        with progress("preparing the model") as show:
            rate_per_s = len(moments_s) / moments_s[-1]
            here = system_here(tiers, folder, rate_per_s, cut_at=cut_at, on_progress=show)
        system = with_sent_evidence(
            here,
            tiers.privacy,
            bundle,
            samples,
            targets,
            labels=tiers.place.labels,
            missing=tiers.place.missing_views,
        )
        unfit = left_out(system)
        for name in schedulers:
            if name in unfit:
                raise ArgumentError(
                    f"the tiers cannot carry out {name}: {unfit[name]}",
                    field=field,
                    allowed=[known for known in SCHEDULERS.names() if known not in unfit],
                )
        if tiers.privacy.transport == "plain":
            print_note("privacy.transport: the traffic between tiers is not encrypted")
        outcomes = [
            measure_and_report(
                file,
                name,
                tiers,
                bundle,
                system=system,
                samples=(samples, targets),
                moments_s=moments_s,
                time_s=duration,
            )
            for name in schedulers
        ]
    measured, expected, systems = (list(parts) for parts in zip(*outcomes, strict=True))
    steps = [_steps(ran, run.probes) for ran, run in zip(systems, measured, strict=True)]
    ran = [_plan_of(run) for run in measured]
    chosen = recommend(ran, tiers.place.objective, system)
    if as_json:
        plans = [
            {
                **asdict(run),
                "probes": steps_s,
                "expected": asdict(prediction),
                "over_limits": plan.outcome.over(system),
            }
            for run, plan, prediction, steps_s in zip(measured, ran, expected, steps, strict=True)
        ]
        print_json({"plans": plans, "recommended": chosen and chosen.scheduler})
        return
    _show(measured, expected, steps)
    for line in about_limits(system, ran, is_measured=True):
        echo(line)


def _rate_per_s(tiers: TiersFile, given: float | None) -> float:
    """Return how many requests are sent per second: as many as given, or as arrive in the file."""
    if given is not None:
        return given
    first = next(iter(tiers.tiers.values()))
    arriving = first.count * (first.arrivals or 0.0)
    if arriving <= _MAX_RATE_PER_S:
        return arriving
    print_note(
        f"tiers.{next(iter(tiers.tiers))}: {arriving:g} requests per second arrive, and this"
        f" machine sends {_MAX_RATE_PER_S:g}. Loads are lower than in the plan. Set another rate"
        " with --rate."
    )
    return _MAX_RATE_PER_S


def _planned_cut(tiers: TiersFile, folder: Path) -> np.ndarray:
    """Return where the model is cut for the machines of the file."""
    from workbench.tiers.placement.assembly import assemble
    from workbench.tiers.processes.profiling import profile_stages

    if tiers.place.models:
        raise ArgumentError(
            "each tier has its own model, so there is none to cut",
            field="--scheduler",
            next_step="Place one of the models with place.from.",
        )
    with progress("preparing the model") as show:
        measure = functools.partial(profile_stages, on_progress=show)
        planned, _ = assemble(tiers, folder, measure=measure)
    if planned.cut is None:
        raise ArgumentError(
            "the nodes of this model were not measured, so it cannot be cut",
            field="--scheduler",
            next_step=(
                "Measure the bundle on each machine again with `workbench place profile`. A model"
                " with several inputs cannot be cut."
            ),
        )
    return planned.cut.is_there


def _steps(system: System, probes: Probes) -> dict[str, float]:
    """Return the medians of single steps."""
    import numpy as np

    from workbench.tiers.processes.prediction import beyond_stages_s

    beyond_s = beyond_stages_s(system, probes.alone)
    return {
        "hop_s": float(np.median(probes.hops_s)),
        "beyond_stages_s": float(np.median(beyond_s)),
        "processor_wait_s": probes.processor_wait_s,
    }


def _plan_of(measured: Measured) -> Plan:
    import numpy as np

    from workbench.tiers.placement.scheduler_plans import Plan
    from workbench.tiers.placement.schedulers import Outcome

    outcome = Outcome(np.zeros(0), measured.accuracy, measured.bytes_per_sample, 0.0, measured.load)
    return Plan(
        scheduler=measured.scheduler,
        outcome=outcome,
        p50_s=measured.p50_s,
        p95_s=measured.p95_s,
        low=measured.low,
        high=measured.high,
    )


def _show(
    measured_runs: list[Measured], expected: list[Expected], steps: list[dict[str, float]]
) -> None:
    table = make_table(
        "scheduler",
        "accuracy",
        "mean",
        "p50",
        "p95",
        "95 %",
        "bytes",
        *(f"{what} {name}" for name in measured_runs[0].load for what in ("load", "answers")),
    )
    for measured, other in zip(measured_runs, expected, strict=True):
        shares: list[Any] = [
            format_percent(values[name])
            for name in measured.load
            for values in (measured.load, measured.answered_by)
        ]
        table.add_row(
            measured.scheduler,
            f"{measured.accuracy:.4f}",
            format_duration(measured.mean_s),
            format_duration(measured.p50_s),
            format_duration(measured.p95_s),
            format_range(measured.low, measured.high, format_duration),
            format_bytes(measured.bytes_per_sample),
            *shares,
        )
        times_s = (other.mean_s, other.p50_s, other.p95_s)
        table.add_row(
            "  expected", f"{other.accuracy:.4f}", *(format_duration(time_s) for time_s in times_s)
        )
    make_console().print(table)
    echo()
    for measured, other in zip(measured_runs, expected, strict=True):
        if other.full is not None:
            echo(f"{measured.scheduler}, expected: {other.full}")
    for measured, steps_s in zip(measured_runs, steps, strict=True):
        for line in _describe(measured, steps_s):
            echo(f"{measured.scheduler}: {line}")


def _describe(measured: Measured, steps_s: dict[str, float]) -> Iterator[str]:
    """Yield what happened to the requests, and what may have disturbed the measurement."""
    yield (
        f"{measured.num_requests} requests, {measured.num_unanswered} unanswered, "
        f"{measured.num_fallbacks} answered locally because the next tier did not answer, "
        f"{measured.refused} refused connections or frames."
    )
    yield (
        f"A step between two processes takes {format_duration(steps_s['hop_s'])} there and back."
        f" An answer takes {format_duration(steps_s['beyond_stages_s'])} in addition to its stages."
    )
    if measured.ended:
        yield (
            f"{' and '.join(measured.ended)} ended during the measurement. Its load is unknown,"
            " and the expected numbers do not include that."
        )
    if steps_s["processor_wait_s"] > _BUSY_SHARE * measured.mean_s:
        yield (
            "Other work kept this machine busy. Processes waited"
            f" {format_duration(steps_s['processor_wait_s'])} per request for a CPU, so times may"
            " be longer than expected. Measure again when the machine is idle."
        )
    if (groups := measured.groups) is None:
        return
    yield f"{format_percent(groups.accuracy)} of the answers are in the right group."
    early = f"{format_percent(groups.early_share)} of the requests got their group early"
    if groups.early_mean_s is None or groups.early_accuracy is None:
        yield f"{early}."
    else:
        yield (
            f"{early}, after {format_duration(groups.early_mean_s)} on average. It was right for"
            f" {format_percent(groups.early_accuracy)} of them."
        )
