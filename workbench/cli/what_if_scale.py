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
@store_option
@json_option
@example("workbench what-if scale last --efficiency 0.9 --servers")
def what_if_scale(run_id: str, efficiency: float, servers: bool, as_json: bool) -> None:
    """Predict how many workers are worth adding, from the steps that `workbench advise` measured.

    Every worker takes the same micro batch. Workers pay while the efficiency is reached; the curve bends
    where one more brings less than half a worker. With fewer parameter servers than shown their network is
    the bottleneck, more would idle. Numbers of workers that the measurements do not reach are left out.
    """
    from workbench.advisor.scale import scale_of
    from workbench.runs.what_if import measurements_of

    found = scale_of(measurements_of(attach(run_id)), efficiency)
    if as_json:
        print_json(dataclasses.asdict(found))
        return
    from workbench.cli.output import make_table

    table = make_table("workers", "step", "speed", "efficiency", *(["servers"] if servers else []), "")
    for point in found.curve:
        of_servers = "?" if point.servers is None else f"{point.servers} ({point.servers_used:.0%} used)"
        table.add_row(
            str(point.workers),
            format_duration(point.step_time_s),
            f"{format_number(round(point.speedup, 2))}x",
            _efficiency(point),
            *([of_servers] if servers else []),
            "measured" if point.is_measured else "predicted",
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
