"""Gradients are exchanged in pieces of the size that a plan states."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from test_data_parallel import GLOBAL_BATCH, OPTIMIZERS, Net, train
from torch.nn import functional

from tests.advisor.test_plans import choose, make_experiment
from workbench.advisor.plan_variants import alternatives
from workbench.advisor.plans import enumerate_plans
from workbench.foundation.errors import ExperimentError
from workbench.training.exchanges import EXCHANGES
from workbench.training.exchanges.capabilities import capabilities_of
from workbench.training.planning.settings import resolve
from workbench.training.strategies.ddp import DataParallel
from workbench.training.strategies.strategy import StepSettings, Worker
from workbench.training.strategies.worker_group import Group


def num_buckets(bucket_bytes: int | None) -> tuple[int, list[float]]:
    worker = Worker(group=Group())
    torch.manual_seed(0)
    strategy = DataParallel(StepSettings(loss=functional.cross_entropy, bucket_bytes=bucket_bytes))
    strategy.setup(Net(), OPTIMIZERS["sgd"], worker)
    strategy.train(True)
    losses = train(strategy, worker, GLOBAL_BATCH, range(3))
    placed: Any = strategy._trained
    sizes = placed._get_ddp_logging_data()["rebuilt_bucket_sizes"].split(",")
    strategy.close()
    worker.group.close()
    return len(sizes), losses


def test_smaller_buckets_are_more_and_the_step_stays() -> None:
    (usual, losses), (many, same), (one, _) = (num_buckets(each) for each in (None, 300_000, 10**8))
    assert one == 1 <= usual < many
    assert same == losses


def test_a_size_is_described_searched_and_advised() -> None:
    experiment = make_experiment(
        search={"bucket": {"choices": ["default", "5MB"]}}, plan={"workers": 2}
    )
    plan = resolve(experiment, {"bucket": "5MB"}).plan
    assert plan.describe().endswith("ddp, buckets of 5MB")
    choices = choose(experiment)
    variants = [
        choices.usual_variant,
        *alternatives(choices.usual_variant, choices.options, "speed"),
    ]
    assert {each.bucket for each in enumerate_plans(choices, variants)} == {"default", "5MB"}


def test_a_size_is_refused_where_there_are_no_buckets() -> None:
    with pytest.raises(ExperimentError, match=r"plan\.bucket: the strategy fsdp does not exchange"):
        resolve(make_experiment(plan={"bucket": "5MB", "workers": 2, "strategy": "fsdp"}), {})
    resolve(make_experiment(plan={"bucket": "5MB", "workers": 2, "strategy": "zero1"}), {})
    with pytest.raises(ExperimentError, match=r"plan\.bucket: the exchange local does not send"):
        resolve(make_experiment(plan={"bucket": "5MB", "workers": 2, "exchange": "local"}), {})


@pytest.mark.parametrize("name", EXCHANGES.names())
def test_an_exchange_by_bucket_is_one_that_takes_them(name: str) -> None:
    assert capabilities_of(name).is_by_bucket == hasattr(EXCHANGES.load(name, field=None), "reduce")
