"""What a large store costs.

1,000 runs in it, and runs of 10,000 trials, in SQLite and in PostgreSQL.

Run `python -m tests.benchmarks.store_scale`. Each number is a process of its own: its seconds, its
processor time and its memory, at a tenth of the size and at the full size, each the least of three
turns, as other programs can only add to it. Nothing may grow faster than n log n: 1,000 runs take
at most 15 times as much work as a tenth of them, 10,000 trials 13.3 times. What a process costs
before it reads anything is measured on a store with one run or trial, and left out of the growth.
PostgreSQL is a server of the benchmark's own, without fsync, and its own processor time is
included; it is left out where it is not installed.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil

from tests.benchmarks.live_store import create, write_finished
from tests.services.postgresql import Server, find_programs
from workbench.store.database import Store

RESULTS = Path(__file__).parent / "results" / "store_scale.json"
TRIALS_PER_RUN, STEPS_PER_TRIAL = 10, 5
TURNS = 3
RESOLUTION_S = 0.25
"""By this much processor times of one process differ on a busy machine.

Growth counts from there.
"""
COMMANDS: dict[str, list[str]] = {
    "list": ["list"],
    "show": ["show", "last"],
    "report": ["report", "last", "--to", "report.html"],
}


def panel_list(url: str) -> None:
    """Summarise all runs as the panel's list shows them."""
    from workbench.views.live_feed.run_summaries import Summaries

    with Store.open(url) as store:
        summaries = Summaries(store)
        for row in store.runs():
            summaries.refresh(row)


def panel_run(url: str) -> None:
    """Read the newest run as the panel shows it."""
    from workbench.views.live_feed.run_summaries import run_detail
    from workbench.views.live_feed.run_tail import RunTail

    with Store.open(url) as store:
        tail = RunTail(store, store.runs()[0].run_id)
        tail.catch_up()
        run_detail(tail)


PANELS: dict[str, Callable[[str], None]] = {"panel: list": panel_list, "panel: run": panel_run}


class Backend:
    """A place for stores, and the processes that work for it beside those that read."""

    def __init__(self, name: str, make_url: Callable[[], str], pid: int | None) -> None:
        self.name, self.make_url = name, make_url
        self._pid = pid

    def processor_s(self) -> float:
        """Return the processor time of a server so far."""
        if self._pid is None:
            return 0.0
        server = psutil.Process(self._pid)
        times = [server.cpu_times()]
        for child in server.children(recursive=True):
            with contextlib.suppress(psutil.Error):
                times.append(child.cpu_times())
        return (
            sum(each.user + each.system for each in times)
            + times[0].children_user
            + times[0].children_system
        )


def backends(folder: Path) -> Iterator[Backend]:
    """Yield SQLite, and PostgreSQL where it is installed."""
    numbers = iter(range(1000))
    yield Backend("SQLite", lambda: str(folder / f"{next(numbers)}.sqlite"), None)
    programs = find_programs()
    if programs is None:
        return
    server = Server(programs)
    try:
        yield Backend("PostgreSQL", lambda: server.url(server.make_database()), server.pid)
    finally:
        server.close()


def measure(backend: Backend, words: list[str], folder: Path) -> dict[str, float]:
    """Run a process to its end in turns; return its least seconds, processor time and memory."""
    turns = [_run(backend, words, folder) for _ in range(TURNS)]
    return {name: min(turn[name] for turn in turns) for name in turns[0]}


def _run(backend: Backend, words: list[str], folder: Path) -> dict[str, float]:
    began_s, server_s = time.perf_counter(), backend.processor_s()
    process = subprocess.Popen(
        [sys.executable, *words],
        cwd=folder,
        stdout=subprocess.DEVNULL,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
    )
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0, words
    return {
        "s": time.perf_counter() - began_s,
        "processor_s": used.ru_utime + used.ru_stime,
        "server_s": backend.processor_s() - server_s,
        "memory_mb": used.ru_maxrss / 1000,
    }


def fill_runs(store: Store, num_runs: int) -> None:
    """Write small runs."""
    for number in range(num_runs):
        write_finished(
            store, create(store, f"run{number}", TRIALS_PER_RUN), TRIALS_PER_RUN, STEPS_PER_TRIAL
        )


def fill_trials(store: Store, num_trials: int) -> None:
    """Write one run."""
    write_finished(store, create(store, "large", num_trials), num_trials, STEPS_PER_TRIAL)


def measure_sizes(
    backend: Backend,
    sizes: tuple[int, int],
    fill: Callable[[Store, int], None],
    what: tuple[str, ...],
    folder: Path,
) -> dict[str, Any]:
    """Measure with one, with few and with many runs or trials."""
    results: dict[str, dict[str, dict[str, float]]] = {name: {} for name in (*what, "write")}
    for size in (0, *sizes):
        url = backend.make_url()
        with Store.open(url) as store:
            began_s, began_cpu_s, server_s = (
                time.perf_counter(),
                time.process_time(),
                backend.processor_s(),
            )
            fill(store, size or 1)
            results["write"][str(size)] = {
                "s": time.perf_counter() - began_s,
                "processor_s": time.process_time() - began_cpu_s,
                "server_s": backend.processor_s() - server_s,
                "memory_mb": 0.0,
            }
        for name in what:
            words = ["-m", "workbench", *COMMANDS.get(name, []), "--store", url]
            if name in PANELS:
                words = ["-m", "tests.benchmarks.store_scale", "--panel", name, url]
            results[name][str(size)] = measure(backend, words, folder)
    few, many = map(str, sizes)
    limit = sizes[1] * math.log(sizes[1]) / (sizes[0] * math.log(sizes[0]))
    for name, by_size in results.items():
        used = {size: usage["processor_s"] + usage["server_s"] for size, usage in by_size.items()}
        base = 0.0 if name == "write" else used["0"]
        growth = max(0.0, used[many] - base) / max(RESOLUTION_S, used[few] - base)
        print(
            f"  {name:<12} {few} {by_size[few]['s']:7.2f} s, {many} {by_size[many]['s']:7.2f} s;"
            f" processor {used[few]:.2f} and {used[many]:.2f} s (of which starting {base:.2f}),"
            f" memory {by_size[many]['memory_mb']:.0f} MB; {growth:.1f} times as much, at most"
            f" {limit:.1f}",
            flush=True,
        )
        by_size["growth"] = {"processor": growth, "limit": limit}
    return results


def main() -> None:
    """Measure both kinds of store, print the tables, write the result."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--runs", type=int, default=1_000)
    parser.add_argument("--trials", type=int, default=10_000)
    parser.add_argument("--panel", nargs=2, metavar=("NAME", "STORE"), help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.panel:
        PANELS[given.panel[0]](given.panel[1])
        return
    report: dict[str, Any] = {"cores": os.cpu_count(), "load": [os.getloadavg()[0]], "stores": {}}
    with tempfile.TemporaryDirectory(prefix="wb-scale-") as folder:
        for backend in backends(Path(folder)):
            print(f"{backend.name}: runs")
            runs = measure_sizes(
                backend,
                (given.runs // 10, given.runs),
                fill_runs,
                ("list", "show", "panel: list"),
                Path(folder),
            )
            print(f"{backend.name}: trials")
            trials = measure_sizes(
                backend,
                (given.trials // 10, given.trials),
                fill_trials,
                ("show", "report", "panel: run"),
                Path(folder),
            )
            report["stores"][backend.name] = {"runs": runs, "trials": trials}
            report["load"].append(os.getloadavg()[0])
    RESULTS.write_text(json.dumps(report, indent=2) + "\n")


if __name__ == "__main__":
    main()
