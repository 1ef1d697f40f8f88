"""Files are written atomically."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from workbench.files import write_atomically


def test_a_reader_meanwhile_gets_the_earlier_content_or_the_new_one(tmp_path: Path) -> None:
    path = tmp_path / "settings.json"
    contents = ["a" * 200_000, "ü" * 300_000]
    write_atomically(path, contents[0])
    ended = threading.Event()

    def write() -> None:
        for number in range(200):
            write_atomically(path, contents[number % 2])
        ended.set()

    writer = threading.Thread(target=write)
    writer.start()
    found = set()
    while not ended.is_set():
        found.add(path.read_text(encoding="utf-8"))
    writer.join()
    assert found <= set(contents)
    assert os.listdir(tmp_path) == ["settings.json"]


def test_what_cannot_be_written_leaves_nothing_behind(tmp_path: Path) -> None:
    folder = tmp_path / "a folder"
    folder.mkdir()
    with pytest.raises(IsADirectoryError):
        write_atomically(folder, "text")
    assert os.listdir(tmp_path) == ["a folder"]
