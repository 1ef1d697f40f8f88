"""A real PgBouncer of the tests' own, before a server of theirs.

Every transaction may be another session.
"""

from __future__ import annotations

import os
import pwd
import shutil
import socket
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from tests.services.ports import free_port
from tests.services.postgresql import PASSWORD, USER, Server
from tests.services.waiting import wait_until

START_TIMEOUT_S = 120.0
PROGRAM = "pgbouncer"


class Pooler:
    """Stands between clients and a server."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self.port = free_port()
        self._folder = Path(tempfile.mkdtemp(prefix="pooler-", dir="/tmp"))
        users, settings = self._folder / "users.txt", self._folder / "settings.ini"
        users.write_text(f'"{USER}" "{PASSWORD}"\n')
        settings.write_text(
            f"[databases]\n* = host=127.0.0.1 port={server.port}\n[pgbouncer]\n"
            f"listen_addr = 127.0.0.1\nlisten_port = {self.port}\nunix_socket_dir =\n"
            f"auth_type = scram-sha-256\nauth_file = {users}\npool_mode = transaction\n"
        )
        account = pwd.getpwnam(
            "postgres" if os.getuid() == 0 else pwd.getpwuid(os.getuid()).pw_name
        )
        for path in (self._folder, users, settings):
            os.chown(path, account.pw_uid, account.pw_gid)
        as_account: dict[str, Any] = (
            {"user": account.pw_uid, "group": account.pw_gid} if os.getuid() == 0 else {}
        )
        self._process = subprocess.Popen(
            [shutil.which(PROGRAM) or PROGRAM, settings],
            cwd="/",
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            **as_account,
        )
        wait_until(self._answers, START_TIMEOUT_S, what="PgBouncer")

    def _answers(self) -> bool:
        if self._process.poll() is not None:
            raise RuntimeError("PgBouncer does not start")
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.port)) == 0

    def url(self, database: str) -> str:
        """Return the URL of a database behind it."""
        return self._server.url(database).replace(f":{self._server.port}/", f":{self.port}/")

    def close(self) -> None:
        """End it, and remove all that it kept."""
        self._process.terminate()
        self._process.wait(START_TIMEOUT_S)
        shutil.rmtree(self._folder)
