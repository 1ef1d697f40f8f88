from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from workbench.tiers.processes.next_tier import STATUS
from workbench.views.live_feed import tiers_journal
from workbench.views.live_feed.tiers_journal import JournalReader, TiersJournal, journal_path
from workbench.views.live_feed.tiers_picture import TiersRun, TiersStatus

RUN = TiersRun(state="starting", scheduler="end-cloud", threshold=0.9, time_s=20)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tiers_journal, "user_data_folder", lambda: tmp_path)


def reports(now_s: float, num_waiting: int) -> list[dict[str, float]]:
    return [{**dict.fromkeys(STATUS, 0.0), "now_s": now_s, "num_waiting": num_waiting}]


def states(found: list[TiersRun | TiersStatus]) -> list[str]:
    return [event.state if isinstance(event, TiersRun) else "status" for event in found]


def test_a_reader_follows_the_run_that_is_under_way_and_the_next_one(tmp_path: Path) -> None:
    file = tmp_path / "tiers.yaml"
    early = JournalReader(file)
    assert early.read() == []
    journal = TiersJournal(file, RUN)
    assert journal.on_status(reports(1, 3))
    journal.on_status(reports(2, 5))
    late = JournalReader(file)
    for reader in (early, late):
        read_back = reader.read()
        assert states(read_back) == ["starting", "running", "status"]
        status = read_back[-1]
        assert isinstance(status, TiersStatus)
        assert status.tiers[0].num_waiting == 5
    journal.end(state="done", num_requests=40)
    assert [event.state for event in early.read() if isinstance(event, TiersRun)] == ["done"]
    assert early.read() == []
    # The same number of bytes: only who began it, and when, tells it from the first.
    TiersJournal(file, RUN)
    assert states(early.read()) == ["starting"]


def test_a_run_that_had_ended_before_is_not_shown(tmp_path: Path) -> None:
    TiersJournal(tmp_path / "tiers.yaml", RUN).end(state="done")
    assert JournalReader(tmp_path / "tiers.yaml").read() == []


def test_a_run_whose_process_is_gone_ends_with_a_problem(tmp_path: Path) -> None:
    file = tmp_path / "tiers.yaml"
    reader = JournalReader(file)
    reader.read()
    TiersJournal(file, RUN)
    path = journal_path(file)
    owner, *rest = path.read_text().splitlines()
    gone = subprocess.Popen(["true"])
    gone.wait()
    path.write_text("\n".join([json.dumps({**json.loads(owner), "pid": gone.pid}), *rest, ""]))
    started = reader.read()[0]
    assert isinstance(started, TiersRun)
    assert started.is_elsewhere
    (lost,) = reader.read()
    assert isinstance(lost, TiersRun)
    assert (lost.state, lost.problem is not None) == ("idle", True)
    assert reader.read() == []


def test_whoever_watches_can_end_a_run(tmp_path: Path) -> None:
    wanted = [True, False]
    journal = TiersJournal(tmp_path / "tiers.yaml", RUN, is_wanted=lambda: wanted.pop(0))
    assert [journal.on_status(reports(now_s, 0)) for now_s in (1, 2)] == [True, False]
