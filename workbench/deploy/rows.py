"""Samples as users have them: files, data frames, arrays and rows as values by input.

Also answers as a table. `feeds` checks the values, and `image_files` reads image files.
"""

from __future__ import annotations

import csv
import functools
import json
import math
import re
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from workbench.data.chat_records import prompt_of, read_prompts
from workbench.data.image_folders import ENDINGS
from workbench.data.number_texts import NumberText, has_decimal_points
from workbench.data.plain_frames import name_of_column, plain_frame
from workbench.data.table_formats import FORMATS, split_part
from workbench.data.text_layout import is_text_table, layout_of, open_text
from workbench.deploy.card import Card, Input
from workbench.deploy.feeds import (
    columns_with_points,
    note_of_comma,
    number_in,
    with_new_commas,
)
from workbench.deploy.predict_script import (
    names_of,
    rows_in,
    samples_in,
    table_in,
    value_at,
)
from workbench.deploy.predictor import Answers
from workbench.foundation.errors import DataError
from workbench.foundation.text_tables import (
    PARQUET_ENDINGS,
    SIGNS,
    absent_columns,
    check_repeated,
)

_UNNAMED = re.compile(r"x\d+")


def columns_from(card: Card, samples: Any) -> Mapping[str, Any]:
    """Return values by the name of the input. Arguments and errors as in `read_samples`."""
    return read_samples(card, samples)[0]


def read_samples(card: Card, samples: Any) -> tuple[Mapping[str, Any], list[str]]:
    """Return values by the name of the input, and notes about rows that are not used.

    A file is read as in training: a title above the header, units below it and a total at the end
    are no samples.

    Args:
        card: The card of the model.
        samples: The path of a table, of a .npy or .npz file, or of a folder with a .npy file for
            each input; a data frame, a mapping of columns, or a list of rows that are mappings. A
            model of arrays takes an array, and a model of texts takes texts, or a .txt file with
            one on each line.

    Raises:
        DataError: If it cannot be read, or is something else.
    """
    if card.outputs[0].kind == "texts":
        return {card.inputs[0].name: _prompts(samples)}, []
    if isinstance(samples, str | Path):
        columns, notes = _from_file(card, Path(samples))
    else:
        columns, notes = _from_values(card, samples), []
    if card.text_model is None or card.inputs[0].name in columns:
        return columns, notes
    name = _column_of_texts(card, columns)
    return {card.inputs[0].name: columns[name]}, [*notes, f"the column {name!r} is read"]


def _several_paths(samples: Any) -> Sequence[Path]:
    """Return samples that are the paths of several files. Otherwise nothing."""
    is_paths = isinstance(samples, tuple) and all(isinstance(one, Path) for one in samples)
    return samples if is_paths else ()


def _prompts(samples: Any) -> list[str]:
    """Return prompts as JSON, which `AnswerSession` reads."""
    if paths := _several_paths(samples):
        return [prompt for path in paths for prompt in _prompts(path)]
    if isinstance(samples, str | Path):
        path = Path(samples)
        if not path.is_file():
            problem = "is no file" if path.exists() else "does not exist"
            raise DataError(
                f"{path} {problem}",
                allowed="a file of prompts or conversations, or a list of prompts",
            )
        prompts = read_prompts(path)
    else:
        if hasattr(samples, "to_dict"):  # a data frame of pandas
            samples = samples.to_dict("records")
        elif hasattr(samples, "to_dicts"):  # of polars
            samples = samples.to_dicts()
        prompts = [prompt_of(record, f"prompt {number}") for number, record in enumerate(samples)]
    return [json.dumps(vars(prompt)) for prompt in prompts]


def _column_of_texts(card: Card, names: Container[str]) -> str:
    """Return the first column in which a language model finds its texts.

    Raises:
        DataError: If there is none.
    """
    wanted = _names_of_inputs(card)
    for name in wanted:
        if name in names:
            return name
    raise DataError(
        f"there is no column of texts; allowed: {' or '.join(map(repr, wanted))}",
        next_step="Rename the column, or give the texts in a list or a .txt file.",
    )


def _names_of_inputs(card: Card) -> list[str]:
    """Return the columns that a model reads, the usual ones first."""
    others = () if card.text_model is None else card.text_model.columns
    return [*(taken.name for taken in card.inputs), *others]


def _from_values(card: Card, samples: Any) -> Mapping[str, Any]:
    if hasattr(samples, "columns") and hasattr(samples, "to_numpy"):
        return _from_frame(card, samples)
    if isinstance(samples, Mapping):
        plain = {str(name): values for name, values in samples.items()}
        return plain | {name: _value_inside(plain, name) for name in _inside(card, [plain])}
    if _are_rows(samples):
        names = [name for name in _names_of_inputs(card) if any(name in row for row in samples)]
        inside = _inside(card, samples)
        return {
            **{name: [row.get(name) for row in samples] for name in names},
            **{name: [_value_inside(row, name) for row in samples] for name in inside},
        }
    if _takes_array(card):
        return {card.inputs[0].name: np.asarray(samples)}
    if _takes_text(card) and np.ndim(samples) == 1:
        return {card.inputs[0].name: list(samples)}
    if isinstance(samples, np.ndarray) and samples.ndim == 2:
        num_columns = samples.shape[1]
        names = [column.name for column in card.inputs]
        if all(_UNNAMED.fullmatch(name) for name in names):
            # The columns of an array have their place as their name.
            names = [f"x{place}" for place in range(num_columns)]
        if len(names) == num_columns:
            return {name: samples[:, place] for place, name in enumerate(names)}
    raise DataError(
        f"samples of type {type(samples).__name__} cannot be read",
        allowed="a data frame, a mapping of columns, a list of rows, or the path of a file",
    )


def _inside(card: Card, rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the inputs of a model that are entries inside of an entry of rows, such as `a.b`."""
    return [
        taken.name
        for taken in card.inputs
        if taken.kind == "array"
        and "." in taken.name
        and not any(taken.name in row for row in rows)
        and all(taken.name.partition(".")[0] in row for row in rows)
    ]


def _value_inside(row: Mapping[str, Any], name: str) -> Any:
    try:
        return value_at(row, name)
    except KeyError:
        raise DataError(
            f"there is no {name!r} in the samples",
            allowed="samples of the form that the model was trained with",
        ) from None


def _from_frame(card: Card, frame: Any) -> Mapping[str, Any]:
    check_repeated("the table", list(map(name_of_column, frame.columns)))
    if hasattr(frame, "iloc"):  # a data frame of pandas
        frame = frame.set_axis([name_of_column(name) for name in frame.columns], axis=1)
        frame = plain_frame(frame, keeps_others=True).table
    columns = {str(name): frame[name].to_numpy() for name in frame.columns}
    if inside := _inside(card, [columns]):
        rows = [
            dict(zip(columns, cells, strict=True)) for cells in zip(*columns.values(), strict=True)
        ]
        return columns | {name: [_value_inside(row, name) for row in rows] for name in inside}
    array = card.inputs[0]
    if not _takes_array(card) or array.name in frame.columns:
        return columns
    if set(array.columns) & set(frame.columns):
        return _windows(card, columns)
    return {array.name: frame.to_numpy()}


def _are_rows(samples: Any) -> bool:
    if not isinstance(samples, Sequence) or not samples:
        return False
    return all(isinstance(row, Mapping) for row in samples)


def table_of(card: Card, answers: Answers) -> tuple[list[str], list[list[Any]]]:
    """Return answers as a header and rows: the prediction, then the probability of each class.

    If samples are image files, the file comes first.
    """
    if answers.files:
        header, rows = table_of(card, replace(answers, files=()))
        return ["file", *header], [
            [file, *row] for file, row in zip(answers.files, rows, strict=True)
        ]
    if answers.classes is not None and answers.probabilities is not None:
        header = ["prediction", *(f"probability of {name}" for name in card.outputs[0].classes)]
        pairs = zip(answers.classes.tolist(), answers.probabilities.tolist(), strict=True)
        if answers.classes.ndim > 1:  # of each token or pixel
            return ["prediction"], [
                [" ".join(filter(None, classes.ravel()))] for classes in answers.classes
            ]
        return header, [[name, *shares] for name, shares in pairs]
    if answers.texts is not None:
        return ["answer"], [[text] for text in answers.texts]
    if answers.boxes is not None:
        return ["prediction"], [[json.dumps(boxes)] for boxes in answers.boxes]
    assert answers.values is not None
    values = answers.values.reshape(len(answers), math.prod(answers.values.shape[1:]))
    if card.outputs[0].lengths:
        known = (row[~np.isnan(row)].tolist() for row in values)
        return ["prediction"], [[" ".join(map(str, numbers))] for numbers in known]
    if answers.low is not None and answers.high is not None:
        ends = zip(values[:, 0].tolist(), answers.low.tolist(), answers.high.tolist(), strict=True)
        return ["prediction", "low", "high"], [list(row) for row in ends]
    output = card.outputs[0].model_copy(update={"shape": values.shape[1:]})
    return names_of(output), values.tolist()


def _takes_array(card: Card) -> bool:
    return len(card.inputs) == 1 and card.inputs[0].kind == "array"


def _takes_text(card: Card) -> bool:
    return len(card.inputs) == 1 and card.inputs[0].kind == "text"


def _from_file(card: Card, path: Path) -> tuple[Mapping[str, Any], list[str]]:
    file, _ = split_part(path)
    ending = file.suffix.lower()
    if not file.exists():
        raise _absent(card, file)
    try:
        if file.is_dir() or ending == ".npz":
            return _from_arrays(card, file), []
        if ending == ".npy":
            return _from_values(card, np.load(file, allow_pickle=False)), []
        if ending in (*PARQUET_ENDINGS, *FORMATS, ".zip"):
            from workbench.data.table_sources import read_source
            from workbench.data.total_rows import without_total

            table, notes = without_total(read_source(path).table)
            return _from_values(card, table), notes
        _check_ending(card, file)
        columns = _without_header(card, file)
        return _from_text(card, file) if columns is None else (columns, [])
    except (OSError, ValueError, csv.Error) as error:
        if isinstance(error, DataError):
            raise
        raise _unreadable(card, file, error) from error


def _absent(card: Card, file: Path) -> DataError:
    step = f"Relative paths start in {Path.cwd()}."
    if _takes_text(card):
        step += " Give a text in a list: [text]."
    return DataError(f"the file {file} does not exist", next_step=step)


def _without_header(card: Card, file: Path) -> dict[str, Any] | None:
    """Return the numbers or the lines of a file without names of columns, or None if it has some.

    Lines are texts only in a .txt file. Numbers are the input of a model of arrays.
    """
    if _takes_text(card) and ".txt" in (part.lower() for part in file.suffixes[-2:]):
        with open_text(file, field=None) as opened:
            lines = [line.rstrip("\r\n") for line in opened]
        cells = [cell.strip(' "') for cell in re.split(r"[\t,;|]", lines[0])] if lines else []
        if set(_names_of_inputs(card)).isdisjoint(cells):
            return {card.inputs[0].name: lines}
    elif _takes_array(card):
        layout = layout_of(file, field=None)
        if not _has_header(card, layout.names):
            with layout.open(file) as opened:
                numbers = np.loadtxt(opened, delimiter=layout.separator, ndmin=2)
            return {card.inputs[0].name: numbers}
    return None


def _check_ending(card: Card, file: Path) -> None:
    if is_text_table(file):
        return
    allowed = [*SIGNS, *PARQUET_ENDINGS, *FORMATS, ".zip", ".npy", ".npz"]
    if card.inputs[0].is_image:
        allowed += sorted(ENDINGS)
    raise DataError(f"{file.name} has an unknown file extension", allowed=allowed)


def _from_arrays(card: Card, path: Path) -> dict[str, np.ndarray]:
    """Return the arrays of a .npz file, or of a folder with a .npy file for each input."""
    names = [taken.name for taken in card.inputs]
    if path.is_dir():
        files = {name: path / f"{name}.npy" for name in names}
        if missing := [file.name for file in files.values() if not file.exists()]:
            raise DataError(
                f"the folder {path} has no {missing[0]}",
                allowed=[file.name for file in files.values()],
            )
        return {name: np.load(file, allow_pickle=False) for name, file in files.items()}
    with np.load(path, allow_pickle=False) as stored:
        if missing := [name for name in names if name not in stored]:
            raise DataError(
                f"{path.name} has no array {missing[0]!r}", allowed=f"the arrays {', '.join(names)}"
            )
        return {name: stored[name] for name in names}


def _from_text(card: Card, path: Path) -> tuple[Mapping[str, Any], list[str]]:
    """Return the columns of a text table as they are written, as the script of a bundle does."""
    array = card.inputs[0] if _takes_array(card) else None
    needed = [column.name for column in card.inputs]
    if array is not None and array.columns:
        needed = list(array.columns)
    if card.text_model is not None:
        needed = [_column_of_texts(card, layout_of(path, field=None).names)]
    with open_text(path, field=None) as opened:
        names, table, separator = table_in(opened, needed)
        if absent := [name for name in needed if name not in names]:
            raise absent_columns(absent, needed)
        check_repeated(path, [name for name in names if name in needed])
        rows, notes = rows_in(names, table, needed)
    changed, comma = [], ""
    if array is None:
        changed, comma = _with_new_commas(card, rows, separator)
        if comma:
            notes.append(note_of_comma(comma))
        rows, more_notes = samples_in(rows, _parsers(card, rows, separator, changed))
        notes += more_notes
    columns = {name: [row[name] for row in rows] for name in needed}
    columns |= {column.name: _with_points(column, columns[column.name]) for column in changed}
    columns |= _with_decimal_points(card, columns, separator)
    if array is not None and array.columns:
        if array.group in names:
            columns[array.group] = [row[array.group] for row in rows]
        return _windows(card, columns), notes
    return columns, notes


def _parsers(
    card: Card, rows: Sequence[Mapping[str, str]], separator: str, changed: Sequence[Input]
) -> dict[str, Callable[[str], float]]:
    """Return what reads the text of each column of numbers, of which some have changed."""
    written = [column.name for column in card.inputs if column.has_decimal_comma]
    cells = [row[name] for row in rows for name in written]
    update = {"has_decimal_comma": False} if has_decimal_points(cells, separator) else {}
    columns = {
        column.name: column.model_copy(update=update)
        for column in card.inputs
        if column.kind == "number"
    }
    columns |= {column.name: column for column in changed}
    return {name: functools.partial(number_in, column) for name, column in columns.items()}


def _with_new_commas(
    card: Card, rows: Sequence[Mapping[str, str]], separator: str
) -> tuple[list[Input], str]:
    """Return the columns with points in training but decimal commas in this file, and an example.

    The columns are as they are written in the file.
    """
    columns = columns_with_points(card)
    texts = {column.name: [row[column.name] for row in rows] for column in columns}
    inputs, comma = with_new_commas(card, texts, are_usual=separator == ";")
    names = set(texts) if comma else set()
    return [column for column in inputs if column.name in names], comma


def _with_points(column: Input, cells: Sequence[str]) -> list[Any]:
    """Return the numbers of a column that this file writes with decimal commas."""
    form = NumberText(False, column.missing_texts, column.unit, has_decimal_comma=True)
    form = form.for_new(cells)
    return [_number_or_text(form, cell) for cell in cells]


def _unreadable(card: Card, path: Path, error: Exception) -> DataError:
    if card.inputs[0].is_image:
        return DataError(
            f"the model takes images, and {path} is not one",
            allowed=(
                f"files of images ({', '.join(sorted(ENDINGS))}), folders of them, or pixels (.npy)"
            ),
        )
    step = "Open it in an editor."
    if isinstance(error, UnicodeDecodeError):
        step = "Save it as UTF-8."
    return DataError(f"{path} cannot be read: {str(error).rstrip('.')}", next_step=step)


def _with_decimal_points(
    card: Card, columns: Mapping[str, list[Any]], separator: str
) -> dict[str, list[Any]]:
    """Return columns of numbers with decimal commas in training but decimal points in this file."""
    written = [
        column for column in card.inputs if column.has_decimal_comma and column.name in columns
    ]
    cells = [str(cell) for column in written for cell in columns[column.name]]
    if not has_decimal_points(cells, separator):
        return {}
    return {
        column.name: [
            _number_or_text(
                NumberText(False, column.missing_texts, column.unit, notation=column.notation), cell
            )
            for cell in columns[column.name]
        ]
        for column in written
    }


def _number_or_text(form: NumberText, cell: Any) -> Any:
    """Return the number of a cell with a point or comma, and any other cell as it is."""
    try:
        if "." not in cell and not (form.has_decimal_comma and "," in cell):
            return cell
        number = form.parse(cell)
    except (TypeError, ValueError):  # the check of the values reports its row
        return cell
    written = repr(number)
    if form.unit and form.unit in cell and "e" not in written and math.isfinite(number):
        # Notes say which numbers are without the unit, so the others keep it.
        sign = "." if form.has_decimal_comma else ","  # the one of training
        return f"{written.replace('.', sign)} {form.unit}"
    return number


def _has_header(card: Card, names: Sequence[str]) -> bool:
    """Return whether the first row of a file has columns of the model's array or text."""
    column = card.inputs[0]
    if column.tokens is not None:
        return column.name in names
    return not set(column.columns).isdisjoint(names)


def _windows(card: Card, columns: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return all windows of successive rows of each series, the series in their order.

    The last window of a series ends with its last row.
    """
    column = card.inputs[0]
    absent = [name for name in column.columns if name not in columns]
    if absent:
        raise absent_columns(absent, column.columns)
    try:
        table = np.stack(
            [np.asarray(columns[name], dtype=np.float64) for name in column.columns], axis=1
        )
    except ValueError as error:
        raise DataError(f"a column of the series is not numeric: {error}") from error
    places: dict[str, list[int]] = {"": list(range(len(table)))}
    if column.group is not None and column.group in columns:
        places = {}
        for place, name in enumerate(columns[column.group]):
            places.setdefault(str(name), []).append(place)
    size = column.shape[0]
    windows = [
        table[of_series[first : first + size]]
        for of_series in places.values()
        for first in range(len(of_series) - size + 1)
    ]
    if not windows:
        longest = max(map(len, places.values()), default=0)
        raise DataError(
            f"{longest} rows are too few for a forecast", allowed=f"at least {size} successive rows"
        )
    return {column.name: np.stack(windows)}
