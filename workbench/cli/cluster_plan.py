"""`cluster plan`: compares the machines of a catalogue for a run by time, cost and risk."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from workbench.cli.options import (
    PATH,
    Count,
    FiniteRange,
    example,
    json_option,
    open_existing_store,
    option,
    read_settings,
    store_option,
)
from workbench.cli.output import make_console, print_json, print_note
from workbench.foundation.errors import ArgumentError
from workbench.foundation.formatting import duration_argument_s

if TYPE_CHECKING:
    from workbench.advisor.stored_advice import Estimate
    from workbench.runs.provisioning.offers import Offer, Requirements

MAX_LINES = 12
_WIDEST_RANGE = 12
_WIDE_ENOUGH = 106
"""The plans of trials are shown from this number of terminal columns."""


@click.command()
@click.argument("file")
@option("--deadline", "Require the run to end within this time, such as 6h.", metavar="DURATION")
@option(
    "--budget budget_usd",
    "Require the run to cost at most this.",
    FiniteRange(min=0, min_open=True),
    metavar="USD",
)
@option(
    "--max-nodes max_nodes", "Use at most this many machines of a type.", Count(1, 1024), default=8
)
@option(
    "--start-up",
    "Assume that a requested machine starts training after this time.",
    default="5m",
    metavar="DURATION",
)
@option(
    "--catalogue",
    "Use a custom catalogue, in the format of the built-in one.",
    PATH,
    metavar="FILE",
)
@option(
    "--provider providers",
    "Consider only this provider; repeat the option for several.",
    multiple=True,
)
@option("--all everything", f"Show more than the best {MAX_LINES} lines.", is_flag=True)
@option(
    "--set assignments",
    "Change a setting of the experiment by its dotted path; the value is YAML.",
    multiple=True,
    metavar="NAME=VALUE",
)
@option("--to target", "Also write the comparison as an HTML chart.", PATH, metavar="FILE")
@store_option
@json_option
@example(
    "workbench cluster plan mine.yaml --deadline 6h --budget 40",
    "workbench cluster plan mine.yaml --provider gcp --to offers.html",
    "workbench cluster plan mine.yaml --catalogue ours.yaml --json",
)
def plan(
    *,
    file: str,
    deadline: str | None,
    budget_usd: float | None,
    max_nodes: int,
    start_up: str,
    catalogue: Path | None,
    providers: tuple[str, ...],
    everything: bool,
    assignments: tuple[str, ...],
    target: Path | None,
    as_json: bool,
) -> None:
    """Compare machines to rent for an experiment file: time, cost and risk, the best first.

    Predictions are based on what `workbench advise FILE` or a sweep measured; lines for another
    device, or for more workers than were measured, are marked. Nothing is rented. A catalogue is
    YAML: devices, interruptions and machines, each number with its source and date.
    """
    from workbench.runs import read_experiment
    from workbench.runs.provisioning.catalogue import SHIPPED, read_catalogue
    from workbench.runs.provisioning.evidence import evidence_of
    from workbench.runs.provisioning.fastest_plans import FastestPlans
    from workbench.runs.provisioning.offers import Requirements, compare
    from workbench.runs.provisioning.recommendation import sentences

    experiment = read_experiment(file, read_settings(assignments))
    known = read_catalogue(catalogue)
    if providers:
        machines = tuple(machine for machine in known.machines if machine.provider in providers)
        if not machines:
            names = dict.fromkeys(machine.provider for machine in known.machines)
            raise ArgumentError(
                f"the catalogue has no machine of {', '.join(providers)}",
                field="--provider",
                allowed=list(names),
            )
        known = known.model_copy(update={"machines": machines})
    requirements = Requirements(
        None if deadline is None else duration_argument_s(deadline, field="--deadline"),
        budget_usd,
        max_nodes,
        duration_argument_s(start_up, field="--start-up", may_be_zero=True),
    )
    with open_existing_store() as store:
        evidence = evidence_of(store, experiment, file=file)

    plans = FastestPlans(experiment)

    def compare_for(requirements: Requirements) -> list[Offer]:
        return compare(experiment, evidence, known, requirements, plans)

    offers = compare_for(requirements)
    summary = list(
        sentences(
            offers,
            requirements,
            compare=compare_for,
            catalogue=str(catalogue or SHIPPED),
            file=file,
        )
    )
    rows = [offer.to_json() for offer in offers]
    if target is not None:
        _draw(target, rows, requirements.deadline_s, budget_usd)
    if as_json:
        measured = [
            {"run_id": measured_run.run_id, "device": measured_run.device}
            for measured_run in evidence
        ]
        print_json(
            {
                "catalogue": str(catalogue or SHIPPED.name),
                "measured": measured,
                "offers": rows,
                "words": summary,
            }
        )
        return
    _show(offers if everything else offers[:MAX_LINES])
    if not everything and len(offers) > MAX_LINES:
        click.echo(f"{len(offers) - MAX_LINES} more lines are hidden: --all shows them")
    click.echo()
    for measured_run in evidence:
        click.echo(f"measured on {measured_run.device}, last in run {measured_run.run_id}")
    console = make_console()
    for line in summary:
        console.print(line, markup=False)
    if target is not None:
        click.echo(f"chart  {target.absolute()}")


def _draw(
    target: Path, rows: list[dict[str, Any]], deadline_s: float | None, budget_usd: float | None
) -> None:
    from workbench.runs.plots.figures_offers import write_offers

    try:
        write_offers(target, rows, deadline_s=deadline_s, budget_usd=budget_usd)
    except OSError as error:
        raise ArgumentError(f"cannot write {target}: {error.strerror}", field="--to") from error


def _show(offers: list[Offer]) -> None:
    from workbench.cli.output import make_table
    from workbench.foundation.formatting import format_duration, format_money

    console = make_console()
    wide = console.width >= _WIDE_ENOUGH
    table = make_table(
        "",
        "machines [notes]".replace("[", "\\["),
        "run",
        "cost",
        "risk",
        *(["trials as"] if wide else []),
    )
    table.padding = (0, 1, 0, 0)
    notes: dict[str, int] = {}
    for offer in offers:
        numbers = ",".join(str(notes.setdefault(note, len(notes) + 1)) for note in offer.notes)
        run, cost = offer.run_s, offer.cost_usd
        table.add_row(
            f"{_mark(offer)}\n{_basis(offer)}",
            f"{offer.machine}\n{offer.nodes} of {offer.provider}, {offer.market} \\[{numbers}]",
            _estimate(run, format_duration),
            _estimate(cost, format_money),
            _risk(offer),
            *([f"{offer.plan or ''}\n{offer.at_once or 'none'} at once"] if wide else []),
        )
    console.print(table)
    for note, number in notes.items():
        print_note(f"[{number}] {note}")


def _basis(offer: Offer) -> str:
    if offer.measured:
        return "measured"
    return "extrapolated" if offer.step_s else ""


def _mark(offer: Offer) -> str:
    if offer.fits is False:
        return "no room"
    if offer.is_vague:
        return "measure it"
    if offer.run_s is None:
        return "no time"
    if offer.usd_per_hour is None:
        return "late" if offer.in_time == "no" else "no price"
    missed = [
        name
        for name, answer in (("late", offer.in_time), ("dear", offer.in_budget))
        if answer == "no"
    ]
    if not missed and "perhaps" in (offer.in_time, offer.in_budget):
        return "perhaps"
    return ", ".join(missed) or "fits"


def _estimate(estimate: Estimate | None, write: Callable[[float], str]) -> str:
    from workbench.foundation.formatting import format_range

    if estimate is None:
        return "?"
    between = format_range(estimate.low, estimate.high, write)
    if len(between) > _WIDEST_RANGE:
        between = between.replace(" to ", " to\n")
    return f"{write(estimate.value)}\n{between}"


def _risk(offer: Offer) -> str:
    if offer.market == "on demand":
        return "none"
    if offer.interruptions is None or offer.lost is None:
        return "not known"
    from workbench.foundation.formatting import format_percent

    stops, lost = offer.interruptions.value, offer.lost.value
    number = f"{stops:.1f}" if stops >= 0.1 else "<0.1"
    if stops >= 10:
        number = f"{stops:,.0f}"
    return f"{number} stops\n{format_percent(lost)} lost"
