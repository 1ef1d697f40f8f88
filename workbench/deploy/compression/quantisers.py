"""Quantisation of a model to 8-bit integers by ONNX Runtime, and training that prepares for it.

- dynamic: weights are integers, and each call finds the range of the inputs of each layer.
- static: the ranges of all values are found beforehand, on samples that the caller chooses.
- qat: like static, for a model that was trained with `rounding`.

Which of them is faster depends on the model and the processor, so it must be measured.

The answers of a file must not depend on the processor. x86 processors without VNNI multiply pairs
of unsigned and signed 8-bit integers, and their sum saturates at 16 bits. So signed weights only
have 7 bits here, and no sum of two products exceeds 16 bits. Kernels for unsigned weights are not
affected, because they widen them first.

While a model trains with `rounding`, inputs and weights of linear and convolutional layers are
rounded as integers will round them, and gradients pass as if they were not (straight-through).
Afterwards it has 32-bit floats again, which suit static quantisation.
"""

from __future__ import annotations

import contextlib
import logging
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize

from workbench.deploy.distributions import needs
from workbench.foundation.errors import RunError, first_line_of

Quantiser = Literal["none", "dynamic", "static", "qat"]
Calibration = Literal["minmax", "entropy", "percentile"]
QUANTISERS: tuple[Quantiser, ...] = ("none", "dynamic", "static", "qat")
CALIBRATIONS: tuple[Calibration, ...] = ("minmax", "entropy", "percentile")
MAX_WEIGHT = 64
"""The largest signed weight. 2 x 255 x 64 = 32,640 is below the 16-bit limit of 32,767."""
_AT_ONCE = 32
_LAYERS = (nn.Linear, nn.Conv1d, nn.Conv2d)
_MOMENTUM = 0.05


def quantise(
    source: Path,
    target: Path,
    quantiser: Quantiser,
    *,
    calibration: Calibration = "minmax",
    samples: np.ndarray | Mapping[str, np.ndarray] | None = None,
) -> None:
    """Write a model with 8-bit integers.

    Args:
        source: The model with 32-bit floats.
        target: The file to write.
        quantiser: The quantiser. none copies the model. qat does the same as static here.
        calibration: How a static range is calculated from values.
        samples: Inputs from the training data, by which static ranges are found. By name if the
            model has several.

    Raises:
        RunError: If ONNX Runtime cannot quantise the model.
        MissingDependencyError: If it is not installed.
    """
    if quantiser == "none":
        target.write_bytes(source.read_bytes())
        return
    with needs("onnxruntime"):
        from onnxruntime.quantization.shape_inference import quant_pre_process
    try:
        with tempfile.TemporaryDirectory() as folder, _quiet():
            prepared = Path(folder, "prepared.onnx")
            # Adds shapes and merges batch normalisation into convolutions. More layers can be
            # quantised then.
            quant_pre_process(str(source), str(prepared), skip_symbolic_shape=True)
            if quantiser == "dynamic":
                _dynamic(prepared, target)
            else:
                assert samples is not None
                _static(prepared, target, calibration, samples)
            check_products(target)
    except Exception as error:  # ONNX Runtime has no common base class for its errors
        raise RunError(
            f"ONNX Runtime cannot quantise the model ({quantiser}): {first_line_of(error)}"
        ) from error


@contextlib.contextmanager
def rounding(model: nn.Module) -> Iterator[None]:
    """Round inputs and weights of a model's layers for as long as the context lasts.

    Args:
        model: The model. Its weights are floats again afterwards, and what it learned stays.

    Source: Jacob et al., Quantization and Training of Neural Networks for Efficient
    Integer-Arithmetic-Only Inference (2018), section 3.
    """
    layers = _layers_of(model)
    ranges = [_Range() for _ in layers]
    handles = [
        layer.register_forward_pre_hook(limits.round)
        for layer, limits in zip(layers, ranges, strict=True)
    ]
    for layer in layers:
        parametrize.register_parametrization(layer, "weight", _RoundedWeight())
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()
        for layer in layers:
            parametrize.remove_parametrizations(layer, "weight", leave_parametrized=False)


def why_not_aware(model: nn.Module) -> str | None:
    """Return why a model cannot be trained with rounding, or None if it can."""
    if _layers_of(model):
        return None
    return f"{type(model).__name__} has no linear or convolutional layer with unshared weights"


def check_products(path: Path) -> None:
    """Check that no kernel can saturate because two products do not fit into 16 bits.

    Args:
        path: A model with 8-bit integers.

    Raises:
        ValueError: If a pair of products can exceed 16 bits. The error contains the weight.
    """
    import onnx
    from onnx import TensorProto, numpy_helper

    for weight in onnx.load(path).graph.initializer:
        if weight.data_type != TensorProto.INT8:
            continue
        largest = int(np.abs(numpy_helper.to_array(weight).astype(np.int32)).max(initial=0))
        if largest > MAX_WEIGHT:
            raise ValueError(
                f"the weight {weight.name} reaches {largest}, but processors only agree up to"
                f" {MAX_WEIGHT}: two products with values up to 255 then fit into 16 bits"
            )


def _dynamic(source: Path, target: Path) -> None:
    import onnx
    from onnxruntime.quantization import QuantType, quantize_dynamic

    # ONNX Runtime has no dynamic convolution with signed weights.
    has_convolution = any(node.op_type == "Conv" for node in onnx.load(source).graph.node)
    weights = QuantType.QUInt8 if has_convolution else QuantType.QInt8
    quantize_dynamic(source, target, weight_type=weights, reduce_range=weights == QuantType.QInt8)


def _static(
    source: Path,
    target: Path,
    calibration: Calibration,
    samples: np.ndarray | Mapping[str, np.ndarray],
) -> None:
    from onnxruntime.quantization import CalibrationMethod, QuantFormat, QuantType, quantize_static

    methods = {
        "minmax": CalibrationMethod.MinMax,
        "entropy": CalibrationMethod.Entropy,
        "percentile": CalibrationMethod.Percentile,
    }
    quantize_static(
        source,
        target,
        _reader(source, samples),
        quant_format=QuantFormat.QDQ,
        per_channel=True,
        activation_type=QuantType.QUInt8,
        weight_type=QuantType.QInt8,
        reduce_range=True,
        calibrate_method=methods[calibration],
    )


def _reader(source: Path, samples: np.ndarray | Mapping[str, np.ndarray]) -> Any:
    """Return a reader that passes the samples to ONNX Runtime in batches."""
    import onnx
    from onnxruntime.quantization import CalibrationDataReader

    feeds = samples
    if isinstance(feeds, np.ndarray):
        feeds = {onnx.load(source).graph.input[0].name: feeds}

    class Reader(CalibrationDataReader):
        def __init__(self) -> None:
            self.batches = zip(*(_batches(values) for values in feeds.values()), strict=True)

        def get_next(self) -> Any:
            batch = next(self.batches, None)
            return None if batch is None else dict(zip(feeds, batch, strict=True))

    return Reader()


def _batches(samples: np.ndarray) -> Iterator[np.ndarray]:
    # All batches must have the same size, because ONNX Runtime stacks their values.
    at_once = min(_AT_ONCE, len(samples))
    for first in range(0, len(samples) - at_once + 1, at_once):
        yield samples[first : first + at_once]


@contextlib.contextmanager
def _quiet(names: Sequence[str] = ("root", "onnxruntime")) -> Iterator[None]:
    """Suppress warnings about models that were not prepared. Users can do nothing about them."""
    loggers = [logging.getLogger(None if name == "root" else name) for name in names]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)


def _layers_of(model: nn.Module) -> list[nn.Module]:
    uses: dict[int, int] = {}
    for parameter in (item for _, item in model.named_parameters(remove_duplicate=False)):
        uses[id(parameter)] = uses.get(id(parameter), 0) + 1
    return [
        module
        for module in model.modules()
        if isinstance(module, _LAYERS)
        and not parametrize.is_parametrized(module)
        and uses[id(module.weight)] == 1
    ]


class _RoundedWeight(nn.Module):
    """Weights as 8-bit integers will hold them, with a scale for each output."""

    def forward(self, weight: Tensor) -> Tensor:
        scale = (weight.detach().flatten(1).abs().amax(dim=1) / MAX_WEIGHT).clamp_min(1e-12)
        zero = torch.zeros_like(scale, dtype=torch.int32)
        return torch.fake_quantize_per_channel_affine(
            weight, scale, zero, 0, -MAX_WEIGHT, MAX_WEIGHT
        )


class _Range:
    """Rounds a layer's inputs within their range, a moving mean over batches."""

    def __init__(self) -> None:
        self._range: tuple[float, float] | None = None

    def round(self, module: nn.Module, inputs: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        values = inputs[0]
        if module.training or self._range is None:
            low, high = (float(bound) for bound in torch.aminmax(values.detach()))
            known = self._range or (low, high)
            self._range = (
                known[0] + _MOMENTUM * (low - known[0]),
                known[1] + _MOMENTUM * (high - known[1]),
            )
        low, high = min(self._range[0], 0.0), max(self._range[1], 0.0)  # zero has to be exact
        scale = max((high - low) / 255, 1e-12)
        rounded = torch.fake_quantize_per_tensor_affine(values, scale, round(-low / scale), 0, 255)
        return (rounded, *inputs[1:])
