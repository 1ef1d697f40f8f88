"""The extension as the Jupyter server loads it: its settings, its routes, its end."""

from __future__ import annotations

import importlib.util
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from jupyter_server.extension.application import ExtensionApp
from traitlets import Float, Unicode

from workbench.server.asking import Asker
from workbench.server.drawing import Drawer
from workbench.server.live import LiveSocket
from workbench.server.page import STATIC, PageHandler
from workbench.server.requests import (
    ActionsHandler,
    EventsHandler,
    ExperimentsHandler,
    FigureHandler,
    LookHandler,
    MissingHandler,
    ReportHandler,
    RunHandler,
    RunsHandler,
    TrialHandler,
)
from workbench.store import Store
from workbench.watch.watch import Watch

_NUM_THREADS = 4
_RUN = r"(?P<run_id>[A-Za-z0-9._-]{1,120})"


def _plotly_folder() -> list[str]:
    """Return where plotly keeps its JavaScript, which pages load for analysis figures; nothing imports it."""
    found = importlib.util.find_spec("plotly")
    places = found.submodule_search_locations if found is not None else None
    return [str(Path(place) / "package_data") for place in places or ()]


class WorkbenchExtension(ExtensionApp):
    """Runs in the browser: the panel's server side, and the page `/workbench`."""

    name = "workbench"
    app_name = "Workbench"
    description = "Watch and steer runs of the workbench in a browser."
    default_url = "/workbench"
    load_other_extensions = True
    file_url_prefix = "/workbench"

    store_url = Unicode(
        "", help="Where runs are kept; empty for what WORKBENCH_STORE names, or else the user's own store."
    ).tag(config=True)
    poll_s = Float(0.1, min=0.02, help="Seconds between two looks at the store.").tag(config=True)

    static_paths = [str(STATIC), *_plotly_folder()]

    @classmethod
    def get_extension_package(cls) -> str:
        """Return what names this extension: the room, as the whole package is none."""
        return "workbench.server"

    def initialize_settings(self) -> None:
        """Make what the handlers share."""
        url = self.store_url or None
        watch = Watch(lambda: Store.open(url), self.poll_s)
        root = Path(self.serverapp.root_dir) if self.serverapp is not None else Path.cwd()
        shared: dict[str, Any] = {
            "workbench_watch": watch,
            "workbench_asker": Asker(watch, root),
            "workbench_drawer": Drawer(watch),
            "workbench_live": set(),
            # Of its own, so that a store that does not answer holds up nobody else's threads.
            "workbench_threads": ThreadPoolExecutor(_NUM_THREADS, thread_name_prefix="workbench"),
            # What takes long waits for its own kind only.
            "workbench_slow_threads": ThreadPoolExecutor(_NUM_THREADS, thread_name_prefix="workbench-slow"),
        }
        self.settings.update(shared)

    def initialize_handlers(self) -> None:
        """Name the routes."""
        api = "/workbench/api"
        self.handlers.extend(
            [
                (r"/workbench/?", PageHandler),
                (rf"{api}/live", LiveSocket),
                (rf"{api}/look", LookHandler),
                (rf"{api}/runs", RunsHandler),
                (rf"{api}/runs/{_RUN}", RunHandler),
                (rf"{api}/runs/{_RUN}/events", EventsHandler),
                (rf"{api}/runs/{_RUN}/trials/(?P<trial>[0-9]{{1,9}})", TrialHandler),
                (rf"{api}/runs/{_RUN}/figures/(?P<figure>[a-z_]{{1,40}})", FigureHandler),
                (rf"{api}/runs/{_RUN}/report", ReportHandler),
                (rf"{api}/experiments", ExperimentsHandler),
                (rf"{api}/actions", ActionsHandler),
                (rf"{api}/.*", MissingHandler),
            ]
        )

    async def stop_extension(self) -> None:
        """Let go of the store and of everything that was started."""
        settings: dict[str, Any] = self.settings
        for connection in list(settings["workbench_live"]):
            await connection.end()
        settings["workbench_drawer"].close()
        settings["workbench_watch"].close()
        for name in ("workbench_threads", "workbench_slow_threads"):
            settings[name].shutdown(wait=False, cancel_futures=True)


main = WorkbenchExtension.launch_instance
"""What `jupyter workbench` runs: a server whose first page is the view."""
