"""Versions of the code: what is copied of each, how they differ, and what is refused."""

from __future__ import annotations

import json
import subprocess
import zipfile
from io import BytesIO
from pathlib import Path

import pytest

from workbench.cluster.remote.code_origin import Origin
from workbench.cluster.remote.version_trees import VersionOfCode, keep_versions
from workbench.experiment import Experiment
from workbench.foundation.errors import ExperimentError

SCRIPT = """\
import argparse

from layer import gain

parser = argparse.ArgumentParser()
parser.add_argument("--lr", type=float)
print(f"loss={gain() + parser.parse_args().lr}")
"""
WIDER = """\
--- a/layer.py
+++ b/layer.py
@@ -1,2 +1,3 @@
 def gain():
-    return 1.0
+    scale = 2
+    return 1.0 / scale
"""


def git(folder: Path, *arguments: str) -> None:
    identity = ["-c", "user.name=test", "-c", "user.email=test@example.org"]
    subprocess.run(["git", *identity, *arguments], cwd=folder, check=True, capture_output=True)


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "project"
    (folder / "other").mkdir(parents=True)
    for name, content in {
        "train.py": SCRIPT,
        "layer.py": "def gain():\n    return 1.0\n",
        "wider.diff": WIDER,
        "other/train.py": SCRIPT,
        "other/layer.py": "def gain():\n    return 0.25\n",
    }.items():
        (folder / name).write_text(content)
    monkeypatch.chdir(folder)
    return folder


def experiment(*versions: object, **changes: object) -> Experiment:
    return Experiment(
        **{
            "command": "python train.py --lr {lr}",
            "objectives": [{"metric": "loss", "goal": "minimize"}],
            "search": {"code": {"versions": list(versions)}, "lr": {"low": 0.0, "high": 1.0}},
            "budget": {"trials": 4},
            **changes,
        }
    )


def kept(*versions: object) -> list[VersionOfCode]:
    return keep_versions(experiment(*versions), Origin.here())


def content(version: VersionOfCode, name: str) -> str | None:
    """Return a file of a version as the working folder of a trial gets it."""
    with zipfile.ZipFile(BytesIO(version.code.content)) as archive:
        manifest = json.loads(archive.read("manifest.json"))
        entry = manifest["workdir"].get(name)
        if entry is None:
            return None
        return archive.read(manifest["files"][entry["path"]]["kept"]).decode()


def test_a_patch_applies_to_the_working_folder_without_changing_it(project: Path) -> None:
    current, wider = kept({"folder": "."}, {"patch": "wider.diff"})
    assert "1.0\n" in (content(current, "layer.py") or "")
    assert "scale = 2" in (content(wider, "layer.py") or "")
    assert content(wider, "train.py") == SCRIPT
    assert (project / "layer.py").read_text() == "def gain():\n    return 1.0\n"
    assert wider.event.changed == ["layer.py"]
    assert (wider.event.lines_added, wider.event.lines_removed) == (2, 1)


def test_a_commit_brings_its_own_files_and_keeps_untracked_ones(project: Path) -> None:
    git(project, "init", "-q")
    git(project, "add", "train.py")
    git(project, "commit", "-q", "-m", "first")
    git(project, "branch", "before")
    (project / "train.py").write_text(SCRIPT + "print('more')\n")
    before, now = kept({"git": "before"}, {"folder": "."})
    assert content(before, "train.py") == SCRIPT
    assert content(before, "layer.py") is not None  # the repository does not have it
    assert (content(now, "train.py") or "").endswith("print('more')\n")
    assert before.event.source.startswith("git before (")


def test_a_commit_of_a_folder_below_the_repository_and_a_patch_on_it(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    git(project.parent, "init", "-q")
    git(project.parent, "add", ".")
    git(project.parent, "commit", "-q", "-m", "first")
    (project / "layer.py").write_text("def gain():\n    return 9.0\n")
    first, patched, other = kept(
        {"git": "HEAD"}, {"git": "HEAD", "patch": "wider.diff"}, {"folder": "other"}
    )
    assert "1.0" in (content(first, "layer.py") or "")
    assert "1.0 / scale" in (content(patched, "layer.py") or "")
    assert "0.25" in (content(other, "layer.py") or "")
    assert other.event.changed == ["layer.py"]


def test_a_commit_does_not_have_modules_that_were_added_later(project: Path) -> None:
    git(project, "init", "-q")
    git(project, "add", "train.py", "layer.py")
    git(project, "commit", "-q", "-m", "first")
    git(project, "tag", "v1")
    (project / "later.py").write_text("x = 1\n")
    (project / "train.py").write_text("import later\n" + SCRIPT)
    git(project, "add", "later.py")
    first, _ = kept({"git": "v1"}, {"folder": "."})
    assert content(first, "later.py") is None


@pytest.mark.parametrize(
    ("versions", "field", "message"),
    [
        ([{"folder": "."}, {"git": "main"}], "versions.1.git", "is in no git repository"),
        ([{"patch": "missing.diff"}], "versions.0.patch", "cannot be read"),
        ([{"patch": "train.py"}], "versions.0.patch", "is not a patch"),
        ([{"folder": "nowhere"}], "versions.0.folder", "is not a folder"),
        ([{"folder": "."}, {"folder": "same"}], "versions.1", "has the same code as current"),
    ],
)
def test_what_is_no_version_is_refused_in_words(
    project: Path, versions: list[object], field: str, message: str
) -> None:
    (project / "same").mkdir()
    for name in ("train.py", "layer.py"):
        (project / "same" / name).write_text((project / name).read_text())
    with pytest.raises(ExperimentError, match=message) as caught:
        kept(*versions)
    assert caught.value.field == f"search.code.{field}"


def test_a_patch_for_other_code_names_the_place(project: Path) -> None:
    (project / "layer.py").write_text("def gain():\n    return 7.0\n")
    with pytest.raises(ExperimentError, match=r"does not apply: patch failed: layer.py:1"):
        kept({"folder": "."}, {"patch": "wider.diff"})


def test_an_unknown_commit_lists_the_known_names(project: Path) -> None:
    git(project, "init", "-q", "-b", "trunk")
    git(project, "add", ".")
    git(project, "commit", "-q", "-m", "first")
    with pytest.raises(ExperimentError, match="has no commit main") as caught:
        kept({"git": "main"})
    assert "trunk" in str(caught.value.allowed)


def test_a_patch_cannot_leave_the_folder(project: Path, tmp_path: Path) -> None:
    (tmp_path / "victim.txt").write_text("old\n")
    (project / "out.diff").write_text(
        "--- a/../victim.txt\n+++ b/../victim.txt\n@@ -1 +1 @@\n-old\n+new\n"
    )
    with pytest.raises(ExperimentError, match="does not apply"):
        kept({"patch": "out.diff"})
    assert (tmp_path / "victim.txt").read_text() == "old\n"


def test_a_patch_cannot_link_to_files_outside(project: Path) -> None:
    (project / "link.diff").write_text(
        "diff --git a/notes.txt b/notes.txt\nnew file mode 120000\n--- /dev/null\n"
        "+++ b/notes.txt\n@@ -0,0 +1 @@\n+/etc/hostname\n\\ No newline at end of file\n"
    )
    with pytest.raises(ExperimentError, match=r"notes\.txt is a link to /etc/hostname"):
        kept({"patch": "link.diff"})


def test_a_command_with_a_fixed_path_has_no_versions(project: Path) -> None:
    whole = experiment({"folder": "."}, command=f"python {project}/train.py --lr {{lr}}")
    with pytest.raises(ExperimentError, match="would be the same file for every version"):
        keep_versions(whole, Origin.here())
