"""A run whose best configurations are trained again."""

from __future__ import annotations

import pytest

from tests.services.sweeps import Sweep
from workbench.store.database import Store
from workbench.store.history.certainty import certainty_of

pytestmark = [pytest.mark.ray, pytest.mark.usefixtures("free_pool"), pytest.mark.slow]


def test_the_best_race_until_the_ranking_is_clear_and_then_the_run_is_complete(
    store: Store,
) -> None:
    sweep = (
        Sweep.create(
            store,
            "curve",
            search={"x": {"low": 0.0, "high": 1.0}},
            budget={"trials": 4},
            confirm={"best": 2, "trainings": 6},
        )
        .launch("inline")
        .wait("complete")
    )

    assert sweep.history.reason == "trials"
    assert len({trial.configuration for trial in sweep.trials}) == 4
    assert (
        len(sweep.trials) == 4 + 2 * 2
    )  # there is no noise, which two more trainings of each show
    certainty = certainty_of(sweep.history)
    assert certainty is not None
    assert (certainty.chance, certainty.num_trainings, certainty.num_compared) == (1.0, 2, 1)
