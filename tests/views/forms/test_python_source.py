from __future__ import annotations

import pytest

from workbench.foundation.errors import ExperimentError
from workbench.views.forms.python_source import read_python, write_python

WRITTEN = """\
import workbench as wb

experiment = wb.Experiment(
    name='it\\'s "so"',
    model={"name": Net, "width": 3},
    data="digits",
    objectives=[wb.Objective(metric="val_loss", goal="minimize")],
    search={
        "lr": wb.Float(low=0.0001, high=0.1, log=True),
        "depth": wb.Int(low=1, high=9, step=2),
        "act": wb.Choice(choices=["relu", None, True, 1.5], prior={"near": "relu"}),
        "shape": wb.Fixed(value=[1, 2], when={"act": "relu"}),
        "seed": -3,
    },
    training=wb.Training(epochs=3),
)
"""
DOCUMENT = {
    "name": 'it\'s "so"',
    "model": {"name": "embedded:Net@1", "width": 3},
    "data": "digits",
    "objectives": [{"metric": "val_loss", "goal": "minimize"}],
    "search": {
        "lr": {"low": 1e-4, "high": 0.1, "log": True, "type": "float"},
        "depth": {"low": 1, "high": 9, "step": 2, "type": "int"},
        "act": {"choices": ["relu", None, True, 1.5], "prior": {"near": "relu"}},
        "shape": {"value": [1, 2], "when": {"act": "relu"}},
        "seed": -3,
    },
    "training": {"epochs": 3},
}


def lookup(name: str) -> str | None:
    return "embedded:Net@1" if name == "Net" else None


def name_of(written: str) -> str | None:
    return "Net" if written == "embedded:Net@1" else None


def read(text: str) -> object:
    return read_python(text, lookup)


def test_an_experiment_is_written_with_the_types_of_workbench_and_names_of_the_notebook() -> None:
    assert write_python(DOCUMENT, name_of) == WRITTEN
    assert read(WRITTEN) == DOCUMENT


def test_what_is_no_parameter_is_written_as_it_stands() -> None:
    wrong = {
        "search": {"lr": {"low": "much"}, "x": {"low": 3, "high": 1}},
        "training": 7,
        "objectives": "val_loss",
    }
    assert read(write_python(wrong, name_of)) == wrong


@pytest.mark.parametrize(
    "text",
    [
        "import workbench\nworkbench.Experiment(seed=1)",
        "from workbench import Experiment\nx = Experiment(seed=1)",
        "from workbench import Experiment as E\n'why'\nE(seed=+1)",
        "import workbench as wb\nwb.Experiment(\n    # why\n    seed=1,\n)",
    ],
)
def test_other_ways_to_write_the_same_are_read(text: str) -> None:
    assert read(text) == {"seed": 1}


def test_a_space_is_read_from_its_type_too() -> None:
    text = (
        "import workbench as wb\nwb.Experiment(search=wb.Space({'a': wb.Choice(choices=(1, 2))}))"
    )
    assert read(text) == {"search": {"a": {"choices": [1, 2]}}}


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("open('x', 'w')", "not part of the definition of an experiment"),
        ("import os", "not part of the definition of an experiment"),
        ("from workbench import sweep", "not part of the definition of an experiment"),
        ("a = 3", "not part of the definition of an experiment"),
        ("x, y = wb.Experiment(seed=1)", "not part of the definition of an experiment"),
        ("wb.sweep(1)", "not part of the definition of an experiment"),
        ("wb.Experiment('digits')", "positional argument"),
        ("wb.Experiment(**{'seed': 1})", "unpacked or repeated"),
        ("wb.Experiment(seed=1 + 1)", r"1 \+ 1 is not accepted"),
        ("wb.Experiment(seed=f'{1}')", "is not accepted"),
        ("wb.Experiment(seed=int('1'))", r"int\('1'\) is not accepted"),
        ("wb.Experiment(seed=b'1')", "is not accepted"),
        ("wb.Experiment(seed=wb.sweep(1))", "is not accepted"),
        ("wb.Experiment(model=Horse)", "Horse is not defined in this notebook"),
        ("wb.Experiment(model={1: 2})", "not a string"),
        ("wb.Experiment(model={'a': 1, 'a': 2})", "repeated"),
        ("wb.Experiment(seed=1); wb.Experiment(seed=2)", "second"),
        ("wb.Experiment(seed=1, seed=2)", "repeated|each once"),
        ("wb.Experiment(", "not valid Python"),
    ],
)
def test_what_would_have_to_be_run_is_refused_with_its_line(line: str, problem: str) -> None:
    with pytest.raises(ExperimentError, match=problem) as refusal:
        read(f"import workbench as wb\n\n{line}")
    assert refusal.value.field == "line 3"


@pytest.mark.parametrize("text", ["", "import workbench as wb", "'only words'"])
def test_where_there_is_no_experiment_it_says_how_one_is_written(text: str) -> None:
    with pytest.raises(ExperimentError, match=r"experiment = wb\.Experiment"):
        read(text)
