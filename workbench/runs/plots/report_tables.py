"""The tables of the report, and how it formats numbers, durations and user text.

Everything returned is HTML, escaped.
"""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence

from workbench.experiment.space import Choice, Fixed, describe, describe_condition
from workbench.foundation.formatting import (
    format_count,
    format_duration,
    format_percent,
    format_value,
)
from workbench.runs.plots.parameter_axes import searched
from workbench.runs.plots.run_data import RunData
from workbench.store.history import failure_groups, reasons_of_pruning, wait_for_proposals
from workbench.store.history.trial_columns import (
    NUMBER,
    TrialColumn,
    columns_in_short,
    means_of,
    metric,
    parameters,
)

NUM_BEST = 20
NUM_FAILURES = 20
NUM_PRUNED = 20
_LONGEST_TEXT = 4000


def best_trials(run: RunData) -> list[str]:
    """Return the table of the best trials, or of the front."""
    ranked = run.history.ranked()
    if not ranked:
        return []
    history = run.history
    several = len(history.objectives) > 1
    shown = (history.front() if several else ranked)[:NUM_BEST]
    searched_names = searched(history.searched, list(history.trials.values()))
    judged = [item.metric for item in (*history.objectives, *run.experiment.constraints)]
    columns = [
        *(metric(history, name) for name in dict.fromkeys(judged)),
        *(
            column
            for column in parameters(history)
            if column.identity.partition(":")[2] in searched_names
            and any(column.value(history, trial) is not None for trial in shown)
        ),
        *columns_in_short(history, shown),
    ]
    has_repeats = not several and any(len(history.repeats_of(trial)) > 1 for trial in shown)
    rows = []
    for rank, trial in enumerate(shown):
        cells = [_cell(column.text(history, trial), _kind(column)) for column in columns]
        if has_repeats:
            mean = columns[0].write(means_of(history, trial).get(columns[0].identity))
            cells.insert(0, _cell(mean, "number"))
        rows.append(
            f"<tr{_class('first' if rank == 0 and not several else '')}>"
            f'<th scope="row" class="number">{trial.number}</th>{"".join(cells)}</tr>'
        )
    heads = [(column.heading, _kind(column)) for column in (NUMBER, *columns)]
    if has_repeats:
        heads.insert(1, (f"mean {columns[0].heading}", "number"))
    caption = f"{len(shown)} of {len(run.history.front() if several else ranked)} " + (
        "trials on the front" if several else "complete trials, best first"
    )
    if has_repeats:
        caption += ": by the mean of the trials of a configuration, those closest to it first"
    return ["<h2>Best trials</h2>", table(heads, rows, caption)]


def failures(run: RunData) -> list[str]:
    """Return the table of failures, grouped by kind."""
    groups = failure_groups(run.history)
    if not groups:
        return []
    rows = []
    for group in groups[:NUM_FAILURES]:
        trials, reason = group.trials, text(group.reason)
        numbers = ", ".join(str(trial.number) for trial in trials[:12]) + (
            ", ..." if len(trials) > 12 else ""
        )
        traceback = (trials[0].traceback or "").strip()[-_LONGEST_TEXT:]
        details = (
            f"<details><summary>Traceback</summary><pre>{text(traceback)}</pre></details>"
            if traceback
            else ""
        )
        rows.append(
            f'<tr><th scope="row">{reason}</th>{_cell(str(len(trials)), "number")}{_cell(numbers)}'
            f"{_cell(group.place or '', 'path')}<td>{text(group.message[:500])}{details}</td></tr>"
        )
    heads = [("Reason", ""), ("Count", "number"), ("Trials", ""), ("Line", ""), ("Message", "")]
    caption = f"{len(rows)} of {format_count(len(groups), 'kind')} of failure, most frequent first"
    return ["<h2>Failures</h2>", table(heads, rows, caption)]


def pruned(run: RunData) -> list[str]:
    """Return the table of why trials were pruned, the latest first."""
    found = list(reasons_of_pruning(run.history).items())[::-1]
    if not found:
        return []
    rows = [
        f'<tr><th scope="row" class="number">{number}</th><td>{text(why)}</td></tr>'
        for number, why in found[:NUM_PRUNED]
    ]
    caption = f"{len(rows)} of {format_count(len(found), 'pruned trial')}, the latest first"
    return ["<h2>Pruned trials</h2>", table([("Trial", "number"), ("Why", "")], rows, caption)]


def space(run: RunData) -> list[str]:
    """Return the table of searched parameters."""
    rows = []
    for name, domain in run.experiment.search.root.items():
        listed = isinstance(domain, Choice | Fixed)
        scale = "categorical" if isinstance(domain, Choice) else "fixed" if listed else "linear"
        if not listed and domain.log:
            scale = "logarithmic"
        rows.append(
            f'<tr><th scope="row">{text(name)}</th>{_cell(describe(domain)[:1000])}{_cell(scale)}'
            f"{_cell(describe_condition(domain.when) if domain.when else 'always')}</tr>"
        )
    heads = [("Parameter", ""), ("Values", ""), ("Scale", ""), ("Active when", "")]
    if not rows:
        return []
    sampler, num_objectives = run.experiment.sampler, len(run.experiment.objectives)
    proposed = f"{sampler.describe(num_objectives)}{_cost_of_proposals(run)}"
    return ["<h2>Search space</h2>", f"<p>{text(proposed)}</p>", table(heads, rows, None)]


def _cost_of_proposals(run: RunData) -> str:
    if (wait := wait_for_proposals(run.history.trials.values())) is None:
        return ""
    median_s, _, share = wait
    return (
        f" A proposal took {format_duration(median_s)} in the median; "
        f"workers waited for proposals {format_percent(share)} of their time."
    )


def environment(run: RunData) -> list[str]:
    """Return the environment of the run: its machine and package versions."""
    if not run.history.drivers:
        return []
    driver = run.history.drivers[-1]
    facts = {"host": driver.host, "CPUs": f"{driver.num_cpus:g}", "GPUs": f"{driver.num_gpus:g}"}
    if len(run.history.drivers) > 1:
        facts["driver restarts"] = str(len(run.history.drivers) - 1)
    return [
        "<section"
        f' class="compact"><h2>Environment</h2>{pairs({**facts, **driver.versions})}</section>'
    ]


def pairs(values: Mapping[str, object]) -> str:
    """Return names and values as a table of two columns."""
    rows = "".join(
        f'<tr><th scope="row">{text(name)}</th><td>{text(format_value(value))}</td></tr>'  # type: ignore[arg-type]
        for name, value in values.items()
    )
    return f"<table><tbody>{rows}</tbody></table>"


def table(heads: Sequence[tuple[str, str]], rows: Sequence[str], caption: str | None) -> str:
    """Return a table of HTML rows under column headers given as (text, class)."""
    head = "".join(f'<th scope="col"{_class(kind)}>{text(name)}</th>' for name, kind in heads)
    title = f"<caption>{text(caption)}</caption>" if caption else ""
    return (
        f'<div class="scroll" tabindex="0"><table>{title}<thead><tr>{head}</tr></thead>'
        f"<tbody>{''.join(rows)}</tbody></table></div>"
    )


def _kind(column: TrialColumn) -> str:
    return "" if column.kind == "param" else "number"


def _cell(content: str, kind: str = "") -> str:
    return f"<td{_class(kind)}>{text(content)}</td>"


def _class(kind: str) -> str:
    return f' class="{kind}"' if kind else ""


def text(written: object) -> str:
    """Escape user text."""
    return html.escape(str(written), quote=True)
