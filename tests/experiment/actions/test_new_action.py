"""A new action is one entry of the table and its implementation.

Everything else follows from the table.
"""

from __future__ import annotations

import re
import threading
from pathlib import Path
from typing import Any
from unittest.mock import create_autospec

import pytest

from tests.builders.recorded_runs import EXPERIMENT, append, begin, trial_events
from tests.services.shell import Shell
from workbench.experiment import Experiment
from workbench.experiment.actions import ACTIONS, Action, Argument
from workbench.foundation.errors import ArgumentError, RunError
from workbench.foundation.events import Noted
from workbench.runs import Run
from workbench.store.database import Store
from workbench.store.history import History
from workbench.sweeps.ledger import Ledger
from workbench.sweeps.user_commands import HANDLERS, Commands, Steered
from workbench.views.live_feed import action_messages
from workbench.views.live_feed.available_actions import offers_of_run
from workbench.views.live_feed.feed import Feed
from workbench.views.server.actions import ActionRunner

REMARK = Action(
    "remark",
    "Add a remark",
    "Add a remark to the log of a run.",
    "driver",
    explanation="The remark appears in the log.",
    arguments=(
        Argument(
            "text",
            "text",
            "Write this remark.",
            label="Remark",
            is_required=True,
            is_positional=True,
        ),
        Argument(
            "level", "count", "Give it this importance.", label="Importance", hint="1 is normal"
        ),
    ),
    for_run=lambda run: run.is_alive,
    asks_first=True,
    examples=("workbench remark last --text hello",),
)


def remark(run: Run, text: str, level: int = 1) -> str | None:
    """The implementation for Python."""
    return run.command("remark", {"text": text, "level": level})


def carry_out(_commands: Commands, arguments: dict[str, Any], events: list[Any]) -> str:
    """The implementation for the driver."""
    events.append(Noted(level="info", message=arguments["text"]))
    return f"noted with importance {arguments['level']}"


@pytest.fixture
def run(shell: Shell, monkeypatch: pytest.MonkeyPatch):
    """A run under way with a driver that knows the new action."""
    monkeypatch.setitem(ACTIONS, "remark", REMARK)
    monkeypatch.setattr(Run, "remark", remark, raising=False)
    monkeypatch.setitem(HANDLERS, "remark", carry_out)
    with Store.open(str(shell.folder / "store.sqlite")) as store:
        run_id = store.create_run(Experiment(**EXPERIMENT))
        append(store, run_id, [*begin(), *trial_events(0, at_s=1, accuracy=0.9)])
        has_ended = threading.Event()

        def drive() -> None:
            ledger = Ledger(store, run_id)
            with store.writer(run_id, owner_pid=1, owner_host="here") as writer:
                ledger.replay(writer)
                commands = Commands(store, ledger, create_autospec(Steered, instance=True))
                while not has_ended.wait(0.02):
                    commands.carry_out()

        driver = threading.Thread(target=drive)
        driver.start()
        yield Run(store, run_id)
        has_ended.set()
        driver.join()


def test_the_command_line_has_it_with_its_options(shell: Shell, run: Run) -> None:
    assert re.search(r"remark +Add a remark to the log of a run\.", shell("--help")[1])
    text = shell("remark", "--help")[1]
    assert "--text TEXT" in text
    assert "--level N" in text
    assert "Give it this importance." in text

    assert shell.json("remark", run.run_id, "--text", "hello", "--level", "2") == {
        "run_id": run.run_id,
        "text": "hello",
        "level": 2,
        "message": "noted with importance 2",
    }
    assert [event.message for event in run.events() if isinstance(event, Noted)] == ["hello"]

    code, _, err = shell("remark", run.run_id, "--text", "hello", "--level", "0")
    assert code == 2
    assert "'0' is not valid; allowed: a whole number from 1" in err


def test_python_and_the_driver_check_its_arguments(run: Run) -> None:
    assert run.act("remark", {"text": "hello"}) == "noted with importance 1"
    with pytest.raises(
        ArgumentError, match="level: 0 is not valid; allowed: a whole number from 1"
    ):
        run.act("remark", {"text": "hello", "level": 0})
    with pytest.raises(RunError, match="refused: level: 'high' is not valid"):
        run.command("remark", {"text": "hello", "level": "high"})


def test_the_server_offers_it_does_it_and_shows_its_snippet(
    shell: Shell, run: Run, tmp_path: Path
) -> None:
    history = History.of(run.experiment, run.events())
    offers = offers_of_run(run.row, history, is_advice=False)
    offer = next(each for each in offers if each.kind == "remark")
    assert (offer.label, offer.explanation) == ("Add a remark", "The remark appears in the log.")
    assert [(field.name, field.label, field.hint) for field in offer.fields] == [
        ("text", "Remark", ""),
        ("level", "Importance", "1 is normal"),
    ]

    feed = Feed(lambda: Store.open(run.store.url))
    runner = ActionRunner(feed, tmp_path)
    request = action_messages.Action(
        kind="remark", run=run.run_id, arguments={"text": "it's done", "level": 3}
    )
    done = runner.do(request)
    assert done.answer == "noted with importance 3"
    assert done.command == f"workbench remark {run.run_id} --text 'it'\"'\"'s done' --level 3"
    assert done.python == f'wb.attach("{run.run_id}").remark("it\'s done", level=3)'
    assert (runner.snippet(request).command, runner.snippet(request).python) == (
        done.command,
        done.python,
    )
    for arguments, field in (
        ({"text": 1}, "text"),
        ({}, "text"),
        ({"text": "a", "colour": "red"}, "colour"),
    ):
        with pytest.raises(ArgumentError) as caught:
            runner.do(action_messages.Action(kind="remark", run=run.run_id, arguments=arguments))
        assert caught.value.field == field
    feed.close()
