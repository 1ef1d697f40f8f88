from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import workbench
from tests.builders.advice import advice
from tests.builders.recorded_runs import (
    EXPERIMENT,
    PLAN,
    append,
    begin,
    finish,
    record_run,
    trial_events,
)
from tests.services.shell import Shell, run_without
from workbench.cli.entry import COMMANDS
from workbench.cli.options import write_for_shell
from workbench.experiment import Experiment
from workbench.experiment.actions import suggest
from workbench.foundation.errors import StoreError, Suggestion
from workbench.foundation.events import (
    AdviceGiven,
    AttemptEnded,
    Clone,
    Noted,
    RunStateChanged,
    TrialEnqueued,
    TrialStarted,
)
from workbench.runs.descriptions import log_file
from workbench.store.database import Store


def test_list_as_json_names_every_run_newest_first(shell: Shell) -> None:
    first, second = (
        record_run(shell.folder, name="one"),
        record_run(shell.folder, name="two", ended=False),
    )

    listed = shell.json("list")

    assert [(run["run_id"], run["name"], run["state"]) for run in listed] == [
        (second, "two", "running"),
        (first, "one", "complete"),
    ]
    assert [run["run_id"] for run in shell.json("list", "--limit", "1")] == [second]


def test_show_states_what_is_measured_before_the_first_trial(shell: Shell) -> None:
    with Store.open(str(shell.folder / "store.sqlite")) as store:
        run_id = store.create_run(Experiment(**EXPERIMENT))
        append(
            store,
            run_id,
            [*begin(), Noted(level="info", message="measuring how many trials share a GPU")],
        )
        assert "preparing: measuring how many trials share a GPU" in shell("show", run_id)[1]
        append(store, run_id, trial_events(0, at_s=1, state="running"))
        assert "before its first trial" not in shell("show", run_id)[1]


def test_show_says_why_a_sweep_that_follows_older_advice_has_its_own(shell: Shell) -> None:
    def given(settings: dict[str, Any]) -> AdviceGiven:
        return AdviceGiven(advice=advice() | {"settings": settings})

    older = given({"training.lr": 0.02, "plan.workers": 1, "plan.micro_batch": 64})
    own = given({"plan.workers": 2, "plan.micro_batch": 64})
    with Store.open(str(shell.folder / "store.sqlite")) as store:
        advised, swept, alone = (store.create_run(Experiment(**EXPERIMENT)) for _ in range(3))
        append(store, advised, [*begin(), older, RunStateChanged(state="complete")])
        followed = TrialEnqueued(params={"lr": 0.02}, advice_run_id=advised, advised={"lr": 0.02})
        append(store, swept, [*begin(), own, followed])
        append(store, alone, [*begin(), own])
    printed = " ".join(shell("show", swept)[1].split())
    assert (
        f"The first configuration is what {advised} advises. How a trial is divided was measured"
        " again for this run, on the workers that it has now. That is the advice below:"
        " plan.workers 2 instead of 1. Advice for"
    ) in printed
    assert "advises" not in shell("show", alone)[1]
    assert shell("delete", advised, "--yes")[0] == 0
    printed = " ".join(shell("show", swept)[1].split())
    assert "That is the advice below. Advice for" in printed


def test_a_run_that_was_stopped_was_stopped_by_the_user(shell: Shell) -> None:
    with Store.open(str(shell.folder / "store.sqlite")) as store:
        run_id = store.create_run(Experiment(**EXPERIMENT))
        append(store, run_id, [*begin(), RunStateChanged(state="stopped", reason="person")])
    assert "stopped: by the user" in shell("show", run_id)[1]
    followed = shell("follow", run_id)[1]
    assert "run stopped: by the user" in followed
    assert "person" not in followed


def test_show_states_why_the_latest_trials_were_pruned(shell: Shell) -> None:
    with Store.open(str(shell.folder / "store.sqlite")) as store:
        run_id = store.create_run(Experiment(**EXPERIMENT))
        pruned = [trial_events(number, at_s=number, state="pruned") for number in range(7)]
        ends = [
            end.model_copy(update={"message": f"reason {n}"}) for n, (*_, end) in enumerate(pruned)
        ]
        append(
            store,
            run_id,
            [*begin(), *(e for n, one in enumerate(pruned) for e in (*one[:-1], ends[n]))],
        )
    _, out, _ = shell("show", run_id)
    shown = out.partition("Why trials were pruned")[2].splitlines()
    assert shown[1:7] == [
        *(f"  trial {number}: reason {number}" for number in range(2, 7)),
        f"  and 2 more: workbench show {run_id} --trial 0",
    ]


def test_show_and_list_say_what_a_run_waits_for_until_it_trains(shell: Shell) -> None:
    with Store.open(str(shell.folder / "store.sqlite")) as store:
        run_id = store.create_run(Experiment(**EXPERIMENT))
        proposed, started, *_ = trial_events(0, at_s=1, state="running")
        with store.writer(run_id, owner_pid=os.getpid(), owner_host=socket.gethostname()) as writer:
            note = "waits for workers: run a has 2 workers, this run is next"
            writer.append(*begin(), proposed, Noted(level="info", message=note))
            assert note in shell("show", run_id)[1]
            assert note.removeprefix("waits for ") in shell("list")[1]
            assert shell.json("show", run_id)["waits_for"] == note.removeprefix("waits for ")
            writer.append(started)
            assert "waits for" not in shell("show", run_id)[1] + shell("list")[1]
            assert shell.json("list")[0]["waits_for"] is None


def test_a_run_whose_driver_was_just_killed_can_be_resumed_at_once(shell: Shell) -> None:
    owner = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    with Store.open(str(shell.folder / "store.sqlite")) as store:
        run_id = store.create_run(Experiment(**EXPERIMENT))
        writer = store.writer(run_id, owner_pid=owner.pid, owner_host=socket.gethostname())
        writer.append(*begin())
        writer._closing.set()  # the heart stops, as in a process that was killed
        assert f"driven by process {owner.pid}" in shell("show", run_id)[1]
        owner.kill()
        owner.wait()
        out = shell("show", run_id)[1]
        assert f"process {owner.pid} on {socket.gethostname()}, has ended" in out
        assert f"workbench resume {run_id}" in out


@pytest.mark.parametrize(
    ("typed", "meant"), [("wait", "follow"), ("cancel", "stop"), ("shwo", "show")]
)
def test_a_command_of_another_tool_leads_to_ours(shell: Shell, typed: str, meant: str) -> None:
    code, _, err = shell(typed, "last")
    assert code == 2
    assert f"Did you mean {meant}?" in err


def test_the_next_step_of_an_error_names_the_store_in_use(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_id = record_run(shell.folder)
    monkeypatch.setenv("WORKBENCH_STORE", str(shell.folder / "other.sqlite"))
    store = str(shell.folder / "store.sqlite")
    code, _, err = shell("stop", run_id, "--store", store)
    assert code == 1
    assert err.endswith(
        f"To continue it: workbench extend {run_id} --more-trials 10 --store {store}\n"
    )


@pytest.mark.parametrize(
    ("suggestion", "written"),
    [
        (
            suggest("resume", "a-1", lead="To continue"),
            "To continue: workbench resume a-1 --address http://h:1",
        ),
        (
            suggest("extend", "a.b", trials=1),
            "workbench extend a.b --more-trials 1 --address http://h:1",
        ),
        (suggest("sweep", "a.yaml"), "workbench submit a.yaml --address http://h:1"),
        (suggest("advise", "FILE"), "workbench advise FILE"),
        (suggest("doctor"), "workbench doctor"),
    ],
)
def test_a_next_step_names_the_cluster_where_its_command_takes_one(
    suggestion: Suggestion, written: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WORKBENCH_SHOWN_ADDRESS", "http://h:1")
    assert write_for_shell(suggestion) == written


@pytest.mark.parametrize(
    "words", [("list",), ("show", "last"), ("report", "last"), ("compare", "a", "b")]
)
def test_a_store_that_the_environment_names_by_mistake_is_refused_and_not_created(
    shell: Shell, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...]
) -> None:
    Store.open(str(shell.folder / "store.sqlite")).close()
    missing = shell.folder / "stoer.sqlite"
    monkeypatch.setenv("WORKBENCH_STORE", str(missing))
    code, _, err = shell(*words)
    assert code == 1
    assert f"there is no store at {missing} (from WORKBENCH_STORE)" in err
    assert str(shell.folder / "store.sqlite") in err
    assert "The first sweep that uses it creates it" in err
    with pytest.raises(StoreError, match="from WORKBENCH_STORE"):
        workbench.attach("last")
    assert not missing.exists()


def test_list_of_an_empty_store_says_how_to_begin(shell: Shell) -> None:
    Store.open(str(shell.folder / "store.sqlite")).close()
    assert shell.json("list") == []
    code, out, _ = shell("list")
    assert code == 0
    assert "workbench sweep FILE" in out


def test_show_as_json_has_every_promised_key(shell: Shell) -> None:
    run_id = record_run(shell.folder)

    shown = shell.json("show", run_id)

    assert {key: shown[key] for key in ("run_id", "name", "state")} == {
        "run_id": run_id,
        "name": "digits-small",
        "state": "complete",
    }
    with Store.open(str(shell.folder / "store.sqlite")) as store:
        assert shown["experiment_hash"] == store.experiment(run_id).hash()
    assert set(shown["driver"]) == {"pid", "host"}
    assert isinstance(shown["driver"]["pid"], int)
    assert shown["best"] == {
        "trial": 1,
        "values": {"val_accuracy": 0.95},
        "params": {"lr": 0.1, "width": 8},
    }
    assert shown["trials"][3] == {
        "number": 3,
        "state": "failed",
        "reason": "error",
        "message": "ValueError: too wide",
        "params": {"lr": 0.01, "width": 16},
        "values": {"val_accuracy": 0.9},
        "last_step": 40,
        "reports": 2,
        "reports_left_out": 0,
        "attempts": 1,
        "plan": PLAN,
        "peak_rate": None,
        "tokens": None,
        "memory_share": None,
        "memory_gb": None,
        "predicted_memory": None,
        "setbacks": [],
        "resizes": [],
        "attachments": [],
        "failed_at": "x.py:1",
        "segment": None,
        "resumes": None,
        "clone": None,
        "turn": 0,
        "fidelity": None,
        "traceback": (
            'Traceback (most recent call last):\n  File "x.py", line 1, in f\nValueError: too wide'
        ),
    }
    assert [trial["state"] for trial in shown["trials"]] == [
        "complete",
        "complete",
        "pruned",
        "failed",
        "failed",
    ]


def test_json_holds_no_number_that_strict_parsers_refuse(shell: Shell) -> None:
    run_id = record_run(shell.folder)

    assert shell.json("show", run_id)["trials"][4]["values"] == {"val_accuracy": "NaN"}


def test_show_before_any_driver_has_the_same_shape(shell: Shell) -> None:
    with Store.open(str(shell.folder / "store.sqlite")) as store:
        run_id = store.create_run(Experiment(**json.loads(_experiment_text())))

    shown = shell.json("show", run_id)

    assert (shown["state"], shown["best"], shown["trials"]) == ("waiting", None, [])
    assert shown["driver"] == {"pid": None, "host": None}


def test_show_tells_people_the_best_what_failed_and_what_to_type(shell: Shell) -> None:
    run_id = record_run(shell.folder)

    code, out, err = shell("show", "digits")

    assert (code, err) == (0, "")
    assert "value of a trial" not in out, "only if the experiment sets it"
    for expected in (
        "complete",
        "Best: trial 1",
        "0.95",
        "trial 3: ValueError: too wide (x.py:1)",
        f"workbench show {run_id} --trial 3",
        f"workbench report {run_id}",
        f"workbench export {run_id} --to best",
    ):
        assert expected in out


def test_show_tells_the_plan_and_what_trials_went_on_from(shell: Shell) -> None:
    with Store.open(str(shell.folder / "store.sqlite")) as store:
        run_id = store.create_run(Experiment(**EXPERIMENT))
        events = begin()
        for number in (0, 1):
            proposed, started, *rest = trial_events(number, at_s=number)
            lost = AttemptEnded(
                trial=number,
                attempt=0,
                reason="lost",
                message="the driver ended\nas process 12",
                is_retry=False,
            )
            plan = PLAN | {"workers": 2, "accumulation": 1, "strategy": "ddp"}
            again = TrialStarted(trial=number, attempt=1, worker_pids=[98, 99], plan=plan)
            lost_again = lost.model_copy(update={"attempt": 1})
            events += [proposed, started, lost, again, *([lost_again, again] * number), *rest]
        append(store, run_id, [*events, *finish(9)])

    code, out, _ = shell("show", run_id)
    assert code == 0
    assert "What interrupted trials\n  trials 0, 1: lost: the driver ended (3 times)" in out
    assert "64 samples = 32 x 1 accumulated x 2 workers, fp32, ddp" in out
    shown = shell.json("show", run_id)["trials"][0]
    assert shown["attempts"] == 2
    assert shown["setbacks"] == [
        {
            "attempt": 0,
            "reason": "lost",
            "message": "the driver ended\nas process 12",
            "next_plan": {},
        }
    ]


def test_show_tells_where_a_clone_comes_from(shell: Shell) -> None:
    proposed, *rest = trial_events(1, at_s=4, lr=0.02, accuracy=0.95)
    cloned = proposed.model_copy(update={"clone": Clone(of=0, begins_from="start")})
    with Store.open(str(shell.folder / "store.sqlite")) as store:
        run_id = store.create_run(Experiment(**EXPERIMENT))
        append(store, run_id, [*begin(), *trial_events(0, at_s=1), cloned, *rest, *finish(9)])
    for options in ([], ["--trial", "1"]):
        (line,) = [
            line
            for line in shell("show", run_id, *options)[1].splitlines()
            if "clone of trial 0" in line
        ]
        assert line.split(maxsplit=1)[0] == "origin"


def test_a_run_in_which_everything_failed_is_extended_and_not_resumed(shell: Shell) -> None:
    with Store.open(str(shell.folder / "store.sqlite")) as store:
        run_id = store.create_run(Experiment(**{**EXPERIMENT, "budget": {"trials": 1}}))
        failed = trial_events(0, at_s=0, state="failed", reason="error")
        end = finish(9, "failed", "failures")[0].model_copy(
            update={"message": "the only trial failed: no"}
        )
        append(store, run_id, [*begin(), *failed, end])

    assert "failed" in shell("list")[1]
    shown = shell("show", run_id)[1]
    assert "failed: the only trial failed\n" in shown, "why stands beside the trial"
    assert f"workbench extend {run_id} --more-trials 10" in shown
    code, _, err = shell("resume", run_id)
    assert (code, "no trial left to try: the only trial failed: no" in err) == (1, True)
    code, out, _ = shell("follow", run_id)
    assert code == 4
    assert "digits-small failed (the only trial failed)" in out


def test_an_error_of_the_workbench_stands_without_its_class(shell: Shell) -> None:
    with Store.open(str(shell.folder / "store.sqlite")) as store:
        run_id = store.create_run(Experiment(**EXPERIMENT))
        *others, end = trial_events(0, at_s=0, state="failed", reason="error")
        message = "data.task: there is none"
        trace = f"Traceback (most recent call last):\nworkbench.errors.ExperimentError: {message}\n"
        ended = end.model_copy(update={"message": message, "traceback": trace})
        append(store, run_id, [*begin(), *others, ended, *finish(9, "failed", "error")])
    assert "  trial 0: data.task: there is none\n" in shell("show", run_id)[1]


def test_a_run_that_ends_because_its_trials_fail_alike_is_resumed_once_that_is_fixed(
    shell: Shell,
) -> None:
    with Store.open(str(shell.folder / "store.sqlite")) as store:
        run_id = store.create_run(Experiment(**EXPERIMENT))
        failed = [
            trial_events(number, at_s=0, state="failed", reason="error") for number in range(3)
        ]
        end = finish(9, "failed", "failures")[0].model_copy(
            update={"message": "the first 3 failed: too wide"}
        )
        append(store, run_id, [*begin(), *(event for events in failed for event in events), end])
        log = log_file(store.folder(run_id), 0)
    log.parent.mkdir(parents=True)
    log.write_text("Traceback")

    out = shell("follow", run_id)[1]
    summary = out.partition("\n\n")[2]
    assert summary.count("too wide") == 1
    assert "failed  trials 0, 1, 2: ValueError: too wide (x.py:1)" in summary
    assert f"log of trial 0: {log}" in summary
    assert f"resume it once your code is fixed  workbench resume {run_id}" in summary
    assert "run a corrected file               workbench sweep FILE" in summary


def test_several_objectives_have_a_front_in_the_terminal(shell: Shell) -> None:
    with Store.open(str(shell.folder / "store.sqlite")) as store:
        objectives = [
            {"metric": "val_accuracy", "goal": "maximize"},
            {"metric": "cost", "goal": "minimize"},
        ]
        run_id = store.create_run(Experiment(**{**EXPERIMENT, "objectives": objectives}))
        events = [*begin()]
        for number, (accuracy, cost) in enumerate([(0.9, 5.0), (0.8, 1.0), (0.7, 2.0)]):
            *training, end = trial_events(number, at_s=number, accuracy=accuracy)
            values = {"val_accuracy": accuracy, "cost": cost}
            events += [*training, end.model_copy(update={"values": values})]
        append(store, run_id, [*events, *finish(9)])

    shown, followed = shell("show", run_id)[1], shell("follow", run_id)[1]
    assert "Best: trial" not in shown
    assert "On the Pareto front: trials 0, 1" in shown
    assert "(best so far)" not in followed
    assert [line.split()[0] for line in followed.splitlines() if "cost=" in line][-2:] == [
        "front",
        "front",
    ]


def test_a_trial_that_is_chosen_by_hand_heads_what_show_prints(shell: Shell) -> None:
    run_id = record_run(shell.folder)
    answer = "trial 0 is chosen: val_accuracy 0.91 (best 0.95)"
    assert shell("choose", "last", "--trial", "0")[1] == f"choose trial 0 of {run_id}: {answer}\n"
    shown = shell("show", "last")[1]
    assert "Chosen by hand: trial 0\n  val_accuracy 0.91 (best 0.95)\n" in shown
    assert shown.index("Chosen by hand") < shown.index("Best: trial 1")
    assert shell.json("show", "last")["best"]["trial"] == 0
    assert shell.json("list")[0]["chosen_trial"] == 0
    assert shell.json("export", "last/best", "--to", str(shell.folder / "best"))["bundle"]
    exported = json.loads((shell.folder / "best" / "configuration.json").read_text())
    assert exported["trial"] == 0

    code, _, err = shell("choose", "last", "--trial", "1", "--undo")
    assert (code, "you cannot combine --trial and --undo" in err) == (2, True)
    code, _, err = shell("choose", "last")
    assert (code, "--trial" in err or "trial" in err) == (2, True)
    shell("choose", "last", "--undo")
    assert "Chosen by hand" not in shell("show", "last")[1]


def test_show_says_how_many_trials_it_leaves_out(shell: Shell) -> None:
    record_run(shell.folder)

    assert "and 3 more trials" in shell("show", "last", "--limit", "2")[1]


def test_texts_of_people_are_never_read_as_markup(shell: Shell) -> None:
    record_run(shell.folder, name="[red]not markup[red] []")

    assert "[red]not markup[red] []" in shell("list")[1]
    assert "[red]not markup[red] []" in shell("show", "last")[1]


def test_an_unknown_run_is_one_line_that_names_near_ones(shell: Shell) -> None:
    run_id = record_run(shell.folder)

    code, out, err = shell("show", run_id[:-2] + "zz")

    assert (code, out) == (2, "")
    assert err.startswith("error: ")
    assert err.count("\n") == 1
    assert run_id in err


def test_a_beginning_that_several_runs_share_is_refused(shell: Shell) -> None:
    run_ids = [record_run(shell.folder), record_run(shell.folder)]

    code, _, err = shell("show", "digits-small")

    assert code == 2
    assert all(run_id in err for run_id in run_ids)


def test_a_store_can_be_named_before_and_after_the_command(shell: Shell, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    run_id = record_run(other)
    url = str(other / "store.sqlite")

    for words in (("--store", url, "list"), ("list", "--store", url)):
        assert [run["run_id"] for run in shell.json(*words)] == [run_id]
    assert f"workbench report {run_id} --store {url}" in shell("show", "last", "--store", url)[1]


def test_a_file_that_is_no_store_is_an_error_in_words(shell: Shell, tmp_path: Path) -> None:
    broken = tmp_path / "broken.sqlite"
    broken.write_text("this is no database, however long one looks at it" * 50)

    code, out, err = shell("--store", str(broken), "list")

    assert (code, out) == (1, "")
    assert err.startswith("error: ")
    assert "Traceback" not in err


@pytest.mark.parametrize("command", [name for group in COMMANDS.values() for name in group])
def test_every_command_explains_itself_with_an_example(shell: Shell, command: str) -> None:
    code, out, _ = shell(command, "--help")

    assert code == 0
    assert f"Example:\n    workbench {command}" in out


def test_the_list_of_commands_shows_every_summary_whole_at_80_columns(shell: Shell) -> None:
    code, out, _ = shell("--help")

    assert code == 0
    assert "..." not in out.partition("Commands:")[2]


def test_an_unknown_command_is_a_matter_of_usage(shell: Shell) -> None:
    code, _, err = shell("swep")

    assert code == 2
    assert "swep" in err


def test_commands_that_read_load_nothing_heavy(shell: Shell) -> None:
    record_run(shell.folder)
    commands = [["list"], ["show", "last"], ["show", "last", "--json"], ["follow", "last"]]
    out = run_without("torch ray optuna plotly pandas alembic numpy", *commands, may_fail=True)
    assert out.count("val_accuracy") > len(commands), "each has shown the run"


@pytest.mark.slow
def test_a_report_of_a_few_trials_needs_no_statistics(shell: Shell) -> None:
    record_run(shell.folder)
    run_without("torch ray sklearn scipy pandas", ["report", "last"])


def test_a_reader_that_goes_away_is_no_error(shell: Shell) -> None:
    with Store.open(str(shell.folder / "store.sqlite")) as store:
        run_id = store.create_run(Experiment(**json.loads(_experiment_text())))
        append(
            store,
            run_id,
            [
                *begin(),
                *(event for number in range(3000) for event in trial_events(number, at_s=number)),
            ],
        )
    process = shell.process("show", "last", "--json")
    assert process.stdout is not None
    process.stdout.readline()
    process.stdout.close()

    assert process.wait(timeout=120) == 0
    assert process.stderr is not None
    assert process.stderr.read() == ""


@pytest.mark.parametrize("options", [[], ["--json"]], ids=["words", "JSON"])
def test_a_reader_that_is_gone_before_the_first_word_is_no_error(
    shell: Shell, options: list[str]
) -> None:
    with Store.open(str(shell.folder / "store.sqlite")) as store:
        store.create_run(Experiment(**json.loads(_experiment_text())))
    process = shell.process("show", "last", *options)
    assert process.stdout is not None
    process.stdout.close()
    assert process.wait(timeout=120) == 0


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a disk that is always full")
@pytest.mark.parametrize("options", [[], ["--json"]], ids=["words", "JSON"])
def test_output_onto_a_full_disk_is_an_error_in_a_line(shell: Shell, options: list[str]) -> None:
    with Store.open(str(shell.folder / "store.sqlite")) as store:
        store.create_run(Experiment(**json.loads(_experiment_text())))
    with open("/dev/full", "w") as full:
        process = shell.process("show", "last", *options, stdout=full)
        assert process.wait(timeout=120) == 1
    assert process.stderr is not None
    assert process.stderr.read() == (
        "error: the output cannot be written: No space left on device. Free space where it goes, or"
        " redirect it to another place.\n"
    )


def _experiment_text() -> str:
    return json.dumps(EXPERIMENT)


def test_check_names_the_number_of_trials_that_a_run_gets_without_a_budget(shell: Shell) -> None:
    text = (
        "train: json:dumps\nobjectives: [{metric: y, goal: minimize}]\nsearch: {x: {low: 0, high:"
        " 9}}\n"
    )
    (shell.folder / "free.yaml").write_text(text, encoding="utf-8")
    (shell.folder / "timed.yaml").write_text(f"{text}budget: {{time: 5m}}\n", encoding="utf-8")

    assert "20 trials" in shell("check", str(shell.folder / "free.yaml"), "--no-step")[1]
    assert "no limit on trials" in shell("check", str(shell.folder / "timed.yaml"), "--no-step")[1]


def test_check_counts_configurations_and_no_fidelity_where_trainings_are_cheap_at_first(
    shell: Shell,
) -> None:
    file = shell.folder / "cheap.yaml"
    file.write_text(
        "train: json:dumps\nobjectives: [{metric: y, goal: minimize}]\nsearch: {x: {low: 0, high:"
        " 9}}\nfidelity: {size: [8, 128]}\nbudget: {trials: 5}\n",
        encoding="utf-8",
    )
    out = shell("check", file, "--no-step")[1]
    assert "cheap, 1 parameter, 5 configurations, first with size 8 of 128." in out


def test_a_run_id_of_another_experiment_is_refused_with_what_learns_from_it(shell: Shell) -> None:
    run_id = record_run(shell.folder)
    file = shell.folder / "other.yaml"
    file.write_text(Experiment(**EXPERIMENT, seed=7).to_yaml(), encoding="utf-8")
    code, _, err = shell("sweep", file, "--run-id", run_id)
    assert code == 2
    assert f"ith --warm-start {run_id} the new run learns from it" in err


def test_check_notes_that_nothing_is_searched(shell: Shell) -> None:
    text = "train: json:dumps\nobjectives: [{metric: y, goal: minimize}]\nsearch: {lr: 0.1}\n"
    file = shell.folder / "fixed.yaml"
    file.write_text(f"{text}budget: {{trials: 3}}\n", encoding="utf-8")
    out = shell("check", file, "--no-step")[1]
    assert "1 parameter, 1 trial." in out
    assert "budget.trials: nothing is searched, so only one of the 3 trials runs" in out
    code, out, _ = shell("check", file, "--no-step", "--set", "budget.trials=1")
    assert (code, "nothing is searched" in out) == (0, False)
    code, out, _ = shell(
        "check", file, "--no-step", "--trials", "1", "--name", "short", "--time", "5m"
    )
    assert (code, "valid: short" in out, "nothing is searched" in out) == (0, True, False)


@pytest.mark.parametrize(
    ("written", "is_noted"),
    [
        ("{low: 0, high: 1}", True),
        ("{low: 0.0, high: 1.0}", False),
        ("{low: 0, high: 2}", False),
        ("{low: 0, high: 1, type: int}", False),
    ],
)
def test_check_notes_that_a_range_holds_two_whole_numbers(
    shell: Shell, written: str, is_noted: bool
) -> None:
    file = shell.folder / "whole.yaml"
    text = "train: json:dumps\nobjectives: [{metric: y, goal: minimize}]\nbudget: {trials: 3}\n"
    file.write_text(f"{text}search: {{x: {written}}}\n", encoding="utf-8")
    note = (
        "search.x tries only the whole numbers 0 and 1. If real numbers are meant, write 0.0 and"
        " 1.0."
    )
    assert (note in shell("check", str(file), "--no-step")[1].splitlines()) == is_noted
    assert (note in shell.json("check", str(file), "--no-step")["messages"]) == is_noted


@pytest.mark.parametrize(
    ("pruner", "grace", "epochs", "note"),
    [
        ("asha", 30, "3", "grace is 30 epochs and trials have 3."),
        ("asha", 3, "3", "grace is 3 epochs and trials have 3."),
        ("asha", 4, "{low: 2, high: 4}", "grace is 4 epochs and trials have 4 at most."),
        ("asha", 2, "3", None),
        ("none", 30, "3", None),
    ],
)
def test_check_notes_that_nothing_is_ever_stopped_early(
    shell: Shell, pruner: str, grace: int, epochs: str, note: str | None
) -> None:
    file = shell.folder / "early.yaml"
    place = "search" if epochs.startswith("{") else "training"
    file.write_text(
        "model: mlp\ndata: digits\nobjectives: [{metric: val_accuracy, goal: maximize}]\n"
        f"{place}: {{epochs: {epochs}}}\nearly_stop: {{pruner: {pruner}, grace: {grace}}}\n",
        encoding="utf-8",
    )
    code, out, errors = shell("check", str(file), "--no-step")
    noted = [line for line in out.splitlines() if line.startswith("early_stop never stops a trial")]
    assert (code, noted) == (
        0,
        [] if note is None else [f"early_stop never stops a trial: {note}"],
    ), errors


def test_check_refuses_what_the_sampler_would_refuse_at_the_start(shell: Shell) -> None:
    text = (
        "train: json:dumps\nobjectives: [{metric: y, goal: minimize}]\nsampler: tpe\n"
        "search: {x: {low: 0.0, high: 1.0, prior: {near: 0.5}}}\nbudget: {trials: 2}\n"
    )
    (shell.folder / "belief.yaml").write_text(text, encoding="utf-8")

    status, _, errors = shell("check", str(shell.folder / "belief.yaml"), "--no-step")

    assert status != 0
    assert "search.x.prior" in errors


@pytest.mark.parametrize(
    ("reason", "budget", "offer"),
    [
        ("trials", {"trials": 5}, "--more-trials 10"),
        ("time", {"time": 90}, "--more-time 1m30s"),
        ("time", {"time": 20}, "--more-time 20s"),
        ("plateau", {"trials": 50, "plateau": 3}, "--more-plateau 3"),
        ("target", {"trials": 50}, None),
        ("exhausted", {"trials": 50}, None),
    ],
)
def test_a_run_that_has_ended_is_offered_to_go_on_beyond_the_limit_that_ended_it(
    shell: Shell, reason: str, budget: dict[str, int], offer: str | None
) -> None:
    with Store.open(str(shell.folder / "store.sqlite")) as store:
        run_id = store.create_run(Experiment(**{**EXPERIMENT, "budget": budget}))
        append(store, run_id, [*begin(), *trial_events(0, at_s=1), *finish(9, reason=reason)])
    _, out, _ = shell("show", run_id)
    commands = [
        line.partition(run_id)[2].strip() for line in out.splitlines() if "workbench extend" in line
    ]
    assert commands == ([] if offer is None else [offer])


def test_trials_that_break_a_constraint_are_marked_and_a_run_of_them_says_why_it_has_no_best(
    shell: Shell,
) -> None:
    limit = {"metric": "val_accuracy", "at_least": 0.92}
    _, out, _ = shell("show", record_run(shell.folder, constraints=[limit]))
    assert out.count("complete (infeasible)") == 1
    _, out, _ = shell("show", record_run(shell.folder, constraints=[limit | {"at_least": 1.5}]))
    assert out.count("complete (infeasible)") == 2
    nearest = "trial 1 comes nearest, with val_accuracy=0.95 (at least 1.5)"
    assert f"No complete trial keeps all constraints: {nearest}." in out


def test_a_run_that_nobody_began_is_offered_to_be_begun(shell: Shell) -> None:
    with Store.open(str(shell.folder / "store.sqlite")) as store:
        run_id = store.create_run(Experiment(**EXPERIMENT))
    assert f"workbench resume {run_id}" in shell("show", run_id)[1]


def test_check_summarises_a_table(shell: Shell) -> None:
    rows = "\n".join(f"{row},{row % 7},{'no' if row % 4 else 'yes'}" for row in range(60))
    (shell.folder / "people.csv").write_text(f"Customer ID,age,churned\n{rows}\n", encoding="utf-8")
    document = {
        "model": "mlp",
        "data": {"name": "table", "path": str(shell.folder / "people.csv"), "target": "churned"},
        "objectives": [{"metric": "val_accuracy", "goal": "maximize"}],
    }
    file = shell.folder / "people.yaml"
    file.write_text(json.dumps(document), encoding="utf-8")
    out = shell("check", str(file), "--no-step")[1]
    assert "The table has 60 rows, 2 input columns (2 of numbers); none missing." in out
    assert (
        "churned has 2 classes: no 75%, yes 25%. Always guessing no has an accuracy of 0.750."
        in out
    )
    assert "data: {drop: ['Customer ID']}" in out
    checked = shell.json("check", str(file), "--no-step")
    assert checked["table"]["majority_share"] == 0.75
    assert any("'Customer ID' differs in nearly every row" in note for note in checked["messages"])


def test_a_note_has_no_marks_of_code_in_the_terminal(shell: Shell) -> None:
    rows = "\n".join(
        f"{row * 7 % 30},{row % 2}.5,{'no' if row % 2 else 'yes'}" for row in range(300)
    )
    table = shell.folder / "people.csv"
    table.write_text(f"age,paid,churned\n{rows}\n", encoding="utf-8")
    file = shell.folder / "people.yaml"
    file.write_text(
        f"{{model: mlp, data: {{name: table, path: '{table}', target: churned}}, objectives:"
        " [{metric: val_accuracy, goal: maximize}], search: {lr: {low: 0.1, high: 1.0}}}"
    )
    _, out, err = shell("check", str(file), "--no-step")
    assert "\npaid alone predicts churned with accuracy 1.00: " in out, err
    notes = shell.json("check", str(file), "--no-step")["messages"]
    assert any("`paid` alone" in note for note in notes)
