from __future__ import annotations

import hashlib
import io
import os
import subprocess
import time
import zipfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workbench.cluster.remote import code_archive
from workbench.cluster.remote.code_archive import pack, unpack, unpacked
from workbench.cluster.remote.code_origin import Origin
from workbench.foundation.artifacts import open_artifacts
from workbench.foundation.errors import RunError

NAME = st.text("abcxyz_.-", min_size=1, max_size=8).filter(lambda name: name not in (".", ".."))


def write(folder: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


def names(content: bytes) -> list[str]:
    return sorted(zipfile.ZipFile(io.BytesIO(content)).namelist())


@given(files=st.dictionaries(NAME, st.binary(max_size=200), min_size=1, max_size=5))
def test_what_is_packed_is_unpacked(
    files: dict[str, bytes], tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("files")
    for name, content in files.items():
        (folder / name).write_bytes(content)
    packed = pack(folder, whole=True)
    unpack(packed.content, folder.parent / f"{folder.name}-again")
    again = {
        path.name: path.read_bytes() for path in (folder.parent / f"{folder.name}-again").iterdir()
    }
    assert again == files
    assert packed.num_files == len(files)
    assert pack(folder, whole=True) == packed


def test_another_byte_or_another_name_is_another_identity(tmp_path: Path) -> None:
    files = [{"a.py": "x = 1"}, {"a.py": "x = 2"}, {"b.py": "x = 1"}, {"a.py": "x", "b.py": " = 1"}]
    identities = {
        pack(write(tmp_path / str(index), item)).identity for index, item in enumerate(files)
    }
    assert len(identities) == len(files)


def test_what_belongs_to_the_machine_stays_at_home(tmp_path: Path) -> None:
    write(
        tmp_path,
        {
            "net.py": "",
            "package/__init__.py": "",
            "package/__pycache__/net.pyc": "",
            ".venv/bin/python": "",
            ".git/config": "",
            "node_modules/x.js": "",
            ".workbench/experiment.yaml": "",
        },
    )
    packed = pack(tmp_path, added={".workbench/experiment.yaml": b"name: mine"})
    assert names(packed.content) == [".workbench/experiment.yaml", "net.py", "package/__init__.py"]


def test_git_says_what_is_ignored_and_the_data_of_the_experiment_comes_along(
    tmp_path: Path,
) -> None:
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    write(
        tmp_path,
        {
            ".gitignore": "*.csv\n",
            "net.py": "",
            "big.csv": "",
            "houses.csv": "",
            "sub/.git/HEAD": "",
        },
    )
    write(tmp_path, {"inner/x.py": ""})
    subprocess.run(["git", "init", "-q", str(tmp_path / "inner")], check=True)
    subprocess.run(
        [
            "git",
            "-c",
            "user.name=x",
            "-c",
            "user.email=x@x",
            "commit",
            "-q",
            "--allow-empty",
            "-m",
            "x",
        ],
        cwd=tmp_path / "inner",
        check=True,
    )
    assert names(pack(tmp_path, also=["houses.csv"]).content) == [
        ".gitignore",
        "houses.csv",
        "inner/x.py",
        "net.py",
    ]


def test_a_folder_that_is_ignored_as_a_whole_is_packed(tmp_path: Path) -> None:
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    write(tmp_path, {".gitignore": "scratch/\n", "scratch/net.py": ""})
    assert names(pack(tmp_path / "scratch").content) == ["net.py"]


def test_too_much_is_refused_with_what_is_largest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(code_archive, "MAX_BYTES", 3 * 2**20)
    write(tmp_path, {"net.py": "", "data/big.bin": "x" * 4 * 2**20})
    with pytest.raises(RunError, match=r"exceeds the 3 MiB .* data \(4 MiB\)"):
        pack(tmp_path)


def test_a_script_that_can_be_run_can_be_run_there(tmp_path: Path) -> None:
    write(tmp_path / "code", {"run.sh": "", "net.py": ""})
    (tmp_path / "code" / "run.sh").chmod(0o755)
    unpack(pack(tmp_path / "code").content, tmp_path / "again")
    assert [os.access(tmp_path / "again" / name, os.X_OK) for name in ("run.sh", "net.py")] == [
        True,
        False,
    ]


def test_an_archive_cannot_write_outside_of_its_folder(tmp_path: Path) -> None:
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        archive.writestr("../outside", "x")
    with pytest.raises(RunError, match="lies outside"):
        unpack(content.getvalue(), tmp_path / "folder")
    assert list(tmp_path.iterdir()) == []


def test_a_machine_fetches_an_archive_once_and_takes_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    content = pack(write(tmp_path / "code", {"net.py": "x = 1"})).content
    sha256 = hashlib.sha256(content).hexdigest()
    fetched = []
    places = [unpacked(sha256, lambda: fetched.append(1) or content) for _ in range(2)]
    assert places[0] == places[1]
    assert (places[0] / "net.py").read_text() == "x = 1"
    assert len(fetched) == 1
    with pytest.raises(RunError, match="another hash than was stored"):
        unpacked("0" * 64, lambda: content)


def test_code_that_nobody_has_entered_for_long_is_forgotten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    archives = [pack(write(tmp_path / str(i), {"net.py": str(i)})).content for i in range(3)]
    places = [
        unpacked(hashlib.sha256(item).hexdigest(), lambda item=item: item) for item in archives[:2]
    ]
    long_ago = time.time() - code_archive.KEPT_S - 60
    os.utime(places[0], (long_ago, long_ago))
    unpacked(hashlib.sha256(archives[2]).hexdigest(), lambda: archives[2])
    assert [place.exists() for place in places] == [False, True]


def test_code_lies_elsewhere_on_another_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    there = write(tmp_path / "there", {"net.py": "x = 1", "sub/data.csv": "1"})
    content = pack(there).content
    artifacts = open_artifacts(tmp_path / "run")
    artifacts.write("code.zip", content)
    origin = Origin(
        str(there / "sub"),
        (str(there), str(tmp_path / "elsewhere"), str(there / "sub")),
        str(there),
        hashlib.sha256(content).hexdigest(),
        artifacts.url,
    )
    here = origin.on_this_machine()
    assert Path(here.directory, "data.csv").read_text() == "1"
    assert Path(here.search_path[0], "net.py").read_text() == "x = 1"
    assert here.search_path[1:] == (str(tmp_path / "elsewhere"), here.directory)
    assert not Path(here.directory).is_relative_to(there)


HOME = {
    "net.py": "",
    "data/x.csv": "1",
    ".env": "TOKEN=1",
    ".env.example": "TOKEN=",
    ".aws/credentials": "x",
    ".ssh/id_rsa": "secret",
    "deploy/server.pem": "secret",
    "deploy/key": "-----BEGIN PRIVATE KEY-----\n",
    "notes/project-1a2b.json": '{"type": "service_account"}',
    ".kaggle/kaggle.json": "{}",
}
SENT = [".env.example", "data/x.csv", "net.py"]
SECRETS = (
    ".aws/credentials",
    ".env",
    ".kaggle/kaggle.json",
    ".ssh/id_rsa",
    "deploy/key",
    "deploy/server.pem",
    "notes/project-1a2b.json",
)


@pytest.mark.parametrize("is_repository", [False, True])
def test_known_secrets_and_links_stay_at_home(tmp_path: Path, is_repository: bool) -> None:
    outside = write(tmp_path / "outside", {"private.txt": "secret", "more/own.txt": "secret"})
    folder = write(
        tmp_path / ".secrets" / "folder", HOME
    )  # what contains the folder does not count
    (folder / "link.txt").symlink_to(outside / "private.txt")
    (folder / "linked").symlink_to(outside / "more")
    (folder / "data" / "again.csv").symlink_to(folder / "data" / "x.csv")
    (folder / "data" / "gone.csv").symlink_to(folder / "nothing")
    if is_repository:
        subprocess.run(["git", "init", "-q", str(folder)], check=True)
        subprocess.run(["git", "add", "-f", "."], cwd=folder, check=True)
    packed = pack(folder)
    assert names(packed.content) == list(packed.names) == SENT
    assert packed.secrets == SECRETS
    assert packed.links == ("data/again.csv", "data/gone.csv", "link.txt", "linked")
    named = pack(folder, also=["data", "deploy/server.pem"])
    assert names(named.content) == [".env.example", "data/x.csv", "deploy/server.pem", "net.py"]


def test_a_folder_that_was_sent_is_packed_as_it_is_but_for_links(tmp_path: Path) -> None:
    write(tmp_path, {"net.py": "", "model.key": "named by the experiment"})
    (tmp_path / "link").symlink_to("/etc/hostname")
    assert names(pack(tmp_path, whole=True).content) == ["model.key", "net.py"]
