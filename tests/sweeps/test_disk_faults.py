"""The place of the artifacts is full, read-only or gone in the middle of a run.

No trial is burned.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.services.disk import Disk
from tests.services.sweeps import Driving, Sweep
from tests.services.waiting import wait_until
from workbench.foundation.errors import ArtifactsError
from workbench.foundation.events import AttemptEnded, Noted, TrialReported
from workbench.store.database import Store
from workbench.sweeps import artifact_outage, trial_reports

pytestmark = [pytest.mark.ray, pytest.mark.usefixtures("free_pool")]


@pytest.fixture
def store(tmp_path: Path, disk: Disk) -> Iterator[Store]:
    with Store.open(str(tmp_path / "store.sqlite"), disk.path / "runs") as store:
        yield store


def hoard(store: Store, **fields: object) -> Sweep:
    options = {"steps": 6, "pause_s": 0.15}
    return Sweep.create(store, "hoard", **{"options": options, "budget": {"trials": 3}, **fields})


def notes(sweep: Sweep, level: str) -> list[str]:
    return [note.message for note in sweep.of(Noted) if note.level == level]


def test_a_run_waits_for_room_on_a_full_disk_and_goes_on(store: Store, disk: Disk) -> None:
    sweep = hoard(store)
    driving = Driving(sweep)
    sweep.wait_for(TrialReported, lambda event: event.step == 2)
    disk.fill()
    interrupted = sweep.wait_for(AttemptEnded)
    wait_until(lambda: notes(sweep, "warning"))
    disk.make_room()
    assert driving.join() is None

    assert (interrupted.reason, "No space left on device" in interrupted.message) == (
        "storage",
        True,
    )
    assert str(disk.path) in notes(sweep, "warning")[0]
    assert [trial.state for trial in sweep.trials] == ["complete"] * 3
    steps = [report.step for report in sweep.of(TrialReported, 0)]
    assert (steps[-1], steps == sorted(steps)) == (6, True)
    sweep.assert_sound()


@pytest.mark.slow
def test_a_trial_whose_checkpoints_are_removed_while_it_writes_starts_again(
    store: Store, disk: Disk
) -> None:
    sweep = hoard(store, budget={"trials": 1})
    driving = Driving(sweep)
    sweep.wait_for(TrialReported, lambda event: event.step == 2)
    (checkpoints,) = store.folder(sweep.run_id).glob("trials/*/checkpoints")
    checkpoints.rename(disk.path / "removed")
    assert driving.join() is None

    assert [ended.reason for ended in sweep.of(AttemptEnded)] == ["storage"]
    assert "checkpoints" in sweep.of(AttemptEnded)[0].message
    assert [trial.state for trial in sweep.trials] == ["complete"]
    sweep.assert_sound()


def test_a_trial_whose_own_code_removes_its_checkpoints_is_given_up(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trial_reports, "MAX_STORAGE_SETBACKS", 1)
    sweep = Sweep.create(store, "tear_down", budget={"trials": 1})
    assert Driving(sweep).join() is None

    assert [ended.reason for ended in sweep.of(AttemptEnded)] == ["storage"]
    assert [(trial.state, trial.reason) for trial in sweep.trials] == [("failed", "storage")]
    sweep.assert_sound()


@pytest.mark.slow
@pytest.mark.parametrize("fault", ["gone", "full", "read-only", "a file"])
def test_a_place_that_stays_ill_ends_the_run_with_no_trial_lost_and_resume_goes_on(
    store: Store, disk: Disk, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    monkeypatch.setattr(artifact_outage, "ARTIFACTS_PATIENCE_S", 3.0)
    sweep = hoard(store, options={"steps": 8, "pause_s": 0.3})
    folder = store.folder(sweep.run_id)
    driving = Driving(sweep)
    sweep.wait_for(TrialReported, lambda event: event.step == 2)
    match fault:
        case "full":
            disk.fill()
        case "read-only":
            disk.close_for_writing()
        case _:
            folder.rename(disk.path / "away")
            if fault == "a file":
                folder.touch()
    error = driving.join(120)

    assert isinstance(error, ArtifactsError)
    assert str(disk.path) in str(error)
    assert "then resume the run" in str(error)
    assert sweep.state == "failed"
    assert sweep.history.message == str(error)
    # No trial was judged but those that were done before the fault was noticed.
    assert [trial.reason for trial in sweep.trials if trial.state == "failed"] == []
    assert len(sweep.trials) <= 2

    match fault:
        case "full":
            disk.make_room()
        case "read-only":
            disk.open_for_writing()
        case _:
            subprocess.run(["rm", "-rf", str(folder)], check=True)
            (disk.path / "away").rename(folder)
    assert Driving(sweep).join() is None
    assert [trial.state for trial in sweep.trials] == ["complete"] * 3
    sweep.assert_sound()
