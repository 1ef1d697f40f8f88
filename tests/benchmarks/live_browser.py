"""A Jupyter server and a Chromium for the benchmark of the live view, each as people run them."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

TOKEN = "token"
CHROMIUM = shutil.which("chromium")
_ARGUMENTS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


@dataclass(frozen=True)
class Server:
    """A server process that is up."""

    url: str
    process: psutil.Process

    def cpu_s(self) -> float:
        """Return the seconds that it has been on a CPU."""
        times = self.process.cpu_times()
        return times.user + times.system

    @property
    def memory_bytes(self) -> int:
        """What it keeps in memory."""
        return self.process.memory_info().rss


def free_port() -> int:
    """Return a port that nobody listens to."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


@contextlib.contextmanager
def serving(folder: Path, command: list[str], url: str, within_s: float = 60.0) -> Iterator[Server]:
    """Run a server process until the end of the block.

    Args:
        folder: Where it works and writes what it says.
        command: What to run.
        url: What answers when it is up.
        within_s: How long that may take.
    """
    environment = os.environ | {
        "JUPYTER_CONFIG_DIR": str(folder / "config"),
        "JUPYTER_RUNTIME_DIR": str(folder / "runtime"),
        "WORKBENCH_HOME": str(folder / "home"),
        "PYTHONPATH": os.pathsep.join(
            [str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH", "")]
        ),
    }
    with (folder / "server.log").open("ab") as log:
        process = subprocess.Popen(command, cwd=folder, env=environment, stdout=log, stderr=log)
    try:
        until_s = time.monotonic() + within_s
        while not _answers(url):
            assert process.poll() is None, (folder / "server.log").read_text()[-2000:]
            assert time.monotonic() < until_s, f"{command} did not answer in {within_s:.0f} s"
            time.sleep(0.1)
        yield Server(url, psutil.Process(process.pid))
    finally:
        process.terminate()
        try:
            process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            process.kill()


def jupyter(folder: Path, store: str = "", application: str = "server") -> Any:
    """Run a Jupyter server with the workbench until the end of the block.

    `application` may be lab.
    """
    port = free_port()
    command = [
        sys.executable,
        "-m",
        "jupyter",
        application,
        "--allow-root",
        "--no-browser",
        "--ip=127.0.0.1",
        f"--port={port}",
        f"--IdentityProvider.token={TOKEN}",
        "--ServerApp.jpserver_extensions={'workbench.views.server': True}",
        f"--WorkbenchExtension.store_url={store}",
        "--LabApp.expose_app_in_browser=True",
    ]
    return serving(folder, command, f"http://127.0.0.1:{port}/")


@contextlib.contextmanager
def browsing() -> Iterator[Any]:
    """Run a Chromium until the end of the block."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=CHROMIUM, headless=True, args=_ARGUMENTS
        )
        yield browser
        browser.close()


@contextlib.contextmanager
def page_of(browser: Any, script: str = "") -> Iterator[Any]:
    """Open a page without a past, and close it at the end of the block.

    `script` runs before its own.
    """
    context = browser.new_context(viewport={"width": 1400, "height": 900})
    context.add_init_script(script)
    try:
        yield context.new_page()
    finally:
        context.close()


def heap_bytes(page: Any) -> int:
    """Return what a page's JavaScript keeps, after its garbage was collected."""
    session = page.context.new_cdp_session(page)
    session.send("HeapProfiler.collectGarbage")
    session.send("Performance.enable")
    metrics = {
        metric["name"]: metric["value"]
        for metric in session.send("Performance.getMetrics")["metrics"]
    }
    return int(metrics["JSHeapUsedSize"])


def _answers(url: str) -> bool:
    try:
        urllib.request.urlopen(url, timeout=5).close()
    except (OSError, TimeoutError):
        return False
    return True
