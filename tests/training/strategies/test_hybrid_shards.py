"""Replicas divide a copy of the parameters, also of stages and parts.

The step is that of one worker.
"""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import pytest
import torch
from pydantic import ValidationError
from test_data_parallel import GLOBAL_BATCH, OPTIMIZERS, Net, make, source, train
from torch.distributed.tensor import DTensor
from torch.nn import functional

from tests.advisor.test_plans import choose, make_experiment
from tests.builders.ways import OF_REPLICAS, OF_SEVERAL, worker_of
from tests.services.process_group import run_together
from workbench.advisor.plan_variants import alternatives
from workbench.advisor.plans import enumerate_plans
from workbench.experiment.plan import PartialPlan, Plan
from workbench.foundation.errors import ExperimentError
from workbench.training.planning.equivalent_plans import with_workers
from workbench.training.planning.settings import resolve
from workbench.training.probes.memory_estimate import estimate_memory
from workbench.training.strategies import STRATEGIES
from workbench.training.strategies.capabilities import capabilities_of
from workbench.training.strategies.strategy import NoiseMeasuring, StepSettings, Strategy, Worker
from workbench.training.strategies.worker_group import Group
from workbench.training.tensor_source import WorkerBatch

NUM_WORKERS, SHARD = 4, 2
NAMES = tuple(name for name in OF_SEVERAL if capabilities_of(name).takes_shard)
OTHERS = {name: OF_SEVERAL[number :: len(NAMES)] for number, name in enumerate(NAMES)}
"""Where a state of each is continued.

It is that of one worker, so that each of the others takes one.
"""
CASES: list[Any] = [
    (name, *rest) for name in NAMES for rest in ((12, "sgd", None), (5, "adamw", 0.5))
]


def divided(name: str, worker: Worker, optimizer: str, clip_norm: float | None = None) -> Strategy:
    torch.manual_seed(0)
    strategy: Strategy = STRATEGIES.load(name)(
        StepSettings(loss=functional.cross_entropy, clip_norm=clip_norm, shard=SHARD)
    )
    strategy.setup(Net(), OPTIMIZERS[optimizer], worker)
    strategy.train(True)
    return strategy


def member(name: str, rank: int, group: Group) -> Worker:
    return worker_of(name, rank, NUM_WORKERS, group, per_replica=2)


def train_all(rank: int, group: Group) -> list[Any]:
    trained = []
    for name, micro_batch, optimizer, clip_norm in CASES:
        worker = member(name, rank, group)
        strategy = divided(name, worker, optimizer, clip_norm)
        losses = train(strategy, worker, micro_batch)
        parameters = list(strategy._model.parameters())  # type: ignore[attr-defined]
        held = sum(each.to_local().numel() for each in parameters if isinstance(each, DTensor))
        part = held / sum(each.numel() for each in parameters)
        state = strategy.state()
        trained.append((losses, part, state["model"] if rank == 0 else None))
        strategy.close()
    return trained


def hand_over(rank: int, group: Group, saved: bytes) -> dict[str, bytes]:
    """Continue a state of one worker here, and what comes of it in every other strategy."""
    handed = {}
    for name in NAMES:
        worker = member(name, rank, group)
        strategy = divided(name, worker, "adamw")
        strategy.load(torch.load(io.BytesIO(saved), weights_only=False))
        train(strategy, worker, 6, range(2, 4))
        sent = group.broadcast(written(strategy.state()))
        strategy.close()
        for other in OTHERS[name]:
            theirs = member(other, rank, group)
            continued = make(other, theirs, optimizer="adamw")
            continued.load(torch.load(io.BytesIO(sent), weights_only=False))
            train(continued, theirs, 6, range(4, 6))
            reached = continued.state()["model"]
            handed[f"{name} {other}"] = written(reached if rank == 0 else {})
            continued.close()
    return handed


def written(state: dict[str, Any]) -> bytes:
    kept = io.BytesIO()
    torch.save(state, kept)
    return kept.getvalue()


def measure(worker: Worker, strategy: Strategy) -> list[float]:
    assert isinstance(strategy, NoiseMeasuring)
    indices = np.arange(GLOBAL_BATCH)
    batch = WorkerBatch(
        source(), indices, micro_batch=3, replica=worker.replica, num_replicas=worker.num_replicas
    )
    norms = worker.group.total(strategy.measure(batch).sqr_norms).tolist()
    strategy.close()
    return norms


def train_all_of(rank: int, num_workers: int, meeting: str) -> list[Any]:
    group = Group(rank, num_workers, None, meeting)
    trained = train_all(rank, group)
    group.close()
    return trained


def continue_and_measure(rank: int, num_workers: int, meeting: str, saved: bytes) -> Any:
    group = Group(rank, num_workers, None, meeting)
    worker = Worker(rank, num_workers, group=group)
    continued = (
        hand_over(rank, group, saved),
        [measure(worker, divided(name, worker, "sgd")) for name in NAMES if name in OF_REPLICAS],
        measure(worker, make("ddp", worker)),
    )
    group.close()
    return continued


@pytest.fixture(scope="module")
def trained() -> list[Any]:
    return run_together(train_all_of, NUM_WORKERS)[0]


@pytest.fixture(scope="module")
def together() -> Any:
    alone = make("single", Worker(), optimizer="adamw")
    train(alone, Worker(), GLOBAL_BATCH, range(2))
    return run_together(continue_and_measure, NUM_WORKERS, written(alone.state()))[0]


@pytest.mark.slow
def test_workers_that_hold_two_copies_train_like_one(trained: list[Any]) -> None:
    for case, (losses, part, model) in zip(CASES, trained, strict=True):
        _, _, optimizer, clip_norm = case
        alone = make("single", Worker(), optimizer=optimizer, clip_norm=clip_norm)
        assert losses == pytest.approx(train(alone, Worker(), GLOBAL_BATCH), rel=2e-5), case
        assert part == pytest.approx(1 / SHARD, rel=0.1), "each holds its part of one copy"
        for name, values in alone.state()["model"].items():
            torch.testing.assert_close(model[name], values, rtol=1e-4, atol=1e-5)


@pytest.mark.slow
def test_a_state_of_one_worker_continues_and_then_in_any_strategy(together: Any) -> None:
    alone = make("single", Worker(), optimizer="adamw")
    train(alone, Worker(), GLOBAL_BATCH)
    expected, state = alone.state()["model"], together[0]
    assert set(state) == {f"{name} {other}" for name in NAMES for other in OTHERS[name]}
    for way, saved in state.items():
        for name, values in torch.load(io.BytesIO(saved)).items():
            torch.testing.assert_close(
                values, expected[name], rtol=1e-4, atol=1e-5, msg=f"{way}: {name}"
            )


@pytest.mark.slow
def test_the_gradient_noise_is_that_of_whole_copies(together: Any) -> None:
    _, divided_norms, whole = together
    for norms in divided_norms:
        assert norms == pytest.approx(whole, rel=1e-4)


def test_workers_grow_by_whole_copies_only() -> None:
    plan = PartialPlan.of(workers=2, micro_batch=12, accumulation=2, strategy="fsdp", shard=2)
    assert with_workers(plan, 3) is None
    grown = with_workers(plan, 4)
    assert grown is not None
    assert (plan | grown).global_batch == plan.global_batch
    staged = PartialPlan.of(
        workers=4, micro_batch=12, accumulation=2, strategy="pipeline", stages=2, shard=2
    )
    assert with_workers(staged, 6) is None
    grown = with_workers(staged, 8)
    assert grown is not None
    assert (staged | grown).global_batch == staged.global_batch


def resolved(**plan: Any) -> Plan:
    return resolve(make_experiment(plan=plan), {}, num_train_samples=1000).plan


def test_shards_choose_their_strategy_and_their_workers() -> None:
    plan = resolved(shard=2)
    assert (plan.strategy, plan.workers, plan.replicas) == ("fsdp", 2, 2)
    plan = resolved(shard=2, workers=4, strategy="pipeline")
    assert (plan.stages, plan.replicas) == (2, 2)
    assert resolved(shard=2, tensor=2).workers == 4
    assert resolved(shard=2, workers=4).describe().endswith("fsdp, shards on 2 workers")
    assert "shard" not in resolved(workers=2, strategy="fsdp").to_json()
    assert Plan.from_json(plan.to_json()) == plan


@pytest.mark.parametrize(
    ("plan", "message"),
    [
        (
            {"shard": 2, "workers": 2, "strategy": "ddp"},
            r"plan\.shard: the strategy ddp cannot divide",
        ),
        ({"shard": 2, "workers": 3}, r"plan\.shard: 3 workers cannot be grouped by 2"),
        (
            {"shard": 2, "workers": 6, "stages": 2},
            r"plan\.shard: 3 replicas cannot be grouped by 2",
        ),
        ({"shard": 1, "workers": 2}, r"plan\.shard"),
    ],
)
def test_shards_that_cannot_be_are_refused_in_words(plan: dict[str, Any], message: str) -> None:
    with pytest.raises((ExperimentError, ValidationError), match=message):
        resolved(**plan)


def test_the_advisor_measures_shards_where_they_are_given() -> None:
    choices = choose(make_experiment(plan={"shard": 2}))
    assert choices.options["strategy"] == ("fsdp",)
    plans = list(enumerate_plans(choices, [choices.usual_variant]))
    assert plans
    assert {plan.workers for plan in plans} == {2, 4}
    assert all(plan.shard == 2 for plan in plans)


def test_the_advisor_tries_shards_of_stages_and_parts_where_there_are_replicas() -> None:
    for name, axis in (("pipeline", "stages"), ("tensor", "tensor")):
        choices = choose(make_experiment(plan={"strategy": name}, training={"global_batch": 64}))
        variants = [
            choices.usual_variant,
            *alternatives(choices.usual_variant, choices.options, "memory"),
        ]
        plans = {
            (plan.workers, getattr(plan, axis), plan.shard)
            for plan in enumerate_plans(choices, variants)
        }
        assert plans == {(2, 2, 0), (4, 2, 0), (4, 2, 2), (4, 4, 0)}


@pytest.mark.slow
def test_a_part_of_the_workers_holds_more_than_a_part_of_all() -> None:
    experiment = make_experiment(
        model={"name": "mlp", "options": {"hidden_width": 512}},
        training={"optimizer": "adamw", "clip_norm": 1.0},
    )
    whole, half, quarter = (
        estimate_memory(
            experiment, {}, (8,), plan=PartialPlan.of(workers=4, strategy="fsdp", **shard)
        ).steps[0]
        for shard in ({"shard": 4}, {"shard": 2}, {})
    )
    assert whole.optimizer_bytes == quarter.optimizer_bytes
    assert half.optimizer_bytes == pytest.approx(2 * quarter.optimizer_bytes, rel=0.02)
    for axis in ("stages", "tensor"):
        plan = PartialPlan.of(workers=4, **{axis: 2})
        held, divided = (
            estimate_memory(experiment, {}, (8,), plan=each).steps[0]
            for each in (plan, plan | PartialPlan.of(shard=2))
        )
        assert divided.optimizer_bytes == pytest.approx(held.optimizer_bytes / 2, rel=0.02)
        assert divided.parameters_bytes == pytest.approx(held.parameters_bytes / 2, rel=0.02)
