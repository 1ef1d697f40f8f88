"""Times a model on the machine where this file runs. It only needs numpy and onnxruntime.

The file is copied to other machines, so it must not import anything of the workbench. Its arguments
are a folder with model.onnx and feeds.npz, the number of threads, and the number of calls. It
prints one line of JSON.

If the folder also has base.onnx, both models are then called in turn, so that other load and the
speed of the clock affect both equally. If the folder has samples.npy, the model's answers for these
samples are also printed, because another processor may compute different ones.
"""

from __future__ import annotations

import base64
import io
import json
import os
import platform
import resource
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import onnxruntime

_WARM_UP_S = 0.5
_MAX_S = 20.0
_AT_ONCE = 64
_PAIRS_WARM_UP_S = 0.1
_PAIRS_S = 1.0
_MIN_REPEATS, _MAX_REPEATS = 30, 2000
_NUM_RESAMPLES = 1000
_LEVEL = 0.95
_COUNTERS = "/sys/class/powercap"
"""Linux counts the energy of processors here (RAPL). Often only root can read it."""


def main(folder: str, threads: int, num_calls: int) -> None:
    """Time calls after a warm-up, and print the result."""
    session = _open(os.path.join(folder, "model.onnx"), threads)
    with np.load(os.path.join(folder, "feeds.npz")) as stored:  # the graph takes text as objects
        feeds = {
            name: stored[name].astype(object) if stored[name].dtype.kind == "U" else stored[name]
            for name in stored.files
        }
    begin = time.perf_counter()
    while time.perf_counter() - begin < _WARM_UP_S:
        session.run(None, feeds)
    times: list[float] = []
    before = read_energy(_COUNTERS)
    begin = time.perf_counter()
    while len(times) < num_calls and time.perf_counter() - begin < _MAX_S:
        started = time.perf_counter()
        session.run(None, feeds)
        times.append(time.perf_counter() - started)
    energy_j = used_energy(before, read_energy(_COUNTERS))
    p50, p95 = np.percentile(times, [50, 95])
    measured = {
        "host": name_of_host(),
        "processor": name_of_processor(),
        "num_cores": os.cpu_count(),
        "runtime": f"onnxruntime {onnxruntime.__version__}",
        "threads": threads,
        "batch": len(next(iter(feeds.values()))),
        "mean_s": float(np.mean(times)),
        "p50_s": float(p50),
        "p95_s": float(p95),
        "num_calls": len(times),
        "energy_j": None if energy_j is None else energy_j / len(times),
        "memory_bytes": read_peak_memory(),  # before another model is loaded
    }
    if os.path.exists(os.path.join(folder, "base.onnx")):
        base = _open(os.path.join(folder, "base.onnx"), threads)
        name = base.get_inputs()[0].name  # a model that is compressed has one input
        compared = compare(calls(session, feeds), calls(base, {name: next(iter(feeds.values()))}))
        measured["in_turn"] = asdict(compared)
    samples = os.path.join(folder, "samples.npy")
    if os.path.exists(samples):
        measured["answers"] = answer(session, np.load(samples))
    print(json.dumps(measured))


@dataclass(frozen=True)
class Comparison:
    """The latency of a model and of the one that it is compared with.

    Attributes:
        ratio: The median time divided by the median time of the other model. Below 1 is faster.
        low: Lower end of the 95 % interval of the ratio, by bootstrap.
        high: Upper end.
        candidate_s: Median time of a call.
        base_s: Median time of a call of the other model.
        num_pairs: How often each model was called.
    """

    ratio: float
    low: float
    high: float
    candidate_s: float
    base_s: float
    num_pairs: int


def compare(
    candidate: Callable[[], Any], base: Callable[[], Any], *, measured_s: float = _PAIRS_S
) -> Comparison:
    """Call two models in turn and compare their times.

    Args:
        candidate: Calls the first model.
        base: Calls the second model.
        measured_s: The approximate duration of the measurement in seconds.
    """
    once_s = _warm_up(candidate) + _warm_up(base)
    number = int(np.clip(measured_s / once_s, _MIN_REPEATS, _MAX_REPEATS))
    times = np.empty((number, 2))
    for pair in range(number):
        # Each model goes first in half of the pairs, so both benefit equally from warm caches.
        for which in (0, 1) if pair % 2 else (1, 0):
            times[pair, which] = _time(candidate if which == 0 else base)
    return summarise(times)


def summarise(times: np.ndarray, *, seed: int = 0) -> Comparison:
    """Return the ratio of the medians of two columns of times, with its interval.

    Args:
        times: (pairs, 2): the times of the candidate and of the base, in seconds.
        seed: Seed of the bootstrap.
    """
    drawn = np.random.default_rng(seed).integers(len(times), size=(_NUM_RESAMPLES, len(times)))
    medians = np.stack([np.median(times[:, column][drawn], axis=1) for column in (0, 1)])
    tail = (1 - _LEVEL) / 2
    low, high = np.quantile(medians[0] / medians[1], [tail, 1 - tail])
    candidate_s, base_s = np.median(times, axis=0)
    return Comparison(
        ratio=float(candidate_s / base_s),
        low=float(low),
        high=float(high),
        candidate_s=float(candidate_s),
        base_s=float(base_s),
        num_pairs=len(times),
    )


def calls(session: Any, feeds: Mapping[str, np.ndarray]) -> Callable[[], Any]:
    """Return a function that runs an ONNX Runtime session once."""
    fixed = dict(feeds)
    return lambda: session.run(None, fixed)


def _time(call: Callable[[], Any]) -> float:
    began_s = time.perf_counter()
    call()
    return time.perf_counter() - began_s


def _warm_up(call: Callable[[], Any]) -> float:
    """Call until caches and clock have settled, and return the time of one call."""
    times = [_time(call)]
    while sum(times) < _PAIRS_WARM_UP_S or len(times) < 3:
        times.append(_time(call))
    return max(float(np.median(times)), 1e-7)


def answer(session: onnxruntime.InferenceSession, samples: np.ndarray) -> str:
    """Return the first output for samples as a base64-encoded .npy file."""
    name = session.get_inputs()[0].name
    parts = [samples[first : first + _AT_ONCE] for first in range(0, len(samples), _AT_ONCE)]
    written = io.BytesIO()
    np.save(
        written, np.concatenate([np.asarray(session.run(None, {name: part})[0]) for part in parts])
    )
    return base64.b64encode(written.getvalue()).decode("ascii")


def read_energy(folder: str) -> dict[str, tuple[int, int]]:
    """Return the counter of each processor package and its overflow limit, in microjoules."""
    counters: dict[str, tuple[int, int]] = {}
    try:
        names = [
            name for name in os.listdir(folder) if name.count(":") == 1
        ]  # others are parts of these
        for name in names:
            with open(os.path.join(folder, name, "energy_uj"), encoding="ascii") as file:
                energy = int(file.read())
            with open(os.path.join(folder, name, "max_energy_range_uj"), encoding="ascii") as file:
                counters[name] = energy, int(file.read())
    except (OSError, ValueError):
        return {}
    return counters


def used_energy(
    before: dict[str, tuple[int, int]], after: dict[str, tuple[int, int]]
) -> float | None:
    """Return the joules that all packages used between two readings, or None without counters."""
    if not before or before.keys() != after.keys():
        return None
    return sum((after[name][0] - before[name][0]) % (before[name][1] + 1) for name in before) / 1e6


def read_peak_memory() -> int:
    """Return the most memory that this process has held, in bytes."""
    try:
        with open("/proc/self/status", encoding="ascii") as file:
            # On Linux, getrusage includes the memory of the process that started this one.
            return next(int(line.split()[1]) * 1024 for line in file if line.startswith("VmHWM:"))
    except OSError:
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return peak if sys.platform == "darwin" else peak * 1024


def _open(path: str, threads: int) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
    return onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])


def name_of_host() -> str:
    """Return the name of this machine."""
    return platform.node()


def name_of_processor() -> str:
    """Return the name of its processor, or its architecture."""
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            names = [
                line.partition(":")[2].strip()
                for line in file
                if line.startswith(("model name", "Model"))
            ]
    except OSError:
        names = []
    return names[0] if names else platform.processor() or platform.machine()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
