from __future__ import annotations

import pytest
import torch
from torch import nn

from workbench.foundation.errors import ExperimentError
from workbench.models.pretrained import has_lazy, initialise, set_up_lazy


def test_lazy_modules_get_shapes_from_a_batch_that_changes_nothing_else() -> None:
    frozen = nn.BatchNorm2d(1).eval()
    model = nn.Sequential(
        frozen, nn.Flatten(), nn.LazyLinear(6), nn.LazyBatchNorm1d(), nn.LazyLinear(2)
    )
    assert has_lazy(model)
    set_up_lazy(model, torch.full((2, 1, 4, 4), 7.0))
    assert not has_lazy(model)
    assert [tuple(item.shape) for item in model.parameters()][2:] == [
        (6, 16),
        (6,),
        (6,),
        (6,),
        (2, 6),
        (2,),
    ]
    assert (model.training, frozen.training, model[3].training) == (True, False, True)
    assert float(frozen.running_mean) == 0.0
    assert model[3].running_mean.tolist() == [0.0] * 6


def test_a_module_that_only_training_uses_is_set_up_too() -> None:
    class Auxiliary(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.head, self.extra = nn.LazyLinear(2), nn.LazyLinear(3)

        def forward(self, inputs: torch.Tensor) -> torch.Tensor:
            return (
                self.head(inputs) + self.extra(inputs).sum() if self.training else self.head(inputs)
            )

    model = Auxiliary()
    set_up_lazy(model, torch.zeros(2, 5))
    assert model.extra.weight.shape == (3, 5)


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (nn.ModuleDict({"used": nn.Identity(), "idle": nn.LazyLinear(3)}), "cannot take the data"),
        (nn.Sequential(nn.LazyLinear(3), nn.Linear(4, 1)), "cannot take the data"),
    ],
)
def test_a_model_that_cannot_take_the_batch_is_refused(model: nn.Module, message: str) -> None:
    with pytest.raises(ExperimentError, match=message):
        set_up_lazy(model, torch.zeros(2, 5))


def test_a_lazy_module_that_is_never_used_is_named() -> None:
    model = nn.Linear(5, 1)
    model.idle = nn.LazyLinear(3)
    with pytest.raises(ExperimentError, match=r"idle\.weight, idle\.bias have no shape"):
        set_up_lazy(model, torch.zeros(2, 5))


def make() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Embedding(9, 64),
        nn.Linear(64, 512),
        nn.BatchNorm1d(512),
        nn.Linear(512, 64, bias=True),
        nn.Conv1d(64, 128, 3),
    )


def changed(before: nn.Module, after: nn.Module) -> set[str]:
    pairs = zip(before.named_parameters(), after.parameters(), strict=True)
    return {name for (name, old), new in pairs if not torch.equal(old, new)}


@pytest.mark.parametrize("way", ["default", "he", "xavier", "orthogonal"])
def test_only_weights_of_layers_are_drawn_and_follow_from_the_seed(way: str) -> None:
    first, second = make(), make()
    for model in (first, second):
        torch.manual_seed(5)
        initialise(model, way)
    assert changed(first, second) == set()
    wanted = set() if way == "default" else {"1.weight", "3.weight", "4.weight"}
    assert changed(make(), first) == wanted


def test_weights_have_the_deviation_that_is_named() -> None:
    deviations = {}
    for way in ("he", "xavier", "orthogonal"):
        model = make()
        initialise(model, way)
        deviations[way] = [float(model[layer].weight.detach().std()) for layer in (1, 3, 4)]
    assert deviations["he"] == pytest.approx([(2 / n) ** 0.5 for n in (64, 512, 192)], rel=0.05)
    wanted = [(2 / n) ** 0.5 for n in (576, 576, 192 + 384)]
    assert deviations["xavier"] == pytest.approx(wanted, rel=0.05)
    model = make()
    initialise(model, "orthogonal")
    torch.testing.assert_close(
        model[3].weight @ model[3].weight.T, torch.eye(64), atol=1e-4, rtol=0
    )


def test_a_weight_that_an_embedding_shares_stays() -> None:
    embedding, head = nn.Embedding(9, 4), nn.Linear(4, 9)
    head.weight = embedding.weight
    model = nn.Sequential(embedding, nn.Linear(4, 4), head)
    before = embedding.weight.clone()
    initialise(model, "he")
    assert torch.equal(embedding.weight, before)
