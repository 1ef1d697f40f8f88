"""`what-if batch`, `budget` and `lr`: the best global batch, the next full run, and the rate."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from workbench.advisor.rate_scaling import RateRequest, advise_rate
from workbench.cli.declarations import takes
from workbench.cli.options import example
from workbench.cli.output import make_console, print_json, print_note
from workbench.cli.parameters import (
    BATCHES,
    BETA1,
    BETA2,
    EPOCHS,
    FROM_BATCH,
    GPUS,
    JSON,
    LR,
    MAX_MICRO_BATCH,
    MAX_RUNS,
    MEASURED,
    NODES,
    NOISE,
    NOISE_SCALE,
    OPTIMIZER,
    REFERENCE_BATCH,
    RULE,
    RUNS_FILE,
    TO_BATCH,
    UNTIL,
    WARMUP,
)
from workbench.foundation.formatting import (
    format_count,
    format_duration,
    format_number,
    format_percent,
    format_range,
)

if TYPE_CHECKING:
    from workbench.advisor.batch_choice import BatchPlan, RankedBatch
    from workbench.advisor.next_run import NextRun


@click.command("batch")
@takes(
    MEASURED(is_required=True),
    NOISE(is_required=True),
    BATCHES(is_required=True),
    GPUS(is_required=True),
    NODES(default=1),
    MAX_MICRO_BATCH(is_required=True),
    REFERENCE_BATCH,
    UNTIL,
    JSON,
)
@example(
    "workbench what-if batch --measured steps.csv --noise noise.csv --batches 128,256,512,1024 "
    "--gpus 8 --nodes 2 --max-micro-batch 256"
)
def what_if_batch(
    *,
    measured: Path,
    noise_file: Path,
    batches: tuple[int, ...],
    gpus: int,
    nodes: int,
    max_micro_batch: int,
    reference_batch: int | None,
    until: float | None,
    as_json: bool,
) -> None:
    """Rank global batches by the time that a training takes to the same accuracy.

    A larger batch needs fewer steps, but each sample contributes less. The gradient noise measures
    how much less. It grows during a training, so measure it again from time to time. How fast it
    grows and whether it depends on the batch is uncertain. The first batch loses least on average
    over what may happen.

    The measured file has the columns of `what-if step-time`.

    In the noise file, progress counts steps of the reference batch. grad_sqr is the squared norm of
    the true gradient. grad_var is the variance of the gradient of one reference batch (not of one
    sample), summed over all parameters. The noise scale is reference batch x grad_var / grad_sqr,
    in samples.

    The table shows times relative to the best one, and each batch divided by the noise scale at
    the end of the training.
    """
    from workbench.advisor.batch_choice import rank_batches, read_noise
    from workbench.advisor.plan_tables import read_measured
    from workbench.hardware.performance.step_time import Point, fit
    from workbench.hardware.performance.topology import Topology

    topology = Topology.of(nodes, gpus)
    noise = read_noise(noise_file, batches, reference_batch)
    steps = read_measured(measured)
    model = fit(steps)

    def step_times(plans: Sequence[BatchPlan]) -> list[float]:
        points = [Point(topology, plan.micro_batch, plan.accumulation) for plan in plans]
        return [prediction.step_time_s for prediction in model.predict(points)]

    ranking = rank_batches(
        batches, noise, step_times, num_workers=gpus, max_micro_batch=max_micro_batch, end=until
    )
    best = ranking[0].plan
    if model.predict([Point(topology, best.micro_batch, best.accumulation)])[0].extrapolated:
        measured_batches = [step.micro_batch for step in steps if step.topology == topology]
        machines = f"{format_count(gpus, 'GPU')} of {format_count(nodes, 'node')}"
        missing = f"no step on {machines} or similar was measured"
        if measured_batches:
            low, high = min(measured_batches), max(measured_batches)
            missing = (
                f"no micro batch near {best.micro_batch} was measured on {machines}, "
                f"only {format_range(low, high, format_number)}"
            )
        print_note(f"{missing}, so the times are extrapolated")
    _note_limits(ranking, batches)
    if as_json:
        print_json({"ranking": [_to_json(ranked) for ranked in ranking]})
        return
    _print(ranking)


def _to_json(ranked: RankedBatch) -> dict[str, object]:
    plan = {**asdict(ranked.plan), "global_batch": ranked.plan.global_batch}
    return {**asdict(ranked), "plan": plan}


def _note_limits(ranking: Sequence[RankedBatch], batches: Sequence[int]) -> None:
    """Print notes about batches that are too small or too large."""
    from workbench.hardware.performance.noise import MAX_NOISE_SCALES

    skipped = sorted(set(batches) - {ranked.global_batch for ranked in ranking})
    if skipped:
        print_note(f"skipped, with less than one sample per GPU: {', '.join(map(str, skipped))}")
    best = ranking[0]
    if best.noise_scales > MAX_NOISE_SCALES:
        print_note(
            f"batch {best.global_batch} is {format_number(best.noise_scales)} times the noise scale"
            f" at the end of the training. Test a batch above {MAX_NOISE_SCALES:g} times before you"
            " rely on it"
        )


def _print(ranking: Sequence[RankedBatch]) -> None:
    from workbench.cli.output import make_table

    table = make_table("global batch", "relative time", "plan", "step", "noise scales")
    for ranked in ranking:
        plan = ranked.plan
        table.add_row(
            str(ranked.global_batch),
            f"{ranked.time_to_accuracy_relative:.3f}",
            f"{plan.micro_batch} x {plan.accumulation} accumulated x"
            f" {format_count(plan.workers, 'worker')}",
            format_duration(ranked.step_time_s),
            f"{ranked.noise_scales:.2g}",
        )
    make_console().print(table)


@click.command("budget")
@takes(
    EPOCHS(is_required=True),
    RUNS_FILE(is_required=True),
    BATCHES(is_required=True),
    MAX_RUNS(default=3),
    JSON,
)
@example(
    "workbench what-if budget --epochs epochs.csv --runs runs.csv --batches 32,64,128,256"
    " --max-runs 3"
)
def what_if_budget(
    epochs_file: Path, runs_file: Path, batches: tuple[int, ...], max_runs: int, as_json: bool
) -> None:
    """Recommend the most informative next full run, and the batch that reaches the target first.

    A batch whose run never reached the target is not chosen. Neither is a larger one, until a run
    with it has reached the target.
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
    _print_next_run(advice)


def _print_next_run(advice: NextRun) -> None:
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
        console.print(f"Run batch {advice.next_run} next. It tells you the most.")
    console.print(_describe_choice(advice))


def _describe_choice(advice: NextRun) -> str:
    if advice.choice is None and advice.next_run is None:
        return "No run reached the target, and no batch is left to try."
    if advice.choice is None:
        return "No batch can be chosen yet, because no run reached the target."
    if all(ranked.time_to_target_s is None for ranked in advice.ranking):
        return f"No run reached the target yet, so batch {advice.choice} is only a guess."
    return f"Based on the runs so far, choose batch {advice.choice}."


@click.command("lr")
@takes(
    OPTIMIZER(is_required=True),
    LR(is_required=True),
    FROM_BATCH(is_required=True),
    TO_BATCH(is_required=True),
    RULE(default="auto"),
    NOISE_SCALE,
    WARMUP,
    BETA1(default=0.9),
    BETA2(default=0.999),
    JSON,
)
@example(
    "workbench what-if lr --optimizer sgd --lr 0.1 --from-batch 256 --to-batch 8192",
    "workbench what-if lr --optimizer adamw --lr 3e-4 --from-batch 128 --to-batch 1024 --rule sqrt"
    " --json",
)
def what_if_lr(as_json: bool, **arguments: Any) -> None:
    """Scale a learning rate from one global batch to another.

    The warm-up is a share of the training: 0.05 means the first 5 %. No rule was tested for batches
    that change by more than a factor of 32 (lamb: 64), or that are far above the noise scale. There
    the rate is marked as extrapolated.
    """
    advice = advise_rate(RateRequest(**arguments))
    if as_json:
        document = dataclasses.asdict(advice)
        print_json({"message": document.pop("reason"), **document})
        return
    from workbench.cli.output import make_table

    facts = make_table(show_header=False)
    rate = format_number(advice.lr)
    if advice.extrapolated:
        rate += ", extrapolated"
    facts.add_row("learning rate", rate)
    facts.add_row("rule", advice.rule)
    facts.add_row("warm-up", f"{format_percent(advice.warmup)} of the training")
    make_console().print(facts)
    click.echo(f"\n{advice.reason}")
