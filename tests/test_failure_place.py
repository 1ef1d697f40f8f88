from __future__ import annotations

import traceback
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from workbench.foundation.errors import WorkbenchError
from workbench.store.history.failure_place import failure_place


@pytest.fixture
def loop(tmp_path: Path) -> ModuleType:
    """A module of a user that fails in each of its functions."""
    path = tmp_path / "loop.py"
    path.write_text(
        "import json\n"
        "def own(): raise ValueError('too wide')\n"
        "def in_a_library(): json.loads('{')\n"
        "def chained(translate):\n"
        "    try: own()\n"
        "    except ValueError as error: translate(error)\n"
    )
    module = ModuleType("loop")
    exec(compile(path.read_text(), str(path), "exec"), module.__dict__)
    return module


def printed(call: Any, *arguments: Any) -> str:
    try:
        call(*arguments)
    except Exception as error:
        return "".join(traceback.format_exception(error))
    raise AssertionError("the call did not fail")


def test_the_place_is_the_innermost_line_of_the_user(loop: ModuleType, tmp_path: Path) -> None:
    assert failure_place(printed(loop.own)) == f"{tmp_path}/loop.py:2"
    assert failure_place(printed(loop.in_a_library)) == f"{tmp_path}/loop.py:3"


def test_of_chained_exceptions_the_last_one_counts(loop: ModuleType, tmp_path: Path) -> None:
    def translate(error: Exception) -> None:
        raise WorkbenchError("translated") from error

    text = printed(loop.chained, translate).replace(__file__, "/usr/lib/python3.13/translate.py")
    assert failure_place(text) == f"{tmp_path}/loop.py:6"


@pytest.mark.parametrize(
    ("path", "place"),
    [
        ("/opt/conda/lib/python3.12/site-packages/torch/nn/modules/module.py", None),
        ("/srv/tools/workbench/training/functions.py", None),
        ("/home/me/workbench/loop.py", "/home/me/workbench/loop.py:7"),
        ("/tmp/ipykernel_4711/2468.py", "notebook cell:7"),
        ("<frozen importlib._bootstrap>", None),
    ],
)
def test_lines_of_packages_are_not_the_users(path: str, place: str | None) -> None:
    assert failure_place(f'Traceback:\n  File "{path}", line 7, in train\nValueError: x') == place


def test_without_a_traceback_there_is_no_place() -> None:
    assert failure_place(None) is failure_place("") is None
