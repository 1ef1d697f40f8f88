"""The log of a trial as a front end receives it: live, searched as a whole, readable."""

from __future__ import annotations

from pathlib import Path

from workbench.foundation.artifacts import open_artifacts
from workbench.runs.descriptions import log_file
from workbench.views.live_feed.trial_log import (
    MAX_LINES,
    TrialLog,
    TrialLogQuery,
    TrialLogReader,
    find_log,
)


def log_of(folder: Path, text: str, rank: int = 0) -> Path:
    path = log_file(folder, 3, rank)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def reader(folder: Path, **query: object) -> TrialLogReader:
    return TrialLogReader(folder, 3, TrialLogQuery.model_validate(query))


def searched(one: TrialLogReader) -> TrialLog:
    read_back = one.read()
    while read_back.searched < 1:
        read_back = one.read()
    return read_back


def test_the_end_follows_what_is_printed(tmp_path: Path) -> None:
    follows = reader(tmp_path)
    assert (follows.read().lines, follows.read().num_bytes) == ((), 0)
    path = log_of(tmp_path, "one\ntw")
    assert follows.read().lines == ("one", "tw")
    with path.open("a") as file:
        file.write("o\nthree\n")
    read_back = follows.read()
    assert (read_back.lines, read_back.num_found, read_back.num_bytes) == (
        ("one", "two", "three"),
        None,
        14,
    )
    path.write_text("anew\n")
    assert follows.read().lines == ("anew",), "a log that was replaced by a shorter one starts anew"


def test_of_a_long_log_only_the_end_is_read_unless_it_is_searched(tmp_path: Path) -> None:
    log_of(
        tmp_path,
        "".join(f"epoch {number} of many, loss {number % 7}\n" for number in range(200_000)),
    )
    end = reader(tmp_path).read()
    assert (len(end.lines), end.lines[-1]) == (MAX_LINES, "epoch 199999 of many, loss 2")
    first = reader(tmp_path, text="LOSS 3")
    assert first.read().searched < 1
    matches = searched(first)
    assert matches.num_found == sum(number % 7 == 3 for number in range(200_000))
    assert searched(reader(tmp_path, text="epoch 17 of")).lines == ("epoch 17 of many, loss 3",)


def test_bars_of_progress_and_colours_are_written_as_they_look_in_the_end(tmp_path: Path) -> None:
    log_of(tmp_path, "10 %\r 50 %\r100 %\n\x1b[31mred\x1b[0m\r\n\x1b]0;title\x07plain\n")
    assert reader(tmp_path).read().lines == ("100 %", "red", "plain")


def test_each_worker_has_its_log(tmp_path: Path) -> None:
    log_of(tmp_path, "first\n")
    log_of(tmp_path, "second\n", rank=1)
    read_back = reader(tmp_path, rank=1).read()
    assert (read_back.ranks, read_back.lines) == ((0, 1), ("second",))
    artifacts = open_artifacts(tmp_path)
    assert find_log(artifacts, 3, 1) == log_file(tmp_path, 3, 1)
    assert find_log(artifacts, 3, 2) is None


def test_a_line_without_an_end_is_cut(tmp_path: Path) -> None:
    log_of(tmp_path, "x" * 500_000)
    endless = reader(tmp_path, text="x")
    assert all(len(line) <= 2_000 for line in searched(endless).lines)
