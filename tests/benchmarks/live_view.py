"""The live view: from a metric in the store to its pixel, from a click to a picture, and what that
costs.

Run `python -m tests.benchmarks.live_view [--quick] [--huge] [--skip-rivals] [--to FILE]`; it needs
Chromium (`apt-get install chromium`) and, for the rivals, the extra `rivals`. A Jupyter server, a
driver that writes to a real store and a browser are a process each. Measured is the stand-alone
page, which shows the same view as JupyterLab.

A metric counts as drawn in the first frame of the browser after that in which the canvas was
painted with it; the time begins before it is written. At 1,000 trials the view draws the best 60
and a band of all; the band and the best so far follow within a second and are not waited for.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

from tests.benchmarks import live_rivals
from tests.benchmarks.clocked import describe_machine
from tests.benchmarks.live_browser import TOKEN, Server, browsing, heap_bytes, jupyter, page_of
from tests.benchmarks.live_measure import last_line, lateness, start
from tests.benchmarks.live_store import create, write_finished
from workbench.store.database import Store

RESULTS = Path(__file__).parent / "results" / "live_view.json"
LIVE_TRIALS = (10, 200, 1000)
CLIENT_TRIALS = 200
SETTLING_S = 4.0
QUIET_S = 2.5
MAX_S = 120.0
DRAWN = """
window.drawn = [];
new PerformanceObserver((list) => {
  for (const { name, detail } of list.getEntries()) {
    if (name !== "workbench-drawn") continue;
    requestAnimationFrame(() => window.drawn.push({ ...detail, at: Date.now() / 1000 }));
  }
}).observe({ type: "mark" });
"""
CLICK = """(run) => {
  window.drawn = [];
  const button = document.querySelector(`button[title$="(${run})"]`);
  const at = Date.now() / 1000;
  button.click();
  return at;
}"""


def main() -> None:
    """Measure everything, print the table, write the result."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--quick", action="store_true", help="a few seconds each, and a smaller finished run"
    )
    parser.add_argument(
        "--huge", action="store_true", help="also open 10,000 trials x 1,000 steps: 4 GB of disk"
    )
    parser.add_argument("--skip-rivals", action="store_true")
    parser.add_argument("--to", type=Path, default=RESULTS)
    arguments = parser.parse_args()
    for_s = 5.0 if arguments.quick else 12.0
    sizes = [
        (200, 1000) if arguments.quick else (1000, 1000),
        *([(10_000, 1000)] if arguments.huge else []),
    ]
    report: dict[str, Any] = {"machine": describe_machine(), "live": {}, "opened": {}, "rivals": {}}
    with tempfile.TemporaryDirectory(prefix="wb-live-") as name, browsing() as browser:
        folder = Path(name)
        url = str(folder / "store.sqlite")
        report["live"] = measure_live(folder, url, browser, for_s)
        report["cpu"] = measure_clients(folder, url, for_s)
        for num_trials, num_steps in sizes:
            label = f"{num_trials} x {num_steps}"
            report["opened"][label] = measure_opening(
                folder, browser, num_trials, num_steps, arguments.quick
            )
        if not arguments.skip_rivals:
            report["rivals"] = live_rivals.measure(browser, LIVE_TRIALS, sizes[0], tell)
    report["load_average_at_end"] = describe_machine()["load_average"]
    print_table(report)
    arguments.to.parent.mkdir(exist_ok=True)
    arguments.to.write_text(json.dumps(report, indent=2) + "\n")


def tell(words: str) -> None:
    """Say how far it is."""
    print(words, flush=True)


def measure_live(folder: Path, url: str, browser: Any, for_s: float) -> dict[str, Any]:
    """Return, by the number of trials, how late points are drawn, and the bytes and seconds that it
    takes.
    """
    results = {}
    for num_trials in LIVE_TRIALS:
        with Store.open(url) as store:
            run_id = create(store, f"live-{num_trials}", num_trials)
        with jupyter(folder, url) as server, page_of(browser, DRAWN) as page:
            results[str(num_trials)] = watch_live(
                server, page, url=url, run_id=run_id, num_trials=num_trials, for_s=for_s
            )
            print(f"{num_trials} live trials: {results[str(num_trials)]}", flush=True)
    return results


def watch_live(
    server: Server, page: Any, *, url: str, run_id: str, num_trials: int, for_s: float
) -> dict[str, float]:
    """Watch a run while its trials report."""
    received: list[tuple[float, int]] = []
    page.on(
        "websocket",
        lambda socket: socket.on(
            "framereceived", lambda data: received.append((time.time(), len(data)))
        ),
    )
    with start_driver(url, run_id, num_trials, SETTLING_S + for_s) as driver:
        page.goto(f"{server.url}workbench?token={TOKEN}#run={run_id}")
        page.wait_for_timeout(1000 * SETTLING_S)
        from_s, cpu_s = time.time(), server.cpu_s()
        page.wait_for_timeout(1000 * (for_s - 1.5))
        until_s, cpu_s = time.time(), server.cpu_s() - cpu_s
        page.wait_for_timeout(1500)
        notes = last_line(driver)
    page.wait_for_timeout(1000)
    drawn = [
        (mark["seq"], mark["at"]) for mark in page.evaluate("window.drawn") if mark.get("curves")
    ]
    written = [(seq, at_s) for seq, at_s, _ in notes if from_s <= at_s <= until_s]
    num_bytes = sum(size for at_s, size in received if from_s <= at_s <= until_s)
    return lateness(written, drawn) | {
        "bytes_per_s": num_bytes / (until_s - from_s),
        "server_cpu": cpu_s / (until_s - from_s),
        "reports_per_s": (
            sum(count for _, at_s, count in notes if from_s <= at_s <= until_s) / (until_s - from_s)
        ),
    }


def measure_clients(folder: Path, url: str, for_s: float) -> dict[str, float]:
    """Return the part of a core that the server takes, with one and with 20 clients, live and
    idle.
    """
    results = {}
    with Store.open(url) as store:
        run_id = create(store, "clients", CLIENT_TRIALS)
    with jupyter(folder, url) as server:
        for num_clients in (1, 20):
            with start_driver(url, run_id, CLIENT_TRIALS, SETTLING_S + for_s) as driver:
                results[f"live, {num_clients}"] = cpu_with_clients(
                    server, run_id, num_clients, for_s
                )
                last_line(driver)
            results[f"idle, {num_clients}"] = cpu_with_clients(server, run_id, num_clients, for_s)
    print(f"server CPU by clients: {results}", flush=True)
    return results


def cpu_with_clients(server: Server, run_id: str, num_clients: int, for_s: float) -> float:
    """Return the part of a core that the server takes while so many look at a run."""
    arguments = [server.url, TOKEN, run_id, str(num_clients), str(SETTLING_S / 2 + for_s)]
    with start("live_clients", *arguments) as clients:
        time.sleep(SETTLING_S / 2)
        from_s, cpu_s = time.monotonic(), server.cpu_s()
        time.sleep(for_s - 1)
        part = (server.cpu_s() - cpu_s) / (time.monotonic() - from_s)
        last_line(clients)
    return part


def measure_opening(
    folder: Path, browser: Any, num_trials: int, num_steps: int, is_quick: bool
) -> dict[str, float]:
    """Return seconds from the click on a finished run, which the server has not read, to its
    pictures.
    """
    url = str(folder / f"finished-{num_trials}.sqlite")
    with Store.open(url) as store:
        big = create(store, "big", num_trials)
        write_finished(store, big, num_trials, num_steps)
        small = create(store, "small", 5)
        write_finished(store, small, 5, 20)
    turns = []
    for _ in range(1 if is_quick or num_trials > 1000 else 3):
        with jupyter(folder, url) as server, page_of(browser, DRAWN) as page:
            turns.append(open_run(server, page, small, big))
            print(f"opened {num_trials} x {num_steps}: {turns[-1]}", flush=True)
    return {name: statistics.median(turn[name] for turn in turns) for name in turns[0]}


def open_run(server: Server, page: Any, shown: str, wanted: str) -> dict[str, float]:
    """Look at one run, click on another, and wait until nothing more is drawn."""
    page.goto(f"{server.url}workbench?token={TOKEN}#run={shown}")
    page.wait_for_function(
        "(run) => drawn.some((mark) => mark.run === run && mark.curves)", arg=shown
    )
    page.wait_for_timeout(4000)  # the list of runs is read
    clicked_s = page.evaluate(CLICK, wanted)
    until_s = time.time() + MAX_S
    marks, charts = [], []
    while time.time() < until_s:
        page.wait_for_timeout(200)
        marks = [mark for mark in page.evaluate("window.drawn") if mark["run"] == wanted]
        charts = [mark["at"] for mark in marks if mark.get("curves")]
        if charts and marks[-1].get("loading") is None and time.time() - charts[-1] > QUIET_S:
            break
    read_s = max(
        (mark["at"] for mark in marks if mark.get("loading") is not None), default=clicked_s
    )
    return {
        "first_s": charts[0] - clicked_s,
        "complete_s": max(charts[-1], read_s) - clicked_s if time.time() < until_s else math.inf,
        "server_bytes": server.memory_bytes,
        "browser_bytes": heap_bytes(page),
    }


def start_driver(url: str, run_id: str, num_trials: int, for_s: float) -> subprocess.Popen[str]:
    """Start the driver of a live run."""
    return start("live_store", url, run_id, str(num_trials), str(for_s))


def print_table(report: dict[str, Any]) -> None:
    """Print what was measured, and the ratio of each rival to us for the same work."""
    print(f"\n{report['machine']}")
    print("metric written -> drawn       median       95 %      bytes/s    server CPU")
    for num_trials, result in report["live"].items():
        print(
            f"  ours, {num_trials:>5} live trials {result['median_ms']:>7.0f} ms"
            f" {result['p95_ms']:>7.0f} ms {result['bytes_per_s']:>9,.0f}  "
            f" {result['server_cpu']:>9.1%}"
        )
    print("finished run: click -> picture  first   complete     server    browser")
    for size, result in report["opened"].items():
        print(
            f"  ours, {size:<18} {result['first_s']:>9.1f} s {result['complete_s']:>8.1f} s "
            f"{result['server_bytes'] / 1e6:>7.0f} MB {result['browser_bytes'] / 1e6:>7.0f} MB"
        )
    print(
        "server CPU:",
        ", ".join(f"{what} clients {part:.1%}" for what, part in report["cpu"].items()),
    )
    if report["rivals"]:
        live_rivals.print_table(report)


if __name__ == "__main__":
    main()
