"""`what-if plan` and `what-if scale`: another plan, or more workers, than a run had."""

from __future__ import annotations

import dataclasses
import math
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
    from workbench.advisor.scale import DividedBatch, Scale, ScalePoint


@click.command("plan")
@takes(RUN, WORKERS, GLOBAL_BATCH, MICRO_BATCH, PRECISION, OBJECTIVE(default="time"), STORED)
@example("workbench what-if plan last --workers 4 --global-batch 512")
def what_if_plan(
    *,
    run_id: str,
    workers: int | None,
    global_batch: int | None,
    micro_batch: int | None,
    precision: str | None,
    objective: str,
    as_json: bool,
) -> None:
    """Predict the effect of a plan from the measurements of a run.

    Settings that are not given are chosen.

    RUN is as in other commands, but "last" is the newest run with advice.
    """
    from workbench.advisor.advice import Goal
    from workbench.advisor.what_if import PlanQuery
    from workbench.hardware.resources import inventory
    from workbench.runs.what_if import models_of, newest_with_advice

    query = PlanQuery(workers, global_batch, micro_batch, precision, cast("Goal", objective))
    answer = models_of(attach_newest(run_id, newest_with_advice)).answer(query)
    if as_json:
        print_json(answer)
        return
    from workbench.cli.output import make_table

    table = make_table(show_header=False)
    for name, text in answer["rows"]:
        table.add_row(name, text)
    make_console().print(table)
    click.echo(f"\n{answer['words']}")
    for limit in answer["limits"]:
        print_note(limit)
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

    Every worker takes the same micro batch, so that more workers have a larger global batch;
    --global-batch shows plans that keep it beside these. Workers pay while the efficiency is
    reached; the curve bends where one more brings less than half a worker. With fewer parameter
    servers than shown their network is the bottleneck, more would idle. Numbers of workers that the
    measurements do not reach are left out unless --up-to names them. A sweep over workers with a
    fixed plan.micro_batch and plan.accumulation 1 measures them, too. RUN is as in other commands,
    but "last" is the newest run that timed steps on one and on several workers, advice or not.
    """
    from workbench.advisor.scale import has_several_workers, scale_of
    from workbench.runs.what_if import measurements_of, newest_measured

    run = attach_newest(run_id, partial(newest_measured, is_usable=has_several_workers))
    scale = scale_of(measurements_of(run), efficiency, up_to, global_batch)
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
        of_servers = (
            "?" if point.servers is None else f"{point.servers} ({point.servers_used:.0%} used)"
        )
        table.add_row(
            str(point.workers),
            format_duration(point.step_time_s),
            f"{format_number(round(point.speedup, 2))}x",
            _efficiency(point),
            "" if point.exchange_share is None else f"{point.exchange_share:.0%}",
            *([of_servers] if servers else []),
            _basis(point),
        )
    make_console().print(table)
    if global_batch is not None:
        _show_divided(scale, global_batch, up_to)
    last = scale.curve[-1].workers
    limit = ", as far as the measurements reach" if scale.pays_up_to == last else ""
    bend = f"does not bend up to {last}" if scale.bends_at is None else f"bends at {scale.bends_at}"
    workers = f"{scale.pays_up_to} {counted_noun(scale.pays_up_to, 'worker')}"
    reach = f"the efficiency is {efficiency:.0%} or more up to {workers}{limit}"
    click.echo(f"\nAt {scale.micro_batch} samples each, {reach}. The curve {bend}.")
    largest = next(point for point in scale.curve if point.workers == scale.measured_up_to)
    if largest.speedup < 1.0:
        step, alone = (format_duration(point.step_time_s) for point in (largest, scale.curve[0]))
        waits = (
            scale.exchange_s
            and f", of which {format_duration(scale.exchange_s)} wait for gradients"
        )
        click.echo(
            f"{largest.workers} workers are slower than one: their step takes {step}{waits or ''}; "
            f"that of one worker {alone}."
        )
    if scale.overhead is not None and scale.overhead_allowed is not None:
        click.echo(
            f"On {scale.measured_up_to} workers {scale.overhead:.1%} of computing is not parallel; "
            f"an efficiency of {efficiency:.0%} would allow {scale.overhead_allowed:.1%}."
        )
    if scale.by_trials:
        print_note(
            "these are steps of trials, which others may have slowed; `workbench advise` measures"
            " alone"
        )
    if servers and scale.exchange_s is None:
        print_note(
            "no exchange of gradients was measured that computing did not hide, so servers are not"
            " known"
        )
    elif servers:
        print_note(
            "an exchange that computing hid was not measured: where it hid much, more servers are"
            " needed"
        )


def _show_divided(found: Scale, global_batch: int, up_to: int | None) -> None:
    """Show what each number of workers makes of one global batch, beside what it makes of its micro
    batch.
    """
    from workbench.cli.output import make_table

    click.echo(
        f"\nThe same workers with {found.micro_batch} samples each, and with {global_batch} samples"
        " in all:"
    )
    num_samples = found.num_train_samples
    last = "samples/s" if num_samples is None else "epoch"
    table = make_table(
        "workers", "global batch", last, f"plan of {global_batch}", "step", last, "efficiency", ""
    )
    for point in found.curve:
        if up_to is not None and not point.is_measured and point.workers & (point.workers - 1):
            continue

        def pace(batch: int, step_s: float) -> str:
            if num_samples is None:
                return format_number(round(batch / step_s, 1))
            return format_duration(math.ceil(num_samples / batch) * step_s)

        own, divided = point.workers * found.micro_batch, point.divided
        if divided is None:
            row = ["cannot be divided", "", "", "", ""]
        else:
            row = [
                f"{divided.micro_batch} x {divided.accumulation} x {point.workers}",
                format_duration(divided.step_time_s),
                pace(global_batch, divided.step_time_s),
                _efficiency(divided),
                "extrapolated" if divided.extrapolated else "",
            ]
        table.add_row(str(point.workers), str(own), pace(own, point.step_time_s), *row)
    make_console().print(table)


def _basis(point: ScalePoint) -> str:
    if point.is_measured:
        return "measured"
    return "extrapolated" if point.extrapolated else "predicted"


def _efficiency(point: ScalePoint | DividedBatch) -> str:
    if point.efficiency_low == point.efficiency_high:
        return f"{point.efficiency:.0%}"
    return f"{point.efficiency:.0%} ({point.efficiency_low:.0%} to {point.efficiency_high:.0%})"
