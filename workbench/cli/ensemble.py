"""The command that combines trials of a run: ensemble."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from workbench.cli.declarations import takes
from workbench.cli.export import how_to_use
from workbench.cli.options import attach, command_line, example
from workbench.cli.output import echo, print_json
from workbench.cli.parameters import FORCE, METRIC, RUN, SIZE, STORED, TO, TRIAL
from workbench.cli.remote import remote_capable

if TYPE_CHECKING:
    from pathlib import Path


@click.command()
@remote_capable(brings={"--to": None})
@takes(RUN, TRIAL(is_repeatable=True), SIZE, METRIC, TO, FORCE, STORED)
@example("workbench ensemble last", "workbench ensemble last --to ensemble --size 4")
def ensemble(
    *,
    run_id: str,
    trial: tuple[int, ...],
    size: int | None,
    metric: str | None,
    to: Path | None,
    force: bool | None,
    as_json: bool,
) -> None:
    """Combine trials, and compare that with the best one.

    By default, trials are picked from the 20 best. Their weights are chosen on one half of the
    validation samples and tested on the other half.
    """
    from workbench.foundation.errors import ArgumentError

    run = attach(run_id)
    try:
        combined = run.ensemble(size=size, trials=trial or None, metric=metric)
    except ArgumentError as error:
        option = str(error.field)
        if option == "trials":
            option = "trial"
        raise error.about(f"--{option}") from error
    bundle: Path | None = None
    if to is not None:
        bundle = combined.export(to, force=bool(force)).absolute()
    if as_json:
        print_json({**combined.to_json(), "bundle": bundle and str(bundle)})
        return
    for line in combined.describe():
        echo(line)
    if bundle is not None:
        echo(f"bundle  {bundle}")
        echo(f"use it  {how_to_use(bundle)}")
    elif combined.is_better:
        echo(f"To export it: {command_line('ensemble', run_id, to='ensemble')}")
