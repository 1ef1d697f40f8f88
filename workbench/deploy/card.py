"""The card of an exported model: its origin, inputs, outputs and measurements.

It is `card.json` of a bundle, for programs: to serve or watch a model takes nothing else to know
its inputs. Reading and writing the model is left to `predictor`, `onnx_export` and `text_models`.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    JsonValue,
    NonNegativeInt,
    ValidationError,
    model_validator,
)
from typing_extensions import Self

from workbench.experiment.setting_types import TokenKind
from workbench.foundation.bundle_manifest import CARD, complete_export
from workbench.foundation.errors import RunError
from workbench.foundation.files import write_atomically

_PIPELINES = {
    "ForCausalLM": "text-generation",
    "ForSequenceClassification": "text-classification",
}
"""What models of transformers do, by the end of the name of their class."""
_ENCODING = "feature-extraction"

MODEL = "model.onnx"
ERROR_SIZE = "error_size"
"""The output of the graph with the usual size of an error, if it is known."""
COUNTS = "counts"
"""The input of the graph for the counts of the terms of texts, unless a column is called so."""
VERSION = 1
"""The version of the format, which grows when an older reader would misunderstand a card."""

_SPLITS = {"val": "validation", "train": "train", "test": "test"}

InputKind = Literal["number", "category", "text", "date", "array"]
AnswerKind = Literal["classes", "values", "boxes", "outputs", "texts"]


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore", ser_json_inf_nan="null")


class Input(_Part):
    """One input of the model: a column of a table, or an array for each sample.

    Attributes:
        name: Its name, in the table and in the graph.
        kind: number and category: one value for each row; date: a date or text that holds one;
            text: a text; array: numbers of `shape`.
        shape: The shape of one sample, or () for a column.
        lengths: The name of each dimension of `shape` that may have any size, "" for a fixed one.
            Dimensions with the same name have the same size in a sample. Empty if all are fixed.
        dtype: The type in the graph: float32, float64, int64 or string. A date is given as seconds
            since 1970.
        categories: The known values of a category, the most frequent first.
        date_format: How dates are written as text: ISO8601, or a format of `strptime`, or several
            with " | " between them.
        has_missing: Whether values were missing in the training data.
        has_thousands: Whether numbers that are written as text have commas between thousands.
        has_decimal_comma: Whether they have a comma before decimals, and points between thousands.
        unit: The sign or word after numbers that are written as text, such as % or kg, or "" for
            none.
        notation: How the size of a number is written as text, such as factors for 1.2k next to 3M;
            see `workbench.data.number_texts.NumberText`. "" for plain numbers.
        missing_texts: Texts that count as missing numbers, in lower case, in addition to the usual
            ones such as ? and n/a.
        columns: The columns of a table whose successive rows form an array.
        group: The column that tells apart the series of that table. No array has rows of two. A
            table without this column is one series.
        tokens: How a text becomes the numbers of an array, see `workbench.data.tokens`. The number
            of a token is its position in `categories`.
        is_image: Whether an array is the pixels of an image file, from 0 to 255, the channels
            first.
        learned: The least and the largest number in the training data, if they are known.
        example: A value from the training data.
    """

    name: str
    kind: InputKind
    shape: tuple[NonNegativeInt, ...] = ()
    lengths: tuple[str, ...] = ()
    dtype: Literal["float32", "float64", "int64", "string"]
    categories: tuple[str, ...] = ()
    date_format: str | None = None
    has_missing: bool = False
    has_thousands: bool = False
    has_decimal_comma: bool = False
    unit: str = ""
    notation: str = ""
    missing_texts: tuple[str, ...] = ()
    columns: tuple[str, ...] = ()
    group: str | None = None
    tokens: TokenKind | None = None
    is_image: bool = False
    learned: tuple[float, float] | None = None
    example: JsonValue = None

    @property
    def is_written_as_text(self) -> bool:
        """Whether the training data had text in place of some numbers, or all of them."""
        has_separators = self.has_thousands or self.has_decimal_comma
        return has_separators or bool(self.unit or self.notation or self.missing_texts)

    @property
    def numpy_dtype(self) -> Any:
        """The numpy type of its values. Texts are objects."""
        return object if self.dtype == "string" else self.dtype

    @property
    def graph_shape(self) -> tuple[int | str, ...]:
        """The shape of one sample in the graph. A column is a single value."""
        return _named_shape(self.shape, self.lengths) if self.kind == "array" else (1,)

    def takes(self, shape: tuple[int, ...]) -> bool:
        """Return whether a sample of a shape has the numbers of this input in their order.

        Args:
            shape: The shape of one sample. It may be flat, and dimensions of 1 may be missing,
                unless some have any size.
        """
        if self.lengths:
            pairs = zip(shape, self.graph_shape, strict=False)
            return len(shape) == len(self.shape) and all(
                size == wanted or (isinstance(wanted, str) and size > 0) for size, wanted in pairs
            )
        if len(shape) == 1:
            return shape[0] == math.prod(self.shape)
        return [size for size in shape if size != 1] == [size for size in self.shape if size != 1]

    def as_taken(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """Return the shape in which a sample is given to the model.

        Args:
            shape: Its shape, which `takes` accepts.
        """
        return shape if self.lengths else self.shape


class Output(_Part):
    """The output of the model.

    Attributes:
        name: Its name in the graph.
        kind: What the numbers are. `classes` is a probability for each class, and `values` are
            predicted numbers. `boxes` has the edges of a box for each cell of an image, as shares
            of the image, and a score for each class. `outputs` is what the model returns, and
            `texts` is what it writes.
        shape: The shape for one sample.
        lengths: The name of each dimension of `shape` that depends on the sample, "" for a fixed
            one. Empty if all are fixed.
        classes: The names of the classes.
        class_factors: The class with the largest probability times its factor is predicted. Empty
            if all are 1.
        class_costs: What it costs to predict a class (column) if another one (row) is true. The
            class with the least expected cost is predicted. Empty if all mistakes cost the same.
        targets: The names of what is predicted.
        unit: The unit of predicted numbers, or None for the unit of the target.
        learned: The least and the largest number to predict in the training data, if known.
        errors: How far predicted numbers were off on samples that the model had not learned from,
            sorted. They are divided by the usual size of an error, which is the second output of
            the graph. Empty if there are no intervals.
    """

    name: str
    kind: AnswerKind
    shape: tuple[NonNegativeInt, ...] = ()
    lengths: tuple[str, ...] = ()
    classes: tuple[str, ...] = ()
    class_factors: tuple[float, ...] = ()
    class_costs: tuple[tuple[float, ...], ...] = ()
    targets: tuple[str, ...] = ()
    unit: str | None = None
    learned: tuple[float, float] | None = None
    errors: tuple[float, ...] = ()

    @property
    def graph_shape(self) -> tuple[int | str, ...]:
        """The shape for one sample in the graph."""
        return _named_shape(self.shape, self.lengths)

    @model_validator(mode="after")
    def _check_classes(self) -> Self:
        num_scores = self.shape[-1] if self.shape else None
        if self.kind == "classes" and len(self.classes) != num_scores:
            raise ValueError(
                f"{len(self.classes)} classes are listed, but the model answers {num_scores}"
            )
        return self


def _named_shape(shape: tuple[int, ...], lengths: tuple[str, ...]) -> tuple[int | str, ...]:
    if not lengths:
        return shape
    return tuple(name or size for name, size in zip(lengths, shape, strict=True))


class Metric(_Part):
    """A value that was measured, and the split of the data that it comes from."""

    name: str
    value: float | None
    split: str


class Timing(_Part):
    """How long one call took on one machine, after a warm-up.

    Attributes:
        machine: The machine.
        runtime: What ran the model, with its version.
        threads: Number of threads that computed.
        batch: Samples in a call.
        p50_s: Half of the calls were at most this long, in seconds.
        p95_s: 95 of 100 calls were at most this long, in seconds.
        num_calls: Number of calls that were timed.
        memory_bytes: Peak memory of the process, or None if it is unknown.
        energy_j: The energy of all processors of the machine for a call, in joules, or None if it
            is not counted.
        measured_at: The time of the measurement, as ISO 8601.
    """

    machine: str
    runtime: str
    threads: int
    batch: int = 1
    p50_s: float
    p95_s: float
    num_calls: int
    memory_bytes: int | None = None
    energy_j: float | None = None
    measured_at: str | None = None


class Statistics(_Part):
    """How the training data is distributed, in bins that drift is measured against.

    Attributes:
        edges: Inner edges of the bins of numbers, or of the numbers of words of texts, increasing:
            `shares` has one bin more. A number that equals an edge belongs to the bin above it, as
            `workbench.deploy.distributions` counts.
        categories: The categories that have a bin each. The last bin of `shares` is for all others.
        shares: The share of the known values in each bin.
        missing: The share of missing values.
    """

    edges: tuple[float, ...] = ()
    categories: tuple[str, ...] = ()
    shares: tuple[float, ...] = ()
    missing: float = 0.0

    @model_validator(mode="after")
    def _check_bins(self) -> Self:
        num_bins = 1 + max(len(self.edges), len(self.categories))
        if self.shares and len(self.shares) != num_bins:
            raise ValueError(f"there are {len(self.shares)} shares for {num_bins} bins")
        if list(self.edges) != sorted(self.edges):
            raise ValueError("the edges must increase")
        return self


class TextModel(_Part):
    """How a model of transformers in `model/` reads texts.

    Attributes:
        task: What it does: `classification` gives each text the probabilities of classes,
            `embedding` a vector, and `generation` an answer.
        context: The most tokens of a text that are read. For generation, prompt and answer.
        columns: Other columns that may hold the texts, tried in order.
    """

    task: Literal["classification", "embedding", "generation"]
    context: int
    columns: tuple[str, ...] = ()


@dataclass(frozen=True)
class Exported:
    """The origin of an exported model.

    Attributes:
        name: The name of the run.
        run_id: The run.
        trial: The number of the trial, or None if there are several.
        model: The model, in words.
        trained_on: The data, in words.
        task: The task of the data.
        values: What was measured, by metric, such as val_accuracy.
        num_train_samples: Number of samples that it was trained on.
    """

    name: str
    run_id: str
    trial: int | None
    model: str
    trained_on: str
    task: str
    values: Mapping[str, float]
    num_train_samples: int

    @property
    def metrics(self) -> tuple[Metric, ...]:
        """The measured values, with the split that each comes from."""
        return tuple(_metric(name, value) for name, value in self.values.items())


def _metric(name: str, value: float) -> Metric:
    prefix, _, rest = name.partition("_")
    number = float(value) if math.isfinite(value) else None
    if prefix in _SPLITS and rest:
        return Metric(name=rest, value=number, split=_SPLITS[prefix])
    return Metric(name=name, value=number, split="unknown")


class Card(_Part):
    """Everything that is known about an exported model.

    Attributes:
        version: The version of this format.
        name: The name of the run.
        run_id: The run.
        trial: The number of the trial, or None if the model consists of several.
        trained_on: The data, in words.
        task: The task of the data.
        model: The model, in words.
        inputs: The inputs of the model.
        outputs: The outputs of the model.
        metrics: The measured values, with the split that they come from.
        guarantees: The checks that the model passed, in words.
        timings: Measured times of calls, by machine.
        files: SHA-256 of each file by name.
        opset: The ONNX opset, or None if there is no graph.
        text_model: How the model in `model/` is run, or None if the model is model.onnx.
        statistics: The distribution of the training data by input. For an array, its mean is used.
        statistics_from: The split that both distributions were measured on.
        answers: The distribution of the answers for the training data, by class or as numbers.
        num_train_samples: Number of samples that it was trained on.
        terms: The terms that are counted in the texts of a sample, see `workbench.data.tokens`.
            Empty if it has none. The graph takes their counts in place of the texts.
    """

    version: int = VERSION
    name: str
    run_id: str
    trial: int | None = None
    trained_on: str
    task: str
    model: str
    inputs: tuple[Input, ...] = Field(min_length=1)
    outputs: tuple[Output, ...] = Field(min_length=1, max_length=1)
    metrics: tuple[Metric, ...] = ()
    guarantees: tuple[str, ...] = ()
    timings: tuple[Timing, ...] = ()
    files: dict[str, str] = {}
    opset: int | None = None
    text_model: TextModel | None = None
    statistics: dict[str, Statistics] = {}
    statistics_from: str = "train"
    answers: Statistics | None = None
    num_train_samples: int = 0
    terms: tuple[str, ...] = ()

    @model_validator(mode="after")
    def _check_names(self) -> Self:
        names = [taken.name for taken in self.inputs]
        if len(set(names)) < len(names):
            raise ValueError("two inputs have the same name")
        if len(set(self.terms)) < len(self.terms):
            raise ValueError("a term is listed twice")
        unknown = sorted(self.statistics.keys() - set(names))
        if unknown:
            raise ValueError(f"there are statistics of {unknown[0]!r}, which is not an input")
        return self

    def input(self, name: str) -> Input | None:
        """Return an input by its name, or None if there is none."""
        return next((taken for taken in self.inputs if taken.name == name), None)

    @property
    def sha256(self) -> str:
        """The digest of the model, whatever its files are."""
        if self.text_model is None:
            return self.files.get(MODEL, "")
        return hashlib.sha256(json.dumps(sorted(self.files.items())).encode()).hexdigest()

    @property
    def counts_name(self) -> str:
        """The input of the graph for the counts of terms."""
        return counts_name(self.inputs)

    @property
    def graph_inputs(self) -> tuple[Input, ...]:
        """The inputs that the graph takes as they are. It takes the counts of terms of texts."""
        return tuple(taken for taken in self.inputs if not self.terms or taken.kind != "text")

    def write(self, folder: Path) -> None:
        """Write the card into a bundle, all of it or nothing."""
        write_atomically(folder / CARD, self.model_dump_json(indent=2) + "\n")


def counts_name(inputs: Sequence[Input]) -> str:
    """Return the input of a graph for the counts of terms. No other input has this name.

    Args:
        inputs: The inputs of the model.
    """
    taken = {item.name for item in inputs if item.kind != "text"}
    name = COUNTS
    while name in taken:
        name += "_"
    return name


def read_card(folder: Path) -> Card:
    """Read the card of a bundle.

    Args:
        folder: The bundle.

    Raises:
        RunError: If there is no card, it is damaged, or a newer workbench has written it.
    """
    complete_export(folder)
    path = folder / CARD
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError) as error:
        raise _without_card(folder) from error
    except (OSError, ValueError, RecursionError) as error:
        raise RunError(
            f"{path} cannot be read: {error}", next_step="Export the model again."
        ) from error
    version = content.get("version") if isinstance(content, dict) else None
    if not isinstance(version, int) or not 1 <= version <= VERSION:
        raise RunError(
            f"{path} has the format version {version!r}, but this workbench reads versions up to"
            f" {VERSION}",
            next_step="Read it with a newer workbench, or export the model again with this one.",
        )
    try:
        return Card.model_validate(content)
    except ValidationError as error:
        first = error.errors()[0]
        raise RunError(
            f"{path} is not a card: {first['msg'].removeprefix('Value error, ')}",
            field=".".join(map(str, first["loc"])) or None,
            next_step="Export the model again.",
        ) from error


def read_graph_card(folder: Path) -> Card:
    """Read the card of a bundle whose model is model.onnx.

    Args:
        folder: The bundle.

    Raises:
        RunError: As in `read_card`, or if the model is one of transformers.
    """
    card = read_card(folder)
    if card.text_model is not None:
        raise RunError(
            f"{folder} contains a model of transformers, but only a model as ONNX can be measured,"
            " placed on tiers or compressed",
            next_step=(
                "Predict with it: workbench predict BUNDLE ROWS. To measure it, export it with"
                " --format onnx."
            ),
        )
    return card


def _without_card(folder: Path) -> RunError:
    """Return the error for a folder without a card, which says how to get one."""
    if not folder.exists():
        return RunError(
            f"there is no folder {folder}",
            next_step="Export a run first: workbench export RUN --to FOLDER --format onnx.",
        )
    if not (folder / "configuration.json").exists():
        return RunError(
            f"{folder} has no {CARD}, so it is not a bundle with a model to run",
            next_step="Export the run again with --format onnx.",
        )
    if not (folder / "weights.safetensors").exists():
        return RunError(
            f"{folder} contains no model: it was exported without weights, or its train function"
            " or command created the model",
            next_step="Load the files of the trial, in `files`, with the code that wrote them.",
        )
    config = folder / "model" / "config.json"
    if config.exists():
        kinds = " ".join(json.loads(config.read_text(encoding="utf-8")).get("architectures") or ())
        task = next((task for end, task in _PIPELINES.items() if kinds.endswith(end)), _ENCODING)
        return RunError(
            f"{folder} contains a model of transformers without a {CARD}, because its code or data"
            " is your own, or it was exported by an older workbench",
            next_step=f'In Python: transformers.pipeline("{task}", "{config.parent}").',
        )
    return RunError(
        f"{folder} was exported without --format onnx, so its model only runs in Python",
        next_step="Export the run again with --format onnx, or load the model with wb.load_bundle.",
    )
