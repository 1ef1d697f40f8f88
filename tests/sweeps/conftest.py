"""What the tests of sweeps share: a store, and a pool that every test leaves free."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.services.sweeps import driver_names
from tests.services.waiting import wait_until
from workbench.store.database import Store


@pytest.fixture(scope="module", autouse=True)
def _work_elsewhere(empty_folder: Path) -> None:
    """Start no run in the folder of this repository, see `empty_folder`."""


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store.open(str(tmp_path / "store.sqlite")) as store:
        yield store


@pytest.fixture
def notes(tmp_path: Path) -> Path:
    """A folder in which trials and tests leave each other signs."""
    path = tmp_path / "notes"
    path.mkdir()
    return path


@pytest.fixture
def free_pool(ray_head: Path) -> Iterator[None]:
    """Attach this process to the head, and check that a test leaves no worker leased and no driver
    alive.
    """
    import ray

    from workbench.cluster.head.attachment import connect
    from workbench.cluster.workers.pool import connect_pool

    connect()  # an earlier test may have detached it
    yield

    def is_free() -> bool:
        status: Any = ray.get(connect_pool().status.remote())
        return not status.leased and status.num_waiting == 0

    wait_until(is_free)
    wait_until(lambda: not driver_names())
