"""Questions that take a while, answered in threads: of each part, only the newest counts.

How an answer is made is left to `answers`, how it travels to the widget.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import Any

from workbench.errors import RunError, WorkbenchError
from workbench.forms.answers import Desk, answer
from workbench.run.words import plain

Message = dict[str, Any]


class Questions:
    """Takes questions, and tells their answers from other threads."""

    def __init__(self, desk: Desk, tell: Callable[[Message], None]) -> None:
        """Begin to answer.

        Args:
            desk: What answers are made from.
            tell: Takes each message; may be called from any thread, one at a time for each part.
        """
        self._desk = desk
        self._tell = tell
        self._num_asked: dict[str, int] = defaultdict(int)
        self._highest: dict[str, int] = defaultdict(int)
        self._told: dict[str, Message] = {}
        self._turns: dict[str, threading.Lock] = defaultdict(threading.Lock)
        self._ended = False

    def ask(self, part: str, question: int, arguments: Mapping[str, Any]) -> None:
        """Answer a question soon; an older one of the same part is dropped, or its answer is.

        Args:
            part: What is asked.
            question: The number that the answer bears, or else a higher one that was asked with before:
                several views of a widget ask, and each waits for its own number or a higher one.
            arguments: How it is asked, by name.
        """
        self._highest[part] = max(self._highest[part], question)
        self._num_asked[part] += 1
        threading.Thread(
            target=self._answer, args=(part, self._num_asked[part], arguments, self._turns[part]),
            name=f"workbench-{part}", daemon=True,
        ).start()  # fmt: skip

    def told(self) -> list[Message]:
        """Return the last answer to each part."""
        return list(self._told.values())

    def end(self) -> None:
        """Tell nothing any more."""
        self._ended = True

    def _answer(self, part: str, place: int, arguments: Mapping[str, Any], turn: threading.Lock) -> None:
        # One after another: while somebody types, all but the newest question are dropped here.
        with turn:
            if not self._is_newest(part, place):
                return

            def say(**content: Any) -> None:
                if self._is_newest(part, place):
                    message = {"type": "part", "name": part, "question": self._highest[part], **content}
                    self._told[part] = message
                    self._tell(message)

            try:
                picture = answer(
                    self._desk, part, arguments, lambda words: say(status="working", progress=words)
                )
            except WorkbenchError as error:
                say(status="failed", problem=error.to_json())
            except Exception as error:  # whatever it is, somebody waits for it
                problem = RunError(
                    f"{type(error).__name__}: {error}", next_step="This is a defect: report it."
                )
                say(status="failed", problem=problem.to_json())
            else:
                say(status="done", picture=plain(picture))

    def _is_newest(self, part: str, place: int) -> bool:
        return not self._ended and self._num_asked[part] == place
