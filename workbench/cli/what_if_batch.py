"""`what-if batch`: ranks global batches by the time to the same accuracy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from workbench.cli.options import Count, FiniteRange, batches_option, example, json_option
from workbench.cli.output import make_console, print_json, print_note
from workbench.foundation.formatting import (
    format_count,
    format_duration,
    format_number,
    format_range,
)

if TYPE_CHECKING:
    from workbench.advisor.batch_choice import BatchPlan, RankedBatch

_file = click.Path(path_type=Path)
_count = Count(min=1)


@click.command("batch")
@click.option(
    "--measured",
    type=_file,
    metavar="FILE",
    required=True,
    help="Read measured steps from this CSV file, as in step-time.",
)
@click.option(
    "--noise",
    "noise_file",
    type=_file,
    metavar="FILE",
    required=True,
    help="Read gradient noise from this CSV file: global_batch, progress, grad_sqr, grad_var.",
)
@batches_option
@click.option("--gpus", type=_count, required=True, help="Train on this many GPUs in total.")
@click.option(
    "--nodes", type=_count, default=1, show_default=True, help="Spread them over this many nodes."
)
@click.option(
    "--max-micro-batch",
    type=_count,
    required=True,
    help="Fit at most this many samples on a GPU at once.",
)
@click.option(
    "--reference-batch",
    type=_count,
    help="Set the batch that the noise file refers to; by default the smallest.",
)
@click.option(
    "--until",
    type=FiniteRange(min=0, min_open=True),
    metavar="PROGRESS",
    help="Set the progress at the end of the training; by default twice the last.",
)
@json_option
@example(
    "workbench what-if batch --measured steps.csv --noise noise.csv --batches 128,256,512,1024 "
    "--gpus 8 --nodes 2 --max-micro-batch 256"
)
def what_if_batch(
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

    Larger steps are fewer, but each sample contributes less; the gradient noise, measured during a
    training, quantifies this. Measure it again as the training continues: it grows.

    In the noise file progress is counted in steps of the reference batch, grad_sqr is the squared
    norm of the true gradient, and grad_var the variance, summed over all parameters, of the
    gradient of one reference batch, not of one sample. The noise scale is reference batch x
    grad_var / grad_sqr, in samples. The table shows times as multiples of the best one, and each
    batch in noise scales at the end of the training.
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
        alike = [each.micro_batch for each in steps if each.topology == topology]
        where = f"{format_count(gpus, 'GPU')} of {format_count(nodes, 'node')}"
        missing = (
            f"no micro batch like {best.micro_batch} was measured on {where}, "
            f"only {format_range(min(alike), max(alike), format_number)}"
            if alike
            else f"no step on {where} or similar was measured"
        )
        print_note(f"{missing}: the times are extrapolated")
    _note_limits(ranking, batches)
    if as_json:
        print_json({"ranking": [_to_json(ranked) for ranked in ranking]})
        return
    _print(ranking)


def _to_json(ranked: RankedBatch) -> dict[str, object]:
    plan = {**asdict(ranked.plan), "global_batch": ranked.plan.global_batch}
    return {**asdict(ranked), "plan": plan}


def _note_limits(ranking: Sequence[RankedBatch], batches: Sequence[int]) -> None:
    """Print notes about the answer on stderr."""
    from workbench.hardware.performance.noise import MAX_NOISE_SCALES

    left_out = sorted(set(batches) - {ranked.global_batch for ranked in ranking})
    if left_out:
        print_note(f"left out, with less than one sample per GPU: {', '.join(map(str, left_out))}")
    best = ranking[0]
    if best.noise_scales > MAX_NOISE_SCALES:
        print_note(
            f"batch {best.global_batch} is {format_number(best.noise_scales)} times the noise scale"
            f" at the end of the training, more than {MAX_NOISE_SCALES:g}: test it before you rely"
            " on it"
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
