from __future__ import annotations

import pytest
import torch
from torch import nn

from workbench.models.initialisation import initialise


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
