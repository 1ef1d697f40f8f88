"""The script of a bundle: predicts with numpy and onnxruntime, short enough to be read.

It contains only what its model needs. It runs without the workbench, so it must not import it. The
functions below are copied into the script. `read_...` is renamed to `read`, and constants are
replaced by their values.
"""

from __future__ import annotations

import bz2
import csv
import datetime
import functools
import gzip
import inspect
import io
import itertools
import json
import lzma
import math
import pathlib
import re
import sys
import unicodedata
import zlib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from workbench.data.number_texts import (
    ANGLE,
    CLOCK_TIME,
    MISSING_MARKERS,
    MISSING_TEXTS,
    MISSING_WORDS,
    NEW_FACTORS,
    NEW_UNIT,
    NUMBER_WITH_DECIMAL_COMMA,
    NUMBER_WITH_SEPARATORS,
    WORD_BEHIND,
    WORD_FACTORS,
    added_seconds,
    category_in,
    clock_seconds,
    degrees_of,
    new_decimal_comma,
    new_unit,
    plain_signs,
    spelling_of,
    spellings,
    unit_pattern,
    without_factor,
)
from workbench.data.pixels import eight_bits
from workbench.data.table_files import FEWEST_BELOW_UNITS as BELOW_UNITS
from workbench.data.table_files import MOST_ROWS_OF_UNITS as ROWS_OF_UNITS
from workbench.data.table_files import WORDS_WITH_DIGITS as HAS_DIGITS
from workbench.data.tokens import NUM_CHARACTERS_OF_PART
from workbench.data.total_rows import END_ROWS, ROWS_ABOVE, TOTAL, sums_up, total_in, totals_below
from workbench.data.unusual_rows import (
    PREDICTION,
    WIDTHS,
    UnusualValue,
    describe_unusual,
    far_outside,
    note_of_unit,
    notes_of_bare,
    notes_of_numbers,
    notes_of_short,
    notes_of_unknown,
    notes_of_unreadable,
    rows_named,
    unusual_values,
)
from workbench.deploy.card import COUNTS, Input, Output, counts_name
from workbench.foundation.formatting import (
    LARGEST_WHOLE,
    SMALLEST_FIXED,
    counted_noun,
    format_count,
    format_number,
    significant,
    whole,
)
from workbench.foundation.text_tables import MAX_LISTED, some_names
from workbench.models.detected_boxes import MAX_BOXES, MAX_OVERLAP, MIN_SCORE

CARD: dict[str, Any] = {}
"""The card of the bundle, which the script reads."""
MISSING: set[str] = set()
NO_TEXT: set[str] = set()
COUNTS_NAME = COUNTS
TRUTH = {"true": 1.0, "false": 0.0}
FEWEST, MOST = NUM_CHARACTERS_OF_PART
_MODULES = (
    *("bz2", "csv", "datetime", "functools", "gzip", "hashlib", "io", "itertools", "json"),
    *("lzma", "math", "os", "pathlib", "re", "sys", "unicodedata", "zlib"),
)
_VALUES = {
    "FEWEST": FEWEST,
    "MOST": MOST,
    "NUMBER_WITH_SEPARATORS": f'r"{NUMBER_WITH_SEPARATORS}"',
    "NUMBER_WITH_DECIMAL_COMMA": f'r"{NUMBER_WITH_DECIMAL_COMMA}"',
    "WORD_BEHIND": f'r"{WORD_BEHIND}"',
    "CLOCK_TIME": f'r"{CLOCK_TIME}"',
    "ANGLE": f'r"{ANGLE}"',
    "WORD_FACTORS": json.dumps(WORD_FACTORS),
    "TOTAL": f'r"{TOTAL}"',
    "ROWS_ABOVE": str(ROWS_ABOVE),
    "END_ROWS": str(END_ROWS),
    "HAS_DIGITS": f'r"{HAS_DIGITS}"',
    "BELOW_UNITS": str(BELOW_UNITS),
    "ROWS_OF_UNITS": str(ROWS_OF_UNITS),
    "NEW_UNIT": f'r"{NEW_UNIT}"',
    "NEW_FACTORS": json.dumps(sorted(NEW_FACTORS)),
    "MAX_LISTED": str(MAX_LISTED),
    "LARGEST_WHOLE": f"{LARGEST_WHOLE:g}",
    "SMALLEST_FIXED": f'Decimal("{SMALLEST_FIXED}")',
    "WIDTHS": f"{WIDTHS:g}",
    "PREDICTION": json.dumps(PREDICTION),
    "MIN_SCORE": f"{MIN_SCORE:g}",
    "MAX_BOXES": f"{MAX_BOXES:g}",
    "MAX_OVERLAP": f"{MAX_OVERLAP:g}",
}
"""Placeholders in the script, replaced by constants."""

_BEGIN = '''\
"""Predict with model.onnx: python predict.py ROWS. It only needs PACKAGES."""

MOREimport MODULES

import numpy as np
import onnxruntime

FOLDER = pathlib.Path(__file__).resolve().parent
CARD = json.loads((FOLDER / "card.json").read_text(encoding="utf-8"))
'''


_END = """

if __name__ == "__main__":
    if (asks := sys.argv[1:] in (["-h"], ["--help"])) or len(sys.argv) != 2:
        print("usage: python predict.py ROWS > ANSWERS", file=sys.stdout if asks else sys.stderr)
        sys.exit(0 if asks else 2)
    try:
        samples = read(sys.argv[1])
    except (OSError, ValueError, csv.Error) as error:
        problem = getattr(error, "strerror", None) or str(error).splitlines()[0]
        print(f"predict.py cannot read {sys.argv[1]}: {problem}", file=sys.stderr)
        sys.exit(2)
    if not any(map(len, samples.values())):
        print(f"predict.py has nothing to predict: {sys.argv[1]} has no rows", file=sys.stderr)
        sys.exit()
    model = FOLDER / "model.onnx"
    if hashlib.sha256(model.read_bytes()).hexdigest() != CARD.get("files", {}).get("model.onnx"):
        sys.exit("predict.py: card.json does not match model.onnx: export the bundle again")
    session = onnxruntime.InferenceSession(str(model), providers=["CPUExecutionProvider"])
    output = CARD["outputs"][0]
    classes = output["classes"]
    answers = session.run(None, samples)[0]
    table = csv.writer(sys.stdout, lineterminator="\\n")
    try:
TABLE
        sys.stdout.flush()
    except BrokenPipeError:  # a program such as head has read enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
"""

_CLASS = """\
        table.writerow([FILE_HEAD"prediction", *(f"probability of {name}" for name in classes)])
        for answer in answers:
            table.writerow([FILE_CELLclasses[WEIGHED.argmax()], *answer.tolist()])"""
_WEIGHED = '(answer * output["class_factors"])'
_CHEAP = '(-answer @ np.array(output["class_costs"]))'
_CLASSES = """\
        table.writerow([FILE_HEAD"prediction"])
        for answer in answers:
            places = answer.reshape(-1, len(classes)).argmax(-1)
            table.writerow([FILE_CELL" ".join(classes[place] for place in places)])"""
_OF_TOKENS = """\
        table.writerow(["prediction"])
        for answer, tokens in zip(answers, *samples.values()):
            places = answer.argmax(-1)[tokens != 0]
            table.writerow([" ".join(classes[place] for place in places)])"""
_BOXES = """\
        table.writerow([FILE_HEAD"prediction"])
        for answer in answers:
            table.writerow([FILE_CELLjson.dumps(boxes(answer, classes))])"""
_NUMBERS = """\
        table.writerow([FILE_HEADNAMES])
        for answer in answers:
            table.writerow([FILE_CELL*answer.ravel().tolist()])"""
_NUMBERS_IN_ONE = """\
        table.writerow(["prediction"])
        for answer in answers:
            table.writerow([" ".join(map(str, answer.ravel().tolist()))])"""
_WITH_INTERVAL = """\
        columns = [answers]
        if level is not None:
            numbers, size = answers.ravel().astype(float), sizes.ravel().astype(float)
            columns += around(numbers, size, output["errors"], level)
        table.writerow(["prediction", "low", "high"][: len(columns)])
        table.writerows(zip(*(column.ravel().tolist() for column in columns)))"""
_SAY = """\
    say(notes_of_far(samples, answers))
"""
_FUTURE = """\
from __future__ import annotations

"""
_MODULES_OF_NOTES = """
from collections.abc import Mapping, Sequence
from decimal import ROUND_HALF_UP, Context, Decimal
from typing import NamedTuple
"""
"""What the notes on numbers need."""
_FILE = """\
    file = [] if sys.argv[1].endswith(".npy") else [sys.argv[1]]
"""
_LEVEL = """\
    level = None
    try:
        if "--interval" in sys.argv:
            place = sys.argv.index("--interval")
            level = float(sys.argv[place + 1])
            del sys.argv[place : place + 2]
        if level is not None and not 0 < level < 1:
            raise ValueError
    except (ValueError, IndexError):
        print("predict.py: --interval takes a share of rows such as 0.9", file=sys.stderr)
        sys.exit(2)
"""
_ANSWERS = "answers = session.run(None, samples)[0]"
_WITH_SIZES = "answers, sizes = session.run(None, samples)"
_MAIN, _TABLE = '__name__ == "__main__":\n', "    table = csv"


def script(taken: Input, output: Output, others: Sequence[Input] = ()) -> str:
    """Return the script of a model.

    Args:
        taken: The first input of the model.
        output: What the model answers.
        others: The other inputs. They are columns of a table like the first, or arrays like it.
    """
    parts = [_BEGIN, _reading((taken, *others))]
    if output.kind == "boxes":
        parts.append(_source(overlap, boxes))
    end = _END
    if output.errors:
        parts.append(_source(around))
        end = end.replace(_MAIN, _MAIN + _LEVEL).replace(_ANSWERS, _WITH_SIZES)
        end = end.replace(" ROWS >", " [--interval 0.9] ROWS >")
    if taken.is_image:
        end = end.replace(_TABLE, _FILE + _TABLE)
    if any(part.lengths for part in (taken, *others)):
        end = end.replace(_ANSWERS, "answers = by_size(session, samples)")
    if "classes" not in (table := _table(taken, output)):
        end = end.replace('    classes = output["classes"]\n', "")
    if "output" not in table.replace("outputs", "") and "classes" not in table:
        end = end.replace('    output = CARD["outputs"][0]\n', "")
    has_notes = "def notes_of_far" in parts[1]
    if has_notes:
        end = end.replace(_TABLE, _SAY + _TABLE)
    end = end.replace("TABLE", table)
    text = "".join([*parts, end]).replace(
        "MORE", _FUTURE if "def rows_named" in parts[1] else "", 1
    )
    packages = "numpy, onnxruntime and Pillow" if taken.is_image else "numpy and onnxruntime"
    values = {
        "MODULES": ", ".join(name for name in _MODULES if f"{name}." in text)
        + (_MODULES_OF_NOTES.rstrip() if has_notes else ""),
        "PACKAGES": packages,
        "COUNTS_NAME": json.dumps(counts_name((taken, *others))),
        **_VALUES,
    }
    for name, value in values.items():
        text = text.replace(name, str(value))
    return text


def _reading(inputs: Sequence[Input]) -> str:
    """Return the functions that read samples, the last of which is `read`."""
    taken = inputs[0]
    num_texts = sum(column.kind == "text" for column in inputs)
    of_table = (
        opened,
        table_in,
        row_in,
        some_names,
        rows_named,
        notes_of_short,
        say,
        rows_in,
        rows_of,
    )
    no_text = f"\nNO_TEXT = set({json.dumps(sorted(MISSING_TEXTS))})\n"
    if taken.tokens:
        return _source(*of_table, ids, read_texts)
    if taken.columns:
        return _source(*of_table, read_series)
    if num_texts == len(inputs):
        return _source(*of_table) + no_text + _source(terms, counts_of, read_counts)
    if taken.is_image:
        return _source(eight_bits, pixels, as_taken, read_images)
    if any(part.lengths for part in inputs):
        return _source(opened, value_at, given_arrays, fitting, read_of_any_size, by_size)
    if taken.kind == "array" and len(inputs) > 1:
        return _source(opened, value_at, given_arrays, as_taken, read_several)
    if taken.kind == "array":
        return _source(as_taken, read_arrays)
    markers = json.dumps(sorted(MISSING_MARKERS | MISSING_WORDS))
    missing = f"\nMISSING = set({markers})\nTRUTH = {json.dumps(TRUTH)}\n" + no_text
    of_numbers = (degrees_of, clock_seconds, added_seconds, without_factor)
    functions = (
        read_points,
        new_decimal_comma,
        read_commas,
        cell,
        plain_signs,
        unit_pattern,
        *of_numbers,
        number,
        seconds,
    )
    notes = (significant, whole, format_number, counted_noun, format_count, UnusualValue)
    notes = (*notes, far_outside, unusual_values, describe_unusual, note_of_unit)
    notes = (*notes, notes_of_bare)
    notes = (*notes, notes_of_unreadable, notes_of_numbers, notes_of_unknown, new_unit)
    notes = (*notes, notes_of_far)
    functions = (
        *notes,
        *functions,
        plainly,
        parsed,
        has_units,
        total_in,
        sums_up,
        totals_below,
        totals_in,
        samples_in,
        samples_of,
        spelling_of,
        spellings,
        category_in,
        cells_of,
        columns_of,
    )
    if not num_texts:
        return _source(*of_table) + missing + _source(*functions, read_table)
    functions = (*functions, terms, counts_of, read_table_with_texts)
    return _source(*of_table) + missing + _source(*functions)


def _source(*functions: Callable[..., Any]) -> str:
    sources = ["\n\n" + inspect.getsource(function) for function in functions]
    return re.sub(r"def read_(?!points|commas)\w+\(", "def read(", "".join(sources))


def _table(taken: Input, output: Output) -> str:
    """Return the lines that write the same table as `workbench predict`."""
    if output.kind == "boxes":
        table = _BOXES
    elif output.classes and len(output.shape) == 2 and taken.tokens:
        table = _OF_TOKENS
    elif output.classes and len(output.shape) > 1:
        table = _CLASSES
    elif output.classes:
        table = _CLASS.replace("WEIGHED", _weighed(output))
    elif output.lengths:
        table = _NUMBERS_IN_ONE
    elif output.errors:
        table = _WITH_INTERVAL
    else:
        table = _NUMBERS.replace("NAMES", json.dumps(names_of(output))[1:-1])
    head, cell = "", ""
    if taken.is_image:
        head, cell = '*(["file"] if file else []), ', "*file, "
    return table.replace("FILE_HEAD", head).replace("FILE_CELL", cell)


def _weighed(output: Output) -> str:
    if output.class_costs:
        return _CHEAP
    return _WEIGHED if output.class_factors else "answer"


def names_of(output: Output) -> list[str]:
    """Return the names of the numbers that are predicted for a sample.

    Args:
        output: What the model answers.
    """
    num_values = math.prod(output.shape)
    if num_values == 1:
        return ["prediction"]
    if len(output.targets) == num_values:
        return list(output.targets)
    return [f"output {number}" for number in range(num_values)]


# Everything below may be copied into a script. It may only use the imports of `_BEGIN` and the
# constants in `_VALUES`.


def opened(path):
    """Return an opened text file: UTF-8, UTF-16 with a mark, or else Windows-1252.

    It may be compressed, such as rows.csv.gz.
    """
    unpacked = {".gz": gzip.open, ".bz2": bz2.open, ".xz": lzma.open}
    try:
        with unpacked.get(pathlib.Path(path).suffix.lower(), open)(path, "rb") as file:
            data = file.read()
    except (EOFError, lzma.LZMAError, zlib.error) as error:
        raise ValueError(f"it is damaged: {error}") from None
    encoding = "utf-16" if data[:2] in (b"\xff\xfe", b"\xfe\xff") else "utf-8-sig"
    try:
        return io.StringIO(data.decode(encoding), newline="")
    except UnicodeDecodeError:
        return io.StringIO(data.decode("cp1252"), newline="")


def table_in(file, columns):
    """Return the header that has these columns, the rows of cells below it, and their separator."""
    nearest, wanted = ([], csv.reader([]), ","), set(columns)
    for sign in ",;\t|":  # commas, or what else separates the columns, as in Excel
        file.seek(0)
        table = csv.reader(file, delimiter=sign, skipinitialspace=True)
        for cells in itertools.islice(table, 50):  # a title may be above the header
            names = [unicodedata.normalize("NFC", cell.strip()) for cell in cells]
            names = [name or f"Unnamed: {place}" for place, name in enumerate(names)]
            if wanted <= set(names):
                return names, table, sign
            if len(wanted & set(names)) > len(wanted & set(nearest[0])) or not nearest[0]:
                nearest = names, csv.reader([]), sign
    return nearest


def row_in(names, cells, line):
    """Return a row by the names of its columns. Missing cells at its end are empty."""
    if any(map(str.strip, cells[len(names) :])):
        raise ValueError(f"line {line} has {len(cells)} cells, and the header has {len(names)}")
    return dict(itertools.zip_longest(names, cells[: len(names)], fillvalue=""))


def rows_in(names, table, columns):
    """Return the rows of a table by the names of their columns, and a note on short ones."""
    rows, short = [], []
    last = max(map(names.index, columns))
    for cells in filter(None, table):
        if len(cells) <= last:
            short.append(len(rows))
        rows.append(row_in(names, cells, table.line_num))
    return rows, notes_of_short(short)


def rows_of(path, columns):
    """Return the rows of a table, which must have these columns, and their separator."""
    with opened(path) as file:
        names, table, sign = table_in(file, columns)
        if repeated := [name for name in columns if names.count(name) > 1]:
            problem = f"more than one column is named {repeated[0]!r}"
            raise ValueError(f"{problem}: rename or remove all but one")
        if missing := [repr(name) for name in columns if name not in names]:
            problem = "there is no column" if len(missing) == 1 else "there are no columns"
            known = some_names(names) or "nothing"
            raise ValueError(f"{problem} {some_names(missing)}. The file has: {known}")
        rows, notes = rows_in(names, table, columns)
        say(notes)
        return rows, sign


def as_taken(taken, rows):
    """Return samples in the shape and the type that the model takes. They may be flat."""
    given, shape = list(rows.shape[1:]), taken["shape"]
    if [n for n in given if n != 1] not in ([n for n in shape if n != 1], [np.prod(shape)]):
        problem = f"samples of {taken['name']!r} have shape {given}, but the model takes {shape}"
        raise ValueError(f"{problem}. Pad or cut them as in training")
    return rows.reshape(len(rows), *shape).astype(taken["dtype"])


def read_arrays(path):
    """Return the samples of rows.npy or rows.csv as the model takes them."""
    taken = CARD["inputs"][0]
    rows = np.load(path) if path.endswith(".npy") else np.loadtxt(path, delimiter=",", ndmin=2)
    return {taken["name"]: as_taken(taken, rows)}


def value_at(sample, name):
    """Return a value of a sample. `a.b` is the entry b of the entry a, and `a.0` its first item."""
    if name in sample:
        return sample[name]
    try:
        for key in name.split("."):
            sample = sample[int(key)] if isinstance(sample, list | tuple) else sample[key]
    except (LookupError, TypeError, ValueError):
        raise KeyError(name) from None
    return sample


def given_arrays(path):
    """Return the values by input of rows.npy, rows.npz, rows.jsonl, or a folder of .npy files."""
    names = [taken["name"] for taken in CARD["inputs"]]
    if pathlib.Path(path).is_dir():
        given = {file.stem: np.load(file) for file in pathlib.Path(path).glob("*.npy")}
    elif path.endswith(".jsonl"):
        rows = [json.loads(line) for line in opened(path) if line.strip()]
        try:
            given = {name: [value_at(row, name) for row in rows] for name in names}
        except KeyError as error:
            raise ValueError(f"a row has no value {error}") from None
    else:
        stored = np.load(path)
        given = {names[0]: stored} if path.endswith(".npy") else dict(stored)
    if missing := [name for name in names if name not in given]:
        raise ValueError(f"there is no array {missing[0]!r}. The file has: {', '.join(given)}")
    return given


def read_several(path):
    """Return the samples of a file or a folder with an array for each input."""
    given = given_arrays(path)
    samples = {}
    for taken in CARD["inputs"]:
        samples[taken["name"]] = as_taken(taken, np.asarray(given[taken["name"]]))
    return samples


def fitting(taken, sample):
    """Return a sample in the type that the model takes. Dimensions with a name have any size."""
    sample = np.asarray(sample)
    names = taken["lengths"] or [""] * len(taken["shape"])
    wanted = [name or size for name, size in zip(names, taken["shape"], strict=False)]
    pairs = zip(sample.shape, wanted, strict=False)
    if sample.ndim != len(wanted) or any(size != known not in names for size, known in pairs):
        problem = f"a sample of {taken['name']!r} has shape {list(sample.shape)}"
        raise ValueError(f"{problem}, but the model takes {wanted}")
    return sample.astype(taken["dtype"])


def read_of_any_size(path):
    """Return the samples of a file or a folder, each in its own size."""
    given = given_arrays(path)
    samples = {}
    for taken in CARD["inputs"]:
        samples[taken["name"]] = [fitting(taken, sample) for sample in given[taken["name"]]]
    return samples


def by_size(session, samples):
    """Return the answers for samples of several sizes. Each size is computed on its own."""
    rows = list(zip(*samples.values(), strict=False))
    places = {}
    for place, row in enumerate(rows):
        places.setdefault(tuple(part.shape for part in row), []).append(place)
    answers = [None] * len(rows)
    for same in places.values():
        parts = zip(*(rows[place] for place in same), strict=False)
        some = {name: np.stack(part) for name, part in zip(samples, parts, strict=False)}
        for place, answer in zip(same, session.run(None, some)[0], strict=False):
            answers[place] = answer
    return answers


def pixels(path, channels, height, width):
    """Return the pixels of an image file as the model was trained with."""
    from PIL import Image, ImageOps

    with Image.open(path) as opened:
        ImageOps.exif_transpose(opened, in_place=True)
        image = eight_bits(opened, channels)
    image = image.resize((width, height), Image.Resampling.BILINEAR)
    return np.asarray(image).reshape(1, height, width, channels).transpose(0, 3, 1, 2)


def read_images(path):
    """Return the pixels of an image file, or those of rows.npy, as the model takes them."""
    taken = CARD["inputs"][0]
    rows = np.load(path) if path.endswith(".npy") else pixels(path, *taken["shape"])
    return {taken["name"]: as_taken(taken, rows)}


def read_series(path):
    """Return all successive rows of each series that the model takes at once."""
    taken = CARD["inputs"][0]
    names, size = taken["columns"], taken["shape"][0]
    series = {}
    for row in rows_of(path, names)[0]:
        numbers = [float(row[name]) for name in names]
        series.setdefault(row.get(taken["group"]), []).append(numbers)
    windows = [part[i : i + size] for part in series.values() for i in range(len(part) - size + 1)]
    if not windows:
        longest = max(map(len, series.values()), default=0)
        raise ValueError(f"the model takes {size} rows at once, but the file has {longest}")
    return {taken["name"]: np.array(windows, taken["dtype"])}


def ids(column, text):
    """Return the numbers of the tokens of a text, then those of padding."""
    by_space = column["tokens"] == "spaces"
    words = text.split() if by_space else re.findall(r"\w+|[^\w\s]", text.lower())
    known = {word: number for number, word in enumerate(column["categories"])}
    size = column["shape"][0]
    return ([known.get(word, 1) for word in words] + [0] * size)[:size]


def read_texts(path):
    """Return the texts of a table as the model takes them."""
    taken = CARD["inputs"][0]
    rows, _ = rows_of(path, [taken["name"]])
    return {taken["name"]: np.array([ids(taken, row[taken["name"]]) for row in rows])}


def terms(text):
    """Return the words of a text, pairs of words, and parts of words."""
    text = text.lower()
    words = re.findall(r"\b\w\w+\b", text)
    padded = [f" {word} " for word in text.split()]
    sizes = range(FEWEST, MOST + 1)
    parts = ["#" + w[i : i + n] for w in padded for n in sizes for i in range(len(w) - n + 1)]
    return words + [" ".join(words[i : i + 2]) for i in range(len(words) - 1)] + parts


def counts_of(rows):
    """Return how often the terms of the model occur in the texts of rows."""
    names = [column["name"] for column in CARD["inputs"] if column["kind"] == "text"]
    places = {term: place for place, term in enumerate(CARD["terms"])}
    counts = np.zeros((len(rows), len(places)), np.float32)
    for number, row in enumerate(rows):
        for term in terms(" ".join("" if row[name] in NO_TEXT else row[name] for name in names)):
            if term in places:
                counts[number, places[term]] += 1
    return counts


def read_counts(path):
    """Return how often the terms of the model occur in the texts of a table."""
    rows, _ = rows_of(path, [column["name"] for column in CARD["inputs"]])
    return {COUNTS_NAME: counts_of(rows)}


def read_points(rows, separator):
    """Read 1.234 as a decimal number where points are in place of the commas of training."""
    columns = [column for column in CARD["inputs"] if column["has_decimal_comma"]]
    texts = [row[column["name"]].strip() for row in rows for column in columns]
    with_points = [text for text in texts if re.fullmatch(r"[+-]?[0-9]*[.][0-9]*", text)]
    are_decimal = not all(re.fullmatch(NUMBER_WITH_DECIMAL_COMMA, text) for text in with_points)
    if not any("," in text for text in texts) and (are_decimal or separator != ";"):
        for column in columns:
            column["has_decimal_comma"] = False


def read_commas(rows, separator):
    """Read 0,4 as a decimal number where commas are in place of the points of training."""
    columns = [column for column in CARD["inputs"] if column["kind"] == "number"]
    columns = [one for one in columns if not (one["has_decimal_comma"] or one["notation"])]
    texts = [row[column["name"]] for row in rows for column in columns]
    is_usual = separator == ";" and not any(column["has_thousands"] for column in columns)
    example = new_decimal_comma(texts, is_usual)
    for column in columns if example else []:
        column["has_decimal_comma"], column["has_thousands"] = True, False
    return [f"numbers are read with decimal commas, such as {example}"] if example else []


def cell(column, text):
    """Return a cell as the model takes it: a number, or seconds since 1970."""
    bare = text.strip().lower()
    if bare in MISSING or bare in column["missing_texts"]:
        return np.nan
    try:
        if column["kind"] == "date":
            return seconds(column, text)
        return TRUTH[bare] if bare in TRUTH else number(column, text.strip())
    except ValueError:
        problem = f"{text!r} in the column {column['name']} is not a {column['kind']}"
        raise ValueError(problem) from None


def number(column, text):
    """Return a number, which may have a unit and separators as it did in training."""
    text, factor = without_factor(plain_signs(text), column["notation"])
    if column["unit"] and (match := re.fullmatch(unit_pattern(column["unit"]), text)):
        text = "".join(filter(None, match.groups()))
    if column["has_thousands"] and re.fullmatch(NUMBER_WITH_SEPARATORS, text):
        return factor * float(text.replace(",", ""))
    if column["has_decimal_comma"] and re.fullmatch(NUMBER_WITH_DECIMAL_COMMA, text):
        return factor * float(text.replace(".", "").replace(",", "."))
    return factor * float(text)


def seconds(column, text):
    """Return a date in seconds since 1970."""
    for written in column["date_format"].split(" | "):
        try:
            when = datetime.datetime.strptime(text, written)
            break
        except ValueError:
            pass
    else:
        text = text[:-1] + "+00:00" if text.endswith("Z") else text
        when = datetime.datetime.fromisoformat(text)
    when = when if when.tzinfo else when.replace(tzinfo=datetime.timezone.utc)
    return when.timestamp()


def plainly(text):
    """Return a number of a column that the model does not need, with a point or a comma."""
    return float(text.replace(",", "."))


def parsed(parse, text):
    """Return the number that a text means, NaN for a missing one, and None for other texts."""
    try:
        return float(parse(text)) if text.strip() else math.nan
    except ValueError:
        return None


def has_units(firsts, below, parsers):
    """Return whether some rows have units or words, such as kg, above numbers."""
    num_words = num_others = 0
    for name in below[0]:
        parse = parsers.get(name, plainly)
        texts = [row[name].strip() for row in firsts]
        above = [parsed(parse, text) for text in texts]
        if any(value is not None and not math.isnan(value) for value in above):
            return False
        numbers = [parsed(parse, row[name]) for row in below]
        digits = [t for t in texts if re.search(r"\d", t) and not re.fullmatch(HAS_DIGITS, t)]
        has_words = all(value is None for value in above) and not digits
        known = [number for number in numbers if number is not None]
        if has_words and len(known) == len(numbers) and not all(map(math.isnan, known)):
            num_words += 1
        else:
            num_others += any(texts)
    return num_words > 1 or (num_words == 1 and not num_others)


def totals_in(rows, parsers):
    """Return how many rows at the end sum up the others, and a note on them."""
    ends = [row.values() for row in rows[ROWS_ABOVE:][-END_ROWS:]]
    if not ends or total_in(ends[-1]) is None:
        return 0, []
    columns = []
    for name in rows[0]:
        numbers = [parsed(parsers.get(name, plainly), row[name]) for row in rows]
        columns.append([math.nan if number is None else number for number in numbers])
    earlier = {text for row in rows[: -len(ends)] for text in row.values()}
    return totals_below(ends, columns, earlier)


def samples_in(rows, parsers):
    """Return rows without units below the header and without a total at the end, and notes."""
    num_totals, notes = totals_in(rows, parsers)
    rows = rows[: len(rows) - num_totals]
    for number in range(1, ROWS_OF_UNITS + 1):
        if len(rows) >= BELOW_UNITS + number and has_units(rows[:number], rows[number:], parsers):
            rows = rows[number:]
            skipped = "the row below the header is skipped, because it has"
            if number > 1:
                skipped = f"the {number} rows below the header are skipped, because they have"
            notes.append(f"{skipped} units or words")
            break
    return rows, notes


def samples_of(path):
    """Return the rows of a table as they are written, without those that are no samples."""
    rows, separator = rows_of(path, [column["name"] for column in CARD["inputs"]])
    commas = read_commas(rows, separator)
    read_points(rows, separator)
    numbers = [column for column in CARD["inputs"] if column["kind"] == "number"]
    parsers = {column["name"]: functools.partial(cell, column) for column in numbers}
    rows, notes = samples_in(rows, parsers)
    notes = [*commas, *notes]
    for column in numbers:
        name = column["name"]
        has_sign = column["unit"] or column["notation"]
        if not has_sign and (unit := new_unit([row[name] for row in rows])):
            column["unit"] = unit
            notes.append(note_of_unit(name, unit))
    say(notes)
    return rows


def say(notes):
    """Print notes on the samples."""
    for note in notes:
        print(f"predict.py: {note}", file=sys.stderr)


def notes_of_far(samples, answers):
    """Return a note if numbers are far outside of what was learned."""
    ranges = {column["name"]: column.get("learned") for column in CARD["inputs"]}
    ranges = {name: ends for name, ends in ranges.items() if ends}
    numbers = {name: samples[name].reshape(-1) for name in ranges}
    output = CARD["outputs"][0]
    if output.get("learned") and output["kind"] == "values" and not output["shape"]:
        ranges[PREDICTION], numbers[PREDICTION] = output["learned"], answers.reshape(-1)
    values = unusual_values(numbers, ranges)
    return [describe_unusual(values, len(answers))] if values else []


def cells_of(column, texts):
    """Return the cells of a column as the model takes them, and notes on them."""
    name, has_missing = column["name"], column["has_missing"]
    if column["dtype"] == "string":
        known, spelled = {*column["categories"]}, spellings(column["categories"])
        missing = NO_TEXT - known
        kept = known | missing
        cells = [t if t in kept else category_in(t, spelled) for t in texts]
        notes = notes_of_unknown(name, cells, kept if has_missing else known, missing)
        return np.array(cells, object), notes
    numbers, unreadable, problem, notes = np.full(len(texts), np.nan), {}, None, []
    for row, text in enumerate(texts):
        try:
            numbers[row] = cell(column, text)
        except ValueError as error:
            unreadable[row] = text
            problem = problem or error
    if problem:
        num_read = int((~np.isnan(numbers)).sum())
        notes = notes_of_unreadable(name, column["kind"], unreadable, num_read, problem)
    notes += notes_of_bare(name, column["unit"], column["notation"], texts, numbers)
    return numbers, notes + notes_of_numbers(name, numbers, has_missing)


def columns_of(rows):
    """Return the columns of rows as the model takes them."""
    columns = {}
    for column in CARD["inputs"]:
        if column["kind"] != "text":
            cells, notes = cells_of(column, [row[column["name"]] for row in rows])
            columns[column["name"]] = cells.reshape(-1, 1)
            say(notes)
    return columns


def read_table(path):
    """Return the columns of a table as the model takes them."""
    return columns_of(samples_of(path))


def read_table_with_texts(path):
    """Return the columns of a table, and how often terms occur in its texts."""
    rows = samples_of(path)
    return {**columns_of(rows), COUNTS_NAME: counts_of(rows)}


def around(numbers, sizes, errors, level):
    """Return the ends of the interval of each number, from errors on rows that taught nothing."""
    outside = (1.0 - level) / 2
    low = max(0, int(np.floor((len(errors) + 1) * outside)) - 1)
    return numbers + errors[low] * sizes, numbers + errors[len(errors) - 1 - low] * sizes


def overlap(first, second):
    """Return the intersection over union of two boxes."""
    sides = np.clip(np.minimum(first[2:], second[2:]) - np.maximum(first[:2], second[:2]), 0, None)
    both = np.prod(first[2:] - first[:2]) + np.prod(second[2:] - second[:2]) - np.prod(sides)
    return np.prod(sides) / both if both > 0 else 0.0


def boxes(cells, classes):
    """Return the boxes of an image, the best first, each thing once."""
    cells = cells.reshape(-1, 4 + len(classes)).astype(float)
    kept = []
    for place in np.argsort(-cells[:, 4:], axis=None, kind="stable"):
        cell, number = divmod(int(place), len(classes))
        edges, score = np.clip(cells[cell, :4], 0, 1), cells[cell, 4 + number]
        if score < MIN_SCORE or len(kept) == MAX_BOXES:
            break
        if all(other[0] != number or overlap(other[2], edges) <= MAX_OVERLAP for other in kept):
            kept.append((number, score, edges))
    answers = []
    for number, score, edges in kept:
        left, top, right, bottom = edges.tolist()
        answers.append(
            {
                "class": classes[number],
                "score": score,
                "left": left,
                "top": top,
                "right": right,
                "bottom": bottom,
            }
        )
    return answers
