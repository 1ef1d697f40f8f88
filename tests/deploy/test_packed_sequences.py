"""Packed sequences keep their padding while a model is exported, with the same outputs."""

from __future__ import annotations

from itertools import product
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from workbench.deploy.lengths import Lengths
from workbench.deploy.onnx_export import write_onnx
from workbench.deploy.packed_sequences import packed_with_padding
from workbench.deploy.predictor import open_session
from workbench.foundation.errors import RunError

LENGTHS = torch.tensor([3, 7, 1, 5])


class Recurrent(nn.Module):
    """Returns what a recurrent layer computes for packed sequences, and its last state."""

    def __init__(self, layer: nn.RNNBase) -> None:
        super().__init__()
        self.layer = layer

    def forward(
        self, steps: Tensor, lengths: Tensor, first: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        is_first = self.layer.batch_first
        packed = pack_padded_sequence(steps, lengths.cpu(), is_first, enforce_sorted=False)
        outputs, state = self.layer(packed, first)
        last = state[0] if isinstance(state, tuple) else state
        return pad_packed_sequence(outputs, is_first, padding_value=-2.0)[0], last


class Last(Recurrent):
    """Returns the last state only."""

    def forward(self, steps: Tensor, lengths: Tensor) -> Tensor:  # type: ignore[override]
        return super().forward(steps, lengths)[1][-1]


class Cells(Recurrent):
    """Returns the cells at the ends, which nothing tells that can be exported."""

    def forward(self, steps: Tensor, lengths: Tensor) -> Tensor:  # type: ignore[override]
        packed = pack_padded_sequence(steps, lengths.cpu(), True, enforce_sorted=False)
        return self.layer(packed)[1][1][-1]


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU, nn.RNN])
def test_each_sequence_is_computed_to_its_own_end(kind: Any) -> None:
    torch.manual_seed(0)
    for is_bidirectional, num_layers, is_first in product((False, True), (1, 2), (True, False)):
        layer = kind(3, 5, num_layers, batch_first=is_first, bidirectional=is_bidirectional)
        model = Recurrent(layer).eval()
        steps = torch.randn(4, 7, 3) if is_first else torch.randn(7, 4, 3)
        with torch.inference_mode():
            known = model(steps, LENGTHS)
            with packed_with_padding():
                outputs = model(steps, LENGTHS)
            again = model(steps, LENGTHS)
        for output, expected, after in zip(outputs, known, again, strict=True):
            torch.testing.assert_close(output, expected, atol=1e-6, rtol=0)
            assert torch.equal(after, expected)


def test_a_first_state_belongs_to_its_sequence() -> None:
    torch.manual_seed(0)
    model = Recurrent(nn.GRU(3, 5, batch_first=True)).eval()
    steps, first = torch.randn(4, 7, 3), torch.randn(1, 4, 5)
    with torch.inference_mode():
        known = model(steps, LENGTHS, first)
        with packed_with_padding():
            outputs = model(steps, LENGTHS, first)
    torch.testing.assert_close(outputs, known, atol=1e-6, rtol=0)


def test_a_model_of_packed_sequences_is_exported_for_any_length(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = Last(nn.LSTM(3, 5, batch_first=True, bidirectional=True)).eval()
    shorter = (torch.randn(1, 4, 3), torch.tensor([4]))
    lengths = Lengths({"steps": ("length", ""), "lengths": ()}, (shorter,))
    path = tmp_path / "model.onnx"
    write_onnx(model, (torch.randn(4, 7, 3), LENGTHS), path, lengths)
    session = open_session(path, threads=1)
    steps, many = torch.randn(3, 12, 3), torch.tensor([12, 4, 9])
    with torch.inference_mode():
        known = model(steps, many).numpy()
    feeds = {"steps": steps.numpy(), "lengths": many.numpy()}
    assert session.run(None, feeds)[0] == pytest.approx(known, abs=1e-5)


def test_cells_at_the_ends_are_refused_instead_of_wrong(tmp_path: Path) -> None:
    model = Cells(nn.LSTM(3, 5, batch_first=True)).eval()
    with pytest.raises(RunError, match="differs from torch"):
        write_onnx(model, (torch.randn(4, 7, 3), LENGTHS), tmp_path / "model.onnx")
