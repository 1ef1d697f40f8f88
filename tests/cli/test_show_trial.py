from __future__ import annotations

import json

from tests.builders.recorded_runs import (
    EXPERIMENT,
    append,
    attach,
    begin,
    finish,
    record_run,
    trial_events,
)
from tests.builders.report_pages import report_html
from tests.services.shell import Shell
from workbench.experiment import Experiment
from workbench.store.database import Store


def test_one_trial_is_shown_with_its_whole_traceback(shell: Shell) -> None:
    run_id = record_run(shell.folder)

    code, out, err = shell("show", run_id, "--trial", "3")

    assert (code, err) == (0, "")
    assert out.startswith(f"trial 3 of {run_id}  failed (error)\n")
    assert "ValueError: too wide (x.py:1)\n" in out
    assert out.endswith('  File "x.py", line 1, in f\nValueError: too wide\n')
    assert "lr" in out
    assert "32 x 2 accumulated x 1 worker" in out


def test_a_trial_that_did_not_fail_is_shown_without_one(shell: Shell) -> None:
    record_run(shell.folder)

    code, out, _ = shell("show", "last", "--trial", "1")

    assert code == 0
    assert "complete" in out
    assert "Traceback" not in out


def test_only_the_traceback_can_be_printed(shell: Shell) -> None:
    record_run(shell.folder)
    traceback = (
        'Traceback (most recent call last):\n  File "x.py", line 1, in f\nValueError: too wide\n'
    )

    assert shell("show", "last", "--traceback") == (0, traceback, "")
    assert shell("show", "last", "--trial", "3", "--traceback") == (0, traceback, "")
    code, out, err = shell("show", "last", "--trial", "1", "--traceback")
    assert (code, out) == (1, "")
    assert "trial 1 is complete and has no traceback" in err


def test_a_trial_that_does_not_exist_is_refused(shell: Shell) -> None:
    record_run(shell.folder)

    code, _, err = shell("show", "last", "--trial", "12")

    assert code == 2
    assert "the run has no trial 12; allowed: 0 to 4" in err


def test_a_stopped_trial_and_its_continuation_name_each_other(shell: Shell) -> None:
    with Store.open(str(shell.folder / "store.sqlite")) as store:
        run_id = store.create_run(Experiment(**EXPERIMENT))
        proposed, *rest = trial_events(1, at_s=5)
        resumed = proposed.model_copy(update={"resumes": 0, "configuration": 0})
        append(
            store,
            run_id,
            [*begin(), *trial_events(0, at_s=0, state="pruned"), resumed, *rest, *finish(9)],
        )
        page = report_html(
            store.experiment(run_id), [stored.event for stored in store.events(run_id)]
        )

    assert "continued by trial 1" in shell("show", run_id, "--trial", "0")[1]
    assert (
        "continues trial 0, which was stopped at step" in shell("show", run_id, "--trial", "1")[1]
    )
    sentence = "2 trials of 1 configuration: 1 stopped trial was continued (0 by 1)"
    assert sentence in shell("show", run_id)[1]
    assert f"<p>{sentence}.</p>" in page
    assert "A continuation joins the stopped trial." in page


def test_the_log_of_a_trial_is_named(shell: Shell) -> None:
    run_id = record_run(shell.folder)
    with Store.open(str(shell.folder / "store.sqlite")) as store:
        log = store.folder(run_id) / "trials" / "00003" / "log.txt"
    log.parent.mkdir(parents=True)
    log.touch()

    assert str(log) in shell("show", run_id, "--trial", "3")[1]


def test_a_trial_as_json_names_the_line_that_failed(shell: Shell) -> None:
    run_id = record_run(shell.folder)

    shown = shell.json("show", run_id, "--trial", "3")

    assert (shown["run_id"], shown["number"], shown["failed_at"]) == (run_id, 3, "x.py:1")
    assert shown["traceback"].endswith("ValueError: too wide")
    trials = shell.json("show", run_id)["trials"]
    assert [trial["failed_at"] for trial in trials] == [None, None, None, "x.py:1", "x.py:1"]


def test_what_a_trial_attached_is_named_with_its_file(shell: Shell) -> None:
    run_id = record_run(shell.folder)
    with Store.open(str(shell.folder / "store.sqlite")) as store:
        files = attach(store, run_id, 1)
        folder = store.folder(run_id)

    out = "".join(shell("show", run_id, "--trial", "1")[1].split())

    for name, file in files.items():
        assert f"{name},step40:{folder}/trials/00001/attachments/{file}" in out
    shown = json.loads(shell("show", run_id, "--trial", "1", "--json")[1])
    assert [attachment["kind"] for attachment in shown["attachments"]] == ["image", "table", "text"]
