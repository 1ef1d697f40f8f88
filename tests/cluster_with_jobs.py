"""A real Ray cluster of one node that takes jobs and asks for a token, for tests that are no part of it."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psutil

from tests.cluster import free_ports
from tests.postgresql_server import PASSWORD
from workbench.workers.jobs import Jobs

ROOT = Path(__file__).parents[1]
START_TIMEOUT_S = 90.0


class ClusterWithJobs:
    """Two CPUs, a store of its own, and a token that this process's environment does not hold."""

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="wbj-", dir="/tmp"))  # a socket's path has little room
        self.token = "the-token-of-the-cluster-0123456789abcdef"
        self.token_file = self.folder / "token"
        self.token_file.touch(mode=0o600)
        self.token_file.write_text(self.token + "\n")
        self.store = self.folder / "store.sqlite"
        port, dashboard, agent, client = free_ports(4)
        self.address = f"http://127.0.0.1:{dashboard}"
        self._environment = {
            **{key: value for key, value in os.environ.items() if not key.startswith(("RAY_", "WORKBENCH_"))},
            "RAY_USAGE_STATS_ENABLED": "0", "RAY_AUTH_MODE": "token",
            "RAY_AUTH_TOKEN_PATH": str(self.token_file), "WORKBENCH_STORE": str(self.store),
            "PGPASSWORD": PASSWORD,
            "WORKBENCH_HOME": str(self.folder / "home"), "XDG_CACHE_HOME": str(self.folder / "cache"),
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}", "PYTHONPATH": str(ROOT),
        }  # fmt: skip
        self._log = (self.folder / "ray.log").open("w")
        self._head = subprocess.Popen(
            [
                sys.executable, "-m", "ray.scripts.scripts", "start", "--head", "--block", f"--port={port}",
                f"--dashboard-port={dashboard}", "--dashboard-host=127.0.0.1", "--include-dashboard=true",
                f"--dashboard-agent-listen-port={agent}", f"--ray-client-server-port={client}",
                "--min-worker-port=0", "--max-worker-port=0", "--num-cpus=2", "--num-gpus=0",
                f"--object-store-memory={128 * 2**20}", f"--temp-dir={self.folder / 'ray'}", "--no-monitor",
                "--include-log-monitor=false", "--disable-usage-stats",
            ],
            cwd=self.folder, env=self._environment, stdin=subprocess.DEVNULL, stdout=self._log,
            stderr=self._log, start_new_session=True,
        )  # fmt: skip
        self.jobs = Jobs(self.address, self.token)
        self._await()

    def environment(self, **more: str) -> dict[str, str]:
        """The environment of a process on the cluster's machine."""
        return {**self._environment, **more}

    def commands(self, *words: str) -> str:
        """Run a command of ours beside the cluster's store and return what it prints."""
        return subprocess.run(
            [sys.executable, "-m", "workbench.cli", *words], env=self.environment(), text=True, check=True,
            stdout=subprocess.PIPE, cwd=self.folder,
        ).stdout  # fmt: skip

    def close(self) -> None:
        """End every process of the cluster, and remove its files."""
        with contextlib.suppress(psutil.NoSuchProcess):
            head = psutil.Process(self._head.pid)
            mine = [head, *head.children(recursive=True)]
            for process in mine:
                with contextlib.suppress(psutil.NoSuchProcess):
                    process.kill()
            psutil.wait_procs(mine, timeout=10)
        self._head.wait()
        self._log.close()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _await(self) -> None:
        deadline = time.monotonic() + START_TIMEOUT_S
        while True:
            try:
                self.jobs.jobs()
                return
            except Exception as error:
                if self._head.poll() is not None or time.monotonic() > deadline:
                    said = (self.folder / "ray.log").read_text()[-3000:]
                    self.close()
                    raise RuntimeError(f"the cluster did not start: {error}\n{said}") from error
            time.sleep(0.2)
