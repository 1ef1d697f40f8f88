"""Round after round: start a sweep, let faults happen at drawn moments, resume, hold it to
account.
"""

from __future__ import annotations

import contextlib
import json
import random
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from tests.faults.evidence import Findings, Record, compare
from tests.faults.house import (
    CHECKPOINTS_REMOVED,
    DEADLINE_S,
    REPLACED,
    ROOT,
    VICTIMS,
    House,
    finish,
)
from tests.faults.sweeps import make_fields, names, num_trials
from tests.services.waiting import try_until, wait_until
from workbench.experiment import Experiment
from workbench.foundation.errors import StoreUnavailableError
from workbench.runs.waiting import PATIENCE_S
from workbench.sweeps.ledger import STORE_PATIENCE_S

CLEAN_WITHIN_S = 300.0
TARGET_WITHIN_S = 300.0
START_S = 60.0
"""How long before its first event a run may have been stored."""
LOST_FOR_S = PATIENCE_S
"""How long a run is lost before somebody resumes it: as long as users wait for Ray to restart its
driver.
"""


@dataclass(frozen=True)
class Fault:
    """What happens to whom, and when."""

    victim: str
    moment: float
    """Part of the undisturbed run's duration, from 0 to 1."""
    lot: float
    """Which process or machine, where there are several, from 0 to 1."""
    patience: float = 0.0
    """How long it lasts, where it passes, from 0 to 1."""

    def __str__(self) -> str:
        return f"{self.victim} at {self.moment:.2f}"


@dataclass(frozen=True)
class Round:
    """A sweep, and the faults that happen to it."""

    sweep: str
    num_workers: int
    faults: tuple[Fault, ...]

    @classmethod
    def draw(
        cls,
        seed: int,
        number: int,
        worker_counts: tuple[int, ...] = (1, 2),
        victims: tuple[str, ...] = VICTIMS,
        others: tuple[str, ...] = (),
    ) -> Round:
        """Draw a round: victims take turns, chance decides the rest.

        Args:
            seed: Of the campaign.
            number: Of the round.
            worker_counts: Workers a trial, in turns.
            victims: Whom the first fault hits, in turns.
            others: Whom a second one may hit, in every other round or so.
        """
        chance = random.Random(f"{seed}/{number}")
        num_workers = worker_counts[number // len(victims) % len(worker_counts)]
        sweep = chance.choice(names(num_workers))
        faults = [
            Fault(victims[number % len(victims)], chance.random(), chance.random(), chance.random())
        ]
        if others and chance.random() < 0.5:
            faults.append(
                Fault(chance.choice(others), chance.random(), chance.random(), chance.random())
            )
        return cls(sweep, num_workers, tuple(sorted(faults, key=lambda fault: fault.moment)))

    def __str__(self) -> str:
        return f"{', '.join(map(str, self.faults))} in {self.sweep!r} x{self.num_workers}"


@dataclass
class Hit:
    """A fault that has happened."""

    fault: Fault
    before: Record
    """What was stored when it happened."""
    stood_until_s: float
    """Until when nothing could go on, in Unix seconds."""
    recovery_s: float | None = None


@dataclass
class Outcome:
    """What came of a round."""

    round: Round
    hits: list[Hit]
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

    def suffer(self, round_: Round) -> Outcome:
        """Run a sweep, let the faults happen, and return what came of it."""
        sweep, num_workers = round_.sweep, round_.num_workers
        while True:
            undisturbed, duration_s = self._reference(sweep, num_workers)
            launching, run_id = self._start(sweep, num_workers)
            began_s = time.monotonic()
            if not self._has_ended_within(round_.faults[0].moment * duration_s, run_id):
                break
            # Everything was warmer than before: the same moment of a shorter course.
            finish(launching)
            self._undisturbed[sweep, num_workers] = undisturbed, time.monotonic() - began_s
        hits, notes = self._play(round_.faults, run_id, began_s, duration_s)
        code, said = finish(launching)
        if code != 0:
            notes.append(f"sweep --detach: {code}: {said.strip()[-300:]}")
        findings = Findings()
        if code != 0 or any(hit.fault.victim in self._house.ends_all for hit in hits):
            notes += self._resume(run_id)
        elif self._stays_lost(run_id):
            notes.append(f"it was {self._house.store.run(run_id).state}, and resumed")
            if not any(self._may_end_the_driver(hit.fault) for hit in hits):
                findings.wrong.append("its driver did not come back by itself")
            notes += self._resume(run_id)
        self._has_ended_within(DEADLINE_S, run_id)
        after = Record.read(self._house.store, run_id)
        were_removed = any(hit.fault.victim == CHECKPOINTS_REMOVED for hit in hits)
        findings.add(
            compare(
                [hit.before for hit in hits],
                after,
                undisturbed,
                checkpoints_were_removed=were_removed,
            )
        )
        findings.wrong += self._house.wrong_in(after, time.monotonic() - began_s + START_S)
        findings.wrong += self._left_behind()
        self._house.tidy()
        for hit in hits:
            hit.recovery_s = _recovery_s(hit, after)
        return Outcome(round_, hits, findings, notes)

    def _play(
        self, faults: Iterable[Fault], run_id: str, began_s: float, duration_s: float
    ) -> tuple[list[Hit], list[str]]:
        """Let faults happen at their moments, and pass; return those that did, and what is odd."""
        hits: list[Hit] = []
        notes: list[str] = []
        passing: list[tuple[float, Hit, Callable[[], None]]] = []

        def let_pass(until_s: float) -> None:
            while passing:
                end_s, hit, pass_ = min(passing, key=lambda each: each[0])
                if end_s > until_s:
                    return
                self._wait_until(end_s)
                passing.remove((end_s, hit, pass_))
                if hit.fault.victim == REPLACED:
                    notes.extend(self._resume(run_id, "--detach"))
                pass_()
                if hit.fault.victim in ("store", "head"):
                    hit.stood_until_s = time.time()
                if hit.fault.victim in self._house.ends_all:
                    notes.extend(self._resume(run_id, "--detach"))  # what comes next hits it again

        try:
            for fault in faults:
                moment_s = began_s + fault.moment * duration_s
                alone = "head" in (fault.victim, *(hit.fault.victim for _, hit, _ in passing))
                let_pass(float("inf") if alone else moment_s)
                self._wait_until(moment_s)
                targets = self._targets(fault, run_id)
                if not targets:
                    notes.append(f"there was no {fault.victim} any more")
                    continue
                hit = Hit(fault, self._read(run_id, hits), time.time())
                pass_ = self._house.strike(fault.victim, targets[int(fault.lot * len(targets))])
                hits.append(hit)
                if pass_ is not None:
                    passing.append((time.monotonic() + self._house.lasts_s(fault), hit, pass_))
        finally:
            let_pass(float("inf"))
        return hits, notes

    def _wait_until(self, moment_s: float) -> None:
        """Wait, and remember who was there."""
        while (left_s := moment_s - time.monotonic()) > 0:
            self._house.processes()
            time.sleep(min(left_s, 0.1))

    def _targets(self, fault: Fault, run_id: str) -> list[Any]:
        """Wait for somebody to hit; nobody is there when the run needs them no more."""
        find = lambda: self._house.find(fault.victim) or self._has_ended(run_id)  # noqa: E731
        targets = try_until(find, TARGET_WITHIN_S)
        return targets if isinstance(targets, list) else []

    def _read(self, run_id: str, hits: list[Hit]) -> Record:
        """Read what is stored; what was stored at the fault before where the store is away."""
        try:
            return Record.read(self._house.store, run_id)
        except StoreUnavailableError:
            return hits[-1].before

    def _may_end_the_driver(self, fault: Fault) -> bool:
        """Return whether a fault is long enough that a run rightly ends and waits for somebody."""
        return fault.victim == "store" and self._house.lasts_s(fault) > STORE_PATIENCE_S - 15

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
            if len(record.history.trials) != num_trials(
                sweep
            ):  # fewer would leave faults nothing to hit
                raise RuntimeError(f"the undisturbed sweep had {len(record.history.trials)} trials")
            self._undisturbed[sweep, num_workers] = record, time.monotonic() - began_s
        return self._undisturbed[sweep, num_workers]

    def _start(self, sweep: str, num_workers: int) -> tuple[subprocess.Popen[str], str]:
        """Start a sweep and return as soon as the store knows it."""
        path = self._house.work / "experiment.yaml"
        fields = make_fields(sweep, num_workers, self._house.more_resources)
        path.write_text(Experiment(**fields).to_yaml())
        known = {run.run_id for run in self._house.store.runs()}
        launching = self._house.begin("sweep", str(path), "--detach")

        def new_run() -> str | None:
            return next(
                (run.run_id for run in self._house.store.runs() if run.run_id not in known), None
            )

        return launching, wait_until(new_run, DEADLINE_S, what="a run in the store")

    def _resume(self, run_id: str, *options: str) -> list[str]:
        if self._state(run_id) == "complete":
            return []
        code, said = self._house.command("resume", run_id, *options)
        return [] if code == 0 else [f"resume: {code}: {said.strip()[-300:]}"]

    def _state(self, run_id: str) -> str | None:
        """The state of the run, or None where the store does not say."""
        with contextlib.suppress(StoreUnavailableError):
            return self._house.store.run(run_id).state
        return None

    def _has_ended(self, run_id: str) -> bool:
        return self._state(run_id) in ("complete", "failed", "stopped")

    def _stays_lost(self, run_id: str) -> bool:
        """Wait for the end, and say whether somebody has to resume the run for it to come."""
        lost_since_s: float | None = None
        until_s = time.monotonic() + DEADLINE_S
        while time.monotonic() < until_s and (state := self._state(run_id)) != "complete":
            self._house.processes()
            if state == "failed":
                return True
            lost_since_s = (lost_since_s or time.monotonic()) if state == "lost" else None
            if lost_since_s is not None and time.monotonic() - lost_since_s > LOST_FOR_S:
                return True
            time.sleep(0.1)
        return False

    def _has_ended_within(self, timeout_s: float, run_id: str) -> bool:
        def has_ended() -> bool:
            self._house.processes()  # remembers who was there
            return self._has_ended(run_id)

        return try_until(has_ended, timeout_s)

    def _left_behind(self) -> list[str]:
        """Look for what no run may leave behind."""
        house = self._house
        wrong = self._left_on_the_cluster() if house.processes() else []
        try_until(lambda: not house.outlived(), CLEAN_WITHIN_S)
        if outlived := house.outlived():
            wrong.append(f"of an earlier head there are: {outlived}")
        return wrong + [f"left behind: {path}" for path in house.left_files()]

    def _left_on_the_cluster(self) -> list[str]:
        program = [sys.executable, "-m", "tests.faults.look_at_cluster", str(CLEAN_WITHIN_S)]
        done = subprocess.run(
            program,
            env=self._house.environment,
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=DEADLINE_S,
        )
        if done.returncode != 0:
            return [f"the cluster does not answer: {done.stderr.strip()[-300:]}"]
        found = json.loads(done.stdout.splitlines()[-1])
        wrong = [] if found.pop("clean") else [f"left on the cluster: {found}"]

        def left() -> dict[int, str]:
            titles = self._house.titles()
            idle = {
                pid
                for pid in found.get("idle_pids", ())
                if titles.get(pid, "").startswith("ray::Worker")
            }
            ours = ("ray::Driver", "ray::Worker")
            return {
                pid: title
                for pid, title in titles.items()
                if title.startswith(ours) and pid not in idle
            }

        try_until(lambda: not left(), CLEAN_WITHIN_S)
        return wrong + [f"process {pid} lives: {title}" for pid, title in left().items()]


def _recovery_s(hit: Hit, after: Record) -> float | None:
    """Seconds from the fault until the run was driven, or the trial that was hit trained, again."""
    new = after.events[len(hit.before.rows) :]
    again = (
        event for event in new if event.type == "driver_started" or getattr(event, "attempt", 0) > 0
    )
    first = next(again, new[0] if new else None)
    return None if first is None else max(0.0, first.time_unix_s - hit.stood_until_s)


def table(outcomes: list[Outcome]) -> str:
    """The campaign in one table."""
    lines = [
        (
            "| fault | workers a trial | times | lost | recovered | seconds to recover, median"
            " (longest) |"
        ),
        "|---|---|---|---|---|---|",
    ]
    happened = [(hit, outcome) for outcome in outcomes for hit in outcome.hits]
    keys = dict.fromkeys((hit.fault.victim, outcome.round.num_workers) for hit, outcome in happened)
    for victim, num_workers in sorted(keys):
        here = [
            (hit, outcome)
            for hit, outcome in happened
            if (hit.fault.victim, outcome.round.num_workers) == (victim, num_workers)
        ]
        took = [hit.recovery_s for hit, _ in here if hit.recovery_s is not None]
        seconds = f"{statistics.median(took):.1f} ({max(took):.1f})" if took else "-"
        lost = sum(outcome.findings.num_lost for _, outcome in here)
        recovered = sum(outcome.recovered for _, outcome in here)
        lines.append(
            f"| {victim} | {num_workers} | {len(here)} | {lost} | {recovered} | {seconds} |"
        )
    return "\n".join(lines)
