"""The calibrated stages of a model with early exits, each as a graph, with thresholds in a bundle.

Temperatures and thresholds are chosen on the validation split. The test split is not read. The
graph of the whole model, and the card, are left to `exported_bundle`.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from workbench.data import Datasets
from workbench.data.targets import class_of_each
from workbench.deploy.card import Input
from workbench.deploy.exported_model import Member, add_member, encode_inputs
from workbench.deploy.graph import Graph, onnx
from workbench.deploy.onnx_export import TOLERANCE, add_trees, difference_of, write_onnx
from workbench.deploy.predictor import open_session
from workbench.deploy.stages import (
    FEATURES,
    INPUTS,
    MASK,
    PROBABILITIES,
    Calibration,
    Scene,
    Stage,
    Stages,
)
from workbench.foundation.errors import RunError
from workbench.models.exits import EarlyExits, SceneExits
from workbench.models.trees import MIN_PROBABILITY, TreeEnsemble, TreeExits
from workbench.training.loaders import as_tensors

_FLOAT = np.dtype("float32")
_BATCH = 512


class _Part(nn.Module):
    """The pieces of one stage as a module."""

    def __init__(self, model: EarlyExits, number: int) -> None:
        super().__init__()
        self.model = model
        self.number = number
        self.training = model.training

    def forward(self, values: Tensor) -> Tensor:
        return self.model.stage(self.number, values)


class _SecondPart(nn.Module):
    """The second stage of a model that mixes several views."""

    def __init__(self, model: SceneExits) -> None:
        super().__init__()
        self.model = model
        self.training = model.training

    def forward(self, inputs: Tensor, mask: Tensor) -> Tensor:
        return self.model.second_stage(inputs, mask)


Exits = EarlyExits | SceneExits | TreeExits


def exits_of(model: nn.Module) -> Exits | None:
    """Return a model with early exits, or None if it has none.

    Args:
        model: A trained model.

    Raises:
        ExperimentError: If it has too few trees for them.
    """
    if isinstance(model, TreeEnsemble) and model.num_exits:
        return TreeExits(model, model.num_exits)
    if isinstance(model, EarlyExits | SceneExits):
        return model
    return None


def add_stages(
    folder: Path,
    model: Exits,
    data: Datasets,
    *,
    member: Member,
    inputs: Sequence[Input],
    feeds: dict[str, np.ndarray],
    example: Tensor,
) -> Stages:
    """Add the stages of a model to its bundle.

    Args:
        folder: The bundle.
        model: The trained model, on the CPU, in evaluation mode.
        data: The data that it was trained on.
        member: How the inputs of the first stage are converted.
        inputs: What the first stage takes.
        feeds: Samples as the first stage takes them.
        example: The same samples as the model takes them.

    Raises:
        RunError: If a stage cannot be exported, or the answers of the stages differ from the
            model's.
    """
    outputs, targets = _validation_outputs(model, data)
    calibration = Calibration.of(outputs, targets)
    make: Callable[..., onnx.ModelProto] = _graph
    if isinstance(model, TreeExits):
        make = _graph_of_trees
    values, stages, scene = example, [], None
    if isinstance(model, SceneExits):
        scene = _scene_of(model, data, targets)
        inputs = [inputs[0].model_copy(update={"shape": inputs[0].shape[1:]})]
        values = example.flatten(0, 1)
    for number in range(model.num_stages):
        temperature = calibration.temperatures[number]
        made = make(model, number, member, inputs=inputs, example=values, temperature=temperature)
        name = f"stage_{number}.onnx"
        onnx.save(made, str(folder / name))
        shape = tuple(values.shape[1:])
        dtype = "float32"
        num_tokens = None
        if number == 0:
            # Only the first stage takes what users have. Later ones take features.
            num_tokens = data.vocabulary_size
            if len(inputs) == 1:
                shape = inputs[0].shape
            if inputs[0].dtype != "string":
                dtype = inputs[0].dtype
        stage = calibration.stage(number, name, shape, dtype, num_tokens=num_tokens)
        if number == 1 and isinstance(model, SceneExits) and model.joint is not None:
            sent_shape = (shape[0] // model.num_views, *shape[1:])
            stage = stage.model_copy(update={"sent_shape": sent_shape})
        stages.append(stage)
        with torch.inference_mode():
            values = _onward(model, number, values)
    _compare(folder, model, stages, feeds, example)
    return calibration.write(folder, stages, scene)


def _onward(model: Exits, number: int, values: Tensor) -> Tensor:
    """Return what the stage after one takes, where all views of a scene are there."""
    if not isinstance(model, SceneExits):
        return model.stage(number, values)
    if number == 1:
        return model.second_stage(values, torch.ones(len(values), model.num_views))
    features = model.exits.stage(number, values)
    if number:
        return features
    views = features.unflatten(0, (-1, model.num_views))
    return model.gathered(views, torch.ones(views.shape[:2]))


def _validation_batches(data: Datasets) -> Iterator[tuple[Any, np.ndarray]]:
    """Yield the inputs of the validation split, and their classes."""
    for first in range(0, len(data.validation), _BATCH):
        numbers = np.arange(first, min(first + _BATCH, len(data.validation)))
        given, expected = data.validation.batch(numbers)
        yield as_tensors(given), class_of_each(expected, data.num_outputs)


def _validation_outputs(model: Exits, data: Datasets) -> tuple[list[np.ndarray], np.ndarray]:
    outputs: list[list[np.ndarray]] = [[] for _ in range(model.num_stages)]
    targets = []
    for given, expected in _validation_batches(data):
        with torch.inference_mode():
            for kept, scores in zip(outputs, model.exit_outputs(given), strict=True):
                kept.append(scores.double().numpy())
        targets.append(expected)
    return [np.concatenate(scores) for scores in outputs], np.concatenate(targets)


def _scene_of(model: SceneExits, data: Datasets, targets: np.ndarray) -> Scene:
    """Return how views are joined, and what is right without each of them."""
    num_right = np.zeros(model.num_views)
    for given, expected in _validation_batches(data):
        for missing in range(model.num_views):
            mask = torch.ones(len(given), model.num_views)
            mask[:, missing] = 0.0
            with torch.inference_mode():
                answers = model.exit_outputs(given, mask)[-1].argmax(dim=1).numpy()
            num_right[missing] += (answers == expected).sum()
    accuracy_without = tuple((num_right / len(targets)).tolist())
    return Scene(
        num_views=model.num_views, aggregate=model.aggregate, accuracy_without=accuracy_without
    )


def _graph(
    model: EarlyExits | SceneExits,
    number: int,
    member: Member,
    *,
    inputs: Sequence[Input],
    example: Tensor,
    temperature: float,
) -> onnx.ModelProto:
    graph = Graph()
    exits = model.exits if isinstance(model, SceneExits) else model
    part: nn.Module = _Part(exits, number)
    arguments: tuple[Tensor, ...] = (example,)
    if number == 1 and isinstance(model, SceneExits) and model.joint is not None:
        part, arguments = _SecondPart(model), (example, torch.ones(len(example), model.num_views))
    with torch.inference_mode():
        after = part(*arguments)
    if number == 0:
        values = add_member(graph, replace(member, model=part), _given(graph, inputs), example)
    else:
        names = [
            graph.input(name, _FLOAT, tuple(argument.shape[1:]))
            for name, argument in zip((INPUTS, MASK), arguments, strict=False)
        ]
        values = _inline(graph, part, names, arguments)
    if number == model.num_stages - 1:
        return _calibrated(graph, values, temperature, after.shape[1], ())
    head = exits.heads[number]
    with torch.inference_mode():
        num_classes = head(after[:1]).shape[1]
    outputs = _inline(graph, head, [values], (after,))
    features = ((values, FEATURES, tuple(after.shape[1:])),)
    return _calibrated(graph, outputs, temperature, num_classes, features)


def _graph_of_trees(
    model: TreeExits,
    number: int,
    member: Member,
    *,
    inputs: Sequence[Input],
    example: Tensor,
    temperature: float,
) -> onnx.ModelProto:
    graph, num_outputs = Graph(), model.num_outputs
    num_features = int(np.prod(example.shape[1:]))
    if number == 0:
        # The inputs are encoded as for the whole model.
        rows = graph.add("Flatten", encode_inputs(graph, member, _given(graph, inputs))[0], axis=1)
        total = add_trees(graph, model.parts[0], rows)
    else:
        num_features -= num_outputs  # the total of the trees before
        passed = graph.input(INPUTS, _FLOAT, (num_features + num_outputs,))
        begin, middle, end, last = (
            graph.constant(np.array([place], dtype=np.int64))
            for place in (0, num_features, num_features + num_outputs, -1)
        )
        rows = graph.add("Slice", passed, begin, middle, last)
        before = graph.add("Slice", passed, middle, end, last)
        total = graph.add("Add", before, add_trees(graph, model.parts[number], rows))
    if bool(model.trees.votes):
        shares = graph.add("Mul", total, graph.constant(np.float32(model.factor(number))))
        outputs = graph.add(
            "Log", graph.add("Max", shares, graph.constant(np.float32(MIN_PROBABILITY)))
        )
    else:
        outputs = graph.add(
            "Add", total, graph.constant(model.trees.start.numpy().astype(np.float32))
        )
    passed_on = graph.add("Concat", rows, total, axis=1)
    if number == model.num_stages - 1:
        return _calibrated(graph, outputs, temperature, num_outputs, ())
    features = ((passed_on, FEATURES, (num_features + num_outputs,)),)
    return _calibrated(graph, outputs, temperature, num_outputs, features)


def _given(graph: Graph, inputs: Sequence[Input]) -> dict[str, str]:
    return {
        column.name: graph.input(column.name, np.dtype(column.numpy_dtype), column.graph_shape)
        for column in inputs
    }


def _calibrated(
    graph: Graph,
    outputs: str,
    temperature: float,
    num_classes: int,
    more: Sequence[tuple[str, str, tuple[int | str, ...]]],
) -> onnx.ModelProto:
    calibrated = graph.add("Div", outputs, graph.constant(np.float32(temperature)))
    answer = graph.add("Softmax", calibrated, axis=-1)
    return graph.model(answer, PROBABILITIES, _FLOAT, (num_classes,), more=more)


def _inline(
    graph: Graph, module: nn.Module, given: Sequence[str], example: tuple[Tensor, ...]
) -> str:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "part.onnx"
        write_onnx(module, example, path)
        return graph.inline(onnx.load(str(path)), tuple(given))


def _compare(
    folder: Path,
    model: Exits,
    stages: Sequence[Stage],
    feeds: dict[str, Any],
    example: Tensor,
) -> None:
    """Compare the answers of the stages, one after another, with the exits of the model."""
    with torch.inference_mode():
        expected = model.exit_outputs(example)
    given, views = feeds, 1
    if isinstance(model, SceneExits):
        views = model.num_views
        given = {name: values.reshape(-1, *values.shape[2:]) for name, values in feeds.items()}
    for number, stage in enumerate(stages):
        answer, *features = open_session(folder / stage.file).run(None, given)
        known = torch.softmax(expected[number] / stage.temperature, dim=-1).reshape(answer.shape)
        difference = difference_of(torch.from_numpy(answer), known)
        if not difference <= TOLERANCE:
            raise RunError(
                f"{stage.file} differs from the trained model by {difference:.2g}",
                next_step="Export the model again. If the error remains, omit --format onnx.",
            )
        given = {INPUTS: features[0]} if features else {}
        if number == 0 and isinstance(model, SceneExits):
            mask = torch.ones(len(example), views)
            seen = torch.from_numpy(features[0]).unflatten(0, mask.shape)
            given = {INPUTS: model.gathered(seen, mask).numpy()}
            if model.joint is not None:
                given[MASK] = mask.numpy()
