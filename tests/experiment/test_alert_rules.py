from __future__ import annotations

from typing import Any

import pytest

from workbench.cluster.workers.trial_log import LINE_CHARS
from workbench.experiment import Experiment
from workbench.experiment.alert_rules import KINDS, AlertRule, check_pattern
from workbench.foundation.errors import ExperimentError

WITHOUT_RULES = "3e4ad9d480ba1031182657749a0a198e51a44af263a69cd7a97be9068f9ced06"


def experiment(*rules: dict[str, Any]) -> Experiment:
    return Experiment(
        train={"name": "sweep_functions:curve"},
        objectives=[{"metric": "loss", "goal": "minimize"}],
        search={"x": {"low": 0.0, "high": 1.0}},
        **({"alerts": rules} if rules else {}),
    )


def test_an_experiment_without_rules_has_the_hash_that_it_had_before_there_were_any() -> None:
    assert experiment().hash() == WITHOUT_RULES


def test_rules_are_a_part_of_the_experiment_that_survives_its_file() -> None:
    ruled = experiment(
        {"on": "no_progress", "within": "1h"}, {"on": "log", "pattern": "Xid", "to": ["team"]}
    )
    again = Experiment.from_yaml(ruled.to_yaml())
    assert again == ruled
    assert again.hash() == ruled.hash() != WITHOUT_RULES
    assert again.to_yaml() == ruled.to_yaml()


def test_every_kind_of_rule_is_known_where_messages_are_made() -> None:
    union = AlertRule.__args__[0]  # type: ignore[attr-defined]
    assert {kind.model_fields["on"].annotation.__args__[0] for kind in union.__args__} == KINDS


@pytest.mark.parametrize(
    ("rule", "said"),
    [
        (
            {"on": "earthquake"},
            r"alerts\.0\.on: unknown or missing; allowed: disk, diverged, gpu_lost",
        ),
        ({"within": 3}, r"alerts\.0\.on: unknown or missing"),
        ({"on": "no_progress", "within": "soon"}, r"alerts\.0\.within: 'soon' is not a duration"),
        (
            {"on": "disk", "above": 95},
            r"alerts\.0\.above: 95 is not valid; allowed: a number less than",
        ),
        ({"on": "disk", "over": 0.9}, r"alerts\.0\.over: unknown key"),
        ({"on": "run_ended", "states": ["lost", "dead"]}, r"alerts\.0\.states\.1"),
        ({"on": "log", "pattern": "("}, r"alerts\.0\.pattern: '\(' is not a regular expression"),
        (
            {"on": "log", "pattern": "x", "action": "panic"},
            r"alerts\.0\.action: 'panic' is not valid",
        ),
    ],
)
def test_what_cannot_be_meant_is_refused_where_it_stands(rule: dict[str, Any], said: str) -> None:
    with pytest.raises(ExperimentError, match=said):
        experiment(rule)


@pytest.mark.parametrize(
    "pattern",
    [
        r"(a+)+$",
        r"(a|a)*b",
        r"(a|ab)+c",
        r"(.*)*x",
        r"(a?){40}a{40}",
        "a?" * 30 + "a" * 30,
        ".*.*.*x",
        r"(a)\1",
        r"(?:\d+\.)+\d",
        "(a|b|aa)" * 3,
        "x" * 501,
        r"(?=(a+)+b)c",
        "a{1,900}b{1,900}c{1,900}d",
    ],
)
def test_a_pattern_that_could_keep_a_worker_busy_is_refused(pattern: str) -> None:
    with pytest.raises(ExperimentError):
        check_pattern(pattern)


@pytest.mark.parametrize(
    "pattern",
    [
        "NCCL WARN.*timeout",
        r"\bERROR\b",
        "(?i)cuda error: .* at [a-z]+",
        "foo|bar|baz",
        r"(?:ab){3}c?",
        r"Xid.*: [0-9]+",
        r"^loss=nan$",
        r"node-\d{1,3} (down|lost)",
        r"a*a*b",
        r".*.*x",
    ],
)
def test_a_pattern_that_is_allowed_comes_to_an_end_on_lines_made_to_keep_it_busy(
    pattern: str,
) -> None:
    import re

    compiled = re.compile(check_pattern(pattern))
    # With one that is refused this takes years, and the test's time is over.
    for line in ("a" * LINE_CHARS, "NCCL WARN" * 110, "Xid: 1 " * 140, "cuda error: a at " * 58):
        compiled.search(line + "!")
