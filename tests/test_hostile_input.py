"""No input of a user ends in a traceback; `python -m tests.faults.hostile_input` tries thousands."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.builders.hostile import CASES, survives

OWN: dict[str, Any] = {"train": "json:dumps", "objectives": [{"metric": "y", "goal": "minimize"}]}


@pytest.mark.parametrize("name", CASES)
@settings(max_examples=15)
@given(st.data())
def test_any_input_is_used_or_refused(name: str, data: st.DataObject) -> None:
    survives(CASES[name], data.draw(CASES[name].inputs))
