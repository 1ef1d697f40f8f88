"""The model of a bundle for OpenVINO, Intel's engine.

openvino.xml and openvino.bin, with 32-bit floats.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from workbench.deploy.card import MODEL
from workbench.deploy.distributions import needs
from workbench.deploy.formats import Program, Written
from workbench.foundation.errors import RunError

_NETWORK, _WEIGHTS = "openvino.xml", "openvino.bin"


def write(folder: Path, program: Program | None) -> Written:
    """Convert the model of a bundle. See `workbench.deploy.formats`.

    Args:
        folder: The bundle.
        program: Not needed: OpenVINO reads the graph.

    Raises:
        RunError: If OpenVINO cannot read the model.
        MissingDependencyError: If OpenVINO is not installed.
    """
    with needs("openvino", part="openvino"):
        import openvino  # pyright: ignore[reportMissingImports]
    files = (_NETWORK, _WEIGHTS)
    try:
        # Not in half precision, which is its default: the answers would differ.
        openvino.save_model(
            openvino.convert_model(folder / MODEL), folder / _NETWORK, compress_to_fp16=False
        )
        precision = {"INFERENCE_PRECISION_HINT": "f32"}
        compiled: Any = openvino.Core().compile_model(folder / _NETWORK, "CPU", precision)
    except Exception as error:  # OpenVINO has no common base class for its errors
        for file in files:
            (folder / file).unlink(missing_ok=True)
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        raise RunError(
            f"OpenVINO cannot read the model: {lines[-1] if lines else type(error).__name__}",
            next_step="Export it with --format onnx.",
        ) from error

    def run(feeds: Mapping[str, np.ndarray]) -> np.ndarray:
        return compiled(dict(feeds))[0]

    return Written(files, run)
