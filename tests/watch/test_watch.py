"""One watch for all who look: what it reads, what it lets go of, what it says when it cannot read."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.frames import read_frame
from tests.run.recorded import EXPERIMENT, begin, record_run, trial_events
from workbench.errors import RunNotFoundError, StoreError, StoreUnavailableError
from workbench.experiment import Experiment
from workbench.store import Store, news
from workbench.watch import heads
from workbench.watch import watch as watching
from workbench.watch.heads import head_of
from workbench.watch.painter import Allowance, Painter, runs_picture
from workbench.watch.protocol import Look, RunsLook
from workbench.watch.tail import RunTail
from workbench.watch.watch import Watch


@pytest.fixture
def watch(tmp_path: Path) -> Iterator[Watch]:
    made = Watch(lambda: Store.open(str(tmp_path / "store.sqlite")), poll_s=0.02)
    yield made
    made.close()


def wait_until(is_true: Callable[[], Any], timeout_s: float = 10.0) -> None:
    deadline = time.monotonic() + timeout_s
    while not is_true():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.02)


def test_a_run_is_read_once_for_all_who_look(tmp_path: Path, watch: Watch) -> None:
    run_id = record_run(tmp_path)
    watch.check()
    tail = watch.tail(run_id)
    assert watch.tail("last") is tail
    wait_until(lambda: tail.cursor == tail.row.last_seq > 0)
    assert len(tail.data.history.trials) == 5


def test_the_list_of_runs_knows_their_progress_and_best_after_a_moment(tmp_path: Path, watch: Watch) -> None:
    record_run(tmp_path)
    watch.check()

    def item() -> Any:
        watch.check()
        return runs_picture(watch, RunsLook()).items[0]

    assert (item().name, item().state) == ("digits-small", "complete")
    wait_until(lambda: item().best is not None)
    assert (item().best, item().progress, item().num_trials) == ("val_accuracy 0.95", 1.0, 5)


def test_a_lost_run_says_so_and_its_clock_stands(tmp_path: Path, watch: Watch) -> None:
    with Store.open(str(tmp_path / "store.sqlite")) as store:
        run_id = store.create_run(Experiment(**EXPERIMENT))
        with store.writer(run_id, owner_pid=1, owner_host="gone", lease_timeout_s=0.3) as writer:
            writer.append(*begin(), *trial_events(0, at_s=0), *trial_events(1, at_s=0, state="running"))
    wait_until(lambda: watch.store.run(run_id).state == "lost")
    tail = watch.tail(run_id)
    tail.catch_up()
    first = head_of(tail)
    time.sleep(0.2)
    assert head_of(tail).elapsed_s == first.elapsed_s
    assert first.left_s is None
    assert first.message == "its driver is gone; trial 1 had not ended; resume goes on with it"


def test_runs_are_found_by_words_and_states(tmp_path: Path, watch: Watch) -> None:
    record_run(tmp_path)
    record_run(tmp_path, name="other")
    assert runs_picture(watch, RunsLook(text="OTHER")).total == 1
    assert runs_picture(watch, RunsLook(states=("failed",))).total == 0
    assert len(runs_picture(watch, RunsLook(limit=1)).items) == 1


def test_a_run_that_nobody_looks_at_is_let_go(
    tmp_path: Path, watch: Watch, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_id = record_run(tmp_path)
    monkeypatch.setattr(watching, "_FORGET_S", 0.3)
    first = watch.tail(run_id)

    def is_gone() -> bool:
        watch.check()
        return run_id not in watch._tails

    wait_until(is_gone)
    assert watch.tail(run_id) is not first


def test_who_listens_hears_of_changes_until_they_end_it(tmp_path: Path, watch: Watch) -> None:
    run_id = record_run(tmp_path)
    heard = threading.Event()
    end = watch.listen(heard.set)
    watch.check()
    watch.tail(run_id)
    assert heard.wait(10)
    end()
    assert not watch._listeners


def test_a_store_that_is_away_is_said_and_comes_back(
    tmp_path: Path, watch: Watch, monkeypatch: pytest.MonkeyPatch
) -> None:
    tail = watch.tail(record_run(tmp_path))
    away = [True]
    read = tail.advance

    def advance() -> bool:
        if away[0]:
            raise StoreUnavailableError("the database is locked")
        return read()

    monkeypatch.setattr(tail, "advance", advance)

    def says() -> bool:
        try:
            watch.check()
        except StoreUnavailableError:
            return True
        return False

    wait_until(says)
    away[0] = False
    wait_until(lambda: not says())


def test_a_store_that_tells_of_news_is_read_when_there_are_some_and_when_somebody_begins_to_look(
    postgresql_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(news, "QUIET_S", 100.0)
    watch = Watch(lambda: Store.open(postgresql_url), poll_s=0.02)

    def wait_for(tail: RunTail, num_events: int) -> None:
        wait_until(lambda: (watch.check(), tail.cursor >= num_events)[1])

    try:
        with Store.open(postgresql_url) as store:
            run_id = store.create_run(Experiment(**EXPERIMENT))
            tail = watch.tail(run_id)
            wait_until(lambda: watch.store._news.is_told)
            with store.writer(run_id, owner_pid=1, owner_host="here") as writer:
                for number in range(5):
                    wait_for(tail, writer.append(*trial_events(number, at_s=number)))
            other = record_run(postgresql_url)
            wait_for(watch.tail(other), store.run(other).last_seq)
    finally:
        watch.close()


@pytest.mark.parametrize(
    "error", [StoreError("an event cannot be read"), ZeroDivisionError("a mistake of ours")]
)
def test_a_run_that_cannot_be_read_says_so_and_others_are_followed(
    tmp_path: Path, watch: Watch, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    broken, well = watch.tail(record_run(tmp_path)), watch.tail(record_run(tmp_path, name="other"))

    def advance() -> bool:
        raise error

    monkeypatch.setattr(broken, "advance", advance)
    painter = Painter(watch)
    painter.show(1, Look(run=broken.run_id))
    wait_until(lambda: (watch.check(), broken.problem)[1])
    frame = read_frame(painter.paint() or b"")
    assert str(error) in frame.head["problem"]["problem"]
    wait_until(lambda: (watch.check(), well.cursor == well.row.last_seq > 0)[1])


def test_an_unknown_run_is_refused(tmp_path: Path, watch: Watch) -> None:
    record_run(tmp_path)
    with pytest.raises(RunNotFoundError):
        watch.tail("nothing")


def test_an_allowance_is_some_at_once_and_so_much_a_second() -> None:
    allowance = Allowance(bytes_per_s=1000, burst_bytes=500)
    assert allowance.wait_s() == 0
    allowance.take(500)
    assert allowance.wait_s() == 0
    allowance.take(2000)
    assert 1.5 < allowance.wait_s() <= 2.0


def test_every_figure_that_a_head_names_is_one_that_can_be_drawn() -> None:
    from workbench.plots.figures import FIGURES

    named = {"pareto", *heads.SWEEP_FIGURES, *heads.ADVICE_FIGURES}
    assert set(FIGURES) - {"convergence", "throughput"} == named
