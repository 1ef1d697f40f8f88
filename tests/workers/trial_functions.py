"""Functions that the tests of workers run as trials."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path


def constant(config, report, worker=None):
    report(step=1, loss=config["x"])


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


def count(config, report):
    """Report every step, and note in a file how far it came."""
    for step in range(1, 101):
        Path(config["note"]).write_text(str(step))
        if report(step=step, loss=1 / step):
            return


def count_apart(config, report):
    """Report the objective at even steps only."""
    for step in range(1, 7):
        Path(config["note"]).write_text(str(step))
        report(step=step, **({"loss": 1 / step} if step % 2 == 0 else {"speed": 1.0}))


def sleep(config, report, worker=None):
    report(step=1, loss=0.0)
    time.sleep(600)


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
