from __future__ import annotations

import queue
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.builders.recorded_runs import record_run
from workbench.experiment import Component
from workbench.foundation.errors import ExperimentError
from workbench.runs import attach
from workbench.views.forms import Draft, answers
from workbench.views.forms.answers import QueryContext
from workbench.views.forms.protocol import to_message
from workbench.views.forms.results import Confirmation
from workbench.views.widgets.experiment_form import Queries


@pytest.fixture
def told() -> queue.Queue[dict[str, Any]]:
    return queue.Queue()


@pytest.fixture
def context(tmp_path: Path) -> QueryContext:
    return QueryContext(Draft(), str(tmp_path / "store.sqlite"))


@pytest.fixture
def queries(context: QueryContext, told: queue.Queue[dict[str, Any]]) -> Iterator[Queries]:
    made = Queries(context, lambda answer: told.put(to_message(answer)))
    yield made
    made.close()


def last(told: queue.Queue[dict[str, Any]]) -> dict[str, Any]:
    while (message := told.get(timeout=120))["status"] == "working":
        pass
    return message


def result(told: queue.Queue[dict[str, Any]]) -> dict[str, Any]:
    message = last(told)
    assert message["status"] == "done", message
    return message["result"]


def test_an_answer_has_the_number_of_its_query(queries: Queries, told: queue.Queue[Any]) -> None:
    queries.submit("samples", 7, {})
    message = last(told)
    assert (message["type"], message["topic"], message["query"]) == ("answer", "samples", 7)
    assert [parameter["name"] for parameter in message["result"]["parameters"]] == ["lr"]
    assert [to_message(answer) for answer in queries.latest()] == [message]


def test_only_the_newest_query_of_a_topic_is_answered(
    queries: Queries, told: queue.Queue[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, go_on = threading.Event(), threading.Event()
    asked = []

    def answer(_context: QueryContext, arguments: dict[str, Any], report: Any) -> Confirmation:
        asked.append(arguments["x"])
        begun.set()
        assert go_on.wait(120)
        report("late")
        return Confirmation(message=str(arguments["x"]))

    monkeypatch.setitem(answers._ANSWERS, "samples", answer)
    queries.submit("samples", 1, {"x": 1})
    assert begun.wait(120)
    for number in (2, 3, 4):
        queries.submit("samples", number, {"x": number})
    go_on.set()
    assert result(told) == {"message": "4"}
    assert asked == [1, 4]


@pytest.mark.parametrize(
    ("error", "problem"),
    [
        (ZeroDivisionError("by zero"), "ZeroDivisionError: by zero"),
        (KeyError("x"), "KeyError: 'x'"),
    ],
)
def test_what_breaks_an_answer_is_told(
    queries: Queries,
    told: queue.Queue[Any],
    monkeypatch: pytest.MonkeyPatch,
    error: Exception,
    problem: str,
) -> None:
    def answer(*_: Any) -> Confirmation:
        raise error

    monkeypatch.setitem(answers._ANSWERS, "samples", answer)
    queries.submit("samples", 1, {})
    message = last(told)
    assert (message["status"], message["problem"]["problem"]) == ("failed", problem)


def test_a_topic_that_has_no_query_is_refused(queries: Queries, told: queue.Queue[Any]) -> None:
    queries.submit("file", 1, {})
    assert "file" in last(told)["problem"]["problem"]


@pytest.mark.slow
def test_the_model_and_the_data_are_looked_at(queries: Queries, told: queue.Queue[Any]) -> None:
    queries.submit("model", 1, {})
    # 64 inputs, two hidden layers of 128, ten classes, each with its offsets.
    assert result(told)["num_parameters"] == 65 * 128 + 129 * 128 + 129 * 10
    queries.submit("data", 2, {})
    data = result(told)
    assert (data["task"], data["samples"][0]["kind"]) == ("classification", "image")


def test_a_model_that_cannot_be_made_is_told_at_its_field(
    context: QueryContext, queries: Queries, told: queue.Queue[Any]
) -> None:
    context.draft.edit([("model", "lstm")])
    queries.submit("model", 1, {})
    assert last(told)["problem"]["field"] == "model"


def test_what_is_wrong_is_said_before_a_run_and_nothing_is_started(
    context: QueryContext, queries: Queries, told: queue.Queue[Any]
) -> None:
    context.draft.edit([("model.hidden_width", 0), ("plan.strategy", "horse")])
    queries.submit("preflight", 1, {})
    assert {problem["field"] for problem in result(told)["problems"]} == {
        "model.hidden_width",
        "plan.strategy",
    }
    for topic in ("start", "advice"):
        queries.submit(topic, 2, {"measure": True})
        assert last(told)["problem"]["field"] == "model.hidden_width"
    assert context.open_store().runs() == []


def test_without_an_advice_there_is_no_card(queries: Queries, told: queue.Queue[Any]) -> None:
    queries.submit("advice", 1, {"measure": False})
    assert result(told)["card"] is None
    queries.submit("what_if", 2, {"workers": 2})
    assert last(told)["problem"]["next_step"] == "Ask for advice first."
    queries.submit("stop_advice", 3, {})
    assert last(told)["status"] == "failed"


def test_the_result_of_a_run_and_what_can_be_done_next(
    context: QueryContext,
    queries: Queries,
    told: queue.Queue[Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    queries.submit("result", 1, {})
    assert last(told)["problem"]["next_step"] == "Start the run first."
    run_id = record_run(tmp_path)
    queries.submit("result", 2, {"run_id": run_id})
    lines = result(told)
    best = attach(run_id, store=context.open_store()).best
    assert best is not None
    assert (lines["run_id"], lines["best"]["trial"]) == (run_id, best.number)
    for topic, arguments, field in [
        ("extend", {"trials": "many"}, "trials"),
        ("enqueue", {"params": 3}, "params"),
    ]:
        queries.submit(topic, 3, {"run_id": run_id, **arguments})
        assert last(told)["problem"]["field"] == field


def test_a_view_that_asked_with_a_higher_number_takes_the_answer_to_another_view(
    queries: Queries, told: queue.Queue[Any]
) -> None:
    queries.submit("samples", 9, {})
    assert last(told)["query"] == 9
    queries.submit("samples", 4, {})
    assert last(told)["query"] == 9


def test_trees_are_described_as_they_have_no_layers(
    context: QueryContext, queries: Queries, told: queue.Queue[Any]
) -> None:
    context.draft.edit([("model", "boosted_trees")])
    queries.submit("model", 1, {})
    lines = result(told)
    assert (lines["layers"], lines["problems"], lines["memory"]) == ([], [], None)
    assert "1,000 in all" in lines["words"]


def test_data_is_summarized_as_it_is_written_whatever_else_is_wrong(context: QueryContext) -> None:
    draft = context.draft
    draft.edit([("search", {"lr": {"low": 2}})])
    draft.edit([("data", {"name": "breast_cancer"})])
    assert not draft.is_experiment
    assert context.with_written_data().data == Component(name="breast_cancer")
    draft.edit([("data", 3)])
    with pytest.raises(ExperimentError, match="until the experiment is right"):
        context.with_written_data()
