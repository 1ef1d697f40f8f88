"""The advice on the report: the card as a table of candidates, and what it is based on.

Everything returned is HTML, escaped. The rows of a candidate come from the card of the advisor.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from workbench.advisor.advice_lines import (
    compare,
    describe_cost,
    describe_exchanges,
    describe_noise,
    goal_of,
    rows_of,
    yaml_lines,
)
from workbench.advisor.stored_advice import mapping, rows, stored_plan, texts
from workbench.runs.plots.report_tables import pairs, table, text
from workbench.runs.plots.run_data import RunData

_MAX_OTHERS = 2


def advice_answer(run: RunData) -> str:
    """Return the answer at the top of the page of a run that only requested advice."""
    choice = run.advice.choice
    found = dict(rows_of(choice)) if choice else {}
    plan = stored_plan(choice)
    value = plan.batch_text if choice else "none"
    caption = f"global batch = {plan.factors_text}" if choice else "Nothing is recommended yet."
    beside = {
        name: found[name]
        for name in ("learning rate", "samples/s", "time to target")
        if name in found
    }
    shown = f"<div><h3>Predicted for this plan</h3>{pairs(beside)}</div>" if beside else ""
    return (
        '<section class="answer" aria-labelledby="answer"><div><h2'
        f' id="answer">Recommended</h2><div class="value">{text(value)}</div><div'
        f' class="metric">{caption}</div></div>{shown}</section>'
    )


def advice_card(run: RunData) -> list[str]:
    """Return what was recommended, or that nothing is yet; the heading is left to the page."""
    record = run.advice
    if not record.advice:
        return ["<p>Plans are being measured; nothing is recommended yet.</p>"]
    advice = record.advice
    parts = [f"<p>For {text(goal_of(advice))}, this is recommended:</p>", _candidates(advice)]
    for title, items in (
        ("Why", texts(record.choice.get("reasons"))),
        ("Exchanges between workers", describe_exchanges(advice)),
        ("What was measured", texts(advice.get("measured"))),
        ("What would change the answer", texts(advice.get("would_change"))),
    ):
        if items:
            parts.append(
                f"<h3>{title}</h3><ul>{''.join(f'<li>{text(each)}</li>' for each in items)}</ul>"
            )
    facts = {"gradient noise scale": describe_noise(advice)}
    if cost := describe_cost(advice):
        facts["measurement time"] = cost
    parts.append(f'<div class="compact">{pairs(facts)}</div>')
    settings = yaml_lines(mapping(advice.get("settings")))
    if settings:
        parts.append(
            f"<h3>Settings for the experiment file</h3><pre>{text(chr(10).join(settings))}</pre>"
        )
    return parts


def _candidates(advice: Mapping[str, Any]) -> str:
    """Return the table of candidates, one column each, the choice first."""
    choice = mapping(advice.get("choice"))
    named = [("Recommended", choice), ("Runner-up", mapping(advice.get("runner_up")))]
    named += [("Another", each) for each in rows(advice.get("others"))[:_MAX_OTHERS]]
    named.append(("Without advice", mapping(advice.get("reference"))))
    shown = [(name, candidate) for name, candidate in named if candidate]
    columns = [dict(rows_of(candidate)) for _, candidate in shown]
    names = list(dict.fromkeys(name for column in columns for name in column))
    objective = str(advice.get("objective"))
    compared = [compare(candidate, choice, objective) for _, candidate in shown]
    body = [_row(name, [column.get(name, "-") for column in columns]) for name in names]
    if len(shown) > 1:
        body.append(_row("compared with the choice", ["-", *compared[1:]]))
    heads = [("", ""), *((name, "") for name, _ in shown)]
    shown_as = f"Global batches are written as {stored_plan(choice).factors_text}"
    return f'<div class="card">{table(heads, body, shown_as)}</div>'


def _row(name: str, cells: Sequence[str]) -> str:
    return (
        "<tr><th"
        f' scope="row">{text(name)}</th>{"".join(f"<td>{text(cell)}</td>" for cell in cells)}</tr>'
    )
