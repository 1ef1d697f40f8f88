"""`measure`: how fast an exported model is on a machine, side by side with the machines before."""

from __future__ import annotations

from pathlib import Path

import click

from workbench.cli.declarations import takes
from workbench.cli.options import example
from workbench.cli.output import print_json
from workbench.cli.parameters import BATCH, BUNDLE, DEVICE, JSON, PYTHON, THREADS
from workbench.foundation.formatting import format_bytes


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

    BUNDLE is a folder that was exported with --format onnx. The results are kept in its card.json.
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
    has_energy = any(timing.energy_j is not None for timing in timings)
    table = make_table(*headings, *(["mJ a call"] if has_energy else []))
    for timing in timings:
        memory = "" if timing.memory_bytes is None else format_bytes(timing.memory_bytes)
        energy = "" if timing.energy_j is None else f"{timing.energy_j * 1e3:.3f}"
        table.add_row(
            timing.machine,
            str(timing.threads),
            str(timing.batch),
            f"{timing.p50_s * 1e3:.3f}",
            f"{timing.p95_s * 1e3:.3f}",
            str(timing.num_calls),
            memory,
            timing.runtime,
            *([energy] if has_energy else []),
        )
    make_console().print(table)
