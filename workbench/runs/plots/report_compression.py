"""The part of the report about a compression.

What is recommended, and why each other trial is not.
"""

from __future__ import annotations

from collections.abc import Sequence

from workbench.foundation.formatting import format_count, format_number
from workbench.runs.plots.report_tables import table, text
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
    device = device_of(run.experiment)
    ratios = {RATIO: "Latency ratio"}
    if device is not None:
        ratios = {RATIO: f"Latency ratio on {device}", RATIO_HERE: "Where the trial ran"}
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
