"""`cluster simulate`: compares the rules of the worker pool with simpler ones."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from workbench.cli.declarations import takes
from workbench.cli.options import example
from workbench.cli.output import make_console, print_json
from workbench.cli.parameters import (
    CHECKPOINT,
    FAILURE_RATE,
    GPUS,
    GPUS_PER_NODE,
    JSON,
    NUM_RUNS,
    NUM_TRIALS,
    OVERHEAD,
    POLICY,
    SEED,
)
from workbench.foundation.errors import ArgumentError
from workbench.foundation.formatting import format_count, format_duration, format_percent

if TYPE_CHECKING:
    from workbench.runs.provisioning.simulation import OwnPolicy, Policy, SimulationResult

_MAX_DECISION_MS = 10.0
_RULES = {
    "workbench": (
        "workbench",
        "the rules of the pool. Each trial gets as many GPUs as it requests",
    ),
    "elastic": (
        "workbench, elastic",
        (
            "the same, but a trial starts on one GPU and grows onto idle ones at checkpoints\n"
            "(plan.workers: 1 with resources.elastic: true, if more workers were measured)"
        ),
    ),
    "fifo": ("FIFO, first fit", "first come, first served, on the first free machines"),
    "one-gpu": (
        "one GPU per trial",
        "the rules of the pool, but a trial never gets more than one GPU",
    ),
}


@click.command("simulate")
@takes(
    GPUS(default=1000),
    GPUS_PER_NODE(default=8),
    NUM_TRIALS(default=10_000),
    NUM_RUNS(default=4),
    FAILURE_RATE(default=0.002),
    CHECKPOINT(default="10m"),
    OVERHEAD(default=0.02),
    SEED(default=0),
    POLICY(is_repeatable=True),
    JSON,
)
@example(
    "workbench cluster simulate",
    "workbench cluster simulate --gpus 64 --num-trials 500 --failure-rate 0.05 --seed 1",
)
def simulate_cluster(
    *,
    gpus: int,
    gpus_per_node: int,
    num_trials: int,
    num_runs: int,
    failure_rate: float,
    checkpoint: float,
    overhead: float,
    seed: int,
    policy: tuple[str, ...],
    as_json: bool,
) -> None:
    """Simulate a shared cluster with the code that leases workers in a real one.

    All trials of several runs are waiting when the simulation starts. Their lengths, their numbers
    of workers and the failures of machines are random. Four rules are compared: the rules of the
    pool, the same with trials that grow onto idle GPUs, first come first served, and one GPU for
    each trial. Add rules of your own with --policy.
    """
    from workbench.foundation.registry import load_object
    from workbench.runs.provisioning.simulation import POLICIES, Cluster, draw_trials, simulate

    if num_runs > num_trials:
        raise ArgumentError(
            f"{num_runs} runs cannot share {num_trials} trials",
            field="--num-runs",
            allowed="at most as many as --num-trials",
        )
    shape = Cluster(
        gpus=gpus,
        gpus_per_node=gpus_per_node,
        failures_per_node_hour=failure_rate,
        checkpoint_s=checkpoint,
        overhead=overhead,
    )
    drawn = draw_trials(num_trials, seed, num_runs=num_runs, max_workers=min(16, gpus))
    rules: dict[str, Policy | OwnPolicy] = {name: name for name in POLICIES}
    rules |= {reference: load_object(reference, field="--policy") for reference in policy}
    results = {
        name: _to_json(simulate(shape, drawn, rule, seed), gpus) for name, rule in rules.items()
    }
    work_s = sum(trial.work_s for trial in drawn)
    if as_json:
        print_json(
            {
                "num_gpus": gpus,
                "num_trials": num_trials,
                "seed": seed,
                "work_gpu_hours": work_s / 3600.0,
                "least_makespan_s": work_s / gpus,
                "policies": results,
            }
        )
        return
    click.echo(
        f"{format_count(num_trials, 'trial')} of {format_count(num_runs, 'run')}, "
        f"drawn with seed {seed}: "
        f"{work_s / 3600.0:,.0f} hours of work on one GPU. The cluster has {gpus:,} GPUs, "
        f"{gpus_per_node} per machine.\n"
    )
    _show(results, work_s / gpus)


def _show(results: dict[str, Any], least_s: float) -> None:
    from workbench.cli.output import make_table

    console = make_console()
    table = make_table("rule", "all ended", "first run", "leased", "useful", "lost", "failures")
    table.padding = (0, 1, 0, 0)
    rules = make_table("", "", show_header=False)
    for policy, result in results.items():
        name, meaning = _RULES.get(policy, (policy, "your own rule"))
        table.add_row(
            name,
            format_duration(result["makespan_s"]),
            format_duration(result["finished_s"]["run-0"]),
            format_percent(result["busy"]),
            format_percent(result["useful"]),
            f"{result['lost_gpu_hours']:,.1f} h",
            str(result["num_failures"]),
        )
        rules.add_row(name, meaning)
    console.print(table)
    click.echo()
    console.print(rules)
    soonest = min(results, key=lambda policy: results[policy]["makespan_s"])
    took = {
        name: format_duration(ms / 1e3) for name, ms in results["workbench"]["decision_ms"].items()
    }
    click.echo(f"""
all ended  when the last trial ended. The soonest here: {_RULES.get(soonest, (soonest,))[0]}.
           No rule can beat {format_duration(least_s)}, when all GPUs are always busy.
first run  when the run with priority ended
leased     share of GPU time that trials held. Otherwise GPUs were idle or down.
useful     share of GPU time that became progress: without lost work and overhead of workers
lost       GPU hours of work since the last checkpoint, lost when machines failed

A scheduling decision took {took["median"]} of CPU time (median), {took["p99"]} (99th percentile),
{took["max"]} at most.""")
    if results["workbench"]["decision_ms"]["max"] > _MAX_DECISION_MS:
        click.echo(
            f"The slowest decision took more than {format_duration(_MAX_DECISION_MS / 1e3)}."
        )


def _to_json(result: SimulationResult, gpus: int) -> dict[str, Any]:
    from workbench.runs.provisioning.simulation import quantiles_ms

    return {
        "makespan_s": result.makespan_s,
        "finished_s": result.finished_s,
        "busy": result.busy,
        "useful": result.useful,
        "lost_gpu_hours": result.lost_gpu_s / 3600.0,
        "lost": result.lost_gpu_s / (gpus * result.makespan_s),
        "num_failures": result.failures,
        "num_decisions": len(result.decisions_ns),
        "decision_ms": dict(quantiles_ms(result.decisions_ns)),
    }
