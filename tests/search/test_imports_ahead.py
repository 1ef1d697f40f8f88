"""What later proposals need is imported before they need it."""

from __future__ import annotations

import subprocess
import sys

CASES = [
    ({}, [True, False, True]),
    ({"sampler": "random"}, [False, False, False]),
    ({"sampler": "random", "early_stop": {"pruner": "curves"}}, [False, True, True]),
]
PROGRAM = """
import os, sys
from tests.builders.studies import make_experiment
from workbench.search.preparation import prepare_proposals
for changes in {changes}:
    if os.fork() == 0:
        prepare_proposals(make_experiment(**changes)).join()
        loaded = ("workbench.search.proposals", "workbench.search.curves", "scipy")
        print([name in sys.modules for name in loaded], flush=True)
        os._exit(0)
    os.wait()
"""


def test_only_what_the_sampler_and_the_pruner_need_is_imported() -> None:
    program = PROGRAM.replace("{changes}", repr([changes for changes, _ in CASES]))
    found = subprocess.run(
        [sys.executable, "-c", program], check=True, capture_output=True, text=True
    )
    assert found.stdout.splitlines() == [str(loaded) for _, loaded in CASES]
