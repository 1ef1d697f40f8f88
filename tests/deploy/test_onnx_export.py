from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

from workbench.deploy.onnx_export import difference_of, write_onnx
from workbench.deploy.predictor import open_session
from workbench.foundation.errors import RunError


def test_several_inputs_keep_their_names_and_take_any_batch(tmp_path: Path) -> None:
    class Pair(nn.Module):
        def forward(self, left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
            return left @ right.transpose(1, 2)

    write_onnx(Pair(), (torch.randn(2, 3, 4), torch.randn(2, 5, 4)), tmp_path / "model.onnx")

    session = open_session(tmp_path / "model.onnx", threads=1)
    left, right = torch.randn(9, 3, 4), torch.randn(9, 5, 4)
    outputs = torch.from_numpy(session.run(None, {"left": left.numpy(), "right": right.numpy()})[0])
    assert difference_of(outputs, Pair()(left, right)) <= 1e-5


@pytest.mark.slow
def test_the_operators_of_onnx_are_read_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from onnxscript import (
        TracedOnnxFunction,
    )  # not where tests are collected: loading it takes a second

    write_onnx(nn.Linear(3, 2), torch.ones(2, 3), tmp_path / "first.onnx")
    reading = TracedOnnxFunction.function_ir
    num_read = 0

    def count(operator: TracedOnnxFunction) -> object:
        nonlocal num_read
        num_read += 1
        return reading.__get__(operator)

    monkeypatch.setattr(TracedOnnxFunction, "function_ir", property(count))
    write_onnx(nn.Linear(3, 2), torch.ones(2, 3), tmp_path / "second.onnx")
    assert num_read < 50


class _Causal(nn.Module):
    def __init__(self, *, has_decoder: bool) -> None:
        super().__init__()
        self.body: nn.Module = nn.TransformerEncoder(
            nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), 1
        )
        if has_decoder:
            self.body = nn.Transformer(8, 2, 1, 1, 16, batch_first=True)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        mask = nn.Transformer.generate_square_subsequent_mask(inputs.shape[1])
        if isinstance(self.body, nn.Transformer):
            return self.body(inputs, inputs, src_mask=mask, tgt_mask=mask, memory_mask=mask)
        return self.body(inputs, mask)


@pytest.mark.parametrize("has_decoder", [False, True])
def test_transformers_of_torch_keep_their_causal_masks(tmp_path: Path, has_decoder: bool) -> None:
    model = _Causal(has_decoder=has_decoder)
    detecting = nn.modules.transformer._detect_is_causal_mask
    write_onnx(model, torch.randn(2, 6, 8), tmp_path / "model.onnx")
    assert nn.modules.transformer._detect_is_causal_mask is detecting

    session = open_session(tmp_path / "model.onnx", threads=1)
    given = torch.randn(5, 6, 8)
    changed = given.clone()
    changed[:, 4:] += 1.0  # what comes later changes nothing before
    before, after = (session.run(None, {"inputs": one.numpy()})[0] for one in (given, changed))
    assert difference_of(torch.from_numpy(before), model.eval()(given)) <= 1e-5
    assert before[:, :4] == pytest.approx(after[:, :4], abs=1e-6)
    assert before[:, 4:] != pytest.approx(after[:, 4:], abs=1e-3)


class _LooksAtValues(nn.Module):
    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return inputs * 2 if inputs.sum().item() > 0 else inputs


def test_a_model_that_cannot_be_exported_is_refused_in_words_and_leaves_no_file(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(
        RunError, match=r"_LooksAtValues cannot be exported to ONNX: .*without --format onnx"
    ):
        write_onnx(_LooksAtValues(), torch.ones(2, 3), tmp_path / "model.onnx")
    assert list(tmp_path.iterdir()) == []
    assert capfd.readouterr() == ("", ""), "torch prints the program where it stopped"


class Masked(nn.Module):
    """The class of a text is read from the mean of all places, also of those behind its end."""

    def __init__(self) -> None:
        super().__init__()
        layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2, norm=nn.LayerNorm(8))
        self.out = nn.Linear(8, 2)

    def forward(self, embedded: torch.Tensor, padding: torch.Tensor) -> torch.Tensor:
        return self.out(self.encoder(embedded, src_key_padding_mask=padding).mean(dim=1))


@pytest.mark.parametrize("is_at_the_end", [True, False])
def test_padding_in_a_transformer_counts_as_in_evaluation(
    tmp_path: Path, is_at_the_end: bool
) -> None:
    torch.manual_seed(0)
    model = Masked().eval()
    places = torch.arange(6)
    lengths = torch.tensor([[6], [2], [4]])
    padding = places >= lengths if is_at_the_end else places < 6 - lengths
    embedded = torch.randn(3, 6, 8)
    write_onnx(model, (embedded, padding), tmp_path / "model.onnx")
    session = open_session(tmp_path / "model.onnx", threads=1)
    other = torch.randn(2, 6, 8)
    with torch.inference_mode():
        known = model(other, padding[1:]).numpy()
    feeds = {"embedded": other.numpy(), "padding": padding[1:].numpy()}
    assert session.run(None, feeds)[0] == pytest.approx(known, abs=1e-5)
