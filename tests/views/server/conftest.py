from __future__ import annotations

import functools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

# For the tests of this folder only: named as a plugin, it would give every test a loop.
from pytest_jupyter.jupyter_server import *  # noqa: F403
from pytest_jupyter.jupyter_server import jp_fetch as impatient_fetch  # noqa: F401

from tests.builders.recorded_runs import EXPERIMENT, append, begin, trial_events
from workbench.experiment import Experiment
from workbench.store.database import Store


@pytest.fixture
def jp_fetch(impatient_fetch: Callable[..., Any]) -> Callable[..., Any]:  # noqa: F811
    """Requests that wait for a busy machine: those of pytest-jupyter give up after 20 s."""
    return functools.partial(impatient_fetch, request_timeout=120)


@pytest.fixture
def store_path(tmp_path: Path) -> Path:
    return tmp_path / "runs.db"


@pytest.fixture
def store(store_path: Path):
    with Store.open(str(store_path)) as opened:
        yield opened


@pytest.fixture
def run_id(store: Store) -> str:
    """A run under way: one trial complete, one failed, one running."""
    created = store.create_run(Experiment(**EXPERIMENT))
    append(
        store,
        created,
        [
            *begin(),
            *trial_events(0, at_s=1, accuracy=0.9),
            *trial_events(1, at_s=2, lr=0.1, state="failed", reason="oom", accuracy=0.2),
            *trial_events(2, at_s=3, lr=0.2, accuracy=0.5)[:-1],
        ],
    )
    return created


@pytest.fixture
def jp_server_config(store_path: Path) -> dict[str, Any]:
    return {
        "ServerApp": {
            "jpserver_extensions": {"workbench.views.server": True},
            "allow_unauthenticated_access": False,
        },
        "WorkbenchExtension": {"store_url": str(store_path), "poll_s": 0.05},
    }


@pytest.fixture(autouse=True)
def server_that_ends(jp_serverapp, jp_asyncio_loop):
    """Let the server end as a server does: nothing of it is left pending."""
    yield
    jp_asyncio_loop.run_until_complete(jp_serverapp.cleanup_extensions())


@pytest.fixture
def post(jp_fetch) -> Callable[..., Any]:
    async def send(*parts: str, body: Any, **options: Any) -> Any:
        text = body if isinstance(body, str | bytes) else json.dumps(body)
        return await jp_fetch("workbench", "api", *parts, method="POST", body=text, **options)

    return send
