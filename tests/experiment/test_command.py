"""An experiment whose trials are a program.

Its command line, refusals, and what reaches the program.
"""

from __future__ import annotations

import argparse
import ast
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workbench.experiment import Experiment
from workbench.experiment.command import expand, files_to_resume_from, nested, parse_command
from workbench.foundation.errors import ExperimentError

LOSS = [{"metric": "loss", "goal": "minimize"}]
RATE = {"lr": {"low": 0.01, "high": 1.0}}


def experiment(command: Any = "python t.py --lr {lr}", **fields: Any) -> Experiment:
    return Experiment(**{"command": command, "objectives": LOSS, "search": RATE, **fields})


def test_a_line_and_a_list_are_the_same_experiment() -> None:
    line = experiment("python 'my file.py' --lr {lr} --text \"it's\"")
    listed = experiment(["python", "my file.py", "--lr", "{lr}", "--text", "it's"])
    assert line.hash() == listed.hash()
    assert expand(line.command or "", {"lr": 0.5}, {})[1:] == [
        "my file.py",
        "--lr",
        "0.5",
        "--text",
        "it's",
    ]


def test_it_is_written_and_read_again() -> None:
    written = experiment(
        "./train {args} --resume {resume} '{{x}}'",
        step="epoch",
        plan={"workers": 2},
        metrics={"jsonl": "{folder}/log.jsonl"},
        resources={"stop_grace": "3s", "max_log_size": "1MB"},
    )
    assert "command: ./train {args} --resume {resume} {{x}}" in written.to_yaml()
    assert Experiment.from_yaml(written.to_yaml()).hash() == written.hash()
    assert Experiment.model_validate_json(written.model_dump_json()) == written
    assert written.replace(step="iteration").metric_source.path == "{folder}/log.jsonl"


def test_metrics_that_are_read_from_what_is_printed_need_not_be_written() -> None:
    assert experiment(metrics={"from": "auto"}).hash() == experiment().hash()
    assert experiment(metrics={"from": "stdout"}).hash() != experiment().hash()


@pytest.mark.parametrize(
    ("fields", "field", "part"),
    [
        ({"command": "python t.py {lr} {width}"}, "command", "{width} is neither"),
        ({"command": "python t.py"}, "search.lr", "the command does not receive lr"),
        ({"command": "python t.py '{lr}"}, "command", "cannot be split"),
        ({"command": "python t.py {lr"}, "command", "not a placeholder"),
        ({"command": ["a", "{lr}", '{"b": 1}']}, "command", "Write {{ and }}"),
        ({"command": "a {lr:flag}"}, "command", "needs true or false"),
        ({"command": "a x{args}"}, "command", "joins {args}"),
        ({"command": []}, "command", "no program"),
        ({"command": 3}, "command", "not a command"),
        ({"train": "a:b"}, "train", "Remove train or command"),
        ({"training": {"epochs": 3}}, "training.epochs", "of command"),
        ({"plan": {"micro_batch": 3}}, "plan.micro_batch", "of command"),
        ({"metrics": ["accuracy"]}, "metrics", "computes its own"),
        ({"metrics": {"json": "a"}}, "metrics.json", "unknown key"),
        ({"metrics": {"jsonl": "a", "csv": "b"}}, "metrics.csv", "one place"),
        ({"metrics": {"csv": "{lr}.csv"}}, "metrics.csv", "a path cannot contain"),
        ({"metrics": {"pattern": "loss (\\S+)"}}, "metrics.pattern", "has no named group"),
        ({"metrics": {"pattern": "("}}, "metrics.pattern", "not a regular expression"),
        ({"early_stop": {"pruner": "asha", "unit": "epoch"}}, "early_stop.unit", "step: epoch"),
        ({"command": None, "train": "a:b", "step": "epoch"}, "step", "only a command"),
        (
            {"command": None, "train": "a:b", "metrics": {"csv": "a"}},
            "metrics",
            "only a command's metrics",
        ),
        (
            {"command": None, "train": "a:b", "resources": {"stop_grace": 3}},
            "resources.stop_grace",
            "command",
        ),
    ],
)
def test_what_cannot_work_is_refused(fields: dict[str, Any], field: str, part: str) -> None:
    with pytest.raises(ExperimentError, match=field) as caught:
        experiment(**fields)
    assert caught.value.field == field
    assert part in f"{caught.value}"


def test_names_may_have_dashes_and_dots_and_a_searched_seed_replaces_that_of_the_trial() -> None:
    search = {"learning-rate": 0.5, "optimizer.lr": 2, "seed": {"choices": [4, 5]}}
    declared = experiment(
        "t --learning-rate {learning-rate} optimizer.lr={optimizer.lr} {seed}", search=search
    )
    params = {"learning-rate": 0.5, "optimizer.lr": 2, "seed": 4}
    assert expand(declared.command or "", params, {"seed": 1}) == [
        "t",
        "--learning-rate",
        "0.5",
        "optimizer.lr=2",
        "4",
    ]


@pytest.mark.parametrize(("value", "flags"), [(True, ["--amp"]), (False, ["--no-amp"]), (None, [])])
def test_flags(value: bool | None, flags: list[str]) -> None:
    search = {"amp": {"choices": [True, False, None]}}
    command = experiment("t {amp:flag} {amp:no-flag}", search=search).command or ""
    assert expand(command, {"amp": value}, {}) == ["t", *flags]


def test_a_value_that_is_null_or_does_not_exist_takes_its_option_with_it() -> None:
    command = parse_command("t --clip {clip} --m={m} x {lr}")
    assert expand(command, {"clip": None, "lr": 1}, {}) == ["t", "x", "1"]


_TEXT = st.text(st.characters(blacklist_characters="\0", blacklist_categories=["Cs"]))
_SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | _TEXT
)


@given(st.lists(_SCALARS | st.lists(_SCALARS, max_size=3), max_size=5), st.data())
def test_every_value_reaches_the_program_unchanged(values: list[Any], data: st.DataObject) -> None:
    params = {f"p{place}": value for place, value in enumerate(values)}
    command = parse_command(["t", *(f"{{{name}:json}}" for name in params), "{args:json}"])
    words = expand(command, params, {})
    assert [json.loads(argument) for argument in words[1:-1]] == values
    assert json.loads(words[-1]) == {}
    line = data.draw(
        st.lists(_TEXT.map(lambda text: text.replace("{", "").replace("}", "")), min_size=1)
    )
    if line[0]:
        assert expand(parse_command(line), {}, {}) == line


@given(st.dictionaries(st.sampled_from(["lr", "n-m", "a.b", "text"]), _SCALARS))
def test_argparse_reads_what_args_stands_for(params: dict[str, Any]) -> None:
    parser = argparse.ArgumentParser(allow_abbrev=False)
    for name in ("lr", "n-m", "a.b", "text"):
        parser.add_argument(f"--{name}", dest=name)
    arguments = vars(parser.parse_args(expand("t {args}", params, {})[1:]))
    for name, text in arguments.items():
        value = params.get(name)
        assert text == (value if isinstance(value, str) or value is None else json.dumps(value))


@given(_SCALARS.filter(lambda value: not isinstance(value, str)))
def test_python_literals(value: Any) -> None:
    _, text = expand("t {x:python}", {"x": value}, {})
    assert ast.literal_eval(text) == value


def test_a_group_of_parameters_reaches_the_program_as_one_literal() -> None:
    search = {"optimizer.lr": {"low": 0.01, "high": 1.0}, "optimizer.sgd.momentum": 0.9, "width": 8}
    declared = experiment(
        "./train {optimizer:json} --o={optimizer.sgd:python} {args}", search=search
    )
    params = {"optimizer.lr": 0.5, "optimizer.sgd.momentum": 0.9, "width": 8}
    assert expand(declared.command or "", params, {}) == [
        "./train",
        '{"lr": 0.5, "sgd": {"momentum": 0.9}}',
        "--o={'momentum': 0.9}",
        "--width=8",
    ]
    with pytest.raises(ExperimentError, match="is neither a searched parameter"):
        experiment("./train {optimizer} {args}", search=search)


def test_names_that_are_also_the_beginning_of_others_stay_flat() -> None:
    params = {"a": 1, "a.b": 2, "c.d.e": 3, "c.d": 4, ".x": 5, "y.": 6}
    assert nested(params) == {"a": 1, "a.b": 2, "c": {"d.e": 3, "d": 4}, ".x": 5, "y.": 6}


def _flat(values: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for name, value in values.items():
        flat |= (
            _flat(value, f"{prefix}{name}.")
            if isinstance(value, dict)
            else {f"{prefix}{name}": value}
        )
    return flat


@given(
    st.dictionaries(
        st.from_regex(r"[ab]{1,2}(\.[ab]{1,2}){0,3}", fullmatch=True), st.integers(), max_size=6
    )
)
def test_nested_parameters_are_all_there_under_their_names(params: dict[str, int]) -> None:
    assert _flat(nested(params)) == params


@pytest.mark.parametrize(
    ("command", "before", "after"),
    [
        ("a --resume {resume_from:m.pt} b", ["a", "b"], ["a", "--resume", "f/m.pt", "b"]),
        (
            "a --fast --resume={resume_from:m.pt}",
            ["a", "--fast"],
            ["a", "--fast", "--resume=f/m.pt"],
        ),
        ("a b {resume_from:m.pt}", ["a", "b"], ["a", "b", "f/m.pt"]),
        ("a ckpt={resume_from:m.pt}", ["a"], ["a", "ckpt=f/m.pt"]),
        ("a --x -1 {resume_from:m.pt}", ["a", "--x", "-1"], ["a", "--x", "-1", "f/m.pt"]),
    ],
)
def test_a_file_to_resume_from_is_left_out_until_it_exists(
    command: str, before: list[str], after: list[str]
) -> None:
    assert files_to_resume_from(command) == ["m.pt"]
    assert expand(command, {}, {"resume_from": {"m.pt": None}}) == before
    assert expand(command, {}, {"resume_from": {"m.pt": "f/m.pt"}}) == after


def test_only_the_option_of_a_missing_value_is_dropped() -> None:
    params = {"a": None, "offset": -1, "b": 2}
    assert expand("t --amp --clip={a}", params, {}) == ["t", "--amp"]
    assert expand("t {offset} {a} --b {b} {a}", params, {}) == ["t", "-1", "--b", "2"]
    assert expand("t --betas {a} {a} --out runs/{a} x", params, {}) == ["t", "x"]


@pytest.mark.parametrize(
    ("name", "part"),
    [
        ("{resume_from}", "does not say from which file"),
        ("{resume_from:/a/m.pt}", "is outside the folder of the trial"),
        ("{resume_from:../m.pt}", "is outside the folder of the trial"),
    ],
)
def test_a_file_to_resume_from_is_below_the_folder(name: str, part: str) -> None:
    with pytest.raises(ExperimentError, match=part):
        parse_command(["python", "train.py", "--resume", name])


def test_parameters_in_the_configuration_of_wandb_need_no_placeholder() -> None:
    assert experiment("python t.py", metrics={"from": "wandb"}).command == "python t.py"
