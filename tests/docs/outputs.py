"""List the lines of output on pages that their commands no longer print.

`python -m tests.docs.outputs PAGE...` does what each page shows, in an empty folder with its own
store. A page may shorten output with lines or ends of lines that are `...`.
"""

from __future__ import annotations

import os
import re
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from tests.docs.code_blocks import blocks_of, carry_out

_CHANGING = (
    (re.compile(r"[\w.~/-]*/([\w.-]+)"), r"\1"),  # a path
    (re.compile(r"\b([\w-]+)-1[a-z0-9]{6}\b"), r"\1-ID"),  # a run
    (re.compile(r"\b(?=[a-f]*\d)[0-9a-f]{12}\b"), "HASH"),  # a version of a model
    (re.compile(r"[-+]?\d[\d,.]*(?:e[-+]?\d+)?(?: (?:µs|ms|s|min|[KMGT]i?B|B)\b)?"), "N"),
    (re.compile(r"[\s─]+"), " "),  # the width of a table
)


def outdated(shown: str, printed: str) -> Iterator[str]:
    """Yield the lines of a page that a command does not print, whatever the numbers in them."""
    now = [masked(line) for line in printed.splitlines()]
    for line in shown.splitlines():
        text = masked(line.removesuffix("..."))
        is_command = line.startswith("$ ")
        is_cut = line.endswith("...")
        if (
            text
            and not is_command
            and not any(other.startswith(text) if is_cut else other == text for other in now)
        ):
            yield line


def masked(line: str) -> str:
    """Return a line without what changes from run to run: numbers, paths and run ids."""
    for pattern, instead in _CHANGING:
        line = pattern.sub(instead, line)
    return line.strip()


def outdated_lines(page: Path, folder: Path) -> Iterator[str]:
    """Carry out a page, and yield each line of its outputs that is not printed."""
    printed = carry_out(page, folder)
    last: str | None = None
    for block in blocks_of(page):
        if block.line in printed and block.mode not in ("skip", "background"):
            last = printed[block.line]
        elif block.language == "text" and block.file is None and last is not None:
            yield from outdated(block.code, last)
            last = None
        else:
            last = None


def main(pages: list[str]) -> int:
    """Print what is outdated, and return 1 if there is anything."""
    num_found = 0
    for page in map(Path, pages):
        with tempfile.TemporaryDirectory() as folder:
            os.environ |= {"WORKBENCH_STORE": f"sqlite:///{folder}/store.db", "COLUMNS": "92"}
            before = Path.cwd()
            os.chdir(folder)
            sys.path.insert(0, folder)
            try:
                for line in outdated_lines(before / page, Path(folder)):
                    print(f"{page}: {line}", flush=True)
                    num_found += 1
            finally:
                os.chdir(before)
                sys.path.remove(folder)
    return min(num_found, 1)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
