"""`advise`: measure for a while, then print the card."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from workbench.cli.declarations import takes
from workbench.cli.errors import INTERRUPTED
from workbench.cli.options import command_line, example, open_store
from workbench.cli.output import echo, print_json, print_note
from workbench.cli.parameters import (
    ADDRESS,
    EXPERIMENT,
    FRAMEWORKS,
    JSON,
    KERAS,
    MAX_SLOWDOWN,
    OBJECTIVE,
    SETTINGS,
    STORE,
    TIME,
    TO,
)
from workbench.foundation.errors import DataError
from workbench.runs.event_lines import advice_line

if TYPE_CHECKING:
    from workbench.experiment import Experiment
    from workbench.foundation.events import CandidateTried, Event


@click.command()
@takes(
    EXPERIMENT,
    OBJECTIVE(default="time"),
    TIME(default="1m"),
    MAX_SLOWDOWN,
    FRAMEWORKS,
    KERAS,
    SETTINGS(is_repeatable=True),
    TO,
    ADDRESS,
    STORE,
    JSON,
)
@example(
    "workbench advise search_spaces/digits.yaml",
    "workbench advise digits.yaml --objective throughput --time 5m --json",
    "workbench advise digits.yaml --to advised.yaml",
    "workbench advise digits.yaml --frameworks",
)
def advise(
    *,
    file: str,
    objective: str,
    time: str,
    max_slowdown: float | None,
    frameworks: bool,
    keras_builder: str | None,
    settings: dict[str, Any] | None,
    to: Path | None,
    address: str | None,
    as_json: bool,
) -> int:
    """Recommend a plan and a learning rate for an experiment file.

    You get values for everything that FILE searches or leaves as auto: batch size, workers,
    precision, strategy. Fixed values do not change. Measurements are stored, and later advice uses
    them again.

    Some plans are always measured, so this may take longer than --time.
    """
    from workbench import runs
    from workbench.advisor.advice_lines import lines_of
    from workbench.experiment.space import Fixed

    experiment = runs.read_experiment(file, settings or {})
    if keras_builder is not None and not frameworks:
        raise click.UsageError("--keras needs --frameworks")
    if frameworks:
        others = {
            "--objective": objective != "time",
            "--max-slowdown": max_slowdown is not None,
            "--to": to is not None,
            "--address": address is not None,
        }
        if given := [option for option, is_given in others.items() if is_given]:
            raise click.UsageError(f"you cannot combine --frameworks and {given[0]}")
        return _compare_frameworks(experiment, time, keras_builder, as_json=as_json)
    if to is not None:
        _check_new_file(to)
    try:
        advice = runs.advise(
            experiment,
            objective=objective,  # type: ignore[arg-type]
            time=time,
            store=open_store(),
            address=address,
            listener=MeasurementPrinter(),
            max_slowdown=max_slowdown,
        )
    except KeyboardInterrupt:
        print_note("stopped. The measurements are stored, and the next advise uses them")
        return INTERRUPTED
    if as_json:
        print_json(advice.to_json())
    else:
        echo("\n".join(lines_of(advice.to_json())))
    if to is not None:
        written = advice.apply(experiment)
        to.write_text(written.to_yaml(), encoding="utf-8")
        searched = [
            name for name, domain in written.search.root.items() if not isinstance(domain, Fixed)
        ]
        note = f"wrote {to}"
        if searched:
            note += f", which still searches {', '.join(searched)}"
        print_note(f"{note}. Start it with: {command_line('sweep', str(to))}")
    return 0


def _compare_frameworks(
    experiment: Experiment, time: str, keras_builder: str | None, *, as_json: bool
) -> int:
    from workbench.advisor.frameworks import compare_frameworks
    from workbench.foundation.formatting import duration_argument_s

    budget_s = duration_argument_s(time, field="--time")
    try:
        comparison = compare_frameworks(
            experiment, budget_s=budget_s, keras_builder=keras_builder, note=print_note
        )
    except KeyboardInterrupt:
        print_note("stopped")
        return INTERRUPTED
    if as_json:
        print_json(comparison.to_json())
    else:
        echo(str(comparison))
    return 0


def _check_new_file(to: Path) -> None:
    problem = None
    if to.exists():
        problem = f"{to} already exists"
    elif not to.absolute().parent.is_dir():
        problem = f"{to} is in a folder that does not exist"
    if problem is not None:
        raise DataError(problem, field="--to", allowed="a new file in a folder that exists")


class MeasurementPrinter:
    """Prints measurements and notes on stderr.

    A candidate is printed only if it is faster than all candidates before it.
    """

    def __init__(self) -> None:
        self._best_s: float | None = None

    def __call__(self, event: Event) -> None:
        """Print an event if it is a measurement or a note."""
        from workbench.foundation.events import CandidateTried

        if isinstance(event, CandidateTried) and not self._is_fastest(event):
            return
        if (line := advice_line(event)) is not None:
            print_note(line)

    def _is_fastest(self, event: CandidateTried) -> bool:
        if not event.reached_target or (
            self._best_s is not None and event.elapsed_s >= self._best_s
        ):
            return False
        self._best_s = event.elapsed_s
        return True
