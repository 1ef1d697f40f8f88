from __future__ import annotations

import json
import queue
import time
from pathlib import Path

import pytest

import workbench as wb
from tests.builders.frames import read_frame
from tests.builders.recorded_runs import record_run
from tests.services.waiting import wait_until
from workbench.foundation.errors import WorkbenchError
from workbench.views.widgets import live_view


@pytest.fixture
def built(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "widget.js"
    path.write_text("export default { render() {} }")
    monkeypatch.setattr(live_view, "_VIEW", path)
    return path


def test_a_run_becomes_a_widget_that_brings_view_and_snapshot(tmp_path: Path, built: Path) -> None:
    run_id = record_run(tmp_path)

    shown = wb.live(run_id, store=str(tmp_path / "store.sqlite"), height=300)

    assert (shown.run_id, shown.height, shown._esm) == (run_id, 300, built.read_text())
    assert "trial 1: val_accuracy = 0.95" in shown.snapshot
    forms, _ = shown._repr_mimebundle_() or ({}, {})
    assert forms["application/vnd.jupyter.widget-view+json"]["model_id"] == shown.model_id
    assert forms["text/html"] == shown.snapshot


def test_without_a_built_front_end_there_is_an_error_in_words(tmp_path: Path, built: Path) -> None:
    run = wb.attach(record_run(tmp_path), store=str(tmp_path / "store.sqlite"))
    built.unlink()

    with pytest.raises(WorkbenchError, match=r"not built.*make front-end"):
        wb.live(run)


@pytest.mark.slow
def test_two_views_of_a_widget_are_sent_what_each_of_them_shows(
    tmp_path: Path, built: Path
) -> None:
    run_id = record_run(tmp_path)
    shown = wb.live(run_id, store=str(tmp_path / "store.sqlite"))
    sent: dict[str, queue.Queue[bytes]] = {"left": queue.Queue(), "right": queue.Queue()}
    shown.send = lambda content, buffers: sent[content["view"]].put(buffers[0])  # pyright: ignore
    looks = {"left": {"run": run_id, "table": {"limit": 1}}, "right": {"runs": {}}}
    try:
        for view, look in looks.items():
            said = json.dumps({"type": "subscribe", "number": 1, "subscription": look})
            shown._handle_custom_msg({"view": view, "message": said}, [])
        seen: dict[str, set[str]] = {"left": set(), "right": set()}
        while not (seen["left"] >= {"run", "table"} and "runs" in seen["right"]):
            for view, told in seen.items():
                if sent[view].empty():
                    time.sleep(0.02)
                    continue
                head = read_frame(sent[view].get()).head
                told.update(head)
                said = json.dumps({"type": "acknowledge", "frame": head["frame"]})
                shown._handle_custom_msg({"view": view, "message": said}, [])
        assert "runs" not in seen["left"]
        assert not {"run", "table"} & seen["right"]
        left, right = (shown._senders._of_views[view] for view in ("left", "right"))
        shown._handle_custom_msg({"view": "left"}, [])
        ends_soon(left)
        assert right.is_alive
    finally:
        shown.close()
    ends_soon(right)


def ends_soon(sender: live_view.KernelSender) -> None:
    wait_until(lambda: not sender.is_alive)


def test_a_kernel_sends_frames_one_at_a_time_and_nothing_to_who_says_nonsense(
    tmp_path: Path,
) -> None:
    run = wb.attach(record_run(tmp_path), store=str(tmp_path / "store.sqlite"))
    sent: queue.Queue[bytes] = queue.Queue()
    sender = live_view.KernelSender(run, sent.put)
    try:
        sender.receive("nonsense")
        look = {"run": run.run_id, "chart": {}, "table": {}}
        sender.receive(json.dumps({"type": "subscribe", "number": 1, "subscription": look}))
        first = read_frame(sent.get(timeout=120))
        assert first.head["run"]["run_id"] == run.run_id
        with pytest.raises(queue.Empty):
            sent.get(timeout=1.5)
        sender.receive(json.dumps({"type": "acknowledge", "frame": first.head["frame"]}))
        seen = dict(first.head)
        while seen.get("table", {}).get("total") != 5:
            frame = read_frame(sent.get(timeout=120))
            seen |= frame.head
            sender.receive(json.dumps({"type": "acknowledge", "frame": frame.head["frame"]}))
        assert seen["run"]["best"]["trial"] == 1
    finally:
        sender.close()
    ends_soon(sender)
