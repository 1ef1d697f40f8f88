"""Sample the nodes of a run's cluster, store the samples and merge old ones.

Sampling happens in a separate thread that the driver starts and stops, so the driver never waits
for a node. The energy of a trial is computed from the times at which it held its workers. Nothing
here can fail the run: if samples cannot be taken or stored, the run continues without them, and its
log says so.

If the budget limits energy, the energy used is also recorded in the run's events. The driver ends
the run at its limits.

Nodes that join or leave are noted, and so is why the run waits for workers.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from typing import NamedTuple

from workbench.cluster.workers.node_monitors import NodeMonitors
from workbench.cluster.workers.pool_client import Obstacle, obstacle
from workbench.experiment import Budget
from workbench.experiment.budget_units import parse_amount
from workbench.foundation.errors import LeaseError, ResourcesError, WorkbenchError
from workbench.foundation.events import (
    AttemptEnded,
    EnergyMetered,
    Event,
    Noted,
    TrialEnded,
    TrialStarted,
    steady_unix_s,
)
from workbench.foundation.events.runs import write_waiting_note
from workbench.foundation.formatting import format_duration
from workbench.hardware.resources import (
    Assignment,
    ClusterInventory,
    NodeInventory,
    NodeSample,
    Rollup,
    TrialEnergy,
    WatchedWorker,
    cluster_inventory,
)
from workbench.hardware.resources.attribution import attribute
from workbench.hardware.resources.rollups import (
    LEVELS,
    Level,
    Moment,
    aggregate,
    next_span_s,
    outdated_before,
)
from workbench.store.database import RunWriter, Store
from workbench.store.database.samples import (
    EnergyRow,
    SampleRow,
    keep_samples,
    read_energy,
    read_samples,
    replace_samples,
)
from workbench.sweeps.ledger import Ledger
from workbench.sweeps.trial_resources import Share, share_of

logger = logging.getLogger(__name__)

PERIOD_S = 2.0
THIN_EVERY_S = 60.0
ANSWER_S = 1.0
"""How long a round waits for nodes to answer, in seconds."""
LAST_ANSWER_S = 0.3
"""How long the last round waits, when the run has ended."""
END_PATIENCE_S = 5.0
REMEMBER_S = 60.0
"""How long after its end a trial can still be charged with energy."""
IDLE_S = 2 * PERIOD_S
"""How long a worker is sampled after its trial has ended: the next trial is about to start."""
ENERGY_STEP = 0.01
"""Energy is recorded in steps of this share of the limit."""
UNMETERED_S = 60.0
"""How long trials may train before any energy is metered, in seconds."""
CHECK_EVERY_S = 2.0
REPORT_AFTER_S = 10.0
"""How long a run waits before it reports that: workers may take this long to start."""
HELD_UP_AFTER_S = 3.0
"""How long it waits before it reports that others hold the workers that it requests."""
_STARTING = Obstacle(None, ("they are still starting",), ())
"""What a run waits for if nothing is in its way."""


class Round(NamedTuple):
    """The samples of all nodes at one time."""

    time_unix_s: float
    nodes: Mapping[str, NodeSample]
    """The key is Ray's node ID."""


class Monitor:
    """Samples the nodes of a run's cluster every `PERIOD_S` seconds, from `begin` to `end`."""

    def __init__(self, store: Store, ledger: Ledger) -> None:
        """Prepare to sample.

        Args:
            store: The store that holds the run.
            ledger: The events of the run, to which the monitor subscribes.
        """
        self.listeners: list[Callable[[Round], None]] = []
        """Called with each stored round, in the monitor's thread."""
        self._store = store
        self._run_id = ledger.run_id
        self._ledger = ledger
        self._lock = threading.Lock()
        self._present: dict[int, list[Assignment]] = {}
        self._past: list[Assignment] = []
        self._energy: dict[int, TrialEnergy] = {}
        self._unsaved: set[int] = set()
        self._thinned_s = time.monotonic()
        self._ended = threading.Event()
        self._is_wanted = threading.Event()
        """Set when the next round should begin at once."""
        self._rounds = threading.Condition()
        self._num_begun = self._num_done = 0
        self._thread: threading.Thread | None = None
        ledger.listeners.append(self.on_event)

    def begin(self, writer: RunWriter) -> None:
        """Start sampling, and store the samples through `writer`."""
        self._thread = threading.Thread(
            target=self._watch, args=(writer,), name="monitor", daemon=True
        )
        self._thread.start()

    def end(self) -> None:
        """Take a last sample and stop."""
        self._ended.set()
        self._is_wanted.set()
        if self._thread is not None:
            self._thread.join(END_PATIENCE_S)

    @property
    def energy_wh(self) -> float | None:
        """Energy of all trials so far, in watt-hours, or None while nothing is known."""
        metered_wh = [
            used.total_wh for used in list(self._energy.values()) if used.total_wh is not None
        ]
        return sum(metered_wh) if metered_wh else None

    def energy_of(self, number: int, is_read_now: bool = False) -> float | None:
        """Return the energy of a trial so far, in watt-hours, or None if nothing meters it.

        Args:
            number: The trial.
            is_read_now: Whether to read the meters first, rather than use the last round.
        """
        if is_read_now:
            self._complete_round()
        used = self._energy.get(number)
        return None if used is None else used.total_wh

    def _complete_round(self) -> None:
        """Wait until a round that begins from now on is done, unless nodes do not answer."""
        if self._thread is None or not self._thread.is_alive():
            return
        with self._rounds:
            awaited = self._num_begun + 1
            self._is_wanted.set()
            self._rounds.wait_for(lambda: self._num_done >= awaited, timeout=3 * ANSWER_S)

    def on_event(self, event: Event) -> None:
        """Note which workers serve which trial."""
        if isinstance(event, TrialStarted):
            workers = zip(event.worker_pids, event.nodes, event.gpus, strict=False)
            share = self._ledger.history.in_force.resources.gpu_share
            begun = [
                Assignment(
                    trial=event.trial,
                    rank=rank,
                    pid=pid,
                    node=node,
                    gpus=tuple(gpus),
                    gpu_share=share,
                    began_unix_s=event.time_unix_s,
                )
                for rank, (pid, node, gpus) in enumerate(workers)
            ]
            with self._lock:
                self._present[event.trial] = begun
        elif isinstance(event, TrialEnded | AttemptEnded):
            with self._lock:
                ended = self._present.pop(event.trial, ())
                self._past += [replace(tenure, ended_unix_s=event.time_unix_s) for tenure in ended]

    def _watch(self, writer: RunWriter) -> None:
        samplers = None
        try:
            self._energy = {
                row.trial: TrialEnergy(row.gpu_j, row.cpu_j)
                for row in read_energy(self._store, self._run_id)
            }
            samplers = NodeMonitors()
            is_last = was_logged = False
            while not is_last:
                is_last = self._ended.is_set()
                began_s = time.monotonic()
                with self._rounds:
                    self._num_begun += 1
                try:
                    self._sample(samplers, writer)
                except LeaseError:
                    raise
                except Exception:  # a cluster that does not answer now may do so the next time
                    if not was_logged:
                        logger.exception("the nodes of this run could not be sampled")
                    was_logged = True
                with self._rounds:
                    self._num_done = self._num_begun
                    self._rounds.notify_all()
                if not is_last:
                    self._is_wanted.wait(max(0.0, PERIOD_S - (time.monotonic() - began_s)))
                    self._is_wanted.clear()
        except LeaseError:
            pass  # another driver has taken over the run, and samples
        except Exception:
            logger.exception("the nodes of this run are no longer sampled")
        finally:
            if samplers is not None:
                samplers.close()

    def _sample(self, samplers: NodeMonitors, writer: RunWriter) -> None:
        now_s = steady_unix_s()
        employed: dict[str, list[WatchedWorker]] = {}
        for tenure in self._tenures(now_s):
            if tenure.ended_unix_s is not None and now_s - tenure.ended_unix_s > IDLE_S:
                continue
            worker = WatchedWorker(tenure.pid, tenure.trial, tenure.rank, tenure.gpus)
            employed.setdefault(tenure.node, []).append(worker)
        new_round = Round(
            now_s, samplers.collect(employed, LAST_ANSWER_S if self._ended.is_set() else ANSWER_S)
        )
        tenures = self._tenures(now_s)  # some may have begun or ended meanwhile
        for node, sample in new_round.nodes.items():
            used = attribute(node, sample, tenures, self._energy)
            self._energy |= used
            self._unsaved |= {trial for trial in used if used[trial].is_known}
        self._store_round(new_round, writer)

    def _tenures(self, now_s: float) -> list[Assignment]:
        """Return the workers that recently served a trial, followed by those that serve one now."""
        with self._lock:
            self._past = [
                tenure
                for tenure in self._past
                if now_s - (tenure.ended_unix_s or now_s) < REMEMBER_S
            ]
            return [*self._past, *(tenure for begun in self._present.values() for tenure in begun)]

    def _store_round(self, new_round: Round, writer: RunWriter) -> None:
        now_s = new_round.time_unix_s
        rows = [
            SampleRow(0, now_s, node, Rollup(sample).to_json())
            for node, sample in new_round.nodes.items()
        ]
        used = [
            EnergyRow(trial, self._energy[trial].gpu_j, self._energy[trial].cpu_j)
            for trial in self._unsaved
        ]
        try:
            keep_samples(writer, rows, used)
            self._unsaved.clear()
            for listener in self.listeners:
                listener(new_round)
            if time.monotonic() - self._thinned_s > THIN_EVERY_S:
                self._thinned_s = time.monotonic()
                for level in LEVELS:
                    thin(self._store, self._run_id, writer, level, now_s)
        except LeaseError:
            raise
        except WorkbenchError as error:
            # The driver waits for a store that is unavailable. Samples are not worth a wait.
            logger.warning("node samples cannot be stored at the moment: %s", error)


def thin(store: Store, run_id: str, writer: RunWriter, level: Level, now_unix_s: float) -> None:
    """Merge old samples of one level into longer spans, or delete them on the last level.

    Args:
        store: The store that holds the run.
        run_id: The run.
        writer: The run's writer.
        level: The level.
        now_unix_s: The time now, in seconds since 1970.
    """
    until_s = outdated_before(level, now_unix_s)
    rows = read_samples(store, run_id, span_s=level.span_s, until_unix_s=until_s)
    if not rows:
        return
    replaced = {level.span_s: (0.0, until_s)}
    longer_s = next_span_s(level)
    if longer_s is None:
        replace_samples(writer, replaced, [])
        return
    # Longer spans may exist already if a clock was set back. Then the samples are merged into them.
    since_s = rows[0].time_unix_s // longer_s * longer_s
    rows += read_samples(store, run_id, span_s=longer_s, since_unix_s=since_s, until_unix_s=until_s)
    replaced[longer_s] = (since_s, until_s)
    spans = ((Moment(row.node, row.time_unix_s), Rollup.from_json(row.payload)) for row in rows)
    lengthened = aggregate(level, spans)
    replace_samples(
        writer,
        replaced,
        [
            SampleRow(longer_s, moment.time_unix_s, moment.node, span.to_json())
            for moment, span in lengthened.items()
        ],
    )


class EnergyLimit:
    """Records the energy that the trials use, if the budget limits it.

    It also ends a run that improves or limits the energy of trials, if nothing meters it.
    """

    def __init__(self, ledger: Ledger, metered_wh: Callable[[], float | None]) -> None:
        """Record in `ledger` the watt-hours that `metered_wh` returns, if it returns any."""
        self._ledger = ledger
        self._metered_wh = metered_wh

    def tick(self) -> None:
        """Record the energy used since the last event, if it is enough for another one.

        Raises:
            ResourcesError: If trials have trained for a while, and nothing meters them.
        """
        history = self._ledger.history
        if history.in_force.energy_field is None:
            return
        limit_wh = self._limit_wh(history.in_force.budget)
        used_wh = self._metered_wh()
        if used_wh is None:
            self._check_meter()
            return
        if limit_wh is None:
            return
        known_wh = history.energy_wh or 0.0
        if used_wh - known_wh >= ENERGY_STEP * limit_wh or known_wh < limit_wh <= used_wh:
            self._ledger.record(EnergyMetered(total_wh=used_wh))

    def _limit_wh(self, budget: Budget) -> float | None:
        """Return the energy at which something happens, or None if nothing depends on it."""
        limits_wh = [] if budget.energy is None else [budget.energy]
        if budget.gain is not None:
            amount = parse_amount(budget.gain.per, budget.price)
            if amount.kind == "energy":
                limits_wh.append(amount.number)
        return min(limits_wh, default=None)

    def _check_meter(self) -> None:
        now_s = steady_unix_s()
        trained_s = sum(
            trial.trained_s
            + trial.attempt_s(now_s if trial.state == "running" else trial.last_event_unix_s)
            for trial in self._ledger.history.trials.values()
            if trial.attempts
        )
        if trained_s > UNMETERED_S:
            raise ResourcesError(
                f"trials have trained for {format_duration(round(trained_s))}, but nothing meters"
                " their energy",
                field=self._ledger.history.in_force.energy_field,
                next_step="Remove it, or limit the run by budget.time or budget.trials.",
            )


class Hardware:
    """Tracks the nodes of the cluster for one run."""

    def __init__(self, ledger: Ledger) -> None:
        """Track nodes for the run of `ledger`, and record changes there."""
        self._ledger = ledger
        self._nodes: dict[str, NodeInventory] = {}
        self._next_check_s = 0.0

    def begin(self, *, patience_s: float) -> tuple[ClusterInventory, Share]:
        """Note the current nodes, and return them with what the run may use of them.

        Args:
            patience_s: How long to wait if there are too few nodes, in seconds. After a node is
                lost, its driver is restarted before the node is back.

        Raises:
            ResourcesError: If the cluster cannot hold one trial even when empty.
        """
        until_s, is_noted = time.monotonic() + patience_s, False
        while True:
            cluster = cluster_inventory()
            self._nodes = _by_id(cluster)
            self._next_check_s = time.monotonic() + CHECK_EVERY_S
            try:
                return cluster, share_of(
                    self._ledger.run_id, self._ledger.history.in_force, cluster
                )
            except ResourcesError as error:
                if time.monotonic() >= until_s:
                    raise
                if not is_noted:
                    self._ledger.record(
                        Noted(level="warning", message=write_waiting_note("nodes", error.problem))
                    )
                is_noted = True
                time.sleep(CHECK_EVERY_S)

    def has_changed(self) -> bool:
        """Return whether nodes joined or left, and record it.

        Checks only every `CHECK_EVERY_S` seconds.
        """
        if time.monotonic() < self._next_check_s:
            return False
        self._next_check_s = time.monotonic() + CHECK_EVERY_S
        before, self._nodes = self._nodes, _by_id(cluster_inventory())
        joined = [node for node_id, node in self._nodes.items() if node_id not in before]
        left = [node for node_id, node in before.items() if node_id not in self._nodes]
        notes = [
            Noted(level="info", message=f"{_describe(node)} joined the cluster") for node in joined
        ]
        notes += [
            Noted(level="warning", message=f"{_describe(node)} left the cluster") for node in left
        ]
        if notes:
            self._ledger.record(*notes)
        return bool(notes)


def _by_id(cluster: ClusterInventory) -> dict[str, NodeInventory]:
    return {node.node_id: node for node in cluster.nodes}


def _describe(node: NodeInventory) -> str:
    gpus = f" and {node.num_gpus:g} GPUs" if node.num_gpus else ""
    return f"node {node.host} ({node.node_id[:8]}) with {node.num_cpus:g} CPUs{gpus}"


class Waiting:
    """Watches the started trials of one run, and reports when none of them gets workers."""

    def __init__(self, ledger: Ledger) -> None:
        """Watch the run of `ledger`. Notes are recorded there."""
        self._ledger = ledger
        self._report_s: float | None = None
        self._start_s = 0.0  # until then, workers may start
        self._reported: Obstacle | None = None

    def tick(self, trials: Collection[int]) -> None:
        """Check whether the run waits, and report what for.

        Args:
            trials: Numbers of the trials that were started and have not ended.
        """
        all_trials, now_s = self._ledger.history.trials, time.monotonic()
        if not trials or any(all_trials[number].state != "waiting" for number in trials):
            self._report_s, self._reported = None, None
        elif self._report_s is None:
            self._report_s = now_s + HELD_UP_AFTER_S
            self._start_s = now_s + REPORT_AFTER_S
        elif now_s >= self._report_s:
            self._report_s = now_s + REPORT_AFTER_S
            in_the_way = obstacle(self._ledger.run_id)
            if in_the_way is None and self._reported is None:
                in_the_way = _STARTING
            if in_the_way is None or in_the_way.is_like(self._reported):
                return
            is_held_up = in_the_way.num_ahead is not None  # else its workers are starting
            if not is_held_up and now_s < self._start_s:
                self._report_s = self._start_s
                return
            self._reported = in_the_way
            message = write_waiting_note("workers", str(in_the_way))
            self._ledger.record(Noted(level="info", message=message, is_held_up=is_held_up))
