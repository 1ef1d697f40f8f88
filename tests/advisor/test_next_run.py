"""Few full runs: which tells most, and what may be chosen."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.builders.examples import examples
from workbench.advisor.next_run import (
    FullRun,
    NextRun,
    advise_next_run,
    read_epoch_times,
    read_runs,
)
from workbench.foundation.errors import DataError

BATCHES = [16, 32, 64, 128, 256, 512, 1024]
# Epochs get cheaper up to where the device is full, at about 128 samples.
TIMES_S = {batch: 10.0 * (1 + 128 / batch) for batch in BATCHES}
Truth = dict[int, float | None]


def search(truth: Truth, max_runs: int = 3) -> tuple[NextRun, list[FullRun]]:
    runs: list[FullRun] = []
    while True:
        advice = advise_next_run(TIMES_S, runs, max_runs=max_runs)
        if advice.next_run is None:
            return advice, runs
        runs.append(FullRun(advice.next_run, truth[advice.next_run]))


def regret(truth: Truth, choice: int | None) -> float:
    times = {
        batch: TIMES_S[batch] * epochs for batch, epochs in truth.items() if epochs is not None
    }
    assert choice in times
    return times[choice] / min(times.values()) - 1


@pytest.mark.parametrize("critical", [30, 100, 300, 1000, 10_000, 1e6])
def test_three_runs_come_near_the_best_batch_of_the_law(critical: float) -> None:
    truth: Truth = {batch: 20 * (1 + batch / critical) for batch in BATCHES}
    advice, runs = search(truth)
    assert len(runs) == 3
    assert regret(truth, advice.choice) < 0.12


def test_no_run_is_made_twice_and_none_beyond_the_budget() -> None:
    truth: Truth = {batch: 20 * (1 + batch / 200) for batch in BATCHES}
    for max_runs in (0, 1, 5, 9):
        advice, runs = search(truth, max_runs)
        assert len(runs) == len({run.global_batch for run in runs}) <= max_runs
        assert advice.choice is not None


@examples(40)
@given(
    epochs=st.lists(
        st.one_of(st.none(), st.floats(1, 300)), min_size=len(BATCHES), max_size=len(BATCHES)
    ),
    max_runs=st.integers(1, 4),
)
def test_what_is_chosen_reached_the_target_or_lies_between_two_that_did(
    epochs: list[float | None], max_runs: int
) -> None:
    advice, runs = search(dict(zip(BATCHES, epochs, strict=True)), max_runs)
    reached = [run.global_batch for run in runs if run.epochs is not None]
    failed = {run.global_batch for run in runs if run.epochs is None}
    assert advice.choice not in failed
    assert failed.isdisjoint(ranked.global_batch for ranked in advice.ranking)
    if reached:
        assert advice.choice is not None
        assert min(reached) <= advice.choice <= max(reached)
        assert advice.ranking[0].global_batch == advice.choice


def test_after_a_failure_smaller_batches_are_tried_and_nothing_beyond_it_is() -> None:
    first = advise_next_run(TIMES_S, [], max_runs=3).next_run
    assert first is not None
    after = advise_next_run(TIMES_S, [FullRun(first, None)], max_runs=3)
    assert after.next_run is not None
    assert after.next_run < first
    assert all(ranked.global_batch < first for ranked in after.ranking)
    known = [FullRun(64, 20.0), FullRun(256, None)]
    beyond = advise_next_run(TIMES_S, known, max_runs=9)
    assert beyond.choice == 64
    assert beyond.next_run is not None
    assert beyond.next_run < 256


def test_a_failure_below_a_batch_that_reached_the_target_rules_out_what_is_smaller_still() -> None:
    advice = advise_next_run(TIMES_S, [FullRun(64, None), FullRun(256, 20.0)], max_runs=3)
    assert advice.choice == 256
    assert advice.next_run is not None
    assert advice.next_run > 64


def test_a_batch_that_failed_with_one_seed_is_not_chosen_for_another() -> None:
    advice = advise_next_run(
        TIMES_S, [FullRun(256, 10.0), FullRun(256, None), FullRun(128, 15.0)], max_runs=3
    )
    assert advice == advise_next_run(
        TIMES_S, [FullRun(128, 15.0), FullRun(256, None), FullRun(256, 10.0)], max_runs=3
    )
    assert (advice.next_run, advice.choice) == (None, 128)


def test_where_everything_failed_there_is_nothing_to_choose() -> None:
    advice = advise_next_run(TIMES_S, [FullRun(batch, None) for batch in BATCHES], max_runs=9)
    assert advice == NextRun(None, None, ())


def test_times_are_unknown_before_a_run_and_bracketed_after() -> None:
    before = advise_next_run(TIMES_S, [], max_runs=3)
    assert {ranked.global_batch for ranked in before.ranking} == set(BATCHES)
    assert all(ranked.time_to_target_s is None for ranked in before.ranking)
    assert before.choice == before.next_run == before.ranking[0].global_batch
    runs = [FullRun(64, 20.0), FullRun(512, 60.0)]
    for ranked in advise_next_run(TIMES_S, runs, max_runs=3).ranking:
        assert ranked.time_to_target_s is not None
        assert ranked.low_s is not None
        assert ranked.high_s is not None
        assert 0 < ranked.low_s < ranked.time_to_target_s < ranked.high_s
    by_batch = {
        ranked.global_batch: ranked for ranked in advise_next_run(TIMES_S, runs, max_runs=3).ranking
    }
    assert by_batch[64].time_to_target_s == pytest.approx(20 * TIMES_S[64], rel=0.1)


def write(folder: Path, text: str) -> Path:
    path = folder / "table.csv"
    path.write_text(text)
    return path


def test_epochs_between_two_profiles_lie_on_the_line_that_steps_make(tmp_path: Path) -> None:
    path = write(tmp_path, "global_batch,epoch_time_s\n64,30\n256,15\n64,34\n64,31\n")
    # 10 + 1344 / B through both: the median of three profiles counts.
    epoch_times = read_epoch_times(path, [64, 128, 256])
    assert epoch_times == {64: 31.0, 128: pytest.approx(15 + 16 / 3), 256: 15.0}
    with pytest.raises(DataError, match=r"no profile of batch 512.*allowed: from 64 to 256"):
        read_epoch_times(path, [512])
    with pytest.raises(DataError, match="the table is empty"):
        read_epoch_times(write(tmp_path, "global_batch,epoch_time_s\n"), [512])


def test_an_empty_cell_is_a_run_that_never_reached_the_target(tmp_path: Path) -> None:
    path = write(tmp_path, "global_batch,epochs_to_target\n64,12\n128,\n")
    assert read_runs(path, [64, 128]) == [FullRun(64, 12.0), FullRun(128, None)]
    assert read_runs(write(tmp_path, "global_batch,epochs_to_target\n"), [64]) == []


@pytest.mark.parametrize(
    ("row", "said"),
    [
        (
            "64,never",
            "line 2, column epochs_to_target: 'never' is not valid; allowed: .* or empty if",
        ),
        ("64,0", "line 2, column epochs_to_target: '0'"),
        (
            "96,10",
            "line 2, column global_batch: '96' is not valid; allowed: one of --batches: 64, 128",
        ),
        ("x,10", "line 2, column global_batch: 'x'"),
    ],
)
def test_malformed_runs_are_refused_by_column_and_line(row: str, said: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=said):
        read_runs(write(tmp_path, f"global_batch,epochs_to_target\n{row}\n"), [64, 128])
