"""`measure`: how fast an exported model is on a machine, side by side with the machines before."""

from __future__ import annotations

from pathlib import Path

import click

from workbench.cli.options import PATH, Count, example, json_option, option
from workbench.cli.output import print_json
from workbench.foundation.formatting import format_bytes


@click.command()
@click.argument("bundle", type=PATH)
@option(
    "--device",
    (
        "Measure here, on ssh://[USER@]HOST[:PORT], or on the machine of a tier, such as "
        "tiers.yaml:end; repeat the option for several."
    ),
    default=("here",),
    metavar="DEVICE",
    multiple=True,
)
@option("--threads", "Compute each call with this many threads.", Count(min=1), default=1)
@option("--batch", "Give each call this many samples.", Count(min=1), default=1)
@option(
    "--python",
    "Use this Python of the other machine; it needs numpy and onnxruntime.",
    default="python3",
    metavar="PROGRAM",
)
@json_option
@example(
    "workbench measure best",
    "workbench measure best --device here --device ssh://pi@board.local",
    "workbench measure best --device tiers.yaml:end",
)
def measure(
    *, bundle: Path, device: tuple[str, ...], threads: int, batch: int, python: str, as_json: bool
) -> None:
    """Measure how fast an exported model is where it will run.

    BUNDLE is a folder that was exported with --format onnx. The results are kept in its card.json.
    """
    from workbench.cli.output import make_console, make_table
    from workbench.deploy import device as devices
    from workbench.deploy.card import read_card
    from workbench.tiers.placement.profile import find_device

    for measured_device in [find_device(name) for name in device]:
        devices.measure(bundle, measured_device, threads=threads, batch=batch, python=python)
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
