"""What later proposals need is imported before they need it."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

PROGRAM = """
import sys
from tests.builders.studies import make_experiment
from workbench.study.preparation import prepare_proposals
experiment = make_experiment(**{changes})
prepare_proposals(experiment).join()
print([name in sys.modules for name in ("workbench.study.proposals", "workbench.study.curves", "scipy")])
"""


@pytest.mark.parametrize(
    ("changes", "loaded"),
    [
        ({}, [True, False, True]),
        ({"sampler": "random"}, [False, False, False]),
        ({"sampler": "random", "early_stop": {"pruner": "curves"}}, [False, True, True]),
    ],
)
def test_only_what_the_sampler_and_the_pruner_need_is_imported(
    changes: dict[str, Any], loaded: list[bool]
) -> None:
    program = PROGRAM.replace("{changes}", repr(changes))
    found = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    assert found.stdout.strip() == str(loaded)
