"""Notifications of a store, which wake listeners when events are stored.

PostgreSQL sends notifications over a separate connection. With SQLite, and while that connection is
lost, listeners poll.
"""

from __future__ import annotations

import logging
import threading
import time

from typing_extensions import Self

from workbench.foundation.errors import StoreError
from workbench.store.database import postgresql
from workbench.store.database.connection import Database, translated

logger = logging.getLogger(__name__)

QUIET_S = 1.0
"""Maximum wait of a listener in seconds, if the database sends notifications."""
_RETRY_S = 1.0
_END_S = 0.5


class Listener:
    """Waits for notifications. Any that arrived since the last wait end the next one at once."""

    def __init__(self, notifications: Notifications) -> None:
        """Start to listen to `notifications`."""
        self._notifications = notifications
        self._woken = threading.Event()
        self._looked_s = time.monotonic()

    def wait(self, poll_s: float) -> None:
        """Wait until something new may be stored.

        Args:
            poll_s: Minimum seconds between waits. Without notifications, also the maximum wait.
        """
        self._woken.wait(QUIET_S if self._notifications.is_listening else poll_s)
        time.sleep(max(0.0, self._looked_s + poll_s - time.monotonic()))
        self._woken.clear()
        self._looked_s = time.monotonic()

    def wake(self) -> None:
        """End the current wait, or the next one."""
        self._woken.set()

    def close(self) -> None:
        """Stop listening."""
        self._notifications.forget(self)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Notifications:
    """Receives the notifications of a database while a process has listeners."""

    def __init__(self, database: Database) -> None:
        """Prepare to listen. The first listener makes the connection."""
        self.is_listening = False
        """Whether notifications are being received."""
        self._database = database
        self._can_notify = database.engine.dialect.name == "postgresql"
        self._lock = threading.Lock()
        self._listeners: set[Listener] = set()
        self._is_started = False

    def listen(self) -> Listener:
        """Return a listener that waits for notifications until it is closed."""
        listener = Listener(self)
        with self._lock:
            self._listeners.add(listener)
            if self._can_notify and not self._is_started:
                self._is_started = True
                threading.Thread(
                    target=self._receive, name="workbench-notifications", daemon=True
                ).start()
        return listener

    def forget(self, listener: Listener) -> None:
        """Remove a listener. The last one closes the connection."""
        with self._lock:
            self._listeners.discard(listener)

    def close(self) -> None:
        """Remove all listeners."""
        with self._lock:
            listeners, self._listeners = self._listeners, set()
        for listener in listeners:
            listener.wake()

    def _receive(self) -> None:
        engine = self._database.engine
        while self._has_listeners():
            try:
                with translated(engine):
                    self._receive_until_lost()
                return
            except (StoreError, engine.dialect.loaded_dbapi.Error) as error:
                logger.debug("notifications cannot be received: %s", error)
            self.is_listening = False
            time.sleep(_RETRY_S)

    def _receive_until_lost(self) -> None:
        with self._database.engine.connect() as connection:
            try:
                listening = postgresql.listen(connection)
                # `is_listening` is set when this notification arrives. A connection pooler may drop
                # all notifications, and then listeners must poll.
                with self._database.engine.begin() as other_session:
                    postgresql.notify_listeners(other_session)
                self._wake()  # for events that were stored before LISTEN
                while self._has_listeners():
                    for _ in listening.notifies(timeout=_END_S, stop_after=1):
                        self.is_listening = True
                        self._wake()
            finally:
                connection.invalidate()  # it cannot be reused

    def _has_listeners(self) -> bool:
        with self._lock:
            self._is_started = bool(self._listeners)
            self.is_listening = self.is_listening and self._is_started
            return self._is_started

    def _wake(self) -> None:
        with self._lock:
            for listener in self._listeners:
                listener.wake()
