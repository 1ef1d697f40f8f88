"""The script of an exported bundle: predicts with numpy and onnxruntime, short enough to be read.

It contains what its model needs and no more. It runs where the workbench is not installed, so it
imports nothing of it.
"""

from __future__ import annotations

import inspect
import json

from workbench.data.number_texts import (
    MISSING_MARKERS,
    MISSING_TEXTS,
    NUMBER_WITH_DECIMAL_COMMA,
    NUMBER_WITH_SEPARATORS,
    NUMBER_WITH_UNIT,
)
from workbench.data.pixels import eight_bits
from workbench.data.tokens import NUM_CHARACTERS_OF_PART
from workbench.deploy.card import Input, Output
from workbench.models.found_boxes import MAX_BOXES, MAX_OVERLAP, MIN_SCORE

_MODULES = ("csv", "datetime", "hashlib", "json", "os", "pathlib", "re", "sys")

_BEGIN = '''\
"""Predict with model.onnx; needs PACKAGES only: python predict.py ROWS."""

import MODULES

import numpy as np
import onnxruntime

FOLDER = pathlib.Path(__file__).resolve().parent
CARD = json.loads((FOLDER / "card.json").read_text(encoding="utf-8"))
'''

_ARRAYS = '''

def read(path):
    """Return the samples of rows.npy or rows.csv as the model takes them."""
    taken = CARD["inputs"][0]
    rows = np.load(path) if path.endswith(".npy") else np.loadtxt(path, delimiter=",", ndmin=2)
    return {taken["name"]: rows.reshape(len(rows), *taken["shape"]).astype(taken["dtype"])}
'''

_IMAGES = '''

EIGHT_BITS

def pixels(path, channels, height, width):
    """Return the pixels of an image file as the model was trained with."""
    from PIL import Image, ImageOps

    with Image.open(path) as opened:
        ImageOps.exif_transpose(opened, in_place=True)
        image = eight_bits(opened, channels)
    image = image.resize((width, height), Image.Resampling.BILINEAR)
    return np.asarray(image).reshape(1, height, width, channels).transpose(0, 3, 1, 2)


def read(path):
    """Return the pixels of an image file, or those of rows.npy, as the model takes them."""
    taken = CARD["inputs"][0]
    rows = np.load(path) if path.endswith(".npy") else pixels(path, *taken["shape"])
    return {taken["name"]: rows.reshape(len(rows), *taken["shape"]).astype(taken["dtype"])}
'''

_ROWS = '''

def rows_of(path, columns):
    """Return the rows of a table, which must have these columns."""
    with open(path, newline="", encoding="utf-8-sig") as file:
        for sign in ",;,":  # commas, or semicolons if they separate the columns, as in Excel
            file.seek(0)
            table = csv.DictReader(file, restval="", delimiter=sign)
            names = table.fieldnames or []
            if set(columns) <= set(names):
                break
        if repeated := [name for name in columns if names.count(name) > 1]:
            problem = f"more than one column is named {repeated[0]!r}"
            raise ValueError(f"{problem}: rename or remove all but one")
        if missing := [name for name in columns if name not in names]:
            known = ", ".join(names)
            problem = f"there is no column {missing[0]!r}"
            raise ValueError(f"{problem}; the file has: {known or 'nothing'}")
        return list(table)
'''

_SERIES = '''

def read(path):
    """Return all successive rows of a table that the model takes at once."""
    taken = CARD["inputs"][0]
    names, size = taken["columns"], taken["shape"][0]
    rows = [[float(row[name]) for name in names] for row in rows_of(path, names)]
    table = np.array(rows, taken["dtype"])
    if len(table) < size:
        raise ValueError(f"the model takes {size} rows at once; the file has {len(table)}")
    return {taken["name"]: np.stack([table[i : i + size] for i in range(len(table) - size + 1)])}
'''

_TEXTS = '''

def ids(column, text):
    """Return the numbers of the tokens of a text, then those of padding."""
    by_space = column["tokens"] == "spaces"
    words = text.split() if by_space else re.findall(r"\\w+|[^\\w\\s]", text.lower())
    known = {word: number for number, word in enumerate(column["categories"])}
    size = column["shape"][0]
    return ([known.get(word, 1) for word in words] + [0] * size)[:size]


def read(path):
    """Return the texts of a table as the model takes them."""
    taken = CARD["inputs"][0]
    rows = rows_of(path, [taken["name"]])
    return {taken["name"]: np.array([ids(taken, row[taken["name"]]) for row in rows])}
'''

_COUNTS = '''
MISSING = set(MISSING_TEXTS)


def terms(text):
    """Return the words of a text, pairs of words, and parts of words."""
    text = text.lower()
    words = re.findall(r"\\b\\w\\w+\\b", text)
    padded = [f" {word} " for word in text.split()]
    sizes = range(FEWEST, MOST)
    parts = ["#" + w[i : i + n] for w in padded for n in sizes for i in range(len(w) - n + 1)]
    return words + [" ".join(pair) for pair in zip(words, words[1:])] + parts


def read(path):
    """Return how often the terms of the model occur in the texts of a table."""
    names = [each["name"] for each in CARD["inputs"]]
    rows = [[row[name] for name in names] for row in rows_of(path, names)]
    places = {term: place for place, term in enumerate(CARD["terms"])}
    counts = np.zeros((len(rows), len(places)), np.float32)
    for row, texts in enumerate(rows):
        for term in terms(" ".join("" if text in MISSING else text for text in texts)):
            if term in places:
                counts[row, places[term]] += 1
    return {"counts": counts}
'''

_TABLE = '''
MISSING = set(MISSING_MARKERS)
TRUTH = {"true": 1.0, "false": 0.0}


def read_points(rows, path):
    """Read 1.234 as a decimal number where points stand in place of the commas of training."""
    columns = [column for column in CARD["inputs"] if column["has_decimal_comma"]]
    texts = [row[column["name"]].strip() for row in rows for column in columns]
    with open(path, encoding="utf-8-sig") as file:
        head = file.readline()
    with_points = [text for text in texts if re.fullmatch(r"[+-]?[0-9]*[.][0-9]*", text)]
    are_decimal = not all(re.fullmatch(r"WITH_DECIMAL_COMMA", text) for text in with_points)
    has_semicolons = head.count(";") > head.count(",")
    if not any("," in text for text in texts) and (are_decimal or not has_semicolons):
        for column in columns:
            column["has_decimal_comma"] = False


def cell(column, text):
    """Return a cell as the model takes it: text of a category, a number, or seconds since 1970."""
    if column["dtype"] == "string":
        return text
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
    pattern = r"WITH_UNIT".replace("UNIT", re.escape(column["unit"]))
    if column["unit"] and (found := re.fullmatch(pattern, text)):
        text = "".join(filter(None, found.groups()))
    if column["has_thousands"] and re.fullmatch(r"WITH_SEPARATORS", text):
        return float(text.replace(",", ""))
    if column["has_decimal_comma"] and re.fullmatch(r"WITH_DECIMAL_COMMA", text):
        return float(text.replace(".", "").replace(",", "."))
    return float(text)


def seconds(column, text):
    """Return a date in seconds since 1970."""
    try:
        when = datetime.datetime.strptime(text, column["date_format"])
    except ValueError:
        text = text[:-1] + "+00:00" if text.endswith("Z") else text
        when = datetime.datetime.fromisoformat(text)
    when = when if when.tzinfo else when.replace(tzinfo=datetime.timezone.utc)
    return when.timestamp()


def read(path):
    """Return the columns of a table as the model takes them."""
    rows = rows_of(path, [column["name"] for column in CARD["inputs"]])
    read_points(rows, path)
    types = {"string": object}
    return {
        column["name"]: np.array(
            [[cell(column, row[column["name"]])] for row in rows],
            types.get(column["dtype"], np.float64),
        ).reshape(-1, 1)
        for column in CARD["inputs"]
    }
'''

_FIND_BOXES = '''

def overlap(one, other):
    """Return the intersection over union of two boxes."""
    sides = np.clip(np.minimum(one[2:], other[2:]) - np.maximum(one[:2], other[:2]), 0, None)
    both = np.prod(one[2:] - one[:2]) + np.prod(other[2:] - other[:2]) - np.prod(sides)
    return np.prod(sides) / both if both > 0 else 0.0


def boxes(cells, classes):
    """Return the boxes of an image, the best first, each thing once."""
    cells, found = cells.reshape(-1, 4 + len(classes)).astype(float), []
    for place in np.argsort(-cells[:, 4:], axis=None, kind="stable"):
        cell, number = divmod(int(place), len(classes))
        edges, score = np.clip(cells[cell, :4], 0, 1), cells[cell, 4 + number]
        if score < MIN_SCORE or len(found) == MAX_BOXES:
            break
        if all(other[0] != number or overlap(other[2], edges) <= MAX_OVERLAP for other in found):
            found.append((number, score, edges))
    names = ("left", "top", "right", "bottom")
    return [
        {"class": classes[number], "score": score, **dict(zip(names, edges.tolist()))}
        for number, score, edges in found
    ]
'''

_END = """

if __name__ == "__main__":
    if len(sys.argv) != 2:
        print("predict.py takes one file: python predict.py ROWS", file=sys.stderr)
        sys.exit(2)
    try:
        samples = read(sys.argv[1])
    except (OSError, ValueError) as error:
        problem = getattr(error, "strerror", None) or str(error).splitlines()[0]
        print(f"predict.py cannot read {sys.argv[1]}: {problem}", file=sys.stderr)
        sys.exit(2)
    if not any(map(len, samples.values())):
        print(f"predict.py has nothing to predict: {sys.argv[1]} has no rows", file=sys.stderr)
        sys.exit()
    model = FOLDER / "model.onnx"
    if hashlib.sha256(model.read_bytes()).hexdigest() != CARD.get("files", {}).get("model.onnx"):
        sys.exit("predict.py: card.json does not describe this model.onnx: export the bundle again")
    session = onnxruntime.InferenceSession(str(model), providers=["CPUExecutionProvider"])
    classes = CARD["outputs"][0]["classes"]
    try:
        for answer in session.run(None, samples)[0]:
            print(ANSWER)
        sys.stdout.flush()
    except BrokenPipeError:  # head, or what else reads the answers, has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
"""

_BOXES = "json.dumps(boxes(answer, classes))"
_NUMBERS = "json.dumps(answer.tolist())"
_ONE_CLASS = 'f"{classes[answer.argmax()]},{answer.max():.6f}"'
_CLASSES = "json.dumps([classes[place] for place in answer.reshape(-1, len(classes)).argmax(-1)])"


def script(taken: Input, output: Output) -> str:
    """Return the script of a model.

    Args:
        taken: The first input of the model; all others are of its kind.
        output: What the model answers.
    """
    text = _BEGIN + _reading(taken) + (_FIND_BOXES if output.kind == "boxes" else "") + _END
    used = [name for name in _MODULES if f"{name}." in text]
    fewest, most = NUM_CHARACTERS_OF_PART
    values = {
        "FEWEST": str(fewest),
        "MOST": str(most + 1),
        "ANSWER": _answer(output),
        "MODULES": ", ".join(used),
        "PACKAGES": "numpy, onnxruntime and Pillow" if taken.is_image else "numpy and onnxruntime",
        "MISSING_MARKERS": json.dumps(sorted(MISSING_MARKERS)),
        "WITH_SEPARATORS": NUMBER_WITH_SEPARATORS,
        "WITH_DECIMAL_COMMA": NUMBER_WITH_DECIMAL_COMMA,
        "WITH_UNIT": NUMBER_WITH_UNIT,
        "MISSING_TEXTS": json.dumps(sorted(MISSING_TEXTS)),
        "MIN_SCORE": f"{MIN_SCORE:g}",
        "MAX_BOXES": f"{MAX_BOXES:g}",
        "MAX_OVERLAP": f"{MAX_OVERLAP:g}",
    }
    for name, value in values.items():
        text = text.replace(name, value)
    return text


def _reading(taken: Input) -> str:
    if taken.tokens:
        return _ROWS + _TEXTS
    if taken.columns:
        return _ROWS + _SERIES
    if taken.kind == "text":
        return _ROWS + _COUNTS
    if taken.is_image:
        return _IMAGES.replace("EIGHT_BITS", inspect.getsource(eight_bits))
    return _ARRAYS if taken.kind == "array" else _ROWS + _TABLE


def _answer(output: Output) -> str:
    if output.kind == "boxes":
        return _BOXES
    if not output.classes:
        return _NUMBERS
    return _CLASSES if len(output.shape) > 1 else _ONE_CLASS
