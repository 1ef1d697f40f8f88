"""Real servers that alerts are sent to: one for the web, one for mail."""

from __future__ import annotations

import contextlib
import json
import socketserver
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass
class WebServer:
    """What was posted, and how it is answered."""

    answers: list[int] = field(default_factory=list)
    """Codes of the next answers; 200 when there are none left."""
    location: str | None = None
    posted: list[dict[str, Any]] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    gets: int = 0
    port: int = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/hook/s3cret"


@contextlib.contextmanager
def web_server() -> Iterator[WebServer]:
    """Serve on loopback."""
    told = WebServer()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            code = told.answers.pop(0) if told.answers else 200
            told.posted.append(json.loads(body))
            told.headers.append(dict(self.headers))
            self.send_response(code)
            if told.location is not None:
                self.send_header("Location", told.location)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def do_GET(self) -> None:
            told.gets += 1
            self.send_response(200)
            self.end_headers()

        def log_message(self, format: str, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    told.port = server.server_address[1]
    thread = threading.Thread(
        target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True
    )
    thread.start()
    try:
        yield told
    finally:
        server.shutdown()
        server.server_close()


@dataclass
class MailServer:
    """What was mailed."""

    refuses: bool = False
    mails: list[str] = field(default_factory=list)
    recipients: list[str] = field(default_factory=list)
    port: int = 0


@contextlib.contextmanager
def mail_server() -> Iterator[MailServer]:
    """Speak as much SMTP as a mail takes, on loopback."""
    told = MailServer()

    class Handler(socketserver.StreamRequestHandler):
        def say(self, line: str) -> None:
            self.wfile.write(f"{line}\r\n".encode())

        def handle(self) -> None:
            self.say("220 ready")
            while line := self.rfile.readline().decode().strip():
                command = line.upper()
                if command.startswith("RCPT"):
                    if told.refuses:
                        self.say("550 s3cret is no user of ours")
                        continue
                    told.recipients.append(line.partition("<")[2].rstrip(">"))
                if command == "DATA":
                    self.say("354 go on")
                    told.mails.append(self._read_mail())
                self.say("221 bye" if command == "QUIT" else "250 well")
                if command == "QUIT":
                    return

        def _read_mail(self) -> str:
            lines = []
            while (line := self.rfile.readline().decode().rstrip("\r\n")) != ".":
                lines.append(line)
            return "\n".join(lines)

    class Server(socketserver.ThreadingTCPServer):
        allow_reuse_address = True
        daemon_threads = True

    server = Server(("127.0.0.1", 0), Handler)
    told.port = server.server_address[1]
    threading.Thread(
        target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True
    ).start()
    try:
        yield told
    finally:
        server.shutdown()
        server.server_close()
