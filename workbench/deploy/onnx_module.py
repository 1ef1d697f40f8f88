"""A model that is an ONNX file already, called as a module of torch.

To be exported with its encoding.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import torch
from torch import Tensor, nn

from workbench.deploy.graph import onnx
from workbench.deploy.predictor import open_session


class OnnxModule(nn.Module):
    """Answers by ONNX Runtime; it has one tensor as its input, and no parameters to train.

    Attributes:
        content: The file.
    """

    def __init__(self, content: bytes) -> None:
        """Load a model.

        Args:
            content: The file.

        Raises:
            RunError: If it is not a model that ONNX Runtime can run.
        """
        super().__init__()
        self.content = content
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "model.onnx")
            path.write_bytes(content)
            self._session = open_session(path)
        self._name = self._session.get_inputs()[0].name
        self.eval()

    def forward(self, inputs: Tensor) -> Tensor:
        """Return the outputs for samples."""
        return torch.from_numpy(self._session.run(None, {self._name: inputs.numpy()})[0])

    def proto(self) -> onnx.ModelProto:
        """Return the graph."""
        return onnx.load_from_string(self.content)
