from __future__ import annotations

import queue
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.run.recorded import record_run
from workbench.forms import Draft, answers
from workbench.forms.answers import Desk
from workbench.forms.questions import Questions
from workbench.run import attach


@pytest.fixture
def told() -> queue.Queue[dict[str, Any]]:
    return queue.Queue()


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(Draft(), str(tmp_path / "store.sqlite"))


@pytest.fixture
def questions(desk: Desk, told: queue.Queue[dict[str, Any]]) -> Iterator[Questions]:
    made = Questions(desk, told.put)
    yield made
    made.end()


def last(told: queue.Queue[dict[str, Any]]) -> dict[str, Any]:
    while (message := told.get(timeout=120))["status"] == "working":
        pass
    return message


def picture(told: queue.Queue[dict[str, Any]]) -> dict[str, Any]:
    message = last(told)
    assert message["status"] == "done", message
    return message["picture"]


def test_an_answer_bears_the_number_of_its_question(questions: Questions, told: queue.Queue[Any]) -> None:
    questions.ask("samples", 7, {})
    message = last(told)
    assert (message["type"], message["name"], message["question"]) == ("part", "samples", 7)
    assert [one["name"] for one in message["picture"]["parameters"]] == ["lr"]
    assert questions.told() == [message]


def test_only_the_newest_question_of_a_part_is_answered(
    questions: Questions, told: queue.Queue[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, go_on = threading.Event(), threading.Event()
    asked = []

    def answer(_desk: Desk, arguments: dict[str, Any], say: Any) -> dict[str, Any]:
        asked.append(arguments["x"])
        begun.set()
        assert go_on.wait(30)
        say("late")
        return {"x": arguments["x"]}

    monkeypatch.setitem(answers._ANSWERS, "samples", answer)
    questions.ask("samples", 1, {"x": 1})
    assert begun.wait(30)
    for number in (2, 3, 4):
        questions.ask("samples", number, {"x": number})
    go_on.set()
    assert picture(told) == {"x": 4}
    assert asked == [1, 4]


@pytest.mark.parametrize(
    ("error", "problem"),
    [(ZeroDivisionError("by zero"), "ZeroDivisionError: by zero"), (KeyError("x"), "KeyError: 'x'")],
)
def test_what_breaks_an_answer_is_told(
    questions: Questions,
    told: queue.Queue[Any],
    monkeypatch: pytest.MonkeyPatch,
    error: Exception,
    problem: str,
) -> None:
    def answer(*_: Any) -> dict[str, Any]:
        raise error

    monkeypatch.setitem(answers._ANSWERS, "samples", answer)
    questions.ask("samples", 1, {})
    message = last(told)
    assert (message["status"], message["problem"]["problem"]) == ("failed", problem)


def test_what_nobody_answers_is_refused(questions: Questions, told: queue.Queue[Any]) -> None:
    questions.ask("horse", 1, {})
    assert "horse" in last(told)["problem"]["problem"]


def test_the_model_and_the_data_are_looked_at(questions: Questions, told: queue.Queue[Any]) -> None:
    questions.ask("model", 1, {})
    # 64 inputs, two hidden layers of 128, ten classes, each with its offsets.
    assert picture(told)["num_parameters"] == 65 * 128 + 129 * 128 + 129 * 10
    questions.ask("data", 2, {})
    data = picture(told)
    assert (data["task"], data["samples"][0]["kind"]) == ("classification", "image")


def test_a_model_that_cannot_be_made_is_told_at_its_field(
    desk: Desk, questions: Questions, told: queue.Queue[Any]
) -> None:
    desk.draft.edit([("model", "lstm")])
    questions.ask("model", 1, {})
    assert last(told)["problem"]["field"] == "model"


def test_what_is_wrong_is_said_before_a_run_and_nothing_is_started(
    desk: Desk, questions: Questions, told: queue.Queue[Any]
) -> None:
    desk.draft.edit([("model.hidden_width", 0), ("plan.strategy", "horse")])
    questions.ask("preflight", 1, {})
    assert {one["field"] for one in picture(told)["problems"]} == {"model.hidden_width", "plan.strategy"}
    for part in ("start", "advice"):
        questions.ask(part, 2, {"measure": True})
        assert last(told)["problem"]["field"] == "model.hidden_width"
    assert desk.opened().runs() == []


def test_without_an_advice_there_is_an_empty_card(questions: Questions, told: queue.Queue[Any]) -> None:
    questions.ask("advice", 1, {"measure": False})
    assert picture(told)["card"] == []
    questions.ask("what_if", 2, {"workers": 2})
    assert last(told)["problem"]["next_step"] == "Ask for an advice first."
    questions.ask("stop_advice", 3, {})
    assert last(told)["status"] == "failed"


def test_the_result_of_a_run_and_what_can_be_done_next(
    desk: Desk, questions: Questions, told: queue.Queue[Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    questions.ask("result", 1, {})
    assert last(told)["problem"]["next_step"] == "Start the run first."
    run_id = record_run(tmp_path)
    questions.ask("result", 2, {"run_id": run_id})
    found = picture(told)
    best = attach(run_id, store=desk.opened()).best
    assert best is not None
    assert (found["run_id"], found["best"]["trial"]) == (run_id, best.number)
    for part, arguments, field in [
        ("extend", {"trials": "many"}, "trials"),
        ("enqueue", {"params": 3}, "params"),
    ]:
        questions.ask(part, 3, {"run_id": run_id, **arguments})
        assert last(told)["problem"]["field"] == field


def test_a_view_that_asked_with_a_higher_number_takes_the_answer_to_another_view(
    questions: Questions, told: queue.Queue[Any]
) -> None:
    questions.ask("samples", 9, {})
    assert last(told)["question"] == 9
    questions.ask("samples", 4, {})
    assert last(told)["question"] == 9


def test_trees_are_described_as_they_have_no_layers(
    desk: Desk, questions: Questions, told: queue.Queue[Any]
) -> None:
    desk.draft.edit([("model", "boosted_trees")])
    questions.ask("model", 1, {})
    found = picture(told)
    assert (found["layers"], found["problems"], found["memory"]) == ([], [], None)
    assert "1,000 in all" in found["words"]
