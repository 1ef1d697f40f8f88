"""What the trials of a private run have spent together."""

from __future__ import annotations

from typing import Any

import pytest

from tests.builders.report_pages import report_html
from workbench.experiment import Experiment
from workbench.foundation.events import Event, TrialProposed, TrialReported
from workbench.store.history import History
from workbench.store.history.privacy import spent_privacy


def experiment(**training: Any) -> Experiment:
    return Experiment(
        model="mlp",
        data="digits",
        objectives=[{"metric": "val_loss", "goal": "minimize"}],
        search={"lr": {"low": 0.01, "high": 1.0}},
        training=training,
    )


def trial(number: int, epsilons: list[float], **params: Any) -> list[Event]:
    proposed = TrialProposed(
        time_unix_s=1.0, trial=number, configuration=number, repeat=0, seed=0, params=params
    )
    return [proposed] + [
        TrialReported(
            time_unix_s=2.0, trial=number, step=step, values={"val_loss": 1.0, "epsilon": epsilon}
        )
        for step, epsilon in enumerate(epsilons, start=1)
    ]


def test_trials_add_up_each_with_its_last_epsilon_and_its_own_delta() -> None:
    asked = experiment(private={"epsilon": 3.0})
    events = [*trial(0, [1.0, 2.5]), *trial(1, [3.0], **{"private.delta": 1e-6}), *trial(2, [])]
    spent = spent_privacy(History.of(asked, events))
    assert spent is not None
    assert (spent.epsilon, spent.num_trials) == (5.5, 2)
    assert spent.delta == pytest.approx(1.1e-5)
    words = "all 2 trials together spent at most epsilon 5.5 at delta 1.1e-5"
    assert words in spent.describe()
    assert words in report_html(asked, events)


def test_other_runs_spend_nothing_that_could_be_stated() -> None:
    assert spent_privacy(History.of(experiment(), trial(0, [1.0]))) is None
    assert spent_privacy(History.of(experiment(private={}), trial(0, []))) is None
