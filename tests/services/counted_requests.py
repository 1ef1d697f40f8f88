"""A server's address that counts how often each path is read there, and passes everything on."""

from __future__ import annotations

import collections
import contextlib
import socket
import socketserver
import threading


class CountedRequests:
    """Passes connections on to a server on this machine, and counts the GET requests of each
    path.
    """

    def __init__(self, port: int) -> None:
        """Listen; `port` is that of the server."""
        self.reads: collections.Counter[str] = collections.Counter()
        counting = threading.Lock()
        reads = self.reads

        class Handler(socketserver.BaseRequestHandler):
            def handle(self) -> None:
                with socket.create_connection(("127.0.0.1", port)) as server:
                    threading.Thread(
                        target=_pass_on, args=(server, self.request), daemon=True
                    ).start()
                    line = b""
                    while given := _receive(self.request):
                        server.sendall(given)
                        *lines, line = (line + given).split(b"\r\n")
                        for entry in lines:
                            if entry.startswith(b"GET "):
                                with counting:
                                    reads[entry.split()[1].decode().partition("?")[0]] += 1

        class Server(socketserver.ThreadingTCPServer):
            daemon_threads = True

        self._server = Server(("127.0.0.1", 0), Handler)
        self.port: int = self._server.server_address[1]
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        """Stop to listen."""
        self._server.shutdown()
        self._server.server_close()


def _receive(connection: socket.socket) -> bytes:
    with contextlib.suppress(OSError):
        return connection.recv(1 << 16)
    return b""


def _pass_on(source: socket.socket, target: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while given := _receive(source):
            target.sendall(given)
        target.shutdown(socket.SHUT_WR)
