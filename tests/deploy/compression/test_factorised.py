"""A linear layer of lower rank is the nearest one, and only where that saves work."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from workbench.deploy.compression.low_rank import can_factorise, factorise
from workbench.models.adapters import build_model


def test_a_layer_that_has_the_rank_is_the_same_with_fewer_numbers() -> None:
    model: Any = nn.Sequential(nn.Flatten(), nn.Linear(64, 48), nn.ReLU(), nn.Linear(48, 4))
    with torch.no_grad():
        model[1].weight.copy_(torch.randn(48, 8) @ torch.randn(8, 64))
    smaller: Any = factorise(model, 0.2)
    inputs = torch.randn(5, 64)
    with torch.no_grad():
        torch.testing.assert_close(smaller(inputs), model(inputs), rtol=1e-3, atol=1e-3)
    assert sum(each.numel() for each in smaller[1].parameters()) == 8 * (64 + 48) + 48
    assert isinstance(smaller[3], nn.Linear)  # it would become larger


def test_the_full_rank_changes_nothing() -> None:
    model: Any = nn.Sequential(nn.Linear(64, 48))
    same: Any = factorise(model, 1.0)
    assert torch.equal(same[0].weight, model[0].weight)


def test_a_model_stays_as_it_is_where_no_layer_becomes_smaller() -> None:
    model: Any = nn.Sequential(nn.Linear(8, 8))  # after pruning, say
    assert not can_factorise(model, 0.5)
    same: Any = factorise(model, 0.5)
    assert torch.equal(same[0].weight, model[0].weight)


def test_an_output_that_shares_the_weights_of_the_embedding_stays() -> None:
    values = {"width": 64, "num_heads": 2, "num_layers": 1}
    model = build_model("transformer", values, input_shape=(6,), num_outputs=80, vocabulary_size=80)
    smaller: Any = factorise(model, 0.25)
    assert smaller.output.weight is smaller.token_embedding.weight
    assert smaller(torch.randint(0, 80, (2, 6))).shape == (2, 6, 80)
