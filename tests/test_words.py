"""Texts for users are in plain English: they use no phrase of the list in CONTRIBUTING.md."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
OLD_NAMES = re.compile(r"_?(MOST|LEAST)_[A-Z_]+|_Asked|_Told|told|said|heard|asked|whoever")
_TABLE = re.compile(r"<!-- words: begin -->(.*?)<!-- words: end -->", re.DOTALL)
_TYPESCRIPT = re.compile(
    r"""//[^\n]*|/\*.*?\*/|("(?:\\.|[^"\\\n])*"|`(?:\\.|[^`\\])*`|'(?:\\.|[^'\\\n])*')""", re.DOTALL
)

Text = tuple[int, str]
"""A text for users or developers, and the line on which it begins."""


def read_words() -> dict[str, str]:
    """Return what is written instead of each phrase of the list."""
    [table] = _TABLE.findall((ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8"))
    words: dict[str, str] = {}
    for line in table.splitlines():
        old, _, new = line.strip("| ").partition("|")
        words |= dict.fromkeys(re.findall(r"`([^`]+)`", old), new.strip())
    return words


def as_pattern(phrases: Iterable[str]) -> re.Pattern[str]:
    """Return a pattern for phrases, whole words only, over the ends of lines."""
    any_of = "|".join(r"\s+".join(map(re.escape, phrase.split())) for phrase in phrases)
    return re.compile(rf"(?<!\w)(?:{any_of})(?!\w)", re.IGNORECASE)


def texts_of_python(source: str) -> Iterator[Text]:
    """Yield docstrings and every string with more than one word."""
    parts: set[int] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.JoinedStr):
            parts |= {id(part) for part in node.values}
            text = "".join(
                str(part.value) if isinstance(part, ast.Constant) else "{}" for part in node.values
            )
        elif (
            isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in parts
        ):
            text = node.value
        else:
            continue
        if " " in text.strip():
            yield node.lineno, text


def texts_of_typescript(source: str) -> Iterator[Text]:
    """Yield every string with more than one word."""
    for found in _TYPESCRIPT.finditer(source):
        if found[1] and " " in found[1]:
            yield source.count("\n", 0, found.start()) + 1, found[1]


def texts_of(path: Path) -> Iterator[Text]:
    """Yield the texts of a file."""
    source = path.read_text(encoding="utf-8")
    match path.suffix:
        case ".py":
            yield from texts_of_python(source)
        case ".ts" | ".tsx":
            yield from texts_of_typescript(source)
        case ".ipynb":
            for cell in json.loads(source)["cells"]:
                yield 1, "".join(cell["source"])
        case _:
            yield 1, _TABLE.sub("", source)


def files() -> list[Path]:
    """Return the files that hold texts."""
    found = [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md")]
    for folder, suffixes in {
        "workbench": {".py"},
        "extensions/src": {".ts", ".tsx"},
        "docs": {".md"},
        "notebooks": {".ipynb"},
        "search_spaces": {".yaml"},
    }.items():
        found += [path for path in sorted((ROOT / folder).rglob("*")) if path.suffix in suffixes]
    return [path for path in found if "_build" not in path.parts]


def findings(path: Path, words: dict[str, str]) -> Iterator[str]:
    """Yield where a file uses a phrase of the list."""
    pattern = as_pattern(words)
    for line, text in texts_of(path):
        for found in pattern.finditer(text):
            phrase = " ".join(found[0].lower().split())
            where = f"{path.relative_to(ROOT)}:{line + text.count(chr(10), 0, found.start())}"
            around = " ".join(text[max(0, found.start() - 40) : found.end() + 40].split())
            yield f"{where}: '{phrase}' (write: {words[phrase]}): ... {around} ..."


def test_no_phrase_of_the_word_list_is_used() -> None:
    words = read_words()
    assert len(words) > 20
    found = [finding for path in files() for finding in findings(path, words)]
    assert found == [], f"{len(found)}:\n" + "\n".join(found)


def test_names_are_the_usual_ones() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{node.lineno}: {name}"
        for path in sorted((ROOT / "workbench").rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        for name in [
            getattr(node, "id", None) or getattr(node, "arg", None) or getattr(node, "name", None)
        ]
        if isinstance(name, str) and OLD_NAMES.fullmatch(name)
    ]
    assert found == []


@pytest.mark.parametrize(
    ("name", "source", "is_found"),
    [
        ("a.py", 'raise ValueError(f"{name} cannot be started\\nso today")', True),
        ("a.py", '"""The trial.\n\n    It cannot be Started so: why?\n    """', True),
        ("a.py", 'x = "cannot be started sometimes"', False),
        ("a.py", "# It cannot be started so, as only its writer reads.\n", False),
        ("a.ts", "const text = `cannot be ${what} started so`;", True),
        ("a.ts", "// cannot be started so\nconst one = 'it\\'s started solo';", False),
        ("a.md", "It cannot be\nstarted so.", True),
    ],
)
def test_a_phrase_is_found_in_texts_and_not_in_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, source: str, is_found: bool
) -> None:
    monkeypatch.setitem(globals(), "ROOT", tmp_path)
    (tmp_path / name).write_text(source, encoding="utf-8")
    found = list(findings(tmp_path / name, {"started so": "started like this"}))
    assert len(found) == is_found
