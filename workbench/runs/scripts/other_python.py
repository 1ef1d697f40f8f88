"""Source of another Python than the one that reads it.

A program may be written for Python 2, or have f-strings that only Python 3.12 reads. It is started
by its own interpreter, so reading it must not depend on the one here.
"""

from __future__ import annotations

import ast
import re

_PRINT = re.compile(
    r"^(?P<before>\s*(?:(?:if|elif|else|for|while)\b[^#'\"]*:\s*)?)print\b(?P<rest>.*)"
)
_EXCEPT = re.compile(r"^(\s*except\b[^,:]+?|\s*except\s*\([^)]*\)),\s*(\w+)\s*:", re.MULTILINE)
_RAISE = re.compile(r"^(\s*raise\s+[\w.]+),\s*(.+)$", re.MULTILINE)
_F_STRING = re.compile(r"\b[rR]?[fF][rR]?(?P<quote>['\"])(?!\1\1)")
_MAX_LINES = 15
"""How many lines a printed expression may have."""


def readable_source(text: str) -> str:
    """Return a source that this Python can parse and that says the same, if there is one.

    Args:
        text: The source of a program for any Python.

    Returns:
        The text itself if it can be parsed, or if it cannot be made so.
    """
    if _is_parsed(text):
        return text
    for changed in (_with_other_quotes(text), _from_python_2(text)):
        if _is_parsed(changed):
            return changed
    return text


def is_python_2(text: str) -> bool:
    """Return whether a source can only be read as Python 2.

    Example:
        >>> from workbench.runs.scripts.other_python import is_python_2
        >>> is_python_2("print 'loss', 1"), is_python_2("print('loss')"), is_python_2("a b")
        (True, False, False)
    """
    if _is_parsed(text) or _is_parsed(_with_other_quotes(text)):
        return False
    return _is_parsed(_from_python_2(text))


def _is_parsed(text: str) -> bool:
    try:
        ast.parse(text)
    except (SyntaxError, ValueError, RecursionError):
        return False
    return True


def _with_other_quotes(text: str) -> str:
    """Return a source in which no f-string has its own quotes in its braces."""
    return "\n".join(map(_line_with_other_quotes, text.split("\n")))


def _line_with_other_quotes(line: str) -> str:
    start = 0
    while (match := _F_STRING.search(line, start)) is not None:
        quote, characters, depth = match["quote"], list(line), 0
        start = match.end()
        while start < len(line) and (depth or line[start] != quote):
            if line[start] in "{}":
                depth = max(0, depth + (1 if line[start] == "{" else -1))
            elif line[start] == quote and depth:
                characters[start] = "'" if quote == '"' else '"'
            start += 1
        line, start = "".join(characters), start + 1
    return line


def _from_python_2(text: str) -> str:
    """Return a source of Python 2 with functions instead of its statements."""
    text = _EXCEPT.sub(r"\1 as \2:", text.expandtabs(8))
    lines = _RAISE.sub(r"\1(\2)", text).replace("xrange(", "range(").split("\n")
    done: list[str] = []
    while lines:
        line = lines.pop(0)
        match = _PRINT.match(line)
        if match is None:
            done.append(line)
            continue
        for num_more in range(min(_MAX_LINES, len(lines) + 1)):
            printed = "\n".join([match["rest"], *lines[:num_more]])
            if (call := _call_of_print(printed)) is not None:
                done += f"{match['before']}{call}".split("\n")
                del lines[:num_more]
                break
        else:
            done.append(line)
    return "\n".join(done)


def _call_of_print(printed: str) -> str | None:
    """Return the call that prints an expression, or None if it is not a whole one."""
    if printed.lstrip().startswith(">>"):
        _, _, printed = printed.partition(",")
    call = f"print({printed.strip().rstrip(',')})"
    return call if _is_parsed(call) else None
