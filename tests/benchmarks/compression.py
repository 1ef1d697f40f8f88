"""The latency and the size of compressed models beside the default quantisation of ONNX Runtime and
of Olive.

Run `python -m tests.benchmarks.compression [--trials N] [--time DURATION] [--olive FOLDER]`. A
convnet and an mlp are trained on digits, and a convnet on 10,000 images that are made here: ten
patterns, shifted and under noise. Each is compressed by `run.compress` with at most ten trials.
Beside it stand ONNX Runtime's dynamic and static quantisation with their defaults, by itself and by
Olive, timed in the same way: in turn with the unchanged model in ONNX Runtime, one sample on one
thread. The time of a compression counts from its call to its end, with all processes started;
accuracies are those on the validation samples. Olive is left out where its folder of programs, in
which `make bench WHAT=compression` installs it, has no `olive`.
"""

from __future__ import annotations

import argparse
import functools
import json
import os
import platform
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import torch
from onnxruntime.quantization import CalibrationDataReader, quantize_dynamic, quantize_static

import workbench as wb
from workbench.data import Datasets
from workbench.data.splits import ArraySplit
from workbench.deploy import device_runner
from workbench.deploy.compression.trained_base import Base, example_of, measure
from workbench.deploy.predictor import open_session
from workbench.store.history.compression import compressed, describe_way

RESULTS = Path(__file__).parent / "results" / "compression.json"
OLIVE_PASSES: dict[str, dict[str, Any]] = {
    "dynamic": {"type": "OnnxDynamicQuantization"},
    "static": {"type": "OnnxStaticQuantization", "data_config": "calibration"},
}
NUM_IMAGES, SIZE, NUM_CLASSES = 10_000, 16, 10
CASES: dict[str, dict[str, Any]] = {
    "digits, convnet": {
        "model": {"name": "convnet", "width": 64, "num_blocks": 3},
        "data": "digits",
        "epochs": 12,
    },
    "digits, mlp": {
        "model": {"name": "mlp", "hidden_width": 512, "num_layers": 3},
        "data": "digits",
        "epochs": 20,
    },
    "10,000 images, convnet": {
        "model": {"name": "convnet", "width": 32, "num_blocks": 3},
        "epochs": 4,
        "data": "tests.benchmarks.compression:make_images",
    },
}


def make_images(_options: dict[str, Any]) -> Datasets:
    """Return ten random patterns, each shifted, scaled and under noise.

    The test part is used once.
    """
    random = np.random.default_rng(7)
    patterns = random.standard_normal((NUM_CLASSES, SIZE, SIZE)).astype(np.float32)
    for _ in range(2):
        patterns = (patterns + np.roll(patterns, 1, 1) + np.roll(patterns, 1, 2)) / 3
    patterns /= patterns.std(axis=(1, 2), keepdims=True)
    targets = random.integers(NUM_CLASSES, size=NUM_IMAGES)
    shifts = random.integers(-3, 4, size=(NUM_IMAGES, 2))
    images = np.stack(
        [
            np.roll(patterns[target], shift, (0, 1))
            for target, shift in zip(targets, shifts, strict=True)
        ]
    )
    images *= random.uniform(0.5, 1.5, size=(NUM_IMAGES, 1, 1)).astype(np.float32)
    images += 0.8 * random.standard_normal(images.shape).astype(np.float32)
    images = images[:, None].astype(np.float32)
    parts = [slice(0, 8000), slice(8000, 9000), slice(9000, NUM_IMAGES)]
    train, validation, test = (ArraySplit(images[part], targets[part]) for part in parts)
    return Datasets(
        "patterns", "classification", train, validation, (1, SIZE, SIZE), NUM_CLASSES, test=test
    )


def train(case: dict[str, Any], store: wb.Store) -> wb.Run:
    experiment = wb.Experiment(
        model=case["model"],
        data=case["data"],
        objectives=[{"metric": "val_accuracy", "goal": "maximize"}],
        search={"lr": {"choices": [0.003]}},
        training={"epochs": case["epochs"], "global_batch": 64},
        plan={"workers": 1},
        budget={"trials": 1},
    )
    return wb.sweep(experiment, store=store, wait=True)


class _Reader(CalibrationDataReader):
    def __init__(self, samples: np.ndarray, name: str) -> None:
        self._batches = iter([{name: samples[at : at + 1]} for at in range(len(samples))])

    def get_next(self) -> Any:
        return next(self._batches, None)


def quantise_by_olive(olive: Path, way: str, original: Path, samples: np.ndarray, to: Path) -> None:
    """Let Olive quantise a model with the defaults of a pass.

    A static one reads the same samples.
    """
    with tempfile.TemporaryDirectory() as folder:
        kept = Path(folder, "samples")
        kept.mkdir()
        for number, sample in enumerate(samples):
            sample.tofile(kept / f"{number:04}.bin")
        name = open_session(original).get_inputs()[0].name
        reading = {
            "data_dir": folder,
            "input_names": [name],
            "input_shapes": [[1, *samples.shape[1:]]],
            "input_dirs": [kept.name],
        }
        calibration = {
            "name": "calibration",
            "type": "RawDataContainer",
            "load_dataset_config": {"params": reading},
        }
        config = {
            "input_model": {"type": "ONNXModel", "model_path": str(original)},
            "data_configs": [calibration],
            "passes": {"quantise": OLIVE_PASSES[way]},
            "output_dir": f"{folder}/out",
            "cache_dir": f"{folder}/cache",
        }
        written = Path(folder, "run.json")
        written.write_text(json.dumps(config))
        subprocess.run(
            [olive, "run", "--config", written],
            check=True,
            capture_output=True,
            timeout=300,
            env=os.environ | {"OLIVE_DISABLE_TELEMETRY": "1"},
        )
        to.write_bytes(Path(folder, "out", "model.onnx").read_bytes())


def rivals(base: Base, folder: Path, olive: Path | None) -> dict[str, dict[str, float]]:
    """Return what the defaults of ONNX Runtime and of Olive, where it is there, reach on the same
    model.
    """
    _, datasets = base.build()
    original = folder / "base.onnx"
    original.write_bytes(base.onnx)
    name = open_session(original).get_inputs()[0].name
    samples = example_of(datasets.train, 100).numpy()
    ways: dict[str, Callable[[Path], Any]] = {
        "ONNX Runtime, dynamic": lambda to: quantize_dynamic(original, to),
        "ONNX Runtime, static": lambda to: quantize_static(original, to, _Reader(samples, name)),
    }
    if olive is not None:
        for way in OLIVE_PASSES:
            ways[f"Olive, {way}"] = functools.partial(
                quantise_by_olive, olive, way, original, samples
            )
    results: dict[str, dict[str, float]] = {}
    for way, write in ways.items():
        path = folder / "rival.onnx"
        try:
            write(path)
            values = measure(path, base.experiment, datasets)
            sessions = [open_session(model, threads=1) for model in (path, original)]
        except Exception as error:  # that its default does not run is a result
            print(f"  {way}: {str(error).splitlines()[0][:120]}", flush=True)
            continue
        one = example_of(datasets.validation, 1).numpy()
        candidate, unchanged = (device_runner.calls(session, {name: one}) for session in sessions)
        compared = device_runner.compare(candidate, unchanged)
        results[way] = {
            "latency_ratio": compared.ratio,
            "low": compared.low,
            "high": compared.high,
            "drop": base.drop(values[base.metric]),
            "size_ratio": path.stat().st_size / len(base.onnx),
        }
    return results


def compress(run: wb.Run, trials: int, time_limit: str) -> tuple[wb.Run, dict[str, Any]]:
    began_s = time.perf_counter()
    smaller = run.compress(trials=trials, time=time_limit).wait()
    took_s = time.perf_counter() - began_s
    best = compressed(smaller.history).recommended
    trials_s = [
        trial.ended_unix_s - trial.started_unix_s
        for trial in smaller.history.trials.values()
        if trial.ended_unix_s is not None and trial.started_unix_s is not None
    ]
    result: dict[str, Any] = {
        "took_s": took_s,
        "num_trials": len(trials_s),
        "trials_s": trials_s,
        "load_average_at_end": os.getloadavg()[0],
    }
    if best is not None:
        values = best.values
        result |= {
            "trial": best.number,
            "way": describe_way(best.params),
            "latency_ratio": values["latency_ratio"],
            "low": values["latency_ratio_low"],
            "high": values["latency_ratio_high"],
            "base_us": values["base_latency_s"] * 1e6,
            "drop": values["drop"],
            "size_ratio": values["size_ratio"],
        }
    quantised = [
        trial.values["size_ratio"]
        for trial in smaller.history.in_state("complete")
        if trial.params.get("quantiser") != "none" and not trial.params.get("pruning")
    ]
    return smaller, result | {"int8_size_ratio": max(quantised, default=None)}


def describe(name: str, found: dict[str, Any]) -> str:
    if "latency_ratio" not in found:
        return f"  {name:<24} nothing is recommended"
    return (
        f"  {name:<24} {found['latency_ratio']:.2f} ({found['low']:.2f} to {found['high']:.2f}) of"
        f" the latency, {100 * found['drop']:+.2f} points lost, {found['size_ratio']:.2f} of the"
        " size"
    )


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--trials", type=int, default=10)
    parser.add_argument("--time", default="2m")
    parser.add_argument(
        "--olive", type=Path, default=Path(".olive/bin"), help="the folder of Olive's programs"
    )
    options = parser.parse_args()
    olive = options.olive / "olive"
    if not olive.exists():
        print(f"Olive is left out: there is no {olive}", flush=True)
        olive = None
    results: dict[str, Any] = {
        "machine": platform.processor() or platform.machine(),
        "load_average_at_start": os.getloadavg()[0],
        "onnxruntime": onnxruntime.__version__,
        "torch": torch.__version__,
        "cases": {},
    }
    with (
        tempfile.TemporaryDirectory() as folder,
        wb.Store.open(f"sqlite:///{folder}/store.sqlite") as store,
    ):
        for name, case in CASES.items():
            print(name, flush=True)
            run = train(case, store)
            smaller, ours = compress(run, options.trials, options.time)
            assert smaller.experiment.train is not None
            beside = rivals(smaller.experiment.train.load().base, Path(folder), olive)
            results["cases"][name] = {"workbench": ours, **beside}
            print(describe("workbench", ours), flush=True)
            print(
                f"    {ours.get('way')}; {ours['num_trials']} trials in {ours['took_s']:.0f} s",
                flush=True,
            )
            for way, result in beside.items():
                print(describe(way, result), flush=True)
    RESULTS.write_text(json.dumps(results, indent=2) + "\n")


if __name__ == "__main__":
    main()
