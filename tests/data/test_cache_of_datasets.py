from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.services.waiting import wait_until
from workbench.data.cache import CACHE_VARIABLE, Cached, cache_folder, cached
from workbench.foundation.errors import DataError

# A builder that leaves one line for each call and takes a while, so that processes meet in it.
PROGRAM = """
import sys, time
from pathlib import Path
import numpy as np
from workbench.data.cache import Cached, cached

folder, log, pause_s = Path(sys.argv[1]), Path(sys.argv[2]), float(sys.argv[3])

def build():
    with log.open("a") as file:
        file.write("built\\n")
    time.sleep(pause_s)
    return Cached({"numbers": np.arange(1000) * 3}, {"answer": 42})

made = cached("numbers", {"version": 1}, build, code=[], folder=folder)
assert made.arrays["numbers"].tolist() == list(range(0, 3000, 3)) and made.facts == {"answer": 42}
"""


def start(folder: Path, log: Path, pause_s: float) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-c", PROGRAM, str(folder), str(log), str(pause_s)])


def make(folder: Path, version: int = 1, code: tuple[str, ...] = ()) -> tuple[Cached, int]:
    calls: list[int] = []

    def build() -> Cached:
        calls.append(1)
        return Cached({"numbers": np.arange(1000) * 3}, {"answer": 42})

    return cached("numbers", {"version": version}, build, code=code, folder=folder), len(calls)


def entry(folder: Path) -> Path:
    (entry_folder,) = [path for path in folder.iterdir() if path.is_dir()]
    return entry_folder


def test_a_second_call_builds_nothing_and_gets_the_same(tmp_path):
    (first, built_first), (second, built_second) = make(tmp_path), make(tmp_path)
    assert (built_first, built_second) == (1, 0)
    np.testing.assert_array_equal(first.arrays["numbers"], second.arrays["numbers"])
    assert first.facts == second.facts == {"answer": 42}


def test_other_options_or_other_code_make_another_entry(tmp_path):
    code = tmp_path / "code.py"
    code.write_text("1")
    folder = tmp_path / "cache"
    assert make(folder)[1] == 1
    assert make(folder, version=2)[1] == 1
    assert make(folder, code=(str(code),))[1] == 1
    assert make(folder, code=(str(code),))[1] == 0
    code.write_text("2")
    assert make(folder, code=(str(code),))[1] == 1


def test_cached_arrays_cannot_be_changed_by_accident(tmp_path):
    with pytest.raises(ValueError, match="read-only"):
        make(tmp_path)[0].arrays["numbers"][0] = 1


@pytest.mark.slow
def test_several_processes_at_once_build_one_entry(tmp_path):
    folder, log = tmp_path / "cache", tmp_path / "log"
    processes = [start(folder, log, 0.5) for _ in range(4)]
    assert [process.wait(120) for process in processes] == [0] * 4
    assert log.read_text() == "built\n"


WRITER = """
import os, sys, time
from pathlib import Path
import numpy as np
import workbench.data.cache as cache

os_fsync = os.fsync
def hang(descriptor):
    os_fsync(descriptor)
    Path(sys.argv[2]).write_text("half written")
    time.sleep(60)
os.fsync = hang
build = lambda: cache.Cached({"numbers": np.zeros(9)}, {})
cache.cached("numbers", {"version": 1}, build, code=[], folder=Path(sys.argv[1]))
"""


def test_a_process_killed_while_writing_leaves_nothing_behind(tmp_path):
    folder, mark = tmp_path / "cache", tmp_path / "mark"
    process = subprocess.Popen([sys.executable, "-c", WRITER, str(folder), str(mark)])
    wait_until(mark.exists)
    assert any(path.name.endswith(".partial") for path in folder.iterdir())
    waiting = start(folder, tmp_path / "log", 0.0)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert waiting.wait(120) == 0
    assert [path.name for path in folder.iterdir() if path.name.endswith(".partial")] == []
    assert make(folder)[1] == 0


@pytest.mark.parametrize("damage", ["shorter", "other", "list", "missing"])
def test_a_damaged_entry_is_built_anew(tmp_path, damage):
    make(tmp_path)
    path = entry(tmp_path) / ("entry.json" if damage == "list" else "numbers.npy")
    content = path.read_bytes()
    if damage == "missing":
        path.unlink()
    elif damage == "other":
        path.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    else:
        path.write_bytes(content[: len(content) // 2])
    made, built = make(tmp_path)
    assert built == 1
    assert made.arrays["numbers"].tolist() == list(range(0, 3000, 3))
    assert make(tmp_path)[1] == 0


def test_large_arrays_are_mapped_and_not_read(tmp_path, monkeypatch):
    monkeypatch.setattr("workbench.data.cache.MEMORY_MAP_BYTES", 1000)
    numbers = make(tmp_path)[0].arrays["numbers"]
    assert isinstance(numbers, np.memmap)
    assert numbers[-1] == 2997


def test_the_folder_can_be_named_by_the_environment(tmp_path, monkeypatch):
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path / "here"))
    assert cache_folder() == tmp_path / "here"
    monkeypatch.delenv(CACHE_VARIABLE)
    assert cache_folder().name == "data"


def test_a_folder_that_cannot_be_written_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(DataError, match=CACHE_VARIABLE):
        make(tmp_path / "file" / "cache")
    assert os.listdir(tmp_path) == ["file"]
