"""`what-if budget`: recommends which batch to run next, and which to choose, with few full runs."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from workbench.cli.options import Count, batches_option, example, json_option
from workbench.cli.output import make_console, print_json
from workbench.foundation.formatting import format_duration, format_range

if TYPE_CHECKING:
    from workbench.advisor.next_run import NextRun

_file = click.Path(path_type=Path)


@click.command("budget")
@click.option(
    "--epochs",
    "epochs_file",
    type=_file,
    metavar="FILE",
    required=True,
    help="Read epoch times from this CSV file: global_batch, epoch_time_s.",
)
@click.option(
    "--runs",
    "runs_file",
    type=_file,
    metavar="FILE",
    required=True,
    help="Read full runs from this CSV file: global_batch, epochs_to_target (empty: never).",
)
@batches_option
@click.option(
    "--max-runs",
    type=Count(min=0),
    default=3,
    show_default=True,
    help="Allow this many full runs in total.",
)
@json_option
@example(
    "workbench what-if budget --epochs epochs.csv --runs runs.csv --batches 32,64,128,256"
    " --max-runs 3"
)
def what_if_budget(
    epochs_file: Path, runs_file: Path, batches: tuple[int, ...], max_runs: int, as_json: bool
) -> None:
    """Recommend the most informative next full run, and the batch that reaches the target first.

    A batch whose run never reached the target is not chosen, nor is one beyond it until a run there
    did.
    """
    from workbench.advisor.next_run import advise_next_run, read_epoch_times, read_runs

    epoch_times_s = read_epoch_times(epochs_file, batches)
    advice = advise_next_run(epoch_times_s, read_runs(runs_file, batches), max_runs=max_runs)
    if as_json:
        print_json(
            {
                "next_run": advice.next_run,
                "choice": advice.choice,
                "ranking": [asdict(ranked) for ranked in advice.ranking],
            }
        )
        return
    _print(advice)


def _print(advice: NextRun) -> None:
    from workbench.cli.output import make_table

    table = make_table("global batch", "time to target", "90 % interval")
    for ranked in advice.ranking:
        if ranked.time_to_target_s is None or ranked.low_s is None or ranked.high_s is None:
            table.add_row(str(ranked.global_batch), "unknown", "")
            continue
        table.add_row(
            str(ranked.global_batch),
            format_duration(ranked.time_to_target_s),
            format_range(ranked.low_s, ranked.high_s, format_duration),
        )
    console = make_console()
    if advice.ranking:
        console.print(table)
        console.print()
    if advice.next_run is not None:
        console.print(f"Run batch {advice.next_run} next: it is the most informative.")
    console.print(_describe_choice(advice))


def _describe_choice(advice: NextRun) -> str:
    if advice.choice is None:
        left = "No batch is left" if advice.next_run is None else "No batch can be chosen yet"
        return f"{left}: no run reached the target."
    if all(ranked.time_to_target_s is None for ranked in advice.ranking):
        return f"No run reached the target yet: batch {advice.choice} is a guess until one does."
    return f"Based on the runs so far, choose batch {advice.choice}."
