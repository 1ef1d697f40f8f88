"""The script of a bundle has what its model needs and no more; that it answers is tested with bundles."""

from __future__ import annotations

import ast

import pytest

from workbench.deploy.card import Input, Output
from workbench.deploy.predict_script import script

ARRAY = Input(name="inputs", kind="array", shape=(1, 8, 8), dtype="float32")
CLASSES = Output(name="outputs", kind="classes", shape=(10,), classes=("cat", "dog"))
OTHERS: dict[str, tuple[Input, Output]] = {
    "table": (Input(name="age", kind="number", dtype="float64"), CLASSES),
    "series": (ARRAY.model_copy(update={"columns": ("sold",)}), Output(name="outputs", kind="values")),
    "text": (ARRAY.model_copy(update={"tokens": "words"}), CLASSES),
    "counted text": (Input(name="review", kind="text", dtype="string"), CLASSES),
    "pixels": (ARRAY, CLASSES.model_copy(update={"shape": (8, 8, 2)})),
    "boxes": (ARRAY, CLASSES.model_copy(update={"kind": "boxes", "shape": (4, 4, 6)})),
}


def test_a_classifier_of_arrays_has_some_twenty_lines() -> None:
    lines = [line for line in script(ARRAY, CLASSES).splitlines() if line]
    assert len(lines) <= 20
    assert lines[1] == "import json, pathlib, sys"


@pytest.mark.parametrize("kind", OTHERS)
def test_what_is_imported_and_defined_is_used(kind: str) -> None:
    text = script(*OTHERS[kind])
    tree = ast.parse(text)
    aliases = [alias for node in tree.body if isinstance(node, ast.Import) for alias in node.names]
    imported = {alias.asname or alias.name for alias in aliases}
    defined = {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
    used = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    assert imported | defined <= used
    assert used - imported - defined >= {"CARD", "FOLDER"}
