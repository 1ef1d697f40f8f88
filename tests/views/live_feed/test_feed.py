"""One feed for all front ends.

What it reads, what it drops, what it reports when it cannot read.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.builders.frames import read_frame
from tests.builders.recorded_runs import EXPERIMENT, append, begin, finish, record_run, trial_events
from tests.services.waiting import wait_until
from workbench.experiment import Experiment
from workbench.foundation.errors import RunNotFoundError, StoreError, StoreUnavailableError
from workbench.foundation.events import (
    AdviceRequested,
    EnergyMetered,
    Noted,
    RunStateChanged,
    SharingMeasured,
    TrialStarted,
)
from workbench.store.database import Store, notifications
from workbench.store.database.labels import (
    change_tags,
    rename,
    set_archived,
    set_pinned,
    write_notes,
)
from workbench.views.live_feed import feed as watching
from workbench.views.live_feed import run_summaries
from workbench.views.live_feed.feed import Feed
from workbench.views.live_feed.protocol import RunsQuery, Subscription
from workbench.views.live_feed.run_summaries import run_detail
from workbench.views.live_feed.run_tail import RunTail
from workbench.views.live_feed.updates import FrameBuilder, RateLimit, run_list


@pytest.fixture
def feed(tmp_path: Path) -> Iterator[Feed]:
    made = Feed(lambda: Store.open(str(tmp_path / "store.sqlite")), poll_s=0.02)
    yield made
    made.close()


def test_a_run_is_read_once_for_all_front_ends(tmp_path: Path, feed: Feed) -> None:
    run_id = record_run(tmp_path)
    feed.check()
    tail = feed.tail(run_id)
    assert feed.tail("last") is tail
    wait_until(lambda: tail.cursor == tail.row.last_seq > 0)
    assert len(tail.data.history.trials) == 5


def test_advice_has_the_time_left_that_it_may_measure_and_not_the_budget_of_its_sweep(
    tmp_path: Path,
) -> None:
    experiment = Experiment(**{**EXPERIMENT, "budget": {"trials": 5, "time": "10h"}})
    began_unix_s = time.time() - 20
    details = {}
    with Store.open(str(tmp_path / "store.sqlite")) as store:
        for budget_s in (60.0, 10.0, None):
            run_id = store.create_run(experiment)
            requested = AdviceRequested(
                objective="time", host="here", budget_s=budget_s, time_unix_s=began_unix_s
            )
            append(store, run_id, [requested, RunStateChanged(state="running")])
            tail = RunTail(store, run_id)
            tail.catch_up()
            details[budget_s] = run_detail(tail)
    under_way, late, unknown = details.values()
    assert 30 < under_way.left_s <= 40.5
    assert (under_way.left_low_s, under_way.left_high_s) == (0.0, under_way.left_s)
    assert 0.3 < under_way.progress < 0.5
    assert (late.left_s, late.progress) == (0.0, 1.0)
    assert (unknown.left_s, unknown.progress) == (None, None)


def test_a_run_without_trials_or_advice_shows_what_is_measured(tmp_path: Path) -> None:
    with Store.open(str(tmp_path / "store.sqlite")) as store:
        run_id = store.create_run(Experiment(**EXPERIMENT))
        requested = AdviceRequested(objective="time", host="here")
        measured = Noted(level="info", message="the first step time is measured")
        append(store, run_id, [requested, RunStateChanged(state="running"), measured])
        tail = RunTail(store, run_id)
        tail.catch_up()
    detail = run_detail(tail)
    assert (detail.latest, detail.progress) == ("info: the first step time is measured", None)


def test_a_run_that_failed_before_any_report_has_no_progress_and_states_why_there_is_no_best(
    tmp_path: Path,
) -> None:
    failed = [
        event for number in range(2) for event in trial_events(number, at_s=number, state="failed")
    ]
    proposed, started, *_, ended = trial_events(2, at_s=2, state="stopped")
    cut = ended.model_copy(update={"values": {}, "step": 0})
    with Store.open(str(tmp_path / "store.sqlite")) as store:
        run_id = store.create_run(Experiment(**{**EXPERIMENT, "budget": {"trials": 3}}))
        append(
            store,
            run_id,
            [*begin(), *failed, proposed, started, cut, *finish(9, "failed", "failures")],
        )
        tail = RunTail(store, run_id)
        tail.catch_up()
    detail = run_detail(tail)
    assert (detail.progress, detail.no_best) == (0.0, "No trial is complete.")


def test_a_lead_that_may_be_luck_is_offered_to_be_confirmed_at_once(tmp_path: Path) -> None:
    trials = [
        trial_events(number, at_s=number, lr=0.1 / (number + 1), accuracy=0.5 + number / 10)
        for number in range(2)
    ]
    with Store.open(str(tmp_path / "store.sqlite")) as store:
        run_id = store.create_run(Experiment(**EXPERIMENT))
        append(store, run_id, [*begin(), *trials[0], *trials[1], *finish(9)])
        tail = RunTail(store, run_id)
        tail.catch_up()
    summary = run_detail(tail).summary
    assert summary is not None
    assert summary.confirm is not None
    assert summary.confirm.command == f"workbench extend {run_id} --confirm 2"
    assert (summary.confirm.asks_first, summary.confirm.arguments) == (False, {"confirm": 2})


def test_the_list_of_runs_knows_their_progress_and_best_after_a_moment(
    tmp_path: Path, feed: Feed
) -> None:
    record_run(tmp_path)
    feed.check()

    def item() -> Any:
        feed.check()
        return run_list(feed, RunsQuery()).items[0]

    assert (item().name, item().state) == ("digits-small", "complete")
    wait_until(lambda: item().best is not None)
    assert (item().best, item().progress, item().num_trials) == ("val_accuracy 0.95", 1.0, 5)


def test_runs_of_one_name_have_versions_in_the_list(tmp_path: Path, feed: Feed) -> None:
    record_run(tmp_path)
    record_run(tmp_path, training={"epochs": 12})
    record_run(tmp_path, name="other")
    feed.check()
    assert [item.version for item in run_list(feed, RunsQuery()).items] == [None, 2, 1]


def test_the_list_counts_the_candidates_of_an_automl_run(tmp_path: Path, feed: Feed) -> None:
    record_run(tmp_path, data={"name": "table", "held_out": 0.2})
    record_run(tmp_path, name="sweep")

    def counted() -> list[Any]:
        feed.check()
        items = run_list(feed, RunsQuery()).items
        return [(item.num_trials, item.num_candidates) for item in items]

    wait_until(lambda: counted() == [(5, None), (5, 5)])


def test_a_lost_run_says_so_and_its_clock_stands(tmp_path: Path, feed: Feed) -> None:
    with Store.open(str(tmp_path / "store.sqlite")) as store:
        run_id = store.create_run(Experiment(**EXPERIMENT))
        with store.writer(run_id, owner_pid=1, owner_host="gone", lease_timeout_s=0.3) as writer:
            writer.append(
                *begin(), *trial_events(0, at_s=0), *trial_events(1, at_s=0, state="running")
            )
    wait_until(lambda: feed.store.run(run_id).state == "lost")
    tail = feed.tail(run_id)
    tail.catch_up()
    first = run_detail(tail)
    time.sleep(0.2)
    assert run_detail(tail).elapsed_s == first.elapsed_s
    assert first.left_s is None
    assert (
        first.message
        == "its driver no longer runs; trial 1 had not finished; resume it to continue"
    )


def test_runs_are_found_by_words_and_states(tmp_path: Path, feed: Feed) -> None:
    record_run(tmp_path)
    record_run(tmp_path, name="other")
    assert run_list(feed, RunsQuery(text="OTHER")).total == 1
    assert run_list(feed, RunsQuery(states=("failed",))).total == 0
    assert len(run_list(feed, RunsQuery(limit=1)).items) == 1


def test_runs_are_sorted_by_result_time_and_cost_below_the_pinned_ones(
    tmp_path: Path, feed: Feed
) -> None:
    priced: dict[str, Any] = {"trials": 5, "price": "36 EUR/h"}
    with Store.open(str(tmp_path / "store.sqlite")) as store:
        for name, accuracy, took_s, budget in (
            ("pinned", 0.1, 5, {"trials": 5}),
            ("good", 0.9, 50, priced),
            ("fair", 0.5, 500, priced),
            ("empty", None, 5000, {"trials": 5}),
        ):
            run_id = store.create_run(Experiment(**{**EXPERIMENT, "name": name, "budget": budget}))
            trials = [] if accuracy is None else trial_events(0, at_s=0, accuracy=accuracy)
            append(store, run_id, [*begin(), *trials, *finish(took_s)])
            if name == "pinned":
                set_pinned(store, run_id, True)

    def listed(order: Any) -> list[str]:
        feed.check()
        return [item.name for item in run_list(feed, RunsQuery(sort=order)).items]

    wait_until(lambda: listed("result") == ["pinned", "good", "fair", "empty"])
    wait_until(lambda: listed("time") == ["pinned", "empty", "fair", "good"])
    assert listed("cost")[:3] == ["pinned", "fair", "good"]
    items = {item.name: item for item in run_list(feed, RunsQuery(sort="cost")).items}
    assert items["fair"].cost == pytest.approx(36 * 500 / 3600)
    assert items["fair"].cost_text == "5.00 EUR"
    assert (items["empty"].cost, items["empty"].value) == (None, None)
    assert run_list(feed, RunsQuery(sort="time", offset=1, limit=1)).items[0].name == "empty"


def test_the_list_counts_measured_shares_of_gpus_and_metered_energy_as_the_run_does(
    tmp_path: Path, feed: Feed
) -> None:
    proposed, started, *reports, ended = trial_events(0, at_s=0)
    assert isinstance(started, TrialStarted)
    events = [
        *begin(),
        SharingMeasured(per_gpu=4, message="four are faster", time_unix_s=started.time_unix_s),
        proposed,
        started.model_copy(update={"gpus": [["0"]]}),
        *reports,
        ended,
        EnergyMetered(total_wh=6.0, time_unix_s=ended.time_unix_s),
        *finish(10, state="stopped", reason="person"),
    ]
    budget = {"trials": 20, "energy": "10 Wh", "price": "3600 EUR/GPU-h"}
    with Store.open(str(tmp_path / "store.sqlite")) as store:
        run_id = store.create_run(
            Experiment(**{**EXPERIMENT, "budget": budget, "resources": {"per_gpu": "auto"}})
        )
        append(store, run_id, events)
        summaries = run_summaries.Summaries(store)
        summaries.refresh(store.run(run_id))
        item = summaries.item(store.run(run_id))
    held_s = ended.time_unix_s - started.time_unix_s
    assert item.cost == pytest.approx(held_s / 4)  # one EUR a second for a whole GPU
    assert item.progress == pytest.approx(0.6)
    tail = feed.tail(run_id)
    tail.catch_up()
    assert run_detail(tail).progress == pytest.approx(0.6)


def test_a_run_whose_embedded_object_has_changed_stays_in_the_list_and_disturbs_no_other(
    tmp_path: Path, feed: Feed, caplog: pytest.LogCaptureFixture
) -> None:
    other = record_run(tmp_path)
    with Store.open(str(tmp_path / "store.sqlite")) as store:
        experiment = Experiment(
            train=lambda configuration: configuration["x"],
            objectives=[{"metric": "y", "goal": "minimize"}],
            search={"x": {"low": 0.0, "high": 1.0}},
        )
        run_id = store.create_run(experiment)
        (name,) = store.artifacts_of(run_id).sizes()
        store.artifacts_of(run_id).write(name, b"another")

    def progress() -> dict[str, float | None]:
        feed.check()
        return {item.run_id: item.progress for item in run_list(feed, RunsQuery()).items}

    wait_until(lambda: progress() == {run_id: None, other: 1.0})
    assert "could not be followed" not in caplog.text


def test_a_table_of_runs_has_parameters_as_columns_and_groups_with_their_best(
    tmp_path: Path, feed: Feed
) -> None:
    with Store.open(str(tmp_path / "store.sqlite")) as store:
        for name, accuracy, width in (("one", 0.9, 8), ("one", 0.5, 16), ("two", 0.7, 16)):
            run_id = store.create_run(Experiment(**{**EXPERIMENT, "name": name}))
            trial = trial_events(0, at_s=0, accuracy=accuracy, width=width)
            append(store, run_id, [*begin(), *trial, *finish(5)])

    def listed(**query: Any) -> Any:
        feed.check()
        return run_list(feed, RunsQuery(is_table=True, **query))

    wait_until(lambda: all(item.value is not None for item in listed().items))
    runs = listed(params=("width",), group="params.width")
    assert set(runs.params) == {"lr", "width"}
    assert [item.params for item in runs.items] == [{"width": 16}, {"width": 16}, {"width": 8}]
    groups = [(item.member, item.num_runs, item.best and item.best.value) for item in runs.groups]
    assert groups == [("16", 2, 0.7), ("8", 1, 0.9)]
    assert [item.member for item in listed(group="name").groups] == ["one", "two"]
    assert [item.member for item in listed(group="tag").groups] == [""]
    within = listed(group="name", member="one")
    assert ([item.name for item in within.items], within.total) == (["one", "one"], 2)
    assert run_list(feed, RunsQuery()).items[0].params == {}


def test_a_run_that_nobody_looks_at_is_let_go(
    tmp_path: Path, feed: Feed, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_id = record_run(tmp_path)
    monkeypatch.setattr(watching, "_FORGET_S", 0.3)
    first = feed.tail(run_id)

    def is_gone() -> bool:
        feed.check()
        return run_id not in feed._tails

    wait_until(is_gone)
    assert feed.tail(run_id) is not first


def test_who_listens_hears_of_changes_until_they_end_it(tmp_path: Path, feed: Feed) -> None:
    run_id = record_run(tmp_path)
    heard = threading.Event()
    end = feed.listen(heard.set)
    feed.check()
    feed.tail(run_id)
    assert heard.wait(120)
    end()
    assert not feed._listeners


def test_a_store_that_is_away_is_said_and_comes_back(
    tmp_path: Path, feed: Feed, monkeypatch: pytest.MonkeyPatch
) -> None:
    tail = feed.tail(record_run(tmp_path))
    away = [True]
    read = tail.advance

    def advance() -> bool:
        if away[0]:
            raise StoreUnavailableError("the database is locked")
        return read()

    monkeypatch.setattr(tail, "advance", advance)

    def says() -> bool:
        try:
            feed.check()
        except StoreUnavailableError:
            return True
        return False

    wait_until(says)
    away[0] = False
    wait_until(lambda: not says())


def test_a_store_that_notifies_is_read_on_news_and_when_a_front_end_starts_to_watch(
    postgresql_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(notifications, "QUIET_S", 100.0)
    feed = Feed(lambda: Store.open(postgresql_url), poll_s=0.02)

    def wait_for(tail: RunTail, num_events: int) -> None:
        wait_until(lambda: (feed.check(), tail.cursor >= num_events)[1])

    try:
        with Store.open(postgresql_url) as store:
            run_id = store.create_run(Experiment(**EXPERIMENT))
            tail = feed.tail(run_id)
            wait_until(lambda: feed.store._notifications.is_listening)
            with store.writer(run_id, owner_pid=1, owner_host="here") as writer:
                for number in range(5):
                    wait_for(tail, writer.append(*trial_events(number, at_s=number)))
            other = record_run(postgresql_url)
            wait_for(feed.tail(other), store.run(other).last_seq)
    finally:
        feed.close()


@pytest.mark.parametrize(
    "error", [StoreError("an event cannot be read"), ZeroDivisionError("a mistake of ours")]
)
def test_a_run_that_cannot_be_read_says_so_and_others_are_followed(
    tmp_path: Path, feed: Feed, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    broken, well = feed.tail(record_run(tmp_path)), feed.tail(record_run(tmp_path, name="other"))

    def advance() -> bool:
        raise error

    monkeypatch.setattr(broken, "advance", advance)
    builder = FrameBuilder(feed)
    builder.subscribe(1, Subscription(run=broken.run_id))
    wait_until(lambda: (feed.check(), broken.problem)[1])
    frame = read_frame(builder.next_frame() or b"")
    assert str(error) in frame.head["problem"]["problem"]
    wait_until(lambda: (feed.check(), well.cursor == well.row.last_seq > 0)[1])


def test_an_unknown_run_is_refused(tmp_path: Path, feed: Feed) -> None:
    record_run(tmp_path)
    with pytest.raises(RunNotFoundError):
        feed.tail("nothing")


def test_an_allowance_is_some_at_once_and_so_much_a_second() -> None:
    allowance = RateLimit(bytes_per_s=1000, burst_bytes=500)
    assert allowance.wait_s() == 0
    allowance.take(500)
    assert allowance.wait_s() == 0
    allowance.take(2000)
    assert 1.5 < allowance.wait_s() <= 2.0


def test_every_figure_that_a_head_names_is_one_that_can_be_drawn() -> None:
    from workbench.runs.plots.figures import FIGURES
    from workbench.runs.plots.prepare import PART_OF_FIGURE

    named = {"timeline", "schedule", *PART_OF_FIGURE, *run_summaries.ADVICE_FIGURES}
    assert named <= set(FIGURES)


def test_the_list_of_runs_is_a_window_with_labels_and_a_curve(tmp_path: Path, feed: Feed) -> None:
    run_ids = [record_run(tmp_path, name=f"run {number}") for number in range(5)]
    change_tags(feed.store, run_ids[1], add=["good", "small"])
    change_tags(feed.store, run_ids[2], add=["good"])
    set_pinned(feed.store, run_ids[0], True)
    set_archived(feed.store, run_ids[4], True)
    feed.note_edit()

    listed = run_list(feed, RunsQuery(limit=2))
    assert [item.name for item in listed.items] == ["run 0", "run 3"]
    assert (listed.total, listed.num_archived, listed.tags) == (4, 1, ("good", "small"))
    rest = run_list(feed, RunsQuery(offset=2, limit=2))
    assert (rest.offset, [item.tags for item in rest.items]) == (2, [("good",), ("good", "small")])
    assert run_list(feed, RunsQuery(tags=("good", "small"))).total == 1
    pinned = run_list(feed, RunsQuery(pinned=True))
    assert ([item.name for item in pinned.items], pinned.num_pinned) == (["run 0"], 1)
    assert run_list(feed, RunsQuery(archive="only")).num_pinned == 0
    assert run_list(feed, RunsQuery(archive="only")).items[0].archived

    def first() -> Any:
        feed.check()
        return run_list(feed, RunsQuery()).items[0]

    wait_until(lambda: first().best is not None)
    assert (first().spark, first().goal) == ((0.91, 0.95), "maximize")
    rename(feed.store, run_ids[0], "renamed")
    feed.note_edit()
    assert (first().name, first().best) == ("renamed", "val_accuracy 0.95")


def test_an_edit_is_in_the_next_frame_although_the_list_is_not_due(
    tmp_path: Path, feed: Feed
) -> None:
    run_id = record_run(tmp_path)
    builder = FrameBuilder(feed)
    builder.subscribe(1, Subscription(runs=RunsQuery()))
    builder.next_frame()
    write_notes(feed.store, run_id, "A note.")
    feed.note_edit()
    frame = builder.next_frame()
    assert frame is not None
    assert read_frame(frame).head["runs"]["items"][0]["has_notes"]
