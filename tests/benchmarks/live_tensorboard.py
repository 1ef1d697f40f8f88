"""TensorBoard with one event file a trial, its page told to reload by itself, which it does every
30 s.

Counted is from before the values are written to the second frame after the answer that holds them
has come to the page; what its worker draws after that is not counted. Event files are written by
TensorBoard's own classes, all trials by one thread. Its server is told to look at the files every
second; five is its default. As a process (`python -m tests.benchmarks.live_tensorboard FOLDER
TRIALS SECONDS`) it is the one who writes.
"""

from __future__ import annotations

import contextlib
import json
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from tests.benchmarks.live_browser import free_port, page_of, serving
from tests.benchmarks.live_measure import note, start
from tests.benchmarks.live_store import METRIC, REPORT_EVERY_S, value_of

NOTE = (
    "reloads every 30 s once told to (off by default), all runs anew; its own drawing is not"
    " counted"
)
ENOUGH = (2, 20.0)
_WATCH = """
localStorage.setItem("_tb_global_settings", JSON.stringify({ autoReload: true }));
window.drawn = [];
const send = XMLHttpRequest.prototype.send;
XMLHttpRequest.prototype.send = function (...body) {
  this.addEventListener("load", () => {
    if (!this.responseURL.includes("timeSeries")) return;
    const text = typeof this.response === "string" ? this.response : JSON.stringify(this.response);
    const last = /"step": ?(\\d+)/.exec(text.slice(text.lastIndexOf('"step"')));
    const note = () => window.drawn.push([Number(last?.[1] ?? -1), Date.now() / 1000]);
    requestAnimationFrame(() => requestAnimationFrame(note));
  });
  return send.apply(this, body);
};
"""


@contextlib.contextmanager
def reporting(
    folder: Path, browser: Any, num_trials: int, for_s: float
) -> Iterator[tuple[Any, Callable[[], list[tuple[int, float]]]]]:
    """Open the page on runs that report twice a second."""
    writer = start("live_tensorboard", str(folder), str(num_trials), str(for_s + 10))
    try:
        with _board(folder, browser) as (page, url):
            page.goto(url, timeout=1000 * for_s)
            yield page, lambda: json.loads((folder / "written.json").read_text())
    finally:
        writer.kill()
        writer.communicate()


def open_finished(
    folder: Path, browser: Any, num_trials: int, num_steps: int, most_s: float
) -> float:
    """Return the seconds from the address to the answer with all curves.

    Its server has read them before.
    """
    for trial, writer in enumerate(_writers(folder, num_trials, buffering=1 << 16)):
        for step in range(num_steps):
            writer.write(_record(trial, step, time.time()))
        writer.close()
    with _board(folder, browser) as (page, url):
        page.wait_for_timeout(5000)
        start_s = time.time()
        page.goto(url, wait_until="commit", timeout=1000 * most_s)
        while time.time() < start_s + most_s:
            page.wait_for_timeout(200)
            drawn = [at_s for step, at_s in page.evaluate("window.drawn") if step == num_steps - 1]
            if drawn:
                return drawn[0] - start_s
    return float("inf")


@contextlib.contextmanager
def _board(folder: Path, browser: Any) -> Iterator[tuple[Any, str]]:
    port = free_port()
    command = [
        sys.executable,
        "-m",
        "tensorboard.main",
        "--logdir",
        str(folder / "runs"),
        "--port",
        str(port),
    ]
    url = f"http://127.0.0.1:{port}/"
    with (
        serving(folder, [*command, "--reload_interval", "1"], url) as _,
        page_of(browser, _WATCH) as page,
    ):
        yield page, f"{url}#timeseries"


def _writers(folder: Path, num_trials: int, buffering: int) -> Iterator[Any]:
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.summary.writer.record_writer import RecordWriter

    began_s = time.time()
    for trial in range(num_trials):
        run = folder / "runs" / f"trial-{trial:05}"
        run.mkdir(parents=True)
        path = run / f"events.out.tfevents.{int(began_s)}.machine"
        writer = RecordWriter(path.open("wb", buffering=buffering))
        writer.write(Event(wall_time=began_s, file_version="brain.Event:2").SerializeToString())
        yield writer


def _record(trial: int, step: int, at_s: float) -> bytes:
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.compat.proto.summary_pb2 import Summary

    value = Summary.Value(tag=METRIC, simple_value=value_of(trial, step))
    return Event(wall_time=at_s, step=step, summary=Summary(value=[value])).SerializeToString()


def _report(folder: Path, num_trials: int, for_s: float) -> None:
    writers = list(_writers(folder, num_trials, buffering=0))
    written: list[tuple[int, float]] = []
    print("ready", flush=True)
    until_s = time.time() + for_s
    while (start_s := time.time()) < until_s:
        for trial, writer in enumerate(writers):
            writer.write(_record(trial, len(written), start_s))
        written.append((len(written), start_s))
        note(folder, written)
        time.sleep(max(0.0, REPORT_EVERY_S - (time.time() - start_s)))


if __name__ == "__main__":
    _report(Path(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3]))
