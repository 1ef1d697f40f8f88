"""Real runs whose code is edited while they run: every trial runs what was kept."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.services.sweeps import Sweep
from tests.services.waiting import wait_until
from workbench.experiment import Experiment
from workbench.foundation.events import Noted, ProgramKept, TrialStarted
from workbench.runs import Run
from workbench.store.database import Store

TRAIN = """
import time
from pathlib import Path
import own_helper

def train(config, report):
    gate = Path(__file__).with_name("gate")
    while config["x"] > 0 and not gate.exists():
        time.sleep(0.01)
    report(loss=own_helper.{formula})
    if config["x"] == 3:
        raise ValueError("x is 3")
"""
HELPER = "def loss(x):\n    return {sign}x\n"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    place = tmp_path / "work"
    place.mkdir()
    (place / "own_train.py").write_text(TRAIN.format(formula="loss(config['x'])"))
    (place / "own_helper.py").write_text(HELPER.format(sign=""))
    monkeypatch.chdir(place)
    monkeypatch.syspath_prepend(str(place))
    yield place
    for name in ("own_train", "own_helper"):
        sys.modules.pop(name, None)


@pytest.mark.slow
@pytest.mark.ray
@pytest.mark.usefixtures("free_pool")
def test_an_edit_during_a_run_changes_nothing_until_it_is_requested(
    store: Store, folder: Path
) -> None:
    experiment = Experiment(
        name="edited",
        train="own_train:train",
        objectives=[{"metric": "loss", "goal": "minimize"}],
        search={"x": {"choices": [0, 1, 2, 3]}},
        sampler="grid",
        resources={"concurrency": 1},
        budget={"trials": 4},
    )
    sweep = Sweep(store, store.create_run(experiment)).drive()
    run = Run(store, sweep.run_id)
    wait_until(lambda: any(isinstance(event, TrialStarted) for event in run.events()))
    (folder / "own_helper.py").write_text(HELPER.format(sign="1000 - "))
    (folder / "gate").touch()
    sweep.wait()
    trials = run.history.trials.values()
    assert {trial.params["x"]: trial.last_values["loss"] for trial in trials} == {
        0: 0,
        1: 1,
        2: 2,
        3: 3,
    }
    failed = next(trial for trial in trials if trial.state == "failed")
    assert failed.message is not None
    assert failed.message.startswith("ValueError: x is 3 (own_helper.py has changed")
    assert "--code current" in failed.message
    assert len(run.history.programs) == 1

    run.extend(trials=2, code="current", launcher="inline")
    kept = [event for event in run.events() if isinstance(event, ProgramKept)]
    assert [event.version for event in kept] == [1, 2]
    assert kept[1].changed == ["own_helper.py"]
    later = list(run.history.trials.values())[4:]
    assert [trial.values.get("loss", trial.last_values["loss"]) for trial in later] == [
        1000 - int(str(trial.params["x"])) for trial in later
    ]
    assert [trial.program for trial in later] == [2, 2]
    best = run.best
    assert best is not None
    assert best.number >= 4  # a loss of 0 was measured by other code
    assert list(run.trials["code"]) == [1, 1, 1, 1, 2, 2]

    for number, sign in ((0, ""), (best.number, "1000 - ")):
        if run.history.trials[number].state == "complete":
            bundle = run.export(folder.parent / f"bundle-{number}", trial=number)
            assert (bundle / "code" / "own_helper.py").read_text() == HELPER.format(sign=sign)

    (folder / "own_helper.py").write_text(HELPER.format(sign="2 + "))
    run.extend(trials=1, launcher="inline")
    assert run.history.trials[6].program == 2
    notes = [event.message for event in run.events() if isinstance(event, Noted)]
    assert any("own_helper.py has changed on the disk" in note for note in notes)


READS = """
from pathlib import Path

def train(config, report):
    report(loss=len(Path("rows.txt").read_text().split()), size=len(Path("large.txt").read_text()))
"""


@pytest.mark.slow
@pytest.mark.usefixtures("free_pool")
def test_a_bundle_holds_the_data_that_its_trial_read(
    store: Store, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("workbench.sweeps.fingerprints.MAX_STORED_BYTES", 100)
    (folder / "own_train.py").write_text(READS)
    (folder / "rows.txt").write_text("a b c")
    (folder / "large.txt").write_text("x" * 200)
    experiment = Experiment(
        name="read",
        train="own_train:train",
        objectives=[{"metric": "loss", "goal": "minimize"}],
        search={"x": {"low": 0.0, "high": 1.0}},
        sampler="random",
        resources={"concurrency": 1},
        budget={"trials": 1},
    )
    run_id = store.create_run(experiment)
    Sweep(store, run_id).launch("inline").wait("complete")
    run = Run(store, run_id)
    same = run.export(folder.parent / "same")
    assert json.loads((same / "configuration.json").read_text())["changed_since"] == []

    (folder / "rows.txt").write_text("a b c d e")
    (folder / "large.txt").write_text("y" * 300)
    run.extend(trials=1, launcher="inline")
    assert [trial.values["loss"] for trial in run.history.trials.values()] == [3.0, 5.0]
    (folder / "rows.txt").unlink()
    (folder / "own_train.py").write_text("def train(config, report): report(loss=-1)\n")
    for number, rows in ((0, "a b c"), (1, "a b c d e")):
        bundle = run.export(folder.parent / f"of-{number}", trial=number)
        assert (bundle / "code" / "rows.txt").read_text() == rows
        assert (bundle / "code" / "own_train.py").read_text() == READS
        says_so = (
            "not as the trial read it: large.txt has changed since"
            in (bundle / "retrain.sh").read_text()
        )
        assert says_so is (number == 0)
        assert (
            "too large to be stored: large.txt" in (bundle / "README.md").read_text()
        ) is says_so


@pytest.mark.slow
@pytest.mark.ray
@pytest.mark.usefixtures("free_pool")
def test_code_that_a_program_reads_from_the_disk_is_compared(store: Store, folder: Path) -> None:
    script = "import sys, own_part\nprint(f'loss={own_part.ADDED + float(sys.argv[1])}')\n"
    (folder / "own_script.py").write_text(script)
    (folder / "own_part.py").write_text("ADDED = 0\n")
    experiment = Experiment(
        name="unserved",
        command=["env", "-i", sys.executable, "own_script.py", "{x}"],
        objectives=[{"metric": "loss", "goal": "minimize"}],
        search={"x": {"low": 0.0, "high": 1.0}},
        sampler="random",
        resources={"concurrency": 1},
        budget={"trials": 2},
    )
    run_id = store.create_run(experiment)
    Sweep(store, run_id).launch("inline").wait("complete")
    (folder / "own_part.py").write_text("ADDED = 1000\n")
    run = Run(store, run_id)
    run.extend(trials=2, launcher="inline")
    trials = list(run.history.trials.values())
    added = [round(trial.values["loss"] - float(str(trial.params["x"]))) for trial in trials]
    assert added == [0, 0, 1000, 1000]
    assert [trial.program for trial in trials] == [1, 1, 2, 2]
    assert run.history.programs[1].changed == ["own_part.py"]
    notes = [event.message for event in run.events() if isinstance(event, Noted)]
    assert len([note for note in notes if "does not reach the code" in note]) == 1
    assert not any("trials run the kept code" in note for note in notes)
    for number, value in ((0, 0), (3, 1000)):
        bundle = run.export(folder.parent / f"unserved-{number}", trial=number)
        assert (bundle / "code" / "own_part.py").read_text() == f"ADDED = {value}\n"
