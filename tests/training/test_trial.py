"""A trial from order to ending, with real models on real data."""

from __future__ import annotations

import math
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from tests.builders.clock import Clock
from workbench.experiment import Experiment
from workbench.foundation.events import CheckpointSaved, Event, TrialEnded, TrialReported
from workbench.training.trial import run_trial
from workbench.training.worker_task import TrialTask

ACCURACY = [{"metric": "val_accuracy", "goal": "maximize"}]


def order(experiment: Experiment, folder: Path, **changes: Any) -> TrialTask:
    return TrialTask(
        **{
            "run_id": "r",
            "trial": 3,
            "attempt": 0,
            "experiment_json": experiment.model_dump_json(),
            "seed": 7,
            "folder": str(folder),
            **changes,
        }
    )


def run(experiment: Experiment, folder: Path, **changes: Any) -> tuple[TrialEnded, list[Event]]:
    events: list[Event] = []
    ended = run_trial(
        order(experiment, folder, **changes), lambda event: events.append(event) is not None
    )
    return ended, events


def evaluations(events: list[Event]) -> list[TrialReported]:
    return [
        item for item in events if isinstance(item, TrialReported) and "val_loss" in item.values
    ]


def digits(**training: Any) -> Experiment:
    """Return a training of few multiplications: most tests look at what comes of its reports."""
    model = {"name": "convnet", "width": 4}
    return Experiment(model=model, data="digits", objectives=ACCURACY, training=training)


def final_weights(folder: Path) -> dict[str, torch.Tensor]:
    content = torch.load(folder / "checkpoints" / "last.pt", weights_only=True)
    return content["strategy"]["model"]


def test_a_convnet_learns_the_digits(tmp_path: Path) -> None:
    wide = digits(epochs=8, optimizer="sgd").replace(model="convnet")
    ended, events = run(wide, tmp_path, params={"lr": 0.2, "width": 16})
    assert ended.state == "complete", ended.traceback
    assert ended.values["val_accuracy"] >= 0.97
    reports = evaluations(events)
    assert [item.epoch for item in reports] == [float(epoch) for epoch in range(1, 9)]
    assert ended.step == reports[-1].step == 8 * 12
    assert all(item.trial == 3 for item in events if isinstance(item, TrialReported))
    # On a slow machine, training is also reported between epochs, and an evaluation that follows at
    # once has timed no step.
    timed = [item for item in reports if item.samples_per_s is not None]
    assert set(timed[-1].parts_s) == {"data", "forward", "backward", "update"}


CLOCK = Clock()


class Timed(nn.Module):
    """Takes 20 ms forward and 30 ms backward, by `CLOCK`."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(64, 10)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        CLOCK.sleep(0.02)
        outputs = self.layer(inputs.flatten(1))
        if outputs.requires_grad:
            outputs.register_hook(lambda _: CLOCK.sleep(0.03))
        return outputs


def build_timed(config: dict[str, Any]) -> nn.Module:
    return Timed()


def test_the_parts_of_a_step_add_up_to_its_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("training.step_window", "hardware.performance.profiler"):
        monkeypatch.setattr(f"workbench.{module}.perf_counter", CLOCK)
    _, events = run(digits(epochs=2).replace(model="test_trial:build_timed"), tmp_path)
    reports = [event for event in events if isinstance(event, TrialReported)]
    parts_s = {"data": 0.0, "forward": 0.02, "backward": 0.03, "update": 0.0}
    assert len(reports) >= 2
    before = 0
    for report in reports:
        num_samples = sum(
            30 if step % 12 == 0 else 128 for step in range(before + 1, report.step + 1)
        )
        assert report.parts_s == pytest.approx(parts_s)
        assert report.samples_per_s is not None
        window_s = num_samples / report.samples_per_s
        assert (report.step - before) * sum(parts_s.values()) == pytest.approx(window_s)
        before = report.step


def test_the_same_seed_gives_the_same_training_and_another_seed_another(tmp_path: Path) -> None:
    experiment = digits(epochs=2).replace(model={"name": "convnet", "width": 4, "dropout": 0.3})
    first, _ = run(experiment, tmp_path / "a")
    second, _ = run(experiment, tmp_path / "b")
    other, _ = run(experiment, tmp_path / "c", seed=8)
    assert first.values == second.values
    assert first.values != other.values
    for name, value in final_weights(tmp_path / "a").items():
        assert torch.equal(value, final_weights(tmp_path / "b")[name])


def test_a_trial_stops_when_it_is_told_to(tmp_path: Path) -> None:
    experiment = digits(epochs=50)
    seen: list[Event] = []

    def stop_after_two(event: Event) -> bool:
        seen.append(event)
        return len(evaluations(seen)) >= 2

    ended = run_trial(order(experiment, tmp_path), stop_after_two)
    assert (ended.state, ended.step) == ("stopped", 24)
    assert len(evaluations(seen)) == 2


def test_a_rate_that_is_far_too_high_is_diverged(tmp_path: Path) -> None:
    ended, _ = run(digits(epochs=3, optimizer="sgd"), tmp_path, params={"lr": 1e30})
    assert (ended.state, ended.reason) == ("failed", "diverged")
    assert ended.message is not None
    assert "train_loss" in ended.message


def test_the_best_checkpoint_is_that_of_the_best_report(tmp_path: Path) -> None:
    _, events = run(digits(epochs=6), tmp_path, params={"lr": 0.02})
    best = max(evaluations(events), key=lambda item: item.values["val_accuracy"])
    saved = [item for item in events if isinstance(item, CheckpointSaved) and item.best]
    assert saved[-1].step == best.step
    content = torch.load(saved[-1].path, weights_only=True)
    assert content["values"] == best.values
    assert sorted(path.name for path in (tmp_path / "checkpoints").iterdir()) == [
        "best.pt",
        "last.pt",
    ]


@pytest.mark.parametrize("mode", [None, "best", "last", {"mean_last": 2}])
def test_the_value_is_that_of_the_checkpoint_that_is_exported(mode: Any, tmp_path: Path) -> None:
    how = {} if mode is None else {"value": mode}
    objectives = [
        {"metric": "val_accuracy", "goal": "maximize", **how},
        {"metric": "train_loss", "goal": "minimize", **how},
    ]
    experiment = digits(epochs=4, optimizer="sgd", schedule="constant").replace(
        objectives=objectives
    )
    ended, events = run(experiment, tmp_path, params={"lr": 0.9})
    assert ended.state == "complete", ended.message
    reports = evaluations(events)
    saved = [item for item in events if isinstance(item, CheckpointSaved) and item.best]
    content = torch.load(saved[-1].path, weights_only=True)
    follows_best = mode in (None, "best")
    kept = (
        max(reports, key=lambda item: item.values["val_accuracy"]) if follows_best else reports[-1]
    )
    assert (saved[-1].step, content["values"]) == (kept.step, kept.values)
    if isinstance(mode, dict):
        for metric in ("val_accuracy", "train_loss"):
            mean = sum(item.values[metric] for item in reports[-2:]) / 2
            assert ended.values[metric] == pytest.approx(mean)
    else:
        assert ended.values == kept.values


def test_an_error_that_says_all_ends_the_trial_without_a_traceback(tmp_path: Path) -> None:
    ended, _ = run(digits(epochs=1), tmp_path, params={"widht": 3})
    assert (ended.state, ended.reason) == ("failed", "error")
    assert "search.widht" in (ended.message or "")
    assert ended.traceback is None


def test_an_objective_that_is_not_measured_is_refused_before_training(tmp_path: Path) -> None:
    experiment = digits(epochs=1).replace(objectives=[{"metric": "val_f1", "goal": "maximize"}])
    ended, events = run(experiment, tmp_path)
    assert "objectives.0.metric" in (ended.message or "")
    assert "val_accuracy" in (ended.message or "")
    assert not events


@pytest.mark.parametrize("model", ["lstm", "transformer"])
def test_language_models_learn(model: str, tmp_path: Path) -> None:
    corpus = tmp_path / "corpus.txt"
    corpus.write_text("the quick brown fox jumps over the lazy dog. " * 200)
    experiment = Experiment(
        model={"name": model, "num_layers": 1},
        data={"name": "text", "path": str(corpus), "context": 32},
        objectives=[{"metric": "val_loss", "goal": "minimize"}],
        training={"epochs": 4, "global_batch": 16},
        search={"lr": 3e-3},
    )
    ended, events = run(experiment, tmp_path / "trial", params={"lr": 3e-3})
    assert ended.state == "complete", ended.traceback
    losses = [item.values["val_loss"] for item in evaluations(events)]
    assert losses[-1] < 0.7 * losses[0]
    assert ended.values["val_perplexity"] == pytest.approx(math.exp(losses[-1]))


def test_torch_is_not_loaded_by_importing_the_room() -> None:
    code = (
        "import sys, workbench.training, workbench.hardware.resources; sys.exit('torch' in"
        " sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
