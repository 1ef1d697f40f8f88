"""Further formats of an exported model, in addition to model.onnx.

A format is a function that converts the model in a bundle's folder. Converters of torch programs
(ExecuTorch, LiteRT) also get the model as a torch module. Other packages add formats with the entry
point `workbench.export_formats`. The converted model is run on training samples and compared with
ONNX Runtime before it is accepted, so a format need not check itself.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from workbench.deploy.card import Card
from workbench.foundation.errors import RunError
from workbench.foundation.files import sha256_of
from workbench.foundation.registry import Registry

if TYPE_CHECKING:
    import numpy as np
    from torch import Tensor, nn

ONNX = "onnx"
FORMATS = Registry(
    "format",
    {
        "openvino": "workbench.deploy.engine_formats:write_openvino",
        "executorch": "workbench.deploy.engine_formats:write_executorch",
    },
    group="workbench.export_formats",
)
"""Each is a function `write(folder, program) -> Written`.

The bundle is complete with its model.onnx.
"""
SIZES = (1, 7)
"""The numbers of samples with which a format is compared."""
_TOLERANCE = 1e-5


@dataclass(frozen=True)
class Program:
    """The model of a bundle as a torch module with the same answers as model.onnx.

    Attributes:
        module: The module, in evaluation mode on the CPU. Its inputs are in the order of the card.
        example: Inputs of several samples.
    """

    module: nn.Module
    example: tuple[Tensor, ...]


@dataclass(frozen=True)
class Written:
    """The files of a format.

    Attributes:
        files: Names of the files in the folder.
        run: Runs these files. It takes inputs by name and returns the same output as model.onnx.
    """

    files: Sequence[str]
    run: Callable[[Mapping[str, np.ndarray]], np.ndarray]


def format_names() -> list[str]:
    """Return the formats that a bundle can have, ONNX first."""
    return [ONNX, *FORMATS.names()]


def add_format(
    folder: Path,
    card: Card,
    name: str,
    feeds: Mapping[str, np.ndarray],
    *,
    compute: Callable[[Mapping[str, np.ndarray]], np.ndarray],
    program: Program | None = None,
) -> Card:
    """Write the model of a bundle in a further format, and keep it if its answers are equal.

    Args:
        folder: The bundle.
        card: Its card.
        name: A name that `FORMATS` knows.
        feeds: Inputs of model.onnx for at least one sample.
        compute: The answers of model.onnx.
        program: The model as a module of torch, or None for other models, such as trees.

    Returns:
        The card with the files and the check.

    Raises:
        RunError: If the format cannot represent the model, or its answers differ.
        MissingDependencyError: If a package is missing.
    """
    import numpy as np

    written: Written = FORMATS.load(name, field="format")(folder, program)
    num_samples = len(next(iter(feeds.values())))
    for size in SIZES:
        places = np.arange(size) % num_samples
        some = {key: values[places] for key, values in feeds.items()}
        answers = np.asarray(written.run(some), dtype=np.float64)
        wanted = compute(some).astype(np.float64)
        difference = float("inf")
        if answers.shape == wanted.shape:
            largest = max(1.0, float(np.abs(wanted).max(initial=0.0)))
            difference = float(np.abs(answers - wanted).max(initial=0.0)) / largest
        if not difference <= _TOLERANCE:
            for file in written.files:
                (folder / file).unlink(missing_ok=True)
            raise RunError(
                f"the model as {name} differs from the exported one by {difference:.2g} for {size}"
                " samples",
                next_step="Export it with --format onnx.",
            )
    guarantee = (
        f"{name}: within {_TOLERANCE:g} of model.onnx for batches of"
        f" {' and '.join(map(str, SIZES))}, on the exporting machine"
    )
    return card.model_copy(
        update={
            "files": {**card.files, **{file: sha256_of(folder / file) for file in written.files}},
            "guarantees": (*card.guarantees, guarantee),
        }
    )
