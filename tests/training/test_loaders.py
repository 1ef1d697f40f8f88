"""Loader processes change when samples are loaded, and nothing else."""

from __future__ import annotations

import multiprocessing
import os
import random
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
import torch
from PIL import Image
from torch.utils.data import DataLoader, Dataset, IterableDataset, WeightedRandomSampler
from torch.utils.data._utils.pin_memory import pin_memory

from tests.services.process_group import NAME
from tests.services.waiting import wait_until
from workbench.data import Split
from workbench.data.own_data import as_split
from workbench.data.splits import ArraySplit
from workbench.experiment import Experiment
from workbench.experiment.plan import PartialPlan
from workbench.foundation.events import Event, TrialEnded, TrialReported
from workbench.training import checkpoint
from workbench.training.loaders import Loaded, Loaders
from workbench.training.tensor_source import Source, WorkerBatch
from workbench.training.trial import run_trial
from workbench.training.worker_task import TrialTask

NUM_SAMPLES = 50
CPU = torch.device("cpu")


class Noisy(Dataset[Any]):
    """Samples that are drawn anew each time, from all three generators."""

    def __len__(self) -> int:
        return NUM_SAMPLES

    def __getitem__(self, index: int) -> Any:
        drawn = [random.random(), np.random.rand(), torch.rand(()).item()]
        return torch.tensor([index, index % 3, *drawn]), index % 2


class Stream(IterableDataset[Any]):
    """The same samples, one after the other."""

    def __iter__(self) -> Any:
        return (Noisy()[index] for index in range(NUM_SAMPLES))


class Broken(Dataset[Any]):
    """One sample cannot be read, and another ends its process."""

    def __init__(self, *, ends: bool = False) -> None:
        self.ends, self.pid = ends, os.getpid()

    def __len__(self) -> int:
        return NUM_SAMPLES

    def __getitem__(self, index: int) -> Any:
        if index == 37 and os.getpid() != self.pid:
            if self.ends:
                os.kill(os.getpid(), signal.SIGKILL)
            raise KeyError("no column 'age'")
        return np.ones(4, np.float32), index % 2


def noisy(options: Any) -> Any:
    return Noisy(), Noisy()


def broken(options: Any) -> Any:
    return Broken(ends=bool(options.get("ends"))), Noisy()


def experiment(*, epochs: int = 3, data: Any = None, **plan: Any) -> Experiment:
    data = data or {"name": f"{__name__}:noisy", "task": "classification", "num_outputs": 2}
    return Experiment(
        model={"name": "mlp", "dropout": 0.3},
        data=data,
        objectives=[{"metric": "val_loss", "goal": "minimize"}],
        training={"epochs": epochs, "lr": 0.05},
        plan={"micro_batch": 4, "accumulation": 2, **plan},
    )


def train(
    folder: Path, made: Experiment, report: Callable[[Event], bool] = lambda _: False
) -> TrialEnded:
    task = TrialTask("r", 0, 0, made.model_dump_json(), seed=3, folder=str(folder), resume=True)
    return run_trial(task, report)


def loader_processes() -> list[Any]:
    """Return the children of this process but for those that other tests keep."""
    return [child for child in multiprocessing.active_children() if child.name != NAME]


def weights(folder: Path) -> dict[str, torch.Tensor]:
    return checkpoint.read(folder / "checkpoints" / "last.pt")["strategy"]["model"]


def epochs_of(split: Split, num_loaders: int, *, replicas: int = 1) -> list[list[float]]:
    """Read two epochs and an evaluation between them; return the samples of each global batch."""
    loaders = Loaders(num_loaders, CPU) if num_loaders else None
    sources = [Source(split, CPU, loaders=loaders, part=part) for part in ("train", "validation")]
    read: list[list[float]] = []
    try:
        for epoch in range(2):
            for replica in range(replicas):
                steps = (
                    WorkerBatch(
                        sources[0], indices, micro_batch=3, replica=replica, num_replicas=replicas
                    )
                    for indices in sources[0].batches(global_batch=12, epoch=epoch, seed=5)
                )
                for number, step in enumerate(sources[0].ahead(steps)):
                    rows = [row for inputs, _, weight in step if weight for row in inputs.tolist()]
                    place = epoch * -(-len(sources[0]) // 12) + number
                    read += [[]] * (place + 1 - len(read))
                    read[place] = read[place] + rows
            whole = WorkerBatch(sources[1], sources[1].all_indices, micro_batch=20)
            assert sum(len(part[0]) for each in sources[1].ahead([whole]) for part in each) == len(
                split
            )
    finally:
        if loaders is not None:
            loaders.close()
    return read


SPLITS: dict[str, Callable[[], Split]] = {
    "data set": lambda: as_split(Noisy(), {}, part="train", name="d")[0],
    "sampler": lambda: as_split(
        DataLoader(Noisy(), sampler=WeightedRandomSampler([1.0] * NUM_SAMPLES, 30)),
        {},
        part="train",
        name="d",
    )[0],
    "stream": lambda: as_split(
        Stream(), {"samples_per_epoch": NUM_SAMPLES}, part="train", name="d"
    )[0],
    "arrays": lambda: ArraySplit(
        np.arange(NUM_SAMPLES * 2.0).reshape(-1, 2), np.arange(NUM_SAMPLES)
    ),
}


@pytest.mark.parametrize("kind", SPLITS)
def test_samples_and_what_is_drawn_for_them_do_not_depend_on_loaders_or_replicas(kind: str) -> None:
    in_the_step = epochs_of(SPLITS[kind](), 0)
    assert in_the_step[0] != in_the_step[len(in_the_step) // 2], "epochs differ"
    assert epochs_of(SPLITS[kind](), 2) == in_the_step
    assert epochs_of(SPLITS[kind](), 3) == in_the_step
    if kind != "stream":  # the draws of a stream follow its reading, which workers share out
        assert epochs_of(SPLITS[kind](), 2, replicas=2) == in_the_step
    assert not loader_processes()


@pytest.mark.slow
def test_a_training_with_loaders_is_bit_for_bit_the_one_without_also_after_a_resume(
    tmp_path: Path,
) -> None:
    without = train(tmp_path / "without", experiment())
    assert without.state == "complete", without.traceback
    stopped = train(
        tmp_path / "with", experiment(loaders=2), lambda event: event.type == "checkpoint_saved"
    )
    assert stopped.state == "stopped"
    assert not loader_processes(), "a trial that was stopped leaves none behind"
    resumed = train(tmp_path / "with", experiment(loaders=3))
    assert resumed.values == without.values
    one, other = weights(tmp_path / "without"), weights(tmp_path / "with")
    assert all(torch.equal(one[name], other[name]) for name in one)
    assert not loader_processes()


def test_a_sample_that_cannot_be_loaded_is_named(tmp_path: Path) -> None:
    data = {"name": f"{__name__}:broken", "task": "classification", "num_outputs": 2}
    ended = train(tmp_path, experiment(data=data, loaders=2))
    assert (ended.state, ended.reason) == ("failed", "error")
    assert "sample 37 of the training data cannot be loaded: KeyError" in str(ended.message)
    assert "no column 'age'" in str(ended.traceback), "the traceback in the loader is kept"
    assert not loader_processes()


def test_an_image_that_cannot_be_decoded_is_named(tmp_path: Path) -> None:
    for name in ("cat", "dog"):
        (tmp_path / name).mkdir()
        for number in range(8):
            Image.new("RGB", (8, 8)).save(tmp_path / name / f"{number}.png")
    (tmp_path / "dog" / "3.png").write_bytes(b"\x89PNG broken")
    data = {"name": "images", "path": str(tmp_path), "size": 8}
    ended = train(tmp_path / "trial", experiment(data=data, loaders=1))
    assert "3.png cannot be read as an image" in str(ended.message)


def test_a_loader_that_is_killed_ends_the_attempt_with_an_error(tmp_path: Path) -> None:
    data = {"name": f"{__name__}:broken", "task": "classification", "num_outputs": 2, "ends": True}
    ended = train(tmp_path, experiment(data=data, loaders=2))
    assert ended.state == "failed"
    assert "plan.loaders: a process that loads data was ended" in str(ended.message)
    assert not loader_processes()


CHILD = """
import sys
from pathlib import Path
from tests.training.test_loaders import experiment, loader_processes, train
def report(event):
    if event.type == "checkpoint_saved":
        print(*(process.pid for process in loader_processes()), flush=True)
        sys.stdin.readline()
    return False
train(Path(sys.argv[1]), experiment(loaders=2), report)
"""


@pytest.mark.slow
def test_loaders_end_when_their_worker_is_killed(tmp_path: Path) -> None:
    child = subprocess.Popen(
        [sys.executable, "-c", CHILD, str(tmp_path)],
        cwd=Path(__file__).parents[2],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert child.stdout is not None
    pids = [int(pid) for pid in child.stdout.readline().split()]
    assert len(pids) == 2
    child.kill()
    child.wait()
    wait_until(lambda: not any(map(psutil.pid_exists, pids)))


def test_pinning_a_batch_for_a_gpu_leaves_it_in_its_form(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        torch.Tensor, "pin_memory", lambda values: values + 1
    )  # the real one needs a GPU
    inputs = (torch.zeros(2), {"more": torch.zeros(2), "texts": ["a", "b"]})
    pinned = pin_memory(Loaded(inputs, torch.zeros(2)))
    one = pytest.approx([1, 1])
    assert type(pinned.inputs) is tuple
    assert pinned.inputs[0].tolist() == one
    assert pinned.inputs[1]["more"].tolist() == one
    assert pinned.inputs[1]["texts"] == ["a", "b"]
    assert pinned.targets.tolist() == one


def test_a_plan_with_loaders_is_described_and_0_goes_without_saying() -> None:
    assert PartialPlan.of(precision="fp32", loaders=3).work_text == "fp32, 3 loaders"
    assert PartialPlan.of(precision="fp32", loaders=1).work_text == "fp32, 1 loader"
    assert PartialPlan.of(precision="fp32", loaders=0).work_text == "fp32"


@pytest.mark.slow
@pytest.mark.parametrize("loaders", [0, 2])
def test_evaluations_within_an_epoch_do_not_change_the_training(
    loaders: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Every step is evaluated, whatever the clock says.
    monkeypatch.setattr("workbench.training.step_window.REPORT_INTERVAL_S", 0.0)
    usual = experiment(epochs=2)
    train(tmp_path / "usual", usual)
    events: list[Event] = []
    training = {**usual.training.model_dump(), "evaluate_after": 1e-9}
    by_clock = experiment(loaders=loaders).replace(training=training)
    train(tmp_path / "clock", by_clock, lambda event: events.append(event) is not None)
    epochs = [
        event.epoch
        for event in events
        if isinstance(event, TrialReported) and "val_loss" in event.values
    ]
    num_steps = -(-NUM_SAMPLES // 8)
    assert epochs == pytest.approx([step / num_steps for step in range(1, 2 * num_steps + 1)])
    expected = weights(tmp_path / "usual")
    for name, value in weights(tmp_path / "clock").items():
        assert torch.equal(value, expected[name])
