from __future__ import annotations

import inspect
import json
import pickle
import shlex
import sys
from pathlib import Path
from typing import Any

import pytest

from workbench.foundation import errors


def test_a_message_says_what_where_what_is_allowed_and_the_next_step() -> None:
    error = errors.ExperimentError(
        "is 0", field="plan.workers", allowed=["1", "2"], next_step="Use one."
    )
    assert str(error) == "plan.workers: is 0; allowed: 1, 2. Use one."
    assert str(error.at("experiment")) == "experiment.plan.workers: is 0; allowed: 1, 2. Use one."


@pytest.mark.parametrize(
    "kind",
    [
        kind
        for _, kind in inspect.getmembers(errors, inspect.isclass)
        if issubclass(kind, errors.WorkbenchError)
    ],
)
def test_every_error_crosses_process_borders_whole(kind: type[errors.WorkbenchError]) -> None:
    error = kind("problem", field="a.b", allowed="c", next_step="d")
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is kind
    assert (again.problem, again.field, again.allowed, again.next_step) == (
        "problem",
        "a.b",
        "c",
        "d",
    )


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (ValueError("the shapes differ.\n\nStack:\n ..."), "the shapes differ"),
        (RuntimeError("\n  out of range\n"), "out of range"),
        (ConnectionError(), "ConnectionError"),
        (KeyError("  "), "'  '"),
    ],
)
def test_of_the_error_of_another_library_its_first_line_is_shown(
    error: Exception, line: str
) -> None:
    assert errors.first_line_of(error) == line


def test_the_drawn_tree_is_the_real_one() -> None:
    assert errors.__doc__ is not None
    for name, kind in inspect.getmembers(errors, inspect.isclass):
        if issubclass(kind, errors.WorkbenchError):
            assert name in errors.__doc__


FOLDER = {"url": "file:///my%20code/workbench", "dir_info": {}}
EDITABLE = {"url": "file:///my%20code/workbench", "dir_info": {"editable": True}}
WHEEL = {"url": "file:///wheels/tuning_workbench-0.1.0-py3-none-any.whl", "archive_info": {}}
REMOTE = {"url": "https://here.org/tuning_workbench-0.1.0-py3-none-any.whl", "archive_info": {}}
CLONED = {"url": "https://here.org/workbench.git", "vcs_info": {"vcs": "git", "commit_id": "a1b2"}}


@pytest.mark.parametrize(
    ("origin", "words"),
    [
        (None, ["tuning-workbench[deploy]"]),
        (FOLDER, ["/my code/workbench[deploy]"]),
        (EDITABLE, ["--editable", "/my code/workbench[deploy]"]),
        (WHEEL, ["/wheels/tuning_workbench-0.1.0-py3-none-any.whl[deploy]"]),
        (
            REMOTE,
            ["tuning-workbench[deploy] @ https://here.org/tuning_workbench-0.1.0-py3-none-any.whl"],
        ),
        (CLONED, ["tuning-workbench[deploy] @ git+https://here.org/workbench.git@a1b2"]),
    ],
)
def test_a_part_is_installed_from_where_the_workbench_was(
    origin: dict[str, Any] | None, words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "tuning_workbench-0.1.0.dist-info"
    folder.mkdir()
    metadata = "Metadata-Version: 2.4\nName: tuning-workbench\nVersion: 0.1.0\n"
    (folder / "METADATA").write_text(metadata)
    if origin is not None:
        (folder / "direct_url.json").write_text(json.dumps(origin))
    monkeypatch.syspath_prepend(tmp_path)

    command = shlex.split(errors.install_command("deploy"))
    assert command == ["pip", "install", *words]


def test_a_part_is_added_to_the_folder_that_is_imported_without_being_installed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    root = Path(errors.__file__).parents[2]
    monkeypatch.setattr(sys, "path", [])
    assert shlex.split(errors.install_command("lab")) == [
        "pip",
        "install",
        "--editable",
        f"{root}[lab]",
    ]
