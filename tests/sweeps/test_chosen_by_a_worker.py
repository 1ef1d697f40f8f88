"""What chooses the result of a run does so in a worker, which has loaded what it needs."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
import ray

from tests.services.sweeps import Sweep
from workbench.cluster.workers.admission import Request, Shape
from workbench.cluster.workers.gang import Gang
from workbench.cluster.workers.pool import connect_pool
from workbench.foundation.events import Noted, RunStateChanged
from workbench.store.database import Store
from workbench.sweeps import conclusion
from workbench.sweeps.conclusion import result_of

pytestmark = [pytest.mark.ray, pytest.mark.usefixtures("free_pool")]
ENDING = RunStateChanged(state="complete", reason="trials", message="done")
HERE = str(Path(__file__).parent)


def concluded(
    store: Store, name: str, monkeypatch: pytest.MonkeyPatch, request: Request
) -> tuple[str, str]:
    """Return a run and the message of its result, which one of `sweep_functions` chooses."""
    monkeypatch.setitem(conclusion._CONCLUDED_BY, "steps", f"sweep_functions:{name}")
    sweep = Sweep.create(store, "curve", options={"steps": 1})
    store.folder(sweep.run_id).mkdir(parents=True, exist_ok=True)
    (store.folder(sweep.run_id) / "driver").write_text(str(os.getpid()))
    (event,) = result_of(
        store, sweep.run_id, store.experiment(sweep.run_id), ENDING, request=request
    )
    assert isinstance(event, Noted)
    return sweep.run_id, event.message


@pytest.fixture
def pid() -> int:
    """The process of an idle worker that can import `sweep_functions`."""
    gang = Gang.lease(Request("earlier"), timeout_s=120)
    try:
        gang.call("site:addsitedir", HERE)
        return gang.call("os:getpid")
    finally:
        gang.release()


def test_a_free_worker_chooses(store: Store, pid: int, monkeypatch: pytest.MonkeyPatch) -> None:
    run_id, message = concluded(store, "name_process", monkeypatch, Request("later", trial=3))
    name = store.run(run_id).name
    assert message == f"{run_id} {name} {pid}"
    status: Any = ray.get(connect_pool().status.remote())
    assert not status.leased


def test_what_it_raises_in_a_worker_is_told_once(
    store: Store, pid: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_id, message = concluded(store, "refuse_to_choose", monkeypatch, Request("later"))
    assert message == f"no model could be chosen: {run_id} has no data, says {pid}"


@pytest.mark.parametrize(
    ("name", "request_"),
    [
        ("name_process", Request("large", shape=Shape(cpus=100))),
        ("choose_in_driver", Request("later")),
    ],
)
def test_the_driver_chooses_if_no_worker_can_or_it_dies(
    store: Store, pid: int, monkeypatch: pytest.MonkeyPatch, name: str, request_: Request
) -> None:
    run_id, message = concluded(store, name, monkeypatch, request_)
    assert message.split() == [run_id, store.run(run_id).name, str(os.getpid())]
