"""Python programs that run beside a test and exchange lines with it."""

from __future__ import annotations

import subprocess

PREAMBLE = """
import json, os, signal, sys, time
from workbench.errors import WorkbenchError
from workbench.events import Noted, RunStateChanged, TrialReported
from workbench.store import Store

def note(n):
    return Noted(level="info", message=str(n))

def open_writer(url, run_id, lease_timeout_s=15.0):
    store = Store.open(url)
    return store.writer(run_id, owner_pid=os.getpid(), owner_host="beside", lease_timeout_s=lease_timeout_s)

def say(word):
    print(word, flush=True)
"""


class Program(subprocess.Popen[str]):
    """A program beside the test that says words, one a line."""

    def read_word(self) -> str:
        """Wait for the next word; empty when the program has ended."""
        assert self.stdout is not None
        return self.stdout.readline().strip()

    def read_words(self) -> list[str]:
        """Wait for the end and return all words that are left."""
        return self.communicate(timeout=60)[0].splitlines()

    def tell(self, word: str) -> None:
        """Send a line."""
        assert self.stdin is not None
        self.stdin.write(f"{word}\n")
        self.stdin.flush()
