"""Several workers that compute on GPUs.

Each on one of its own, or all on the same one where there is one.
"""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.builders.ways import OF_REPLICAS, OF_SEVERAL
from tests.services.process_group import run_together
from workbench.advisor.exchange_forecast import forecast_exchanges
from workbench.experiment import Experiment
from workbench.experiment.plan import PartialPlan
from workbench.foundation.events import CheckpointSaved, Event, PlanMeasured, TrialEnded
from workbench.training.exchanges import EXCHANGES
from workbench.training.probes.measurements import PlanProbe
from workbench.training.strategies.capabilities import capabilities_of
from workbench.training.trial import run_trial
from workbench.training.worker_task import TrialTask

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU"),
]

PRODUCTS: tuple[dict[str, Any], ...] = (
    {"strategy": "pipeline", "stages": 2, "shard": 2},
    {"strategy": "tensor", "tensor": 2},
    {"strategy": "tensor", "tensor": 2, "shard": 2},
    {"strategy": "fsdp", "shard": 2},
)
NUM_GPUS = torch.cuda.device_count()
OTHER_EXCHANGES = tuple(name for name in EXCHANGES.names() if name != "allreduce")


def of_two(strategy: str) -> Any:
    """Return a case, skipped where NCCL, which its strategy needs, has too few GPUs."""
    needs_nccl = (
        capabilities_of(strategy).takes_shard and capabilities_of(strategy).axis != "stages"
    )
    too_few = pytest.mark.skipif(
        needs_nccl and NUM_GPUS < 2, reason="needs a GPU for each of 2 workers"
    )
    return pytest.param(strategy, marks=too_few)


def divided(strategy: str, num_workers: int = 2) -> dict[str, Any]:
    """Return a plan of a strategy.

    Where it divides the model, all workers hold one copy together.
    """
    axis = capabilities_of(strategy).axis
    return {"strategy": strategy, "workers": num_workers} | (
        {} if axis is None else {axis: num_workers}
    )


def described(plan: dict[str, Any], epochs: int = 4) -> str:
    return Experiment(
        model={"name": "mlp", "hidden_width": 128, "num_layers": 3},
        data="digits",
        objectives=[{"metric": "val_loss", "goal": "minimize"}],
        metrics=["accuracy"],
        training={
            "epochs": epochs,
            "global_batch": 64,
            "lr": 0.003,
            "optimizer": "adamw",
            "clip_norm": 1.0,
        },
        plan={"precision": "fp32", "micro_batch": 8, **plan},
    ).model_dump_json()


def train(
    rank: int,
    num_workers: int,
    meeting: str | None,
    text: str,
    folder: str,
    *,
    stops_after: int | None = None,
) -> TrialEnded:
    """Train as one of the workers, to the end or until the checkpoint after so many steps is
    saved.
    """
    torch.cuda.set_device(rank % NUM_GPUS)

    def is_last(event: Event) -> bool:
        return (
            stops_after is not None
            and isinstance(event, CheckpointSaved)
            and event.step >= stops_after
        )

    task = TrialTask(
        "run",
        0,
        0,
        text,
        seed=5,
        folder=folder,
        resume=True,
        rank=rank,
        num_workers=num_workers,
        meeting=meeting,
    )
    return run_trial(task, is_last)


def values_alone(folder: Path, plan: dict[str, Any] | None = None) -> dict[str, float]:
    ended = train(0, 1, None, described({"workers": 1} | (plan or {})), str(folder / "alone"))
    assert ended.state == "complete", ended.message
    return ended.values


def values_together(
    folder: Path, plan: dict[str, Any], num_workers: int, *, stops_after: int | None = None
) -> dict[str, float]:
    text = described({"workers": num_workers} | plan)
    ended = run_together(
        functools.partial(train, stops_after=stops_after),
        num_workers,
        text,
        str(folder / "together"),
    )[0]
    assert ended.state == ("complete" if stops_after is None else "stopped"), ended.message
    return ended.values


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("strategy", [*map(of_two, OF_SEVERAL)])
def test_two_workers_train_what_one_trains(strategy: str, precision: str, tmp_path: Path) -> None:
    together = values_together(tmp_path, divided(strategy) | {"precision": precision}, 2)
    alone = values_alone(tmp_path, {"precision": precision})
    assert together["val_loss"] == pytest.approx(
        alone["val_loss"], rel=1e-3 if precision == "fp32" else 5e-2
    )


@pytest.mark.skipif(NUM_GPUS < 4, reason="NCCL needs a GPU for each of 4 workers")
@pytest.mark.parametrize("plan", PRODUCTS, ids=lambda plan: "-".join(map(str, plan.values())))
def test_ways_that_divide_a_model_together_train_what_one_worker_trains(
    plan: dict[str, Any], tmp_path: Path
) -> None:
    together = values_together(tmp_path, plan, 4)
    assert together["val_loss"] == pytest.approx(values_alone(tmp_path)["val_loss"], rel=1e-3)


def test_replicas_of_stages_train_what_one_worker_trains(tmp_path: Path) -> None:
    together = values_together(tmp_path, {"strategy": "pipeline", "stages": 2}, 4)
    assert together["val_loss"] == pytest.approx(values_alone(tmp_path)["val_loss"], rel=1e-3)


@pytest.mark.parametrize("strategy", [*map(of_two, OF_REPLICAS)])
def test_blocks_that_are_computed_again_change_nothing(strategy: str, tmp_path: Path) -> None:
    together = values_together(tmp_path, divided(strategy) | {"recompute": "blocks"}, 2)
    assert together["val_loss"] == pytest.approx(values_alone(tmp_path)["val_loss"], rel=1e-3)


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("schedule", ["gpipe", "zero_bubble"])
def test_stages_train_the_same_in_any_order(schedule: str, precision: str, tmp_path: Path) -> None:
    plan = divided("pipeline") | {"pipeline_schedule": schedule, "precision": precision}
    together = values_together(tmp_path, plan, 2)
    alone = values_alone(tmp_path, {"precision": precision})
    assert together["val_loss"] == pytest.approx(
        alone["val_loss"], rel=1e-3 if precision == "fp32" else 5e-2
    )


@pytest.mark.skipif(NUM_GPUS > 1, reason="no two workers share a GPU")
@pytest.mark.parametrize("strategy", ["fsdp", "tensor"])
def test_workers_that_share_a_gpu_cannot_divide_parameters(strategy: str, tmp_path: Path) -> None:
    text = described(divided(strategy))
    for ended in run_together(train, 2, text, str(tmp_path)):
        assert ended.state == "failed"
        assert str(ended.message).startswith("resources.gpus_per_worker: workers that share a GPU")


@pytest.mark.parametrize("exchange", OTHER_EXCHANGES)
def test_replicas_learn_with_every_exchange(exchange: str, tmp_path: Path) -> None:
    together = values_together(tmp_path, {"strategy": "ddp", "exchange": exchange}, 2)
    assert together["val_accuracy"] > 0.75


@pytest.mark.parametrize("strategy", [*map(of_two, OF_SEVERAL)])
def test_one_worker_continues_what_two_began(strategy: str, tmp_path: Path) -> None:
    values_together(tmp_path, divided(strategy), 2, stops_after=40)
    ended = train(0, 1, None, described({"workers": 1}), str(tmp_path / "together"))
    assert ended.state == "complete", ended.message
    assert ended.values["val_loss"] == pytest.approx(values_alone(tmp_path)["val_loss"], rel=1e-3)


def probe_ddp(rank: int, num_workers: int, meeting: str, folder: str) -> list[PlanMeasured]:
    torch.cuda.set_device(rank % NUM_GPUS)
    events: list[Event] = []
    task = TrialTask(
        "run",
        0,
        0,
        described({"workers": num_workers}),
        folder=folder,
        rank=rank,
        num_workers=num_workers,
        meeting=meeting,
        measurement=PlanProbe((PartialPlan.of(strategy="ddp", micro_batch=32),)),
    )
    ended = run_trial(task, lambda event: events.append(event) is not None)
    assert ended.state == "complete", ended.message
    return [each for each in events if isinstance(each, PlanMeasured)]


def test_one_probe_predicts_the_steps_of_every_exchange(tmp_path: Path) -> None:
    measured = run_together(probe_ddp, 2, str(tmp_path))[0]
    assert measured[0].all_reduce_s
    assert all(seconds > 0.0 for seconds in measured[0].all_reduce_s.values())
    forecasts = {each.exchange: each for each in forecast_exchanges(measured)}
    assert forecasts.keys() == set(EXCHANGES.names()) - {"hierarchical"}
    for forecast in forecasts.values():
        assert (
            0.0
            < forecast.step_time_s.low
            <= forecast.step_time_s.value
            <= forecast.step_time_s.high
        )
