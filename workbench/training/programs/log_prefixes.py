"""Strips what a logger or a launcher puts in front of a line.

These are the time, the level, the thread and the place in the source, as `logging`, absl, loguru
and accelerate write them, and the rank of the process, as torchrun, MPI and Ray write it. The line
behind them is read as if it had been printed alone.
"""

from __future__ import annotations

import re

from workbench.training.programs.metric_names import COUNTED, SPLITS

_RANK = re.compile(
    r"\[(?:(?:rank|default|worker|node|gpu|proc(?:ess)?)[ _:]?\d+|\d+,\d+)\](?:<std\w+>)?:?\s?"
    r"|\((?:[\w.]+ )?pid=\d+(?:, ip=[\d.]+)?\)\s?"
    r"|rank ?\d+\s?[:|]\s",
    re.IGNORECASE,
)
_ABSL = re.compile(r"[IWEF]\d{4} [\d:.]+\s+(?:\d+ )?[^\s\]]+\] ?")
_TIME = (
    r"(?:(?:\d{2,4}[-/.])?\d\d[-/.]\d{2,4}[T ])?\d\d:\d\d:\d\d(?:[.,]\d+)?"
    r"(?:Z|\s?[-+]\d\d:?\d\d)?(?!:?\d)"
)
_LEVEL = (
    r"(?:TRACE|DEBUG|INFO|NOTICE|SUCCESS|WARN(?:ING)?|ERROR|CRITICAL|FATAL)(?![\w./-]|\s*[=\d])"
)
_OF_NUMBERS = "|".join((*SPLITS, *COUNTED))
_NAME = rf"(?!(?i:(?:\w+_)?(?:{_OF_NUMBERS})(?:_|\b)))[^\W\d]\w*(?:[.-]\w+)*"
"""The name of a logger. A part of the data, such as `valid`, belongs to the numbers behind it."""
_PLACE = (
    r"(?:(?:__\w+__|[^\W\d][\w/-]*(?:\.[^\W\d][\w/-]*)+)(?:(?::[\w<>]+)?:\d+(?::\w+)?)?"
    r"|[^\W\d]\w*:[\w<>]+:\d+)"
)
"""A place in the source, such as `__main__:main:45` or `torch.optim`."""
_THREAD = (
    r"(?:\[(?:Main(?:Thread|Process)|(?:Thread|Dummy|SpawnProcess|Process)-\d+(?: \(\w+\))?"
    r"|ThreadPoolExecutor-\d+_\d+|pid \d+)\]|MainThread|MainProcess)"
)
_PART = rf"(?:{_TIME}|{_LEVEL}|{_PLACE})"
_SIGN = r"(?:\s*[-|:]\s*|\s+)"
_PARTS = (
    rf"\[\s?{_PART}(?:[\s,|:-]+{_PART})*\s?\]",
    _TIME,
    rf"(?:{_PLACE}|{_NAME}|\({_NAME}(?::\d+)?\))(?={_SIGN}\[?{_LEVEL})",
    rf"{_LEVEL}:(?:root(?=:)|{_NAME}(?=:\S))",
    rf"{_LEVEL}{_SIGN}{_PLACE}(?=\s*[-|]\s|:\S)",
    _LEVEL,
    _THREAD,
)
"""What a logger writes, one or several times: the time, its name, the level and the place."""
_LOGGER = re.compile(
    rf"(?:{'|'.join(_PARTS)})(?:(?:{_SIGN}|(?<=\]))(?:{'|'.join(_PARTS)}))*(?:\s?[-|:])? ?"
)
_IS_TEXT = re.compile(r"\W*ERROR\W*|[^A-Z]*")
"""A prefix that may be a part of the line if a number follows: the name `ERROR`, or a time."""
_NUMBER = re.compile(r"\s*[-+]?\.?\d")


def without_log_prefix(text: str) -> str:
    """Return a line without what a logger or a launcher put in front of it.

    At most one space behind it is dropped, so that lines keep their indentation. A time in front of
    a number is kept, because it may be a cell of a table.

    Args:
        text: The line.

    Example:
        >>> from workbench.training.programs.log_prefixes import without_log_prefix
        >>> without_log_prefix("INFO:root:- Train metrics: loss: 0.5")
        '- Train metrics: loss: 0.5'
        >>> without_log_prefix("[rank0]: 2026-11-30 12:00:00,123 - model - INFO - val loss: 0.5")
        'val loss: 0.5'
    """
    text = _without_rank(text)
    if (head := _ABSL.match(text)) is None:
        head = _LOGGER.match(text)
        if head is None:
            return text
        if _NUMBER.match(text, head.end()) and _IS_TEXT.fullmatch(head[0]):
            return text
    return _without_rank(text[head.end() :])


def _without_rank(text: str) -> str:
    while (rank := _RANK.match(text)) is not None:
        text = text[rank.end() :]
    return text
