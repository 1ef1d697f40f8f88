"""Runs at a terminal: labels, the filters of the list, and deleting a run."""

from __future__ import annotations

from tests.builders.recorded_runs import EXPERIMENT, append, record_run
from tests.services.shell import Shell
from workbench.experiment import Experiment
from workbench.foundation.events import AdviceRequested, RunStateChanged
from workbench.store.database import Store


def test_labels_are_shown_and_filter_the_list(shell: Shell) -> None:
    first, second = record_run(shell.folder, name="one"), record_run(shell.folder, name="two")
    assert shell("tag", first, "baseline", "small")[1] == f"tag {first}: tags: baseline, small\n"
    assert shell.json("tag", first, "--remove", "small")["message"] == "tags: baseline"
    assert shell("rename", first, "warm-up")[1].endswith(": the run is now called warm-up\n")
    assert shell("note", first, "Before the fix.")[0] == 0
    assert shell("pin", first)[1] == f"pin {first}: pinned\n"

    listed = shell.json("list")
    assert [run["run_id"] for run in listed] == [first, second], "the pinned one first"
    assert listed[0]["tags"] == ["baseline"]
    assert listed[0]["notes"] == "Before the fix."
    text = shell("list")[1]
    assert "warm-up (pinned)" in text
    assert "baseline" in text
    assert [run["run_id"] for run in shell.json("list", "--tag", "baseline")] == [first]
    assert [run["run_id"] for run in shell.json("list", "--match", "fix before")] == [first]
    assert [run["run_id"] for run in shell.json("list", "--pinned")] == [first]
    assert shell("list", "--state", "failed")[1] == "No run matches. The store has 2 runs.\n"
    shown = shell("show", first)[1]
    assert "tags: baseline" in shown
    assert "Before the fix." in shown

    shell("archive", second)
    _, out, err = shell("list")
    assert second not in out
    assert err == "1 archived run not listed. To see them: workbench list --archived\n"
    assert [run["run_id"] for run in shell.json("list", "--archived")] == [second]
    shell("archive", second, "--undo")
    shell("pin", first, "--undo")
    assert [run["run_id"] for run in shell.json("list")] == [second, first]


def test_runs_of_one_name_have_the_versions_of_their_experiment(shell: Shell) -> None:
    first, changed = record_run(shell.folder), record_run(shell.folder, training={"epochs": 12})
    again, other = record_run(shell.folder), record_run(shell.folder, name="other")
    versions = {run["run_id"]: run["version"] for run in shell.json("list")}
    assert versions == {first: 1, changed: 2, again: 1, other: None}
    text = shell("list", "--limit", "3")[1]
    assert "version" in text.splitlines()[0]
    assert "version" not in shell("list", "--match", "other")[1]


def test_last_means_runs_with_trials_and_the_list_marks_advice(shell: Shell) -> None:
    request = AdviceRequested(objective="time", host="here", versions={})
    with Store.open(str(shell.folder / "store.sqlite")) as store:
        advice = [store.create_run(Experiment(**EXPERIMENT)) for _ in range(2)]
        for run_id in advice:
            append(store, run_id, [request, RunStateChanged(state="running")])
    assert shell.json("show", "last")["run_id"] == advice[1], "there is no other run"
    assert "kind" in shell("list")[1]

    run_id = record_run(shell.folder)
    with Store.open(str(shell.folder / "store.sqlite")) as store:
        newest = store.create_run(Experiment(**EXPERIMENT))
        append(store, newest, [request, RunStateChanged(state="running")])
    assert shell.json("show", "last")["run_id"] == run_id
    assert [(run["run_id"], run["kind"]) for run in shell.json("list", "--limit", "2")] == [
        (newest, "advice"),
        (run_id, "sweep"),
    ]


def test_a_run_is_deleted_only_with_consent(shell: Shell) -> None:
    kept, gone = record_run(shell.folder), record_run(shell.folder)
    code, _, err = shell("delete", gone)
    assert (code, "--yes" in err) == (2, True), "there is no terminal to ask"
    assert len(shell.json("list")) == 2
    code, out, _ = shell("delete", gone, "--yes")
    assert code == 0
    assert out.startswith(f"delete {gone}: freed ")
    assert [run["run_id"] for run in shell.json("list")] == [kept]
    running = record_run(shell.folder, ended=False)
    code, _, err = shell("delete", running, "--yes")
    assert (code, "cannot be deleted" in err) == (1, True)
