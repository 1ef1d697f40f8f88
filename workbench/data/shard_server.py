"""Brings shards to a node: from its disk, from the node responsible for them, or from the origin.

Each node runs one server, in a process that outlives trials. Processes that read data get missing
shards from the server of their node. All servers agree which of them reads a shard from the origin,
because that follows from a hash of both. Each file is therefore read from there once per cluster,
whatever node needs it first. If no cluster provides a server, the process that reads starts one for
itself and for the processes that it forks. The caller runs and lists the servers, and `shards`
defines what a shard holds.
"""

from __future__ import annotations

import hashlib
import hmac
import http.client
import json
import os
import secrets
import socket
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Literal, NamedTuple

from workbench.data.shards import RemoteFiles, ShardCache
from workbench.foundation.errors import DataError, WorkbenchError

_READS_AT_ONCE = 16
_ANSWER_S = 600.0
"""The longest time to read a shard from the origin."""
_MAX_NUM_REQUESTED = 8
"""How many other nodes are asked for a shard before it is read from the origin."""


class Endpoint(NamedTuple):
    """The address of a server, and the token that it requires."""

    host: str
    port: int
    token: str


@dataclass(frozen=True)
class Wanted:
    """A shard that is requested.

    Attributes:
        url: The place of its files.
        endings: The extensions of the files.
        digest: The digest of the files as the requester has listed them.
        shard: Its number.
        source: Where it may come from: `anywhere`, `origin` for the disk of the node or the
            origin, or `disk` for the disk of the node alone.
    """

    url: str
    endings: tuple[str, ...]
    digest: str
    shard: int
    source: Literal["anywhere", "origin", "disk"] = "anywhere"


_find_server: Callable[[], Endpoint] | None = None
_own_servers: dict[tuple[int, Path], ShardServer] = {}
"""The servers that this process has started. A forked process has none."""
_connection: socket.socket | None = None
"""Open as long as this process lives, which keeps the server of the node running."""


def find_server_by(find: Callable[[], Endpoint]) -> None:
    """Set how this process finds the server of its node. Otherwise it starts its own on demand."""
    global _find_server
    _find_server = find


def fetcher(files: RemoteFiles, folder: Path) -> Callable[[int], bytes]:
    """Return a function that fetches a shard, and which forked processes may also call.

    Args:
        files: The files.
        folder: Folder of the cache of a server that is started here if there is no other.
    """
    global _connection
    if _find_server is not None:
        endpoint = _find_server()
        _connection = socket.create_connection(endpoint[:2])
    else:
        key = os.getpid(), folder
        if key not in _own_servers:
            _own_servers[key] = ShardServer(folder)
        endpoint = _own_servers[key].endpoint
    return _Fetcher(endpoint, files.url, files.endings, files.digest)


@dataclass(frozen=True)
class _Fetcher:
    endpoint: Endpoint
    url: str
    endings: tuple[str, ...]
    digest: str

    def __call__(self, shard: int) -> bytes:
        try:
            return _request(self.endpoint, Wanted(self.url, self.endings, self.digest, shard))
        except OSError as error:
            raise DataError(
                f"the process that fetches data for this node does not answer: {error}",
                field="data.path",
                next_step="Resume the run, which starts another one.",
            ) from error


class _Missing(Exception):
    """A node does not hold a shard."""


def _request(endpoint: Endpoint, wanted: Wanted, timeout_s: float = _ANSWER_S) -> bytes:
    """Request a shard from a server.

    Raises:
        OSError: If the server does not answer.
        _Missing: If it does not hold the shard, and only what it holds was requested.
        DataError: If the shard cannot be read.
    """
    connection = http.client.HTTPConnection(endpoint.host, endpoint.port, timeout=timeout_s)
    try:
        connection.request(
            "POST", "/", json.dumps(asdict(wanted)), {"Authorization": f"Bearer {endpoint.token}"}
        )
        answer = connection.getresponse()
        content = answer.read()
    except http.client.HTTPException as error:
        raise ConnectionError(f"it ended its answer: {error}") from error
    finally:
        connection.close()
    if answer.status == http.client.NOT_FOUND:
        raise _Missing
    if answer.status != http.client.OK:
        raise DataError(content.decode(), field="data.path")
    return content


class ShardServer:
    """Answers requests for shards, of processes of its node and of other servers."""

    def __init__(
        self,
        folder: Path,
        *,
        host: str = "127.0.0.1",
        others: Callable[[], Sequence[Endpoint]] = tuple,
    ) -> None:
        """Start to answer.

        Args:
            folder: Folder of the cache.
            host: Address of this node at which others reach it.
            others: Returns the servers of the cluster. This one may be among them.
        """
        self._folder, self._others = folder, others
        self._files: dict[tuple[str, tuple[str, ...]], RemoteFiles] = {}
        self._locks: defaultdict[tuple[str, int], threading.Lock] = defaultdict(threading.Lock)
        self._listing = threading.Lock()
        self._http = _Http((host, 0), _Handler)
        self._http.answer = self._answer
        self._http.token = secrets.token_hex(32)
        self.endpoint = Endpoint(host, self._http.server_address[1], self._http.token)
        threading.Thread(target=self._http.serve_forever, name="shards", daemon=True).start()

    @property
    def idle_s(self) -> float:
        """For how long no process has been connected, in seconds."""
        return self._http.idle_s

    def close(self) -> None:
        """Stop to answer."""
        self._http.shutdown()
        self._http.server_close()

    def _answer(self, wanted: Wanted) -> bytes | None:
        files = self._list(wanted)
        cache = ShardCache(files, self._folder)
        packed = cache.read(wanted.shard)
        if packed is not None or wanted.source == "disk":
            return packed
        with self._locks[files.digest, wanted.shard]:
            packed = cache.read(wanted.shard)  # another thread may just have fetched it
            if packed is None:
                packed = self._fetch(files, wanted)
                cache.write(wanted.shard, packed)
        return packed

    def _list(self, wanted: Wanted) -> RemoteFiles:
        """Return the files that are meant, listed again if they have changed since."""
        key = wanted.url, wanted.endings
        with self._listing:
            files = self._files.get(key)
            if files is None or files.digest != wanted.digest:
                files = self._files[key] = RemoteFiles(wanted.url, wanted.endings)
                ShardCache(files, self._folder).remove_leftovers()
        if files.digest != wanted.digest:
            raise DataError(
                f"{files.shown} has changed since it was listed",
                field="data.path",
                next_step="Start the run again when nothing writes there any more.",
            )
        return files

    def _fetch(self, files: RemoteFiles, wanted: Wanted) -> bytes:
        own = self.endpoint
        others = [server for server in self._others() if server[:2] != own[:2]]
        # Rendezvous hashing: servers ahead of this one come first in the order that all agree on.
        ranked = sorted([own, *others], key=lambda server: _rank(server, wanted))
        if wanted.source == "anywhere":
            for server in ranked[: ranked.index(own)]:
                packed = _ask(server, files, wanted, "origin")
                if packed is not None:
                    return packed
        for server in [server for server in ranked if server is not own][:_MAX_NUM_REQUESTED]:
            packed = _ask(server, files, wanted, "disk")
            if packed is not None:
                return packed
        with ThreadPoolExecutor(_READS_AT_ONCE) as threads:
            contents = list(threads.map(files.read_from_origin, files.members(wanted.shard)))
        return files.pack(wanted.shard, contents)


def _ask(
    server: Endpoint, files: RemoteFiles, wanted: Wanted, source: Literal["origin", "disk"]
) -> bytes | None:
    """Return a shard of another node, or None if that does not answer or does not have it."""
    other = Wanted(wanted.url, wanted.endings, wanted.digest, wanted.shard, source)
    try:
        packed = _request(server, other)
    except (OSError, _Missing):
        return None
    if not files.is_intact(wanted.shard, packed):
        return None
    return packed


def _rank(server: Endpoint, wanted: Wanted) -> bytes:
    return hashlib.sha256(
        f"{server.host}:{server.port} {wanted.digest} {wanted.shard}".encode()
    ).digest()


class _Http(ThreadingHTTPServer):
    daemon_threads = True
    answer: Callable[[Wanted], bytes | None]
    token: str
    _num_connected = 0
    _left_s = time.monotonic()
    _counting = threading.Lock()

    def count(self, change: int) -> None:
        """Note that a process has connected, or left."""
        with self._counting:
            self._num_connected += change
            self._left_s = time.monotonic()

    @property
    def idle_s(self) -> float:
        with self._counting:
            if self._num_connected:
                return 0.0
            return time.monotonic() - self._left_s


class _Handler(BaseHTTPRequestHandler):
    server: Any  # an _Http

    def handle(self) -> None:
        """Serve one connection."""
        self.server.count(1)
        try:
            super().handle()
        finally:
            self.server.count(-1)

    def do_POST(self) -> None:
        """Answer a request for a shard."""
        given = self.headers.get("Authorization", "")
        if not hmac.compare_digest(given.encode(), f"Bearer {self.server.token}".encode()):
            self._send(http.client.UNAUTHORIZED, b"")
            return
        try:
            request: dict[str, Any] = json.loads(
                self.rfile.read(int(self.headers["Content-Length"]))
            )
            wanted = Wanted(**{**request, "endings": tuple(request["endings"])})
            packed = self.server.answer(wanted)
        except WorkbenchError as error:
            self._send(http.client.BAD_GATEWAY, error.problem.encode())
            return
        if packed is None:
            self._send(http.client.NOT_FOUND, b"")
        else:
            self._send(http.client.OK, packed)

    def _send(self, status: int, content: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: Any) -> None:
        """Write nothing: the log of the process is a trial's."""
