"""The tables of the report, what trials attached to their reports, and how user text is written.

Everything returned is HTML, escaped.
"""

from __future__ import annotations

import base64
import html
from collections.abc import Callable, Mapping, Sequence

from workbench.experiment.space import Choice, Fixed, describe, describe_condition
from workbench.foundation.attachments import MEDIA_TYPES, read_table
from workbench.foundation.errors import ArtifactsError
from workbench.foundation.events import AttachmentSaved
from workbench.foundation.formatting import (
    format_bytes,
    format_count,
    format_duration,
    format_percent,
    format_value,
)
from workbench.runs.plots.parameter_axes import searched
from workbench.runs.plots.run_data import RunData
from workbench.store.history import Trial, failure_groups, reasons_of_pruning, wait_for_proposals
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
MAX_BYTES = 8 * 2**20
"""Size of all pictures of the page."""
MAX_ROWS = 50
_SMALL = 160
"""Pictures of fewer pixels are shown larger, each pixel as a square."""


def best_trials(run: RunData) -> list[str]:
    """Return the table of the best trials, or of the front."""
    ranked = run.history.ranked()
    if not ranked:
        return []
    history = run.history
    several = len(history.objectives) > 1
    shown = ranked
    kind = "complete trials, best first"
    if several:
        shown = history.front()
        kind = "trials on the front"
    caption = f"{min(len(shown), NUM_BEST)} of {format_count(len(shown))} {kind}"
    shown = shown[:NUM_BEST]
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
        first = ""
        if rank == 0 and not several:
            first = "first"
        rows.append(
            f"<tr{_class(first)}>"
            f'<th scope="row" class="number">{trial.number}</th>{"".join(cells)}</tr>'
        )
    heads = [(column.heading, _kind(column)) for column in (NUMBER, *columns)]
    if has_repeats:
        heads.insert(1, (f"mean {columns[0].heading}", "number"))
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
        trials = group.trials
        reason = text(group.reason)
        numbers = ", ".join(str(trial.number) for trial in trials[:12])
        if len(trials) > 12:
            numbers += ", ..."
        traceback = (trials[0].traceback or "").strip()[-_LONGEST_TEXT:]
        details = ""
        if traceback:
            details = f"<details><summary>Traceback</summary><pre>{text(traceback)}</pre></details>"
        rows.append(
            f'<tr><th scope="row">{reason}</th>{_cell(str(len(trials)), "number")}{_cell(numbers)}'
            f"{_cell(group.place or '', 'path')}<td>{text(group.message[:500])}{details}</td></tr>"
        )
    heads = [("Reason", ""), ("Count", "number"), ("Trials", ""), ("Line", ""), ("Message", "")]
    caption = f"{len(rows)} of {format_count(len(groups), 'kind')} of failure, most frequent first"
    return ["<h2>Failures</h2>", table(heads, rows, caption)]


def pruned(run: RunData) -> list[str]:
    """Return the table of why trials were pruned, the latest first."""
    reasons = list(reasons_of_pruning(run.history).items())[::-1]
    if not reasons:
        return []
    rows = [
        f'<tr><th scope="row" class="number">{number}</th><td>{text(why)}</td></tr>'
        for number, why in reasons[:NUM_PRUNED]
    ]
    caption = f"{len(rows)} of {format_count(len(reasons), 'pruned trial')}, the latest first"
    return ["<h2>Pruned trials</h2>", table([("Trial", "number"), ("Why", "")], rows, caption)]


def space(run: RunData) -> list[str]:
    """Return the table of searched parameters."""
    rows = []
    for name, domain in run.experiment.search.root.items():
        if isinstance(domain, Choice):
            scale = "categorical"
        elif isinstance(domain, Fixed):
            scale = "fixed"
        else:
            scale = "logarithmic" if domain.log else "linear"
        condition = "always"
        if domain.when:
            condition = describe_condition(domain.when)
        rows.append(
            f'<tr><th scope="row">{text(name)}</th>{_cell(describe(domain)[:1000])}{_cell(scale)}'
            f"{_cell(condition)}</tr>"
        )
    heads = [("Parameter", ""), ("Values", ""), ("Scale", ""), ("Active when", "")]
    if not rows:
        return []
    sampler = run.experiment.sampler
    num_objectives = len(run.experiment.objectives)
    proposed = f"{sampler.describe(num_objectives)}{_cost_of_proposals(run)}"
    return ["<h2>Search space</h2>", f"<p>{text(proposed)}</p>", table(heads, rows, None)]


def _cost_of_proposals(run: RunData) -> str:
    if (wait := wait_for_proposals(run.history.trials.values())) is None:
        return ""
    median_s, _, share = wait
    return (
        f" A proposal took {format_duration(median_s)} in the median."
        f" Workers waited for proposals {format_percent(share)} of their time."
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


def table(heads: Sequence[tuple[str, str]], rows: Sequence[str], caption: str | None = None) -> str:
    """Return a table of HTML rows under column headers given as (text, class)."""
    head = "".join(f'<th scope="col"{_class(kind)}>{text(name)}</th>' for name, kind in heads)
    title = ""
    if caption:
        title = f"<caption>{text(caption)}</caption>"
    return (
        f'<div class="scroll" tabindex="0"><table>{title}<thead><tr>{head}</tr></thead>'
        f"<tbody>{''.join(rows)}</tbody></table></div>"
    )


def _kind(column: TrialColumn) -> str:
    if column.kind == "param":
        return ""
    return "number"


def _cell(content: str, kind: str = "") -> str:
    return f"<td{_class(kind)}>{text(content)}</td>"


def _class(kind: str) -> str:
    if not kind:
        return ""
    return f' class="{kind}"'


def text(written: object) -> str:
    """Escape user text."""
    return html.escape(str(written), quote=True)


def attached(run: RunData, read: Callable[[AttachmentSaved], bytes] | None) -> list[str]:
    """Return the section with the newest attachment of each name of the best trial.

    Args:
        run: The run.
        read: Returns the content of an attachment, or None if files cannot be read.
    """
    trial = _chosen(run)
    if trial is None or read is None:
        return []
    newest = {saved.name: saved for saved in trial.attachments}
    parts = []
    left_bytes = MAX_BYTES
    for saved in newest.values():
        if saved.size_bytes > left_bytes:
            parts.append(
                _figure(saved, f"<p>{format_bytes(saved.size_bytes)}, not part of this page</p>")
            )
            continue
        try:
            content = read(saved)
        except ArtifactsError:
            parts.append(_figure(saved, "<p>its file is not there</p>"))
            continue
        left_bytes -= len(content)
        parts.append(_figure(saved, _shown(saved, content)))
    return [f"<h2>What trial {trial.number} reported to look at</h2>", *parts]


def _chosen(run: RunData) -> Trial | None:
    """Return the best trial that attached something, or else the newest."""
    trials = [*run.history.ranked(), *reversed(run.history.trials.values())]
    return next((trial for trial in trials if trial.attachments), None)


def _figure(saved: AttachmentSaved, content: str) -> str:
    return (
        f"<figure>{content}<figcaption>{text(saved.name)}, step {saved.step}</figcaption></figure>"
    )


def _shown(saved: AttachmentSaved, content: bytes) -> str:
    if saved.kind == "image":
        # In an <img> no script of an SVG runs, and nothing is loaded.
        media_type = MEDIA_TYPES.get(saved.file.rpartition(".")[2], "image/png")
        source = f"data:{media_type};base64,{base64.b64encode(content).decode()}"
        style = "attached"
        if content.startswith(b"\x89PNG") and int.from_bytes(content[16:20], "big") < _SMALL:
            style += " small"  # the width of a PNG follows its header
        return f'<img class="{style}" alt="{text(saved.name)}" src="{source}">'
    if saved.kind == "text":
        return f"<pre>{text(content.decode(errors='replace')[:_LONGEST_TEXT])}</pre>"
    content_table = read_table(content)
    rows = [
        f"<tr>{''.join(f'<td>{text(format_value(cell))}</td>' for cell in row)}</tr>"
        for row in content_table.rows[:MAX_ROWS]
    ]
    hidden = content_table.num_rows - len(rows)
    caption = None
    if hidden > 0:
        caption = f"{format_count(len(rows), 'row')} of {content_table.num_rows:,}"
    return table([(name, "") for name in content_table.columns], rows, caption)
