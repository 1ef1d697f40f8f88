"""The installed package in other places than the newest JupyterLab.

Older, Notebook 7, behind a hub.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest

from tests.builders.notebooks import write_notebook
from tests.builders.recorded_runs import finished_run
from tests.services.jupyter_lab import (
    ROOT,
    TOKEN,
    Jupyter,
    execute,
    lab_is_there,
    new_page,
    open_lab,
)
from tests.services.live_run import LiveRun
from tests.services.ports import free_port
from tests.services.waiting import wait_until

pytestmark = [pytest.mark.browser, pytest.mark.slow, pytest.mark.timeout(900)]

OLDEST_LAB, THIS_LAB = "jupyterlab==4.2.*", f"jupyterlab=={version('jupyterlab')}"
CHART = re.compile("best so far 0")


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    pip(sys.executable, "wheel", "--no-deps", "--wheel-dir", str(folder), str(ROOT))
    return next(folder.glob("tuning_workbench-*.whl"))


def pip(python: str, *words: str) -> None:
    done = subprocess.run([python, "-m", "pip", *words], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]


def environment(folder: Path, wheel: Path, *packages: str) -> str:
    """Make an environment with the package installed, and beside it what this environment has.

    What is installed here is found there by its path only, so that the package is the installed
    one, and its extensions are those in the environment's own folders.
    """
    subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
    python = str(folder / "bin" / "python")
    done = subprocess.run(
        [python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"],
        check=True,
        capture_output=True,
        text=True,
    )
    (Path(done.stdout.strip()) / "beside.pth").write_text(sysconfig.get_path("purelib") + "\n")
    pip(python, "install", "--no-deps", "--force-reinstall", str(wheel))
    if packages:
        pip(python, "install", *packages)
    return python


def see_runs(page: Any, jupyter: Jupyter) -> None:
    """A panel, a tab and a cell, each with a live picture."""
    with LiveRun(jupyter.store_url) as live:
        write_notebook(
            jupyter.root, "live.ipynb", f"import workbench as wb\nwb.attach('{live.run_id}')"
        )
        open_lab(page, jupyter, "live.ipynb")
        execute(page, "workbench:show-panel")
        page.locator("#workbench-panel").get_by_role("img", name=CHART).wait_for()
        page.wait_for_selector(".jp-NotebookPanel .jp-Cell")
        page.wait_for_timeout(3000)
        execute(page, "notebook:run-all-cells")
        page.locator(".jp-OutputArea .workbench-cell").get_by_role("img", name=CHART).wait_for()
        execute(page, "workbench:open", run=live.run_id)
        page.locator(".jp-MainAreaWidget .workbench-wide").get_by_role("img", name=CHART).wait_for()


def test_the_installed_package_shows_runs_in_the_oldest_jupyterlab(
    live_browser, wheel, tmp_path
) -> None:
    python = environment(tmp_path / "venv", wheel, "--no-deps", OLDEST_LAB)
    jupyter = Jupyter(tmp_path / "jupyter", python=python).start()
    page = new_page(live_browser)
    try:
        see_runs(page, jupyter)
        assert page.evaluate("() => window.jupyterapp.version").startswith("4.2.")
        assert page.complaints == []
    finally:
        page.context.close()
        jupyter.stop()


def test_notebook_7_shows_a_cell_live_and_opens_the_page_for_the_rest(
    live_browser, wheel, tmp_path
) -> None:
    # Notebook finds the settings of JupyterLab in its own environment only.
    python = environment(
        tmp_path / "venv", wheel, "--no-deps", "--ignore-installed", "notebook>=7,<8", THIS_LAB
    )
    jupyter = Jupyter(tmp_path / "jupyter", application="notebook", python=python).start()
    page = new_page(live_browser)
    try:
        with LiveRun(jupyter.store_url) as live:
            write_notebook(
                jupyter.root, "live.ipynb", f"import workbench as wb\nwb.attach('{live.run_id}')"
            )
            page.goto(f"{jupyter.url}notebooks/live.ipynb?token={TOKEN}")
            lab_is_there(page)
            page.wait_for_selector(".jp-NotebookPanel .jp-Cell")
            page.wait_for_timeout(3000)
            execute(page, "notebook:run-all-cells")
            cell = page.locator(".jp-OutputArea .workbench-cell")
            cell.get_by_role("img", name=CHART).wait_for()
            with page.context.expect_page() as opened:
                execute(page, "workbench:open", run=live.run_id)
            opened.value.get_by_role("img", name=CHART).wait_for()
            assert opened.value.url == f"{jupyter.url}workbench#run={live.run_id}"
    finally:
        page.context.close()
        jupyter.stop()


HUB = """
c.JupyterHub.ip = "127.0.0.1"
c.JupyterHub.port = {port}
c.JupyterHub.hub_port = {hub_port}
c.JupyterHub.authenticator_class = "dummy"
c.DummyAuthenticator.password = "secret"
c.Authenticator.allow_all = True
c.JupyterHub.spawner_class = "simple"
c.Spawner.cmd = [{python!r}, "-m", "jupyterhub.singleuser"]
c.Spawner.args = [
    "--allow-root",
    "--LabApp.expose_app_in_browser=True",
    "--ServerApp.jpserver_extensions={{'jupyterlab': True}}",
]
c.Spawner.environment = {environment!r}
c.Spawner.default_url = "/lab"
# Thirty seconds, the hub's own limit, are too few on a busy machine.
c.Spawner.start_timeout = c.Spawner.http_timeout = 600
c.Spawner.notebook_dir = {root!r}
c.ConfigurableHTTPProxy.command = {proxy!r}
c.ConfigurableHTTPProxy.api_url = "http://127.0.0.1:{api_port}"
c.JupyterHub.cookie_secret_file = {folder!r} + "/cookie"
c.JupyterHub.db_url = "sqlite:///" + {folder!r} + "/hub.sqlite"
"""


@pytest.fixture
def hub(tmp_path: Path, wheel: Path) -> Iterator[tuple[str, str]]:
    """A JupyterHub behind its proxy; its address, and the store of its users."""
    python = environment(tmp_path / "venv", wheel, "jupyterhub>=5")
    node = tmp_path / "node"
    install = [
        "npm",
        "install",
        "--no-fund",
        "--no-audit",
        "--prefix",
        str(node),
        "configurable-http-proxy",
    ]
    subprocess.run(install, check=True, capture_output=True)
    jupyter = Jupyter(tmp_path / "jupyter", python=python)  # for its folders
    settings = {
        "port": free_port(),
        "hub_port": free_port(),
        "api_port": free_port(),
        "python": python,
        "environment": jupyter.environment,
        "root": str(jupyter.root),
        "proxy": [
            shutil.which("node"),
            str(node / "node_modules" / ".bin" / "configurable-http-proxy"),
        ],
        "folder": str(tmp_path),
    }
    (tmp_path / "hub.py").write_text(HUB.format(**settings))
    log = (tmp_path / "hub.log").open("wb")
    process = subprocess.Popen(
        [python, "-m", "jupyterhub", "-f", str(tmp_path / "hub.py")],
        cwd=tmp_path,
        env=jupyter.environment,
        stdout=log,
        stderr=log,
        start_new_session=True,
    )
    yield f"http://127.0.0.1:{settings['port']}/", jupyter.store_url
    os.killpg(process.pid, signal.SIGTERM)
    process.wait(120)


def test_behind_a_hub_and_its_proxy_runs_are_seen_and_asked_for(live_browser, hub) -> None:
    url, store_url = hub
    run_id = finished_run(store_url, name="hubbed")
    page = new_page(live_browser)

    def is_up() -> bool:
        try:
            return page.goto(f"{url}hub/login?next=/hub/spawn").ok
        except Exception:  # nobody listens yet
            return False

    wait_until(is_up, every_s=1)
    sign_in(page, "ann@x")
    page.wait_for_url(re.compile(r"^[^?]*/user/[^?]*/lab"), timeout=600_000)
    lab_is_there(page)
    execute(page, "workbench:show-panel")
    panel = page.locator("#workbench-panel")
    panel.get_by_role("img", name=CHART).wait_for()
    execute(page, "workbench:open", run=run_id)
    page.locator(".jp-MainAreaWidget .workbench-wide").get_by_role("img", name=CHART).wait_for()

    # What changes something is refused by the run, not by a missing token of the page.
    tab = page.locator(".jp-MainAreaWidget .workbench-wide")
    tab.get_by_role("button", name=re.compile("^More")).click()
    more = tab.get_by_role("group", name="More")
    more.get_by_role("button", name=re.compile("^Extend")).click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Trials").fill("-3")
    dialog.get_by_role("button", name=re.compile("^Extend")).click()
    dialog.get_by_role("alert").get_by_text(re.compile("trials")).first.wait_for()
    assert "XSRF" not in dialog.inner_text()

    page.goto(re.sub("/lab.*", f"/workbench#run={run_id}", page.url))
    page.get_by_role("img", name=CHART).wait_for()
    assert "/user/" in page.url

    other = new_page(live_browser)
    other.goto(f"{url}hub/login?next=/hub/home")
    sign_in(other, "bob")
    other.wait_for_url(re.compile("^[^?]*/hub/home"))  # the page to sign in names it, too
    other.goto(page.url)  # its script leads to the login, so that what stands behind # is kept
    other.get_by_text("403").first.wait_for()
    assert "hubbed" not in other.content()
    for path in ("workbench/api/runs", f"workbench/api/runs/{run_id}"):
        answer = other.goto(re.sub("/workbench.*", f"/{path}", page.url))
        assert answer.status == 403
        assert "hubbed" not in other.content()
    other.context.close()
    page.context.close()


def sign_in(page: Any, name: str) -> None:
    page.get_by_label("Username").fill(name)
    page.get_by_label("Password").fill("secret")
    page.get_by_role("button", name=re.compile("sign in", re.IGNORECASE)).click()
