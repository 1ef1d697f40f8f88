"""What tests in a real browser need.

Chromium, Jupyter servers of their own, and runs to look at.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import urllib.request
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.services.ports import free_port
from tests.services.waiting import wait_until
from workbench.cluster.head.ray_startup.sitecustomize import FOLDER

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
    "() => window.jupyterapp.shell.currentWidget.context?.sessionContext?.session?.kernel?.status"
    " === 'idle'"
)
ELSEWHERE = re.compile(r"^https?://(?!127\.0\.0\.1|localhost)")
TOKEN = "a-token-of-the-tests"


class Jupyter:
    """A Jupyter server with folders, port and token of its own.

    It can be killed and started again.
    """

    def __init__(
        self,
        folder: Path,
        *,
        application: str = "lab",
        python: str = "",
        has_extension: bool = True,
    ) -> None:
        """Make the folders of a server.

        Args:
            folder: For everything that it keeps.
            application: lab or notebook.
            python: An environment with the workbench installed; empty for this one, with what was
                built last.
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
        # JupyterLab would fetch its news from outside and show them above the page. Its check of
        # whether it must be rebuilt starts Node for every page.
        config = self.folder / "config" / "labconfig"
        config.mkdir(parents=True)
        disabled = {"@jupyterlab/apputils-extension:announcements": True}
        if not self.has_extension:
            disabled["@workbench/lab"] = True
        page_config = {
            "disabledExtensions": disabled,
            "buildAvailable": "false",
            "buildCheck": "false",
        }
        (config / "page_config.json").write_text(json.dumps(page_config))
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
            # Jupyter compiles the grammar, too.
            **({} if self.python else {"PYTHONPATH": os.pathsep.join((FOLDER, str(ROOT)))}),
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
            self.python or sys.executable,
            "-m",
            module,
            "--allow-root",
            "--no-browser",
            "--ip=127.0.0.1",
            f"--port={self.port}",
            "--ServerApp.port_retries=0",
            f"--ServerApp.root_dir={self.root}",
            f"--IdentityProvider.token={TOKEN}",
            "--LabApp.expose_app_in_browser=True",
            "--JupyterNotebookApp.expose_app_in_browser=True",
            *(
                []
                if self.python
                else ["--ServerApp.jpserver_extensions={'workbench.views.server': True}"]
            ),
        ]
        log = (self.folder / "jupyter.log").open("ab")
        self._process = subprocess.Popen(
            command,
            cwd=self.root,
            env=self.environment,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
        wait_until(self._answers)
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
        """End the server at once and its kernels with it, as a crash of the machine's session
        would.
        """
        if self._process is not None and self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
        self._process = None

    def stop(self) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
            try:
                self._process.wait(120)
            except subprocess.TimeoutExpired:
                self.kill()
        self._process = None
        if (self.folder / "home").exists():  # a run was started here
            command = [self.python or sys.executable, "-m", "workbench", "shutdown"]
            subprocess.run(
                command, env=self.environment, capture_output=True, timeout=120, check=True
            )

    def request(self, path: str, **options: Any) -> Any:
        """Ask the server as its owner; answer the JSON that it sends."""
        headers = {"Authorization": f"token {TOKEN}", **options.pop("headers", {})}
        wanted = urllib.request.Request(self.url + path, headers=headers, **options)
        with urllib.request.urlopen(wanted, timeout=120) as answer:
            text = answer.read()
        return json.loads(text) if text else None


@contextmanager
def chromium() -> Iterator[Any]:
    """A browser; nothing outside this machine is reached from its pages."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=CHROMIUM, headless=True, args=ARGUMENTS
        )
        yield browser
        browser.close()


def new_page(browser: Any, **options: Any) -> Any:
    """A page of a person of its own, whose complaints are kept in `page.complaints`."""
    context = browser.new_context(viewport={"width": 1400, "height": 900}, **options)
    # A pattern and no function: each request would otherwise wait for this process.
    context.route(ELSEWHERE, lambda route: route.abort())
    page = context.new_page()
    page.set_default_timeout(120_000)
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
    evaluated = page.evaluate("async (selector) => (await axe.run(selector)).violations", selector)
    return [f"{item['id']}: {item['nodes'][0]['html'][:200]}" for item in evaluated]
