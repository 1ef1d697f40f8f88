"""Brings shards to a node.

From its disk, from the node that is responsible for a shard, or from the origin.

Each node runs one server, in a process that outlives trials, and processes that read data get what
they lack from the server of their node. All servers agree on which of them reads a shard from the
origin: it follows from a hash of both. So each file is read from there once per cluster, whatever
nodes need it first. Where no cluster provides a server, the process that reads starts one for
itself and for those that it forks. Who runs the servers and lists them is left to the caller; what
a shard holds, to `shards`.
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
"""How long a shard may take to be read from the origin."""
_MAX_NUM_REQUESTED = 8
"""How many other nodes are queried for a shard before it is read from the origin."""


class Endpoint(NamedTuple):
    """Where a server answers, and what it requires."""

    host: str
    port: int
    token: str


@dataclass(frozen=True)
class Wanted:
    """A shard that is requested.

    Attributes:
        url: The place of its files.
        endings: The extensions of these.
        digest: Of the files as the requester has listed them.
        shard: Its number.
        source: From where it may come: anywhere, only from what the node holds or reads from the
            origin, or only from what it holds.
    """

    url: str
    endings: tuple[str, ...]
    digest: str
    shard: int
    source: Literal["anywhere", "origin", "disk"] = "anywhere"


_find_server: Callable[[], Endpoint] | None = None
_own_servers: dict[tuple[int, Path], ShardServer] = {}
"""Those that this process has started; a process that was forked has none."""
_connection: socket.socket | None = None
"""Open as long as this process lives, so that the server of the node does, too."""


def find_server_by(find: Callable[[], Endpoint]) -> None:
    """State how this process finds the server of its node.

    Without that it starts one when it needs it.
    """
    global _find_server
    _find_server = find


def fetcher(files: RemoteFiles, folder: Path) -> Callable[[int], bytes]:
    """Return a function that fetches a shard, which processes that are forked may call as well.

    Args:
        files: The files.
        folder: Folder of the cache of a server that is started here, where no other is provided.
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
    """Request a shard of a server.

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
            others: Returns the servers of the cluster; this one may be among them.
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
        """Return the files that are meant, which are listed again where they have changed since."""
        key = wanted.url, wanted.endings
        with self._listing:
            found = self._files.get(key)
            if found is None or found.digest != wanted.digest:
                found = self._files[key] = RemoteFiles(wanted.url, wanted.endings)
                ShardCache(found, self._folder).remove_leftovers()
        if found.digest != wanted.digest:
            raise DataError(
                f"{found.shown} has changed since it was listed",
                field="data.path",
                next_step="Start the run again when nothing writes there any more.",
            )
        return found

    def _fetch(self, files: RemoteFiles, wanted: Wanted) -> bytes:
        own = self.endpoint
        others = [server for server in self._others() if server[:2] != own[:2]]
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
    """Return a shard of another node; None where that does not answer, or does not have it."""
    other = Wanted(wanted.url, wanted.endings, wanted.digest, wanted.shard, source)
    try:
        packed = _request(server, other)
    except (OSError, _Missing):
        return None
    return packed if files.is_intact(wanted.shard, packed) else None


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
            return 0.0 if self._num_connected else time.monotonic() - self._left_s


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
        self._send(http.client.NOT_FOUND if packed is None else http.client.OK, packed or b"")

    def _send(self, status: int, content: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: Any) -> None:
        """Write nothing: the log of the process is a trial's."""
