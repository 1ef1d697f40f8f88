"""What the second worker brings: samples a second of our trials with one worker and with two.

Run `python -m tests.benchmarks.scale_efficiency [--repeats N]`. Trials run in the pool of workers,
in turns, on one thread a worker. Weak scaling: every worker takes as many samples a step as one
alone does. Strong scaling: the step has as many samples in all. An efficiency of 1 means twice the
samples a second. Two workers on two cores share caches and what else runs there, so it says as much
of the machine as of us; `step_time` compares us with processes of torchrun's own.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
from pathlib import Path
from typing import Any

from tests.benchmarks import clocked

RESULTS = Path(__file__).parent / "results" / "scale_efficiency.json"
BATCH = 256
STEPS = 50
WIDTHS = (128, 512)
CASES = {"one worker": (1, BATCH), "two, weak": (2, BATCH), "two, strong": (2, BATCH // 2)}


def measure(width: int, case: str) -> float:
    """Run one trial and return its samples a second."""
    num_workers, micro_batch = CASES[case]
    with tempfile.TemporaryDirectory(prefix="wb-bench-") as name:
        experiment = clocked.make_experiment(
            Path(name), workers=num_workers, micro_batch=micro_batch, steps=STEPS, width=width
        )
        notes = clocked.run_in_pool(experiment, "benchmark", Path(name), num_workers)
    return num_workers * micro_batch / clocked.step_s(notes[0])[0]


def compare(width: int, repeats: int) -> dict[str, Any]:
    """Take turns between the cases, after one turn to warm up, and return the medians and
    efficiencies.
    """
    rates: dict[str, list[float]] = {case: [] for case in CASES}
    for repeat in range(repeats + 1):
        for case in CASES:
            rate = measure(width, case)
            if repeat:
                rates[case].append(rate)
    medians = {case: statistics.median(values) for case, values in rates.items()}
    efficiencies = {
        kind: statistics.median(
            two / (2 * one)
            for one, two in zip(rates["one worker"], rates[f"two, {kind}"], strict=True)
        )
        for kind in ("weak", "strong")
    }
    return {
        "width": width,
        "repeats": repeats,
        "samples_per_s": medians,
        "efficiency": efficiencies,
    }


def main() -> None:
    """Measure every model, print the efficiencies, and keep them."""
    from workbench.cluster.head import attachment, local_head

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=15)
    repeats = parser.parse_args().repeats
    with tempfile.TemporaryDirectory(prefix="wb-bench-") as home:
        os.environ |= {"WORKBENCH_HOME": home, "RAY_USAGE_STATS_ENABLED": "0"}
        try:
            attachment.connect(num_cpus=2, num_gpus=0)
            results = [compare(width, repeats) for width in WIDTHS]
        finally:
            local_head.shutdown()
    for result in results:
        rates = ", ".join(f"{case} {rate:,.0f}" for case, rate in result["samples_per_s"].items())
        weak, strong = result["efficiency"]["weak"], result["efficiency"]["strong"]
        print(
            f"width {result['width']:>4}: samples/s {rates}; efficiency {weak:.2f} weak,"
            f" {strong:.2f} strong"
        )
    report = {"machine": clocked.describe_machine(), "micro_batch": BATCH, "results": results}
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(json.dumps(report, indent=2) + "\n")


if __name__ == "__main__":
    main()
