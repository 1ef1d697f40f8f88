"""What advice is worth to a sweep: the time to a target with it and without, everything else equal.

Run `python -m tests.benchmarks.advisor_on_off [--seeds N] [--quick] [--to FILE]` (about twenty-five
minutes).

The experiment: a small transformer on text with a validation loss to reach; learning rate, global
batch, workers, dropout and weight decay are searched by TPE under ASHA, two CPUs for trials.

- off: a sweep of the experiment as it stands, from the first event of its run to the first report
  of a trial that reaches the target.
- on: `workbench.runs.advise` on the experiment for a short time, then a sweep of
  `advice.apply(experiment)`, in which rate, batch and workers are what was advised, and dropout and
  weight decay are searched as before. The time counts from the first event of the advice to the
  first report in the sweep that reaches the target, so all that the advice costs is in it. That a
  training of the advice has reached the target does not count.

Both have the same seed, the same limits, an empty store each, and warm workers; they take turns in
who begins. A sweep that misses the target counts as the time at which it ended, and is marked. The
ratio of a seed is the time with the advisor over the time without; printed is the median over the
seeds.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.benchmarks.clocked import describe_machine

if TYPE_CHECKING:
    from workbench.experiment import Experiment
    from workbench.store.database import Store

RESULTS = Path(__file__).parent / "results" / "advisor_on_off.json"
LIMIT = 1.0
ADVICE_S = 30.0
SWEEP_LIMIT_S = 120.0
NUM_CPUS = 2
METRIC, TARGET = "val_loss", 1.9


def make_experiment(seed: int) -> Experiment:
    """Return the experiment as it stands."""
    from workbench.experiment import Experiment

    return Experiment(
        model={"name": "transformer", "num_heads": 4, "width": 64, "num_layers": 2},
        data={"name": "text", "context": 64, "max_characters": 200_000},
        objectives=[{"metric": METRIC, "goal": "minimize", "target": TARGET}],
        search={
            "lr": {"low": 1e-5, "high": 0.3, "log": True},
            "global_batch": {"choices": [8, 16, 32, 64, 128, 256]},
            "workers": {"choices": [1, 2]},
            "dropout": {"low": 0.0, "high": 0.2},
            "weight_decay": {"low": 1e-6, "high": 1e-2, "log": True},
        },
        training={
            "epochs": 20,
            "reference_batch": 32,
            "optimizer": "adamw",
            "schedule": "constant",
        },
        # No limit of trials: a sweep that misses the target must not end early and count as a fast
        # one.
        budget={"time": SWEEP_LIMIT_S},
        # Sweeps do not measure plans by themselves here, on neither side.
        resources={"advice": "never"},
        early_stop={"pruner": "asha", "grace": 2},
        seed=seed,
    )


def sweep(experiment: Experiment, store: Store) -> dict[str, Any]:
    """Run a sweep to its end; say when it began and when it reached the target."""
    from workbench.sweeps.launchers import launch

    run_id = store.create_run(experiment)
    launch(store, run_id, launcher="inline")
    events = [stored.event for stored in store.events(run_id)]
    reports = (event for event in events if event.type == "trial_reported")
    reached = next(
        (event for event in reports if event.values.get(METRIC, float("inf")) <= TARGET), None
    )
    return {
        "began_unix_s": events[0].time_unix_s,
        "ended_unix_s": (reached or events[-1]).time_unix_s,
        "reached": reached is not None,
        "num_trials": sum(event.type == "trial_proposed" for event in events),
    }


def run_off(seed: int, store: Store) -> dict[str, Any]:
    """Run the sweep as it stands."""
    swept = sweep(make_experiment(seed), store)
    return {
        "time_s": swept["ended_unix_s"] - swept["began_unix_s"],
        **{key: swept[key] for key in ("reached", "num_trials")},
    }


def run_on(seed: int, store: Store) -> dict[str, Any]:
    """Ask for advice, then run the sweep that follows it."""
    from workbench.runs import advising

    experiment, heard = make_experiment(seed), []
    advice = advising.advise(experiment, time=ADVICE_S, store=store, listener=heard.append)
    swept = sweep(advice.apply(experiment), store)
    return {
        "time_s": swept["ended_unix_s"] - heard[0].time_unix_s,
        "advice_s": heard[-1].time_unix_s - heard[0].time_unix_s,
        "advised": f"{advice.choice.written} at {advice.choice.lr:.3g}",
        **{key: swept[key] for key in ("reached", "num_trials")},
    }


SIDES = {"on": run_on, "off": run_off}


@contextmanager
def _store() -> Iterator[Store]:
    """Give an empty store."""
    from workbench.store.database import Store

    with (
        tempfile.TemporaryDirectory(prefix="wb-bench-") as folder,
        Store.open(str(Path(folder) / "store.db")) as store,
    ):
        yield store


def compare(num_seeds: int) -> list[dict[str, Any]]:
    """Run both sides with each seed, in turns, and print what came of it."""
    rows: list[dict[str, Any]] = []
    with _store() as store:
        # Starts the processes and has them load what trainings need.
        short = make_experiment(0).replace(training={"epochs": 1}, budget={"trials": NUM_CPUS})
        sweep(short, store)
    for turn in range(num_seeds):
        row: dict[str, Any] = {"seed": turn}
        for side in list(SIDES)[:: 1 if turn % 2 else -1]:
            with _store() as store:
                row[side] = SIDES[side](turn, store)
            print(f"    {side}: {row[side]['time_s']:.1f} s", file=sys.stderr, flush=True)
        row["ratio"] = row["on"]["time_s"] / row["off"]["time_s"]
        rows.append(row)
        missed = [f"{side} missed the target" for side in SIDES if not row[side]["reached"]]
        print(
            f"seed {turn}: on {row['on']['time_s']:6.1f} s (advice {row['on']['advice_s']:.1f} s:"
            f" {row['on']['advised']}; {row['on']['num_trials']} trials), off"
            f" {row['off']['time_s']:6.1f} s ({row['off']['num_trials']} trials), ratio"
            f" {row['ratio']:.2f} {', '.join(missed)}",
            flush=True,
        )
    return rows


def main() -> None:
    """Compare, print the ratio, write the result."""
    from workbench.cluster.head import attachment, local_head

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--quick", action="store_true", help="one seed: whether it works")
    parser.add_argument("--to", type=Path, default=RESULTS)
    arguments = parser.parse_args()
    machine, started_s = describe_machine(), time.monotonic()
    with tempfile.TemporaryDirectory(prefix="wb-bench-") as home:
        os.environ |= {"WORKBENCH_HOME": home, "RAY_USAGE_STATS_ENABLED": "0"}
        try:
            attachment.connect(num_cpus=NUM_CPUS, num_gpus=0)
            rows = compare(1 if arguments.quick else arguments.seeds)
        finally:
            local_head.shutdown()
    ratio = statistics.median(row["ratio"] for row in rows)
    medians = {side: statistics.median(row[side]["time_s"] for row in rows) for side in SIDES}
    print(
        f"time to {METRIC} {TARGET:g}: {medians['on']:.1f} s with the advisor, "
        f"{medians['off']:.1f} s without; ratio {ratio:.2f} (median of {len(rows)} seeds), "
        f"expected: below {LIMIT:g}"
    )
    report = {
        "machine": machine,
        "limit": LIMIT,
        "target": TARGET,
        "advice_s": ADVICE_S,
        "ratio": ratio,
        "medians_s": medians,
        "seeds": rows,
        "took_s": time.monotonic() - started_s,
    }
    arguments.to.parent.mkdir(exist_ok=True)
    arguments.to.write_text(json.dumps(report, indent=2) + "\n")


if __name__ == "__main__":
    main()
