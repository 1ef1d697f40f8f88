"""A run that is backed up while it is under way, and continued from the backup."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tests.services.sweeps import Sweep
from workbench.foundation.events import TrialReported
from workbench.runs import Run
from workbench.store.database import Store
from workbench.store.database.backup import back_up, restore

pytestmark = [pytest.mark.ray, pytest.mark.usefixtures("free_pool")]


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_a_run_under_way_is_restored_up_to_an_event_and_resumed_there(
    kind: str, tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    url = (
        str(tmp_path / "store.sqlite")
        if kind == "sqlite"
        else request.getfixturevalue("postgresql_url")
    )
    options = {"steps": 8, "pause_s": 0.05}
    with Store.open(url, tmp_path / "files") as store:
        sweep = Sweep.create(store, "curve", options=options, budget={"trials": 3}).drive()
        sweep.wait_for(TrialReported, lambda event: event.trial == 1 and event.step >= 2)
        made = back_up(store, tmp_path / "backup")
        time.sleep(0.2)
        sweep.wait("complete")
        rows = [row for chunk in store.event_rows(sweep.run_id) for row in chunk]
    with Store.open(str(tmp_path / "elsewhere" / "store.sqlite")) as again:
        restore(tmp_path / "backup", again)
        kept = [row for chunk in again.event_rows(sweep.run_id) for row in chunk]
        assert kept == rows[: made.last_seqs[sweep.run_id]]
        assert len(kept) < len(rows)
        run = Run(again, sweep.run_id)
        assert run.state == "lost"
        assert "curve" in str(run.experiment.train)
        assert [trial.number for trial in run.history.in_state("complete")] == [0]
        run.resume(launcher="inline")
        continued = Sweep(again, sweep.run_id)
        assert continued.state == "complete"
        assert [trial.state for trial in continued.trials] == ["complete"] * 3
        assert [trial.params for trial in continued.trials] == [
            trial.params for trial in sweep.trials
        ], "the study proposes what it would have proposed"
        continued.assert_sound()
