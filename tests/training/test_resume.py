"""A training that was killed goes on as if nothing had happened."""

from __future__ import annotations

import os
import random
import signal
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from tests.services.process_group import start_beside
from workbench.experiment import Experiment
from workbench.foundation.errors import RunError
from workbench.foundation.events import Event, TrialEnded, TrialReported
from workbench.models.adapters import build_model
from workbench.training import checkpoint
from workbench.training.trained_model import read_model, write_weights
from workbench.training.trial import run_trial
from workbench.training.worker_task import TrialTask

EXPERIMENT = Experiment(
    model={"name": "convnet", "width": 8, "dropout": 0.4},
    data="digits",
    objectives=[{"metric": "val_accuracy", "goal": "maximize"}],
    training={
        "epochs": 6,
        "optimizer": "sgd",
        "lr": 0.05,
        "schedule": "one_cycle",
        "clip_norm": 1.0,
    },
)


def order(folder: Path, **changes: Any) -> TrialTask:
    return TrialTask(
        "r",
        0,
        changes.pop("attempt", 0),
        EXPERIMENT.model_dump_json(),
        seed=11,
        folder=str(folder),
        **changes,
    )


def final_state(folder: Path) -> dict[str, Any]:
    return checkpoint.read(folder / "checkpoints" / "last.pt")


def assert_same(first: Any, second: Any) -> None:
    if isinstance(first, dict):
        assert first.keys() == second.keys()
        for key in first:
            assert_same(first[key], second[key])
    elif isinstance(first, list | tuple):
        for one, other in zip(first, second, strict=True):
            assert_same(one, other)
    elif isinstance(first, torch.Tensor):
        assert torch.equal(first, second)
    else:
        assert first == second


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[TrialEnded, Path]:
    """What a training that nothing interrupted ends with, and its folder."""
    folder = tmp_path_factory.mktemp("whole")
    return run_trial(order(folder), lambda event: False), folder


def train_slowly(connection: Any, folder: Path) -> None:
    def report(event: Event) -> bool:
        connection.send(f"{event.type} {getattr(event, 'step', None)}")
        time.sleep(0.05)
        return False

    run_trial(order(folder), report)


@pytest.mark.parametrize("kill_after", ["checkpoint_saved 24", "trial_reported 48"])
def test_a_killed_training_ends_exactly_like_one_that_was_not(
    kill_after: str, whole: tuple[TrialEnded, Path], tmp_path: Path
) -> None:
    child, events = start_beside(train_slowly, tmp_path / "killed")
    while events.recv() != kill_after:
        pass
    child.kill()
    child.join()
    assert child.exitcode == -signal.SIGKILL
    steps: list[int] = []

    def take(event: object) -> bool:
        if isinstance(event, TrialReported) and not event.told_again:
            steps.append(event.step)
        return False

    resumed = run_trial(order(tmp_path / "killed", attempt=1, resume=True), take)
    assert resumed.state == "complete", resumed.traceback
    assert min(steps) > 24
    expected, folder = whole
    assert resumed.values == expected.values
    assert_same(final_state(tmp_path / "killed"), final_state(folder))


def test_without_resume_an_attempt_begins_anew(tmp_path: Path) -> None:
    first = run_trial(order(tmp_path), lambda event: False)
    steps: list[int] = []
    again = run_trial(order(tmp_path), lambda event: bool(steps.append(getattr(event, "step", 12))))
    assert min(steps) <= 12, "a slow machine also reports within the first epoch"
    assert again.values == first.values


def test_a_finished_training_that_is_resumed_says_its_result_again(
    whole: tuple[TrialEnded, Path],
) -> None:
    first, folder = whole
    events: list[Event] = []
    again = run_trial(order(folder, resume=True), lambda event: bool(events.append(event)))
    assert (again.state, again.values, again.step) == ("complete", first.values, first.step)
    assert events[0].type == "trial_planned"
    told = [event for event in events if isinstance(event, TrialReported)]
    assert all(event.told_again for event in told)
    assert told[-1].step == first.step


def test_a_torn_checkpoint_is_never_loaded(tmp_path: Path) -> None:
    path = Path(
        checkpoint.save(tmp_path, {"step": 1, "weights": torch.randn(1000)}, last=True, best=False)
    )
    whole = path.read_bytes()
    damaged = bytearray(whole)
    damaged[len(whole) // 2] ^= 0xFF
    name = whole.rindex(b"/data.pkl")
    unnamed = whole[:name] + b"\xef\xff" + whole[name + 2 :]
    for content in (
        b"",
        whole[: len(whole) // 2],
        whole[:-1],
        bytes(damaged),
        unnamed,
        b"no checkpoint",
    ):
        path.write_bytes(content)
        with pytest.raises(RunError):
            checkpoint.read(path)
        assert checkpoint.read_latest(tmp_path) is None
    path.write_bytes(whole)
    assert checkpoint.read(path)["step"] == 1


def test_a_training_goes_on_from_the_other_checkpoint_where_one_is_torn(tmp_path: Path) -> None:
    checkpoint.save(tmp_path, {"step": 1}, last=False, best=True)
    last = checkpoint.save(tmp_path, {"step": 2}, last=True, best=False)
    latest = checkpoint.read_latest(tmp_path)
    assert latest is not None
    assert latest["step"] == 2
    Path(last).write_bytes(Path(last).read_bytes()[:100])
    latest = checkpoint.read_latest(tmp_path)
    assert latest is not None
    assert latest["step"] == 1


def test_a_trial_that_begins_anew_because_its_checkpoint_is_damaged_notes_that(
    tmp_path: Path,
) -> None:
    folder = tmp_path / "checkpoints"
    folder.mkdir()
    (folder / "last.pt").write_bytes(b"torn")
    events: list[Event] = []

    def report(event: Event) -> bool:
        events.append(event)
        return event.type == "trial_planned"

    assert run_trial(order(tmp_path, resume=True), report).state == "stopped"
    assert [event.type for event in events[:2]] == ["noted", "trial_planned"]
    assert "starts again, because its checkpoint is damaged" in str(events[0])


class Payload:
    def __reduce__(self) -> tuple[object, ...]:
        return os.system, ("true",)


def test_a_checkpoint_that_would_run_code_is_refused(tmp_path: Path) -> None:
    torch.save({"format": 1, "step": 3, "payload": Payload()}, tmp_path / "last.pt")
    with pytest.raises(RunError):
        checkpoint.read(tmp_path / "last.pt")


def save_again_and_again(connection: Any, folder: Path) -> None:
    for step in range(10**6):
        content = {"step": step, "weights": torch.full((200_000,), float(step))}
        checkpoint.save(folder, content, last=True, best=step % 2 == 0)
        if step < 2:
            connection.send(step)


def test_a_process_that_is_killed_while_it_saves_leaves_whole_checkpoints(tmp_path: Path) -> None:
    for delay_s in (0.05, 0.083):
        child, steps = start_beside(save_again_and_again, tmp_path)
        assert [steps.recv(), steps.recv()] == [0, 1], "there are checkpoints"
        time.sleep(delay_s)
        child.kill()
        child.join()
        for name in ("last.pt", "best.pt"):
            content = checkpoint.read(tmp_path / name)
            assert torch.equal(content["weights"], torch.full((200_000,), float(content["step"])))


def test_random_states_are_put_back(tmp_path: Path) -> None:
    path = checkpoint.save(
        tmp_path, {"step": 0, "random": checkpoint.random_states()}, last=True, best=False
    )

    def draw() -> tuple[float, float, float]:
        return random.random(), float(np.random.rand()), float(torch.rand(()))

    expected = draw()
    draw()
    checkpoint.set_random_states(checkpoint.read(path)["random"])
    assert draw() == expected


def test_weights_are_exported_for_other_programs(tmp_path: Path) -> None:
    run_trial(order(tmp_path), lambda event: False)
    weights = tmp_path / "bundle" / "weights.safetensors"
    write_weights(tmp_path / "checkpoints" / "best.pt", weights)
    expected = checkpoint.read(tmp_path / "checkpoints" / "best.pt")["strategy"]["model"]
    assert_same(load_file(weights), dict(expected))
    model = build_model(
        "convnet", {"width": 8, "dropout": 0.4}, input_shape=(1, 8, 8), num_outputs=10
    )
    model.load_state_dict(load_file(weights))


def build_compiled(config: Any) -> torch.nn.Module:
    """Compile a whole model and, within it, a layer.

    `torch.compile` then nests the names of its tensors.
    """
    layer: Any = torch.compile(torch.nn.Linear(64, 10))
    return torch.compile(torch.nn.Sequential(torch.nn.Flatten(), layer))  # type: ignore[return-value]


def test_weights_of_compiled_models_have_the_names_of_plain_ones(tmp_path: Path) -> None:
    model = build_compiled({})
    state = model.state_dict()
    assert "_orig_mod.1._orig_mod.weight" in state
    file = checkpoint.save(tmp_path, {"strategy": {"model": state}}, last=True, best=False)

    write_weights(file, tmp_path / "weights.safetensors")

    assert sorted(load_file(tmp_path / "weights.safetensors")) == ["1.bias", "1.weight"]
    experiment = EXPERIMENT.replace(model=build_compiled)
    read, _ = read_model(experiment, {}, tmp_path / "weights.safetensors")
    assert_same(read.state_dict(), dict(state))
