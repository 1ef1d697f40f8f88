from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import cloudpickle

from workbench.experiment.pickling import dumps

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
        [sys.executable, "-c", KERNEL, str(number), *cells],
        capture_output=True,
        text=True,
        check=True,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
    )
    return [line.split(maxsplit=2) for line in done.stdout.splitlines()]


def test_a_cell_that_is_run_again_is_the_same_version_and_a_changed_one_is_not() -> None:
    cell, changed = f"FACTOR = 5\n{CELL}", f"FACTOR = 5\n{CELL}".replace("range(3)", "range(4)")

    first, again, other = run_cells(1, cell, cell, changed)
    (elsewhere,) = run_cells(22, cell)

    assert first == again == elsewhere
    assert first[2] == "[10, 10, 10]"
    assert (first[0] != other[0], first[1] != other[1]) == (True, True)
    assert other[2] == "[10, 10, 10, 10]"


def test_bytes_of_a_class_that_another_object_holds_stay_what_they_are() -> None:
    inner = type("Inner", (), {"__module__": "__main__"})
    payload = dumps(inner)
    loaded = cloudpickle.loads(
        payload
    )  # from now on this process knows the class by the number in the bytes
    outer = type(
        "Outer", (), {"__module__": "__main__", "payloads": {"x": payload}, "kind": loaded}
    )
    held = cloudpickle.loads(dumps(outer))
    assert held.payloads["x"] == payload
    assert cloudpickle.loads(held.payloads["x"]).__name__ == "Inner"


def test_a_value_that_the_code_reads_belongs_to_the_version() -> None:
    (five,), (six,) = run_cells(1, f"FACTOR = 5\n{CELL}"), run_cells(1, f"FACTOR = 6\n{CELL}")

    assert five[1] != six[1]
    assert six[2] == "[12, 12, 12]"


CAPTURING = """
import functools, sqlite3, threading
from concurrent.futures import ThreadPoolExecutor
import workbench as wb

lock, database, file = threading.Lock(), sqlite3.connect(":memory:"), open("/dev/null", "w")
numbers, pool = (n for n in range(3)), ThreadPoolExecutor(1)

class Client:
    def __init__(self):
        self.state = {"lock": threading.RLock()}

client = Client()

def with_lock(config, report): lock.acquire()
def with_database(config, report): database.execute("select 1")
def with_file(config, report): file.write("x")
def with_generator(config, report): next(numbers)
def inside(config, report):
    def inner(): return pool
    return inner()
def helper(): return client.state
def by_another(config, report): helper()
def default(config, report, guard=lock): ...
def make():
    guard = threading.Lock()
    def closure(config, report): guard.acquire()
    return closure
class Trainer:
    def __init__(self): self.database = database
    def train(self, config, report): ...
def fine(config, report): return len(Client.__name__)

for train in (with_lock, with_database, with_file, with_generator, inside, by_another, default,
              make(), Trainer().train, functools.partial(fine, extra=lock), fine):
    try:
        wb.Experiment(train=train, objectives=[{"metric": "loss", "goal": "minimize"}])
        print("fine")
    except wb.WorkbenchError as error:
        print(error.field, error.problem, sep="|")
"""


def test_a_function_that_cannot_be_sent_names_itself_and_the_variable(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(
        CAPTURING
    )  # as a user's script: what it defines is in __main__
    done = subprocess.run(
        [sys.executable, str(tmp_path / "script.py")],
        capture_output=True,
        text=True,
        check=True,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
    )
    *refused, last = done.stdout.splitlines()
    expected = [
        ("with_lock", "`with_lock` uses the variable `lock`, which is a lock"),
        ("with_database", "`database`, which is a connection or client (sqlite3.Connection)"),
        ("with_file", "`file`, which is an open file"),
        ("with_generator", "`numbers`, which is a generator"),
        ("inside", "`pool`, which is a pool of threads"),
        ("by_another", "`helper` uses the variable `client.state['lock']`, which is a lock"),
        ("default", "`guard`, which is a lock"),
        ("closure", "`closure` uses the variable `guard`, which is a lock"),
        ("train", "`self.database`, which is a connection"),
        ("partial", "`extra`, which is a lock"),
    ]
    assert len(refused) == len(expected)
    for line, (name, words) in zip(refused, expected, strict=True):
        assert line.startswith(f"train|{name} cannot be sent to other processes")
        assert words in line
    assert last == "fine"


def test_code_keeps_the_name_of_its_file_for_tracebacks() -> None:
    def train(scale: float) -> list[float]:
        return [scale * step for step in range(3)]

    assert cloudpickle.loads(dumps(train)).__code__.co_filename == __file__
