"""What is shown of an action is what is done: as a command and as Python."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple
from unittest.mock import create_autospec

import click
import pytest

from workbench.cli.entry import group
from workbench.cli.parameter_types import read_settings
from workbench.experiment import Experiment
from workbench.experiment.actions import (
    ACTIONS,
    Standing,
    action_of,
    command_words,
    snippet_of,
    suggest,
)
from workbench.runs import Run, attach, read_experiment, sweep


class Example(NamedTuple):
    kind: str
    run_id: str
    arguments: dict[str, Any]
    command: str
    python: str


_FILE = Path(__file__).with_name("snippets.json")
EXAMPLES = [Example(**each) for each in json.loads(_FILE.read_text(encoding="utf-8"))]


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.command)
def test_a_snippet_is_written_for_a_shell_and_for_python(example: Example) -> None:
    assert snippet_of(*example[:3]) == (example.command, example.python)


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.command)
def test_the_command_is_one_of_the_command_line(example: Example) -> None:
    run_id, arguments = example.run_id, example.arguments
    name, *words = shlex.split(example.command)[1:]
    command = group.get_command(click.Context(group), name)
    assert command is not None
    parsed = command.make_context(name, list(words)).params
    assert (parsed.get("file") or parsed["run_id"]) == (run_id or arguments["path"])
    for name in ("settings", "params"):
        assert (parsed.get(name) or {}) == arguments.get(name, {})
    values = [
        list(argument) if isinstance(argument, tuple) else argument for argument in parsed.values()
    ]
    values += [str(argument) for argument in values if isinstance(argument, Path)]
    for option, value in arguments.items():
        if option not in ("path", "settings", "params"):
            assert value in values


@pytest.mark.parametrize(
    "example",
    [shown for shown in EXAMPLES if shown.kind != "start"],
    ids=lambda example: example.command,
)
def test_the_python_calls_what_there_is(example: Example) -> None:
    kind, run_id, arguments = example[:3]
    attached = create_autospec(Run, instance=True)
    wb = SimpleNamespace(attach=create_autospec(attach, return_value=attached))
    exec(example.python, {"wb": wb})
    wb.attach.assert_called_once_with(run_id)
    ((name, positional, named),) = attached.method_calls
    assert name == (ACTIONS[kind].method or kind)
    given = [*positional, *named.values()]
    assert given == ([arguments["params"]] if kind == "enqueue" else list(arguments.values()))


@pytest.mark.parametrize(
    "arguments",
    [
        {"path": "small.yaml"},
        {"path": "small.yaml", "name": 'it\'s "mine"'},
        {
            "path": "small.yaml",
            "settings": {"budget.trials": 3, "sampler": "random"},
            "name": "mine",
        },
    ],
)
def test_the_python_of_a_start_sweeps_what_the_command_would(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: dict[str, Any]
) -> None:
    (tmp_path / "small.yaml").write_text(
        "train: a.b:c\nobjectives: [{metric: loss, goal: minimize}]\n"
    )
    monkeypatch.chdir(tmp_path)
    wb = SimpleNamespace(sweep=create_autospec(sweep))
    exec(snippet_of("start", "", arguments).python, {"wb": wb})
    ((swept,), _) = wb.sweep.call_args
    experiment = swept if isinstance(swept, Experiment) else read_experiment(swept)
    words = command_words(action_of("start"), "", arguments)
    written = read_settings(
        tuple(word for word, before in zip(words[1:], words, strict=False) if before == "--set")
    )
    by_command = written | ({"name": arguments["name"]} if "name" in arguments else {})
    assert experiment == read_experiment("small.yaml", by_command)
    assert experiment.name == arguments.get("name", "small")


def test_a_sweep_without_a_file_repeats_the_run_that_it_learns_from() -> None:
    suggestion = suggest("sweep", warm_start=["r-1"], settings={"training.epochs": 2})
    assert suggestion.words == ("sweep", "--set", "training.epochs=2", "--warm-start", "r-1")
    assert suggestion.python is not None
    first, second = suggestion.python.splitlines()
    assert first == "from workbench.runs import change_experiment"
    changed = "change_experiment(wb.attach('r-1').experiment, {'training.epochs': 2})".replace(
        "'", '"'
    )
    assert second == f'wb.sweep({changed}, warm_start=["r-1"])'


@pytest.mark.parametrize(
    ("standing", "is_possible"),
    [
        (Standing(state="running"), False),
        (Standing(state="running", is_silent=True), True),
        (Standing(state="running", is_silent=True, is_advice=True), False),
        (Standing(state="lost"), True),
        (Standing(state="complete"), False),
    ],
)
def test_a_run_whose_driver_gives_no_sign_can_be_given_another(
    standing: Standing, is_possible: bool
) -> None:
    for_run = ACTIONS["resume"].for_run
    assert for_run is not None
    assert for_run(standing) is is_possible
