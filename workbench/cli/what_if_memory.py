"""`what-if memory` and `what-if capacity`: the peak memory of plans, and what fits a device."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from workbench.cli.declarations import takes
from workbench.cli.options import example
from workbench.cli.output import make_console, print_json, print_note, waiting
from workbench.cli.parameters import DEPTH, EXPERIMENT, JSON, MEASURED, MEMORY, POINTS, SETTINGS
from workbench.foundation.formatting import format_bytes, format_number

if TYPE_CHECKING:
    from workbench.training.probes.capacity import Capacity

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
    from workbench.advisor.capacity import capacity_of
    from workbench.runs import read_experiment

    experiment = read_experiment(file, settings or {})
    with waiting(f"tracing steps of {experiment.name} to find what fits (may take minutes)"):
        fits_of = capacity_of(experiment, list(memories), depth)
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
