"""Seconds per step of every exchange on links of several speeds, beside torch's own.

And what it costs.

Run `python -m tests.benchmarks.exchanges [--rounds N] [--seeds N]` as root on Linux with iproute2;
with `--links "1 Gbit/s"` only that link is measured, and nothing is stored. Two workers lie in
network namespaces of their own. Each round makes some steps of every way in turns, with the
optimizer and the C library's settings of a trial: ours, and torch's DistributedDataParallel as it
is and with its PowerSGD hook. That has one bucket, as several wait for each other for ever on gloo,
where torch's bf16 hook fails. Printed is the median over the rounds. Strategies that divide the
model or its state make steps of the same global batch. Then follows what the advisor chooses on
each link, among the exchanges and among exact ways, by probes on the same workers, and the seconds
of its probes beside those of trying all. Two workers on each of two machines show the hierarchical
exchange: the link between them is slow. Then all of ours train the digits from the same seeds on
the slowest link: the validation loss after equal steps and after equal seconds. Last, both workers
are slowed to a third at times, on the same link: the seconds to a validation loss, of synchronous
steps and of steps that may be stale.

DeepSpeed's ZeRO is left out, as it hangs here on CPUs; and so is accelerate's FSDP, because
accelerate (1.15) ignores the plugin where workers have no accelerators.
"""

from __future__ import annotations

import argparse
import gc
import importlib
import itertools
import json
import math
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import powerSGD_hook
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel

from tests.benchmarks.exchange_tables import RESULTS, write_tables
from tests.services.network import Network, why_not
from workbench.advisor.exchange_forecast import waits_for_links, worth_timing
from workbench.advisor.plan_variants import plan_of, variant_of
from workbench.advisor.retiming import time_in_turns
from workbench.data import Datasets, load
from workbench.data.splits import ArraySplit
from workbench.experiment import Experiment, Training
from workbench.experiment.plan import PartialPlan
from workbench.foundation.events import Event, PlanMeasured
from workbench.foundation.freed_memory import keep_freed_memory
from workbench.models.adapters import build_model
from workbench.training.exchanges import EXCHANGES
from workbench.training.exchanges.capabilities import USUAL, with_options
from workbench.training.exchanges.exchange import exchange_of
from workbench.training.optimizers import optimizer_factory
from workbench.training.probes.measurements import PlanProbe
from workbench.training.strategies import STRATEGIES
from workbench.training.strategies.capabilities import capabilities_of
from workbench.training.strategies.ddp import DataParallel
from workbench.training.strategies.strategy import (
    HeldBatch,
    MicroBatch,
    StepSettings,
    Strategy,
    Worker,
)
from workbench.training.strategies.worker_group import Group, open_meeting_point
from workbench.training.trial import run_trial
from workbench.training.worker_task import TrialTask

LINKS = {"no limit": 0, "1 Gbit/s": 1000, "200 Mbit/s": 200}
TORCH, TORCH_POWERSGD = "torch ddp", "torch ddp, PowerSGD rank 4"
MEASURED = [name for name in EXCHANGES.names() if name != "hierarchical"]
BY_NODES = ["allreduce", "hierarchical"]
"""What is compared with two workers on each of two machines; with one on each both do the same."""
DIVIDING = ("zero1", "fsdp", "tensor", "pipeline")
WIDTHS = (256, 1024, 1024, 1024, 768)
"""Of the model whose steps are timed: 12.6 MB of gradients."""
BATCH, NUM_MICRO_BATCHES = 64, 4
"""Samples of a worker, and parts of a step in a pipeline."""
WITH_PERIOD = ("local", "diloco")
PERIOD = 8
PROBE_S = 0.5
"""Seconds of the steps of a plan that the advisor times."""
PART_FOR_ADVICE = 0.1
"""Of the seconds of trying all ways, how much the advisor may use."""
STEPS_IN_TURN = 8
"""A whole period, so that agreements count as often as they happen."""
OPTIMIZER = optimizer_factory(Training(optimizer="adamw"), 1e-3)
"""That of a trial, whose kernel is fused, for all ways."""
RACE_STEPS, RACE_S, RACE_BATCH = 100, 5.0, 64
SLOWED: dict[str, tuple[str, dict[str, int]]] = {
    "allreduce": ("allreduce", {}),
    "server, synchronous": ("server", {"exchange_staleness": 0}),
    "server, up to 8 steps stale": ("server", {"exchange_staleness": 8}),
    "asynchronous": ("asynchronous", {}),
}
"""What is compared where workers are slow at times."""
SLOWED_LOSS, SLOWED_MAX_STEPS, SLOWED_STEP_S, SLOWED_SHARE, EVALUATED_EVERY = (
    0.12,
    320,
    0.1,
    0.25,
    16,
)
"""Workers take three times as long as a step of this many seconds, in this share of the steps."""


def make_ours(
    name: str, model: nn.Module, worker: Worker, options: dict[str, int] | None = None
) -> DataParallel:
    if options is None:
        options = {"exchange_period": PERIOD} if name in WITH_PERIOD else {}
    named = PartialPlan.of(
        workers=worker.num_workers, micro_batch=1, accumulation=1, exchange=name, **options
    )
    plan = with_options(named).complete()
    assert plan is not None
    settings = StepSettings(
        loss=functional.cross_entropy, exchange=exchange_of(plan, worker.num_replicas)
    )
    strategy = DataParallel(settings)
    strategy.setup(model, OPTIMIZER, worker)
    strategy.train(True)
    return strategy


class Torchs:
    """The same step written by hand around torch's DistributedDataParallel."""

    def __init__(self, model: nn.Module, group: Group, *, compresses: bool) -> None:
        self._model = DistributedDataParallel(
            model, gradient_as_bucket_view=True, bucket_cap_mb=64 if compresses else None
        )
        self._optimizer = OPTIMIZER(model.parameters())
        if compresses:
            state = powerSGD_hook.PowerSGDState(
                group.torch_group(), matrix_approximation_rank=4, start_powerSGD_iter=2
            )
            self._model.register_comm_hook(state, powerSGD_hook.powerSGD_hook)

    def forward_backward(self, batch: list[MicroBatch]) -> None:
        functional.cross_entropy(self._model(batch[0].inputs), batch[0].targets).backward()

    def update(self, lr: float) -> None:
        self._optimizer.step()
        self._optimizer.zero_grad(set_to_none=True)


def mlp(*widths: int) -> nn.Module:
    torch.manual_seed(0)
    layers: list[nn.Module] = []
    for before, after in itertools.pairwise(widths):
        layers += [nn.Linear(before, after), nn.ReLU()]
    return nn.Sequential(*layers[:-1])


def make_dividing(name: str, worker: Worker) -> tuple[Strategy, Iterator[list[MicroBatch]]]:
    """Return a strategy that divides the model or its state, of the zoo's perceptron, and its
    batches.
    """
    size = 1 if capabilities_of(name).axis is None else worker.num_workers
    own = Worker(
        worker.rank, worker.num_workers, worker.device, worker.group, workers_per_replica=size
    )
    strategy: Strategy = STRATEGIES.load(name)(StepSettings(loss=functional.cross_entropy))
    options = {"hidden_width": WIDTHS[1], "num_layers": len(WIDTHS) - 2}
    model = build_model("mlp", options, input_shape=WIDTHS[:1], num_outputs=WIDTHS[-1])
    strategy.setup(model, OPTIMIZER, own)
    strategy.train(True)
    return strategy, draw_batches(own, size * BATCH, NUM_MICRO_BATCHES if name == "pipeline" else 1)


def draw_batches(
    worker: Worker, num_samples: int, num_parts: int = 1
) -> Iterator[list[MicroBatch]]:
    """Yield new batches: numbers in steps with those that a model knows become too small to compute
    fast.
    """
    generator = torch.Generator().manual_seed(worker.replica)
    while True:
        inputs = torch.randn(num_samples, WIDTHS[0], generator=generator).chunk(num_parts)
        targets = torch.randint(0, WIDTHS[-1], (num_samples,), generator=generator).chunk(num_parts)
        weight = 1.0 / worker.num_replicas / num_parts
        yield [MicroBatch(*part, weight) for part in zip(inputs, targets, strict=True)]


def load_inputs(options: Mapping[str, Any]) -> Datasets:
    """Make samples of random numbers for the model whose steps are timed."""
    random = np.random.default_rng(0)

    def split(num_samples: int) -> ArraySplit:
        inputs = random.standard_normal((num_samples, WIDTHS[0]), dtype=np.float32)
        return ArraySplit(inputs, random.integers(WIDTHS[-1], size=num_samples))

    return Datasets(
        name="inputs",
        task="classification",
        train=split(options["num_samples"]),
        validation=split(BATCH),
        input_shape=WIDTHS[:1],
        num_outputs=WIDTHS[-1],
    )


def build_timed(_config: Mapping[str, Any]) -> nn.Module:
    """Build the model whose steps are timed."""
    return mlp(*WIDTHS)


def probe_links(rank: int, num_workers: int, meeting: str, ways: Sequence[str]) -> list[Any]:
    """Measure `ddp` with exchanges and strategies that divide the model, as the advisor does.

    events.

    The probe of the usual exchange alone is the first, which surveys the links.
    """
    experiment = Experiment(
        model="tests.benchmarks.exchanges:build_timed",
        data={"name": "tests.benchmarks.exchanges:load_inputs", "num_samples": 64 * BATCH},
        objectives=[{"metric": "val_loss", "goal": "minimize"}],
        training={"optimizer": "adamw"},
    )
    whole_batch = 2 * BATCH
    dividing = {
        "tensor": PartialPlan.of(
            strategy="tensor", tensor=2, micro_batch=whole_batch, accumulation=1
        ),
        "pipeline": PartialPlan.of(
            strategy="pipeline",
            stages=2,
            micro_batch=whole_batch // NUM_MICRO_BATCHES,
            accumulation=NUM_MICRO_BATCHES,
        ),
    }
    plans = [
        dividing.get(name)
        or PartialPlan.of(strategy="ddp", exchange=name, micro_batch=BATCH, accumulation=1)
        for name in ways
    ]
    order = PlanProbe(
        tuple(plans),
        warmup_steps=2,
        num_steps=STEPS_IN_TURN,
        longest_s=PROBE_S,
        surveys_links=ways == [USUAL],
    )
    events: list[Event] = []
    task = TrialTask(
        "benchmark",
        0,
        0,
        experiment.model_dump_json(),
        rank=rank,
        num_workers=num_workers,
        meeting=meeting,
        measurement=order,
    )
    ended = run_trial(task, lambda event: events.append(event) is not None)
    assert ended.state == "complete", ended.traceback
    return [
        each.model_copy(update={"workers_per_node": [1, 1]}).model_dump(mode="json")
        for each in events
        if isinstance(each, PlanMeasured)
    ]


def choose(workers: Workers, times_s: dict[str, float], tried_s: float) -> dict[str, Any]:
    """Return what the advisor chooses on a link, and how that compares with the fastest that was
    timed.

    From one probe follows which exchanges are worth timing; where workers wait long, so are exact
    ways that divide the model. The closest are timed again while there is time. The fastest of all
    that was timed is chosen; of the exact ones, too.

    Args:
        workers: On the link.
        times_s: Seconds of a step of every way.
        tried_s: Seconds that it took to time them.
    """
    measured: list[PlanMeasured] = []
    probed_s: dict[str, list[float]] = {}
    turns_s: list[float] = []

    def probe(ways: Sequence[str]) -> None:
        began_s = time.perf_counter()
        events = [PlanMeasured.model_validate(each) for each in workers.do("probe", ways=ways)]
        turns_s.append(time.perf_counter() - began_s)
        measured.extend(events)
        for way, event in zip(ways, events, strict=True):
            probed_s.setdefault(way, []).append(event.step_time_s or 0.0)

    def among(names: set[str]) -> dict[str, list[float]]:
        return {way: found for way, found in probed_s.items() if way in names}

    def has_time() -> bool:
        return (
            math.fsum(turns_s) + max(turns_s[2:], default=turns_s[-1]) < PART_FOR_ADVICE * tried_s
        )

    probe([USUAL])
    # Those with a period agree less often than each step, which is the user's decision.
    names = {name for name in MEASURED if name not in WITH_PERIOD}
    others = sorted(worth_timing(measured, names) - {USUAL})
    if waits_for_links(measured, variant_of(plan_of(measured[0].plan))):
        others += [name for name in DIVIDING if capabilities_of(name).axis is not None]
    if others:
        probe(others)
    exact = {USUAL, *DIVIDING}
    for kind in (exact, names):
        time_in_turns(partial(among, kind), probe, has_time)
    fastest = {
        kind: min(among(ways), key=lambda way: statistics.median(probed_s[way]))
        for kind, ways in (("chosen", names), ("exact", exact))
    }
    return {
        **fastest,
        "slower_than_fastest": (
            times_s[fastest["chosen"]] / min(times_s[name] for name in names) - 1.0
        ),
        "exact_slower_than_fastest": (
            times_s[fastest["exact"]] / min(times_s[name] for name in exact) - 1.0
        ),
        "probed_s": probed_s,
        "probe_seconds": math.fsum(turns_s),
        "trial_seconds": tried_s,
    }


def time_steps(worker: Worker, rounds: int) -> dict[str, float]:
    """Return the median seconds of a step of each way."""
    whole: dict[str, Any] = {TORCH: Torchs(mlp(*WIDTHS), worker.group, compresses=False)}
    if worker.num_workers == 2:
        whole[TORCH_POWERSGD] = Torchs(mlp(*WIDTHS), worker.group, compresses=True)
    names = MEASURED if worker.num_workers == 2 else BY_NODES
    whole |= {name: make_ours(name, mlp(*WIDTHS), worker) for name in names}
    ways = {name: (way, draw_batches(worker, BATCH)) for name, way in whole.items()}
    if worker.num_workers == 2:
        ways |= {name: make_dividing(name, worker) for name in DIVIDING}
    times_s: dict[str, list[float]] = {name: [] for name in ways}
    for number in range(rounds + 1):
        for name, (way, batches) in ways.items():
            worker.group.total(torch.zeros(1))
            began_s = time.perf_counter()
            for _ in range(STEPS_IN_TURN):
                way.forward_backward(next(batches))
                way.update(1e-3)
            worker.group.total(torch.zeros(1))
            if number:  # the first round forms the buckets
                times_s[name].append((time.perf_counter() - began_s) / STEPS_IN_TURN)
    return {name: statistics.median(time_s) for name, time_s in times_s.items()}


def race(worker: Worker, seeds: int) -> dict[str, list[dict[str, float]]]:
    """Return what each exchange reached on the digits after equal steps and after equal seconds."""
    splits = load("digits", {}, seed=0)
    train_x, train_y = _arrays(splits.train)
    held_x, held_y = _arrays(splits.validation)
    times: dict[str, list[dict[str, float]]] = {name: [] for name in MEASURED}
    for seed in range(seeds):
        for name in times:
            torch.manual_seed(seed)
            strategy = make_ours(name, _seeded(seed, train_x.shape[1]), worker)
            spent_s, num_steps, reached = 0.0, 0, {}
            for indices in _batches(len(train_y), seed):
                own = indices[worker.rank :: worker.num_workers]
                worker.group.total(torch.zeros(1))
                began_s = time.perf_counter()
                strategy.forward_backward(_whole(train_x[own], train_y[own], worker))
                strategy.update(1e-3)
                spent_s += (
                    worker.group.total(torch.tensor(time.perf_counter() - began_s)).item() / 2
                )
                num_steps += 1
                if num_steps == RACE_STEPS:
                    reached |= _measured(strategy, held_x, held_y, "steps")
                if spent_s > RACE_S and num_steps >= RACE_STEPS:
                    break
            reached |= _measured(strategy, held_x, held_y, "seconds")
            times[name].append({**reached, "num_steps": num_steps})
            strategy.close()
    return times


def race_slowed(worker: Worker, seeds: int) -> dict[str, list[dict[str, float]]]:
    """Return the seconds and steps to a loss of ways whose workers are slow at times, each by
    itself.
    """
    splits = load("digits", {}, seed=0)
    train_x, train_y = _arrays(splits.train)
    held_x, held_y = _arrays(splits.validation)
    times: dict[str, list[dict[str, float]]] = {way: [] for way in SLOWED}
    for seed, (way, (name, options)) in itertools.product(range(seeds), SLOWED.items()):
        torch.manual_seed(seed)
        strategy = make_ours(name, _seeded(seed, train_x.shape[1]), worker, options)
        slow = np.random.default_rng((seed, worker.rank)).random(SLOWED_MAX_STEPS) < SLOWED_SHARE
        spent_s, loss, num_steps = 0.0, float("inf"), 0
        batches = _batches(len(train_y), seed)
        while loss > SLOWED_LOSS and num_steps < SLOWED_MAX_STEPS:
            worker.group.total(torch.zeros(1))
            began_s = time.perf_counter()
            for number in range(num_steps, num_steps + EVALUATED_EVERY):
                step_began_s = time.perf_counter()
                own = next(batches)[worker.rank :: worker.num_workers]
                strategy.forward_backward(_whole(train_x[own], train_y[own], worker))
                takes_s = SLOWED_STEP_S * (3 if slow[number] else 1)
                time.sleep(max(0.0, takes_s - (time.perf_counter() - step_began_s)))
                strategy.update(1e-3)
            worker.group.total(torch.zeros(1))
            spent_s += time.perf_counter() - began_s
            num_steps += EVALUATED_EVERY
            loss = _measured(strategy, held_x, held_y, "steps")["loss_at_equal_steps"]
        times[way].append({"seconds": spent_s, "num_steps": num_steps, "loss": loss})
        strategy.close()
    return times


def _seeded(seed: int, width: int) -> nn.Module:
    model = mlp(width, 512, 512, 10)
    torch.manual_seed(seed)
    for layer in model.children():
        if isinstance(layer, nn.Linear):
            layer.reset_parameters()
    return model


def _measured(
    strategy: DataParallel, inputs: torch.Tensor, targets: torch.Tensor, at: str
) -> dict[str, float]:
    strategy.train(False)
    outputs = strategy.predict(inputs)
    strategy.train(True)
    return {
        f"loss_at_equal_{at}": functional.cross_entropy(outputs, targets).item(),
        f"accuracy_at_equal_{at}": (outputs.argmax(1) == targets).float().mean().item(),
    }


def _arrays(split: Any) -> tuple[torch.Tensor, torch.Tensor]:
    inputs, targets = split.batch(np.arange(len(split)))
    inputs = torch.as_tensor(np.asarray(inputs), dtype=torch.float32).flatten(1)
    return inputs, torch.as_tensor(np.asarray(targets)).long()


def _whole(inputs: torch.Tensor, targets: torch.Tensor, worker: Worker) -> HeldBatch:
    """Return a worker's part of a step, which it takes at once."""
    part = MicroBatch(inputs, targets, 1.0 / worker.num_workers)
    return HeldBatch([part], len(targets) * worker.num_workers)


def _batches(num_samples: int, seed: int) -> Iterator[np.ndarray]:
    rng = np.random.default_rng(seed)
    while True:
        order = rng.permutation(num_samples)
        for first in range(0, num_samples - RACE_BATCH + 1, RACE_BATCH):
            yield order[first : first + RACE_BATCH]


ORDERS: dict[str, Callable[..., Any]] = {
    "meet": lambda _worker: None,
    "time": time_steps,
    "race": race,
    "race_slowed": race_slowed,
}


def work(rank: int, num_workers: int, meeting: str) -> None:
    """Be one of the workers: carry out the orders that are read, one a line."""
    keep_freed_memory()  # as workers of a pool do
    torch.set_num_threads(1)
    importlib.import_module("workbench.training.probes.plan_probe")
    for name in ("ddp", *DIVIDING):
        STRATEGIES.load(name)
    gc.freeze()  # as workers of a pool do with what they have imported
    if rank == 0:
        meeting = open_meeting_point(meeting)
        print(meeting, flush=True)
    for number, line in enumerate(sys.stdin):
        order = json.loads(line)
        do, place = order.pop("do"), f"{meeting}/{number}"
        if do == "probe":
            results: Any = probe_links(rank, num_workers, place, **order)
        else:
            group = Group(rank, num_workers, None, place)
            results = ORDERS[do](Worker(rank, num_workers, group=group), **order)
            group.close()
        if rank == 0:
            print(json.dumps(results), flush=True)


class Workers:
    """Workers on two machines, whose link carries at most so much."""

    def __init__(self, megabits_per_s: int, *, on_a_node: int = 1) -> None:
        self._network = Network()
        self._started: list[subprocess.Popen[str]] = []
        places = [self._network.add(), self._network.add()]
        for place in places:
            if megabits_per_s:
                self._network.limit(place, megabits_per_s)
        meeting = places[0].address
        for rank, place in enumerate(place for place in places for _ in range(on_a_node)):
            words = [sys.executable, "-m", "tests.benchmarks.exchanges"]
            words += ["--rank", str(rank), "--workers", str(2 * on_a_node), "--meeting", meeting]
            named = [
                "unshare",
                "--uts",
                "sh",
                "-c",
                f'hostname node{place.address}; exec "$@"',
                "sh",
            ]
            self._started.append(
                subprocess.Popen(
                    [*place.prefix, *named, *words],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE if rank == 0 else None,
                    text=True,
                )
            )
            if rank == 0:
                meeting = self._read_line()
        self.do("meet")

    def do(self, do: str, **order: Any) -> Any:
        """Let all of them carry out an order; return what the first one found."""
        for process in self._started:
            assert process.stdin is not None
            process.stdin.write(json.dumps({"do": do, **order}) + "\n")
            process.stdin.flush()
        return json.loads(self._read_line())

    def _read_line(self) -> str:
        assert self._started[0].stdout is not None
        return self._started[0].stdout.readline().strip()

    def __enter__(self) -> Workers:
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._started:
            process.kill()
            process.wait()
        self._network.close()


def show(times_s: dict[str, dict[str, float]], title: str) -> None:
    """Print seconds per step, a row for each way."""
    print(f"\n{title:30}" + "".join(f"{link:>12}" for link in times_s))
    for name in next(iter(times_s.values())):
        print(
            f"{name:30}" + "".join(f"{found[name]:12.3f}" for found in times_s.values()), flush=True
        )


def main() -> None:
    """Measure all links, race on the slowest, print the tables, store them and put them into the
    guide.
    """
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--rank", type=int)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--meeting", default="")
    parser.add_argument(
        "--links", nargs="+", choices=list(LINKS), help="Choose on these links only."
    )
    options = parser.parse_args()
    if options.rank is not None:
        work(options.rank, options.workers, options.meeting)
        return
    reason = why_not()
    if reason is not None:
        print(f"skipped: {reason}")
        return
    times_s, choices = {}, {}
    for link in options.links or LINKS:
        with Workers(LINKS[link]) as workers:
            began_s = time.perf_counter()
            # Steps vary as much on each link, which is more of them where they are short.
            rounds = options.rounds if LINKS[link] else 2 * options.rounds
            times_s[link] = workers.do("time", rounds=rounds)
            tried_s = time.perf_counter() - began_s
            choices[link] = choose(workers, times_s[link], tried_s)
    show(times_s, "seconds per step")
    print(
        f"\n{'the advisor chooses':16}{'exchange':>12}{'slower':>9}{'exact':>12}{'slower':>9}"
        f"{'probes, s':>11}{'all, s':>9}"
    )
    for link, choice in choices.items():
        print(
            f"{link:16}{choice['chosen']:>12}{choice['slower_than_fastest']:>9.1%}{choice['exact']:>12}"
            f"{choice['exact_slower_than_fastest']:>9.1%}{choice['probe_seconds']:11.1f}"
            f"{choice['trial_seconds']:9.1f}"
        )
    if options.links:
        return
    by_nodes_s = {}
    for link, limit in LINKS.items():
        with Workers(limit, on_a_node=2) as workers:
            by_nodes_s[link] = workers.do("time", rounds=options.rounds)
    show(by_nodes_s, "two workers on a machine")
    with Workers(LINKS["200 Mbit/s"]) as workers:
        raced = workers.do("race", seeds=options.seeds)
        slowed = workers.do("race_slowed", seeds=options.seeds)
    heads = f"{'equal steps':>16}{'equal seconds':>16}{'steps made':>12}"
    print(f"\n{'digits, 200 Mbit/s: loss':30}{heads}")
    for name, runs in raced.items():
        at_steps, at_seconds, steps = (
            statistics.mean(run[key] for run in runs)
            for key in ("loss_at_equal_steps", "loss_at_equal_seconds", "num_steps")
        )
        print(f"{name:30}{at_steps:16.3f}{at_seconds:16.3f}{steps:12.0f}")
    print(f"\n{f'workers slow at times, to loss {SLOWED_LOSS}':40}{'seconds':>10}{'steps':>8}")
    for way, runs in slowed.items():
        seconds, steps = (
            statistics.mean(run[key] for run in runs) for key in ("seconds", "num_steps")
        )
        print(f"{way:40}{seconds:10.2f}{steps:8.0f}")
    machine = {
        "cpus": os.cpu_count(),
        "python": platform.python_version(),
        "torch": torch.__version__,
    }
    stored = {
        "machine": machine,
        "load_average": os.getloadavg()[0],
        "seconds_per_step": times_s,
        "choices": choices,
        "by_nodes": by_nodes_s,
        "race": raced,
        "slowed": slowed,
    }
    RESULTS.write_text(json.dumps(stored, indent=1) + "\n", encoding="utf-8")
    write_tables()


if __name__ == "__main__":
    main()
