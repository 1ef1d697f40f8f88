"""A sweep as these tests see it: created, launched, awaited, and read off its events."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from tests.services.clusters import ROOT, Cluster
from tests.services.waiting import wait_until
from workbench.experiment import Experiment
from workbench.foundation.errors import WorkbenchError
from workbench.foundation.events import DriverStarted, Event, TrialReported
from workbench.search import Study
from workbench.store.database import Store
from workbench.store.history import History, Trial
from workbench.sweeps.launchers import launch

Kind = TypeVar("Kind", bound=Event)


def make_experiment(function: str, **fields: Any) -> Experiment:
    """An experiment that minimizes `loss` with one of `sweep_functions`, one trial after
    another.
    """
    options = fields.pop("options", {})
    settings: dict[str, Any] = {
        "train": {"name": f"sweep_functions:{function}", **options},
        "objectives": [{"metric": "loss", "goal": "minimize"}],
        "search": {"x": {"low": 0.0, "high": 1.0}},
        "sampler": "random",
        "resources": {"concurrency": 1},
    }
    return Experiment(**settings | fields)


@dataclass
class Sweep:
    """One run in a store."""

    store: Store
    run_id: str
    _driving: Driving | None = None

    @classmethod
    def create(cls, store: Store, function: str, **fields: Any) -> Sweep:
        return cls(store, store.create_run(make_experiment(function, **fields)))

    def launch(self, launcher: str = "ray", **options: Any) -> Sweep:
        launch(self.store, self.run_id, launcher=launcher, **options)
        return self

    def drive(self) -> Sweep:
        """Drive the run in a thread of this process, where no test needs a process of its own for
        it.
        """
        if self._driving is not None:
            self._driving.join()  # it may have stored the end of the run, and hold it still
        known = len(self.of(DriverStarted))
        self._driving = driving = Driving(self)
        wait_until(lambda: len(self.of(DriverStarted)) > known or not driving.is_alive)
        return self

    def wait(self, *states: str, timeout_s: float = 500.0) -> Sweep:
        """Wait until the run is in one of `states`, by default any in which it has ended."""
        wanted = states or ("complete", "stopped", "failed")
        wait_until(lambda: self.state in wanted, timeout_s)
        return self

    def wait_for(self, kind: type[Kind], is_it: Callable[[Kind], bool] = lambda _: True) -> Kind:
        """Wait for an event."""
        return wait_until(lambda: next((event for event in self.of(kind) if is_it(event)), None))

    @property
    def state(self) -> str:
        return self.store.run(self.run_id).state

    @property
    def experiment(self) -> Experiment:
        return self.store.experiment(self.run_id)

    @property
    def events(self) -> list[Event]:
        return [stored.event for stored in self.store.events(self.run_id)]

    def of(self, kind: type[Kind], trial: int | None = None) -> list[Kind]:
        matching = [event for event in self.events if isinstance(event, kind)]
        return [
            event for event in matching if trial is None or getattr(event, "trial", None) == trial
        ]

    @property
    def history(self) -> History:
        return History.of(self.experiment, self.events)

    @property
    def trials(self) -> list[Trial]:
        return list(self.history.trials.values())

    def trial_with(self, **params: Any) -> Trial:
        return next(trial for trial in self.trials if trial.params == params)

    def assert_every_step_was_reported(self, num_steps: int) -> None:
        """Every trial is complete, and each of its steps was reported once."""
        for trial in self.trials:
            steps = [report.step for report in self.of(TrialReported, trial.number)]
            assert (trial.state, steps) == ("complete", list(range(1, num_steps + 1)))

    def assert_sound(self) -> None:
        """Check what holds for the events of every run, whatever happened to it."""
        ended: set[int] = set()
        running: set[int] = set()
        for event in self.events:
            trial = getattr(event, "trial", None)
            if trial is None or event.type in ("checkpoints_deleted", "alert_raised"):
                continue
            assert trial not in ended, f"trial {trial} has ended, and then: {event}"
            match event.type:
                case "trial_started":
                    assert trial not in running
                    running.add(trial)
                case "trial_reported" | "checkpoint_saved":
                    assert trial in running
                case "attempt_ended":
                    running.discard(trial)
                case "trial_ended":
                    running.discard(trial)
                    ended.add(trial)
        assert sorted(trial.number for trial in self.trials) == list(range(len(self.trials)))
        Study.rebuild(self.experiment, self.events)


def start_on(cluster: Cluster, store: Store, experiment: Experiment, folder: Path) -> Sweep:
    """Start a run on a cluster as a person would, in a process of its own."""
    path = folder / f"{experiment.name}.yaml"
    path.write_text(experiment.to_yaml())
    environment = cluster.environment | {"WORKBENCH_STORE": store.url}
    known = {run.run_id for run in store.runs()}
    done = subprocess.run(
        [sys.executable, "-m", "workbench", "sweep", str(path), "--detach"],
        env=environment,
        cwd=ROOT,
        check=False,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return Sweep(store, next(run.run_id for run in store.runs() if run.run_id not in known))


class Driving:
    """Drives a run in a thread of this process."""

    def __init__(self, sweep: Sweep) -> None:
        self.error: WorkbenchError | None = None
        self._sweep = sweep
        self._thread = threading.Thread(target=self._drive, daemon=True)
        self._thread.start()

    def _drive(self) -> None:
        try:
            self._sweep.launch("inline")
        except WorkbenchError as error:
            self.error = error

    @property
    def is_alive(self) -> bool:
        """Whether the driver goes on."""
        return self._thread.is_alive()

    def join(self, timeout_s: float = 500.0) -> WorkbenchError | None:
        """Wait for the end and return what kept the driver from going on."""
        self._thread.join(timeout_s)
        assert not self._thread.is_alive()
        return self.error


def driver_names() -> list[str]:
    """Names of the driver actors that are alive."""
    import ray

    named: Any = ray.util.list_named_actors(all_namespaces=True)
    return [actor["name"] for actor in named if actor["name"].startswith("driver-")]
