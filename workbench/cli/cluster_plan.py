"""`cluster plan`: the machines of a catalogue compared for a run, in time, money and risk."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from workbench.advisor.quantities import format_duration, format_short_time
from workbench.cli.options import example, json_option, open_store, read_settings, store_option
from workbench.cli.printing import make_console, print_json, print_note
from workbench.errors import ExperimentError

if TYPE_CHECKING:
    from workbench.advisor.advice import Estimate
    from workbench.renting.offers import Offer


@click.command()
@click.argument("file")
@click.option("--deadline", metavar="DURATION", help="When the run should have ended, such as 6h.")
@click.option("--budget", "budget_usd", type=click.FloatRange(min=0, min_open=True), metavar="USD",
              help="What the run may cost.")  # fmt: skip
@click.option("--max-nodes", "most_nodes", type=click.IntRange(1, 1024), default=8, show_default=True,
              help="Machines of one type, at most.")  # fmt: skip
@click.option("--start-up", default="5m", show_default=True, metavar="DURATION",
              help="Until a machine that was asked for trains; an assumption.")  # fmt: skip
@click.option("--catalogue", type=click.Path(path_type=Path), metavar="FILE",
              help="A catalogue of your own; the shipped one is its form.")  # fmt: skip
@click.option("--provider", "providers", multiple=True, help="Only this one; may be given again.")
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
    catalogue: Path | None, providers: tuple[str, ...], assignments: tuple[str, ...], target: Path | None,
    as_json: bool,
) -> None:  # fmt: skip
    """Compare machines to rent for an experiment file: time, cost and risk, the best first.

    What `workbench advise FILE`, or a sweep, measured is carried over; lines that rest on another device, or
    on more workers than were measured, say so. Nothing is rented. A catalogue is YAML: devices,
    interruptions and machines, each number with its source and date.
    """
    from workbench.renting.catalogue import SHIPPED, read_catalogue
    from workbench.renting.evidence import evidence_of
    from workbench.renting.offers import Wishes, compare, sentences
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
        _seconds("--deadline", deadline), budget_usd, most_nodes, _seconds("--start-up", start_up) or 0.0
    )
    with open_store() as store:
        evidence = evidence_of(store, experiment)
    offers = compare(experiment, evidence, known, wishes)
    said = list(sentences(offers, wishes))
    rows = [offer.to_json() for offer in offers]
    if target is not None:
        _draw(target, rows, wishes.deadline_s, budget_usd)
    if as_json:
        measured = [{"run_id": each.run_id, "device": each.device} for each in evidence]
        print_json({
            "catalogue": str(catalogue or SHIPPED.name), "measured": measured, "offers": rows, "words": said,
        })  # fmt: skip
        return
    _show(offers)
    click.echo()
    for each in evidence:
        click.echo(f"measured on {each.device}, last in run {each.run_id}")
    for line in said:
        click.echo(line)
    if target is not None:
        click.echo(f"picture  {target.absolute()}")


def _seconds(field: str, text: str | None) -> float | None:
    from workbench.experiment.sections import parse_duration_s

    try:
        return None if text is None else float(parse_duration_s(text))
    except ExperimentError as error:
        raise error.about(field) from None


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

    table = make_table("", "machines", "rented", "trials as", "step", "run", "cost", "risk", "rests on")
    notes: dict[str, int] = {}
    for offer in offers:
        numbers = [str(notes.setdefault(note, len(notes) + 1)) for note in offer.notes]
        table.add_row(
            _mark(offer),
            f"{offer.nodes} x {offer.machine} ({offer.provider}, {offer.region})",
            offer.market,
            "" if offer.plan is None else f"{offer.plan}, {offer.at_once} at once",
            _interval(offer.step_s, format_short_time),
            _interval(offer.run_s, format_duration),
            _interval(offer.cost_usd, lambda usd: f"${usd:,.2f}"),
            _risk(offer),
            f"{'measured' if offer.measured else 'EXTRAPOLATED' if offer.step_s else 'nothing'} "
            f"[{','.join(numbers)}]".replace("[", "\\["),
        )
    make_console().print(table)
    for note, number in notes.items():
        print_note(f"[{number}] {note}")


def _mark(offer: Offer) -> str:
    if offer.fits is False:
        return "does not fit"
    if offer.cost_usd is None or offer.is_vague:
        return "measure first" if offer.is_vague else "?"
    late, dear = offer.in_time == "no", offer.in_budget == "no"
    said = [name for name, holds in (("late", late), ("too dear", dear)) if holds]
    if not said and "perhaps" in (offer.in_time, offer.in_budget):
        return "perhaps"
    return ", ".join(said) or "fits"


def _interval(estimate: Estimate | None, write: Any) -> str:
    if estimate is None:
        return "?"
    return f"{write(estimate.value)} ({write(estimate.low)} to {write(estimate.high)})"


def _risk(offer: Offer) -> str:
    if offer.market == "on demand":
        return "none"
    if offer.interruptions is None or offer.lost is None:
        return "not known"
    return (
        f"{offer.interruptions.value:.2g} interruptions (up to {offer.interruptions.high:.2g}), "
        f"{offer.lost.value:.1%} of the time lost"
    )
