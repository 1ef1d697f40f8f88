"""A model whose layers are cut into parts makes the steps of one worker, also with several copies
of it.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from test_data_parallel import OPTIMIZERS
from test_sequence import make as make_zoo
from torch import nn
from torch.nn import functional

from tests.builders.ways import worker_of
from tests.services.process_group import run_together
from workbench.foundation.errors import ExperimentError
from workbench.training.strategies.single import Single
from workbench.training.strategies.strategy import MicroBatch, StepSettings, Strategy, Worker
from workbench.training.strategies.tensor import RowOrder, TensorParallel, prepare_cut
from workbench.training.strategies.worker_group import Group


def train(strategy: Strategy, worker: Worker) -> dict[str, Any]:
    model, _ = make_zoo("transformer")
    strategy.setup(model, OPTIMIZERS["adamw"], worker)
    strategy.train(False)  # dropout differs with the shapes of what is dropped
    generator = torch.Generator().manual_seed(2)
    losses = []
    for _ in range(3):
        tokens = torch.randint(0, 10, (12, 7), generator=generator)
        targets = torch.randint(0, 10, (12,), generator=generator)
        batch: Any = [
            MicroBatch(tokens[part], targets[part], len(part) / 12)
            for part in torch.arange(12).chunk(worker.num_replicas)[worker.replica].chunk(2)
        ]
        losses.append(worker.group.total(strategy.forward_backward(batch)).item())
        strategy.update(0.05)
    outputs = strategy.predict(tokens)
    results = {"losses": losses, "outputs": outputs, "state": strategy.state()}
    strategy.close()
    return results


def loss(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    return functional.cross_entropy(outputs.mean(dim=1) if outputs.ndim == 3 else outputs, targets)


def settings(**fields: Any) -> StepSettings:
    return StepSettings(loss=loss, clip_norm=0.5, **fields)


def train_parts(
    rank: int, num_workers: int, meeting: str, shard: int, num_other_groups: int = 0
) -> dict[str, Any]:
    group = Group(rank, num_workers, None, meeting)
    for _ in range(num_other_groups):
        group.part(range(num_workers))
    trained = train(
        TensorParallel(settings(shard=shard)),
        worker_of("tensor", rank, num_workers, group, per_replica=2),
    )
    group.close()
    return trained


@pytest.mark.slow
def test_a_warm_worker_uses_no_group_of_an_earlier_trial() -> None:
    # Torch numbers groups from 0 again once all were left, and keeps numbers with what it knows of
    # meshes.
    before, after = (run_together(train_parts, 4, 2, num_others)[0] for num_others in (5, 0))
    assert before["losses"] == after["losses"]


@pytest.mark.parametrize(
    ("num_workers", "shard"), [(2, 0), pytest.param(4, 0, marks=pytest.mark.slow), (4, 2)]
)
def test_heads_and_hidden_units_in_parts_compute_what_one_worker_computes(
    num_workers: int, shard: int
) -> None:
    expected = train(Single(settings()), Worker())
    answers = run_together(train_parts, num_workers, shard)
    for rank, answer in enumerate(answers):
        assert answer["losses"] == pytest.approx(expected["losses"], rel=1e-5)
        if rank % 2:
            assert answer["outputs"] is None, "one worker of a replica has them"
        else:
            torch.testing.assert_close(answer["outputs"], expected["outputs"], rtol=1e-4, atol=1e-5)
    for name, values in expected["state"]["model"].items():
        torch.testing.assert_close(answers[0]["state"]["model"][name], values, rtol=1e-4, atol=1e-5)
    for number, values in expected["state"]["optimizer"]["state"].items():
        moments = answers[0]["state"]["optimizer"]["state"][number]
        for name, value in values.items():
            torch.testing.assert_close(moments[name], value, rtol=1e-3, atol=1e-5)


def hold(rank: int, num_workers: int, meeting: str) -> tuple[int, int]:
    group = Group(rank, num_workers, None, meeting)
    model, _ = make_zoo("transformer")
    whole = sum(
        each.numel() for name, each in model.named_parameters() if name.startswith("blocks")
    )
    strategy = TensorParallel(settings(recompute=True))
    strategy.setup(model, OPTIMIZERS["sgd"], worker_of("tensor", rank, num_workers, group))
    named = zip(strategy._names, strategy._own, strict=True)
    held = sum(each.numel() for name, each in named if name.startswith("blocks"))
    strategy.close()
    group.close()
    return held, whole


def test_each_worker_holds_a_part_of_the_blocks() -> None:
    for held, whole in run_together(hold, 2):
        assert whole / 2 < held < 0.6 * whole


@given(st.integers(1, 4), st.integers(1, 4), st.integers(1, 3), st.sampled_from([(), (2,)]))
def test_rows_are_arranged_for_a_cut_and_restored(
    num_blocks: int, num_parts: int, size: int, rest: tuple[int, ...]
) -> None:
    order, num_rows = RowOrder(num_blocks, num_parts), num_blocks * num_parts * size
    rows = torch.arange(num_rows).reshape(-1, *(1 for _ in rest)).expand(num_rows, *rest)
    arranged = order.arrange(rows)
    assert torch.equal(order.restore(arranged), rows)
    for part, own in enumerate(arranged.chunk(num_parts)):
        of_blocks = [block.chunk(num_parts)[part] for block in rows.chunk(num_blocks)]
        assert torch.equal(own, torch.cat(of_blocks))


def test_layers_of_a_sequence_are_cut_in_pairs_between_which_there_are_activations_only() -> None:
    model = nn.Sequential(
        nn.Linear(4, 4),
        nn.BatchNorm1d(4),
        nn.Linear(4, 6),
        nn.ReLU(),
        nn.Linear(6, 4),
        nn.Linear(4, 2),
    )
    assert prepare_cut(model, 2) == [("2", "4", 1)]


def tied() -> nn.Module:
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4))
    model[2].weight = model[0].weight
    return model


@pytest.mark.parametrize(
    ("model", "num_parts", "problem"),
    [
        (nn.LSTM(2, 2), 2, "a LSTM"),
        (
            nn.Sequential(nn.Linear(4, 4), nn.LayerNorm(4), nn.Linear(4, 4)),
            2,
            "no pair of linear layers",
        ),
        (nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 4)), 4, "0 has 6 outputs"),
        (tied(), 2, "shares its weights"),
        (make_zoo("transformer")[0], 4, "2 heads"),
    ],
)
def test_what_cannot_be_cut_is_refused(model: nn.Module, num_parts: int, problem: str) -> None:
    with pytest.raises(ExperimentError, match=problem) as caught:
        prepare_cut(model, num_parts)
    assert caught.value.field == "plan.tensor"


@pytest.mark.parametrize(
    ("fields", "field"),
    [({"precision": "fp16"}, "plan.precision"), ({"compiles": True}, "plan.compile")],
)
def test_what_parts_cannot_do_is_refused(fields: dict[str, Any], field: str) -> None:
    with pytest.raises(ExperimentError) as caught:
        TensorParallel(settings(**fields)).setup(nn.Linear(2, 2), OPTIMIZERS["sgd"], Worker())
    assert caught.value.field == field
