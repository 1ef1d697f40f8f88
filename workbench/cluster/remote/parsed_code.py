"""What a Python file imports and which texts it contains.

Files are parsed, never executed, and only once.
"""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

_WRITES = re.compile(
    r"(to|write|save|dump)(_|$)|savefig|savetxt|savez|connect$|FileHandler$|mkdir|touch|copy"
)
_WRITE_MODE = re.compile(r"[rwaxbt+]*[wax+][rwaxbt+]*")
_MAX_REMEMBERED = 4096


@dataclass(frozen=True)
class ParsedCode:
    """What is read from a Python file; nothing where it cannot be parsed."""

    imports: frozenset[str] = frozenset()
    """The top-level names that it imports, at any place."""
    texts: tuple[str, ...] = ()
    """Its texts, without the docstrings."""
    written: frozenset[str] = frozenset()
    """The texts in calls that write to a file, as far as their names and modes show."""
    executes: bool = False
    """Whether it calls `exec` or `compile`, to which it may give the text of a file."""


def parse_code(path: Path) -> ParsedCode:
    """Parse a Python file, or return what was read from it while it had the same size and time of
    change.

    Args:
        path: The file.
    """
    try:
        stat = path.stat()
    except OSError:
        return ParsedCode()
    return _parse(path, stat.st_size, stat.st_mtime_ns)


@functools.lru_cache(maxsize=_MAX_REMEMBERED)
def _parse(path: Path, size_bytes: int, modified_ns: int) -> ParsedCode:
    try:
        tree = ast.parse(path.read_bytes())
    except (OSError, SyntaxError, ValueError):
        return ParsedCode()
    imports: set[str] = set()
    texts: dict[int, str] = {}
    docstrings: set[int] = set()
    written: set[str] = set()
    executes = False
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant):
            if isinstance(node.value, str):
                texts[id(node)] = node.value
        elif isinstance(node, ast.Expr):
            docstrings.add(id(node.value))
        elif isinstance(node, ast.Import):
            imports |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            if node.module and not node.level:
                imports.add(node.module.partition(".")[0])
        elif isinstance(node, ast.Call):
            if _writes(node):
                written |= set(_texts_in(node))
            executes = executes or getattr(node.func, "id", "") in ("exec", "compile")
    kept = (text for key, text in texts.items() if key not in docstrings)
    return ParsedCode(frozenset(imports), tuple(kept), frozenset(written), executes)


def _texts_in(node: ast.AST) -> Iterator[str]:
    for below in ast.walk(node):
        if isinstance(below, ast.Constant) and isinstance(below.value, str):
            yield below.value


def _writes(call: ast.Call) -> bool:
    name = getattr(call.func, "attr", None) or getattr(call.func, "id", "")
    if name == "open":
        return any(_WRITE_MODE.fullmatch(text) for text in _texts_in(call))
    return bool(_WRITES.match(name))
