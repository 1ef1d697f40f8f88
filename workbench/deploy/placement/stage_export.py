"""The stages of a model with early exits as graphs of their own, calibrated and with thresholds, in a bundle.

Temperatures and thresholds are chosen on the validation split; the test split is not read. The graph of the
whole model, and the card, are left to `exported_bundle`.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from workbench.data import Datasets
from workbench.deploy.card import Input
from workbench.deploy.exported_model import Member, add_member
from workbench.deploy.graph import Graph, onnx
from workbench.deploy.onnx_export import TOLERANCE, difference_of, write_onnx
from workbench.deploy.placement.cascade import Calibration
from workbench.deploy.placement.stages import FEATURES, INPUTS, PROBABILITIES, Stage, Stages
from workbench.deploy.predictor import open_session
from workbench.errors import RunError
from workbench.models.exits import EarlyExits
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


def add_stages(
    folder: Path, model: EarlyExits, data: Datasets, member: Member, inputs: Sequence[Input],
    feeds: dict[str, np.ndarray], example: Tensor,
) -> Stages:  # fmt: skip
    """Add the stages of a model to its bundle.

    Args:
        folder: The bundle.
        model: The trained model, on the CPU, in evaluation mode.
        data: What it was trained on.
        member: How the inputs of the first stage are converted.
        inputs: What the first stage takes.
        feeds: Samples as the first stage takes them.
        example: The same samples as the model takes them.

    Raises:
        RunError: If a stage cannot be exported, or the stages answer otherwise than the model.
    """
    outputs, targets = _validation_outputs(model, data)
    calibration = Calibration.of(outputs, targets)
    values, stages = example, []
    for number in range(model.num_stages):
        made = _graph(model, number, member, inputs, values, calibration.temperatures[number])
        name = f"stage_{number}.onnx"
        onnx.save(made, str(folder / name))
        shape = inputs[0].shape if number == 0 and len(inputs) == 1 else tuple(values.shape[1:])
        dtype = inputs[0].dtype if number == 0 and inputs[0].dtype != "string" else "float32"
        stages.append(calibration.stage(number, name, shape, dtype))
        with torch.inference_mode():
            values = model.stage(number, values)
    _compare(folder, model, stages, feeds, example)
    return calibration.write(folder, stages)


def _validation_outputs(model: EarlyExits, data: Datasets) -> tuple[list[np.ndarray], np.ndarray]:
    found: list[list[np.ndarray]] = [[] for _ in range(model.num_stages)]
    targets = []
    for first in range(0, len(data.validation), _BATCH):
        numbers = np.arange(first, min(first + _BATCH, len(data.validation)))
        given, expected = data.validation.batch(numbers)
        with torch.inference_mode():
            for kept, each in zip(found, model.exit_outputs(as_tensors(given)), strict=True):
                kept.append(each.double().numpy())
        targets.append(np.asarray(expected))
    return [np.concatenate(each) for each in found], np.concatenate(targets)


def _graph(
    model: EarlyExits, number: int, member: Member, inputs: Sequence[Input], example: Tensor,
    temperature: float,
) -> onnx.ModelProto:  # fmt: skip
    graph, is_last = Graph(), number == model.num_stages - 1
    part = _Part(model, number)
    with torch.inference_mode():
        after = part(example)
        num_classes = (after if is_last else model.heads[number](after[:1])).shape[1]
    if number == 0:
        given = {
            one.name: graph.input(
                one.name, np.dtype(object if one.dtype == "string" else one.dtype),
                one.shape if one.kind == "array" else (1,),
            )
            for one in inputs
        }  # fmt: skip
        whole = replace(member, model=part)
        values = add_member(graph, whole, given, example)
    else:
        values = _inline(graph, part, graph.input(INPUTS, _FLOAT, tuple(example.shape[1:])), example)
    outputs = values if is_last else _inline(graph, model.heads[number], values, after)
    calibrated = graph.add("Div", outputs, graph.constant(np.float32(temperature)))
    answer = graph.add("Softmax", calibrated, axis=-1)
    more = () if is_last else ((values, FEATURES, tuple(after.shape[1:])),)
    return graph.model(answer, PROBABILITIES, _FLOAT, (num_classes,), more=more)


def _inline(graph: Graph, module: nn.Module, given: str, example: Tensor) -> str:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "part.onnx"
        write_onnx(module, example, path)
        return graph.inline(onnx.load(str(path)), (given,))


def _compare(
    folder: Path, model: EarlyExits, stages: Sequence[Stage], feeds: dict[str, Any], example: Tensor
) -> None:
    """Compare what the stages answer one after another with the exits of the model."""
    with torch.inference_mode():
        expected = model.exit_outputs(example)
    given = feeds
    for number, stage in enumerate(stages):
        answer, *features = open_session(folder / stage.file).run(None, given)
        known = torch.softmax(expected[number] / stage.temperature, dim=-1)
        difference = difference_of(torch.from_numpy(answer), known)
        if not difference <= TOLERANCE:
            raise RunError(
                f"{stage.file} differs from the trained model by {difference:.2g}",
                next_step="Export the model again, without --format onnx if this stays.",
            )
        given = {INPUTS: features[0]} if features else {}
