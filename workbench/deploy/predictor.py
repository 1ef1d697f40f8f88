"""Runs the model of a bundle: model.onnx with ONNX Runtime, and no torch, or one of transformers.

`feeds` checks and converts values, and `text_models` runs models of transformers. `serving` adds
HTTP and batching.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from typing_extensions import Self

from workbench.data.tokens import count_terms
from workbench.data.unusual_rows import rows_named
from workbench.deploy.card import MODEL, Card, Statistics, read_card
from workbench.deploy.distributions import needs, of_numbers, of_texts
from workbench.deploy.feeds import feeds_of, notes_of_unusual
from workbench.deploy.lengths import have_several_sizes, run_by_size
from workbench.deploy.predict_script import around
from workbench.foundation.bundle_manifest import CARD, check_listed
from workbench.foundation.errors import ArgumentError, RunError, first_line_of
from workbench.models.detected_boxes import NUM_EDGES, FoundBox, find_boxes

_MAX_COUNTED = 1_000
"""How many rows have their terms counted at once. Each has a number for every term."""


@dataclass(frozen=True)
class Answers:
    """The answers of a model for some samples, the sample first.

    Attributes:
        classes: The predicted class of each sample, by name, or of each of its tokens or pixels, or
            None if no classes are predicted.
        probabilities: The probability of each class, in the order of the card, or None if no
            classes are predicted.
        values: Predicted numbers, or what the model returns, or None if classes are predicted.
        error_sizes: The usual size of an error for each predicted number, or None if the model
            does not know it.
        low: With an interval, its low end for each predicted number.
        high: Its high end.
        texts: The text that the model wrote for each sample, or None if it writes none.
        boxes: The boxes in each image, the best first: `class`, `score`, and `left`, `top`, `right`
            and `bottom` as shares of the image. None if no boxes are predicted.
        notes: Notes about the samples, such as values that did not occur in training.
        files: The image files of the samples in order, or empty for other samples.
    """

    classes: np.ndarray | None = None
    probabilities: np.ndarray | None = None
    values: np.ndarray | None = None
    error_sizes: np.ndarray | None = None
    low: np.ndarray | None = None
    high: np.ndarray | None = None
    texts: list[str] | None = None
    boxes: list[list[dict[str, Any]]] | None = None
    notes: tuple[str, ...] = field(default=())
    files: tuple[str, ...] = ()

    @property
    def numbers(self) -> np.ndarray | None:
        """The probabilities of classes, or else the values."""
        if self.probabilities is not None:
            return self.probabilities
        return self.values

    def __len__(self) -> int:
        if self.texts is not None:
            return len(self.texts)
        if self.numbers is None:
            return 0
        return len(self.numbers)

    def distribution(self) -> Statistics | None:
        """Return how the answers are distributed, or None if they are arrays."""
        if self.boxes is not None:
            return of_texts([name for boxes in self.boxes for name in classes_in(boxes)])
        if self.classes is not None:
            return of_texts([str(name) for name in self.classes.ravel()])
        if self.values is None or self.values.ndim > 2:
            return None
        return of_numbers(self.values.reshape(len(self), -1).mean(axis=1))


class Predictor:
    """A loaded model. It may be called from several threads."""

    def __init__(self, card: Card, session: Any) -> None:
        """Take a card and a session of ONNX Runtime, or one that is called in the same way.

        `open` loads both from a folder.
        """
        self.card = card
        self._session = session
        self._places = {term: place for place, term in enumerate(card.terms)}
        self._shapes = {taken.name: taken.shape[1:] for taken in session.get_inputs()}

    @classmethod
    def open(cls, folder: str | Path, *, threads: int | None = None) -> Self:
        """Load the model of a bundle.

        Args:
            folder: A bundle that was exported with `format="onnx"`, or with a language model.
            threads: Number of threads that compute one call, or None for all cores.

        Raises:
            RunError: If it is not such a bundle, or the card does not match the model.
            MissingDependencyError: If what runs it is not installed: ONNX Runtime, or transformers.
        """
        folder = Path(folder)
        card = read_card(folder)
        if card.text_model is not None:
            for name in card.files:
                check_listed(folder, CARD, card.files, name)
            from workbench.deploy.text_models import open_session as open_text_session

            return cls(card, open_text_session(folder, card, threads=threads))
        path = folder / MODEL
        if not path.exists():
            raise RunError(f"{folder} has no {MODEL}", next_step="Export the model again.")
        check_listed(folder, CARD, card.files, MODEL)
        session = open_session(path, threads=threads)
        _check_graph(card, session)
        return cls(card, session)

    def predict(self, columns: Mapping[str, Any]) -> Answers:
        """Return the answers for samples.

        Args:
            columns: Values by the name of the input, the sample first.

        Raises:
            DataError: If a column is missing, or a value has the wrong kind. The error contains the
                column and the row.
        """
        feeds, notes = feeds_of(self.card, columns)
        outputs, *sizes = self._outputs(feeds)
        notes += notes_of_unusual(self.card, feeds, outputs)
        if self.card.outputs[0].kind == "texts" and sizes[0].any():
            cut = rows_named(np.flatnonzero(sizes[0]))
            notes.append(f"the answer in {cut} is cut at the most tokens that are written")
        return self._with_sizes(self.answers_of(outputs, notes, feeds), sizes)

    def check_interval(self, interval: float) -> None:
        """Check that predicted numbers have an interval.

        Args:
            interval: The share of true numbers that lie between its ends.

        Raises:
            ArgumentError: If the model knows none, or it is not between 0 and 1.
        """
        output = self.card.outputs[0]
        if not output.errors:
            problem, step = "the model has no intervals", None
            if output.kind == "classes":
                problem = "classes have no interval"
            elif output.kind == "values":
                step = "Only results of automl have them. Export it again."
            raise ArgumentError(problem, field="interval", next_step=step)
        if not 0 < interval < 1:
            raise ArgumentError(
                f"{interval:g} is no share of rows",
                field="interval",
                allowed="between 0 and 1, such as 0.9",
            )

    def with_interval(self, answers: Answers, interval: float) -> Answers:
        """Return answers with the interval of each predicted number.

        Args:
            answers: Answers of this model.
            interval: The share of true numbers that lie between its ends.

        Raises:
            ArgumentError: If the model knows none, or it is not between 0 and 1.
        """
        self.check_interval(interval)
        assert answers.values is not None
        assert answers.error_sizes is not None
        low, high = around(
            answers.values.reshape(-1).astype(np.float64),
            answers.error_sizes.reshape(-1).astype(np.float64),
            self.card.outputs[0].errors,
            interval,
        )
        return replace(answers, low=low, high=high)

    def run(self, feeds: Mapping[str, np.ndarray]) -> np.ndarray:
        """Return the output of the graph for values that were checked and converted."""
        return self._outputs(feeds)[0]

    def _outputs(self, feeds: Mapping[str, np.ndarray]) -> list[np.ndarray]:
        if have_several_sizes(feeds):
            return run_by_size(self._outputs, feeds)
        num_rows = len(next(iter(feeds.values())))
        if not self.card.terms or num_rows <= _MAX_COUNTED:
            return self._session.run(None, self.shaped(feeds))
        parts = [
            {name: values[first : first + _MAX_COUNTED] for name, values in feeds.items()}
            for first in range(0, num_rows, _MAX_COUNTED)
        ]
        outputs_of_parts = [self._session.run(None, self.shaped(part)) for part in parts]
        return [np.concatenate(outputs) for outputs in zip(*outputs_of_parts, strict=True)]

    def shaped(self, feeds: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Return values in the shapes of the graph: columns as (n, 1), texts as counts of terms."""
        shaped = {}
        given = dict(feeds)
        if self.card.terms:
            names = [taken.name for taken in self.card.inputs if taken.kind == "text"]
            texts = zip(*(given.pop(name) for name in names), strict=True)
            counts = count_terms([" ".join(parts) for parts in texts], self._places)
            shaped[self.card.counts_name] = counts
        for name, values in given.items():
            is_column = values.ndim == 1 and self._shapes.get(name) == [1]
            shaped[name] = values[:, None] if is_column else values
        return shaped

    def compute(self, feeds: Mapping[str, np.ndarray]) -> Answers:
        """Return the answers for values that were checked and converted."""
        if have_several_sizes(feeds):
            outputs, *sizes = run_by_size(self._outputs, feeds)
        else:
            outputs, *sizes = self._session.run(None, self.shaped(feeds))
        return self._with_sizes(self.answers_of(outputs, feeds=feeds), sizes)

    def _with_sizes(self, answers: Answers, sizes: Sequence[np.ndarray]) -> Answers:
        """Return answers with the second output of the graph, if it has one."""
        if not self.card.outputs[0].errors:
            return answers
        return replace(answers, error_sizes=sizes[0])

    def answers_of(
        self,
        outputs: np.ndarray,
        notes: list[str] | None = None,
        feeds: Mapping[str, np.ndarray] | None = None,
    ) -> Answers:
        """Return the outputs of the graph as answers.

        Positions after the end of a text or of a shorter sample have the class "".
        """
        output = self.card.outputs[0]
        given = tuple(notes or ())
        if output.kind == "texts":
            return Answers(texts=outputs.tolist(), notes=given)
        if output.kind == "boxes":
            boxes = [
                [_named(box, output.classes) for box in find_boxes(cells)] for cells in outputs
            ]
            return Answers(values=outputs, boxes=boxes, notes=given)
        if output.kind != "classes":
            return Answers(values=outputs, notes=given)
        names = np.array(output.classes, dtype=object)
        weighed = outputs
        if output.class_costs:
            weighed = -outputs @ np.array(output.class_costs)
        elif output.class_factors:
            weighed = outputs * np.array(output.class_factors)
        classes = names[weighed.argmax(axis=-1)]
        first = self.card.inputs[0]
        if output.lengths:
            classes = np.where(np.isnan(outputs).any(axis=-1), "", classes)
        if feeds is not None and first.tokens is not None and len(output.shape) == 2:
            classes = np.where(feeds[first.name] == 0, "", classes)
        return Answers(classes, outputs, notes=given)


def classes_in(boxes: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the class of each box of an image, or one empty class if there are no boxes."""
    return [box["class"] for box in boxes] or [""]


def _named(box: FoundBox, classes: Sequence[str]) -> dict[str, Any]:
    number, *rest = box
    return {"class": classes[number], **dict(zip(box._fields[1:], rest, strict=True))}


def _check_graph(card: Card, session: Any) -> None:
    """Raise an error if the card's inputs or outputs differ from the graph's."""
    taken = {item.name: item.shape for item in session.get_inputs()}
    described = {item.name for item in card.graph_inputs}
    if card.terms:
        described.add(card.counts_name)
    output = card.outputs[0]
    if taken.keys() != described:
        names = ", ".join(sorted(taken))
        problem = f"it lists the inputs {', '.join(sorted(described))}, but {MODEL} takes {names}"
    elif card.terms and (size := taken[card.counts_name][-1]) != len(card.terms):
        problem = f"it lists {len(card.terms)} terms, but {MODEL} takes {size}"
    elif output.kind == "boxes" and output.shape[-1:] != (NUM_EDGES + len(output.classes),):
        problem = (
            f"it lists {len(output.classes)} classes, but {MODEL} answers {output.shape} for a"
            " sample"
        )
    else:
        problem = _difference_of_shapes(card, taken, session.get_outputs()[0].shape)
    if problem is not None:
        raise RunError(
            f"the card does not describe {MODEL}: {problem}",
            next_step="Copy the bundle again, or export the model again.",
        )


def _difference_of_shapes(
    card: Card, taken: Mapping[str, Sequence[Any]], answered: Sequence[Any]
) -> str | None:
    """Return how the shapes in a card and its graph differ. Dynamic sizes are not compared."""
    arrays = [array for array in card.graph_inputs if array.kind == "array"]
    output = card.outputs[0]
    shapes = [(array.name, array.shape, taken[array.name][1:]) for array in arrays]
    shapes.append((output.name, output.shape, answered[1:]))
    for name, shape, actual in shapes:
        is_same = len(shape) == len(actual) and all(
            size == known
            for size, known in zip(shape, actual, strict=True)
            if isinstance(known, int)
        )
        if not is_same:
            return f"{name} has the shape {tuple(shape)}, but in {MODEL} it is {tuple(actual)}"
    return None


def open_session(path: Path, *, threads: int | None = None) -> Any:
    """Return an ONNX Runtime session on the CPU.

    Args:
        path: The model.
        threads: Number of threads that compute one call, or None for all cores.

    Raises:
        MissingDependencyError: If ONNX Runtime is not installed.
        RunError: If the file is not a model that it can run.
    """
    with needs("onnxruntime"):
        import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    if threads is not None:
        options.intra_op_num_threads = threads
        options.inter_op_num_threads = 1
    try:
        return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    except Exception as error:  # ONNX Runtime has no common base class for its errors
        raise RunError(
            f"{path} cannot be loaded: {first_line_of(error)}", next_step="Export the model again."
        ) from error
