"""Show one trial of a run: what was tried, how it ended, and its whole traceback."""

from __future__ import annotations

from typing import TYPE_CHECKING

from workbench.cli.output import colour_of, echo, make_console, make_table, print_json
from workbench.foundation.errors import RunError
from workbench.foundation.formatting import format_number, format_value
from workbench.runs.descriptions import (
    attachment_file,
    describe_place,
    describe_reports,
    find_trial,
    first_line,
    first_traceback,
    log_file,
)
from workbench.store.history.failures import describe_state
from workbench.store.history.lineage import describe_segment
from workbench.store.history.programs import describe_program
from workbench.store.history.trial_columns import DURATION, ENERGY, SPEED, STEP, values_of_trial

if TYPE_CHECKING:
    from workbench.runs import Run
    from workbench.store.history import Trial


def show_trial(run: Run, number: int | None, *, only_traceback: bool, as_json: bool) -> None:
    """Print one trial.

    Args:
        run: The run.
        number: The trial; None for the first that failed with a traceback.
        only_traceback: Print nothing but the traceback.
        as_json: Print the trial as a JSON document, which contains the traceback.

    Raises:
        ArgumentError: If the run has no such trial.
        RunError: If the traceback is wanted and there is none.
    """
    trial = _choose(run, number)
    if as_json:
        print_json({"run_id": run.run_id, **trial.to_json()})
    elif not only_traceback:
        _print_trial(run, trial)
    elif trial.traceback:
        echo(trial.traceback.rstrip())
    else:
        why = f": {first_line(trial.message)}" if trial.message else ""
        raise RunError(f"trial {trial.number} is {trial.state} and has no traceback{why}")


def _choose(run: Run, number: int | None) -> Trial:
    history = run.history
    if number is None:
        found = first_traceback(history)
        if found is None:
            raise RunError(f"no trial of run {run.run_id} has failed with a traceback")
        return found
    return find_trial(run.run_id, history, number, field="--trial")


def _print_trial(run: Run, trial: Trial) -> None:
    from rich.text import Text

    console = make_console()
    run.history.energy_of_trials = run.energy.watt_hours
    state = describe_state(run.history, trial)
    console.print(
        Text.assemble(
            (f"trial {trial.number}", "bold"),
            f" of {run.run_id}  ",
            (state, colour_of(trial.state)),
        )
    )
    facts = make_table(show_header=False)
    for name, value in values_of_trial(run.history, trial).items():
        facts.add_row(name, Text(format_number(value), style="bold"))
    for name, param in trial.params.items():
        facts.add_row(name, Text(format_value(param)))
    if part := describe_segment(run.history, trial):
        facts.add_row("part", Text(part))
    if plan := trial.plan.describe(in_full=True):
        facts.add_row("plan", plan)
    for column in (STEP, DURATION, SPEED, ENERGY):
        if column.value(run.history, trial) is not None:
            facts.add_row(column.heading, column.text(run.history, trial))
    if program := describe_program(run.history, trial):
        facts.add_row("code", program)
    if thinned := describe_reports([trial]):
        facts.add_row("reports", thinned)
    facts.add_row("attempts", str(trial.attempts))
    for setback in trial.setbacks:
        facts.add_row(
            f"attempt {setback.attempt + 1}", Text(f"{setback.reason}: {setback.message}")
        )
    if trial.hosts:
        facts.add_row("hosts", ", ".join(dict.fromkeys(trial.hosts)))
    if (log := log_file(run.folder, trial.number)).exists():
        facts.add_row("log", Text(str(log)))
    for name, saved in {saved.name: saved for saved in trial.attachments}.items():
        others = sum(each.name == name for each in trial.attachments) - 1
        more = f" and {others} earlier" if others else ""
        path = run.folder / attachment_file(trial.number, saved.file)
        facts.add_row(saved.kind, Text(f"{name}, step {saved.step}{more}: {path}"))
    console.print(facts)
    if trial.message:
        console.print()
        console.print(
            Text(f"{trial.message}{describe_place(trial.failed_at)}", style=colour_of(trial.state))
        )
    if trial.traceback:
        console.print()
        console.print(Text(trial.traceback.rstrip()))
