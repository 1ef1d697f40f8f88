"""optuna-dashboard with its chart of intermediate values, which asks its server every ten seconds.

Counted is from before the values are written to the storage to the frame after its plotly has
drawn. The values are inserted by SQL, many in one transaction, because Optuna's own storage writes
one at a time. As a process (`python -m tests.benchmarks.live_optuna_dashboard FOLDER SECONDS`) it
is the one who writes.
"""

from __future__ import annotations

import contextlib
import json
import sqlite3
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from tests.benchmarks.live_browser import free_port, page_of, serving
from tests.benchmarks.live_measure import note, start
from tests.benchmarks.live_plotly import WATCH, drawn_after_s
from tests.benchmarks.live_store import REPORT_EVERY_S, value_of

NOTE = "asks every 10 s, all trials anew; values inserted by SQL"
ENOUGH = (2, 5.0)
_INSERT = (
    "INSERT INTO trial_intermediate_values (trial_id, step, intermediate_value,"
    " intermediate_value_type) VALUES (?, ?, ?, 'FINITE')"
)


@contextlib.contextmanager
def reporting(
    folder: Path, browser: Any, num_trials: int, for_s: float
) -> Iterator[tuple[Any, Callable[[], list[tuple[int, float]]]]]:
    """Open the dashboard of a study whose trials report twice a second."""
    path = folder / "study.db"
    _create(path, num_trials, 0)
    with _dashboard(folder, path, browser) as (page, url):
        writer = start("live_optuna_dashboard", str(folder), str(for_s))
        try:
            page.goto(url, timeout=1000 * for_s)
            yield page, lambda: json.loads((folder / "written.json").read_text())
        finally:
            writer.kill()
            writer.communicate()


def open_finished(
    folder: Path, browser: Any, num_trials: int, num_steps: int, most_s: float
) -> float:
    """Return the seconds from the address to the picture of a study that is complete."""
    path = folder / "study.db"
    _create(path, num_trials, num_steps)
    with _dashboard(folder, path, browser) as (page, url):
        start_s = time.time()
        page.goto(url, wait_until="commit", timeout=1000 * most_s)
        return drawn_after_s(page, start_s, most_s)


@contextlib.contextmanager
def _dashboard(folder: Path, path: Path, browser: Any) -> Iterator[tuple[Any, str]]:
    port = free_port()
    program = "from optuna_dashboard._cli import main; main()"
    command = [sys.executable, "-c", program, f"sqlite:///{path}", "--port", str(port)]
    url = f"http://127.0.0.1:{port}"
    with serving(folder, command, f"{url}/dashboard"), page_of(browser, WATCH) as page:
        yield page, f"{url}/dashboard/studies/1"


def _create(path: Path, num_trials: int, num_steps: int) -> None:
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    study = optuna.create_study(
        storage=f"sqlite:///{path}", study_name="live", direction="maximize"
    )
    rate = optuna.distributions.FloatDistribution(1e-4, 0.5, log=True)
    state = optuna.trial.TrialState.COMPLETE if num_steps else optuna.trial.TrialState.RUNNING
    study.add_trials(
        optuna.trial.create_trial(
            state=state,
            params={"lr": 0.01},
            distributions={"lr": rate},
            value=value_of(trial, num_steps) if num_steps else None,
        )
        for trial in range(num_trials)
    )
    with contextlib.closing(sqlite3.connect(path)) as database, database:
        ids = _ids(database)
        values = ((key, s, value_of(n, s)) for n, key in enumerate(ids) for s in range(num_steps))
        database.executemany(_INSERT, values)


def _ids(database: sqlite3.Connection) -> list[int]:
    return [key for (key,) in database.execute("SELECT trial_id FROM trials ORDER BY trial_id")]


def _report(folder: Path, for_s: float) -> None:
    written: list[tuple[int, float]] = []
    with contextlib.closing(sqlite3.connect(folder / "study.db", timeout=60)) as database:
        ids = _ids(database)
        print("ready", flush=True)
        until_s = time.time() + for_s
        while (start_s := time.time()) < until_s:
            step = len(written)
            with database:
                database.executemany(
                    _INSERT, [(key, step, value_of(n, step)) for n, key in enumerate(ids)]
                )
            written.append((step, start_s))
            note(folder, written)
            time.sleep(max(0.0, REPORT_EVERY_S - (time.time() - start_s)))


if __name__ == "__main__":
    _report(Path(sys.argv[1]), float(sys.argv[2]))
