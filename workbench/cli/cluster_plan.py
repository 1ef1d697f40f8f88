"""`cluster plan` and `cluster clouds`: compare machines for a run, and their providers."""

from __future__ import annotations

import datetime
import functools
import statistics
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from workbench.cli.declarations import takes
from workbench.cli.options import example, open_existing_store
from workbench.cli.output import make_console, print_json, print_note
from workbench.cli.parameters import (
    ALL,
    CATALOGUE,
    CHART,
    EXPERIMENT,
    JSON,
    MAX_NODES,
    MONEY,
    PROVIDER,
    SETTINGS,
    START_UP,
    STORED,
    TIME,
)
from workbench.foundation.errors import ArgumentError
from workbench.foundation.formatting import duration_argument_s

if TYPE_CHECKING:
    from workbench.advisor.stored_advice import Estimate
    from workbench.runs.provisioning.catalogue import Catalogue, Criterion, CriterionName
    from workbench.runs.provisioning.offers import Offer

MAX_LINES = 12
_WIDEST_RANGE = 12
_WIDE_ENOUGH = 106
"""The plans of trials are shown from this number of terminal columns."""


@click.command()
@takes(
    EXPERIMENT,
    TIME,
    MONEY,
    MAX_NODES(default=8),
    START_UP(default="5m"),
    CATALOGUE,
    PROVIDER(is_repeatable=True),
    ALL,
    SETTINGS(is_repeatable=True),
    CHART,
    STORED,
)
@example(
    "workbench cluster plan mine.yaml --time 6h --money 40USD",
    "workbench cluster plan mine.yaml --provider gcp --chart offers.html",
    "workbench cluster plan mine.yaml --catalogue ours.yaml --json",
)
def plan(
    *,
    file: str,
    time: str | None,
    money: str | None,
    max_nodes: int,
    start_up: float,
    catalogue: Path | None,
    providers: tuple[str, ...],
    show_all: bool,
    settings: dict[str, Any] | None,
    chart: Path | None,
    as_json: bool,
) -> None:
    """Compare machines to rent for an experiment file: time, cost and risk, the best first.

    Predictions use what `workbench advise FILE` or a sweep has measured. Lines for another device,
    or for more workers than were measured, are marked. Nothing is rented.

    --time and --money are limits for the run. A catalogue is a YAML file with devices,
    interruptions and machines, each number with its source and date.
    """
    from workbench.runs import read_experiment
    from workbench.runs.provisioning.catalogue import SHIPPED, read_catalogue
    from workbench.runs.provisioning.evidence import evidence_of
    from workbench.runs.provisioning.fastest_plans import FastestPlans
    from workbench.runs.provisioning.offers import Requirements, compare
    from workbench.runs.provisioning.recommendation import sentences

    experiment = read_experiment(file, settings or {})
    known = read_catalogue(catalogue)
    if providers:
        known = _select(known, providers)
    budget_usd = read_dollars(money)
    deadline_s = None
    if time is not None:
        deadline_s = duration_argument_s(time, field="--time")
    requirements = Requirements(deadline_s, budget_usd, max_nodes, start_up)
    with open_existing_store() as store:
        evidence = evidence_of(store, experiment, file=file)

    plans = FastestPlans(experiment)
    compare_for = functools.partial(compare, experiment, evidence, known, plans=plans)
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
    if chart is not None:
        _draw(chart, rows, requirements.deadline_s, budget_usd)
    if as_json:
        measured = [
            {"run_id": measured_run.run_id, "device": measured_run.device}
            for measured_run in evidence
        ]
        print_json(
            {
                "catalogue": str(catalogue or SHIPPED.name),
                "measured_runs": measured,
                "offers": rows,
                "message": " ".join(summary),
            }
        )
        return
    shown = offers
    if not show_all:
        shown = offers[:MAX_LINES]
    _show(shown)
    if len(shown) < len(offers):
        click.echo(f"{len(offers) - len(shown)} more lines are hidden. To see them: --all")
    click.echo()
    for measured_run in evidence:
        click.echo(f"measured on {measured_run.device}, last in run {measured_run.run_id}")
    console = make_console()
    for line in summary:
        console.print(line, markup=False)
    if chart is not None:
        click.echo(f"chart  {chart.absolute()}")


@click.command("clouds")
@takes(CATALOGUE, JSON)
@example("workbench cluster clouds", "workbench cluster clouds --catalogue mine.yaml")
def clouds(*, catalogue: Path | None, as_json: bool) -> None:
    """Compare providers by price, performance, stability, maturity and flexibility.

    Place 1 is the best. Each place comes from the newest entry of the catalogue, whose year you see
    next to it. Without a source, the place is unknown, and the mean does not count it.
    """
    from workbench.runs.provisioning.catalogue import CRITERIA, SHIPPED, read_catalogue

    known = read_catalogue(catalogue)
    criteria, rents = known.newest_criteria(), known.rent_per_teraflops()
    providers = dict.fromkeys(machine.provider for machine in known.machines)
    rows: list[dict[str, Any]] = []
    for provider in providers:
        places = {
            name: criteria[name].place(provider) if name in criteria else None for name in CRITERIA
        }
        given = [place for place in places.values() if place is not None]
        rows.append(
            {
                "name": provider,
                "places": places,
                "mean_place": statistics.fmean(given) if given else None,
                "usd_per_100_teraflops_hour": rents[provider][0] if provider in rents else None,
            }
        )
    rows.sort(key=lambda row: (row["mean_place"] is None, row["mean_place"] or 0.0))
    sources = {name: entry.source.model_dump(mode="json") for name, entry in criteria.items()}
    if as_json:
        print_json(
            {"catalogue": str(catalogue or SHIPPED.name), "clouds": rows, "sources": sources}
        )
        return
    _show_clouds(rows, criteria, rents)


def _show_clouds(
    rows: list[dict[str, Any]],
    criteria: Mapping[CriterionName, Criterion],
    rents: Mapping[str, tuple[float, datetime.date]],
) -> None:
    from workbench.cli.output import make_table
    from workbench.foundation.formatting import format_number
    from workbench.runs.provisioning.catalogue import CRITERIA

    table = make_table("", *CRITERIA, "mean", "100 TFLOPS for 1 h")
    table.padding = (0, 1, 0, 0)
    for row in rows:
        cells = [
            "unknown"
            if place is None
            else f"{format_number(place)} ({criteria[name].source.date.year})"
            for name, place in row["places"].items()
        ]
        mean, rent = row["mean_place"], rents.get(row["name"])
        table.add_row(
            row["name"],
            *cells,
            "unknown" if mean is None else format_number(round(mean, 2)),
            "unknown" if rent is None else f"${rent[0]:.2f} ({rent[1]})",
        )
    make_console().print(table)
    click.echo()
    origins = {entry.source.origin: None for entry in criteria.values()}
    for origin in origins:
        names = [name for name, entry in criteria.items() if entry.source.origin == origin]
        click.echo(f"{', '.join(names)}: {origin}")
    click.echo("The last column is the median of machines with GPUs whose price has a source.")
    print_note(
        "to add a newer ranking, copy the catalogue, add it to criteria, and use --catalogue"
    )


def _select(catalogue: Catalogue, providers: tuple[str, ...]) -> Catalogue:
    """Return the machines of some providers."""
    machines = tuple(machine for machine in catalogue.machines if machine.provider in providers)
    if not machines:
        names = dict.fromkeys(machine.provider for machine in catalogue.machines)
        raise ArgumentError(
            f"the catalogue has no machine of {', '.join(providers)}",
            field="--provider",
            allowed=list(names),
        )
    return catalogue.model_copy(update={"machines": machines})


def read_dollars(money: str | None) -> float | None:
    """Return an amount of money in US dollars, in which the catalogue has its prices."""
    from workbench.experiment.budget_units import parse_money
    from workbench.foundation.errors import ExperimentError

    try:
        amount = parse_money(money, "1 USD/h")
    except ExperimentError as error:
        raise error.about("--money") from error
    if amount is not None and amount <= 0:
        raise ArgumentError("a run is never free", field="--money", allowed="more than 0 USD")
    return amount


def _draw(
    target: Path, rows: list[dict[str, Any]], deadline_s: float | None, budget_usd: float | None
) -> None:
    from workbench.runs.plots.figures_offers import write_offers

    try:
        write_offers(target, rows, deadline_s=deadline_s, budget_usd=budget_usd)
    except OSError as error:
        raise ArgumentError(f"cannot write {target}: {error.strerror}", field="--chart") from error


def _show(offers: list[Offer]) -> None:
    from workbench.cli.output import make_table
    from workbench.foundation.formatting import format_duration, format_money

    console = make_console()
    wide = console.width >= _WIDE_ENOUGH
    table = make_table("", "machines [notes]".replace("[", "\\["), "run", "cost", "risk")
    if wide:
        table.add_column("trials as")
    table.padding = (0, 1, 0, 0)
    notes: dict[str, int] = {}
    for offer in offers:
        numbers = ",".join(str(notes.setdefault(note, len(notes) + 1)) for note in offer.notes)
        cells = [
            f"{_mark(offer)}\n{_basis(offer)}",
            f"{offer.machine}\n{offer.nodes} of {offer.provider}, {offer.market} \\[{numbers}]",
            _estimate(offer.run_s, format_duration),
            _estimate(offer.cost_usd, format_money),
            _risk(offer),
            f"{offer.plan or ''}\n{offer.at_once or 'none'} at once",
        ]
        table.add_row(*cells[: len(table.columns)])
    console.print(table)
    for note, number in notes.items():
        print_note(f"[{number}] {note}")


def _basis(offer: Offer) -> str:
    if offer.measured:
        return "measured"
    if offer.step_s:
        return "extrapolated"
    return ""


def _mark(offer: Offer) -> str:
    if offer.fits is False:
        return "no room"
    if offer.is_vague:
        return "measure it"
    if offer.run_s is None:
        return "no time"
    is_late, is_costly = offer.in_time == "no", offer.in_budget == "no"
    if offer.usd_per_hour is None and not is_late:
        return "no price"
    if is_late and is_costly:
        return "late, costly"
    if is_late:
        return "late"
    if is_costly:
        return "costly"
    if "perhaps" in (offer.in_time, offer.in_budget):
        return "perhaps"
    return "fits"


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

    stops = _format_stops(offer.interruptions.value)
    return f"{stops} stops\n{format_percent(offer.lost.value)} lost"


def _format_stops(stops: float) -> str:
    if stops >= 10:
        return f"{stops:,.0f}"
    if stops >= 0.1:
        return f"{stops:.1f}"
    return "<0.1"
