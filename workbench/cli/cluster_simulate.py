"""`cluster simulate`: how the rules of the pool share a large cluster, against simpler ones."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from workbench.advisor.quantities import format_duration
from workbench.cli.options import FiniteRange, example, json_option
from workbench.cli.printing import make_console, print_json

if TYPE_CHECKING:
    from workbench.renting.workload import Played

_count = click.IntRange(min=1)
_MOST_DECISION_MS = 10.0
_NAMES = {"workbench": "workbench", "fifo": "FIFO, first fit", "one-gpu": "one GPU a trial"}


@click.command("simulate")
@click.option("--gpus", type=_count, default=1000, show_default=True)
@click.option("--gpus-per-node", type=_count, default=8, show_default=True)
@click.option("--trials", type=_count, default=10_000, show_default=True, help="Trials of all runs.")
@click.option("--runs", type=_count, default=4, show_default=True, help="Runs; the first has priority.")
@click.option("--failure-rate", type=FiniteRange(min=0), default=0.002, show_default=True,
              help="Failures of a machine per hour.")  # fmt: skip
@click.option("--checkpoint", "checkpoint_s", type=FiniteRange(min=1), default=600.0, show_default=True,
              metavar="SECONDS", help="Between checkpoints of a trial.")  # fmt: skip
@click.option("--overhead", type=FiniteRange(min=0), default=0.02, show_default=True,
              help="What of a step is not parallel, relative to computing on one GPU.")  # fmt: skip
@click.option("--seed", type=int, default=0, show_default=True)
@json_option
@example(
    "workbench cluster simulate",
    "workbench cluster simulate --gpus 64 --trials 500 --failure-rate 0.05 --seed 1",
)
def simulate_cluster(
    gpus: int, gpus_per_node: int, trials: int, runs: int, failure_rate: float, checkpoint_s: float,
    overhead: float, seed: int, as_json: bool,
) -> None:  # fmt: skip
    """Play a shared cluster under a fake clock, by the code that leases workers in a real one.

    Trials of several runs are there from the beginning, with drawn lengths and numbers of workers; machines
    fail at drawn moments. The same is played by the rules of the pool, by first come first served on the
    first machines that are free, and with one GPU for each trial.
    """
    from workbench.renting.simulation import simulate
    from workbench.renting.workload import POLICIES, Cluster, draw_trials

    shape = Cluster(
        gpus=gpus, gpus_per_node=gpus_per_node, failures_per_node_hour=failure_rate,
        checkpoint_s=checkpoint_s, overhead=overhead,
    )  # fmt: skip
    drawn = draw_trials(trials, seed, num_runs=runs, most_workers=min(16, gpus))
    told = {policy: _told(simulate(shape, drawn, policy, seed), gpus) for policy in POLICIES}
    slowest_ms = told["workbench"]["decision_ms"]["max"]
    if as_json:
        print_json({"gpus": gpus, "trials": trials, "seed": seed, "policies": told})
        return
    from workbench.cli.reading import make_table

    table = make_table()
    for name in (
        "",
        "makespan",
        "first run",
        "GPUs leased",
        "useful",
        "lost GPU hours",
        "failures",
        "decision",
    ):
        table.add_column(name)
    for policy, each in told.items():
        took = each["decision_ms"]
        table.add_row(
            _NAMES[policy],
            format_duration(each["makespan_s"]),
            format_duration(each["finished_s"]["run-0"]),
            f"{each['busy']:.1%}",
            f"{each['useful']:.1%}",
            f"{each['lost_gpu_hours']:,.1f}",
            str(each["failures"]),
            f"{took['median']:.2f} ms, 99 % {took['p99']:.2f}, most {took['max']:.2f}",
        )
    make_console().print(table)
    click.echo(
        "\nleased: part of all GPU time; useful: what stays of it as work of one GPU, neither lost nor "
        "overhead of gangs; first run: when the run with priority had ended"
    )
    if slowest_ms > _MOST_DECISION_MS:
        click.echo(
            f"the slowest decision took {slowest_ms:.1f} ms of a processor, more than {_MOST_DECISION_MS:.0f}"
        )


def _told(played: Played, gpus: int) -> dict[str, Any]:
    from workbench.renting.workload import quantiles_ms

    return {
        "makespan_s": played.makespan_s,
        "finished_s": played.finished_s,
        "busy": played.busy,
        "useful": played.useful,
        "lost_gpu_hours": played.lost_gpu_s / 3600.0,
        "lost": played.lost_gpu_s / (gpus * played.makespan_s),
        "failures": played.failures,
        "decisions": len(played.decisions_ns),
        "decision_ms": dict(quantiles_ms(played.decisions_ns)),
    }
