"""What a run leaves in a notebook: a name for the live view, a snapshot, and links to its files.

The front end draws the live view from the server, without the kernel. The snapshot is shown where
there is no front end: on a web site, in another editor, years later. It says what is known now and
does not change. A path of a file that was written is shown as a link. Elsewhere it is a path like
any other.
"""

from __future__ import annotations

import base64
import html
import json
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from workbench.advisor.advice_card import html_of
from workbench.experiment.actions import suggest
from workbench.foundation.events import FINISHED_RUN_STATES
from workbench.foundation.formatting import (
    format_count,
    format_duration,
    format_number,
    format_value,
)
from workbench.runs.descriptions import format_tried, leaders
from workbench.runs.progress import elapsed_s
from workbench.runs.run_figures import data_of
from workbench.runs.summary import summarize
from workbench.store.history.history import chosen_by_hand, describe_choice

if TYPE_CHECKING:
    from workbench.runs.plots.run_data import RunData
    from workbench.runs.stored_run import StoredRun
    from workbench.store.database import RunRow

RUN_MIME_TYPE = "application/vnd.workbench.run+json"
HEIGHT_PX = 520
# A snapshot is made while somebody waits for a cell. A larger run is left to the live view.
MAX_EVENTS = 100_000
_MAX_CURVES = 12
_PAGE = "workbench/api/runs/{run_id}/report"


def output_forms(run: StoredRun) -> dict[str, Any]:
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
    """Return the state of a run as HTML: a table, and its advice or a picture of its curves.

    Args:
        run: The run.
    """
    data = _read(run)
    return _page(run, data, _describe(run, data))


def picture(run: StoredRun) -> str:
    """Return the curves of a run as an HTML image, or an empty text if it has none.

    Args:
        run: The run.
    """
    return _picture(run, _read(run))


def _page(run: StoredRun, data: RunData | None, rows: list[tuple[str, str]]) -> str:
    advice = None
    if run.is_advice:
        advice = run.advice
    if advice is None:
        return _sentences(run, data) + _table(rows) + _picture(run, data)
    return _table(rows) + html_of(advice)


def _read(run: StoredRun) -> RunData | None:
    if run.row.last_seq > MAX_EVENTS:
        return None
    return data_of(run)


def _describe(run: StoredRun, data: RunData | None) -> list[tuple[str, str]]:
    """Return the state of a run in brief: labels and texts."""
    row = run.row
    rows = [("run", row.run_id), ("state", _state_of(row))]
    if data is None:
        step = suggest("show", row.run_id)
        return [
            *rows,
            ("events", f"{format_count(row.last_seq)}, more than a snapshot draws. See {step}"),
        ]
    history = data.history
    if (row.state, history.reason) == ("stopped", "person"):
        rows[-1] = ("state", "stopped by the user")
    stage = run.preparation
    if stage is not None:
        rows.append(("now", stage))
    # The result of AutoML counts its candidates.
    if not run.is_advice and history.result is None:
        rows.append(("trials", format_tried(history) or "none yet"))
    rows.append(("time", format_duration(elapsed_s(row, history))))
    if row.state == "failed" and history.message:
        rows.append(("error", history.message))
    shown = leaders(history)
    if history.result is not None:
        lines: Any = history.result["summary"]
        label = "result"
        for line in lines:
            rows.append((label, str(line)))
            label = ""  # only the first line is labelled
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


def _state_of(row: RunRow) -> str:
    """Return the state of a run. What may change is dated: a reader may come years later."""
    if row.state == "lost" or row.state in FINISHED_RUN_STATES:
        return row.state
    return f"{row.state}, as of {time.strftime('%H:%M on %Y-%m-%d')}"


def _sentences(run: StoredRun, data: RunData | None) -> str:
    """Return a run that has ended in sentences. A result of AutoML has its own among the rows."""
    if data is None or data.history.result is not None:
        return ""
    row = run.row
    summary = summarize(row.run_id, row.state, data.history, elapsed_s(row, data.history))
    if summary is None:
        return ""
    return f"<p>{html.escape(' '.join(summary.sentences))}</p>"


def _table(rows: list[tuple[str, str]]) -> str:
    cells = "".join(
        f"<tr><th style='text-align:left'>{html.escape(label)}</th>"
        f"<td style='text-align:left{_colour(label, text)}'>{html.escape(text)}</td></tr>"
        for label, text in rows
    )
    return f"<table>{cells}</table>"


def _colour(label: str, text: str) -> str:
    is_failure = label == "error" or (label, text) == ("state", "failed")
    return ";color:#c62f1d" if is_failure else ""


def _picture(run: StoredRun, data: RunData | None) -> str:
    """Draw the curves as an image: sites that drop SVG elements from what they show keep images."""
    from workbench.runs.plots.prepare import prepare_convergence
    from workbench.runs.plots.svg import curves_svg

    if data is None:
        return ""
    svg = curves_svg(prepare_convergence(data, max_curves=_MAX_CURVES))
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


class WrittenFile(type(Path())):  # PosixPath or WindowsPath
    """The path of a file, and the address of a page that shows it, if there is one."""

    url: str = ""

    def __repr__(self) -> str:
        """Return the path as text."""
        return str(self)

    def _repr_html_(self) -> str:
        text = html.escape(str(self))
        url = self.url or _below_here(self)
        if not url:
            return f"<code>{text}</code>"
        return f'<a href="{html.escape(url)}" target="_blank">{text}</a>'


def linked(path: Path, run_id: str = "") -> WrittenFile:
    """Return a path as notebooks show it.

    Args:
        path: A file or folder that was written.
        run_id: The run of which it is the report, so that the notebook's server can show it
            wherever it lies.
    """
    written = WrittenFile(path)
    if run_id and (server := _server_url()):
        written.url = server + _PAGE.format(run_id=quote(run_id, safe=""))
    return written


def _below_here(path: Path) -> str:
    """Return the address of a file below the notebook's folder.

    Nothing for folders and files elsewhere.
    """
    if not path.is_file():
        return ""
    try:
        return quote(path.resolve().relative_to(Path.cwd()).as_posix())
    except (OSError, ValueError):
        return ""


def _server_url() -> str:
    """Return the address, without host, of the Jupyter server that started this kernel.

    Empty outside one.
    """
    parent = os.environ.get("JPY_PARENT_PID")
    if parent is None:
        return ""
    from jupyter_core.paths import jupyter_runtime_dir

    try:
        known = json.loads((Path(jupyter_runtime_dir()) / f"jpserver-{parent}.json").read_text())
        return str(known["base_url"])
    except (OSError, ValueError, KeyError):
        return ""
