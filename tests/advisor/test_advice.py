"""Advice as the value of a notebook's cell."""

from __future__ import annotations

import json
from dataclasses import replace

from workbench.advisor.advice import Advice, Candidate
from workbench.advisor.stored_advice import Estimate
from workbench.experiment.plan import Plan


def test_the_card_is_not_repeated_where_the_cell_shows_it_already() -> None:
    speed = Estimate(100.0, 90.0, 110.0)
    choice = Candidate(
        Plan(2, 32, 1, "fp32", "ddp", "none", "none"), 0.1, None, 0.0, speed, speed, None
    )
    given = Advice(
        "time", False, choice, None, (), choice, None, "not measured", (), (), 3.0, {"lr": 0.1}
    )
    assert choice.written in given._repr_mimebundle_()["text/html"]

    shown = replace(given, is_shown=lambda: True)
    assert shown._repr_mimebundle_() == {"text/plain": f"the advice above: {choice.written}"}
    assert json.dumps(shown.to_json()) == json.dumps(given.to_json())
