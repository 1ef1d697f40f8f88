from __future__ import annotations

import inspect
import pickle

import pytest

from workbench import errors


def test_a_message_says_what_where_what_is_allowed_and_the_next_step() -> None:
    error = errors.ExperimentError("is 0", field="plan.workers", allowed=["1", "2"], next_step="Use one.")
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
    assert (again.problem, again.field, again.allowed, again.next_step) == ("problem", "a.b", "c", "d")


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (ValueError("the shapes differ.\n\nStack:\n ..."), "the shapes differ"),
        (RuntimeError("\n  out of range\n"), "out of range"),
        (ConnectionError(), "ConnectionError"),
        (KeyError("  "), "'  '"),
    ],
)
def test_of_the_error_of_another_library_its_first_line_is_shown(error: Exception, line: str) -> None:
    assert errors.first_line_of(error) == line


def test_the_drawn_tree_is_the_real_one() -> None:
    assert errors.__doc__ is not None
    for name, kind in inspect.getmembers(errors, inspect.isclass):
        if issubclass(kind, errors.WorkbenchError):
            assert name in errors.__doc__
