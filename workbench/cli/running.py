"""Commands that start a run or stay with it: sweep, follow, resume, replay."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING

import click

from workbench.cli.elsewhere import anywhere
from workbench.cli.following import (
    detached,
    exit_code_of_run,
    follow_to_end,
    interrupted,
    print_end,
    waiting_for_the_driver,
)
from workbench.cli.options import (
    address_option,
    attach,
    detach_option,
    example,
    is_asked_from_elsewhere,
    json_option,
    launcher_option,
    open_store,
    read_settings,
    run_argument,
    store_option,
)
from workbench.cli.printing import print_json, print_note

if TYPE_CHECKING:
    from workbench.run import Run


def _takes_run_to_drive(command: Callable[..., int]) -> Callable[..., int]:
    """Let a command take a run, and what can be said about starting its driver."""
    options = (
        anywhere(attaches=True), run_argument, detach_option, launcher_option, store_option, json_option,
    )  # fmt: skip
    return functools.reduce(lambda wrapped, option: option(wrapped), reversed(options), command)


@click.command()
@click.argument("file")
@click.option("--set", "assignments", multiple=True, metavar="NAME=VALUE",
              help="Change a setting by its dotted path; the value is YAML.")  # fmt: skip
@click.option("--trials", type=int, help="Configurations to try: budget.trials.")
@click.option("--time", "time_limit", metavar="DURATION", help="Wall time, such as 10m: budget.time.")
@click.option("--max-retries", type=click.IntRange(min=0),
              help="Tries again after a worker was lost: resources.max_retries.")  # fmt: skip
@click.option("--name", help="What the run is called.")
@click.option("--run-id", help="The name of the run in the store. One that is there is gone on with, so that "
              "starting it twice is one run.")  # fmt: skip
@click.option(
    "--warm-start", multiple=True, metavar="RUN", help="Learn from an earlier run; several are allowed."
)
@detach_option
@launcher_option
@address_option
@store_option
@json_option
@example(
    "workbench sweep search_spaces/digits.yaml --trials 20 --time 10m",
    "workbench sweep digits.yaml --set training.epochs=5 --set search.lr=0.1",
    "workbench sweep digits.yaml --detach",
)
def sweep(
    file: str, assignments: tuple[str, ...], trials: int | None, time_limit: str | None,
    max_retries: int | None, name: str | None, run_id: str | None, warm_start: tuple[str, ...], detach: bool,
    launcher: str, address: str | None, as_json: bool,
) -> int:  # fmt: skip
    """Start a run of an experiment file and follow it."""
    from workbench import run as runs

    settings = read_settings(assignments)
    given = {"name": name, "budget.trials": trials, "budget.time": time_limit}
    given |= {"resources.max_retries": max_retries}
    settings |= {key: value for key, value in given.items() if value is not None}
    experiment = runs.read_experiment(file, settings)
    store = open_store()
    if run_id is not None and (found := runs.take_up(experiment, run_id, store=store)) is not None:
        if untaught := runs.missing_lessons(found, warm_start):
            print_note(
                f"run {run_id} was begun without --warm-start {' '.join(untaught)} and learns nothing "
                "from it; for a run that does, name another: --run-id NAME"
            )
        if found.state == "complete":
            if detach:
                return detached(found, as_json=as_json, how="already complete:")
            return _stay(found, as_json=as_json)
        return _go_on(found, detach=detach, launcher=launcher, address=address, as_json=as_json)
    earlier = [store.run(item).run_id for item in warm_start]
    run = runs.create(
        experiment, store=store, run_id=run_id, launcher=launcher, address=address, warm_start=earlier
    )
    try:
        with waiting_for_the_driver(run):
            runs.start(run, launcher=launcher, address=address, warm_start=earlier)
    except KeyboardInterrupt:
        return interrupted(run, launcher)
    if detach:
        return detached(run, as_json=as_json)
    return _stay(run, as_json=as_json, with_report=True)


@click.command()
@anywhere()
@run_argument
@store_option
@json_option
@example("workbench follow last")
def follow(run_id: str, as_json: bool) -> int:
    """Follow a run until it ends; Ctrl-C leaves it alive."""
    return _stay(attach(run_id), as_json=as_json)


@click.command()
@_takes_run_to_drive
@example("workbench resume last")
def resume(run_id: str, detach: bool, launcher: str, address: str | None, as_json: bool) -> int:
    """Go on with a run that was stopped, failed, or lost its driver, and follow it.

    A run that is alive is only followed.
    """
    return _go_on(attach(run_id), detach=detach, launcher=launcher, address=address, as_json=as_json)


def _go_on(run: Run, *, detach: bool, launcher: str, address: str | None, as_json: bool) -> int:
    """Give a run a driver, unless it has one, and follow it."""
    driver_after = None if run.is_under_way else run.row.last_seq
    try:
        with waiting_for_the_driver(run):
            run.resume(launcher=launcher, address=address)
    except KeyboardInterrupt:
        return interrupted(run, launcher)
    if detach:
        how = "already under way:" if driver_after is None else "resumed"
        return detached(run, as_json=as_json, how=how)
    return _stay(
        run, as_json=as_json, with_report=True, driver_after=driver_after,
        # Where the driver was about to die, somebody who wants the run to go on need not ask twice.
        when_lost=lambda: run.resume(launcher=launcher, address=address),
    )  # fmt: skip


@click.command()
@_takes_run_to_drive
@example("workbench replay last")
def replay(run_id: str, detach: bool, launcher: str, address: str | None, as_json: bool) -> int:
    """Try a run's configurations again, in their order, in a new run, and say what differs."""
    original = attach(run_id)
    with waiting_for_the_driver(original):
        run = original.replay(launcher=launcher, address=address)
    if detach:
        return detached(run, as_json=as_json)
    return _stay(run, as_json=as_json, with_report=True)


def _stay(
    run: Run, *, as_json: bool, with_report: bool = False, driver_after: int | None = None,
    when_lost: Callable[[], object] | None = None,
) -> int:  # fmt: skip
    """Follow a run to its end, say how it ended, and return the exit code for that."""
    from workbench.run.interruption import ended_like_interrupted

    try:
        with ended_like_interrupted():
            history, state = follow_to_end(run, as_json=as_json, driver_after=driver_after)
            if state == "lost" and when_lost is not None:
                driver_after = run.row.last_seq
                when_lost()
                history, state = follow_to_end(run, as_json=as_json, driver_after=driver_after)
    except KeyboardInterrupt:
        return interrupted(run)
    is_wanted = with_report and history.best() is not None and not is_asked_from_elsewhere()
    report = _write_report(run) if is_wanted else None
    if as_json:
        print_json(run.to_json() | {"report": report})
    else:
        print_end(run, history, state, report=report)
    return exit_code_of_run(history, state)


def _write_report(run: Run) -> str | None:
    """Write the report of a run that has ended; a full disk does not keep it from being told."""
    from workbench.errors import ArtifactsError, RunError

    try:
        return str(run.report())
    except (ArtifactsError, RunError) as error:
        print_note(f"no report: {error}")
        return None
