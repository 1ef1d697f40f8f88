"""What configurations would hold that a run has not tried."""

from __future__ import annotations

import pytest

from workbench.experiment import Experiment
from workbench.experiment.plan import PartialPlan
from workbench.experiment.space import Params
from workbench.training.probes import memory_peaks

TRIALS: list[tuple[Params, PartialPlan]] = [
    ({"width": width}, PartialPlan.of(workers=1)) for width in (16, 1024)
]


def of_a_transformer() -> Experiment:
    return Experiment(
        model={"name": "transformer", "num_heads": 2, "num_layers": 2},
        data={"name": "text", "context": 32, "max_characters": 20_000},
        objectives=[{"metric": "val_loss", "goal": "minimize"}],
        search={"width": {"choices": [16, 1024]}},
        plan={"recompute": "500KB"},
    )


@pytest.fixture
def enough_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory_peaks, "_TIMEOUT_S", 600.0)
    monkeypatch.setattr(memory_peaks, "_ENOUGH_S", 500.0)


@pytest.mark.usefixtures("enough_time")
def test_what_keeps_more_than_may_be_kept_is_too_large() -> None:
    fits, exceeds = memory_peaks.estimate_peaks(
        of_a_transformer(), TRIALS, num_first=2, limit_bytes=1e9
    )
    assert fits is not None
    assert exceeds is not None
    assert fits < 1e9 < exceeds


@pytest.mark.usefixtures("enough_time")
def test_where_time_is_short_what_was_found_by_then_is_the_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(memory_peaks, "_ENOUGH_S", 0.0)
    assert (
        memory_peaks.estimate_peaks(of_a_transformer(), TRIALS, num_first=2, limit_bytes=1e9) == []
    )
