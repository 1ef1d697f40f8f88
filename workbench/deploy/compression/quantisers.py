"""Quantisation of a model to 8-bit integers by ONNX Runtime, and training that prepares for it.

Dynamic: weights are integers, and the range of the inputs of each layer is found in every call.
Static: the ranges of all values were found beforehand, on samples that the caller chooses. qat: as
static, of a model that was trained with `rounding`. Which is faster depends on model and processor,
so it has to be measured.

What a file answers must not depend on the processor. x86 processors without VNNI multiply unsigned
by signed 8-bit integers in pairs, and each pair saturates at 16 bits. So signed weights have 7 bits
here: no pair of their products with values of 8 bits exceeds 16. Kernels for unsigned weights widen
these first.

While a model trains with `rounding`, inputs and weights of linear and convolutional layers are
rounded as integers will round them, and gradients pass as if they were not (straight-through).
Afterwards it has 32-bit floats again, which suit static quantisation.
"""

from __future__ import annotations

import contextlib
import logging
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize

from workbench.deploy.packages import needs
from workbench.foundation.errors import RunError, first_line_of

Quantiser = Literal["none", "dynamic", "static", "qat"]
Calibration = Literal["minmax", "entropy", "percentile"]
QUANTISERS: tuple[Quantiser, ...] = ("none", "dynamic", "static", "qat")
CALIBRATIONS: tuple[Calibration, ...] = ("minmax", "entropy", "percentile")
MAX_WEIGHT = 64
"""The largest signed weight: 2 x 255 x 64 = 32,640, and 16 bits hold 32,767."""
_AT_ONCE = 32
_LAYERS = (nn.Linear, nn.Conv1d, nn.Conv2d)
_MOMENTUM = 0.05


def quantise(
    source: Path,
    target: Path,
    quantiser: Quantiser,
    *,
    calibration: Calibration = "minmax",
    samples: np.ndarray | None = None,
) -> None:
    """Write a model with 8-bit integers.

    Args:
        source: The model with 32-bit floats. It has one input.
        target: The file to write.
        quantiser: none copies the model; qat is here what static is.
        calibration: How a static range follows from the values that were seen.
        samples: Inputs by which the ranges are found, for a static one: of the training data only.

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
            # Without shapes, and with batch normalisation beside its convolution, less can be
            # quantised.
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
    return f"{type(model).__name__} has no linear or convolutional layer whose weights are its own"


def check_products(path: Path) -> None:
    """Check that no kernel can saturate: that every pair of products of a file fits 16 bits.

    Args:
        path: A model with 8-bit integers.

    Raises:
        ValueError: If a pair of products can exceed 16 bits. It names the weight.
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

    # ONNX Runtime has no convolution of signed weights whose ranges are found in the call.
    has_convolution = any(node.op_type == "Conv" for node in onnx.load(source).graph.node)
    weights = QuantType.QUInt8 if has_convolution else QuantType.QInt8
    quantize_dynamic(source, target, weight_type=weights, reduce_range=weights == QuantType.QInt8)


def _static(source: Path, target: Path, calibration: Calibration, samples: np.ndarray) -> None:
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


def _reader(source: Path, samples: np.ndarray) -> Any:
    """Return what hands out the samples to ONNX Runtime, some at once."""
    import onnx
    from onnxruntime.quantization import CalibrationDataReader

    name = onnx.load(source).graph.input[0].name

    class Reader(CalibrationDataReader):
        def __init__(self) -> None:
            self.batches = _batches(samples)

        def get_next(self) -> Any:
            batch = next(self.batches, None)
            return None if batch is None else {name: batch}

    return Reader()


def _batches(samples: np.ndarray) -> Iterator[np.ndarray]:
    # Those of a batch must be equally many: their values are stacked.
    at_once = min(_AT_ONCE, len(samples))
    for first in range(0, len(samples) - at_once + 1, at_once):
        yield samples[first : first + at_once]


@contextlib.contextmanager
def _quiet(names: Sequence[str] = ("root", "onnxruntime")) -> Iterator[None]:
    """Keep advice about models that were not prepared from the user, who can do nothing about
    it.
    """
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
    """The range of a layer's inputs, a moving mean of that of each batch, and inputs rounded within
    it.
    """

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
