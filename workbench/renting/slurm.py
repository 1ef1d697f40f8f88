"""A batch script for Slurm: Ray on the nodes of a job, the run there, the job again before its time is up."""

from __future__ import annotations

import shlex
from pathlib import Path

from workbench.errors import ExperimentError
from workbench.renting.rental import AWAIT, Rental, versions

BEFORE_THE_END_S = 120


def batch_script(rental: Rental, environment: Path, time_limit: str, *, options: tuple[str, ...] = ()) -> str:
    """Write the script.

    Args:
        rental: What is asked for; its machine says what a node has, its artifacts may be a shared path.
        environment: The virtual environment, on a file system that all nodes share.
        time_limit: Of the job, as Slurm writes it.
        options: Further options of sbatch, such as --partition=gpu.

    Raises:
        ExperimentError: If a path is not one that all nodes can share.
    """
    for field, place in (("--artifacts", rental.artifacts), ("--store", rental.store)):
        if "://" not in place and not Path(place).is_absolute():
            raise ExperimentError(
                f"{place} is another place on each node", field=field,
                allowed="a URL, or an absolute path on a file system that all nodes share",
            )  # fmt: skip
    gpus, lines = rental.machine.gpus, list(options)
    if gpus:
        lines.append(f"--gpus-per-node={gpus}")
    exports = "\n".join(
        f"export {name}={shlex.quote(value)}" for name, value in rental.environment.items()
    )  # fmt: skip
    first = "" if rental.resume is None else f'echo {shlex.quote(rental.resume)} > "$state/run"\n'
    known = versions()
    return _SCRIPT.format(
        name=rental.name, nodes=rental.nodes, cpus=rental.cpus, gpus=gpus, time=time_limit,
        further="".join(f"#SBATCH {line}\n" for line in lines), before=BEFORE_THE_END_S,
        activate=shlex.quote(str(environment / "bin" / "activate")), exports=exports, first=first,
        experiment=shlex.quote(str(rental.file.absolute())), wait=AWAIT, python=known["python"],
        ray=known["ray"], store_note="" if "://" in rental.store else _SQLITE,
    )  # fmt: skip


_SQLITE = """
# The store is a SQLite file: its file system must keep locks between nodes, and one job may write at a time.
"""
_SCRIPT = """\
#!/bin/bash
#SBATCH --job-name={name}
#SBATCH --nodes={nodes}
#SBATCH --ntasks-per-node=1
#SBATCH --cpus-per-task={cpus}
#SBATCH --time={time}
#SBATCH --signal=B:USR1@{before}
#SBATCH --requeue
#SBATCH --open-mode=append
{further}
# Python {python}, ray=={ray} and this workbench must be in the environment that is activated below. The job
# is queued again {before} seconds before its time is up, and by Slurm when it is preempted; the run goes on
# from its last checkpoints. The password of a PostgreSQL store is read from ~/.pgpass.
{store_note}
set -uo pipefail
umask 077
source {activate}
{exports}

# One folder for each job, which keeps its number when it is queued again.
state="${{WORKBENCH_SLURM_STATE:-$HOME/.workbench/slurm}}/$SLURM_JOB_ID"
mkdir -p "$state"
chmod 700 "$state"
# Whoever can read the token can run code in this job. Every start makes another.
rm -f "$state/token"
python -c 'import secrets; print(secrets.token_hex(32), end="")' > "$state/token"
export RAY_AUTH_TOKEN_PATH="$state/token"

mapfile -t nodes < <(scontrol show hostnames "$SLURM_JOB_NODELIST")
head="${{nodes[0]}}"
head_ip="$(srun --nodes=1 --ntasks=1 --overlap --nodelist="$head" hostname --ip-address | awk '{{print $1}}')"
# Jobs may share a node: each has ports of its own.
port=$((20000 + SLURM_JOB_ID % 2000 * 4))
export WORKBENCH_RAY_ADDRESS="$head_ip:$port"
scratch="/tmp/ray-$SLURM_JOB_ID"
offered=(--num-cpus={cpus} --num-gpus={gpus} --disable-usage-stats --block)
offered+=(--dashboard-agent-listen-port=$((port + 3)) --min-worker-port=0 --max-worker-port=0)

steps=()
session=""
end_steps() {{
  trap '' USR1 TERM
  [ -n "$session" ] && kill -TERM "$session" 2> /dev/null
  for step in "${{steps[@]}}"; do kill -TERM "$step" 2> /dev/null; done
  wait
}}
queue_again() {{
  echo "$(date '+%F %T') the time is nearly up: job $SLURM_JOB_ID is queued again"
  scontrol requeue "$SLURM_JOB_ID"
  end_steps
  exit 0
}}
trap queue_again USR1
trap 'end_steps; exit 143' TERM

srun --nodes=1 --ntasks=1 --overlap --nodelist="$head" \\
  ray start --head --node-ip-address="$head_ip" --port="$port" --ray-client-server-port=$((port + 2)) \\
  --dashboard-host=127.0.0.1 --dashboard-port=$((port + 1)) --temp-dir="$scratch" "${{offered[@]}}" &
steps+=($!)
until (exec 3<> "/dev/tcp/$head_ip/$port") 2> /dev/null; do
  kill -0 "${{steps[0]}}" 2> /dev/null || {{ echo "the head did not start"; exit 1; }}
  sleep 1
done
if [ "${{#nodes[@]}}" -gt 1 ]; then
  others=$((${{#nodes[@]}} - 1))
  srun --nodes="$others" --ntasks="$others" --overlap --exclude="$head" \\
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
if [ "$code" -ne 0 ]; then # it has just begun, or there was nothing left to go on with
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
