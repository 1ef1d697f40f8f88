"""Early exits of a user's own models, whose blocks are found by running them."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import Tensor, nn

from workbench.foundation.errors import ExperimentError
from workbench.models.exits import EarlyExits


class Residual(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.inner = nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, width))
        self.norm = nn.BatchNorm1d(width)
        self.drop = nn.Dropout(0.2)

    def forward(self, values: Tensor) -> Tensor:
        return values + self.drop(self.inner(self.norm(values)))


class Blocks(nn.Module):
    """A beginning, blocks in a list with something between them, and an end.

    No sequence, and no pieces.
    """

    def __init__(self, width: int = 6, num_blocks: int = 4) -> None:
        super().__init__()
        self.begin = nn.Linear(4, width)
        self.blocks = nn.ModuleList(Residual(width) for _ in range(num_blocks))
        self.end = nn.Linear(width, 3)

    def forward(self, inputs: Tensor) -> Tensor:
        values = torch.tanh(self.begin(inputs))
        for number, block in enumerate(self.blocks):
            values = block(values * (1.0 + 0.1 * number))
        return self.end(values.relu())


class WithResiduals(Blocks):
    """What it adds to the output of a block is the input of that block."""

    def forward(self, inputs: Tensor) -> Tensor:
        values = torch.tanh(self.begin(inputs))
        for block in self.blocks:
            values = values + block(values)
        return self.end(values)


class WithSkip(Blocks):
    """Its end also reads what was computed before the blocks."""

    def forward(self, inputs: Tensor) -> Tensor:
        first = values = self.begin(inputs)
        for block in self.blocks:
            values = block(values)
        return self.end(values + first)


class WithSkipToTheThird(Blocks):
    """Its third block reads what was computed before the blocks, so that only later ones begin
    anew.
    """

    def forward(self, inputs: Tensor) -> Tensor:
        first = values = self.begin(inputs)
        for number, block in enumerate(self.blocks):
            values = block(values + first if number == 2 else values)
        return self.end(values)


class Shuffled(Blocks):
    def forward(self, inputs: Tensor) -> Tensor:
        values = self.begin(inputs)
        for block in reversed(self.blocks):  # type: ignore[call-overload]
            values = block(values)
        return self.end(values)


class Texts(nn.Module):
    """Blocks of torch itself, on token ids."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens = nn.Embedding(11, 8)
        layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 3, enable_nested_tensor=False)
        self.output = nn.Linear(8, 5)

    def forward(self, tokens: Tensor) -> Tensor:
        return self.output(self.encoder(self.tokens(tokens)).mean(dim=1))


def with_exits(model: nn.Module, num_exits: int = 1) -> EarlyExits:
    torch.manual_seed(0)
    return EarlyExits(model, input_shape=(4,), num_outputs=3, num_exits=num_exits, weight=0.5)


@pytest.mark.parametrize("num_exits", [1, 3])
@pytest.mark.parametrize("kind", [Blocks, WithResiduals])
def test_stages_of_found_blocks_compute_what_the_model_computes(
    kind: type[Blocks], num_exits: int
) -> None:
    model, inputs = with_exits(kind(), num_exits).eval(), torch.randn(5, 4)
    values, outputs = inputs, model.exit_outputs(inputs)
    for number in range(model.num_stages - 1):
        values = model.stage(number, values)
        torch.testing.assert_close(model.heads[number](values), outputs[number])
    torch.testing.assert_close(model.stage(num_exits, values), model.model(inputs))
    torch.testing.assert_close(outputs[-1], model.model(inputs))


def test_a_training_step_runs_the_model_once_and_reaches_every_part() -> None:
    trained = with_exits(Blocks(), 2).train()
    returned = trained(torch.randn(6, 4))
    (returned["logits"].sum() + sum(each.sum() for each in returned["early_exits"])).backward()
    assert all(each.grad is not None for each in trained.parameters())
    norms = [module for module in trained.modules() if isinstance(module, nn.BatchNorm1d)]
    assert {int(norm.num_batches_tracked) for norm in norms} == {1}


def test_a_block_may_change_its_input() -> None:
    model = Blocks()
    for block in model.blocks:
        block.inner[1] = nn.ReLU(inplace=True)  # type: ignore[index]
        block.norm = nn.Sequential(nn.ReLU(inplace=True), nn.Linear(6, 6))  # type: ignore[assignment]
    model_with_exits, inputs = with_exits(model, 2).eval(), torch.randn(5, 4)
    values = model_with_exits.stage(1, model_with_exits.stage(0, inputs))
    torch.testing.assert_close(
        model_with_exits.heads[1](values), model_with_exits.exit_outputs(inputs)[1]
    )
    torch.testing.assert_close(model_with_exits.stage(2, values), model_with_exits.model(inputs))


def test_adding_exits_changes_neither_the_model_nor_its_mode() -> None:
    model = Blocks().train()
    before = copy.deepcopy(model.state_dict())
    found = with_exits(model)
    assert found.model.training
    assert all(torch.equal(before[name], each) for name, each in found.model.state_dict().items())
    assert not any(each._forward_pre_hooks for each in found.modules())


def test_a_copy_computes_with_its_own_weights() -> None:
    model, inputs = with_exits(Blocks()).eval(), torch.randn(5, 4)
    other = copy.deepcopy(model)
    with torch.no_grad():
        for parameter in other.parameters():
            parameter.zero_()
    assert other.stage(0, inputs).abs().sum() == 0
    assert model.stage(0, inputs).abs().sum() > 0


def test_blocks_of_torch_on_token_ids_take_exits() -> None:
    model = EarlyExits(
        Texts(), input_shape=(7,), num_outputs=5, num_exits=2, weight=0.5, vocabulary_size=11
    ).eval()
    tokens = torch.randint(11, (3, 7))
    assert [exit_output.shape for exit_output in model.exit_outputs(tokens)] == [(3, 5)] * 3
    values = model.stage(1, model.stage(0, tokens))
    torch.testing.assert_close(model.stage(2, values), model.model(tokens))


def test_a_cut_is_only_where_the_rest_depends_on_one_tensor() -> None:
    model = with_exits(WithSkipToTheThird(), 1)
    assert model.begins == [0, 3, 4]
    with pytest.raises(ExperimentError, match="at most 2") as caught:
        with_exits(WithSkipToTheThird(), 3)
    assert caught.value.field == "exits"


@pytest.mark.parametrize(
    ("model", "why"),
    [
        (WithSkip(), "depend on more than"),
        (Shuffled(), "in their order"),
        (nn.Bilinear(2, 2, 2), "any module list"),
    ],
)
def test_other_models_are_refused_with_what_to_do(model: nn.Module, why: str) -> None:
    with pytest.raises(ExperimentError, match=why) as caught:
        with_exits(model)
    assert caught.value.field == "exits"
    assert "pieces" in str(caught.value.next_step)
