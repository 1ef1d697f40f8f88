"""Replicas that agree by any exchange stay alike, lose nothing of a sum, and learn."""

from __future__ import annotations

import io
import itertools
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from tests.services.process_group import run_together
from workbench.data import load
from workbench.data.splits import ArraySplit
from workbench.experiment.plan import PartialPlan, Plan
from workbench.training.exchanges import EXCHANGES
from workbench.training.exchanges.allreduce import Hierarchical
from workbench.training.exchanges.capabilities import BUILT_IN, capabilities_of, with_options
from workbench.training.exchanges.error_feedback import ErrorFeedback
from workbench.training.exchanges.exchange import Exchange
from workbench.training.exchanges.local import DiLoCo, LocalSteps, together
from workbench.training.strategies import STRATEGIES
from workbench.training.strategies.strategy import StepSettings, Strategy, Worker
from workbench.training.strategies.weight_mean import MovingMean
from workbench.training.strategies.worker_group import Group
from workbench.training.tensor_source import Source, WorkerBatch

NAMES = EXCHANGES.names()
EXACT = [name for name in NAMES if capabilities_of(name).is_exact]
KEEPING = [name for name in NAMES if issubclass(EXCHANGES.load(name), ErrorFeedback)]
REPEATABLE = [name for name in NAMES if name != "asynchronous"]
"""Those in which a replica sees the same steps of the others each time."""
NUM_SAMPLES, GLOBAL_BATCH, WIDTH = 61, 24, 40
MICRO_BATCH = 5


def plan_of(exchange: str, **options: int) -> Plan:
    values = with_options(
        PartialPlan.of(workers=3, micro_batch=1, accumulation=1, exchange=exchange, **options)
    )
    plan = values.complete()
    assert plan is not None
    return plan


def make(
    exchange: Exchange | None, worker: Worker, other: type[nn.Module] | None = None
) -> Strategy:
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Linear(6, WIDTH), nn.Tanh(), nn.Linear(WIDTH, WIDTH), nn.Tanh(), nn.Linear(WIDTH, 3)
    )
    strategy: Strategy = STRATEGIES.load("ddp" if worker.num_workers > 1 else "single")(
        StepSettings(loss=functional.cross_entropy, exchange=exchange)
    )
    trained = model if other is None else other()
    strategy.setup(trained, lambda each: torch.optim.SGD(each, lr=0.5, momentum=0.9), worker)
    strategy.train(True)
    return strategy


def train(strategy: Strategy, worker: Worker, steps: range) -> None:
    """Train steps that visit all samples in order, the last of each epoch smaller."""
    rng = np.random.default_rng(0)
    inputs = rng.normal(size=(NUM_SAMPLES, 6)).astype(np.float32)
    samples = Source(ArraySplit(inputs, rng.integers(0, 3, NUM_SAMPLES)), torch.device("cpu"))
    cuts = [
        np.arange(NUM_SAMPLES)[first : first + GLOBAL_BATCH]
        for first in range(0, NUM_SAMPLES, GLOBAL_BATCH)
    ]
    for step in steps:
        batch = WorkerBatch(
            samples,
            cuts[step % len(cuts)],
            micro_batch=MICRO_BATCH,
            replica=worker.replica,
            num_replicas=worker.num_replicas,
        )
        strategy.forward_backward(batch)
        strategy.update(0.1)


class Plain(DiLoCo):
    """The outer optimizer takes the mean as it is."""

    outer_rate, outer_momentum = 1.0, 0.0


class Pretended(Hierarchical):
    """Two nodes, of which the first has two replicas."""

    def _node(self, rank: int) -> str:
        return "first" if rank < 2 else "second"


def loaded(name: str) -> Any:
    made = {"hierarchical": Pretended, "plain": Plain}
    return made[name] if name in made else EXCHANGES.load(name)


def train_together(
    rank: int, num_workers: int, meeting: str, cases: list[tuple[str, dict[str, int]]]
) -> Any:
    group = Group(rank, num_workers, None, meeting)
    worker, losses = Worker(rank, num_workers, group=group), []
    for name, options in cases:
        strategy = make(loaded(name)(plan_of(name, **options)), worker)
        train(strategy, worker, range(3))
        strategy.train(False)
        losses.append({key: value.clone() for key, value in strategy.state()["model"].items()})
        strategy.close()
    group.close()
    return losses


LIKE_SYNCHRONOUS = [
    *((name, {}) for name in EXACT),
    ("topk", {"exchange_compression": 1}),
    ("local", {"exchange_period": 1}),
    ("plain", {"exchange_period": 1}),
    ("server", {}),
    ("server", {"exchange_servers": 2}),
    ("server", {"exchange_servers": 3}),
]


def test_exact_exchanges_make_the_step_of_one_worker_and_all_keep_replicas_alike() -> None:
    inexact = [(name, {}) for name in NAMES if name not in EXACT]
    cases = [
        *LIKE_SYNCHRONOUS,
        *inexact,
        ("server", {"exchange_staleness": 2, "exchange_servers": 2}),
    ]
    replicas = run_together(train_together, 3, cases)
    alone = make(None, Worker())
    train(alone, Worker(), range(3))
    for number, (name, _) in enumerate(cases):
        for key, expected in alone.state()["model"].items():
            first = replicas[0][number][key]
            for other in replicas[1:]:
                assert torch.equal(first, other[number][key]), f"{name}: replicas differ in {key}"
            if number < len(LIKE_SYNCHRONOUS):
                torch.testing.assert_close(first, expected, rtol=1e-4, atol=1e-5)


class Buckets:
    """What an exchange is given of torch."""

    def __init__(self, gradients: Tensor, parameters: list[Tensor]) -> None:
        self._gradients, self._parameters = gradients, parameters

    def buffer(self) -> Tensor:
        return self._gradients

    def parameters(self) -> list[Tensor]:
        return self._parameters


def send_sums(rank: int, num_workers: int, meeting: str, names: list[str]) -> list[Any]:
    group, sums = Group(rank, num_workers, None, meeting), []
    for name in names:
        parameters = {
            "weight": nn.Parameter(torch.zeros(20, 30)),
            "bias": nn.Parameter(torch.zeros(7)),
        }
        exchange: Any = EXCHANGES.load(name)(plan_of(name))
        exchange.setup(parameters, group)
        generator = torch.Generator().manual_seed(rank)
        wanted, sent = torch.zeros(607), torch.zeros(607)
        for step in range(9):
            gradients = torch.randn(607, generator=generator)
            wanted += gradients
            # Torch forms other buckets after the first step.
            order = [["weight", "bias"]] if step == 0 else [["bias"], ["weight"]]
            for names_of_bucket in order:
                where = {"weight": slice(0, 600), "bias": slice(600, 607)}
                taken = torch.cat([gradients[where[each]] for each in names_of_bucket])
                bucket = Buckets(taken, [parameters[each] for each in names_of_bucket])
                mean = (
                    exchange.reduce(bucket)
                    .wait()
                    .split([parameters[each].numel() for each in names_of_bucket])
                )
                for parameter, part in zip(names_of_bucket, mean, strict=True):
                    sent[where[parameter]] += part
        residual = torch.cat(list(exchange.residuals().values()))
        sums.append((wanted, sent, residual))
    group.close()
    return sums


@pytest.mark.parametrize("num_workers", [2, 3])
def test_a_sum_that_was_sent_lacks_no_more_than_the_residuals(num_workers: int) -> None:
    replicas = run_together(send_sums, num_workers, KEEPING)
    for number, name in enumerate(KEEPING):
        wanted = torch.stack([found[number][0] for found in replicas]).mean(0)
        residual = torch.stack([found[number][2] for found in replicas]).mean(0)
        for replica in replicas:
            torch.testing.assert_close(
                replica[number][1], wanted - residual, rtol=1e-4, atol=1e-4, msg=name
            )
        assert residual.abs().max() > 0.01, f"{name} left nothing: it is not tested"


def save_and_continue(
    rank: int, num_workers: int, meeting: str, states: dict[str, bytes] | None
) -> Any:
    """Train six steps of each exchange; or three, after loading what was saved at the third."""
    group, found = Group(rank, num_workers, None, meeting), {}
    worker = Worker(rank, num_workers, group=group)
    for name in NAMES:
        strategy = make(EXCHANGES.load(name)(plan_of(name)), worker)
        saved = io.BytesIO()
        if states is None:
            train(strategy, worker, range(3))
            torch.save(strategy.state(), saved)
        else:
            strategy.load(torch.load(io.BytesIO(states[name]), weights_only=True))
        kept = strategy.state().get("exchange", {}).get("residuals", {})
        unsent = {key: rows.mean(0) for key, rows in kept.items()}
        train(strategy, worker, range(3, 6))
        model = {key: value.clone() for key, value in strategy.state()["model"].items()}
        found[name] = saved.getvalue(), model, unsent
        strategy.close()
    group.close()
    return found


@pytest.fixture(scope="module")
def whole() -> dict[str, Any]:
    """What a training of three replicas with each exchange saved, and how it ended."""
    return run_together(save_and_continue, 3, None)[0]


def test_a_resumed_training_ends_where_an_uninterrupted_one_does_also_on_fewer_workers(
    whole: dict[str, Any],
) -> None:
    states = {name: saved for name, (saved, _, _) in whole.items()}
    resumed, fewer = (
        run_together(save_and_continue, 3, states)[0],
        run_together(save_and_continue, 2, states)[0],
    )
    for name in REPEATABLE:
        for key, expected in whole[name][1].items():
            torch.testing.assert_close(
                resumed[name][1][key], expected, rtol=1e-5, atol=1e-6, msg=name
            )
        for key, expected in whole[name][2].items():  # what all replicas together still owe
            torch.testing.assert_close(
                fewer[name][2][key], expected, rtol=1e-5, atol=1e-6, msg=name
            )


def continue_with_each(rank: int, num_workers: int, meeting: str, states: list[bytes]) -> list[Any]:
    """Load each state with each exchange.

    Return whether the model is as saved, and it after a step.
    """
    group, losses = Group(rank, num_workers, None, meeting), []
    worker = Worker(rank, num_workers, group=group)
    for written, name in itertools.product(states, NAMES):
        state = torch.load(io.BytesIO(written), weights_only=True)
        strategy = make(EXCHANGES.load(name)(plan_of(name)), worker)
        strategy.load(state)
        loaded_model = strategy.state()["model"]
        is_same = all(
            torch.equal(loaded_model[key], value) for key, value in state["model"].items()
        )
        train(strategy, worker, range(3, 4))
        strategy.train(False)
        losses.append(
            (is_same, {key: value.clone() for key, value in strategy.state()["model"].items()})
        )
        strategy.close()
    group.close()
    return losses


def test_every_exchange_continues_from_the_state_of_every_other(whole: dict[str, Any]) -> None:
    """One state of each kind.

    Those of most exchanges hold nothing beside the model and the optimizer.
    """
    kinds: dict[tuple[str, ...], bytes] = {}
    for saved, _, _ in whole.values():
        kept = torch.load(io.BytesIO(saved), weights_only=True)["exchange"]
        kinds.setdefault(tuple(sorted(kept)), saved)
    assert len(kinds) >= 3
    for one, other in zip(*run_together(continue_with_each, 2, list(kinds.values())), strict=True):
        assert one[0]
        assert other[0]
        for key, value in one[1].items():
            assert torch.equal(value, other[1][key])


def train_apart(rank: int, num_workers: int, meeting: str) -> list[list[Tensor]]:
    """Return the weights after each of five steps that agree after every other one, and the mean of
    them.
    """
    group = Group(rank, num_workers, None, meeting)
    worker = Worker(rank, num_workers, group=group)
    torch.manual_seed(0)
    model = nn.Linear(6, 3)
    settings = StepSettings(
        loss=functional.cross_entropy,
        exchange=LocalSteps(plan_of("local", exchange_period=2)),
        average=lambda each: MovingMean(each, 0.9),
    )
    strategy: Strategy = STRATEGIES.load("ddp")(settings)
    strategy.setup(model, lambda each: torch.optim.AdamW(each, lr=0.5), worker)
    strategy.train(True)
    losses = []
    for step in range(5):
        train(strategy, worker, range(step, step + 1))
        losses.append(model.weight.detach().clone())
    strategy.train(False)
    losses.append(model.weight.detach().clone())
    strategy.train(True)
    losses.append(model.weight.detach().clone())
    state = strategy.state()
    losses.append(state["optimizer"]["state"][0]["exp_avg"].clone())
    group.close()
    return [losses]


def test_local_replicas_differ_within_a_period_and_agree_at_its_end_and_before_they_are_used() -> (
    None
):
    (first,), (second,) = run_together(train_apart, 2)
    alike = [torch.equal(one, other) for one, other in zip(first, second, strict=True)]
    in_steps, shown, trained, moments = alike[:5], *alike[5:]
    assert in_steps == [False, True, False, True, False]
    assert shown, "an evaluation would see another mean of the weights on each replica"
    assert trained, "a training would continue from other weights on each replica"
    assert moments


def learn_digits(rank: int, num_workers: int, meeting: str) -> dict[str, float]:
    """Return the validation accuracy of each exchange after 160 steps."""
    group, scores = Group(rank, num_workers, None, meeting), {}
    worker = Worker(rank, num_workers, group=group)
    splits = load("digits", {}, seed=0)
    training, held = (
        Source(split, torch.device("cpu")) for split in (splits.train, splits.validation)
    )
    for name in NAMES:
        torch.manual_seed(0)
        model = nn.Sequential(nn.Flatten(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
        exchange = EXCHANGES.load(name)(plan_of(name))
        strategy: Strategy = STRATEGIES.load("ddp")(
            StepSettings(loss=functional.cross_entropy, exchange=exchange)
        )
        strategy.setup(model, torch.optim.AdamW, worker)
        strategy.train(True)
        order = np.random.default_rng(0).permutation(len(training))
        for step in range(160):
            indices = np.take(order, range(step * 64, step * 64 + 64), mode="wrap")
            batch = WorkerBatch(
                training, indices, micro_batch=32, replica=rank, num_replicas=num_workers
            )
            strategy.forward_backward(batch)
            strategy.update(0.005)
        strategy.train(False)
        inputs, targets = held.fetch(np.arange(len(held)))
        scores[name] = (strategy.predict(inputs).argmax(1) == targets).float().mean().item()
        strategy.close()
    group.close()
    return scores


@pytest.mark.slow
def test_every_exchange_learns_the_digits() -> None:
    first, second = run_together(learn_digits, 2)
    assert first == second
    for name, accuracy in first.items():
        assert accuracy > first["allreduce"] - 0.1, (name, first)
    assert first["allreduce"] > 0.9


class Sometimes(nn.Module):
    """A layer is used by some micro batches only, on some replicas only, and another one never."""

    def __init__(self) -> None:
        super().__init__()
        self.always, self.sometimes, self.never = nn.Linear(6, 3), nn.Linear(6, 3), nn.Linear(6, 3)

    def forward(self, inputs: Tensor) -> Tensor:
        outputs = self.always(inputs)
        return outputs + self.sometimes(inputs) if inputs[0, 0] > 0 else outputs


UNUSED_CASES = [
    (None, {}),
    ("allreduce", {}),
    ("topk", {"exchange_compression": 1}),
    ("onebit", {}),
    ("powersgd", {}),
    ("local", {"exchange_period": 3}),
    ("diloco", {"exchange_period": 3}),
]


def train_unused(rank: int, num_workers: int, meeting: str) -> list[dict[str, Tensor]]:
    group, losses = Group(rank, num_workers, None, meeting), []
    worker = Worker(rank, num_workers, group=group)
    for name, options in UNUSED_CASES:
        exchange = None if name is None else EXCHANGES.load(name)(plan_of(name, **options))
        strategy = make(exchange, worker, Sometimes)
        train(strategy, worker, range(4))
        losses.append({key: value.clone() for key, value in strategy.state()["model"].items()})
        strategy.close()
    group.close()
    return losses


def test_gradients_that_only_some_micro_batches_have_are_exchanged_too() -> None:
    first, second = run_together(train_unused, 2)
    for number, (name, _) in enumerate(UNUSED_CASES):
        for key, expected in first[0].items():
            assert torch.equal(first[number][key], second[number][key]), f"{name}: {key}"
            if number < 3:
                torch.testing.assert_close(
                    first[number][key], expected, rtol=1e-5, atol=1e-6, msg=name
                )


def test_tensors_on_several_devices_are_not_sent_as_one() -> None:
    """As the moments of an optimizer on a GPU that counts its steps on the CPU.

    Meta stands for the GPU.
    """
    moment, steps = torch.zeros(3, device="meta"), torch.tensor(5.0)
    sent = list(together([moment, steps, moment, moment]))
    assert [[tensor.device.type for tensor in part] for part in sent] == [
        ["meta"],
        ["cpu"],
        ["meta", "meta"],
    ]


def test_every_exchange_declares_what_it_can_do_without_torch() -> None:
    assert set(BUILT_IN) == set(NAMES)
    for name in NAMES:
        assert EXCHANGES.load(name).capabilities is BUILT_IN[name]
