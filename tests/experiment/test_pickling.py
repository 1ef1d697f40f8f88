from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
CELL = """
class Part:
    def __init__(self, width):
        self.width = width

class Net:
    def __init__(self, config):
        self.part = Part(config["width"])
    @property
    def size(self):
        return [self.part.width * FACTOR for _ in range(3)]

def build(config):
    return Net(config)
"""
# A kernel: the cell is run again and again, each time under the path that this kernel gives it.
KERNEL = """
import sys
from workbench.experiment.components import embed

for cell in sys.argv[2:]:
    exec(compile(cell, f"/tmp/ipykernel_{sys.argv[1]}/{len(cell)}.py", "exec"), globals())
    made = embed(Net, {}), embed(build, {})
    print(*(item.name for item in made), made[1].load()({"width": 2}).size)
"""


def run_cells(number: int, *cells: str) -> list[list[str]]:
    done = subprocess.run(
        [sys.executable, "-c", KERNEL, str(number), *cells], capture_output=True, text=True, check=True,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    return [line.split(maxsplit=2) for line in done.stdout.splitlines()]


def test_a_cell_that_is_run_again_is_the_same_version_and_a_changed_one_is_not() -> None:
    cell, changed = f"FACTOR = 5\n{CELL}", f"FACTOR = 5\n{CELL}".replace("range(3)", "range(4)")

    first, again, other = run_cells(1, cell, cell, changed)
    (elsewhere,) = run_cells(22, cell)

    assert first == again == elsewhere
    assert first[2] == "[10, 10, 10]"
    assert (first[0] != other[0], first[1] != other[1]) == (True, True)
    assert other[2] == "[10, 10, 10, 10]"


def test_a_value_that_the_code_reads_belongs_to_the_version() -> None:
    (five,), (six,) = run_cells(1, f"FACTOR = 5\n{CELL}"), run_cells(1, f"FACTOR = 6\n{CELL}")

    assert five[1] != six[1]
    assert six[2] == "[12, 12, 12]"
