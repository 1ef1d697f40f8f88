"""Models as sequences: pieces that compute what the model computes, and cuts that balance their
costs.
"""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from workbench.foundation.errors import ExperimentError
from workbench.models.adapters import build_model
from workbench.training.strategies.sequence import costs, cut, pieces_of

ZOO: dict[str, tuple[dict[str, Any], torch.Tensor, dict[str, Any]]] = {
    "mlp": ({"num_layers": 3, "dropout": 0.1}, torch.rand(4, 6), {"input_shape": (6,)}),
    "convnet": ({"num_blocks": 2}, torch.rand(4, 1, 8, 8), {"input_shape": (1, 8, 8)}),
    "resnet": ({"depth": 8, "width": 8}, torch.rand(4, 3, 8, 8), {"input_shape": (3, 8, 8)}),
    "transformer": (
        {"num_layers": 2, "width": 16, "num_heads": 2},
        torch.randint(0, 10, (4, 7)),
        {"input_shape": (7,), "vocabulary_size": 10},
    ),
    "text_encoder": (
        {"num_layers": 2, "width": 16, "num_heads": 2},
        torch.tensor([[3, 4, 0, 0], [1, 2, 3, 4]]),
        {"input_shape": (4,), "vocabulary_size": 20},
    ),
    "lstm": ({"num_layers": 2}, torch.rand(4, 7, 3), {"input_shape": (7, 3)}),
}


def make(name: str) -> tuple[nn.Module, torch.Tensor]:
    values, inputs, shapes = ZOO[name]
    torch.manual_seed(0)
    return (
        build_model(name, values, **{"num_outputs": 10, "vocabulary_size": None, **shapes}),
        inputs,
    )


@pytest.mark.parametrize("name", ZOO)
def test_the_pieces_of_the_zoo_compute_what_the_model_computes(name: str) -> None:
    model, inputs = make(name)
    model.eval()
    pieces, outputs = pieces_of(model, 2), inputs
    for piece in pieces:
        outputs = piece.call(outputs)
    assert torch.equal(outputs, model(inputs))
    held = {
        id(parameter)
        for piece in pieces
        for module in piece.modules
        for parameter in module.parameters()
    }
    assert held == {id(parameter) for parameter in model.parameters()}
    assert all(cost > 0 for cost in costs(pieces, inputs))


def test_layers_of_a_sequence_are_its_pieces_but_not_before_one_that_changes_its_input() -> None:
    inner = nn.Sequential(nn.Linear(2, 4), nn.ReLU(inplace=True), nn.Linear(4, 4))
    pieces = pieces_of(nn.Sequential(inner, nn.Tanh(), nn.Linear(4, 2)), 4)
    assert [len(piece.modules) for piece in pieces] == [2, 1, 1, 1]


@pytest.mark.parametrize(
    ("model", "problem"),
    [
        (nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2)), "at most 2"),
        (nn.LSTM(2, 2), "a method pieces"),
    ],
)
def test_models_that_cannot_be_cut_are_refused(model: nn.Module, problem: str) -> None:
    with pytest.raises(ExperimentError, match=problem) as caught:
        pieces_of(model, 3)
    assert caught.value.field == "plan.stages"


@given(st.lists(st.floats(0.0, 100.0), min_size=1, max_size=7), st.integers(1, 7))
def test_no_other_cut_has_a_cheaper_costliest_stage(weights: list[float], num_stages: int) -> None:
    num_stages = min(num_stages, len(weights))
    firsts = cut(weights, num_stages)
    assert len(firsts) == num_stages + 1
    assert sorted(set(firsts)) == firsts

    def most(ends: tuple[int, ...]) -> float:
        return max(
            sum(weights[first:end]) for first, end in itertools.pairwise((0, *ends, len(weights)))
        )

    others = itertools.combinations(range(1, len(weights)), num_stages - 1)
    assert most(tuple(firsts[1:-1])) == pytest.approx(min(most(ends) for ends in others), abs=1e-9)
