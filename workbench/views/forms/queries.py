"""Queries that take a while, answered in threads. For each topic only the newest counts.

Computing a result is left to `answers`, transport to the widget.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import Any

from workbench.foundation.errors import RunError, WorkbenchError
from workbench.views.forms.answers import QueryContext, answer
from workbench.views.forms.protocol import Answer, Topic


class Queries:
    """Accepts queries, and sends their answers from other threads."""

    def __init__(self, context: QueryContext, send: Callable[[Answer], None]) -> None:
        """Start to answer.

        Args:
            context: The data from which answers are computed.
            send: Receives each answer. Called from any thread, one at a time for each topic.
        """
        self._context = context
        self._send = send
        self._num_queries: dict[str, int] = defaultdict(int)
        self._highest: dict[str, int] = defaultdict(int)
        self._latest: dict[str, Answer] = {}
        self._locks: dict[str, threading.Lock] = defaultdict(threading.Lock)
        self._is_closed = False

    def submit(self, topic: Topic, query: int, arguments: Mapping[str, Any]) -> None:
        """Answer a query soon. An older one of the same topic, or its answer, is dropped.

        Args:
            topic: The topic.
            query: The number of the answer, unless a higher one was submitted before: several views
                of a widget share the answers, and each waits for its own number or a higher one.
            arguments: The arguments by name.
        """
        self._highest[topic] = max(self._highest[topic], query)
        self._num_queries[topic] += 1
        threading.Thread(
            target=self._answer,
            args=(topic, self._num_queries[topic], arguments, self._locks[topic]),
            name=f"workbench-{topic}",
            daemon=True,
        ).start()

    def latest(self) -> list[Answer]:
        """Return the latest answer of each topic."""
        return list(self._latest.values())

    def close(self) -> None:
        """Send no more answers."""
        self._is_closed = True

    def _answer(
        self, topic: Topic, place: int, arguments: Mapping[str, Any], lock: threading.Lock
    ) -> None:
        # One at a time: while the user types, all but the newest query are dropped here.
        with lock:
            if not self._is_newest(topic, place):
                return

            def send(**content: Any) -> None:
                if self._is_newest(topic, place):
                    sent = Answer(topic=topic, query=self._highest[topic], **content)
                    self._latest[topic] = sent
                    self._send(sent)

            try:
                result = answer(
                    self._context,
                    topic,
                    arguments,
                    lambda text: send(status="working", progress=text),
                )
            except WorkbenchError as error:
                send(status="failed", problem=error.to_problem())
            except Exception as error:  # the form waits for an answer, whatever happened
                defect = RunError(
                    f"{type(error).__name__}: {error}", next_step="This is a bug: please report it."
                )
                send(status="failed", problem=defect.to_problem())
            else:
                send(status="done", result=result.model_dump())

    def _is_newest(self, topic: str, place: int) -> bool:
        return not self._is_closed and self._num_queries[topic] == place
