"""The extension as the Jupyter server loads it: settings, routes and shutdown."""

from __future__ import annotations

import importlib.util
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from jupyter_server.extension.application import ExtensionApp
from traitlets import Float, Unicode

from workbench.store.database import Store
from workbench.views.live_feed.feed import Feed
from workbench.views.server.actions import ActionRunner
from workbench.views.server.figure_process import FigureRenderer
from workbench.views.server.live import LiveSocket
from workbench.views.server.page import STATIC, PageHandler
from workbench.views.server.routes import (
    ActionsHandler,
    AttachmentHandler,
    DraftHandler,
    EventsHandler,
    ExperimentsHandler,
    FigureHandler,
    MatchingRunsHandler,
    MissingHandler,
    ReportHandler,
    RunHandler,
    RunLogHandler,
    RunsHandler,
    SizeHandler,
    SnippetHandler,
    TrialHandler,
    TrialLogHandler,
    TrialsHandler,
    UpdateHandler,
)
from workbench.views.server.tiers import TiersProcesses, TiersSocket

_NUM_THREADS = 4
_RUN = r"(?P<run_id>[A-Za-z0-9._-]{1,120})"
_FILE = r"(?P<file>[A-Za-z0-9][A-Za-z0-9_.-]{1,120})"


def _plotly_folder() -> list[str]:
    """Return the folder of plotly's JavaScript, which pages load for figures.

    Plotly is not imported.
    """
    spec = importlib.util.find_spec("plotly")
    if spec is None:
        return []
    return [str(Path(place) / "package_data") for place in spec.submodule_search_locations or ()]


class WorkbenchExtension(ExtensionApp):
    """Serves the panel of JupyterLab and the page `/workbench`."""

    name = "workbench"
    app_name = "Workbench"
    description = "Watch and steer workbench runs in a browser."
    default_url = "/workbench"
    load_other_extensions = True
    file_url_prefix = "/workbench"

    store_url = Unicode(
        "", help="URL of the store. If empty, WORKBENCH_STORE or else the user's default store."
    ).tag(config=True)
    poll_s = Float(0.1, min=0.02, help="Interval in seconds at which the store is polled.").tag(
        config=True
    )

    static_paths = [str(STATIC), *_plotly_folder()]

    @classmethod
    def get_extension_package(cls) -> str:
        """Return the name of the extension's package: `workbench` itself is not an extension."""
        return "workbench.views.server"

    def initialize_settings(self) -> None:
        """Create the objects that the handlers share."""
        url = self.store_url or None
        feed = Feed(lambda: Store.open(url), self.poll_s)
        root = Path(self.serverapp.root_dir) if self.serverapp is not None else Path.cwd()
        actions = ActionRunner(feed, root)
        shared: dict[str, Any] = {
            "workbench_feed": feed,
            "workbench_actions": actions,
            "workbench_tiers": TiersProcesses(actions),
            "workbench_renderer": FigureRenderer(feed),
            "workbench_live": set(),
            # Separate, so that a store that does not respond blocks no other extension's threads.
            "workbench_threads": ThreadPoolExecutor(_NUM_THREADS, thread_name_prefix="workbench"),
            # Slow work never delays quick requests.
            "workbench_slow_threads": ThreadPoolExecutor(
                _NUM_THREADS, thread_name_prefix="workbench-slow"
            ),
        }
        self.settings.update(shared)

    def initialize_handlers(self) -> None:
        """Register the routes."""
        api = "/workbench/api"
        self.handlers.extend(
            [
                (r"/workbench/?", PageHandler),
                (rf"{api}/live", LiveSocket),
                (rf"{api}/tiers", TiersSocket),
                (rf"{api}/update", UpdateHandler),
                (rf"{api}/runs", RunsHandler),
                (rf"{api}/matching-runs", MatchingRunsHandler),
                (rf"{api}/runs/{_RUN}", RunHandler),
                (rf"{api}/runs/{_RUN}/size", SizeHandler),
                (rf"{api}/runs/{_RUN}/trials\.csv", TrialsHandler),
                (rf"{api}/runs/{_RUN}/events", EventsHandler),
                (rf"{api}/runs/{_RUN}/trials/(?P<trial>[0-9]{{1,9}})", TrialHandler),
                (rf"{api}/runs/{_RUN}/trials/(?P<trial>[0-9]{{1,9}})/log", TrialLogHandler),
                (
                    rf"{api}/runs/{_RUN}/trials/(?P<trial>[0-9]{{1,9}})/attachments/{_FILE}",
                    AttachmentHandler,
                ),
                (rf"{api}/runs/{_RUN}/log", RunLogHandler),
                (rf"{api}/runs/{_RUN}/figures/(?P<figure>[a-z_]{{1,40}})", FigureHandler),
                (rf"{api}/runs/{_RUN}/report", ReportHandler),
                (rf"{api}/drafts/(?P<key>[0-9a-f]{{32}})", DraftHandler),
                (rf"{api}/experiments", ExperimentsHandler),
                (rf"{api}/actions", ActionsHandler),
                (rf"{api}/snippets", SnippetHandler),
                (rf"{api}/.*", MissingHandler),
            ]
        )

    async def stop_extension(self) -> None:
        """Close the store, and stop all threads and processes."""
        settings: dict[str, Any] = self.settings
        for connection in list(settings["workbench_live"]):
            await connection.end()
        await settings["workbench_tiers"].close()
        settings["workbench_renderer"].close()
        settings["workbench_feed"].close()
        for name in ("workbench_threads", "workbench_slow_threads"):
            settings[name].shutdown(wait=False, cancel_futures=True)


main = WorkbenchExtension.launch_instance
"""The entry point of `jupyter workbench`: a server that opens on the live view."""
