from __future__ import annotations

import asyncio
import contextlib
import json
import os
import socket
import time
from typing import Any

import pytest
from tornado.httpclient import HTTPClientError

from tests.builders.frames import Frame, read_frame
from tests.builders.recorded_runs import EXPERIMENT, START_UNIX_S, begin, trial_events
from workbench.experiment import Experiment
from workbench.foundation.events import TrialReported
from workbench.store.database import Store
from workbench.views.live_feed.protocol import MAX_WINDOW


class Browser:
    """What a front end keeps of the frames that it is sent."""

    def __init__(self, connection: Any) -> None:
        self.connection = connection
        self.number = 0
        self.head: dict[str, Any] = {}
        self.curves: dict[int, list[tuple[float, float]]] = {}
        self.lines: list[str] = []
        self.num_bytes = 0

    async def send(self, message: dict[str, Any]) -> None:
        await self.connection.write_message(json.dumps(message))

    async def show(self, **subscription: Any) -> None:
        self.number += 1
        await self.connection.write_message(
            json.dumps({"type": "subscribe", "number": self.number, "subscription": subscription})
        )

    async def take(self, timeout_s: float = 120.0, *, acknowledge: bool = True) -> Frame:
        raw = await asyncio.wait_for(self.connection.read_message(), timeout_s)
        assert raw is not None, "the server has closed the connection"
        self.num_bytes += len(raw)
        frame = read_frame(raw)
        self.head |= frame.head
        chart = frame.head.get("chart")
        if chart is not None:
            for told in chart["curves"]:
                kept = self.curves.get(told["trial"], [])[: told["start"]]
                assert len(kept) == told["start"], "points are missing"
                new = zip(frame.column(told["x"]), frame.column(told["y"]), strict=True)
                self.curves[told["trial"]] = [*kept, *new]
            self.curves = {
                trial: self.curves[trial] for trial in chart["shown"] if trial in self.curves
            }
        self.lines += [line["text"] for line in frame.head.get("log", {}).get("lines", [])]
        if acknowledge:
            await self.connection.write_message(
                json.dumps({"type": "acknowledge", "frame": frame.head["frame"]})
            )
        return frame

    async def take_until(self, is_true: Any, timeout_s: float = 120.0) -> None:
        deadline = time.monotonic() + timeout_s
        while not is_true():
            assert time.monotonic() < deadline, self.head
            await self.take()


@pytest.fixture
def connect(jp_ws_fetch, http_server_client, run_id):
    async def open_browser() -> Browser:
        return Browser(await jp_ws_fetch("workbench", "api", "live"))

    return open_browser


def write_reports(store: Store, run_id: str, reports: list[TrialReported]) -> None:
    with store.writer(run_id, owner_pid=os.getpid(), owner_host=socket.gethostname()) as writer:
        writer.append(*reports)


def reports_of(trial: int, steps: range, at_s: float = 10.0) -> list[TrialReported]:
    return [
        TrialReported(
            trial=trial,
            step=step,
            values={"val_accuracy": step / 1e6},
            time_unix_s=START_UNIX_S + at_s + step / 1000,
        )
        for step in steps
    ]


class TestWhatIsSent:
    async def test_a_look_is_answered_and_so_is_everything_that_comes(self, connect, run_id, store):
        browser = await connect()
        await browser.show(run=run_id, chart={"axis": "step"}, table={}, log_after=0)
        await browser.take_until(lambda: 2 in browser.curves and "table" in browser.head)
        before = len(browser.curves[2])
        write_reports(store, run_id, reports_of(2, range(41, 60)))
        await browser.take_until(lambda: len(browser.curves[2]) == before + 19)
        assert [x for x, _ in browser.curves[2]][-19:] == list(range(41, 60))

    async def test_new_points_are_appended_not_sent_again(self, connect, run_id, store):
        browser = await connect()
        await browser.show(run=run_id, chart={"axis": "step"})
        await browser.take_until(lambda: 2 in browser.curves)
        write_reports(store, run_id, reports_of(2, range(41, 50)))
        told: list[Any] = []
        while not told:
            chart = (await browser.take()).head.get("chart", {"curves": []})
            told = [curve for curve in chart["curves"] if curve["trial"] == 2]
        assert told[0]["start"] > 0
        assert told[0]["x"]["count"] == 9

    async def test_a_connection_that_broke_comes_back_without_gaps(self, connect, run_id, store):
        browser = await connect()
        await browser.show(run=run_id, chart={"axis": "step"}, log_after=0)
        await browser.take_until(lambda: 2 in browser.curves)
        browser.connection.close()
        write_reports(store, run_id, reports_of(2, range(41, 141)))
        browser.connection = (await connect()).connection
        await browser.show(run=run_id, chart={"axis": "step"}, log_after=browser.head["seq"])
        await browser.take_until(lambda: len(browser.curves[2]) == 102)
        assert [x for x, _ in browser.curves[2]] == [20, 40, *range(41, 141)]
        assert len(browser.lines) == len(set(browser.lines))

    async def test_not_a_number_and_infinity_reach_the_browser(self, connect, run_id, store):
        browser = await connect()
        values = [float("nan"), float("inf"), float("-inf")]
        for step, value in enumerate(values, start=50):
            write_reports(
                store, run_id, [TrialReported(trial=2, step=step, values={"val_accuracy": value})]
            )
        await browser.show(run=run_id, chart={"axis": "step"}, trial=2)
        await browser.take_until(
            lambda: len(browser.curves.get(2, [])) == 5 and "trial" in browser.head
        )
        assert str([y for _, y in browser.curves[2]][2:]) == "[nan, inf, -inf]"
        assert browser.head["trial"]["values"]["val_accuracy"] == "-Infinity"

    async def test_what_is_not_shown_is_not_sent(self, connect, run_id):
        browser = await connect()
        await browser.show(runs={})
        frame = await browser.take()
        assert set(frame.head) <= {"subscription", "frame", "seq", "runs"}

    async def test_nothing_new_sends_nothing(self, connect, run_id, store):
        browser = await connect()
        write_reports(store, run_id, [])
        await browser.show(run=run_id, chart={"axis": "step"}, table={}, log_after=0)
        await browser.take_until(
            lambda: (
                2 in browser.curves
                and browser.lines
                and browser.head.get("table", {}).get("total") == 3
                and browser.head["run"]["counts"]
            )
        )
        until_s = time.monotonic() + 1  # twenty polls
        while time.monotonic() < until_s:
            with contextlib.suppress(TimeoutError):
                # The time that a run under way has taken goes on.
                assert set((await browser.take(timeout_s=0.4)).head) == {
                    "subscription",
                    "frame",
                    "seq",
                    "run",
                }

    async def test_runs_are_compared_by_their_best_so_far(self, connect, run_id, store):
        browser = await connect()
        other = store.create_run(Experiment(**{**EXPERIMENT, "name": "other"}))
        with store.writer(other, owner_pid=os.getpid(), owner_host=socket.gethostname()) as writer:
            writer.append(*begin(), *trial_events(0, at_s=1, accuracy=0.7))
        await browser.show(compared={"runs": [run_id, other]})

        def runs() -> list[Any]:
            return browser.head.get("compared", {}).get("runs", [])

        await browser.take_until(
            lambda: [item["y"]["count"] > 0 for item in runs()] == [True, True]
        )
        assert [item["label"] for item in runs()] == ["digits-small", "other"]

    async def test_a_run_that_nobody_has_read_yet_is_not_told_as_one_without_trials(
        self, connect, store
    ):
        browser = await connect()
        runs = []
        for name in ("first", "second"):
            runs.append(store.create_run(Experiment(**{**EXPERIMENT, "name": name})))
            with store.writer(
                runs[-1], owner_pid=os.getpid(), owner_host=socket.gethostname()
            ) as writer:
                writer.append(*begin(), *trial_events(0, at_s=1, accuracy=0.7))
        for run_id in runs:
            await browser.show(
                run=run_id, chart={"axis": "step"}, table={}, compared={"runs": runs}
            )
            told: set[str] = set()
            # What is compared was told with the first run, and has not changed since.
            while not {"run", "table", "chart"} <= told:
                head = (await browser.take()).head
                told |= head.keys()
                assert head.get("table", {"total": 1})["total"] == 1
                assert head.get("run", {"counts": {"complete": 1}})["counts"] == {"complete": 1}
                assert all(item["y"]["count"] for item in head.get("compared", {}).get("runs", ()))

    async def test_an_unknown_run_is_a_problem_and_the_connection_goes_on(self, connect, run_id):
        browser = await connect()
        await browser.show(run="no-such-run")
        frame = await browser.take()
        assert "no-such-run" in frame.head["problem"]["problem"]
        await browser.show(run=run_id, chart={"metric": "nothing"}, table={})
        await browser.take_until(lambda: "table" in browser.head)
        assert "nothing" in browser.head["problem"]["problem"]
        await browser.show(run=run_id, log_after=0)
        await browser.take_until(lambda: browser.lines)
        assert browser.head["run"]["run_id"] == run_id


class TestBounds:
    async def test_one_frame_is_on_its_way_at_a_time(self, connect, run_id, store):
        browser = await connect()
        await browser.show(run=run_id, chart={"axis": "step"})
        first = await browser.take(acknowledge=False)
        write_reports(store, run_id, reports_of(2, range(41, 200)))
        with pytest.raises(TimeoutError):
            await browser.take(timeout_s=1.0)
        await browser.connection.write_message(
            json.dumps({"type": "acknowledge", "frame": first.head["frame"]})
        )
        await browser.take_until(lambda: browser.curves.get(2, [(0, 0)])[-1][0] == 199)

    @pytest.mark.slow
    async def test_bytes_a_second_stay_bounded_with_many_busy_trials(self, connect, store):
        run_id = store.create_run(Experiment(**{**EXPERIMENT, "name": "busy"}))
        with store.writer(run_id, owner_pid=os.getpid(), owner_host=socket.gethostname()) as writer:
            writer.append(*begin())
            for trial in range(500):
                writer.append(*trial_events(trial, at_s=1, accuracy=trial / 500)[:-1])
            browser = await connect()
            await browser.show(
                run=run_id, chart={"shown": "all", "axis": "step"}, table={"limit": MAX_WINDOW}
            )
            await browser.take_until(lambda: len(browser.curves) == 500)
            began_s, browser.num_bytes, step = time.monotonic(), 0, 41
            while time.monotonic() - began_s < 3 or step <= 60:
                for trial in range(500):
                    writer.append(*reports_of(trial, range(step, step + 5)))
                step += 5
                try:
                    await browser.take(timeout_s=0.3)
                except TimeoutError:
                    continue
            took_s = time.monotonic() - began_s
        browser.connection.close()
        # What may go out at once after a quiet while comes on top.
        assert (browser.num_bytes - 600_000) / took_s < 200_000

    async def test_the_table_of_many_trials_is_a_window(self, connect, store):
        browser = await connect()
        run_id = store.create_run(Experiment(**{**EXPERIMENT, "name": "wide"}))
        with store.writer(run_id, owner_pid=os.getpid(), owner_host=socket.gethostname()) as writer:
            writer.append(*begin())
            for trial in range(300):
                writer.append(*trial_events(trial, at_s=1, accuracy=(trial * 7 % 300) / 300))
        look = {"sort": "value:val_accuracy", "descending": True, "offset": 10, "limit": 5}
        await browser.show(run=run_id, table=look)
        await browser.take_until(lambda: browser.head.get("table", {}).get("total") == 300)
        place = [column["key"] for column in browser.head["table"]["columns"]].index(
            "value:val_accuracy"
        )
        values = [row["cells"][place] for row in browser.head["table"]["rows"]]
        assert values == pytest.approx([(299 - n) / 300 for n in range(10, 15)])


class TestTheEnd:
    async def test_a_server_that_ends_leaves_no_connection_and_nothing_pending(
        self, connect, run_id, jp_serverapp
    ):
        browsers = [await connect(), await connect()]
        for browser in browsers:
            await browser.show(run=run_id, chart={"axis": "step"})
            await browser.take()
        browsers[1].connection.close()
        await jp_serverapp.cleanup_extensions()
        while await asyncio.wait_for(browsers[0].connection.read_message(), 120) is not None:
            pass
        pending = [repr(task) for task in asyncio.all_tasks()]
        assert [task for task in pending if "LiveSocket" in task] == []


class TestHostile:
    async def test_a_name_travels_as_it_is(self, connect, store):
        browser = await connect()
        name = '<img src=x onerror="alert(1)"> \u0645\u062b\u0627\u0644 ' + "x" * 30
        run_id = store.create_run(Experiment(**{**EXPERIMENT, "name": name}))
        await browser.show(run=run_id, runs={"text": "<img"})
        await browser.take_until(lambda: "runs" in browser.head and "run" in browser.head)
        assert browser.head["run"]["name"] == name
        assert [item["name"] for item in browser.head["runs"]["items"]] == [name]

    @pytest.mark.parametrize(
        "message", ["{", "[]", '{"type": "quit"}', '{"type": "acknowledge", "frame": "x"}']
    )
    async def test_what_is_no_message_ends_the_connection(self, connect, message):
        browser = await connect()
        await browser.connection.write_message(message)
        assert await asyncio.wait_for(browser.connection.read_message(), 120) is None

    async def test_an_over_long_message_ends_the_connection(self, connect):
        browser = await connect()
        await browser.connection.write_message("x" * 1_000_000)
        assert await asyncio.wait_for(browser.connection.read_message(), 120) is None

    async def test_nobody_connects_who_is_not_logged_in(self, jp_ws_fetch, http_server_client):
        with pytest.raises(HTTPClientError) as caught:
            await jp_ws_fetch("workbench", "api", "live", headers={"Authorization": ""})
        assert caught.value.code == 403

    @pytest.mark.parametrize("headers", [{}, {"Cookie": "username-localhost=x"}])
    async def test_a_page_of_another_site_cannot_connect(
        self, jp_ws_fetch, http_server_client, headers
    ):
        # A browser sends the cookies of the person, but no token in a header.
        other = {"Origin": "https://elsewhere.example", "Authorization": "", **headers}
        with pytest.raises(HTTPClientError) as caught:
            await jp_ws_fetch("workbench", "api", "live", headers=other)
        assert caught.value.code == 403
