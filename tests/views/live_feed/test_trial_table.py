"""The table of trials: filters, order, columns and the file that is downloaded."""

from __future__ import annotations

import csv
import io
import struct
from pathlib import Path
from typing import Any

import pytest

from tests.builders.frames import read_frame
from tests.builders.recorded_runs import EXPERIMENT, append, begin, record_run, trial_events
from workbench.experiment import Experiment
from workbench.foundation.errors import ArgumentError
from workbench.foundation.events import TrialEnded, TrialProposed, TrialReported, TrialStarted
from workbench.store.database import Store
from workbench.store.database.labels import set_chosen
from workbench.store.history import History
from workbench.views.live_feed.available_actions import offers_of_run, offers_of_trial
from workbench.views.live_feed.chart import ChartUpdates, Numbers
from workbench.views.live_feed.feed import Feed
from workbench.views.live_feed.protocol import ChartQuery, Chosen, Subscription, TableQuery
from workbench.views.live_feed.run_summaries import run_detail
from workbench.views.live_feed.run_tail import RunTail
from workbench.views.live_feed.trial_detail import trial_detail
from workbench.views.live_feed.trial_table import trial_table, trials_as_csv
from workbench.views.live_feed.updates import FrameBuilder


@pytest.fixture
def tail(tmp_path: Path) -> RunTail:
    with Store.open(str(tmp_path / "store.sqlite")) as store:
        run_tail = RunTail(store, record_run(tmp_path))
        run_tail.catch_up()
        return run_tail


def numbers(tail: RunTail, **query: object) -> list[int]:
    return [row.number for row in trial_table(tail, TableQuery(**query)).rows]  # pyright: ignore


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("lr < 0.05", [0, 2, 3, 4]),
        ("lr<=0.01 val_accuracy>0.9", [0]),
        ("lr = 0.1", [1]),
        ("width=8", [1]),
        ("width != 8 trial>=3", [3, 4]),
        ("state = pruned", [2]),
        ("VAL_ACCURACY > 0.9", [0, 1]),
        ("oops", []),
        ("failed width=16", [3, 4]),
        ("lr < 1e-9", []),
    ],
)
def test_trials_are_filtered_by_comparisons_and_words(
    tail: RunTail, text: str, found: list[int]
) -> None:
    assert numbers(tail, text=text) == found


def test_a_parameter_that_is_named_like_a_metric_has_a_column_name_of_its_own(
    tmp_path: Path,
) -> None:
    search = {"val_accuracy": {"low": 0.0, "high": 1.0}, "width": {"choices": [8, 16]}}
    with Store.open(str(tmp_path / "store.sqlite")) as store:
        tail = RunTail(store, record_run(tmp_path, search=search))
        tail.catch_up()
    names = next(csv.reader(io.StringIO(trials_as_csv(tail, TableQuery()))))
    assert len(set(names)) == len(names)
    assert {"params.val_accuracy", "values.val_accuracy", "width"} <= set(names)
    assert numbers(tail, text="values.val_accuracy > 0.9") == [0, 1]


def test_a_complete_trial_that_breaks_a_constraint_is_marked(tmp_path: Path) -> None:
    with Store.open(str(tmp_path / "store.sqlite")) as store:
        limit = {"metric": "val_accuracy", "at_least": 0.92}
        tail = RunTail(store, record_run(tmp_path, constraints=[limit]))
        tail.catch_up()
    states = {
        row.number: row.reason
        for row in trial_table(tail, TableQuery()).rows
        if row.state == "complete"
    }
    assert set(states.values()) == {None, "infeasible"}
    assert numbers(tail, text="infeasible") == [
        number for number, reason in states.items() if reason
    ]


def test_a_complete_trial_that_is_no_result_is_apart_in_the_chart_and_says_what_it_breaks(
    tmp_path: Path,
) -> None:
    with Store.open(str(tmp_path / "store.sqlite")) as store:
        limit = {"metric": "val_accuracy", "at_least": 0.92}
        tail = RunTail(store, record_run(tmp_path, constraints=[limit]))
        tail.catch_up()
    update = ChartUpdates().next_update(tail, ChartQuery(), Numbers())
    assert update is not None
    (broken,) = update.no_result
    assert update.states[update.shown.index(broken)] == "complete"
    detail = trial_detail(tail, broken)
    assert detail is not None
    value = tail.data.history.trials[broken].values["val_accuracy"]
    words = f"This trial breaks a constraint: val_accuracy={value:g} (at least 0.92)."
    assert (detail.reason, detail.message) == ("infeasible", words)


def test_a_federated_trial_that_did_not_reach_its_target_is_no_result(tmp_path: Path) -> None:
    experiment = {
        **EXPERIMENT,
        "objectives": [{"metric": "rounds_to_target", "goal": "minimize"}],
        "federated": {"clients": 4, "target": {"metric": "val_accuracy", "at_least": 0.99}},
        "training": {"epochs": 30},
    }
    with Store.open(str(tmp_path / "store.sqlite")) as store:
        run_id = store.create_run(Experiment(**experiment))
        ended = [
            TrialEnded(
                trial=trial, attempt=0, state="complete", values={"rounds_to_target": rounds}
            )
            for trial, rounds in enumerate((30.0, 31.0))
        ]
        for trial, end in enumerate(ended):
            append(store, run_id, [*trial_events(trial, at_s=trial, state="running")[:2], end])
        tail = RunTail(store, run_id)
        tail.catch_up()
    table = trial_table(tail, TableQuery())
    reasons = {row.number: row.reason for row in table.rows}
    assert reasons == {0: None, 1: "target not reached"}
    detail = trial_detail(tail, 1)
    assert detail is not None
    assert detail.message == "This trial did not reach its target in its rounds."


def test_a_comparison_that_means_nothing_is_refused(tail: RunTail) -> None:
    with pytest.raises(ArgumentError, match="there is no column 'speed'") as caught:
        numbers(tail, text="speed > 3")
    assert "lr" in str(caught.value)
    with pytest.raises(ArgumentError, match="'high' is not a number"):
        numbers(tail, text="lr < high")
    for unfinished in ("lr <", "< 3", "=", "width=8 lr>="):
        with pytest.raises(ArgumentError, match="has no column or no value"):
            numbers(tail, text=unfinished)


def test_what_is_wrong_with_a_filter_stays_until_the_filter_changes(tmp_path: Path) -> None:
    run_id = record_run(tmp_path)
    feed = Feed(lambda: Store.open(str(tmp_path / "store.sqlite")), poll_s=0.02)
    try:
        feed.tail(run_id).catch_up()
        builder = FrameBuilder(feed)
        builder.subscribe(1, Subscription(run=run_id, table=TableQuery(text="speed > 3")))
        frames = [frame for frame in (builder.next_frame() for _ in range(3)) if frame is not None]
        assert {read_frame(frame).head["problem"]["field"] for frame in frames} == {"table.text"}
        builder.subscribe(2, Subscription(run=run_id, table=TableQuery(text="lr < 1")))
        frame = builder.next_frame()
        assert frame is not None
        assert read_frame(frame).head.get("problem") is None
    finally:
        feed.close()


def test_with_repeats_the_best_configuration_is_marked_not_its_luckiest_trial(
    tmp_path: Path,
) -> None:
    values = [(0.5, 0.99), (0.8, 0.9)]
    with Store.open(str(tmp_path / "store.sqlite")) as store:
        run_id = store.create_run(Experiment(**(EXPERIMENT | {"repeats": 2})))
        append(store, run_id, begin())
        for configuration, of_it in enumerate(values):
            for repeat, accuracy in enumerate(of_it):
                events = trial_events(2 * configuration + repeat, at_s=1.0, accuracy=accuracy)
                update = {"configuration": configuration, "repeat": repeat}
                append(store, run_id, [events[0].model_copy(update=update), *events[1:]])
        tail = RunTail(store, run_id)
        tail.catch_up()
        table = trial_table(tail, TableQuery(sort="rank"))
        marked = [row.number for row in table.rows if row.is_best]
        assert sorted(marked) == [2, 3]
        assert [row.number for row in table.rows][:2] == marked, "the best come first"
        place = [column.key for column in table.columns].index("value:val_accuracy")
        assert table.best is not None
        assert (table.best.cells[place], table.best.num_repeats) == (pytest.approx(0.85), 2)
        best = run_detail(tail).best
        assert best is not None
        assert (best.values["val_accuracy"], best.num_repeats) == (pytest.approx(0.85), 2)


def test_the_best_trials_come_first_and_the_best_always(tail: RunTail) -> None:
    assert numbers(tail, sort="rank")[:2] == [1, 0]
    table = trial_table(tail, TableQuery(text="state = failed"))
    assert (table.total, table.best and table.best.number) == (2, 1)


@pytest.mark.parametrize(
    ("fidelity", "name"), [({}, "continues"), ({"fidelity": {"samples": [0.1, 1.0]}}, "after")]
)
def test_only_a_trial_that_is_not_trained_anew_continues_another(
    tmp_path: Path, fidelity: dict[str, Any], name: str
) -> None:
    with Store.open(str(tmp_path / "store.sqlite")) as store:
        run_id = store.create_run(Experiment(**EXPERIMENT, **fidelity))
        append(store, run_id, begin())
        tail = RunTail(store, run_id)
        tail.catch_up()
        columns = {column.key: column.label for column in trial_table(tail, TableQuery()).columns}
    assert columns["continues"] == name


def test_columns_without_any_value_are_marked(tmp_path: Path) -> None:
    with Store.open(str(tmp_path / "store.sqlite")) as store:
        run_id = store.create_run(Experiment(**EXPERIMENT))
        append(store, run_id, [*begin(), *trial_events(0, at_s=0)[:1]])
        tail = RunTail(store, run_id)
        tail.catch_up()
        empty = {
            column.label for column in trial_table(tail, TableQuery()).columns if column.is_empty
        }
    assert {"samples/s", "duration (s)"} <= empty
    assert "lr" not in empty


def test_the_file_holds_all_trials_that_match_in_the_chosen_columns(tail: RunTail) -> None:
    query = TableQuery(
        text="lr<0.05", sort="rank", columns=("param:lr", "value:val_accuracy"), limit=1
    )
    header, *rows = csv.reader(io.StringIO(trials_as_csv(tail, query)))
    assert header == ["trial", "state", "lr", "val_accuracy"]
    assert rows[0] == ["0", "complete", "0.01", "0.91"]
    assert len(rows) == 4
    whole = list(csv.reader(io.StringIO(trials_as_csv(tail, TableQuery()))))
    assert len(whole) == 6
    assert "samples/s" in whole[0]


def test_text_that_a_spreadsheet_would_compute_is_marked_as_text(tmp_path: Path) -> None:
    search = {"choice": {"choices": ["=1+1", "plain"]}, "shift": {"low": -1.0, "high": 1.0}}
    with Store.open(str(tmp_path / "store.sqlite")) as store:
        run_id = store.create_run(Experiment(**{**EXPERIMENT, "search": search}))
        first, *_ = trial_events(0, at_s=0)
        append(
            store,
            run_id,
            [*begin(), first.model_copy(update={"params": {"choice": "=1+1", "shift": -0.5}})],
        )
        tail = RunTail(store, run_id)
        tail.catch_up()
    rows = list(csv.DictReader(io.StringIO(trials_as_csv(tail, TableQuery()))))
    assert (rows[0]["choice"], rows[0]["shift"]) == ("'=1+1", "-0.5")


def test_a_new_trial_is_asked_for_with_ranges_and_choices(tmp_path: Path) -> None:
    with Store.open(str(tmp_path / "store.sqlite")) as store:
        run_id = record_run(tmp_path, ended=False)
        row, experiment = store.run(run_id), store.experiment(run_id)
        history = History.of(experiment, [stored.event for stored in store.events(run_id)])
    offers = {offer.kind: offer for offer in offers_of_run(row, history, is_advice=False)}
    if "enqueue" not in offers:  # its driver counts as lost
        pytest.fail(f"{row.state} offers {list(offers)}")
    fields = {field.name: field for field in offers["enqueue"].fields}
    assert fields["lr"].hint == "numbers from 0.0001 to 0.5, log scale"
    assert fields["width"].choices == ("8", "16")


def test_errors_of_automl_have_their_short_names(tmp_path: Path) -> None:
    data = {
        "name": "table",
        "path": "a.csv",
        "target": "y",
        "held_out": "0123",
        "standardises_target": True,
    }
    changes = {"data": data, "objectives": [{"metric": "val_loss", "goal": "minimize"}]}
    measured = {"val_loss": 0.25, "val_mean_absolute_error": 0.4}
    with Store.open(str(tmp_path / "store.sqlite")) as store:
        run_id = store.create_run(Experiment(**{**EXPERIMENT, **changes}))
        *course, ended = trial_events(0, at_s=1)
        ended = ended.model_copy(update={"values": measured})
        reports = [event for event in course if isinstance(event, TrialReported)]
        others = [event for event in course if not isinstance(event, TrialReported)]
        reports = [event.model_copy(update={"values": measured}) for event in reports]
        append(store, run_id, [*begin(), *others, *reports, ended])
        tail = RunTail(store, run_id)
        tail.catch_up()
        detail = trial_detail(tail, 0)
    table = trial_table(tail, TableQuery())
    shown = dict(zip((column.label for column in table.columns), table.rows[0].cells, strict=True))
    assert (shown["val_mae"], shown["val_loss (standardised)"]) == (0.4, 0.25)
    assert numbers(tail, text="val_mae > 0.3 val_loss < 1") == [0]
    drawn, query = Numbers(), ChartQuery(metric="val_mean_absolute_error", shown="all")
    chart = ChartUpdates().next_update(tail, query, drawn)
    assert chart is not None
    assert chart.y_title == "val_mae"
    [curve] = chart.curves
    assert struct.unpack_from("<f", drawn.to_bytes(), curve.y.offset) == pytest.approx((0.4,))
    assert detail is not None
    assert detail.values == {"val_mae": 0.4, "val_loss (standardised)": 0.25}
    in_table = {column.key: column.label for column in table.columns}
    course = {value.key: value for value in detail.course}
    assert course["step"].value == shown["step"]
    assert all(in_table[key] == value.label for key, value in course.items())


def test_a_clone_is_offered_with_the_values_of_its_trial_while_the_run_goes_on(
    tmp_path: Path,
) -> None:
    with Store.open(str(tmp_path / "store.sqlite")) as store:
        tail = RunTail(store, record_run(tmp_path))
        tail.catch_up()
    history = tail.data.history
    trial = history.trials[1]
    offers = {offer.kind: offer for offer in offers_of_trial("r-1", "running", history, trial)}
    clone = offers["clone"]
    assert clone.arguments == {"trial": 1}
    fields = {field.name: (field.part_of, field.value) for field in clone.fields}
    assert fields == {name: ("set", str(value)) for name, value in trial.params.items()} | {
        "from_": (None, "weights")
    }
    assert clone.python.startswith('wb.attach("r-1").clone(1, set={"lr": ')
    ended = [offer.kind for offer in offers_of_trial("r-1", "complete", history, trial)]
    assert "clone" not in ended


def test_a_choice_is_offered_marked_and_taken_back(tmp_path: Path) -> None:
    with Store.open(str(tmp_path / "store.sqlite")) as store:
        tail = RunTail(store, record_run(tmp_path))
        tail.catch_up()

        def offered() -> dict[int, list[str]]:
            history = tail.data.history
            return {
                number: [
                    offer.kind
                    for offer in offers_of_trial(tail.run_id, tail.row.state, history, trial)
                    if "choose" in offer.kind
                ]
                for number, trial in history.trials.items()
            }

        def read() -> tuple[object, list[int]]:
            head = tail.cached("head", lambda: run_detail(tail), 60.0)
            marked = [row.number for row in trial_table(tail, TableQuery()).rows if row.is_chosen]
            return head.chosen_by_hand, marked

        assert (read(), offered()) == (
            (None, []),
            {0: ["choose"], 1: ["choose"], 2: [], 3: [], 4: []},
        )
        set_chosen(store, tail.run_id, 0)
        assert tail.advance(), "front ends are told"
        words = "val_accuracy 0.91 (best 0.95)"
        assert read() == (Chosen(trial=0, words=words), [0]), "at once, though no event has come"
        assert offered()[0] == ["unchoose"]
        assert "unchoose" in [each.kind for each in run_detail(tail).offers]
        set_chosen(store, tail.run_id, None)
        tail.advance()
        assert (read(), offered()[0]) == ((None, []), ["choose"])


@pytest.mark.parametrize(
    ("gpus", "expected"),
    [
        ([], ("2 x CPU of here", "CPU of there")),
        ([["0"], ["1"], ["0"]], ("GPU 0 of here", "GPU 1 of here", "GPU 0 of there")),
        ([["0"], ["0"], ["GPU-4f2a", "1"]], ("2 x GPU 0 of here", "GPU-4f2a and GPU 1 of there")),
    ],
)
def test_the_page_of_a_trial_names_machines_and_devices(
    tmp_path: Path, gpus: list[list[str]], expected: tuple[str, ...]
) -> None:
    started = TrialStarted(
        trial=0, attempt=0, worker_pids=[5, 6, 7], hosts=["here", "here", "there"], gpus=gpus
    )
    proposed = TrialProposed(trial=0, params={}, configuration=0, seed=1)
    with Store.open(str(tmp_path / "store.sqlite")) as store:
        run_id = store.create_run(Experiment(**EXPERIMENT))
        append(store, run_id, [*begin(), proposed, started])
        tail = RunTail(store, run_id)
        tail.catch_up()
        detail = trial_detail(tail, 0)
        assert detail is not None
        assert (detail.workers, detail.processes) == (expected, (5, 6, 7))
        append(store, run_id, [TrialEnded(trial=0, attempt=0, state="stopped")])
        tail.catch_up()
        ended = trial_detail(tail, 0)
    assert ended is not None
    assert (ended.workers, ended.processes) == (expected, ())
