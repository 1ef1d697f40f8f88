"""What is shown of an action is what is done: as a command, as Python, and by the front end alike."""

from __future__ import annotations

import importlib
import json
import shlex
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import create_autospec

import pytest

import workbench
from workbench.cli.entry import COMMANDS
from workbench.cli.options import read_settings
from workbench.experiment import Experiment
from workbench.run import Run, attach, read_experiment, sweep
from workbench.watch.same import same_as, words_of

EXAMPLES = json.loads(
    (Path(workbench.__file__).parents[1] / "extensions" / "tests" / "same.json").read_text(encoding="utf-8")
)
METHODS = {"stop_trial": "stop", "save_report": "report"}


def asked(example: dict[str, Any]) -> tuple[str, str, dict[str, Any]]:
    return example["asked"]["kind"], example["asked"]["run"], example["asked"]["arguments"]


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example["command"])
def test_server_and_front_end_write_the_same(example: dict[str, Any]) -> None:
    assert same_as(*asked(example))._asdict() == {key: example[key] for key in ("command", "python")}


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example["command"])
def test_the_command_is_one_of_the_command_line(example: dict[str, Any]) -> None:
    _, run_id, arguments = asked(example)
    name, *words = shlex.split(example["command"])[1:]
    module, _, function = COMMANDS[name].partition(":")
    command = getattr(importlib.import_module(module), function)
    parsed = command.make_context(name, list(words)).params
    assert (parsed.get("file") or parsed["run_id"]) == (run_id or arguments["path"])
    written = arguments.get("settings", arguments.get("params", {}))
    assert read_settings(parsed.get("assignments", ())) == written
    for option, value in arguments.items():
        if option not in ("path", "settings", "params"):
            assert str(value) in map(str, parsed.values())


@pytest.mark.parametrize("example", [each for each in EXAMPLES if each["asked"]["kind"] != "start"],
                         ids=lambda example: example["command"])  # fmt: skip
def test_the_python_calls_what_there_is(example: dict[str, Any]) -> None:
    kind, run_id, arguments = asked(example)
    attached = create_autospec(Run, instance=True)
    wb = SimpleNamespace(attach=create_autospec(attach, return_value=attached))
    exec(example["python"], {"wb": wb})
    wb.attach.assert_called_once_with(run_id)
    ((name, positional, named),) = attached.method_calls
    assert name == METHODS.get(kind, kind)
    given = [*positional, *named.values()]
    assert given == ([arguments["params"]] if kind == "enqueue" else list(arguments.values()))


@pytest.mark.parametrize(
    "arguments",
    [
        {"path": "small.yaml"},
        {"path": "small.yaml", "name": 'it\'s "mine"'},
        {"path": "small.yaml", "settings": {"budget.trials": 3, "sampler": "random"}, "name": "mine"},
    ],
)
def test_the_python_of_a_start_sweeps_what_the_command_would(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: dict[str, Any]
) -> None:
    (tmp_path / "small.yaml").write_text("train: a.b:c\nobjectives: [{metric: loss, goal: minimize}]\n")
    monkeypatch.chdir(tmp_path)
    wb = SimpleNamespace(sweep=create_autospec(sweep))
    exec(same_as("start", "", arguments).python, {"wb": wb})
    ((swept,), _) = wb.sweep.call_args
    experiment = swept if isinstance(swept, Experiment) else read_experiment(swept)
    words = words_of("start", "", arguments)
    written = read_settings(
        tuple(word for word, before in zip(words[1:], words, strict=False) if before == "--set")
    )
    by_command = written | ({"name": arguments["name"]} if "name" in arguments else {})
    assert experiment == read_experiment("small.yaml", by_command)
    assert experiment.name == arguments.get("name", "small")
