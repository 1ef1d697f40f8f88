"""What a run leaves in a notebook: a name for the live view, and a snapshot for everybody else.

The front end draws the live view from the server, without the kernel. The snapshot is shown where
there is no front end: on a web site, in another editor, years later. It says what is known now and
does not change.
"""

from __future__ import annotations

import base64
import html
import os
from typing import TYPE_CHECKING, Any

from workbench.advisor.advice_card import html_of
from workbench.experiment.actions import suggest
from workbench.foundation.formatting import format_count, format_number, format_value
from workbench.runs.descriptions import format_counts, leaders
from workbench.runs.figures import data_of
from workbench.store.history.history import chosen_by_hand, describe_choice

if TYPE_CHECKING:
    from workbench.runs.plots.run_data import RunData
    from workbench.runs.stored_run import StoredRun

RUN_MIME_TYPE = "application/vnd.workbench.run+json"
HEIGHT_PX = 520
# A snapshot is made while somebody waits for a cell; a larger run is left to the live view.
MAX_EVENTS = 100_000
_MAX_CURVES = 12


def bundle(run: StoredRun) -> dict[str, Any]:
    """Return all forms of the output of a run, by MIME type.

    Args:
        run: The run.
    """
    data = _read(run)
    rows = _describe(run, data)
    forms: dict[str, Any] = {
        "text/html": _page(run, data, rows),
        "text/plain": "\n".join(f"{label:<8}{text}" for label, text in rows),
    }
    if not _is_in_voila():
        forms[RUN_MIME_TYPE] = {"run_id": run.run_id, "height": HEIGHT_PX}
    return forms


def snapshot(run: StoredRun) -> str:
    """Return how a run stands as HTML.

    A table, and its advice, or a picture of the curves, if there is one.

    Args:
        run: The run.
    """
    data = _read(run)
    return _page(run, data, _describe(run, data))


def _page(run: StoredRun, data: RunData | None, rows: list[tuple[str, str]]) -> str:
    advice = run.advice if run.is_advice else None
    return _table(rows) + (_picture(run, data) if advice is None else html_of(advice))


def _read(run: StoredRun) -> RunData | None:
    return None if run.row.last_seq > MAX_EVENTS else data_of(run)


def _describe(run: StoredRun, data: RunData | None) -> list[tuple[str, str]]:
    """Return the state of a run in brief: labels and texts."""
    row = run.row
    rows = [("run", row.run_id), ("state", row.state)]
    if data is None:
        step = suggest("show", row.run_id)
        return [
            *rows,
            ("events", f"{format_count(row.last_seq)}, too many to draw here; see {step}"),
        ]
    history = data.history
    if (row.state, history.reason) == ("stopped", "person"):
        rows[-1] = ("state", "stopped by the user")
    rows.append(("trials", format_counts(history) or "none yet"))
    if row.state == "failed" and history.message:
        rows.append(("error", history.message))
    shown = leaders(history)
    if history.result is not None:
        lines: Any = history.result["summary"]
        rows += [("" if at else "result", str(line)) for at, line in enumerate(lines)]
        shown = []
    if (chosen := chosen_by_hand(history)) is not None:
        rows.append(("chosen by hand", f"trial {chosen.number}: {describe_choice(history)}"))
    for label, trial, values in shown:
        written = ", ".join(
            f"{metric} = {format_number(value)}" for metric, value in values.items()
        )
        rows.append((label, f"trial {trial.number}: {written}"))
        rows.append(
            (
                "with",
                ", ".join(
                    f"{name} = {format_value(value)}" for name, value in trial.params.items()
                ),
            )
        )
    return rows


def _table(rows: list[tuple[str, str]]) -> str:
    cells = "".join(
        f"<tr><th style='text-align:left'>{html.escape(label)}</th>"
        f"<td style='text-align:left{_colour(label, text)}'>{html.escape(text)}</td></tr>"
        for label, text in rows
    )
    return f"<table>{cells}</table>"


def _colour(label: str, text: str) -> str:
    return ";color:#c62f1d" if label == "error" or (label, text) == ("state", "failed") else ""


def _picture(run: StoredRun, data: RunData | None) -> str:
    """Draw the curves as an image: sites that drop SVG elements from what they show keep images."""
    from workbench.runs.plots.prepare import prepare_convergence
    from workbench.runs.plots.snapshot import curves_svg

    svg = curves_svg(prepare_convergence(data, max_curves=_MAX_CURVES)) if data is not None else ""
    if not svg:
        return ""
    encoded = base64.b64encode(svg.encode()).decode()
    alternative = html.escape(f"curves of {run.name}", quote=True)
    return f'<img alt="{alternative}" src="data:image/svg+xml;base64,{encoded}">'


def _is_in_voila() -> bool:
    """Tell whether a dashboard without the server extension shows this.

    It has nothing to draw it with.
    """
    return os.environ.get("SERVER_SOFTWARE", "").startswith("voila")
