"""One front end's side of the conversation, whatever carries it: a socket of the server, a widget's kernel.

One frame is on its way at a time: the next one goes when the front end has drawn the last one, and carries
all that has come meanwhile. Who is slow, or hidden, costs nothing and misses nothing.
"""

from __future__ import annotations

import time
from collections import deque

from pydantic import TypeAdapter, ValidationError

from workbench.errors import ExperimentError
from workbench.watch.painter import Allowance, Painter
from workbench.watch.protocol import LookMessage, TakenMessage
from workbench.watch.watch import Watch

MAX_MESSAGE_BYTES = 65_536
TICK_S = 0.5
"""How often a session is asked for a frame where nothing has come."""
_MAX_LOOKS = 64
_MESSAGE: TypeAdapter[LookMessage | TakenMessage] = TypeAdapter(LookMessage | TakenMessage)


class Session:
    """What a front end shows, and what it was sent; `hear` and `next_frame` may be of different threads."""

    def __init__(self, watch: Watch) -> None:
        """Begin with a front end that shows nothing."""
        self._painter = Painter(watch)
        self._allowance = Allowance()
        self._looks: deque[LookMessage] = deque(maxlen=_MAX_LOOKS)
        self._sent_s: float | None = None

    def hear(self, message: str | bytes) -> None:
        """Take in what the front end says.

        Raises:
            ExperimentError: If it is no message of the protocol.
        """
        try:
            found = _MESSAGE.validate_json(message)
        except ValidationError as error:
            raise ExperimentError("this is no message of the workbench", field="message") from error
        if isinstance(found, LookMessage):
            self._looks.append(found)
        elif found.frame >= self._painter.frame:
            self._sent_s = None

    @property
    def unread_s(self) -> float:
        """For how long a frame has been on its way."""
        return 0.0 if self._sent_s is None else time.monotonic() - self._sent_s

    def wait_s(self) -> float:
        """Return the seconds until the front end may be sent something, by what it was sent so far."""
        return self._allowance.wait_s()

    def next_frame(self) -> bytes | None:
        """Return a frame with what has changed; None where nothing has, or one is on its way."""
        if self._sent_s is not None:
            return None
        # Here, so that a look never changes while it is painted; all of them, as what was shown between
        # says what the front end has forgotten.
        while self._looks:
            look = self._looks.popleft()
            self._painter.show(look.number, look.look)
        frame = self._painter.paint()
        if frame is not None:
            self._sent_s = time.monotonic()
            self._allowance.take(len(frame))
        return frame
