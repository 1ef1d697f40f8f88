"""What a step of two workers costs: our trial beside a loop written by hand under torchrun.

Run `python -m tests.benchmarks.step_time [--repeats N]`. The same model, data and batches on two
CPU processes that exchange through gloo, one thread each. Two comparisons, both with the sides in
turns: a trial of ours in the pool of workers against processes of torchrun's own; and both loops in
the same processes under torchrun, which leaves nothing but the loops to differ: there the weights
that they end with must be equal. A step's time is the mean over a training from the first step's
end to the last one's, with all that happens between: looks at the loss and reports on our side,
nothing by hand.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from tests.benchmarks import clocked

LIMIT = 1.03
RESULTS = Path(__file__).parent / "results" / "step_time.json"
NUM_WORKERS = 2
BATCH = 128
STEPS = 180
WIDTH = 512
SEED = 3
STRATEGIES = ("ddp", "fsdp")
LARGE_LAYER = 100_000
SIDES = ("ours", "by hand")
RUNS = 3
RESAMPLES = 2000
Times = list[tuple[float, float]]


def train_by_hand(strategy: str, folder: Path) -> dict[str, Any]:
    """Train with plain PyTorch, as one would write it who knows how; return the weights."""
    import torch
    from torch import nn
    from torch.distributed.fsdp import fully_shard
    from torch.nn.parallel import DistributedDataParallel

    rank = torch.distributed.get_rank()
    split = clocked.load_samples({"num_samples": STEPS * BATCH * NUM_WORKERS}).train
    inputs, targets = (torch.from_numpy(part) for part in split.batch(np.arange(len(split))))
    torch.manual_seed(SEED)
    model = clocked.build_clocked({"folder": str(folder), "steps": STEPS, "width": WIDTH})
    if strategy == "ddp":
        trained: nn.Module = DistributedDataParallel(
            model, forward_sync_buffers=False, gradient_as_bucket_view=True
        )
    else:
        mesh = torch.distributed.device_mesh.init_device_mesh("cpu", (NUM_WORKERS,))
        for layer in model.children():
            if sum(parameter.numel() for parameter in layer.parameters()) >= LARGE_LAYER:
                fully_shard(layer, mesh=mesh)
        fully_shard(model, mesh=mesh)
        trained = model
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.0, fused=True)
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: 0.5 * (1.0 + math.cos(math.pi * min(step / STEPS, 1.0)))
    )
    loss_function = nn.CrossEntropyLoss()
    order = torch.from_numpy(np.random.default_rng([SEED, 0]).permutation(len(split)))
    for first in range(rank * BATCH, len(order), BATCH * NUM_WORKERS):
        indices = order[first : first + BATCH]
        loss = loss_function(trained(inputs[indices]), targets[indices])
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        schedule.step()
    state = model.state_dict()
    return {
        name: value.full_tensor() if strategy == "fsdp" else value for name, value in state.items()
    }


def train_with_ours(strategy: str, folder: Path) -> dict[str, Any]:
    """Train through `run_trial` in this process; return the weights on rank 0."""
    import torch

    from workbench.training.trial import run_trial
    from workbench.training.worker_task import TrialTask

    rank = int(os.environ["RANK"])
    experiment = clocked.make_experiment(
        folder, workers=NUM_WORKERS, micro_batch=BATCH, steps=STEPS, width=WIDTH, strategy=strategy
    )
    meeting = f"{os.environ['MASTER_ADDR']}:{os.environ['MEETING_PORT']}/{folder.name}"
    task = TrialTask(
        "benchmark",
        0,
        0,
        experiment.model_dump_json(),
        seed=SEED,
        folder=str(folder / "trial"),
        rank=rank,
        num_workers=NUM_WORKERS,
        meeting=meeting,
    )
    ended = run_trial(task, lambda event: False)
    assert ended.state == "complete", ended.traceback
    if rank:
        return {}
    saved = torch.load(folder / "trial" / "checkpoints" / "last.pt", weights_only=True)
    return saved["strategy"]["model"]


def run_rank(folder: Path, sides: tuple[str, ...], strategy: str, repeats: int) -> None:
    """Train in turns in one of torchrun's processes.

    Rank 0 writes the step times of its repeats.
    """
    import torch

    torch.set_num_threads(1)
    rank = int(os.environ["RANK"])
    if "ours" in sides:
        _open_meeting_point(folder, rank)
    times: dict[str, Times] = {side: [] for side in sides}
    for repeat in range(repeats):
        weights: dict[str, dict[str, Any]] = {}
        # Turns alternate in order too, so that neither always runs on the warmer machine.
        for side in sides[:: 1 if repeat % 2 else -1]:
            place = folder / f"{side.replace(' ', '-')}-{repeat}"
            place.mkdir(exist_ok=True)
            if side == "ours":
                weights[side] = train_with_ours(strategy, place)
            else:
                torch.distributed.init_process_group(
                    "gloo",
                    init_method=f"file://{place / 'meeting'}",
                    rank=rank,
                    world_size=NUM_WORKERS,
                )
                weights[side] = train_by_hand(strategy, place)
                torch.distributed.destroy_process_group()
            if rank == 0:
                times[side].append(clocked.step_s(clocked.read_notes(place, "steps", 1)[0]))
        if len(weights) == len(SIDES) and rank == 0:
            for key, value in weights["by hand"].items():
                if not torch.equal(value, weights["ours"][key]):
                    sys.exit(f"{strategy}: the two loops end with different weights in {key}")
    if rank == 0:
        (folder / "found.json").write_text(json.dumps(times))


def _open_meeting_point(folder: Path, rank: int) -> None:
    """Let rank 0 open what a worker of the pool opens once in its life, and tell the other
    where.
    """
    import torch

    from workbench.training.strategies.worker_group import open_meeting_point

    os.environ["MASTER_ADDR"] = "127.0.0.1"
    store = torch.distributed.FileStore(  # pyright: ignore[reportPrivateImportUsage]
        str(folder / "port"), NUM_WORKERS
    )
    if rank == 0:
        store.set("port", open_meeting_point("127.0.0.1").rpartition(":")[2])
    os.environ["MEETING_PORT"] = store.get("port").decode()


def run_torchrun(sides: tuple[str, ...], strategy: str, repeats: int) -> dict[str, Times]:
    """Run two processes under torchrun; return the step times of their repeats.

    Torch itself may abort, rarely, where a gloo group is destroyed: then they are run again.
    """
    for _ in range(RUNS):
        times = _try_torchrun(sides, strategy, repeats)
        if times is not None:
            return times
    raise RuntimeError(f"torchrun failed {RUNS} times in a row")


def _try_torchrun(sides: tuple[str, ...], strategy: str, repeats: int) -> dict[str, Times] | None:
    with tempfile.TemporaryDirectory(prefix="wb-bench-") as name:
        command = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
        command += [f"--nproc-per-node={NUM_WORKERS}", "-m", "tests.benchmarks.step_time"]
        command += [
            "--rank-in",
            name,
            "--strategy",
            strategy,
            "--repeats",
            str(repeats),
            "--sides",
            *sides,
        ]
        done = subprocess.run(command, env=os.environ | {"OMP_NUM_THREADS": "1"}, check=False)
        if done.returncode != 0:
            return None
        return json.loads((Path(name) / "found.json").read_text())


def run_trial_in_pool(strategy: str) -> tuple[float, float]:
    """Run one trial of ours on warm workers and return its step time."""
    with tempfile.TemporaryDirectory(prefix="wb-bench-") as name:
        experiment = clocked.make_experiment(
            Path(name),
            workers=NUM_WORKERS,
            micro_batch=BATCH,
            steps=STEPS,
            width=WIDTH,
            strategy=strategy,
        )
        return clocked.step_s(
            clocked.run_in_pool(experiment, "benchmark", Path(name), NUM_WORKERS)[0]
        )


def compare_processes(strategy: str, repeats: int) -> dict[str, Times]:
    """Take turns between trials in the pool and torchrun, and return the step times."""
    from workbench.cluster.head import attachment, local_head

    times: dict[str, Times] = {side: [] for side in SIDES}
    with tempfile.TemporaryDirectory(prefix="wb-bench-") as home:
        os.environ |= {"WORKBENCH_HOME": home, "RAY_USAGE_STATS_ENABLED": "0"}
        # Ray's processes give way to all others, which on a busy machine says nothing about the
        # loops.
        os.environ |= {"RAY_worker_niceness": "0"}
        try:
            attachment.connect(num_cpus=NUM_WORKERS, num_gpus=0)
            for _ in range(repeats):
                # Each turn's first training is not counted: it touches the caches for both sides
                # alike.
                run_trial_in_pool(strategy)
                times["ours"] += [run_trial_in_pool(strategy) for _ in range(2)]
                times["by hand"] += run_torchrun(("by hand",), strategy, 3)["by hand"][1:]
        finally:
            local_head.shutdown()
    return times


def summarize(found: dict[str, Times]) -> dict[str, Any]:
    """Return medians and ratios of the two sides."""
    (ours_s, ours_cpu_s), (by_hand_s, by_hand_cpu_s) = (
        zip(*found[side], strict=True) for side in SIDES
    )
    return {
        "repeats": len(ours_s),
        "ours_ms": 1000 * statistics.median(ours_s),
        "by_hand_ms": 1000 * statistics.median(by_hand_s),
        "wall_ratio": _median_ratio(ours_s, by_hand_s),
        "wall_ratio_interval": _interval(ours_s, by_hand_s),
        "cpu_ratio": _median_ratio(ours_cpu_s, by_hand_cpu_s),
        "least_disturbed_ratio": min(ours_s) / min(by_hand_s),
    }


def _median_ratio(ours_s: tuple[float, ...], by_hand_s: tuple[float, ...]) -> float:
    return statistics.median(
        ours / by_hand for ours, by_hand in zip(ours_s, by_hand_s, strict=True)
    )


def _interval(ours_s: tuple[float, ...], by_hand_s: tuple[float, ...]) -> list[float]:
    """Return where the median ratio lies with a probability of 95 %, by bootstrap over the
    repeats.
    """
    random = np.random.default_rng(SEED)
    ratios = np.array(ours_s) / np.array(by_hand_s)
    medians = np.median(random.choice(ratios, (RESAMPLES, len(ratios))), axis=1)
    return np.quantile(medians, [0.025, 0.975]).tolist()


def main() -> None:
    """Measure every comparison, print the ratios, and keep them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--repeats", type=int, default=9, help="in the same processes; a third elsewhere"
    )
    parser.add_argument("--rank-in", type=Path)
    parser.add_argument("--strategy", choices=STRATEGIES)
    parser.add_argument("--sides", nargs="+", choices=SIDES, default=list(SIDES))
    arguments = parser.parse_args()
    if arguments.rank_in:
        run_rank(arguments.rank_in, tuple(arguments.sides), arguments.strategy, arguments.repeats)
        return
    results: dict[str, Any] = {}
    for strategy in STRATEGIES if arguments.strategy is None else (arguments.strategy,):
        torchrun = run_torchrun(SIDES, strategy, arguments.repeats + 1)
        results[f"{strategy}, in the same processes"] = summarize(
            {side: times_s[1:] for side, times_s in torchrun.items()}
        )
        compared = compare_processes(strategy, max(2, arguments.repeats // 3))
        results[f"{strategy}, pool against torchrun"] = summarize(compared)
    for name, result in results.items():
        low, high = result["wall_ratio_interval"]
        print(
            f"{name:<32} ours {result['ours_ms']:.2f} ms a step, by hand {result['by_hand_ms']:.2f}"
            f" ms, ratio {result['wall_ratio']:.3f} ({low:.3f}-{high:.3f}, wall),"
            f" {result['cpu_ratio']:.3f} (cpu), {result['least_disturbed_ratio']:.3f} (fastest"
            f" runs); at most {LIMIT}"
        )
    report = {"machine": clocked.describe_machine(), "limit": LIMIT, "results": results}
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(json.dumps(report, indent=2) + "\n")


if __name__ == "__main__":
    main()
