"""Files are written atomically."""

from __future__ import annotations

import os
import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.services.disk import Disk
from tests.services.killed import kill_at_rename
from workbench.foundation.files import copy_into, finish_copy, is_unfinished, write_atomically


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


def test_threads_may_write_the_same_file_at_once(tmp_path: Path) -> None:
    path, contents = tmp_path / "settings.json", ["a" * 1000, "b" * 2000]

    def write(number: int) -> None:
        for _ in range(200):
            write_atomically(path, contents[number % 2])

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(write, range(4)))
    assert path.read_text() in contents
    assert os.listdir(tmp_path) == ["settings.json"]


def test_what_cannot_be_written_leaves_nothing_behind(tmp_path: Path) -> None:
    folder = tmp_path / "a folder"
    folder.mkdir()
    with pytest.raises(IsADirectoryError):
        write_atomically(folder, "text")
    assert os.listdir(tmp_path) == ["a folder"]


def test_what_is_copied_into_a_folder_replaces_only_files_of_its_name(
    tmp_path: Path, disk: Disk
) -> None:
    source, folder = tmp_path / "source", disk.path / "a" / "folder"
    (source / "code").mkdir(parents=True)
    (source / "code" / "train.py").write_text("new")
    (source / "retrain.sh").write_text("sh")
    (source / "retrain.sh").chmod(0o755)
    copy_into(source, folder)
    (folder / "code" / "train.py").write_text("old")
    (folder / "code" / "mine.py").write_text("mine")

    copy_into(source, folder)

    files = {
        str(path.relative_to(folder)): path.read_text()
        for path in folder.rglob("*")
        if path.is_file()
    }
    assert files == {"code/train.py": "new", "code/mine.py": "mine", "retrain.sh": "sh"}
    assert os.access(folder / "retrain.sh", os.X_OK)


def content_of(folder: Path) -> dict[str, str]:
    return {
        path.relative_to(folder).as_posix(): path.read_text()
        for path in folder.rglob("*")
        if path.is_file()
    }


def test_a_copy_that_is_killed_anywhere_leaves_all_of_the_old_or_all_of_the_new(
    tmp_path: Path,
) -> None:
    new = {
        "values.json": "new",
        "code/train.py": "new",
        "code/deep/er.py": "new",
        "weights": "new" * 1000,
    }
    old = {
        "values.json": "old",
        "code/train.py": "old",
        "weights": "old",
        "card.json": "old",
        "mine": "my own",
    }
    for name, text in new.items():
        path = tmp_path / "source" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    outcomes = set()
    for number in range(20):
        folder = tmp_path / str(number)
        for name, text in old.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(text)

        def copy(folder: Path = folder) -> None:
            copy_into(tmp_path / "source", folder, remove=["card.json"])

        was_killed = kill_at_rename(number, copy)
        finish_copy(folder)
        left = {name: text for name, text in content_of(folder).items() if not is_unfinished(name)}
        is_new = left == {**new, "mine": "my own"}
        assert is_new or left == old
        outcomes.add((was_killed, is_new))
        copy()  # the next one removes what the killed one left, and is whole
        assert content_of(folder) == {**new, "mine": "my own"}
        if not was_killed:
            break
    assert outcomes == {(True, False), (True, True), (False, True)}


def test_what_a_running_process_copies_is_not_removed(tmp_path: Path) -> None:
    (tmp_path / "source").mkdir()
    (tmp_path / "source" / "a").write_text("a")
    running = tmp_path / "folder" / f".unfinished-{socket.gethostname()}-{os.getppid()}-x"
    elsewhere = tmp_path / "folder" / ".unfinished-another.machine-1-x"
    for path in (running, elsewhere):
        path.mkdir(parents=True)
    copy_into(tmp_path / "source", tmp_path / "folder")
    assert running.exists()
    assert elsewhere.exists()
