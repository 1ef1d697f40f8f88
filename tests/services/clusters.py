"""A real Ray cluster on this machine.

A head and nodes, each with a raylet and processes of its own.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psutil

from tests.services.network import Place
from tests.services.ports import free_ports
from tests.services.waiting import wait_until
from workbench.cluster.head.installation import ray_import_path
from workbench.cluster.remote.jobs import Jobs
from workbench.foundation.errors import RunError

ROOT = Path(__file__).parents[2]
START_TIMEOUT_S = 120.0
NODE_TIMEOUT_S = 600.0
_STARTED = "Ray runtime started"
_RAY = ("-m", "ray.scripts.scripts")
# What agents need for a dashboard takes seconds to load, and Ray waits 15 s for them.
_RAY_WITHOUT_DASHBOARD = (
    "-c",
    "from ray._private import utils\n"
    "utils.get_dashboard_dependency_error = lambda: ImportError('nothing asks for it')\n"
    "from ray.scripts.scripts import main\n"
    "main()",
)
_START = (
    "start",
    "--block",
    "--object-store-memory=100000000",
    "--disable-usage-stats",
)


class Node:
    """One node, which may be killed, frozen and thawed with all that runs on it."""

    def __init__(self, command: subprocess.Popen[bytes], name: str) -> None:
        self.name = name
        self.had_raylet = False
        """Whether it got as far as to start Ray's own process of a node."""
        self._command = command

    def processes(self) -> list[psutil.Process]:
        """All processes of the node, the youngest first."""
        main = psutil.Process(self._command.pid)
        return [*reversed(main.children(recursive=True)), main]

    def find(self, beginning: str) -> list[psutil.Process]:
        """The processes of the node whose title begins so."""
        processes = []
        for process in self.processes():
            with contextlib.suppress(psutil.Error):
                if "".join(process.cmdline()[:1]).startswith(beginning):
                    processes.append(process)
        return processes

    def has_lost_its_raylet(self) -> bool:
        """Whether Ray's own process of the node was there and has ended."""
        with contextlib.suppress(psutil.NoSuchProcess):
            alive = any(
                process.name() == "raylet" and process.status() != psutil.STATUS_ZOMBIE
                for process in self.processes()
            )
            self.had_raylet = self.had_raylet or alive
            return self.had_raylet and not alive
        return False

    def kill(self) -> None:
        """Lose the node: SIGKILL to everything at once."""
        self._signal(signal.SIGSTOP)  # so that nothing reacts to the end of something else
        processes = self._signal(signal.SIGKILL)
        self._command.wait(START_TIMEOUT_S)
        psutil.wait_procs(processes, timeout=START_TIMEOUT_S)

    def freeze(self) -> None:
        """Let the node fall silent: nothing on it runs, and nobody's connection is closed."""
        self._signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """Let it go on."""
        self._signal(signal.SIGCONT)

    @property
    def is_alive(self) -> bool:
        """Whether it was not killed."""
        return self._command.poll() is None

    def _signal(self, number: int) -> list[psutil.Process]:
        processes = self.processes()
        for process in processes:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.send_signal(number)
        return processes


class Cluster:
    """A head without workers of its own unless it is given CPUs, and the nodes that are added."""

    def __init__(
        self,
        folder: Path,
        *,
        head_cpus: int = 0,
        address: str = "127.0.0.1",
        takes_jobs: bool = False,
        grows_to: int = 0,
        environment: dict[str, str] | None = None,
    ) -> None:
        self.folder = folder
        self._ray = _RAY if takes_jobs else _RAY_WITHOUT_DASHBOARD
        folder.mkdir(parents=True, exist_ok=True)
        self.token = folder / "token"
        self.secret = secrets.token_hex(32)
        self.token.write_text(self.secret)
        self.token.chmod(0o600)
        # Nothing of this process's own Ray: a head that it keeps to loopback would have no nodes.
        kept = {
            key: value
            for key, value in os.environ.items()
            if not key.startswith(("RAY_", "WORKBENCH_"))
        }
        self.environment = kept | {
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
            "PYTHONPATH": (
                ray_import_path()
            ),  # its processes start as fast as those of the local head
            "RAY_AUTH_MODE": "token",
            "RAY_AUTH_TOKEN_PATH": str(self.token),
            "RAY_USAGE_STATS_ENABLED": "0",
            "RAY_raylet_start_wait_time_s": str(int(START_TIMEOUT_S)),  # a busy machine takes long
            "WORKBENCH_HOME": str(folder / "home"),
            **(environment or {}),
        }
        self._temp_dir = Path(
            tempfile.mkdtemp(prefix="wbc-", dir="/tmp")
        )  # a socket's path must be short
        self.nodes: list[Node] = []
        self._started: list[Node] = []
        ports = free_ports(4, address)
        self.address = f"{address}:{ports[0]}"
        self.jobs_address = f"http://{address}:{ports[1]}"
        """Where it takes jobs, if it does."""
        self.jobs = Jobs(self.jobs_address, self.secret)
        growing: list[str] = []
        if grows_to:
            growing = [f"--autoscaling-config={_autoscaling_file(folder, self.address, grows_to)}"]
            self.environment |= {"RAY_FAKE_CLUSTER": "1", "AUTOSCALER_UPDATE_INTERVAL_S": "1"}
        self._head_options = [
            "--head",
            f"--port={ports[0]}",
            f"--num-cpus={head_cpus}",
            f"--node-ip-address={address}",
            *_dashboard_options(address, ports if takes_jobs else []),
            *growing,
        ]
        self.head = self._start_head()
        # Who attaches finds the token and the address in its environment, as on a real cluster.
        self.environment["WORKBENCH_RAY_ADDRESS"] = self.address
        if takes_jobs:
            wait_until(self._takes_jobs, START_TIMEOUT_S, what="a head that takes jobs")

    def restart_head(self) -> None:
        """Start a head where one was killed.

        Nodes of the old one belong to nobody, and end by themselves.
        """
        self.nodes.clear()
        self.head = self._start_head()

    @property
    def session(self) -> Path:
        """Where Ray keeps the files of the head."""
        return self._temp_dir / self.head.name

    def add(
        self,
        num_cpus: int = 1,
        place: Place | None = None,
        environment: dict[str, str] | None = None,
    ) -> Node:
        """Start another node, here or at a place of a network, and wait until it has joined."""
        number = len(self._started) + 1
        return self._start_node(
            f"node-{number}",
            [
                f"--address={self.address}",
                f"--num-cpus={num_cpus}",
                # An address of its own: whoever attaches here belongs to the head, not to a node
                # that dies.
                f"--node-ip-address={_loopback(number) if place is None else place.address}",
            ],
            () if place is None else place.prefix,
            environment,
            into=self.nodes,
        )

    def run_command(self, *words: str) -> str:
        """Run a command of the workbench on the cluster and return what it prints."""
        return subprocess.run(
            [sys.executable, "-m", "workbench", *words],
            env=self.environment,
            text=True,
            check=True,
            stdout=subprocess.PIPE,
            cwd=self.folder,
        ).stdout

    def close(self) -> None:
        """End everything."""
        for node in self._started:
            if node.is_alive:
                node.kill()
        shutil.rmtree(self._temp_dir, ignore_errors=True)

    def _start_head(self) -> Node:
        name = f"head-{len(self._started)}"
        # In a folder of its own: Ray refuses to start where nodes of an earlier head still live.
        return self._start_node(
            name, [*self._head_options, f"--temp-dir={self._temp_dir / name}"], into=[]
        )

    def _start_node(
        self,
        name: str,
        words: list[str],
        prefix: tuple[str, ...] = (),
        environment: dict[str, str] | None = None,
        *,
        into: list[Node],
    ) -> Node:
        """Start a node, again and again if Ray gives up, and add it to `into`.

        Ray's raylet ends if its agents do not load within 15 s, which they do not on a busy
        machine, and no setting changes that.
        """
        log = self.folder / f"{name}.log"
        until_s = time.monotonic() + NODE_TIMEOUT_S
        while True:
            node = self._start(name, words, prefix, environment)
            wait_until(
                lambda node=node: (
                    _STARTED in log.read_text() or not node.is_alive or node.has_lost_its_raylet()
                ),
                NODE_TIMEOUT_S,
                what=name,
                every_s=0.1,
            )
            if _STARTED in log.read_text() and node.is_alive:
                into.append(node)
                return node
            if node.is_alive:
                node.kill()
            self._started.remove(node)
            if not node.had_raylet or time.monotonic() > until_s:
                self.close()
                raise RuntimeError(f"{name} did not start: {log.read_text()[-2000:]}")

    def _takes_jobs(self) -> bool:
        try:
            self.jobs.jobs()
        except RunError:
            return False
        return True

    def _start(
        self,
        name: str,
        words: list[str],
        prefix: tuple[str, ...] = (),
        environment: dict[str, str] | None = None,
    ) -> Node:
        log = (self.folder / f"{name}.log").open("ab")
        command = subprocess.Popen(
            [*prefix, sys.executable, *self._ray, *_START, *words],
            env=self.environment | (environment or {}),
            cwd=self.folder,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
        log.close()
        self._started.append(Node(command, name))
        return self._started[-1]


def _autoscaling_file(folder: Path, address: str, num_nodes: int) -> Path:
    """Write what Ray's autoscaler reads.

    Nodes with one CPU that start here when they are asked for.
    """
    types = {
        "ray.head.default": {"resources": {}, "node_config": {}, "max_workers": 0},
        "node": {
            "resources": {"CPU": 1},
            "node_config": {},
            "min_workers": 0,
            "max_workers": num_nodes,
        },
    }
    settings = {
        "cluster_name": "growing",
        "max_workers": num_nodes,
        "upscaling_speed": 1.0,
        "idle_timeout_minutes": 0.05,
        "provider": {
            "type": "fake_multinode",
            "gcs_address": address,
            "launch_multiple": True,
            "disable_node_updaters": True,
            "use_node_id_as_ip": True,
        },
        "available_node_types": types,
        "head_node_type": "ray.head.default",
        "auth": {},
        "docker": {},
        "file_mounts": {},
        "cluster_synced_files": [],
        "file_mounts_sync_continuously": False,
        "initialization_commands": [],
        "setup_commands": [],
        "head_setup_commands": [],
        "worker_setup_commands": [],
        "head_start_ray_commands": [],
        "worker_start_ray_commands": [],
    }
    path = folder / "autoscaling.json"
    path.write_text(json.dumps(settings))
    return path


def _loopback(number: int) -> str:
    return f"127.0.{number // 254}.{number % 254 + 1}"


def _dashboard_options(address: str, ports: list[int]) -> list[str]:
    if not ports:
        return ["--include-dashboard=false"]
    _, dashboard, agent, client = ports
    return [
        "--include-dashboard=true",
        f"--dashboard-host={address}",
        f"--dashboard-port={dashboard}",
        f"--dashboard-agent-listen-port={agent}",
        f"--ray-client-server-port={client}",
        "--min-worker-port=0",
        "--max-worker-port=0",
    ]
