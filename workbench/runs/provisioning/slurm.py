"""Write a Slurm batch script.

It starts Ray and the run, and requeues the job before its time is up.
"""

from __future__ import annotations

import math
import re
import shlex
from pathlib import Path

from workbench.foundation.errors import ArgumentError, ExperimentError
from workbench.runs.provisioning.cluster_request import AWAIT, ClusterRequest, versions

REQUEUE_BEFORE_S = 120
_TIME = re.compile(r"(?:(\d+)-)?(\d+)(?::(\d+))?(?::(\d+))?", re.ASCII)
_ENDLESS = ("UNLIMITED", "INFINITE")
_OBJECT_STORE_FRACTION = 0.2
"""Fraction of the job's memory for Ray's object store.

Ray itself would base it on the whole node.
"""


def batch_script(
    rental: ClusterRequest,
    environment: Path,
    time_limit: str,
    *,
    folder: Path,
    options: tuple[str, ...] = (),
) -> str:
    """Write the script.

    Args:
        rental: What to request. Its machine describes a node, its artifacts may be on a shared
            path.
        environment: The virtual environment, on a file system that all nodes share.
        time_limit: The time limit of the job, in Slurm's format.
        folder: The folder of relative paths and module names, also on a shared file system.
        options: Further options of sbatch, such as --partition=gpu.

    Raises:
        ArgumentError: If a path cannot be shared by all nodes, or an option or the time limit is
            invalid.
        ExperimentError: If the experiment relies on autoscaling.
    """
    if rental.experiment.resources.autoscaling:
        raise ExperimentError(
            "a Slurm job cannot get more nodes while it runs",
            field="resources.autoscaling",
            allowed="false with Slurm",
        )
    _check_time(time_limit)
    for option in options:
        if not option.startswith("-") or not option.isprintable():
            raise ArgumentError(
                f"{option!r} is not an option of sbatch",
                field="--option",
                allowed="such as --partition=gpu",
            )
    for field, place in (("--artifacts", rental.artifacts), ("--store", rental.store)):
        if "://" not in place and not Path(place).is_absolute():
            raise ArgumentError(
                f"{place} is a relative path, which is another place on each node",
                field=field,
                allowed="a URL, or an absolute path on a file system that all nodes share",
            )
    gpus = rental.machine.gpus
    lines = list(options)
    memory_mib = math.floor(rental.machine.memory_gib * 1024)
    if gpus:
        lines.append(f"--gpus-per-node={gpus}")
    exports = "\n".join(
        f"export {name}={shlex.quote(value)}" for name, value in rental.environment.items()
    )
    first = ""
    if rental.resume is not None:
        first = f'echo {shlex.quote(rental.resume)} > "$state/run"\n'
    store_note = ""
    if "://" not in rental.store:
        store_note = _SQLITE
    known = versions()
    return _SCRIPT.format(
        name=rental.name,
        nodes=rental.nodes,
        cpus=rental.cpus,
        gpus=gpus,
        time=time_limit,
        memory=memory_mib,
        object_store=math.floor(_OBJECT_STORE_FRACTION * memory_mib) * 2**20,
        further="".join(f"#SBATCH {line}\n" for line in lines),
        before=REQUEUE_BEFORE_S,
        activate=shlex.quote(str(environment / "bin" / "activate")),
        exports=exports,
        first=first,
        experiment=shlex.join([str(rental.file.absolute()), *rental.set_arguments]),
        folder=shlex.quote(str(folder.absolute())),
        wait=AWAIT,
        python=known["python"],
        ray=known["ray"],
        store_note=store_note,
    )


def _check_time(text: str) -> None:
    match = _TIME.fullmatch(text)
    if text.upper() in _ENDLESS:
        return
    if match is None:
        raise ArgumentError(
            f"{text!r} is not a time limit in Slurm's format",
            field="--job-time",
            allowed=(
                "MINUTES, MINUTES:SECONDS, HOURS:MINUTES:SECONDS, DAYS-HOURS, DAYS-HOURS:MINUTES, "
                "DAYS-HOURS:MINUTES:SECONDS, or UNLIMITED"
            ),
        )
    days, *parts = match.groups()
    numbers = [int(part) for part in parts if part is not None]
    if days is None and len(numbers) < 3:  # one number is minutes then, and hours after days
        numbers.insert(0, 0)
    hours, minutes, seconds = [*numbers, 0, 0][:3]
    total_s = ((int(days or 0) * 24 + hours) * 60 + minutes) * 60 + seconds
    if total_s <= REQUEUE_BEFORE_S:
        raise ArgumentError(
            f"{text} is {total_s} s, but the job is requeued {REQUEUE_BEFORE_S} s before its time"
            " is up",
            field="--job-time",
            allowed=f"more than {REQUEUE_BEFORE_S} s",
        )


_SQLITE = """
# The store is a SQLite file: its file system must support locks between nodes. Only one job may \
write to it.
"""
_SCRIPT = """\
#!/bin/bash
#SBATCH --job-name={name}
#SBATCH --nodes={nodes}
#SBATCH --ntasks-per-node=1
#SBATCH --cpus-per-task={cpus}
#SBATCH --mem={memory}M
#SBATCH --time={time}
#SBATCH --signal=B:USR1@{before}
#SBATCH --requeue
#SBATCH --open-mode=append
{further}
# Python {python}, ray=={ray} and this workbench must be in the environment that is activated \
below. Modules
# and data are found from the folder below. All nodes must share both. The job is requeued \
{before} seconds
# before its time is up, and by Slurm when it is preempted; the run then continues from its last \
checkpoints.
# The password of a PostgreSQL store is read from ~/.pgpass.
{store_note}
set -uo pipefail
umask 077
source {activate}
cd {folder} || exit 1
{exports}

# One folder for each job, which keeps its id when it is requeued.
state="${{WORKBENCH_SLURM_STATE:-$HOME/.workbench/slurm}}/$SLURM_JOB_ID"
mkdir -p "$state"
chmod 700 "$state"
# Everybody who can read the token can run code in this job. Each start creates a new one.
rm -f "$state/token"
python -c 'import secrets; print(secrets.token_hex(32), end="")' > "$state/token"
export RAY_AUTH_TOKEN_PATH="$state/token"

mapfile -t nodes < <(scontrol show hostnames "$SLURM_JOB_NODELIST")
head="${{nodes[0]}}"
# A name may resolve to loopback, nodes may have several addresses: the one the last node sees is \
best.
addresses() {{
  if [ "${{#nodes[@]}}" -gt 1 ]; then
    srun --nodes=1 --ntasks=1 --overlap --nodelist="${{nodes[-1]}}" getent ahostsv4 "$head"
  fi
  srun --nodes=1 --ntasks=1 --overlap --nodelist="$head" hostname --all-ip-addresses | xargs -n1
}}
head_ip="$(addresses | awk '$1 ~ /^[0-9]+([.][0-9]+)+$/ && $1 !~ /^127[.]/ {{print $1; exit}}')"
if [ -z "$head_ip" ] && [ "${{#nodes[@]}}" -gt 1 ]; then
  echo "the other nodes resolve $head to loopback addresses only"
  exit 1
fi
head_ip="${{head_ip:-127.0.0.1}}"
# Jobs may share a node: each uses its own ports.
port=$((20000 + SLURM_JOB_ID % 2000 * 4))
export WORKBENCH_RAY_ADDRESS="$head_ip:$port"
scratch="/tmp/ray-$SLURM_JOB_ID"
offered=(--num-cpus={cpus} --num-gpus={gpus} --disable-usage-stats --block)
offered+=(--object-store-memory={object_store})
offered+=(--dashboard-agent-listen-port=$((port + 3)) --min-worker-port=0 --max-worker-port=0)

steps=()
session=""
end_steps() {{
  trap '' USR1 TERM
  [ -n "$session" ] && kill -TERM "$session" 2> /dev/null
  for step in "${{steps[@]}}"; do kill -TERM "$step" 2> /dev/null; done
  wait
}}
requeue() {{
  echo "$(date '+%F %T') the time limit is near: job $SLURM_JOB_ID is requeued"
  scontrol requeue "$SLURM_JOB_ID"
  end_steps
  exit 0
}}
trap requeue USR1
trap 'end_steps; exit 143' TERM

# Steps do not get the CPUs of their job unless they request them.
srun --nodes=1 --ntasks=1 --cpus-per-task={cpus} --overlap --nodelist="$head" \\
  ray start --head --node-ip-address="$head_ip" --port="$port" --ray-client-server-port=$((port + \
2)) \\
  --dashboard-host=127.0.0.1 --dashboard-port=$((port + 1)) --temp-dir="$scratch" \
"${{offered[@]}}" &
steps+=($!)
until (exec 3<> "/dev/tcp/$head_ip/$port") 2> /dev/null; do
  kill -0 "${{steps[0]}}" 2> /dev/null || {{ echo "the Ray head did not start"; exit 1; }}
  sleep 1
done
if [ "${{#nodes[@]}}" -gt 1 ]; then
  others=$((${{#nodes[@]}} - 1))
  srun --nodes="$others" --ntasks="$others" --ntasks-per-node=1 --cpus-per-task={cpus} --overlap \\
    --exclude="$head" \\
    ray start --address="$WORKBENCH_RAY_ADDRESS" "${{offered[@]}}" &
  steps+=($!)
fi
if ! {wait} --nodes "${{#nodes[@]}}" --cpus {cpus} --gpus {gpus} --timeout 600; then
  end_steps
  exit 1
fi

{first}code=0
if [ -s "$state/run" ]; then
  workbench resume "$(cat "$state/run")" &
  session=$!
  wait "$session"
  code=$?
else
  workbench sweep {experiment} --detach > "$state/started" || {{ end_steps; exit 1; }}
  awk 'END {{print $NF}}' "$state/started" > "$state/run"
  code=1
fi
if [ "$code" -ne 0 ]; then # it has just been started, or there was nothing left to resume
  workbench follow "$(cat "$state/run")" &
  session=$!
  wait "$session"
  code=$?
fi
session=""
end_steps
[ "$code" -eq 0 ] && rm -rf "$state"
exit "$code"
"""
