"""A torch module as an ONNX file.

Exported with a dynamic batch, and compared with torch before it is kept.

What turns a user's rows into the input of the module, and its outputs into answers, is left to
`graph`.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import inspect
import logging
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from workbench.deploy.graph import OPSET
from workbench.deploy.packages import needs
from workbench.deploy.predictor import open_session
from workbench.foundation.errors import RunError, first_line_of

TOLERANCE = 1e-5
"""How far outputs of ONNX Runtime may be from those of torch, relative to the largest of them or
1.
"""
BATCHES = (1, 7)
"""The numbers of samples with which an exported model is compared with torch."""
_AS_IT_IS = "Export it without --format onnx: the bundle then has its weights and retrains it."


def write_onnx(model: nn.Module, example: Tensor | tuple[Tensor, ...], path: Path) -> None:
    """Write a module as an ONNX file whose batch may have any size.

    Args:
        model: The module; on the CPU, and used in evaluation mode.
        example: Inputs of at least two samples; a tuple holds several arguments.
        path: The file to write.

    Raises:
        RunError: If torch cannot export the module, or the file answers otherwise than torch.
        MissingDependencyError: If onnx, onnxscript or onnxruntime is not installed.
    """
    with needs("onnxscript"):
        import onnxruntime  # noqa: F401
        import onnxscript  # noqa: F401

    arguments = example if isinstance(example, tuple) else (example,)
    was_training = model.training
    model.eval()
    batch = torch.export.Dim("batch")
    # A batch of one would be taken for a constant.
    arguments = tuple(_resized(one, max(2, len(one))) for one in arguments)
    try:
        with _quiet():
            _read_operators_once()
            torch.onnx.export(
                model,
                arguments,
                str(path),
                dynamo=True,
                external_data=False,
                opset_version=OPSET,
                dynamic_shapes=tuple({0: batch} for _ in arguments),
                verbose=False,
                input_names=_names(model, len(arguments)),
                output_names=["outputs"],
                optimize=True,
            )
        _compare(model, arguments, path)
    except RunError:
        path.unlink(missing_ok=True)
        raise
    except Exception as error:  # torch raises many kinds, which have no common base class
        path.unlink(missing_ok=True)
        raise RunError(
            f"{type(model).__name__} cannot be exported to ONNX: {_reason(error)}",
            next_step=_AS_IT_IS,
        ) from error
    finally:
        model.train(was_training)


@functools.cache
def _read_operators_once() -> None:
    """Let torch keep what it reads of the operators of ONNX.

    It parses the source of all 500 at each export, which takes longer than a small model itself.
    Where another version of torch keeps them elsewhere, it goes on doing so.
    """
    with contextlib.suppress(ImportError, AttributeError):
        operators: Any = importlib.import_module(
            "torch.onnx._internal._lazy_import"
        ).onnxscript_apis
        operators.get_torchlib_ops = functools.cache(operators.get_torchlib_ops)


def _compare(model: nn.Module, arguments: tuple[Tensor, ...], path: Path) -> None:
    session = open_session(path)
    names = [one.name for one in session.get_inputs()]
    for size in BATCHES:
        given = tuple(_resized(one, size) for one in arguments)
        with torch.inference_mode():
            expected = model(*given)
        if not isinstance(expected, Tensor):
            raise RunError(
                f"{type(model).__name__} returns {type(expected).__name__}, and only a tensor is"
                " exported",
                next_step=_AS_IT_IS,
            )
        found = torch.from_numpy(
            session.run(None, {name: one.numpy() for name, one in zip(names, given, strict=True)})[
                0
            ]
        )
        difference = difference_of(found, expected)
        if not difference <= TOLERANCE:
            raise RunError(
                f"{type(model).__name__} as ONNX differs from torch by {difference:.2g} for {size}"
                " samples",
                next_step=_AS_IT_IS,
            )


def difference_of(found: Tensor, expected: Tensor) -> float:
    """Return how far outputs are apart, relative to the largest expected one or 1."""
    if found.shape != expected.shape:
        return float("inf")
    if not expected.numel():
        return 0.0
    known = expected.detach().double()
    return float((found.double() - known).abs().max()) / max(1.0, float(known.abs().max()))


def _resized(given: Tensor, size: int) -> Tensor:
    """Return that many samples, by repeating or leaving out some."""
    repeats = -(-size // max(1, len(given)))
    return torch.cat([given] * repeats)[:size].contiguous()


def _names(model: nn.Module, number: int) -> list[str]:
    if number == 1:
        return ["inputs"]
    names = list(inspect.signature(model.forward).parameters)
    return (
        names[:number] if len(names) >= number else [f"inputs_{index}" for index in range(number)]
    )


def _reason(error: Exception) -> str:
    """Return the first line of the innermost error that explains something."""
    while isinstance(error.__cause__, Exception):
        error = error.__cause__
    return first_line_of(error)


@contextlib.contextmanager
def _quiet() -> Iterator[Any]:
    """Keep what the exporter prints and warns of from the user, who can do nothing about it."""
    loggers = [
        logging.getLogger(name) for name in ("torch.onnx", "onnxscript", "onnx_ir", "torch.export")
    ]
    levels = [one.level for one in loggers]
    for one in loggers:
        one.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        for one, level in zip(loggers, levels, strict=True):
            one.setLevel(level)
