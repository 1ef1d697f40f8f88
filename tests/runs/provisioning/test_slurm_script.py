"""What the batch script for Slurm says; `test_batch_script` runs it."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.runs.provisioning.test_offers import experiment
from tests.runs.provisioning.test_templates import node_of_slurm, rental
from workbench.foundation.errors import ArgumentError, ExperimentError
from workbench.runs.provisioning.cluster_request import ClusterRequest
from workbench.runs.provisioning.slurm import batch_script


def script(of: ClusterRequest | None = None, time_limit: str = "02:00:00", **changes: Any) -> str:
    asked = of or rental(machine=node_of_slurm(16, 4), nodes=3)
    return batch_script(
        asked, Path("/shared/venv"), time_limit, **({"folder": Path("/shared/mine")} | changes)
    )


def test_a_batch_script_is_one() -> None:
    text = script(options=("--partition=gpu",))
    done = subprocess.run(["bash", "-n"], input=text, text=True, capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    options = [
        line.removeprefix("#SBATCH ") for line in text.splitlines() if line.startswith("#SBATCH")
    ]
    assert {
        "--nodes=3",
        "--cpus-per-task=16",
        "--gpus-per-node=4",
        "--mem=8192M",
        "--time=02:00:00",
        "--requeue",
        "--partition=gpu",
        "--signal=B:USR1@120",
    } <= set(options)
    assert "--dashboard-host=127.0.0.1" in text
    assert text.index("umask 077") < text.index("$state/token")


def test_the_steps_of_a_job_ask_for_its_cpus_and_ray_for_no_more_memory_than_it_has() -> None:
    starts = re.findall(r"srun ((?:[^\n]*\\\n)+\s+ray start)", script())
    assert len(starts) == 2
    assert all("--cpus-per-task=16 " in words for words in starts)
    (store,) = re.findall(r"--object-store-memory=(\d+)", script())
    assert 75 * 2**20 < int(store) < 8 * 2**30


def test_a_job_runs_in_the_folder_that_holds_the_code_with_the_settings_that_were_given() -> None:
    asked = rental(
        machine=node_of_slurm(), file=Path("/shared/my net.yaml"), settings=("name=a b",)
    )
    text = script(asked, folder=Path("/shared/my code"))
    assert "\ncd '/shared/my code' || exit 1\n" in text
    assert "workbench sweep '/shared/my net.yaml' --set 'name=a b' --detach" in text


@pytest.mark.parametrize(
    "time_limit",
    ["90", "5:00", "4:00:00", "1-12", "0-1", "2-00:30", "1-0:0:0", "UNLIMITED", "infinite"],
)
def test_times_of_slurm_are_taken_as_they_are(time_limit: str) -> None:
    assert f"#SBATCH --time={time_limit}\n" in script(time_limit=time_limit)


@pytest.mark.parametrize(
    "time_limit", ["banana", "", "4h", "1:2:3:4", "-5", "1-", "1.5", "4:00:00\n#SBATCH --x", "٣"]
)
def test_what_is_no_time_of_slurm_is_refused(time_limit: str) -> None:
    with pytest.raises(
        ArgumentError,
        match=r"--job-time: .* is not a time limit in Slurm.s format; allowed: MINUTES",
    ):
        script(time_limit=time_limit)


@pytest.mark.parametrize("time_limit", ["2", "0", "1:59", "0:2:0"])
def test_a_job_that_would_be_queued_again_at_once_is_refused(time_limit: str) -> None:
    with pytest.raises(ArgumentError, match=r"--job-time: .*allowed: more than 120 s"):
        script(time_limit=time_limit)


@pytest.mark.parametrize("option", ["partition=gpu", "--x\nrm -rf", ""])
def test_what_is_no_option_of_sbatch_is_refused(option: str) -> None:
    with pytest.raises(ArgumentError, match=r"--option: .* is not an option of sbatch"):
        script(options=(option,))


@pytest.mark.parametrize(
    ("nodes", "named", "own", "found"),
    [
        ("a", "", "10.0.0.5 192.168.1.2 fd00::1", "10.0.0.5"),
        ("a", "", "127.0.1.1", "127.0.0.1"),
        ("a", "", "fd00::1", "127.0.0.1"),
        (
            "a,b",
            "10.1.0.5",
            "172.17.0.1 10.1.0.5",
            "10.1.0.5",
        ),  # and not the bridge that each node has
        ("a,b", "127.0.1.1", "10.1.0.5", "10.1.0.5"),
        ("a,b", "127.0.1.1", "127.0.0.1 fd00::1", None),
    ],
)
def test_the_address_of_the_head_is_one_that_other_nodes_reach(
    tmp_path: Path, nodes: str, named: str, own: str, found: str | None
) -> None:
    text = script()
    part = text[text.index("mapfile -t nodes") : text.index("# Jobs may share a node")]
    stand_ins = f"""
scontrol() {{ tr , '\n' <<< "$SLURM_JOB_NODELIST"; }}
srun() {{
  while [[ "$1" == --* ]]; do shift; done
  if [ "$1" = getent ]; then
    for kind in STREAM DGRAM; do echo "{named} $kind a"; done
  else echo "{own} "; fi
}}
SLURM_JOB_NODELIST={nodes}
"""
    done = subprocess.run(
        ["bash", "-c", f'{stand_ins}{part}echo "$head_ip"'],
        text=True,
        capture_output=True,
        check=False,
    )
    assert done.stderr == ""
    if found is None:
        assert done.returncode == 1
        assert "resolve a to loopback addresses only" in done.stdout
    else:
        assert done.stdout == f"{found}\n"


@pytest.mark.parametrize(
    "changes",
    [
        {"store": "/shared/runs.sqlite"},
        {"artifacts": "/shared/runs"},
        {"artifacts": "s3://bucket/runs"},
    ],
)
def test_places_that_all_nodes_share_are_taken_and_others_refused(changes: dict[str, Any]) -> None:
    assert "#SBATCH" in script(rental(machine=node_of_slurm(), **changes))
    name = next(iter(changes))
    with pytest.raises(
        ArgumentError,
        match=f"--{name}: runs is a relative path, which is another place on each node",
    ):
        script(rental(machine=node_of_slurm(), **{name: "runs"}))


def test_a_run_that_waits_for_machines_to_be_started_is_refused() -> None:
    asks = experiment(resources={"autoscaling": True, "concurrency": 4})
    with pytest.raises(
        ExperimentError, match=r"resources.autoscaling: .*allowed: false with Slurm"
    ):
        script(rental(machine=node_of_slurm(), experiment=asks))
