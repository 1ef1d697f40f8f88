"""Where drivers live: who may drive, whose code is run, what is heard and what is left behind."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from typing import Any

import pytest
import ray

import workbench as wb
from tests.services.sweeps import Sweep, driver_names, make_experiment
from tests.services.waiting import wait_until
from workbench.cluster.head import local_head
from workbench.foundation.errors import (
    LeaseError,
    ResourcesError,
    RunError,
    StoreError,
    UnknownNameError,
)
from workbench.foundation.events import DriverStarted, TrialReported
from workbench.store.database import Store
from workbench.sweeps import driver_actor
from workbench.sweeps.launchers import launch

pytestmark = [pytest.mark.ray, pytest.mark.usefixtures("free_pool")]


@pytest.mark.slow
def test_a_second_driver_of_a_live_run_is_refused_and_a_second_launch_changes_nothing(
    store: Store, tmp_path: Path
) -> None:
    importlib.import_module(
        "workbench.sweeps.driver"
    )  # a launch in this process takes less than the run
    sweep = Sweep.create(
        store, "curve", options={"steps": 30, "pause_s": 0.1}, budget={"trials": 1}
    )
    sweep.launch()
    with pytest.raises(LeaseError, match="is driven by process"):
        sweep.launch("inline")
    sweep.launch()
    sweep.wait("complete")
    assert len(sweep.of(DriverStarted)) == 1
    sweep.assert_sound()


@pytest.mark.slow
def test_a_driver_that_was_frozen_before_it_took_its_run_is_replaced(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(driver_actor, "LOADING_S", 1.0)

    class Frozen:  # in here, because no process of Ray can import this module
        """Stands for a driver whose process was stopped while it was loading."""

        def is_there(self) -> bool:
            return True

        def failure(self, launch_id: str) -> None:
            threading.Event().wait()

    sweep = Sweep.create(store, "curve", budget={"trials": 1})
    options = {"namespace": driver_actor.NAMESPACE, "lifetime": "detached", "num_cpus": 0}
    actor: Any = ray.remote(Frozen)
    frozen = actor.options(name=f"driver-{sweep.run_id}", max_concurrency=2, **options).remote()
    assert ray.get(frozen.is_there.remote())
    sweep.launch().wait("complete")
    assert len(sweep.of(DriverStarted)) == 1


@pytest.mark.slow
def test_a_run_that_another_process_drives_is_not_given_an_actor(store: Store) -> None:
    sweep = Sweep.create(store, "curve", budget={"trials": 1})
    with store.writer(sweep.run_id, owner_pid=os.getpid(), owner_host="elsewhere"):
        with pytest.raises(LeaseError, match="on elsewhere"):
            sweep.launch()
        assert sweep.state == "waiting"
    sweep.launch().wait("complete")


@pytest.mark.slow
@pytest.mark.parametrize("launcher", ["ray", "inline"])
def test_what_the_cluster_can_never_give_fails_the_launch_and_the_run(
    store: Store, launcher: str
) -> None:
    sweep = Sweep.create(store, "curve", resources={"cpus_per_worker": 3})
    with pytest.raises(ResourcesError, match="2 CPUs") as caught:
        sweep.launch(launcher)
    assert caught.value.field == "resources.cpus_per_worker"
    assert caught.value.allowed == "at most 2"
    assert sweep.state == "failed"
    assert "3 CPUs" in (sweep.history.message or "")


@pytest.mark.slow
def test_a_ray_that_is_lost_meanwhile_is_told_in_our_words(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    from ray.exceptions import AuthenticationError

    def lose(*_: object) -> None:  # so speaks a head that was started again at the same address
        raise AuthenticationError("invalid cluster")

    sweep = Sweep.create(store, "curve", budget={"trials": 1})
    with monkeypatch.context() as patch:
        patch.setattr(driver_actor, "start", lose)
        with pytest.raises(RunError, match=rf"Ray was lost .*{sweep.run_id}.*resume"):
            sweep.launch()
    sweep.launch().wait("complete")


@pytest.mark.slow
def test_a_run_in_which_nothing_but_failures_came_of_its_trials_has_failed(store: Store) -> None:
    sweep = Sweep.create(store, "no_such_function", budget={"trials": 2}).launch().wait("failed")
    assert [(trial.state, trial.reason) for trial in sweep.trials] == [("failed", "error")] * 2
    assert "no_such_function" in (sweep.trials[0].message or "")
    assert sweep.history.reason == "failures"
    assert (sweep.history.message or "").startswith("all 2 trials failed: ")
    assert "trial 1 failed" in (store.folder(sweep.run_id) / "driver.log").read_text()


RAISES = {"how": "raises", "unread": {"low": 0.0, "high": 1.0}}


def test_an_inline_sweep_of_nothing_but_failures_raises_the_first_of_them(store: Store) -> None:
    experiment = make_experiment("behave", search=RAISES, budget={"trials": 2})
    with pytest.raises(
        RunError, match=r"failed: all 2 trials failed: .*x is too large.*extend\(trials=10"
    ):
        wb.sweep(experiment, store=store, launcher="inline")


@pytest.mark.slow
def test_a_failed_run_that_is_resumed_or_extended_inline_raises_as_a_sweep_does(
    store: Store,
) -> None:
    sweep = Sweep.create(store, "behave", search=RAISES, budget={"trials": 2})
    store.command(sweep.run_id, "stop", {})
    sweep.launch("inline").wait("stopped")
    run = wb.attach(sweep.run_id, store=store)
    with pytest.raises(RunError, match=r"failed: all 2 trials failed: .*x is too large"):
        run.resume(launcher="inline")
    with pytest.raises(RunError, match=r"failed: all 3 trials failed: .*x is too large"):
        run.extend(trials=1, launcher="inline")
    assert len(sweep.trials) == 3


def test_an_unknown_launcher_is_named_with_those_there_are(store: Store) -> None:
    sweep = Sweep.create(store, "curve")
    with pytest.raises(UnknownNameError, match="inline, ray"):
        sweep.launch("rya")
    assert sweep.state == "waiting"


@pytest.mark.slow
def test_two_runs_share_the_workers_and_keep_their_events_apart(store: Store) -> None:
    long, short = (
        Sweep.create(
            store,
            "curve",
            options={"steps": 3, "pause_s": 0.1},
            seed=num_trials,
            budget={"trials": num_trials},
            resources={"concurrency": 2},
        )
        for num_trials in (500, 8)
    )
    long.launch().wait_for(TrialReported)
    short.launch().wait("complete")
    store.command(long.run_id, "stop", {})
    long.wait("stopped")

    assert [trial.state for trial in short.trials] == ["complete"] * 8
    first_s, last_s = (short.of(TrialReported)[index].time_unix_s for index in (0, -1))
    meanwhile = [
        report for report in long.of(TrialReported) if first_s < report.time_unix_s < last_s
    ]
    assert len(meanwhile) > 5
    for sweep in (long, short):
        for trial in sweep.history.in_state("complete"):
            losses = [report.values["loss"] for report in sweep.of(TrialReported, trial.number)]
            x = trial.params["x"]
            assert isinstance(x, float)
            assert losses == pytest.approx([x + 1, x + 1 / 2, x + 1 / 3])
        sweep.assert_sound()


@pytest.mark.slow
def test_drivers_use_processes_that_were_started_ahead(store: Store) -> None:
    Sweep.create(store, "curve", budget={"trials": 1}).launch().wait(
        "complete"
    )  # there are warm workers
    local_head.replenish_processes(2)
    wait_until(lambda: len(local_head.idle_processes()) == 2)
    local_head.replenish_processes(2)  # there are enough
    spare = local_head.idle_processes()
    assert len(spare) == 2

    sweep = Sweep.create(
        store, "curve", options={"steps": 20, "pause_s": 0.1}, budget={"trials": 1}
    ).launch()
    sweep.wait_for(TrialReported)
    titles = {process.pid: process.cmdline()[0] for process in spare}
    assert titles[sweep.of(DriverStarted)[0].pid] == "ray::DriverActor"
    sweep.wait("complete")


def run_python(program: str, folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run a person's script in a folder of theirs, attached to the head of these tests."""
    (folder / "script.py").write_text(program)
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])}
    return subprocess.run(
        [sys.executable, "script.py", *words],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


EMBEDDED = """
import sys
import torch
from workbench.experiment import Experiment
from workbench.store.database import Store
from workbench.sweeps import driver_actor
from workbench.sweeps.launchers import launch
from workbench.cluster.head import local_head

SLOPE = 3.0

class Net(torch.nn.Module):
    def __init__(self, width):
        super().__init__()
        self.layers = torch.nn.Sequential(
            torch.nn.Flatten(),
            torch.nn.Linear(64, width),
            torch.nn.ReLU(),
            torch.nn.Linear(width, 10),
        )
    def forward(self, x):
        return self.layers(x)

def build(config):
    return Net(config["width"])

def main():
    offset = 0.5
    def train(config, report):
        report(step=1, loss=SLOPE * config["x"] + offset)
    with Store.open(sys.argv[1]) as store:
        models = Experiment(
            model=build, data="digits", objectives=[{"metric": "val_loss", "goal": "minimize"}],
            search={"width": {"choices": [8]}}, sampler="grid", training={"epochs": 1},
        )
        functions = Experiment(
            train=train, objectives=[{"metric": "loss", "goal": "minimize"}],
            search={"x": {"choices": [2.0]}}, sampler="grid",
        )
        for experiment in (models, functions):
            launch(store, store.create_run(experiment, run_id=experiment.objectives[0].metric))

main()
"""


@pytest.mark.slow
def test_classes_and_functions_of_a_script_run_in_the_workers_and_ray_is_not_heard(
    store: Store, tmp_path: Path
) -> None:
    home = tmp_path / "elsewhere"
    home.mkdir()
    done = run_python(EMBEDDED, home, store.url)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    [model] = Sweep(store, "val_loss").wait("complete").trials
    assert (model.state, model.message) == ("complete", None)
    [function] = Sweep(store, "loss").wait("complete").trials
    assert (function.state, function.values) == ("complete", {"loss": 6.5})


@pytest.mark.slow
def test_a_module_that_was_edited_is_run_as_it_is_when_the_next_run_starts(
    store: Store, tmp_path: Path
) -> None:
    folder = tmp_path / "a place @ home"
    folder.mkdir()
    program = """
import sys
from workbench.experiment import Experiment
from workbench.store.database import Store
from workbench.sweeps import driver_actor
from workbench.sweeps.launchers import launch
from workbench.cluster.head import local_head
with Store.open(sys.argv[1]) as store:
    objectives = [{"metric": "loss", "goal": "minimize"}]
    experiment = Experiment(train="mine:train", objectives=objectives, budget={"trials": 1})
    launch(store, store.create_run(experiment, run_id=sys.argv[2]))
"""
    (folder / "mine.py").write_text(
        "import constants\ndef train(config, report): return constants.LOSS"
    )
    losses = []
    for loss in (1.0, 2.0):
        (folder / "constants.py").write_text(f"LOSS = {loss}\n")
        done = run_python(program, folder, store.url, f"run-{loss:g}")
        assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
        [trial] = Sweep(store, f"run-{loss:g}").wait("complete").trials
        losses.append(trial.values.get("loss"))
    assert losses == [1.0, 2.0]


@pytest.mark.slow
def test_a_store_whose_path_has_spaces_and_an_at_sign(tmp_path: Path) -> None:
    folder = tmp_path / "my runs @ work"
    folder.mkdir()
    with Store.open(str(folder / "store 1.sqlite")) as store:
        sweep = Sweep.create(store, "curve", budget={"trials": 1}).launch().wait("complete")
        assert [trial.state for trial in sweep.trials] == ["complete"]
        assert (folder / "artifacts" / sweep.run_id / "driver.log").exists()


@pytest.mark.slow
def test_nothing_is_left_in_the_temporary_and_the_home_folder(store: Store) -> None:
    known = local_head.status()
    assert known is not None

    def find() -> list[Path]:
        results = [*(Path.home() / "ray_results").glob("*"), *Path(tempfile.gettempdir()).glob("*")]
        ours = [path for path in results if path.name.startswith("experiment-")]
        # Killed drivers of other tests leave theirs, which go with the cluster.
        return sorted([*ours, *Path(known.temp_dir).glob("ray/*/workbench-tune-*")])

    before = find()
    Sweep.create(store, "curve", budget={"trials": 2}).launch().wait("complete")
    Sweep.create(store, "curve", budget={"trials": 2}).launch("inline")
    wait_until(lambda: not driver_names())
    assert find() == before


@pytest.mark.slow
def test_a_driver_whose_store_cannot_be_opened_says_so_and_ends(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sweep = Sweep.create(store, "curve")
    monkeypatch.setattr(store, "url", f"sqlite:///{tmp_path}/sweep_functions.py")
    (tmp_path / "sweep_functions.py").write_text("this is no database" * 100)
    with pytest.raises(StoreError, match="damaged or not a store"):
        launch(store, sweep.run_id)


@pytest.mark.slow
def test_a_run_that_is_complete_can_be_launched_again_and_stays_complete(store: Store) -> None:
    fields: dict[str, Any] = {"budget": {"trials": 2}}
    sweep = Sweep(store, store.create_run(make_experiment("curve", **fields)))
    sweep.launch().wait("complete")
    before = len(sweep.of(TrialReported))
    sweep.launch().wait("complete")
    assert len(sweep.of(DriverStarted)) == 2
    assert len(sweep.of(TrialReported)) == before
    assert len(sweep.trials) == 2
