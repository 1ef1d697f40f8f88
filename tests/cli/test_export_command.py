from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.builders.advice import measured_here
from tests.builders.recorded_runs import EXPERIMENT, append, begin, record_run, trial_events
from tests.services.clusters import ROOT
from tests.services.disk import Disk
from tests.services.fake_nvml import H100, T4, FakeNvml
from tests.services.shell import Shell
from workbench.cli.doctor import find_runs_on, mark_lost
from workbench.cli.export import _note_missing_stages
from workbench.experiment import Experiment
from workbench.foundation.events import Noted, RunStateChanged
from workbench.runs import attach
from workbench.store.database import Store

SWEEP = """
program: train.py
method: random
metric: {name: loss, goal: minimize}
parameters:
  lr: {distribution: log_uniform_values, min: 0.0001, max: 0.1}
  layers: {values: [1, 2]}
run_cap: 9
"""
FILE = """
model: convnet
data: digits
objectives: [{metric: val_accuracy, goal: maximize}]
search: {lr: {low: 0.001, high: 0.1, log: true}}
"""


def test_a_report_is_written_where_it_is_asked_for_and_its_path_printed(shell: Shell) -> None:
    record_run(shell.folder)
    path = shell.folder / "my report.html"

    code, out, _ = shell("report", "last", "--to", str(path))

    assert (code, out) == (0, f"{path}\n")
    assert path.read_text().startswith("<!DOCTYPE html>")
    usual = shell.json("report", "last")["report"]
    assert Path(usual).name == "report.html"
    assert Path(usual).exists()


def test_a_report_creates_no_folders(shell: Shell) -> None:
    record_run(shell.folder)

    code, out, err = shell("report", "last", "--to", str(shell.folder / "reprots" / "a.html"))

    assert (code, out) == (2, "")
    assert f"the folder {shell.folder / 'reprots'} does not exist" in err
    assert not (shell.folder / "reprots").exists()


def test_a_trace_is_written_as_perfetto_reads_it_and_a_trial_that_is_not_there_is_refused(
    shell: Shell,
) -> None:
    record_run(shell.folder)

    code, out, _ = shell("trace", "last", "--trial", "0", "--to", str(shell.folder / "trace.json"))

    assert (code, out) == (0, f"{shell.folder / 'trace.json'}\n")
    entries = json.loads((shell.folder / "trace.json").read_text())["traceEvents"]
    assert any(entry["ph"] == "X" and entry["name"].startswith("trial 0") for entry in entries)
    assert Path(shell.json("trace", "last")["trace"]).name == "trace.json"
    code, _, err = shell("trace", "last", "--trial", "99")
    assert code == 2
    assert "has no trial 99" in err


def test_export_says_where_the_bundle_lies_and_refuses_a_full_folder(shell: Shell) -> None:
    run_id = record_run(shell.folder)
    words = ("export", "last", "--to", str(shell.folder / "best"))

    assert shell.json(*words) == {
        "run_id": run_id,
        "bundle": str(shell.folder / "best"),
        "study": None,
    }
    code, _, err = shell(*words)
    assert code == 1
    assert "is not empty" in err
    assert shell(*words, "--force")[0] == 0
    assert shell(*words, "--force", "--trial", "3")[0] == 1


def test_export_says_which_data_the_bundle_contains(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    (shell.folder / "rows.csv").write_text("a,b\n1,2\n")
    monkeypatch.chdir(shell.folder)
    data = {"name": "table", "path": "rows.csv", "target": "b"}
    record_run(shell.folder, data=data)
    note = shell("export", "last", "--to", "with-data")[2]
    assert "the bundle contains data, in code/: rows.csv (8 B). Whoever gets" in note


@pytest.mark.parametrize("name", ["", "new/best", "mine"])
def test_a_full_disk_is_named_and_no_part_of_the_bundle_stays(
    shell: Shell, disk: Disk, name: str
) -> None:
    record_run(shell.folder)
    (disk.path / "mine").mkdir()
    (disk.path / "mine" / "thesis.txt").write_text("years of work")
    disk.fill(but_bytes=20_000)
    before = sorted(disk.path.rglob("*"))

    code, _, err = shell("export", "last", "--to", str(disk.path / name), "--force")

    assert (code, err) == (
        1,
        (
            f"error: cannot write {disk.path / name}: No space left on device. Free space there, or"
            " name another folder.\n"
        ),
    )
    assert sorted(disk.path.rglob("*")) == before


def test_a_full_disk_of_temporary_files_is_named_with_the_variable_that_moves_them(
    shell: Shell, disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    record_run(shell.folder)
    disk.fill(but_bytes=20_000)
    monkeypatch.setattr("tempfile.tempdir", str(disk.path))

    code, _, err = shell("export", "last", "--to", str(shell.folder / "best"))

    assert code == 1
    assert f"the bundle cannot be written: {disk.path}" in err
    assert "No space left on device. Free space there, or set the variable TMPDIR" in err
    assert not (shell.folder / "best").exists()


def test_early_exits_of_a_table_that_tiers_cannot_use_are_noted(
    shell: Shell, capsys: pytest.CaptureFixture[str]
) -> None:
    bundle = shell.folder / "bundle"
    bundle.mkdir()
    (bundle / "card.json").touch()
    run = attach(record_run(shell.folder, model={"name": "mlp", "exits": 1}))
    _note_missing_stages(run, 0, bundle)
    noted = " ".join(capsys.readouterr().err.split())
    assert "exported as a whole, without a graph for each early exit" in noted
    (bundle / "stages.json").touch()
    _note_missing_stages(run, 0, bundle)
    _note_missing_stages(attach(record_run(shell.folder, model="mlp")), 0, bundle)
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("verb", ["export", "compress"])
def test_a_trial_may_be_named_with_its_run(verb: str, shell: Shell) -> None:
    run_id = record_run(shell.folder)
    to = ["--to", "bundle"] if verb == "export" else []
    for trial in ("first", "1 2"):
        code, _, err = shell(verb, f"{run_id}/{trial}", *to)
        assert (code, "is not a trial. Allowed: RUN, RUN/best, or RUN/NUMBER" in err) == (2, True)
    assert "are different trials" in shell(verb, f"{run_id}/best", "--trial", "2", *to)[2]
    assert "the run has no trial 99" in shell(verb, f"{run_id}/99", *to)[2]


def test_export_without_a_place_is_a_matter_of_usage(shell: Shell) -> None:
    record_run(shell.folder)

    code, _, err = shell("export", "last")

    assert code == 2
    assert "give --to FOLDER" in err


def test_a_sweep_of_weights_and_biases_becomes_an_experiment_file(shell: Shell) -> None:
    (shell.folder / "sweep.yaml").write_text(SWEEP)
    target = shell.folder / "experiment.yaml"
    words = ("import", "sweep", str(shell.folder / "sweep.yaml"), "--train", "training:train")

    code, out, _ = shell(*words, "--to", str(target))

    assert code == 0
    assert f"workbench check {target}" in out
    experiment = Experiment.from_file(target)
    assert (experiment.budget.trials, experiment.sampler.name) == (9, "random")
    assert set(experiment.search.root) == {"lr", "layers"}
    assert Experiment.from_yaml(shell(*words)[1]) == experiment


def test_labels_of_a_sweep_that_mean_nothing_here_are_left_out_and_named(shell: Shell) -> None:
    (shell.folder / "sweep.yaml").write_text(f"project: demo\nentity: me\n{SWEEP.lstrip()}")

    code, _, err = shell(
        "import", "sweep", str(shell.folder / "sweep.yaml"), "--train", "training:train"
    )

    assert code == 0
    assert "skipped project: 'demo'" in err
    assert "skipped entity: 'me'" in err


def test_an_import_keeps_the_script_where_no_function_is_named(shell: Shell) -> None:
    (shell.folder / "sweep.yaml").write_text(SWEEP)
    code, out, _ = shell("import", "sweep", str(shell.folder / "sweep.yaml"))
    assert code == 0
    assert Experiment.from_yaml(out).command == "python train.py {args}"


def test_init_writes_a_first_experiment_once(shell: Shell) -> None:
    script = shell.folder / "train.py"
    script.write_text("parser.add_argument('--lr', type=float, default=0.1)\nprint(f'loss={loss}')")
    code, out, _ = shell("init", str(script))
    assert code == 0
    assert f"workbench check {shell.folder / 'train.yaml'}" in out
    assert list(Experiment.from_file(shell.folder / "train.yaml").search.root) == ["lr"]
    code, _, err = shell("init", str(script))
    assert code == 2
    assert "already exists" in err


def test_check_accepts_what_can_be_run(shell: Shell) -> None:
    path = shell.folder / "small.yaml"
    path.write_text(FILE)

    code, out, err = shell("check", str(path))

    assert (code, err) == (0, "")
    assert f"workbench sweep {path}" in out
    ends = "a sample, the largest values and the smallest values"
    assert f"The first step of a trial succeeded with {ends}, in " in out
    code, out, err = shell("check", str(path), "--no-step")
    assert (code, err) == (0, "")
    assert "first step" not in out
    checked = shell.json("check", str(path), "--no-step", "--set", "name=other")
    identity = Experiment.from_file(path).hash()
    rest = {"messages": [], "first_steps": []}
    assert checked == {"ok": True, "name": "other", "experiment_hash": identity, **rest}


def test_check_tells_what_a_run_should_take_and_cost_if_its_steps_were_measured(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = shell.folder / "priced.yaml"
    path.write_text(FILE + "training: {epochs: 4}\nbudget: {trials: 6, price: 36 EUR/h}\n")
    store_file = shell.folder / "measured.sqlite"
    monkeypatch.setenv("WORKBENCH_STORE", str(store_file))
    code, out, _ = shell("check", str(path), "--no-step")
    assert code == 0
    assert "As measured here" not in out
    assert not store_file.exists()

    experiment = Experiment.from_file(path)
    with Store.open(str(store_file)) as store:
        append(store, store.create_run(experiment), [*begin(), measured_here(experiment)])
    _, out, _ = shell("check", str(path), "--no-step", "--set", "resources.concurrency=1")
    # 6 trainings x 4 epochs x 12 steps x 10 ms = 2.88 s, for a cent a second
    assert "6 trials take about 2.88 s" in out
    assert "which costs about 0.029 EUR" in out


def test_check_refuses_what_fails_in_its_first_step(shell: Shell) -> None:
    path = shell.folder / "small.yaml"
    path.write_text(FILE)

    code, out, err = shell("check", str(path), "--set", "training.global_batch=4096", "--json")

    assert code == 2
    assert json.loads(out)["error"]["field"] == "training.global_batch"
    assert "larger than the training data" in err


@pytest.mark.parametrize(
    ("setting", "code", "field"),
    [
        ("model=convnett", 2, "model"),
        ("search.widht=3", 2, "search.widht"),
        ("objectives.0.metric=val_acuracy", 2, "objectives.0.metric"),
        ("resources.gpus_per_worker=512", 3, "resources.gpus_per_worker"),
        ("training.epochs=", 2, "training.epochs"),
        ("training.epochs=[1", 2, None),
    ],
)
def test_check_names_the_field_that_cannot_be_run(
    shell: Shell, setting: str, code: int, field: str | None
) -> None:
    path = shell.folder / "small.yaml"
    path.write_text(FILE)

    found, out, err = shell("check", str(path), "--set", setting, "--json")

    assert found == code
    refusal = json.loads(out)
    assert (refusal["ok"], refusal["error"]["field"]) == (False, field)
    assert err.startswith("error: ")


def test_a_file_that_is_not_there_is_one_line(shell: Shell) -> None:
    code, out, err = shell("check", str(shell.folder / "nowhere.yaml"))

    assert (code, out) == (2, "")
    assert (
        err
        == f"error: cannot read {shell.folder / 'nowhere.yaml'}: No such file or directory. Check"
        " the path.\n"
    )


def test_the_schema_for_editors_describes_every_section(shell: Shell) -> None:
    code, out, _ = shell("check", "--schema")

    schema = json.loads(out)
    assert code == 0
    assert set(schema["properties"]) == set(Experiment.model_fields)


@pytest.mark.slow
def test_the_doctor_finds_runs_that_train_nothing_and_a_broken_store_first(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WORKBENCH_HOME", str(shell.folder / "home"))  # not that of a busy head
    monkeypatch.setenv("WORKBENCH_CACHE", str(shell.folder / "cache"))
    with Store.open(str(shell.folder / "store.sqlite")) as store:
        run_id = store.create_run(Experiment(**EXPERIMENT))
        proposed = trial_events(0, at_s=-100)[0]
        note = Noted(
            level="info", message="waits for workers: run a has 2", time_unix_s=proposed.time_unix_s
        )
        append(store, run_id, [*begin(-100), proposed, note])

    healthy = shell.json("doctor")

    assert healthy["ok"]
    findings = {finding["subject"]: finding for finding in healthy["findings"]}
    assert {
        "python",
        "torch",
        "torch devices",
        "hardware",
        "store",
        "ray head",
        "data cache",
    } <= set(findings)
    found = findings["run"]
    assert found["state"] == "notable"
    assert found["message"].startswith(f"{run_id} has not trained for ")
    assert found["message"].endswith("waits for workers: run a has 2")
    assert f"workbench stop {run_id}" in found["fix"]

    (shell.folder / "file").write_text("")
    code, out, _ = shell("doctor", "--store", str(shell.folder / "file" / "store.sqlite"))
    assert code == 1
    assert out.splitlines()[0].startswith("!!  store")
    assert out.splitlines()[1].strip().startswith("fix: ")


def test_the_doctor_notes_a_store_that_the_environment_names_and_does_not_create_it(
    shell: Shell,
) -> None:
    _, out, _ = shell("doctor", "--json")  # whose exit code depends on this machine as well
    findings = {finding["subject"]: finding for finding in json.loads(out)["findings"]}
    assert findings["store"]["state"] == "notable"
    assert f"there is no store at {shell.folder / 'store.sqlite'}" in findings["store"]["message"]
    assert "creates it" in findings["store"]["fix"]
    assert not (shell.folder / "store.sqlite").exists()


@pytest.mark.slow
def test_the_doctor_looks_at_each_gpu(
    shell: Shell, fake_nvml_library: FakeNvml, monkeypatch: pytest.MonkeyPatch
) -> None:
    links = {"nvlinks": "switch switch"}
    hurt = {**H100, **links, "ecc_uncorrected": 2, "slowed_bits": 0x20}
    fake_nvml_library.play({**H100, **links}, hurt, {**T4, "error": 15}, topology=30)
    environment = {**os.environ, **fake_nvml_library.environment, "PYTHONPATH": str(ROOT)}
    program = [
        sys.executable,
        "-m",
        "workbench",
        "doctor",
        "--json",
        "--store",
        str(shell.folder / "s"),
    ]
    told = subprocess.run(program, env=environment, capture_output=True, text=True, check=False)
    fake_nvml_library.play()
    findings = {finding["subject"]: finding for finding in json.loads(told.stdout)["findings"]}
    assert told.returncode == 1
    assert findings["hardware"]["message"].endswith("2 GPUs")
    assert (findings["GPU 0"]["state"], findings["GPU 0"]["message"]) == (
        "fine",
        "NVIDIA H100 80GB HBM3, 80 GiB, NV2 to 1",
    )
    assert findings["GPU 1"]["state"] == "broken"
    assert "NV2 to 0, slowed by heat, 2 uncorrected memory errors" in findings["GPU 1"]["message"]
    assert findings["GPU driver"]["message"] == "NVML cannot describe GPU 2: GPU is lost"


def test_shutting_down_without_a_head_is_done_already(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WORKBENCH_HOME", str(shell.folder / "home"))

    assert shell.json("shutdown") == {"ended": False, "address": None, "run_ids": []}


def test_shutting_down_asks_first_if_a_run_is_starting(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    stopped: list[bool] = []
    head = SimpleNamespace(pid=os.getpid(), address="127.0.0.1:1")
    monkeypatch.setattr("workbench.cluster.head.local_head.status", lambda: head)
    monkeypatch.setattr(
        "workbench.cluster.head.local_head.shutdown", lambda: not stopped.append(True)
    )
    asked: list[str] = []
    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    monkeypatch.setattr("click.confirm", lambda text, **_: bool(asked.append(text)))
    assert shell("shutdown")[0] == 0
    assert (asked, stopped) == ([], [True])  # nothing uses it
    with Store.open(None) as store:
        run_id = store.create_run(Experiment(**EXPERIMENT))
    assert "Nothing was stopped" in shell("shutdown")[2]
    assert f"{run_id}, which is starting" in asked[0]
    assert stopped == [True]
    assert shell("shutdown", "--yes")[0] == 0
    assert shell.json("shutdown")["ended"]
    assert len(asked) == 1
    assert len(stopped) == 3


def test_runs_whose_drivers_end_with_the_head_are_found_and_lost_at_once(shell: Shell) -> None:
    driver = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    try:
        with Store.open(None) as store:
            ids = [store.create_run(Experiment(**EXPERIMENT)) for _ in range(2)]
            for run_id, pid in zip(ids, (driver.pid, 1), strict=True):
                writer = store.writer(run_id, owner_pid=pid, owner_host="here")
                writer.append(RunStateChanged(state="running"))
        assert find_runs_on(os.getpid()) == ids[:1]
    finally:
        driver.kill()
        driver.wait()
    mark_lost(ids)
    with Store.open(None) as store:
        assert [store.run(run_id).state for run_id in ids] == ["lost", "running"]


def test_a_run_of_this_process_cannot_be_detached(shell: Shell) -> None:
    code, _, err = shell("resume", "last", "--launcher", "inline", "--detach")
    assert code == 2
    assert "you cannot combine --detach and --launcher inline" in err


def test_check_estimates_memory_without_running_a_trial(shell: Shell) -> None:
    (shell.folder / "net.yaml").write_text(FILE, encoding="utf-8")
    told = shell.json("check", str(shell.folder / "net.yaml"), "--estimate-memory", "--no-step")[
        "memory"
    ]

    assert told["fits"]
    assert told["plan"]["micro_batch"] == told["step"]["micro_batch"] == 128
    assert told["step"]["compute_peak_bytes"] > 3 * told["step"]["parameters_bytes"] > 0
    assert told["largest_micro_batch"] > 128
