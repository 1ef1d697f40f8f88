"""How the evidence for a search of an option adds up."""

from __future__ import annotations

import math

import pytest

from workbench.runs.scripts.option_scores import WEIGHTS, evidence_of, score_of
from workbench.runs.scripts.script_options import ScriptOption


def test_a_score_is_the_sum_of_weights_times_evidence() -> None:
    option = ScriptOption("rho", 0.5, kind="float", uses=frozenset(("optimizer",)))
    wanted = (
        WEIGHTS["always"]
        + WEIGHTS["use optimizer"]
        + WEIGHTS["float"]
        + WEIGHTS["float below 1"]
        + WEIGHTS["length of name"]
    )
    assert math.isclose(score_of(option, ["rho"]), wanted)


@pytest.mark.parametrize("use", ["optimizer", "clip", "layer", "batches", "loss"])
def test_what_trains_is_searched_rather_than_what_is_an_interval(use: str) -> None:
    trains = ScriptOption("rho", 0.5, kind="float", uses=frozenset((use,)))
    other = ScriptOption("rho", 0.5, kind="float", uses=frozenset(("interval",)))
    assert score_of(trains, ["rho"]) > score_of(other, ["rho"])


@pytest.mark.parametrize(
    ("option", "evidence"),
    [
        (ScriptOption("a", 64, kind="int"), {"int", "int near 1e2", "power of 2"}),
        (ScriptOption("a", 0, kind="int"), {"int", "int not positive"}),
        (ScriptOption("a", 3e-4, kind="float"), {"float", "float near 1e-4", "float below 1"}),
        (ScriptOption("a", 1, kind="float"), {"float", "float near 1e0"}),
        (ScriptOption("a", kind="float"), {"no default"}),
        (ScriptOption("a", False, way="switch"), {"flag"}),
        (ScriptOption("a", "x", choices=("x", "y")), {"choice"}),
    ],
)
def test_the_default_is_evidence(option: ScriptOption, evidence: set[str]) -> None:
    found = {name for name, _ in evidence_of(option, [])}
    assert found - {"always", "use none", "length of name"} == evidence


def test_numbers_of_a_name_do_not_count() -> None:
    assert "name beta" in dict(evidence_of(ScriptOption("beta1", 0.9), ["beta1"]))
