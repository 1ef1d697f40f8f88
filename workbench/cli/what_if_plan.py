"""`what-if plan`: what another plan than the advised one would bring."""

from __future__ import annotations

from typing import cast

import click

from workbench.cli.options import attach, example, json_option, run_argument, store_option
from workbench.cli.printing import make_console, print_json, print_note

_GOALS = ("time", "money", "energy", "throughput")
_count = click.IntRange(min=1)


@click.command("plan")
@run_argument
@click.option("--workers", type=_count, help="Workers of a trial.")
@click.option("--batch", "global_batch", type=_count, help="Samples per optimizer step, over all workers.")
@click.option("--micro-batch", type=_count, help="Samples that one worker takes at once.")
@click.option("--precision", type=click.Choice(("fp32", "bf16", "fp16")))
@click.option("--objective", type=click.Choice(_GOALS), default="time", show_default=True,
              help="What the rest is chosen for.")  # fmt: skip
@store_option
@json_option
@example("workbench what-if plan last --workers 4 --batch 512")
def what_if_plan(
    run_id: str, workers: int | None, global_batch: int | None, micro_batch: int | None,
    precision: str | None, objective: str, as_json: bool,
) -> None:  # fmt: skip
    """Say what a plan would bring, from what the advice of a run measured; what is left out is chosen."""
    from workbench.advisor.advice import Goal
    from workbench.advisor.what_if import Wish
    from workbench.run.what_if import models_of

    wish = Wish(workers, global_batch, micro_batch, precision, cast("Goal", objective))
    told = models_of(attach(run_id)).ask(wish)
    if as_json:
        print_json(told)
        return
    from workbench.cli.reading import make_table

    table = make_table(show_header=False)
    for name, text in told["rows"]:
        table.add_row(name, text)
    make_console().print(table)
    click.echo(f"\n{told['words']}")
    for limit in told["limits"]:
        print_note(limit)
