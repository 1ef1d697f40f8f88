"""The live view in a real JupyterLab and a real browser, with runs in a real store."""

from __future__ import annotations

import json
import re
import shutil
import struct
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from tests.builders.notebooks import write_notebook
from tests.builders.recorded_runs import finished_run
from tests.services.jupyter_lab import (
    KERNEL_IS_IDLE,
    ROOT,
    TOKEN,
    execute,
    lab_is_there,
    new_page,
    open_lab,
    run_all,
    violations,
)
from tests.services.live_run import LiveRun
from tests.services.waiting import wait_until
from workbench.foundation.events import AlertRaised, Noted
from workbench.store.database import Store

pytestmark = pytest.mark.browser

PANEL = "#workbench-panel"
TAB = ".jp-MainAreaWidget .workbench-wide"
OUTPUT = ".jp-OutputArea .workbench-cell"
SLOW_FUNCTION = """
import pathlib, subprocess, time

def train(config, report):
    child = subprocess.Popen(["sleep", "600"])
    (pathlib.Path(__file__).parent / f"{child.pid}.child").touch()
    for step in range(1, 2000):
        time.sleep(0.05)
        if report(step=step, loss=config["x"] / step):
            return
"""
SLOW_EXPERIMENT = """
name: slow
train: "slow_function:train"
objectives: [{metric: loss, goal: minimize}]
search: {x: {low: 1.0, high: 2.0}}
budget: {trials: 2}
resources: {concurrency: 1}
sampler: random
"""


class Points:
    """What a page was told of curves, put together from the frames as the protocol says."""

    def __init__(self, page: Any) -> None:
        self.curves: dict[int, list[tuple[float, float]]] = {}
        self.num_sockets = 0
        page.on("websocket", self._listen)

    def _listen(self, socket: Any) -> None:
        if "workbench/api/live" in socket.url:
            self.num_sockets += 1
            socket.on("framereceived", lambda payload: self._take(payload))

    def _take(self, frame: bytes | str) -> None:
        assert isinstance(frame, bytes)
        (length,) = struct.unpack_from("<I", frame)
        picture = json.loads(frame[4 : 4 + length])
        numbers = frame[4 + length :]
        for curve in (picture.get("chart") or {}).get("curves", ()):
            known = self.curves.setdefault(curve["trial"], [])
            assert curve["start"] <= len(known)
            x, y = (self._column(numbers, curve[name]) for name in ("x", "y"))
            known[curve["start"] :] = zip(x, y, strict=True)

    @staticmethod
    def _column(numbers: bytes, column: dict[str, Any]) -> tuple[float, ...]:
        letter = {"f32": "f", "f64": "d"}[column["type"]]
        return struct.unpack_from(f"<{column['count']}{letter}", numbers, column["offset"])


def show_panel(page: Any) -> Any:
    execute(page, "workbench:show-panel")
    page.wait_for_selector(f"{PANEL} .workbench-panel", state="visible")
    return page.locator(PANEL)


def restart_kernel(page: Any) -> None:
    page.evaluate(
        "() => { void"
        " window.jupyterapp.shell.currentWidget.context.sessionContext.restartKernel(); }"
    )
    page.wait_for_timeout(500)
    page.wait_for_function(KERNEL_IS_IDLE)


@pytest.mark.slow
def test_the_panel_opens_by_shortcut_palette_and_menu_and_the_tab_by_the_launcher(
    page, jupyter
) -> None:
    finished_run(jupyter.store_url)
    open_lab(page, jupyter)
    panel = page.locator(f"{PANEL} .workbench-panel")
    assert not panel.is_visible()

    page.locator("#jp-main-dock-panel").click()
    page.keyboard.press("Alt+Shift+W")
    panel.wait_for(state="visible")
    panel.get_by_text("digits-small").first.wait_for()

    execute(page, "filebrowser:activate")
    panel.wait_for(state="hidden")
    execute(page, "apputils:activate-command-palette")
    page.locator(".lm-CommandPalette-input").fill("runs panel")
    page.locator(".lm-CommandPalette-item", has_text="Show the runs panel").click()
    panel.wait_for(state="visible")

    execute(page, "filebrowser:activate")
    page.locator(".lm-MenuBar-item", has_text="View").click()
    page.locator(".lm-Menu-item", has_text="Workbench Panel").click()
    panel.wait_for(state="visible")

    if not page.locator(".jp-LauncherCard").count():
        execute(page, "launcher:create")
    page.locator(".jp-LauncherCard", has_text="Workbench").click()
    page.locator(TAB).wait_for(state="visible")
    assert not page.locator(".jp-Launcher").count(), "the tab takes the place of the launcher"


@pytest.mark.ray
@pytest.mark.slow
def test_a_run_is_started_by_clicking_and_its_points_arrive(page, jupyter) -> None:
    shutil.copy(ROOT / "search_spaces" / "digits.yaml", jupyter.root / "digits.yaml")
    points = Points(page)
    open_lab(page, jupyter)
    panel = show_panel(page)

    panel.get_by_role("button", name=re.compile("^Start")).click()
    dialog = page.get_by_role("dialog")
    choice = dialog.get_by_label("Experiment file")
    choice.select_option(value="digits.yaml")
    dialog.get_by_label("Settings").fill("training.epochs=3\nbudget.trials=3")
    dialog.get_by_role("button", name="Start", exact=True).click()

    tab = page.locator(TAB)
    tab.wait_for(state="visible")  # a Ray head starts
    tab.get_by_role("img", name=re.compile("val_accuracy.*best so far 0")).wait_for()
    wait_until(lambda: page.wait_for_timeout(200) or any(points.curves.values()))
    tab.locator(".workbench-head [role=status]", has_text="complete").wait_for()
    with Store.open(jupyter.store_url) as store:
        newest = store.run("last")
    assert newest.run_id.startswith("digits")
    assert newest.state == "complete"


@pytest.mark.slow
@pytest.mark.ray
def test_a_stopped_trial_takes_its_processes_along_and_the_one_that_was_added_follows(
    page, jupyter
) -> None:
    (jupyter.root / "slow_function.py").write_text(SLOW_FUNCTION)
    (jupyter.root / "slow.yaml").write_text(SLOW_EXPERIMENT)
    headers = {"Content-Type": "application/json"}
    action = json.dumps({"kind": "start", "arguments": {"path": "slow.yaml"}}).encode()
    run_id = jupyter.request("workbench/api/actions", data=action, method="POST", headers=headers)[
        "run_id"
    ]
    open_lab(page, jupyter)
    execute(page, "workbench:open", run=run_id)
    tab = page.locator(TAB)

    child = int(wait_until(lambda: next(jupyter.root.glob("*.child"), None)).stem)
    tab.get_by_role("button", name="Trial 0").last.click()
    tab.get_by_role("button", name=re.compile("^More")).first.click()
    page.locator(".workbench-menu-list button", has_text="Add a trial").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("x", exact=True).fill("3")
    dialog.get_by_role("button", name="Add a trial").click()
    dialog.get_by_text("3 is not an allowed value").wait_for()
    dialog.get_by_label("x", exact=True).fill("1.125")
    dialog.get_by_role("button", name="Add a trial").click()
    dialog.wait_for(state="hidden")
    trial = tab.get_by_role("complementary", name="Trial 0")
    trial.get_by_role("button", name=re.compile("Stop")).click()
    page.get_by_role("dialog").get_by_role("button", name=re.compile("Stop")).click()

    wait_until(lambda: page.wait_for_timeout(100) or not Path(f"/proc/{child}").exists())
    trial.get_by_text("stopped").first.wait_for()
    tab.get_by_role("row", name=re.compile(r"running.*1\.125")).wait_for()
    tab.get_by_role("button", name=re.compile("^Stop")).first.click()
    page.get_by_role("dialog").get_by_role("button", name=re.compile("^Stop")).click()
    with Store.open(jupyter.store_url) as store:
        wait_until(lambda: store.run(run_id).state == "stopped")


@pytest.mark.slow
def test_after_a_reload_everything_is_as_it_was_left(page, jupyter) -> None:
    first, second = (
        finished_run(jupyter.store_url, name=name) for name in ("reload-one", "reload-two")
    )
    open_lab(page, jupyter)
    panel = show_panel(page)
    panel.get_by_role("button", name=re.compile("reload-one")).click()
    execute(page, "workbench:open", run=second)
    tab = page.locator(TAB)
    tab.get_by_role("button", name="Trial 1").last.click()
    tab.get_by_role("tab", name="Events").click()
    page.wait_for_timeout(1500)  # JupyterLab saves its layout when a person pauses
    page.reload()
    lab_is_there(page)

    tab.get_by_role("tab", name="Events", selected=True).wait_for()
    tab.get_by_role("heading", name="reload-two").wait_for()
    tab.get_by_role("tab", name="Curves").click()
    tab.get_by_role("complementary", name="Trial 1").wait_for()
    panel.get_by_role("heading", name="reload-one").wait_for()
    assert first != second


@pytest.mark.slow
def test_a_killed_server_comes_back_under_load_without_gaps(page, jupyter) -> None:
    with LiveRun(jupyter.store_url, reports_per_s=30) as live:
        points = Points(page)
        open_lab(page, jupyter)
        execute(page, "workbench:open", run=live.run_id)
        chart = page.locator(TAB).get_by_role("img", name=re.compile("best so far"))
        chart.wait_for()
        wait_until(lambda: page.wait_for_timeout(100) or len(points.curves.get(3, ())) > 20)
        jupyter.kill()
        steps = live.steps
        page.locator(f"{TAB} .workbench-status-connection").wait_for()
        wait_until(lambda: live.steps > steps + 30)
        jupyter.start()
        sockets = points.num_sockets
        wait_until(lambda: page.wait_for_timeout(100) or points.num_sockets > sockets)
        live.end()

        def is_whole() -> bool:
            page.wait_for_timeout(100)
            return all(points.curves[trial][-1][0] == live.steps for trial in range(4))

        wait_until(is_whole)
    for trial in range(4):
        assert [x for x, _ in points.curves[trial]] == list(range(1, live.steps + 1))
    # JupyterLab's own plugins do not expect a server to die while they load; ours must.
    page.complaints[:] = [
        complaint for complaint in page.complaints if not is_of_jupyterlab(complaint)
    ]


def is_of_jupyterlab(complaint: str) -> bool:
    return complaint.startswith("TypeError: Failed to fetch") and "@workbench" not in complaint


def test_a_run_in_a_cell_is_live_whatever_becomes_of_the_kernel(page, jupyter) -> None:
    with LiveRun(jupyter.store_url) as live:
        points = Points(page)
        write_notebook(
            jupyter.root, "live.ipynb", f"import workbench as wb\nwb.attach('{live.run_id}')"
        )
        run_all(page, jupyter, "live.ipynb")
        output = page.locator(OUTPUT)
        output.get_by_role("img", name=re.compile("best so far")).wait_for()
        restart_kernel(page)
        known = len(points.curves[0])
        wait_until(lambda: page.wait_for_timeout(100) or len(points.curves[0]) > known + 20)
        assert output.get_by_role("img", name=re.compile("best so far")).is_visible()


@pytest.mark.slow
def test_a_saved_notebook_shows_its_run_without_a_kernel_and_its_snapshot_without_a_server(
    page, jupyter, live_browser, tmp_path
) -> None:
    run_id = finished_run(jupyter.store_url, name="kept")
    write_notebook(jupyter.root, "kept.ipynb", f"import workbench as wb\nwb.attach('{run_id}')")
    run_all(page, jupyter, "kept.ipynb")
    page.locator(OUTPUT).get_by_role("img", name=re.compile("best so far 0.95")).wait_for()
    assert violations(page, OUTPUT) == []
    execute(page, "docmanager:save")
    kept = jupyter.root / "kept.ipynb"
    wait_until(lambda: page.wait_for_timeout(100) or "image/svg+xml" in kept.read_text())
    again = new_page(live_browser)
    again.context.route(re.compile("/api/(kernels|sessions)"), lambda route: route.abort())
    open_lab(again, jupyter, "kept.ipynb")
    again.locator(OUTPUT).get_by_role("img", name=re.compile("best so far 0.95")).wait_for()
    again.context.close()

    lost = new_page(live_browser)
    lost.context.route(re.compile("/workbench/"), lambda route: route.abort())
    open_lab(lost, jupyter, "kept.ipynb")
    snapshot = lost.locator(f"{OUTPUT} img[alt='curves of kept']")
    snapshot.wait_for()
    assert snapshot.evaluate("image => image.complete && image.naturalWidth > 100")
    assert "val_accuracy = 0.95" in lost.locator(OUTPUT).inner_text()
    lost.context.close()


@pytest.mark.slow
def test_every_theme_is_followed_and_readable_for_all(page, jupyter) -> None:
    run_id = finished_run(jupyter.store_url, name="themed")
    open_lab(page, jupyter)
    panel = show_panel(page)
    execute(page, "workbench:open", run=run_id)
    tab = page.locator(TAB)
    for theme in ("JupyterLab Light", "JupyterLab Dark", "JupyterLab Dark High Contrast"):
        execute(page, "apputils:change-theme", theme=theme)
        page.wait_for_function("(theme) => document.body.dataset.jpThemeName === theme", arg=theme)
        tab.get_by_role("img", name=re.compile("best so far")).wait_for()
        page.wait_for_timeout(500)
        expected = "light" if "Light" in theme else "dark"
        assert panel.locator(".workbench").get_attribute("data-theme") == expected
        assert violations(page, PANEL) == [], theme
        assert violations(page, TAB) == [], theme


@pytest.mark.slow
def test_settings_say_where_the_panel_stands_and_how_a_chart_begins(page, jupyter) -> None:
    settings = jupyter.folder / "config/lab/user-settings/@workbench/lab/plugin.jupyterlab-settings"
    settings.parent.mkdir(parents=True, exist_ok=True)
    settings.write_text(json.dumps({"side": "right", "axis": "time"}))
    try:
        run_id = finished_run(jupyter.store_url, name="set")
        open_lab(page, jupyter)
        page.locator(f"#jp-right-stack {PANEL}").wait_for(state="attached")
        show_panel(page)
        execute(page, "workbench:open", run=run_id)
        axis = page.locator(TAB).get_by_label("Horizontal axis")
        axis.wait_for()
        assert axis.input_value() == "time"
    finally:
        settings.unlink()


@pytest.mark.slow
def test_every_view_of_a_run_is_readable_for_all(page, jupyter) -> None:
    shutil.copy(ROOT / "search_spaces" / "digits.yaml", jupyter.root / "digits.yaml")
    run_id = finished_run(jupyter.store_url, name="read")
    open_lab(page, jupyter)
    execute(page, "workbench:open", run=run_id)
    tab = page.locator(TAB)
    tab.get_by_role("button", name="Trial 1").last.click()
    tab.get_by_role("complementary", name="Trial 1").wait_for()
    for name in tab.get_by_role("tab").all_inner_texts():
        tab.get_by_role("tab", name=name).click()
        page.wait_for_timeout(800)
        assert violations(page, TAB) == [], name
    tab.get_by_role("button", name=re.compile("^Start")).click()
    page.get_by_role("dialog").locator("option[value='digits.yaml']").wait_for(state="attached")
    assert violations(page, "dialog[open]") == []


@pytest.mark.slow
def test_an_alert_becomes_a_notification(page, jupyter) -> None:
    with LiveRun(jupyter.store_url) as live:
        open_lab(page, jupyter)
        execute(page, "workbench:open", run=live.run_id)
        page.locator(TAB).get_by_role("img", name=re.compile("best so far")).wait_for()
        live.fail_trial(2)
        page.locator(".Toastify__toast", has_text="trial 2").first.wait_for()


@pytest.mark.slow
def test_an_alert_of_a_rule_is_told_once_with_what_it_speaks_of_whatever_its_level(
    page, jupyter
) -> None:
    rule = {"rule": "r", "to": ["jupyter"]}
    with LiveRun(jupyter.store_url) as live:
        open_lab(page, jupyter)
        execute(page, "workbench:open", run=live.run_id)
        page.locator(TAB).get_by_role("img", name=re.compile("best so far")).wait_for()
        noted = Noted(level="warning", message="it is hot", trial=1)
        raised = {"level": "warning", "message": "trial 1 is hot", "cause": "heat"}
        live.tell(noted, AlertRaised(alert=0, on="log", trial=1, **raised, **rule))
        good = {"level": "info", "message": "trial 3 reached the target", "cause": "target"}
        live.tell(AlertRaised(alert=1, on="target_reached", **good, **rule))
        for text in ("alert: trial 1 is hot", "alert: trial 3 reached the target"):
            page.locator(".Toastify__toast", has_text=text).wait_for()
        page.wait_for_timeout(1000)
        assert page.locator(".Toastify__toast").count() == 2
        page.locator(TAB).get_by_role("tab", name="Events").click()
        lines = page.locator(TAB).get_by_role("list", name="Events")
        lines.get_by_text("alert: trial 3 reached the target").wait_for()
        page.locator(TAB).get_by_label("only alerts").check()
        assert lines.get_by_role("listitem").count() == 3


@pytest.mark.slow
def test_nothing_runs_while_nobody_sees_the_view(page, jupyter) -> None:
    with LiveRun(jupyter.store_url):
        closed: list[str] = []
        page.on("websocket", lambda socket: socket.on("close", lambda _: closed.append(socket.url)))
        open_lab(page, jupyter)
        panel = show_panel(page)
        panel.get_by_role("img", name=re.compile("best so far")).wait_for()
        execute(page, "filebrowser:activate")
        wait_until(
            lambda: (
                page.wait_for_timeout(100) or [url for url in closed if "workbench/api/live" in url]
            )
        )


@pytest.mark.parametrize("address", ["workbench", "workbench?from=mail"])
def test_a_shared_link_still_names_its_run_after_the_login(live_browser, jupyter, address) -> None:
    linked = finished_run(jupyter.store_url, name="linked")
    finished_run(jupyter.store_url, name="newer")
    stranger = new_page(live_browser)
    stranger.goto(f"{jupyter.url}{address}#run={linked}")
    stranger.get_by_label("Password or token").fill(TOKEN)
    stranger.get_by_role("button", name="Log in", exact=True).click()
    stranger.get_by_role("heading", name="linked").wait_for()
    assert stranger.url == f"{jupyter.url}{address}#run={linked}"
    stranger.context.close()


def test_somebody_without_the_token_is_refused_everywhere(live_browser, jupyter) -> None:
    stranger = new_page(live_browser)
    answer = stranger.goto(f"{jupyter.url}workbench")
    stranger.wait_for_url("**/login?*")
    assert answer is not None
    assert answer.status == 401
    for path in ("workbench/api/runs", "workbench/api/experiments", "workbench/api/live"):
        with pytest.raises(urllib.error.HTTPError) as refused:
            urllib.request.urlopen(jupyter.url + path, timeout=120)
        assert refused.value.code == 403
    stranger.context.close()
