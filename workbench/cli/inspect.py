"""Commands that only read: check and show."""

from __future__ import annotations

import importlib.util
import time
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from workbench.advisor.advice_lines import lines_of
from workbench.cli.action_options import action_options, experiment_options
from workbench.cli.automl_result import candidates_table, describe_candidates, result_lines
from workbench.cli.best_trials import print_best
from workbench.cli.exit_codes import exit_code_of
from workbench.cli.next_steps import next_commands
from workbench.cli.options import (
    Count,
    attach,
    command_line,
    described,
    example,
    json_option,
    read_settings,
    run_argument,
    store_option,
    write_for_shell,
)
from workbench.cli.output import (
    colour_of,
    describe_first_steps,
    describe_memory,
    make_console,
    make_table,
    print_error,
    print_json,
    waiting,
    without_backticks,
)
from workbench.cli.remote import remote_capable
from workbench.experiment.actions import ACTIONS, experiment_settings
from workbench.experiment.automl import is_automl
from workbench.experiment.changing import describe_changes
from workbench.experiment.energy_units import format_energy
from workbench.experiment.trial_value import describe_shown_values
from workbench.foundation.formatting import (
    format_age,
    format_count,
    format_duration,
    format_params,
)
from workbench.runs.descriptions import (
    describe_cost,
    describe_end,
    describe_reports,
    describe_search,
    failures_of,
    first_line,
    format_counts,
    format_numbers,
)
from workbench.runs.figures import importance_of
from workbench.runs.other_spaces import how_to_freeze, how_to_widen
from workbench.runs.progress import elapsed_s
from workbench.store.history import reasons_of_pruning
from workbench.store.history.compression import compressed, is_compression
from workbench.store.history.lineage import describe_continued
from workbench.store.history.privacy import describe_privacy
from workbench.store.history.programs import describe_programs
from workbench.store.history.trial_columns import NUMBER, STATE, columns_in_short, metric

_MAX_PRUNED = 5
_MANY_EVENTS = 20_000
"""From how many events on reading a run takes a moment."""
_MIN_TRIALS_TO_FREEZE = 20
"""With fewer, their importance is hardly known, and computing it would only delay the answer."""

if TYPE_CHECKING:
    from rich.table import Table

    from workbench.advisor.memory import MemoryForecast
    from workbench.data.table_summary import TableSummary
    from workbench.experiment import Experiment
    from workbench.runs import Run
    from workbench.store.history import History, Trial
    from workbench.training.probes.first_step import FirstStep


@click.command()
@click.argument("file", required=False)
@experiment_options
@click.option(
    "--schema", is_flag=True, help="Print the JSON schema of experiment files, for editors."
)
@click.option("--memory", is_flag=True, help="Estimate the memory of a trial, without running one.")
@click.option("--no-step", is_flag=True, help="Do not make the first step of a trial.")
@json_option
@example(
    "workbench check search_spaces/digits.yaml",
    "workbench check search_spaces/digits.yaml --memory",
    "workbench check search_spaces/digits.yaml --no-step",
    "workbench check --schema > experiment.schema.json",
)
def check(
    file: str | None, schema: bool, memory: bool, no_step: bool, as_json: bool, **given: Any
) -> int:
    """Check an experiment file, with the first step of some trials.

    The steps run your code in a child process, for 30 s at most: one optimizer step of a model, or
    a train function until it first reports. A sample of the search space is tried, then both of its
    ends.
    """
    if schema:
        from workbench.experiment import Experiment

        print_json(Experiment.model_json_schema())
        return 0
    if file is None:
        raise click.UsageError("Name an experiment file.")
    from workbench.foundation.errors import WorkbenchError
    from workbench.runs import read_experiment

    try:
        given["settings"] = read_settings(given["settings"])
        experiment = read_experiment(file, experiment_settings(ACTIONS["sweep"].arguments, given))
        from workbench.data import notes_of
        from workbench.hardware.resources import inventory
        from workbench.search import check as check_sampler
        from workbench.sweeps.preflight import check as check_before_start
        from workbench.sweeps.run_notes import notes_of_run

        check_before_start(experiment)
        check_sampler(experiment)
        table = _summarise_table(experiment)
        data_notes = () if experiment.data is None else notes_of(experiment.data)
        steps = [] if no_step else _try_first_steps(experiment)
        forecast = _forecast_memory(experiment) if memory else None
    except WorkbenchError as error:
        if not as_json:
            raise
        print_json({"ok": False, **error.to_json(write_for_shell)})
        print_error(error)
        return exit_code_of(error)
    notes = notes_of_run(experiment, len(inventory().gpus))
    notes += data_notes
    if as_json:
        document: dict[str, Any] = {
            "ok": True,
            "name": experiment.name,
            "experiment_hash": experiment.hash(),
            "notes": notes,
            "first_steps": [asdict(step) for step in steps],
        }
        document |= {} if table is None else {"table": table.to_json()}
        print_json(document if forecast is None else document | {"memory": forecast.to_json()})
        return 0
    click.echo(
        f"{file} is valid: {describe_search(experiment)}.\nStart it with:"
        f" {command_line('sweep', file)}"
    )
    for line in [*([] if table is None else table.lines()), *notes]:
        click.echo(without_backticks(line))
    for line in describe_first_steps(steps):
        click.echo(line)
    if forecast is not None:
        click.echo(describe_memory(forecast))
    return 0


def _summarise_table(experiment: Experiment) -> TableSummary | None:
    from workbench.data import summary_of

    return None if experiment.data is None else summary_of(experiment.data)


def _try_first_steps(experiment: Experiment) -> list[FirstStep]:
    if experiment.trains_model and importlib.util.find_spec("torch") is None:
        click.echo("torch is not installed here, so no first step was made", err=True)
        return []
    from workbench.training.probes.first_step import try_first_steps

    return try_first_steps(experiment)


def _forecast_memory(experiment: Experiment) -> MemoryForecast:
    from workbench.advisor.memory import forecast_memory

    return forecast_memory(experiment)


@click.command()
@remote_capable()
@run_argument
@click.option(
    "--trials",
    "num_trials",
    type=Count(min=0),
    default=20,
    show_default=True,
    help="Show this many trials, best first.",
)
@action_options("show")
@store_option
@json_option
@described(ACTIONS["show"])
def show(
    run_id: str, num_trials: int, trial: int | None, traceback: bool | None, as_json: bool
) -> None:
    """Show a run; the help is that of the action."""
    run = attach(run_id)
    if (num_events := run.row.last_seq) > _MANY_EVENTS:
        with waiting(f"reading {format_count(num_events, 'event')}"):
            _ = run.history  # kept for what follows
    if trial is not None or traceback:
        from workbench.cli.show_trial import show_trial

        show_trial(run, trial, only_traceback=bool(traceback), as_json=as_json)
    elif as_json:
        print_json(run.to_json())
    else:
        print_run(run, num_trials)


def print_run(run: Run, num_trials: int) -> None:
    """Print a run as text."""
    from rich.text import Text

    console, history, row = make_console(), run.history, run.row
    history.energy_of_trials = run.energy.watt_hours
    console.print(
        Text.assemble((row.name, "bold"), f"  {row.run_id}  ", (row.state, colour_of(row.state)))
    )
    for line in _facts(run, history):
        console.print(Text(line))
    if row.notes:
        console.print()
        console.print(Text(row.notes))
    if (advice := run.advice) is not None:
        console.print()
        for line in lines_of(advice):
            console.print(Text(line))
    is_from_automl = is_automl(history.experiment)
    for at, line in enumerate(result_lines(history)):
        console.print(Text(line if at else f"\n{line}", style="" if at else "bold"))
    if not is_from_automl:
        print_best(console, history)
    if history.trials and num_trials:
        if is_from_automl:
            (table, rest), noun = candidates_table(history, num_trials), "candidate"
        else:
            shown, noun = _ordered(history)[:num_trials], "trial"
            table, rest = trials_table(history, shown), len(history.trials) - len(shown)
        console.print()
        console.print(table)
        if rest:
            console.print(Text(f"  and {rest} more {noun}s", style="bright_black"))
    _print_verdicts(console, history)
    _print_setbacks(console, history)
    _print_failures(console, history)
    _print_pruned(console, run.run_id, history)
    _print_alerts(console, history)
    if run.is_advice:
        return
    console.print()
    for line in next_commands(run.run_id, row.state, history):
        console.print(Text(line, style="bright_black"))


def trials_table(history: History, trials: list[Trial]) -> Table:
    """Return a table of trials: state, objectives, course and configuration."""
    from rich.text import Text

    objectives = (metric(history, item.metric) for item in history.objectives)
    columns = [NUMBER, STATE, *objectives, *columns_in_short(history, trials)]
    table = make_table(*(column.heading for column in columns), "params")
    for trial in trials:
        cells = (
            Text(
                column.text(history, trial), style=colour_of(trial.state) if column is STATE else ""
            )
            for column in columns
        )
        table.add_row(*cells, Text(format_params(trial.params)))
    return table


def _facts(run: Run, history: History) -> list[str]:
    row = run.row
    counts = format_counts(history)
    if is_automl(history.experiment) and history.trials:
        counts = describe_candidates(history)
    content = "advice" if run.is_advice else counts or "no trials yet"
    began_unix_s = history.started_unix_s
    if began_unix_s is None:
        when = f"created {format_age(time.time() - row.created_unix_s)}"
    else:
        run_time = format_duration(elapsed_s(row, history))
        age_s = max(0.0, time.time() - history.clock_ahead_s - began_unix_s)
        when = f"started {format_age(age_s)}, run time {run_time}"
    lines = [f"{when}, {content}"]
    if row.state == "lost":
        again = (
            "a driver that was killed is replaced within seconds; a run that stays lost can be"
            " resumed"
        )
        if run.is_advice:
            again = "the next advice uses them"
        lines.append(f"its driver is gone; its results are stored: {again}")
    elif row.silent_s is not None:
        other = "what it has measured is stored, and the next advice uses it"
        if not run.is_advice:
            other = f"{command_line('resume', row.run_id)} gives the run another one"
        since = format_duration(int(row.silent_s))
        lines.append(f"no sign of its driver for {since}: it may be busy or stopped; {other}")
    elif history.reason or history.message:
        lines.append(f"{history.state}: {describe_end(history)}")
    lines += describe_programs(history)
    if continued := describe_continued(history):
        lines.append(continued)
    if (
        history.result is None
        and history.in_state("complete")
        and (why := history.why_no_best()) is not None
    ):
        lines.append(
            f"no best: {compressed(history).words if is_compression(history.experiment) else why}"
        )
    lines += [] if (reason := run.waits_for) is None else [f"waits for {reason}"]
    lines += [] if (now := run.preparation) is None else [f"before its first trial: {now}"]
    if row.owner is not None and row.state in ("running", "stopping", "waiting"):
        lines.append(f"driven by process {row.owner.pid} on {row.owner.host}")
    if history.trials and not is_automl(history.experiment):
        lines.append(f"value of a trial: {describe_shown_values(history.experiment)}")
    if thinned := describe_reports(history.trials.values()):
        lines.append(thinned)
    if row.tags:
        lines.append(f"tags: {', '.join(row.tags)}")
    changes = describe_changes(history.experiment, history.in_force)
    if changes and history.replay_of is None:
        lines.append(f"changed since it began: {', '.join(changes)}")
    if run.row.state == "running" and len(history.in_state("complete")) >= _MIN_TRIALS_TO_FREEZE:
        found = how_to_freeze(run.run_id, history, importance_of(run, run.events()))
        lines += [] if found is None else [write_for_shell(found)]
    if (wider := how_to_widen(run.run_id, history)) is not None:
        lines.append(write_for_shell(wider))
    per_gpu = history.in_force.resources.per_gpu
    if per_gpu != history.experiment.resources.per_gpu:
        lines.append(f"trials that share a GPU, as measured: {per_gpu}")
    if gpu_s := history.gpu_s(history.now_unix_s()):
        limit_s = history.in_force.budget.gpu_time
        of = "" if limit_s is None else f" of {format_duration(limit_s)}"
        lines.append(f"GPU time: {format_duration(round(gpu_s))}{of}")
    if (energy := run.energy.describe()) is not None:
        limit_wh = history.in_force.budget.energy
        lines.append(energy if limit_wh is None else f"{energy}, of {format_energy(limit_wh)}")
    lines += filter(None, (describe_cost(history), describe_privacy(history)))
    lines += replay_lines(run)
    return lines


def replay_lines(run: Run) -> list[str]:
    """Return how a replay differs from its original; nothing for any other run."""
    comparison = run.comparison
    if comparison is not None:
        return [str(comparison)]
    original = run.history.replay_of
    return [] if original is None else [f"replay of {original}, which is not in this store"]


def _ordered(history: History) -> list[Trial]:
    """Return the running trials, then the best, then the rest by number."""
    ranked = history.ranked()
    first = [*history.in_state("running"), *ranked]
    seen = {trial.number for trial in first}
    return [*first, *(trial for trial in history.trials.values() if trial.number not in seen)]


def _print_verdicts(console: Any, history: History) -> None:
    from rich.text import Text

    from workbench.store.history import verdicts_of

    found = verdicts_of(history)
    if found:
        console.print()
        console.print(Text("Where the time went", style="bold"))
    for verdict in found:
        console.print(Text(f"  {verdict.describe(write_for_shell)}"))


def _print_setbacks(console: Any, history: History) -> None:
    """Print what ended attempts of trials, but not the trials."""
    grouped: dict[str, list[int]] = {}
    for trial in history.trials.values():
        for setback in trial.setbacks:
            if setback.reason not in ("resized", "stopped"):
                grouped.setdefault(f"{setback.reason}: {first_line(setback.message)}", []).append(
                    trial.number
                )
        for resize in trial.resizes:
            grouped.setdefault(resize.describe(), []).append(trial.number)
    counted = {}
    for what, numbers in grouped.items():
        trials = list(dict.fromkeys(numbers))
        times = f" ({len(numbers)} times)" if len(numbers) > len(trials) else ""
        counted[what + times] = trials
    _print_grouped(console, "What interrupted trials", counted)


def _print_failures(console: Any, history: History) -> None:
    _print_grouped(console, "Why trials failed", failures_of(history), style="red")


def _print_pruned(console: Any, run_id: str, history: History) -> None:
    """Print why the latest trials were pruned: each has numbers of its own."""
    from rich.text import Text

    reasons = reasons_of_pruning(history)
    latest = dict(list(reasons.items())[-_MAX_PRUNED:])
    _print_grouped(
        console, "Why trials were pruned", {why: [number] for number, why in latest.items()}
    )
    if rest := len(reasons) - len(latest):
        console.print(
            Text(f"  and {rest} before: {command_line('show', run_id, trial=next(iter(reasons)))}")
        )


def _print_alerts(console: Any, history: History) -> None:
    from rich.text import Text

    if history.alerts:
        console.print()
        console.print(Text("Alerts", style="bold"))
    for alert in history.alerts.values():
        style = {"error": "red", "warning": "yellow"}.get(alert.raised.level, "")
        console.print(Text(f"  {alert.raised.alert}: {alert.describe()}", style=style))


def _print_grouped(
    console: Any, title: str, grouped: dict[str, list[int]], style: str = ""
) -> None:
    """Print what happened to which trials, grouped by what happened."""
    from rich.text import Text

    if grouped:
        console.print()
        console.print(Text(title, style="bold"))
    for what, numbers in grouped.items():
        console.print(Text(f"  {format_numbers(numbers)}: {what}", style=style))
