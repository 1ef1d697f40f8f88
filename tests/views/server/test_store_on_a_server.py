"""The server's side where the store is on PostgreSQL.

One tail for all browsers, woken by the database.
"""

from __future__ import annotations

import json
from typing import Any

import pytest
from tornado.httpclient import HTTPClientError

from tests.builders.recorded_runs import append, trial_events
from tests.services.postgresql import ESCAPED_PASSWORD, PASSWORD, Server
from tests.views.server.test_live_socket import Browser
from workbench.store.database import Store


@pytest.fixture
def store(postgresql_url: str):
    with Store.open(postgresql_url) as opened:
        yield opened


@pytest.fixture
def jp_server_config(jp_server_config: dict[str, Any], postgresql_url: str) -> dict[str, Any]:
    settings = {**jp_server_config["WorkbenchExtension"], "store_url": postgresql_url}
    return {**jp_server_config, "WorkbenchExtension": settings}


@pytest.mark.slow
async def test_two_browsers_see_what_comes_over_one_connection_for_news(
    *, jp_fetch, jp_ws_fetch, run_id: str, store: Store, postgresql: Server, postgresql_url: str
) -> None:
    found = json.loads((await jp_fetch("workbench", "api", "runs", run_id)).body)
    assert found["experiment"]["name"] == "digits-small"
    browsers = [Browser(await jp_ws_fetch("workbench", "api", "live")) for _ in range(2)]
    for browser in browsers:
        await browser.show(run=run_id, chart={"axis": "step"}, table={})
        await browser.take_until(lambda browser=browser: 2 in browser.curves)
    append(store, run_id, trial_events(3, at_s=4))
    for browser in browsers:
        await browser.take_until(lambda browser=browser: 3 in browser.curves)
    listening = postgresql.execute(
        postgresql_url.rpartition("/")[2],
        "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND query LIKE"
        " 'LISTEN%'",
    )
    assert listening == [(1,)]


async def test_a_server_that_is_down_is_said_without_a_password(
    jp_fetch, run_id: str, postgresql: Server
) -> None:
    with postgresql.away(), pytest.raises(HTTPClientError) as caught:
        await jp_fetch("workbench", "api", "runs", run_id)
    assert caught.value.response is not None
    told = caught.value.response.body.decode()
    assert "the server cannot be reached" in told
    assert PASSWORD not in told
    assert ESCAPED_PASSWORD not in told
