"""Commands that ask something of a run's driver: stop, enqueue, set, extend."""

from __future__ import annotations

from typing import Any

import click

from workbench.cli.elsewhere import anywhere
from workbench.cli.options import (
    attach,
    command_line,
    example,
    json_option,
    launcher_option,
    read_settings,
    run_argument,
    store_option,
)
from workbench.cli.printing import print_json
from workbench.run.words import format_params

_UNANSWERED = "asked; the driver has not answered yet and will when it can"


@click.command()
@anywhere()
@run_argument
@click.option("--trial", type=click.IntRange(min=0), help="Stop only this trial.")
@store_option
@json_option
@example(
    "workbench stop last",
    "workbench stop last --trial 7",
)
def stop(run_id: str, trial: int | None, as_json: bool) -> None:
    """Stop a run, or one of its trials; what was found is kept, and the run can be resumed."""
    run = attach(run_id)
    answer = run.stop(trial)
    if as_json:
        print_json({"run_id": run.run_id, "trial": trial, "answer": answer})
        return
    target = run.run_id if trial is None else f"trial {trial} of {run.run_id}"
    click.echo(f"stop {target}: {answer or _UNANSWERED}")


@click.command()
@anywhere()
@run_argument
@click.option("--set", "assignments", multiple=True, required=True, metavar="NAME=VALUE",
              help="The value of a searched parameter; once for each.")  # fmt: skip
@store_option
@json_option
@example("workbench enqueue last --set lr=0.1 --set width=32")
def enqueue(run_id: str, assignments: tuple[str, ...], as_json: bool) -> None:
    """Ask for a configuration of your own to be tried next."""
    run = attach(run_id)
    params = read_settings(assignments)
    answer = run.enqueue(params)
    if as_json:
        print_json({"run_id": run.run_id, "params": params, "answer": answer})
        return
    click.echo(f"enqueue {format_params(params)}: {answer or _UNANSWERED}")


@click.command("set")
@anywhere()
@run_argument
@click.option("--concurrency", metavar="N|auto", help="Trials at once; auto fills the hardware.")
@click.option("--trials", type=int, help="Configurations in all.")
@click.option("--time", "time_limit", metavar="DURATION", help="Time of the run in all, such as 1h.")
@click.option("--plateau", type=int, help="End after that many configurations without a better one.")
@store_option
@json_option
@example(
    "workbench set last --concurrency 4",
    "workbench set last --trials 100 --time 1h --plateau 20",
)
def set_limits(
    run_id: str, concurrency: str | None, trials: int | None, time_limit: str | None, plateau: int | None,
    as_json: bool,
) -> None:  # fmt: skip
    """Change the limits of a run while it goes on; one below what was done already ends it."""
    run = attach(run_id)
    at_once: Any = int(concurrency) if concurrency and concurrency.lstrip("-").isdigit() else concurrency
    answer = run.set(concurrency=at_once, trials=trials, time=time_limit, plateau=plateau)
    if as_json:
        print_json({"run_id": run.run_id, "settings": run.to_json()["settings"], "answer": answer})
        return
    click.echo(f"set {run.run_id}: {answer or _UNANSWERED}")


@click.command()
@anywhere(attaches=True)
@run_argument
@click.option("--trials", type=int, help="How many more configurations.")
@click.option("--time", "time_limit", metavar="DURATION", help="How much more time, such as 1h.")
@click.option("--plateau", type=int, help="How many more configurations without a better one.")
@click.option("--set", "assignments", multiple=True, metavar="NAME=VALUE",
              help="A configuration to try next, as in enqueue; alone it is one more.")  # fmt: skip
@launcher_option
@store_option
@json_option
@example(
    "workbench extend last --trials 50",
    "workbench extend last --trials 50 --time 1h",
)
def extend(
    run_id: str, trials: int | None, time_limit: str | None, plateau: int | None,
    assignments: tuple[str, ...], launcher: str, address: str | None, as_json: bool,
) -> None:  # fmt: skip
    """Let a run go on for longer: one under way, or one that has ended, which gets a new driver."""
    run = attach(run_id)
    answer = run.extend(
        trials=trials, time=time_limit, plateau=plateau, launcher=launcher, address=address,
        enqueue=read_settings(assignments) or None,
    )  # fmt: skip
    if as_json:
        print_json({"run_id": run.run_id, "settings": run.to_json()["settings"], "answer": answer})
        return
    click.echo(f"extend {run.run_id}: {answer or _UNANSWERED}")
    click.echo(f"Follow it with: {command_line('follow', run.run_id)}", err=True)
