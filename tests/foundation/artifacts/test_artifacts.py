"""One behaviour on every kind of place: a path, a file URL, a filesystem of pyarrow."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest
from pyarrow.fs import LocalFileSystem, SubTreeFileSystem

from workbench.foundation.artifacts import Artifacts, disk_fault, open_artifacts
from workbench.foundation.artifacts.remote import RemoteArtifacts
from workbench.foundation.errors import ArtifactsError


@pytest.fixture(params=["path", "file URL", "memory", "subtree", "s3"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Artifacts:
    match request.param:
        case "path":
            return open_artifacts(tmp_path / "runs" / "one")
        case "file URL":
            return open_artifacts(f"file://{tmp_path}/runs/one")
        case "memory":
            return open_artifacts(f"mock:///{tmp_path.name}/runs/one?unique={tmp_path}")
        case "s3":
            return open_artifacts(
                request.getfixturevalue("s3_server").url(f"{tmp_path.name}/runs/one")
            )
        case _:
            (tmp_path / "tree").mkdir()
            tree = SubTreeFileSystem(str(tmp_path / "tree"), LocalFileSystem())
            return RemoteArtifacts("tree://somewhere/runs/one", tree, "runs/one")


def test_what_is_written_is_read_replaced_listed_and_deleted(
    place: Artifacts, tmp_path: Path
) -> None:
    place.write("a/b/one.txt", b"first")
    place.write("a/b/one.txt", b"second")
    place.write("a/empty", b"")
    source = tmp_path / "source"
    source.write_bytes(b"moved" * 1000)
    place.put(source, "a/two")

    assert not source.exists()
    assert place.read("a/b/one.txt") == b"second"
    assert place.sizes() == {"a/b/one.txt": 6, "a/empty": 0, "a/two": 5000}
    assert place.below("a").sizes("b") == {"b/one.txt": 6}
    with place.as_file("a/two") as path:
        assert path.read_bytes() == b"moved" * 1000
    assert (place.exists("a/two"), place.exists("a"), place.exists("b")) == (True, True, False)

    place.delete("a/b")
    place.delete("a/empty")
    place.delete("nothing")
    assert place.sizes() == {"a/two": 5000}
    assert place.sizes("nowhere") == {}


def test_a_folder_can_be_probed_and_found_again_by_what_is_shown_of_it(place: Artifacts) -> None:
    place.prepare()
    place.probe(1000)
    assert place.sizes() == {}
    assert place.name_of(f"{place.below('trials/00001')}/last.pt") == "trials/00001/last.pt"
    assert place.name_of("/somewhere/else/last.pt") is None


def test_a_missing_file_is_told_with_its_place(place: Artifacts) -> None:
    with pytest.raises(ArtifactsError, match=r"one/none\.txt") as caught:
        place.read("none.txt")
    assert "\n" not in str(caught.value)


def test_another_process_opens_the_same_place(tmp_path: Path) -> None:
    program = (
        "import sys\n"
        "from workbench.foundation.artifacts import open_artifacts\n"
        "open_artifacts(sys.argv[1]).write('x', b'!')\n"
    )
    url = f"file://{tmp_path}/a%20b"
    subprocess.run([sys.executable, "-c", program, url], check=True)
    assert (tmp_path / "a b" / "x").read_bytes() == b"!"
    assert open_artifacts(url).read("x") == b"!"


@pytest.mark.parametrize(
    "url",
    [
        "bogus://key:secret-word@host/runs?token=hidden-word",
        "s3://key:secret-word@bucket/runs?endpoint_override=127.0.0.1:1&scheme=http&token=hidden-word",
        "file://secret-word@host/runs",
    ],
)
def test_keys_in_a_url_are_never_told(url: str) -> None:
    with pytest.raises(ArtifactsError) as caught:
        open_artifacts(url).write("x", b"")
    for text in (str(caught.value), repr(caught.value)):
        assert "secret-word" not in text
        assert "hidden-word" not in text
    assert "/runs" in str(caught.value)
    place = RemoteArtifacts(url).below("one")
    assert "word" not in f"{place} {place!r} {place.working_folder}"
    assert place.url.count("word") == url.count("word")


def test_a_process_that_is_killed_while_it_writes_leaves_the_file_that_was_there(
    tmp_path: Path,
) -> None:
    program = (
        "import os, sys\n"
        "from workbench.foundation.artifacts import open_artifacts\n"
        "os.replace = lambda *_: os.kill(os.getpid(), 9)\n"
        "open_artifacts(sys.argv[1]).write('x', b'half')\n"
    )
    place = open_artifacts(tmp_path)
    place.write("x", b"whole")
    assert (
        subprocess.run([sys.executable, "-c", program, str(tmp_path)], check=False).returncode == -9
    )
    assert place.read("x") == b"whole"


def test_a_full_disk_is_told_from_a_mistake_of_a_program(tmp_path: Path) -> None:
    place = open_artifacts(tmp_path / "trial")
    place.prepare()
    full = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    wrapped = RuntimeError("torch says this")
    wrapped.__context__ = full
    inside, outside = str(tmp_path / "trial" / "x"), str(tmp_path / "elsewhere")

    assert "No space left" in str(disk_fault(wrapped, place))
    assert disk_fault(OSError(errno.EROFS, "read-only", inside), place) is not None
    assert disk_fault(OSError(errno.EROFS, "read-only", outside), place) is None
    assert disk_fault(FileNotFoundError(errno.ENOENT, "gone", inside), place) is None
    (tmp_path / "trial").rmdir()
    assert disk_fault(FileNotFoundError(errno.ENOENT, "gone", inside), place) is not None
    assert disk_fault(ValueError("x is too large"), place) is None
