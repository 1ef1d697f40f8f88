"""A machine that ssh reaches: a real sshd of this user on this machine, with keys of its own."""

from __future__ import annotations

import getpass
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.services.ports import free_port
from tests.services.waiting import wait_until


class SshServer:
    """An sshd that lets in whoever uses `programs`, where ssh and scp know its keys and no others.

    Who logs in has `temporary` as the folder for temporary files.
    """

    def __init__(self, folder: Path) -> None:
        """Start it.

        Args:
            folder: Where its keys, settings and log go.
        """
        self.user, self.port, self.log = getpass.getuser(), free_port(), folder / "sshd.log"
        self.programs, self.temporary = folder / "programs", folder / "temporary"
        for made in (self.programs, self.temporary):
            made.mkdir(parents=True)
        for name in ("host", "user"):
            words = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / name)]
            subprocess.run(words, check=True)
        public = (folder / "host.pub").read_text()
        (folder / "known_hosts").write_text(f"[127.0.0.1]:{self.port} {public}")
        (folder / "client").write_text(
            f"IdentityFile {folder / 'user'}\nIdentitiesOnly yes\n"
            f"UserKnownHostsFile {folder / 'known_hosts'}\nStrictHostKeyChecking yes\n"
        )
        (folder / "server").write_text(
            f"ListenAddress 127.0.0.1:{self.port}\nHostKey {folder / 'host'}\nPidFile none\n"
            f"AuthorizedKeysFile {folder / 'user.pub'}\nPasswordAuthentication no\nUsePAM no\n"
            "StrictModes no\nPermitRootLogin prohibit-password\nSubsystem sftp internal-sftp\n"
            f"SetEnv TMPDIR={self.temporary}\n"
        )
        for name in ("ssh", "scp"):
            program = self.programs / name
            program.write_text(
                f'#!/bin/sh\nexec {shutil.which(name)} -F {folder / "client"} "$@"\n'
            )
            program.chmod(0o755)
        if self.user == "root":
            Path("/run/sshd").mkdir(exist_ok=True)  # Debian makes it when the system starts
        program = find_sshd()
        assert program is not None
        with self.log.open("w") as log:
            self._process = subprocess.Popen(
                [program, "-D", "-e", "-f", str(folder / "server")], stderr=log
            )
        wait_until(lambda: "listening" in self.log.read_text(), what="the start of sshd")

    @property
    def address(self) -> str:
        """Where it is, as `--device` takes it."""
        return f"ssh://{self.user}@127.0.0.1:{self.port}"

    def close(self) -> None:
        """End it."""
        self._process.terminate()
        self._process.wait()


def reached_by_ssh(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[SshServer]:
    """Yield another machine, as far as ssh can know, to which a test's ssh and scp lead.

    For fixtures.
    """
    if find_sshd() is None:
        pytest.skip("needs sshd (apt-get install openssh-server)")
    server = SshServer(folder)
    monkeypatch.setenv("PATH", f"{server.programs}{os.pathsep}{os.environ['PATH']}")
    yield server
    server.close()


def find_sshd() -> str | None:
    """Return the program, or None where it is not installed."""
    return shutil.which("sshd") or shutil.which("sshd", path="/usr/sbin")
