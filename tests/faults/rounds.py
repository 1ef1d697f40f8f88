"""The rounds of a campaign in a house of its own: each is played, judged and printed."""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from tests.faults.house import House


def play_rounds(
    name: str, rounds: int, play: Callable[[House, int], tuple[list[str], str]], *, first: int = 0
) -> int:
    """Play rounds, and return the exit status.

    Args:
        name: The campaign.
        rounds: How many.
        play: Plays a round by its number; returns what was wrong, and what else is to be printed.
        first: The number of the first round.
    """
    folder = Path(tempfile.mkdtemp(prefix=f"workbench-{name}-"))
    house = House(folder)
    num_wrong = 0
    try:
        for number in range(first, first + rounds):
            began_s = time.monotonic()
            wrong, did = play(house, number)
            num_wrong += len(wrong)
            verdict = "WRONG" if wrong else "well"
            print(f"{number:3d} {verdict}: {did}{time.monotonic() - began_s:.0f} s", flush=True)
            for line in wrong:
                print(f"    wrong: {line}", flush=True)
    finally:
        house.close()
        shutil.rmtree(folder, ignore_errors=True)
    return 1 if num_wrong else 0
