"""Samples per second on small JPEGs: loaded in the step, with loaders, kept decoded, and by torch alone.

Run `make bench-data`. The images are made on the spot. In turns, each way makes two epochs of the same model
in its own process, and the second epoch counts: the first fills the cache. Printed are medians over the
repeats, their ratio to loading in the step without a cache, as it was before there was either, and the part
of the epoch that waits for data. By hand is a plain loop over torch's DataLoader that decodes, resizes and
normalises the same files in the same order of work.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

RESULTS = Path(__file__).parent / "results" / "image_loading.json"
SIZE, BATCH, CLASSES = 64, 64, 4
WAYS: dict[str, dict[str, Any]] = {
    "in the step": {"loaders": 0, "cache": "none"},
    "1 loader": {"loaders": 1, "cache": "none"},
    "2 loaders": {"loaders": 2, "cache": "none"},
    "kept decoded": {"loaders": 0, "cache": "auto"},
    "kept decoded, 1 loader": {"loaders": 1, "cache": "auto"},
    "torch by hand, 0 workers": {"by_hand": 0},
    "torch by hand, 1 worker": {"by_hand": 1},
    "torch by hand, 2 workers": {"by_hand": 2},
}


def make_images(folder: Path, num_images: int) -> None:
    """Write JPEGs of 256 x 256 pixels, a folder for each class."""
    from PIL import Image

    rng = np.random.default_rng(0)
    for number in range(num_images):
        place = folder / f"class{number % CLASSES}"
        place.mkdir(parents=True, exist_ok=True)
        coarse = Image.fromarray(rng.integers(0, 256, (16, 16, 3)).astype(np.uint8))
        coarse.resize((256, 256), Image.Resampling.BICUBIC).save(place / f"{number}.jpg", quality=85)


def ours(folder: Path, way: dict[str, Any]) -> tuple[float, float]:
    """Return samples per second of the second epoch, and the part of it that waits for data."""
    from workbench.experiment import Experiment
    from workbench.training import TrialTask, run_trial

    experiment = Experiment(
        model={"name": "convnet", "width": 8},
        data={"name": "images", "path": str(folder), "size": SIZE, "cache": way["cache"]},
        objectives=[{"metric": "val_loss", "goal": "minimize"}],
        training={"epochs": 2, "global_batch": BATCH, "lr": 1e-3, "measure_noise": False},
        plan={"loaders": way["loaders"]},
    )
    found: list[tuple[float, float, dict[str, float]]] = []

    def note(event: Any) -> bool:
        if event.type == "trial_reported" and (event.epoch or 0.0) > 1.0 and event.samples_per_s:
            found.append((event.epoch, event.samples_per_s, event.parts_s))
        return False

    with tempfile.TemporaryDirectory() as trial:
        ended = run_trial(TrialTask("r", 0, 0, experiment.model_dump_json(), folder=trial), note)
    assert ended.state == "complete", ended.traceback
    # Reports of the second epoch, weighed by the samples that each covers.
    begins = [1.0, *(epoch for epoch, _, _ in found)]
    parts = [end - begin for begin, (end, _, _) in zip(begins, found, strict=False)]
    per_sample_s = sum(part / speed for part, (_, speed, _) in zip(parts, found, strict=True)) / sum(parts)
    stalls = [
        part * each["data"] / sum(each.values()) for part, (_, _, each) in zip(parts, found, strict=True)
    ]
    return 1.0 / per_sample_s, sum(stalls) / sum(parts)


class ByHand:
    """What a user would write: files and classes, decoded and normalised one by one."""

    def __init__(self, folder: Path) -> None:
        from workbench.data import load

        train: Any = load("images", {"path": str(folder), "size": SIZE, "cache": "none"}).train
        self.files, self.targets = train.files, train.targets

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, index: int) -> Any:
        import torch
        from PIL import Image

        with Image.open(self.files[index]) as opened:
            image = opened.convert("RGB").resize((SIZE, SIZE), Image.Resampling.BILINEAR)
        pixels = torch.from_numpy(np.asarray(image).transpose(2, 0, 1).copy())
        return pixels.float() / 127.5 - 1.0, int(self.targets[index])


def by_hand(folder: Path, num_workers: int) -> tuple[float, float]:
    """Do the same as `ours` with torch alone."""
    import torch
    from torch.utils.data import DataLoader

    from workbench.models.adapters import build_model

    torch.set_num_threads(1)
    model = build_model("convnet", {"width": 8}, input_shape=(3, SIZE, SIZE), num_outputs=CLASSES)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    dataset: Any = ByHand(folder)
    loader = DataLoader(
        dataset, BATCH, shuffle=True, num_workers=num_workers, persistent_workers=num_workers > 0
    )
    elapsed_s = waited_s = 0.0
    for _ in range(2):
        began_s, waited_s = time.perf_counter(), 0.0
        batches = iter(loader)
        while True:
            wanted_s = time.perf_counter()
            batch = next(batches, None)
            waited_s += time.perf_counter() - wanted_s
            if batch is None:
                break
            torch.nn.functional.cross_entropy(model(batch[0]), batch[1]).backward()
            optimizer.step()
            optimizer.zero_grad()
        elapsed_s = time.perf_counter() - began_s
    return len(dataset) / elapsed_s, waited_s / elapsed_s


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--images", type=int, default=4000)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--one", nargs=2, metavar=("WAY", "FOLDER"), help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.one:
        way = WAYS[given.one[0]]
        folder = Path(given.one[1])
        print(json.dumps(by_hand(folder, way["by_hand"]) if "by_hand" in way else ours(folder, way)))
        return
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in WAYS}
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made) / "images"
        make_images(folder, given.images)
        environment = {**os.environ, "WORKBENCH_CACHE": str(Path(made) / "cache")}
        for _ in range(given.repeats):
            for name in WAYS:
                done = subprocess.run(
                    [sys.executable, "-m", "tests.benchmarks.image_loading", "--one", name, str(folder)],
                    capture_output=True, text=True, check=True, env=environment,
                )  # fmt: skip
                found[name].append(tuple(json.loads(done.stdout.splitlines()[-1])))
    speeds = {name: statistics.median(speed for speed, _ in each) for name, each in found.items()}
    rows = {
        name: {
            "samples_per_s": [speed for speed, _ in each],
            "median_samples_per_s": speeds[name],
            "ratio_to_in_the_step": speeds[name] / speeds["in the step"],
            "waits": statistics.median(waits for _, waits in each),
        }
        for name, each in found.items()
    }
    for name, row in rows.items():
        print(
            f"{name:<26}{row['median_samples_per_s']:8.0f} samples/s  {row['ratio_to_in_the_step']:5.2f} x  "
            f"waits {row['waits']:4.0%}"
        )
    machine = {"machine": platform.machine(), "cores": os.cpu_count(), "load": os.getloadavg()}
    setting = {"images": given.images, "size": SIZE, "batch": BATCH, "repeats": given.repeats}
    RESULTS.write_text(json.dumps({**setting, **machine, "ways": rows}, indent=2) + "\n")


if __name__ == "__main__":
    main()
