"""A run that is under way while a test looks at it."""

from __future__ import annotations

import os
import socket
import threading
import time

from tests.builders.recorded_runs import EXPERIMENT, begin, finish, trial_events
from tests.services.waiting import wait_until
from workbench.experiment import Experiment
from workbench.foundation.events import Event, TrialReported
from workbench.store.database import Store


class LiveRun:
    """A run that is written to as a driver does, at a steady pace, until it is told to end."""

    def __init__(self, url: str, *, num_trials: int = 4, reports_per_s: float = 40.0) -> None:
        self._url, self._num_trials, self._pause_s = url, num_trials, 1 / reports_per_s
        self._ending = threading.Event()
        self._failing: list[int] = []
        self._telling: list[list[Event]] = []
        self.run_id = ""
        self.steps = 0
        self._thread = threading.Thread(target=self._write)

    def __enter__(self) -> LiveRun:
        with Store.open(self._url) as store:
            self.run_id = store.create_run(Experiment(**{**EXPERIMENT, "name": "under-load"}))
        self._thread.start()
        wait_until(lambda: self.steps > 2)
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def fail_trial(self, trial: int) -> None:
        """Let a trial fail with the next reports."""
        self._failing.append(trial)

    def tell(self, *events: Event) -> None:
        """Store some events together."""
        self._telling.append(list(events))

    def end(self) -> None:
        self._ending.set()
        self._thread.join()

    def _write(self) -> None:
        with (
            Store.open(self._url) as store,
            store.writer(
                self.run_id, owner_pid=os.getpid(), owner_host=socket.gethostname()
            ) as writer,
        ):
            writer.append(*begin())
            running = list(range(self._num_trials))
            for trial in running:
                writer.append(*trial_events(trial, at_s=trial * 0.1, state="running")[:2])
            while not self._ending.wait(self._pause_s):
                self.steps += 1
                writer.append(*(self._report(trial) for trial in running))
                while self._telling:
                    writer.append(*self._telling.pop())
                while self._failing:
                    failed = self._failing.pop()
                    running.remove(failed)
                    writer.append(trial_events(failed, at_s=1, state="failed", reason="error")[-1])
            writer.append(*finish(9, "stopped", "stopped"))

    def _report(self, trial: int) -> TrialReported:
        accuracy = 1 - 1 / (1 + 0.02 * self.steps * (trial + 1))
        return TrialReported(
            trial=trial,
            step=self.steps,
            values={"val_accuracy": accuracy},
            samples_per_s=1000.0 + trial,
            time_unix_s=time.time(),
        )
