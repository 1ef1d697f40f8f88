from __future__ import annotations

import math
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from workbench.foundation.errors import ArgumentError, StoreError
from workbench.store.decision_sessions import enter_proposal, sessions_folder, share_of_error
from workbench.store.history.noise_floor import RepeatedTrainings

NONE = RepeatedTrainings([])


def enter(folder: Path, *results: str, name: str = "night") -> int:
    return enter_proposal(name, results, NONE, error=0.05, max_runs=6, folder=folder).number


def test_the_shares_of_all_proposals_add_up_to_the_error() -> None:
    assert math.fsum(map(share_of_error, range(1, 100_001))) == pytest.approx(1 - 1e-5, abs=1e-6)


def test_a_proposal_with_more_results_is_the_same(tmp_path: Path) -> None:
    assert enter(tmp_path, "b1", "c1") == 1
    assert enter(tmp_path, "b1", "d1") == 2
    assert enter(tmp_path, "c1", "b1", "c2") == 1
    assert enter(tmp_path, "b1", "c2") == 3  # a result was left out
    assert enter(tmp_path, "b1", "c1", name="morning") == 1


def test_the_other_proposals_come_with_a_proposal(tmp_path: Path) -> None:
    groups = [RepeatedTrainings([1.0, 2.0], 9.0), RepeatedTrainings([4.0], None)]
    for number, group in enumerate(groups):
        enter_proposal("night", [str(number)], group, error=0.1, max_runs=6, folder=tmp_path)
    first = enter_proposal("night", ["0"], groups[0], error=0.1, max_runs=6, folder=tmp_path)
    assert (first.number, first.error) == (1, 0.05)
    assert first.others == (groups[1],)


def test_a_proposal_without_results_is_not_kept(tmp_path: Path) -> None:
    assert enter(tmp_path) == 1
    assert enter(tmp_path, "b1", "c1") == 1
    assert enter(tmp_path) == 2


def test_proposals_that_come_at_once_get_different_numbers(tmp_path: Path) -> None:
    with ThreadPoolExecutor(8) as pool:
        numbers = list(pool.map(lambda place: enter(tmp_path, f"c{place}"), range(24)))
    assert sorted(numbers) == list(range(1, 25))


@pytest.mark.parametrize("name", ["", "../night", "a/b", ".hidden", "a" * 65, "night\n"])
def test_a_name_that_is_no_plain_word_is_an_error(tmp_path: Path, name: str) -> None:
    with pytest.raises(ArgumentError, match=r"session: .* up to 64 letters"):
        enter(tmp_path / "sessions", "c1", name=name)
    assert not (tmp_path / "sessions").exists()


def test_a_damaged_session_is_not_started_again(tmp_path: Path) -> None:
    (tmp_path / "night.json").write_text("{")
    with pytest.raises(StoreError, match=r"night\.json is not a session"):
        enter(tmp_path, "c1")
    assert (tmp_path / "night.json").read_text() == "{"


def test_sessions_are_next_to_their_store(tmp_path: Path) -> None:
    assert sessions_folder(str(tmp_path / "store.sqlite")) == tmp_path / "sessions"
