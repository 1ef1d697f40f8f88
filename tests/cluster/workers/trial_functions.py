"""Functions that the tests of workers run as trials."""

from __future__ import annotations

import logging
import multiprocessing
import os
import subprocess
import sys
import threading
import time
import types
from pathlib import Path

import ray


def constant(config, report, worker=None):
    report(step=1, loss=config["x"])


def give_up(config, report):
    raise ValueError("I give up")


def look_around(config, report):
    print("printed by the trial")
    subprocess.run(["echo", "printed by a child"], check=True)
    report(
        step=1,
        loss=0.0,
        torch_loaded=float("torch" in sys.modules),
        num_threads=float(os.environ["OMP_NUM_THREADS"]),
        sees_gpu=float(os.environ.get("CUDA_VISIBLE_DEVICES") != ""),
    )


def note_step(note, step):
    """Write how far a trial came; whoever reads it at any moment finds a number."""
    partial = Path(note).with_suffix(".partial")
    partial.write_text(str(step))
    partial.replace(note)


def count(config, report):
    """Report every step, and note in a file how far it came."""
    for step in range(1, 101):
        note_step(config["note"], step)
        if report(step=step, loss=1 / step):
            return


def count_apart(config, report):
    """Report the objective at even steps only."""
    for step in range(1, 7):
        note_step(config["note"], step)
        report(step=step, **({"loss": 1 / step} if step % 2 == 0 else {"speed": 1.0}))


def sleep(config, report, worker=None):
    report(step=1, loss=0.0)
    time.sleep(600)


def report_slowly(config, report):
    """Listen to a request to stop every two seconds only."""
    for step in range(1, 300):
        if report(step=step, loss=1 / step):
            return
        time.sleep(2.0)


def import_here(config, report):
    import edited_module

    report(step=1, loss=edited_module.VALUE)
    print(Path("relative.txt").read_text())


def add_up(config, report, worker=None):
    """Let every rank say something, and report how many were heard."""
    import torch

    own = torch.ones(1000)
    heard = own if worker is None else worker.group.total(own)
    report(step=1, loss=config["x"], num_heard=heard[0])


def exchange_for_ever(config, report, worker):
    import torch

    report(step=1, loss=0.0)
    while True:
        worker.group.total(torch.ones(1))
        time.sleep(0.01)


def fail_on_rank_1(config, report, worker):
    if worker.rank == 1:
        raise ValueError("rank 1 has enough")
    report(step=1, loss=0.0)


def look_for_changes(config, report):
    """Report what an earlier trial left behind, and leave the same behind."""
    import changes_at_import  # its own changes last as long as it is loaded

    changes = {
        "variable": "LEFT_BEHIND" in os.environ,
        "folder": Path.cwd() == Path("/"),
        "path": "/left/behind" in sys.path,
        "logging": logging.getLogger("look_for_changes").level,
        "by_import": os.environ["SET_BY_IMPORT"] == "1",
    }
    os.environ["LEFT_BEHIND"] = "1"
    os.chdir("/")
    sys.path.append("/left/behind")
    logging.getLogger("look_for_changes").setLevel(10)
    changes_at_import.COUNT += 1
    report(
        step=1,
        loss=changes_at_import.COUNT,
        **{name: float(value) for name, value in changes.items()},
    )


def choose_backend(config, report):
    sys.modules["keras"] = types.ModuleType("keras")
    os.environ["KERAS_BACKEND"] = "torch"
    report(step=1, loss=0.0)


def show_variable(config, report):
    report(step=1, loss=float(os.environ.get(config["name"], "0")))


_SERVICES = {}


def keep_a_manager(config, report):
    """Use a process that outlives the trial, as a library does that starts its service once."""
    if "manager" not in _SERVICES:
        _SERVICES["manager"] = multiprocessing.get_context("spawn").Manager()
    shared = _SERVICES["manager"].dict(x=1.0)
    report(step=1, loss=shared["x"], pid=_SERVICES["manager"]._process.pid)


def use_helpers(config, report):
    """Use joblib's workers, which outlive their use, and those of a data loader."""
    import joblib
    from torch.utils.data import DataLoader

    total = sum(joblib.Parallel(n_jobs=2)(joblib.delayed(abs)(x) for x in range(4)))
    loader = DataLoader([1.0, 2.0], num_workers=1, persistent_workers=True)
    report(step=1, loss=total + next(iter(loader)).item())


def leave_a_thread(config, report):
    """Leave a thread that would go on beside the next trial."""
    threading.Thread(target=poll, name="poller", daemon=True).start()
    report(step=1, loss=1.0)


def shut_ray_down(config, report):
    """Shut Ray down before the training ends, so that the worker is asked for its progress after
    that.
    """
    report(step=1, loss=1.0)
    ray.shutdown()
    time.sleep(2.0)
    report(step=2, loss=0.5)


def poll():
    while True:
        time.sleep(0.1)
