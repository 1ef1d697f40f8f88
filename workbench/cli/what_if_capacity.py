"""`what-if capacity`: how deep, how long and how large an experiment can become on some devices."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import click

from workbench.cli.options import example, json_option, read_settings
from workbench.cli.output import make_console, print_json, print_note, waiting
from workbench.foundation.errors import ArgumentError, ExperimentError
from workbench.foundation.formatting import format_bytes, format_count, parse_bytes

if TYPE_CHECKING:
    from workbench.training.probes.capacity import Capacity

_MIN_BYTES = 1_000_000
"""With less, a unit was forgotten."""
_WAYS = {"torch": "plain torch", "none": "none recomputed", "blocks": "blocks recomputed"}
_SIZES = {"depth": "layers", "length": "sequence", "batch": "micro batch"}


@click.command("capacity")
@click.argument("file")
@click.option(
    "--memory",
    "memories",
    metavar="SIZE",
    multiple=True,
    help="Use a device with this memory, such as 16GB; repeat the option for several.",
)
@click.option(
    "--depth",
    metavar="NAME",
    help="Count layers by this parameter of the model; num_layers unless given.",
)
@click.option(
    "--set",
    "assignments",
    metavar="PATH=VALUE",
    multiple=True,
    help="Set a field of the experiment, such as training.optimizer=sgd.",
)
@json_option
@example("workbench what-if capacity search_spaces/digits.yaml --memory 8GB --memory 16GB")
def what_if_capacity(
    file: str,
    memories: tuple[str, ...],
    depth: str | None,
    assignments: tuple[str, ...],
    as_json: bool,
) -> None:
    """Find the deepest network, the longest sequence and the largest batch that fit a device.

    Each is as large as possible while the rest is as in FILE: with nothing recomputed, with all
    blocks recomputed, and as a loop in plain torch holds it. Steps are traced from shapes alone, on
    one worker, which takes minutes where the model can be deep. With a size as plan.recompute only
    some blocks are recomputed: how much of them is shown for the middle between the largest without
    and with recomputation. Without --memory the device is that of this machine.
    """
    from workbench.advisor.capacity import capacity_of
    from workbench.runs import read_experiment

    experiment = read_experiment(file, read_settings(assignments))
    memories_bytes = [_read_size(each) for each in memories]
    with waiting(f"tracing steps of {experiment.name} to find what fits; this may take minutes"):
        found = capacity_of(experiment, memories_bytes, depth)
    if as_json:
        print_json(
            {
                "devices": [
                    {"memory_bytes": memory, "largest": [dataclasses.asdict(each) for each in fits]}
                    for memory, fits in found.items()
                ]
            }
        )
        return
    from workbench.cli.output import make_table

    table = make_table("device", "", "in FILE", *_WAYS.values(), "part recomputed")
    for memory, fits in found.items():
        for number, each in enumerate(fits):
            table.add_row(
                format_bytes(memory) if number == 0 else "",
                _SIZES[each.size],
                f"{each.now:,}",
                *(_write(each, way) for way in _WAYS),
                "" if each.again is None else f"{each.again:.0%} at {each.halfway:,}",
            )
    make_console().print(table)
    if any("blocks" not in each.largest for fits in found.values() for each in fits):
        print_note("the model has no blocks that could be computed again")


def _write(found: Capacity, way: str) -> str:
    value = next((value for name, value in found.largest.items() if name == way), None)
    if value is None:
        return "-"
    return f"{value:,} or more" if value == found.most else f"{value:,}"


def _read_size(text: str) -> int:
    try:
        size = parse_bytes(text)
    except ExperimentError as error:
        raise ArgumentError(error.problem, field="--memory", allowed=error.allowed) from error
    if size < _MIN_BYTES:
        raise ArgumentError(
            f"a device with {format_count(size, 'byte')} of memory trains nothing",
            field="--memory",
            allowed="1MB or more, with the unit",
            next_step=(
                f"Write {text.strip()}GB if that is meant."
                if text.strip().isdecimal() and size
                else None
            ),
        )
    return size
