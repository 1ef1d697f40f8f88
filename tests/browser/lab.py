"""What tests in a real browser need: Chromium, Jupyter servers of their own, and runs to look at."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.request
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.run.recorded import EXPERIMENT, append, begin, finish, trial_events
from workbench.events import Event, TrialReported
from workbench.experiment import Experiment
from workbench.store import Store

ROOT = Path(__file__).parents[2]
EXTENSIONS = ROOT / "extensions"
AXE = EXTENSIONS / "node_modules" / "axe-core" / "axe.min.js"
BUILT = EXTENSIONS / "labextension" / "package.json"
CHROMIUM = shutil.which("chromium")
ARGUMENTS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
KERNEL_IS_IDLE = (
    "() => window.jupyterapp.shell.currentWidget.context?.sessionContext?.session?.kernel?.status === 'idle'"
)
ELSEWHERE = re.compile(r"^https?://(?!127\.0\.0\.1|localhost)")
TOKEN = "a-token-of-the-tests"


def wait_until(is_true: Callable[[], Any], timeout_s: float = 30.0, every_s: float = 0.1) -> Any:
    """Wait for something outside the browser to become true and return it."""
    deadline = time.monotonic() + timeout_s
    while not (found := is_true()):
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(every_s)
    return found


def free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return taken.getsockname()[1]


class Jupyter:
    """A Jupyter server with folders, port and token of its own; it can be killed and started again."""

    def __init__(
        self, folder: Path, *, application: str = "lab", python: str = "", has_extension: bool = True
    ) -> None:
        """Make the folders of a server.

        Args:
            folder: For everything that it keeps.
            application: lab or notebook.
            python: An environment with the workbench installed; empty for this one, with what was built last.
            has_extension: Whether JupyterLab finds our extension.
        """
        self.folder = folder
        self.application = application
        self.python = python
        self.has_extension = has_extension
        self.port = free_port()
        self.root = folder / "root"
        self.root.mkdir(parents=True)
        self.store_url = str(folder / "store.sqlite")
        self._process: subprocess.Popen[bytes] | None = None
        self._prepare()

    def _prepare(self) -> None:
        # The news of JupyterLab would be asked for outside, and lie over what is looked at.
        config = self.folder / "config" / "labconfig"
        config.mkdir(parents=True)
        disabled = {"@jupyterlab/apputils-extension:announcements": True}
        if not self.has_extension:
            disabled["@workbench/lab"] = True
        (config / "page_config.json").write_text(json.dumps({"disabledExtensions": disabled}))
        # What was built last, whatever is installed.
        if not self.python:
            built = self.folder / "share" / "labextensions" / "@workbench"
            built.mkdir(parents=True)
            (built / "lab").symlink_to(EXTENSIONS / "labextension")

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/"

    @property
    def environment(self) -> dict[str, str]:
        inherited = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        return inherited | {
            **({} if self.python else {"PYTHONPATH": str(ROOT)}),
            "WORKBENCH_STORE": self.store_url,
            "WORKBENCH_HOME": str(self.folder / "home"),
            "JUPYTER_CONFIG_DIR": str(self.folder / "config"),
            "JUPYTER_DATA_DIR": str(self.folder / "data"),
            "JUPYTER_RUNTIME_DIR": str(self.folder / "runtime"),
            "JUPYTER_PATH": str(self.folder / "share"),
            "IPYTHONDIR": str(self.folder / "ipython"),
        }

    def start(self) -> Jupyter:
        """Start the server where it is not up."""
        if self._process is not None and self._process.poll() is None:
            return self
        module = {"lab": "jupyterlab"}.get(self.application, self.application)
        command = [
            self.python or sys.executable, "-m", module, "--allow-root", "--no-browser", "--ip=127.0.0.1",
            f"--port={self.port}", "--ServerApp.port_retries=0", f"--ServerApp.root_dir={self.root}",
            f"--IdentityProvider.token={TOKEN}", "--LabApp.expose_app_in_browser=True",
            "--JupyterNotebookApp.expose_app_in_browser=True",
            *([] if self.python else ["--ServerApp.jpserver_extensions={'workbench.server': True}"]),
        ]  # fmt: skip
        log = (self.folder / "jupyter.log").open("ab")
        self._process = subprocess.Popen(
            command, cwd=self.root, env=self.environment, stdout=log, stderr=log, start_new_session=True
        )
        wait_until(self._answers, timeout_s=60)
        return self

    def _answers(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, (self.folder / "jupyter.log").read_text()[-4000:]
        try:
            with urllib.request.urlopen(f"{self.url}api?token={TOKEN}", timeout=2) as answer:
                return answer.status == 200
        except OSError:
            return False

    def kill(self) -> None:
        """End the server at once and its kernels with it, as a crash of the machine's session would."""
        if self._process is not None and self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
        self._process = None

    def stop(self) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
            try:
                self._process.wait(15)
            except subprocess.TimeoutExpired:
                self.kill()
        self._process = None
        if (self.folder / "home").exists():  # a run was started here
            command = [self.python or sys.executable, "-m", "workbench.cli", "shutdown"]
            subprocess.run(command, env=self.environment, capture_output=True, timeout=60, check=True)

    def request(self, path: str, **options: Any) -> Any:
        """Ask the server as its owner; answer the JSON that it sends."""
        headers = {"Authorization": f"token {TOKEN}", **options.pop("headers", {})}
        wanted = urllib.request.Request(self.url + path, headers=headers, **options)
        with urllib.request.urlopen(wanted, timeout=60) as answer:
            text = answer.read()
        return json.loads(text) if text else None


@contextmanager
def chromium() -> Iterator[Any]:
    """A browser; nothing outside this machine is reached from its pages."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, headless=True, args=ARGUMENTS)
        yield browser
        browser.close()


def new_page(browser: Any, **options: Any) -> Any:
    """A page of a person of its own, whose complaints are kept in `page.complaints`."""
    context = browser.new_context(viewport={"width": 1400, "height": 900}, **options)
    # A pattern and no function: each request would otherwise wait for this process.
    context.route(ELSEWHERE, lambda route: route.abort())
    page = context.new_page()
    page.set_default_timeout(15_000)
    page.complaints = []
    page.on("pageerror", lambda error: page.complaints.append(error.stack or str(error)))
    return page


def open_lab(page: Any, jupyter: Jupyter, file: str = "") -> None:
    """Open JupyterLab as its owner, with a layout of its own; the token becomes a cookie."""
    workspace = f"lab/workspaces/{uuid.uuid4().hex}"
    page.goto(f"{jupyter.url}{workspace}{f'/tree/{file}' if file else ''}?token={TOKEN}")
    lab_is_there(page)


def lab_is_there(page: Any) -> None:
    page.wait_for_selector("#jp-main-dock-panel, #main-panel")
    page.wait_for_function("() => window.jupyterapp && window.jupyterapp.commands")
    page.evaluate("async () => { await window.jupyterapp.restored; }")


def execute(page: Any, command: str, **arguments: Any) -> None:
    """Execute a command of JupyterLab without waiting for its end."""
    page.evaluate(
        "([command, args]) => { void window.jupyterapp.commands.execute(command, args); }",
        [command, arguments],
    )


def run_all(page: Any, jupyter: Jupyter, name: str) -> None:
    open_lab(page, jupyter, name)
    page.wait_for_selector(".jp-NotebookPanel .jp-Cell")
    page.wait_for_function(KERNEL_IS_IDLE)
    execute(page, "notebook:run-all-cells")


def violations(page: Any, selector: str) -> list[str]:
    """Ask axe-core about our nodes only: JupyterLab's own page has its own."""
    if not AXE.exists():
        pytest.skip("axe-core is not installed: make front-end")
    page.add_script_tag(path=str(AXE))
    found = page.evaluate("async (selector) => (await axe.run(selector)).violations", selector)
    return [f"{item['id']}: {item['nodes'][0]['html'][:200]}" for item in found]


class LiveRun:
    """A run that is written to as a driver does, at a steady pace, until it is told to end."""

    def __init__(self, url: str, *, num_trials: int = 4, reports_per_s: float = 40.0) -> None:
        self._url, self._num_trials, self._pause_s = url, num_trials, 1 / reports_per_s
        self._ending = threading.Event()
        self._failing: list[int] = []
        self._telling: list[list[Event]] = []
        self.run_id = ""
        self.steps = 0
        self._thread = threading.Thread(target=self._write)

    def __enter__(self) -> LiveRun:
        with Store.open(self._url) as store:
            self.run_id = store.create_run(Experiment(**{**EXPERIMENT, "name": "under-load"}))
        self._thread.start()
        wait_until(lambda: self.steps > 2)
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def fail_trial(self, trial: int) -> None:
        """Let a trial fail with the next reports."""
        self._failing.append(trial)

    def tell(self, *events: Event) -> None:
        """Store some events together."""
        self._telling.append(list(events))

    def end(self) -> None:
        self._ending.set()
        self._thread.join()

    def _write(self) -> None:
        with (
            Store.open(self._url) as store,
            store.writer(self.run_id, owner_pid=os.getpid(), owner_host=socket.gethostname()) as writer,
        ):
            writer.append(*begin())
            running = list(range(self._num_trials))
            for trial in running:
                writer.append(*trial_events(trial, at_s=trial * 0.1, state="running")[:2])
            while not self._ending.wait(self._pause_s):
                self.steps += 1
                writer.append(*(self._report(trial) for trial in running))
                while self._telling:
                    writer.append(*self._telling.pop())
                while self._failing:
                    failed = self._failing.pop()
                    running.remove(failed)
                    writer.append(trial_events(failed, at_s=1, state="failed", reason="error")[-1])
            writer.append(*finish(9, "stopped", "stopped"))

    def _report(self, trial: int) -> TrialReported:
        accuracy = 1 - 1 / (1 + 0.02 * self.steps * (trial + 1))
        return TrialReported(
            trial=trial, step=self.steps, values={"val_accuracy": accuracy}, samples_per_s=1000.0 + trial,
            time_unix_s=time.time(),
        )  # fmt: skip


def finished_run(url: str, **changes: Any) -> str:
    """Store a run that has ended, with a trial of every kind."""
    with Store.open(url) as store:
        run_id = store.create_run(Experiment(**{**EXPERIMENT, **changes}))
        events = [*begin()]
        for number, accuracy in enumerate((0.91, 0.95, 0.5, 0.8)):
            state = "pruned" if accuracy == 0.5 else "complete"
            events += trial_events(number, at_s=1 + number, state=state, accuracy=accuracy)
        events += trial_events(4, at_s=5, state="failed", reason="error")
        append(store, run_id, [*events, *finish(9)])
    return run_id


def notebook(folder: Path, name: str, *cells: str) -> None:
    """Write a notebook that was never run."""
    document = {
        "cells": [
            {"cell_type": "code", "id": f"cell-{index}", "metadata": {}, "source": cell, "outputs": [],
             "execution_count": None}
            for index, cell in enumerate(cells)
        ],
        "metadata": {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}},
        "nbformat": 4,
        "nbformat_minor": 5,
    }  # fmt: skip
    (folder / name).write_text(json.dumps(document))
