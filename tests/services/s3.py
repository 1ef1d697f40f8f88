"""A real server that speaks S3, of the tests' own: a process, a port, and one bucket."""

from __future__ import annotations

import subprocess
import sys
import urllib.error
import urllib.request

from tests.services.ports import free_port
from tests.services.waiting import wait_until

START_TIMEOUT_S = 120.0
BUCKET = "bucket"


class S3Server:
    """One server, which forgets all when it ends."""

    def __init__(self) -> None:
        self.port = free_port()
        self._process = subprocess.Popen(
            [sys.executable, "-m", "moto.server", "--host", "127.0.0.1", "--port", str(self.port)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        self._make_bucket()

    def url(self, path: str, port: int | None = None) -> str:
        """The URL of a place in its bucket, with the keys, as people write it.

        Args:
            path: The place.
            port: Of what passes requests on to the server; None for its own.
        """
        place = f"endpoint_override=127.0.0.1:{port or self.port}&scheme=http&region=us-east-1"
        return f"s3://key:secret@{BUCKET}/{path}?{place}"

    def close(self) -> None:
        """End it."""
        self._process.terminate()
        self._process.wait()

    def _make_bucket(self) -> None:
        asking = urllib.request.Request(f"http://127.0.0.1:{self.port}/{BUCKET}", method="PUT")

        def is_made() -> bool:
            try:
                urllib.request.urlopen(asking).close()
            except urllib.error.URLError:
                if self._process.poll() is not None:
                    raise
                return False
            return True

        try:
            wait_until(is_made, START_TIMEOUT_S, what="a server that speaks S3", every_s=0.1)
        except BaseException:
            self.close()
            raise
