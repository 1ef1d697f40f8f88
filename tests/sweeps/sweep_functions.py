"""Functions that the tests of sweeps run as trials."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from workbench.foundation.errors import DataError
from workbench.foundation.events import Noted


def curve(config, report):
    """Fall towards x, step by step."""
    for step in range(1, config.get("steps", 1) + 1):
        time.sleep(config.get("pause_s", 0.0))
        if report(step=step, loss=config["x"] + 1 / step, pid=os.getpid()):
            return


def behave(config, report, seed):
    """End in the way that the configuration names."""
    match config["how"]:
        case "well":
            report(step=1, loss=0.5)
            return {"loss": 0.4, "step": 2}
        case "returns":
            return 0.25
        case "prints":
            print("printed by the trial")
            report(step=1, loss=1.0, seed=seed)
        case "raises":
            report(step=1, loss=0.7)
            raise ValueError("x is too large")
        case "exits":
            sys.exit("I have had enough")
        case "memory":
            raise MemoryError("cannot have it")
        case "deaf":
            report(step=1, loss=0.8)
            while True:
                time.sleep(1.0)
        case how:
            _report_badly(how, report)


def _report_badly(how, report):
    """Report something that no trial should."""
    match how:
        case "nan":
            report(step=1, loss=0.9)
            report(step=2, loss=float("nan"))
            report(step=3, loss=0.1)
        case "silent":
            report(step=1, accuracy=0.5)
        case "wrong report":
            report(step=1, loss="low")
        case "file name":
            report(step=1, **{"loss": 0.6, "size of caf\udce9": 1.0})
            raise FileNotFoundError("there is no " + os.fsdecode(b"missing-\xff.csv"))
        case "endless":
            report(step=1, loss=0.3)
            raise RuntimeError(
                "\n\nCUDA error: \x00\n" + "x" * 2**20 + "\nCompile with `TORCH_USE_CUDA_DSA`"
            )


def two_objectives(config, report):
    report(step=1, loss=float("nan") if config["x"] == 2 else config["x"], size=1 - config["x"])


def hold(config, report):
    """Report slowly until told to stop, or a file named `until` is there.

    Note every attempt and step.
    """
    notes = Path(config["notes"])
    with (notes / f"{config['x']}").open("a") as file:
        for step in range(1, config.get("steps", 1000) + 1):
            file.write(json.dumps({"pid": os.getpid(), "step": step}) + "\n")
            file.flush()
            if report(step=step, loss=config["x"] + 1 / step):
                return
            if "until" in config and (notes / config["until"]).exists():
                return
            time.sleep(config.get("pause_s", 0.1))


def go_on(config, report, folder):
    """Go on from the step that the last attempt saved."""
    saved = folder / "step"
    first = int(saved.read_text()) + 1 if saved.exists() else 1
    for step in range(first, config["steps"] + 1):
        time.sleep(config["pause_s"])
        stop = report(step=step, loss=config["x"] + 1 / step)
        partly = folder / "partly"
        partly.write_text(str(step))
        partly.replace(saved)  # whole, whenever the process is killed
        if stop:
            return


def descend(config, report, folder):
    """Walk towards 0 in steps of a rate, of which the best becomes smaller.

    What it walked is kept.
    """
    saved = folder / "walked.json"
    walked = json.loads(saved.read_text()) if saved.exists() else []
    for step in range(len(walked) + 1, config.get("steps", 1000) + 1):
        time.sleep(config.get("pause_s", 0.0))
        distance = walked[-1] if walked else 4.0
        walked.append(abs(distance - config["rate"] * min(1.0, distance)) + 0.001 * config["rate"])
        saved.write_text(json.dumps(walked))
        if report(step=step, loss=walked[-1]):
            return


def descend_together(config, report, folder, worker):
    """Walk as `descend` does, on several workers that agree on every step."""
    import torch

    saved = folder / "walked"
    distance, first = 4.0, 1
    if saved.exists():
        first, distance = json.loads(saved.read_text())
        first += 1
    for step in range(first, 1000):
        share = torch.tensor(config["rate"] * min(1.0, distance) / worker.num_workers)
        distance = abs(distance - float(worker.group.total(share)))
        if worker.rank == 0:
            saved.write_text(json.dumps([step, distance]))
        if report(step=step, loss=distance):
            return


def kill_myself(config, report):
    report(step=1, loss=config["x"])
    os.kill(os.getpid(), signal.SIGKILL)


def never_listen(config, report):
    report(step=1, loss=config["x"])
    while True:
        time.sleep(1.0)


def breed(config, report):
    """Start processes that would go on for long, and listen or not."""
    child = subprocess.Popen(["sleep", "600"])
    shell = subprocess.Popen(["sh", "-c", "sleep 601 & wait"], start_new_session=True)
    step = 1
    while not (
        report(step=step, loss=1.0, child=child.pid, shell=shell.pid) and config["x"] == "listens"
    ):
        step += 1
        time.sleep(600 if config["x"] == "deaf" else 0.1)


def meet(config, report):
    """Wait until a trial of another sweep trains at the same time, at least once."""
    place = Path(config["notes"])
    (place / config["name_of_sweep"]).touch()
    until_s = time.monotonic() + 120
    while len(list(place.iterdir())) < 2:
        if time.monotonic() > until_s:
            raise RuntimeError("nobody came")
        time.sleep(0.02)
    report(step=1, loss=config["x"])


def hoard(config, report, folder):
    """Keep 100 kB at every step, and go on from the last one kept."""
    first = max((int(path.name) for path in folder.iterdir() if path.name.isdigit()), default=0) + 1
    for step in range(first, config["steps"] + 1):
        time.sleep(config["pause_s"])
        half = folder / "half"
        half.write_bytes(bytes(100_000))
        half.rename(folder / str(step))
        if report(step=step, loss=config["x"] + 1 / step):
            return


def tear_down(config, report, folder):
    """Remove the folder, and then write into it."""
    folder.rmdir()
    report(loss=1.0)
    (folder / "state").write_text("1")


def talk(config, report, folder):
    """Print things that rules look for, and go on from the step that the last attempt saved."""
    saved, how = folder / "step", config["how"]
    first = int(saved.read_text()) + 1 if saved.exists() else 1
    attempt = len(list(folder.glob("attempt-*")))
    (folder / f"attempt-{attempt}").touch()
    if how == "always" or (attempt == 0 and how in ("once", "stop")):
        print(f"rank 0: please {how} 123 {'x' * 2000}")
    for step in range(first, 31):
        time.sleep(0.1)
        if how == "dies" and attempt == 0 and step == 3:
            print("last words", end="")
            raise RuntimeError("it broke")
        stop = report(step=step, loss=float("nan") if how == "nan" else 1 / step)
        saved.write_text(str(step))
        if stop:
            return


def talk_on_all(config, report, worker):
    """Print something on every worker but the first, which says nothing."""
    if worker.rank:
        print(f"said by rank {worker.rank}", flush=True)
    for step in range(1, 21):
        time.sleep(0.1)
        if report(step=step, loss=1 / step):
            return


def exchange(config, report, worker):
    """Exchange at every step on all workers, and report on the first one only, as most scripts
    do.
    """
    import torch

    for step in range(1, config["steps"] + 1):
        total = torch.ones(1)
        torch.distributed.all_reduce(total)
        if worker.rank == 0 and report(step=step, loss=config["x"] + 1 / step, total=float(total)):
            return


def name_process(store, run_id, ending):
    """Choose as the result of a run which process chose, and for which run."""
    return Noted(level="info", message=f"{run_id} {store.run(run_id).name} {os.getpid()}")


def refuse_to_choose(store, run_id, ending):
    """Choose no result."""
    raise DataError(f"{run_id} has no data, says {os.getpid()}")


def choose_in_driver(store, run_id, ending):
    """Die in every process but the driver, which has left its number."""
    if (store.folder(run_id) / "driver").read_text() != str(os.getpid()):
        os._exit(1)
    return name_process(store, run_id, ending)
