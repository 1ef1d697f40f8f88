"""`what-if budget`: which batch to run next, and which to choose, when full runs are few."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from workbench.advisor.quantities import format_duration
from workbench.cli.options import batches_option, example, json_option
from workbench.cli.printing import make_console, print_json

if TYPE_CHECKING:
    from workbench.advisor.next_run import NextRun

_file = click.Path(path_type=Path)


@click.command("budget")
@click.option("--epochs", "epochs_file", type=_file, metavar="FILE", required=True,
              help="Profiles, a CSV file: global_batch, epoch_time_s.")  # fmt: skip
@click.option("--runs", "runs_file", type=_file, metavar="FILE", required=True,
              help="Full runs, a CSV file: global_batch, epochs_to_target; empty: never.")  # fmt: skip
@batches_option
@click.option("--max-runs", type=click.IntRange(min=0), default=3, show_default=True,
              help="How many full runs there may be in all.")  # fmt: skip
@json_option
@example("workbench what-if budget --epochs epochs.csv --runs runs.csv --batches 32,64,128,256 --max-runs 3")
def what_if_budget(
    epochs_file: Path, runs_file: Path, batches: tuple[int, ...], max_runs: int, as_json: bool
) -> None:
    """Say which full run would tell most, and which batch reaches the target first.

    A batch whose run never reached the target is not chosen, nor is one beyond it.
    """
    from workbench.advisor.next_run import advise_next_run, read_epoch_times, read_runs

    epoch_times_s = read_epoch_times(epochs_file, batches)
    advice = advise_next_run(epoch_times_s, read_runs(runs_file, batches), max_runs=max_runs)
    if as_json:
        print_json(
            {
                "next_run": advice.next_run, "choice": advice.choice,
                "ranking": [asdict(ranked) for ranked in advice.ranking],
            }
        )  # fmt: skip
        return
    _print(advice)


def _print(advice: NextRun) -> None:
    from workbench.cli.reading import make_table

    table = make_table("global batch", "time to target", "nine of ten within")
    for ranked in advice.ranking:
        if ranked.time_to_target_s is None or ranked.low_s is None or ranked.high_s is None:
            table.add_row(str(ranked.global_batch), "not known yet", "")
            continue
        table.add_row(
            str(ranked.global_batch),
            format_duration(ranked.time_to_target_s),
            f"{format_duration(ranked.low_s)} to {format_duration(ranked.high_s)}",
        )
    console = make_console()
    console.print(table)
    console.print()
    if advice.next_run is not None:
        console.print(f"Run batch {advice.next_run} next: it would tell most.")
    chosen = "No batch is left: none that was run reached the target."
    console.print(chosen if advice.choice is None else f"With what is known, choose batch {advice.choice}.")
