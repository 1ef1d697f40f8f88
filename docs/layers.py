"""Draws the layers of the package as import-linter checks them."""

from __future__ import annotations

import ast
import tomllib
from pathlib import Path

_ROOT = Path(__file__).parents[1]


def pages() -> dict[str, str]:
    """Return the generated part of the page, by its mark."""
    settings = tomllib.loads((_ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    layers = settings["tool"]["importlinter"]["contracts"][0]["layers"]
    rows = [
        f"| {number} | `{name}` | {_purpose(name)} |"
        for number, layer in enumerate(layers[1:], 1)  # the first is the program itself
        for name in layer.split(" | ")
    ]
    return {"LAYERS": "\n".join(["| Layer | Package | Purpose |", "|---|---|---|", *rows])}


def _purpose(name: str) -> str:
    path = _ROOT / "workbench" / name
    source = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    words = ast.get_docstring(ast.parse(source.read_text(encoding="utf-8"))) or ""
    return words.split("\n\n")[0].replace("\n", " ").replace("|", "\\|")
