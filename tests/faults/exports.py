"""Exports over a bundle that are killed: `python -m tests.faults exports` uses what they leave.

A real run is exported into a folder that holds the bundle of another trial, with --force. The
process is killed before a drawn rename, by which it places its files, or at a drawn moment. The
next command is drawn, too. It must get all of the earlier bundle or all of the new one, and the
folder must hold nothing else.
"""

from __future__ import annotations

import argparse
import collections
import multiprocessing
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

import workbench as wb
from tests.faults.evidence import count_error

NEVER = 10**6
PATIENCE_S = 120.0
# Processes that export are forked from one that has loaded what most of their time goes to.
_PROCESSES = multiprocessing.get_context("forkserver")
_PROCESSES.set_forkserver_preload(
    ["workbench.deploy.onnx_export", "workbench.runs.bundles", "torch.onnx", "onnxscript"]
)
EXPERIMENT: dict[str, Any] = {
    "model": {"name": "mlp", "num_layers": 1, "hidden_width": 8},
    "data": "digits",
    "objectives": [{"metric": "val_accuracy", "goal": "maximize"}],
    "search": {"lr": {"low": 1e-4, "high": 0.1, "log": True}},
    "training": {"epochs": 1},
    "budget": {"trials": 2},
    "seed": 0,
}


def content_of(folder: Path) -> dict[str, bytes]:
    """Return all files of a folder but what differs between two exports of one trial.

    Times and reports.
    """
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.suffix not in (".html", ".json", ".txt")
    }


def export_and_die(store: str, run_id: str, folder: str, rename: int) -> None:
    """Export over a bundle in this process, which is killed before it renames a file for the n-th
    time.
    """
    left = rename

    def watch(event: str, arguments: tuple[object, ...]) -> None:
        nonlocal left
        if event == "os.rename" and str(arguments[1]).startswith(folder):
            left -= 1
            if left < 0:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(watch)
    wb.attach(run_id, store=store).export(folder, trial=1, format="onnx", force=True)


def export_in_process(
    store: Path, run_id: str, folder: Path, *, rename: int, delay_s: float
) -> None:
    """Export over a bundle in another process, and kill it before a rename or after a while."""
    process = _PROCESSES.Process(
        target=export_and_die, args=(str(store), run_id, str(folder), rename)
    )
    process.start()
    process.join(timeout=delay_s)
    process.kill()
    process.join()


def use(command: str, folder: Path) -> Any:
    """Use a bundle as a user would; return the learning rate that its configuration names."""
    if command == "predict":
        assert len(wb.load_bundle(folder).predict(np.zeros((2, 1, 8, 8)))) == 2
    if command == "weights":
        assert not wb.load_bundle(folder).model.training
    return wb.load_bundle(folder).params["lr"]


def play(rounds: int, seed: int) -> collections.Counter[str]:
    """Kill exports again and again."""
    ends: collections.Counter[str] = collections.Counter()
    with tempfile.TemporaryDirectory(prefix="workbench-exports-") as name:
        root = Path(name)
        with wb.Store.open(str(root / "store.sqlite")) as store:
            run = wb.sweep(EXPERIMENT, store=store, launcher="inline", wait=True)
            for number in (0, 1):
                run.export(root / str(number), trial=number, format="onnx")
            whole = [content_of(root / str(number)) for number in (0, 1)]
            rates = [wb.load_bundle(root / str(number)).params["lr"] for number in (0, 1)]
            began_s = time.monotonic()
            shutil.copytree(root / "0", root / "timed")
            export_in_process(
                root / "store.sqlite", run.run_id, root / "timed", rename=NEVER, delay_s=PATIENCE_S
            )
            took_s = time.monotonic() - began_s
            for number in range(rounds):
                chance = random.Random(f"{seed}/{number}")
                folder = root / "bundle"
                shutil.rmtree(folder, ignore_errors=True)
                shutil.copytree(root / "0", folder)
                is_timed = number % 3 == 0
                export_in_process(
                    root / "store.sqlite",
                    run.run_id,
                    folder,
                    rename=NEVER if is_timed else chance.randrange(25),
                    delay_s=took_s * chance.random() if is_timed else PATIENCE_S,
                )
                command = chance.choice(("predict", "weights", "parameters"))
                try:
                    which = rates.index(use(command, folder))
                    left = {
                        name: text for name, text in content_of(folder).items() if name[0] != "."
                    }
                    end = ("all of the old", "all of the new")[which]
                    ends[end if left == whole[which] else "mixed"] += 1
                    run.export(folder, trial=1, format="onnx", force=True)
                    if content_of(folder) != whole[1]:
                        ends["not repaired by the next export"] += 1
                except Exception as error:  # what this looks for
                    count_error(ends, error, f"{command}, round {number}")
    return ends


def main(words: list[str]) -> int:
    """Run the campaign and return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.faults exports", description=__doc__)
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args(words)
    ends = play(given.rounds, given.seed)
    print(f"{given.rounds} exports killed: {dict(ends)}", flush=True)
    return 0 if set(ends) <= {"all of the old", "all of the new"} else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
