"""Files are written atomically."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from tests.services.disk import Disk
from workbench.files import copy_into, write_atomically


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


def test_what_is_copied_into_a_folder_replaces_only_files_of_its_name(tmp_path: Path, disk: Disk) -> None:
    source, folder = tmp_path / "source", disk.path / "a" / "folder"
    (source / "code").mkdir(parents=True)
    (source / "code" / "train.py").write_text("new")
    (source / "retrain.sh").write_text("sh")
    (source / "retrain.sh").chmod(0o755)
    copy_into(source, folder)
    (folder / "code" / "train.py").write_text("old")
    (folder / "code" / "mine.py").write_text("mine")

    copy_into(source, folder)

    found = {str(path.relative_to(folder)): path.read_text() for path in folder.rglob("*") if path.is_file()}
    assert found == {"code/train.py": "new", "code/mine.py": "mine", "retrain.sh": "sh"}
    assert os.access(folder / "retrain.sh", os.X_OK)
