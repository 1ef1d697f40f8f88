from __future__ import annotations

from pathlib import Path

import pytest

from tests.builders.recorded_runs import record_run
from tests.services.shell import Shell

KEYS = ["decision", "probability", "effect", "low", "high", "more_runs"]


def write(path: Path, *values: object) -> str:
    rows = [f"{run},10,{value}" for run, value in enumerate(values)]
    path.write_text("\n".join(["run,step,value", *rows]))
    return str(path)


@pytest.fixture
def baseline(tmp_path: Path) -> str:
    return write(tmp_path / "b.csv", 1.0, 1.01, 0.99, 1.0)


@pytest.mark.parametrize(
    ("values", "decision"),
    [((0.5, 0.51), "better"), ((1.5, 1.5), "not better"), ((0.98,), "more")],
)
def test_every_decision_is_one_document_and_exits_with_0(
    shell: Shell, tmp_path: Path, baseline: str, values: tuple[float, ...], decision: str
) -> None:
    candidate = write(tmp_path / "c.csv", *values)
    answer = shell.json("decide", "--baseline", baseline, "--candidate", candidate)
    assert list(answer) == KEYS
    assert answer["decision"] == decision
    assert (answer["more_runs"] == 0) == (decision != "more")
    code, out, _ = shell("decide", "--baseline", baseline, "--candidate", candidate)
    assert code == 0
    assert out.startswith(f"{decision}: ")


def test_options_reach_the_test(shell: Shell, tmp_path: Path, baseline: str) -> None:
    words = ("decide", "--baseline", baseline, "--candidate", write(tmp_path / "c.csv", 1.02, 1.03))
    plain = shell.json(*words)
    assert shell.json(*words, "--goal", "maximize")["effect"] == -plain["effect"]
    assert shell.json(*words, "--error", "0.2")["low"] > plain["low"]
    assert shell.json(*words, "--max-runs", "2")["decision"] == "not better"


def test_columns_that_are_not_read_are_noted(shell: Shell, tmp_path: Path, baseline: str) -> None:
    floor = tmp_path / "floor.csv"
    floor.write_text("group,track,run,step,val_loss\na,x,1,9,1.0\na,x,2,9,1.1\n")
    candidate = write(tmp_path / "c.csv", 0.98)
    code, _, err = shell(
        "decide", "--baseline", baseline, "--candidate", candidate, "--floor", str(floor)
    )
    assert code == 0
    assert "floor.csv has unknown columns, which are ignored: track" in err


def test_a_wrong_cell_is_bad_input(shell: Shell, tmp_path: Path, baseline: str) -> None:
    candidate = write(tmp_path / "c.csv", "good")
    code, _, err = shell("decide", "--baseline", baseline, "--candidate", candidate)
    assert code == 2
    assert "c.csv, line 2, column value: 'good' is not valid" in err
    assert "allowed: a number, or nan for a run that diverged" in err


@pytest.mark.parametrize("limit", ["0", "101"])
def test_the_limit_has_a_range(shell: Shell, baseline: str, limit: str) -> None:
    code, _, err = shell(
        "decide", "--baseline", baseline, "--candidate", baseline, "--max-runs", limit
    )
    assert code == 2
    assert f"--max-runs: {limit} is not valid; allowed: from 1 to 100" in err


def test_two_trials_of_the_store_are_compared(shell: Shell) -> None:
    run_id = record_run(shell.folder)
    answer = shell.json("decide", f"{run_id}/0", f"{run_id}/2")
    assert list(answer) == KEYS
    assert answer["decision"] == "more"


def test_constraints_are_reported(shell: Shell) -> None:
    run_id = record_run(shell.folder)
    words = ("decide", f"{run_id}/0", f"{run_id}/2")
    assert shell.json(*words, "--constraint", "slower=5%")["broken"] == []
    code, _, err = shell(*words, "--constraint", "slower=5")
    assert code == 2
    assert "constraints.slower: '5' is not valid; allowed: a share such as 5%" in err


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        ((), "give two trials, or the files of both"),
        (("last/0",), "give two trials: the baseline and the candidate"),
        (("last/0", "last/1", "--goal", "minimize"), "a run has its own goal"),
    ],
)
def test_half_a_question_is_bad_input(shell: Shell, words: tuple[str, ...], problem: str) -> None:
    code, _, err = shell("decide", *words)
    assert code == 2
    assert problem in err


def test_files_and_trials_are_not_mixed(shell: Shell, baseline: str) -> None:
    code, _, err = shell("decide", "last/0", "last/1", "--baseline", baseline)
    assert code == 2
    assert "not a trial and --baseline" in err
    words = ("decide", "--baseline", baseline, "--candidate", baseline, "--metric", "loss")
    code, _, err = shell(*words)
    assert code == 2
    assert "--metric is for trials" in err


def test_proposals_of_a_session_share_the_error(
    shell: Shell, tmp_path: Path, baseline: str
) -> None:
    for number, (value, error) in enumerate([(0.98, "0.025"), (0.97, "0.008333")], 1):
        candidate = write(tmp_path / "c.csv", value)
        code, _, err = shell(
            "decide", "--baseline", baseline, "--candidate", candidate, "--session", "night"
        )
        assert code == 0
        assert f"proposal {number} of the session night may spend {error} of its error" in err
