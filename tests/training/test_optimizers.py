"""Optimizers by their torch names or of other packages, and the parameters that they receive.

A process that trains imports neither torch's compiler nor its shards where it needs neither.
"""

from __future__ import annotations

import copy
import itertools
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode

from tests.builders.ways import OF_SEVERAL
from tests.services.process_group import run_together
from workbench.cluster.remote.code_dependencies import modules_of
from workbench.experiment import Experiment, Training
from workbench.foundation.errors import ExperimentError, MissingDependencyError
from workbench.sweeps.preflight import check
from workbench.training import checkpoint
from workbench.training.optimizers import (
    grouped,
    hidden_matrices,
    optimizer_factory,
    optimizer_names,
)
from workbench.training.trial import run_trial
from workbench.training.worker_task import TrialTask

ON_SPARSE_OR_MATRICES_ONLY = {"SparseAdam", "Muon"}
PROGRAM = """
import sys, torch
from pathlib import Path
from tests.training.test_trial import run
from workbench.experiment import Experiment, Training
from workbench.training.optimizers import optimizer_factory

COMPILER = "torch._dynamo"

def train(name):
    torch.manual_seed(0)
    model = torch.nn.Linear(4, 2)
    optimizer = optimizer_factory(Training(optimizer=name), 0.1)(model.parameters())
    for _ in range(3):
        optimizer.zero_grad()
        model(torch.ones(3, 4)).square().mean().backward()
        assert torch.is_grad_enabled()
        optimizer.step()
    optimizer.load_state_dict(optimizer.state_dict())
    return model.weight.detach()

objective = {"metric": "val_loss", "goal": "minimize"}
search = {"lr": {"low": 0.001, "high": 0.1}}
settings = {"model": "mlp", "data": "digits", "training": {"epochs": 1}}
experiment = Experiment(**settings, search=search, objectives=[objective])
ended, _ = run(experiment, Path(sys.argv[1]), params={"lr": 0.01})
assert ended.state == "complete", ended.traceback
settings["model"] = {"name": "tabular_mlp", "num_passes": 1.0}
ended, _ = run(Experiment(**settings, objectives=[objective]), Path(sys.argv[1]), params={})
assert ended.state == "complete", ended.traceback
assert {COMPILER, "sympy", "torch.distributed.tensor"}.isdisjoint(sys.modules)

names = ("sgd", "adamw", "rmsprop")
without = [train(name) for name in names]
assert COMPILER not in sys.modules
import torch._dynamo
assert all(torch.equal(one, train(name)) for one, name in zip(without, names))

compiled = torch.compile(lambda optimizer, x: (optimizer.zero_grad(), x + 1)[1], backend="eager")
optimizer = torch.optim.SGD(torch.nn.Linear(1, 1).parameters())
assert compiled(optimizer, torch.ones(1)).item() == 2.0
graph_breaks = torch._dynamo.utils.counters["graph_break"]
assert graph_breaks, "the optimizer is still excluded from what is compiled"
"""
GROUPS = {"^body": {"frozen": True}, "head": {"lr_factor": 0.5}}
THAWED = {**GROUPS, "middle": {"frozen_epochs": 3.5}}
OWN = f"{__name__}:SignDescent"


@pytest.mark.parametrize("name", sorted(set(optimizer_names()) - ON_SPARSE_OR_MATRICES_ONLY))
def test_every_optimizer_of_torch_takes_a_step(name: str) -> None:
    torch.manual_seed(0)
    model = nn.Linear(4, 2)
    before = [parameter.detach().clone() for parameter in model.parameters()]
    optimizer = optimizer_factory(Training(optimizer=name.lower()), 0.01)(model.parameters())
    model(torch.randn(8, 4)).square().mean().backward()
    optimizer.step()
    assert type(optimizer) is getattr(torch.optim, name)
    assert optimizer.param_groups[0]["lr"] == 0.01
    assert any(
        not torch.equal(old, new) for old, new in zip(before, model.parameters(), strict=True)
    )


class Words(nn.Module):
    """An embedding, hidden layers of two shapes, and a head."""

    def __init__(self, config: Any = None) -> None:
        super().__init__()
        self.embedding = nn.Embedding(7, 6)
        self.wide, self.narrow, self.head = nn.Linear(6, 9), nn.Linear(9, 4), nn.Linear(4, 7)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.head(torch.tanh(self.narrow(torch.tanh(self.wide(self.embedding(tokens))))))


def muon_of(training: Training, model: nn.Module) -> torch.optim.Optimizer:
    groups = grouped(
        model.named_parameters(), training.parameter_groups, 1, hidden=hidden_matrices(model)
    )
    return optimizer_factory(training, 0.02)(groups)


def orthogonal(gradient: torch.Tensor) -> torch.Tensor:
    """Return the nearest orthogonal matrix, from which an update of Muon differs by a factor."""
    left, _, right = torch.linalg.svd(gradient.double(), full_matrices=False)
    return left @ right


def test_muon_updates_hidden_matrices_and_adamw_everything_else() -> None:
    torch.manual_seed(0)
    model, other = Words(), Words()
    other.load_state_dict(model.state_dict())
    before = {name: item.detach().clone() for name, item in model.named_parameters()}
    training = Training(optimizer="muon", weight_decay=0.1, optimizer_options={"betas": [0.8, 0.9]})
    optimizer = muon_of(training, model)
    adamw = torch.optim.AdamW(other.parameters(), lr=0.02, weight_decay=0.1, betas=(0.8, 0.9))
    tokens = torch.randint(7, (32, 5))
    for net in (model, other):
        scores = net(tokens).flatten(0, 1)
        nn.functional.cross_entropy(scores, tokens.flatten()).backward()
    optimizer.step()
    adamw.step()
    expected = dict(other.named_parameters())
    for name, item in model.named_parameters():
        if name in ("wide.weight", "narrow.weight"):
            step = (before[name] * (1 - 0.02 * 0.1) - item.detach()).double()
            assert item.grad is not None
            wanted = orthogonal(item.grad)
            cosine = (step * wanted).sum() / step.norm() / wanted.norm()
            assert cosine > 0.95
            # Liu et al. 2025, equation 4: on average, a value moves by 0.2 times the rate.
            root_mean_square = step.square().mean().sqrt().item()
            assert root_mean_square == pytest.approx(0.2 * 0.02, rel=0.5)
        else:
            torch.testing.assert_close(item, expected[name], rtol=1e-5, atol=1e-7)


def test_muon_continues_from_its_state_with_groups() -> None:
    training = Training(optimizer="muon", parameter_groups={"narrow": {"lr_factor": 0.5}})
    torch.manual_seed(1)
    model, other = Words(), Words()
    optimizer, tokens = muon_of(training, model), torch.randint(7, (8, 5))

    def step(net: nn.Module, its_optimizer: torch.optim.Optimizer) -> None:
        its_optimizer.zero_grad()
        net(tokens).logsumexp(dim=-1).mean().backward()
        its_optimizer.step()

    step(model, optimizer)
    other.load_state_dict(model.state_dict())
    resumed = muon_of(training, other)
    resumed.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    for net, its_optimizer in ((model, optimizer), (other, resumed)):
        step(net, its_optimizer)
    for item, resumed_item in zip(model.parameters(), other.parameters(), strict=True):
        assert torch.equal(item, resumed_item)
    assert [group.get("lr_factor") for group in resumed.param_groups].count(0.5) == 2


@pytest.mark.slow
@pytest.mark.parametrize("model", ["mlp", "convnet"])
def test_models_of_the_zoo_are_trained_with_muon(model: str, tmp_path: Path) -> None:
    asked = experiment(optimizer="muon", epochs=4, lr=0.02).replace(model=model, data="digits")
    saved = train(str(tmp_path), asked)
    assert len(saved) > 1
    moved = {name: not torch.equal(saved[0][name], saved[-1][name]) for name in saved[0]}
    assert all(moved[name] for name in moved if name.endswith(("weight", "bias")))


@pytest.mark.parametrize(
    ("name", "bytes_per_value"), [("adamw_8bit", 2), ("Lion_8bit", 1), ("ademamix_8bit", 3)]
)
def test_optimizers_of_bitsandbytes_have_small_states_and_continue(
    name: str, bytes_per_value: int
) -> None:
    pytest.importorskip("bitsandbytes")
    torch.manual_seed(0)
    training, inputs = Training(optimizer=name, weight_decay=0.1), torch.randn(8, 64)

    def step(net: nn.Module, optimizer: torch.optim.Optimizer) -> None:
        optimizer.zero_grad()
        net(inputs).square().mean().backward()
        optimizer.step()

    def state_bytes(optimizer: torch.optim.Optimizer, item: torch.Tensor) -> int:
        values = optimizer.state[item]
        return sum(value.nbytes for key, value in values.items() if key.startswith("state"))

    model, other = nn.Linear(64, 128), nn.Linear(64, 128)
    optimizer = optimizer_factory(training, 0.01)(model.parameters())
    before = model(inputs).square().mean().item()
    for _ in range(5):
        step(model, optimizer)
    assert model(inputs).square().mean().item() < before
    other.load_state_dict(model.state_dict())
    resumed = optimizer_factory(training, 0.01)(other.parameters())
    resumed.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    step(model, optimizer)
    step(other, resumed)
    assert torch.equal(model.weight, other.weight)
    assert state_bytes(optimizer, model.weight) == bytes_per_value * model.weight.numel()
    with FakeTensorMode():
        fake = nn.Linear(64, 128)
        pretended = optimizer_factory(training, 0.01)(fake.parameters())
        fake(torch.randn(8, 64)).square().mean().backward()
        pretended.step()
    for item, its_fake in ((model.weight, fake.weight), (model.bias, fake.bias)):
        assert state_bytes(pretended, its_fake) == state_bytes(optimizer, item)


def test_optimizers_of_bitsandbytes_are_refused_where_they_do_not_work(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    training = Training(optimizer="paged_adamw_8bit")
    check(experiment(optimizer="paged_adamw_8bit"), on_this_machine=False)
    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, "bitsandbytes", None)
        with pytest.raises(MissingDependencyError, match="pip install bitsandbytes"):
            optimizer_factory(training, 0.01)
    pytest.importorskip("bitsandbytes")
    with pytest.raises(ExperimentError, match="Use adamw_8bit, or an NVIDIA GPU"):
        optimizer_factory(training, 0.01)(nn.Linear(1, 1).parameters())


def test_options_reach_the_optimizer() -> None:
    training = Training(
        optimizer="adamw", weight_decay=0.3, optimizer_options={"betas": [0.8, 0.9]}
    )
    group = optimizer_factory(training, 0.1)(nn.Linear(1, 1).parameters()).param_groups[0]
    assert (group["betas"], group["weight_decay"]) == ((0.8, 0.9), 0.3)


def test_momentum_is_that_of_sgd() -> None:
    sgd = optimizer_factory(Training(optimizer="sgd", momentum=0.7), 0.1)(
        nn.Linear(1, 1).parameters()
    )
    assert sgd.param_groups[0]["momentum"] == 0.7


@pytest.mark.parametrize(
    ("training", "field"),
    [
        ({"optimizer": "adamx"}, "training.optimizer"),
        ({"optimizer": "lbfgs"}, "training.optimizer"),
        ({"optimizer": "optimizer"}, "training.optimizer"),
        ({"optimizer_options": {"beta": 0.9}}, "training.optimizer_options.beta"),
        ({"optimizer_options": {"lr": 0.5}}, "training.optimizer_options.lr"),
        ({"optimizer_options": {"weight_decay": 0.5}}, "training.optimizer_options.weight_decay"),
        (
            {"optimizer": "sgd", "optimizer_options": {"momentum": 0.5}},
            "training.optimizer_options.momentum",
        ),
        ({"optimizer_options": {"betas": [2.0, 0.9]}}, "training.optimizer_options"),
        ({"optimizer": "rprop", "weight_decay": 0.1}, "training.weight_decay"),
    ],
)
def test_what_torch_does_not_offer_is_refused(training: dict[str, Any], field: str) -> None:
    with pytest.raises(ExperimentError) as caught:
        optimizer_factory(Training(**training), 0.1)(nn.Linear(1, 1).parameters())
    assert caught.value.field == field


@pytest.mark.slow
def test_a_trial_imports_no_compiler_and_optimizers_stay_out_of_what_is_compiled(
    tmp_path: Path,
) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(tmp_path / "trial")],
        check=False,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr


class SignDescent(torch.optim.Optimizer):
    """Moves each parameter by its learning rate against the sign of its gradient."""

    def __init__(self, params: Any, lr: float = 0.1, threshold: float = 0.0) -> None:
        super().__init__(params, {"lr": lr, "threshold": threshold})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    parameter -= group["lr"] * parameter.grad.sign()


class Net(nn.Module):
    """A body and a head."""

    def __init__(self, config: Any) -> None:
        super().__init__()
        self.body, self.middle, self.head = nn.Linear(30, 4), nn.Linear(4, 4), nn.Linear(4, 2)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return self.head(torch.tanh(self.middle(torch.tanh(self.body(inputs)))))

    def layer_pairs(self) -> list[tuple[str, str, int]]:
        return [("middle", "head", 1)]

    def pieces(self) -> list[Any]:
        return [self.body, torch.nn.Tanh(), self.middle, torch.nn.Tanh(), self.head]


def experiment(**training: Any) -> Experiment:
    settings = {
        "epochs": 1,
        "global_batch": 64,
        "lr": 0.01,
        "lr_rule": "constant",
        "schedule": "constant",
    }
    return Experiment(
        model=f"{__name__}:Net",
        data="breast_cancer",
        objectives=[{"metric": "val_loss", "goal": "minimize"}],
        training=settings | training,
    )


def train(
    folder: str,
    asked: Experiment,
    *,
    rank: int = 0,
    num_workers: int = 1,
    meeting: str | None = None,
) -> list[dict[str, torch.Tensor]]:
    """Return the weights of each checkpoint."""
    saved: list[dict[str, torch.Tensor]] = []

    def report(event: Any) -> bool:
        if event.type == "checkpoint_saved" and rank == 0:
            saved.append(checkpoint.read(event.path)["strategy"]["model"])
        return False

    order = TrialTask(
        "run",
        0,
        0,
        asked.model_dump_json(),
        seed=3,
        folder=folder,
        resume=True,
        rank=rank,
        num_workers=num_workers,
        meeting=meeting,
    )
    ended = run_trial(order, report)
    assert ended.state == "complete", ended.traceback
    return saved


def test_groups_have_rates_of_their_own_and_frozen_ones_stay(tmp_path: Path) -> None:
    asked = experiment(optimizer=OWN, parameter_groups=GROUPS, global_batch=456, epochs=2)
    before, after = train(str(tmp_path), asked)  # an epoch is one step
    moved = {name: (after[name] - before[name]).abs().max().item() for name in after}
    assert moved["body.weight"] == moved["body.bias"] == 0.0
    assert moved["middle.weight"] == pytest.approx(0.01, rel=1e-4)
    assert moved["head.weight"] == pytest.approx(0.005, rel=1e-4)


def test_parameters_that_are_frozen_for_a_while_train_afterwards_also_after_a_resume(
    tmp_path: Path,
) -> None:
    groups = {"^body": {"frozen_epochs": 2}}
    asked = experiment(optimizer=OWN, parameter_groups=groups, global_batch=228, epochs=4)
    whole = train(str(tmp_path / "whole"), asked)  # an epoch is two steps
    train(str(tmp_path / "parts"), asked.replace(training={"epochs": 1}))
    resumed = train(str(tmp_path / "parts"), asked)
    for parts, all_at_once in ((resumed[-1], whole[-1]), (resumed[0], whole[1])):
        assert all(torch.equal(parts[name], all_at_once[name]) for name in parts)
    moved = [
        {name: (after[name] - before[name]).abs().max().item() for name in after}
        for before, after in itertools.pairwise(whole)
    ]
    assert [change["body.weight"] > 0 for change in moved] == [False, True, True]
    assert all(one["head.weight"] > 0 for one in moved)


def train_on_two(rank: int, num_workers: int, meeting: str, folder: str) -> Any:
    results = {}
    for strategy in OF_SEVERAL:
        asked = experiment(optimizer="adamw", parameter_groups=THAWED, epochs=3)
        asked = asked.replace(plan={"workers": 2, "strategy": strategy})
        train(
            f"{folder}/{strategy}",
            asked,
            rank=rank,
            num_workers=num_workers,
            meeting=f"{meeting}-{strategy}",
        )
        if rank == 0:
            results[strategy] = checkpoint.read(Path(folder, strategy, "checkpoints", "last.pt"))[
                "strategy"
            ]
        longer = asked.replace(training={"epochs": 4})
        train(
            f"{folder}/{strategy}",
            longer,
            rank=rank,
            num_workers=num_workers,
            meeting=f"{meeting}-{strategy}-on",
        )
        if rank == 0:
            results[f"{strategy}-on"] = checkpoint.read(
                Path(folder, strategy, "checkpoints", "last.pt")
            )["strategy"]
    return results


@pytest.mark.slow
def test_every_strategy_trains_groups_alike_and_continues_them(tmp_path: Path) -> None:
    results = run_together(train_on_two, 2, str(tmp_path))[0]
    asked = experiment(optimizer="adamw", parameter_groups=THAWED, epochs=3)
    for epochs, suffix in ((3, ""), (4, "-on")):
        train(str(tmp_path / "alone"), asked.replace(training={"epochs": epochs}))
        alone = checkpoint.read(tmp_path / "alone" / "checkpoints" / "last.pt")["strategy"]
        for strategy in OF_SEVERAL:
            result = results[strategy + suffix]
            for name, values in alone["model"].items():
                torch.testing.assert_close(result["model"][name], values, rtol=1e-4, atol=1e-5)
            factors = [group.get("lr_factor") for group in result["optimizer"]["param_groups"]]
            assert factors == [1.0, 0.5]


def test_an_optimizer_of_another_package_receives_its_options() -> None:
    training = Training(optimizer=OWN, optimizer_options={"threshold": 0.5})
    made = optimizer_factory(training, 0.2)(nn.Linear(1, 1).parameters())
    assert isinstance(made, SignDescent)
    assert made.defaults == {"lr": 0.2, "threshold": 0.5}
    assert __name__ in modules_of(experiment(optimizer=OWN)), "it travels with a submitted run"


@pytest.mark.parametrize(
    ("training", "field"),
    [
        ({"optimizer": f"{__name__}:Net"}, "training.optimizer"),
        ({"optimizer": OWN, "optimizer_options": {"betas": 1}}, "training.optimizer_options.betas"),
        ({"optimizer": OWN, "weight_decay": 0.1}, "training.weight_decay"),
    ],
)
def test_what_is_no_optimizer_or_not_its_option_is_refused(
    training: dict[str, Any], field: str
) -> None:
    with pytest.raises(ExperimentError) as caught:
        optimizer_factory(Training(**training), 0.1)
    assert caught.value.field == field


def test_an_optimizer_that_does_not_exist_is_refused_before_anything_runs() -> None:
    with pytest.raises(ExperimentError, match="has no 'Missing'"):
        check(experiment(optimizer=f"{__name__}:Missing"), on_this_machine=False)


@pytest.mark.parametrize(
    ("groups", "message"),
    [
        ({"tail": {"frozen": True}}, "matches no parameter"),
        ({".": {"frozen": True}}, "all parameters are frozen"),
    ],
)
def test_patterns_that_fit_nothing_or_freeze_everything_are_refused(
    groups: dict[str, Any], message: str, tmp_path: Path
) -> None:
    asked = experiment(parameter_groups=groups)
    ended = run_trial(
        TrialTask("run", 0, 0, asked.model_dump_json(), folder=str(tmp_path)), lambda _: False
    )
    assert message in str(ended.message)


@pytest.mark.parametrize(
    "groups",
    [
        {"(": {"frozen": True}},
        {"x": {"frozen": True, "lr_factor": 2.0}},
        {"x": {"frozen": True, "frozen_epochs": 1}},
        {"x": {"frozen_epochs": -1}},
    ],
)
def test_impossible_groups_are_refused_in_the_file(groups: dict[str, Any]) -> None:
    with pytest.raises(ExperimentError, match=r"training\.parameter_groups"):
        experiment(parameter_groups=groups)
