"""News of a store: who waits for events is woken when some were stored, where the database can tell.

PostgreSQL tells, over a connection that is kept for it. Elsewhere, and while that connection is away,
nobody does, and who waits looks again every now and then.
"""

from __future__ import annotations

import logging
import threading
import time
from typing import Self

from workbench.errors import StoreError
from workbench.store import postgresql
from workbench.store.connection import Database, translated

logger = logging.getLogger(__name__)

QUIET_S = 1.0
"""How long a listener waits where the database tells: time passes also without news."""
_RETRY_S = 1.0
_END_S = 0.5


class Listener:
    """One who waits for news; whatever came since the last wait is news at the next."""

    def __init__(self, news: News) -> None:
        """Begin to listen to `news`."""
        self._news = news
        self._woken = threading.Event()
        self._looked_s = time.monotonic()

    def wait(self, poll_s: float) -> None:
        """Wait until there may be something new.

        Args:
            poll_s: Seconds since the last wait at least; and at most, where the database does not tell.
        """
        self._woken.wait(QUIET_S if self._news.is_told else poll_s)
        time.sleep(max(0.0, self._looked_s + poll_s - time.monotonic()))
        self._woken.clear()
        self._looked_s = time.monotonic()

    def wake(self) -> None:
        """End the wait that goes on, or the next one."""
        self._woken.set()

    def close(self) -> None:
        """Listen no more."""
        self._news.forget(self)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class News:
    """Hears the news of one database for all listeners of a process, while there are any."""

    def __init__(self, database: Database) -> None:
        """Hear nothing yet."""
        self.is_told = False
        """Whether the database was heard to tell, and does so still."""
        self._database = database
        self._can_tell = database.engine.dialect.name == "postgresql"
        self._lock = threading.Lock()
        self._listeners: set[Listener] = set()
        self._hears = False

    def listen(self) -> Listener:
        """Return somebody who waits for news, until they are closed."""
        listener = Listener(self)
        with self._lock:
            self._listeners.add(listener)
            if self._can_tell and not self._hears:
                self._hears = True
                threading.Thread(target=self._hear, name="workbench-news", daemon=True).start()
        return listener

    def forget(self, listener: Listener) -> None:
        """Let a listener go; without any, nothing is heard, and no connection kept."""
        with self._lock:
            self._listeners.discard(listener)

    def close(self) -> None:
        """Let all listeners go."""
        with self._lock:
            listeners, self._listeners = self._listeners, set()
        for listener in listeners:
            listener.wake()

    def _hear(self) -> None:
        engine = self._database.engine
        while self._goes_on():
            try:
                with translated(engine):
                    self._hear_until_lost()
                return
            except (StoreError, engine.dialect.loaded_dbapi.Error) as error:
                logger.debug("news cannot be heard: %s", error)
            self.is_told = False
            time.sleep(_RETRY_S)

    def _hear_until_lost(self) -> None:
        with self._database.engine.connect() as connection:
            try:
                heard = postgresql.listen(connection)
                with self._database.engine.begin() as other:
                    postgresql.tell(other)  # what is not heard of this, a pooler in between keeps to itself
                self._wake()  # by what came before
                while self._goes_on():
                    for _ in heard.notifies(timeout=_END_S, stop_after=1):
                        self.is_told = True
                        self._wake()
            finally:
                connection.invalidate()  # it is no use to others afterwards

    def _goes_on(self) -> bool:
        with self._lock:
            self._hears = bool(self._listeners)
            self.is_told = self.is_told and self._hears
            return self._hears

    def _wake(self) -> None:
        with self._lock:
            for listener in self._listeners:
                listener.wake()
