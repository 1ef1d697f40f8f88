"""A real PostgreSQL server of the tests' own.

Debian's programs, a folder and a port of its own, no fsync.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import Any

import psutil

from tests.services.ports import free_port
from tests.services.waiting import wait_until

USER = "tester"
PASSWORD = "s3cret/of the+tests"
ESCAPED_PASSWORD = "s3cret%2Fof%20the%2Btests"
START_TIMEOUT_S = 120.0
_SETTINGS = {
    "fsync": "off",
    "full_page_writes": "off",
    "shared_buffers": "16MB",
    "listen_addresses": "127.0.0.1",
    "log_min_messages": "warning",
}


def find_programs() -> Path | None:
    """Return where the server's programs are, the newest version of them."""
    paths = sorted(
        Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda path: int(path.parts[4])
    )
    if paths:
        return paths[-1].parent
    program = shutil.which("initdb")
    return None if program is None else Path(program).resolve().parent


class Server:
    """One server, which may be stopped, killed and started again."""

    def __init__(self, programs: Path) -> None:
        self._programs = programs
        # It refuses root, and a folder of pytest would let nobody else in.
        self._account = pwd.getpwnam(
            "postgres" if os.getuid() == 0 else pwd.getpwuid(os.getuid()).pw_name
        )
        self.folder = Path(tempfile.mkdtemp(prefix="pg-", dir="/tmp"))
        self._numbers = itertools.count()
        self.port = free_port()
        os.chown(self.folder, self._account.pw_uid, self._account.pw_gid)
        self.folder.chmod(0o755)
        password_file = self.folder / "password"
        password_file.write_text(PASSWORD)
        password_file.chmod(0o644)
        subprocess.run(
            [
                programs / "initdb",
                "--pgdata",
                self.folder / "data",
                "--username",
                USER,
                "--pwfile",
                password_file,
                "--auth-local",
                "trust",
                "--auth-host",
                "scram-sha-256",
                "--encoding",
                "UTF8",
                "--locale",
                "C",
                "--no-sync",
            ],
            check=True,
            cwd=self.folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            **self._as_account(),
        )
        with (self.folder / "data" / "postgresql.conf").open("a") as file:
            file.writelines(f"{name} = '{value}'\n" for name, value in _SETTINGS.items())
            file.write(f"port = {self.port}\nunix_socket_directories = '{self.folder}'\n")
        self.start()

    @cached_property
    def _copies_files(self) -> bool:
        """Whether it must be told to copy files, which takes half the time of the usual way.

        Before version 15 there is no other way.
        """
        [(version,)] = self.execute("postgres", "SHOW server_version_num")
        return int(str(version)) >= 150_000

    @property
    def pid(self) -> int:
        """The process that starts all others of the server."""
        return self._process.pid

    def start(self) -> None:
        """Start it, and wait until it answers."""
        # As a child of ours: one that is killed and that nobody waits for is in the way of the
        # next.
        with (self.folder / "log").open("a") as log:
            self._process = subprocess.Popen(
                [self._programs / "postgres", "-D", self.folder / "data"],
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                **self._as_account(),
            )
        ask = [
            self._programs / "pg_isready",
            "--quiet",
            "--host",
            self.folder,
            "--port",
            str(self.port),
        ]

        def answers() -> bool:
            if self._process.poll() is not None:
                raise RuntimeError(
                    f"PostgreSQL does not start: {(self.folder / 'log').read_text()[-2000:]}"
                )
            return subprocess.run(ask, check=False).returncode == 0

        wait_until(answers, START_TIMEOUT_S, what="PostgreSQL", every_s=0.05)

    def stop(self) -> None:
        """Stop it as a crash does: connections are cut, and nothing is put in order."""
        self._process.send_signal(signal.SIGQUIT)
        self._process.wait(START_TIMEOUT_S)

    def kill(self) -> None:
        """Kill it and every process that serves a connection, with SIGKILL."""
        family = [*psutil.Process(self.pid).children(), self._process]
        for process in family:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        self._process.wait(START_TIMEOUT_S)

    @contextlib.contextmanager
    def away(self) -> Iterator[None]:
        """Be down for a while."""
        self.stop()
        try:
            yield
        finally:
            self.start()

    @contextlib.contextmanager
    def hung(self) -> Iterator[None]:
        """Answer nobody for a while, with all connections open."""
        family = [*psutil.Process(self.pid).children(), psutil.Process(self.pid)]
        for process in family:
            process.suspend()
        try:
            yield
        finally:
            for process in family:
                process.resume()

    def make_database(self, *options: str) -> str:
        """Make an empty database, and return its name."""
        name = f"test{next(self._numbers)}"
        if self._copies_files:
            options = (*options, "STRATEGY FILE_COPY")
        self.execute("postgres", f"CREATE DATABASE {name} {' '.join(options)}")
        return name

    def drop_database(self, name: str) -> None:
        """Remove a database, whoever is connected to it still."""
        self.execute("postgres", f"DROP DATABASE {name} WITH (FORCE)")

    def url(self, database: str) -> str:
        """Return the URL of a database, as people write it."""
        return f"postgresql://{USER}:{ESCAPED_PASSWORD}@127.0.0.1:{self.port}/{database}"

    def execute(self, database: str, statement: str) -> list[tuple[object, ...]]:
        """Run one statement past the workbench, and return its rows."""
        import psycopg

        conninfo = f"host={self.folder} port={self.port} user={USER} dbname={database}"
        with psycopg.connect(conninfo, autocommit=True) as connection:
            cursor = connection.execute(statement)  # pyright: ignore[reportArgumentType, reportCallIssue]
            return cursor.fetchall() if cursor.description else []

    def close(self) -> None:
        """End it, and remove all that it kept."""
        self.stop()
        shutil.rmtree(self.folder)

    def _as_account(self) -> dict[str, Any]:
        if os.getuid() != 0:
            return {}
        return {"user": self._account.pw_uid, "group": self._account.pw_gid, "extra_groups": []}
