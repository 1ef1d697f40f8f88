"""Tiers that are killed, frozen or cut off under requests: each request is answered, and rightly.

`python -m tests.faults tiers`: in every round real processes of a device, an edge and a cloud, or
of three devices that see the same scene and a cloud, get requests over mutual TLS. At a drawn
moment one of them, or the link to the cloud, is killed or frozen; some of the frozen ones are
thawed. Every request must be answered, every answer must be one that the tiers that were alive
could give, and with one device of a scene lost at most three points of accuracy may be lost.
Nothing may be left of the processes. No Ray.
"""

from __future__ import annotations

import argparse
import collections
import dataclasses
import os
import random
import signal
import tempfile
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import psutil

from tests.tiers.processes.running_tiers import RunningTiers, running_tiers
from workbench.tiers.processes.requesting import Reply
from workbench.tiers.processes.tier_settings import Route, StageSettings

FAULTS = ("kill", "freeze", "freeze and thaw")
CHAIN = ("cloud-0", "edge-0", "link-cloud")
DEVICES = ("end-0", "end-1", "end-2")
NUM_REQUESTS = 150
LASTS_S = 2.0
CONFIDENT = 0.9
MAX_POINTS = 0.03
_SHARPER = 4.0
"""The first stage multiplies its inputs by this for the last one."""


@dataclass(frozen=True)
class Fault:
    """What happens in a round.

    Attributes:
        victim: The process it happens to.
        kind: What happens to it.
        monitoring: How tiers notice.
        moment_s: When, from the first request.
        lasts_s: How long a thawed one is frozen.
    """

    victim: str
    kind: str
    monitoring: str
    moment_s: float
    lasts_s: float

    @classmethod
    def draw(cls, seed: int, number: int) -> Fault:
        """Return that of a round: victims and kinds take turns, moments are drawn."""
        chance = random.Random(f"{seed}/{number}")
        victims = (*CHAIN, *DEVICES)
        return cls(
            victims[number % len(victims)],
            FAULTS[number // len(victims) % len(FAULTS)],
            chance.choice(["heartbeat", "none"]),
            chance.uniform(0.1, LASTS_S - 0.3),
            chance.uniform(0.2, 2.0),
        )

    def strike(self, pid: int) -> list[threading.Timer]:
        """Start what will happen."""
        number = signal.SIGKILL if self.kind == "kill" else signal.SIGSTOP
        timers = [threading.Timer(self.moment_s, os.kill, (pid, number))]
        if self.kind == "freeze and thaw":
            timers.append(
                threading.Timer(self.moment_s + self.lasts_s, os.kill, (pid, signal.SIGCONT))
            )
        for timer in timers:
            timer.start()
        return timers


def play(folder: Path, fault: Fault, seed: int) -> list[str]:
    """Play one round; return what is wrong."""
    with running_tiers(folder) as tiers:
        make = _scene if fault.victim in DEVICES else _chain
        starts, samples, judge = make(tiers, fault.monitoring, seed)
        processes = list(tiers.processes.values())
        timers = fault.strike(tiers.processes[fault.victim].pid)
        replies = tiers.ask(
            starts,
            samples,
            np.linspace(0, LASTS_S, NUM_REQUESTS).tolist(),
            timeout_s=60.0,
            is_scene=len(starts) > 1,
        )
        for timer in timers:
            timer.join()
    unanswered = sum(reply.probabilities is None for reply in replies)
    wrong = [f"{unanswered} requests are unanswered"] if unanswered else judge(replies)
    left = [process.what for process in processes if psutil.pid_exists(process.pid)]
    return wrong + ([f"left behind: {left}"] if left else [])


def _play_in_a_folder(fault: Fault, seed: int) -> list[str]:
    with tempfile.TemporaryDirectory(prefix="workbench-tiers-") as folder:
        return play(Path(folder), fault, seed)


Prepared = tuple[list[Route], np.ndarray, Callable[[list[Reply]], list[str]]]


def _chain(tiers: RunningTiers, monitoring: str, seed: int) -> Prepared:
    """Start a device, an edge that only passes on, and a cloud behind a link of 5 ms."""
    options = {"monitoring": monitoring, "timeout_s": 0.5, "heartbeat_s": 0.05}
    first, last = tiers.stages
    cloud = tiers.link(tiers.start("cloud", 2, [StageSettings(1, last)], batch=16), 1e7, 0.005)
    edge = tiers.start("edge", 1, [], routes=(cloud,), **options)
    end = tiers.start(
        "end", 0, [StageSettings(0, first, CONFIDENT)], routes=(edge, cloud), **options
    )
    samples = np.random.default_rng(seed).normal(0, 2, (40, 3)).astype(np.float32)

    def judge(replies: list[Reply]) -> list[str]:
        wrong = []
        for reply in replies:
            values = samples[reply.sample]
            own, others = _softmax(values), _softmax(_SHARPER * values)
            expected = own if reply.tier == 0 else others
            given = reply.probabilities
            if (
                reply.tier not in (0, 2)
                or given is None
                or not np.allclose(given, expected, atol=1e-5)
            ):
                wrong.append(f"sample {reply.sample} got {given} of tier {reply.tier}")
            elif reply.tier == 2 and own.max() >= CONFIDENT:
                wrong.append(
                    f"sample {reply.sample} was sent further although its answer was clear"
                )
        return wrong

    return [end], samples, judge


def _scene(tiers: RunningTiers, monitoring: str, seed: int) -> Prepared:
    """Start three devices that see the same thing, each with noise of its own, and a cloud."""
    first, last = tiers.stages
    options = {"monitoring": monitoring, "timeout_s": 1.0, "heartbeat_s": 0.05}
    cloud = tiers.start(
        "cloud",
        1,
        [StageSettings(1, last)],
        batch=16,
        num_views=len(DEVICES),
        aggregate="mean",
        **options,
    )
    ends = [
        tiers.start("end", 0, [StageSettings(0, first)], device=device, routes=(cloud,), **options)
        for device in range(len(DEVICES))
    ]
    chance = np.random.default_rng(seed)
    classes = chance.integers(3, size=NUM_REQUESTS)
    views = (3.0 * np.eye(3)[classes][:, None] + chance.normal(0, 1, (NUM_REQUESTS, 3, 3))).astype(
        np.float32
    )

    def judge(replies: list[Reply]) -> list[str]:
        wrong, right, right_with_all = [], 0, 0
        for reply in replies:
            assert reply.probabilities is not None
            seen = views[reply.sample]
            able = [
                _softmax(evidence) for evidence in seen
            ]  # a device that reaches nobody answers by itself
            if reply.tier == 1:
                subsets = ([0, 1, 2], [0, 1], [0, 2], [1, 2], [0], [1], [2])
                able = [_softmax(_SHARPER * seen[subset].mean(axis=0)) for subset in subsets]
            if not any(np.allclose(reply.probabilities, one, atol=1e-5) for one in able):
                wrong.append(f"scene {reply.sample} got {reply.probabilities} of tier {reply.tier}")
            right += int(reply.probabilities.argmax() == classes[reply.sample])
            right_with_all += int(seen.mean(axis=0).argmax() == classes[reply.sample])
        lost = (right_with_all - right) / len(replies)
        return [*wrong, f"{lost:.1%} of the answers were lost"] if lost > MAX_POINTS else wrong

    return ends, views, judge


def _softmax(values: np.ndarray) -> np.ndarray:
    raised = np.exp(values - values.max())
    return raised / raised.sum()


def main(words: list[str]) -> int:
    """Run the campaign and return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.faults tiers", description=__doc__)
    parser.add_argument("--rounds", type=int, default=72)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--first", type=int, default=0, help="Begin with this round.")
    given = parser.parse_args(words)
    counts: collections.Counter[tuple[str, str, bool]] = collections.Counter()
    for number in range(given.first, given.first + given.rounds):
        fault = Fault.draw(given.seed, number)
        try:
            wrong = _play_in_a_folder(fault, given.seed * 1000 + number)
        except (
            ConnectionError
        ):  # the device was struck before it was reached, so nothing was requested
            fault = dataclasses.replace(fault, moment_s=LASTS_S)
            wrong = _play_in_a_folder(fault, given.seed * 1000 + number)
        what = "device of a scene" if fault.victim in DEVICES else fault.victim.removesuffix("-0")
        counts[what, fault.kind, not wrong] += 1
        print(
            f"{number:3d} {'WRONG' if wrong else 'well '} {fault}", *wrong, sep="\n    ", flush=True
        )
    for what, kind in sorted({(what, kind) for what, kind, _ in counts}):
        wrong_rounds = counts[what, kind, False]
        print(f"| {what} | {kind} | {counts[what, kind, True] + wrong_rounds} | {wrong_rounds} |")
    return 1 if any(not well for *_, well in counts) else 0
