"""Spaces that a run can use up.

What is left is counted as an enumeration by itertools counts it.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.builders.examples import examples
from tests.builders.studies import Drive, make_experiment
from workbench.foundation.events import ProgramKept

OTHER_NOTATIONS = [
    ({"x": {"low": 0.1, "high": 0.6, "step": 0.1}}, {"x": 0.3}),
    ({"x": {"low": 1, "high": 3, "step": 1, "type": "float"}}, {"x": 2}),
    ({"x": {"choices": [1, 2.5, True]}}, {"x": 1.0}),
    ({"x": {"choices": [{"wide": 1, "deep": 2}, "none"]}}, {"x": {"deep": 2.0, "wide": 1}}),
]


def is_same(first: Mapping[str, Any], second: Mapping[str, Any]) -> bool:
    """Compare two configurations as a person would: 0.3 is 0.1 + 2 x 0.1, and true is not 1."""
    return first.keys() == second.keys() and all(
        isinstance(value, bool) == isinstance(second[name], bool)
        and (
            math.isclose(value, second[name], abs_tol=1e-9)
            if isinstance(value, float) and isinstance(second[name], int | float)
            else value == second[name]
        )
        for name, value in first.items()
    )


def distinct(configurations: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    kept: list[Mapping[str, Any]] = []
    for params in configurations:
        if not any(is_same(params, other) for other in kept):
            kept.append(params)
    return kept


def tried_until_exhausted(drive: Drive) -> list[Mapping[str, Any]]:
    tried: list[Mapping[str, Any]] = []
    while not drive.study.exhausted and len(tried) < 200:
        tried.append(drive.train(lambda params, _: float(len(str(params)))).params)
    return tried


@st.composite
def small_spaces(draw: st.DrawFn) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Draw a space whose last parameter may depend on the first, and all of its configurations."""
    num_steps, low = draw(st.integers(1, 3)), draw(st.sampled_from([0.0, 0.1, 1e-4, -0.3]))
    step = draw(st.sampled_from([0.1, 0.05, 3e-4]))
    choices = draw(
        st.lists(st.sampled_from([1, True, "a", 2.5]), min_size=2, max_size=3, unique_by=repr)
    )
    last = draw(st.integers(1, 3))
    search: dict[str, Any] = {
        "kind": {"choices": choices},
        "rate": {"low": low, "high": low + num_steps * step, "step": step},
        "depth": {"low": 1, "high": last},
    }
    rates, depths = [low + index * step for index in range(num_steps + 1)], range(1, last + 1)
    every = itertools.product(choices, rates, depths)
    configurations = [{"kind": kind, "rate": rate, "depth": depth} for kind, rate, depth in every]
    if draw(st.booleans()):
        search["depth"]["when"] = {"kind": choices[0]}
        for params in configurations:
            if params["kind"] is not choices[0]:
                del params["depth"]
    return search, [dict(params) for params in distinct(configurations)]


@given(drawn=small_spaces(), sampler=st.sampled_from(["grid", "random"]))
@examples(25)
def test_a_run_tries_what_itertools_enumerates_and_is_exhausted(
    drawn: tuple[dict[str, Any], list[dict[str, Any]]], sampler: str
) -> None:
    search, every = drawn
    drive = Drive(make_experiment(search=search, sampler=sampler))
    tried = tried_until_exhausted(drive)
    assert drive.study.exhausted
    assert len(distinct(tried)) == len(every)
    assert all(any(is_same(params, one) for one in every) for params in tried)
    if sampler == "grid":
        assert len(tried) == len(every)


@pytest.mark.parametrize(("search", "written"), OTHER_NOTATIONS)
def test_an_enqueued_configuration_counts_however_its_values_are_written(
    search: dict[str, Any], written: dict[str, Any]
) -> None:
    drive = Drive(make_experiment(search=search, sampler="grid"))
    drive.study.enqueue(written)
    tried = tried_until_exhausted(drive)
    assert len(tried) == len(distinct(tried)) == len(list(drive.experiment.search.grid()))


@pytest.mark.parametrize("sampler", ["grid", "tpe", "random", "auto"])
def test_a_used_up_space_is_new_to_other_code(sampler: str) -> None:
    drive = Drive(make_experiment(search={"a": {"choices": [1, 2, 3]}}, sampler=sampler))
    tried_until_exhausted(drive)
    drive.study.change_program(ProgramKept(version=2, why="current", continued=[]))
    assert not drive.study.exhausted
    tried = tried_until_exhausted(drive)
    assert sorted(params["a"] for params in distinct(tried)) == [1, 2, 3]
    assert drive.study.exhausted
