"""Tiers in a notebook: the results of each exit threshold, and the running tiers with their queues.

This module only transports messages. `workbench.views.live_feed.tiers_session` computes in the
kernel, in parallel with the cells.
"""

from __future__ import annotations

import html
from pathlib import Path
from typing import Any

import anywidget
import traitlets

from workbench.runs.cell_outputs import Look, show
from workbench.tiers.placement.tiers_file import TiersFile, read_tiers
from workbench.views.live_feed.tiers_session import TiersSession
from workbench.views.widgets.live_view import read_view, widget_forms

_VIEW = Path(__file__).parent / "static" / "tiers.js"


class TiersView(anywidget.AnyWidget):
    """A view of a file of tiers. `measured` is what the last run that was started in it gave."""

    _esm = traitlets.Unicode().tag(sync=True)

    def __init__(self, path: Path, file: TiersFile) -> None:
        """Measure the stages in the background, and show the results. Usually `tiers` calls this.

        Args:
            path: The file of tiers.
            file: Its content.

        Raises:
            WorkbenchError: If the front end is not built.
        """
        self._session: TiersSession | None = None
        super().__init__(_esm=read_view(_VIEW))
        self._path = path
        self._session = session = TiersSession(
            path, file, lambda message: self.send(message.model_dump())
        )
        self.on_msg(lambda _widget, content, _buffers: session.receive(content))

    @property
    def measured(self) -> Any:
        """What the last run gave, as `Measured`, or None before the first."""
        return self._session and self._session.measured

    def close(self) -> None:
        """End the tiers that run, and remove the view."""
        if self._session is not None:
            self._session.close()
        super().close()

    def _ipython_display_(self) -> None:
        def draw() -> dict[str, Any]:
            return widget_forms(self, self._page())

        if not show(draw(), draw, self._look):
            raise NotImplementedError  # IPython then takes the forms below

    def _look(self) -> Look:
        session = self._session
        return Look(session and session.mark, session is None or self.comm is None)

    def _page(self) -> str:
        """Return what a saved notebook shows: the file, and what each threshold gives."""
        written = html.escape(self._path.read_text(encoding="utf-8"))
        pictured = "" if self._session is None else self._session.page()
        return f"<pre>{written}</pre>{pictured}"

    def _repr_mimebundle_(self, **options: Any) -> tuple[dict[str, Any], dict[str, Any]] | None:
        bundle = super()._repr_mimebundle_(**options)
        if bundle is not None:
            # Shown where widgets are unavailable: on a web site, or after a restart of the kernel.
            bundle[0]["text/html"] = self._page()
        return bundle


def tiers(file: str | Path) -> TiersView:
    """Show what each exit threshold of a file of tiers gives, and run the tiers.

    The stages are measured first, which takes seconds. The kernel is free meanwhile.

    Args:
        file: The file of tiers.

    Raises:
        ExperimentError: If it cannot be read or is invalid.
        WorkbenchError: If the front end is not built.

    Example:
        >>> view = wb.widgets.tiers("tiers.yaml")  # doctest: +SKIP
    """
    path = Path(file)
    return TiersView(path, read_tiers(path))
