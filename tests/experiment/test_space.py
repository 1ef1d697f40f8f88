from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workbench.experiment import Experiment
from workbench.experiment.space import Choice, Fixed, Float, Int, Space, describe_condition
from workbench.foundation.errors import ExperimentError

json_values = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-9, 9),
    st.text(max_size=4),
    st.lists(st.integers(0, 3), max_size=2),
)


@st.composite
def ranges(draw: st.DrawFn) -> dict[str, Any]:
    log = draw(st.booleans())
    if draw(st.booleans()):
        low = draw(st.integers(1 if log else -50, 50))
        high = low + draw(st.integers(0, 50))
        domain: dict[str, Any] = {"low": low, "high": high}
        if not log and high > low and draw(st.booleans()):
            domain["step"] = draw(st.integers(1, high - low))
    else:
        low_float = draw(st.floats(1e-6 if log else -1e3, 1e3))
        domain = {"low": low_float, "high": low_float + draw(st.floats(0, 1e3)), "type": "float"}
    return domain | ({"log": True} if log else {})


@st.composite
def spaces(draw: st.DrawFn) -> dict[str, Any]:
    written: dict[str, Any] = {}
    for index in range(draw(st.integers(1, 6))):
        kind = draw(st.sampled_from(["range", "choice", "fixed"]))
        if kind == "range":
            domain: Any = draw(ranges())
        elif kind == "choice":
            domain = {
                "choices": draw(st.lists(json_values, min_size=1, max_size=4, unique_by=repr))
            }
        else:
            domain = draw(st.one_of(st.booleans(), st.integers(), st.text(max_size=5)))
        parents = [
            name
            for name, parent in written.items()
            if isinstance(parent, dict) and "choices" in parent
        ]
        if isinstance(domain, dict) and parents and draw(st.booleans()):
            parent = draw(st.sampled_from(parents))
            domain["when"] = {parent: [draw(st.sampled_from(written[parent]["choices"]))]}
        written[f"p{index}"] = domain
    return written


def space_of(written: dict[str, Any]) -> Space:
    try:
        return Experiment(
            train="m:f", objectives=[{"metric": "y", "goal": "minimize"}], search=written
        ).search
    except ExperimentError as error:
        if "twice" in str(error):  # 1 and 1.0, which repr tells apart
            return Space({})
        raise


@given(spaces(), st.integers(0, 2**32))
def test_every_sample_is_a_configuration_of_the_space(written: dict[str, Any], seed: int) -> None:
    space = space_of(written)
    params = space.sample(random.Random(seed))
    assert space.check(params) == params
    for name in space.root:
        assert (name in params) == space.exists(name, params)


@given(spaces())
def test_writing_and_reading_loses_nothing(written: dict[str, Any]) -> None:
    space = space_of(written)
    again = Space.model_validate(space.model_dump(mode="json"))
    assert again == space
    assert [type(domain) for domain in again.root.values()] == [
        type(domain) for domain in space.root.values()
    ]


@pytest.mark.parametrize(
    ("written", "kind"),
    [
        ({"low": 1, "high": 5}, Int),
        ({"low": 1, "high": 5, "type": "float"}, Float),
        ({"low": 1.0, "high": 5}, Float),
        ({"low": 1.0, "high": 5.0, "type": "int"}, Int),
        ({"low": 1, "high": 5, "step": 0.5}, Float),
        ({"choices": [1, "a", None, [1], {"b": 2}]}, Choice),
        ({"value": [1, 2]}, Fixed),
        (3, Fixed),
        ("adamw", Fixed),
        (None, Fixed),
    ],
)
def test_the_kind_of_a_parameter_follows_from_how_it_is_written(written: Any, kind: type) -> None:
    assert type(space_of({"p": written}).root["p"]) is kind


def test_a_parameter_exists_only_where_all_its_ancestors_do() -> None:
    space = space_of(
        {
            "nesterov": {"choices": [True, False], "when": {"momentum": [0.9]}},
            "momentum": {"choices": [0.0, 0.9], "when": {"optimizer": "sgd"}},
            "optimizer": {"choices": ["sgd", "adamw"]},
        }
    )
    assert list(space.grid()) == [
        {"optimizer": "sgd", "momentum": 0.0},
        {"optimizer": "sgd", "momentum": 0.9, "nesterov": True},
        {"optimizer": "sgd", "momentum": 0.9, "nesterov": False},
        {"optimizer": "adamw"},
    ]


def test_true_is_not_one() -> None:
    space = space_of(
        {"flag": {"choices": [True, 1]}, "child": {"low": 0, "high": 1, "when": {"flag": True}}}
    )
    assert space.exists("child", {"flag": True})
    assert not space.exists("child", {"flag": 1})


def test_a_grid_walks_steps_and_refuses_what_has_no_end() -> None:
    space = space_of({"a": {"low": 0.0, "high": 1.0, "step": 0.25}, "b": {"low": 1, "high": 3}})
    assert len(list(space.grid())) == 15
    with pytest.raises(ExperimentError, match="lr: a continuous range has no grid"):
        list(space_of({"lr": {"low": 0.1, "high": 1.0}}).grid())


def test_a_logarithmic_range_is_sampled_evenly_in_its_logarithm() -> None:
    space = space_of({"lr": {"low": 1e-4, "high": 1.0, "log": True}})
    rng = random.Random(0)
    values = sorted(float(space.sample(rng)["lr"]) for _ in range(4000))  # type: ignore[arg-type]
    assert values[2000] == pytest.approx(1e-2, rel=0.2)


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"optimizer": "sgd"}, "momentum: missing"),
        (
            {"optimizer": "adamw", "momentum": 0.9},
            "momentum: it exists only if optimizer is sgd",
        ),
        (
            {"optimizer": "adam"},
            "optimizer: 'adam' is not an allowed value; allowed: 'sgd', 'adamw'",
        ),
        (
            {"optimizer": "sgd", "momentum": 0.99},
            "momentum: 0.99 is not an allowed value; allowed: numbers from 0.8 to 0.95",
        ),
        ({"optimizer": "sgd", "momentum": True}, "momentum: True is not an allowed value"),
        (
            {"optimiser": "sgd"},
            "optimiser: this parameter is not searched; allowed: optimizer, momentum",
        ),
    ],
)
def test_what_is_no_configuration_is_refused(params: dict[str, Any], message: str) -> None:
    space = space_of(
        {
            "optimizer": {"choices": ["sgd", "adamw"]},
            "momentum": {"low": 0.8, "high": 0.95, "when": {"optimizer": "sgd"}},
        }
    )
    with pytest.raises(ExperimentError) as refusal:
        space.check(params)
    assert message in str(refusal.value)


@pytest.mark.parametrize(
    "value", [[8, 8], {"low": 1, "high": 2}, {"choices": [1]}, [], {}, None, "x", True]
)
def test_a_fixed_value_of_any_shape_survives_being_written(value: object) -> None:
    space = Space({"layers": {"value": value}})

    assert Space.model_validate(space.model_dump(mode="json")) == space


def test_a_range_with_very_many_values_costs_nothing() -> None:
    space = Space(
        {
            "seed": Int(low=0, high=2**32 - 1),
            "fine": Float(low=0.0, high=1e5, step=1e-6),
            "even": Int(low=0, high=10**12, step=2),
        }
    )
    for domain in space.root.values():
        values = domain.values()
        assert values is not None
        assert len(values) > 10**9
        assert domain.contains(values[0])
        assert domain.contains(values[-1])
    assert space.check(space.sample(random.Random(0)))
    assert next(space.grid()) == {"seed": 0, "fine": 0.0, "even": 0}


def test_parameters_with_one_value_are_filled_in_and_all_others_that_are_missing_are_named() -> (
    None
):
    space = Space.model_validate(
        {
            "nap": {"choices": [1.0]},
            "half": {"low": 0.5, "high": 0.5},
            "rate": {"low": 0.0, "high": 1.0},
            "kind": {"choices": ["a", "b"]},
            "size": {"low": 1, "high": 9, "when": {"kind": "b"}},
        }
    )
    assert space.check({"rate": 0.5, "kind": "a"}) == {
        "nap": 1.0,
        "half": 0.5,
        "rate": 0.5,
        "kind": "a",
    }
    with pytest.raises(ExperimentError, match="kind: missing; allowed: 'a', 'b'"):
        space.check({"rate": 0.5, "size": 3})
    named = r"rate and kind are missing; allowed: rate: numbers from 0.0 to 1.0; kind: 'a', 'b'"
    with pytest.raises(ExperimentError, match=named):
        space.check({"size": 3})


def test_conditions_are_described_as_sentences_are_written():
    assert describe_condition({"family": ["mlp"]}) == "family is mlp"
    assert (
        describe_condition({"family": ["mlp", "forest"], "depth": 2})
        == "family is mlp or forest and depth is 2"
    )
