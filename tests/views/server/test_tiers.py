"""Tiers in a browser: a real process computes for the views of a file."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from tornado.httpclient import HTTPClientError

FILE = """
# Two tiers.
tiers:
  end: {count: 500, arrivals: 0.1/s}
  cloud: {count: 2}
links: {end-cloud: {bandwidth: 8Mbit, rtt: 20ms}}
place: {from: no-bundle, scheduler: sideways}
"""


async def next_message(connection: Any) -> dict[str, Any]:
    return json.loads(await asyncio.wait_for(connection.read_message(), 120))


async def test_views_of_a_file_share_a_process_that_states_what_is_wrong(
    jp_ws_fetch, jp_root_dir, jp_fetch
):
    (jp_root_dir / "tiers.yaml").write_text(FILE)
    files = json.loads((await jp_fetch("workbench", "api", "experiments")).body)
    assert {"path": "tiers.yaml", "name": "tiers", "help": "", "kind": "tiers"} in files
    views = [
        await jp_ws_fetch("workbench", "api", "tiers", params={"path": "tiers.yaml"})
        for _ in range(2)
    ]
    for view in views:
        message = await next_message(view)
        assert (message["type"], message["state"]) == ("run", "idle")
        assert message["problem"]["field"] == "place.scheduler"
    await views[0].write_message(json.dumps({"type": "hello"}))
    assert (await next_message(views[0]))["problem"]["field"] == "place.scheduler"


async def test_a_file_elsewhere_is_refused_in_words(jp_ws_fetch, jp_root_dir, tmp_path: Path):
    (jp_root_dir.parent / "outside.yaml").write_text(FILE)
    for path, problem in (
        ("../outside.yaml", "outside the server's folder"),
        ("none.yaml", "there is no file"),
    ):
        view = await jp_ws_fetch("workbench", "api", "tiers", params={"path": path})
        assert problem in (await next_message(view))["problem"]["problem"]


async def test_nobody_shows_tiers_without_a_token(jp_ws_fetch):
    with pytest.raises(HTTPClientError, match="403"):
        await jp_ws_fetch("workbench", "api", "tiers", headers={"Authorization": ""})
