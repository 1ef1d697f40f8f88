"""One front end's conversation.

What it shows again after something else is told from the beginning.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.builders.frames import Frame, read_frame
from tests.builders.recorded_runs import record_run
from workbench.foundation.errors import ArgumentError
from workbench.store.database import Store
from workbench.views.live_feed.feed import Feed
from workbench.views.live_feed.updates import Session


@pytest.fixture
def feed(tmp_path: Path) -> Iterator[Feed]:
    made = Feed(lambda: Store.open(str(tmp_path / "store.sqlite")), poll_s=0.02)
    yield made
    made.close()


def show(session: Session, number: int, run_id: str) -> None:
    look = {"run": run_id, "chart": {}, "table": {}}
    session.receive(json.dumps({"type": "subscribe", "number": number, "subscription": look}))


def frames_of(session: Session, number: int) -> dict[str, object]:
    """Take frames, as a front end does, until the subscription is answered in full."""
    told: dict[str, object] = {}
    deadline = time.monotonic() + 120
    while not (told.get("chart") and told.get("table")):
        assert time.monotonic() < deadline, told.keys()
        raw = session.next_frame()
        if raw is None:
            time.sleep(0.02)
            continue
        frame: Frame = read_frame(raw)
        session.receive(json.dumps({"type": "acknowledge", "frame": frame.head["frame"]}))
        if frame.head["subscription"] == number and frame.head.get("chart", {}).get("curves") != []:
            told |= frame.head
    return told


@pytest.mark.parametrize("between", [True, False])
def test_a_run_that_is_shown_again_is_told_from_the_beginning(
    tmp_path: Path, feed: Feed, between: bool
) -> None:
    first, second = record_run(tmp_path), record_run(tmp_path, name="other")
    session = Session(feed)
    show(session, 1, first)
    before = frames_of(session, 1)
    show(session, 2, second)
    if between:
        frames_of(session, 2)
    # Or the front end comes back before anything was sent.
    show(session, 3, first)
    after = frames_of(session, 3)
    assert after["run"]["run_id"] == first  # pyright: ignore[reportIndexIssue]
    assert after["chart"]["shown"] == before["chart"]["shown"]  # pyright: ignore[reportIndexIssue]
    assert [curve["start"] for curve in after["chart"]["curves"]] == [0] * 5  # pyright: ignore[reportIndexIssue]


def test_what_is_no_message_is_refused(feed: Feed) -> None:
    with pytest.raises(ArgumentError, match="not a message"):
        Session(feed).receive("{}")


def test_a_comparison_that_was_closed_is_told_again(tmp_path: Path, feed: Feed) -> None:
    run_id = record_run(tmp_path)
    session = Session(feed)
    for number, compared in enumerate(([run_id], [], [run_id])):
        session.receive(
            json.dumps(
                {
                    "type": "subscribe",
                    "number": number,
                    "subscription": {"compared": {"runs": compared}},
                }
            )
        )
        if compared:
            wait_for_comparison(session)


def wait_for_comparison(session: Session) -> None:
    deadline = time.monotonic() + 120
    while True:
        assert time.monotonic() < deadline
        raw = session.next_frame()
        if raw is not None:
            frame = read_frame(raw)
            session.receive(json.dumps({"type": "acknowledge", "frame": frame.head["frame"]}))
            if any(run["y"]["count"] for run in (frame.head.get("compared") or {}).get("runs", ())):
                return
        time.sleep(0.02)
