"""The log of a trial is watched, and a crash in it is found."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from workbench.cluster.workers import trial_log
from workbench.cluster.workers.trial_log import LINE_CHARS, LogWatch, TrialLog, crash_in


class Log:
    def __init__(self, *patterns: str, text: str = "") -> None:
        self.content = text.encode()
        self.num_read = 0
        self.watch = LogWatch(patterns, lambda: len(self.content), self._read)

    def _read(self, begin: int, num_bytes: int) -> bytes:
        self.num_read += num_bytes
        return self.content[begin : begin + num_bytes]

    def prints(self, text: str) -> list[tuple[str, str]]:
        self.content += text.encode()
        return self.watch.scan()


@pytest.fixture(autouse=True)
def scan_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trial_log, "SCAN_INTERVAL_S", 0.0)


def test_a_pattern_is_found_once_and_each_for_itself() -> None:
    log = Log("NCCL", r"Xid \d+")
    assert log.prints("all is well\n") == []
    assert log.prints("first NCCL here\nsecond NCCL\n") == [("NCCL", "first NCCL here")]
    assert log.prints("NCCL again\nXid 79 and NCCL\n") == [(r"Xid \d+", "Xid 79 and NCCL")]
    assert log.prints("Xid 80 NCCL\n") == []


def test_what_earlier_attempts_printed_does_not_count() -> None:
    log = Log("NCCL", text="NCCL of before\n")
    assert log.prints("well\n") == []


def test_a_line_counts_once_it_has_ended_and_the_last_one_at_the_end() -> None:
    log = Log("lost$")
    assert log.prints("lo") == log.prints("st") == []
    assert log.prints("\n") == [("lost$", "lost")]
    log = Log("lost$")
    assert log.prints("connection lost") == []
    assert log.watch.scan(at_end=True) == [("lost$", "connection lost")]


def test_progress_bars_are_lines() -> None:
    assert Log("^50%").prints("10%\r50%\r90%\r") == [("^50%", "50%")]


def test_long_lines_and_long_logs_are_read_in_part(monkeypatch: pytest.MonkeyPatch) -> None:
    assert Log("end").prints("x" * LINE_CHARS + "end\n") == []
    (lines,) = Log("x").prints("x" * 5000 + "\n")
    assert len(lines[1]) == trial_log.SHOWN_CHARS
    monkeypatch.setattr(trial_log, "MAX_BYTES", 100)
    log = Log("begin", "end")
    assert log.prints("begin\n" + "x\n" * 100 + "end\n") == [("end", "end")]
    assert log.num_read == 100


def test_half_a_character_does_no_harm() -> None:
    log = Log("naïve")
    log.content += "naï".encode()[:-1]
    assert log.watch.scan() == []
    log.content += b"\xff" + "naï".encode()[-1:] + b"ve\n"
    assert log.watch.scan() == []
    log.content += "naïv".encode()[:3]
    assert log.watch.scan() == []
    log.content += "naïv".encode()[3:] + b"e\n"
    assert log.watch.scan() == [("naïve", "naïve")]


def test_a_pattern_that_takes_long_is_given_up(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(trial_log, "SLOW_S", 0.0)
    log = Log("nothing")
    assert log.prints("a\nb\n") == []
    assert "searching for 'nothing' is too slow" in capsys.readouterr().out
    assert log.prints("nothing\n") == []


def test_without_patterns_nothing_is_read() -> None:
    log = Log()
    assert log.prints("anything\n") == []
    assert log.num_read == 0


def test_lines_that_are_added_to_a_log_do_not_continue_what_was_printed(tmp_path: Path) -> None:
    log, path = TrialLog(), tmp_path / "trials" / "00000" / "log.txt"
    log.begin(path)
    try:
        os.write(1, b"last words")
        log.write("Traceback\n")
        log.write("RuntimeError\n")
    finally:
        log.end()
    assert path.read_text() == "last words\nTraceback\nRuntimeError\n"


def test_a_trial_log_can_be_read_while_it_is_written(tmp_path: Path) -> None:
    log, path = TrialLog(), tmp_path / "trials" / "00000" / "log.txt"
    log.begin(path)
    try:
        watch = LogWatch(("hello",), log.size, log.read)
        os.write(1, b"hello from the trial\n")
        lines = watch.scan()
        log.show()
    finally:
        log.end()
    assert lines == [("hello", "hello from the trial")]


def test_the_signal_of_a_crash_is_read_from_the_log_and_earlier_crashes_are_not(
    tmp_path: Path,
) -> None:
    log = tmp_path / "log.txt"
    assert crash_in(log, since_unix_s=0.0) is None
    log.write_text("*** SIGSEGV received at time=1000 on cpu 1 ***\n" + "    @ frame\n" * 100)
    assert crash_in(log, since_unix_s=1000.7) == "SIGSEGV"
    with log.open("a") as file:
        file.write(
            "epoch 1\n[2026 E 1] logging.cc:474: *** SIGABRT received at time=2000 on cpu 0 ***\n"
        )
    assert crash_in(log, since_unix_s=1500.0) == "SIGABRT"
    assert crash_in(log, since_unix_s=3000.0) is None
