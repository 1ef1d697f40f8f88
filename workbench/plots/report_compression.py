"""The part of the report about a compression: what is recommended, and why each other trial is not."""

from __future__ import annotations

from workbench.formatting import format_count, format_number
from workbench.history import Trial
from workbench.history.compression import (
    NOT_SEARCHED,
    RATIO,
    compressed,
    describe_way,
    is_compression,
)
from workbench.plots.report_tables import table, text
from workbench.plots.run_data import RunData

_HEADS = [("Trial", "number"), ("What was done", ""), ("Latency ratio", "number"), ("Why not", "")]


def compression_answer(run: RunData) -> str:
    """Return the verdict of a compression."""
    found = compressed(run.history)
    best = found.recommended
    value = "none" if best is None else format_number(best.values[RATIO])
    metric = "of the trials is faster and good enough"
    if best is not None:
        metric = f"of the base's latency, trial {best.number}: {describe_way(best.params)}"
    return (
        '<section class="answer" aria-labelledby="answer"><div><h2 id="answer">Recommended</h2>'
        f'<div class="value">{value}</div><div class="metric">{text(metric)}</div></div>'
        f"<div><p>{text(found.words)}.</p></div></section>"
    )


def tried_and_lost(run: RunData) -> list[str]:
    """Return the table of what was tried and is not recommended; nothing for another run."""
    if not is_compression(run.experiment):
        return []
    assert run.experiment.train is not None
    notes: object = run.experiment.train.options.get(NOT_SEARCHED)
    stated = [f"<p>{text(str(note))}.</p>" for note in notes] if isinstance(notes, list) else []
    rows = [_row(run.history.trials[number], why) for number, why in compressed(run.history).lost.items()]
    if not rows:
        return stated
    caption = format_count(len(rows), "trial")
    return ["<h2>What was tried and is not recommended</h2>", table(_HEADS, rows, caption), *stated]


def _row(trial: Trial, why: str) -> str:
    ratio = trial.values.get(RATIO)
    return (
        f'<tr><th scope="row" class="number">{trial.number}</th><td>{text(describe_way(trial.params))}</td>'
        f'<td class="number">{"" if ratio is None else format_number(ratio)}</td><td>{text(why)}</td></tr>'
    )
