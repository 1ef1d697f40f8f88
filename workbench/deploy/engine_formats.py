"""The model of a bundle for other engines.

OpenVINO reads openvino.xml and openvino.bin, with 32-bit floats. ExecuTorch reads executorch.pte,
lowered for XNNPACK, the library of fast operators for processors of phones and boards.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from workbench.deploy.card import MODEL
from workbench.deploy.distributions import needs
from workbench.deploy.formats import Program, Written
from workbench.foundation.errors import RunError, first_line_of

_NETWORK, _WEIGHTS = "openvino.xml", "openvino.bin"
_PROGRAM = "executorch.pte"
_MAX_BATCH = 64
"""The largest batch that a program for ExecuTorch takes, which plans its memory for it."""


def write_openvino(folder: Path, program: Program | None) -> Written:
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


def write_executorch(folder: Path, program: Program | None) -> Written:
    """Lower the model of a bundle. See `workbench.deploy.formats`.

    Args:
        folder: The bundle.
        program: The model as a module of torch.

    Raises:
        RunError: If ExecuTorch cannot lower the model.
        MissingDependencyError: If ExecuTorch is not installed.
    """
    if program is None:
        raise RunError(
            "ExecuTorch takes models of torch whose inputs are arrays, not trees, columns of a"
            " table or image files",
            next_step="Export it with --format onnx.",
        )
    with needs("executorch", part="executorch"):
        from executorch.backends.xnnpack.partition.xnnpack_partitioner import (  # pyright: ignore[reportMissingImports]
            XnnpackPartitioner,
        )
        from executorch.exir import (  # pyright: ignore[reportMissingImports]
            to_edge_transform_and_lower,
        )
        from executorch.runtime import Runtime  # pyright: ignore[reportMissingImports]
    import torch

    # Traced with fewer than 16 samples, a convolution would only be planned for fewer than 16.
    full = tuple(given.repeat_interleave(_MAX_BATCH, 0)[:_MAX_BATCH] for given in program.example)
    batch = {0: torch.export.Dim("batch", min=1, max=_MAX_BATCH)}
    try:
        exported = torch.export.export(program.module, full, dynamic_shapes=((batch,) * len(full),))
        lowered: Any = to_edge_transform_and_lower(exported, partitioner=[XnnpackPartitioner()])
        (folder / _PROGRAM).write_bytes(lowered.to_executorch().buffer)
        method: Any = Runtime.get().load_program(folder / _PROGRAM).load_method("forward")
        method.execute(full)
    except Exception as error:  # ExecuTorch has no common base class for its errors
        (folder / _PROGRAM).unlink(missing_ok=True)
        raise RunError(
            f"ExecuTorch cannot lower the model: {first_line_of(error)}",
            next_step="Export it with --format onnx.",
        ) from error

    def run(feeds: Mapping[str, np.ndarray]) -> np.ndarray:
        values = [torch.from_numpy(np.ascontiguousarray(given)) for given in feeds.values()]
        return method.execute(values)[0].numpy()

    return Written((_PROGRAM,), run)
