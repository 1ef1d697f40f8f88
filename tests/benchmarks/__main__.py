"""All benchmarks, one after another.

Each measures us and the rivals in one run and writes its result.
"""

from __future__ import annotations

import subprocess
import sys

BENCHMARKS = (
    "store_throughput",
    "store_scale",
    "training_loop",
    "noise_cost",
    "image_loading",
    "frameworks",
    "step_time",
    "scale_efficiency",
    "exchanges",
    "run_start",
    "gang_start",
    "sweep_overhead",
    "proposals",
    "importance",
    "script_start",
    "advisor_step_time",
    "advisor_plans",
    "advisor_batch",
    "advisor_budget",
    "advisor_choice",
    "advisor_on_off",
    "advisor_device",
    "serving",
    "live_view",
    "automl",
    "compression",
    "federated_rounds",
    "tiers",
)

if __name__ == "__main__":
    for name in sys.argv[1:] or BENCHMARKS:
        print(f"\n=== {name}", flush=True)
        subprocess.run([sys.executable, "-m", f"tests.benchmarks.{name}"], check=True)
