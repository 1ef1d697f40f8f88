"""The part of the report about the model that an automatic run chose, and what is exported of a
run.
"""

from __future__ import annotations

from typing import Any

from workbench.experiment import Experiment
from workbench.experiment.automl import is_automl
from workbench.foundation.formatting import format_count, format_value
from workbench.runs.plots.prepare_model import prepare_leaderboard
from workbench.runs.plots.report_tables import table, text
from workbench.runs.plots.run_data import RunData

NUM_ROWS = 20
_TEXTS = ("model", "with")
CAPTIONS = {
    "confusion": "Test samples by their true and their predicted class.",
    "prediction_errors": "Each dot is a test sample; on the dotted line the prediction is right.",
    "column_importance": (
        "How much worse the model is on the test samples when a column is shuffled. Grey "
        "bars are no more than chance; columns that repeat each other share what they contribute."
    ),
}


def model_answer(run: RunData) -> str:
    """Return the answer of an automatic run.

    The model and its score on samples that no trial has seen.
    """
    found: Any = run.history.result
    metric, value = next(iter(found["test"].items()))
    lines = "".join(f"<p>{text(line)}</p>" for line in found["summary"])
    return (
        '<section class="answer" aria-labelledby="answer"><div><h2 id="answer">Chosen model</h2>'
        f'<div class="value">{text(format_value(value))}</div>'
        f'<div class="metric">test {text(metric)}, {text(found["model"])}</div></div>'
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
    caption = f"{len(rows)} of {format_count(board.num_rows, 'model')}, best first"
    return ["<h2>Leaderboard</h2>", table(heads, rows, caption)]


def describe_export(experiment: Experiment) -> str:
    """Return what the command writes that exports a run.

    A trial, or the result of an AutoML run.
    """
    if is_automl(experiment):
        return "the result as one ONNX graph, with a script that predicts"
    return "the best trial with its weights and the command that retrains it"


def _cell(content: str, kind: str) -> str:
    return f'<td class="{kind}">{text(content)}</td>' if kind else f"<td>{text(content)}</td>"
