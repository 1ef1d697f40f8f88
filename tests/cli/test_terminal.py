"""The live view, on a terminal as the system makes them."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import signal
import socket
import struct
import subprocess
import sys
import termios
import time

import pytest

from tests.builders.recorded_runs import EXPERIMENT, begin, finish, trial_events
from tests.services.shell import Shell
from workbench.cli.output import wrapped
from workbench.experiment import Experiment
from workbench.store.database import Store

_ESCAPE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


class Terminal:
    """A process on a pseudo-terminal, and what it has written there."""

    def __init__(self, shell: Shell, *words: str, columns: int = 110, lines: int = 30) -> None:
        self._controller, terminal = pty.openpty()
        fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
        self.process = subprocess.Popen(
            [sys.executable, "-m", "workbench", *words],
            stdin=terminal,
            stdout=terminal,
            stderr=terminal,
            env=os.environ | {"TERM": "xterm-256color", "COLUMNS": "", "LINES": ""},
            cwd=shell.folder,
            start_new_session=True,
        )
        os.close(terminal)
        self.raw = ""

    def wait_for(self, text: str, timeout_s: float = 120) -> str:
        until = time.monotonic() + timeout_s
        while text not in self.text:
            assert time.monotonic() < until, self.text
            self._read(0.2)
        return self.text

    def wait(self) -> int:
        while self.process.poll() is None:
            self._read(0.2)
        self._read(0.2)
        return self.process.returncode

    @property
    def text(self) -> str:
        return _ESCAPE.sub("", self.raw)

    def _read(self, timeout_s: float) -> None:
        if select.select([self._controller], [], [], timeout_s)[0]:
            try:
                self.raw += os.read(self._controller, 65536).decode(errors="replace")
            except OSError:
                return


def test_the_live_view_shows_progress_and_ends_with_the_best(shell: Shell) -> None:
    with Store.open(str(shell.folder / "store.sqlite")) as store:
        run_id = store.create_run(Experiment(**EXPERIMENT))
        with store.writer(run_id, owner_pid=os.getpid(), owner_host=socket.gethostname()) as writer:
            writer.append(
                *begin(), *trial_events(0, at_s=0), *trial_events(1, at_s=1, state="running")
            )
            terminal = Terminal(shell, "follow", run_id)
            seen = terminal.wait_for("samples/s")
            assert "1/5 trials" in seen
            assert "1 complete" in seen
            assert "best  trial 0  val_accuracy=0.9" in seen
            assert re.search(
                r"1 +2/10 +0\.9 +1,235 +lr=0\.01 width=16", terminal.wait_for("1,235 ")
            )
            terminal.wait_for(" left")
            now_s = time.time() - begin()[0].time_unix_s
            writer.append(
                *trial_events(2, at_s=now_s, accuracy=0.97),
                *trial_events(1, at_s=1)[-1:],
                *finish(4),
            )

    assert terminal.wait() == 0
    text = terminal.text
    assert "trial 2 complete val_accuracy=0.97 (best so far) lr=0.01 width=16" in text
    assert text.rstrip().splitlines()[-1].endswith(f"workbench export {run_id} --to best")
    assert terminal.raw.rstrip().rfind("\x1b[?25h") > terminal.raw.rfind("\x1b[?25l"), (
        "the cursor is back"
    )


@pytest.mark.parametrize("ended_by", [signal.SIGINT, signal.SIGTERM])
def test_ending_the_live_view_gives_the_terminal_back(
    shell: Shell, ended_by: signal.Signals
) -> None:
    with Store.open(str(shell.folder / "store.sqlite")) as store:
        run_id = store.create_run(Experiment(**EXPERIMENT))
        with store.writer(run_id, owner_pid=os.getpid(), owner_host=socket.gethostname()) as writer:
            writer.append(*begin(), *trial_events(0, at_s=0, state="running"))
            terminal = Terminal(shell, "follow", run_id)
            terminal.wait_for("samples/s")
            terminal.process.send_signal(ended_by)
            assert terminal.wait() == 130

    assert f"workbench follow {run_id}" in terminal.text
    assert "Traceback" not in terminal.text
    assert terminal.raw.rfind("\x1b[?25h") > terminal.raw.rfind("\x1b[?25l"), "the cursor is back"


def test_more_running_trials_than_lines_are_counted_instead(shell: Shell) -> None:
    with Store.open(str(shell.folder / "store.sqlite")) as store:
        run_id = store.create_run(Experiment(**EXPERIMENT))
        with store.writer(run_id, owner_pid=os.getpid(), owner_host=socket.gethostname()) as writer:
            trials = [trial_events(number, at_s=0, state="running") for number in range(40)]
            writer.append(*begin(), *(event for events in trials for event in events))
            terminal = Terminal(shell, "follow", run_id, lines=20)
            terminal.wait_for("and 28 more")
            writer.append(*finish(1, "stopped"))
    assert terminal.wait() == 4


@pytest.mark.parametrize("is_plain", [False, True])
def test_colours_are_left_out_where_they_are_unwanted(
    shell: Shell, monkeypatch: pytest.MonkeyPatch, is_plain: bool
) -> None:
    monkeypatch.setenv("NO_COLOR", "1" if is_plain else "")
    Store.open(str(shell.folder / "store.sqlite")).close()
    terminal = Terminal(shell, "show", "nobody")
    assert terminal.wait() == 2
    assert "there is no run 'nobody'" in terminal.text
    assert (terminal.raw == terminal.text) is is_plain


def test_long_texts_are_broken_at_the_width_of_the_terminal(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    text = (
        "the data cache /a/long/path/that-stays-whole/however-long-it-may-be holds 3 GiB of samples"
    )
    assert wrapped(text, 20) == text, "no terminal"
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "60")
    first, *others = wrapped(text, 20).split("\n")
    assert first == "the data cache"
    assert all(line.startswith(" " * 20) for line in others)
    assert " ".join([first, *(line.strip() for line in others)]) == text


def test_of_many_trials_a_terminal_keeps_those_that_fail_or_improve(shell: Shell) -> None:
    ends = [*("complete",) * 13, "failed"]
    with Store.open(str(shell.folder / "store.sqlite")) as store:
        run_id = store.create_run(Experiment(**{**EXPERIMENT, "budget": {"trials": len(ends)}}))
        with store.writer(run_id, owner_pid=os.getpid(), owner_host=socket.gethostname()) as writer:
            writer.append(*begin())
            terminal = Terminal(shell, "follow", run_id)
            terminal.wait_for("0/14 trials")
            now_s = time.time() - begin()[0].time_unix_s
            for number, state in enumerate(ends):
                accuracy = 0.9 if number else 0.95
                reason = "error" if state == "failed" else None
                writer.append(
                    *trial_events(number, at_s=now_s, state=state, accuracy=accuracy, reason=reason)
                )
            writer.append(*finish(9))
    assert terminal.wait() == 5
    lines = [
        line
        for line in terminal.text.splitlines()
        if re.search(r"(ms|s|min|h) trial \d+ (complete|failed)", line)
    ]
    assert {re.findall(r"trial (\d+)", line)[0] for line in lines} == {"0", "13"}
