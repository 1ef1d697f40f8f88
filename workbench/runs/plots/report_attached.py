"""What the best trial attached to its reports, as part of the report.

Pictures, tables and texts, escaped.
"""

from __future__ import annotations

import base64
from collections.abc import Callable

from workbench.foundation.attachments import MEDIA_TYPES, read_table
from workbench.foundation.errors import ArtifactsError
from workbench.foundation.events import AttachmentSaved
from workbench.foundation.formatting import format_bytes, format_count, format_value
from workbench.runs.plots.report_tables import table, text
from workbench.runs.plots.run_data import RunData
from workbench.store.history import Trial

MAX_BYTES = 8 * 2**20
"""Size of all pictures of the page."""
MAX_ROWS = 50
_LONGEST_TEXT = 4000
_SMALL = 160
"""Pictures of fewer pixels are shown larger, each pixel as a square."""


def attached(run: RunData, read: Callable[[AttachmentSaved], bytes] | None) -> list[str]:
    """Return the section with the newest attachment of each name of the best trial.

    Args:
        run: The run.
        read: Returns what the file of an attachment holds; None where files cannot be read.
    """
    trial = _chosen(run)
    if trial is None or read is None:
        return []
    newest = {saved.name: saved for saved in trial.attachments}
    parts, left_bytes = [], MAX_BYTES
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
    """Return the best trial that attached something; else the newest."""
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
        is_small = content.startswith(b"\x89PNG") and int.from_bytes(content[16:20], "big") < _SMALL
        return (
            f'<img class="attached{" small" if is_small else ""}" alt="{text(saved.name)}"'
            f' src="{source}">'
        )
    if saved.kind == "text":
        return f"<pre>{text(content.decode(errors='replace')[:_LONGEST_TEXT])}</pre>"
    found = read_table(content)
    rows = [
        f"<tr>{''.join(f'<td>{text(format_value(cell))}</td>' for cell in row)}</tr>"
        for row in found.rows[:MAX_ROWS]
    ]
    hidden = found.num_rows - len(rows)
    caption = f"{format_count(len(rows), 'row')} of {found.num_rows:,}" if hidden > 0 else None
    return table([(name, "") for name in found.columns], rows, caption)
