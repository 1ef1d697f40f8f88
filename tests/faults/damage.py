"""Files that rot: `python -m tests.faults damage` damages checkpoints and stores, and uses them.

A checkpoint or a store is cut off, has bits flipped, bytes overwritten, is empty, or lacks its
write-ahead log. What is read then is either whole, which is compared with what was written, or
refused in words; anything else that is raised is a defect.
"""

from __future__ import annotations

import argparse
import collections
import random
import shutil
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.faults.evidence import count_error
from workbench.foundation.errors import WorkbenchError

WAYS = ("cut", "flip a bit", "overwrite", "empty", "append", "swap halves")


def damage(content: bytes, way: str, chance: random.Random) -> bytes:
    """Return what is left of a file."""
    place = chance.randrange(max(1, len(content)))
    match way:
        case "cut":
            return content[:place]
        case "flip a bit":
            changed = bytearray(content)
            changed[place] ^= 1 << chance.randrange(8)
            return bytes(changed)
        case "overwrite":
            length = chance.randrange(1, 4096)
            return content[:place] + chance.randbytes(length) + content[place + length :]
        case "append":
            return content + chance.randbytes(512)
        case "swap halves":
            return content[place:] + content[:place]
    return b""


def make_checkpoint(folder: Path) -> tuple[Path, Callable[[Path], Any]]:
    """Write a checkpoint, and return how it is read."""
    import torch

    from workbench.training import checkpoint

    content = {"step": 7, "model": {"weight": torch.arange(3000.0)}, "optimizer": {"lr": 0.1}}
    place = checkpoint.save(folder, content, last=True, best=False)

    def use(path: Path) -> Any:
        read_back = checkpoint.read(path)
        return read_back["step"], read_back["model"]["weight"].tolist(), read_back["optimizer"]

    return Path(place), use


def make_store(folder: Path) -> tuple[Path, Callable[[Path], Any]]:
    """Write a store with a run, and return how it is read."""
    from tests.builders.recorded_runs import record_run
    from workbench.store.database import Store

    run_id = record_run(folder)

    def use(path: Path) -> Any:
        with Store.open(str(path)) as store:
            rows = [stored.event.model_dump_json() for stored in store.events(run_id)]
            return [run.run_id for run in store.runs()], len(rows), store.experiment(run_id).hash()

    return folder / "store.sqlite", use


UNNOTICED = {"checkpoint": "read something else", "store": "not noticed by SQLite"}
"""SQLite keeps no checksums.

A store in which a value has rotted may be read as if that were its value.
"""
ENDS = ("refused", "read whole", UNNOTICED["store"])
KINDS = {"checkpoint": make_checkpoint, "store": make_store}


def play(kind: str, rounds: int, seed: int) -> collections.Counter[str]:
    """Damage one kind of file again and again; print every kind of defect once."""
    ends: collections.Counter[str] = collections.Counter()
    with tempfile.TemporaryDirectory(prefix="workbench-damage-") as name:
        folder = Path(name)
        (folder / "whole").mkdir()
        original, use = KINDS[kind](folder / "whole")
        expected, content = use(original), original.read_bytes()
        for number in range(rounds):
            chance = random.Random(f"{seed}/{number}")
            way = WAYS[number % len(WAYS)]
            damaged = folder / "damaged"
            shutil.rmtree(damaged, ignore_errors=True)
            damaged.mkdir()
            (damaged / original.name).write_bytes(damage(content, way, chance))
            try:
                outcome = use(damaged / original.name)
            except WorkbenchError:
                ends["refused"] += 1
            except Exception as error:  # what this looks for
                count_error(ends, error, f"{kind}, {way}, round {number}")
            else:
                ends["read whole" if outcome == expected else UNNOTICED[kind]] += 1
    return ends


def main(words: list[str]) -> int:
    """Run the campaign and return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.faults damage", description=__doc__)
    parser.add_argument("--rounds", type=int, default=1000, help="Files of each kind.")
    parser.add_argument("--only", choices=KINDS)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args(words)
    num_wrong = 0
    for kind in KINDS:
        if given.only in (None, kind):
            ends = play(kind, given.rounds, given.seed)
            num_wrong += sum(n for end, n in ends.items() if end not in ENDS)
            print(f"{kind}: {ends.total()} damaged, {dict(ends)}", flush=True)
    return 1 if num_wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
