"""Loops written by hand over the loaders of others, for `image_loading`.

Torch, WebDataset, Streaming.

Each decodes, resizes and normalises what it reads by the same function. WebDataset and Streaming
read shards that `pack` wrote before, as their documentation advises.
"""

from __future__ import annotations

import importlib.util
import io
import json
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset

PACKAGES = {"by hand": None, "WebDataset": "webdataset", "Streaming": "streaming"}
SHARD_FILES = 2000


def is_installed(rival: str) -> bool:
    """Return whether the library of a rival can be imported."""
    package = PACKAGES[rival]
    return package is None or importlib.util.find_spec(package) is not None


def pixels_of(encoded: Any, size: int) -> torch.Tensor:
    """Decode an image, resize it, and let its values go from -1 to 1."""
    from PIL import Image

    with Image.open(io.BytesIO(encoded) if isinstance(encoded, bytes) else encoded) as opened:
        image = opened.convert("RGB").resize((size, size), Image.Resampling.BILINEAR)
    return torch.from_numpy(np.asarray(image).transpose(2, 0, 1).copy()).float() / 127.5 - 1.0


class Files(Dataset[Any]):
    """What a user would write: files and their classes."""

    def __init__(self, files: list[str], targets: list[int], size: int) -> None:
        self.files, self.targets, self.size = files, targets, size

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, index: int) -> Any:
        return pixels_of(self.files[index], self.size), self.targets[index]


def pack(rival: str, files: list[str], targets: list[int], folder: Path) -> None:
    """Write the shards that a rival reads, in random order, as the files are sorted by class."""
    numbers = np.random.default_rng(0).permutation(len(files))
    folder.mkdir(parents=True)
    if rival == "WebDataset":
        import webdataset

        with webdataset.ShardWriter(
            str(folder / "%05d.tar"), maxcount=SHARD_FILES, verbose=0
        ) as writer:
            for number in numbers:
                content = Path(files[number]).read_bytes()
                writer.write(
                    {
                        "__key__": f"{number:08d}",
                        "jpg": content,
                        "cls": str(targets[number]).encode(),
                    }
                )
    if rival == "Streaming":
        from streaming import MDSWriter

        with MDSWriter(out=str(folder), columns={"image": "bytes", "target": "int"}) as writer:
            for number in numbers:
                writer.write({"image": Path(files[number]).read_bytes(), "target": targets[number]})


def make_loader(
    rival: str,
    files: list[str],
    targets: list[int],
    shards: Path,
    *,
    size: int,
    batch: int,
    num_workers: int,
) -> Iterable[Any]:
    """Return what yields the batches of an epoch each time it is iterated over."""
    keeps = num_workers > 0
    if rival == "by hand":
        return DataLoader(
            Files(files, targets, size),
            batch,
            shuffle=True,
            num_workers=num_workers,
            persistent_workers=keeps,
        )
    if rival == "WebDataset":
        import webdataset

        def sample(pair: tuple[bytes, bytes]) -> Any:
            return pixels_of(pair[0], size), int(pair[1])

        tars = sorted(str(path) for path in shards.glob("*.tar"))
        stream: Any = webdataset.WebDataset(tars, shardshuffle=len(tars), seed=0)
        stream = stream.shuffle(SHARD_FILES).to_tuple("jpg", "cls").map(sample).batched(batch)
        return webdataset.WebLoader(
            stream,
            batch_size=None,
            shuffle=False,
            num_workers=num_workers,
            persistent_workers=keeps,
        )
    from streaming import StreamingDataset

    class Packed(StreamingDataset):
        def __getitem__(self, index: int) -> Any:
            item = super().__getitem__(index)
            return pixels_of(item["image"], size), int(item["target"])

    return DataLoader(
        Packed(local=str(shards), shuffle=True, batch_size=batch),
        batch,
        num_workers=num_workers,
        persistent_workers=keeps,
    )


def train(
    batches: Iterable[Any], *, size: int, width: int, num_classes: int, num_samples: int
) -> tuple[float, float]:
    """Train on some samples, and return samples per second and the part of the time that waits for
    data.

    The first steps, which wait for the start of processes, are left out.
    """
    from workbench.models.adapters import build_model

    torch.set_num_threads(1)
    model = build_model(
        "convnet", {"width": width}, input_shape=(3, size, size), num_outputs=num_classes
    )
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
    began_s = waited_s = 0.0
    num_seen = num_counted = 0
    iterator = iter(batches)
    while num_seen < num_samples:
        wanted_s = time.perf_counter()
        batch = next(iterator, None)
        waited_s += time.perf_counter() - wanted_s
        if batch is None:
            break
        num_seen += len(batch[1])
        num_counted += len(batch[1])
        torch.nn.functional.cross_entropy(model(batch[0]), batch[1]).backward()
        optimizer.step()
        optimizer.zero_grad()
        if began_s == 0.0 and num_seen >= num_samples / 10:
            began_s, waited_s, num_counted = time.perf_counter(), 0.0, 0
    elapsed_s = time.perf_counter() - began_s
    return num_counted / elapsed_s, waited_s / elapsed_s


def read_list(path: Path) -> tuple[list[str], list[int]]:
    """Return the files of the training part and their classes, as `image_loading` listed them."""
    listed = json.loads(path.read_text())
    return listed["files"], listed["targets"]
