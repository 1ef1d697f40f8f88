"""Make the bundle that is placed for a file of tiers, if it has no early exits yet.

A model without exits becomes a bundle of one stage, and a model for each of several tiers a
cascade: requests of which one is not sure are sent unchanged to a later one. All are calibrated,
and the thresholds chosen, on the validation split.
"""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from workbench.deploy.card import CARD, MODEL, Card, Input, read_graph_card
from workbench.deploy.graph import Graph, onnx
from workbench.deploy.predictor import open_session
from workbench.deploy.stages import PROBABILITIES, STAGES, Calibration, Stages
from workbench.foundation.errors import ExperimentError, RunNotFoundError
from workbench.tiers.placement.tiers_file import TiersFile
from workbench.tiers.processes.samples import bundle_samples

_EXPERIMENT = "experiment.yaml"
_BATCH = 512
_LEAST = np.float32(1e-12)
"""A probability counts as at least this: its logarithm follows."""

Export = Callable[[str, Path], None]
"""Writes a trial, as `RUN/TRIAL`, into a folder with its model as ONNX."""


def placed(
    file: TiersFile, folder: Path, temporary: Path, *, export: Export | None = None
) -> TiersFile:
    """Return a file of tiers whose `place.from` is a bundle with stages.

    Args:
        file: The file.
        folder: The folder that its paths are relative to.
        temporary: A folder for the bundles that are made. Keep it as long as the file is used.
        export: Writes trials, or None if only folders can be named.

    Raises:
        ExperimentError: If a bundle is missing, or models of tiers do not answer the same question.
        WorkbenchError: If a trial cannot be exported, or the data of a model cannot be read.
    """
    place = file.place
    given = {next(iter(file.tiers)): place.source or ""}
    if place.models:
        given = file.tier_models()
    bundles = [
        _bundle(
            model,
            folder,
            temporary / f"exported_{number}",
            export,
            field=f"place.models.{name}" if name in place.models else "place.from",
        )
        for number, (name, model) in enumerate(given.items())
    ]
    if place.models or not (bundles[0] / STAGES).exists():
        made = temporary / "placed"
        made.mkdir()
        write_cascade(bundles, made)
        bundles = [made]
    return file.model_copy(
        update={"place": place.model_copy(update={"source": str(bundles[0].absolute())})}
    )


def _bundle(given: str, folder: Path, target: Path, export: Export | None, *, field: str) -> Path:
    bundle = folder / given
    if not bundle.is_dir() and export is not None and "/" in given:
        # `models/large` may be a folder that is missing, or the trial of a run.
        with contextlib.suppress(RunNotFoundError):
            export(given, target)
            bundle = target
    if not (bundle / CARD).exists() and not (bundle / STAGES).exists():
        raise ExperimentError(
            _what_is_missing(given, bundle, export),
            field=field,
            allowed="the folder of a bundle, or a trial as RUN/TRIAL, such as last/best",
            next_step=(
                "Train it with `workbench sweep`, and name its run, or export it with --format"
                " onnx."
            ),
        )
    return bundle


def _what_is_missing(given: str, bundle: Path, export: Export | None) -> str:
    if bundle.is_dir():
        return f"{given!r} is not a bundle with a model as ONNX"
    if export is None or "/" not in given:
        return f"{given!r} is not the folder of a bundle: it does not exist"
    return f"{given!r} is neither the folder of a bundle nor the trial of a run"


def write_cascade(bundles: Sequence[Path], folder: Path) -> Stages:
    """Write models as successive stages with the same inputs. The last one answers the rest.

    Args:
        bundles: Bundles of classifiers, the first one first. The data are taken from the last.
        folder: Where to write.

    Raises:
        ExperimentError: If they take other inputs, or name other classes.
        WorkbenchError: If the data cannot be read.
    """
    cards = [read_graph_card(bundle) for bundle in bundles]
    for card in cards:
        _check(card)
    for card in cards:
        _check_same(card, cards[-1])
    inputs, targets = bundle_samples(bundles[-1])
    outputs = [
        # A temperature divides logits, and logarithms of probabilities are logits up to a constant.
        np.log(np.maximum(_answers(bundle / MODEL, inputs), _LEAST)).astype(np.float64)
        for bundle in bundles
    ]
    calibration, stages = Calibration.of(outputs, targets), []
    for number, (bundle, card) in enumerate(zip(bundles, cards, strict=True)):
        name, given = f"stage_{number}.onnx", card.inputs[0]
        made = _calibrated(bundle / MODEL, card, calibration.temperatures[number])
        onnx.save(made, str(folder / name))
        num_tokens = None if given.tokens is None else len(given.categories)
        stages.append(
            calibration.stage(number, name, given.shape, given.dtype, num_tokens=num_tokens)
        )
    for name in (MODEL, CARD, _EXPERIMENT):
        shutil.copyfile(bundles[-1] / name, folder / name)
    return calibration.write(folder, stages)


def _check(card: Card) -> None:
    kinds = [taken.kind for taken in card.inputs]
    if card.outputs[0].kind != "classes":
        raise ExperimentError(
            f"{card.name} does not answer with one class",
            field="place",
            next_step="Use a classifier.",
        )
    if kinds == ["array"]:
        return
    takes, next_step = "columns of a table", "Use it on one machine, with `workbench serve`."
    if set(kinds) == {"array"}:
        takes = f"{len(kinds)} arrays ({', '.join(taken.name for taken in card.inputs)})"
        next_step = (
            "Join the arrays in your dataset, and divide the joined array in the model."
            " Then train and export it again."
        )
    raise ExperimentError(
        f"{card.name} takes {takes}, and what tiers send each other is one array,"
        " with early exits or without",
        field="place",
        allowed="models of images, of texts, or of other samples that are single arrays",
        next_step=next_step,
    )


def _check_same(card: Card, last: Card) -> None:
    if card.outputs[0].classes != last.outputs[0].classes:
        raise ExperimentError(
            f"{card.name} and {last.name} do not have the same classes", field="place.models"
        )
    (given,), (wanted,) = card.inputs, last.inputs
    if (given.shape, given.dtype) != (wanted.shape, wanted.dtype):
        differ = (
            f"{card.name} takes {_described(given)}, and {last.name} takes {_described(wanted)}"
        )
    elif (given.tokens, given.categories) != (wanted.tokens, wanted.categories):
        differ = "they do not divide texts into the same tokens"
    else:
        return
    raise ExperimentError(
        f"{card.name} and {last.name} do not take the same inputs: {differ}",
        field="place.models",
        next_step="Train both on the same data.",
    )


def _described(taken: Input) -> str:
    return f"{taken.dtype} of shape ({', '.join(map(str, taken.shape))})"


def _answers(model: Path, inputs: np.ndarray) -> np.ndarray:
    session = open_session(model, threads=1)
    (given,) = session.get_inputs()
    dtype = {"tensor(float)": np.float32, "tensor(double)": np.float64}.get(
        given.type, inputs.dtype
    )
    batches = np.array_split(inputs, max(1, len(inputs) // _BATCH))
    return np.concatenate(
        [session.run(None, {given.name: batch.astype(dtype)})[0] for batch in batches]
    )


def _calibrated(model: Path, card: Card, temperature: float) -> onnx.ModelProto:
    graph, (given,), (answer,) = Graph(), card.inputs, card.outputs
    values = graph.input(given.name, np.dtype(given.dtype), given.shape)
    outputs = graph.inline(onnx.load(str(model)), (values,))
    likely = graph.add("Log", graph.add("Max", outputs, graph.constant(_LEAST)))
    divided = graph.add("Div", likely, graph.constant(np.float32(temperature)))
    return graph.model(
        graph.add("Softmax", divided, axis=-1), PROBABILITIES, np.dtype("float32"), answer.shape
    )
