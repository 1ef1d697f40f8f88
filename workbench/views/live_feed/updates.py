"""The updates of one front end: each contains only what changed since the one before.

Each part is refreshed at its own interval, and immediately when the subscription changes. The bytes
sent per second are limited here, regardless of the number of trials. A `Session` talks with a front
end over any transport: a WebSocket of the server, or a widget's kernel. One frame is in flight at a
time: the next is sent once the front end has drawn the last, and contains everything new since. A
slow or hidden front end costs nothing and misses nothing.
"""

from __future__ import annotations

import contextlib
import time
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Any

from pydantic import TypeAdapter, ValidationError

from workbench.experiment.actions import write_for_panel
from workbench.foundation.errors import ArgumentError, Problem, WorkbenchError
from workbench.foundation.formatting import format_value
from workbench.runs.plots.prepare_search import AnalysisData, prepare_analysis
from workbench.store.database.labels import matching_runs, versions_of
from workbench.views.live_feed.analysis import encode_analysis
from workbench.views.live_feed.chart import ChartUpdates, Numbers, comparison, encode
from workbench.views.live_feed.feed import Feed
from workbench.views.live_feed.protocol import (
    AcknowledgeMessage,
    AnalysisQuery,
    ChartQuery,
    ChartUpdate,
    Importance,
    LogUpdate,
    Matching,
    RunGroup,
    RunItem,
    RunList,
    RunOrder,
    RunsQuery,
    SubscribeMessage,
    Subscription,
    Update,
)
from workbench.views.live_feed.run_summaries import run_detail
from workbench.views.live_feed.run_tail import RunTail
from workbench.views.live_feed.trial_detail import trial_detail
from workbench.views.live_feed.trial_log import TrialLogReader
from workbench.views.live_feed.trial_table import matching_trials, trial_table

MAX_MESSAGE_BYTES = 65_536
TICK_S = 0.5
"""Seconds between requests for a frame while nothing arrives."""
_MAX_SUBSCRIPTIONS = 64
"""How many changes of the subscription wait for the next frame."""
_MESSAGE: TypeAdapter[SubscribeMessage | AcknowledgeMessage] = TypeAdapter(
    SubscribeMessage | AcknowledgeMessage
)
BYTES_PER_S = 150_000
_BURST_BYTES = 600_000
"""How much may be sent at once after a quiet period, such as the first frame of a run."""
_MAX_LOG_LINES = 300
_MAX_TAGS = 60
_MAX_PARAM_COLUMNS = 60
_MAX_GROUPS = 60
_PARTS_OF_RUN = (
    "run",
    "table",
    "importance",
    "matching",
    "trial",
    "trial_log",
    "machines",
    "log",
    "problem",
)
_ANALYSIS_EVERY_S = 5.0
"""Its columns take long to prepare, and all front ends share them."""
_EVERY_S = {
    "runs": 2.0,
    "run": 0.5,
    "chart": 0.0,
    "table": 1.0,
    "analysis": 1.0,
    "matching": 1.0,
    "importance": 0.5,
    "trial": 1.0,
    "log": 0.2,
    "compared": 2.0,
    "resources": 1.0,
    "machines": 4.0,
    "trial_log": 0.4,
}
"""How often each part is built again at most."""


class RateLimit:
    """Limits the bytes sent per second, with a burst after a quiet period."""

    def __init__(self, bytes_per_s: float = BYTES_PER_S, burst_bytes: float = _BURST_BYTES) -> None:
        """Start with a full burst."""
        self._bytes_per_s = bytes_per_s
        self._burst_bytes = burst_bytes
        self._left_bytes = burst_bytes
        self._at_s = time.monotonic()

    def wait_s(self) -> float:
        """Return the seconds until the next frame may be sent."""
        now_s = time.monotonic()
        self._left_bytes = min(
            self._burst_bytes, self._left_bytes + (now_s - self._at_s) * self._bytes_per_s
        )
        self._at_s = now_s
        return max(0.0, -self._left_bytes / self._bytes_per_s)

    def take(self, num_bytes: int) -> None:
        """Record what was sent. If it exceeds the allowance, the next frame waits longer."""
        self._left_bytes -= num_bytes


class FrameBuilder:
    """Builds the frames for the subscription of one front end."""

    def __init__(self, feed: Feed) -> None:
        """Build frames from what `feed` follows."""
        self._feed = feed
        self._number = -1
        self._subscription = Subscription()
        self._chart = ChartUpdates()
        self._further: dict[str, ChartUpdates] = {}
        self._sent: dict[str, Any] = {}
        self._due_s: dict[str, float] = {}
        self._failed: dict[str, WorkbenchError] = {}
        self._log_seq = 0
        self._trial_log: TrialLogReader | None = None
        self._seen_edits = 0
        self._frame = 0
        self._problem: Problem | None = None
        self._analysis: AnalysisData | None = None

    def subscribe(self, number: int, subscription: Subscription) -> None:
        """Replace the subscription. Everything that differs is sent at once."""
        if subscription.run != self._subscription.run:
            # A front end forgets what it had of the previous run.
            self._chart, self._further = ChartUpdates(), {}
            for part in _PARTS_OF_RUN:
                self._sent.pop(part, None)
            self._trial_log = None
            self._analysis = None
        if subscription.compared != self._subscription.compared:
            self._sent.pop("compared", None)
        if subscription.log_after is not None and (
            subscription.run != self._subscription.run or self._subscription.log_after is None
        ):
            self._log_seq = subscription.log_after
        self._number, self._subscription, self._due_s = number, subscription, {}

    def next_frame(self) -> bytes | None:
        """Return a frame with what has changed, or None if nothing has.

        If a part cannot be built, the others are sent anyway, and the frame contains the
        problem.
        """
        numbers, seq, tail = Numbers(), 0, None
        parts: dict[str, Any] = {}
        self._problem = None
        with self._noting_problem():
            self._feed.check()
            if self._subscription.run is not None:
                tail = self._feed.tail(self._subscription.run)
        if tail is not None:
            with tail.lock:
                seq = tail.cursor
                # An unread run must not look like a run without trials.
                for part_of in self._parts_of_run() if tail.has_started else ():
                    with self._noting_problem():
                        parts |= part_of(tail, numbers)
                if tail.problem is not None:
                    self._problem = tail.problem.to_problem(write_for_panel)
            # Files and samples are read without keeping others from the run.
            for slow_part_of in (self._trial_log_part, self._machines_part):
                with self._noting_problem():
                    parts |= slow_part_of(tail)
        for part_of in (self._runs_part, self._resources_part, self._compared_part):
            with self._noting_problem():
                parts |= part_of(numbers)
        if not parts and self._problem == self._sent.get("problem"):
            return None
        self._sent["problem"] = self._problem
        self._frame += 1
        update = Update(
            subscription=self._number, frame=self._frame, seq=seq, problem=self._problem, **parts
        )
        return encode(update, numbers)

    def _parts_of_run(self) -> tuple[Callable[[RunTail, Numbers], dict[str, Any]], ...]:
        return (
            self._head_part,
            self._chart_part,
            self._table_part,
            self._analysis_part,
            self._matching_part,
            self._importance_part,
            self._trial_part,
            self._log_part,
        )

    @property
    def frame(self) -> int:
        """The number of the last frame."""
        return self._frame

    @contextlib.contextmanager
    def _noting_problem(self) -> Iterator[None]:
        try:
            yield
        except WorkbenchError as error:
            self._problem = self._problem or error.to_problem(write_for_panel)

    def _head_part(self, tail: RunTail, _: Numbers) -> dict[str, Any]:
        return self._changed(
            "run", lambda: tail.cached("head", lambda: run_detail(tail), 0.5, while_quiet=True)
        )

    def _chart_part(self, tail: RunTail, numbers: Numbers) -> dict[str, Any]:
        if self._subscription.chart is None or not self._is_due("chart"):
            return {}
        query = self._subscription.chart
        chart = self._chart.next_update(tail, query, numbers)
        further = self._further_charts(tail, query, numbers)
        parts: dict[str, Any] = {}
        if chart is not None:
            parts["chart"] = chart
        if further:
            parts["further"] = further
        return parts

    def _further_charts(
        self, tail: RunTail, query: ChartQuery, numbers: Numbers
    ) -> tuple[ChartUpdate, ...]:
        """Build the updates of further charts, except of metrics that no trial has reported."""
        reported = set(tail.data.series.metrics)
        self._further = {
            metric: self._further.get(metric, ChartUpdates()) for metric in query.further
        }
        updates = (
            charts.next_update(tail, query.model_copy(update={"metric": metric}), numbers)
            for metric, charts in self._further.items()
            if metric in reported
        )
        return tuple(update for update in updates if update is not None)

    def _table_part(self, tail: RunTail, _: Numbers) -> dict[str, Any]:
        table = self._subscription.table
        if table is None:
            return {}
        return self._changed("table", lambda: trial_table(tail, table))

    def _analysis_part(self, tail: RunTail, numbers: Numbers) -> dict[str, Any]:
        if self._subscription.analysis is None or not self._is_due("analysis"):
            return {}
        data = tail.cached(
            "analysis", lambda: prepare_analysis(tail.data), every_s=_ANALYSIS_EVERY_S
        )
        # Columns are added to the frame only if they have changed.
        if data is self._analysis:
            return {}
        self._analysis = data
        return {"analysis": encode_analysis(data, numbers)}

    def _matching_part(self, tail: RunTail, _: Numbers) -> dict[str, Any]:
        query = self._subscription.analysis
        if query is None:
            return {}

        def match() -> Matching:
            return Matching(text=query.text, trials=_matching(tail, query.text))

        return self._changed("matching", match)

    def _importance_part(self, tail: RunTail, _: Numbers) -> dict[str, Any]:
        query = self._subscription.analysis
        if query is None and self._subscription.importance:
            query = AnalysisQuery()
        if query is None:
            return {}

        def compute() -> Importance:
            return self._feed.importance(tail, _matching(tail, query.text), query.attempt)

        return self._changed("importance", compute)

    def _trial_part(self, tail: RunTail, _: Numbers) -> dict[str, Any]:
        trial = self._subscription.trial
        if trial is None:
            return {}
        return self._changed("trial", lambda: trial_detail(tail, trial))

    def _trial_log_part(self, tail: RunTail) -> dict[str, Any]:
        trial = self._subscription.trial
        query = self._subscription.trial_log
        if trial is None or query is None:
            return {}
        reader = self._trial_log
        if reader is None or (reader.trial, reader.query) != (trial, query):
            reader = self._trial_log = TrialLogReader(tail.folder, trial, query)
        return self._changed("trial_log", reader.read)

    def _machines_part(self, tail: RunTail) -> dict[str, Any]:
        if not self._subscription.resources:
            return {}
        return self._changed("machines", tail.machines_history)

    def _runs_part(self, _: Numbers) -> dict[str, Any]:
        runs = self._subscription.runs
        if self._feed.num_edits != self._seen_edits:
            self._seen_edits = self._feed.num_edits
            self._due_s.pop("runs", None)
        if runs is None:
            return {}
        return self._changed("runs", lambda: run_list(self._feed, runs))

    def _resources_part(self, _: Numbers) -> dict[str, Any]:
        subscription = self._subscription
        if not subscription.resources:
            return {}
        return self._changed("resources", lambda: self._feed.resources(subscription.run))

    def _compared_part(self, numbers: Numbers) -> dict[str, Any]:
        query = self._subscription.compared
        if query is None or not query.runs:
            return {}
        tails = [self._feed.tail(run_id) for run_id in dict.fromkeys(query.runs)]
        have_started = all(tail.has_started or tail.problem is not None for tail in tails)
        if not have_started or not self._is_due("compared"):
            return {}
        # Columns are added to the frame only if the curves have changed.
        versions = tuple((tail.run_id, tail.cursor, tail.row) for tail in tails)
        if self._sent.get("compared") == versions:
            return {}
        self._sent["compared"] = versions
        return {"compared": comparison(tails, query, numbers)}

    def _log_part(self, tail: RunTail, _: Numbers) -> dict[str, Any]:
        if self._subscription.log_after is None or not self._is_due("log"):
            return {}
        lines = [line for line in tail.log if line.seq > self._log_seq]
        if not lines:
            return {}
        self._log_seq = lines[-1].seq
        shown = tuple(lines[-_MAX_LOG_LINES:])
        return {
            "log": LogUpdate(lines=shown, skipped=len(lines) - len(shown), last_seq=self._log_seq)
        }

    def _changed(self, part: str, make: Callable[[], Any]) -> dict[str, Any]:
        if not self._is_due(part):
            if part in self._failed:  # keep showing the problem until the next attempt
                raise self._failed[part]
            return {}
        self._failed.pop(part, None)
        try:
            message = make()
        except WorkbenchError as error:
            self._failed[part] = error
            raise
        if message is None or message == self._sent.get(part):
            return {}
        self._sent[part] = message
        return {part: message}

    def _is_due(self, part: str) -> bool:
        now_s = time.monotonic()
        if now_s < self._due_s.get(part, 0.0):
            return False
        self._due_s[part] = now_s + _EVERY_S[part]
        return True


def _sort_key(item: RunItem, order: RunOrder) -> tuple[bool, str, float]:
    """Return the key to sort runs by. Runs without such a number, or not read yet, come last."""
    if order == "result":
        sign = -1.0 if item.goal == "maximize" else 1.0
        return item.value is None, item.metric, sign * (item.value or 0.0)
    number = item.elapsed_s if order == "time" else item.cost
    return number is None, "", -(number or 0.0)


def _matching(tail: RunTail, text: str) -> tuple[int, ...] | None:
    """Return the trials that match a filter, or None for all. The caller holds the lock."""
    if not text.strip():
        return None
    return tuple(matching_trials(tail.data.history, text))


def run_list(feed: Feed, query: RunsQuery) -> RunList:
    """Return the runs that match a query."""
    all_rows = feed.rows()
    rows = matching_runs(
        all_rows,
        text=query.text,
        states=query.states,
        tags=query.tags,
        archive=query.archive,
        pinned=query.pinned,
    )
    params: tuple[str, ...] = ()
    groups: tuple[RunGroup, ...] = ()
    if query.is_table:
        items = [feed.run_item(row) for row in rows]
        names = Counter(name for item in items for name in item.params)
        params = tuple(name for name, _ in names.most_common(_MAX_PARAM_COLUMNS))
        members = _members(items, query.group)
        groups = _groups(members)
        if query.group and query.member is not None:
            run_ids = {item.run_id for item in members.get(query.member, ())}
            rows = [row for row in rows if row.run_id in run_ids]
    if query.sort != "newest":
        rows.sort(key=lambda row: (not row.pinned, _sort_key(feed.run_item(row), query.sort)))
    offset = min(query.offset, len(rows))
    counts = Counter(tag for row in all_rows for tag in row.tags)
    versions = versions_of(all_rows)
    shown = (
        _with_params(feed.run_item(row), query.params).model_copy(
            update={"version": versions.get(row.run_id)}
        )
        for row in rows[offset : offset + query.limit]
    )
    return RunList(
        items=tuple(shown),
        offset=offset,
        total=len(rows),
        tags=tuple(tag for tag, _ in counts.most_common(_MAX_TAGS)),
        num_pinned=len(matching_runs(all_rows, archive=query.archive, pinned=True)),
        num_archived=sum(row.archived for row in all_rows),
        params=params,
        groups=groups,
    )


def _with_params(item: RunItem, names: Collection[str]) -> RunItem:
    """Return the entry of a run with only the named parameters."""
    params = {name: item.params[name] for name in names if name in item.params}
    return item.model_copy(update={"params": params})


def _members(items: Iterable[RunItem], group: str) -> dict[str, list[RunItem]]:
    """Return the runs of each group. A run with several tags is in several groups."""
    members: dict[str, list[RunItem]] = {}
    if not group:
        return members
    for item in items:
        for member in _groups_of(item, group):
            members.setdefault(member, []).append(item)
    return members


def _groups_of(item: RunItem, group: str) -> tuple[str, ...]:
    kind, _, param = group.partition(".")
    if kind == "tag":
        return item.tags or ("",)
    if kind == "name":
        return (item.name,)
    return (format_value(item.params[param]) if param in item.params else "",)


def _groups(members: Mapping[str, list[RunItem]]) -> tuple[RunGroup, ...]:
    """Return the largest groups, each with the best of its runs."""
    groups = []
    for member, items in members.items():
        valued = [item for item in items if item.value is not None]
        metrics = Counter(item.metric for item in valued)
        best = None
        if valued:
            usual = metrics.most_common(1)[0][0]
            same = (item for item in valued if item.metric == usual)
            best = _with_params(min(same, key=lambda item: _sort_key(item, "result")), ())
        groups.append(RunGroup(member=member, num_runs=len(items), best=best))
    groups.sort(key=lambda group: (-group.num_runs, group.member))
    return tuple(groups[:_MAX_GROUPS])


class Session:
    """Sends one front end the changes of what it subscribed to.

    `receive` and `next_frame` may run in different threads.
    """

    def __init__(self, feed: Feed) -> None:
        """Start with a front end that shows nothing."""
        self._builder = FrameBuilder(feed)
        self._rate_limit = RateLimit()
        self._subscriptions: deque[SubscribeMessage] = deque(maxlen=_MAX_SUBSCRIPTIONS)
        self._sent_s: float | None = None

    def receive(self, message: str | bytes) -> None:
        """Handle a message of the front end.

        Raises:
            ArgumentError: If it is not a message of the protocol.
        """
        try:
            received = _MESSAGE.validate_json(message)
        except ValidationError as error:
            raise ArgumentError("is not a message of the live feed", field="message") from error
        if isinstance(received, SubscribeMessage):
            self._subscriptions.append(received)
        elif received.frame >= self._builder.frame:
            self._sent_s = None

    @property
    def unread_s(self) -> float:
        """Seconds for which a frame has been in flight."""
        sent_s = self._sent_s  # another thread may receive the acknowledgement meanwhile
        return 0.0 if sent_s is None else time.monotonic() - sent_s

    def wait_s(self) -> float:
        """Return the seconds until the rate limit allows the next frame."""
        return self._rate_limit.wait_s()

    def next_frame(self) -> bytes | None:
        """Return a frame with what has changed, or None if nothing has, or a frame is in flight."""
        if self._sent_s is not None:
            return None
        # Applied here, so that a subscription never changes while a frame is built. All of them,
        # because the front end forgets data at each change of the run.
        while self._subscriptions:
            message = self._subscriptions.popleft()
            self._builder.subscribe(message.number, message.subscription)
        frame = self._builder.next_frame()
        if frame is not None:
            self._sent_s = time.monotonic()
            self._rate_limit.take(len(frame))
        return frame
