"""A trained model as one graph, from the user's rows to probabilities or numbers.

`onnx_export` converts a torch module or trees to a graph. A compressed model already is one. The
graph is placed between the encoding of the inputs and the conversion of the outputs. The caller
chooses the trial.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from workbench.data.category_pairs import CategoryPair
from workbench.data.column_encoding import Column
from workbench.data.encoders import TextEncoder
from workbench.data.reading import Reading
from workbench.data.table_texts import TableTexts
from workbench.deploy import table_graph
from workbench.deploy.card import ERROR_SIZE, Input, Output, counts_name
from workbench.deploy.formats import Program
from workbench.deploy.graph import Graph, onnx
from workbench.deploy.lengths import Lengths
from workbench.deploy.onnx_export import OnnxModule, Positional, add_trees, write_onnx
from workbench.foundation.errors import RunError
from workbench.models.detector import NUM_EDGES
from workbench.models.fitted_estimator import FittedEstimator
from workbench.models.model_calls import output_in
from workbench.models.pairing import MIN_PROBABILITY, Pairing
from workbench.models.second_layer import MIN_PROBABILITY as LEAST_STACKED
from workbench.models.second_layer import SecondLayer
from workbench.models.trees import TreeEnsemble
from workbench.training.loaders import as_tensors

_FLOAT = np.dtype("float32")
_MAX_LOGARITHM = 80.0
"""A larger logarithm has no number in float32."""
_WHOLE = {
    torch.bool: onnx.TensorProto.BOOL,
    torch.uint8: onnx.TensorProto.UINT8,
    torch.int8: onnx.TensorProto.INT8,
    torch.int16: onnx.TensorProto.INT16,
    torch.int32: onnx.TensorProto.INT32,
}
"""Types of whole numbers that users give as int64."""
_COUNTS = "\0counts"
"""The key of the counts of terms among the values of inputs. No column has this name."""
_LEAST_CALIBRATED = 1e-7
"""A smaller probability is corrected as this one, as AutoML does."""


@dataclass(frozen=True)
class Member:
    """A model and how its inputs and outputs are converted.

    Attributes:
        model: The model, on the CPU.
        columns: How the columns of a table are encoded, or empty if a sample is an array or a text.
        pairs: Columns of a table that are also encoded together.
        table_texts: How the columns of sentences of a table are encoded, or None.
        texts: How the terms of texts are weighted, or None if samples are not texts.
        mean: Subtracted from an array. A number, or a number for each channel.
        scale: Divides an array after that.
        target_mean: Added to a predicted number after scaling. A number, or one per output.
        target_scale: The factor of a predicted number. A number, or one per output.
        image_shape: The shape of an image as users have it, (height, width) or (height, width,
            channels), or None if samples have the shape that the model takes.
        pairing: How scores of classes are read from outputs, or None for classes that come last.
        trend: The place of an encoded input, and what is added to a predicted number for each unit
            of it, or None.
        is_log: Whether the model predicts the logarithm of a number.
        lengths: Dimensions of its inputs that may have any size.
    """

    model: nn.Module
    columns: tuple[Column, ...] = ()
    pairs: tuple[CategoryPair, ...] = ()
    table_texts: TableTexts | None = None
    texts: TextEncoder | None = None
    mean: Any = 0.0
    scale: Any = 1.0
    target_mean: Any = 0.0
    target_scale: Any = 1.0
    image_shape: tuple[int, ...] | None = None
    pairing: Pairing | None = None
    trend: tuple[int, float] | None = None
    is_log: bool = False
    lengths: Lengths = field(default_factory=Lengths)

    @classmethod
    def of(
        cls,
        model: nn.Module,
        reading: Reading | None,
        pairing: Pairing | None = None,
        lengths: Lengths | None = None,
    ) -> Member:
        """Return a model with the conversions of a data set."""
        if reading is None:
            return cls(model, pairing=pairing, lengths=lengths or Lengths())
        return cls(
            model,
            reading.columns,
            mean=reading.mean,
            scale=reading.scale,
            target_mean=reading.target_mean,
            target_scale=reading.target_scale,
            pairing=pairing,
        )


@dataclass(frozen=True)
class Quantiles:
    """How the quantiles of a row follow from its prediction.

    A quantile is the prediction plus a multiple of the usual size of errors.

    Attributes:
        places: Predictions at which the usual size is known.
        sizes: That size at each place. Between two places it is interpolated.
        steps: The multiple of each quantile.
        max_factor: The factor by which a row changes the usual size, at most.
        trees: Tells the logarithm of that factor of each row, or None if it is always 1.
    """

    places: np.ndarray
    sizes: np.ndarray
    steps: np.ndarray
    max_factor: float
    trees: Member | None = None


def build(
    members: Sequence[tuple[Member, float]],
    inputs: Sequence[Input],
    output: Output,
    examples: Sequence[Any],
    *,
    terms: Sequence[str] = (),
    temperature: float | None = None,
    curves: Sequence[tuple[Sequence[float], Sequence[float]]] = (),
    quantiles: Quantiles | None = None,
    error_size: Quantiles | None = None,
    are_shares: bool = False,
    second: tuple[SecondLayer, Sequence[int]] | None = None,
    offsets: Column | None = None,
) -> onnx.ModelProto:
    """Return the weighted mean of models, or a second layer on them, as one graph.

    Args:
        members: Models with their weights, which sum to 1. All read the same inputs.
        inputs: The inputs of the graph.
        output: The output of the graph.
        examples: Some training inputs for each model, as arrays or tensors.
        terms: The terms of texts whose counts the graph takes in their place, or empty.
        temperature: Probabilities are raised to the power of its inverse, and none is 0. None for
            numbers, and for probabilities that stay as they are.
        curves: Instead of a temperature, a curve for each class, or for the second of two:
            predicted log-odds, and those that replace them.
        quantiles: How quantiles follow from a predicted number, if they are the output.
        error_size: How the usual size of an error follows from a predicted number, if it is the
            second output.
        are_shares: Whether predicted numbers are kept between 0 and 1.
        second: What answers from the probabilities of models in place of the weighted mean, and the
            number of the input of each model. Models with the same number are averaged.
        offsets: A column whose encoding is added to a predicted number, or None.

    Raises:
        RunError: If a model cannot be exported.
    """
    graph = Graph()
    given: dict[str, str] = {}
    for taken in inputs:
        if terms and taken.kind == "text":
            continue
        dtype = np.dtype(taken.numpy_dtype)
        given[taken.name] = graph.input(taken.name, dtype, taken.graph_shape)
    if terms:
        given[_COUNTS] = graph.input(counts_name(inputs), _FLOAT, (len(terms),))
    parts = [
        _answer(graph, add_member(graph, member, given, as_tensors(example), terms), member, output)
        for (member, _), example in zip(members, examples, strict=True)
    ]
    total = parts[0]
    if second is not None:
        total = along_second_layer(graph, parts, *second)
    elif len(parts) > 1:
        weighted = [
            graph.add("Mul", part, graph.constant(np.float32(weight)))
            for part, (_, weight) in zip(parts, members, strict=True)
        ]
        total = graph.add("Sum", *weighted)
    total = _with_offsets(graph, total, offsets, given)
    if temperature is not None:
        total = calibrated(graph, total, temperature, curves)
    if are_shares:
        total = graph.add("Clip", total, *map(graph.constant, (np.float32(0), np.float32(1))))
    if quantiles is not None:
        total = add_quantiles(graph, total, quantiles, given, terms)
    more: list[tuple[str, str, tuple[int | str, ...]]] = []
    if error_size is not None:
        column = graph.add("Reshape", total, graph.constant(np.array([-1, 1], dtype=np.int64)))
        more.append((_error_size(graph, column, error_size, given, terms), ERROR_SIZE, (1,)))
    return graph.model(total, output.name, _FLOAT, output.graph_shape, more=more)


def _with_offsets(graph: Graph, total: str, offsets: Column | None, given: dict[str, str]) -> str:
    """Add the encoding of a column to predicted numbers, if there is one."""
    if offsets is None:
        return total
    added = table_graph.encode(graph, [offsets], given)
    return graph.add("Add", total, graph.add("Reshape", added, graph.add("Shape", total)))


def along_second_layer(
    graph: Graph, parts: Sequence[str], layer: SecondLayer, numbers: Sequence[int]
) -> str:
    """Add a second layer on the probabilities of models, and return its probabilities.

    Args:
        graph: The graph.
        parts: The probabilities of each model, (batch, classes).
        layer: The second layer.
        numbers: The number of the input of each model. Those with the same number are averaged.
    """

    def constant(values: Any) -> str:
        return graph.constant(np.asarray(values, dtype=np.float32))

    by_number: dict[int, list[str]] = {}
    for number, part in zip(numbers, parts, strict=True):
        by_number.setdefault(number, []).append(part)
    means = [
        graph.add("Mean", *same) if len(same) > 1 else same[0]
        for _, same in sorted(by_number.items())
    ]
    joined = means[0] if len(means) == 1 else graph.add("Concat", *means, axis=1)
    features = graph.add("Log", graph.add("Max", joined, constant(LEAST_STACKED)))
    features = graph.add(
        "Div", graph.add("Sub", features, constant(layer.mean)), constant(layer.scale)
    )
    features = graph.add(
        "Min", graph.add("Max", features, constant(layer.low)), constant(layer.high)
    )
    scores = graph.add("MatMul", features, constant(layer.weights.T))
    return graph.add("Softmax", graph.add("Add", scores, constant(layer.bias)), axis=-1)


def calibrated(
    graph: Graph,
    probabilities: str,
    temperature: float,
    curves: Sequence[tuple[Sequence[float], Sequence[float]]],
) -> str:
    """Add a calibration of probabilities, after which none is 0, and return them.

    Args:
        graph: The graph.
        probabilities: Probabilities of shape (batch, classes).
        temperature: As in `build`.
        curves: As in `build`.
    """
    least = graph.constant(np.float32(_LEAST_CALIBRATED))
    last = graph.constant(np.array([-1], dtype=np.int64))

    def divided(shares: str) -> str:
        return graph.add("Div", shares, graph.add("ReduceSum", shares, last, keepdims=1))

    if curves:
        total = along_curves(graph, probabilities, curves)
    elif temperature != 1.0:
        inverse = graph.constant(np.float32(1.0 / temperature))
        total = divided(graph.add("Pow", graph.add("Max", probabilities, least), inverse))
    else:
        total = probabilities
    return divided(graph.add("Max", total, least))


def along_curves(
    graph: Graph,
    probabilities: str,
    curves: Sequence[tuple[Sequence[float], Sequence[float]]],
) -> str:
    """Add the calibration of probabilities by a curve for each class, and return them.

    Args:
        graph: The graph.
        probabilities: Probabilities of shape (batch, classes).
        curves: For each class, or for the second of two: predicted log-odds, and those that replace
            them.
    """

    def number(value: float) -> str:
        return graph.constant(np.float32(value))

    def column(place: int) -> str:
        bounds = (np.array([end], dtype=np.int64) for end in (place, place + 1, 1))
        start, stop, axis = map(graph.constant, bounds)
        given = graph.add("Slice", probabilities, start, stop, axis)
        return graph.add("Clip", given, number(_LEAST_CALIBRATED), number(1 - _LEAST_CALIBRATED))

    def calibrated(place: int, other: str, places: Any, values: Any) -> str:
        odds = graph.add("Sub", graph.add("Log", column(place)), graph.add("Log", other))
        before = graph.add("Min", graph.add("Sub", odds, number(places[0])), number(0.0))
        after = graph.add("Max", graph.add("Sub", odds, number(places[-1])), number(0.0))
        inside = _interpolated(graph, odds, np.asarray(places), np.asarray(values))
        return graph.add("Sigmoid", graph.add("Sum", inside, before, after))

    if len(curves) == 1:  # the probability of the first class is more exact than 1 minus another
        second = calibrated(1, column(0), *curves[0])
        return graph.add("Concat", graph.add("Sub", number(1.0), second), second, axis=1)
    parts = [
        calibrated(place, graph.add("Sub", number(1.0), column(place)), *curve)
        for place, curve in enumerate(curves)
    ]
    joined = graph.add("Concat", *parts, axis=1)
    last = graph.constant(np.array([-1], dtype=np.int64))
    return graph.add("Div", joined, graph.add("ReduceSum", joined, last, keepdims=1))


def _interpolated(graph: Graph, given: str, places: np.ndarray, values: np.ndarray) -> str:
    """Add the linear interpolation of numbers of shape (batch, 1), constant outside of the places.

    Each piece adds its slope times the part of it that lies below the number.
    """

    def constant(numbers: Any) -> str:
        return graph.constant(np.asarray(numbers, dtype=np.float32))

    first = constant(values[:1])
    low, high = places[:-1], places[1:]
    if not len(low):
        return first
    part = graph.add("Min", graph.add("Max", given, constant(low)), constant(high))
    part = graph.add("Sub", part, constant(low))
    slopes = np.diff(values) / (high - low)
    return graph.add("Add", graph.add("MatMul", part, constant(slopes[:, None])), first)


def add_quantiles(
    graph: Graph,
    predicted: str,
    quantiles: Quantiles,
    given: Mapping[str, str],
    terms: Sequence[str] = (),
) -> str:
    """Add the quantiles of predicted numbers to a graph, and return them as (batch, quantiles).

    Args:
        graph: The graph.
        predicted: The predicted numbers, of shape (batch, 1).
        quantiles: How quantiles follow from them.
        given: The values of the inputs by name.
        terms: The terms of texts that are counted.
    """
    size = _error_size(graph, predicted, quantiles, given, terms)
    steps = graph.constant(np.asarray(quantiles.steps, dtype=np.float32))
    return graph.add("Add", predicted, graph.add("Mul", size, steps))


def _error_size(
    graph: Graph,
    predicted: str,
    quantiles: Quantiles,
    given: Mapping[str, str],
    terms: Sequence[str],
) -> str:
    """Add the usual size of the error of each predicted number, of shape (batch, 1)."""

    def constant(number: float) -> str:
        return graph.constant(np.asarray(number, dtype=np.float32))

    size = _interpolated(graph, predicted, quantiles.places, quantiles.sizes)
    if quantiles.trees is None:
        # With one place, the interpolation is a constant without rows.
        return graph.add("Add", graph.add("Mul", predicted, constant(0.0)), size)
    logarithm = add_member(graph, quantiles.trees, given, None, terms)
    bound = np.log(quantiles.max_factor)
    logarithm = graph.add("Clip", logarithm, constant(-bound), constant(bound))
    return graph.add("Mul", graph.add("Exp", logarithm), size)


def add_member(
    graph: Graph, member: Member, given: Mapping[str, str], example: Any, terms: Sequence[str] = ()
) -> str:
    """Add the encoding and the model to a graph, and return the value of the model's outputs.

    Args:
        graph: The graph.
        member: The model and how its inputs are converted.
        given: The values of the inputs by name.
        example: Some inputs as the model takes them.
        terms: The terms of texts that are counted.

    Raises:
        RunError: If the model cannot be exported.
    """
    values = encode_inputs(graph, member, given, terms)
    outputs = _outputs_of(graph, member, values, example)
    if member.trend is None:
        return outputs
    place, slope = member.trend
    time = graph.add("Gather", values[0], graph.constant(np.array([place], np.int64)), axis=1)
    # What a model predicts is scaled later.
    factor = graph.constant(np.float32(slope / member.target_scale))
    return graph.add("Add", outputs, graph.add("Mul", time, factor))


def _outputs_of(graph: Graph, member: Member, values: Sequence[str], example: Any) -> str:
    """Add the model alone."""
    if isinstance(member.model, TreeEnsemble):
        flat = graph.add("Flatten", values[0], axis=1)
        return add_trees(graph, member.model, flat)
    if isinstance(member.model, FittedEstimator):
        raise RunError(
            "a fitted estimator of another library cannot be exported to ONNX",
            allowed="the models of the workbench, and torch modules",
            next_step="Train boosted_trees or forest, or export it without --format onnx.",
        )
    if isinstance(member.model, OnnxModule):
        return graph.inline(
            member.model.proto(), _as_trained(graph, values, _tensors_in(member.model, example))
        )
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.onnx"
        module, arguments = _positional(member.model, example)
        write_onnx(module, arguments, path, member.lengths)
        return graph.inline(onnx.load(str(path)), _as_trained(graph, values, arguments))


def _tensors_in(model: OnnxModule, example: Any) -> Any:
    taken = model.taken(example)
    return tuple(taken.values()) if isinstance(taken, Mapping) else taken


def _as_trained(graph: Graph, values: Sequence[str], arguments: Any) -> tuple[str, ...]:
    """Return values in the types that the model was trained with, such as the masks of tokens."""
    given = arguments if isinstance(arguments, tuple) else (arguments,)
    return tuple(
        graph.add("Cast", value, to=_WHOLE[tensor.dtype]) if tensor.dtype in _WHOLE else value
        for value, tensor in zip(values, given, strict=True)
    )


def encode_inputs(
    graph: Graph, member: Member, given: Mapping[str, str], terms: Sequence[str] = ()
) -> list[str]:
    """Add the encoding of the inputs to a graph, and return the values that the model takes.

    Args:
        graph: The graph.
        member: The model and how its inputs are converted.
        given: The values of the inputs by name.
        terms: The terms of texts that are counted.
    """
    if member.columns or member.table_texts is not None:
        values = [
            table_graph.encode(
                graph,
                member.columns,
                dict(given),
                pairs=member.pairs,
                texts=member.table_texts,
                terms=terms,
                counts=given.get(_COUNTS, ""),
            )
        ]
    elif member.texts is not None:
        values = [table_graph.encode_texts(graph, member.texts, terms, given[_COUNTS])]
    else:
        values = list(given.values())
        if member.image_shape is not None or _is_encoded(member):
            # In float64, as the training data was.
            value = graph.add("Cast", _channels_first(graph, member, values[0]), to=11)
            value = graph.add(
                "Sub", value, graph.constant(np.asarray(member.mean, dtype=np.float64))
            )
            value = graph.add(
                "Div", value, graph.constant(np.asarray(member.scale, dtype=np.float64))
            )
            values = [graph.add("Cast", value, to=1)]
    return values


def _is_encoded(member: Member) -> bool:
    return bool(np.any(member.mean) or np.any(np.asarray(member.scale) != 1.0))


def _channels_first(graph: Graph, member: Member, value: str) -> str:
    if member.image_shape is None:
        return value
    if len(member.image_shape) == 2:
        return graph.add("Unsqueeze", value, graph.constant(np.array([1], dtype=np.int64)))
    return graph.add("Transpose", value, perm=[0, 3, 1, 2])


def answering_program(
    member: Member, inputs: Sequence[Input], output: Output, example: Any
) -> Program | None:
    """Return a model with the conversions of its inputs and outputs as one module of torch.

    Args:
        member: The model and how its inputs and outputs are converted.
        inputs: The inputs of the model.
        output: The output of the model.
        example: Some training inputs of the model.

    Returns:
        The module. None if the inputs are columns of a table or images as users have them, or if it
        is not a torch model.
    """
    is_other = isinstance(member.model, TreeEnsemble | FittedEstimator | OnnxModule)
    if member.columns or member.image_shape is not None or is_other:
        return None
    module, arguments = _positional(member.model, as_tensors(example))
    given = arguments if isinstance(arguments, tuple) else (arguments,)
    parts: list[nn.Module] = [module, Answering(member, output)]
    if _is_encoded(member):
        parts.insert(0, _Encoding(member))
        scale, mean = (
            torch.from_numpy(np.asarray(numbers)) for numbers in (member.scale, member.mean)
        )
        given = (given[0] * scale + mean,)
    dtypes = [getattr(torch, taken.dtype) for taken in inputs]
    given = tuple(values.to(dtype) for values, dtype in zip(given, dtypes, strict=True))
    return Program(_Chain(parts).eval(), given)


class _Chain(nn.Module):
    """Modules one after the other, of which the first may take several inputs."""

    def __init__(self, parts: Sequence[nn.Module]) -> None:
        super().__init__()
        self.parts = nn.ModuleList(parts)

    def forward(self, *given: torch.Tensor) -> torch.Tensor:
        first, *others = self.parts
        values = first(*given)
        for part in others:
            values = part(values)
        return values


class Answering(nn.Module):
    """From what a model returns to what a graph answers, as in the graph."""

    factor: torch.Tensor
    mean: torch.Tensor

    def __init__(self, member: Member, output: Output) -> None:
        """Take the conversion of a member's outputs."""
        super().__init__()
        self._kind, self._shape, self._pairing = output.kind, output.graph_shape, member.pairing
        self.register_buffer(
            "factor", torch.from_numpy(np.asarray(member.target_scale, np.float32))
        )
        self.register_buffer("mean", torch.from_numpy(np.asarray(member.target_mean, np.float32)))

    def forward(self, outputs: torch.Tensor) -> torch.Tensor:
        """Return the answers."""
        if self._kind == "classes":
            scores = outputs if self._pairing is None else self._pairing.scores(outputs)
            return scores.softmax(dim=-1)
        if self._kind == "boxes":
            return torch.cat([outputs[..., :NUM_EDGES], outputs[..., NUM_EDGES:].sigmoid()], dim=-1)
        if self._kind == "values":
            numbers = outputs * self.factor + self.mean
            sizes = [size for size in self._shape if isinstance(size, int)]
            if len(sizes) < len(self._shape):  # some depend on the sample
                return numbers
            return numbers.reshape(-1, *sizes)
        return outputs


class _Encoding(nn.Module):
    """From an array as users have it to what a model takes, in float64 as in the graph."""

    mean: torch.Tensor
    scale: torch.Tensor

    def __init__(self, member: Member) -> None:
        super().__init__()
        self.register_buffer("mean", torch.from_numpy(np.asarray(member.mean, np.float64)))
        self.register_buffer("scale", torch.from_numpy(np.asarray(member.scale, np.float64)))

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        return ((values.double() - self.mean) / self.scale).float()


def _positional(
    model: nn.Module, example: Any
) -> tuple[nn.Module, torch.Tensor | tuple[torch.Tensor, ...]]:
    if isinstance(example, torch.Tensor):
        return _Output(model), example
    called = Positional(model, example)
    return called, called.given(example)


class _Output(nn.Module):
    """The part of what a model returns that is its output."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model
        self.training = model.training

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return output_in(self.model(inputs))


def _scores(graph: Graph, scores: str, member: Member, num_dims: int) -> str:
    """Return scores with the classes last.

    A single score of two classes becomes a pair, in which the score of the first class is 0.
    """
    pairing = member.pairing
    if pairing is None or pairing.form is None:
        return scores
    if pairing.class_dim is None:
        scores = graph.add("Unsqueeze", scores, graph.constant(np.array([-1], dtype=np.int64)))
    elif pairing.class_dim == 1 and num_dims > 2:
        scores = graph.add("Transpose", scores, perm=[0, *range(2, num_dims), 1])
    if pairing.form != "binary":
        return scores
    if pairing.single_scores == "probabilities":  # the softmax of their logits gives them back
        low, high = (
            graph.constant(np.array(bound, np.float32))
            for bound in (MIN_PROBABILITY, 1 - MIN_PROBABILITY)
        )
        scores = graph.add("Clip", scores, low, high)
        rest = graph.add("Sub", graph.constant(np.array(1, np.float32)), scores)
        scores = graph.add("Sub", graph.add("Log", scores), graph.add("Log", rest))
    return graph.add("Concat", graph.add("Sub", scores, scores), scores, axis=-1)


def _answer(graph: Graph, value: str, member: Member, output: Output) -> str:
    if output.kind == "classes":
        return graph.add("Softmax", _scores(graph, value, member, len(output.shape) + 1), axis=-1)
    if output.kind == "outputs":
        return value
    if output.kind == "boxes":
        places = (0, NUM_EDGES, output.shape[-1], -1)
        first, middle, end, last = (
            graph.constant(np.array([place], dtype=np.int64)) for place in places
        )
        edges = graph.add("Slice", value, first, middle, last)
        scores = graph.add("Sigmoid", graph.add("Slice", value, middle, end, last))
        return graph.add("Concat", edges, scores, axis=-1)
    scale, mean = (
        np.asarray(numbers, np.float32) for numbers in (member.target_scale, member.target_mean)
    )
    if np.any(scale != 1.0) or np.any(mean):
        value = graph.add(
            "Add", graph.add("Mul", value, graph.constant(scale)), graph.constant(mean)
        )
    if member.is_log:
        most = graph.constant(np.float32(_MAX_LOGARITHM))
        value = graph.add("Exp", graph.add("Min", value, most))
    if output.shape:
        return value
    return graph.add("Reshape", value, graph.constant(np.array([-1], dtype=np.int64)))
