"""What only a GPU can show.

Half precision with each strategy, its memory, and who else holds some of it.
"""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.utils.data import Dataset, TensorDataset

from tests.builders.adversaries import Alone
from tests.builders.ways import OF_SEVERAL
from tests.services.waiting import wait_until
from workbench.cluster.workers.worker_memory import Baseline
from workbench.data import load
from workbench.data.own_data import as_split
from workbench.experiment import Experiment
from workbench.experiment.plan import PartialPlan
from workbench.foundation.events import PlanMeasured
from workbench.models.batch_parts import DividedLoss
from workbench.training.device import foreign_bytes
from workbench.training.exchanges import EXCHANGES
from workbench.training.exchanges.capabilities import with_options
from workbench.training.loaders import Loaders
from workbench.training.probes.measurements import PlanProbe
from workbench.training.strategies.capabilities import capabilities_of
from workbench.training.strategies.worker_group import Group
from workbench.training.tensor_source import Source, WorkerBatch
from workbench.training.trial import run_trial
from workbench.training.worker_task import TrialTask

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU"),
]

HOLD = """
import time, torch
held = torch.ones(int({part} * torch.cuda.mem_get_info()[1]), dtype=torch.uint8, device="cuda")
print("held", flush=True)
time.sleep(60)
"""
FAIL_A_KERNEL = """
import torch
from workbench.cluster.workers.worker_memory import Baseline
try:
    torch.zeros(1, device="cuda")[torch.tensor([9], device="cuda")].cpu()
except RuntimeError:
    print(Baseline().excess("r"))
"""


class Pairs(Dataset[Any]):
    """Samples of two inputs."""

    def __len__(self) -> int:
        return 12

    def __getitem__(self, index: int) -> Any:
        return (torch.full((3,), float(index)), torch.full((2,), float(index))), index % 2


class Summing(Alone):
    """An optimizer that holds tensors before its first step."""

    def configure(self) -> torch.optim.Optimizer:
        self.layer = nn.Linear(2, 2)
        return torch.optim.Adagrad(self.layer.parameters(), lr=0.5)


@dataclass
class Bucket:
    """Gradients as torch hands them to an exchange."""

    gradients: torch.Tensor
    held: list[torch.Tensor]

    def buffer(self) -> torch.Tensor:
        return self.gradients

    def parameters(self) -> list[torch.Tensor]:
        return self.held


@pytest.mark.parametrize("precision", ["fp32", "bf16", "fp16"])
@pytest.mark.parametrize("strategy", ["single", *OF_SEVERAL])
def test_every_strategy_trains_in_every_precision(
    strategy: str, precision: str, tmp_path: Path
) -> None:
    if precision == "fp16" and capabilities_of(strategy).axis is not None:
        pytest.skip("it is refused")
    experiment = Experiment(
        model={"name": "mlp", "hidden_width": 400},
        data="digits",
        objectives=[{"metric": "val_accuracy", "goal": "maximize"}],
        training={"epochs": 6, "global_batch": 64, "clip_norm": 1.0},
        plan={"strategy": strategy, "precision": precision, "micro_batch": 16},
    )
    task = TrialTask("r", 0, 0, experiment.model_dump_json(), folder=str(tmp_path), resume=True)
    ended = run_trial(task, lambda event: False)
    assert ended.state == "complete", ended.traceback
    assert ended.values["val_accuracy"] > 0.9
    assert torch.cuda.is_initialized()
    assert Baseline().excess("r") is None, "the trial gave the memory of the device back"


def test_batches_that_loaders_pin_and_copy_train_the_same_model(tmp_path: Path) -> None:
    data = {"name": "tests.training.test_loaders:noisy", "task": "classification", "num_outputs": 2}
    trained = []
    for loaders in (0, 2):
        experiment = Experiment(
            model="mlp",
            data=data,
            objectives=[{"metric": "val_loss", "goal": "minimize"}],
            training={"epochs": 3, "global_batch": 8},
            plan={"loaders": loaders, "precision": "fp32"},
        )
        task = TrialTask(
            "r", 0, 0, experiment.model_dump_json(), folder=str(tmp_path / str(loaders))
        )
        trained.append(run_trial(task, lambda event: False))
        assert trained[-1].state == "complete", trained[-1].traceback
    assert trained[0].values == pytest.approx(trained[1].values)


def test_a_probe_measures_time_and_memory_of_the_device(tmp_path: Path) -> None:
    experiment = Experiment(
        model={"name": "mlp", "hidden_width": 4096},
        data="digits",
        objectives=[{"metric": "val_accuracy", "goal": "maximize"}],
    )
    plans = tuple(PartialPlan.of(micro_batch=size, accumulation=1) for size in (64, 512))
    task = TrialTask(
        "r", 0, 0, experiment.model_dump_json(), folder=str(tmp_path), measurement=PlanProbe(plans)
    )
    events: list[PlanMeasured] = []
    ended = run_trial(task, events.append)  # type: ignore[arg-type, func-returns-value]
    assert ended.state == "complete", ended.traceback
    assert {event.device for event in events} == {torch.cuda.get_device_name()}
    small, large = (event.peak_bytes or 0 for event in events)
    assert 4 * 4096 * 4096 < small < large < torch.cuda.mem_get_info()[1]
    for event in events:
        assert event.step_time_s is not None
        assert sum(event.parts_s.values()) == pytest.approx(event.step_time_s, rel=0.5)
    assert Baseline().excess("r") is None, "nothing is kept"


def test_a_gpu_that_somebody_else_occupies_is_known_and_free_again_afterwards() -> None:
    torch.ones(1, device="cuda")
    assert foreign_bytes() == 0
    child = subprocess.Popen(
        [sys.executable, "-c", HOLD.format(part=0.1)], stdout=subprocess.PIPE, text=True
    )
    try:
        assert child.stdout is not None
        assert child.stdout.readline() == "held\n"
        assert foreign_bytes() > 0.05 * torch.cuda.mem_get_info()[1]
    finally:
        child.kill()
        child.wait()
    wait_until(lambda: not foreign_bytes())


def test_memory_that_a_trial_left_on_the_device_is_found() -> None:
    held = torch.ones(2**28, device="cuda")
    assert "1 GiB of its GPU" in str(Baseline().excess("r"))
    del held
    assert Baseline().excess("r") is None


def test_what_a_forward_pass_may_keep_is_what_it_keeps_on_the_device(tmp_path: Path) -> None:
    values, peaks = [], []
    for recompute in ("none", "60MB", "blocks"):
        experiment = Experiment(
            model={"name": "resnet", "depth": 20, "width": 16},
            data="digits",
            objectives=[{"metric": "val_loss", "goal": "minimize"}],
            training={"epochs": 1, "global_batch": 1024},
            plan={"recompute": recompute, "precision": "fp32", "micro_batch": 1024},
        )
        task = TrialTask("r", 0, 0, experiment.model_dump_json(), folder=str(tmp_path / recompute))
        torch.cuda.reset_peak_memory_stats()
        ended = run_trial(task, lambda event: False)
        assert ended.state == "complete", ended.traceback
        values.append(ended.values["val_loss"])
        peaks.append(torch.cuda.max_memory_allocated())
    assert values == pytest.approx([values[0]] * 3, rel=1e-3)
    assert peaks[0] > peaks[1] > peaks[2]


def test_what_a_client_drops_out_follows_from_its_round_alone(tmp_path: Path) -> None:
    experiment = Experiment(
        model={"name": "mlp", "hidden_width": 64, "dropout": 0.5},
        data="digits",
        objectives=[{"metric": "val_loss", "goal": "minimize"}],
        training={"epochs": 2, "global_batch": 16},
        federated={"clients": 4},
        plan={"precision": "fp32"},
    )
    trained = []
    for number in range(2):
        torch.rand(number + 1, device="cuda")  # what was drawn before does not matter
        task = TrialTask(
            "r", number, 0, experiment.model_dump_json(), folder=str(tmp_path / str(number))
        )
        trained.append(run_trial(task, lambda event: False))
        assert trained[-1].state == "complete", trained[-1].traceback
    assert trained[0].values["val_loss"] == pytest.approx(trained[1].values["val_loss"], rel=1e-5)


def test_a_process_whose_kernel_failed_serves_no_other_trial() -> None:
    done = subprocess.run(
        [sys.executable, "-c", FAIL_A_KERNEL], capture_output=True, text=True, check=False
    )
    assert "can no longer use its GPU: CUDA error" in done.stdout, done.stderr


def test_batches_of_several_inputs_come_from_loaders_onto_the_device_as_they_are() -> None:
    device = torch.device("cuda", 0)
    loaders = Loaders(1, device)
    source = Source(as_split(Pairs(), {}, part="train", name="d")[0], device, loaders=loaders)
    try:
        batches = [WorkerBatch(source, np.arange(12), micro_batch=4)]
        read = [
            (inputs, targets) for batch in source.ahead(batches) for inputs, targets, _ in batch
        ]
    finally:
        loaders.close()
    for number, (inputs, targets) in enumerate(read):
        assert type(inputs) is tuple
        assert {tensor.device for tensor in (*inputs, targets)} == {device}
        assert inputs[0][:, 0].tolist() == list(range(4 * number, 4 * number + 4))


def test_an_optimizer_that_a_person_makes_before_the_model_is_on_the_device_trains_it(
    tmp_path: Path,
) -> None:
    experiment = Experiment(
        train=f"{__name__}:Summing",
        data={"name": "tests.builders.adversaries:load", "task": "other"},
        objectives=[{"metric": "val_loss", "goal": "minimize"}],
        training={"epochs": 20, "global_batch": 12},
        plan={"precision": "fp32"},
    )
    task = TrialTask("r", 0, 0, experiment.model_dump_json(), folder=str(tmp_path))
    ended = run_trial(task, lambda event: False)
    assert ended.state == "complete", ended.traceback
    assert ended.values["val_loss"] < 0.05


@pytest.mark.parametrize("exchange", ["onebit", "powersgd", "topk"])
def test_what_an_exchange_reads_later_is_not_overwritten_by_the_backward_pass(
    exchange: str,
) -> None:
    device, num_steps, shape = torch.device("cuda", 0), 20, (1024, 4096)
    plan = with_options(
        PartialPlan.of(workers=1, micro_batch=1, accumulation=1, exchange=exchange)
    ).complete()
    assert plan is not None
    group = Group(0, 1, device)
    sent: list[torch.Tensor] = []
    try:
        for is_busy in (False, True):
            parameter = nn.Parameter(torch.zeros(shape, device=device))
            made = EXCHANGES.load(exchange)(plan)
            made.setup({"weight": parameter}, group)
            generator = torch.Generator().manual_seed(0)
            for _ in range(num_steps):
                gradients = torch.randn(parameter.numel(), generator=generator).to(device)
                mean = made.reduce(Bucket(gradients, [parameter]))
                if is_busy:  # as gradients of layers before take the memory that is free
                    sizes = [*[parameter.numel()] * 4, *[shape[0] * 4] * 8, parameter.numel() // 50]
                    taken = [torch.full((size,), torch.nan, device=device) for size in sizes]
                    del taken
                sent.append(mean.wait().cpu())
    finally:
        group.close()
    for quiet, busy in zip(sent[:num_steps], sent[num_steps:], strict=True):
        torch.testing.assert_close(busy, quiet)


def counted(outputs: torch.Tensor, targets: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    weights = torch.arange(1, outputs.shape[1] + 1, device=outputs.device, dtype=torch.float32)
    return (
        functional.cross_entropy(outputs, targets, weight=weights, reduction="sum"),
        weights[targets].sum(),
    )


def weighted(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    total, count = counted(outputs, targets)
    return total / count


def leaving_out(options: Any) -> Any:
    """Return images of digits of which a third has no class."""
    loaded = load("digits", {})
    parts = []
    for split in (loaded.train, loaded.validation):
        inputs, targets = split.batch(np.arange(300))
        targets = np.where(np.arange(300) % 3 == 0, -100, targets)
        parts.append(TensorDataset(torch.from_numpy(inputs), torch.from_numpy(targets).long()))
    return tuple(parts)


def probabilities(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    return functional.binary_cross_entropy(
        outputs.sigmoid().clamp(0, 1), functional.one_hot(targets, 10).float()
    )


@pytest.mark.parametrize("compile", ["none", "cuda_graphs"])
@pytest.mark.parametrize(
    ("loss", "data"), [("counted", "digits"), ("probabilities", "digits"), (None, "own")]
)
def test_every_micro_batch_makes_the_training_of_the_whole_batch(
    loss: str | None, data: str, compile: str, tmp_path: Path
) -> None:
    here = "tests.training.test_on_gpu"
    own = {"name": f"{here}:leaving_out", "task": "classification", "num_outputs": 10}
    trained = []
    for accumulation in (1, 4):
        experiment = Experiment(
            model={"name": "mlp", "hidden_width": 32},
            data=own if data == "own" else data,
            loss=None if loss is None else f"{here}:{loss}",
            objectives=[{"metric": "val_loss", "goal": "minimize"}],
            training={"epochs": 2, "global_batch": 64, "optimizer": "sgd"},
            plan={
                "micro_batch": 64 // accumulation,
                "accumulation": accumulation,
                "precision": "fp32",
                "compile": compile,
            },
        )
        folder = str(tmp_path / str(accumulation))
        trained.append(
            run_trial(
                TrialTask("r", 0, 0, experiment.model_dump_json(), folder=folder),
                lambda event: False,
            )
        )
        assert trained[-1].state == "complete", trained[-1].traceback
    assert trained[0].values == pytest.approx(trained[1].values, rel=1e-4)
    assert Baseline().excess("r") is None, "no kernel of a check has failed"


def test_a_loss_that_differs_in_parts_is_refused_on_the_device_too(tmp_path: Path) -> None:
    experiment = Experiment(
        model={"name": "mlp", "hidden_width": 32},
        data="digits",
        loss="tests.training.test_on_gpu:weighted",
        objectives=[{"metric": "val_loss", "goal": "minimize"}],
        training={"epochs": 1, "global_batch": 64},
        plan={"micro_batch": 16, "accumulation": 4},
    )
    task = TrialTask("r", 0, 0, experiment.model_dump_json(), folder=str(tmp_path))
    ended = run_trial(task, lambda event: False)
    assert ended.state == "failed"
    assert "total and its count" in str(ended.message)


def test_steps_of_a_counted_loss_wait_for_the_device_only_where_they_are_read(
    tmp_path: Path,
) -> None:
    outputs = torch.randn(8, 10, device="cuda", requires_grad=True)
    targets = torch.full((8,), -100, device="cuda")
    loss = DividedLoss(functional.cross_entropy, "targets")
    torch.cuda.set_sync_debug_mode("error")
    try:
        total, count = loss.measure(outputs, targets)
        total.backward()
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert (total.item(), count.item()) == (0.0, 0)
    assert outputs.grad is not None
    assert not outputs.grad.isnan().any()


class OnTheDevice(Dataset[Any]):
    """Samples that lie on the device already."""

    def __init__(self, first: int) -> None:
        self.targets = (torch.arange(20) % 3 + first).cuda()

    def __len__(self) -> int:
        return 20

    def __getitem__(self, index: int) -> Any:
        return torch.ones(4, device="cuda"), self.targets[index]


def there(options: Any) -> Any:
    return OnTheDevice(options["first"]), OnTheDevice(options["first"])


@pytest.mark.parametrize("first", [0, 1])
def test_samples_that_lie_on_the_device_are_read_and_checked(first: int, tmp_path: Path) -> None:
    data = {"name": "tests.training.test_on_gpu:there", "task": "classification", "num_outputs": 3}
    experiment = Experiment(
        model="mlp",
        data={**data, "first": first},
        objectives=[{"metric": "val_loss", "goal": "minimize"}],
        training={"epochs": 1, "global_batch": 10},
    )
    task = TrialTask("r", 0, 0, experiment.model_dump_json(), folder=str(tmp_path))
    ended = run_trial(task, lambda event: False)
    assert ended.state == ("complete" if first == 0 else "failed")
    assert first == 0 or "Subtract 1" in str(ended.message)
