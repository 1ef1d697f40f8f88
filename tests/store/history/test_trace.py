"""The trace of a run: what each worker did and when, as Perfetto reads it."""

from __future__ import annotations

import json
import math
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from workbench.foundation.events import (
    Event,
    RunStateChanged,
    TrialEnded,
    TrialPlanned,
    TrialProposed,
    TrialReported,
    TrialStarted,
)
from workbench.store.history.trace import trace_of

START_UNIX_S = 1_700_000_000.0


def trial_events(
    number: int, began_s: float, *, pids: tuple[int, ...] = (7,), ends: bool = True
) -> list[Event]:
    """A trial that waits .5 s for its workers, is built in 1 s, and reports after 2 and 3 s
    more.
    """
    at = START_UNIX_S + began_s
    hosts = ["a", "b"][: len(pids)]
    loss = {"val_loss": 0.5}
    events: list[Event] = [
        TrialProposed(
            time_unix_s=at, trial=number, configuration=number, seed=0, params={"lr": 0.1}
        ),
        TrialStarted(
            time_unix_s=at + 0.5, trial=number, attempt=0, worker_pids=[*pids], hosts=hosts
        ),
        TrialPlanned(time_unix_s=at + 1.5, trial=number, plan={"workers": len(pids)}),
        TrialReported(
            time_unix_s=at + 3.5,
            trial=number,
            step=10,
            values=loss,
            parts_s={"data": 0.002},
            samples_per_s=64.0,
        ),
        TrialReported(time_unix_s=at + 6.5, trial=number, step=20, values={"val_loss": math.nan}),
    ]
    ended = TrialEnded(
        time_unix_s=at + 7.0, trial=number, attempt=0, state="complete", values=loss, step=20
    )
    return [*events, ended] if ends else events


def spans_of(events: list[Event], **options: Any) -> dict[str, dict[str, Any]]:
    return {
        entry["name"]: entry
        for entry in trace_of(events, name="run", **options)
        if entry["ph"] == "X"
    }


def test_a_trial_is_a_span_on_the_lane_of_each_worker_and_hosts_are_processes() -> None:
    entries = list(trace_of(trial_events(0, 0.0, pids=(7, 8)), name="digits-1"))
    names = {
        (entry["name"], entry["pid"], entry["tid"]): entry["args"]["name"]
        for entry in entries
        if entry["ph"] == "M"
    }
    assert names["process_name", 0, 0] == "digits-1"
    assert names["process_name", 1, 0] == "a"
    assert names["process_name", 2, 0] == "b"
    spans = spans_of(trial_events(0, 0.0, pids=(7, 8)))
    first, second = spans["trial 0, rank 0"], spans["trial 0, rank 1"]
    assert (first["pid"], first["tid"], second["pid"], second["tid"]) == (1, 7, 2, 8)
    assert (first["ts"], first["dur"]) == (500_000.0, 6_500_000.0)
    assert first["args"]["configuration"] == {"lr": 0.1}
    assert first["args"]["state"] == "complete"


def test_what_a_worker_does_between_reports_is_within_the_span_of_its_trial() -> None:
    spans = spans_of(trial_events(0, 0.0))
    assert [(name, span["ts"], span["dur"]) for name, span in spans.items()] == [
        ("choose trial 0", 0.0, 0.0),
        ("load and build", 500_000.0, 1_000_000.0),
        ("to step 10", 1_500_000.0, 2_000_000.0),
        ("to step 20", 3_500_000.0, 3_000_000.0),
        ("steps", 6_500_000.0, 500_000.0),
        ("trial 0", 500_000.0, 6_500_000.0),
    ]
    assert spans["to step 10"]["args"]["data (ms per step)"] == 2.0


def test_not_a_number_is_written_as_text_because_json_has_none() -> None:
    spans = spans_of(trial_events(0, 0.0))
    assert spans["to step 20"]["args"]["val_loss"] == "nan"
    entries = list(trace_of(trial_events(0, 0.0), name="run", trial=0))
    assert json.loads(json.dumps(entries, allow_nan=False)) == entries


def test_one_trial_has_its_speed_and_metrics_over_time_and_nothing_of_others() -> None:
    events = trial_events(0, 0.0) + trial_events(1, 10.0, pids=(9,))
    entries = list(trace_of(events, name="run", trial=1))
    curves = [(entry["name"], entry["args"]) for entry in entries if entry["ph"] == "C"]
    assert curves == [("samples_per_s", {"samples_per_s": 64.0}), ("val_loss", {"val_loss": 0.5})]
    assert not any("trial 0" in entry["name"] for entry in entries)
    assert not any(entry["ph"] == "C" for entry in trace_of(events, name="run"))


def test_what_is_under_way_ends_at_the_last_event() -> None:
    state = RunStateChanged(time_unix_s=START_UNIX_S, state="running")
    spans = spans_of([state, *trial_events(0, 1.0, ends=False)])
    assert spans["trial 0"]["args"]["state"] == "running"
    assert spans["trial 0"]["ts"] + spans["trial 0"]["dur"] == 7_500_000.0
    assert (spans["running"]["ts"], spans["running"]["dur"]) == (0.0, 7_500_000.0)


@given(st.lists(st.floats(-5, 5), min_size=7, max_size=7))
def test_no_span_ends_before_it_begins_whatever_the_clocks_show(offsets_s: list[float]) -> None:
    events = [RunStateChanged(time_unix_s=START_UNIX_S, state="running"), *trial_events(0, 0.0)]
    shifted = [
        event.model_copy(update={"time_unix_s": event.time_unix_s + offset_s})
        for event, offset_s in zip(events, offsets_s, strict=True)
    ]
    assert all(span["dur"] >= 0 for span in spans_of(shifted).values())
