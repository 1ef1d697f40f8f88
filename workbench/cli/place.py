"""`place`: where the stages of a model run, on devices, near them or in the cloud."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from workbench.cli.lazy_groups import LazyGroup
from workbench.cli.options import Count, example, json_option
from workbench.cli.output import echo, make_console, print_json, print_note
from workbench.formatting import format_bytes, format_duration, format_number, format_percent, format_range

if TYPE_CHECKING:
    from workbench.deploy.placement.scheduler_plans import Plan
    from workbench.deploy.placement.system import System
    from workbench.deploy.placement.tiers_file import TiersFile

COMMANDS = {
    "profile": "workbench.cli.place:profile",
    "plan": "workbench.cli.place:plan",
    "simulate": "workbench.cli.place:simulate",
    "run": "workbench.cli.place_run:run",
}
_FILE = click.argument("file", type=click.Path(path_type=Path))


@click.group("place", cls=LazyGroup, table=COMMANDS, context_settings={"help_option_names": ["-h", "--help"]})
@example("workbench place profile best --to pi.json", "workbench place plan docs/guides/tiers.yaml")
def place() -> None:
    """Place the stages of a model on devices and servers.

    FILE describes tiers and links; see the guide on tiers.
    """


@click.command()
@click.argument("bundle", type=click.Path(path_type=Path))
@click.option("--to", required=True, type=click.Path(path_type=Path), metavar="FILE",
              help="Write the profile to this file.")  # fmt: skip
@click.option("--device", metavar="DEVICE", default="here", show_default=True,
              help="Measure here or on ssh://[USER@]HOST[:PORT].")  # fmt: skip
@click.option("--batch", type=Count(min=1), multiple=True, default=(1,), show_default=True,
              help="Give each call this many samples; repeat the option for several.")  # fmt: skip
@click.option("--threads", type=Count(min=1), default=1, show_default=True,
              help="Compute each call with this many threads.")  # fmt: skip
@click.option("--python", metavar="PROGRAM", default="python3", show_default=True,
              help="Use this Python of the other machine; it needs numpy and onnxruntime.")  # fmt: skip
@json_option
@example("workbench place profile best --to pi.json --device ssh://pi@board.local --batch 1 --batch 16")
def profile(
    bundle: Path, to: Path, device: str, batch: tuple[int, ...], threads: int, python: str, as_json: bool
) -> None:
    """Measure the stages of a model where they will run.

    BUNDLE is a folder with a model that has early exits, exported with --format onnx.
    """
    from workbench.cli.output import make_table
    from workbench.deploy.placement.profile import profile_stages
    from workbench.errors import ArgumentError

    found = profile_stages(bundle, device, batches=tuple(sorted(set(batch))), threads=threads, python=python)
    try:
        found.write(to)
    except OSError as error:
        raise ArgumentError(f"cannot write {to}: {error.strerror}", field="--to") from error
    if as_json:
        print_json({"profile": str(to), **found.model_dump()})
        return
    table = make_table("stage", "batch", "mean ms", "p50 ms", "p95 ms")
    for each in found.timings:
        table.add_row(
            each.file,
            str(each.batch),
            *(f"{value * 1e3:.3f}" for value in (each.mean_s, each.p50_s, each.p95_s)),
        )
    make_console().print(table)
    echo(f"wrote {to}")


@click.command()
@_FILE
@json_option
@example("workbench place plan docs/guides/tiers.yaml")
def plan(file: Path, as_json: bool) -> None:
    """Predict latency, accuracy, bytes and load of each scheduler.

    Closed forms are applied to measured times. The interval is that of p95, at 95 %.
    """
    from workbench.deploy.placement.scheduler_plans import expected_plans

    tiers, system, spread = _read(file)
    _show(tiers, system, expected_plans(system, spread), as_json=as_json)


@click.command()
@_FILE
@click.option("--requests", type=Count(min=100), default=600_000, show_default=True,
              help="Play this many requests.")  # fmt: skip
@click.option("--seed", type=int, default=0, show_default=True)
@json_option
@example("workbench place simulate docs/guides/tiers.yaml --requests 100000")
def simulate(file: Path, requests: int, seed: int, as_json: bool) -> None:
    """Play many requests on all devices and servers under each scheduler.

    The first tenth of the requests is not counted, since the queues begin empty.
    """
    from workbench.deploy.placement.scheduler_plans import played_plans

    tiers, system, _ = _read(file)
    _show(tiers, system, played_plans(system, requests, seed=seed), as_json=as_json)


def _read(file: Path) -> tuple[TiersFile, System, float]:
    from workbench.deploy.placement.assembly import assemble
    from workbench.deploy.placement.tiers_file import read_tiers

    tiers = read_tiers(file)
    if tiers.privacy.report_leak:
        print_note("privacy.report_leak: what can be recovered from features is not part of this prediction")
    return tiers, *assemble(tiers, file.parent)


def _show(tiers: TiersFile, system: System, plans: list[Plan], *, as_json: bool) -> None:
    from workbench.cli.output import make_table
    from workbench.deploy.placement.scheduler_plans import recommend, verdict

    chosen = recommend(plans, tiers.place.objective)
    if as_json:
        document: dict[str, Any] = {"plans": [each.to_json() for each in plans]}
        print_json({**document, "recommended": None if chosen is None else chosen.scheduler})
        return
    table = make_table("scheduler", "accuracy", "p50", "p95", "95 %", "bytes", "energy", *(
        f"load {name}" for name in system.names
    ))  # fmt: skip
    for each in plans:
        joules = each.outcome.joules_per_sample
        energy = f"{format_number(joules * 1e3)} mJ" if joules else ""
        table.add_row(
            each.scheduler, f"{each.outcome.accuracy:.4f}", format_duration(each.p50_s),
            format_duration(each.p95_s), format_range(each.low, each.high, format_duration),
            format_bytes(each.outcome.bytes_per_sample), energy,
            *(format_percent(each.outcome.load[name]) for name in system.names),
        )  # fmt: skip
    make_console().print(table)
    echo()
    for line in verdict(system, plans, chosen):
        echo(line)
