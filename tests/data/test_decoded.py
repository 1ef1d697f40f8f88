"""Decoded images are kept for later epochs, trials and runs, and are never wrong."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from workbench.data import Datasets, load
from workbench.data.images import DecodedImages, FolderSplit, is_worth_keeping, open_decoded

NUM_IMAGES = 40
SIZE = 16


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    rng = np.random.default_rng(0)
    for name in ("cat", "dog"):
        (tmp_path / "images" / name).mkdir(parents=True)
        for number in range(NUM_IMAGES // 2):
            pixels = rng.integers(0, 256, (200, 200, 3)).astype(np.uint8)
            Image.fromarray(pixels).save(tmp_path / "images" / name / f"{number}.jpg")
    return tmp_path / "images"


def read(folder: Path, **options: Any) -> Datasets:
    options = {"path": str(folder), "size": SIZE, **options}
    return load("images", options, cache=folder.parent / "cache")


def all_of(datasets: Datasets) -> np.ndarray:
    return np.concatenate(
        [split.batch(np.arange(len(split)))[0] for split in (datasets.train, datasets.validation)]
    )


def records(folder: Path) -> list[Path]:
    return sorted((folder.parent / "cache").glob("decoded-*"))


def test_an_image_is_decoded_once_and_is_the_same_from_then_on(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fresh = all_of(read(folder, cache="none"))
    assert not records(folder)
    assert np.array_equal(all_of(read(folder)), fresh)
    again = read(folder)
    monkeypatch.setattr(FolderSplit, "_decode", None)
    assert np.array_equal(all_of(again), fresh), "nothing is decoded"
    assert oct(records(folder)[0].stat().st_mode)[-3:] == "600"


def test_runs_that_divide_the_same_images_otherwise_share_them(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    all_of(read(folder))
    other = read(folder, validation_fraction=0.5)
    monkeypatch.setattr(FolderSplit, "_decode", None)
    assert len(all_of(other)) == NUM_IMAGES
    assert len(records(folder)) == 1


def test_a_flipped_bit_is_found_and_the_record_is_made_again(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fresh = all_of(read(folder))
    for path in records(folder):
        damaged = bytearray(path.read_bytes())
        damaged[len(damaged) // 2] ^= 1
        path.write_bytes(damaged)
    assert np.array_equal(all_of(read(folder)), fresh)
    again = read(folder)
    monkeypatch.setattr(FolderSplit, "_decode", None)
    assert np.array_equal(all_of(again), fresh), "it was repaired"


def test_a_file_that_changed_is_decoded_again(folder: Path) -> None:
    before = all_of(read(folder))
    Image.new("RGB", (200, 200), (255, 0, 0)).save(folder / "cat" / "3.jpg")
    assert not np.array_equal(all_of(read(folder)), before)
    assert np.array_equal(all_of(read(folder)), all_of(read(folder, cache="none")))


FILLS = """
import sys
from pathlib import Path
from tests.data.test_decoded import all_of, read
for _ in range(int(sys.argv[2])):
    print("fills", flush=True)
    all_of(read(Path(sys.argv[1])))
    for path in (Path(sys.argv[1]).parent / "cache").glob("decoded-*"):
        path.unlink() if int(sys.argv[2]) > 1 else None
"""


def fill(folder: Path, times: int) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", FILLS, str(folder), str(times)],
        stdout=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parents[2],
    )


def test_a_process_that_is_killed_while_it_fills_the_cache_leaves_a_usable_one(
    folder: Path,
) -> None:
    child = fill(folder, 1000)
    assert child.stdout is not None
    for _ in range(3):
        child.stdout.readline()
    os.kill(child.pid, signal.SIGKILL)
    child.wait()
    assert np.array_equal(all_of(read(folder)), all_of(read(folder, cache="none")))


@pytest.mark.slow
def test_processes_that_fill_the_cache_at_once_do_not_disturb_each_other(folder: Path) -> None:
    children = [fill(folder, 1) for _ in range(2)]
    assert [child.wait(120) for child in children] == [0, 0]
    assert np.array_equal(all_of(read(folder)), all_of(read(folder, cache="none")))


def test_what_was_not_used_for_longest_makes_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WORKBENCH_CACHE_LIMIT", "100kB")

    def keep(name: str, num_images: int = 10) -> DecodedImages | None:
        kept = open_decoded(
            [f"{name}{number}" for number in range(num_images)], 4096, "v", folder=tmp_path
        )
        for number in range(num_images if kept else 0):
            assert kept is not None
            kept.write(number, bytes(4096))
        return kept

    keep("old")
    (oldest,) = tmp_path.iterdir()
    os.utime(oldest, (1.0, 1.0))
    keep("used")
    assert oldest.exists()
    keep("new")
    assert not oldest.exists()
    assert len(list(tmp_path.iterdir())) == 2
    assert keep("large", 100) is None, "it would not fit at all"


def test_images_that_are_decoded_faster_than_read_are_not_kept(tmp_path: Path) -> None:
    kept = open_decoded(["a", "b"], 2**20, "v", folder=tmp_path)
    assert kept is not None
    pixels = bytes(2**20)
    assert not is_worth_keeping(kept, [0, 1], lambda number: pixels)
