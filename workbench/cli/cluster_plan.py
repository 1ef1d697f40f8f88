"""`cluster plan`: the machines of a catalogue compared for a run, in time, money and risk."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from workbench.cli.options import (
    FiniteRange,
    example,
    json_option,
    open_store,
    read_seconds,
    read_settings,
    store_option,
)
from workbench.cli.printing import make_console, print_json, print_note
from workbench.errors import ExperimentError

if TYPE_CHECKING:
    from workbench.renting.offers import Offer, Wishes

MOST_LINES = 12
_WIDE_ENOUGH = 106
"""Columns of a terminal from which on the plans of trials are shown, too."""


@click.command()
@click.argument("file")
@click.option("--deadline", metavar="DURATION", help="When the run should have ended, such as 6h.")
@click.option("--budget", "budget_usd", type=FiniteRange(min=0, min_open=True), metavar="USD",
              help="What the run may cost.")  # fmt: skip
@click.option("--max-nodes", "most_nodes", type=click.IntRange(1, 1024), default=8, show_default=True,
              help="Machines of one type, at most.")  # fmt: skip
@click.option("--start-up", default="5m", show_default=True, metavar="DURATION",
              help="Until a machine that was asked for trains; an assumption.")  # fmt: skip
@click.option("--catalogue", type=click.Path(path_type=Path), metavar="FILE",
              help="A catalogue of your own; the shipped one is its form.")  # fmt: skip
@click.option("--provider", "providers", multiple=True, help="Only this one; may be given again.")
@click.option("--all", "everything", is_flag=True, help=f"Show more than the best {MOST_LINES} lines.")
@click.option("--set", "assignments", multiple=True, metavar="NAME=VALUE",
              help="Change a setting of the experiment by its dotted path; the value is YAML.")  # fmt: skip
@click.option("--to", "target", type=click.Path(path_type=Path), metavar="FILE",
              help="Write the comparison as a picture (HTML), too.")  # fmt: skip
@store_option
@json_option
@example(
    "workbench cluster plan mine.yaml --deadline 6h --budget 40",
    "workbench cluster plan mine.yaml --provider gcp --to offers.html",
    "workbench cluster plan mine.yaml --catalogue ours.yaml --json",
)
def plan(
    file: str, deadline: str | None, budget_usd: float | None, most_nodes: int, start_up: str,
    catalogue: Path | None, providers: tuple[str, ...], everything: bool, assignments: tuple[str, ...],
    target: Path | None, as_json: bool,
) -> None:  # fmt: skip
    """Compare machines to rent for an experiment file: time, cost and risk, the best first.

    What `workbench advise FILE`, or a sweep, measured is carried over; lines that rest on another device, or
    on more workers than were measured, say so. Nothing is rented. A catalogue is YAML: devices,
    interruptions and machines, each number with its source and date.
    """
    from workbench.renting.catalogue import SHIPPED, read_catalogue
    from workbench.renting.evidence import evidence_of
    from workbench.renting.offers import Wishes, compare
    from workbench.renting.verdict import sentences
    from workbench.run import read_experiment

    experiment = read_experiment(file, read_settings(assignments))
    known = read_catalogue(catalogue)
    if providers:
        machines = tuple(each for each in known.machines if each.provider in providers)
        if not machines:
            names = dict.fromkeys(each.provider for each in known.machines)
            raise ExperimentError(
                f"no machine of {', '.join(providers)}", field="--provider", allowed=list(names)
            )
        known = known.model_copy(update={"machines": machines})
    wishes = Wishes(
        None if deadline is None else read_seconds("--deadline", deadline), budget_usd, most_nodes,
        read_seconds("--start-up", start_up, may_be_zero=True),
    )  # fmt: skip
    with open_store() as store:
        evidence = evidence_of(store, experiment)

    def ask(wishes: Wishes) -> list[Offer]:
        return compare(experiment, evidence, known, wishes)

    offers = ask(wishes)
    said = list(sentences(offers, wishes, ask=ask, catalogue=str(catalogue or SHIPPED)))
    rows = [offer.to_json() for offer in offers]
    if target is not None:
        _draw(target, rows, wishes.deadline_s, budget_usd)
    if as_json:
        measured = [{"run_id": each.run_id, "device": each.device} for each in evidence]
        print_json({
            "catalogue": str(catalogue or SHIPPED.name), "measured": measured, "offers": rows, "words": said,
        })  # fmt: skip
        return
    _show(offers if everything else offers[:MOST_LINES])
    if not everything and len(offers) > MOST_LINES:
        click.echo(f"{len(offers) - MOST_LINES} more lines come after these: --all shows them")
    click.echo()
    for each in evidence:
        click.echo(f"measured on {each.device}, last in run {each.run_id}")
    console = make_console()
    for line in said:
        console.print(line, markup=False)
    if target is not None:
        click.echo(f"picture  {target.absolute()}")


def _draw(
    target: Path, rows: list[dict[str, Any]], deadline_s: float | None, budget_usd: float | None
) -> None:
    from workbench.plots.figures_offers import write_offers

    try:
        write_offers(target, rows, deadline_s=deadline_s, budget_usd=budget_usd)
    except OSError as error:
        raise ExperimentError(f"cannot write {target}: {error.strerror}", field="--to") from error


def _show(offers: list[Offer]) -> None:
    from workbench.cli.reading import make_table
    from workbench.renting.verdict import format_money, format_range, format_time

    console = make_console()
    wide = console.width >= _WIDE_ENOUGH
    table = make_table(
        "", "machines [notes]".replace("[", "\\["), "run", "cost", "risk", *(["trials as"] if wide else [])
    )
    table.padding = (0, 1, 0, 0)
    notes: dict[str, int] = {}
    for offer in offers:
        numbers = ",".join(str(notes.setdefault(note, len(notes) + 1)) for note in offer.notes)
        run, cost = offer.run_s, offer.cost_usd
        table.add_row(
            f"{_mark(offer)}\n{'measured' if offer.measured else 'extrapolated' if offer.step_s else ''}",
            f"{offer.machine}\n{offer.nodes} of {offer.provider}, {offer.market} \\[{numbers}]",
            "?" if run is None else f"{format_time(run.value)}\n{format_range(run, format_time)}",
            "?" if cost is None else f"{format_money(cost.value)}\n{format_range(cost, format_money)}",
            _risk(offer),
            *([f"{offer.plan or ''}\n{offer.at_once or 'none'} at once"] if wide else []),
        )
    console.print(table)
    for note, number in notes.items():
        print_note(f"[{number}] {note}")


def _mark(offer: Offer) -> str:
    if offer.fits is False:
        return "no room"
    if offer.is_vague:
        return "measure it"
    if offer.run_s is None:
        return "no time"
    if offer.usd_per_hour is None:
        return "late" if offer.in_time == "no" else "no price"
    missed = [name for name, answer in (("late", offer.in_time), ("dear", offer.in_budget)) if answer == "no"]
    if not missed and "perhaps" in (offer.in_time, offer.in_budget):
        return "perhaps"
    return ", ".join(missed) or "fits"


def _risk(offer: Offer) -> str:
    if offer.market == "on demand":
        return "none"
    if offer.interruptions is None or offer.lost is None:
        return "not known"
    stops, lost = offer.interruptions.value, offer.lost.value
    number = f"{stops:,.0f}" if stops >= 10 else f"{stops:.1f}" if stops >= 0.1 else "<0.1"
    return f"{number} stops\n{'<0.1%' if 0 < lost < 0.001 else f'{lost:.1%}'} lost"
