"""What a step holds, as estimated without memory and as measured with it."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

import pytest

from workbench.experiment import Experiment
from workbench.experiment.plan import PartialPlan
from workbench.experiment.space import Params
from workbench.foundation.errors import ExperimentError
from workbench.hardware.performance.memory import StepMemory, fit_law
from workbench.training.probes import memory_estimate
from workbench.training.probes.memory_estimate import estimate_memory

MIB = 2**20
FIELDS: dict[str, Any] = {
    "model": {"name": "mlp", "hidden_width": 1024, "num_layers": 3},
    "data": "digits",
    "objectives": [{"metric": "val_loss", "goal": "minimize"}],
    "training": {"optimizer": "adamw"},
}


def estimate(
    *micro_batches: int, plan: dict[str, Any] | None = None, **fields: Any
) -> list[StepMemory]:
    decided = PartialPlan.of(**plan or {})
    return list(
        estimate_memory(Experiment(**FIELDS | fields), {}, micro_batches, plan=decided).steps
    )


def test_what_is_held_is_told_by_part() -> None:
    [step] = estimate(256, plan={"precision": "fp32"})
    # 64 x 1024 + 1024, twice 1024 x 1024 + 1024, 1024 x 10 + 10 parameters of 4 bytes
    parameters_bytes = 4 * (64 * 1024 + 1024 + 2 * (1024 * 1024 + 1024) + 10 * 1024 + 10)
    assert step.parameters_bytes == parameters_bytes
    assert step.gradients_bytes == parameters_bytes
    assert step.optimizer_bytes == pytest.approx(2 * parameters_bytes, rel=1e-4)
    # The fused update needs nothing of its own.
    assert step.update_peak_bytes == pytest.approx(4 * parameters_bytes, rel=0.02)
    activations_bytes = 256 * 1024 * 4
    # Parameters, state, what three layers keep; gradients and those of activations come and go.
    least_bytes = 3 * parameters_bytes + 3 * activations_bytes
    assert (
        least_bytes
        < step.compute_peak_bytes
        < least_bytes + parameters_bytes + 2 * activations_bytes
    )


MEASURE = """
import numpy as np, sys, torch
from workbench.experiment import Experiment
from workbench.training.strategies.single import Single
from workbench.training.strategies.strategy import MicroBatch, StepSettings, Worker
from workbench.training.assembly import build_trial_model, loss_of
from workbench.training.loading import load_trial_data
from workbench.training.optimizers import optimizer_factory
from workbench.training.planning.settings import resolve

def peak_bytes():
    line = next(line for line in open("/proc/self/status") if line.startswith("VmHWM"))
    return int(line.split()[1]) * 1024

experiment = Experiment.model_validate_json(sys.argv[1])
torch.set_num_threads(1)
datasets = load_trial_data("", experiment)
settings = resolve(experiment, {})
recompute = settings.plan.recompute == "blocks"
strategy = Single(StepSettings(loss=loss_of(experiment, datasets), recompute=recompute))
model = build_trial_model(experiment, {}, settings, datasets)
strategy.setup(model, optimizer_factory(settings.training, 0.1), Worker())
inputs, targets = datasets.train.batch(np.zeros(int(sys.argv[2]), dtype=np.int64))
batch = [MicroBatch(torch.from_numpy(inputs), torch.from_numpy(targets), 1.0)]
for _ in range(2):
    open("/proc/self/clear_refs", "w").write("5")
    strategy.forward_backward(batch)
    peak = peak_bytes()
    strategy.update(0.1)
print(peak)
"""


def measure(micro_batch: int, **fields: Any) -> int:
    """What a process of its own really held at most in forward and backward."""
    text = Experiment(**FIELDS | fields).model_dump_json()
    done = subprocess.run(
        [sys.executable, "-c", MEASURE, text, str(micro_batch)],
        capture_output=True,
        text=True,
        check=True,
        env=os.environ
        | {"MALLOC_MMAP_THRESHOLD_": "65536"},  # else freed memory stays with the process
    )
    return int(done.stdout)


@pytest.mark.slow
def test_what_a_sample_adds_is_what_it_adds_in_a_real_process() -> None:
    laws = {}
    for recompute in ("none", "blocks"):
        fields = {
            "model": {"name": "mlp", "hidden_width": 512, "num_layers": 8},
            "plan": {"precision": "fp32", "recompute": recompute},
        }
        law = laws[recompute] = fit_law(estimate(2048, 6144, **fields))
        # What the process holds beside the step is the same at both sizes.
        added_bytes = (measure(6144, **fields) - measure(2048, **fields)) / (6144 - 2048)
        assert law.per_sample_bytes == pytest.approx(added_bytes, rel=0.1)
    # Of eight layers' activations three at the borders of pieces are kept, and those of one piece.
    assert laws["blocks"].per_sample_bytes < laws["none"].per_sample_bytes - 1.5 * 512 * 4


def test_shards_divide_what_training_remembers() -> None:
    whole, cut = (
        estimate(64, plan={"strategy": strategy, "workers": 4})[0] for strategy in ("ddp", "fsdp")
    )
    for name in ("parameters_bytes", "gradients_bytes", "optimizer_bytes"):
        assert getattr(cut, name) == pytest.approx(getattr(whole, name) / 4, rel=0.02)
    assert cut.compute_peak_bytes < whole.compute_peak_bytes
    assert cut.update_peak_bytes < 0.3 * whole.update_peak_bytes


def test_a_divided_optimizer_state_is_the_only_thing_that_shrinks() -> None:
    whole, divided = (
        estimate(64, plan={"strategy": strategy, "workers": 4}, training={"optimizer": "adamw"})[0]
        for strategy in ("ddp", "zero1")
    )
    # The largest parameter belongs to one worker.
    assert whole.optimizer_bytes / 4 <= divided.optimizer_bytes < whole.optimizer_bytes / 2
    assert (divided.parameters_bytes, divided.gradients_bytes) == (
        whole.parameters_bytes,
        whole.gradients_bytes,
    )
    saved_bytes = whole.optimizer_bytes - divided.optimizer_bytes
    assert whole.compute_peak_bytes - divided.compute_peak_bytes == pytest.approx(
        saved_bytes, rel=0.02
    )


@pytest.mark.slow
def test_a_stage_holds_its_part_of_the_model_and_the_micro_batches_that_are_under_way() -> None:
    def held(batch: int, schedule: str, **plan: Any) -> StepMemory:
        plan |= {"precision": "fp32", "pipeline_schedule": schedule}
        return estimate(
            batch, plan=plan, model={"name": "mlp", "hidden_width": 512, "num_layers": 8}
        )[0]

    whole = held(256, "1f1b", workers=1)
    few, all_at_once = (
        held(256, each, workers=4, stages=4, accumulation=16) for each in ("1f1b", "gpipe")
    )
    for name in ("parameters_bytes", "gradients_bytes", "optimizer_bytes"):
        assert getattr(few, name) < 0.4 * getattr(whole, name)
    assert few.compute_peak_bytes < whole.compute_peak_bytes < all_at_once.compute_peak_bytes


def test_a_tensor_part_holds_its_part_of_the_layers_and_of_what_they_compute() -> None:
    whole, part = (
        estimate(
            2048, plan={"precision": "fp32", **plan}, model={"name": "mlp", "hidden_width": 512}
        )[0]
        for plan in ({"workers": 1}, {"tensor": 4})
    )
    for name in ("parameters_bytes", "gradients_bytes", "optimizer_bytes"):
        assert getattr(whole, name) / 4 <= getattr(part, name) < 0.5 * getattr(whole, name)
    assert part.compute_peak_bytes < 0.8 * whole.compute_peak_bytes


def test_fewer_bytes_a_number_are_less_memory() -> None:
    model = {"name": "mlp", "hidden_width": 512, "num_layers": 6}
    full, half = (
        estimate(8192, model=model, plan={"precision": name})[0] for name in ("fp32", "bf16")
    )
    assert half.compute_peak_bytes < 0.75 * full.compute_peak_bytes


OWN = """
import torch
def looks(config):
    class Looks(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = torch.nn.Linear(64, 10)
        def forward(self, inputs):
            outputs = self.layer(inputs.flatten(1))
            return outputs * 2 if outputs.sum().item() > 0 else outputs
    return Looks()
"""


def test_a_model_that_looks_at_values_says_so(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "looking.py").write_text(OWN)
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(ExperimentError, match="model: the memory of the model cannot be estimated"):
        estimate(8, model="looking:looks")


TRIALS: list[tuple[Params, PartialPlan]] = [
    ({"width": width}, PartialPlan.of(workers=1)) for width in (16, 1024)
]


def of_a_transformer() -> Experiment:
    return Experiment(
        model={"name": "transformer", "num_heads": 2, "num_layers": 2},
        data={"name": "text", "context": 32, "max_characters": 20_000},
        objectives=[{"metric": "val_loss", "goal": "minimize"}],
        search={"width": {"choices": [16, 1024]}},
        plan={"recompute": "500KB"},
    )


@pytest.fixture
def enough_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory_estimate, "_TIMEOUT_S", 600.0)
    monkeypatch.setattr(memory_estimate, "_ENOUGH_S", 500.0)


@pytest.mark.usefixtures("enough_time")
def test_what_keeps_more_than_may_be_kept_is_too_large() -> None:
    fits, exceeds = memory_estimate.estimate_peaks(
        of_a_transformer(), TRIALS, num_first=2, limit_bytes=1e9
    )
    assert fits is not None
    assert exceeds is not None
    assert fits < 1e9 < exceeds


@pytest.mark.usefixtures("enough_time")
def test_where_time_is_short_what_was_found_by_then_is_the_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(memory_estimate, "_ENOUGH_S", 0.0)
    assert (
        memory_estimate.estimate_peaks(of_a_transformer(), TRIALS, num_first=2, limit_bytes=1e9)
        == []
    )
