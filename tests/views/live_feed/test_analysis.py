"""The analysis of a run: columns that a browser draws, and importance from a process."""

from __future__ import annotations

import math
import os
import random
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.builders.frames import Frame, read_frame
from tests.builders.recorded_runs import EXPERIMENT, append, begin, finish, trial_events
from tests.services.waiting import wait_until
from workbench.experiment import Experiment
from workbench.store.database import Store
from workbench.views.live_feed import analysis
from workbench.views.live_feed.feed import Feed
from workbench.views.live_feed.protocol import Subscription
from workbench.views.live_feed.updates import FrameBuilder

RATES = [10 ** random.Random(number).uniform(-4, math.log10(0.5)) for number in range(14)]
ACCURACIES = [0.9 - 0.1 * abs(math.log10(rate) + 2) for rate in RATES]


@pytest.fixture
def feed(tmp_path: Path) -> Iterator[Feed]:
    made = Feed(lambda: Store.open(str(tmp_path / "store.sqlite")), poll_s=0.02)
    yield made
    made.close()


def record(folder: Path, *, num_trials: int = 14, ended: bool = True, **changes: object) -> str:
    """Store a run whose accuracy depends on its rate alone; trial 3 is pruned."""
    with Store.open(str(folder / "store.sqlite")) as store:
        run_id = store.create_run(Experiment(**{**EXPERIMENT, **changes}))
        events = [
            event
            for number in range(num_trials)
            for event in trial_events(
                number,
                at_s=number,
                lr=RATES[number],
                width=(8, 16)[number % 2],
                accuracy=ACCURACIES[number],
                state="pruned" if number == 3 else "complete",
            )
        ]
        append(store, run_id, [*begin(), *events, *(finish(99) if ended else [])])
    return run_id


class Front:
    """A front end that shows the analysis, and what it knows."""

    def __init__(self, feed: Feed, run_id: str) -> None:
        self.known: dict[str, Any] = {}
        self.columns: dict[str, list[float]] = {}
        self.words: list[str] = []
        self._builder, self._run_id, self._number = FrameBuilder(feed), run_id, 0
        self._frame: Frame | None = None

    def show(self, **query: object) -> None:
        self.look({"analysis": query})

    def look(self, wanted: dict[str, object]) -> None:
        self._number += 1
        look = Subscription.model_validate({"run": self._run_id, **wanted})
        self._builder.subscribe(self._number, look)

    def take(self) -> None:
        raw = self._builder.next_frame()
        if raw is None:
            time.sleep(0.02)
            return
        frame = read_frame(raw)
        self.known |= frame.head
        if "analysis" in frame.head:
            told = frame.head["analysis"]
            names = ("trials", "standings", "ranks", "shares", "best")
            self.columns = {name: frame.column(told[name]) for name in names}
            for axis in told["axes"]:
                self.columns[axis["name"]] = frame.column(axis["places"])
            self.columns["values"] = frame.column(told["objectives"][0]["values"])
        if "importance" in frame.head:
            self.words.append(frame.head["importance"]["words"])

    def importance(self, state: str) -> dict[str, Any]:
        wait_until(
            lambda: self.take() or self.known.get("importance", {}).get("state") == state,
            timeout_s=120,
        )
        return self.known["importance"]


def test_the_columns_are_the_trials_as_an_independent_computation_places_them(
    tmp_path: Path, feed: Feed
) -> None:
    front = Front(feed, record(tmp_path))
    front.show(text="lr < 0.001")
    wait_until(lambda: front.take() or {"analysis", "matching"} <= front.known.keys())
    columns = front.columns
    assert columns["trials"] == [*range(14)]
    assert [number for number in range(14) if columns["standings"][number]] == [3]
    complete = [number for number in range(14) if number != 3]
    better = sorted(complete, key=lambda number: -ACCURACIES[number])
    for number in complete:
        assert columns["ranks"][number] == pytest.approx(better.index(number) / 12)
        assert columns["shares"][number] == pytest.approx((13 - better.index(number)) / 13)
        so_far = [ACCURACIES[other] for other in complete if other <= number]
        assert columns["best"][number] == pytest.approx(max(so_far))
    assert math.isnan(columns["ranks"][3])
    low, high = math.log(1e-4), math.log(0.5)
    for number, rate in enumerate(RATES):
        assert columns["lr"][number] == pytest.approx((math.log(rate) - low) / (high - low))
    assert columns["width"] == [0.0, 1.0] * 7
    assert front.known["analysis"]["best_trial"] == better[0]
    matching = [number for number, rate in enumerate(RATES) if rate < 0.001]
    assert front.known["matching"]["trials"] == matching


def test_importance_is_computed_once_and_kept_with_the_run(
    tmp_path: Path, feed: Feed, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_id = record(tmp_path)
    front = Front(feed, run_id)
    front.show()
    bars = front.importance("ready")["bars"]
    assert bars[0]["name"] == "lr"
    assert bars[0]["low"] <= bars[0]["share"] <= bars[0]["high"]
    assert front.words[0] == "from 14 trials"
    # The head of a run has it without the columns of the analysis.
    head = Front(feed, run_id)
    head.look({"importance": True})
    assert head.importance("ready")["bars"] == bars
    assert "analysis" not in head.known
    assert "matching" not in head.known

    monkeypatch.setattr(analysis, "compute_importance", never)
    again = Feed(lambda: Store.open(str(tmp_path / "store.sqlite")), poll_s=0.02)
    try:
        other = Front(again, run_id)
        other.show()
        assert other.importance("ready")["bars"] == bars
        assert not other.importance("ready")["words"].startswith("The process")
    finally:
        again.close()


@pytest.mark.slow
def test_a_computation_that_dies_is_tried_again_and_then_on_request(
    tmp_path: Path, feed: Feed, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_id = record(tmp_path, num_trials=4)
    monkeypatch.setattr(analysis, "compute_importance", die)
    front = Front(feed, run_id)
    front.show()
    assert "process that computes importance ended" in front.importance("failed")["words"]
    monkeypatch.undo()
    front.show(attempt=1)
    assert front.importance("ready")["words"] == "Too few trials with different values."


def test_however_long_it_takes_it_is_computed_and_the_front_end_hears_how_long(
    tmp_path: Path, feed: Feed, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = tmp_path / "gate"
    monkeypatch.setenv("TEST_GATE", str(gate))
    monkeypatch.setattr(analysis, "compute_importance", wait_for_gate)
    front = Front(feed, record(tmp_path))
    front.show()
    wait_until(lambda: front.take() or any("for 2 s" in words for words in front.words))
    assert front.known["importance"]["state"] == "computing"
    gate.touch()
    assert front.importance("ready")["bars"][0]["name"] == "lr"


def test_only_the_trials_that_match_decide_and_only_once_each(
    tmp_path: Path, feed: Feed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(analysis, "compute_importance", note_trials)
    run_id = record(tmp_path)
    front = Front(feed, run_id)
    front.show(text="width = 8")
    assert len(front.importance("ready")["bars"]) == 7
    assert front.words[-1] == "from 7 trials"
    front.show(text="")
    wait_until(lambda: front.take() or len(front.known["importance"]["bars"]) == 1)
    front.show(text="width = 8")
    wait_until(lambda: front.take() or len(front.known["importance"]["bars"]) == 7)
    assert front.words[-1] == "from 7 trials"
    assert not (tmp_path / "artifacts" / run_id / "importance.json").exists()


def never(*_: object) -> None:
    raise AssertionError("it was kept")


def die(*_: object) -> None:
    os._exit(9)


def wait_for_gate(*_: object) -> dict[str, tuple[float, float, float]]:
    gate = Path(os.environ["TEST_GATE"])
    while not gate.exists():
        time.sleep(0.02)
    return {"lr": (0.9, 0.8, 0.95)}


def note_trials(
    _url: str, _artifacts: str, _run: str, _version: str, trials: tuple[int, ...] | None
) -> dict[str, tuple[float, float, float]]:
    names = ["all"] if trials is None else [str(trial) for trial in trials]
    return dict.fromkeys(names, (0.5, 0.4, 0.6))
