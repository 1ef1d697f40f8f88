"""The report: a run as one HTML page that works offline, in any browser and on paper.

The answer comes first, then the pictures, then the tables, then how to reproduce the run.
Everything that a user wrote is escaped. Figures come from `figures`, numbers from `history`.
The caller provides the importance, which needs a study.
"""

from __future__ import annotations

import json
import re
import shlex
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from importlib.resources import files

from workbench.experiment.automl import is_automl, shown_metric
from workbench.experiment.budget_units import describe_money, format_energy
from workbench.experiment.changes import describe_changes
from workbench.experiment.trial_value import describe_shown_values
from workbench.foundation.errors import ExperimentError, Suggestion
from workbench.foundation.events import (
    AlertRaised,
    AttachmentSaved,
    AttemptEnded,
    Event,
    Noted,
    TrialEnqueued,
)
from workbench.foundation.formatting import (
    MISSING,
    counted_noun,
    format_count,
    format_duration,
    format_number,
    format_time,
)
from workbench.runs.event_lines import describe_advised
from workbench.runs.plots.report_answers import (
    advice_answer,
    choice,
    compression_answer,
    describe_export,
    error_slices,
    leaderboard,
    model_answer,
    tried_and_lost,
)
from workbench.runs.plots.report_figures import ReportFigures
from workbench.runs.plots.report_tables import (
    attached,
    best_trials,
    environment,
    failures,
    pairs,
    pruned,
    space,
    text,
)
from workbench.runs.plots.run_data import RunData
from workbench.runs.plots.theme import STATE_COLOURS
from workbench.runs.summary import summarize
from workbench.store.history import cost_of
from workbench.store.history.compression import is_compression
from workbench.store.history.lineage import describe_continued
from workbench.store.history.privacy import spent_privacy
from workbench.store.history.programs import describe_programs
from workbench.store.history.run_clock import NAME as RUN_TIME

_POLICY = (
    "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data: blob:"
)


_HEADING = re.compile(r'<h2(?: id="(?P<id>[^"]+)")?>(?P<title>.*?)</h2>')


class NotesOfEvents:
    """What events say that a reader of the report should know."""

    def __init__(self) -> None:
        """Start without a note."""
        self.texts: list[str] = []

    def take(self, event: Event) -> None:
        """Add the note of an event, if it has one."""
        if isinstance(event, Noted | AlertRaised) and event.level != "info":
            self.texts.append(event.message)
        elif isinstance(event, TrialEnqueued) and event.advice_run_id is not None:
            self.texts.append(f"The first configuration: {describe_advised(event)}.")
        elif isinstance(event, AttemptEnded) and event.reason not in ("stopped", "resized"):
            attempt = (
                f"Trial {event.trial}, attempt {event.attempt + 1}, ended early ({event.reason})"
            )
            self.texts.append(f"{attempt}: {event.message}. It continued with the next attempt.")


def report_page(
    run: RunData,
    *,
    notes: Sequence[str] = (),
    importance: Mapping[str, tuple[float, float, float]] | None = None,
    run_id: str | None = None,
    baseline: str | None = None,
    energy_wh: float | None = None,
    energy_of_trials: Mapping[int, float | None] | None = None,
    how_to_freeze: Suggestion | None = None,
    how_to_widen: Suggestion | None = None,
    next_steps: Sequence[Suggestion] = (),
    read: Callable[[AttachmentSaved], bytes] | None = None,
) -> str:
    """Write a run as one self-contained HTML page.

    Args:
        run: The run.
        notes: What its reader should know, such as what `NotesOfEvents` has collected.
        importance: Share of each parameter and its interval, from 0 to 1, if it was computed.
        run_id: The run id, for the commands that the page shows.
        baseline: How the best compares with the default configuration, in words without the full
            stop, if there is a best one.
        energy_wh: Energy that its trials used, in watt-hours, if it was metered.
        energy_of_trials: The same for each trial, by its number.
        how_to_freeze: The command that freezes parameters that decide nothing, if there are any.
        how_to_widen: The command that widens ranges at whose ends the best trial lies, if there are
            any.
        next_steps: Commands by which the run continues. They are shown if it has no result.
        read: Returns the content of an attachment, or None to omit it.

    Returns:
        An HTML document without references to anything outside itself.
    """
    experiment = run.experiment
    run.history.energy_of_trials = energy_of_trials or {}
    figures = ReportFigures(run, importance, how_to_freeze)
    parts = [
        _header(run, run_id),
        _failure(run),
        *_summary(run, run_id, energy_wh),
        _answer(run, next_steps),
        *_baseline(run, baseline),
        *choice(run),
        _facts(run, energy_wh),
        *_notices(run, notes, how_to_widen),
        *figures.model(),
        *error_slices(run),
        *leaderboard(run),
        *tried_and_lost(run),
        *figures.advice(),
        *figures.sections(),
        *best_trials(run),
        *attached(run, read),
        *failures(run),
        *pruned(run),
        *space(run),
        *_again(run, run_id),
        *environment(run),
        f"<footer>Experiment {experiment.hash()}</footer>",
    ]
    body = _with_contents("\n".join(parts))
    return "\n".join(
        [
            '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">',
            '<meta name="generator" content="workbench">',
            f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f"<title>{text(experiment.name)}: run report</title>",
            f"<style>\n{_asset('report.css')}</style>\n</head>\n<body>\n<main>",
            body,
            "</main>",
            '<script type="application/json" id="hover-texts">',
            f"{_json(figures.hover.all())}</script>",
            f"<script>\n{_asset('report.js')}</script>\n</body>\n</html>\n",
        ]
    )


def _header(run: RunData, run_id: str | None) -> str:
    experiment = run.experiment
    component = experiment.train or experiment.model
    tuned = experiment.command or (component and component.title) or "a function"
    if experiment.data:
        tuned = f"{tuned} on {experiment.data.title}"
    if is_automl(experiment):
        tuned = "AutoML"
    goals = " and ".join(
        f"{item.goal} {shown_metric(experiment, item.metric)}" for item in experiment.objectives
    )
    started = run.history.started_unix_s
    when = "not started"
    if started:
        when = format_time(started)
    changes = describe_changes(experiment, run.history.in_force)
    if run.history.replay_of is not None:
        when += f". A replay of {text(run.history.replay_of)}"
    elif changes:
        when += f". Changed since it started: {text(', '.join(changes))}"
    if run_id:
        when = f"Run {text(run_id)}, {when}"
    value = ""
    if any(item.value != "returned" for item in experiment.objectives):
        value = f"<p>The value of a trial: {text(describe_shown_values(experiment))}.</p>"
    return (
        f"<header><h1>{text(experiment.name)}</h1>"
        f"<p>{text(goals.capitalize())}: {text(tuned)}, over "
        f"{format_count(len(experiment.search.root), 'parameter')}</p>"
        f"<p>{when}</p>{value}</header>"
    )


def _with_contents(body: str) -> str:
    """Return the body with a list of its sections below its header, each with an address."""
    titles: dict[str, str] = {}

    def named(heading: re.Match[str]) -> str:
        place = heading["id"] or f"part-{len(titles) + 1}"
        titles[place] = heading["title"]
        return f'<h2 id="{place}">{heading["title"]}</h2>'

    named_body = _HEADING.sub(named, body)
    entries = "".join(f'<li><a href="#{place}">{title}</a></li>' for place, title in titles.items())
    contents = f'<nav class="contents" aria-label="Contents"><ol>{entries}</ol></nav>'
    head, end, rest = named_body.partition("</header>")
    return f"{head}{end}\n{contents}{rest}"


def _baseline(run: RunData, baseline: str | None) -> list[str]:
    if baseline is None or run.history.result is not None:
        return []
    return [f"<p>Baseline: {text(baseline)}.</p>"]


def _answer(run: RunData, next_steps: Sequence[Suggestion]) -> str:
    history = run.history
    if run.advice.requested is not None:
        return advice_answer(run)
    if history.result is not None:
        return model_answer(run)
    if is_compression(run.experiment):
        return compression_answer(run)
    best = history.best()
    if best is None:
        return _no_answer(run, next_steps)
    if len(history.objectives) > 1:
        return _front_answer(run)
    objective = history.objectives[0]
    values = history.mean_values(best)
    others = [
        f"{text(name)} {format_number(value)}"
        for name, value in values.items()
        if name != objective.metric
    ]
    num_repeats = len(history.repeats_of(best))
    whose = f"trial {best.number}"
    if num_repeats > 1:
        whose = f"mean of {num_repeats} trials, such as {best.number}"
    beside = ""
    if others:
        beside = f" ({', '.join(others)})"
    return (
        '<section class="answer" aria-labelledby="answer"><div><h2 id="answer">Best result</h2>'
        f'<div class="value">{format_number(values[objective.metric])}</div>'
        f'<div class="metric">{text(objective.metric)}, {whose}'
        f"{beside}</div>{_target(run)}</div>"
        f"<div><h3>Its configuration</h3>{pairs(best.params)}</div></section>"
    )


def _summary(run: RunData, run_id: str | None, energy_wh: float | None) -> list[str]:
    """Return the run in sentences, with the command that continues it."""
    history = run.history
    if run.advice.requested is not None or history.result is not None:
        return []
    energy = None if energy_wh is None else f"energy: {format_energy(energy_wh)}"
    summary = summarize(
        run_id or "last", history.state, history, history.active_s(run.last_unix_s), energy=energy
    )
    if summary is None:
        return []
    step = summary.next_step
    more = ""
    if step is not None and run_id is not None:
        more = f" Next: {text(step.lead)} with <code>{text(_command(step))}</code>."
    words = text(" ".join(summary.sentences))
    return [
        '<section class="summary" aria-labelledby="summary"><h2 id="summary">Summary</h2>'
        f"<p>{words}{more}</p></section>"
    ]


def _front_answer(run: RunData) -> str:
    history = run.history
    front = history.front()
    extremes = []
    for metric, trial in history.extremes().items():
        shown = f"{format_number(trial.values[metric])} in trial {trial.number}"
        extremes.append(f'<tr><th scope="row">best {text(metric)}</th><td>{shown}</td></tr>')
    return (
        '<section class="answer" aria-labelledby="answer"><div><h2 id="answer">Best results</h2>'
        f'<div class="value">{len(front)}</div><div class="metric">'
        f"{counted_noun(len(front), 'trial')} on the Pareto front"
        f"</div>{_target(run)}</div><div><h3>Extremes of the front</h3>"
        f"<table><tbody>{''.join(extremes)}</tbody></table></div></section>"
    )


def _failure(run: RunData) -> str:
    """Return the banner of a run that failed."""
    if run.history.state != "failed":
        return ""
    return (
        '<p class="notice failed" role="alert">Failed:'
        f" {text(run.history.message or 'no message')}</p>"
    )


def _no_answer(run: RunData, next_steps: Sequence[Suggestion]) -> str:
    reason = run.history.why_no_best()
    steps = "".join(
        f"<dt>{text(step.lead.capitalize())}</dt><dd><code>{text(_command(step))}</code></dd>"
        for step in next_steps
    )
    if steps:
        steps = f'<div><h3>Next steps</h3><dl class="ways-on">{steps}</dl></div>'
    return (
        '<section class="answer" aria-labelledby="answer"><div><h2 id="answer">Best result</h2>'
        f'<div class="value">none</div><div class="metric">{reason}</div></div>{steps}</section>'
    )


def _command(step: Suggestion) -> str:
    return shlex.join(["workbench", *step.words])


def _target(run: RunData) -> str:
    targets = [item for item in run.history.objectives if item.target is not None]
    if not targets:
        return ""
    reached = run.history.target_reached()
    wanted = " and ".join(f"{item.metric} {format_number(item.target or 0.0)}" for item in targets)
    kind = "missed"
    verdict = "not reached"
    if reached:
        kind = verdict = "reached"
    return f'<p class="{kind}">Target {text(wanted)} {verdict}</p>'


def _facts(run: RunData, energy_wh: float | None) -> str:
    history = run.history
    states = Counter(trial.state for trial in history.trials.values())
    active = MISSING
    if history.drivers:
        active = format_duration(history.active_s(run.last_unix_s))
    facts = [("Run", history.state), (RUN_TIME, active)]
    if energy_wh is not None:
        facts.append(("Energy", f"{format_number(energy_wh)} Wh"))
    price, cost = history.in_force.budget.price, cost_of(history, run.last_unix_s)
    if price is not None and cost is not None:
        facts.append(("Cost", describe_money(cost, price)))
    if run.advice.requested is None:
        facts.append(("Trials", format_count(states.total())))
    best = history.best()
    if best is not None:
        samples = (("Validation samples", best.num_validation), ("Test samples", best.num_test))
        facts += [(name, format_count(count)) for name, count in samples if count is not None]
    parts = [f"<div><dt>{text(name)}</dt><dd>{text(value)}</dd></div>" for name, value in facts]
    parts += [
        f'<div><dt><span class="swatch" style="background: {colour}"></span>{state}</dt>'
        f"<dd>{format_count(states[state])}</dd></div>"
        for state, colour in STATE_COLOURS.items()
        if states[state]
    ]
    lines = [*describe_programs(history), describe_continued(history)]
    return f'<dl class="facts">{"".join(parts)}</dl>' + "".join(
        f"<p>{text(line)}.</p>" for line in lines if line
    )


def _notices(run: RunData, notes: Sequence[str], how_to_widen: Suggestion | None) -> list[str]:
    messages = list(notes)
    if how_to_widen is not None:
        messages.insert(0, how_to_widen.write(_command(how_to_widen)))
    if (
        run.history.message
        and run.history.state != "failed"
        and run.history.reason not in ("advice", "trials")
    ):
        messages.insert(0, f"{run.history.state.capitalize()}: {run.history.message}")
    if (spent := spent_privacy(run.history)) is not None:
        messages.append(f"{spent.describe().capitalize()}.")
    for trial in run.history.trials.values():
        messages += [f"Trial {trial.number} {resize.describe()}." for resize in trial.resizes]
    shown = []
    for message, count in Counter(messages).most_common(10):
        times = ""
        if count > 1:
            times = f" ({count} times)"
        shown.append(f'<p class="notice">{text(message)}{times}</p>')
    if not shown:
        return []
    return ["<h2>Notes</h2>", *shown]


def _again(run: RunData, run_id: str | None) -> list[str]:
    experiment = run.experiment
    safe = "-".join(re.findall(r"[A-Za-z0-9_]+", experiment.name)) or "experiment"
    verb = "advise"
    if run.advice.requested is None:
        verb = "sweep"
    parts = [
        "<h2>Reproduce this run</h2>",
        f"<p>Save the experiment below as <code>{safe}.yaml</code> and run:</p>",
        f"<pre>workbench {verb} {safe}.yaml</pre>",
    ]
    if run_id and run.history.best():
        parts += [
            f"<p>Export {text(describe_export(experiment))}:</p>",
            f"<pre>workbench export {text(run_id)} --to {safe}-best</pre>",
        ]
    try:
        written = experiment.to_yaml()
    except ExperimentError as error:
        written = f"# cannot be written as YAML: {error}"
    return [*parts, f"<h3>{safe}.yaml</h3><pre>{text(written)}</pre>"]


def _json(value: object) -> str:
    """Return JSON that cannot end the script element that holds it."""
    return json.dumps(value, separators=(",", ":")).replace("<", "\\u003c")


def _asset(name: str) -> str:
    return files("workbench.runs.plots").joinpath(name).read_text(encoding="utf-8")
