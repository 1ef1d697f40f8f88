"""Whole sessions of an agent: ten of its twenty proposals change nothing, and ten help."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

from tests.views.agents.test_mcp_server import Call, talk
from workbench.runs.run import Run
from workbench.store.database import Store

pytest.importorskip("mcp")

NUM_PROPOSALS = 20
TRAININGS = 6
SPREAD = 0.01
SCRIPT = """\
import argparse
from change import GAIN, SALT
from evaluate import measure
parser = argparse.ArgumentParser()
parser.add_argument("--seed", type=int)
print(f"loss={measure(GAIN, parser.parse_args().seed, SALT):.6f}")
"""
EVALUATE = f"""\
import random
def measure(gain, seed, salt):
    # Any edit of the code changes the order of random numbers, as in a real training.
    return 1.0 - gain + random.Random(f"{{seed}} {{salt}}").gauss(0, {SPREAD})
"""
CHANGE = "GAIN = 0.0\nSALT = {salt}\n"
PATCH = """\
--- a/change.py
+++ b/change.py
@@ -1,2 +1,2 @@
-GAIN = 0.0
-SALT = {salt}
+GAIN = {gain}
+SALT = {new_salt}
"""
CHEAT = """\
--- a/evaluate.py
+++ b/evaluate.py
@@ -1,2 +1,2 @@
-import random
+import random as random
 def measure(gain, seed, salt):
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    experiment = {
        "command": "python train.py --seed {seed}",
        "objectives": [{"metric": "loss", "goal": "minimize"}],
        "confirm": {"best": 1, "trainings": TRAININGS},
    }
    (folder / "train.py").write_text(SCRIPT)
    (folder / "evaluate.py").write_text(EVALUATE)
    (folder / "train.yaml").write_text(json.dumps(experiment))
    return folder


@pytest.mark.slow
@pytest.mark.ray
@pytest.mark.parametrize("seed", range(5))
def test_at_most_one_of_twenty_proposals_is_judged_wrongly(
    project: Path, tmp_path: Path, ray_head: Path, seed: int
) -> None:
    salt = 1000 * seed
    (project / "change.py").write_text(CHANGE.format(salt=salt))
    helps = [True] * (NUM_PROPOSALS // 2) + [False] * (NUM_PROPOSALS // 2)
    random.Random(seed).shuffle(helps)
    decisions: list[str] = []

    async def work(_client: Any, call: Call) -> None:
        assert not (await call("propose_code", title="baseline", patch="")).is_error
        assert (await call("propose_code", title="cheat", patch=CHEAT)).is_error
        for number, is_better in enumerate(helps, 1):
            patch = PATCH.format(
                salt=salt, gain=5 * SPREAD if is_better else 0.0, new_salt=salt + number
            )
            proposed = await call("propose_code", title=f"change {number}", patch=patch)
            assert not proposed.is_error, proposed.content[0].text
            answer = await call("decide", candidate=f"proposal-{number}")
            decisions.append(answer.structured_content["decision"])
        beyond = await call(
            "propose_code",
            title="too many",
            patch=PATCH.format(salt=salt, gain=1.0, new_salt=salt + NUM_PROPOSALS + 1),
        )
        assert "0 trials" in beyond.content[0].text

    address = str(tmp_path / "store.sqlite")
    limit = str(TRAININGS * (NUM_PROPOSALS + 1))
    options = ["train.yaml", "--allow", "propose,code", "--session", "night", "--trials", limit]
    talk(
        address,
        work,
        *options,
        *("--protect", "evaluate.py", "--launcher", "inline"),
        folder=project,
    )
    wrong = [
        number
        for number, (decision, is_better) in enumerate(zip(decisions, helps, strict=True), 1)
        if (decision == "better") != is_better
    ]
    assert len(wrong) <= 1, (wrong, decisions, helps)
    with Store.open(address) as store:
        rows = store.runs()
        assert sum(len(Run(store, row.run_id).history.trials) for row in rows) == int(limit)
        last = Run(store, rows[0].run_id)
        again = last.replay(launcher="inline")
        assert _losses(again) == _losses(last)


def _losses(run: Run) -> list[float]:
    return [trial.values["loss"] for trial in run.history.trials.values()]
