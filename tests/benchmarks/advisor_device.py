"""How well the advisor knows a device.

Memory, step time, and the plan that it chooses for throughput.

Run `python -m tests.benchmarks.advisor_device [--device cpu]`. Every micro batch that fits, in
doublings, is measured through warm workers: that is the truth. Against it stand the memory that was
estimated before anything ran, the step times that a model predicts of sizes that it was not fitted
to, and the measured throughput of what `advise` chooses beside the most that was found. It needs a
GPU; with `--device cpu` it runs on smaller models, to show that it runs: what a process on a CPU
holds is mostly not the step's.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.benchmarks import clocked

if TYPE_CHECKING:
    from workbench.data import Datasets
    from workbench.experiment import Experiment
    from workbench.foundation.events import PlanMeasured

RESULTS = Path(__file__).parent / "results" / "advisor_device.json"
NUM_CLASSES = 10
NUM_TOKENS = 8192
FITTED = 4
GPU_MODELS: dict[str, dict[str, Any]] = {
    "resnet": {
        "model": {"name": "resnet", "depth": 56, "width": 64},
        "image": 64,
        "num_samples": 8192,
    },
    "transformer": {
        "model": {"name": "transformer", "width": 768, "num_layers": 12, "num_heads": 12},
        "context": 512,
        "num_samples": 4096,
    },
}
CPU_MODELS: dict[str, dict[str, Any]] = {
    "resnet": {
        "model": {"name": "resnet", "depth": 8, "width": 8},
        "image": 16,
        "num_samples": 256,
    },
    "transformer": {
        "model": {"name": "transformer", "width": 64, "num_layers": 2, "num_heads": 2},
        "context": 32,
        "num_samples": 256,
    },
}


def load_images(options: Mapping[str, Any]) -> Datasets:
    """Make images of the wanted size; what is in them does not matter here."""
    import numpy as np

    from workbench.data import Datasets
    from workbench.data.splits import ArraySplit

    random, side = np.random.default_rng(0), options["image"]

    def split(num_samples: int) -> ArraySplit:
        inputs = random.standard_normal((num_samples, 3, side, side), dtype=np.float32)
        return ArraySplit(inputs, random.integers(NUM_CLASSES, size=num_samples))

    return Datasets(
        name="images",
        task="classification",
        train=split(options["num_samples"]),
        validation=split(64),
        input_shape=(3, side, side),
        num_outputs=NUM_CLASSES,
    )


def load_tokens(options: Mapping[str, Any]) -> Datasets:
    """Make a text of random tokens in windows of the wanted length."""
    import numpy as np

    from workbench.data import Datasets
    from workbench.data.splits import TokenSplit

    random, context = np.random.default_rng(0), options["context"]

    def split(num_samples: int) -> TokenSplit:
        return TokenSplit(
            random.integers(NUM_TOKENS, size=num_samples * context + 1), context, context
        )

    return Datasets(
        name="tokens",
        task="language_model",
        train=split(options["num_samples"]),
        validation=split(64),
        input_shape=(context,),
        num_outputs=NUM_TOKENS,
        vocabulary_size=NUM_TOKENS,
    )


def make_experiment(settings: Mapping[str, Any]) -> Experiment:
    """Make an experiment with an open plan."""
    from workbench.experiment import Experiment

    options = {name: value for name, value in settings.items() if name != "model"}
    loader = "load_images" if "image" in options else "load_tokens"
    return Experiment(
        model=settings["model"],
        data={"name": f"tests.benchmarks.advisor_device:{loader}", **options},
        objectives=[{"metric": "val_loss", "goal": "minimize"}],
        training={"epochs": 1, "reference_batch": 16},
        plan={"workers": 1},
    )


def size_of(measured: PlanMeasured) -> int:
    """Return the micro batch of a measurement."""
    size = measured.plan["micro_batch"]
    assert isinstance(size, int)
    return size


def measure_all(experiment: Experiment, home: Path) -> list[PlanMeasured]:
    """Measure every doubling of the micro batch until one does not fit or the data ends."""
    from workbench.advisor.recommend import bench_for, measurement_context_of
    from workbench.experiment.plan import PartialPlan
    from workbench.store.database import Store
    from workbench.training.probes.measurements import PlanProbe

    with Store.open(str(home / "store.sqlite")) as store:
        run_id = store.create_run(experiment)
        around = measurement_context_of(store, experiment)
        bench = bench_for(store, run_id, experiment, around, sink=lambda event: None)
        most = experiment.data.options["num_samples"] if experiment.data else 1
        assert isinstance(most, int)
        events: list[PlanMeasured] = []
        size = 1
        while size <= most and (not events or events[-1].fits):
            plan = PartialPlan.of(micro_batch=size, accumulation=1, recompute="none")
            events += bench.probe(1, [plan], PlanProbe(plans=()), {"global_batch": "auto"})
            size *= 2
        return events


def judge(name: str, experiment: Experiment, home: Path) -> dict[str, Any]:
    """Hold estimates, predictions and the choice against what was measured."""
    import workbench as wb
    from workbench.advisor.plan_measurement import spread_evenly
    from workbench.advisor.plan_variants import plan_of, plan_with, variant_of
    from workbench.advisor.plans import Knowledge
    from workbench.experiment.plan import PartialPlan
    from workbench.hardware.performance.memory import fit_law
    from workbench.training.probes.memory_estimate import estimate_memory

    measured = [event for event in measure_all(experiment, home) if event.step_time_s is not None]
    sizes = [size_of(event) for event in measured]
    law = fit_law(estimate_memory(experiment, {}, (8, 16), plan=PartialPlan.of(workers=1)).steps)
    peaks = {size: event.peak_bytes or 0 for size, event in zip(sizes, measured, strict=True)}
    memory = [abs(law.peak_bytes(size) / peak - 1.0) for size, peak in peaks.items() if peak]
    fitted = spread_evenly(sizes, FITTED)
    known = Knowledge(
        [event for size, event in zip(sizes, measured, strict=True) if size in fitted],
        [1],
        limit_bytes=None,
    )
    held_out = [event for size, event in zip(sizes, measured, strict=True) if size not in fitted]
    plans = [plan_with(variant_of(plan_of(event.plan)), 1, size_of(event)) for event in held_out]
    errors = [
        abs(predicted.value / (event.step_time_s or 1.0) - 1.0)
        for predicted, event in zip(known.step_times(plans), held_out, strict=True)
    ]
    advice = wb.advise(
        experiment, objective="throughput", time=60, store=str(home / "store.sqlite")
    )
    chosen = advice.choice.plan.micro_batch
    assert isinstance(chosen, int)
    speeds = {size: event.samples_per_s or 0.0 for size, event in zip(sizes, measured, strict=True)}
    nearest = min(speeds, key=lambda size: abs(size - chosen))
    result = {
        "model": name,
        "device": measured[0].device,
        "memory_error": statistics.mean(memory) if memory else None,
        "step_time_error": statistics.mean(errors) if errors else None,
        "chosen_micro_batch": chosen,
        "fastest_micro_batch": max(speeds, key=lambda size: speeds[size]),
        "chosen_against_exhaustive": speeds[nearest] / max(speeds.values()),
        "utilisation": max((each.utilisation or 0.0 for each in measured), default=None),
        "samples_per_s": speeds,
    }
    print(
        f"{name}: memory {100 * (result['memory_error'] or 0):.1f} % off, step time"
        f" {100 * (result['step_time_error'] or 0):.1f} % off on {len(errors)} sizes, chose"
        f" {chosen} of {result['fastest_micro_batch']}, {result['chosen_against_exhaustive']:.3f}"
        " of the most samples/s",
        flush=True,
    )
    return result


def main() -> None:
    """Judge every model, print, and keep the results with the name of the device."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    arguments = parser.parse_args()
    from workbench.cluster.head import attachment, local_head
    from workbench.hardware.resources import inventory

    if arguments.device == "cuda" and not inventory().gpus:
        print(f"skipped: there is no GPU here ({inventory().no_gpus_because})")
        sys.exit(0)
    models = GPU_MODELS if arguments.device == "cuda" else CPU_MODELS
    results = []
    with tempfile.TemporaryDirectory(prefix="wb-bench-") as home:
        os.environ |= {"WORKBENCH_HOME": home, "RAY_USAGE_STATS_ENABLED": "0"}
        try:
            attachment.connect(num_gpus=None if arguments.device == "cuda" else 0)
            for name, settings in models.items():
                folder = Path(home) / name
                folder.mkdir()
                results.append(judge(name, make_experiment(settings), folder))
        finally:
            local_head.shutdown()
    if arguments.device == "cuda":
        report = {"machine": clocked.describe_machine(), "results": results}
        RESULTS.write_text(json.dumps(report, indent=2) + "\n")


if __name__ == "__main__":
    main()
