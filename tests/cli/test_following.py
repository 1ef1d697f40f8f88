from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from tests.builders.recorded_runs import (
    EXPERIMENT,
    WHY_PRUNED,
    append,
    begin,
    finish,
    record_run,
    trial_events,
)
from tests.services.shell import Shell
from workbench import runs
from workbench.cli.errors import exit_code_of_run
from workbench.cli.following import follow_while, waiting_for_the_driver
from workbench.experiment import Experiment
from workbench.foundation.errors import LeaseError
from workbench.foundation.events import AttemptEnded, CheckpointSaved, Noted, TrialStarted
from workbench.runs import Run
from workbench.store.database import RunWriter, Store
from workbench.store.history import History


def _new_run(folder: Path, **changes: object) -> tuple[Store, str]:
    store = Store.open(str(folder / "store.sqlite"))
    return store, store.create_run(Experiment(**{**EXPERIMENT, **changes}))


def _writer(store: Store, run_id: str) -> RunWriter:
    return store.writer(run_id, owner_pid=os.getpid(), owner_host=socket.gethostname())


def test_following_prints_one_line_for_each_change_of_state(shell: Shell) -> None:
    record_run(shell.folder)

    code, out, err = shell("follow", "last")

    lines = [line[12:] for line in out.split("\n\n")[0].splitlines()]
    assert lines[:4] == [
        "driver started as process 4711 on somewhere",
        "run running",
        "trial 0 running lr=0.01 width=16",
        "trial 0 complete val_accuracy=0.91 (best so far) lr=0.01 width=16",
    ]
    assert f"trial 2 pruned: {WHY_PRUNED}; lr=0.01 width=16" in lines
    assert [line for line in lines if " running" in line] == [
        "run running",
        "trial 0 running lr=0.01 width=16",
    ]
    place = lines.index("trial 3 failed (error): ValueError: too wide (x.py:1)")
    assert lines[place + 1 : place + 4] == [
        "Traceback (most recent call last):",
        '  File "x.py", line 1, in f',
        "ValueError: too wide",
    ]
    assert sum(line.startswith("Traceback") for line in lines) == 1, (
        "only the first failure shows it"
    )
    assert lines[-1] == "run complete: trials"
    assert err == ""
    assert code == 5


def test_lines_and_summary_go_by_the_same_clock(shell: Shell) -> None:
    store, run_id = _new_run(shell.folder)
    append(store, run_id, [*begin(100), *trial_events(0, at_s=101), *finish(110)])

    _, out, _ = shell("follow", run_id)

    lines, _, summary = out.partition("\n\n")
    assert lines.splitlines()[-1].split()[:2] == ["10", "s"]
    assert "after 10 s:" in summary


def test_the_summary_shows_some_reasons_of_failures_and_how_many_more_there_are(
    shell: Shell,
) -> None:
    store, run_id = _new_run(shell.folder)
    failed = []
    for number in range(6):
        *others, end = trial_events(number, at_s=101 + number, state="failed", reason="error")
        message = f"cause {'abcdef'[max(1, number)]}"  # the first two fail alike
        failed += [*others, end.model_copy(update={"traceback": None, "message": message})]
    append(store, run_id, [*begin(100), *failed, *finish(120)])

    _, out, _ = shell("follow", run_id)

    summary = out.partition("\n\n")[2].splitlines()
    shown = [line for line in summary if line.startswith("failed ")]
    assert shown[0] == "failed  trials 0, 1: cause b"
    assert [line.rpartition(": ")[2] for line in shown] == ["cause b", "cause c", "cause d"]
    assert "        and 2 other reasons" in summary


def test_lines_are_in_the_order_of_time_where_a_trial_reports_its_start_late(shell: Shell) -> None:
    store, run_id = _new_run(shell.folder)
    first, second = (trial_events(number, at_s=101 + 2 * number) for number in (1, 0))
    append(store, run_id, [*begin(100), *first, *second, *finish(120)])

    lines = shell("follow", run_id)[1].partition("\n\n")[0].splitlines()

    times_s = [float(line.split()[0]) for line in lines if line.split()[1] == "s"]
    assert times_s == sorted(times_s)


def test_the_time_of_a_line_is_not_in_microseconds(shell: Shell) -> None:
    store, run_id = _new_run(shell.folder)
    first, *others = begin(100)
    later = [
        event.model_copy(update={"time_unix_s": event.time_unix_s + 15e-6}) for event in others
    ]
    append(store, run_id, [first, *later, *finish(110)])

    _, out, _ = shell("follow", run_id)

    assert [line[:11].strip() for line in out.splitlines()[:2]] == ["0 s", "0 s"]


def test_a_run_that_is_found_learns_nothing_new_and_that_is_said(shell: Shell) -> None:
    store, run_id = _new_run(shell.folder)
    other = store.create_run(Experiment(**EXPERIMENT))
    store.command(run_id, "warm_start", {"run_id": other})
    append(store, run_id, [*begin(), *trial_events(0, at_s=1), *finish(5)])
    (shell.folder / "x.yaml").write_text(Experiment(**EXPERIMENT).to_yaml())
    again = ("sweep", str(shell.folder / "x.yaml"), "--run-id", run_id, "--detach")

    _, _, err = shell(*again, "--warm-start", other)
    assert "--warm-start" not in err
    new = store.create_run(Experiment(**EXPERIMENT))
    code, out, err = shell(*again, "--warm-start", new)
    assert (code, out) == (0, f"already complete: digits-small as {run_id}\n")
    assert f"was started without --warm-start {new}, so it does not learn from it" in err


def test_a_run_that_another_shell_stores_meanwhile_is_followed_like_one_that_was_there(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    (shell.folder / "x.yaml").write_text(Experiment(**EXPERIMENT).to_yaml())
    find, looked = runs.find_same_run, []

    def store_after_the_first_look(
        experiment: Experiment, run_id: str, *, store: Store
    ) -> Run | None:
        attached = find(experiment, run_id, store=store)
        if not looked:
            store.create_run(experiment, run_id=run_id)
            append(store, run_id, [*begin(), *trial_events(0, at_s=1), *finish(5)])
        looked.append(attached)
        return attached

    monkeypatch.setattr(runs, "find_same_run", store_after_the_first_look)
    code, out, err = shell("sweep", str(shell.folder / "x.yaml"), "--run-id", "same", "--detach")
    assert (code, out) == (0, "already complete: digits-small as same\n"), err
    assert looked[0] is None
    (shell.folder / "y.yaml").write_text(Experiment(**EXPERIMENT, seed=1).to_yaml())
    looked.clear()
    monkeypatch.setattr(runs, "find_same_run", lambda *_, **__: None)
    code, _, err = shell("sweep", str(shell.folder / "y.yaml"), "--run-id", "same", "--detach")
    assert code != 0
    assert "run same already exists" in err


def test_a_command_for_a_lost_run_states_when_it_is_carried_out(shell: Shell) -> None:
    store, run_id = _new_run(shell.folder)
    with _writer(store, run_id) as writer:
        writer.append(*begin())
        writer.close(gives_up=True)
    code, out, _ = shell("set", "digits-small", "--trials", "9")
    kept = "the driver is gone. The command is carried out when the run is resumed"
    assert (code, out) == (0, f"set {run_id}: {kept}\n")


def test_following_sees_what_is_written_while_it_looks(shell: Shell) -> None:
    store, run_id = _new_run(shell.folder)
    process = shell.process("follow", run_id)
    assert process.stdout is not None
    with _writer(store, run_id) as writer:
        writer.append(*begin())
        assert "driver started" in process.stdout.readline()
        writer.append(*trial_events(0, at_s=1))
        seen = [process.stdout.readline() for _ in range(3)]
        assert "trial 0 complete" in seen[2]
        assert process.poll() is None
        writer.append(*finish(5))

    assert process.wait(timeout=120) == 0
    assert run_id in process.stdout.read()


def test_a_run_that_another_process_drives_first_is_followed_by_the_one_that_would_drive_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store, run_id = _new_run(tmp_path)
    with _writer(store, run_id) as writer:  # it has begun to drive, and stored nothing yet
        own = Store.open(str(tmp_path / "store.sqlite"))

        def drive_too() -> None:
            with pytest.raises(LeaseError) as refused:
                _writer(own, run_id)
            threading.Timer(
                0.3, writer.append, [*begin(), *trial_events(0, at_s=1), *finish(5)]
            ).start()
            raise refused.value

        history, state = follow_while(drive_too, Run(own, run_id), as_json=False)

    assert (state, len(history.trials)) == ("complete", 1)
    out, err = capsys.readouterr()
    assert "trial 0 complete" in out
    assert err == f"note: another process drives run {run_id}, so it is only followed here\n"


def test_a_run_that_this_process_drives_may_take_any_time_to_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("workbench.cli.following._DRIVER_PATIENCE_S", 0.0)
    store, run_id = _new_run(tmp_path)
    own = Store.open(str(tmp_path / "store.sqlite"))

    def drive() -> None:
        time.sleep(0.5)
        append(store, run_id, [*begin(), *trial_events(0, at_s=1), *finish(5)])

    assert follow_while(drive, Run(own, run_id), as_json=False)[1] == "complete"


def test_without_a_terminal_a_line_says_that_a_driver_is_still_starting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("workbench.cli.following._STARTING_AFTER_S", 0.0)
    store, run_id = _new_run(tmp_path)
    printed = ""
    with waiting_for_the_driver(Run(store, run_id)):
        while not printed:  # pytest's limit ends what never prints
            printed = capsys.readouterr().err
    assert printed == f"note: still starting the driver of {run_id}\n"


def test_interrupting_leaves_the_run_alone_and_says_how_to_come_back(shell: Shell) -> None:
    store, run_id = _new_run(shell.folder)
    append(store, run_id, begin())
    process = shell.process("follow", run_id)
    assert process.stdout is not None
    process.stdout.readline()

    process.send_signal(signal.SIGINT)

    _, err = process.communicate(timeout=120)
    assert process.returncode == 130
    assert f"workbench follow {run_id}" in err
    assert f"workbench stop {run_id}" in err
    assert "Traceback" not in err
    assert store.commands(run_id) == []


def test_following_a_run_whose_owner_died_ends_and_offers_to_go_on(shell: Shell) -> None:
    store, run_id = _new_run(shell.folder)
    owner = subprocess.Popen([sys.executable, "-c", ""])
    owner.wait()
    writer = store.writer(
        run_id, owner_pid=owner.pid, owner_host=socket.gethostname(), lease_timeout_s=0.3
    )
    writer.append(*begin())
    writer._closing.set()  # the heart stops, as in a process that was killed
    time.sleep(0.5)

    code, out, _ = shell("follow", run_id)

    assert code == 1
    assert "lost" in out
    assert f"workbench resume {run_id}" in out


def test_following_with_json_prints_one_document_and_lines_elsewhere(shell: Shell) -> None:
    run_id = record_run(shell.folder)

    code, out, err = shell("follow", run_id, "--json")

    assert code == 5
    assert json.loads(out)["run_id"] == run_id
    assert "trial 0 complete" in err


def test_lines_tell_attempts_and_notes(shell: Shell) -> None:
    store, run_id = _new_run(shell.folder)
    events = [
        *begin(),
        *trial_events(0, at_s=0, state="running"),
        AttemptEnded(
            trial=0, attempt=0, reason="lost", message="worker 99 was killed\nby a signal"
        ),
        TrialStarted(trial=0, attempt=1, worker_pids=[100], resumed_from="last.pt"),
        CheckpointSaved(trial=0, attempt=1, step=40, path="last.pt"),
        AttemptEnded(trial=0, attempt=1, reason="lost", message="worker 100 died", is_retry=True),
        *trial_events(0, at_s=0, state="failed", reason="lost")[-1:],
        Noted(level="warning", message="the disk is nearly full"),
        *trial_events(1, at_s=1, state="running"),
        AttemptEnded(trial=1, attempt=0, reason="stopped", message="the run ended"),
        *finish(3, "stopped", "person"),
    ]
    append(store, run_id, events)

    code, out, _ = shell("follow", run_id)

    assert "trial 1 stopped: the run ended\n" in out
    assert "trial 0 waiting: attempt 1 failed (lost): worker 99 was killed\n" in out
    assert (
        "attempt 2 failed (lost): worker 100 died. Retry 1 of 2 follows from its last checkpoint\n"
        in out
    )
    assert re.search(r"trial 0 failed \(lost\): .* after 1 retry \(resources.max_retries\)\n", out)
    assert "trial 0 running again (attempt 2) from its checkpoint lr=0.01 width=16\n" in out
    assert "warning: the disk is nearly full\n" in out
    assert code == 4


@pytest.mark.parametrize(
    ("trials", "state", "code"),
    [
        (["complete"], "complete", 0),
        (["complete", "pruned"], "stopped", 0),
        ([], "complete", 4),
        (["pruned"], "complete", 4),
        (["complete", "failed"], "complete", 5),
        (["complete"], "failed", 1),
        (["failed"], "failed", 4),
        (["complete"], "lost", 1),
    ],
)
def test_the_exit_code_tells_how_the_run_ended(trials: list[str], state: str, code: int) -> None:
    history = History(Experiment(**EXPERIMENT))
    for event in begin():
        history.apply(event)
    for number, ending in enumerate(trials):
        reason = "error" if ending == "failed" else None
        for event in trial_events(number, at_s=number, state=ending, reason=reason):
            history.apply(event)
    if state == "failed":
        history.apply(finish(9, state, "failures" if trials == ["failed"] else "error")[0])

    assert exit_code_of_run(history, state) == code  # pyright: ignore[reportArgumentType]


def test_stop_and_enqueue_reach_the_driver_and_bring_its_answer(shell: Shell) -> None:
    from workbench.foundation.events import CommandHandled

    store, run_id = _new_run(shell.folder)
    received: list[tuple[str, object]] = []
    done = threading.Event()

    def drive() -> None:
        with _writer(store, run_id) as writer:
            writer.append(*begin(), *trial_events(0, at_s=0, state="running"))
            while not done.is_set():
                for command in store.commands(run_id, after=len(received)):
                    received.append((command.kind, dict(command.arguments)))
                    answer = CommandHandled(
                        command=command.number,
                        kind=command.kind,
                        done=command.kind != "stop_trial",
                        message="as you say",
                    )
                    writer.append(answer)
                time.sleep(0.02)

    thread = threading.Thread(target=drive)
    thread.start()
    try:
        while not store.run(run_id).last_seq:
            time.sleep(0.02)
        code, out, _ = shell("enqueue", "last", "--param", "lr=1e-2", "--param", "width=8")
        assert (code, out) == (0, f"enqueue {run_id}: as you say\n")
        code, _, err = shell("stop", "last", "--trial", "0")
        assert code == 1
        assert "refused: as you say" in err
        assert shell.json("stop", run_id) == {
            "run_id": run_id,
            "trial": None,
            "message": "as you say",
        }
    finally:
        done.set()
        thread.join()
    assert received == [
        ("enqueue", {"params": {"lr": 0.01, "width": 8}}),
        ("stop_trial", {"trial": 0}),
        ("stop", {}),
    ]


@pytest.mark.parametrize(
    ("assignments", "named"),
    [
        (["lr=7", "width=8"], "lr"),
        (["lr=0.1", "width=8", "depth=3"], "depth"),
        (["lr=0.1"], "width"),
        (["lr"], "--param"),
    ],
)
def test_what_is_no_configuration_is_never_enqueued(
    shell: Shell, assignments: list[str], named: str
) -> None:
    store, run_id = _new_run(shell.folder)
    words = [word for assignment in assignments for word in ("--param", assignment)]

    code, _, err = shell("enqueue", run_id, *words)

    assert code == 2
    assert err.startswith(f"error: {named}: ")
    assert store.commands(run_id) == []


def interrupt_while_importing(where: str, beginning: str = "") -> subprocess.CompletedProcess[str]:
    """List runs in a process that is sent SIGINT while it imports a package."""
    # Some packages take the interruption of their import for a defect of theirs.
    program = f"""
import os, signal, sys
import workbench.cli

class Interrupting:
    def find_spec(self, name, *_):
        if name == {where!r}:
            try:
                os.kill(os.getpid(), signal.SIGINT)
            except KeyboardInterrupt:
                raise ImportError("broken") from None

sys.meta_path.insert(0, Interrupting())
sys.argv = ["workbench", "list"]
{beginning}
workbench.cli.main()
"""
    return subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )


@pytest.mark.parametrize("where", ["click", "sqlalchemy"])
def test_interrupting_a_command_that_is_being_imported_is_said_in_a_word(
    shell: Shell, where: str
) -> None:
    done = interrupt_while_importing(where)
    assert (done.returncode, done.stdout, done.stderr.strip()) == (130, "", "interrupted")


@pytest.mark.parametrize("where", ["click", "sqlalchemy"])
def test_what_a_script_sends_to_the_background_goes_on_when_it_is_interrupted(
    shell: Shell, where: str
) -> None:
    Store.open(str(shell.folder / "store.sqlite")).close()
    done = interrupt_while_importing(where, "signal.signal(signal.SIGINT, signal.SIG_IGN)")
    assert (done.returncode, done.stderr) == (0, "")
    assert "No runs yet" in done.stdout


def test_a_home_that_cannot_be_is_refused_in_a_line(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    (shell.folder / "file").write_text("")
    monkeypatch.setenv("WORKBENCH_HOME", str(shell.folder / "file"))
    code, _, err = shell("shutdown")
    assert code == 2
    assert err.startswith(
        "error: WORKBENCH_HOME: the files of the local Ray head cannot be written to "
    )
    assert err.count("\n") == 1
    findings = {
        item["subject"]: item for item in json.loads(shell("doctor", "--json")[1])["findings"]
    }
    assert findings["ray head"]["state"] == "broken"


def test_a_run_that_has_ended_takes_no_commands(shell: Shell) -> None:
    run_id = record_run(shell.folder)

    for words, expected in ((("stop", run_id), 1), (("stop", run_id, "--trial", "77"), 2)):
        code, _, err = shell(*words)
        assert code == expected
        assert err.startswith("error: ")


CURVE = """
import time

def train(config, report):
    for step in range(200):
        report(loss=config["lr"] / (1 + step))
        time.sleep(0.1)
"""


@pytest.mark.slow
@pytest.mark.ray
@pytest.mark.usefixtures("ray_head")
def test_a_run_in_this_process_shows_its_lines_as_they_come_and_ends_like_an_interrupted_one(
    shell: Shell,
) -> None:
    (shell.folder / "curve.py").write_text(CURVE)
    search, objectives = {"lr": {"low": 0.1, "high": 1.0}}, [{"metric": "loss", "goal": "minimize"}]
    experiment = Experiment(
        train="curve:train", search=search, objectives=objectives, budget={"trials": 2}
    )
    (shell.folder / "curve.yaml").write_text(experiment.to_yaml())
    process = shell.process("sweep", "curve.yaml", "--launcher", "inline")
    assert process.stdout is not None
    for line in process.stdout:
        if re.search(r"trial \d running", line):
            break
    assert process.poll() is None

    process.send_signal(signal.SIGTERM)

    out, err = process.communicate(timeout=120)
    with Store.open(str(shell.folder / "store.sqlite")) as store:
        row = store.run("last")
    assert (process.returncode, row.state) == (130, "stopped")
    assert err.strip() == (
        f"The run ended with this process. To continue it: workbench resume {row.run_id}"
    )
    assert "best" not in out
