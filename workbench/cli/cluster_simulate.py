"""`cluster simulate`: how the rules of the pool share a large cluster, against simpler ones."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from workbench.advisor.quantities import format_duration
from workbench.cli.options import FiniteRange, example, json_option
from workbench.cli.printing import make_console, print_json
from workbench.errors import ExperimentError

if TYPE_CHECKING:
    from workbench.renting.workload import Played

_count = click.IntRange(1, 100_000)
_MOST_DECISION_MS = 10.0
_RULES = {
    "workbench": ("workbench", "the rules of the pool; each trial on as many GPUs as it asks for"),
    "elastic": (
        "workbench, elastic",
        "the same, but a trial begins on one GPU and grows onto idle ones at checkpoints\n"
        "(plan.workers: 1 with resources.elastic: true, where speeds of more were measured)",
    ),
    "fifo": ("FIFO, first fit", "first come first served, on the first machines that are free"),
    "one-gpu": ("one GPU a trial", "the rules of the pool; a trial never has more than one GPU"),
}


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
    fail at drawn moments. The same is played by the rules of the pool, by the same with trials that grow
    onto idle GPUs, by first come first served on the first machines that are free, and with one GPU for each
    trial.
    """
    from workbench.renting.simulation import simulate
    from workbench.renting.workload import POLICIES, Cluster, draw_trials

    if runs > trials:
        raise ExperimentError(f"{runs} runs have no more than {trials} trials", field="--runs",
                              allowed="at most as many as --trials")  # fmt: skip
    shape = Cluster(
        gpus=gpus, gpus_per_node=gpus_per_node, failures_per_node_hour=failure_rate,
        checkpoint_s=checkpoint_s, overhead=overhead,
    )  # fmt: skip
    drawn = draw_trials(trials, seed, num_runs=runs, most_workers=min(16, gpus))
    told = {policy: _told(simulate(shape, drawn, policy, seed), gpus) for policy in POLICIES}
    work_s = sum(trial.work_s for trial in drawn)
    if as_json:
        print_json({
            "gpus": gpus, "trials": trials, "seed": seed, "work_gpu_hours": work_s / 3600.0,
            "least_makespan_s": work_s / gpus, "policies": told,
        })  # fmt: skip
        return
    click.echo(
        f"{trials:,} trials of {runs} runs, drawn with seed {seed}: {work_s / 3600.0:,.0f} hours of work on "
        f"one GPU. There are {gpus:,}, {gpus_per_node} a machine.\n"
    )
    _show(told, work_s / gpus)


def _show(told: dict[str, Any], least_s: float) -> None:
    from workbench.cli.reading import make_table

    console = make_console()
    table = make_table("rule", "all ended", "first run", "leased", "useful", "lost", "failures")
    table.padding = (0, 1, 0, 0)
    rules = make_table("", "", show_header=False)
    for policy, each in told.items():
        name, meaning = _RULES[policy]
        table.add_row(
            name,
            format_duration(each["makespan_s"]),
            format_duration(each["finished_s"]["run-0"]),
            f"{each['busy']:.1%}",
            f"{each['useful']:.1%}",
            f"{each['lost_gpu_hours']:,.1f} h",
            str(each["failures"]),
        )
        rules.add_row(name, meaning)
    console.print(table)
    click.echo()
    console.print(rules)
    soonest = min(told, key=lambda policy: told[policy]["makespan_s"])
    took = told["workbench"]["decision_ms"]
    click.echo(f"""
all ended  when the last trial had ended; all work on all GPUs from the first moment on would take
           {format_duration(least_s)}, which no rule can beat. Soonest here: {_RULES[soonest][0]}
first run  when the run with priority had ended
leased     part of the time of all GPUs in which a trial held them; the rest they were idle, or down
useful     part of it that stays as work of one GPU: not lost, and not what a gang wastes on its overhead
lost       GPU hours of work since the last checkpoints, lost with machines that failed

Who is next, and where, took {took["median"]:.2f} ms of a processor to decide, one time in a hundred more than
{took["p99"]:.2f} ms, {took["max"]:.2f} ms at most.""")
    if took["max"] > _MOST_DECISION_MS:
        click.echo(f"the slowest decision took more than {_MOST_DECISION_MS:.0f} ms")


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
