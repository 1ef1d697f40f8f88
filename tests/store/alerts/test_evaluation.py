from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workbench.foundation.events import (
    AlertCleared,
    AlertDelivered,
    AlertRaised,
    AlertsArmed,
    AttemptEnded,
    DriverStarted,
    Event,
    LogMatched,
    RunStateChanged,
    TrialEnded,
    TrialProposed,
    TrialReported,
    TrialStarted,
    from_json,
    to_json,
)
from workbench.store.alerts import Alerts, GpuReading, NodeReading

EVERY_RULE: list[dict[str, Any]] = [
    {"on": "target_reached", "to": ["team"]},
    {"on": "run_ended", "to": ["team"]},
    {"on": "diverged", "at_most": 3, "to": ["team", "jupyter"]},
    {"on": "no_progress", "within": 10.0},
    {"on": "queue", "waiting": 5.0},
    {"on": "gpu_lost"},
    {"on": "temperature", "above": 80.0},
    {"on": "disk", "above": 0.9},
    {"on": "log", "pattern": "NCCL", "action": "retry"},
    {"on": "log", "pattern": "illegal", "action": "exclude_node"},
    {"on": "log", "pattern": "hopeless", "action": "stop"},
]


class Told:
    """A run as its driver keeps it: everything that happens is stored with what is said of it."""

    def __init__(self, *rules: dict[str, Any]) -> None:
        self.alerts = Alerts()
        self.stored: list[Event] = []
        self.now_s = 0.0
        self.happens(AlertsArmed(rules=list(rules)), driver(), RunStateChanged(state="running"))

    def happens(self, *events: Event) -> list[str]:
        at = [event.model_copy(update={"time_unix_s": self.now_s}) for event in events]
        return self._store(self.alerts.on_events(at))

    def passes(self, seconds: float) -> list[str]:
        self.now_s += seconds
        return self._store(self.alerts.on_events(self.alerts.tick(self.now_s)))

    def reads(self, reading: NodeReading) -> list[str]:
        return self._store(self.alerts.on_events(self.alerts.read(reading, self.now_s)))

    def is_driven_anew(self) -> None:
        """The driver is killed, and another one reads what was stored."""
        self.alerts = Alerts()
        for event in self.stored:
            self.alerts.apply(from_json(to_json(event)))

    def _store(self, events: list[Event]) -> list[str]:
        self.stored += events
        return [event.message for event in events if isinstance(event, AlertRaised | AlertCleared)]

    @property
    def said(self) -> list[AlertRaised]:
        return [event for event in self.stored if isinstance(event, AlertRaised)]


def driver(pid: int = 7) -> DriverStarted:
    return DriverStarted(pid=pid, host="here", num_cpus=2)


def proposed(trial: int) -> TrialProposed:
    return TrialProposed(trial=trial, params={}, configuration=trial, seed=0)


def started(trial: int, attempt: int = 0) -> TrialStarted:
    return TrialStarted(trial=trial, attempt=attempt, worker_pids=[1])


def diverged(trial: int) -> TrialEnded:
    return TrialEnded(
        trial=trial, attempt=0, state="failed", reason="diverged", message="loss became nan"
    )


def matched(trial: int, pattern: str, attempt: int = 0) -> LogMatched:
    return LogMatched(
        trial=trial, attempt=attempt, host="here", node="n1", pattern=pattern, line=f"{pattern}!"
    )


def hot(temperature_c: float) -> NodeReading:
    return NodeReading("here", gpus=(GpuReading("GPU-1", temperature_c=temperature_c),))


def test_a_trial_that_diverges_is_told_once() -> None:
    told = Told({"on": "diverged"})
    assert told.happens(proposed(0), started(0), diverged(0)) == [
        "trial 0 diverged: loss became nan"
    ]
    assert told.said[0].trial == 0
    told.is_driven_anew()
    assert told.happens(diverged(0)) == []
    assert told.happens(diverged(1)) == ["trial 1 diverged: loss became nan"]


def test_a_rule_that_has_said_enough_says_so() -> None:
    told = Told({"on": "diverged", "at_most": 2})
    said = [message for trial in range(5) for message in told.happens(diverged(trial))]
    assert said == [
        "trial 0 diverged: loss became nan",
        "trial 1 diverged: loss became nan (the last alert of this rule)",
    ]


def test_the_target_and_each_end_are_told() -> None:
    told = Told({"on": "target_reached"}, {"on": "run_ended", "states": ["complete", "failed"]})
    reached = {"reason": "target", "message": "trial 3 reached the target"}
    assert told.happens(RunStateChanged(state="stopping", **reached)) == [
        "trial 3 reached the target"
    ]
    assert told.happens(RunStateChanged(state="complete", **reached)) == [
        "the run is complete: trial 3 reached the target"
    ]
    assert told.happens(RunStateChanged(state="stopped", reason="person")) == []
    told.happens(driver(8), RunStateChanged(state="running"))
    assert told.happens(RunStateChanged(state="complete", reason="trials")) == [
        "the run is complete: trials"
    ]


def test_a_run_of_which_nothing_came_is_told_as_a_warning() -> None:
    told = Told({"on": "run_ended", "states": ["complete"]})
    told.happens(diverged(0), diverged(1))
    told.happens(RunStateChanged(state="complete", reason="trials"))
    assert (told.said[0].level, told.said[0].message) == (
        "warning",
        "the run is complete: trials. No trial completed, and 2 failed",
    )


def test_where_two_rules_look_for_the_same_all_their_sinks_are_told_once() -> None:
    told = Told({"on": "diverged", "to": ["a"]}, {"on": "diverged", "to": ["b", "a"]})
    assert len(told.happens(diverged(0))) == 1
    assert told.said[0].to == ["a", "b"]


def test_a_driver_that_was_gone_is_told_by_the_next_one_and_one_that_ended_its_run_is_not() -> None:
    told = Told({"on": "run_ended", "states": ["lost"]})
    told.is_driven_anew()
    said = "the driver, process 7 on here, was gone. Another driver continues"
    assert told.happens(driver(8), RunStateChanged(state="running")) == [said]
    told.happens(RunStateChanged(state="stopped", reason="person"))
    told.is_driven_anew()
    assert told.happens(driver(9)) == []


def test_a_driver_that_is_gone_is_told_by_whoever_notices_it_first_and_by_nobody_else() -> None:
    told = Told({"on": "run_ended", "states": ["lost"]})
    told.is_driven_anew()
    (said,) = told.alerts.lose(9.0)
    told.stored += [said]
    assert (
        told.said[-1].message
        == "the driver, process 7 on here, is gone. Resume the run to continue it"
    )
    told.is_driven_anew()
    assert told.alerts.lose(9.0) == []
    assert told.happens(driver(8), RunStateChanged(state="running")) == []
    told.is_driven_anew()
    assert len(told.alerts.lose(10.0)) == 1, "another driver that is gone is another cause"
    assert len(told.happens(RunStateChanged(state="stopped"))) == len(told.alerts.lose(11.0)) == 0


def test_silence_is_told_once_until_there_is_progress() -> None:
    told = Told({"on": "no_progress", "within": 10.0})
    told.happens(proposed(0), started(0))
    assert told.passes(9.0) == []
    assert told.passes(2.0) == ["nothing was reported for 10 s"]
    assert told.passes(60.0) == []
    assert told.happens(TrialReported(trial=0, step=1)) == ["trials report again"]
    assert told.passes(11.0) == ["nothing was reported for 10 s"]


def test_time_without_a_driver_is_no_silence() -> None:
    told = Told({"on": "no_progress", "within": 10.0})
    told.now_s += 3600
    told.is_driven_anew()
    told.happens(driver(8), RunStateChanged(state="running"))
    assert told.passes(9.0) == []
    assert told.passes(2.0) == ["nothing was reported for 10 s"]


def test_a_run_that_waits_for_workers_is_told_once_until_it_has_some() -> None:
    told = Told({"on": "queue", "waiting": 5.0})
    assert told.passes(60.0) == [], "nothing waits"
    told.happens(proposed(0))
    assert told.passes(4.0) == []
    assert told.passes(2.0) == ["the run has waited for workers for 5 s"]
    told.happens(proposed(1))
    assert told.passes(60.0) == []
    assert told.happens(started(0)) == ["a trial has workers"]
    assert told.passes(60.0) == [], "one waits, but another one trains"
    told.happens(AttemptEnded(trial=0, attempt=0, reason="lost", message="gone"))
    assert told.passes(6.0) == ["the run has waited for workers for 5 s"]


def test_heat_is_told_again_only_after_it_was_clearly_cooler() -> None:
    told = Told({"on": "temperature", "above": 80.0})
    assert told.reads(hot(81.0)) == ["GPU GPU-1 on here is at 81 °C"]
    assert told.reads(hot(90.0)) == told.reads(hot(79.0)) == told.reads(hot(81.0)) == []
    told.is_driven_anew()
    assert told.reads(hot(85.0)) == []
    assert told.reads(hot(74.0)) == ["GPU GPU-1 on here is at 74 °C"]
    assert told.reads(hot(82.0)) == ["GPU GPU-1 on here is at 82 °C"]
    assert [event.type for event in told.stored][-3:] == [
        "alert_raised",
        "alert_cleared",
        "alert_raised",
    ]


def test_disks_and_gpus_are_told_by_node() -> None:
    told = Told({"on": "disk", "above": 0.9}, {"on": "gpu_lost"})
    lost = (GpuReading("GPU-1", "lost"), GpuReading("GPU-2"))
    assert told.reads(NodeReading("a", {"/runs": 0.95, "/tmp": 0.2}, lost)) == [
        "the disk of /runs on a is 95% full",
        "GPU GPU-1 on a is lost",
    ]
    assert told.reads(NodeReading("b", {"/runs": 0.95})) == ["the disk of /runs on b is 95% full"]
    assert told.reads(NodeReading("a", {"/runs": 0.89}, (GpuReading("GPU-1"),))) == [
        "GPU GPU-1 on a is back"
    ]
    assert told.reads(NodeReading("a", {"/runs": 0.87})) == ["the disk of /runs on a is 87% full"]


def test_a_line_in_a_log_is_told_once_for_each_attempt_and_says_what_is_to_be_done() -> None:
    told = Told({"on": "log", "pattern": "NCCL", "action": "retry"})
    told.happens(proposed(0), started(0))
    assert told.happens(matched(0, "NCCL"), matched(0, "NCCL"), matched(0, "other")) == [
        "trial 0, worker 0 on here printed: NCCL!"
    ]
    assert list(told.alerts.to_retry) == [0]
    told.happens(AttemptEnded(trial=0, attempt=0, reason="alert", message="again"))
    assert told.alerts.to_retry == {}
    told.happens(started(0, 1))
    assert len(told.happens(matched(0, "NCCL", attempt=1))) == 1


def test_a_trial_that_is_to_stop_stays_so_until_it_has_ended() -> None:
    told = Told({"on": "log", "pattern": "hopeless", "action": "stop"})
    told.happens(proposed(0), started(0), matched(0, "hopeless"))
    told.happens(AttemptEnded(trial=0, attempt=0, reason="lost", message="the driver ended"))
    told.is_driven_anew()
    assert list(told.alerts.to_stop) == [0]
    told.happens(TrialEnded(trial=0, attempt=0, state="stopped"))
    assert told.alerts.to_stop == {}


def test_a_node_stays_excluded() -> None:
    told = Told({"on": "log", "pattern": "illegal", "action": "exclude_node"})
    told.happens(proposed(0), started(0), matched(0, "illegal"))
    told.is_driven_anew()
    assert told.alerts.excluded_nodes == {"n1"}


def test_what_a_sink_did_not_answer_for_is_to_be_told_again() -> None:
    told = Told({"on": "diverged", "to": ["team", "mail", "jupyter"]})
    told.happens(diverged(0))
    told.happens(AlertDelivered(alert=0, sink="mail", sent=True))
    told.is_driven_anew()
    assert list(told.alerts.undelivered) == [(0, "team")]
    told.happens(AlertDelivered(alert=0, sink="team", sent=False, message="team answers 404"))
    assert told.alerts.undelivered == {}


def test_rules_that_are_no_longer_armed_say_nothing_and_the_others_do_not_begin_anew() -> None:
    told = Told({"on": "diverged", "to": ["team"]}, {"on": "no_progress", "within": 1.0})
    told.happens(diverged(0))
    told.happens(AlertsArmed(rules=[{"on": "diverged", "to": ["mail"]}]))
    assert told.passes(60.0) == told.happens(diverged(0)) == []
    assert told.happens(diverged(1)) != []
    assert told.said[-1].to == ["mail"]


@pytest.mark.parametrize(
    "rule", EVERY_RULE, ids=lambda rule: f"{rule['on']} {rule.get('pattern', '')}".strip()
)
def test_every_rule_travels_in_an_event(rule: dict[str, Any]) -> None:
    alerts = Alerts()
    alerts.apply(from_json(to_json(AlertsArmed(rules=[rule]))))
    assert [alert.on for alert in alerts.rules.values()] == [rule["on"]]


_TRIALS = st.integers(0, 2)
_HAPPENINGS = st.one_of(
    st.builds(lambda trial: ("happens", proposed(trial)), _TRIALS),
    st.builds(
        lambda trial, attempt: ("happens", started(trial, attempt)), _TRIALS, st.integers(0, 2)
    ),
    st.builds(lambda trial: ("happens", TrialReported(trial=trial, step=1)), _TRIALS),
    st.builds(lambda trial: ("happens", diverged(trial)), _TRIALS),
    st.builds(
        lambda trial: ("happens", AttemptEnded(trial=trial, attempt=0, reason="lost", message="")),
        _TRIALS,
    ),
    st.builds(
        lambda trial, pattern, attempt: ("happens", matched(trial, pattern, attempt)),
        _TRIALS,
        st.sampled_from(["NCCL", "illegal", "hopeless", "nothing"]),
        st.integers(0, 1),
    ),
    st.builds(
        lambda state, reason: ("happens", RunStateChanged(state=state, reason=reason)),
        st.sampled_from(["running", "stopping", "complete", "stopped", "failed"]),
        st.sampled_from(["target", "trials"]),
    ),
    st.builds(lambda pid: ("happens", driver(pid)), st.integers(1, 3)),
    st.builds(
        lambda sink, sent: ("happens", AlertDelivered(alert=0, sink=sink, sent=sent)),
        st.sampled_from(["team", "mail"]),
        st.booleans(),
    ),
    st.builds(lambda seconds: ("passes", seconds), st.floats(0.0, 20.0)),
    st.builds(
        lambda node, used, lost, heat_c: (
            "reads",
            NodeReading(
                node, {"/": used}, (GpuReading("GPU-1", "lost" if lost else "well", heat_c),)
            ),
        ),
        st.sampled_from(["a", "b"]),
        st.floats(0.8, 1.0),
        st.booleans(),
        st.floats(70.0, 90.0),
    ),
)


@given(st.lists(_HAPPENINGS, max_size=60), st.sets(st.integers(0, 60), max_size=6))
def test_a_run_that_is_driven_anew_at_any_time_says_the_same_as_one_that_never_was(
    happenings: list[tuple[str, Any]], cuts: set[int]
) -> None:
    whole, cut = Told(*EVERY_RULE), Told(*EVERY_RULE)
    for index, (kind, what) in enumerate(happenings):
        if index in cuts:
            cut.is_driven_anew()
        assert getattr(cut, kind)(what) == getattr(whole, kind)(what)
    cut.is_driven_anew()
    for name in ("undelivered", "excluded_nodes", "to_stop", "to_retry"):
        assert getattr(cut.alerts, name) == getattr(whole.alerts, name), name
    untold: set[tuple[str, str]] = set()
    for event in whole.stored:
        if isinstance(event, AlertRaised):
            assert (event.rule, event.cause) not in untold, (
                "told twice of one cause that has not passed"
            )
            untold.add((event.rule, event.cause))
        elif isinstance(event, AlertCleared):
            cleared = whole.said[event.alert]
            untold.discard((cleared.rule, cleared.cause))
