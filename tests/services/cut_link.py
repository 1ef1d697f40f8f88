"""A TCP proxy that cuts its connections after a request has arrived and before its answer gets
back.
"""

from __future__ import annotations

import contextlib
import socket
import threading
from typing import Any


class CutLink:
    """Passes on to a port of this machine, until it is to lose an answer."""

    def __init__(self, port: int) -> None:
        self._target = port
        self._server = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._server.getsockname()[1]
        self.num_refused = 0
        self._cut_at: bytes | None = None
        self._to_refuse = 0
        threading.Thread(target=self._serve, daemon=True).start()

    def lose_answer_to(self, request: bytes, *, then_refuse: int) -> None:
        """Cut the connection on which `request` passes once its answer has come, and refuse some
        after it.

        Args:
            request: Bytes of the request.
            then_refuse: How many of the next connections are closed at once.
        """
        self._to_refuse = then_refuse
        self._cut_at = request

    @property
    def has_cut(self) -> bool:
        """Whether the answer has been lost."""
        return self._cut_at is None

    def close(self) -> None:
        """Take no more connections."""
        self._server.close()

    def _serve(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                near, _ = self._server.accept()
                if self.has_cut and self.num_refused < self._to_refuse:
                    self.num_refused += 1
                    near.close()
                    continue
                far = socket.create_connection(("127.0.0.1", self._target))
                loses_answer = threading.Event()
                for pair in ((near, far), (far, near)):
                    arguments: tuple[Any, ...] = (*pair, pair[0] is near, loses_answer)
                    threading.Thread(target=self._carry, args=arguments, daemon=True).start()

    def _carry(
        self,
        source: socket.socket,
        target: socket.socket,
        is_request: bool,
        loses_answer: threading.Event,
    ) -> None:
        with contextlib.suppress(OSError):
            while piece := source.recv(65536):
                if is_request and self._cut_at is not None and self._cut_at in piece:
                    loses_answer.set()
                elif loses_answer.is_set():  # the answer: what was requested is done
                    self._cut_at = None
                    break
                target.sendall(piece)
        for end in (source, target):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
