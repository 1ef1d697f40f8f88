"""CUDA graphs as a way of making a step: the same training bit for bit, and what they refuse."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import Dataset

from workbench.advisor.open_settings import choices_of
from workbench.advisor.plan_variants import alternatives, combinations
from workbench.advisor.plans import enumerate_plans
from workbench.cluster.workers.worker_memory import Baseline
from workbench.experiment import Experiment
from workbench.experiment.plan import Hardware, PartialPlan
from workbench.foundation.errors import ExperimentError
from workbench.foundation.events import CheckpointSaved, Event, PlanMeasured
from workbench.training import checkpoint
from workbench.training.planning.equivalent_plans import WAYS, next_way
from workbench.training.planning.settings import resolve
from workbench.training.probes.measurements import PlanProbe
from workbench.training.strategies.single import NUM_AS_THEY_ARE, Recorder
from workbench.training.trial import run_trial
from workbench.training.worker_task import TrialTask

GPU = Hardware(has_gpu=True, has_bf16=True)
RECORDED: dict[str, tuple[dict[str, Any], dict[str, Any], dict[str, Any]]] = {
    "uneven last batch": ({"name": "mlp", "hidden_width": 32}, {}, {}),
    "drops units": ({"name": "mlp", "hidden_width": 32, "dropout": 0.5}, {}, {}),
    "accumulates, scales, clips and averages": (
        {"name": "mlp", "hidden_width": 32},
        {"clip_norm": 0.1, "average_decay": 0.9},
        {"accumulation": 4, "precision": "fp16"},
    ),
    "normalises and measures noise": (
        {"name": "convnet", "width": 8},
        {"measure_noise": True, "lr_rule": "adascale", "optimizer": "sgd"},
        {"precision": "bf16"},
    ),
    "has residual blocks": (
        {"name": "resnet", "depth": 8, "width": 8},
        {"weight_decay": 0.1},
        {"precision": "bf16"},
    ),
}


class Halves(Dataset[Any]):
    """Samples of two inputs."""

    def __len__(self) -> int:
        return 40

    def __getitem__(self, index: int) -> Any:
        side = index % 2
        return (torch.full((3,), float(side)), torch.full((2,), index / 40.0)), side


def halves(options: Any) -> tuple[Dataset[Any], Dataset[Any]]:
    return Halves(), Halves()


class Both(nn.Module):
    """Takes two inputs, and has a layer that it never uses."""

    def __init__(self, config: Any) -> None:
        super().__init__()
        self.layer, self.unused = nn.Linear(5, 2), nn.Linear(7, 7)

    def forward(self, left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
        return self.layer(torch.cat([left, right], dim=1))


class Looking(nn.Module):
    """Looks at a value in the middle of its pass."""

    def __init__(self, config: Any) -> None:
        super().__init__()
        self.layer = nn.Linear(64, 10)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        outputs = self.layer(inputs.flatten(1))
        return outputs if outputs.sum().item() < 1e9 else -outputs


def mean_entropy(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    return nn.functional.cross_entropy(outputs, targets)


def experiment(compile: str = "cuda_graphs", **changes: Any) -> Experiment:
    fields: dict[str, Any] = {
        "model": {"name": "mlp", "hidden_width": 32},
        "data": "digits",
        "objectives": [{"metric": "val_loss", "goal": "minimize"}],
        "training": {"epochs": 4, "global_batch": 100, "lr": 0.01, "lr_rule": "constant"},
        "plan": {"compile": compile, "precision": "fp32"},
    }
    return Experiment(**{**fields, **changes})


def train(
    folder: Path, written: Experiment, stop: Callable[[Event], bool] = lambda _: False
) -> Any:
    order = TrialTask(
        "run", 0, 0, written.model_dump_json(), seed=3, folder=str(folder), resume=True
    )
    return run_trial(order, stop)


def weights(folder: Path, written: Experiment) -> dict[str, torch.Tensor]:
    ended = train(folder, written)
    assert ended.state == "complete", ended.traceback
    return checkpoint.read(folder / "checkpoints" / "last.pt")["strategy"]["model"]


def assert_alike(found: dict[str, torch.Tensor], expected: dict[str, torch.Tensor]) -> None:
    for name, value in expected.items():
        assert torch.equal(found[name], value), name


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
class TestOnGpu:
    @pytest.mark.parametrize("case", RECORDED)
    def test_a_replayed_training_is_the_same(self, case: str, tmp_path: Path) -> None:
        model, training, plan = RECORDED[case]
        trained = {}
        for compile in ("none", "cuda_graphs"):
            base = experiment(compile)
            changed = experiment(
                model=model,
                training={**base.training.model_dump(exclude_unset=True), **training},
                plan={"compile": compile, "precision": "fp32", **plan},
            )
            trained[compile] = weights(tmp_path / compile, changed)
        assert_alike(trained["cuda_graphs"], trained["none"])
        assert Baseline().excess("r") is None, "recordings give their memory back"

    def test_a_layer_that_is_not_used_stays_as_it_is(self, tmp_path: Path) -> None:
        changes: dict[str, Any] = {
            "model": "tests.training.test_cuda_graphs:Both",
            "data": {
                "name": "tests.training.test_cuda_graphs:halves",
                "task": "classification",
                "num_outputs": 2,
            },
            "training": {"epochs": 4, "global_batch": 8, "lr": 0.01, "weight_decay": 0.5},
        }
        plain = weights(tmp_path / "plain", experiment("none", **changes))
        assert_alike(weights(tmp_path / "recorded", experiment(**changes)), plain)

    def test_a_stopped_training_goes_on_as_if_it_had_not_stopped(self, tmp_path: Path) -> None:
        whole = weights(tmp_path / "whole", experiment())
        saved: list[Event] = []

        def stop_after_two_epochs(event: Event) -> bool:
            saved.extend([event] if isinstance(event, CheckpointSaved) else [])
            return len(saved) == 2

        ended = train(tmp_path / "parts", experiment(), stop_after_two_epochs)
        assert ended.state == "stopped", ended
        assert_alike(weights(tmp_path / "parts", experiment()), whole)

    def test_a_model_that_waits_for_the_device_is_refused(self, tmp_path: Path) -> None:
        ended = train(tmp_path, experiment(model="tests.training.test_cuda_graphs:Looking"))
        assert ended.state == "failed"
        assert "cannot be recorded in CUDA graphs" in str(ended.message)
        # The worker is as it was.
        weights(tmp_path / "next", experiment())

    def test_a_probe_measures_both(self, tmp_path: Path) -> None:
        plans = tuple(
            PartialPlan.of(micro_batch=50, accumulation=2, compile=value)
            for value in ("none", "cuda_graphs")
        )
        task = TrialTask(
            "r",
            0,
            0,
            experiment(plan={}).model_dump_json(),
            folder=str(tmp_path),
            measurement=PlanProbe(plans),
        )
        events: list[PlanMeasured] = []
        ended = run_trial(task, events.append)  # type: ignore[arg-type, func-returns-value]
        assert ended.state == "complete", ended.message
        plain, recorded = events
        assert (plain.plan["compile"], recorded.plan["compile"]) == ("none", "cuda_graphs")
        assert plain.step_time_s is not None
        assert recorded.step_time_s is not None
        assert set(recorded.parts_s) == set(plain.parts_s)


class TestRecorder:
    def test_the_first_micro_batches_of_a_shape_are_computed_as_they_are(self) -> None:
        weight = torch.ones(2, requires_grad=True)
        marks: list[str] = []
        recorder = Recorder(
            lambda inputs, _, part: ((loss := (weight * inputs).sum()), loss * part), marks.append
        )
        for _ in range(NUM_AS_THEY_ARE):
            assert recorder.add_gradient(torch.tensor([1.0, 2.0]), None, 0.5).item() == 3.0
        assert weight.grad is not None
        assert weight.grad.tolist() == [0.5 * NUM_AS_THEY_ARE, NUM_AS_THEY_ARE]
        assert marks == ["forward", "backward"] * NUM_AS_THEY_ARE

    @pytest.mark.parametrize(
        "draw", [random.random, np.random.random, lambda: torch.rand(()).item()]
    )
    def test_a_model_that_draws_on_the_cpu_is_refused(self, draw: Callable[[], float]) -> None:
        weight = torch.ones(2, requires_grad=True)

        def drop(
            inputs: torch.Tensor, targets: Any, part: float
        ) -> tuple[torch.Tensor, torch.Tensor]:
            loss = (weight * inputs).sum() * float(draw() < 0.5)
            return loss, loss

        with pytest.raises(
            ExperimentError, match=r"plan.compile: .*draws random numbers on the CPU"
        ):
            Recorder(drop, lambda _: None).add_gradient(torch.ones(2), None, 1.0)


@pytest.mark.parametrize(
    ("plan", "hardware", "problem"),
    [
        ({}, Hardware(), "a CPU has no CUDA graphs"),
        ({"workers": 2}, GPU, "can only record a single worker"),
        ({"recompute": "blocks"}, GPU, "no recomputed blocks"),
        ({"strategy": "zero1"}, GPU, "can only record a single worker"),
        ({"strategy": "ddp"}, GPU, "can only record a single worker"),
    ],
)
def test_what_cannot_be_recorded_is_refused(
    plan: dict[str, Any], hardware: Hardware, problem: str
) -> None:
    written = experiment(plan={"compile": "cuda_graphs", **plan})
    with pytest.raises(
        ExperimentError, match=rf"plan.compile: .*{problem}.*allowed: auto, none, default"
    ):
        resolve(written, {}, hardware=hardware)


def test_one_worker_on_a_gpu_may_record() -> None:
    assert resolve(experiment(), {}, hardware=GPU).plan.compile == "cuda_graphs"


def choices(written: Experiment, hardware: Hardware = GPU) -> Any:
    return choices_of(written, num_train_samples=1000, max_workers=4, hardware=hardware)


def test_the_advisor_tries_it_on_one_gpu() -> None:
    offered = choices(experiment(plan={"precision": "fp32"}))
    assert offered.options["compile"] == ("none", "cuda_graphs")
    variants = [
        variant
        for variant in alternatives(offered.usual_variant, offered.options, "speed")
        if variant.get("compile") == "cuda_graphs"
    ]
    plans = list(enumerate_plans(offered, variants))
    assert {plan.workers for plan in plans} == {1}
    recorded = offered.usual_variant | PartialPlan.of(compile="cuda_graphs")
    assert all(
        each.get("recompute") == "none"
        for each in combinations(recorded, offered.options, "memory")
    )


@pytest.mark.parametrize(
    "changes",
    [
        {"model": "tests.training.test_cuda_graphs:Both"},
        {"loss": "tests.training.test_cuda_graphs:mean_entropy"},
        {"model": None, "train": "tests.builders.adversaries:Alone"},
    ],
)
def test_the_advisor_does_not_try_it_with_code_that_may_compute_something_else_each_time(
    changes: dict[str, Any],
) -> None:
    assert choices(experiment(plan={"precision": "fp32"}, **changes)).options["compile"] == (
        "none",
    )


def test_a_cpu_is_not_tried() -> None:
    assert choices(experiment(plan={}), Hardware()).options["compile"] == ("none",)


def test_a_trial_without_memory_gets_smaller_micro_batches() -> None:
    plan = PartialPlan.of(
        workers=1,
        micro_batch=8,
        accumulation=1,
        strategy="single",
        recompute="none",
        compile="cuda_graphs",
    )
    tried: list[PartialPlan] = []
    while (way := next_way(plan, changeable=WAYS, has_blocks=True, tried=tried)) and len(tried) < 3:
        tried.append(way)
        plan |= way
    assert tried
    assert all("micro_batch" in way for way in tried)
