"""What proposals of `auto` cost.

Short runs beside the same with `tpe`, and how long workers wait for one.

Run `python -m tests.benchmarks.proposals`. Runs of trials that compute for 20 ms take turns with
both samplers, two trials at once, as in `sweep_overhead`. Trials of a second, which compute or
pause, are run with `auto`: printed is the share of their time that workers waited for proposals, as
the report states it. On a busy machine that includes waiting for a processor, so the processor time
of a proposal is measured as well.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.benchmarks.search_rivals import Ours
from tests.benchmarks.store_throughput import describe_machine
from tests.benchmarks.sweep_overhead import HOME, NUM_PARAMS, Measured, measure, noop

RESULTS = Path(__file__).parent / "results" / "proposals.json"
SAMPLERS = ("auto", "tpe")
MEASURED = ("whole_ms", "steady_ms", "cpu_ms")
SEARCH = {f"x{index}": {"low": 0.0, "high": 1.0} for index in range(NUM_PARAMS)}
SECOND_LONG = (("pause", 1), ("pause", 2), ("pause", 4), ("compute", 1), ("compute", 2))
"""What trials of a second do, and how many there are at once."""


def pause(config: dict[str, float], report: Callable[..., bool]) -> None:
    """Wait for a second as a trial."""
    time.sleep(1.0)
    report(step=1, loss=noop(config))


def compute(config: dict[str, float], report: Callable[..., bool]) -> None:
    """Compute for a second as a trial."""
    until_s = time.thread_time() + 1.0
    while time.thread_time() < until_s:
        pass
    report(step=1, loss=noop(config))


def compare_short(num_trials: int, num_turns: int) -> dict[str, Any]:
    """Run short trials with both samplers in turns.

    Return the medians, and `auto` as a multiple of `tpe`.
    """
    turns: dict[str, list[Measured]] = {sampler: [] for sampler in SAMPLERS}
    for _ in range(num_turns):
        for sampler in SAMPLERS:
            turns[sampler].append(measure("ours", "short", num_trials, sampler))
    print(f"\n{num_trials} trials of 20 ms, each {', '.join(MEASURED)} (medians of {num_turns})")
    medians = {
        sampler: {name: statistics.median(getattr(one, name) for one in turn) for name in MEASURED}
        for sampler, turn in turns.items()
    }
    for sampler, median in medians.items():
        print(f"  {sampler:<6}{''.join(f'{value:10.1f}' for value in median.values())}", flush=True)
    ratios = {
        name: statistics.median(
            getattr(ours, name) / getattr(theirs, name)
            for ours, theirs in zip(turns["auto"], turns["tpe"], strict=True)
        )
        for name in MEASURED
    }
    print(f"  ratio {''.join(f'{value:10.2f}' for value in ratios.values())}")
    return {"turns": num_turns, "trials": num_trials, **medians, "ratio": ratios}


def processor_ms(num_trials: int, num_turns: int) -> dict[str, float]:
    """Return the processor time of a proposal of each sampler, in milliseconds.

    The median of searches.
    """
    times: dict[str, list[float]] = {sampler: [] for sampler in SAMPLERS}
    for seed in range(num_turns + 1):
        for sampler in SAMPLERS:
            search, used_s = Ours(SEARCH, seed, sampler=sampler), 0.0
            for _ in range(num_trials):
                began_s = time.process_time()
                asked = search.ask()
                used_s += time.process_time() - began_s
                search.tell(asked, 1, -noop(dict(asked.params)), stopped=False, seconds=1.0)
            times[sampler].append(1e3 * used_s / num_trials)
    # The first search imports what it needs.
    medians = {sampler: statistics.median(each[1:]) for sampler, each in times.items()}
    listed = ", ".join(f"{name} {value:.1f} ms" for name, value in medians.items())
    print(f"\nprocessor time of a proposal, {num_trials} trials: {listed}", flush=True)
    return medians


def wait(task: str, concurrency: int, num_trials: int) -> dict[str, float]:
    """Run trials of a second; return what workers waited for."""
    from workbench.experiment import Experiment
    from workbench.store.database import Store
    from workbench.store.history import History, wait_for_proposals
    from workbench.sweeps.launchers import launch

    experiment = Experiment(
        train=f"tests.benchmarks.proposals:{task}",
        objectives=[{"metric": "loss", "goal": "minimize"}],
        search=SEARCH,
        budget={"trials": num_trials},
        resources={"concurrency": concurrency},
    )
    with Store.open(str(Path(os.environ[HOME]) / "store.db")) as store:
        run_id = store.create_run(experiment)
        launch(store, run_id, launcher="inline")
        history = History.of(experiment, (stored.event for stored in store.events(run_id)))
    proposals = wait_for_proposals(history.trials.values())
    assert proposals is not None
    median_s, _, share = proposals
    print(
        f"  {task}, {concurrency} at once: {1e3 * median_s:.1f} ms a proposal, waited {share:.2%}",
        flush=True,
    )
    return {"median_ms": 1e3 * median_s, "waited_share": share}


def main() -> None:
    """Measure both, and write the result."""
    from workbench.cluster.head import attachment, local_head

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--trials", type=int, default=200, help="short ones in each run")
    parser.add_argument("--long", type=int, default=40, help="trials of a second in each run")
    chosen = parser.parse_args()
    report: dict[str, Any] = {"machine": describe_machine(), "load_average": os.getloadavg()[0]}
    report["short"] = compare_short(chosen.trials, chosen.turns)
    report["processor_ms"] = processor_ms(chosen.long, chosen.turns)
    with tempfile.TemporaryDirectory(prefix="wb-bench-") as home:
        os.environ[HOME] = home
        try:
            attachment.connect(
                num_cpus=max(concurrency for _, concurrency in SECOND_LONG), num_gpus=0
            )
            print("\ntrials of a second")
            report["second_long"] = {
                f"{task}, {concurrency} at once": wait(task, concurrency, chosen.long)
                for task, concurrency in SECOND_LONG
            }
        finally:
            local_head.shutdown()
    report["load_average_after"] = os.getloadavg()[0]
    RESULTS.write_text(json.dumps(report, indent=2) + "\n")


if __name__ == "__main__":
    main()
