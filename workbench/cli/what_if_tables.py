"""What-if questions about step times and memory: step-time, exchange, memory, capacity."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from workbench.cli.declarations import takes
from workbench.cli.options import attach_newest, example
from workbench.cli.output import make_console, print_json, print_note, waiting
from workbench.cli.parameters import (
    DEPTH,
    EXPERIMENT,
    JSON,
    MEASURED,
    MEMORY,
    POINTS,
    RUN,
    SETTINGS,
    STORED,
)
from workbench.foundation.formatting import format_bytes, format_duration, format_number

if TYPE_CHECKING:
    from workbench.hardware.performance.step_time import Prediction
    from workbench.training.probes.capacity import Capacity


@click.command("step-time")
@takes(MEASURED(is_required=True), POINTS(is_required=True), JSON)
@example("workbench what-if step-time --measured measured.csv --points plans.csv --json")
def step_time(measured: Path, points: Path, as_json: bool) -> None:
    """Predict seconds per training step of plans from measured ones.

    The measured file has the columns nodes, gpus, micro_batch and step_time_s, and optionally
    gpus_per_node and sync_time_s. The file of plans has nodes, gpus and micro_batch, and optionally
    gpus_per_node and accumulation.

    micro_batch is in samples per GPU. gpus_per_node is written as 4+4. sync_time_s is the rest of a
    step after the last gradient was computed. 90 % of the steps should be between low and high. A
    point is extrapolated if no topology of its kind (one GPU, one node, two nodes, more) or no
    similar batch was measured.

    For plans that divide a model, both files have any of the columns replicas, stages, tensor,
    accumulation, micro_batch, nodes and gpus. A transformer also has layers, hidden, heads,
    sequence and vocabulary. A missing column counts as 1, or as unknown for columns of the model.
    gpus = replicas x stages x tensor. micro_batch is in samples per replica, and a step has
    accumulation micro batches.

    Plans that divide a model in two or three ways are predicted from plans that divide it in one
    way. Models that were not measured are predicted from the others. A point is extrapolated if a
    number is more than twice the largest measured one, or if no measured plan divides the same
    things.
    """
    from workbench.advisor.plan_tables import (
        are_divided_plans,
        predict_divided_steps,
        predict_step_times,
        read_measured,
        read_points,
    )

    heads: tuple[str, ...]
    if are_divided_plans(measured, points):
        plans, predictions = predict_divided_steps(measured, points)
        heads = ("nodes", "replicas", "stages", "tensor", "micro batch", "accumulation")
        names = ("nodes", "replicas", "stages", "tensor", "micro_batch", "accumulation")
        rows = [tuple(format_number(getattr(plan, name)) for name in names) for plan in plans]
    else:
        requested = read_points(points)
        predictions = predict_step_times(read_measured(measured), requested)
        heads = ("nodes", "gpus", "micro batch")
        rows = [
            (
                str(point.topology.num_nodes),
                str(point.topology.num_gpus),
                format_number(point.micro_batch),
            )
            for point in requested
        ]
    if as_json:
        print_json({"points": [prediction._asdict() for prediction in predictions]})
    else:
        _show(heads, rows, predictions)


def _show(
    heads: Sequence[str], rows: Sequence[Sequence[str]], predictions: Sequence[Prediction]
) -> None:
    from workbench.cli.output import make_table

    table = make_table(*heads, "step", "low", "high", "")
    for row, prediction in zip(rows, predictions, strict=True):
        table.add_row(
            *row,
            *(format_duration(seconds) for seconds in prediction[:3]),
            "extrapolated" if prediction.extrapolated else "",
        )
    make_console().print(table)


@click.command("exchange")
@takes(RUN, STORED)
@example("workbench what-if exchange last")
def what_if_exchange(run_id: str, as_json: bool) -> None:
    """Predict the seconds per step of every exchange from the links that advise measured.

    90 % of the steps should be between low and high. A faster step does not mean a faster training.
    An approximate exchange needs more steps, so test it in a search before you use it.

    "last" is the newest run that measured links.
    """
    from workbench.advisor.exchange_forecast import forecast_exchanges, has_swept_links
    from workbench.runs.what_if import measurements_of, newest_measured

    run = attach_newest(run_id, partial(newest_measured, is_usable=has_swept_links))
    forecasts = forecast_exchanges(measurements_of(run))
    if as_json:
        print_json(
            {
                "exchanges": [
                    {
                        "exchange": forecast.exchange,
                        "plan": forecast.plan.describe(),
                        "sent_bytes": forecast.sent_bytes,
                        "step_time_s": forecast.step_time_s.value,
                        "low_s": forecast.step_time_s.low,
                        "high_s": forecast.step_time_s.high,
                        "is_exact": forecast.is_exact,
                        "is_measured": forecast.is_measured,
                    }
                    for forecast in forecasts
                ]
            }
        )
        return
    from workbench.cli.output import make_table

    table = make_table("exchange", "step", "low", "high", "sent per step", "result", "")
    for forecast in forecasts:
        step = forecast.step_time_s
        table.add_row(
            forecast.exchange,
            *(format_duration(value) for value in (step.value, step.low, step.high)),
            format_bytes(forecast.sent_bytes),
            "exact" if forecast.is_exact else "approximate",
            "measured" if forecast.is_measured else "predicted",
        )
    make_console().print(table)
    click.echo(f"\nThese are steps of {forecasts[0].plan.batch_text}.")
    print_note(
        "an approximate exchange needs more steps to reach the same loss. To compare them, search"
        " plan.exchange."
    )


_SHOWN = (
    ("layers", "hidden"),
    ("replicas", "stages", "tensor", "zero", "micro_batch", "accumulation"),
)


@click.command("memory")
@takes(MEASURED(is_required=True), POINTS(is_required=True), JSON)
@example("workbench what-if memory --measured measured.csv --points plans.csv --json")
def memory(measured: Path, points: Path, as_json: bool) -> None:
    """Predict the peak memory of a device from measured peaks, even for models that never ran.

    The measured file has the columns layers, hidden, feed_forward, vocabulary, sequence, nodes,
    replicas, stages, tensor, zero, micro_batch, accumulation and memory_gb. The file of plans has
    the same columns without memory_gb.

    Only memory_gb is required. A missing column counts as 1, or as unknown for columns of the
    model. zero says what the replicas divide among them: with 1 the optimizer state, with 2 also
    the gradients, with 3 also the parameters. If it is missing, they divide nothing (0).
    feed_forward is the width of the feed-forward layers.

    90 % of the peaks should be between low and high. A point is extrapolated if a number is more
    than twice the largest measured one, or if no measured plan divides the same things.
    """
    from workbench.advisor.plan_tables import predict_peaks

    plans, predictions = predict_peaks(measured, points)
    if as_json:
        print_json({"points": [prediction._asdict() for prediction in predictions]})
        return
    from workbench.cli.output import make_table

    of_model, of_plan = _SHOWN
    table = make_table(
        *(name.replace("_", " ") for name in (*of_model, *of_plan)), "memory", "low", "high", ""
    )
    for plan, prediction in zip(plans, predictions, strict=True):
        sizes = [getattr(plan.shape, name) for name in of_model]
        table.add_row(
            *("?" if size is None else str(size) for size in sizes),
            *(format_number(getattr(plan, name)) for name in of_plan),
            *(f"{format_number(round(gb, 2))} GB" for gb in prediction[:3]),
            "extrapolated" if prediction.extrapolated else "",
        )
    make_console().print(table)


_RECOMPUTED = {"torch": "plain torch", "none": "none recomputed", "blocks": "blocks recomputed"}
_SIZES = {"depth": "layers", "length": "sequence", "batch": "micro batch"}


@click.command("capacity")
@takes(EXPERIMENT, MEMORY(is_repeatable=True), DEPTH, SETTINGS(is_repeatable=True), JSON)
@example("workbench what-if capacity search_spaces/digits.yaml --memory 8GB --memory 16GB")
def what_if_capacity(
    file: str,
    memories: tuple[int, ...],
    depth: str | None,
    settings: dict[str, Any] | None,
    as_json: bool,
) -> None:
    """Find the deepest network, the longest sequence and the largest batch that fit a device.

    Each answer changes one size and keeps the rest of FILE. You see it with nothing recomputed,
    with all blocks recomputed, and for a loop in plain torch.

    Steps of one worker are traced from shapes alone. This takes minutes if a deep model fits. The
    last column shows how many of the blocks are recomputed halfway between the two limits.
    """
    from workbench.advisor.memory import sizes_that_fit
    from workbench.runs import read_experiment

    experiment = read_experiment(file, settings or {})
    with waiting(f"tracing steps of {experiment.name} to find what fits (may take minutes)"):
        fits_of = sizes_that_fit(experiment, list(memories), depth)
    if as_json:
        print_json(
            {
                "devices": [
                    {
                        "memory_bytes": memory,
                        "largest": [dataclasses.asdict(capacity) for capacity in fits],
                    }
                    for memory, fits in fits_of.items()
                ]
            }
        )
        return
    from workbench.cli.output import make_table

    table = make_table("device", "", "in FILE", *_RECOMPUTED.values(), "part recomputed")
    for memory, fits in fits_of.items():
        device = format_bytes(memory)
        for capacity in fits:
            part = ""
            if capacity.again is not None:
                part = f"{capacity.again:.0%} at {capacity.halfway:,}"
            limits = (_describe_limit(capacity, recompute) for recompute in _RECOMPUTED)
            table.add_row(device, _SIZES[capacity.size], f"{capacity.now:,}", *limits, part)
            device = ""
    make_console().print(table)
    if any("blocks" not in capacity.largest for fits in fits_of.values() for capacity in fits):
        print_note("the model has no blocks that can be recomputed")


def _describe_limit(capacity: Capacity, recompute: str) -> str:
    value = next((value for name, value in capacity.largest.items() if name == recompute), None)
    if value is None:
        return "-"
    if value == capacity.most:
        return f"{value:,} or more"
    return f"{value:,}"
