"""The files by which a bundle predicts without the workbench: model.onnx, card.json and predict.py.

The graph is compared with the model on training samples before anything is written. The caller
chooses the trial and adds the rest of the bundle.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch import nn

from workbench.data import Datasets, check_options
from workbench.data.collating import TARGET_NAMES
from workbench.data.reading import Reading, some_of
from workbench.deploy import table_graph
from workbench.deploy.card import MODEL, Card, Exported, Input, Output
from workbench.deploy.distributions import describe_samples
from workbench.deploy.exported_model import Answering, Member, answering_program, build
from workbench.deploy.feeds import feeds_of, is_missing
from workbench.deploy.formats import ONNX, SIZES, Program, add_format
from workbench.deploy.graph import OPSET, onnx
from workbench.deploy.lengths import Lengths
from workbench.deploy.onnx_export import (
    BATCHES,
    TOLERANCE,
    OnnxModule,
    difference_of,
    lengths_of,
)
from workbench.deploy.predict_script import script
from workbench.deploy.predictor import Predictor
from workbench.deploy.stage_export import add_stages, exits_of
from workbench.experiment import Experiment
from workbench.foundation.bundle_manifest import PREDICT
from workbench.foundation.errors import DataError, RunError
from workbench.foundation.files import sha256_of
from workbench.models.detected_boxes import NUM_EDGES
from workbench.models.model_calls import (
    call_model,
    map_tensors,
    named_tensors,
    needed_inputs,
    output_in,
)
from workbench.models.pairing import Pairing
from workbench.training.loaders import as_tensors
from workbench.training.loss_and_metrics import learned_pairing

_MAX_EXAMPLE_NUMBERS = 4096
_NUM_COMPARED = 200
_FLOATS: dict[str, Literal["float32", "float64"]] = {"float64": "float64"}


def add_trial(
    folder: Path,
    model: nn.Module,
    data: Datasets,
    experiment: Experiment,
    origin: Exported,
    *,
    format: str = ONNX,
) -> Card:
    """Add a trial's model to its bundle, with arguments and errors as in `add_mean`.

    Args:
        folder: The bundle.
        model: The trained model, on the CPU.
        data: The data that it was trained on.
        experiment: The experiment that it was trained in.
        origin: What the card says about it.
        format: A further format, or ONNX for none.
    """
    return add_mean(folder, [(model, 1.0)], data, experiment, origin, format=format)


def add_mean(
    folder: Path,
    models: Sequence[tuple[nn.Module, float]],
    data: Datasets,
    experiment: Experiment,
    origin: Exported,
    *,
    format: str = ONNX,
) -> Card:
    """Add the weighted mean of what models of one experiment answer to a bundle, as one graph.

    Args:
        folder: The bundle.
        models: Trained models, on the CPU, with their weights, which sum to 1.
        data: The data that they were trained on.
        experiment: The experiment that they were trained in.
        origin: What the card says about them.
        format: A further format for a single model, or ONNX for none.

    Raises:
        RunError: If a model cannot be exported, or the graph's answers differ from the models'.
        DataError: If the data, from which the encoding is learned, cannot be read.
    """
    model = models[0][0]
    if experiment.leaves_loss_to_model or experiment.makes_own_steps:
        raise RunError(
            "a model that computes its own loss needs the targets to be called",
            next_step="Export it without --format onnx, and call it from your own code.",
        )
    reading = _reading(experiment)
    if reading is None:
        indices = some_of(len(data.train))[:_NUM_COMPARED]
    else:
        indices = reading.indices
    tensors = as_tensors(data.train.batch(indices)[0])
    with torch.inference_mode():
        if isinstance(model, OnnxModule):
            tensors = model.taken(tensors)
        else:
            tensors = needed_inputs(model, tensors, TARGET_NAMES)
        samples = _samples(tensors, len(indices)) if reading is None else reading.samples
        outputs = output_in(call_model(model, _first(tensors, 2)))
    pairing = _pairing_of(model, data, experiment)
    task = "other"
    if pairing is not None:
        task = data.task
        outputs = pairing.scores(outputs)
    if not isinstance(outputs, torch.Tensor):
        raise RunError(
            f"the model returns {type(outputs).__name__}, but only a tensor can be exported",
            next_step="Export it without --format onnx, and call it from your own code.",
        )
    inputs = _inputs(samples, tensors, reading)
    output = output_of(task, tuple(outputs.shape[1:]), data.class_names, reading)
    trained = _Trained(tuple(models), reading, pairing, tensors)
    lengths = Lengths()
    if reading is None and format == ONNX and exits_of(model) is None:  # the others take one size
        lengths = lengths_of(data.train, list(samples), indices)
    made, member, inputs, output = _made(trained, inputs, output, lengths)
    answering = Answering(member, output)

    def expected(numbers: np.ndarray) -> np.ndarray:
        some = _some(tensors, numbers)
        with torch.inference_mode():
            answers = [
                weight * answering(output_in(call_model(trained, some)))
                for trained, weight in models
            ]
            return torch.stack(answers).sum(dim=0).numpy()

    program = None
    if format != ONNX:
        program = answering_program(member, inputs, output, _first(tensors, 7))
    card = write(
        folder,
        made,
        origin,
        inputs=inputs,
        output=output,
        samples=samples,
        expected=expected,
        format=format,
        program=program,
    )
    # Tiers send each other one array, and exits answer with a score for each class.
    is_binary = pairing is not None and pairing.form == "binary"
    has_stages = len(models) == len(inputs) == 1 and inputs[0].kind == "array"
    has_stages = has_stages and output.kind == "classes" and not is_binary
    if has_stages and (exits := exits_of(model)) is not None:
        number = min(_NUM_COMPARED, len(next(iter(samples.values()))))
        feeds = feeds_of(card, {name: values[:number] for name, values in samples.items()})[0]
        add_stages(
            folder,
            exits,
            data,
            member=member,
            inputs=inputs,
            feeds=feeds,
            example=_first(tensors, number),
        )
    return card


@dataclass(frozen=True)
class _Trained:
    models: tuple[tuple[nn.Module, float], ...]
    reading: Reading | None
    pairing: Pairing | None
    tensors: Any


def _made(
    trained: _Trained, inputs: tuple[Input, ...], output: Output, lengths: Lengths
) -> tuple[onnx.ModelProto, Member, tuple[Input, ...], Output]:
    """Return a graph, its first model, and its inputs and output.

    Args:
        trained: The models, and some training inputs.
        inputs: The inputs, of one size.
        output: The output for that size.
        lengths: Dimensions of inputs that may have any size, unless a model takes only one.
    """
    if lengths:
        try:
            any_size = tuple(
                taken.model_copy(update={"lengths": lengths.of(taken.name)}) for taken in inputs
            )
            answered = _with_lengths(output, _answered_shape(trained, lengths), any_size)
            return _made_with(trained, any_size, answered, lengths)
        except Exception:  # a model that takes one size fails in its own way
            pass
    return _made_with(trained, inputs, output, Lengths())


def _made_with(
    trained: _Trained, inputs: tuple[Input, ...], output: Output, lengths: Lengths
) -> tuple[onnx.ModelProto, Member, tuple[Input, ...], Output]:
    members = [
        (Member.of(model, trained.reading, trained.pairing, lengths), weight)
        for model, weight in trained.models
    ]
    if any(isinstance(m, OnnxModule) and not m.has_any(lengths) for m, _ in trained.models):
        raise RunError("a graph has fixed sizes")
    made = build(members, inputs, output, [_first(trained.tensors, 7)] * len(members))
    return made, members[0][0], inputs, output


def _answered_shape(trained: _Trained, lengths: Lengths) -> tuple[int, ...]:
    """Return the shape of the answer for one of the smallest samples."""
    tensors = iter(lengths.examples[0])
    some = map_tensors(lambda _: next(tensors), trained.tensors)
    with torch.inference_mode():
        answered = output_in(call_model(trained.models[0][0], some))
    if trained.pairing is not None:
        answered = trained.pairing.scores(answered)
    return tuple(answered.shape[1:])


def write(
    folder: Path,
    made: onnx.ModelProto,
    origin: Exported,
    *,
    inputs: Sequence[Input],
    output: Output,
    samples: Mapping[str, Any],
    expected: Callable[[np.ndarray], np.ndarray],
    split: str = "train",
    format: str = ONNX,
    program: Program | None = None,
    terms: Sequence[str] = (),
    names: Collection[str] = (),
) -> Card:
    """Write a graph with its card and script, if its answers equal the model's.

    Args:
        folder: The bundle.
        made: The graph.
        origin: What the card says about it.
        inputs: What it takes.
        output: What it answers.
        samples: Samples as users have them, by input.
        expected: Returns what the model answers for some of these samples, by their places.
        split: The split that the samples come from.
        format: A further format, or ONNX for none.
        program: The model for formats that lower a torch program.
        terms: The terms of texts whose counts the graph takes in their place, or empty.
        names: Inputs that name what a row is of, such as a person. New names are no drift, so their
            distribution is not kept.

    Raises:
        RunError: If the graph answers otherwise than the model.
    """
    onnx.save(made, str(folder / MODEL))
    (folder / PREDICT).write_text(script(inputs[0], output, inputs[1:]), encoding="utf-8")
    card = Card(
        name=origin.name,
        run_id=origin.run_id,
        trial=origin.trial,
        model=origin.model,
        trained_on=origin.trained_on,
        task=origin.task,
        inputs=tuple(inputs),
        outputs=(output,),
        metrics=origin.metrics,
        files={name: sha256_of(folder / name) for name in (MODEL, PREDICT)},
        opset=OPSET,
        num_train_samples=origin.num_train_samples,
        terms=tuple(terms),
    )
    card.write(folder)
    predictor = Predictor.open(folder)
    num_compared = compare(predictor, samples, expected)
    answers = predictor.predict(samples)
    card = card.model_copy(
        update={
            "guarantees": (
                (
                    f"within {TOLERANCE:g} of the trained model for {num_compared} samples of the"
                    f" {split} split, and for batches of {' and '.join(map(str, BATCHES))}, with"
                    " ONNX Runtime on the exporting machine"
                ),
            ),
            "statistics_from": split,
            "statistics": {
                name: found
                for name, found in describe_samples(card, samples).items()
                if name not in names
            },
            "answers": answers.distribution(),
        }
    )
    if format != ONNX:
        feeds = feeds_of(card, {name: values[: max(SIZES)] for name, values in samples.items()})[0]
        shaped = predictor.shaped(feeds)
        card = add_format(folder, card, format, shaped, compute=predictor.run, program=program)
    card.write(folder)
    return card


def compare(
    predictor: Predictor, samples: Mapping[str, Any], expected: Callable[[np.ndarray], np.ndarray]
) -> int:
    """Compare the answers of a graph and its model, and return the number of samples.

    Args:
        predictor: Runs the graph.
        samples: Samples as users have them, by input.
        expected: Returns what the model answers for some of these samples, by their places.

    Raises:
        RunError: If they differ.
    """
    total = min(_NUM_COMPARED, len(next(iter(samples.values()))))
    for size in (*BATCHES, total):
        places = np.arange(min(size, total))
        answers = predictor.predict({name: values[places] for name, values in samples.items()})
        answered = answers.numbers
        assert answered is not None
        difference = difference_of(torch.from_numpy(answered), torch.from_numpy(expected(places)))
        if not difference <= TOLERANCE:
            raise RunError(
                f"the exported model differs from the trained one by {difference:.2g} for {size}"
                " samples",
                next_step=(
                    "Check that the data is the same as in training. Otherwise export it without"
                    " --format onnx, and report this."
                ),
            )
    return total


def output_of(
    task: str, shape: tuple[int, ...], classes: Sequence[str], reading: Reading | None
) -> Output:
    """Return the description of a graph's answer.

    Args:
        task: The task of the data.
        shape: The shape of what the model returns for one sample.
        classes: The names of the classes.
        reading: How the data is encoded.
    """
    targets: tuple[str, ...] = ()
    if reading is not None and reading.target:
        targets = (reading.target,)
    if task == "classification" and shape and shape[-1] >= 2:
        names = tuple(classes)
        if len(names) != shape[-1]:
            names = tuple(map(str, range(shape[-1])))
        return Output(
            name="probabilities", kind="classes", shape=shape, classes=names, targets=targets
        )
    if task == "detection" and len(shape) == 3:
        names = tuple(classes) or tuple(map(str, range(shape[-1] - NUM_EDGES)))
        return Output(name="boxes", kind="boxes", shape=shape, classes=names)
    if task == "regression":
        if reading is not None and reading.targets:
            targets = reading.targets
        if shape == (1,):
            shape = ()
        unit = None if reading is None else reading.unit
        return Output(name="values", kind="values", shape=shape, targets=targets, unit=unit)
    return Output(name="outputs", kind="outputs", shape=shape)


def example_in(values: Any) -> Any:
    """Return the first known value as plain JSON, or None if there is none or it is too large."""
    for value in values[:100]:
        if isinstance(value, np.ndarray):
            if value.size > _MAX_EXAMPLE_NUMBERS:
                return None
            return value.tolist()
        if not isinstance(value, str) and is_missing(value):
            continue
        if isinstance(value, np.timedelta64):
            return float(value / np.timedelta64(1, "s"))
        plain = value
        if isinstance(value, np.generic):
            plain = value.item()
        if isinstance(value, np.datetime64) or not isinstance(plain, bool | int | float | str):
            return str(value)
        return plain
    return None


def _reading(experiment: Experiment) -> Reading | None:
    component = experiment.data
    if component is None or component.is_reference:
        return None
    return check_options(component.name, component.options).reading(seed=experiment.seed)


def _pairing_of(model: nn.Module, data: Datasets, experiment: Experiment) -> Pairing | None:
    """Return how outputs are read, or None if a sample has several classes and no single answer."""
    try:
        return learned_pairing(experiment, data, model)
    except DataError:
        return None


def _some(tensors: Any, places: np.ndarray) -> Any:
    return map_tensors(lambda tensor: tensor[torch.from_numpy(places)], tensors)


def _first(tensors: Any, number: int) -> Any:
    return map_tensors(lambda tensor: tensor[:number], tensors)


def _samples(tensors: Any, num_samples: int) -> dict[str, np.ndarray]:
    """Return inputs as arrays by their names in the graph."""
    try:
        named = named_tensors(tensors)
        for name, values in named.items():
            if values.ndim == 0 or len(values) != num_samples:
                raise ValueError(
                    f"the input {name!r} of {num_samples} samples has shape {tuple(values.shape)},"
                    " without a value for each sample"
                )
    except ValueError as error:
        raise RunError(
            f"{error}, so the model cannot be exported to ONNX",
            next_step=(
                "Let your data return a tensor for it, the sample first, or export the model"
                " without --format onnx, and call it from your own code."
            ),
        ) from error
    return {name: values.numpy() for name, values in named.items()}


def _with_lengths(output: Output, shorter: tuple[int, ...], inputs: Sequence[Input]) -> Output:
    """Return an output with the names of dimensions that depend on the sample.

    Args:
        output: The output for a sample of the sizes of `inputs`.
        shorter: The shape of the answer for a smaller sample.
        inputs: The inputs.
    """
    if len(shorter) != len(output.shape):  # a single number for each sample
        return output
    known = {
        size: name
        for taken in inputs
        for size, name in zip(taken.shape, taken.lengths, strict=False)
        if name
    }
    names = tuple(
        "" if size == other else known.get(size, f"answer{place}")
        for place, (size, other) in enumerate(zip(output.shape, shorter, strict=True), 1)
    )
    if not any(names):
        return output
    return output.model_copy(update={"lengths": names})


def _inputs(samples: Mapping[str, Any], tensors: Any, reading: Reading | None) -> tuple[Input, ...]:
    if reading is not None and reading.columns:
        return tuple(
            table_graph.input_of(column, example_in(samples[column.name]))
            for column in reading.columns
        )
    return tuple(_array_input(name, values, reading) for name, values in samples.items())


def _array_input(name: str, values: np.ndarray, reading: Reading | None) -> Input:
    dtype: Literal["int64", "float32", "float64"] = "int64"
    if values.dtype.kind not in "iub":
        dtype = _FLOATS.get(values.dtype.name, "float32")
    if reading is None:
        return Input(
            name=name,
            kind="array",
            shape=values.shape[1:],
            example=example_in(values),
            dtype=dtype,
        )
    return Input(
        name=name,
        kind="array",
        shape=values.shape[1:],
        example=_example_of_array(values, reading),
        dtype=dtype,
        categories=reading.vocabulary,
        columns=reading.array_columns,
        group=reading.group,
        tokens=reading.tokens,
        is_image=reading.is_image,
    )


def _example_of_array(values: np.ndarray, reading: Reading) -> Any:
    if reading.tokens is None:
        return example_in(values)
    return " ".join(reading.vocabulary[number] for number in values[0] if number)
