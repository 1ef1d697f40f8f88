r"""Text from outside, such as messages, names and printed lines, in a form that can be stored.

A file name that is not UTF-8 reaches Python as text with lone surrogates, which no JSON and no
database accepts. PostgreSQL also rejects NUL. Both are written as escapes. Very long texts are cut,
with a note. Terminal control characters are stored unchanged, and escaped when they are printed
(`foundation.formatting.printable`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

MAX_CHARS = 100_000
"""Characters of a stored text. A longer one keeps its start and its end."""
MAX_NAME_CHARS = 1000
"""Characters of a name, such as a metric's. A longer one keeps its start."""
MAX_LINE_CHARS = 10_000
"""Characters of one of its lines. A longer one keeps its start."""
_NOTE_CHARS = 80
"""Room for the note that something was cut, so that a cut text is not cut again."""
_PAIR = re.compile("[\ud800-\udbff][\udc00-\udfff]")
_UNSTORABLE = re.compile("[\x00\ud800-\udfff]")
_LONG_LINE = re.compile(f"[^\\n]{{{MAX_LINE_CHARS + 1},}}")


def storable(text: str) -> str:
    r"""Return a text as it is stored, with escapes, and cut to a length that can be shown.

    Args:
        text: Any text. Bytes of file names that are not UTF-8 are written as `\xff`, other lone
            surrogates as `\ud83d`, NUL as `\x00`.

    Example:
        >>> from workbench.foundation.outside_text import storable
        >>> storable(b"caf\xe9.csv".decode("utf-8", errors="surrogateescape"))
        'caf\\xe9.csv'
    """
    text = escaped(text)
    if len(text) > MAX_LINE_CHARS:
        text = _LONG_LINE.sub(_cut_line, text)
    if len(text) > MAX_CHARS:
        half_chars = (MAX_CHARS - _NOTE_CHARS) // 2
        note = f"\n... {len(text) - 2 * half_chars:,} characters omitted ...\n"
        text = text[:half_chars] + note + text[-half_chars:]
    return text


def escaped(text: str) -> str:
    """Return a text with NUL and lone surrogates written as escapes."""
    if _UNSTORABLE.search(text) is None:
        return text
    joined = _PAIR.sub(
        lambda pair: pair[0].encode("utf-16", "surrogatepass").decode("utf-16"), text
    )
    return _UNSTORABLE.sub(_escape, joined)


def storable_name(name: str) -> str:
    """Return a name, such as a metric's, as it is stored: a short text.

    Args:
        name: The name. Only its start is kept if it is longer than `MAX_NAME_CHARS`.
    """
    name = escaped(name)
    if len(name) <= MAX_NAME_CHARS:
        return name
    return f"{name[: MAX_NAME_CHARS - 1]}\u2026"


def storable_document(value: Any) -> Any:
    """Return a document of mappings, lists and plain values with all texts and keys escaped."""
    if isinstance(value, str):
        return escaped(value)
    if isinstance(value, Mapping):
        return {storable_document(key): storable_document(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [storable_document(inner) for inner in value]
    return value


def unwritable_text(value: Any, place: str = "") -> tuple[str, str] | None:
    """Return the first text in a document that UTF-8 cannot hold, with its dotted place, or None.

    Args:
        value: Mappings, lists, tuples and plain values. Other objects are not searched.
        place: The dotted place of the document itself.
    """
    if isinstance(value, str):
        if any("\ud800" <= character <= "\udfff" for character in value):
            return place, value
        return None
    inner: list[tuple[str, Any]] = []
    if isinstance(value, Mapping):
        inner = [(str(key), key) for key in value] + [
            (str(key), item) for key, item in value.items()
        ]
    elif isinstance(value, list | tuple):
        inner = [(str(number), item) for number, item in enumerate(value)]
    for name, item in inner:
        unwritable = unwritable_text(item, ".".join(filter(None, (place, name))))
        if unwritable is not None:
            return unwritable
    return None


def _cut_line(line: re.Match[str]) -> str:
    return (
        f"{line[0][: MAX_LINE_CHARS - _NOTE_CHARS]} ... (cut: this line has {len(line[0]):,}"
        " characters)"
    )


def _escape(character: re.Match[str]) -> str:
    code = ord(character[0])
    if code == 0:
        return "\\x00"
    is_byte = 0xDC80 <= code <= 0xDCFF  # as Python reads bytes of file names that are not UTF-8
    if is_byte:
        return f"\\x{code - 0xDC00:02x}"
    return f"\\u{code:04x}"
