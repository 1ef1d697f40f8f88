"""Commands that start a run or follow it: sweep, follow, resume, extend, replay, compress."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from workbench.cli.control import print_answer
from workbench.cli.declarations import takes
from workbench.cli.errors import exit_code_of_run
from workbench.cli.following import (
    announce,
    detached,
    follow_to_end,
    follow_while,
    interrupted,
    print_end,
    waiting_for_the_driver,
)
from workbench.cli.options import (
    attach,
    command_line,
    described,
    is_relayed,
    named_trial,
    open_store,
    write_for_shell,
)
from workbench.cli.output import print_json, print_note
from workbench.cli.parameters import ADDRESS, EXPERIMENT, LAUNCH, RUN, STORED, options_of
from workbench.cli.remote import remote_capable
from workbench.experiment.actions import ACTIONS, experiment_settings
from workbench.foundation.errors import StoreError
from workbench.foundation.events import FINISHED_RUN_STATES

if TYPE_CHECKING:
    from workbench.experiment import Experiment
    from workbench.runs import Run
    from workbench.store.database import Store


def _launches(command: Callable[..., int]) -> Callable[..., int]:
    """Let a command take a run, and options for starting its driver."""
    return remote_capable(attaches=True)(takes(RUN, LAUNCH)(command))


@click.command()
@takes(EXPERIMENT(is_required=False), options_of("sweep"), ADDRESS, LAUNCH)
@described(
    ACTIONS["sweep"],
    """Without FILE, the run repeats the experiment of the first --warm-start run and reads
    its data again.""",
)
def sweep(
    *,
    file: str | None,
    run_id: str | None,
    warm_start: tuple[str, ...],
    detach: bool,
    launcher: str,
    address: str | None,
    as_json: bool,
    **given: Any,
) -> int:
    """Start a run of an experiment file."""
    from workbench import runs

    settings, original_id = experiment_settings(ACTIONS["sweep"].arguments, given), None
    store = open_store()
    if file is None:
        experiment, original_id = runs.find_experiment(warm_start, settings, store=store)
        _enter(store, original_id)
    else:
        experiment = runs.read_experiment(file, settings)

    def same_run() -> Run | None:
        return runs.find_same_run(experiment, run_id, store=store) if run_id else None

    continue_same = functools.partial(
        _continue_same,
        warm_start=warm_start,
        detach=detach,
        launcher=launcher,
        address=address,
        as_json=as_json,
    )
    if (same := same_run()) is not None:
        return continue_same(same)
    earlier = _find_earlier(warm_start, experiment, store)
    try:
        run = runs.create(
            experiment,
            store=store,
            run_id=run_id,
            launcher=launcher,
            address=address,
            warm_start=earlier,
            like=original_id,
        )
    except StoreError:
        if (same := same_run()) is None:
            raise
        if same.state != "waiting":  # another process has just stored it, and drives it
            return continue_same(same)
        run = same
    if detach and address is None:  # the user should see a wrong address first
        announce(run)

    def drive() -> None:
        if not run.is_under_way:
            runs.start(run, launcher=launcher, address=address, warm_start=earlier)

    return _start_and_follow(
        run, drive, launcher, detach=detach, as_json=as_json, is_driven=run.is_under_way
    )


def _find_earlier(warm_start: tuple[str, ...], experiment: Experiment, store: Store) -> list[str]:
    """Return the runs that a new run learns from, and print which similar ones were found."""
    from workbench import runs

    earlier = runs.find_earlier_runs(warm_start, experiment, store=store)
    if runs.SIMILAR_RUNS in warm_start:
        note = "no similar run was found"
        if earlier:
            note = f"learning from {', '.join(earlier)}"
        print_note(note)
    return earlier


def _enter(store: Store, run_id: str) -> None:
    """Let this process find the files and modules of the process that started a run."""
    from workbench.cluster.remote.code_origin import UserCode
    from workbench.sweeps.code_versions import read_origin

    UserCode().enter(read_origin(store.artifacts_of(run_id)), run_id)


def _continue_same(run: Run, warm_start: tuple[str, ...], **options: Any) -> int:
    """Continue a run after a `sweep` with the same run id, or show it if it is complete."""
    from workbench.runs import missing_warm_starts

    if missing := missing_warm_starts(run, warm_start):
        print_note(
            f"run {run.run_id} was started without --warm-start {' '.join(missing)}, so it does not"
            " learn from it. To start a run that does, give another --run-id"
        )
    if run.state != "complete":
        return _continue(run, **options)
    if options["detach"]:
        return detached(run, as_json=options["as_json"], how="already complete:")
    return follow_run(run, as_json=options["as_json"])


@click.command()
@remote_capable()
@takes(RUN, STORED)
@described(ACTIONS["attach"], "Ctrl-C does not stop the run.")
def follow(run_id: str, as_json: bool) -> int:
    """Follow a run until it ends."""
    return follow_run(attach(run_id), as_json=as_json)


@click.command()
@_launches
@takes(options_of("resume"))
@described(
    ACTIONS["resume"],
    """If the run is under way, it is only followed. The run keeps its experiment and the
    code it was started with. With --code current, new trials run your current code. To
    correct the experiment, start a new run: `workbench sweep FILE`.""",
)
def resume(
    *,
    run_id: str,
    detach: bool,
    launcher: str,
    address: str | None,
    as_json: bool,
    code: str | None,
) -> int:
    """Continue a run that has ended early."""
    run = attach(run_id)
    return _continue(
        run, detach=detach, launcher=launcher, address=address, as_json=as_json, code=code
    )


@click.command()
@_launches
@takes(options_of("extend"))
@described(ACTIONS["extend"], "With --detach, or if the run is under way, it is not followed.")
def extend(
    run_id: str, detach: bool, launcher: str, address: str | None, as_json: bool, **given: Any
) -> int:
    """Give a run a larger budget."""
    run = attach(run_id)

    def carry_out() -> str | None:
        return run.act("extend", given, launcher=launcher, address=address)

    if not (detach or run.is_under_way):
        return _continue(
            run, carry_out, detach=False, launcher=launcher, address=address, as_json=as_json
        )
    print_answer(ACTIONS["extend"], run, carry_out(), given, as_json=as_json)
    if detach and not as_json:
        return detached(run, as_json=False, how="extended")
    if not as_json:
        click.echo(f"Follow it with: {command_line('attach', run.run_id)}", err=True)
    return 0


def _continue(
    run: Run,
    carry_out: Callable[[], object] | None = None,
    *,
    detach: bool,
    launcher: str,
    address: str | None,
    as_json: bool,
    code: str | None = None,
) -> int:
    """Start a driver for a run, unless it has one, and follow the run.

    Args:
        run: The run.
        carry_out: Starts the driver. By default the run is resumed.
        detach: As in `_start_and_follow`.
        launcher: Name of the launcher.
        address: The address of a cluster, or None for the local one.
        as_json: As in `follow_to_end`.
        code: Which code a resumed run uses, as in `resume`.
    """
    driver_after, how = None, "already under way:"
    if not run.is_under_way:
        driver_after, how = run.row.last_seq, "resumed"

    def drive() -> None:
        if carry_out is not None:
            carry_out()
        elif not run.is_under_way:
            run.drive_again(launcher=launcher, address=address, code=code)
        elif code is not None:
            run.use_code(code)

    def drive_again() -> None:
        from workbench.runs import start

        # Resuming would undo a stop that was requested in the meantime.
        if not run.is_under_way:
            start(run, launcher=launcher, address=address)

    return _start_and_follow(
        run,
        drive,
        launcher,
        detach=detach,
        as_json=as_json,
        is_driven=driver_after is None,
        how=how,
        driver_after=driver_after,
        # If the driver was about to end, the user need not repeat the command.
        when_lost=drive_again,
    )


@click.command()
@_launches
@described(ACTIONS["replay"])
def replay(run_id: str, detach: bool, launcher: str, address: str | None, as_json: bool) -> int:
    """Repeat a run's configurations."""
    from workbench import runs

    original = attach(run_id)
    run = original.create_replay()
    if detach and address is None:
        announce(run)

    def drive() -> None:
        runs.start(run, launcher=launcher, address=address, replay_of=original.run_id)

    return _start_and_follow(run, drive, launcher, detach=detach, as_json=as_json)


def _start_and_follow(
    run: Run,
    drive: Callable[[], None],
    launcher: str,
    *,
    detach: bool,
    as_json: bool,
    is_driven: bool = False,
    how: str = "started",
    driver_after: int | None = None,
    when_lost: Callable[[], object] | None = None,
) -> int:
    """Start the driver of a run and follow the run.

    Args:
        run: The run.
        drive: Starts the driver, or drives the run in this process.
        launcher: Name of the launcher.
        detach: Whether it is not followed.
        as_json: As in `follow_to_end`.
        is_driven: Whether it has a driver already.
        how: A word such as "started", for a run that is not followed.
        driver_after: As in `follow_to_end`.
        when_lost: As in `follow_run`.
    """
    if launcher == "inline" and not (is_driven or detach):
        return follow_run(run, as_json=as_json, with_report=True, drive=drive)
    try:
        with waiting_for_the_driver(run):
            drive()
    except KeyboardInterrupt:
        return interrupted(run, launcher)
    if detach:
        return detached(run, as_json=as_json, how=how)
    return follow_run(
        run, as_json=as_json, with_report=True, driver_after=driver_after, when_lost=when_lost
    )


def follow_run(
    run: Run,
    *,
    as_json: bool,
    with_report: bool = False,
    driver_after: int | None = None,
    when_lost: Callable[[], object] | None = None,
    drive: Callable[[], object] | None = None,
) -> int:
    """Follow a run to its end, print how it ended, and return the exit code.

    Args:
        run: The run.
        as_json: As in `follow_to_end`.
        with_report: Whether its report is written.
        driver_after: As in `follow_to_end`.
        when_lost: Starts another driver if the run is lost.
        drive: Drives the run in this process. None if another process drives it.
    """
    from workbench.runs.waiting import ended_like_interrupted

    had_ended = run.state in FINISHED_RUN_STATES
    try:
        with ended_like_interrupted():
            if drive is None:
                history, state = follow_to_end(run, as_json=as_json, driver_after=driver_after)
            else:
                history, state = follow_while(drive, run, as_json=as_json)
            if state == "lost" and when_lost is not None:
                driver_after = run.row.last_seq
                when_lost()
                history, state = follow_to_end(run, as_json=as_json, driver_after=driver_after)
    except KeyboardInterrupt:
        if drive is None:
            return interrupted(run, "ray")
        return interrupted(run, "inline")
    report = None
    if with_report and history.best() is not None and not is_relayed():
        report = _write_report(run)
    if as_json:
        print_json(run.to_json() | {"report": report})
    elif run.is_advice:
        from workbench.cli.show import print_run

        print_run(run, 0)  # advice ends with a recommendation and has no trials to count
    else:
        # Whoever has followed the run has seen why it ended.
        print_end(run, history, state, report=report, with_reason=had_ended or state == "failed")
    if run.is_advice and state == "complete":
        return 0
    return exit_code_of_run(history, state)


def _write_report(run: Run) -> str | None:
    """Write the report of a run. If that fails, print a note and return None."""
    from workbench.foundation.errors import ArtifactsError, RunError

    try:
        return str(run.report())
    except (ArtifactsError, RunError) as error:
        print_note(f"no report was written: {error.describe(write_for_shell)}")
        return None


@click.command()
@remote_capable(attaches=True)
@takes(RUN, options_of("compress"), LAUNCH)
@described(
    ACTIONS["compress"],
    """The first trials use no compression, dynamic int8 and static int8. The next ones search
    with pruning, low rank and fine-tuning. Latencies are relative to the unchanged model in
    ONNX Runtime, on this machine or on the one of --device. Workbench never recommends a
    model that is slower, or whose metric drops by more than 0.5 %.""",
)
def compress(
    run_id: str,
    detach: bool,
    launcher: str,
    address: str | None,
    as_json: bool,
    **given: Any,
) -> int:
    """Compress a trial."""
    run_id, given["trial"] = named_trial(run_id, given["trial"])
    original = attach(run_id)
    with waiting_for_the_driver(original):
        wanted = {name: value for name, value in given.items() if value is not None}
        run = original.compress(**wanted, launcher=launcher, address=address)
    if detach:
        return detached(run, as_json=as_json)
    return follow_run(run, as_json=as_json, with_report=True)
