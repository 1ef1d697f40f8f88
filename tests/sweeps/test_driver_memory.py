"""What a driver keeps of a trial that has ended: a run may have ten thousand."""

from __future__ import annotations

import gc
import tracemalloc
from typing import Any

import pytest

from tests.services.sweeps import Sweep
from workbench.advisor.trial_speeds import TrialSpeeds
from workbench.experiment import Experiment
from workbench.foundation.events import (
    Event,
    TrialEnded,
    TrialReported,
    TrialStarted,
    from_json,
    to_json,
)
from workbench.search import Study
from workbench.store.alerts import Alerts
from workbench.store.database import Store
from workbench.store.history import History

MAX_BYTES_PER_TRIAL = 6000
"""Two parameters and a value, as the history, the study and Optuna have them."""
QUICK = {
    "train": "a:b",
    "objectives": [{"metric": "loss", "goal": "minimize"}],
    "search": {"x": {"low": 0.0, "high": 1.0}, "y": {"low": 1, "high": 9}},
    "sampler": "random",
}
PLAN = {"workers": 1, "micro_batch": 8, "accumulation": 1, "precision": "fp32", "strategy": "ddp"}


class Projections:
    """What a driver builds from the events of its run."""

    def __init__(self) -> None:
        experiment = Experiment.model_validate(QUICK)
        self.study = Study(experiment)
        self._others: list[Any] = [History(experiment), Alerts(), TrialSpeeds()]

    def try_next(self) -> None:
        """Take in the events of the next trial, each as it comes from another process."""
        proposal = self.study.ask()
        assert proposal is not None
        trial = proposal.trial
        started = TrialStarted(
            trial=trial,
            attempt=0,
            plan=PLAN,
            worker_pids=[trial],
            hosts=["host"],
            nodes=["n" * 56],
            gpus=[[]],
        )
        values = {"loss": trial / 7}
        reported = TrialReported(trial=trial, step=1, epoch=None, values=values)
        ended = TrialEnded(trial=trial, attempt=0, state="complete", values=values, step=1)
        self._apply(proposal.event())
        for event in (started, reported, ended):
            arrived = from_json(to_json(event))
            self.study.apply(arrived)
            self._apply(arrived)

    def _apply(self, event: Event) -> None:
        for projection in self._others:
            projection.apply(event)


@pytest.mark.slow
def test_an_ended_trial_takes_few_bytes() -> None:
    projections, num_trials = Projections(), 100
    for _ in range(10):
        projections.try_next()
    gc.collect()
    tracemalloc.start()
    try:
        for _ in range(num_trials):
            projections.try_next()
        gc.collect()
        num_bytes, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert num_bytes / num_trials < MAX_BYTES_PER_TRIAL


@pytest.mark.slow
@pytest.mark.ray
@pytest.mark.usefixtures("free_pool")
def test_tune_forgets_trials_that_have_ended(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    from ray.tune.experiment import (
        Trial as TuneTrial,
    )  # not where tests are collected: loading takes seconds

    from workbench.sweeps.coordinator import Order
    from workbench.sweeps.driver import Driver

    counts: list[int] = []
    next_order = Driver.next_order

    def counted(driver: Driver) -> Order | None:
        counts.append(sum(type(found) is TuneTrial for found in gc.get_objects()))
        return next_order(driver)

    monkeypatch.setattr(Driver, "next_order", counted)
    sweep = Sweep.create(store, "curve", options={"steps": 1}, budget={"trials": 12}).launch(
        "inline"
    )
    assert (sweep.state, len(sweep.of(TrialEnded))) == ("complete", 12)
    assert 0 < max(counts) <= 6
