"""Texts are in plain English: they avoid some shapes of sentences, and guides are easy to read."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
OLD_NAMES = re.compile(r"_?(MOST|LEAST)_[A-Z_]+|_Asked|_Told|told|said|heard|asked|whoever")
SHAPES = {
    r"(?:gone|went) on with": "continued",
    r"advices|an advice|one advice": "advice",
    r"held against": "compared with",
    r"is no (?:name|value|duration|size|number|address)": "is not a ...",
    r"(?:called|started) so": "named that, started like this",
    r"whoever": "everybody who",
    r"shall": "should, must",
    r"put right": "fixed",
    r"nobody metered": "unmetered",
}
"""What texts do not contain, and what is written instead."""
GUIDE_SHAPES = {
    r"anew|alike|likewise": "again, equally, also",
    r"(?:that|those) of(?= (?:a|an|the|its|one|other)\b)": "repeat the noun",
    r"(?:is|are) refused": "is an error, is rejected, you cannot",
    r"stands? (?:in|for|beside)": "is in, means, is next to",
    r"brings? along|takes? along": "includes",
    r"goes on|go on": "continues",
    r"beside": "next to, as well as, in parallel",
    r"states": "says, shows",
}
"""What pages do not contain either."""
MAX_SEMICOLONS = 2.0
MIN_ADDRESSES = 8.0
MAX_PARAGRAPH = 60
_TYPESCRIPT = re.compile(
    r"""//[^\n]*|/\*.*?\*/|("(?:\\.|[^"\\\n])*"|`(?:\\.|[^`\\])*`|'(?:\\.|[^'\\\n])*')""", re.DOTALL
)
_NO_PROSE = re.compile(
    r"^(?:`{3,}|:{3,})\{toctree\}.*?^(?:`{3,}|:{3,})$|^```.*?^```$|<!--.*?-->|^:{3,}.*?$|^\|.*?$|^#.*?$"
    r"|^!\[.*?$|^\(.*\)=$|`[^`\n]+`|\]\([^)]*\)",
    re.MULTILINE | re.DOTALL,
)

Text = tuple[int, str]
"""A text for users or developers, and the line on which it begins."""


def as_pattern(shape: str) -> re.Pattern[str]:
    """Return a pattern for a shape, whole words only, over the ends of lines."""
    over_lines = shape.replace(" ", r"\s+")
    return re.compile(rf"(?<!\w)(?:{over_lines})(?!\w)", re.IGNORECASE)


def prose_of(page: Path) -> list[str]:
    """Return the paragraphs and list items of a page, without code, tables and headings."""
    text = _NO_PROSE.sub("", page.read_text(encoding="utf-8"))
    return [part for part in re.split(r"\n\s*\n|\n(?=\s*(?:[-*]|\d+\.) )", text) if part.strip()]


def num_words(text: str) -> int:
    """Return the number of words of a text."""
    return len(re.findall(r"[A-Za-z][A-Za-z'-]*", text))


def guides() -> list[Path]:
    """Return the guides and recipes."""
    return sorted([*(ROOT / "docs/guides").glob("*.md"), *(ROOT / "docs/recipes").glob("*.md")])


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
    for text in _TYPESCRIPT.finditer(source):
        if text[1] and " " in text[1]:
            yield source.count("\n", 0, text.start()) + 1, text[1]


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
            yield 1, source


def files() -> list[Path]:
    """Return the files that hold texts."""
    paths = [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md")]
    for folder, suffixes in {
        "workbench": {".py"},
        "extensions/src": {".ts", ".tsx"},
        "docs": {".md"},
        "notebooks": {".ipynb"},
        "search_spaces": {".yaml"},
    }.items():
        paths += [path for path in sorted((ROOT / folder).rglob("*")) if path.suffix in suffixes]
    return [path for path in paths if "_build" not in path.parts]


def findings(path: Path, shapes: dict[str, str]) -> Iterator[str]:
    """Yield where a file uses one of the shapes."""
    patterns = {as_pattern(shape): written for shape, written in shapes.items()}
    for line, text in texts_of(path):
        for pattern, written in patterns.items():
            for match in pattern.finditer(text):
                phrase = " ".join(match[0].lower().split())
                where = f"{path.relative_to(ROOT)}:{line + text.count(chr(10), 0, match.start())}"
                around = " ".join(text[max(0, match.start() - 40) : match.end() + 40].split())
                yield f"{where}: '{phrase}' (write: {written}): ... {around} ..."


@pytest.mark.slow
def test_texts_have_none_of_the_shapes() -> None:
    problems = [finding for path in files() for finding in findings(path, SHAPES)]
    assert problems == [], f"{len(problems)}:\n" + "\n".join(problems)


def test_pages_have_none_of_their_shapes() -> None:
    pages = [*guides(), ROOT / "README.md", ROOT / "SECURITY.md"]
    problems = [
        f"{page.relative_to(ROOT)}: '{match[0]}' (write: {written}): {' '.join(part.split())}"
        for page in pages
        for part in prose_of(page)
        for shape, written in GUIDE_SHAPES.items()
        for match in as_pattern(shape).finditer(part)
    ]
    assert problems == [], f"{len(problems)}:\n" + "\n".join(problems)


@pytest.mark.parametrize("page", guides(), ids=lambda page: page.stem)
def test_a_guide_is_easy_to_read(page: Path) -> None:
    paragraphs = prose_of(page)
    words = sum(map(num_words, paragraphs))
    semicolons = sum(part.count(";") for part in paragraphs)

    assert [part for part in paragraphs if num_words(part) > MAX_PARAGRAPH] == []
    assert semicolons <= max(1, MAX_SEMICOLONS * words / 1000)


def test_the_guides_address_the_reader() -> None:
    text = "\n".join(part for page in guides() for part in prose_of(page))
    addresses = len(re.findall(r"\byou(?:rs?)?\b", text, re.IGNORECASE))

    assert addresses >= MIN_ADDRESSES * num_words(text) / 1000


@pytest.mark.slow
def test_names_are_the_usual_ones() -> None:
    problems = [
        f"{path.relative_to(ROOT)}:{node.lineno}: {name}"
        for path in sorted((ROOT / "workbench").rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        for name in [
            getattr(node, "id", None) or getattr(node, "arg", None) or getattr(node, "name", None)
        ]
        if isinstance(name, str) and OLD_NAMES.fullmatch(name)
    ]
    assert problems == []


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
def test_a_shape_is_found_in_texts_and_not_in_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, source: str, is_found: bool
) -> None:
    monkeypatch.setitem(globals(), "ROOT", tmp_path)
    (tmp_path / name).write_text(source, encoding="utf-8")
    problems = list(findings(tmp_path / name, {"started so": "started like this"}))
    assert len(problems) == is_found
