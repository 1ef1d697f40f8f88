"""Start and stop the drivers of runs, in this process or in an actor of a Ray cluster.

A launcher starts a driver for a stored run, or requests that the current one stop. If a process
that drives a run itself is interrupted, it first stops the run as a user would. The last reports of
the trials are then stored, and no ended trial is shown as running. `driver` says what a driver
does. Other packages add launchers through entry points.
"""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import socket
import threading
import time
import uuid
from collections.abc import Callable, Sequence
from types import FrameType, TracebackType
from typing import TYPE_CHECKING, Protocol

from typing_extensions import Self

from workbench.experiment.actions import suggest
from workbench.experiment.experiment import check_installed
from workbench.foundation.errors import (
    ArtifactsError,
    LeaseError,
    ResourcesError,
    RunError,
    StoreError,
    WorkbenchError,
    first_line_of,
)
from workbench.foundation.events import RunStateChanged
from workbench.foundation.registry import Registry
from workbench.sweeps.code_versions import FILE_NAME, read_origin, write_origin

if TYPE_CHECKING:
    from workbench.foundation.artifacts import Artifacts
    from workbench.store.database import Store

START_TIMEOUT_S = 300.0
"""A driver takes seconds to load, and minutes on a machine that starts many at once."""
POLL_S = 0.05
ANSWER_S = 0.02
"""How long a launch waits for an actor that may not have started yet."""

_NOWHERE = logging.NullHandler()
"""Without a handler, Python would print a driver's warnings between the lines of its run."""

LAUNCHERS = Registry(
    "launcher",
    {
        "inline": "workbench.sweeps.launchers:InlineLauncher",
        "ray": "workbench.sweeps.launchers:RayLauncher",
    },
    group="workbench.launchers",
)
ONE_INTERRUPTION_S = 0.5
"""Signals within this time count as one: a shell may send one to a process and to its group."""


class Launcher(Protocol):
    """Starts and stops the drivers of runs. It is made from a store and a cluster's address."""

    def start(self, run_id: str) -> None:
        """Start a driver for the run, unless it has a live one."""
        ...

    def stop(self, run_id: str) -> None:
        """Request that the run's driver stop the run."""
        ...


class _StoreCommands:
    def __init__(self, store: Store, address: str | None) -> None:
        self._store = store
        self._address = address

    def stop(self, run_id: str) -> None:
        """Request that the run's driver stop the run."""
        self._store.command(run_id, "stop", {})


class InlineLauncher(_StoreCommands):
    """Drives the run in this process and returns when it has ended."""

    def start(self, run_id: str) -> None:
        """Drive the run to its end.

        Raises:
            LeaseError: If another driver holds the run.
            ResourcesError: If the cluster can never provide what the run requests.
            KeyboardInterrupt: If this process was interrupted: the run has stopped.
        """
        from workbench.cluster.head import attachment
        from workbench.sweeps.driver import Driver

        with Interruptions() as interruptions, attachment.attached(self._address):
            # This process's output belongs to the user.
            for name in ("ray.tune", "ray.air", "ray.train"):
                logging.getLogger(name).setLevel(logging.ERROR)
            logging.getLogger("workbench").addHandler(_NOWHERE)
            driver = Driver(self._store, run_id)
            interruptions.stop_by(driver.interrupt)
            driver.run()


class RayLauncher(_StoreCommands):
    """Drives the run in a detached actor, which survives this process and is restarted."""

    def start(self, run_id: str) -> None:
        """Start the run's actor and wait until it holds the run.

        Raises:
            LeaseError: If a driver elsewhere holds the run.
            ResourcesError: If the cluster can never provide what the run requests.
            RunError: If the actor does not take the run in time, or Ray is lost meanwhile.
        """
        from workbench.cluster.head import attachment

        again = suggest("resume", run_id, lead="When Ray is back")
        with attachment.attached(self._address, if_lost=again):
            from ray.exceptions import RayError

            try:
                self._start(run_id)
            except RayError as error:
                raise RunError(
                    f"Ray was lost while {run_id} was started: {first_line_of(error)}",
                    next_step=again,
                ) from error

    def _start(self, run_id: str) -> None:
        from workbench.sweeps import driver_actor

        before = self._store.run(run_id)
        is_silent = before.silent_s is not None
        if (
            before.state in ("running", "stopping")
            and not is_silent
            and driver_actor.exists(run_id)
        ):
            return
        is_left = is_silent or before.state == "lost"
        answer_s = driver_actor.ANSWER_TIMEOUT_S if is_left else driver_actor.LOADING_S
        driver_actor.end_frozen(run_id, answer_s)
        launch_id = uuid.uuid4().hex
        actor = driver_actor.start(self._store, run_id, launch_id)
        if before.state == "waiting":
            self._prepare_first_trial(run_id)
        deadline = time.monotonic() + START_TIMEOUT_S
        while time.monotonic() < deadline:
            # Not just any event: a driver that has ended may still store how its alerts were
            # delivered.
            if self._store.events(run_id, after=before.last_seq, types=["driver_started"], limit=1):
                return
            try:
                failure = driver_actor.failure(actor, launch_id, ANSWER_S)
            except RunError:  # an actor of an earlier launch, which was about to end
                actor = driver_actor.start(self._store, run_id, launch_id)
                continue
            if failure is not None:
                raise failure
            time.sleep(POLL_S)  # leaves the processor to the driver, which is loading
        driver_actor.end(actor)
        log = self._store.folder(run_id) / "driver.log"
        busy = "The machine may be busy. Try again with `workbench resume`."
        raise RunError(
            f"the driver of {run_id} did not start within {START_TIMEOUT_S:.0f} s",
            next_step=f"Read {log}." if log.exists() else busy,
        )

    def _prepare_first_trial(self, run_id: str) -> None:
        """Let the workers of one trial start while the driver loads, which takes about as long."""
        from workbench.cluster.workers.pool_client import prepare
        from workbench.sweeps.trial_resources import share_of

        with contextlib.suppress(ResourcesError):  # the driver reports it
            prepare(share_of(run_id, self._store.experiment(run_id)).request)


def launch(
    store: Store,
    run_id: str,
    *,
    launcher: str = "ray",
    address: str | None = None,
    warm_start: Sequence[str] = (),
    replay_of: str | None = None,
) -> None:
    """Start the driver of a new or unfinished run.

    Args:
        store: The store that holds the run.
        run_id: The run.
        launcher: Name of a launcher: "ray" returns once the driver holds the run, "inline" when it
            has ended.
        address: Address of a Ray cluster, or None for the local head.
        warm_start: Earlier runs from whose finished trials the sampler learns.
        replay_of: A run whose proposals the new run tries again, instead of proposing its own.

    Raises:
        UnknownNameError: If there is no such launcher.
        ExperimentError: If its sampler or pruner is not installed.
        RunNotFoundError: If the store does not hold one of the runs.
        RunError: If the run is advice, which has no driver.
        LeaseError: If a driver elsewhere holds the run.
        ResourcesError: If the cluster can never provide what the run requests.
        ArtifactsError: If the run's files cannot be written.
    """
    chosen: Launcher = LAUNCHERS.load(launcher, field="launcher")(store, address)
    run_id = store.run(run_id).run_id
    if store.events(run_id, types=["advice_requested"], limit=1):
        raise RunError(
            f"{run_id} is advice, which has no driver",
            next_step=suggest("advise", "FILE", lead="To get another"),
        )
    check_installed(store.experiment(run_id))
    for earlier in warm_start:
        store.command(run_id, "warm_start", {"run_id": store.run(earlier).run_id})
    if replay_of is not None:
        store.command(run_id, "replay", {"run_id": replay_of})
    try:
        artifacts = store.artifacts_of(run_id)
        _refuse_to_start_over(store, run_id, artifacts)
        origin = None if replay_of is None else read_origin(store.artifacts_of(replay_of))
        write_origin(artifacts, origin, experiment=store.experiment(run_id))
        chosen.start(run_id)
    except LeaseError:
        raise
    except WorkbenchError as error:
        _fail_undriven(store, run_id, error)
        raise


def _refuse_to_start_over(store: Store, run_id: str, artifacts: Artifacts) -> None:
    """Raise an error if saved checkpoints are missing, because trials would start over."""
    if artifacts.exists(FILE_NAME) or not store.events(run_id, types=["checkpoint_saved"], limit=1):
        return
    raise ArtifactsError(
        f"the files of run {run_id} are not at {artifacts}",
        next_step="Put them back, or set WORKBENCH_ARTIFACTS to their location.",
    )


def _fail_undriven(store: Store, run_id: str, error: WorkbenchError) -> None:
    """Record in the store why a run was never driven, so that nobody waits for it."""
    with contextlib.suppress(StoreError):
        if store.run(run_id).state == "waiting":
            with store.writer(
                run_id, owner_pid=os.getpid(), owner_host=socket.gethostname()
            ) as writer:
                writer.append(RunStateChanged(state="failed", reason="error", message=str(error)))


class Interruptions:
    """Lets the first interruption in the block stop a run, and the second end everything at once.

    An interruption is a signal whose handler raises KeyboardInterrupt. Other handlers are not
    changed. Threads other than the main one receive no signals.
    """

    def __init__(self) -> None:
        """Prepare to receive SIGINT, and also SIGTERM if its handler interrupts."""
        self._before: dict[int, Callable[[int, FrameType | None], object]] = {}
        self._stop: Callable[[], object] | None = None
        self._first_s: float | None = None

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                if callable(before := signal.getsignal(number)):
                    self._before[number] = before
                    signal.signal(number, self._receive)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for number, before in self._before.items():
            signal.signal(number, before)
        if error is None and self._first_s is not None:
            raise KeyboardInterrupt

    def stop_by(self, stop: Callable[[], object]) -> None:
        """Call `stop` at the first interruption from now on. Earlier ones are raised.

        Args:
            stop: Requests that the run stop. It may be called at any point of the program.
        """
        self._stop = stop

    def _receive(self, number: int, frame: FrameType | None) -> None:
        try:
            self._before[number](number, frame)
        except KeyboardInterrupt:
            now_s = time.monotonic()
            is_repeated = self._first_s is not None and now_s - self._first_s > ONE_INTERRUPTION_S
            if self._stop is None or is_repeated:
                raise
            self._first_s = self._first_s or now_s
            self._stop()
