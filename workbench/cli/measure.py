"""`measure`: how fast an exported model is on a machine, compared with earlier machines."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING

import click

from workbench.cli.declarations import takes
from workbench.cli.options import example
from workbench.cli.output import print_json
from workbench.cli.parameters import BATCH, BUNDLE, DEVICE, JSON, PYTHON, THREADS
from workbench.foundation.formatting import format_bytes

if TYPE_CHECKING:
    from workbench.deploy.card import Timing


@click.command()
@takes(
    BUNDLE,
    DEVICE(default=("here",), is_repeatable=True),
    THREADS(default=1),
    BATCH(default=(1,), is_repeatable=True),
    PYTHON(default="python3"),
    JSON,
)
@example(
    "workbench measure best",
    "workbench measure best --device here --device ssh://pi@board.local",
    "workbench measure best --device tiers.yaml:end",
)
def measure(
    *,
    bundle: Path,
    device: tuple[str, ...],
    threads: int,
    batch: tuple[int, ...],
    python: str,
    as_json: bool,
) -> None:
    """Measure how fast an exported model is where it will run.

    BUNDLE is a folder that you exported with --format onnx. The results are stored in its
    card.json.
    """
    from workbench.cli.output import make_console, make_table
    from workbench.deploy import device as devices
    from workbench.deploy.card import read_card
    from workbench.tiers.placement.profile import find_device

    for measured_device in [find_device(name) for name in device]:
        for size in sorted(set(batch)):
            devices.measure(bundle, measured_device, threads=threads, batch=size, python=python)
    timings = read_card(bundle).timings
    if as_json:
        print_json({"bundle": str(bundle), "timings": [timing.model_dump() for timing in timings]})
        return
    headings = [
        "machine",
        "threads",
        "batch",
        "p50 ms",
        "p95 ms",
        "calls",
        "peak memory",
        "runtime",
    ]
    if any(timing.energy_j is not None for timing in timings):
        headings.append("mJ per call")
    table = make_table(*headings)
    for timing in timings:
        table.add_row(*_cells_of(timing)[: len(headings)])
    make_console().print(table)
    click.echo(f"To serve it: {shlex.join(['workbench', 'serve', str(bundle)])}", err=True)


def _cells_of(timing: Timing) -> list[str]:
    memory = energy = ""
    if timing.memory_bytes is not None:
        memory = format_bytes(timing.memory_bytes)
    if timing.energy_j is not None:
        energy = f"{timing.energy_j * 1e3:.3f}"
    return [
        timing.machine,
        str(timing.threads),
        str(timing.batch),
        f"{timing.p50_s * 1e3:.3f}",
        f"{timing.p95_s * 1e3:.3f}",
        str(timing.num_calls),
        memory,
        timing.runtime,
        energy,
    ]
