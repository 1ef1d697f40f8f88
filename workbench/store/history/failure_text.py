"""Describe a failure: the type of an exception and the first line of its message.

Later lines of an exception, such as links, hints and settings, are shown only if a trial is shown
in full. Tracebacks are read as text, because the trial may have run on another machine or with
another version.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from workbench.foundation.outside_text import storable

MAX_HEADLINE_CHARS = 500
_MAX_OF_GROUP = 5
_VALIDATION = re.compile(r"\d+ validation errors? for ")
"""Start of pydantic's errors. The next two lines contain the field and the reason."""
_DETAILS = re.compile(r" \[type=\w+, input_value=.*\]$")
_ADDRESS = re.compile(r"0x[0-9a-fA-F]+")
_IDENTITY = re.compile(
    r"\b[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}\b|\b(?=[a-f]*\d)(?=\d*[a-f])[0-9a-f]{7,}\b"
)
_FOLDERS = re.compile(
    r"(?:[A-Za-z]:)?(?:[\\/][\w.@+~=-]+)*[\\/](?=[\w.@+~=-]+)|(?<![\w.])(?:[\w.@+~=-]+/)+(?=\w)"
)
_TEMPORARY = re.compile(r"\btmp[a-z0-9_]{6,10}\b")
_NUMBER = re.compile(
    r"(?<![A-Za-z_])[-+]?(?:\d+(?:[._]\d+)*(?:e[-+]?\d+)?|\binf\b|\bnan\b|\bNaN\b)|\d+"
)
_SERIES = re.compile(r"#(?:\s*[,x\u00d7]\s*#)+,?")
_AFTER = re.compile(r"wandb: |Exception ignored |srun: |slurmstepd: |During handling of the above")
"""Text that follows an exception without an empty line but is not part of its message."""
_CAUSE = "The above exception was the direct cause of the following exception:"
_HEADER = re.compile(
    r"^(?P<before>[ |]*)(?:\+ Exception Group )?Traceback \(most recent call last\):", re.MULTILINE
)

_FRAME = re.compile(r'^[ |+]*File "(?P<path>.+)", line (?P<line>\d+)', re.MULTILINE)
_CHAINED = re.compile(
    r"^\s*(?:The above exception was the direct cause|During handling of the above exception)",
    re.MULTILINE,
)
_LIBRARY = re.compile(
    r"[/\\](?:site|dist)-packages[/\\]|[/\\]lib(?:64)?[/\\]python\d[.\d]*[/\\]|^<frozen "
)
_OWN_FOLDER = re.compile(r"^(?:.*[/\\])?trials[/\\]\d{5,}[/\\](?:checkpoints[/\\])?")
"""The folder of one trial, which may contain a copy of the code that it runs."""
_CELL = re.compile(r"[/\\]ipykernel_\d+[/\\]|^<ipython-input-")
_PACKAGE = Path(__file__).parents[2]


def failure_message(error: BaseException) -> str:
    r"""Return the type of an exception and its message, whose first line says what failed.

    Args:
        error: Any exception. If its message cannot be written, only the type is returned.

    Example:
        >>> failure_message(ValueError("\n  too wide\n  see the manual"))
        'ValueError: too wide\n  see the manual'
        >>> failure_message(KeyError("lr")), failure_message(AssertionError())
        ("KeyError: 'lr'", 'AssertionError')
    """
    try:
        text = str(error)
    except Exception:  # `__str__` of the exception fails, but its type can be shown
        text = "its message cannot be written"
    text = storable(text).strip()
    name = type(error).__name__
    inner = _exceptions_of(error)
    if inner:
        text = f"{text}: {failure_message(inner[0])}"
        for member in inner[1:_MAX_OF_GROUP]:
            text += f"\n{failure_message(member)}"
    return f"{name}: {text}" if text else name


def _exceptions_of(error: BaseException) -> Sequence[BaseException]:
    """Return the exceptions in a group, or none if it is not a group.

    Python 3.10 has no type for groups, so the attribute decides.
    """
    inner = getattr(error, "exceptions", None)
    if isinstance(inner, tuple) and all(isinstance(item, BaseException) for item in inner):
        return inner
    return ()


def headline(message: str | None) -> str:
    r"""Return the headline of a failure: the first line of its message that is not empty.

    If it only announces the next line, the two are joined. The field and the reason that pydantic
    writes below its first line are joined with it as well.

    Args:
        message: The whole message, or None or "" if there is none.

    Returns:
        One line of at most `MAX_HEADLINE_CHARS` characters, or "" without a message.

    Example:
        >>> headline("RuntimeError: CUDA error: invalid argument\nCompile with `TORCH_USE_CUDA`")
        'RuntimeError: CUDA error: invalid argument'
    """
    lines = [line.strip() for line in (message or "").splitlines() if line.strip()]
    if not lines:
        return ""
    shown = lines[0]
    if _VALIDATION.search(shown) and len(lines) > 2:
        shown = f"{shown}: {lines[1]}: {_DETAILS.sub('', lines[2])}"
    elif shown.endswith(":") and len(lines) > 1:
        shown = f"{shown} {lines[1]}"
    if len(shown) <= MAX_HEADLINE_CHARS:
        return shown
    return f"{shown[: MAX_HEADLINE_CHARS - 1]}\u2026"


def without_variable_parts(text: str) -> str:
    """Return a message without the parts that differ between occurrences of one error.

    These are numbers, memory addresses, ids such as hashes, and the folders of files. The names of
    files stay, because another file is another error.

    Example:
        >>> without_variable_parts("cannot open /tmp/tmp8h2kq0x_/trial-3/model.pt: 12 of 40 left")
        'cannot open model.pt: # of # left'
    """
    for pattern, written in (
        (_ADDRESS, "#"),
        (_FOLDERS, ""),
        (_IDENTITY, "#"),
        (_TEMPORARY, "#"),
        (_NUMBER, "#"),
        (_SERIES, "#"),
    ):
        text = pattern.sub(written, text)
    return text


def exceptions_in(traceback: str) -> list[str]:
    """Return the exceptions in printed tracebacks with their messages, in their order.

    Args:
        traceback: The output of Python. The members of a group of exceptions are part of it.

    Returns:
        Texts such as `ValueError: too wide`, with the further lines of their messages.
    """
    exceptions: list[str] = []
    headers = list(_HEADER.finditer(traceback))
    for number, header in enumerate(headers):
        end = headers[number + 1].start() if number + 1 < len(headers) else len(traceback)
        text = _exception_below(traceback[header.end() : end], header)
        if text is not None:
            exceptions.append(text)
    return exceptions


def _exception_below(block: str, header: re.Match[str]) -> str | None:
    """Return the exception below the frames of one traceback, or None.

    The frames are indented further than the header, but the exception is not.
    """
    before = header["before"]
    if "Exception Group" in header[0]:
        before = f"{before}| "
    lines = block.splitlines()[1:]
    for number, line in enumerate(lines):
        if not line.startswith(before):
            continue
        text = line[len(before) :]
        if not text or text[0].isspace() or text[0] in "|+":
            continue
        return _with_message(
            text, [item[len(before) :] for item in lines[number + 1 :] if item.startswith(before)]
        )
    return None


def _with_message(first: str, following: list[str]) -> str:
    """Return an exception's line with the other lines of its message, up to an empty one."""
    message = [first]
    for line in following:
        if not line.strip():
            if first.endswith(": ") and len(message) == 1:
                continue  # a message that starts with empty lines
            break
        if line.startswith(("+-", "|")) or line.startswith(_CAUSE):
            break
        if _AFTER.match(line):
            break
        message.append(line)
    if len(message) > 1 and first.rstrip().endswith(":") and first.endswith(" "):
        message[:2] = [f"{first}{message[1].strip()}"]
    return "\n".join(message).strip()


def cause_in(traceback: str | None) -> str | None:
    """Return the cause of the last exception of a traceback in one line, or None.

    Args:
        traceback: The output of Python, or None.
    """
    earlier, marker, _ = (traceback or "").rpartition(_CAUSE)
    causes = exceptions_in(earlier) if marker else []
    return headline(causes[-1]) if causes else None


def failure_place(traceback: str | None) -> str | None:
    """Return where the user's code failed, as file:line.

    Args:
        traceback: The output of Python, or None.

    Returns:
        The innermost line outside of installed packages, Python and the workbench, in the last of
        several chained exceptions. A file in the folder of the trial is relative to that folder,
        so that trials that fail at the same line have the same place. None without such a line.
    """
    for block in reversed(_CHAINED.split(traceback or "")):
        for frame in reversed(list(_FRAME.finditer(block))):
            path, line = frame["path"], frame["line"]
            if _CELL.search(path):
                return f"notebook cell:{line}"
            if not _LIBRARY.search(path) and not _is_part_of_the_workbench(path):
                return f"{within_trial(path)}:{line}"
    return None


def within_trial(path: str) -> str:
    """Return a path relative to the folder of its trial, or unchanged if it is not in one.

    Example:
        >>> within_trial("/runs/a1/trials/00003/checkpoints/run.py")
        'run.py'
    """
    return _OWN_FOLDER.sub("", path)


def _is_part_of_the_workbench(path: str) -> bool:
    """Return whether a path looks like a file of this package, wherever it is installed."""
    parts = Path(path).parts
    return _PACKAGE.name in parts and any(
        (_PACKAGE / Path(*parts[index + 1 :])).is_file()
        for index, part in enumerate(parts)
        if part == _PACKAGE.name
    )
