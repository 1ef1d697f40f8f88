"""The command that combines trials of a run: ensemble."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from workbench.cli.options import (
    Count,
    attach,
    example,
    json_option,
    option,
    run_argument,
    store_option,
)
from workbench.cli.output import echo, print_json
from workbench.cli.remote import remote_capable

if TYPE_CHECKING:
    from pathlib import Path


@click.command()
@remote_capable(brings={"--to": None})
@run_argument
@option(
    "--trials",
    "Select from this trial; repeat the option for several. By default from the best 20.",
    Count(min=0),
    multiple=True,
    metavar="N",
)
@option("--size", "Use at most this many trials.", Count(min=1), metavar="N")
@option("--metric", "Improve this objective; by default the first.", metavar="METRIC")
@option("--to", "Write a bundle to this folder.", click.Path(), metavar="PATH")
@option("--force", "Write into a folder that is not empty.", is_flag=True)
@store_option
@json_option
@example("workbench ensemble last", "workbench ensemble last --to ensemble --size 4")
def ensemble(
    *,
    run_id: str,
    trials: tuple[int, ...],
    size: int | None,
    metric: str | None,
    to: str | None,
    force: bool,
    as_json: bool,
) -> None:
    """Combine trials, and compare that with the best one.

    The weights of the trials are chosen on one half of the validation samples and judged on the
    other.
    """
    from workbench.foundation.errors import ArgumentError

    run = attach(run_id)
    try:
        found = run.ensemble(size=size, trials=trials or None, metric=metric)
    except ArgumentError as error:  # the options have the names of the arguments
        raise error.about(f"--{error.field}") from error
    bundle: Path | None = None if to is None else found.export(to, force=force).absolute()
    if as_json:
        print_json({**found.to_json(), "bundle": None if bundle is None else str(bundle)})
        return
    for line in found.describe():
        echo(line)
    if bundle is not None:
        echo(f"bundle  {bundle}")
