"""Text that others wrote steers no terminal, runs in no page and no spreadsheet.

Looking runs nothing.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import pickle
import re
from pathlib import Path

import pytest

import workbench as wb
from tests.builders.recorded_runs import append, begin
from tests.services.shell import Shell
from workbench.experiment import Experiment
from workbench.foundation.errors import WorkbenchError
from workbench.foundation.events import (
    CheckpointSaved,
    ModelChosen,
    Noted,
    RunStateChanged,
    TrialEnded,
    TrialProposed,
    TrialReported,
    TrialStarted,
)
from workbench.foundation.formatting import printable
from workbench.runs.plots.figures import FIGURES
from workbench.store.database import Store
from workbench.views.live_feed.protocol import TableQuery
from workbench.views.live_feed.run_summaries import run_detail
from workbench.views.live_feed.run_tail import RunTail
from workbench.views.live_feed.trial_detail import trial_detail
from workbench.views.live_feed.trial_table import trials_as_csv

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
                TrialProposed(
                    trial=number, params={"how": text, "x": 0.5}, configuration=number, seed=0
                ),
                TrialStarted(trial=number, attempt=0, worker_pids=[1], hosts=[text]),
                TrialReported(trial=number, step=1, values=values),
                Noted(level="warning", message=text, trial=number),
            ]
            failed = {"state": "failed", "reason": "error", "message": text, "traceback": TEXT}
            ended = failed if number % 2 else {"state": "complete", "values": values}
            events.append(
                TrialEnded.model_validate({"trial": number, "attempt": 0, "step": 1, **ended})
            )
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


PICKLED: dict[str, dict[str, object]] = {
    "a train function": {"train": "embedded:train@{sha256}"},
    "model, data, loss and metrics": {
        "model": "embedded:Net@{sha256}",
        "data": "embedded:data@{sha256}",
        "loss": "embedded:loss@{sha256}",
        "metrics": ["embedded:metric@{sha256}"],
        "objectives": [{"metric": "val_loss", "goal": "minimize"}],
    },
    "an automatic run": {
        "model": "mlp",
        "data": {"name": "embedded:data@{sha256}", "held_out": "{sha256}"},
        "objectives": [{"metric": "val_loss", "goal": "minimize"}],
    },
}
STORED = {
    "summary": ["mlp: accuracy 0.9"],
    "model": "mlp",
    "test": {"accuracy": 0.9},
    "baseline": {},
    "used": [],
    "leaderboard": {"columns": ["model", "trial"], "rows": [{"model": "mlp", "trial": 0}]},
    "analysis": {},
}


@pytest.mark.parametrize("fields", PICKLED.values(), ids=PICKLED.keys())
def test_looking_at_a_run_of_somebody_else_unpickles_nothing(
    shell: Shell, fields: dict[str, object]
) -> None:
    mark = shell.folder / "was-unpickled"
    payload = pickle.dumps(_Touch(mark))
    sha256 = hashlib.sha256(payload).hexdigest()
    document = {
        "name": "theirs",
        "objectives": [{"metric": "loss", "goal": "minimize"}],
        "search": {"family": {"choices": ["mlp", "forest"]}},
        **json.loads(json.dumps(fields).replace("{sha256}", sha256)),
    }
    experiment = Experiment(**document).with_payloads({sha256: payload})
    assert experiment.payload_hashes() == [sha256]
    is_automatic = "held_out" in str(fields)
    with Store.open(str(shell.folder / "store.sqlite")) as store:
        run_id = store.create_run(experiment)
        values = {experiment.objectives[0].metric: 1.0}
        place = store.artifacts_of(run_id)
        files = [
            f"trials/00000/{name}"
            for name in ("checkpoint.pt", "best.pt", "attachments/one.pickle")
        ]
        for name in files:
            place.write(name, payload)
        events = [
            *begin(),
            TrialProposed(trial=0, params={"family": "mlp"}, configuration=0, seed=0),
            TrialStarted(trial=0, attempt=0, worker_pids=[1]),
            TrialReported(trial=0, step=1, values=values),
            CheckpointSaved(trial=0, attempt=0, step=1, path=files[0]),
            CheckpointSaved(trial=0, attempt=0, step=1, path=files[1], best=True),
            TrialEnded(trial=0, attempt=0, state="complete", values=values, step=1),
            *([ModelChosen(result=STORED)] if is_automatic else []),
            RunStateChanged(state="complete", reason="trials"),
        ]
        append(store, run_id, events)
    page = str(shell.folder / "report.html")
    looks = [("list",), ("show", run_id), ("show", run_id, "--trial", "0"), ("follow", run_id)]
    looks += [
        ("show", run_id, "--json"),
        ("compare", run_id, run_id),
        ("report", run_id, "--to", page),
    ]
    for words in looks:
        assert shell(*words)[0] == 0, words
    with Store.open(str(shell.folder / "store.sqlite")) as store:
        tail = RunTail(store, run_id)
        tail.catch_up()
        trials_as_csv(tail, TableQuery())
        assert run_detail(tail).state == "complete"
        assert trial_detail(tail, 0) is not None
        run = wb.attach(run_id, store=store)
        assert run._repr_mimebundle_()
        assert run._repr_html_()
        for name in (*FIGURES, "confusion"):
            with contextlib.suppress(WorkbenchError):  # one that this run has nothing for
                run.figure(name)
        if is_automatic:
            attached = wb.AutoML.attach(run_id, store=store)
            assert "accuracy 0.9" in attached._repr_mimebundle_()["text/html"]
            append(
                store, run_id, [RunStateChanged(state="running"), RunStateChanged(state="stopped")]
            )
            assert wb.AutoML.attach(run_id, store=store)._repr_mimebundle_(), (
                "without a stored result"
            )
    assert not mark.exists()
    pickle.loads(payload)
    assert mark.exists(), "the payload would have been noticed"


class _Touch:
    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[object, tuple[Path]]:
        return Path.touch, (self.path,)
