"""No input of a user ends in a traceback; `python -m tests.faults input` tries thousands."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.builders.examples import examples
from tests.builders.hostile import CASES, survives

MODEL: dict[str, Any] = {
    "model": "mlp",
    "data": "digits",
    "objectives": [{"metric": "val_loss", "goal": "minimize"}],
}
SWEEP: dict[str, Any] = {
    "method": "grid",
    "metric": {"name": "loss"},
    "parameters": {"width": {"values": [1, 2]}},
}


@pytest.mark.parametrize("name", CASES)
@examples(8)
@given(st.data())
def test_any_input_is_used_or_refused(name: str, data: st.DataObject) -> None:
    survives(CASES[name], data.draw(CASES[name].inputs))


@pytest.mark.parametrize(
    ("name", "given"),
    [
        ("experiment", MODEL | {"sampler": {"name": "tpe", "options": {"n_startup_trials": None}}}),
        ("sweep of Weights & Biases", SWEEP | {"metric": {"name": "loss", "goal": {"name": "x"}}}),
        (
            "sweep of Weights & Biases",
            SWEEP | {"parameters": {"width": {"distribution": {}, "min": 1}}},
        ),
        ("table", b"town,size\na,1\nb,2\n"),
    ],
)
def test_what_once_ended_in_a_traceback_is_used_or_refused(name: str, given: Any) -> None:
    survives(CASES[name], given)
