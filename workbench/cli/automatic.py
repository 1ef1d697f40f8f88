"""`automl`: a table in, a tested model out."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from workbench.cli.options import (
    address_option,
    command_line,
    example,
    json_option,
    launcher_option,
    open_store,
    store_option,
)
from workbench.cli.printing import print_json, print_note

if TYPE_CHECKING:
    from workbench.automatic import AutoML
    from workbench.automatic.targets import Asked

_INTERRUPTED = 130
_NONE_COMPLETE = 4


@click.command()
@click.argument("file")
@click.option("--target", metavar="NAME", help="The column to predict.")
@click.option("--time", "time_limit", metavar="DURATION", default="10m", show_default=True,
              help="How long to try, such as 1h.")  # fmt: skip
@click.option("--asked", type=click.Choice(["classification", "regression"]),
              help="What is predicted; without it, the target tells.")  # fmt: skip
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True,
              help="Of the division into train, validation and test, and of the run.")  # fmt: skip
@click.option("--name", help="What the run is called.")
@click.option("--detach", is_flag=True, help="Return at once; the run id is the last word on stdout.")
@launcher_option
@address_option
@store_option
@json_option
@example("workbench automl houses.csv --target price --time 5m", "workbench automl digits --time 1m")
def automl(
    file: str, target: str | None, time_limit: str, asked: Asked | None, seed: int, name: str | None,
    detach: bool, launcher: str, address: str | None, as_json: bool,
) -> int:  # fmt: skip
    """Find a good model for a table, and test it on rows that no choice has seen.

    FILE is a .csv, .tsv or .parquet file, or the name of a bundled data set.
    """
    import workbench

    found = workbench.automl(
        file, target, time=time_limit, asked=asked, seed=seed, name=name, store=open_store(),
        launcher=launcher, address=address,
    )  # fmt: skip
    run = found.run
    if detach:
        if as_json:
            print_json({"run_id": run.run_id, "name": run.name, "state": run.state})
        else:
            click.echo(f"Follow it with: {command_line('follow', run.run_id)}", err=True)
            click.echo(f"started {run.name} as {run.run_id}")
        return 0
    return _stay(found, as_json=as_json)


def _stay(found: AutoML, *, as_json: bool) -> int:
    from workbench.cli.following import come_back, exit_code_of_run, follow_to_end
    from workbench.run.interruption import ended_like_interrupted

    for note in found.notes:
        print_note(note)
    try:
        with ended_like_interrupted():
            history, state = follow_to_end(found.run, as_json=as_json)
    except KeyboardInterrupt:
        come_back(found.run)
        return _INTERRUPTED
    if found.has_result:
        if as_json:
            print_json(found.to_json())
        else:
            click.echo()
            for line in found.summary():
                click.echo(line)
            click.echo(f"run     {found.run.run_id}")
            click.echo(f"use it  wb.AutoML.attach({found.run.run_id!r}).predict(...)")
    else:
        click.echo(f"{found.run.name} {state}: no model was trained to its end", err=True)
    code = exit_code_of_run(history, state)
    return 0 if code == _NONE_COMPLETE and found.has_result else code
