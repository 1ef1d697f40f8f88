"""The tables of slow links, from the stored results of the benchmark of exchanges.

`python -m tests.benchmarks.exchange_tables` writes them, as the benchmark does when it has ended; a
test compares both.
"""

from __future__ import annotations

import json
import re
import statistics
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
RESULTS = Path(__file__).parent / "results" / "exchanges.json"
PAGE = ROOT / "docs" / "benchmarks.md"
_LABELS = {
    "torch ddp": "torch's `DistributedDataParallel`",
    "torch ddp, PowerSGD rank 4": "torch's PowerSGD hook, rank 4",
    "powersgd": "`powersgd`, rank 4",
    "topk": "`topk`, 1 in 100",
    "local": "`local`, every 8 steps",
    "diloco": "`diloco`, every 8 steps",
    "server": "`server`, synchronous",
    "server, synchronous": "`server`, synchronous",
    "server, up to 8 steps stale": "`server`, up to 8 steps stale",
    "pipeline": "strategy `pipeline`, two stages",
    "tensor": "strategy `tensor`, two parts",
    "zero1": "strategy `zero1`",
    "fsdp": "strategy `fsdp`",
}


def write_tables() -> None:
    """Write the tables of the stored results into the page of benchmarks."""
    PAGE.write_text(with_tables(PAGE.read_text(encoding="utf-8")), encoding="utf-8")


def with_tables(text: str) -> str:
    """Return the text of the page with the tables of the stored results between its marks."""
    stored = json.loads(RESULTS.read_text(encoding="utf-8"))
    for name, table in _TABLES.items():
        marks = f"<!-- {name}: begin -->\n\n", f"\n<!-- {name}: end -->"
        pattern = re.escape(marks[0]) + ".*?" + re.escape(marks[1])
        written = f"{marks[0]}{table(stored)}{marks[1]}"
        text, count = re.subn(pattern, lambda _, new=written: new, text, flags=re.DOTALL)
        assert count == 1, f"{PAGE} has no place for {name}"
    return text


def _by_link(key: str, stored: Mapping[str, Any]) -> str:
    by_link = stored[key]
    names = next(iter(by_link.values()))
    rows = [[name, *(f"{found[name]:.3f}" for found in by_link.values())] for name in names]
    return _table(["", *by_link], rows)


def _race(stored: Mapping[str, Any]) -> str:
    keys = ("loss_at_equal_steps", "loss_at_equal_seconds", "num_steps")
    means = {name: [_mean(runs, key) for key in keys] for name, runs in stored["race"].items()}
    rows = [[name, f"{at[0]:.3f}", f"{at[1]:.3f}", f"{at[2]:.0f}"] for name, at in means.items()]
    return _table(["", "after 100 steps", "after 5 s", "steps in 5 s"], rows)


def _slowed(stored: Mapping[str, Any]) -> str:
    rows = [
        [name, f"{_mean(runs, 'seconds'):.1f}", f"{_mean(runs, 'num_steps'):.0f}"]
        for name, runs in stored["slowed"].items()
    ]
    return _table(["", "seconds", "steps"], rows)


_TABLES: dict[str, Callable[[Mapping[str, Any]], str]] = {
    "seconds per step": partial(_by_link, "seconds_per_step"),
    "two workers on a node": partial(_by_link, "by_nodes"),
    "race": _race,
    "slow workers": _slowed,
}


def _mean(runs: Sequence[Mapping[str, float]], key: str) -> float:
    return statistics.mean(run[key] for run in runs)


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [heads, ["---"] * len(heads)]
    lines += [[_LABELS.get(name, f"`{name}`"), *cells] for name, *cells in rows]
    return "".join(f"| {' | '.join(line)} |\n".replace("|  |", "| |") for line in lines)


if __name__ == "__main__":
    write_tables()
