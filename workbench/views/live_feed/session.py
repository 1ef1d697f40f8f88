"""The session of one front end, over any transport.

A WebSocket of the server, or a widget's kernel.

One frame is in flight at a time: the next is sent once the front end has drawn the last, and
contains everything new since. A slow or hidden front end costs nothing and misses nothing.
"""

from __future__ import annotations

import time
from collections import deque

from pydantic import TypeAdapter, ValidationError

from workbench.foundation.errors import ArgumentError
from workbench.views.live_feed.feed import Feed
from workbench.views.live_feed.protocol import AcknowledgeMessage, SubscribeMessage
from workbench.views.live_feed.updates import FrameBuilder, RateLimit

MAX_MESSAGE_BYTES = 65_536
TICK_S = 0.5
"""Seconds between requests for a frame while nothing arrives."""
_MAX_SUBSCRIPTIONS = 64
_MESSAGE: TypeAdapter[SubscribeMessage | AcknowledgeMessage] = TypeAdapter(
    SubscribeMessage | AcknowledgeMessage
)


class Session:
    """The subscription of a front end, and what it was sent.

    `receive` and `next_frame` may run in different threads.
    """

    def __init__(self, feed: Feed) -> None:
        """Start with a front end that shows nothing."""
        self._builder = FrameBuilder(feed)
        self._rate_limit = RateLimit()
        self._subscriptions: deque[SubscribeMessage] = deque(maxlen=_MAX_SUBSCRIPTIONS)
        self._sent_s: float | None = None

    def receive(self, message: str | bytes) -> None:
        """Handle a message of the front end.

        Raises:
            ArgumentError: If it is not a message of the protocol.
        """
        try:
            received = _MESSAGE.validate_json(message)
        except ValidationError as error:
            raise ArgumentError("is not a message of the live feed", field="message") from error
        if isinstance(received, SubscribeMessage):
            self._subscriptions.append(received)
        elif received.frame >= self._builder.frame:
            self._sent_s = None

    @property
    def unread_s(self) -> float:
        """Seconds for which a frame has been in flight."""
        if self._sent_s is None:
            return 0.0
        return time.monotonic() - self._sent_s

    def wait_s(self) -> float:
        """Return the seconds until the rate limit allows the next frame."""
        return self._rate_limit.wait_s()

    def next_frame(self) -> bytes | None:
        """Return a frame with what has changed, or None if nothing has, or a frame is in flight."""
        if self._sent_s is not None:
            return None
        # Applied here, so that a subscription never changes while a frame is built. All of them,
        # because the front end forgets data at each change of the run.
        while self._subscriptions:
            message = self._subscriptions.popleft()
            self._builder.subscribe(message.number, message.subscription)
        frame = self._builder.next_frame()
        if frame is not None:
            self._sent_s = time.monotonic()
            self._rate_limit.take(len(frame))
        return frame
