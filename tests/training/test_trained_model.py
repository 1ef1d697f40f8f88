"""Few rows are predicted on one thread, and the process keeps its threads."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from workbench.training.trained_model import outputs_of


class Watching(nn.Module):
    """A model that notes how many threads it may use."""

    num_threads = 0

    def forward(self, inputs: Tensor) -> Tensor:
        """Return the inputs, or fail for missing ones."""
        self.num_threads = torch.get_num_threads()
        if bool(inputs.isnan().any()):
            raise ValueError("a number is missing")
        return inputs


@pytest.mark.parametrize(("num_rows", "expected"), [(1, 1), (32, 1), (33, 2), (2_000, 2)])
def test_few_rows_are_predicted_on_one_thread(num_rows: int, expected: int) -> None:
    before = torch.get_num_threads()
    model = Watching()
    torch.set_num_threads(2)
    try:
        assert outputs_of(model, np.ones((num_rows, 3), np.float32), classes=False).shape[0]
        assert (model.num_threads, torch.get_num_threads()) == (expected, 2)
        with pytest.raises(ValueError, match="missing"):
            outputs_of(model, np.full((num_rows, 3), np.nan, np.float32), classes=False)
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)
