"""How good a choice of batch, rate and workers is.

Our advice, Ray Tune and Lightning beside brute force.

Run `python -m tests.benchmarks.advisor_choice [--task NAME] [--seeds N] [--quick] [--keep-grid]
[--to FILE]`; it takes about forty minutes on two cores, half of them for the grids, which
`--keep-grid` takes from the results of an earlier run. It wants a machine that does nothing else.

Brute force trains every cell of five global batches x five rates x one or two workers as a trial of
ours, alone on warm workers, up to the target, once for each of three seeds, as times to a target
vary by a third from seed to seed. A training ends at a cap of three times the fastest so far. The
cost of the grid is the time that passes until it is done. Three contestants get 5 % of that as
wall-clock time, in a process and on a Ray head of their own; Ray, torch and the data are warm
before their clock starts, and the imports of libraries are outside of it. Each chooses three times,
with seeds of its own.

- ours: `workbench.runs.advise`, on an empty store. Its range of rates is that of the grid, meant at
  the middle batch; its rule scales them with the batch. What is under way at the end of the time is
  finished, so that it may take longer; the table shows what each took.
- Ray Tune: OptunaSearch and ASHA over the cells of the grid, two threads for two workers.
- Lightning: `scale_batch_size` and `lr_find`, one worker; it stops by itself. Skipped where it is
  not installed (`pip install '.[rivals]'`).

Then the cells that were fastest are trained again with other seeds, and the fastest of all these
trainings is the best cell. It and all that was chosen are trained once more, as trials of ours, in
turns, with seeds that nobody has seen, so that luck that made a cell the best does not count for
it. Times are means over these seeds, misses counted as twice the cap; the ratio of a choice is its
time over that of the best cell. With --quick every second batch and rate is trained once, and
everybody chooses once, in the time that the whole grid would have given.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import fmean
from typing import Any

from tests.benchmarks.choice_rivals import (
    NUM_CPUS,
    choose_with_lightning,
    choose_with_tune,
    read_data,
)
from tests.benchmarks.choice_tasks import LONGEST_S, TASKS, Cell, Timed, Trainer, grid_of, mean_s
from tests.benchmarks.clocked import describe_machine

RESULTS = Path(__file__).parent / "results" / "advisor_choice.json"
BUDGET_PART = 0.05
CAP = 3.0
NUM_FINALISTS = 5
NUM_CHOICES = 3
# Seconds after which the trainings of finalists begin no further round of seeds.
SEMIFINALS_LIMIT_S, FINALS_LIMIT_S = 30.0, 120.0
SIDE_TIMEOUT_S = 900.0
SEMIFINAL_SEED, FINAL_SEED = 1000, 2000
LIMIT = 1.10


def train_grid(name: str, asked: dict[str, Any]) -> dict[str, Any]:
    """Train all cells of a task, round by round of seeds.

    Args:
        name: Name of the task.
        asked: `seeds`; `quick` for every second batch and rate.
    """
    task, started_s = TASKS[name], time.monotonic()
    cells = grid_of(task)
    if asked["quick"]:
        cells = [
            cell
            for cell in cells
            if cell.global_batch in task.batches[::2] and cell.lr in task.rates[::2]
        ]
    trainings: dict[Cell, list[Timed]] = {cell: [] for cell in cells}
    cap_s = LONGEST_S
    with _trainer(name) as trainer:
        trainer.warm_up()
        for seed in range(asked["seeds"]):
            # The first of all sets a sensible cap; later rounds have an order of their own each.
            later = cells[1:]
            random.Random(seed).shuffle(later)
            for cell in [cells[0], *later]:
                timed = trainer.time(cell, seed=seed, limit_s=cap_s)
                trainings[cell].append(timed)
                if timed.reached:
                    cap_s = min(cap_s, CAP * timed.time_s)
            _say(
                f"round {seed + 1}: cap {cap_s:.2f} s, {time.monotonic() - started_s:.0f} s so far"
            )
    ranked = sorted(trainings, key=lambda cell: mean_s(trainings[cell], cap_s))
    return {
        "cap_s": cap_s,
        "cost_s": time.monotonic() - started_s,
        "num_reached": sum(
            any(timed.reached for timed in several) for several in trainings.values()
        ),
        "cells": [
            {
                **cell.to_json(),
                "mean_s": mean_s(trainings[cell], cap_s),
                "times_s": [timed.time_s for timed in trainings[cell]],
                "reached": [timed.reached for timed in trainings[cell]],
            }
            for cell in ranked
        ],
    }


def choose_with_ours(name: str, asked: dict[str, Any]) -> dict[str, Any]:
    """Ask for advice in `budget_s` seconds, with a `seed`."""
    from workbench.advisor import recommend  # noqa: F401  (its imports are not part of the time)
    from workbench.runs import advising
    from workbench.store.database import Store

    with _trainer(name) as trainer:
        trainer.warm_up()
    with Store.open(str(Path(os.environ["WORKBENCH_HOME"]) / "advice.db")) as store:
        tried: list[Any] = []
        started_s = time.monotonic()
        advice = advising.advise(
            TASKS[name].open_experiment(asked["seed"]),
            time=asked["budget_s"],
            store=store,
            listener=tried.append,
        )
        cost_s = time.monotonic() - started_s
    raced = [event for event in tried if event.type == "candidate_tried"]
    reached = sum(event.reached_target for event in raced)
    expected = advice.choice.time_to_target_s
    assert advice.choice.lr is not None
    return {
        "cell": Cell.of_plan(advice.choice.plan, advice.choice.lr).to_json(),
        "cost_s": cost_s,
        "found": f"{len(raced)} short trainings, {reached} reached the target",
        "expected_s": None if expected is None else [expected.low, expected.value, expected.high],
    }


def train_finalists(name: str, asked: dict[str, Any]) -> dict[str, Any]:
    """Train cells in turns with fresh seeds; return their times.

    Args:
        name: Name of the task.
        asked: `cells`; `first_seed`; `seeds`, how many at most; `longest_s`, after which no further
            begins; `limit_s`, what a training may take.
    """
    cells = [Cell(**fields) for fields in asked["cells"]]
    finalists: list[list[Timed]] = [[] for _ in cells]
    started_s = time.monotonic()
    with _trainer(name) as trainer:
        trainer.warm_up()
        for turn in range(asked["seeds"]):
            if turn and time.monotonic() - started_s > asked["longest_s"]:
                break
            order = list(range(len(cells)))
            random.Random(turn).shuffle(order)
            for index in order:
                seed = asked["first_seed"] + turn
                finalists[index].append(
                    trainer.time(cells[index], seed=seed, limit_s=asked["limit_s"])
                )
    return {
        "took_s": time.monotonic() - started_s,
        "cells": [
            {
                **cell.to_json(),
                "mean_s": mean_s(several, asked["limit_s"]),
                "times_s": [timed.time_s for timed in several],
                "reached": [timed.reached for timed in several],
            }
            for cell, several in zip(cells, finalists, strict=True)
        ],
    }


CONTESTANTS = ("ours", "Ray Tune", "Lightning")
SIDES: dict[str, Callable[[str, dict[str, Any]], dict[str, Any]]] = {
    "grid": train_grid,
    "ours": choose_with_ours,
    "Ray Tune": lambda name, asked: choose_with_tune(name, asked["budget_s"], asked["seed"]),
    "Lightning": lambda name, asked: choose_with_lightning(name, asked["seed"]),
    "finals": train_finalists,
}


@contextmanager
def _trainer(name: str) -> Iterator[Trainer]:
    """Give a trainer of a task, with a store of its own."""
    from workbench.store.database import Store

    with (
        tempfile.TemporaryDirectory(prefix="wb-bench-") as folder,
        Store.open(str(Path(folder) / "truth.db")) as store,
    ):
        yield Trainer(TASKS[name], store)


def _say(message: str) -> None:
    print(f"    {message}", file=sys.stderr, flush=True)


def run_here(side: str, name: str, asked: dict[str, Any]) -> dict[str, Any]:
    """Run one side in this process, on a Ray head of its own where it needs one."""
    if side == "Lightning":
        read_data(name)
        return SIDES[side](name, asked)
    from workbench.cluster.head import attachment, local_head

    try:
        attachment.connect(num_cpus=NUM_CPUS, num_gpus=0)
        return SIDES[side](name, asked)
    finally:
        local_head.shutdown()


def run_side(side: str, name: str, **asked: Any) -> dict[str, Any]:
    """Run one side in a process of its own.

    A contestant that fails is left out, with the reason.
    """
    with tempfile.TemporaryDirectory(prefix="wb-bench-") as home:
        to = Path(home) / "found.json"
        command = [
            sys.executable,
            "-m",
            "tests.benchmarks.advisor_choice",
            "--task",
            name,
            "--to",
            str(to),
        ]
        command += ["--side", side, "--asked", json.dumps(asked)]
        # Everybody may use what is on the path of this process, such as Lightning in a folder of
        # its own.
        path = [str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH", "")]
        environment = os.environ | {
            "WORKBENCH_HOME": home,
            "PYTHONPATH": os.pathsep.join(each for each in path if each),
            "RAY_USAGE_STATS_ENABLED": "0",
            "TUNE_DISABLE_AUTO_CALLBACK_LOGGERS": "1",
        }
        # What contestants print is only of interest where they fail; our own sides tell how far
        # they are.
        log = Path(home) / "log.txt"
        with log.open("w") as told:
            stderr = told if side in CONTESTANTS else None
            try:
                subprocess.run(
                    command,
                    env=environment,
                    stdout=told,
                    stderr=stderr,
                    timeout=SIDE_TIMEOUT_S,
                    check=True,
                )
            except subprocess.SubprocessError:
                if side not in CONTESTANTS:
                    raise
        if not to.exists():
            return {"skipped": "it failed: " + " | ".join(log.read_text().splitlines()[-3:])}
        return json.loads(to.read_text())


def compare(name: str, num_seeds: int, quick: bool, grid: dict[str, Any] | None) -> dict[str, Any]:
    """Train the grid of a task, have everybody choose, and hold the choices against the best cell.

    Args:
        name: Name of the task.
        num_seeds: Trainings of each cell of the grid.
        quick: Whether to see that it works rather than how well.
        grid: What an earlier run found of the grid; None to train it.
    """
    print(f"\n{name}: {TASKS[name].metric} {TASKS[name].target:g}", flush=True)
    grid = grid or run_side("grid", name, seeds=1 if quick else num_seeds, quick=quick)
    cost_s, cap_s = grid["cost_s"], grid["cap_s"]
    if quick:
        cost_s *= num_seeds * len(grid_of(TASKS[name])) / len(grid["cells"])
    budget_s = BUDGET_PART * cost_s
    print(
        f"  the grid: {grid['num_reached']} of {len(grid['cells'])} cells reached it, "
        f"cap {cap_s:.2f} s, cost {cost_s:.0f} s, of which {BUDGET_PART:.0%} is {budget_s:.1f} s",
        flush=True,
    )
    chosen: dict[str, list[dict[str, Any]]] = {side: [] for side in CONTESTANTS}
    for seed in range(1 if quick else NUM_CHOICES):
        for side in CONTESTANTS:
            chosen[side].append(run_side(side, name, budget_s=budget_s, seed=seed))
            print(f"  {side}: {_written(chosen[side][-1])}", flush=True)
    best = _best_cell(name, grid)
    cells = {
        side: [Cell(**row["cell"]) for row in several if "cell" in row]
        for side, several in chosen.items()
    }
    finalists = list(
        dict.fromkeys([best, *(cell for several in cells.values() for cell in several)])
    )
    finals = run_side(
        "finals",
        name,
        cells=[cell.to_json() for cell in finalists],
        first_seed=FINAL_SEED,
        seeds=2 if quick else 8,
        longest_s=FINALS_LIMIT_S,
        limit_s=2.0 * cap_s,
    )
    times_s = {
        cell: final["mean_s"] for cell, final in zip(finalists, finals["cells"], strict=True)
    }
    ratios = {
        side: [times_s[cell] / times_s[best] for cell in several] for side, several in cells.items()
    }
    print(f"  true times; the best cell is {best.written}, {times_s[best]:.2f} s")
    for side, several in ratios.items():
        for cell, ratio, choice in zip(cells[side], several, chosen[side], strict=False):
            print(
                f"    {side:<12}{cell.written:<26}{times_s[cell]:7.2f} s"
                f"{ratio:8.2f} times the best, found in {choice['cost_s']:.1f} s",
                flush=True,
            )
    return {
        "quick": quick,
        "budget_s": budget_s,
        "best": {**best.to_json(), "time_s": times_s[best]},
        "ratios": {side: fmean(several) for side, several in ratios.items() if several},
        "chosen": chosen,
        "grid": grid,
        "finals": finals,
    }


def _best_cell(name: str, grid: dict[str, Any]) -> Cell:
    """Train the cells that were fastest in the grid again; return the best by all its trainings."""
    fields, limit_s = Cell.__dataclass_fields__, grid["cap_s"]
    first = grid["cells"][:NUM_FINALISTS]
    again = run_side(
        "finals",
        name,
        cells=[{key: cell[key] for key in fields} for cell in first],
        first_seed=SEMIFINAL_SEED,
        seeds=4,
        longest_s=SEMIFINALS_LIMIT_S,
        limit_s=limit_s,
    )["cells"]

    def mean_time_s(index: int) -> float:
        timed = [
            Timed(*trial)
            for choice in (first[index], again[index])
            for trial in zip(choice["times_s"], choice["reached"], strict=True)
        ]
        return mean_s(timed, limit_s)

    best = min(range(len(first)), key=mean_time_s)
    return Cell(**{key: first[best][key] for key in fields})


def _written(found: dict[str, Any]) -> str:
    if "skipped" in found:
        return f"skipped: {found['skipped']}"
    return f"{Cell(**found['cell']).written} after {found['cost_s']:.1f} s ({found['found']})"


def main() -> None:
    """Compare on every task, print the table, write the result after each."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--task", choices=list(TASKS), help="this one only; the results of others stay"
    )
    parser.add_argument("--seeds", type=int, default=3, help="trainings of each cell of the grid")
    parser.add_argument(
        "--quick", action="store_true", help="a coarser grid, one seed: whether it works"
    )
    parser.add_argument(
        "--keep-grid", action="store_true", help="take the grid from the results file"
    )
    parser.add_argument("--to", type=Path, default=RESULTS)
    parser.add_argument("--side", choices=list(SIDES), help=argparse.SUPPRESS)
    parser.add_argument("--asked", type=json.loads, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.side:
        arguments.to.write_text(
            json.dumps(run_here(arguments.side, arguments.task, arguments.asked))
        )
        return
    report: dict[str, Any] = {"machine": describe_machine(), "limit": LIMIT, "tasks": {}}
    if (arguments.task or arguments.keep_grid) and arguments.to.exists():
        report["tasks"] = json.loads(arguments.to.read_text())["tasks"]
    for name in [arguments.task] if arguments.task else TASKS:
        started_s = time.monotonic()
        grid = report["tasks"].get(name, {}).get("grid") if arguments.keep_grid else None
        report["tasks"][name] = compare(name, arguments.seeds, arguments.quick, grid)
        report["tasks"][name]["took_s"] = time.monotonic() - started_s
        report["means"] = mean_ratios(report["tasks"])
        arguments.to.parent.mkdir(exist_ok=True)
        arguments.to.write_text(json.dumps(report, indent=2) + "\n")
    print_table(report)


def mean_ratios(tasks: dict[str, Any]) -> dict[str, float]:
    """Return the mean ratio of each contestant over the tasks that it has one for."""
    ratios = {
        side: [task["ratios"][side] for task in tasks.values() if side in task["ratios"]]
        for side in CONTESTANTS
    }
    return {side: fmean(several) for side, several in ratios.items() if several}


def print_table(report: dict[str, Any]) -> None:
    """Print the ratios of all tasks and their means."""
    tasks = report["tasks"]
    print(f"\n{'times the best':<16}" + "".join(f"{name:>15}" for name in tasks) + f"{'mean':>10}")
    for side in CONTESTANTS:
        cells = [task["ratios"].get(side) for task in tasks.values()]
        row = "".join(f"{'-':>15}" if ratio is None else f"{ratio:15.2f}" for ratio in cells)
        mean = report["means"].get(side)
        print(f"{side:<16}{row}" + (f"{'-':>10}" if mean is None else f"{mean:10.2f}"))
    print(f"ours is to be at most {report['limit']:.2f} in the mean")


if __name__ == "__main__":
    main()
