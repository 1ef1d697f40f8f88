"""The script of a bundle has what its model needs and no more.

That it answers is tested with bundles.
"""

from __future__ import annotations

import ast
import json
import math
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from workbench.deploy.card import Input, Output
from workbench.deploy.feeds import number_in
from workbench.deploy.predict_script import script

ARRAY = Input(name="inputs", kind="array", shape=(1, 8, 8), dtype="float32")
CLASSES = Output(name="outputs", kind="classes", shape=(2,), classes=("cat", "dog"))
PLAIN_TEXT = Input(name="review", kind="text", dtype="string")
OTHERS: dict[str, tuple[Input, Output]] = {
    "table": (Input(name="age", kind="number", dtype="float64"), CLASSES),
    "series": (
        ARRAY.model_copy(update={"columns": ("sold",), "shape": (8, 1)}),
        Output(name="outputs", kind="values"),
    ),
    "text": (ARRAY.model_copy(update={"tokens": "words"}), CLASSES),
    "counted text": (PLAIN_TEXT, CLASSES),
    "pixels": (ARRAY, CLASSES.model_copy(update={"shape": (8, 8, 2)})),
    "image files": (ARRAY.model_copy(update={"is_image": True}), CLASSES),
    "boxes": (ARRAY, CLASSES.model_copy(update={"kind": "boxes", "shape": (4, 4, 6)})),
}


def test_a_classifier_of_arrays_has_some_forty_lines() -> None:
    lines = [line for line in script(ARRAY, CLASSES).splitlines() if line]
    assert len(lines) <= 46
    assert lines[1] == "import csv, hashlib, json, os, pathlib, sys"


@pytest.mark.parametrize("kind", OTHERS)
def test_what_is_imported_and_defined_is_used(kind: str) -> None:
    text = script(*OTHERS[kind])
    check_names(text)
    if kind == "table":
        check_names(script(*OTHERS[kind], [PLAIN_TEXT]))


def check_names(text: str) -> None:
    tree = ast.parse(text)
    aliases = [alias for node in tree.body if isinstance(node, ast.Import) for alias in node.names]
    imported = {alias.asname or alias.name for alias in aliases}
    defined = {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
    used = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    assert imported | defined <= used
    assert used - imported - defined >= {"CARD", "FOLDER"}


FUNCTIONS_OF_CELLS = ("cell", "plain_signs", "unit_pattern", "without_factor", "number")


@pytest.mark.parametrize(
    ("unit", "text"),
    [
        ("CHF", " CHF 1,200.5"),
        ("m2", "1200.5m2"),
        ("%", "1,200.5 %"),
        ("cu in", "1,200.5 cu in"),
        ("years", "1200.5 year"),
    ],
)
def test_a_number_may_have_the_unit_of_the_training_data(unit: str, text: str) -> None:
    taken = Input(name="x", kind="number", dtype="float64", unit=unit, has_thousands=True)
    tree = ast.parse(script(taken, CLASSES))
    functions = [node for node in tree.body if getattr(node, "name", None) in FUNCTIONS_OF_CELLS]
    names: dict[str, Any] = {"re": re, "MISSING": set(), "TRUTH": {}}
    exec(compile(ast.Module(functions, []), "predict.py", "exec"), names)
    assert names["cell"](taken.model_dump(), text) == 1200.5
    with pytest.raises(ValueError, match="is not a number"):
        names["cell"](taken.model_dump(), "1,200.5 lb")


@pytest.mark.parametrize("text", ["1.200,5", "1200,5", " 1200.5 "])
def test_a_number_may_have_a_decimal_comma_if_those_of_the_training_data_had(text: str) -> None:
    taken = Input(name="x", kind="number", dtype="float64", has_decimal_comma=True)
    assert number_in(taken, text) == 1200.5
    tree = ast.parse(script(taken, CLASSES))
    functions = [node for node in tree.body if getattr(node, "name", None) in FUNCTIONS_OF_CELLS]
    names: dict[str, Any] = {"re": re, "MISSING": set(), "TRUTH": {}}
    exec(compile(ast.Module(functions, []), "predict.py", "exec"), names)
    assert names["cell"](taken.model_dump(), text) == 1200.5


def run_on(folder: Path, kind: str, rows: str | None) -> tuple[int, str, str]:
    """Run the script of a kind on a file, None for a missing one.

    Return its code and what it prints.
    """
    taken, output = OTHERS[kind]
    (folder / "predict.py").write_text(script(taken, output), encoding="utf-8")
    card = {
        "inputs": [taken.model_dump(mode="json")],
        "outputs": [output.model_dump(mode="json")],
        "terms": [],
    }
    (folder / "card.json").write_text(json.dumps(card), encoding="utf-8")
    if rows is not None:
        (folder / "rows.csv").write_text(rows, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, str(folder / "predict.py"), str(folder / "rows.csv")],
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout, done.stderr.replace(str(folder / "rows.csv"), "FILE")


def test_infinite_numbers_count_as_missing() -> None:
    tree = ast.parse(script(*OTHERS["table"]))
    wanted = {*FUNCTIONS_OF_CELLS, "cells_of", "columns_of", "say"}
    wanted |= {"notes_of_bare", "notes_of_numbers", "rows_named"}
    functions: list[ast.stmt] = [
        node
        for node in tree.body
        if getattr(node, "name", None) in wanted or getattr(node, "module", None) == "__future__"
    ]
    card = {"inputs": [OTHERS["table"][0].model_dump(mode="json")]}
    names: dict[str, Any] = {"re": re, "np": np, "sys": sys, "MISSING": {""}, "TRUTH": {}}
    names |= {"CARD": card, "math": math}
    exec(compile(ast.Module(functions, []), "predict.py", "exec"), names)
    rows = [{"age": text} for text in ("3", "inf", "1e400", "-inf", "")]
    expected = [3.0, *[math.nan] * 4]
    np.testing.assert_array_equal(names["columns_of"](rows)["age"].ravel(), expected)


@pytest.mark.parametrize("asked", ["-h", "--help"])
@pytest.mark.parametrize("errors", [(), (-1.0, 1.0)])
def test_help_is_the_usage(asked: str, errors: tuple[float, ...], tmp_path: Path) -> None:
    age, _ = OTHERS["table"]
    output = Output(name="outputs", kind="values", errors=errors)
    (tmp_path / "predict.py").write_text(script(age, output))
    (tmp_path / "card.json").write_text("{}")
    command = [sys.executable, "predict.py", asked]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    options = "[--interval 0.9] " if errors else ""
    assert (done.stdout, done.stderr) == (f"usage: python predict.py {options}ROWS > ANSWERS\n", "")


def refused(folder: Path, kind: str, rows: str | None) -> str:
    """Return the one line with which the script of a kind refuses a file."""
    code, out, err = run_on(folder, kind, rows)
    [line] = err.splitlines()
    assert (code, out) == (2, "")
    return line


@pytest.mark.parametrize("kind", OTHERS)
def test_a_missing_file_is_refused_in_one_line(kind: str, tmp_path: Path) -> None:
    line = refused(tmp_path, kind, None)
    assert line.startswith("predict.py cannot read FILE: ")
    assert "not found" in line or "No such file" in line


@pytest.mark.parametrize(
    ("kind", "rows", "problem"),
    [
        ("table", "colour,size\nred,3\n", "there is no column 'age'. The file has: colour, size"),
        (
            "table",
            "age,age,size\n1,2,3\n",
            "more than one column is named 'age': rename or remove all but one",
        ),
        ("table", "", "there is no column 'age'. The file has: nothing"),
        (
            "table",
            ",".join(f"c{place}" for place in range(900)) + "\n",
            "there is no column 'age'. The file has: "
            + ", ".join(f"c{place}" for place in range(20))
            + " and 880 more",
        ),
        ("table", "age\nold\n", "'old' in the column age is not a number"),
        ("series", "rain\n1\n", "there is no column 'sold'. The file has: rain"),
        ("series", "sold\n1\n", "the model takes 8 rows at once, but the file has 1"),
        ("text", "text\nwords\n", "there is no column 'inputs'. The file has: text"),
        ("counted text", "text\nwords\n", "there is no column 'review'. The file has: text"),
        ("pixels", "a,b\n1,2\n", "could not convert string 'a' to float64 at row 0, column 1."),
    ],
)
def test_a_file_that_the_model_cannot_take_is_refused_in_one_line(
    kind: str, rows: str, problem: str, tmp_path: Path
) -> None:
    assert refused(tmp_path, kind, rows) == f"predict.py cannot read FILE: {problem}"


@pytest.mark.parametrize(
    ("kind", "rows"), [("table", "age\n"), ("text", "inputs\n"), ("counted text", "review\n")]
)
def test_a_file_with_a_header_only_is_reported_and_answered_by_nothing(
    kind: str, rows: str, tmp_path: Path
) -> None:
    assert run_on(tmp_path, kind, rows) == (
        0,
        "",
        "predict.py has nothing to predict: FILE has no rows\n",
    )
