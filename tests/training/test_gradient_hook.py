"""Functions of a user that change the gradients of each step."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from tests.services.process_group import run_together
from workbench.advisor.open_settings import choices_of
from workbench.cluster.remote.code_dependencies import modules_of
from workbench.experiment import Experiment, Training
from workbench.experiment.plan import Hardware
from workbench.foundation.errors import ExperimentError
from workbench.sweeps.preflight import check
from workbench.training import checkpoint
from workbench.training.optimizers import gradient_hook_of
from workbench.training.planning.settings import resolve
from workbench.training.trial import run_trial
from workbench.training.worker_task import TrialTask

seen: list[dict[str, float]] = []


def to_ones(gradients: dict[str, torch.Tensor], scale: float = 1.0) -> None:
    """Record what is given, and replace it."""
    seen.append({name: gradient.norm().item() for name, gradient in gradients.items()})
    for gradient in gradients.values():
        gradient.fill_(scale)


def returning(gradients: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Return other gradients, as if that had an effect."""
    return {name: 2 * gradient for name, gradient in gradients.items()}


NAME = f"{__name__}:to_ones"


def experiment(plan: dict[str, Any] | None = None, **training: Any) -> Experiment:
    settings = {
        "epochs": 1,
        "global_batch": 456,
        "optimizer": "sgd",
        "momentum": 0.0,
        "lr": 0.01,
        "lr_rule": "constant",
        "schedule": "constant",
        "warmup_epochs": 0.0,
    }
    return Experiment(
        model={"name": "mlp", "hidden_width": 4, "num_layers": 1},
        data="breast_cancer",
        plan=plan or {},
        objectives=[{"metric": "val_loss", "goal": "minimize"}],
        training=settings | training,
    )


def weights(folder: Path, asked: Experiment, **worker: Any) -> dict[str, torch.Tensor]:
    order = TrialTask(
        "run",
        0,
        0,
        asked.model_dump_json(),
        seed=3,
        folder=str(folder),
        resume=True,
        **worker,
    )
    ended = run_trial(order, lambda event: False)
    assert ended.state == "complete", ended.traceback
    if worker.get("rank", 0):
        return {}
    return checkpoint.read(folder / "checkpoints" / "last.pt")["strategy"]["model"]


def test_the_optimizer_sees_what_the_hook_made_of_the_gradients(tmp_path: Path) -> None:
    once = weights(tmp_path / "once", experiment(gradient_hook=NAME))  # an epoch is one step
    more = experiment(gradient_hook=NAME, gradient_hook_options={"scale": 3.0})
    thrice = weights(tmp_path / "thrice", more)
    assert set(seen[-1]) == set(once)
    assert all(norm > 0 for name, norm in seen[-1].items() if name.endswith("weight"))
    for name in once:  # both began alike and moved by lr and by 3 lr
        torch.testing.assert_close(once[name] - thrice[name], torch.full_like(once[name], 0.02))


def test_gradients_are_clipped_after_the_hook(tmp_path: Path) -> None:
    free = weights(tmp_path / "free", experiment(gradient_hook=NAME))
    clipped = weights(tmp_path / "clipped", experiment(gradient_hook=NAME, clip_norm=1.0))
    num = sum(tensor.numel() for tensor in free.values())
    for name in free:
        expected = torch.full_like(free[name], 0.01 * (1 - num**-0.5))
        torch.testing.assert_close(clipped[name] - free[name], expected)


def train_on_two(rank: int, num_workers: int, meeting: str, folder: str) -> Any:
    asked = experiment({"workers": 2, "strategy": "ddp"}, gradient_hook=NAME)
    trained = weights(Path(folder), asked, rank=rank, num_workers=num_workers, meeting=meeting)
    return trained, seen[-1]


def test_replicas_receive_the_exchanged_gradients(tmp_path: Path) -> None:
    (trained, first), (_, second) = run_together(train_on_two, 2, str(tmp_path / "two"))
    alone = weights(tmp_path / "one", experiment(gradient_hook=NAME))
    assert first == second == pytest.approx(seen[-1], rel=1e-4)
    for name in alone:
        torch.testing.assert_close(trained[name], alone[name])


def test_a_hook_that_returns_gradients_is_refused() -> None:
    hook = gradient_hook_of(Training(gradient_hook=f"{__name__}:returning"))
    assert hook is not None
    with pytest.raises(ExperimentError, match="returns a value, but a gradient hook must not"):
        hook({"weight": torch.ones(2)})


@pytest.mark.parametrize(
    ("training", "field"),
    [
        ({"gradient_hook": "centralize"}, "training.gradient_hook"),
        ({"gradient_hook_options": {"scale": 2.0}}, "training.gradient_hook_options"),
    ],
)
def test_what_names_no_function_is_refused(training: dict[str, Any], field: str) -> None:
    with pytest.raises(ExperimentError) as refused:
        experiment(**training)
    assert refused.value.field == field


def test_an_unknown_option_and_a_class_are_refused() -> None:
    with pytest.raises(ExperimentError, match="unexpected keyword argument 'strength'"):
        gradient_hook_of(Training(gradient_hook=NAME, gradient_hook_options={"strength": 1.0}))
    with pytest.raises(ExperimentError, match="is not a function"):
        gradient_hook_of(Training(gradient_hook="torch.nn:Linear"))


def test_strategies_that_divide_gradients_are_refused_and_not_advised() -> None:
    with pytest.raises(
        ExperimentError, match="fsdp divides gradients, but a gradient hook needs whole ones"
    ) as refused:
        resolve(experiment({"workers": 2, "strategy": "fsdp"}, gradient_hook=NAME), {})
    assert refused.value.field == "plan.strategy"
    asked = experiment({"workers": "auto", "strategy": "auto"}, gradient_hook=NAME)
    for hardware in (Hardware(has_gpu=False), Hardware(has_gpu=True)):
        chosen = choices_of(asked, num_train_samples=456, max_workers=4, hardware=hardware)
        assert set(chosen.options["strategy"]) == {"ddp"}


def test_a_searched_hook_and_its_options_are_settings_of_a_trial() -> None:
    asked = experiment(gradient_hook=NAME).replace(
        search={"gradient_hook_options.scale": {"low": 0.5, "high": 2.0}}
    )
    check(asked)
    settings = resolve(asked, {"gradient_hook_options.scale": 1.5})
    assert settings.training.gradient_hook_options == {"scale": 1.5}
    assert modules_of(asked) == [__name__]
    with pytest.raises(ExperimentError, match="missing"):
        check(experiment(gradient_hook=f"{__name__}:missing"))
