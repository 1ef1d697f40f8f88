"""A real Ray cluster of one node that takes jobs and asks for a token, for tests that are no part of it."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.cluster import START_TIMEOUT_S, Cluster
from tests.postgresql_server import PASSWORD
from workbench.errors import RunError
from workbench.workers.jobs import Jobs


class ClusterWithJobs(Cluster):
    """Two CPUs, a store of its own, and a token that this process's environment does not hold."""

    def __init__(self) -> None:
        folder = Path(tempfile.mkdtemp(prefix="wbj-", dir="/tmp"))
        environment = {
            "WORKBENCH_STORE": str(folder / "store.sqlite"),
            "PGPASSWORD": PASSWORD,
            "XDG_CACHE_HOME": str(folder / "cache"),
        }
        super().__init__(folder, head_cpus=2, takes_jobs=True, environment=environment)
        self.secret = self.token.read_text()
        self.jobs = Jobs(self.jobs_address, self.secret)
        self._await_jobs()

    def commands(self, *words: str) -> str:
        """Run a command of ours beside the cluster's store and return what it prints."""
        return subprocess.run(
            [sys.executable, "-m", "workbench.cli", *words], env=self.environment, text=True, check=True,
            stdout=subprocess.PIPE, cwd=self.folder,
        ).stdout  # fmt: skip

    def close(self) -> None:
        """End every process of the cluster, and remove its files."""
        super().close()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _await_jobs(self) -> None:
        until_s = time.monotonic() + START_TIMEOUT_S
        while True:
            try:
                self.jobs.jobs()
                return
            except RunError:
                if time.monotonic() > until_s:
                    self.close()
                    raise
            time.sleep(0.2)
