"""A run on a cluster that loses a machine: `python -m tests.faults cluster_demo [--to REPORT]`.

A PostgreSQL server keeps the runs, two raylets are the cluster. The digits experiment is submitted
as a job, each trial trains on two workers, one on each machine, and a second process that knows
nothing but the store's URL follows. In the middle one machine is killed; another one joins, and the
run goes on to its end.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.faults.house import finish
from tests.services.clusters import ROOT, Cluster
from tests.services.postgresql import PASSWORD, USER, Server, find_programs
from tests.services.waiting import wait_until
from workbench.foundation.events import Event, Noted, TrialReported, TrialStarted
from workbench.store.database import Store

DEADLINE_S = 1200.0
SETTINGS = (
    "plan.workers=2",
    "resources.placement=spread",
    "resources.concurrency=1",
    "training.epochs=8",
)


@dataclass
class Seen:
    """What somebody saw who looked on."""

    run_id: str
    submitted: tuple[int, str]
    """Exit code and output of the command that submitted the run."""
    followed: tuple[int, str]
    report: str
    events: list[Event]
    hosts_before: int
    """On how many machines the trial had workers when one of them was killed."""


def play(folder: Path, say: Callable[[str], None]) -> Seen:
    """Let it all happen, and return what was seen.

    Args:
        folder: Where its files may lie.
        say: Hears what happens, line by line.
    """
    with _house(folder) as (cluster, store, outside):
        say(
            "PostgreSQL keeps the runs; two raylets are up, and take jobs at"
            f" {cluster.jobs_address}"
        )
        submitting = _begin(
            outside,
            "submit",
            "digits.yaml",
            "--trials",
            "2",
            "--address",
            cluster.jobs_address,
            "--token-file",
            str(cluster.token),
            *(word for setting in SETTINGS for word in ("--set", setting)),
        )
        run_id = wait_until(
            lambda: next((run.run_id for run in store.runs()), None), DEADLINE_S, what="a run"
        )
        say(f"submitted: run {run_id}; a second process follows it through the store alone")
        following = _begin(outside, "follow", run_id)

        def events(kind: type[Any]) -> list[Any]:
            return [
                stored.event for stored in store.events(run_id) if isinstance(stored.event, kind)
            ]

        wait_until(lambda: len(events(TrialReported)) >= 3, DEADLINE_S, what="a trial under way")
        pids = set(events(TrialStarted)[-1].worker_pids)
        machines = [cluster.head, *cluster.nodes]
        busy = [node for node in machines if pids & {process.pid for process in node.processes()}]
        say(
            f"a trial trains on {len(pids)} workers on {len(busy)} machines; one of them is"
            " killed now"
        )
        cluster.nodes[0].kill()
        wait_until(
            lambda: any("left the cluster" in event.message for event in events(Noted)),
            DEADLINE_S,
            what="its loss",
        )
        say("the driver has noticed; another machine joins")
        cluster.add(num_cpus=1)
        submitted, followed = finish(submitting, DEADLINE_S), finish(following, DEADLINE_S)
        state = store.run(run_id).state
        say(f"the run is {state}; submit ended with {submitted[0]}, follow with {followed[0]}")
        report = folder / "report.html"
        code, said = finish(_begin(outside, "report", run_id, "--to", str(report)))
        if code != 0:
            raise RuntimeError(f"no report: {said}")
        happened = [stored.event for stored in store.events(run_id)]
        return Seen(run_id, submitted, followed, report.read_text(), happened, len(busy))


@contextlib.contextmanager
def _house(folder: Path) -> Iterator[tuple[Cluster, Store, dict[str, str]]]:
    """A database server, a cluster, and the environment of somebody outside, who knows the store's
    URL.
    """
    programs = find_programs()
    if programs is None:
        raise RuntimeError("PostgreSQL is not installed (apt-get install postgresql)")
    with contextlib.ExitStack() as stack:
        server = Server(programs)
        stack.callback(server.close)
        url = f"postgresql://{USER}@127.0.0.1:{server.port}/{server.make_database()}"
        inside = {
            "WORKBENCH_STORE": url,
            "WORKBENCH_ARTIFACTS": str(folder / "artifacts"),
            "PGPASSWORD": PASSWORD,
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        }
        cluster = Cluster(folder / "cluster", head_cpus=1, takes_jobs=True, environment=inside)
        stack.callback(cluster.close)
        cluster.add(num_cpus=1)
        kept = {
            key: value
            for key, value in os.environ.items()
            if not key.startswith(("RAY_", "WORKBENCH_"))
        }
        work = folder / "work"
        work.mkdir()
        shutil.copy(ROOT / "search_spaces" / "digits.yaml", work)
        outside = kept | {
            **inside,
            "WORKBENCH_HOME": str(folder / "outside"),
            "PYTHONPATH": str(ROOT),
        }
        store = stack.enter_context(Store.open(server.url(url.rpartition("/")[2])))
        yield cluster, store, outside | {"PWD": str(work)}


def _begin(environment: dict[str, str], *words: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "workbench", *words],
        env=environment,
        cwd=environment["PWD"],
        text=True,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def main(words: list[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.faults cluster_demo", description=__doc__
    )
    parser.add_argument(
        "--to", type=Path, default=Path("cluster-report.html"), help="where to put the report"
    )
    given = parser.parse_args(words)
    began_s = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="workbench-cluster-") as name:
        seen = play(
            Path(name),
            lambda line: print(f"{time.monotonic() - began_s:5.0f} s  {line}", flush=True),
        )
    given.to.write_text(seen.report)
    # What may come next is said to somebody whose cluster is still there.
    said, _, _ = seen.submitted[1].partition("\nrun     ")
    print(f"\n{said}\n")
    print(f"The cluster and its store are gone; the report stays in {given.to.absolute()}")
    return seen.submitted[0]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
