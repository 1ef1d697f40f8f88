"""The command that shows a run, its best trial, or one of its trials."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import click

from workbench.advisor.advice_lines import lines_of
from workbench.cli.automl_result import candidates_table, describe_candidates, result_lines
from workbench.cli.declarations import takes
from workbench.cli.options import attach, command_line, described, next_commands, write_for_shell
from workbench.cli.output import (
    colour_of,
    echo,
    make_console,
    make_table,
    print_json,
    waiting,
)
from workbench.cli.parameters import LIMIT, RUN, STORED, options_of
from workbench.cli.remote import remote_capable
from workbench.experiment.actions import ACTIONS
from workbench.experiment.automl import is_automl
from workbench.experiment.budget_units import format_energy
from workbench.experiment.changes import describe_changes
from workbench.experiment.trial_value import describe_shown_values
from workbench.foundation.errors import RunError, RunNotFoundError
from workbench.foundation.events import TrialEnqueued
from workbench.foundation.formatting import (
    format_age,
    format_count,
    format_duration,
    format_number,
    format_params,
    format_value,
)
from workbench.runs.descriptions import (
    attachment_file,
    describe_cost,
    describe_end,
    describe_place,
    describe_reports,
    failures_of,
    find_trial,
    first_line,
    first_traceback,
    format_counts,
    format_numbers,
    log_file,
)
from workbench.runs.event_lines import describe_agents, describe_both_advices
from workbench.runs.progress import elapsed_s
from workbench.runs.run_figures import importance_of
from workbench.runs.space_suggestions import how_to_freeze, how_to_widen
from workbench.runs.summary import summarize
from workbench.store.history import reasons_of_pruning
from workbench.store.history.certainty import certainty_lines
from workbench.store.history.compression import compressed, is_compression
from workbench.store.history.failures import describe_state
from workbench.store.history.history import chosen_by_hand, describe_choice
from workbench.store.history.lineage import (
    describe_continued,
    describe_segment,
    describe_turn,
    describe_turns,
    lineage,
)
from workbench.store.history.privacy import describe_privacy
from workbench.store.history.programs import describe_program, describe_programs
from workbench.store.history.trial_columns import (
    DURATION,
    ENERGY,
    MEMORY,
    NUMBER,
    SPEED,
    STATE,
    STEP,
    TOKEN_SPEED,
    TOKENS,
    UTILISATION,
    columns_in_short,
    metric,
    values_of_trial,
)

if TYPE_CHECKING:
    from rich.table import Table
    from rich.text import Text

    from workbench.runs import Run
    from workbench.store.history import History, Trial

_MAX_PRUNED = 5
_MANY_EVENTS = 20_000
"""With this many events or more, reading a run takes a moment."""
_MIN_TRIALS_TO_FREEZE = 20
"""With fewer trials, importance is too uncertain to be worth the time to compute it."""


@click.command()
@remote_capable()
@takes(RUN, LIMIT(default=20), options_of("show"), STORED)
@described(ACTIONS["show"])
def show(run_id: str, limit: int, trial: int | None, traceback: bool | None, as_json: bool) -> None:
    """Show a run."""
    run = attach(run_id)
    if (num_events := run.row.last_seq) > _MANY_EVENTS:
        with waiting(f"reading {format_count(num_events, 'event')}"):
            _ = run.history  # read once, and used below
    if trial is not None or traceback:
        show_trial(run, trial, only_traceback=bool(traceback), as_json=as_json)
    elif as_json:
        print_json(run.to_json())
    else:
        print_run(run, limit)


def print_run(run: Run, num_trials: int) -> None:
    """Print a run as text."""
    from rich.text import Text

    console, history, row = make_console(), run.history, run.row
    history.energy_of_trials = run.energy.watt_hours
    _print_head(console, run)
    if result := result_lines(history):
        console.print()
        console.print(Text(result[0], style="bold"))
        for line in result[1:]:
            console.print(Text(line))
    if not is_automl(history.experiment):
        print_best(console, history)
    _print_summary(console, run)
    if history.trials and num_trials:
        _print_table(console, history, num_trials)
    _print_verdicts(console, history, run.run_id)
    _print_setbacks(console, history)
    _print_failures(console, history)
    _print_pruned(console, run.run_id, history)
    _print_alerts(console, history)
    if run.is_advice:
        return
    console.print()
    for line in next_commands(run.run_id, row.state, history):
        console.print(Text(line, style="bright_black"))


def _print_head(console: Any, run: Run) -> None:
    """Print what is known about a run, its notes and its advice, but not its trials."""
    from rich.text import Text

    row = run.row
    console.print(
        Text.assemble((row.name, "bold"), f"  {row.run_id}  ", (row.state, colour_of(row.state)))
    )
    for describe in _DESCRIBERS:
        for line in describe(run, run.history):
            console.print(Text(line))
    for line in replay_lines(run):
        console.print(Text(line))
    if row.notes:
        console.print(Text(f"\n{row.notes}"))
    if (advice := run.advice) is not None:
        console.print()
        if (why := _about_older_advice(run, advice)) is not None:
            console.print(Text(f"{why}\n"))
        for line in lines_of(advice):
            console.print(Text(line))


def _about_older_advice(run: Run, advice: dict[str, Any]) -> str | None:
    """Return why a sweep has its own advice, or None if it follows no older one."""
    followed = [
        stored.event
        for stored in run.store.events(run.run_id, types=["trial_enqueued"])
        if isinstance(stored.event, TrialEnqueued) and stored.event.advice_run_id
    ]
    if run.is_advice or not followed:
        return None
    from workbench.runs import Run

    older = None
    with contextlib.suppress(RunNotFoundError):  # it was deleted
        older = Run(run.store, str(followed[0].advice_run_id)).advice
    return describe_both_advices(followed[0], advice, older)


def _print_table(console: Any, history: History, most: int) -> None:
    """Print the best trials of a run, or the best candidates of AutoML."""
    from rich.text import Text

    if is_automl(history.experiment):
        table, num_hidden = candidates_table(history, most)
        noun = "candidate"
    else:
        trials = _ordered(history)[:most]
        table, num_hidden = trials_table(history, trials), len(history.trials) - len(trials)
        noun = "trial"
    console.print()
    console.print(table)
    if num_hidden:
        console.print(Text(f"  and {num_hidden} more {noun}s", style="bright_black"))


def trials_table(history: History, trials: list[Trial]) -> Table:
    """Return a table of trials: state, objectives, progress and configuration."""
    from rich.text import Text

    objectives = (metric(history, item.metric) for item in history.objectives)
    columns = [NUMBER, STATE, *objectives, *columns_in_short(history, trials)]
    table = make_table(*(column.heading for column in columns), "params")
    for trial in trials:
        cells = [Text(column.text(history, trial)) for column in columns]
        cells[columns.index(STATE)].style = colour_of(trial.state)
        table.add_row(*cells, Text(format_params(trial.params)))
    return table


def _describe_course(run: Run, history: History) -> Iterator[str]:
    """Yield when a run started, how many trials it has, and how it ended or why it is silent."""
    row = run.row
    content = format_counts(history) or "no trials yet"
    if run.is_advice:
        content = "advice"
    elif is_automl(history.experiment) and history.trials:
        content = describe_candidates(history)
    if history.started_unix_s is None:
        when = f"created {format_age(time.time() - row.created_unix_s)}"
    else:
        run_time = format_duration(elapsed_s(row, history))
        age_s = max(0.0, time.time() - history.clock_ahead_s - history.started_unix_s)
        when = f"started {format_age(age_s)}, run time {run_time}"
    yield f"{when}, {content}"
    if row.state == "lost":
        again = f"To continue it: {command_line('resume', row.run_id)}"
        if run.is_advice:
            again = "The next advice uses them."
        yield f"its driver is gone. The results are stored. {again}"
    elif row.silent_s is not None:
        other = "Its measurements are stored, and the next advice uses them."
        if not run.is_advice:
            other = f"To replace it: {command_line('resume', row.run_id)}"
        since = format_duration(int(row.silent_s))
        yield f"no heartbeat from its driver for {since}. It may be busy. {other}"
    elif history.reason or history.message:
        yield f"{history.state}: {describe_end(history)}"


def _describe_trials(run: Run, history: History) -> Iterator[str]:
    """Yield which code the trials ran, which continue others, and why there is no best."""
    yield from describe_programs(history)
    if history.experiment.search.code_versions:
        from workbench.runs.trial_decisions import decide_versions

        yield from (decision.describe() for decision in decide_versions(run))
    yield from describe_agents(run.store, run.run_id)
    yield from describe_turns(history)
    if continued := describe_continued(history):
        yield continued
    if history.result is not None or not history.in_state("complete"):
        return
    if (why := history.why_no_best()) is not None:
        if is_compression(history.experiment):
            why = compressed(history).words
        yield f"no best: {why}"


def _describe_driver(run: Run, _history: History) -> Iterator[str]:
    """Yield what a run waits for, and which process drives it."""
    if (reason := run.waits_for) is not None:
        yield f"waits for {reason}"
    if (preparation := run.preparation) is not None:
        yield f"preparing: {preparation}"
    row = run.row
    if row.owner is not None and row.has_dead_driver:
        again = command_line("resume", row.run_id)
        yield (
            f"its driver, process {row.owner.pid} on {row.owner.host}, has ended. If no other takes"
            f" over: {again}"
        )
    elif row.owner is not None and row.state in ("running", "stopping", "waiting"):
        yield f"driven by process {row.owner.pid} on {row.owner.host}"


def _describe_settings(run: Run, history: History) -> Iterator[str]:
    """Yield how trials are valued, the tags, and what was changed since the run started."""
    objectives = history.experiment.objectives
    if history.trials and any(item.value != "returned" for item in objectives):
        yield f"value of a trial: {describe_shown_values(history.experiment)}"
    if thinned := describe_reports(history.trials.values()):
        yield thinned
    if run.row.tags:
        yield f"tags: {', '.join(run.row.tags)}"
    changes = describe_changes(history.experiment, history.in_force)
    if changes and history.replay_of is None:
        yield f"changed since the start: {', '.join(changes)}"


def _describe_space(run: Run, history: History) -> Iterator[str]:
    """Yield the commands that would narrow or widen the search space."""
    num_complete = len(history.in_state("complete"))
    if run.row.state == "running" and num_complete >= _MIN_TRIALS_TO_FREEZE:
        freezing = how_to_freeze(run.run_id, history, importance_of(run.stored))
        if freezing is not None:
            yield write_for_shell(freezing)
    if (wider := how_to_widen(run.run_id, history)) is not None:
        yield write_for_shell(wider)


def _describe_use(run: Run, history: History) -> Iterator[str]:
    """Yield what a run has used: GPUs, energy, money, and the privacy of its samples."""
    budget, per_gpu = history.in_force.budget, history.in_force.resources.per_gpu
    if per_gpu != history.experiment.resources.per_gpu:
        yield f"trials that share a GPU, as measured: {per_gpu}"
    if gpu_s := history.gpu_s(history.now_unix_s()):
        used = f"GPU time: {format_duration(round(gpu_s))}"
        if budget.gpu_time is not None:
            used += f" of {format_duration(budget.gpu_time)}"
        yield used
    if (energy := run.energy.describe()) is not None:
        if budget.energy is not None:
            energy += f", of {format_energy(budget.energy)}"
        yield energy
    yield from filter(None, (describe_cost(history), describe_privacy(history)))


_DESCRIBERS: tuple[Callable[[Run, History], Iterator[str]], ...] = (
    _describe_course,
    _describe_trials,
    _describe_driver,
    _describe_settings,
    _describe_space,
    _describe_use,
)
"""The parts above the trials of a run, in order."""


def replay_lines(run: Run) -> list[str]:
    """Return how a replay differs from its original, or nothing for any other run."""
    comparison = run.comparison
    if comparison is not None:
        return [str(comparison)]
    original = run.history.replay_of
    if original is None:
        return []
    return [f"replay of {original}, which is not in this store"]


def _ordered(history: History) -> list[Trial]:
    """Return the running trials, then the best, then the rest by number."""
    ranked = history.ranked()
    first = [*history.in_state("running"), *ranked]
    seen = {trial.number for trial in first}
    return [*first, *(trial for trial in history.trials.values() if trial.number not in seen)]


def _print_verdicts(console: Any, history: History, run_id: str) -> None:
    from rich.text import Text

    from workbench.store.history import verdicts_of

    verdicts = verdicts_of(history, run_id)
    if verdicts:
        console.print()
        console.print(Text("Where the time went", style="bold"))
    for verdict in verdicts:
        console.print(Text(f"  {verdict.describe(write_for_shell)}"))


def _print_setbacks(console: Any, history: History) -> None:
    """Print what ended attempts of trials that were then tried again."""
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
    for event, numbers in grouped.items():
        trials = list(dict.fromkeys(numbers))
        if len(numbers) > len(trials):
            event += f" ({len(numbers)} times)"
        counted[event] = trials
    _print_grouped(console, "What interrupted trials", counted)


def _print_failures(console: Any, history: History) -> None:
    _print_grouped(console, "Why trials failed", failures_of(history), style="red")


def _print_pruned(console: Any, run_id: str, history: History) -> None:
    """Print why the latest trials were pruned. The reasons have numbers, so none is repeated."""
    from rich.text import Text

    reasons = reasons_of_pruning(history)
    latest = dict(list(reasons.items())[-_MAX_PRUNED:])
    _print_grouped(
        console, "Why trials were pruned", {why: [number] for number, why in latest.items()}
    )
    if rest := len(reasons) - len(latest):
        console.print(
            Text(f"  and {rest} more: {command_line('show', run_id, trial=next(iter(reasons)))}")
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


def print_best(console: Any, history: History) -> None:
    """Print the best trial, or the front if there are several objectives.

    A trial that was chosen by hand comes first.
    """
    from rich.text import Text

    if (chosen := chosen_by_hand(history)) is not None:
        console.print()
        console.print(Text(f"Chosen by hand: trial {chosen.number}", style="bold"))
        console.print(Text(f"  {describe_choice(history)}"))
        console.print(Text(f"  {format_params(chosen.params)}"))
    if len(history.objectives) > 1 and (front := history.front()):
        _print_front(console, history, front)
        return
    if (best := history.best()) is None:
        return
    console.print()
    console.print(Text(f"Best: trial {best.number}", style="bold"))
    facts = make_table(show_header=False)
    num_repeats, note = len(history.repeats_of(best)), ""
    if num_repeats > 1:
        note = f"mean of {num_repeats} trials"
    values = history.mean_values(best)
    objectives = [item.metric for item in history.objectives]
    for name in dict.fromkeys([*(name for name in objectives if name in values), *values]):
        facts.add_row(name, Text(format_number(values[name]), style="bold"), note)
    for name, value in best.params.items():
        facts.add_row(name, format_value(value))
    for name, text in _how_trained(history, best):
        facts.add_row(name, text)
    console.print(facts)
    parts = lineage(history.trials, best)
    if len(parts) > 1:
        unit = "epoch" if history.experiment.trains_model else "step"
        _print_parts(console, parts, unit)


def _print_summary(console: Any, run: Run) -> None:
    """Print a run that has ended in sentences, or how sure the best result is so far."""
    from rich.text import Text

    history = run.history
    summary = None
    if not run.is_advice and history.result is None:
        row = run.row
        took_s = elapsed_s(row, history)
        energy = run.energy.describe()
        summary = summarize(run.run_id, row.state, history, took_s, energy=energy)
    lines = list(summary.sentences) if summary else [f"{it}." for it in certainty_lines(history)]
    if lines:
        console.print()
    for line in lines:
        console.print(Text(line))


def _how_trained(history: History, trial: Trial) -> Iterator[tuple[str, str]]:
    """Yield the plan of a trial, and its parent if it is a clone."""
    if plan := trial.plan.describe():
        yield "plan", plan
    if trial.clone is not None:
        yield from _trial_origin(history, trial)


def _trial_origin(history: History, trial: Trial) -> Iterator[tuple[str, str]]:
    """Yield where a clone comes from, or which part of a training another trial is."""
    if words := describe_segment(history, trial):
        yield ("part" if trial.clone is None else "origin"), words


def _print_front(console: Any, history: History, front: list[Trial]) -> None:
    """Print the trials on the front, and the best value of each objective."""
    from rich.text import Text

    console.print()
    numbers = format_numbers([trial.number for trial in front])
    console.print(Text(f"On the Pareto front: {numbers}", style="bold"))
    facts = make_table(show_header=False)
    for objective, trial in history.extremes().items():
        value = Text(format_number(trial.values[objective]), style="bold")
        facts.add_row(
            f"best {objective}", value, f"trial {trial.number}", format_params(trial.params)
        )
    console.print(facts)


def _print_parts(console: Any, parts: list[Trial], unit: str) -> None:
    """Print the parameters that changed between the parts of a training."""
    from rich.text import Text

    console.print()
    console.print(Text("How it was trained", style="bold"))
    names = [
        name
        for name in parts[-1].params
        if any(part.params.get(name) != parts[-1].params[name] for part in parts)
    ]
    table = make_table(f"until {unit}", "trial", "member", *names)
    for part in parts:
        assert part.segment is not None
        values = [format_value(part.params[name]) if name in part.params else "" for name in names]
        table.add_row(str(part.segment.end), str(part.number), str(part.segment.member), *values)
    console.print(table)


def show_trial(run: Run, number: int | None, *, only_traceback: bool, as_json: bool) -> None:
    """Print one trial.

    Args:
        run: The run.
        number: The trial, or None for the first that failed with a traceback.
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
        problem = f"trial {trial.number} is {trial.state} and has no traceback"
        if trial.message:
            problem += f": {first_line(trial.message)}"
        raise RunError(problem)


def _choose(run: Run, number: int | None) -> Trial:
    history = run.history
    if number is None:
        failed = first_traceback(history)
        if failed is None:
            raise RunError(f"no trial of run {run.run_id} has failed with a traceback")
        return failed
    return find_trial(history, number, field="--trial")


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
    for name, value in _trial_facts(run, trial):
        facts.add_row(name, value)
    console.print(facts)
    if trial.message:
        console.print()
        console.print(
            Text(f"{trial.message}{describe_place(trial.failed_at)}", style=colour_of(trial.state))
        )
    if trial.traceback:
        console.print()
        console.print(Text(trial.traceback.rstrip()))


def _trial_facts(run: Run, trial: Trial) -> Iterator[tuple[str, str | Text]]:
    """Yield the facts about a trial as names and values."""
    from rich.text import Text

    for name, value in values_of_trial(run.history, trial).items():
        yield name, Text(format_number(value), style="bold")
    for name, param in trial.params.items():
        yield name, Text(format_value(param))
    yield from _trial_parts(run.history, trial)
    if plan := trial.plan.describe():
        yield "plan", plan
    yield from _trial_measures(run.history, trial)
    if program := describe_program(run.history, trial):
        yield "code", program
    if thinned := describe_reports([trial]):
        yield "reports", thinned
    yield "attempts", str(trial.attempts)
    for setback in trial.setbacks:
        yield f"attempt {setback.attempt + 1}", Text(f"{setback.reason}: {setback.message}")
    yield from _trial_files(run, trial)


def _trial_measures(history: History, trial: Trial) -> Iterator[tuple[str, str]]:
    """Yield how fast a trial learned and ran, and what it used."""
    if trial.peak_rate is not None:
        yield "peak learning rate", trial.peak_rate.describe()
    for column in (STEP, DURATION, SPEED, TOKENS, TOKEN_SPEED, UTILISATION, MEMORY, ENERGY):
        if column.value(history, trial) is not None:
            yield column.heading, column.text(history, trial)
    if memory := _describe_memory(trial):
        yield "memory", memory


def _describe_memory(trial: Trial) -> str | None:
    """Write the measured peak beside the predicted one, or return None without a prediction."""
    if trial.predicted_memory is None:
        return None
    measured = "not measured yet"
    if trial.memory_gb is not None:
        measured = f"{format_number(round(trial.memory_gb, 2))} GB"
    elif trial.memory_limit_bytes is None:
        measured = "not measured, because there is no GPU"
    return f"{measured}; predicted {trial.predicted_memory.describe()}"


def _trial_parts(history: History, trial: Trial) -> Iterator[tuple[str, Text]]:
    """Yield where a trial comes from, or which part of a training it is, and its turn."""
    from rich.text import Text

    for name, words in _trial_origin(history, trial):
        yield name, Text(words)
    if turn := describe_turn(history, trial):
        yield "turn", Text(turn)


def _trial_files(run: Run, trial: Trial) -> Iterator[tuple[str, str | Text]]:
    """Yield where a trial ran, and where its log and its attachments are."""
    from rich.text import Text

    if trial.hosts:
        yield "hosts", ", ".join(dict.fromkeys(trial.hosts))
    if (log := log_file(run.folder, trial.number)).exists():
        yield "log", Text(str(log))
    latest = {saved.name: saved for saved in trial.attachments}
    for name, saved in latest.items():
        num_earlier = sum(other.name == name for other in trial.attachments) - 1
        label = f"{name}, step {saved.step}"
        if num_earlier:
            label += f" and {num_earlier} earlier"
        path = run.folder / attachment_file(trial.number, saved.file)
        yield saved.kind, Text(f"{label}: {path}")
