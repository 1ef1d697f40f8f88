"""Models of torch and of the zoo as ONNX, and an ONNX file as a module of torch.

A module is exported with a dynamic batch and with dimensions of any size where its data varies. It
is compared with torch before it is written. Trees become a node. `exported_model` converts rows of
users to inputs, and outputs to answers.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import inspect
import io
import logging
import tempfile
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from workbench.data.splits import Split
from workbench.deploy.distributions import needs
from workbench.deploy.graph import ML, OPSET, Graph, onnx
from workbench.deploy.lengths import Lengths, lengths_in
from workbench.deploy.packed_sequences import packed_with_padding
from workbench.deploy.predictor import open_session
from workbench.foundation.errors import RunError, first_line_of
from workbench.models.model_calls import (
    call_model,
    map_tensors,
    named_tensors,
    output_in,
    tensors_named,
)
from workbench.models.trees import MIN_PROBABILITY, TreeEnsemble
from workbench.training.loaders import as_tensors

TOLERANCE = 1e-5
"""The largest difference between ONNX Runtime and torch, relative to the largest output or 1."""
BATCHES = (1, 7)
"""The numbers of samples with which an exported model is compared with torch."""
_NUM_READ_ALONE = 20
"""Samples that are read one by one, to see which dimensions have several sizes."""
_AS_IT_IS = "Export it without --format onnx. The bundle then has its weights and can retrain it."


def write_onnx(
    model: nn.Module,
    example: Tensor | tuple[Tensor, ...],
    path: Path,
    lengths: Lengths | None = None,
) -> None:
    """Write a module as an ONNX file whose batch may have any size.

    Args:
        model: The module. On the CPU, and used in evaluation mode.
        example: Inputs of at least two samples. A tuple holds several arguments.
        path: The file to write.
        lengths: Dimensions of samples that may have any size, for the inputs in the order of
            `example`. None if there are none.

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
    # torch would treat a batch of one as a constant.
    arguments = tuple(_resized(argument, max(2, len(argument))) for argument in arguments)
    named = [()] * len(arguments) if not lengths else list(lengths.names.values())
    sizes = [
        {0: batch} | {place: torch.export.Dim.AUTO for place, name in enumerate(names, 1) if name}
        for names in named
    ]

    def write(nesting: Sequence[nn.Module]) -> None:
        with _quiet(), _masks_as_given(), packed_with_padding(), _zero_behind_the_end(nesting):
            _read_operators_once()
            torch.onnx.export(
                model,
                arguments,
                str(path),
                dynamo=True,
                external_data=False,
                opset_version=OPSET,
                dynamic_shapes=_as_parameters(model, sizes),
                verbose=False,
                input_names=_names(model, len(arguments)),
                output_names=["outputs"],
                optimize=True,
            )
        _compare(model, arguments, path)
        if lengths:
            for smaller in lengths.examples:
                _compare(model, smaller, path)

    try:
        if nested := _nesting_layers(model):
            with contextlib.suppress(RunError):
                return write(nested)
        write([])
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


def add_trees(graph: Graph, trees: TreeEnsemble, given: str) -> str:
    """Add the trees of a model as a node, and return the value of shape (batch, num_outputs).

    Args:
        graph: The graph.
        trees: The trees.
        given: Float32 inputs, flat: (batch, features).
    """
    arrays = {
        name: getattr(trees, name).numpy()
        for name in ("feature", "missing_left", "left", "right", "value", "roots")
    }
    num_nodes, num_outputs = arrays["value"].shape
    is_leaf = arrays["left"] == np.arange(num_nodes)
    tree_ids = np.searchsorted(arrays["roots"], np.arange(num_nodes), side="right") - 1
    node_ids = np.arange(num_nodes) - arrays["roots"][tree_ids]
    inside = lambda name: np.where(is_leaf, 0, arrays[name] - arrays["roots"][tree_ids])  # noqa: E731
    leaves, outputs = np.nonzero(is_leaf[:, None] & (arrays["value"] != 0.0))
    # A tree whose leaves are all 0 would leave an empty node, which is not valid.
    if not len(leaves):
        leaves, outputs = np.flatnonzero(is_leaf)[:1], np.zeros(1, dtype=np.int64)
    attributes: dict[str, Any] = {
        "n_targets": num_outputs,
        "aggregate_function": "SUM",
        "post_transform": "NONE",
        "nodes_treeids": tree_ids.tolist(),
        "nodes_nodeids": node_ids.tolist(),
        "nodes_featureids": arrays["feature"].tolist(),
        "nodes_modes": np.where(is_leaf, "LEAF", "BRANCH_LEQ").tolist(),
        "nodes_values": _lower_float32(trees.threshold.numpy(), is_leaf).tolist(),
        "nodes_truenodeids": inside("left").tolist(),
        "nodes_falsenodeids": inside("right").tolist(),
        "nodes_missing_value_tracks_true": arrays["missing_left"].astype(np.int64).tolist(),
        "target_treeids": tree_ids[leaves].tolist(),
        "target_nodeids": node_ids[leaves].tolist(),
        "target_ids": outputs.tolist(),
        "target_weights": arrays["value"][leaves, outputs].astype(np.float32).tolist(),
    }
    grown = graph.add("TreeEnsembleRegressor", given, domain=ML, **attributes)
    # Not as the node's base_values: ONNX Runtime leaves those out of outputs to which no leaf adds
    # anything.
    total = graph.add("Add", grown, graph.constant(trees.start.numpy().astype(np.float32)))
    if not bool(trees.votes):
        return total
    return graph.add("Log", graph.add("Max", total, graph.constant(np.float32(MIN_PROBABILITY))))


class Positional(nn.Module):
    """A model that is called with positional tensors, whatever form its inputs have.

    Attributes:
        model: The model.
        names: The names of the tensors. They become the names of the inputs of a graph.
    """

    def __init__(self, model: nn.Module, example: Any) -> None:
        """Wrap a model.

        Args:
            model: The model.
            example: A batch of what it needs.
        """
        super().__init__()
        self.model = model
        self.names = tuple(named_tensors(example))
        self._example = map_tensors(lambda tensor: tensor[:0], example)
        self.training = model.training

    def forward(self, *given: Tensor) -> Any:
        """Return the output of the model."""
        tensors = iter(given)
        inputs = map_tensors(lambda _: next(tensors), self._example)
        return output_in(call_model(self.model, inputs))

    def given(self, inputs: Any) -> tuple[Tensor, ...]:
        """Return the tensors of a batch with which this is called."""
        return tuple(tensors_named(inputs, self.names).values())


def given_to(model: nn.Module, inputs: Any) -> tuple[Tensor, ...]:
    """Return the tensors with which a model is called, which takes one unless it is `Positional`.

    Args:
        model: The model.
        inputs: A batch as the data has it.
    """
    return model.given(inputs) if isinstance(model, Positional) else (inputs,)


def feeds_for(session: Any, inputs: Any) -> dict[str, np.ndarray]:
    """Return what a session of ONNX Runtime takes for a batch.

    Args:
        session: The session.
        inputs: A batch as the data has it, on the CPU.

    Raises:
        RunError: If samples have another shape than those with which the graph was exported.
    """
    shapes = {taken.name: tuple(taken.shape[1:]) for taken in session.get_inputs()}
    tensors = {next(iter(shapes)): inputs}
    if not isinstance(inputs, Tensor):
        tensors = tensors_named(inputs, list(shapes))
    for name, tensor in tensors.items():
        shape = tuple(tensor.shape[1:])
        pairs = zip(shape, shapes[name], strict=False)
        if len(shape) != len(shapes[name]) or any(
            isinstance(known, int) and size != known for size, known in pairs
        ):
            raise RunError(
                f"the input {name!r} has samples of shape {shape}, but the model was exported for"
                f" {shapes[name]}",
                next_step="Let the data pad all samples to the same shape.",
            )
    return {name: tensor.numpy() for name, tensor in tensors.items()}


def lengths_of(split: Split, names: Sequence[str], indices: Sequence[int] | np.ndarray) -> Lengths:
    """Return which dimensions of inputs differ between samples.

    Args:
        split: The samples, which a function of a user's may pad to the longest of a batch.
        names: The inputs, as `named_tensors` names them.
        indices: The numbers of the samples. Some of them are read.
    """
    places = np.unique(np.linspace(0, len(indices) - 1, _NUM_READ_ALONE).astype(int))
    samples = [
        tensors_named(as_tensors(split.batch(np.array([indices[place]]))[0]), names)
        for place in places
    ]
    found = lengths_in(
        [{name: tuple(part.shape[1:]) for name, part in sample.items()} for sample in samples]
    )
    samples.sort(key=lambda sample: sum(part.numel() for part in sample.values()))
    examples = tuple(tuple(samples[place].values()) for place in (0, len(samples) // 2))
    return replace(found, examples=examples)


class OnnxModule(nn.Module):
    """An ONNX file that can be called as a torch module, with one tensor or several.

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
        self.eval()

    def forward(self, inputs: Any, *others: Tensor) -> Tensor:
        """Return the outputs for samples: a tensor, a mapping, or several tensors."""
        given = (inputs, *others) if others else inputs
        return torch.from_numpy(self._session.run(None, feeds_for(self._session, given))[0])

    def taken(self, inputs: Any) -> Any:
        """Return the part of a batch that the graph takes, by name if it is more than a tensor."""
        if isinstance(inputs, Tensor):
            return inputs
        names = [taken.name for taken in self._session.get_inputs()]
        return tensors_named(inputs, names)

    def has_any(self, lengths: Lengths) -> bool:
        """Return whether all dimensions that may have any size may have it in the graph."""
        return not any(
            name and isinstance(size, int)
            for taken in self._session.get_inputs()
            for name, size in zip(lengths.of(taken.name), taken.shape[1:], strict=False)
        )

    def proto(self) -> onnx.ModelProto:
        """Return the graph."""
        return onnx.load_from_string(self.content)


def difference_of(outputs: Tensor, expected: Tensor) -> float:
    """Return how far outputs are apart, relative to the largest expected one or 1."""
    if outputs.shape != expected.shape:
        return float("inf")
    if not expected.numel():
        return 0.0
    known = expected.detach().double()
    return float((outputs.double() - known).abs().max()) / max(1.0, float(known.abs().max()))


@functools.cache
def _read_operators_once() -> None:
    """Let torch keep what it reads of the operators of ONNX.

    It parses the source and the signatures of all 500 at each export, which takes longer than a
    small model itself. If another version of torch keeps them elsewhere, it still parses them at
    each export.
    """
    with contextlib.suppress(ImportError, AttributeError):
        operators: Any = importlib.import_module(
            "torch.onnx._internal._lazy_import"
        ).onnxscript_apis
        operators.get_torchlib_ops = functools.cache(operators.get_torchlib_ops)
        signatures: Any = importlib.import_module("torch.onnx._internal.exporter._schemas")
        signatures.op_signature_from_function = functools.cache(
            signatures.op_signature_from_function
        )


def _compare(model: nn.Module, arguments: tuple[Tensor, ...], path: Path) -> None:
    session = open_session(path)
    names = [argument.name for argument in session.get_inputs()]
    for size in BATCHES:
        given = tuple(_resized(argument, size) for argument in arguments)
        with torch.inference_mode(), _quiet():
            expected = model(*given)
        if not isinstance(expected, Tensor):
            raise RunError(
                f"{type(model).__name__} returns {type(expected).__name__}, but only a tensor can"
                " be exported",
                next_step=_AS_IT_IS,
            )
        outputs = torch.from_numpy(
            session.run(
                None, {name: argument.numpy() for name, argument in zip(names, given, strict=True)}
            )[0]
        )
        difference = difference_of(outputs, expected)
        if not difference <= TOLERANCE:
            raise RunError(
                f"{type(model).__name__} as ONNX differs from torch by {difference:.2g} for {size}"
                " samples",
                next_step=_AS_IT_IS,
            )


def _resized(given: Tensor, size: int) -> Tensor:
    """Return a number of samples by repeating or dropping some."""
    repeats = -(-size // max(1, len(given)))
    return torch.cat([given] * repeats)[:size].contiguous()


def _names(model: nn.Module, number: int) -> list[str]:
    if isinstance(model, Positional):
        return list(model.names)
    if number == 1:
        return ["inputs"]
    names = list(inspect.signature(model.forward).parameters)
    return (
        names[:number] if len(names) >= number else [f"inputs_{index}" for index in range(number)]
    )


def _as_parameters(model: nn.Module, values: list[Any]) -> tuple[Any, ...]:
    """Return a value for each argument as the parameters of `forward` take them.

    Arguments that a parameter such as `*given` collects are one value, as torch counts them.
    """
    kinds = [item.kind for item in inspect.signature(model.forward).parameters.values()]
    if inspect.Parameter.VAR_POSITIONAL not in kinds:
        return tuple(values)
    first = kinds.index(inspect.Parameter.VAR_POSITIONAL)
    return (*values[:first], tuple(values[first:]))


def _reason(error: Exception) -> str:
    """Return the first line of the innermost error that explains something."""
    while isinstance(error.__cause__, Exception):
        error = error.__cause__
    return first_line_of(error)


@contextlib.contextmanager
def _quiet() -> Iterator[Any]:
    """Suppress the exporter's output and warnings. Users can do nothing about them.

    On a failure, torch prints the program that it had read by then.
    """
    loggers = [
        logging.getLogger(name) for name in ("torch.onnx", "onnxscript", "onnx_ir", "torch.export")
    ]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.ERROR)
    try:
        unread = io.StringIO()
        with (
            warnings.catch_warnings(),
            contextlib.redirect_stdout(unread),
            contextlib.redirect_stderr(unread),
        ):
            warnings.simplefilter("ignore")
            yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)


@contextlib.contextmanager
def _masks_as_given() -> Iterator[None]:
    """Let the transformers of torch use a mask without asking whether it is a causal one.

    They compare its values to choose a faster kernel, which an exporter cannot follow. With the
    mask itself the outputs are the same.
    """
    detecting = getattr(nn.modules.transformer, "_detect_is_causal_mask", None)
    if detecting is None:
        yield
        return

    def detect(mask: Tensor | None, is_causal: bool | None = None, size: int | None = None) -> bool:
        return bool(is_causal)

    nn.modules.transformer._detect_is_causal_mask = detect
    try:
        yield
    finally:
        nn.modules.transformer._detect_is_causal_mask = detecting


def _nesting_layers(model: nn.Module) -> list[nn.Module]:
    """Return the last layer of each transformer that computes texts of a batch without padding."""
    return [
        module.layers[-1]
        for module in model.modules()
        if isinstance(module, nn.TransformerEncoder) and getattr(module, "use_nested_tensor", False)
    ]


@contextlib.contextmanager
def _zero_behind_the_end(layers: Sequence[nn.Module]) -> Iterator[None]:
    """Let layers return 0 for padding, as torch does in evaluation but not while it exports.

    Args:
        layers: The last layers of transformers.
    """

    def fill(layer: nn.Module, given: Any, named: dict[str, Any], output: Tensor) -> Tensor:
        padding = named.get("src_key_padding_mask")
        if padding is None or named.get("src_mask") is not None:
            return output
        is_padding = padding if padding.dtype == torch.bool else padding < 0  # minus infinity
        return output.masked_fill(is_padding.unsqueeze(-1), 0.0)

    hooks = [layer.register_forward_hook(fill, with_kwargs=True) for layer in layers]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


def _lower_float32(thresholds: np.ndarray, is_leaf: np.ndarray) -> np.ndarray:
    """Return the largest float32 not above each threshold.

    Float32 inputs compare the same with it.
    """
    with np.errstate(over="ignore"):
        near = np.where(is_leaf, 0.0, thresholds).astype(np.float32)
        above = near.astype(np.float64) > np.where(is_leaf, 0.0, thresholds)
        return np.where(above, np.nextafter(near, np.float32(-np.inf)), near)
