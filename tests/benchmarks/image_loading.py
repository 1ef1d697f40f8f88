"""Samples per second on small JPEGs.

Loaded in the step, by loaders, kept decoded, and by others' loaders.

Run `make bench WHAT=data`. The images are made on the spot. One training of an epoch fills the
cache first. Then, in turns, each way trains the same model in its own process on some samples of an
epoch, drawn from all of them. Printed are medians over the turns: samples per second, their ratio
to loading in the step without a cache, as it was before there was either, the same in samples per
second of processor time, loaders included, which other programs disturb less, and the part of a
step that waits for data. The model is as small as one that loading slows down most: without loaders
and cache about three quarters of a step wait. The others are plain loops over torch's DataLoader,
WebDataset and MosaicML Streaming; those that are not installed are left out.

Afterwards a process and its loaders are killed while they fill a cache: it is counted how many
records they leave, each of which is compared with its picture. Then one bit of each of some records
is flipped.
"""

from __future__ import annotations

import argparse
import io
import itertools
import json
import os
import platform
import resource
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from tests.benchmarks import image_loading_rivals as rivals

RESULTS = Path(__file__).parent / "results" / "image_loading.json"
PIXELS, SIZE, BATCH, CLASSES, WIDTH = 128, 32, 64, 4, 4
NUM_DISTINCT = 1000
NUM_FLIPPED = 100
PROGRAM = (sys.executable, "-m", "tests.benchmarks.image_loading")
FILLING = "kept decoded, 2 loaders"
WAYS: dict[str, dict[str, Any]] = {
    "in the step": {"loaders": 0, "cache": "none"},
    "1 loader": {"loaders": 1, "cache": "none"},
    "2 loaders": {"loaders": 2, "cache": "none"},
    "kept decoded": {"loaders": 0, "cache": "auto"},
    "kept decoded, 1 loader": {"loaders": 1, "cache": "auto"},
    FILLING: {"loaders": 2, "cache": "auto"},
    "torch by hand, 1 worker": {"rival": "by hand", "num_workers": 1},
    "torch by hand, 2 workers": {"rival": "by hand", "num_workers": 2},
    "WebDataset, 1 worker": {"rival": "WebDataset", "num_workers": 1},
    "Streaming, 1 worker": {"rival": "Streaming", "num_workers": 1},
}


def make_images(folder: Path, num_images: int) -> None:
    """Write JPEGs, a folder for each class.

    The same picture comes again after `NUM_DISTINCT` files.
    """
    from PIL import Image

    rng = np.random.default_rng(0)
    pictures: list[bytes] = []
    for _ in range(min(num_images, NUM_DISTINCT)):
        coarse = Image.fromarray(rng.integers(0, 256, (16, 16, 3)).astype(np.uint8))
        content = io.BytesIO()
        coarse.resize((PIXELS, PIXELS), Image.Resampling.BICUBIC).save(content, "jpeg", quality=85)
        pictures.append(content.getvalue())
    for number in range(num_images):
        place = folder / f"class{number % CLASSES}"
        place.mkdir(parents=True, exist_ok=True)
        (place / f"{number}.jpg").write_bytes(pictures[number % len(pictures)])


def train_part(folder: Path, cache: str = "none") -> Any:
    """Return the images that are trained on."""
    from workbench.data import load

    return load("images", {"path": str(folder), "size": SIZE, "cache": cache}).train


def ours(folder: Path, way: dict[str, Any], num_samples: int) -> tuple[float, float]:
    """Return samples per second, and the part of a step that waits for data."""
    from workbench.experiment import Experiment
    from workbench.training.trial import run_trial
    from workbench.training.worker_task import TrialTask

    experiment = Experiment(
        model={"name": "convnet", "width": WIDTH},
        data={"name": "images", "path": str(folder), "size": SIZE, "cache": way["cache"]},
        objectives=[{"metric": "val_loss", "goal": "minimize"}],
        training={"epochs": 1, "global_batch": BATCH, "lr": 1e-3, "measure_noise": False},
        plan={"loaders": way["loaders"]},
    )
    share = num_samples / len(train_part(folder))
    found: list[tuple[float, float, float]] = []

    def note(event: Any) -> bool:
        if event.type == "trial_reported" and event.samples_per_s:
            waits = event.parts_s["data"] / sum(event.parts_s.values())
            found.append((event.epoch, event.samples_per_s, waits))
        return bool(found) and found[-1][0] >= share

    with tempfile.TemporaryDirectory() as trial:
        ended = run_trial(TrialTask("r", 0, 0, experiment.model_dump_json(), folder=trial), note)
    assert ended.state in ("complete", "pruned", "stopped"), ended.traceback
    # The first report covers the start of the processes; the others are weighed by their samples.
    parts = [now[0] - before[0] for before, now in itertools.pairwise(found)]
    per_sample_s = sum(
        part / speed for part, (_, speed, _) in zip(parts, found[1:], strict=True)
    ) / sum(parts)
    waits = sum(part * each for part, (_, _, each) in zip(parts, found[1:], strict=True)) / sum(
        parts
    )
    return 1.0 / per_sample_s, waits


def run_one(name: str, made: Path, num_samples: int) -> tuple[float, float]:
    """Train in one way in this process; return samples per second, and the part that waits."""
    way = WAYS[name]
    if "rival" not in way:
        speed, waits = ours(made / "images", way, num_samples)
    else:
        files, targets = rivals.read_list(made / "list.json")
        shards = made / f"shards-{way['rival']}"
        batches = rivals.make_loader(
            way["rival"],
            files,
            targets,
            shards,
            size=SIZE,
            batch=BATCH,
            num_workers=way["num_workers"],
        )
        speed, waits = rivals.train(
            batches, size=SIZE, width=WIDTH, num_classes=CLASSES, num_samples=num_samples
        )
    return speed, waits


def damage(made: Path, environment: dict[str, str]) -> dict[str, int]:
    """Kill a process that fills a cache, flip bits of what it kept, and return what is found of
    both.
    """
    folder = made / "images"
    cache = made / "damaged"
    environment = {**environment, "WORKBENCH_CACHE": str(cache)}
    child = subprocess.Popen(
        [*PROGRAM, "--one", FILLING, str(made), "--samples", "1000000000"],
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    images = len(train_part(folder))
    record_bytes = 4 + 3 * SIZE**2
    while (
        not sum(path.stat().st_blocks * 512 for path in cache.glob("*.records"))
        > record_bytes * images / 2
    ):
        assert child.poll() is None, "it ended before half of the images were kept"
        time.sleep(0.01)
    os.killpg(child.pid, signal.SIGKILL)
    child.wait()
    os.environ["WORKBENCH_CACHE"] = str(cache)
    kept, fresh = train_part(folder, "auto"), train_part(folder)
    place = np.empty((3, SIZE, SIZE), np.uint8)
    usable, num_wrong = [], 0
    pictures: dict[int, np.ndarray] = {}
    for number in range(images):
        if not kept.kept.read_into(int(kept.numbers[number]), place):
            continue
        usable.append(number)
        picture = int(Path(kept.files[number]).stem) % NUM_DISTINCT
        if picture not in pictures:
            pictures[picture] = fresh._decode(number)
        num_wrong += not np.array_equal(pictures[picture], place)
    (records,) = cache.glob("*.records")
    flipped = np.random.default_rng(1).choice(usable, NUM_FLIPPED, replace=False)
    with records.open("r+b") as file:
        for number in flipped:
            file.seek(int(kept.numbers[number]) * record_bytes + int(number) % record_bytes)
            byte = file.read(1)[0]
            file.seek(-1, os.SEEK_CUR)
            file.write(bytes([byte ^ 1 << int(number) % 8]))
    num_found = sum(not kept.kept.read_into(int(kept.numbers[number]), place) for number in flipped)
    return {
        "images": images,
        "usable_after_kill": len(usable),
        "wrong_after_kill": num_wrong,
        "bits_flipped": NUM_FLIPPED,
        "bits_found": num_found,
    }


def main() -> None:
    """Measure all ways in turns, damage a cache, print the table and write the result."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--images", type=int, default=50_000)
    parser.add_argument(
        "--samples", type=int, default=12_800, help="on which each way trains in a turn"
    )
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--made", type=Path, help="folder in which an earlier run was interrupted")
    parser.add_argument("--one", nargs=2, metavar=("WAY", "FOLDER"), help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.one:
        print(json.dumps(run_one(given.one[0], Path(given.one[1]), given.samples)))
        return
    os.environ["OMP_NUM_THREADS"] = "1"
    missing = [rival for rival in rivals.PACKAGES if not rivals.is_installed(rival)]
    ways = {name: way for name, way in WAYS.items() if way.get("rival") not in missing}
    waits: dict[str, list[tuple[float, float, float]]] = {name: [] for name in ways}
    loads = [os.getloadavg()[0]]
    made = given.made or Path(tempfile.mkdtemp(prefix="wb-images-"))
    environment = {**os.environ, "WORKBENCH_CACHE": str(made / "cache")}
    report: dict[str, Any] = {
        "images": given.images,
        "samples": given.samples,
        "pixels": PIXELS,
        "size": SIZE,
        "batch": BATCH,
        "width": WIDTH,
        "left_out": missing,
        "machine": platform.machine(),
        "cores": os.cpu_count(),
        "load": loads,
    }
    print(f"left out, as they are not installed: {', '.join(missing) or 'none'}", flush=True)
    try:
        if given.made is None:
            _make(made, given.images, missing)
            report["filling_samples_per_s"], *_ = _in_process(
                FILLING, made, environment, given.images
            )
        report["damage"] = damage(made, environment)
        print(f"damage: {report['damage']}", flush=True)
        for turn in range(given.turns):
            for name in list(ways)[:: 1 if turn % 2 == 0 else -1]:
                waits[name].append(_in_process(name, made, environment, given.samples))
            loads.append(os.getloadavg()[0])
            report["ways"] = rows = {
                name: _row(each, waits["in the step"]) for name, each in waits.items()
            }
            _show(rows, turn + 1)
            RESULTS.write_text(json.dumps(report, indent=2) + "\n")
    finally:
        if given.made is None:
            shutil.rmtree(made)


def _make(made: Path, num_images: int, missing: list[str]) -> None:
    """Write the images, the list of those that are trained on, and the shards of rivals."""
    make_images(made / "images", num_images)
    part = train_part(made / "images")
    files, targets = [str(file) for file in part.files], [int(target) for target in part.targets]
    (made / "list.json").write_text(json.dumps({"files": files, "targets": targets}))
    for rival in rivals.PACKAGES.keys() - missing:
        rivals.pack(rival, files, targets, made / f"shards-{rival}")


def _show(rows: dict[str, Any], num_turns: int) -> None:
    print(f"\nmedians of {num_turns} (least to most)")
    for name, row in rows.items():
        least, most = row["ratio_interval"]
        print(
            f"{name:<26}{row['median_samples_per_s']:8.0f} samples/s "
            f" {row['ratio_to_in_the_step']:5.2f} x ({least:.2f} to {most:.2f}) "
            f" {row['processor_ratio']:5.2f} x for a second of the processor  waits"
            f" {row['waits']:4.0%}",
            flush=True,
        )


def _in_process(
    name: str, made: Path, environment: dict[str, str], num_samples: int
) -> tuple[float, float, float]:
    """Train in a process; return samples per second, the part that waits, and per second of the
    processor.

    The processor time includes the start of the process and its loaders, which is the same for all
    ways.
    """
    began = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(
        [*PROGRAM, "--one", name, str(made), "--samples", str(num_samples)],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        env=environment,
    )
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    used_s = ended.ru_utime + ended.ru_stime - began.ru_utime - began.ru_stime
    speed, waits = json.loads(done.stdout.splitlines()[-1])
    return speed, waits, num_samples / used_s


def _row(
    each: list[tuple[float, float, float]], in_the_step: list[tuple[float, float, float]]
) -> dict[str, Any]:
    """Return the medians of a way; it is compared with loading in the step in the same turn."""
    ratios = [row[0] / other[0] for row, other in zip(each, in_the_step, strict=True)]
    used = [row[2] / other[2] for row, other in zip(each, in_the_step, strict=True)]
    return {
        "samples_per_s": [speed for speed, _, _ in each],
        "median_samples_per_s": statistics.median(speed for speed, _, _ in each),
        "ratio_to_in_the_step": statistics.median(ratios),
        "ratio_interval": [min(ratios), max(ratios)],
        "processor_ratio": statistics.median(used),
        "waits": statistics.median(waits for _, waits, _ in each),
    }


if __name__ == "__main__":
    main()
