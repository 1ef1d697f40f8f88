"""The answers of the report that are not a best trial.

The model that an automatic run chose, what a compression recommends, the trial that was chosen by
hand, and advice: the card as a table of candidates, and what it is based on. The rows of a
candidate come from the card of the advisor. Everything returned is HTML, escaped.
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
from workbench.experiment import Experiment
from workbench.experiment.automl import is_automl
from workbench.foundation.formatting import format_count, format_number, format_value
from workbench.runs.plots.prepare import prepare_leaderboard
from workbench.runs.plots.report_tables import pairs, table, text
from workbench.runs.plots.run_data import RunData
from workbench.store.history import Trial
from workbench.store.history.compression import (
    NOT_SEARCHED,
    RATIO,
    RATIO_HERE,
    compressed,
    describe_way,
    device_of,
    is_compression,
)
from workbench.store.history.history import chosen_by_hand, describe_choice

NUM_ROWS = 20
_TEXTS = ("model", "with")
CAPTIONS = {
    "confusion": "Test samples by their true and their predicted class.",
    "prediction_errors": "Each dot is a test sample. On the dotted line the prediction is right.",
    "column_importance": (
        "How much worse the model is on the test samples when a column is shuffled. Grey "
        "bars are no more than chance. Columns that repeat each other share what they contribute."
    ),
    "partial_dependence": (
        "The mean prediction for the test samples if a column had each value and the others stayed "
        "as they are."
    ),
}
_MAX_OTHERS = 2


def model_answer(run: RunData) -> str:
    """Return the answer of an automatic run.

    The model and its score on samples that no trial has seen.
    """
    result: Any = run.history.result
    metric, value = next(iter(result["test"].items()))
    lines = "".join(f"<p>{text(line)}</p>" for line in result["summary"])
    return (
        '<section class="answer" aria-labelledby="answer"><div><h2 id="answer">Chosen model</h2>'
        f'<div class="value">{text(format_value(value))}</div>'
        f'<div class="metric">test {text(metric)}, {text(result["model"])}</div></div>'
        f"<div>{lines}</div></section>"
    )


def leaderboard(run: RunData) -> list[str]:
    """Return the table of the models that were compared, the best first."""
    if run.history.result is None:
        return []
    board = prepare_leaderboard(run.history.result, NUM_ROWS)
    heads = [(name, "" if name in _TEXTS else "number") for name in board.columns]
    rows = [
        f"<tr>{''.join(_cell(cell, kind) for cell, (_, kind) in zip(row, heads, strict=True))}</tr>"
        for row in board.rows
    ]
    caption = (
        f"{len(rows)} of {format_count(board.num_rows, 'model')}, best first. Models were chosen by"
        " their val scores, so the best of these are better than on new samples."
    )
    return ["<h2>Leaderboard</h2>", table(heads, rows, caption)]


def error_slices(run: RunData) -> list[str]:
    """Return the table of the parts of the test in which the chosen model is worst."""
    analysis: Any = (run.history.result or {}).get("analysis") or {}
    slices = analysis.get("slices") or []
    if not slices:
        return []
    is_classification = "confusion" in analysis

    def shown(mistakes: float) -> str:
        return format_number(1.0 - mistakes if is_classification else mistakes)

    score = "accuracy" if is_classification else "mean absolute error"
    heads = [("column", ""), ("value", ""), ("samples", "number"), (score, "number"), ("", "")]
    rows = []
    for part in slices:
        chance = "" if part["certain"] else "may be chance"
        cells = [
            part["column"],
            part["value"],
            str(part["num_samples"]),
            shown(part["mean"]),
            chance,
        ]
        pairs = zip(cells, heads, strict=True)
        rows.append(f"<tr>{''.join(_cell(cell, kind) for cell, (_, kind) in pairs)}</tr>")
    caption = f"Test samples with more mistakes than all of them ({shown(slices[0]['overall'])})."
    return ["<h2>Where it is worst</h2>", table(heads, rows, caption)]


def describe_export(experiment: Experiment) -> str:
    """Return what the command writes that exports a run.

    A trial, or the result of an AutoML run.
    """
    if is_automl(experiment):
        return "the result as one ONNX graph, with a script that predicts"
    return "the best trial with its weights and the command that retrains it"


def _cell(content: str, kind: str) -> str:
    if not kind:
        return f"<td>{text(content)}</td>"
    return f'<td class="{kind}">{text(content)}</td>'


def compression_answer(run: RunData) -> str:
    """Return the verdict of a compression."""
    verdict = compressed(run.history)
    best = verdict.recommended
    value = "none"
    metric = "of the trials is faster and good enough"
    if best is not None:
        value = format_number(best.values[RATIO])
        metric = f"of the base's latency, trial {best.number}: {describe_way(best.params)}"
    return (
        '<section class="answer" aria-labelledby="answer"><div><h2 id="answer">Recommended</h2>'
        f'<div class="value">{value}</div><div class="metric">{text(metric)}</div></div>'
        f"<div><p>{text(verdict.words)}.</p></div></section>"
    )


def tried_and_lost(run: RunData) -> list[str]:
    """Return the table of what was tried and is not recommended, or nothing for another run."""
    if not is_compression(run.experiment):
        return []
    assert run.experiment.train is not None
    notes: object = run.experiment.train.options.get(NOT_SEARCHED)
    stated = []
    if isinstance(notes, list):
        stated = [f"<p>{text(str(note))}.</p>" for note in notes]
    device = device_of(run.experiment)
    ratios = {RATIO: "Latency ratio"}
    if device is not None:
        ratios = {RATIO: f"Latency ratio on {device}", RATIO_HERE: "On the trial's machine"}
    heads = [
        ("Trial", "number"),
        ("What was done", ""),
        *((name, "number") for name in ratios.values()),
        ("Why not", ""),
    ]
    lost = compressed(run.history).lost
    rows = [_row(run.history.trials[number], why, list(ratios)) for number, why in lost.items()]
    if not rows:
        return stated
    caption = format_count(len(rows), "trial")
    return ["<h2>What was tried and is not recommended</h2>", table(heads, rows, caption), *stated]


def _row(trial: Trial, why: str, ratios: Sequence[str]) -> str:
    values = [trial.values.get(name) for name in ratios]
    cells = "".join(
        f'<td class="number">{"" if value is None else format_number(value)}</td>'
        for value in values
    )
    return (
        '<tr><th scope="row"'
        f' class="number">{trial.number}</th><td>{text(describe_way(trial.params))}</td>'
        f"{cells}<td>{text(why)}</td></tr>"
    )


def choice(run: RunData) -> list[str]:
    """Return which trial was chosen by hand, with what it gives up and its configuration."""
    chosen = chosen_by_hand(run.history)
    if chosen is None:
        return []
    return [
        f"<h2>Chosen by hand: trial {chosen.number}</h2>",
        f"<p>{text(describe_choice(run.history) or '')}</p>{pairs(chosen.params)}",
    ]


def advice_answer(run: RunData) -> str:
    """Return the answer at the top of the page of a run that only requested advice."""
    choice = run.advice.choice
    predicted = {}
    value = "none"
    caption = "Nothing is recommended yet."
    plan = stored_plan(choice)
    if choice:
        predicted = dict(rows_of(choice))
        value = plan.batch_text
        caption = "global batch"
    beside = {
        name: predicted[name]
        for name in ("learning rate", "samples/s", "time to target")
        if name in predicted
    }
    shown = ""
    if beside:
        shown = f"<div><h3>Predicted for this plan</h3>{pairs(beside)}</div>"
    return (
        '<section class="answer" aria-labelledby="answer"><div><h2'
        f' id="answer">Recommended</h2><div class="value">{text(value)}</div><div'
        f' class="metric">{caption}</div></div>{shown}</section>'
    )


def advice_card(run: RunData) -> list[str]:
    """Return the recommendation, or that there is none yet. The page adds the heading."""
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
                f"<h3>{title}</h3><ul>{''.join(f'<li>{text(item)}</li>' for item in items)}</ul>"
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
    named += [("Another", candidate) for candidate in rows(advice.get("others"))[:_MAX_OTHERS]]
    named.append(("Without advice", mapping(advice.get("reference"))))
    shown = [(name, candidate) for name, candidate in named if candidate]
    columns = [dict(rows_of(candidate)) for _, candidate in shown]
    names = list(dict.fromkeys(name for column in columns for name in column))
    objective = str(advice.get("objective"))
    compared = [compare(candidate, choice, objective) for _, candidate in shown]
    body = [_candidate_row(name, [column.get(name, "-") for column in columns]) for name in names]
    if len(shown) > 1:
        body.append(_candidate_row("compared with the choice", ["-", *compared[1:]]))
    heads = [("", ""), *((name, "") for name, _ in shown)]
    return f'<div class="card">{table(heads, body)}</div>'


def _candidate_row(name: str, cells: Sequence[str]) -> str:
    return (
        "<tr><th"
        f' scope="row">{text(name)}</th>{"".join(f"<td>{text(cell)}</td>" for cell in cells)}</tr>'
    )
