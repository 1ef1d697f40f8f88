"""`what-if plan` and `what-if scale`: another plan, or more workers, than a run had."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, cast

import click

from workbench.cli.declarations import takes
from workbench.cli.options import attach_newest, example
from workbench.cli.output import make_console, print_json, print_note
from workbench.cli.parameters import (
    EFFICIENCY,
    GLOBAL_BATCH,
    MICRO_BATCH,
    OBJECTIVE,
    PRECISION,
    RUN,
    SERVERS,
    STORED,
    UP_TO,
    WORKERS,
)
from workbench.foundation.formatting import (
    counted_noun,
    format_count,
    format_duration,
    format_number,
)

if TYPE_CHECKING:
    from workbench.advisor.worker_scaling import DividedBatch, Scale, ScalePoint


@click.command("plan")
@takes(RUN, WORKERS, GLOBAL_BATCH, MICRO_BATCH, PRECISION, OBJECTIVE, STORED)
@example("workbench what-if plan last --workers 4 --global-batch 512")
def what_if_plan(
    *,
    run_id: str,
    workers: int | None,
    global_batch: int | None,
    micro_batch: int | None,
    precision: str | None,
    objective: str | None,
    as_json: bool,
) -> None:
    """Predict the effect of a plan from the measurements of a run.

    Settings that you do not give are chosen for the objective of the advice. If the advised plan
    has all settings that you give, you get that plan.

    "last" is the newest run with advice.
    """
    from workbench.advisor.advice import Goal
    from workbench.advisor.what_if import PlanQuery
    from workbench.hardware.resources import inventory
    from workbench.runs.what_if import models_of, newest_with_advice

    query = PlanQuery(workers, global_batch, micro_batch, precision, cast("Goal | None", objective))
    answer = models_of(attach_newest(run_id, newest_with_advice)).answer(query)
    if as_json:
        print_json(answer)
        return
    from workbench.cli.output import make_table

    table = make_table(show_header=False)
    for name, text in answer["rows"]:
        table.add_row(name, text)
    make_console().print(table)
    click.echo(f"\n{answer['message']}")
    for message in answer["messages"]:
        print_note(message)
    num_workers, num_cores = answer["plan"]["workers"], inventory().num_cpus
    if num_workers > num_cores:
        cores = format_count(num_cores, "core")
        print_note(
            f"this machine has {cores}: {num_workers} workers need a larger one, or a cluster"
        )


@click.command("scale")
@takes(RUN, EFFICIENCY(default=0.8), SERVERS, UP_TO, GLOBAL_BATCH, STORED)
@example(
    "workbench what-if scale last --efficiency 0.9 --servers",
    "workbench what-if scale last --up-to 32",
    "workbench what-if scale last --global-batch 256",
)
def what_if_scale(
    *,
    run_id: str,
    efficiency: float,
    servers: bool,
    up_to: int | None,
    global_batch: int | None,
    as_json: bool,
) -> None:
    """Predict how many workers are worth adding, from the steps of `workbench advise` or of trials.

    Every worker gets the same micro batch, so the global batch grows with the workers. Use
    --global-batch to keep it fixed instead. Without --up-to, the table ends at the largest number
    of workers that the measurements cover. You can measure more with a sweep over workers that
    fixes plan.micro_batch and plan.accumulation: 1.

    "last" is the newest run that timed steps on one and on several workers.
    """
    from workbench.advisor.worker_scaling import has_several_workers, scale_of
    from workbench.runs.what_if import (
        chosen_plan_of,
        measurements_of,
        newest_measured,
        room_of,
    )

    run = attach_newest(run_id, partial(newest_measured, is_usable=has_several_workers))
    scale = scale_of(
        measurements_of(run),
        efficiency,
        up_to,
        global_batch,
        chosen=chosen_plan_of(run),
        room=room_of(run),
    )
    if as_json:
        print_json(dataclasses.asdict(scale))
        return
    from workbench.cli.output import make_table

    heads = [
        "workers",
        "step",
        "speed",
        "efficiency",
        "waits for gradients",
        *(["servers"] * servers),
        "",
    ]
    table = make_table(*heads)
    for point in scale.curve:
        if up_to is not None and not point.is_measured and point.workers & (point.workers - 1):
            continue
        cells = [
            str(point.workers),
            format_duration(point.step_time_s),
            f"{format_number(round(point.speedup, 2))}x",
            _efficiency(point),
            _waiting_share(point),
        ]
        if servers:
            cells.append(_servers(point))
        table.add_row(*cells, _basis(point))
    make_console().print(table)
    if global_batch is not None:
        _show_divided(scale, global_batch, up_to)
    for line in _conclusions(scale, efficiency):
        click.echo(line)
    if scale.by_trials:
        print_note(
            "these times come from trials, which may have slowed each other down. To measure them"
            " alone: workbench advise FILE"
        )
    for note in _cautions(scale):
        print_note(note)
    if servers:
        print_note(_about_servers(scale))


def _cautions(scale: Scale) -> Iterator[str]:
    """Yield what the table does not cover."""
    if scale.why_limited is not None:
        yield (
            f"the table ends at {format_count(scale.limit, 'worker')}: {scale.why_limited}. Run"
            " workbench advise FILE on a cluster with more workers to measure them"
        )
    if scale.is_of_choice is False:
        yield (
            "the plan that the advice chose was not timed on several workers, so this is a plan"
            f" with {scale.micro_batch} samples per worker"
        )


def _about_servers(scale: Scale) -> str:
    """Return how sure the numbers of servers are, or the command that would measure them."""
    if all(point.servers_at_most is None for point in scale.curve):
        return (
            "the time of the exchange was not measured, so the number of servers is unknown. To"
            f" measure it on several workers: {_measuring(scale)}"
        )
    return (
        "computing may hide an exchange, at most for as long as the backward pass. The larger"
        " number is also enough in that case"
    )


def _waiting_share(point: ScalePoint) -> str:
    if point.exchange_share is None:
        return ""
    return f"{point.exchange_share:.0%}"


def _servers(point: ScalePoint) -> str:
    if point.servers is None:
        return "?" if point.servers_at_most is None else f"1 to {point.servers_at_most}"
    text = str(point.servers)
    if point.servers_at_most is not None and point.servers_at_most > point.servers:
        text += f" to {point.servers_at_most}"
    return text


def _conclusions(scale: Scale, efficiency: float) -> Iterator[str]:
    """Yield how many workers are worth their cost, and what is lost with more."""
    last = scale.curve[-1]
    if doubtful := [point for point in scale.curve if point.is_doubtful]:
        yield f"\n{_doubt(doubtful[0], scale)}"
        if scale.pays_up_to is None:
            return
    pays = format_count(scale.pays_up_to or 1, "worker")
    yield (
        f"\n{pays}, each with {scale.micro_batch} samples, "
        f"{counted_noun(scale.pays_up_to or 1, 'keeps', 'keep')} an efficiency of"
        f" {efficiency:.0%} or more."
    )
    if scale.bends_at is not None:
        yield (
            f"From {format_count(scale.bends_at, 'worker')} on, another worker adds less than half"
            " of the speed of one."
        )
    elif last.workers > 1:
        basis = "measured" if last.is_measured else "predicted"
        yield (
            f"{format_count(last.workers, 'worker')} are {format_number(round(last.speedup, 1))}x"
            f" as fast as one ({basis}). No slowdown is seen up to there."
        )
    largest = next(point for point in scale.curve if point.workers == scale.measured_up_to)
    if largest.speedup < 1.0:
        step, alone = (format_duration(point.step_time_s) for point in (largest, scale.curve[0]))
        yield (
            f"{format_count(largest.workers, 'worker')} are slower than one: a step takes {step}"
            f" instead of {alone}."
        )
        if scale.exchange_s:
            yield f"{format_duration(scale.exchange_s)} of it waits for gradients."
    if scale.overhead is not None and scale.overhead_allowed is not None:
        yield (
            f"On {format_count(scale.measured_up_to, 'worker')}, {scale.overhead:.1%} of the"
            f" computing does not run in parallel. {scale.overhead_allowed:.1%} would still give"
            f" an efficiency of {efficiency:.0%}."
        )


def _doubt(point: ScalePoint, scale: Scale) -> str:
    """Return which time is in doubt, because workers seem to be faster than possible."""
    suspect = "the time of one worker was not measured and is too high"
    if scale.curve[0].is_measured:
        suspect = (
            "one of the two times is wrong. Other programs may have slowed the machine down while"
            " one worker was measured"
        )
    return (
        f"{format_count(point.workers, 'worker')} seem to be {point.speedup:.2f}x as fast as one,"
        f" which is not possible: {suspect}. So it is unknown how many workers pay. Measure both"
        f" while nothing else runs: {_measuring(scale)}"
    )


def _measuring(scale: Scale) -> str:
    """Return the command that times the plan on one worker and on several."""
    settings = ("workers=auto", f"micro_batch={scale.micro_batch}", "accumulation=auto")
    return " ".join(["workbench advise FILE", *(f"--set plan.{item}" for item in settings)])


def _show_divided(scale: Scale, global_batch: int, up_to: int | None) -> None:
    """Compare a fixed global batch with one that grows with the workers."""
    from workbench.cli.output import make_table

    click.echo(
        f"\nThe same workers with {scale.micro_batch} samples each, and with {global_batch} samples"
        " in total:"
    )
    num_samples = scale.num_train_samples
    last = "samples/s" if num_samples is None else "epoch"
    table = make_table(
        "workers", "global batch", last, f"plan of {global_batch}", "step", last, "efficiency", ""
    )
    for point in scale.curve:
        if up_to is not None and not point.is_measured and point.workers & (point.workers - 1):
            continue

        def pace(batch: int, step_s: float) -> str:
            if num_samples is None:
                return format_number(round(batch / step_s, 1))
            return format_duration(math.ceil(num_samples / batch) * step_s)

        own, divided = point.workers * scale.micro_batch, point.divided
        if divided is None:
            row = ["cannot be divided", "", "", "", ""]
        else:
            row = [
                f"{divided.micro_batch} x {divided.accumulation} accumulated x {point.workers}",
                format_duration(divided.step_time_s),
                pace(global_batch, divided.step_time_s),
                _efficiency(divided),
                "extrapolated" if divided.extrapolated else "",
            ]
        table.add_row(str(point.workers), str(own), pace(own, point.step_time_s), *row)
    make_console().print(table)


def _basis(point: ScalePoint) -> str:
    if point.is_doubtful:
        return "doubtful"
    if point.is_measured:
        return "measured"
    return "extrapolated" if point.extrapolated else "predicted"


def _efficiency(point: ScalePoint | DividedBatch) -> str:
    if point.efficiency_low == point.efficiency_high:
        return f"{point.efficiency:.0%}"
    return f"{point.efficiency:.0%} ({point.efficiency_low:.0%} to {point.efficiency_high:.0%})"
