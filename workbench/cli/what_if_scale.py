"""`what-if scale`: predicts how many workers and parameter servers still pay."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import click

from workbench.cli.options import attach, example, json_option, run_argument, store_option
from workbench.cli.output import make_console, print_json, print_note
from workbench.formatting import counted_noun, format_duration, format_number

if TYPE_CHECKING:
    from workbench.advisor.scale import ScalePoint


@click.command("scale")
@run_argument
@click.option("--efficiency", type=click.FloatRange(0.01, 0.99), default=0.8, show_default=True,
              help="Require at least this efficiency of each worker.")  # fmt: skip
@click.option(
    "--servers", is_flag=True, help="Show how many parameter servers it takes to hide their traffic."
)
@click.option(
    "--up-to", type=click.IntRange(2, 1024), help="Extrapolate to this many workers; shows powers of two."
)
@store_option
@json_option
@example("workbench what-if scale last --efficiency 0.9 --servers", "workbench what-if scale last --up-to 32")
def what_if_scale(run_id: str, efficiency: float, servers: bool, up_to: int | None, as_json: bool) -> None:
    """Predict how many workers are worth adding, from the steps of `workbench advise` or of trials.

    Every worker takes the same micro batch. Workers pay while the efficiency is reached; the curve bends
    where one more brings less than half a worker. With fewer parameter servers than shown their network is
    the bottleneck, more would idle. Numbers of workers that the measurements do not reach are left out
    unless --up-to names them. A sweep over workers with a fixed plan.micro_batch and
    plan.accumulation 1 measures them, too.
    """
    from workbench.advisor.scale import scale_of
    from workbench.runs.what_if import measurements_of

    found = scale_of(measurements_of(attach(run_id)), efficiency, up_to)
    if as_json:
        print_json(dataclasses.asdict(found))
        return
    from workbench.cli.output import make_table

    heads = ["workers", "step", "speed", "efficiency", "waits for gradients", *(["servers"] * servers), ""]
    table = make_table(*heads)
    for point in found.curve:
        if up_to is not None and not point.is_measured and point.workers & (point.workers - 1):
            continue
        of_servers = "?" if point.servers is None else f"{point.servers} ({point.servers_used:.0%} used)"
        table.add_row(
            str(point.workers),
            format_duration(point.step_time_s),
            f"{format_number(round(point.speedup, 2))}x",
            _efficiency(point),
            "" if point.exchange_share is None else f"{point.exchange_share:.0%}",
            *([of_servers] if servers else []),
            "measured" if point.is_measured else "extrapolated" if point.extrapolated else "predicted",
        )
    make_console().print(table)
    last = found.curve[-1].workers
    limit = ", as far as the measurements reach" if found.pays_up_to == last else ""
    bend = f"does not bend up to {last}" if found.bends_at is None else f"bends at {found.bends_at}"
    workers = f"{found.pays_up_to} {counted_noun(found.pays_up_to, 'worker')}"
    reach = f"the efficiency is {efficiency:.0%} or more up to {workers}{limit}"
    click.echo(f"\nAt {found.micro_batch} samples each, {reach}. The curve {bend}.")
    if found.overhead is not None and found.overhead_allowed is not None:
        click.echo(
            f"On {found.measured_up_to} workers {found.overhead:.1%} of computing is not parallel; "
            f"an efficiency of {efficiency:.0%} would allow {found.overhead_allowed:.1%}."
        )
    if found.by_trials:
        print_note(
            "these are steps of trials, which others may have slowed; `workbench advise` measures alone"
        )
    if servers and found.exchange_s is None:
        print_note(
            "no exchange of gradients was measured that computing did not hide, so servers are not known"
        )
    elif servers:
        print_note(
            "an exchange that computing hid was not measured: where it hid much, more servers are needed"
        )


def _efficiency(point: ScalePoint) -> str:
    if point.efficiency_low == point.efficiency_high:
        return f"{point.efficiency:.0%}"
    return f"{point.efficiency:.0%} ({point.efficiency_low:.0%} to {point.efficiency_high:.0%})"
