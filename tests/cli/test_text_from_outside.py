"""Text that others wrote steers no terminal, runs in no page and no spreadsheet; looking runs nothing."""

from __future__ import annotations

import hashlib
import pickle
import re
from pathlib import Path

import pytest

from tests.builders.recorded_runs import append, begin
from tests.services.shell import Shell
from workbench.events import Noted, RunStateChanged, TrialEnded, TrialProposed, TrialReported, TrialStarted
from workbench.experiment import Experiment
from workbench.formatting import printable
from workbench.live_feed.protocol import TableQuery
from workbench.live_feed.run_tail import RunTail
from workbench.live_feed.trial_table import trials_as_csv
from workbench.store import Store

HOSTILE = [
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "=cmd|' /C calc'!A0",
    "@SUM(1)",
    "\x1b[2J\x1b]0;owned\x07",
    "\x9b31m",
    "abc\u202eexe.txt\u2066",
    "bell\x07 back\x08 return\rover",
    "x" * 255,
]
_RAW = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
TEXT = "\n".join(HOSTILE)


@pytest.fixture
def run_id(shell: Shell) -> str:
    """A run whose parameters, metrics, messages, tracebacks and notes are hostile."""
    search = {"how": {"choices": HOSTILE}, "x": {"low": 0.0, "high": 1.0}}
    with Store.open(str(shell.folder / "store.sqlite")) as store:
        objectives = [{"metric": "loss", "goal": "minimize"}]
        run_id = store.create_run(Experiment(train="a:b", objectives=objectives, search=search))
        events = begin()
        for number, text in enumerate(HOSTILE):
            values = {"loss": 1.0 + number, text: 0.5}
            events += [
                TrialProposed(trial=number, params={"how": text, "x": 0.5}, configuration=number, seed=0),
                TrialStarted(trial=number, attempt=0, worker_pids=[1], hosts=[text]),
                TrialReported(trial=number, step=1, values=values),
                Noted(level="warning", message=text, trial=number),
            ]
            failed = {"state": "failed", "reason": "error", "message": text, "traceback": TEXT}
            ended = failed if number % 2 else {"state": "complete", "values": values}
            events.append(TrialEnded.model_validate({"trial": number, "attempt": 0, "step": 1, **ended}))
        events.append(RunStateChanged(state="failed", reason="error", message=TEXT))
        append(store, run_id, events)
    return run_id


def test_no_command_lets_text_from_outside_steer_the_terminal(shell: Shell, run_id: str) -> None:
    shown = ""
    commands = [("list",), ("show", run_id), ("follow", run_id), ("show", run_id, "--traceback")]
    commands += [("show", run_id, "--trial", str(number)) for number in range(len(HOSTILE))]
    for words in [*commands, ("show", run_id, "--json")]:
        _, out, err = shell(*words)
        assert _RAW.findall(out + err) == [], words
        shown += out + err
    assert printable("\x1b]0;owned\x07") in shown


def test_a_report_and_a_csv_contain_it_as_text_only(shell: Shell, run_id: str) -> None:
    assert shell("report", run_id, "--to", str(shell.folder / "report.html"))[0] == 0
    page = (shell.folder / "report.html").read_text()
    assert not [raw for raw in ("<script>alert", "<img src=x") if raw in page]
    with Store.open(str(shell.folder / "store.sqlite")) as store:
        tail = RunTail(store, run_id)
        tail.catch_up()
        cells = trials_as_csv(tail, TableQuery())
    assert not re.search(r'(^|[,"\n])[=@]', cells, re.MULTILINE)


def test_looking_at_a_run_of_somebody_else_unpickles_nothing(shell: Shell) -> None:
    mark = shell.folder / "was-unpickled"
    payload = pickle.dumps(_Touch(mark))
    sha256 = hashlib.sha256(payload).hexdigest()
    experiment = Experiment(
        train=f"embedded:train@{sha256}",
        objectives=[{"metric": "loss", "goal": "minimize"}],
        search={"x": {"low": 0.0, "high": 1.0}},
    ).with_payloads({sha256: payload})
    with Store.open(str(shell.folder / "store.sqlite")) as store:
        run_id = store.create_run(experiment)
        values = {"loss": 1.0}
        events = [
            *begin(),
            TrialProposed(trial=0, params={"x": 0.5}, configuration=0, seed=0),
            TrialStarted(trial=0, attempt=0, worker_pids=[1]),
            TrialReported(trial=0, step=1, values=values),
            TrialEnded(trial=0, attempt=0, state="complete", values=values, step=1),
            RunStateChanged(state="complete", reason="trials"),
        ]
        append(store, run_id, events)
    page = str(shell.folder / "report.html")
    looks = [("list",), ("show", run_id), ("show", run_id, "--trial", "0"), ("follow", run_id)]
    for words in [*looks, ("show", run_id, "--json"), ("report", run_id, "--to", page)]:
        assert shell(*words)[0] == 0, words
    with Store.open(str(shell.folder / "store.sqlite")) as store:
        tail = RunTail(store, run_id)
        tail.catch_up()
        trials_as_csv(tail, TableQuery())
    assert not mark.exists()
    pickle.loads(payload)
    assert mark.exists(), "the payload would have been noticed"


class _Touch:
    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[object, tuple[Path]]:
        return Path.touch, (self.path,)
