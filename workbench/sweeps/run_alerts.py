"""Apply the alert rules of one run: arm them, feed them readings, deliver alerts.

The ledger stores an alert together with its cause. This module delivers alerts to sinks, stores the
outcome, and feeds the rules with readings of nodes and of the driver's disks. It uses the settings
of the driver's machine.
"""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import shutil
import socket
import tempfile
import threading
from collections import deque
from pathlib import Path
from types import TracebackType

from typing_extensions import Self

from workbench.cluster.workers.admission import Node, Request, check_feasible
from workbench.experiment.alert_rules import DiskFull
from workbench.foundation.artifacts import Artifacts
from workbench.foundation.errors import ExperimentError, LeaseError, ResourcesError, StoreError
from workbench.foundation.events import AlertRaised, AlertsArmed, Event, Noted, steady_unix_s
from workbench.hardware.resources import NodeSample, cluster_inventory
from workbench.store.alerts import (
    Delivery,
    GpuReading,
    NodeReading,
    Settings,
    payload_of,
    read_settings,
)
from workbench.sweeps.ledger import Ledger
from workbench.sweeps.monitor import Round

logger = logging.getLogger(__name__)

CLOSE_PATIENCE_S = 2.0
"""How long a driver waits for sinks when it ends. A resumed run delivers the rest."""
READ_S = 10.0
MAX_SAMPLES = 10_000


class Alerting:
    """Applies alert rules to one run for as long as it is driven."""

    def __init__(self, ledger: Ledger, artifacts: Artifacts) -> None:
        """Watch the run of `ledger`, whose files are kept in `artifacts`."""
        self._ledger = ledger
        self._alerts = ledger.alerts
        self._artifacts = artifacts
        self._delivery = Delivery({})
        self._handed_over: set[tuple[int, str]] = set()
        self._disks: _DiskReader | None = None
        self._samples: deque[NodeSample] = deque(maxlen=MAX_SAMPLES)
        self._is_use_noted = False

    def __enter__(self) -> Self:
        return self

    def begin(self) -> None:
        """Arm the rules, and deliver the alerts that an earlier driver could not deliver."""
        try:
            settings = read_settings()
        except ExperimentError as error:
            settings = Settings()
            # The note says where, but never the value, which may be a secret.
            where = f" ({error.field})" if error.field else ""
            message = (
                f"the settings on {socket.gethostname()} cannot be used{where}: alerts are not"
                " delivered"
            )
            self._ledger.record(Noted(level="warning", message=message))
        rules = [*self._ledger.experiment.alerts, *settings.run_rules]
        rules = [rule.model_copy(update={"to": rule.to or settings.names}) for rule in rules]
        if rules or self._alerts.rules:
            self._ledger.record(AlertsArmed(rules=[rule.model_dump(mode="json") for rule in rules]))
        self._delivery = Delivery(settings.sinks)
        self._ledger.listeners.append(self._on_event)
        self._deliver()
        if any(isinstance(rule, DiskFull) for rule in rules):
            self._disks = _DiskReader(self._artifacts.working_folder)

    def tick(self) -> None:
        """Apply rules about time and new readings, without waiting."""
        if events := [*self._alerts.tick(steady_unix_s()), *self._delivery.outcomes()]:
            self._ledger.record(*events)
        if self._disks is not None and (reading := self._disks.take()) is not None:
            self.read(reading)
        while self._samples:
            self.read(_reading(self._samples.popleft()))

    def on_round(self, new_round: Round) -> None:
        """Take samples of the nodes, from any thread. The next tick applies the rules to them."""
        self._samples.extend(new_round.nodes.values())

    def read(self, reading: NodeReading) -> None:
        """Apply rules to the reading of a node."""
        if events := self._alerts.read(reading):
            self._ledger.record(*events)

    def allowed(self, request: Request) -> Request:
        """Return a request that avoids the nodes that rules exclude, if that is possible."""
        if not self._alerts.excluded_nodes:
            return request
        chosen = dataclasses.replace(request, excluded=frozenset(self._alerts.excluded_nodes))
        nodes = [
            Node(node.node_id, node.num_cpus, node.num_gpus) for node in cluster_inventory().nodes
        ]
        try:
            check_feasible(chosen, nodes)
        except ResourcesError:
            if not self._is_use_noted:
                message = (
                    "a node that a rule excludes is still used: the others have no room for a trial"
                )
                self._ledger.record(Noted(level="warning", message=message))
            self._is_use_noted = True
            return request
        return chosen

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._disks is not None:
            self._disks.close()
        if isinstance(error, LeaseError):
            return  # another driver has the run, and delivers its alerts
        self._deliver()  # also what could not be stored
        outcomes = self._delivery.close(self._delivery.timeout_s + CLOSE_PATIENCE_S)
        with contextlib.suppress(StoreError):
            if outcomes:
                self._ledger.append(outcomes, patience_s=0.0)

    def _on_event(self, event: Event) -> None:
        if isinstance(event, AlertRaised):
            logger.warning("alert: %s", event.message)
            self._deliver()

    def _deliver(self) -> None:
        """Queue alerts that have not been queued for their sinks."""
        for (number, sink), alert in self._alerts.undelivered.items():
            if (number, sink) not in self._handed_over:
                self._handed_over.add((number, sink))
                payload = payload_of(self._ledger.run_id, self._ledger.experiment.name, alert)
                self._delivery.put(sink, number, payload)


def _reading(sample: NodeSample) -> NodeReading:
    gpus = zip(sample.machine.gpus, sample.gpus, strict=False)
    return NodeReading(
        sample.machine.host,
        gpus=tuple(
            GpuReading(gpu.uuid, "lost" if usage.state == "lost" else "well", usage.temperature_c)
            for gpu, usage in gpus
        ),
    )


class _DiskReader:
    """Reads the driver's disks in a thread, so that a disk that hangs blocks nothing else."""

    def __init__(self, folder: Path) -> None:
        self._places = (folder, Path(tempfile.gettempdir()))
        self._newest: NodeReading | None = None
        self._closing = threading.Event()
        threading.Thread(
            target=self._read_until_closed, name="disks of the driver", daemon=True
        ).start()

    def take(self) -> NodeReading | None:
        """Return the newest reading since the last call, or None."""
        newest, self._newest = self._newest, None
        return newest

    def close(self) -> None:
        """Stop reading."""
        self._closing.set()

    def _read_until_closed(self) -> None:
        while not self._closing.is_set():
            try:
                self._newest = NodeReading(socket.gethostname(), self._disks())
            except Exception:  # a disk that cannot be read now may be readable next time
                logger.exception("the disks cannot be read")
            self._closing.wait(READ_S)

    def _disks(self) -> dict[str, float]:
        shares: dict[int, tuple[str, float]] = {}
        for place in self._places:
            there = next(path for path in (place, *place.absolute().parents) if path.exists())
            usage = shutil.disk_usage(there)
            used = usage.used / (usage.used + usage.free)
            shares.setdefault(there.stat().st_dev, (str(place), used))
        return dict(shares.values())
