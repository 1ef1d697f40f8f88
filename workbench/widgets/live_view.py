"""One run, live, as a widget that brings the view along.

Where the page comes from a server that has the run, the view asks that server, and the kernel has no part in
it. Where it does not (an editor, a hosted notebook), the kernel itself sends the same frames.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anywidget
import traitlets

from workbench.errors import ExperimentError, WorkbenchError
from workbench.run import Run, attach
from workbench.run.output import HEIGHT_PX, snapshot
from workbench.store import Store
from workbench.watch.session import TICK_S, Session
from workbench.watch.watch import Watch

_VIEW = Path(__file__).parent / "static" / "widget.js"
_SILENCE_S = 60.0


class LiveView(anywidget.AnyWidget):
    """The view of one run; see `live`."""

    _esm = traitlets.Unicode().tag(sync=True)
    run_id = traitlets.Unicode(help="The run.").tag(sync=True)
    height = traitlets.Int(HEIGHT_PX, help="In pixels.").tag(sync=True)
    snapshot = traitlets.Unicode(help="HTML that is shown where no server has the run.").tag(sync=True)

    def __init__(self, run: Run, height: int = HEIGHT_PX) -> None:
        """Make a view of a run.

        Args:
            run: What is shown.
            height: In pixels.

        Raises:
            WorkbenchError: If the front end was not built.
        """
        super().__init__(_esm=read_view(_VIEW), run_id=run.run_id, height=height, snapshot=snapshot(run))
        self._run = run
        self._senders = Senders(lambda content, frame: self.send(content, buffers=[frame]))
        self.on_msg(self._hear)

    def close(self) -> None:
        """Send nothing any more, and remove the view."""
        # A widget that could not be made is closed all the same.
        if hasattr(self, "_senders"):
            self._senders.end()
        super().close()

    def _hear(self, _widget: Any, content: Any, _buffers: Any) -> None:
        if isinstance(content, dict):
            self._senders.hear(lambda: self._run, content)

    def _repr_mimebundle_(self, **options: Any) -> tuple[dict[str, Any], dict[str, Any]] | None:
        bundle = super()._repr_mimebundle_(**options)
        if bundle is not None:
            # What remains where no widgets are shown: on a web site, after a restart of the kernel.
            bundle[0]["text/html"] = self.snapshot
        return bundle


def read_view(path: Path) -> str:
    """Return the code of a view.

    Args:
        path: Where the front end is built to.

    Raises:
        WorkbenchError: If it was not built.
    """
    if not path.exists():
        raise WorkbenchError(
            f"the front end is not built: there is no {path}",
            next_step="Install the package with npm at hand, or run: make front-end",
        )
    return path.read_text(encoding="utf-8")


class Senders:
    """One sender for each view of a run in a widget: what each view shows is its own."""

    def __init__(self, send: Callable[[dict[str, Any], bytes], None]) -> None:
        """Begin without views.

        Args:
            send: Sends a message of the widget, with a frame.
        """
        self._send = send
        self._of_views: dict[str, KernelSender] = {}

    def hear(self, run_of_view: Callable[[], Run], content: dict[str, Any]) -> None:
        """Hand on what a view says, or end its sender where the view is gone and says nothing.

        Args:
            run_of_view: Returns what a new view shows.
            content: The message; one that names no view is passed over.
        """
        view, said = content.get("view"), content.get("said")
        if not isinstance(view, str):
            return
        self._of_views = {name: sender for name, sender in self._of_views.items() if sender.alive}
        sender = self._of_views.get(view)
        if isinstance(said, str):
            if sender is None:
                sender = KernelSender(run_of_view(), lambda frame: self._send({"view": view}, frame))
                self._of_views[view] = sender
            sender.hear(said)
        elif sender is not None:
            sender.end()

    def end(self) -> None:
        """Send nothing any more."""
        for sender in self._of_views.values():
            sender.end()


class KernelSender:
    """Sends frames to one view, as the server does from its own process; ends when nobody listens."""

    def __init__(self, run: Run, send: Any) -> None:
        """Begin to send.

        Args:
            run: What is shown; its store is opened once more, for reading from another thread.
            send: Takes the bytes of a frame.
        """
        self.run_id = run.run_id
        url, artifacts = run.store.url, str(run.store.artifacts)
        self._send = send
        self._watch = Watch(lambda: Store.open(url, artifacts))
        self._session = Session(self._watch)
        self._woken = threading.Event()
        self._ended = threading.Event()
        self._watch.listen(self._woken.set)
        self._thread = threading.Thread(target=self._send_what_changes, name="workbench-view", daemon=True)
        self._thread.start()

    @property
    def alive(self) -> bool:
        """Whether it still sends."""
        return self._thread.is_alive()

    def hear(self, message: str) -> None:
        """Take in what the view says; what is no message is passed over."""
        with contextlib.suppress(ExperimentError):
            self._session.hear(message)
        self._woken.set()

    def end(self) -> None:
        """Send nothing any more."""
        self._ended.set()
        self._woken.set()

    def _send_what_changes(self) -> None:
        try:
            while not self._ended.is_set():
                self._woken.wait(TICK_S)
                self._woken.clear()
                # A view that is gone draws nothing, and so takes no frame.
                if self._session.unread_s > _SILENCE_S:
                    return
                if self._session.unread_s or self._ended.wait(self._session.wait_s()):
                    continue
                frame = self._session.next_frame()
                if frame is not None:
                    self._send(frame)
        finally:
            self._watch.close()


def live(run: Run | str = "last", *, store: Store | str | None = None, height: int = HEIGHT_PX) -> LiveView:
    """Show a run live in a notebook, wherever its front end comes from.

    In a JupyterLab with the extension, a run that ends a cell is shown the same way by itself.

    Args:
        run: A run, its id, a beginning that only one run has, or "last".
        store: Where it is kept, if only its id is given; None for the usual store.
        height: In pixels.

    Raises:
        RunNotFoundError: If there is no such run.
        WorkbenchError: If the front end was not built.
    """
    return LiveView(run if isinstance(run, Run) else attach(run, store=store), height)
