"""The driver as a detached, named actor that Ray restarts after a kill.

The actor starts to drive when it is created. If Ray recreates it, it reads the run from the store
and continues. It ends itself when the run has ended. Its log goes to the run's folder.
"""

from __future__ import annotations

import contextlib
import logging
import math
import os
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import ray
from ray.exceptions import ActorDiedError, GetTimeoutError, RayActorError

from workbench.cluster.head import local_head
from workbench.cluster.head.attachment import QUIET
from workbench.cluster.ray_internals import is_known_alive
from workbench.cluster.remote.code_origin import Origin, use_kept_code
from workbench.cluster.workers import caller_environment
from workbench.cluster.workers.nodes import ON_HEAD, on_node
from workbench.foundation.errors import RunError, StoreUnavailableError, WorkbenchError
from workbench.foundation.events import FINISHED_RUN_STATES
from workbench.hardware.resources import num_usable_cpus
from workbench.store.alerts.settings import VARIABLE as SETTINGS_VARIABLE
from workbench.store.database import Store
from workbench.store.database.urls import is_shared
from workbench.sweeps.code_versions import read_origin

logger = logging.getLogger(__name__)

LOG_NAME = "driver.log"
NAMESPACE = "workbench"
LINGER_S = 2.0
HEAD_USE_S = 5.0
REPLENISH_AFTER_S = 15.0
"""How long the first trials have the processors to themselves, before spare processes start."""
ANSWER_TIMEOUT_S = 10.0
LOADING_S = 60.0
"""How long an actor that another launch has started may load before it answers."""


class DriverActor:
    """Drives one run in its own thread."""

    def __init__(
        self,
        store_url: str,
        artifacts: str,
        run_id: str,
        *,
        launch_id: str,
        settings: str | None = None,
        environment: str = "",
    ) -> None:
        """Start to drive the run.

        Args:
            store_url: Where the store is.
            artifacts: Path or URL under which the runs' files are kept.
            run_id: The run.
            launch_id: The launch that may query its failure.
            settings: Path of the settings for its alerts, or None for the default path.
            environment: Digest of the environment variables of the process that started the run.
        """
        caller_environment.fetch(environment).enter()
        if settings is not None:
            os.environ[SETTINGS_VARIABLE] = settings
        os.environ.update(QUIET)  # a cluster that others started does not have these settings
        self._launch_id = launch_id
        self._failure: WorkbenchError | None = None
        self._actor = ray.get_runtime_context().current_actor
        threading.Thread(target=self._keep_head, daemon=True).start()
        threading.Thread(
            target=self._drive, args=(store_url, artifacts, run_id), daemon=True
        ).start()

    def failure(self, launch_id: str) -> WorkbenchError | None:
        """Return the error that stopped the driver, or None while there is none.

        Args:
            launch_id: The launch that asks. Failures of earlier launches are not returned.
        """
        return self._failure if launch_id == self._launch_id else None

    def _keep_head(self) -> None:
        replenish_at_s = math.inf  # with few processors, only when the run has ended
        if num_usable_cpus() >= local_head.FEWEST_CPUS:
            replenish_at_s = time.monotonic() + REPLENISH_AFTER_S
        while True:
            local_head.keep_alive()
            time.sleep(HEAD_USE_S)
            if time.monotonic() > replenish_at_s:
                replenish_at_s = math.inf
                # This driver has taken one, its first trial another.
                local_head.replenish_processes()

    def _drive(self, store_url: str, artifacts: str, run_id: str) -> None:
        try:
            restarted = bool(ray.get_runtime_context().was_current_actor_reconstructed)
            with _open(store_url, artifacts, waits=restarted) as store, _kept_log(store, run_id):
                _use_code(read_origin(store.artifacts_of(run_id)))
                if not (restarted and store.run(run_id).state in FINISHED_RUN_STATES):
                    from workbench.sweeps.driver import Driver

                    Driver(store, run_id, replaces_a_killed_one=restarted).run()
        except Exception as error:
            if not isinstance(error, WorkbenchError):
                error = RunError(f"the driver of {run_id} crashed: {type(error).__name__}: {error}")
            self._failure = error
            time.sleep(LINGER_S)  # so that the launch can query the failure
        local_head.replenish_processes()
        ray.kill(self._actor, no_restart=True)


def _open(store_url: str, artifacts: str, *, waits: bool) -> Store:
    """Open the store. With `waits`, retry until it is back: after a kill nobody else does."""
    # Imported late, because it loads everything that drives a run.
    from workbench.sweeps.ledger import RETRY_S, STORE_PATIENCE_S

    until_s = time.monotonic() + STORE_PATIENCE_S
    while True:
        try:
            return Store.open(store_url, artifacts)
        except StoreUnavailableError:
            if not waits or time.monotonic() > until_s:
                raise
            time.sleep(RETRY_S)


def _use_code(origin: Origin) -> None:
    """Import the user's code as the trials of the run do."""
    sys.path[:] = dict.fromkeys([*origin.on_this_machine().search_path, *sys.path])
    use_kept_code(origin)


@contextlib.contextmanager
def _kept_log(store: Store, run_id: str) -> Iterator[None]:
    """Log into the run's folder, and copy the log to the run's artifacts at the end."""
    artifacts, path = store.artifacts_of(run_id), store.folder(run_id) / LOG_NAME
    _log_to(path)
    try:
        yield
    except Exception:
        logger.exception("the driver ends")
        raise
    finally:
        if not artifacts.is_local and path.exists():
            with contextlib.suppress(WorkbenchError):
                artifacts.write(LOG_NAME, path.read_bytes())


class _LogFile(logging.FileHandler):
    """A log that drops lines that the disk does not accept, so that the run continues."""

    def emit(self, record: logging.LogRecord) -> None:
        try:
            super().emit(record)
        except OSError:
            self.handleError(record)


def _log_to(path: Path) -> None:
    handler = _LogFile(path, delay=True)
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    logging.getLogger().addHandler(handler)
    logging.getLogger("workbench").setLevel(logging.INFO)
    ray_logger = logging.getLogger("ray")  # it does not propagate its records
    ray_logger.setLevel(logging.WARNING)
    ray_logger.addHandler(handler)


def exists(run_id: str) -> bool:
    """Return whether the run has a driver actor. This process must be attached to the cluster.

    Args:
        run_id: The run.
    """
    try:
        ray.get_actor(_name(run_id), namespace=NAMESPACE)
    except ValueError:
        return False
    return True


def start(store: Store, run_id: str, launch_id: str) -> Any:
    """Create the run's driver actor, or return the existing one.

    Args:
        store: The store that holds the run.
        run_id: The run.
        launch_id: Identifies this launch in calls of `failure`.

    Returns:
        The actor's handle. This process must be attached to the cluster.
    """
    actor = ray.remote(DriverActor).options(
        name=_name(run_id),
        namespace=NAMESPACE,
        lifetime="detached",
        get_if_exists=True,
        **_where_the_store_is(store),
        max_restarts=-1,
        max_concurrency=4,
    )
    settings = os.environ.get(SETTINGS_VARIABLE)
    return actor.remote(
        store.url,
        store.artifacts.url,
        run_id,
        launch_id=launch_id,
        settings=settings and os.path.abspath(settings),
        environment=caller_environment.publish(),
    )


def _where_the_store_is(store: Store) -> dict[str, Any]:
    """Keep a driver on this node if its store is a file here, otherwise put it on the head."""
    return ON_HEAD if is_shared(store.url) else on_node(ray.get_runtime_context().get_node_id())


def failure(actor: Any, launch_id: str, timeout_s: float) -> WorkbenchError | None:
    """Return the error that stopped a driver actor, or None while there is none.

    Args:
        actor: The actor's handle.
        launch_id: The launch that queries.
        timeout_s: How long to wait for an answer, in seconds. No answer counts as no error.

    Raises:
        RunError: If the actor has ended.
    """
    try:
        return ray.get(actor.failure.remote(launch_id), timeout=timeout_s)
    except ActorDiedError as error:
        raise RunError("the driver has ended") from error
    except (GetTimeoutError, RayActorError):
        return None


def end(actor: Any) -> None:
    """End a driver actor for good, so that it drives nothing later.

    Args:
        actor: The actor's handle.
    """
    with contextlib.suppress(RayActorError):
        ray.kill(actor, no_restart=True)


def end_frozen(run_id: str, timeout_s: float) -> None:
    """End the driver actor of a run that nobody drives, if it lives but does not answer.

    Args:
        run_id: The run.
        timeout_s: How long to wait for an answer, in seconds.
    """
    with contextlib.suppress(ValueError, RayActorError):  # there is none, or it has just ended
        actor = ray.get_actor(_name(run_id), namespace=NAMESPACE)
        try:
            ray.get(actor.failure.remote(""), timeout=timeout_s)
        except GetTimeoutError:
            if is_known_alive(actor):  # otherwise Ray is still starting its process
                end(actor)


def _name(run_id: str) -> str:
    return f"driver-{run_id}"
