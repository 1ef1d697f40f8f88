"""What is refused before anything starts."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

from tests.builders.studies import make_experiment
from workbench.foundation.errors import ExperimentError
from workbench.search import check

CHOICE = {"a": {"choices": [1, 2]}}


@pytest.mark.parametrize(
    ("sampler", "search", "field"),
    [
        ({"name": "tpe", "options": {"gamma": 1}}, CHOICE, "sampler.options.gamma"),
        ({"name": "random", "options": {"seed": 1}}, CHOICE, "sampler.options.seed"),
        (
            {"name": "tpe", "options": {"n_startup_trials": "ten"}},
            CHOICE,
            "sampler.options.n_startup_trials",
        ),
        (
            {"name": "tpe", "options": {"multivariate": False, "group": True}},
            CHOICE,
            "sampler.options",
        ),
        ("grid", {"x": {"low": 0.0, "high": 1.0}}, "search.x"),
        ("grid", {f"x{i}": {"low": 1, "high": 100} for i in range(3)}, "sampler.name"),
        ("cmaes", {**CHOICE, "x": {"low": 0.0, "high": 1.0}}, "sampler.name"),
        ("gp", {"k": 1}, "sampler.name"),
    ],
)
def test_refused(sampler: Any, search: dict[str, Any], field: str) -> None:
    with pytest.raises(ExperimentError) as caught:
        check(make_experiment(sampler=sampler, search=search))
    assert caught.value.field == field


CASES = [
    ({}, [True, False, True]),
    ({"sampler": "random"}, [False, False, False]),
    ({"sampler": "random", "early_stop": {"pruner": "curves"}}, [False, True, True]),
]
PROGRAM = """
import os, sys
from tests.builders.studies import make_experiment
from workbench.search.samplers import prepare_proposals
for changes in {changes}:
    if os.fork() == 0:
        prepare_proposals(make_experiment(**changes)).join()
        loaded = ("workbench.search.gaussian_process_sampler", "workbench.search.curves", "scipy")
        print([name in sys.modules for name in loaded], flush=True)
        os._exit(0)
    os.wait()
"""


@pytest.mark.slow
def test_only_what_the_sampler_and_the_pruner_need_is_imported() -> None:
    program = PROGRAM.replace("{changes}", repr([changes for changes, _ in CASES]))
    done = subprocess.run(
        [sys.executable, "-c", program], check=True, capture_output=True, text=True
    )
    assert done.stdout.splitlines() == [str(loaded) for _, loaded in CASES]
