"""The live view of one run as a widget.

If the page was served by a Jupyter server that has the run, the view connects to that server
without the kernel. Otherwise (an editor, a hosted notebook), the kernel sends the same frames.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anywidget
import traitlets

from workbench.foundation.errors import ArgumentError, WorkbenchError
from workbench.runs import Run, attach
from workbench.runs.cell_outputs import RunAgain, show
from workbench.runs.notebook_output import HEIGHT_PX, snapshot
from workbench.store.database import Store
from workbench.views.live_feed.feed import Feed
from workbench.views.live_feed.updates import TICK_S, Session

_VIEW = Path(__file__).parent / "static" / "widget.js"
_SILENCE_S = 60.0


class LiveView(anywidget.AnyWidget):
    """The view of one run. See `live`."""

    _esm = traitlets.Unicode().tag(sync=True)
    run_id = traitlets.Unicode(help="The ID of the run.").tag(sync=True)
    height = traitlets.Int(HEIGHT_PX, help="Height in pixels.").tag(sync=True)
    snapshot = traitlets.Unicode(help="HTML to show if live updates are unavailable.").tag(
        sync=True
    )

    def __init__(self, run: Run, height: int = HEIGHT_PX) -> None:
        """Create a view of a run.

        Args:
            run: The run to show.
            height: Height in pixels.

        Raises:
            WorkbenchError: If the front end is not built.
        """
        super().__init__(
            _esm=read_view(_VIEW), run_id=run.run_id, height=height, snapshot=snapshot(run.stored)
        )
        self._run = run
        self._senders = Senders(lambda content, frame: self.send(content, buffers=[frame]))
        self.on_msg(self._on_message)

    def close(self) -> None:
        """Stop sending, and remove the view."""
        # A widget is closed even if its construction failed.
        if hasattr(self, "_senders"):
            self._senders.close()
        super().close()

    def _on_message(self, _widget: Any, content: Any, _buffers: Any) -> None:
        if isinstance(content, dict):
            self._senders.receive(lambda: self._run, content)

    def _ipython_display_(self) -> None:
        again = RunAgain(self._run.stored)

        def draw() -> dict[str, Any]:
            return widget_forms(self, snapshot(again.run))

        if not show(widget_forms(self, self.snapshot), draw, again.look):
            raise NotImplementedError  # IPython then takes the forms below

    def _repr_mimebundle_(self, **options: Any) -> tuple[dict[str, Any], dict[str, Any]] | None:
        bundle = super()._repr_mimebundle_(**options)
        if bundle is not None:
            # Shown where widgets are unavailable: on a web site, or after a restart of the kernel.
            bundle[0]["text/html"] = self.snapshot
        return bundle


def widget_forms(widget: anywidget.AnyWidget, page: str) -> dict[str, Any]:
    """Return the forms of the output of a widget.

    Args:
        widget: The widget.
        page: HTML for places without widgets: a web site, or after a restart of the kernel.
    """
    bundle = widget._repr_mimebundle_()
    forms: dict[str, Any] = {} if bundle is None else bundle[0]
    return {**forms, "text/html": page}


def read_view(path: Path) -> str:
    """Return the code of a view.

    Args:
        path: The built file.

    Raises:
        WorkbenchError: If it is not built.
    """
    if not path.exists():
        raise WorkbenchError(
            f"the front end is not built: {path} does not exist",
            next_step="Install the package where npm is available, or run: make front-end",
        )
    return path.read_text(encoding="utf-8")


class Senders:
    """The senders of a widget, one for each view, as each view has its own subscription."""

    def __init__(self, send: Callable[[dict[str, Any], bytes], None]) -> None:
        """Start without views.

        Args:
            send: Sends a message of the widget with a frame.
        """
        self._send = send
        self._of_views: dict[str, KernelSender] = {}

    def receive(self, run_of_view: Callable[[], Run], content: dict[str, Any]) -> None:
        """Handle a message of a view: a subscription, an acknowledgement, or none when it closes.

        Args:
            run_of_view: Returns the run that a new view shows.
            content: The message. Ignored unless it contains a view.
        """
        view, message = content.get("view"), content.get("message")
        if not isinstance(view, str):
            return
        self._of_views = {
            name: sender for name, sender in self._of_views.items() if sender.is_alive
        }
        sender = self._of_views.get(view)
        if isinstance(message, str):
            if sender is None:
                sender = KernelSender(
                    run_of_view(), lambda frame: self._send({"view": view}, frame)
                )
                self._of_views[view] = sender
            sender.receive(message)
        elif sender is not None:
            sender.close()

    def close(self) -> None:
        """Stop sending."""
        for sender in self._of_views.values():
            sender.close()


class KernelSender:
    """Sends frames from the kernel to one view. Stops when the view no longer reads them."""

    def __init__(self, run: Run, send: Any) -> None:
        """Start to send.

        Args:
            run: The run to show. Its store is opened again, to be read from another thread.
            send: Sends the bytes of a frame.
        """
        self.run_id = run.run_id
        url = run.store.url
        artifacts = str(run.store.artifacts)
        self._send = send
        self._feed = Feed(lambda: Store.open(url, artifacts))
        self._session = Session(self._feed)
        self._woken = threading.Event()
        self._ended = threading.Event()
        self._feed.listen(self._woken.set)
        self._thread = threading.Thread(
            target=self._send_what_changes, name="workbench-view", daemon=True
        )
        self._thread.start()

    @property
    def is_alive(self) -> bool:
        """Whether it still sends."""
        return self._thread.is_alive()

    def receive(self, message: str) -> None:
        """Handle a message of the view. Invalid ones are ignored."""
        with contextlib.suppress(ArgumentError):
            self._session.receive(message)
        self._woken.set()

    def close(self) -> None:
        """Stop sending."""
        self._ended.set()
        self._woken.set()

    def _send_what_changes(self) -> None:
        try:
            while not self._ended.is_set():
                self._woken.wait(TICK_S)
                self._woken.clear()
                # A closed view acknowledges no frame.
                if self._session.unread_s > _SILENCE_S:
                    return
                if self._session.unread_s or self._ended.wait(self._session.wait_s()):
                    continue
                frame = self._session.next_frame()
                if frame is not None:
                    self._send(frame)
        finally:
            self._feed.close()


def live(
    run: Run | str = "last", *, store: Store | str | None = None, height: int = HEIGHT_PX
) -> LiveView:
    """Show a run live in a notebook, with or without the JupyterLab extension.

    In JupyterLab with the extension, a run as the last value of a cell is shown the same way.

    Args:
        run: A run, its ID, a unique prefix of its ID, or "last".
        store: Where the run is kept if only its ID is given, or None for the default store.
        height: Height in pixels.

    Raises:
        RunNotFoundError: If there is no such run.
        WorkbenchError: If the front end is not built.

    Example:
        >>> view = wb.live(run)
    """
    return LiveView(run if isinstance(run, Run) else attach(run, store=store), height)
