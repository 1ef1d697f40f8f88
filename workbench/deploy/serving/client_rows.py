"""Checks the rows of a client value by value, and converts answers to JSON.

Problems are reported with row and column. Values that did not occur in training are accepted with a
note, because the model has an answer for them. The card determines the types.
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import json
import math
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

import numpy as np

from workbench.data.number_texts import new_unit
from workbench.data.unusual_rows import far_outside, note_of_unit, notes_of_bare
from workbench.deploy.card import Card, Input
from workbench.deploy.feeds import (
    category_reader,
    columns_with_points,
    ids_of,
    is_missing,
    missing_text_of,
    note_of_comma,
    number_in,
    seconds_of,
    with_new_commas,
)
from workbench.deploy.image_files import sent_pixels, takes_images
from workbench.deploy.lengths import in_one, other_size
from workbench.deploy.predict_script import value_at
from workbench.deploy.predictor import Answers
from workbench.deploy.serving.batching import Answer, Row
from workbench.foundation.errors import DataError
from workbench.foundation.formatting import format_number

_MAX_PROBLEMS = 20
_SHOWN_CHARS = 60


@dataclass(frozen=True)
class ValueProblem:
    """A problem with a row or one of its values. Rows are counted from 0."""

    row: int
    column: str | None
    problem: str
    allowed: str | None = None


class RowsError(Exception):
    """The rows do not fit the model."""

    def __init__(self, problems: Sequence[ValueProblem]) -> None:
        self.problems = problems
        super().__init__(self.to_json()["problem"])

    def to_json(self) -> dict[str, Any]:
        """Return the problems as plain values: the first one in words, and a list of them."""
        first = self.problems[0]
        place, field = f"row {first.row}", f"rows.{first.row}"
        if first.column is not None:
            place += f", column {first.column!r}"
            field += f".{first.column}"
        return {
            "problem": f"{place}: {first.problem}",
            "field": field,
            "allowed": first.allowed,
            "next_step": "Correct the rows. /openapi.json describes them.",
            "problems": [asdict(problem) for problem in self.problems],
        }


class RequestError(Exception):
    """The body of a request does not contain rows."""


class Asked(NamedTuple):
    """What a request asks for: rows, unchecked, and the share that intervals hold, or None."""

    rows: list[Any]
    interval: float | None = None


def parse_rows(body: bytes) -> Asked:
    """Return what a request asks for.

    Args:
        body: `{"rows": [...]}` as JSON, perhaps with an `interval`.

    Raises:
        RequestError: If it is anything else.
    """
    try:
        document = json.loads(body, parse_constant=_refuse_constant)
    except RecursionError as error:
        raise RequestError("the body is not JSON: it is nested too deeply") from error
    except ValueError as error:
        raise RequestError(f"the body is not JSON: {error}") from error
    if not isinstance(document, dict) or not isinstance(document.get("rows"), list):
        raise RequestError('the body is not {"rows": [...]}')
    if unknown := sorted(document.keys() - {"rows", "interval"}):
        raise RequestError(f"the body has {unknown[0]!r} next to rows")
    if not document["rows"]:
        raise RequestError("there are no rows")
    interval = document.get("interval")
    if interval is None:
        return Asked(document["rows"])
    if isinstance(interval, bool) or not isinstance(interval, int | float) or not 0 < interval < 1:
        raise RequestError(
            f"{_shown(interval)} is no interval. Give a number between 0 and 1, such as 0.9"
        )
    return Asked(document["rows"], float(interval))


def _refuse_constant(name: str) -> float:
    raise ValueError(f"{name} is not a number in JSON. Write a missing value as null")


class RowReader:
    """Checks the rows of one model."""

    def __init__(self, card: Card) -> None:
        """Prepare for the inputs of a card."""
        self.image = None
        if takes_images(card):
            self.image = card.inputs[0].name
        """The name of the input that takes images, or None if the model takes something else."""
        self._card, self._inputs = card, card.inputs
        self._is_never_empty = card.text_model is not None
        self._readers = [(column.name, _reader(column)) for column in card.inputs]
        self._arrays = {
            column.name: _array_in_words(column) for column in card.inputs if column.kind == "array"
        }
        self._known = {
            column.name: frozenset(column.categories)
            for column in card.inputs
            if column.kind == "category"
        }
        self._missing = {
            column.name: missing_text_of(column)
            for column in card.inputs
            if column.kind == "category"
        }
        self._ranges = [
            (place, column.name, column.learned)
            for place, column in enumerate(card.inputs)
            if column.learned is not None
        ]
        output = card.outputs[0]
        self._answered = None
        if output.kind == "values" and not output.shape:
            self._answered = output.learned
        """The range of the predicted number in training, or None if it is unknown."""

    def read(self, rows: Sequence[Any]) -> list[Row]:
        """Return rows with the values in the order of the inputs. Other columns are skipped.

        A column that only some of the rows lack is missing there. As in `predict`, a few texts
        among numbers or dates are missing also, and all texts of a request decide what a comma in
        them means.

        Raises:
            RowsError: If all rows lack a column, or a value has the wrong kind. Also if no more
                numbers of a column can be read than texts cannot.
        """
        problems: list[ValueProblem] = []
        unreadable: dict[str, list[ValueProblem]] = {}
        given = {name for row in rows if isinstance(row, dict) for name in row}
        inputs = _with_commas_of(self._card, rows)
        readers = self._readers
        if inputs is not self._inputs:
            readers = [(column.name, _reader(column)) for column in inputs]
        values = [
            self._read_row(number, row, given, readers, problems=problems, unreadable=unreadable)
            for number, row in enumerate(rows)
        ]
        problems += self._problems_of_texts(inputs, rows, values, unreadable)
        if problems:
            problems.sort(key=lambda problem: problem.row)
            raise RowsError(problems[:_MAX_PROBLEMS])
        return list(map(tuple, values))

    def _problems_of_texts(
        self,
        inputs: Sequence[Input],
        rows: Sequence[Any],
        values: Sequence[list[Any]],
        unreadable: Mapping[str, Sequence[ValueProblem]],
    ) -> list[ValueProblem]:
        """Read texts with the unit that most numbers of their column have, and judge the others.

        Args:
            inputs: The inputs as the rows write them.
            rows: The rows as they were sent.
            values: What they are read as, which is changed.
            unreadable: The texts that could not be read, by column.
        """
        problems: list[ValueProblem] = []
        for place, column in enumerate(inputs):
            if column.name not in unreadable:
                continue
            others = list(unreadable[column.name])
            sent = [row.get(column.name) if isinstance(row, dict) else None for row in rows]
            plain = (value for value in sent if isinstance(value, str | int | float))
            unit = _new_unit(column, [str(value) for value in plain if not is_missing(value)])
            if unit:
                with_unit = _reader(column.model_copy(update={"unit": unit}))
                for problem in unreadable[column.name]:
                    with contextlib.suppress(_WrongValueError):
                        values[problem.row][place] = with_unit(sent[problem.row])
                        others.remove(problem)
            num_read = sum(not math.isnan(row[place]) for row in values if row)
            problems += others if len(others) >= num_read else ()
        return problems

    def has_images(self, rows: Sequence[Any]) -> bool:
        """Return whether rows contain images, which take long to decode."""
        return self.image is not None and any(
            isinstance(row, dict) and isinstance(row.get(self.image), str) for row in rows
        )

    def notes(self, row: Row, answer: Answer, given: Any = None) -> list[str]:
        """Return notes about a row that was accepted.

        Args:
            row: The row, as `read` returned it.
            answer: The answer to it.
            given: The row as it was sent, to say how its numbers were read, or None.
        """
        notes = []
        for column, number in zip(self._inputs, row, strict=True):
            if column.kind in ("number", "date") and isinstance(given, dict):
                with contextlib.suppress(KeyError):
                    notes += _notes_of_reading(column, value_at(given, column.name), number)
        notes += [
            note
            for place, name, ends in self._ranges
            for note in _notes_of_far(f"column {name!r} is", row[place], ends)
        ]
        if self._answered is not None:
            number = answer["values"]
            if isinstance(number, dict):
                (number,) = number.values()
            notes += _notes_of_far("the answer is", number, self._answered)
        for column, value in zip(self._inputs, row, strict=True):
            notes += self._notes_of_unknown(column, value)
        return notes

    def _notes_of_unknown(self, column: Input, value: Any) -> list[str]:
        """Return a note on a value that is missing, or that training never saw."""
        absent = f"column {column.name!r} is missing, and was never missing in training"
        if column.kind in ("number", "date"):
            is_absent = math.isnan(value) and not column.has_missing
        elif column.kind == "text":
            is_absent = self._is_never_empty and not value
        elif column.kind == "category" and value not in self._known[column.name]:
            if value != self._missing[column.name] and not is_missing(value):
                return [f"column {column.name!r}: {_shown(value)} did not occur in training"]
            is_absent = not column.has_missing
        else:
            return []
        return [absent] if is_absent else []

    def _read_row(
        self,
        number: int,
        row: Any,
        given: Container[str],
        readers: Sequence[tuple[str, Callable[[Any], Any]]],
        *,
        problems: list[ValueProblem],
        unreadable: dict[str, list[ValueProblem]],
    ) -> list[Any]:
        if not isinstance(row, dict):
            problem = f"{_shown(row)} is not a row"
            problems.append(
                ValueProblem(number, None, problem, "an object with a value for each column")
            )
            return []
        values: list[Any] = []

        def refuse(
            column: str, problem: str, allowed: str, listed: list[ValueProblem] = problems
        ) -> None:
            listed.append(ValueProblem(number, column[:_SHOWN_CHARS], problem, allowed))

        for name, read in readers:
            try:
                values.append(read(value_at(row, name)))
            except KeyError:
                if name in given and name not in self._arrays:
                    values.append(read(None))
                    continue
                allowed = self._arrays.get(name, "null or a value")
                refuse(name, "the value is missing from the row", allowed)
                values.append(math.nan)
            except _WrongValueError as error:
                problem, value = error.problem, value_at(row, name)
                if error.is_of_value:
                    problem = f"{_shown(value)} {problem}"
                is_text = isinstance(value, str) and name not in self._arrays
                others = unreadable.setdefault(name, []) if is_text else problems
                refuse(name, problem, error.allowed, others)
                values.append(math.nan)
        if wrong := other_size(self._inputs, [np.shape(value) for value in values]):
            refuse(*wrong, "the same size for both")
        return values


def _with_commas_of(card: Card, rows: Sequence[Any]) -> Sequence[Input]:
    """Return the inputs as rows write them, perhaps with decimal commas where training had not."""
    texts: dict[str, list[str]] = {}
    for column in columns_with_points(card):
        for row in rows:
            with contextlib.suppress(KeyError):
                if isinstance(row, dict) and isinstance(sent := value_at(row, column.name), str):
                    texts.setdefault(column.name, []).append(sent)
    return with_new_commas(card, texts)[0] if texts else card.inputs


def _notes_of_far(subject: str, number: float | None, ends: tuple[float, float]) -> list[str]:
    """Return a note if a number is far outside of a learned range."""
    low, high = map(format_number, ends)
    return [
        f"{subject} {format_number(far.value)}, far outside of what was learned, {low} to {high}:"
        " do not rely on the answer"
        for far in far_outside(subject, np.array([number], dtype=np.float64), ends)
    ]


class _WrongValueError(Exception):
    def __init__(self, problem: str, allowed: str, *, is_of_value: bool = True) -> None:
        """Describe a problem, whose subject is the value unless `is_of_value` is False."""
        super().__init__(problem)
        self.problem, self.allowed, self.is_of_value = problem, allowed, is_of_value


def _reader(column: Input) -> Callable[[Any], Any]:
    """Return a function that checks and converts one value of an input."""
    if column.kind == "number":
        read = _number
        if takes_truth_values(column):
            read = _number_or_truth
        return lambda value: read(_read_number(column, value))
    if column.kind == "date":
        return lambda value: _date(column, value)
    if column.kind == "array":
        return lambda value: _array(column, value)
    if column.kind == "category":
        read_category = category_reader(column)
        return lambda value: read_category(_checked_text(value))
    return _text


def _read_number(column: Input, value: Any) -> Any:
    """Return the number that a text means in the notation of the training table."""
    if not isinstance(value, str):
        return value
    try:
        return number_in(column, value)
    except ValueError:
        return value


def _new_unit(column: Input, texts: Sequence[str]) -> str:
    """Return the unit that only new rows write, as `predict` reads it, or nothing."""
    if column.kind != "number" or column.unit or column.notation:
        return ""
    return new_unit(texts)


def _notes_of_reading(column: Input, given: Any, number: float) -> list[str]:
    """Return notes on a number or date that was sent in another form than training had it."""
    name, numbers = column.name, np.array([number])
    if isinstance(given, str) and not _is_readable(column, given):
        if not math.isnan(number):
            unit = _new_unit(column, [given])
            return [note_of_unit(name, unit) if unit else note_of_comma(given)]
        kind = column.kind
        return [f"column {name!r} has {_shown(given)}, which is not a {kind}: it counts as missing"]
    if column.kind == "date":
        return []
    notes = notes_of_bare(name, column.unit, column.notation, [given], numbers)
    if math.isnan(number) and given is not None and _is_infinite(column, given):
        notes.append(f"column {name!r} is infinite: it counts as missing")
    return notes


def _is_readable(column: Input, text: str) -> bool:
    """Return whether a text is a number or a date, or a marker of a missing one."""
    try:
        _reader(column)(text)
    except _WrongValueError:
        return False
    return True


def _is_infinite(column: Input, given: Any) -> bool:
    try:
        return math.isinf(number_in(column, given) if isinstance(given, str) else float(given))
    except OverflowError:
        return True


def takes_truth_values(column: Input) -> bool:
    """Return whether a column of numbers had true and false in training, which are 1 and 0."""
    return isinstance(column.example, bool)


def _number_or_truth(value: Any) -> float:
    if isinstance(value, bool):
        return float(value)
    return _number(value)


def _number(value: Any) -> float:
    if value is None:
        return math.nan
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise _WrongValueError("is not a number", "a number, or null if it is missing")
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    return math.nan if math.isinf(number) else number


def _text(value: Any) -> str:
    if is_missing(_checked_text(value)):
        return ""
    return str(value)


def _checked_text(value: Any) -> Any:
    if isinstance(value, dict | list):
        raise _WrongValueError("is not text", "text, or null if it is missing")
    return value


def _date(column: Input, value: Any) -> float:
    if value is None:
        return math.nan
    if not isinstance(value, str):
        raise _WrongValueError("is not a date", "text with a date, or null if it is missing")
    try:
        return seconds_of(column, 0, value)
    except DataError as error:
        raise _WrongValueError("is not a date", error.allowed or "a date") from error


def _array(column: Input, value: Any) -> np.ndarray:
    allowed = _array_in_words(column)
    if column.tokens is not None and isinstance(value, str):
        return ids_of(column, [value])[0]
    if column.is_image and isinstance(value, str):
        return _image(column, value, allowed)
    try:
        array = np.array(value)
    except ValueError as error:
        raise _WrongValueError(
            "is not an array: its parts have different lengths", allowed
        ) from error
    is_truth = _has_truth_value(value) and not _has_truth_value(column.example)
    if array.dtype.kind not in "biuf" or is_truth:
        if column.is_image:
            raise _WrongValueError("is neither an image nor an array of numbers", allowed)
        raise _WrongValueError("is not an array of numbers", allowed)
    if not column.takes(array.shape):
        raise _WrongValueError(f"has shape {list(array.shape)}", allowed)
    array = array.reshape(column.as_taken(array.shape))
    if column.dtype == "int64":
        if array.dtype.kind == "f" and not np.array_equal(array, np.round(array)):
            raise _WrongValueError("has numbers that are not whole", "whole numbers")
    else:
        with np.errstate(over="ignore"):
            array = array.astype(column.dtype)
        if not np.isfinite(array).all():
            raise _WrongValueError("has numbers that are too large", "finite numbers")
    return array


def _image(column: Input, text: str, allowed: str) -> np.ndarray:
    """Return the pixels of an image in base64, with or without the start of a data URL."""
    encoded = text
    if text.startswith("data:"):
        encoded = text.partition(",")[2]
    try:
        content = base64.b64decode("".join(encoded.split()), validate=True)
    except (binascii.Error, ValueError) as error:
        raise _WrongValueError("is not base64", allowed) from error
    try:
        return sent_pixels(column, content).astype(column.dtype)
    except DataError as error:
        raise _WrongValueError(
            error.problem, error.allowed or allowed, is_of_value=False
        ) from error


def _has_truth_value(value: Any) -> bool:
    """Return whether an array has true or false in it, which numpy would take for 1 and 0."""
    if not isinstance(value, list):
        return isinstance(value, bool)
    kinds = set(map(type, value))
    return bool in kinds or (list in kinds and any(map(_has_truth_value, value)))


def _array_in_words(column: Input) -> str:
    numbers = f"numbers of shape [{', '.join(map(str, column.graph_shape))}]"
    if len(column.shape) > 1 and not column.lengths:
        numbers += f" or a flat list of {math.prod(column.shape)}"
    if column.is_image:
        return f"an image file in base64, or {numbers}"
    if column.tokens:
        return f"{numbers}, or a text"
    return numbers


def _shown(value: Any) -> str:
    text = repr(value)
    if value is None or isinstance(value, bool):
        text = json.dumps(value)  # null, true and false, as the client wrote them
    if len(text) > _SHOWN_CHARS:
        return f"{text[:_SHOWN_CHARS]}..."
    return text


def feeds_of_rows(card: Card, rows: Sequence[Row]) -> dict[str, np.ndarray]:
    """Return what the graph takes for rows that were checked."""
    return {
        column.name: in_one([np.asarray(value, column.numpy_dtype) for value in values])
        if column.lengths
        else np.array(values, dtype=column.numpy_dtype)
        for column, values in zip(card.inputs, zip(*rows, strict=True), strict=True)
    }


def answers_as_json(card: Card, answers: Answers) -> list[Answer]:
    """Return answers as plain values, one for each row. Numbers that are not finite are null."""
    output = card.outputs[0]
    if answers.classes is not None and answers.probabilities is not None:
        names = output.classes
        if output.lengths:
            return [{"classes": _without_filling(row, row != "")} for row in answers.classes]
        if answers.classes.ndim > 1:
            return [{"classes": classes} for classes in answers.classes.tolist()]
        return [
            {"class": name, "probabilities": dict(zip(names, row, strict=True))}
            for name, row in zip(
                answers.classes.tolist(), _plain(answers.probabilities), strict=True
            )
        ]
    if answers.boxes is not None:
        return [{"boxes": boxes} for boxes in answers.boxes]
    assert answers.values is not None
    if output.lengths:
        rows = [_without_filling(row, ~np.isnan(row)) for row in answers.values]
        return [{"values": row} for row in rows]
    values = answers.values.reshape(len(answers.values), *output.shape)
    if output.kind == "values" and len(output.targets) == math.prod(output.shape):
        flat = _plain(values.reshape(len(values), -1))
        return [{"values": dict(zip(output.targets, row, strict=True))} for row in flat]
    return [{"values": row} for row in _plain(values)]


def _without_filling(row: np.ndarray, is_known: np.ndarray) -> list[Any]:
    """Return an answer without the places by which others of the same batch are longer."""
    ends = [1 + places.max(initial=-1) for places in np.nonzero(is_known)]
    return _plain(row[tuple(map(slice, ends))])


def intervals_as_json(answers: Answers) -> list[Answer]:
    """Return the ends of the intervals of answers as plain values, one pair for each row.

    Args:
        answers: Answers of `Predictor.with_interval`.
    """
    assert answers.low is not None
    assert answers.high is not None
    ends = zip(_plain(answers.low), _plain(answers.high), strict=True)
    return [{"low": low, "high": high} for low, high in ends]


def _plain(numbers: np.ndarray) -> list[Any]:
    if numbers.dtype.kind != "f" or (finite := np.isfinite(numbers)).all():
        return numbers.tolist()
    plain = numbers.astype(object)
    plain[~finite] = None
    return plain.tolist()
