"""Finds the error that ended a program in its output: the exception, not the last line.

After the exception, programs print hints, links and goodbyes. The errors of Python, R, C++, Java,
Node, Rust, Go and Julia are recognised. For any other program, the last line that is not a hint is
taken for the error.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from workbench.store.history.failure_text import exceptions_in

MAX_CHARS = 2000
_MAX_READ_CHARS = 2**17
"""Only the end of the output is read. An error and its traceback are not longer than this."""
_MAX_LINES = 20
_RANK = re.compile(r"^\[(?:rank|default)?\d+\]:? ?", re.MULTILINE)
_TRACEBACK = re.compile(
    r"^(?P<before>[ \t]*)(?:\+ Exception Group )?Traceback \(most recent call last\):", re.MULTILINE
)
_NOT_THE_END = re.compile(
    r"Exception ignored |--- Logging error ---|Exception in thread|Error in atexit|Error in sys\."
)
"""Lines above the traceback of an exception that did not end the program."""
_MEMBER = re.compile(
    r"^ *\+-\+-+ 1 -+\n(?: *\|(?: Traceback| Exception Group|  ).*\n)*? *\|"
    r" (?P<text>(?!Traceback)\S.*)$",
    re.MULTILINE,
)
"""The first exception of a group."""
_CHAIN = re.compile(
    r"The above exception was the direct cause|During handling of the above exception"
)
_PASSED_ON = re.compile(
    r"^(?:[\w.]*\.)?(?:ChildFailedError|CalledProcessError|ProcessRaisedException)\b"
)
"""Exceptions of launchers which only say that one of their processes failed. That process has
printed its own exception.
"""
_HINT = re.compile(
    r"Set the environment variable HYDRA_FULL_ERROR|For further information visit"
    r"|Compile with `?TORCH_USE_CUDA_DSA|CUDA kernel errors might be|For debugging consider passing"
    r"|note: run with `RUST_BACKTRACE|note: Some details are omitted|Node\.js v\d|exit status \d"
    r"|Execution halted|Ausf\u00fchrung angehalten|Calls: |Run `?rlang::last_|Warning"
    r" message|\d+: In "
    r"|wandb: |Aborted|\(core dumped\)|Traceback \(most|[~^\s|+-]+$|(?:[\w-]+: )?Try '.*--help'"
)
_PYTHON_LINE = re.compile(
    r"^(?:[A-Za-z_]\w*\.)*[A-Z]\w*(?:Error|Exception|Exit|Interrupt)(?:: .*)?$",
    re.MULTILINE,
)
_CPP = re.compile(
    r"terminate called after throwing an instance of '(?P<kind>.+)'"
    r"(?:\s+what\(\): +(?P<what>.*(?:\n(?!\S*Aborted).+)*))?"
)
_R = re.compile(r"^(?:Error|Fehler|Erreur)(?: in .*)?(?: ?: ?.*| ?:)$", re.MULTILINE)
_NODE_CALL = re.compile(r"\n {4}at \S")
_OTHERS = (
    re.compile(
        r"^Error executing job with overrides: .*\n(?P<text>(?!Traceback).+(?:\n.+)*)", re.MULTILINE
    ),
    re.compile(r"^Fatal Python error: (?P<text>.*)$", re.MULTILINE),
    re.compile(
        r"^libc\+\+abi: terminating (?:due to|with) uncaught exception of type (?P<text>.*)$",
        re.MULTILINE,
    ),
    re.compile(r"^(?P<text>.*: Assertion [`'].*' failed\.)", re.MULTILINE),
    re.compile(r"^==\d+==\s*(?P<text>ERROR: \w+Sanitizer: .*)$", re.MULTILINE),
    re.compile(r'^Exception in thread ".*" (?P<text>.*)$', re.MULTILINE),
    re.compile(r"^(?P<text>thread '.*' (?:\(\d+\) )?panicked at .*:\n.*)$", re.MULTILINE),
    re.compile(r"^(?P<text>thread '.*' (?:\(\d+\) )?panicked at '.*)$", re.MULTILINE),
    re.compile(r"^\S+:\d+:in [`'].*': (?P<text>.* \(\w+\))$", re.MULTILINE),
)


def last_error(printed: str) -> str:
    r"""Return the error that ended a program: its type and its message, or its last line.

    Args:
        printed: The stderr of the program, or the end of it. Terminal escapes are allowed.

    Returns:
        At most `MAX_CHARS` characters. The first line says what failed. "" if nothing was printed.

    Example:
        >>> last_error("Error in fit(x) : no data\nCalls: main -> fit\nExecution halted\n")
        'Error in fit(x) : no data'
    """
    text = _RANK.sub("", printed[-_MAX_READ_CHARS:].replace("\r\n", "\n").replace("\r", "\n"))
    best = max((find(text) for find in _FINDERS), key=lambda place: place[0])
    error = best[1]
    if best[0] < 0:
        error = _last_line(text)
    return "\n".join(error.strip().splitlines()[:_MAX_LINES])[:MAX_CHARS].rstrip()


def last_traceback(printed: str) -> str | None:
    """Return the traceback of `last_error`, with the exceptions it was raised from.

    Args:
        printed: See `last_error`.

    Returns:
        The text from the first line of the traceback on. None if Python has printed no traceback.
    """
    text = _RANK.sub("", printed[-_MAX_READ_CHARS:])
    blocks = _tracebacks(text)
    if not blocks:
        return None
    return text[blocks[-1][0] :]


def _tracebacks(text: str) -> list[tuple[int, str]]:
    """Return the start of each traceback that may have ended the program, and its last exception.

    Exceptions that were raised from each other count as one.
    """
    headers = [
        header
        for header in _TRACEBACK.finditer(text)
        if not header["before"] or "Group" in header[0]
    ]
    ending: list[tuple[int, str]] = []
    passed_on: list[tuple[int, str]] = []
    for number, header in enumerate(headers):
        end = headers[number + 1].start() if number + 1 < len(headers) else len(text)
        above = text[: header.start()].rstrip().splitlines()[-1:] or [""]
        exceptions = exceptions_in(text[header.start() : end])
        if not exceptions or _NOT_THE_END.match(above[0].lstrip()):
            continue
        exception = exceptions[0]
        if "Group" in header[0] and (member := _MEMBER.search(text, header.start(), end)):
            exception += f": {member['text']}"
        begin = header.start()
        if ending and _CHAIN.match(above[0].lstrip()):
            begin = ending[-1][0]
        (passed_on if _PASSED_ON.match(exceptions[0]) else ending).append((begin, exception))
    return ending or passed_on


def _python(text: str) -> tuple[int, str]:
    blocks = _tracebacks(text)
    if blocks:
        return blocks[-1]
    if _TRACEBACK.search(text) is not None:
        return -1, ""
    lines = list(_PYTHON_LINE.finditer(text))
    if not lines:
        return -1, ""
    start = lines[-1].start()
    return start, text[start:].partition("\n\n")[0]


def _cpp(text: str) -> tuple[int, str]:
    matches = list(_CPP.finditer(text))
    if not matches:
        return -1, ""
    kind, what = matches[-1]["kind"], matches[-1]["what"]
    return matches[-1].start(), f"{kind}: {what.strip()}" if what else kind


def _r(text: str) -> tuple[int, str]:
    """Return the last error of R. Its message may start in the next line."""
    matches = list(_R.finditer(text))
    if not matches or not re.search(
        r"^(?:Execution halted|Ausf\u00fchrung angehalten)", text, re.MULTILINE
    ):
        return -1, ""
    lines: list[str] = []
    for line in text[matches[-1].start() :].splitlines():
        if lines and (_HINT.match(line) or line.startswith(("Backtrace:", "Calls:"))):
            break
        lines.append(line)
    return matches[-1].start(), "\n".join(lines)


def _node(text: str) -> tuple[int, str]:
    """Return what Node printed above the calls.

    The message is the paragraph above the first call.
    """
    first = _first_call(text)
    if first < 0:
        return -1, ""
    begin = text.rfind("\n\n", 0, first) + 1
    return begin, text[begin:first]


def _first_call(text: str) -> int:
    """Return where the calls of the last error of Node start, or -1 if there are none."""
    calls = [match.start() for match in _NODE_CALL.finditer(text)]
    while len(calls) > 1 and "\n" not in text[calls[-2] + 1 : calls[-1]]:
        calls.pop()
    if not calls:
        return -1
    return calls[-1]


def _others(text: str) -> tuple[int, str]:
    matches = [
        (match.start(), match["text"]) for pattern in _OTHERS for match in pattern.finditer(text)
    ]
    return max(matches, default=(-1, ""))


def _go(text: str) -> tuple[int, str]:
    return _above(text, re.compile(r"^(?:panic|fatal error): .*$", re.MULTILINE), "\ngoroutine ")


def _julia(text: str) -> tuple[int, str]:
    return _above(text, re.compile(r"^ERROR: .*$", re.MULTILINE), "\nStacktrace:")


def _above(text: str, pattern: re.Pattern[str], calls: str) -> tuple[int, str]:
    """Return the last line above the calls that matches a pattern. Without calls, nothing."""
    matches = list(pattern.finditer(text, 0, max(0, text.rfind(calls))))
    if not matches:
        return -1, ""
    return matches[-1].start(), matches[-1][0]


_FINDERS: tuple[Callable[[str], tuple[int, str]], ...] = (
    _python,
    _cpp,
    _r,
    _node,
    _go,
    _julia,
    _others,
)


def _last_line(text: str) -> str:
    """Return the last line that is not a hint."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    telling = [number for number, line in enumerate(lines) if not _HINT.match(line)]
    if not telling:
        return lines[-1] if lines else ""
    return lines[telling[-1]]
