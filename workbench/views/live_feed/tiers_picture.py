"""What a view of tiers shows.

What each exit threshold gives, how tiers do while they run, and the result.

Computing it is left to `tiers_session`, runs to `tiers_journal`.
"""

from __future__ import annotations

import html
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

from pydantic import BaseModel, ConfigDict

from workbench.foundation.errors import Problem
from workbench.foundation.formatting import format_bytes, format_duration

if TYPE_CHECKING:
    from workbench.tiers.placement.schedulers import Outcome


class _Message(BaseModel):
    model_config = ConfigDict(frozen=True)


class TiersHello(_Message):
    """A view starts: it is sent all that there is."""

    type: Literal["hello"]


class RunTiers(_Message):
    """Start the tiers, with a scheduler and a threshold of the first exit."""

    type: Literal["run"]
    scheduler: str
    threshold: float
    rate_per_s: float
    time_s: float


class StopTiers(_Message):
    """End the tiers that run."""

    type: Literal["stop"]


TiersRequest = TiersHello | RunTiers | StopTiers


class SchedulerPoint(_Message):
    """What is expected of a scheduler at a threshold, or None if a queue grows without end.

    Attributes:
        scheduler: The scheduler.
        accuracy: Share of correct answers.
        mean_s: Mean response time.
        p50_s: Half of the requests are answered within this time.
        p95_s: 95 of 100 are.
        bytes_per_sample: Bytes that leave the first tier for a request, in the mean.
        load: The load of each tier, in their order.
        group_accuracy: Share of the answers whose group of classes is right, or None without
            groups.
    """

    scheduler: str
    accuracy: float
    mean_s: float | None
    p50_s: float | None
    p95_s: float | None
    bytes_per_sample: float
    load: list[float]
    group_accuracy: float | None = None


class ThresholdPoint(_Message):
    """A threshold of the first exit, the share of the samples that leave there, and each
    scheduler.
    """

    threshold: float
    share: float
    schedulers: list[SchedulerPoint]


class TiersPicture(_Message):
    """The plan of a file of tiers.

    Attributes:
        type: The type of the message.
        file: The name of the file.
        tiers: The tiers, in order.
        counts: The number of machines of each.
        scheduler: The scheduler of the file.
        runnable: The schedulers that processes carry out.
        threshold: The current threshold of the first exit.
        exported: The threshold that the export chose.
        busy: The load of the last tier that `threshold` keeps, as `place.busy`.
        note: What the picture omits, or empty if nothing.
        points: The results of thresholds, in increasing order.
    """

    type: Literal["picture"] = "picture"
    file: str
    tiers: list[str]
    counts: list[int]
    scheduler: str
    runnable: list[str]
    threshold: float
    exported: float
    busy: float
    note: str = ""
    points: list[ThresholdPoint]


class TierStatus(_Message):
    """How a tier does.

    Attributes:
        num_waiting: Number of requests that wait there, those that it has sent further included.
        load: Share of the time since the status before in which it computed.
        answers_per_s: Answers that it gave in this time, per second.
    """

    num_waiting: int
    load: float
    answers_per_s: float


class TiersStatus(_Message):
    """How all tiers do at one moment of a run, `at_s` seconds after its first status."""

    type: Literal["status"] = "status"
    at_s: float
    tiers: list[TierStatus]


class TiersRun(_Message):
    """Whether tiers run, and their result.

    Attributes:
        type: The type of the message.
        state: `measuring` stages before a picture can be drawn, `starting` or `running` processes,
            `done`, or `idle`, also after a problem.
        scheduler: The scheduler that runs, or ran.
        threshold: The threshold of the first exit.
        time_s: For how long requests are sent.
        measured: The measured point.
        expected: The expected point, with `load` and `bytes_per_sample` of the plan.
        num_requests: Number of requests.
        num_unanswered: Number of them without an answer.
        problem: Why there is no result.
        is_elsewhere: Whether another process started it, such as `workbench place run`. Only that
            process can stop it.
    """

    type: Literal["run"] = "run"
    state: Literal["measuring", "idle", "starting", "running", "done"]
    scheduler: str = ""
    threshold: float = 0.0
    time_s: float = 0.0
    measured: SchedulerPoint | None = None
    expected: SchedulerPoint | None = None
    num_requests: int = 0
    num_unanswered: int = 0
    problem: Problem | None = None
    is_elsewhere: bool = False


TiersMessage = TiersPicture | TiersStatus | TiersRun


def finite(value: float) -> float | None:
    """Return a time, or None for one that grows without end."""
    if not math.isfinite(value):
        return None
    return float(value)


def point_of(name: str, outcome: Outcome, group_accuracy: float | None = None) -> SchedulerPoint:
    """Return what is expected of a scheduler, as it is sent.

    Args:
        name: The scheduler.
        outcome: What is expected.
        group_accuracy: Share of the answers whose group of classes is right, or None without
            groups.
    """
    return SchedulerPoint(
        scheduler=name,
        accuracy=outcome.accuracy,
        mean_s=finite(outcome.response_s.mean()),
        p50_s=finite(outcome.quantile_s(0.5)),
        p95_s=finite(outcome.quantile_s(0.95)),
        bytes_per_sample=outcome.bytes_per_sample,
        load=list(outcome.load.values()),
        group_accuracy=group_accuracy,
    )


def still_page(picture: TiersPicture | None, run: TiersRun) -> str:
    """Return a plan and a result as HTML, without scripts.

    Args:
        picture: The plan, or None if it is not known yet.
        run: The last run of the tiers.
    """
    if run.problem is not None:
        return f"<p>{html.escape(run.problem.problem)}</p>"
    if picture is None:
        return "<p>The stages were being measured.</p>"
    rows = [
        (f"{point.threshold:.3g}", f"{100 * point.share:.0f} %", *_cells(item))
        for point in picture.points
        for item in point.schedulers
        if item.scheduler == picture.scheduler
    ]
    heads = ("threshold", "leave early", "accuracy", "mean", "95 of 100 within", "sent")
    caption = f"Expected with the scheduler {picture.scheduler}"
    parts = [_table(caption, heads, rows), html.escape(picture.note)]
    if run.measured is not None and run.expected is not None:
        caption = f"{run.scheduler} at threshold {run.threshold:.3g}: {run.num_requests} requests"
        results = [("measured", *_cells(run.measured)), ("expected", *_cells(run.expected))]
        parts.append(_table(caption, ("", *heads[2:]), results))
    return "".join(parts)


def _cells(point: SchedulerPoint) -> tuple[str, ...]:
    times = [
        "grows without end" if seconds is None else format_duration(seconds)
        for seconds in (point.mean_s, point.p95_s)
    ]
    return (f"{100 * point.accuracy:.2f} %", *times, format_bytes(point.bytes_per_sample))


def _table(caption: str, heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    top = "".join(f"<th>{html.escape(head)}</th>" for head in heads)
    body = "".join(
        f"<tr>{''.join(f'<td>{html.escape(cell)}</td>' for cell in row)}</tr>" for row in rows
    )
    return f"<table><caption>{html.escape(caption)}</caption><tr>{top}</tr>{body}</table>"


def status_between(
    before: Sequence[dict[str, float]], now: Sequence[dict[str, float]], *, at_s: float
) -> TiersStatus:
    """Return how tiers did between two reports of themselves.

    Args:
        before: The earlier reports, one of each tier, by the names of `STATUS`.
        now: The later ones.
        at_s: When the later ones were made, in seconds.
    """
    tiers = []
    for early, late in zip(before, now, strict=True):
        elapsed_s = late["now_s"] - early["now_s"]
        of_time = 1 / elapsed_s if elapsed_s > 0 else 0.0
        tiers.append(
            TierStatus(
                num_waiting=int(late["num_waiting"]),
                load=min(1.0, (late["busy_s"] - early["busy_s"]) * of_time),
                answers_per_s=(late["num_answered"] - early["num_answered"]) * of_time,
            )
        )
    return TiersStatus(at_s=at_s, tiers=tiers)


def read_tiers_request(content: dict[str, Any]) -> TiersRequest | None:
    """Return a message of a view, or None if it is not one."""
    models: dict[str, type[TiersHello] | type[RunTiers] | type[StopTiers]] = {
        "hello": TiersHello,
        "run": RunTiers,
        "stop": StopTiers,
    }
    model = models.get(str(content.get("type")))
    try:
        return None if model is None else model.model_validate(content)
    except ValueError:
        return None
