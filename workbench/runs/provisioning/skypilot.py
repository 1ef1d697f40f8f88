"""Write a task of SkyPilot, which rents one machine, runs the experiment and ends the machine."""

from __future__ import annotations

import math
import os
import shlex
import textwrap
from pathlib import Path
from typing import Any

from workbench.experiment.yaml_file import write_yaml
from workbench.foundation.errors import ArgumentError
from workbench.foundation.formatting import format_duration, format_money
from workbench.runs.provisioning.catalogue import Market
from workbench.runs.provisioning.cluster_request import ClusterRequest, as_comment, versions
from workbench.runs.provisioning.ray_launcher import quote_home, wheel_of, with_training

STOP_S = 300.0
"""Seconds of the budget that are kept to stop the run and to end the machine."""
_LEAST_S = 900.0
"""Seconds that a machine must be affordable for. Starting and installing take some of them."""


def task_file(
    rental: ClusterRequest, package: str, budget_usd: float, *, path: Path | None = None
) -> str:
    """Write the task. Its first lines explain how to use it.

    The time that the budget buys counts from the start of the machine. When it is up, the run is
    stopped, and SkyPilot ends the machine because nothing runs on it.

    Args:
        rental: What is to be rented: one machine.
        package: What pip installs on it: the path of a wheel, or a requirement.
        budget_usd: The most that the machine may cost, in US dollars.
        path: The path of the file, or None for a name made from the experiment's.

    Raises:
        ArgumentError: If an argument is wrong, the store or the artifacts are on a single machine,
            or the budget does not suffice.
    """
    rental.check_shared_storage()
    experiment = _below_here(rental.file)
    run_s = _run_s(rental, budget_usd)
    wheel = wheel_of(package)
    mounts = {"~/.pgpass": "~/.pgpass"}
    if wheel is not None:
        package = f"~/{wheel.name}"
        mounts[package] = str(wheel)
    start = "sweep", experiment, *rental.set_arguments
    if rental.resume is not None:
        start = "resume", rental.resume
    document: dict[str, Any] = {
        "name": rental.name,
        "workdir": ".",
        "resources": {
            "infra": f"{rental.machine.provider}/{rental.machine.region}",
            "instance_type": rental.machine.type,
            "use_spot": rental.spot,
            "autostop": {"idle_minutes": math.ceil(rental.idle_s / 60.0), "down": True},
        },
        "envs": {
            "RAY_USAGE_STATS_ENABLED": "0",
            "WORKBENCH_STORE": rental.store,
            "WORKBENCH_ARTIFACTS": rental.artifacts,
        },
        "file_mounts": mounts,
    }
    setup = _SETUP.format(torch=versions()["torch"], package=quote_home(with_training(package)))
    run = _RUN.format(
        budget_s=math.floor(run_s), start=shlex.join(["workbench", *start, "--detach"])
    )
    scripts = "".join(
        f"{name}: |\n{textwrap.indent(script, '  ')}"
        for name, script in (("setup", setup), ("run", run))
    )
    return _instructions(rental, path, budget_usd, run_s) + write_yaml(document) + scripts


def _below_here(file: Path) -> str:
    """Return the path of the experiment below the folder that is copied to the machine."""
    here = Path.cwd().resolve()
    there = file.expanduser().resolve()
    if not there.is_relative_to(here):
        raise ArgumentError(
            f"{file} is not in the current folder, which SkyPilot copies to the machine",
            field="file",
            next_step="Write the file in the folder of your code and its experiment.",
        )
    return there.relative_to(here).as_posix()


def _run_s(rental: ClusterRequest, budget_usd: float) -> float:
    """Return the seconds after the start of the machine at which the run has to stop."""
    market: Market = "spot" if rental.spot else "on demand"
    machine = rental.machine
    price = machine.price(market).usd_per_hour
    if price is None:
        raise ArgumentError(
            f"the catalogue has no price of {machine.type} ({market}), so"
            " nothing would limit what it costs",
            field="--catalogue",
            next_step="Add its price to a catalogue of your own.",
        )
    run_s = budget_usd / price * 3600.0 - 60.0 * math.ceil(rental.idle_s / 60.0) - STOP_S
    if run_s < _LEAST_S:
        least = price * (_LEAST_S + rental.idle_s + STOP_S + 60.0) / 3600.0
        raise ArgumentError(
            f"{format_money(budget_usd)} buys too little time at {format_money(price)} an hour",
            field="--money",
            allowed=f"at least {format_money(least)}",
            next_step="Raise it, or lower --idle.",
        )
    return run_s


def _instructions(
    rental: ClusterRequest, path: Path | None, budget_usd: float, run_s: float
) -> str:
    file = shlex.quote(os.fspath(path or Path(f"{rental.name}.yaml")))
    return as_comment(f"""
{rental.title}.
Checkpoints are stored at {rental.artifacts}, as the machine may disappear at any time.

~/.pgpass contains the password of {rental.store} (mode 0600). It is copied to the machine, and so \
is the
current folder. This file contains no secret. The machine needs a role that may read and write
{rental.artifacts}.

In the folder of your code, with SkyPilot and access to the cloud (sky check). SkyPilot shows the \
price and
asks before it rents anything:
  sky launch -c {rental.name} {file}

The machine ends by itself, also if your computer is off: {format_duration(rental.idle_s)} after \
the run, and after at most
{format_money(budget_usd)}. For this, the run is stopped {format_duration(run_s)} after the start \
of the machine. To end it at once:
  sky down {rental.name}

Follow the run from anywhere. If it was stopped, or the machine was reclaimed, write this file \
again with
--resume RUN to continue:
  workbench follow RUN --store {shlex.quote(rental.store)}
""")


_SETUP = """\
chmod 600 ~/.pgpass
python -m pip install torch=={torch} {package} 'psycopg[binary]>=3.2'
"""
_RUN = """\
# Process 1 has the age of the machine, or of the container that stands for it.
left=$(({budget_s} - $(ps -o etimes= -p 1)))
if [ "$left" -le 0 ]; then
  echo "The budget is used up."
  exit 1
fi
started="$({start})" || exit 1
run="$(awk 'END {{print $NF}}' <<< "$started")"
code=0
timeout "$left" workbench follow "$run" || code=$?
if [ "$code" -eq 124 ]; then
  echo "The budget is used up, so the run is stopped."
  workbench stop "$run"
  timeout 180 workbench follow "$run"
fi
exit "$code"
"""
