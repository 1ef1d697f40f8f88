"""Configurations that cannot fit are known before the first trial of a run."""

from __future__ import annotations

from typing import Any

import pytest

from workbench.experiment import Experiment
from workbench.foundation.events import MemoryPredicted
from workbench.store.database import Store
from workbench.sweeps.ledger import Ledger
from workbench.sweeps.trial_plans import TrialPlans, predict_memory

pytestmark = [pytest.mark.ray, pytest.mark.usefixtures("free_pool")]


def predicted(store: Store, **changes: Any) -> tuple[list[MemoryPredicted], Ledger]:
    """Predict before a run starts; return what was stored, and the ledger."""
    settings: dict[str, Any] = {
        "model": {"name": "mlp", "num_layers": 2},
        "data": "digits",
        "objectives": [{"metric": "val_loss", "goal": "minimize"}],
        "search": {"hidden_width": {"low": 16, "high": 65_536, "log": True}},
        "budget": {"trials": 8, "time": 3600},
    }
    run_id = store.create_run(Experiment(**settings | changes))
    ledger = Ledger(store, run_id)
    with store.writer(run_id, owner_pid=1, owner_host="here") as writer:
        ledger.replay(writer)
        predict_memory(ledger, TrialPlans(store, ledger))
    stored = [row.event for row in store.events(run_id)]
    return [event for event in stored if isinstance(event, MemoryPredicted)], ledger


@pytest.mark.slow
def test_the_first_trial_of_a_sweep_fits_although_most_of_the_space_does_not(store: Store) -> None:
    [prediction], ledger = predicted(store)
    by_width = {int(str(params["hidden_width"])): peak for params, peak in prediction.peaks}
    # Two layers: the widest model holds this many parameters of 4 bytes, their gradients and two
    # moments.
    assert by_width[65_536] > 4 * 4 * 65_536**2
    assert min(by_width.values()) < prediction.limit_bytes < max(by_width.values())
    fitting = [width for width, peak in by_width.items() if peak < prediction.limit_bytes]
    for _ in range(4):
        proposal = ledger.study.ask()
        assert proposal is not None
        assert int(str(proposal.params["hidden_width"])) < 1.5 * max(fitting)


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param(
            {"search": {"lr": {"low": 1e-3, "high": 1.0}}}, id="nothing searched that needs memory"
        ),
        pytest.param({"budget": {"trials": 8}}, id="a short run on processors"),
        pytest.param({"resources": {"advice": "never"}}, id="nothing to be measured"),
        pytest.param({"sampler": "random"}, id="a sampler that does not read it"),
    ],
)
def test_nothing_is_predicted_where_it_would_not_be_used(
    store: Store, changes: dict[str, Any]
) -> None:
    assert predicted(store, **changes)[0] == []
