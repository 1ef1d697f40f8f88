"""The script of an exported bundle: predicts with numpy and onnxruntime only, short enough to be read.

It is copied as it is and runs where the workbench is not installed, so it imports nothing of it.
"""

from __future__ import annotations

import json

from workbench.deploy.feeds import MISSING_TEXTS
from workbench.models.found_boxes import MAX_BOXES, MAX_OVERLAP, MIN_SCORE

_SCRIPT = '''\
"""Predict with model.onnx; needs numpy and onnxruntime only: python predict.py rows.csv (or rows.npy)."""

import csv, datetime, json, pathlib, re, sys

import numpy as np
import onnxruntime

FOLDER = pathlib.Path(__file__).resolve().parent
CARD = json.loads((FOLDER / "card.json").read_text(encoding="utf-8"))
MISSING = set(MISSING_TEXTS)
TRUTH = {"true": 1.0, "false": 0.0}


def cell(column, text):
    """Return a cell as the model takes it: text of a category, a number, or seconds since 1970."""
    if column["dtype"] == "string":
        return text
    if text in MISSING:
        return np.nan
    if column["kind"] != "date":
        return TRUTH[text.lower()] if text.lower() in TRUTH else float(text)
    try:
        when = datetime.datetime.strptime(text, column["date_format"])
    except ValueError:
        when = datetime.datetime.fromisoformat(text[:-1] + "+00:00" if text.endswith("Z") else text)
    when = when if when.tzinfo else when.replace(tzinfo=datetime.timezone.utc)
    return when.timestamp()


def ids(column, text):
    """Return the numbers of the tokens of a text, then those of padding."""
    words = text.split() if column["tokens"] == "spaces" else re.findall(r"\\w+|[^\\w\\s]", text.lower())
    known, size = {word: number for number, word in enumerate(column["categories"])}, column["shape"][0]
    return ([known.get(word, 1) for word in words] + [0] * size)[:size]


def read(path):
    """Return what the model takes: the columns of a table by name, or the samples of an array."""
    first = CARD["inputs"][0]
    if first["tokens"] or first["columns"]:
        with open(path, newline="", encoding="utf-8-sig") as file:
            rows = list(csv.DictReader(file))
        if first["tokens"]:
            return {first["name"]: np.array([ids(first, row[first["name"]]) for row in rows])}
        table = np.array([[float(row[name]) for name in first["columns"]] for row in rows], first["dtype"])
        size = first["shape"][0]
        return {first["name"]: np.stack([table[i : i + size] for i in range(len(table) - size + 1)])}
    if first["kind"] == "array":
        rows = np.load(path) if path.endswith(".npy") else np.loadtxt(path, delimiter=",", ndmin=2)
        return {first["name"]: rows.reshape(len(rows), *first["shape"]).astype(first["dtype"])}
    with open(path, newline="", encoding="utf-8-sig") as file:
        rows = list(csv.DictReader(file))
    types = {"string": object}
    return {
        column["name"]: np.array(
            [[cell(column, row[column["name"]])] for row in rows], types.get(column["dtype"], np.float64)
        ).reshape(-1, 1)
        for column in CARD["inputs"]
    }


def overlap(one, other):
    """Return the intersection over union of two boxes."""
    sides = np.clip(np.minimum(one[2:], other[2:]) - np.maximum(one[:2], other[:2]), 0, None)
    both = np.prod(one[2:] - one[:2]) + np.prod(other[2:] - other[:2]) - np.prod(sides)
    return np.prod(sides) / both if both > 0 else 0.0


def boxes(cells, classes):
    """Return the boxes of an image, the best first, without those that show the same thing again."""
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


if __name__ == "__main__":
    session = onnxruntime.InferenceSession(str(FOLDER / "model.onnx"), providers=["CPUExecutionProvider"])
    answers = session.run(None, read(sys.argv[1]))[0]
    classes = CARD["outputs"][0]["classes"]
    for answer in answers:
        if CARD["outputs"][0]["kind"] == "boxes":
            print(json.dumps(boxes(answer, classes)))
        elif not classes:
            print(json.dumps(answer.tolist()))
        elif answer.ndim > 1:
            print(json.dumps([classes[place] for place in answer.reshape(-1, len(classes)).argmax(-1)]))
        else:
            print(f"{classes[answer.argmax()]},{answer.max():.6f}")
'''


def script() -> str:
    """Return the script."""
    texts = json.dumps(sorted(MISSING_TEXTS))
    script = _SCRIPT.replace("set(MISSING_TEXTS)", f"set({texts})")
    limits = {"MIN_SCORE": MIN_SCORE, "MAX_BOXES": MAX_BOXES, "MAX_OVERLAP": MAX_OVERLAP}
    for name, limit in limits.items():
        script = script.replace(name, f"{limit:g}")
    return script
