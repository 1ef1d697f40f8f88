"""Times a model on the machine where this file runs; it needs numpy and onnxruntime only.

It is copied as it is to other machines, so it imports nothing of the workbench. It is called with a
folder that holds model.onnx and feeds.npz, the number of threads and of calls, and prints one line
of JSON. Where base.onnx and latency.py are there, too, both models are then called in turn. Where
samples.npy is there, it also prints what the model answers for these samples: another processor may
compute otherwise.
"""

import base64
import dataclasses
import io
import json
import os
import platform
import resource
import sys
import time

import numpy as np
import onnxruntime

_WARM_UP_S = 0.5
_MAX_S = 20.0
_AT_ONCE = 64
_COUNTERS = "/sys/class/powercap"
"""Where Linux counts the energy of processors (RAPL); often readable by root only."""


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
        from latency import calls, compare  # pyright: ignore[reportMissingImports]

        base = _open(os.path.join(folder, "base.onnx"), threads)
        name = base.get_inputs()[0].name  # a model that is compressed has one input
        compared = compare(calls(session, feeds), calls(base, {name: next(iter(feeds.values()))}))
        measured["in_turn"] = dataclasses.asdict(compared)
    samples = os.path.join(folder, "samples.npy")
    if os.path.exists(samples):
        measured["answers"] = answer(session, np.load(samples))
    print(json.dumps(measured))


def answer(session: onnxruntime.InferenceSession, samples: np.ndarray) -> str:
    """Return the first output for samples: the bytes of a file of numpy, as base64."""
    name = session.get_inputs()[0].name
    parts = [samples[first : first + _AT_ONCE] for first in range(0, len(samples), _AT_ONCE)]
    written = io.BytesIO()
    np.save(
        written, np.concatenate([np.asarray(session.run(None, {name: part})[0]) for part in parts])
    )
    return base64.b64encode(written.getvalue()).decode("ascii")


def read_energy(folder: str) -> dict[str, tuple[int, int]]:
    """Return the counter of each processor package and where it begins again, in microjoules."""
    found: dict[str, tuple[int, int]] = {}
    try:
        names = [
            name for name in os.listdir(folder) if name.count(":") == 1
        ]  # others are parts of these
        for name in names:
            with open(os.path.join(folder, name, "energy_uj"), encoding="ascii") as file:
                energy = int(file.read())
            with open(os.path.join(folder, name, "max_energy_range_uj"), encoding="ascii") as file:
                found[name] = energy, int(file.read())
    except (OSError, ValueError):
        return {}
    return found


def used_energy(
    before: dict[str, tuple[int, int]], after: dict[str, tuple[int, int]]
) -> "float | None":
    """Return the joules that all packages used between two readings.

    None where nothing counts them.
    """
    if not before or before.keys() != after.keys():
        return None
    return sum((after[name][0] - before[name][0]) % (before[name][1] + 1) for name in before) / 1e6


def read_peak_memory() -> int:
    """Return the most memory that this process has held, in bytes."""
    try:
        with open("/proc/self/status", encoding="ascii") as file:
            # What getrusage returns on Linux contains that of the process that started this one.
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
