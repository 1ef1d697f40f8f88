"""One fault after another: start a sweep, kill something at a drawn moment, resume, hold it to account."""

from __future__ import annotations

import contextlib
import json
import random
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from tests.faults.evidence import Findings, Record, compare
from tests.faults.house import DEADLINE_S, ROOT, VICTIMS, House, answers, finish, wait_until
from tests.faults.sweeps import make_fields, names
from workbench.experiment import Experiment

CLEAN_WITHIN_S = 60.0
ENDS_THE_HEAD = frozenset({"raylet", "head", "cluster"})


@dataclass(frozen=True)
class Fault:
    """What is killed in which sweep, and when."""

    victim: str
    sweep: str
    num_workers: int
    moment: float
    """Part of the undisturbed run's duration, from 0 to 1."""
    lot: float
    """Which process, where there are several, from 0 to 1."""

    @classmethod
    def draw(cls, seed: int, number: int, worker_counts: tuple[int, ...] = (1, 2)) -> Fault:
        """Draw the fault of a round: victims take turns, chance decides the rest."""
        chance = random.Random(f"{seed}/{number}")
        num_workers = worker_counts[number // len(VICTIMS) % len(worker_counts)]
        sweep = chance.choice(names(num_workers))
        return cls(VICTIMS[number % len(VICTIMS)], sweep, num_workers, chance.random(), chance.random())

    def __str__(self) -> str:
        return f"{self.victim} in {self.sweep!r} x{self.num_workers} at {self.moment:.2f}"


@dataclass
class Outcome:
    """What came of a fault."""

    fault: Fault
    recovery_s: float | None
    findings: Findings
    notes: list[str] = field(default_factory=list)

    @property
    def recovered(self) -> bool:
        return not self.findings.wrong


class Campaign:
    """Faults in one house, which they share as long as it stands."""

    def __init__(self, house: House) -> None:
        self._house = house
        self._undisturbed: dict[tuple[str, int], tuple[Record, float]] = {}

    def suffer(self, fault: Fault) -> Outcome:
        """Run a sweep, let the fault happen, and return what came of it."""
        while True:
            undisturbed, duration_s = self._reference(fault.sweep, fault.num_workers)
            launching, run_id = self._start(fault.sweep, fault.num_workers)
            began_s = time.monotonic()
            if not self._has_ended_within(fault.moment * duration_s, run_id):
                break
            # Everything was warmer than before: the same moment of a shorter course.
            finish(launching)
            self._undisturbed[fault.sweep, fault.num_workers] = undisturbed, time.monotonic() - began_s
        head = self._house.record()
        before, killed_s = self._kill(fault, run_id)
        notes = []
        code, said = finish(launching)
        if code != 0:
            notes.append(f"sweep --detach: {code}: {said.strip()[-300:]}")
        if fault.victim in ENDS_THE_HEAD or code != 0:
            notes += self._resume(run_id)
        self._has_ended_within(DEADLINE_S, run_id)
        after = Record.read(self._house.store, run_id)
        findings = compare(before, after, undisturbed)
        findings.wrong += self._left_behind(head if fault.victim in ENDS_THE_HEAD else None)
        return Outcome(fault, _recovery_s(before, after, killed_s), findings, notes)

    def _reference(self, sweep: str, num_workers: int) -> tuple[Record, float]:
        """What the sweep does when nothing happens to it, and how long it takes, in seconds."""
        if (sweep, num_workers) not in self._undisturbed:
            launching, run_id = self._start(sweep, num_workers)
            began_s = time.monotonic()
            code, said = finish(launching)
            if code != 0:
                raise RuntimeError(f"the undisturbed sweep did not start: {said}")
            self._has_ended_within(DEADLINE_S, run_id)
            record = Record.read(self._house.store, run_id)
            self._undisturbed[sweep, num_workers] = record, time.monotonic() - began_s
        return self._undisturbed[sweep, num_workers]

    def _start(self, sweep: str, num_workers: int) -> tuple[subprocess.Popen[str], str]:
        """Start a sweep and return as soon as the store knows it."""
        path = self._house.folder / "experiment.yaml"
        path.write_text(Experiment(**make_fields(sweep, num_workers)).to_yaml())
        known = {run.run_id for run in self._house.store.runs()}
        launching = self._house.begin("sweep", str(path), "--detach")

        def new_run() -> str | None:
            return next((run.run_id for run in self._house.store.runs() if run.run_id not in known), None)

        return launching, wait_until(new_run, "a run in the store")

    def _kill(self, fault: Fault, run_id: str) -> tuple[Record, float]:
        """Kill the victim, waiting for one to appear; return what was stored, and when in Unix seconds."""
        house = self._house
        victims = wait_until(lambda: house.find(fault.victim) or self._has_ended(run_id), fault.victim)
        if victims is True:
            victims = []  # too late: the run did not need it any more
        elif fault.victim != "cluster":
            victims = [victims[int(fault.lot * len(victims))]]
        before = Record.read(house.store, run_id)
        killed_s = time.time()
        for process in victims:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.send_signal(signal.SIGKILL)
        return before, killed_s

    def _resume(self, run_id: str) -> list[str]:
        if self._house.store.run(run_id).state == "complete":
            return []
        code, said = self._house.command("resume", run_id)
        return [] if code == 0 else [f"resume: {code}: {said.strip()[-300:]}"]

    def _has_ended(self, run_id: str) -> bool:
        return self._house.store.run(run_id).state in ("complete", "failed", "stopped")

    def _has_ended_within(self, timeout_s: float, run_id: str) -> bool:
        def has_ended() -> bool:
            self._house.processes()  # remembers who was there
            return self._has_ended(run_id)

        return wait_until(has_ended, "the end", timeout_s, or_not=True)

    def _left_behind(self, ended_head: dict[str, Any] | None) -> list[str]:
        """Look for what no run may leave behind."""
        house = self._house
        wrong = []
        if house.processes():
            wrong += self._left_on_the_cluster()
        if ended_head is not None:
            gone = lambda: not house.outlived() and not answers(ended_head["address"])  # noqa: E731
            wait_until(gone, "the end of the killed head", CLEAN_WITHIN_S, or_not=True)
            if answers(ended_head["address"]):
                wrong.append(f"the killed head still listens at {ended_head['address']}")
        if outlived := house.outlived():
            wrong.append(f"processes of an earlier head live: {outlived}")
        return wrong + [f"left behind: {path}" for path in self._left_files()]

    def _left_on_the_cluster(self) -> list[str]:
        program = [sys.executable, "-m", "tests.faults.look_at_cluster", str(CLEAN_WITHIN_S)]
        done = subprocess.run(
            program, env=self._house.environment, cwd=ROOT, capture_output=True, text=True, timeout=DEADLINE_S
        )
        if done.returncode != 0:
            return [f"the cluster does not answer: {done.stderr.strip()[-300:]}"]
        found = json.loads(done.stdout.splitlines()[-1])
        wrong = [] if found.pop("clean") else [f"left on the cluster: {found}"]
        for pid, title in self._house.titles().items():
            idle = title.startswith("ray::Worker") and pid in found.get("idle_pids", ())
            if title.startswith(("ray::Driver", "ray::ResourceTrainable", "ray::Worker")) and not idle:
                wrong.append(f"process {pid} lives: {title}")
        return wrong

    def _left_files(self) -> Iterable[str]:
        house = self._house
        record = house.record()
        session = [] if record is None else [record["temp_dir"]]
        for folder in [house.artifacts, house.home, *session]:
            for path in Path(folder).rglob("*"):
                if path.name.endswith((".tmp", ".unfinished")) or path.name.startswith("workbench-tune-"):
                    yield str(path)
        known = {"head.json", "head.log", "last_used", "lock", "token"}
        yield from (str(path) for path in (house.home / "head").iterdir() if path.name not in known)


def _recovery_s(before: Record, after: Record, killed_s: float) -> float | None:
    """Seconds from the kill until the run was driven, or the trial that was hit trained, again."""
    new = after.events[len(before.rows) :]
    again = (event for event in new if event.type == "driver_started" or getattr(event, "attempt", 0) > 0)
    first = next(again, new[0] if new else None)
    return None if first is None else max(0.0, first.time_unix_s - killed_s)


def table(outcomes: list[Outcome]) -> str:
    """The campaign in one table."""
    lines = [
        "| fault | workers a trial | times | lost | recovered | seconds to recover, median (longest) |",
        "|---|---|---|---|---|---|",
    ]
    for victim in VICTIMS:
        for num_workers in sorted({outcome.fault.num_workers for outcome in outcomes}):
            hit = [
                item
                for item in outcomes
                if (item.fault.victim, item.fault.num_workers) == (victim, num_workers)
            ]
            if not hit:
                continue
            took = [item.recovery_s for item in hit if item.recovery_s is not None]
            seconds = f"{statistics.median(took):.1f} ({max(took):.1f})" if took else "-"
            lost, recovered = sum(item.findings.num_lost for item in hit), sum(item.recovered for item in hit)
            lines.append(f"| {victim} | {num_workers} | {len(hit)} | {lost} | {recovered} | {seconds} |")
    return "\n".join(lines)
