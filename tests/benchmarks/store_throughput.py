"""The store against raw sqlite3 and against Ray's result.json files.

Writing, and reading a million events.

Run it with `python -m tests.benchmarks.store_throughput [--events N] [--ray-events N]`. All sides
write the same reports to the same disk in one run. Ray's side is Ray's own code: results made by a
Trainable, written by JsonLoggerCallback, read by ExperimentAnalysis.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from workbench.experiment import Experiment
from workbench.foundation.events import Event, TrialReported
from workbench.runs.plots.run_data import read_chunks
from workbench.runs.plots.series import RunSeries
from workbench.store.database import RunWriter, Store
from workbench.sweeps.ledger import EventBlocks

RESULTS = Path(__file__).parent / "results" / "store_throughput.json"
NUM_TRIALS = 100
NUM_SINGLE = 20_000
NUM_TURNS = 3
BATCH = 1000
THINNED_POINTS = 2000
CPU_RATES: dict[str, float] = {}
"""Events per second of processor time, which other programs on the machine change less than the
time.
"""

READER = """
import sys
from workbench.store.database import Store
store = Store.open(sys.argv[1])
print("ready", flush=True)
for stored in store.follow(sys.argv[2], poll_s=0.05):
    pass
"""


def main() -> None:
    """Measure everything, print the table, write the result."""
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--events", type=int, default=1_000_000, help="events to read")
    parser.add_argument(
        "--ray-events", type=int, default=100_000, help="results that Ray writes and reads"
    )
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        rates = measure(Path(folder), arguments.events, arguments.ray_events)
    report = {"machine": describe_machine(), "versions": describe_versions(), "events_per_s": rates}
    report["events_per_cpu_s"] = CPU_RATES
    report["load_average"] = os.getloadavg()[1]
    report["num_events_read"] = arguments.events
    report["num_ray_results"] = arguments.ray_events
    report["read_and_thin_s"] = arguments.events / rates["ours: read and thin"]
    report["read_and_thin_cpu_s"] = arguments.events / CPU_RATES["ours: read and thin"]
    print_table(report)
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(json.dumps(report, indent=2) + "\n")


def measure(folder: Path, num_events: int, num_ray_events: int) -> dict[str, float]:
    """Return events per second, by what was done.

    Args:
        folder: Where to write; emptied by the caller.
        num_events: Events to read.
        num_ray_events: Results that Ray writes and reads.
    """
    single = make_reports(NUM_SINGLE)
    experiment = Experiment(
        name="benchmark",
        model="mlp",
        data="digits",
        objectives=({"metric": "loss", "goal": "minimize"},),
    )
    query = "SELECT seq, type, trial, time, payload FROM events WHERE run_key = 1 ORDER BY seq"
    with Store.open(str(folder / "store.sqlite")) as store:
        database = open_raw(folder / "raw.sqlite")
        rates = rate_in_turns(
            NUM_SINGLE,
            {
                "ours: append one": lambda: append_each(store, experiment, single),
                "raw sqlite3: append one": lambda: append_each_raw(database, single),
            },
        )
        rates |= append_followed(store, experiment, single)
        run_id = store.create_run(experiment)
        rates |= append_batches(store, run_id, database, num_events)
        rates |= rate_in_turns(
            num_events,
            {
                "ours: read rows": lambda: sum(len(chunk) for chunk in store.event_rows(run_id)),
                "raw sqlite3: read rows": lambda: sum(1 for _ in database.execute(query)),
                "ours: read and thin": lambda: read_and_thin(store, run_id, experiment),
            },
        )
        read_objects = {
            "ours: read events as objects": lambda: store.events(run_id, limit=NUM_SINGLE)
        }
        rates |= rate_in_turns(NUM_SINGLE, read_objects)
        database.close()
    return rates | measure_ray(folder / "ray", num_ray_events)


def make_reports(num_events: int, first: int = 0) -> list[Event]:
    """Make reports as a training sends them: three metrics, the speed and the step's parts."""
    return [
        TrialReported(
            trial=n % NUM_TRIALS,
            attempt=0,
            step=n // NUM_TRIALS,
            epoch=n / NUM_TRIALS / 50,
            elapsed_s=n * 0.0137,
            values={
                "loss": 1 / (1 + n % 977),
                "accuracy": n % 977 / 977,
                "val_accuracy": n % 991 / 991,
            },
            samples_per_s=10_000.0 + n % 13,
            parts_s={"data": 0.0011, "forward": 0.0023, "backward": 0.0041, "update": 0.0007},
        )
        for n in range(first, first + num_events)
    ]


def rate_in_turns(num_events: int, works: Mapping[str, Callable[[], object]]) -> dict[str, float]:
    """Return events per second of several works: the best of three turns each, one after the other.

    In turns, because others use the machine too and should slow down all sides alike.
    """
    spent_s: dict[str, list[float]] = {name: [] for name in works}
    spent_cpu_s: dict[str, list[float]] = {name: [] for name in works}
    for _ in range(NUM_TURNS):
        for name, work in works.items():
            start_s, start_cpu_s = time.perf_counter(), time.process_time()
            work()
            spent_s[name].append(time.perf_counter() - start_s)
            spent_cpu_s[name].append(time.process_time() - start_cpu_s)
    CPU_RATES.update({name: num_events / min(turns) for name, turns in spent_cpu_s.items()})
    return {name: num_events / min(turns) for name, turns in spent_s.items()}


def open_writer(store: Store, run_id: str) -> RunWriter:
    """Take the lease as the driver does."""
    return store.writer(run_id, owner_pid=os.getpid(), owner_host=platform.node())


def append_each(store: Store, experiment: Experiment, reports: list[Event]) -> None:
    """Append one event a transaction, as the driver does."""
    with open_writer(store, store.create_run(experiment)) as writer:
        for event in reports:
            writer.append(event)


def append_followed(store: Store, experiment: Experiment, reports: list[Event]) -> dict[str, float]:
    """Return the rate of the same while another process follows the run."""
    run_id = store.create_run(experiment)
    command = [sys.executable, "-c", READER, store.url, run_id]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as reader:
        assert reader.stdout is not None
        reader.stdout.readline()
        with open_writer(store, run_id) as writer:
            works = {"ours: append one, a reader follows": lambda: [*map(writer.append, reports)]}
            measured = rate_in_turns(len(reports), works)
        reader.terminate()
    return measured


def append_batches(
    store: Store, run_id: str, database: sqlite3.Connection, num_events: int
) -> dict[str, float]:
    """Return the rates of many events a transaction, batch by batch in turns.

    Making them is not counted.

    Ours includes the blocks that a driver makes while it stores events.
    """
    ours_s = raw_s = ours_cpu_s = raw_cpu_s = 0.0
    database.execute("DELETE FROM events")
    with open_writer(store, run_id) as writer:
        blocks = EventBlocks(store, writer)
        for first in range(0, num_events, BATCH):
            batch = make_reports(min(BATCH, num_events - first), first)
            start_s, start_cpu_s = time.perf_counter(), time.process_time()
            blocks.note(writer.append(*batch))
            between_s, between_cpu_s = time.perf_counter(), time.process_time()
            append_batch_raw(database, batch, first)
            ours_s, ours_cpu_s = (
                ours_s + between_s - start_s,
                ours_cpu_s + between_cpu_s - start_cpu_s,
            )
            raw_s += time.perf_counter() - between_s
            raw_cpu_s += time.process_time() - between_cpu_s
    ours, raw = f"ours: append {BATCH}", f"raw sqlite3: append {BATCH}"
    CPU_RATES.update({ours: num_events / ours_cpu_s, raw: num_events / raw_cpu_s})
    return {ours: num_events / ours_s, raw: num_events / raw_s}


def read_and_thin(store: Store, run_id: str, experiment: Experiment) -> None:
    """Turn a stored run into the curves that are drawn."""
    series = RunSeries(experiment)
    for chunk in read_chunks(store, run_id):
        for trial, reports in chunk.rows.reports.take(None, chunk.rows.num_reports):
            series.add_reports(trial, reports)
    series.thinned(THINNED_POINTS)


def open_raw(path: Path) -> sqlite3.Connection:
    """Open a database by hand, with the pragmas and the table of events that the store has."""
    database = sqlite3.connect(path, isolation_level=None)
    database.execute("PRAGMA journal_mode=WAL")
    database.execute("PRAGMA synchronous=NORMAL")
    database.execute(
        "CREATE TABLE events (run_key INTEGER, seq BIGINT, time DOUBLE, type TEXT, trial INTEGER,"
        " payload TEXT, PRIMARY KEY (run_key, seq)) WITHOUT ROWID"
    )
    return database


def to_raw_row(seq: int, event: Event) -> tuple[object, ...]:
    """Write an event as one does by hand: a dictionary through json."""
    payload = json.dumps(vars(event))
    return 1, seq, event.time_unix_s, event.type, getattr(event, "trial", None), payload


def append_each_raw(database: sqlite3.Connection, reports: list[Event]) -> None:
    """Insert one row a transaction: no lease, no counting, no state."""
    database.execute("DELETE FROM events")
    for seq, event in enumerate(reports, 1):
        database.execute("BEGIN")
        database.execute("INSERT INTO events VALUES (?, ?, ?, ?, ?, ?)", to_raw_row(seq, event))
        database.execute("COMMIT")


def append_batch_raw(database: sqlite3.Connection, batch: list[Event], after: int) -> None:
    """Insert many rows in one transaction."""
    database.execute("BEGIN")
    rows = [to_raw_row(seq, event) for seq, event in enumerate(batch, after + 1)]
    database.executemany("INSERT INTO events VALUES (?, ?, ?, ?, ?, ?)", rows)
    database.execute("COMMIT")


def measure_ray(folder: Path, num_results: int) -> dict[str, float]:
    """Return the rates of Ray's own writer and reader of result.json.

    Args:
        folder: Where to write.
        num_results: Results, over all trials.
    """
    from ray.tune import ExperimentAnalysis
    from ray.tune.logger import JsonLoggerCallback

    trials = make_ray_trials(folder)
    results = make_ray_results(num_results)
    logger = JsonLoggerCallback()

    def write() -> None:
        for trial in trials:
            Path(trial.local_path, "result.json").unlink(missing_ok=True)
        for n, result in enumerate(results):
            logger.log_trial_result(n // NUM_TRIALS, trials[n % NUM_TRIALS], result)
        for trial in trials:
            logger.log_trial_end(trial)

    rates = rate_in_turns(num_results, {"Ray result.json: append one": write})
    for trial in trials:
        trial.run_metadata.last_result = results[-1]
        # Ray writes into a staging folder and syncs it to where the results are read.
        shutil.move(trial.local_path, trial.storage.trial_fs_path)
    # The name of a state file keeps Ray from looking for one; the trials are given.
    state = str(folder / "benchmark" / "state.json")
    read = {"Ray result.json: read": lambda: ExperimentAnalysis(state, trials=trials)}
    rates |= rate_in_turns(num_results, read)
    frames = ExperimentAnalysis(state, trials=trials).trial_dataframes
    assert sum(len(frame) for frame in frames.values()) == num_results
    return rates


def make_ray_trials(folder: Path) -> list[Any]:
    """Make Ray's trials, each with its folder."""
    from ray.train._internal.storage import StorageContext
    from ray.tune.experiment import Trial

    class Storage(StorageContext):
        def _get_session_path(self) -> str:
            # Ray asks a running cluster for this name; the writing itself needs none.
            return str(folder / "session")

    storage = Storage(storage_path=str(folder), experiment_dir_name="benchmark")
    trials = []
    for number in range(NUM_TRIALS):
        config = {"lr": 0.01 * number, "width": 32}
        trial = Trial(
            "reporting", config=config, trial_id=f"{number:05}", storage=storage, stub=True
        )
        trial.init_local_path()
        trials.append(trial)
    return trials


def make_ray_results(num_results: int) -> list[dict[str, Any]]:
    """Let a Trainable of Ray make results of the same reports, with all that Ray adds to each."""
    from ray.tune import Trainable

    class Reporting(Trainable):
        def setup(self, config: dict[str, float]) -> None:
            self.reports = iter(make_reports(num_results))

        def step(self) -> dict[str, object]:
            report = next(self.reports)
            assert isinstance(report, TrialReported)
            speed = {"samples_per_s": report.samples_per_s, "epoch": report.epoch}
            return {**report.values, **speed, **report.parts_s}

    trainable = Reporting(config={"lr": 0.01, "width": 32})
    return [trainable.train() for _ in range(num_results)]


def describe_machine() -> str:
    """Return the processor and the number of cores."""
    model = platform.processor() or platform.machine()
    if Path("/proc/cpuinfo").exists():
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        model = next(
            (line.split(":")[1].strip() for line in lines if line.startswith("model name")), model
        )
    return f"{model}, {os.cpu_count()} cores"


def describe_versions() -> dict[str, str]:
    """Return the versions that the numbers depend on."""
    import ray
    import sqlalchemy

    return {
        "python": platform.python_version(),
        "sqlite": sqlite3.sqlite_version,
        "sqlalchemy": sqlalchemy.__version__,
        "ray": ray.__version__,
    }


def print_table(report: dict[str, object]) -> None:
    """Print events per second, and the ratio of ours to each rival for the same work."""
    rates = report["events_per_s"]
    assert isinstance(rates, dict)
    print(f"{report['machine']}, load {report['load_average']:.1f}; {report['versions']}")
    for name, events_per_s in rates.items():
        print(
            f"{name:40} {events_per_s:12,.0f} events/s, {CPU_RATES[name]:12,.0f} per second of"
            " processor time"
        )
    comparisons = [
        ("ours: append one", "raw sqlite3: append one"),
        (f"ours: append {BATCH}", f"raw sqlite3: append {BATCH}"),
        ("ours: read rows", "raw sqlite3: read rows"),
        ("ours: append one", "Ray result.json: append one"),
        ("ours: read and thin", "Ray result.json: read"),
    ]
    ratios = {f"{ours} / {rival}": rates[ours] / rates[rival] for ours, rival in comparisons}
    cpu_ratios = {
        f"{ours} / {rival}": CPU_RATES[ours] / CPU_RATES[rival] for ours, rival in comparisons
    }
    for name, ratio in ratios.items():
        print(f"{name:72} {ratio:6.2f}x, {cpu_ratios[name]:6.2f}x by processor time")
    print(
        f"{report['num_events_read']:,} events read and thinned in"
        f" {report['read_and_thin_s']:.1f} s"
    )
    report["ratios"], report["cpu_ratios"] = ratios, cpu_ratios


if __name__ == "__main__":
    main()
