"""`what-if plan`: predicts the effect of another plan than the advised one."""

from __future__ import annotations

from typing import cast

import click

from workbench.cli.options import (
    Count,
    attach_newest,
    example,
    json_option,
    run_argument,
    store_option,
)
from workbench.cli.output import make_console, print_json, print_note
from workbench.foundation.formatting import format_count

_GOALS = ("time", "money", "energy", "throughput")
_count = Count(min=1)


@click.command("plan")
@run_argument
@click.option("--workers", type=_count, help="Set the number of workers of a trial.")
@click.option(
    "--batch",
    "global_batch",
    type=_count,
    help="Set the samples per optimizer step, over all workers.",
)
@click.option(
    "--micro-batch", type=_count, help="Set the samples that one worker processes at once."
)
@click.option("--precision", type=click.Choice(("fp32", "bf16", "fp16")), help="Set the precision.")
@click.option(
    "--objective",
    type=click.Choice(_GOALS),
    default="time",
    show_default=True,
    help="Choose all other settings for this objective.",
)
@store_option
@json_option
@example("workbench what-if plan last --workers 4 --batch 512")
def what_if_plan(
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
