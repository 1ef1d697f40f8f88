"""The rounds of a campaign in a house of its own: each is played, judged and printed."""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.faults.house import House


def play_rounds(
    name: str,
    rounds: int,
    play: Callable[[House, int], tuple[list[str], str]],
    *,
    first: int = 0,
    num_at_once: int = 1,
) -> int:
    """Play rounds, and return the exit status.

    Args:
        name: The campaign.
        rounds: How many.
        play: Plays a round by its number; returns what was wrong, and what else is to be printed.
        first: The number of the first round.
        num_at_once: How many are played at a time; the next begins when one has ended.
    """
    folder = Path(tempfile.mkdtemp(prefix=f"workbench-{name}-"))
    house = House(folder)

    def play_round(number: int) -> int:
        began_s = time.monotonic()
        wrong, did = play(house, number)
        verdict = "WRONG" if wrong else "well"
        lines = [f"{number:3d} {verdict}: {did}{time.monotonic() - began_s:.0f} s"]
        print("\n".join(lines + [f"    wrong: {line}" for line in wrong]), flush=True)
        return len(wrong)

    try:
        with ThreadPoolExecutor(num_at_once) as threads:
            num_wrong = sum(threads.map(play_round, range(first, first + rounds)))
    finally:
        house.close()
        shutil.rmtree(folder, ignore_errors=True)
    return 1 if num_wrong else 0
