"""What the machines of a run's cluster do while it is driven, looked at, stored and thinned with age.

A thread of its own does it, so the driver never waits for a node; the driver only begins and ends it. From
who held which worker when, it adds up the energy of each trial. Nothing here can fail the run: where samples
cannot be taken or stored, the run goes on without them, and its log says so.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import NamedTuple

from workbench.errors import LeaseError, WorkbenchError
from workbench.events import AttemptEnded, Event, TrialEnded, TrialStarted
from workbench.resources import Employed, NodeSample, Span, Tenure, TrialEnergy
from workbench.resources.attribution import attribute
from workbench.resources.thinning import LEVELS, Level, Moment, lengthen, next_span_s, outdated_before
from workbench.store import RunWriter, Store
from workbench.store.samples import (
    EnergyRow,
    SampleRow,
    keep_samples,
    read_energy,
    read_samples,
    replace_samples,
)
from workbench.sweeps.ledger import Ledger
from workbench.workers.samplers import Samplers

logger = logging.getLogger(__name__)

PERIOD_S = 2.0
THIN_EVERY_S = 60.0
ANSWER_S = 1.0
"""How long a round waits for nodes to answer."""
LAST_ANSWER_S = 0.3
"""How long the last one waits: the run has ended."""
END_PATIENCE_S = 5.0
REMEMBER_S = 60.0
"""How long a trial that has ended can still be found to have used something."""
IDLE_S = 2 * PERIOD_S
"""How long a worker is still looked at when its trial has ended: the next one is about to begin."""


class Round(NamedTuple):
    """What was seen of all nodes at once."""

    time_unix_s: float
    nodes: Mapping[str, NodeSample]
    """By what Ray calls them."""


class Monitor:
    """Looks at the nodes of a run's cluster, every `PERIOD_S`, from `begin` to `end`."""

    def __init__(self, store: Store, ledger: Ledger) -> None:
        """Prepare to look.

        Args:
            store: The store that holds the run.
            ledger: What happens in the run; listened to.
        """
        self.listeners: list[Callable[[Round], None]] = []
        """Called with each round that was stored, in the monitor's thread."""
        self._store = store
        self._run_id = ledger.run_id
        wanted = ledger.experiment.resources.gpus_per_worker
        self._gpu_share = 1.0 if wanted == "auto" else min(1.0, wanted)
        self._lock = threading.Lock()
        self._present: dict[int, list[Tenure]] = {}
        self._past: list[Tenure] = []
        self._energy: dict[int, TrialEnergy] = {}
        self._unsaved: set[int] = set()
        self._thinned_s = time.monotonic()
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None
        ledger.listeners.append(self.hear)

    def begin(self, writer: RunWriter) -> None:
        """Look from now on, and store through `writer` what is seen."""
        self._thread = threading.Thread(target=self._watch, args=(writer,), name="monitor", daemon=True)
        self._thread.start()

    def end(self) -> None:
        """Look once more, and then no more."""
        self._ended.set()
        if self._thread is not None:
            self._thread.join(END_PATIENCE_S)

    def hear(self, event: Event) -> None:
        """Take note of who serves which trial."""
        if isinstance(event, TrialStarted):
            workers = zip(event.worker_pids, event.nodes, event.gpus, strict=False)
            begun = [
                Tenure(event.trial, rank, pid, node, tuple(gpus), self._gpu_share, event.time_unix_s)
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
                row.trial: TrialEnergy(row.gpu_j, row.cpu_j) for row in read_energy(self._store, self._run_id)
            }
            samplers = Samplers()
            is_last = was_told = False
            while not is_last:
                is_last = self._ended.is_set()
                began_s = time.monotonic()
                try:
                    self._look(samplers, writer)
                except LeaseError:
                    raise
                except Exception:  # a cluster that does not answer now may do so the next time
                    if not was_told:
                        logger.exception("a look at the machines of this run failed")
                    was_told = True
                self._ended.wait(max(0.0, PERIOD_S - (time.monotonic() - began_s)))
        except LeaseError:
            pass  # whoever drives the run now looks, too
        except Exception:
            logger.exception("nobody looks at the machines of this run any more")
        finally:
            if samplers is not None:
                samplers.close()

    def _look(self, samplers: Samplers, writer: RunWriter) -> None:
        now_s = time.time()
        employed: dict[str, list[Employed]] = {}
        for tenure in self._tenures(now_s):
            if tenure.ended_unix_s is not None and now_s - tenure.ended_unix_s > IDLE_S:
                continue
            worker = Employed(tenure.pid, tenure.trial, tenure.rank, tenure.gpus)
            employed.setdefault(tenure.node, []).append(worker)
        seen = Round(now_s, samplers.round(employed, LAST_ANSWER_S if self._ended.is_set() else ANSWER_S))
        tenures = self._tenures(now_s)  # some may have begun or ended meanwhile
        for node, sample in seen.nodes.items():
            used = attribute(node, sample, tenures, self._energy)
            self._energy |= used
            self._unsaved |= {trial for trial in used if used[trial].is_known}
        self._store_round(seen, writer)

    def _tenures(self, now_s: float) -> list[Tenure]:
        """Return who serves a trial, after those who did not long ago."""
        with self._lock:
            self._past = [
                tenure for tenure in self._past if now_s - (tenure.ended_unix_s or now_s) < REMEMBER_S
            ]
            return [*self._past, *(tenure for begun in self._present.values() for tenure in begun)]

    def _store_round(self, seen: Round, writer: RunWriter) -> None:
        now_s = seen.time_unix_s
        rows = [SampleRow(0, now_s, node, Span(sample).to_json()) for node, sample in seen.nodes.items()]
        used = [
            EnergyRow(trial, self._energy[trial].gpu_j, self._energy[trial].cpu_j) for trial in self._unsaved
        ]
        try:
            keep_samples(writer, rows, used)
            self._unsaved.clear()
            for listener in self.listeners:
                listener(seen)
            if time.monotonic() - self._thinned_s > THIN_EVERY_S:
                self._thinned_s = time.monotonic()
                for level in LEVELS:
                    thin(self._store, self._run_id, writer, level, now_s)
        except LeaseError:
            raise
        except WorkbenchError as error:  # the driver waits for a store that is away; samples need not
            logger.warning("what the machines do cannot be stored now: %s", error)


def thin(store: Store, run_id: str, writer: RunWriter, level: Level, now_unix_s: float) -> None:
    """Make longer spans of what is outdated on one level, or give it up where there are none.

    Args:
        store: The store that holds the run.
        run_id: The run.
        writer: Its writer.
        level: The level.
        now_unix_s: The time.
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
    # What is there already of the spans that these become part of, after a clock was set back.
    since_s = rows[0].time_unix_s // longer_s * longer_s
    rows += read_samples(store, run_id, span_s=longer_s, since_unix_s=since_s, until_unix_s=until_s)
    replaced[longer_s] = (since_s, until_s)
    spans = ((Moment(row.node, row.time_unix_s), Span.from_json(row.payload)) for row in rows)
    lengthened = lengthen(level, spans)
    replace_samples(
        writer,
        replaced,
        [
            SampleRow(longer_s, moment.time_unix_s, moment.node, span.to_json())
            for moment, span in lengthened.items()
        ],
    )
