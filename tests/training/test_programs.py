"""A trial that is any program.

What it receives, what is read, how it ends, and what is left of it.
"""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.services.waiting import wait_until
from workbench.experiment import Experiment
from workbench.foundation.events import Event, Noted, TrialEnded, TrialReported
from workbench.training.program_trial import has_saved, newest_file
from workbench.training.trial import run_trial
from workbench.training.worker_task import TrialTask

PROGRAM = Path(__file__).parent / "program.py"


class Trial:
    """One trial of the program, with everything that it reported."""

    def __init__(
        self,
        kind: str,
        folder: Path,
        *,
        stop_at: int | None = None,
        should_stop: Any = None,
        attempt: int = 0,
        continued: str | None = None,
        **fields: Any,
    ) -> None:
        experiment = Experiment(
            **{
                "command": ["python", str(PROGRAM), *kind.split()],
                "objectives": [{"metric": "loss", "goal": "minimize"}],
                **fields,
            }
        )
        task = TrialTask(
            "r",
            7,
            attempt,
            experiment.model_dump_json(),
            folder=str(folder),
            seed=5,
            resume=True,
            continued=continued,
            params=dict.fromkeys(experiment.search.root, 0.5),
        )
        self.events: list[Event] = []

        def take(event: Event) -> bool:
            self.events.append(event)
            return len(self.reports) == stop_at

        self.ended: TrialEnded = run_trial(task, take, should_stop or (lambda: False))

    @property
    def reports(self) -> list[TrialReported]:
        return [event for event in self.events if isinstance(event, TrialReported)]

    @property
    def notes(self) -> list[str]:
        return [event.message for event in self.events if isinstance(event, Noted)]


def test_printed_metrics_are_reported_by_step(tmp_path: Path) -> None:
    trial = Trial("good {lr}", tmp_path, search={"lr": 0.5}, step="epoch")
    assert trial.ended.state == "complete", trial.ended.message
    assert [(report.step, report.values) for report in trial.reports] == [
        (step, {"loss": 0.5 / step, "acc": 90.0 + step}) for step in (1, 2, 3)
    ]
    assert trial.ended.values == trial.reports[-1].values


def test_what_the_program_receives(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    command = "environment {folder} {seed} {trial} {rank} {world_size} {resume} {args}"
    trial = Trial(command, tmp_path, search={"a-b": 0.5})
    found = json.loads(capfd.readouterr().out)
    folder = str(tmp_path / "checkpoints")
    assert found["arguments"] == [folder, "5", "7", "0", "1", "false", "--a-b=0.5"]
    assert found["found"]["config"] == {"a-b": 0.5}
    assert found["found"]["WORKBENCH_FOLDER"] == folder
    assert found["found"]["WORKBENCH_SEED"] == "5"
    assert found["found"]["WORKBENCH_TRIAL"] == "7"
    assert trial.ended.state == "complete"


def test_a_program_that_uses_wandb_finds_its_configuration_there(tmp_path: Path) -> None:
    search = {"lr": 0.5, "optimizer.name": 0.5, "optimizer.lr": 0.5}
    Trial("configured {args}", tmp_path, search=search, metrics={"from": "wandb"})
    found = json.loads((tmp_path / "checkpoints" / "found").read_text())
    optimizer = {"value": {"name": 0.5, "lr": 0.5}}
    assert found == {"wandb_version": 1, "lr": {"value": 0.5}, "optimizer": optimizer}


def test_a_program_is_stopped_at_any_report(tmp_path: Path) -> None:
    trial = Trial("forks stay", tmp_path, stop_at=2)
    assert (trial.ended.state, trial.ended.step) == ("stopped", 2)
    assert not alive(tmp_path)


def test_a_silent_program_is_stopped(tmp_path: Path) -> None:
    trial = Trial("silent", tmp_path, should_stop=(tmp_path / "checkpoints" / "started").exists)
    assert trial.ended.state == "stopped"


def test_a_program_that_ignores_the_request_is_killed_after_the_grace_period(
    tmp_path: Path,
) -> None:
    before = psutil.Process().children(recursive=True)
    trial = Trial("stubborn", tmp_path, stop_at=1, resources={"stop_grace": 0.2})
    assert trial.ended.state == "stopped"
    assert set(psutil.Process().children(recursive=True)) <= set(before)


def test_processes_that_outlive_the_program_are_ended(tmp_path: Path) -> None:
    trial = Trial("forks leave", tmp_path)
    assert trial.ended.state == "complete"
    assert "outlived" in trial.notes[0]
    assert not alive(tmp_path)


def test_a_program_dies_with_its_worker(tmp_path: Path) -> None:
    folder = tmp_path / "checkpoints"
    folder.mkdir()
    code = (
        "import os, sys; from workbench.training.programs.following import ProgramProcess\n"
        f"ProgramProcess([sys.executable, {str(PROGRAM)!r}, 'forks', 'stay'], os.environ, 5.0)\n"
        "sys.stdin.read()"
    )
    environment = {**os.environ, "WORKBENCH_FOLDER": str(folder)}
    worker = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, env=environment)
    wait_until(lambda: len(list(folder.glob("left-*"))) == 2)
    worker.kill()
    worker.wait()
    wait_until(lambda: not alive(tmp_path))


def test_how_programs_end(tmp_path: Path) -> None:
    nan = Trial("nan", tmp_path / "nan").ended
    assert (nan.state, nan.reason, nan.step) == ("failed", "diverged", 2)
    fails = Trial("fails", tmp_path / "fails")
    assert (fails.ended.state, fails.ended.reason) == ("failed", "error")
    assert fails.ended.message == "the program ended with status 1: ValueError: boom"
    assert "line" in (fails.ended.traceback or "")
    assert [report.values for report in fails.reports] == [{"loss": 0.5}]
    half = Trial("half", tmp_path / "half")
    assert half.ended.state == "complete"
    assert [report.values["loss"] for report in half.reports] == [0.5]
    absent = Trial("", tmp_path / "absent", command="/nowhere/to/be/found").ended
    assert absent.message == "/nowhere/to/be/found could not be started: No such file or directory"


@pytest.mark.parametrize(
    ("lines", "outcome"),
    [
        (["loss=0.9", "loss=nan"], ("failed", "diverged", "loss is nan at step 2")),
        (
            ["loss=0.9", "loss: tensor(nan, device='cuda:0')"],
            ("failed", "diverged", "loss is nan at step 2"),
        ),
        (
            ["loss=0.9", "loss: NA"],
            ("failed", "error", "the last loss that the program wrote is NA"),
        ),
        (
            ["loss=0.9", "loss=tensor([0.1, 0.2])"],
            ("failed", "error", "an array or another object"),
        ),
        (
            ["loss=0.9", "loss: <0.001"],
            ("failed", "error", "the last loss that the program wrote is <0.001"),
        ),
        (["loss=0.9", "loss: $0.5"], ("complete", None, "")),
        (
            ["loss=0.9", '{"loss": true}'],
            ("failed", "error", "the program wrote is True, which is not"),
        ),
        (["loss=None"], ("failed", "error", "it wrote None instead, which is not a number")),
        (["loss=None", "loss=0.5", "loss=None"], ("complete", None, "")),
        (
            ["loss=1,500", "loss=0.5", "loss=1,050"],
            ("failed", "error", "the last loss that the program wrote is 1,050, which is not"),
        ),
        (["loss=0.5 val_loss=nan train_loss=inf acc=None"], ("complete", None, "")),
        (["loss: np.float64(0.5) n=np.int64(3)"], ("complete", None, "")),
        (["loss=0.5 size=nan"], ("failed", "diverged", "size is nan at step 1")),
    ],
)
def test_what_is_written_at_last_decides(
    lines: list[str], outcome: tuple[str, str | None, str], tmp_path: Path
) -> None:
    printed = "\n".join(lines).replace("{", "{{").replace("}", "}}")
    command = ["python", "-c", f"print({printed!r})"]
    trial = Trial("", tmp_path, command=command, constraints=[{"metric": "size", "at_most": 1}])
    state, reason, words = outcome
    assert (trial.ended.state, trial.ended.reason) == (state, reason), trial.ended.message
    assert words in (trial.ended.message or "")
    if state == "complete":
        assert trial.ended.values["loss"] == 0.5
    if lines[-1] == "loss=None" and state == "complete":
        assert trial.notes == [
            "the program finally wrote loss as None, so the last number before that counts"
        ]


def test_a_program_reports_anything_and_only_the_objective_fails_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(PROGRAM.parents[2]))
    code = (
        "import workbench as wb\nwb.report(loss=0.5, acc=None, model=object(), ok=True,"
        " nan=float('nan'), val=dict(f1=1, z=1j))\nwb.report(loss='0.25', model=object())\n"
    )
    trial = Trial("", tmp_path / "fine", command=["python", "-c", code])
    assert trial.ended.state == "complete", trial.ended.message
    values = dict(trial.ended.values)
    assert math.isnan(values.pop("nan"))
    assert values == {"loss": 0.25, "ok": 1.0, "val.f1": 1.0}
    assert [note.partition(" is not kept")[0] for note in trial.notes] == [
        "'acc'",
        "'model'",
        "'val.z'",
    ]
    wrong = "import workbench as wb\nwb.report(loss=0.5)\nwb.report(loss=1j)\n"
    ended = Trial("", tmp_path / "wrong", command=["python", "-c", wrong]).ended
    assert (ended.state, ended.message) == (
        "failed",
        "report.loss: a complex value is not a number",
    )


def test_a_metric_that_is_never_written_is_named_beside_those_that_were(tmp_path: Path) -> None:
    ended = Trial("other", tmp_path).ended
    assert (ended.state, ended.is_unreported) == ("failed", True)
    message = ended.message or ""
    assert "without writing 'loss'; it wrote: Epoch, Loss; to improve Loss instead: " in message
    assert "--set objectives.0.metric=Loss\nIts last lines:" in message
    assert "that was it" in message
    step = Trial("good 1", tmp_path / "step", step="iteration").ended
    assert "without writing 'iteration'; it wrote: epoch, loss, acc" in (step.message or "")
    command = ["python", "-c", "print('Epoch 1 had a loss 1.4 and Acc@1 72%')"]
    unread = Trial("", tmp_path / "unread", command=command).ended
    assert "such as metrics: {pattern: 'loss (?P<loss>\\S+)'}" in (unread.message or "")
    both = ["python", "-c", "print('fit done; Final loss of both: 1.4/1.5')"]
    pair = Trial("", tmp_path / "pair", command=both).ended
    assert "{pattern: 'loss of both: (?P<loss>[-+.\\deE]+)'}" in (pair.message or "")
    wordy = ["python", "-c", "print('no more to say')"]
    other = Trial("", tmp_path / "nothing", command=wordy).ended
    assert "it wrote no metric at all\nIts last lines" in (other.message or "")
    silent = Trial("", tmp_path / "silent", command=["true"]).ended
    assert (silent.message or "").endswith("it wrote no metric at all. It printed nothing.")
    rows = "import sys; f = sys.argv[1]; open(f + '/rows.csv', 'w').write('loss\\n1')"
    rows += "; open(f + '/log.csv', 'w').write('epoch,acc\\n1,0.5'); open(f + '/m.pt', 'w')"
    written = Trial("", tmp_path / "rows", command=["python", "-c", rows, "{folder}"]).ended
    assert (
        "no metric at all. In its folder, log.csv has epoch, acc; rows.csv has no numbers by name"
        " in rows that say their step or epoch; 1 more are of other kinds"
    ) in (written.message or "")
    write = "import sys; open(sys.argv[1] + '/log.csv', 'w').write('loss\\n1')"
    misnamed = Trial(
        "",
        tmp_path / "misnamed",
        command=["python", "-c", write, "{folder}"],
        metrics={"csv": "{folder}/lag.csv"},
    ).ended
    assert "lag.csv, where metrics are read (its folder has log.csv); " in (misnamed.message or "")
    read = Trial("", tmp_path / "read", command=command, metrics={"pattern": r"loss (?P<loss>\S+)"})
    assert [report.values["loss"] for report in read.reports] == [1.4]


def test_output_is_kept_up_to_a_size(
    tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    trial = Trial("long", tmp_path, resources={"max_log_size": "1kB"})
    assert trial.ended.values == {"loss": 0.5}
    kept = capfdbinary.readouterr().out
    assert len(kept) < 70_000
    assert kept.endswith(b"loss=0.5\n")
    assert b"of output were dropped here" in kept


def test_no_value_of_an_objective_is_lost_however_fast_it_is_written(tmp_path: Path) -> None:
    trial = Trial("many", tmp_path)
    assert (trial.ended.state, trial.ended.step) == ("complete", 3000)
    assert math.isclose(trial.ended.values["loss"], 1 / 3000)
    assert [report.values["loss"] for report in trial.reports] == [
        1 / step for step in range(1, 3001)
    ]


def test_a_program_may_report_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(PROGRAM.parents[2]))
    trial = Trial("reports", tmp_path, metrics={"from": "stdout"}, step="epoch")
    assert [(report.step, report.values) for report in trial.reports] == [(2, {"loss": 0.5})]


def test_a_program_that_keeps_files_is_started_again_with_them(tmp_path: Path) -> None:
    first = Trial("resumes {resume:flag}", tmp_path, step="step")
    assert first.ended.message == "the program was killed by SIGKILL: step=2 loss=0.5"
    again = Trial("resumes {resume:flag}", tmp_path, step="step", attempt=1)
    assert "with the files in its folder" in again.notes[0]
    assert [report.step for report in again.reports if not report.told_again] == [3, 4]
    assert Trial("good 1", tmp_path / "other", attempt=1).notes == [
        "the program starts from the beginning, because its folder is empty"
    ]


@pytest.mark.parametrize("name", ["model.pt", "ckpt_*.pt"])
def test_a_killed_program_continues_from_the_file_that_it_saved(tmp_path: Path, name: str) -> None:
    command = f"saves --resume {{resume_from:{name}}}"
    first = Trial(command, tmp_path, step="step")
    assert [report.step for report in first.reports] == [1, 2, 3]
    assert (
        first.ended.message == "the program was killed by SIGKILL: step=3 loss=0.3333333333333333"
    )
    again = Trial(command, tmp_path, step="step", attempt=1)
    assert [report.step for report in again.reports if not report.told_again] == [4]
    saved = name.replace("*", "11")
    assert again.notes == [f"the program continues from {saved}"]


def test_a_program_that_has_not_saved_its_file_starts_from_the_beginning(tmp_path: Path) -> None:
    Trial("good 1", tmp_path)
    (tmp_path / "checkpoints" / "log.txt").write_text("begun")
    again = Trial("environment --resume={resume_from:last/*.pt} {resume}", tmp_path, attempt=1)
    assert again.notes[0] == (
        "the program starts from the beginning, because it has not saved last/*.pt"
    )


def test_a_trial_continues_from_the_file_of_another(tmp_path: Path) -> None:
    command = "saves --resume {resume_from:model.pt}"
    Trial(command, tmp_path / "one", step="step")
    other = Trial(command, tmp_path / "other", step="step", continued=str(tmp_path / "one"))
    assert [report.step for report in other.reports] == [4]


@pytest.mark.parametrize("names", [["ckpt_9.pt", "ckpt_10.pt"], ["a-1/x", "a-2/x"]])
def test_the_newest_file_is_the_one_that_was_written_last(tmp_path: Path, names: list[str]) -> None:
    for name in names:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("saved")
    pattern = "a-*" if "/" in names[0] else "ckpt_*.pt"
    older, newer = (tmp_path / name.partition("/")[0] for name in names)
    for path in tmp_path.rglob("*"):
        os.utime(path, (1e9, 1e9))
    assert newest_file(tmp_path, pattern) == newer
    os.utime(tmp_path / names[0], (2e9, 2e9))
    assert newest_file(tmp_path, pattern) == older
    assert newest_file(tmp_path, "model.pt") is None


def alive(folder: Path) -> list[int]:
    """Return the processes that the program left behind and that still run."""
    pids = [int(path.read_text() or 0) for path in (folder / "checkpoints").glob("left-*")]
    assert len(pids) == 2
    return [pid for pid in pids if psutil.pid_exists(pid)]


def _printing(*lines: str) -> list[str]:
    return ["sh", "-c", f"printf '%s\\n' {' '.join(repr(line) for line in lines)}"]


def test_a_name_with_two_meanings_is_refused_as_an_objective(tmp_path: Path) -> None:
    lines = [f"step {n} loss {n}.5" if n % 2 else f"epoch {n} loss {n}.25" for n in range(6)]
    ended = Trial("", tmp_path, command=_printing(*lines)).ended
    assert ended.state == "failed"
    assert "different numbers as 'loss'" in (ended.message or "")
    assert "'epoch 0 loss 0.25' and 'step 1 loss 1.5'" in (ended.message or "")


def test_a_summary_with_another_value_is_noted_and_one_with_the_same_is_not(
    tmp_path: Path,
) -> None:
    epochs = [f"epoch {n} loss {n}.5" for n in range(3)]
    other = Trial("", tmp_path / "other", command=_printing(*epochs, "Finally: loss 0.25"))
    same = Trial("", tmp_path / "same", command=_printing(*epochs, "Finally: loss 2.501"))
    assert (other.ended.state, same.ended.state) == ("complete", "complete")
    assert [note for note in other.notes if "different numbers as 'loss'" in note]
    assert not [note for note in same.notes if "different numbers" in note]


@pytest.mark.parametrize(
    ("printed", "written", "value", "is_noted"),
    [
        ("loss: 0.983", 0.98312, 0.98312, False),
        ("loss: 0.9", 0.5, 0.5, True),
        ("other: 1", 0.5, 0.5, False),
    ],
)
def test_event_files_in_the_folder_settle_the_final_value(
    printed: str, written: float, value: float, is_noted: bool, tmp_path: Path
) -> None:
    tensorboard = pytest.importorskip("tensorboardX")
    with tensorboard.SummaryWriter(str(tmp_path / "runs")) as writer:  # loaded once for all cases
        writer.add_scalar("loss", 7.0, 100)
        writer.add_scalar("loss", written, 200)
    script = f"cp -r {tmp_path / 'runs'} \"$0\"; echo '{printed}'"
    trial = Trial("", tmp_path / "trial", command=["sh", "-c", script, "{folder}"])
    assert trial.ended.state == "complete"
    assert trial.ended.values["loss"] == pytest.approx(value, rel=1e-6)
    assert any("which counts" in note for note in trial.notes) == is_noted
    assert trial.reports[-1].step == 1


_WRITES = {
    "csv.DictWriter": (
        "import csv\nfile = open(folder + '/results.csv', 'w', newline='')\n"
        "w = csv.DictWriter(file, ['epoch', 'loss'])\nw.writeheader()\n"
        "for e, x in enumerate(values):\n    w.writerow({'epoch': e, 'loss': x})\nfile.close()\n"
    ),
    "json.dumps": (
        "import json\nfile = open(folder + '/log.txt', 'a')\n"
        "for e, x in enumerate(values):\n"
        "    file.write(json.dumps({'epoch': e, 'loss': x}) + '\\n')\nfile.close()\n"
    ),
    "json.dump": (
        "import json\nfor n in range(1, 3):\n"
        "    json.dump({'loss': values[:n]}, open(folder + '/history.json', 'w'))\n"
    ),
    "wandb": (
        "import os\nos.environ |= {'WANDB_MODE': 'offline', 'WANDB_DIR': folder,"
        " 'WANDB_SILENT': 'true'}\nimport wandb\nrun = wandb.init()\n"
        "for x in values:\n    run.log({'loss': x})\nrun.finish()\n"
    ),
    "mlflow": (
        "import mlflow\nmlflow.set_tracking_uri('sqlite:///' + folder + '/mlflow.db')\n"
        "with mlflow.start_run():\n    for e, x in enumerate(values):\n"
        "        mlflow.log_metric('loss', x, step=e)\n"
    ),
}


@pytest.mark.parametrize("written", _WRITES)
def test_a_metric_that_is_only_in_a_file_counts_at_the_end(written: str, tmp_path: Path) -> None:
    """The files are written by the tools themselves."""
    if written in ("wandb", "mlflow"):
        pytest.importorskip(written)
    script = tmp_path / "train.py"
    script.write_text(
        f"import sys\nfolder, values = sys.argv[1], [7.0, 0.125]\n{_WRITES[written]}"
        "print('epoch=2 train_acc=0.5')\n"
    )
    trial = Trial("", tmp_path / "trial", command=["python", str(script), "{folder}"])
    assert trial.ended.state == "complete"
    assert trial.ended.values["loss"] == 0.125


_EPOCHS = "epoch,val_loss\n1,0.9\n2,0.851\n"
_ONE_FOLD = "epoch,val_loss\n1,0.8\n2,0.77\n"


@pytest.mark.parametrize(
    ("printed", "logs", "value", "note"),
    [
        ("0.9", {"log.csv": _EPOCHS}, 0.851, ""),
        ("0.934", {"log.csv": "epoch,val_loss\n1,0.9341\n2,0.85\n"}, 0.85, "which counts"),
        ("0.85123", {"log.csv": _EPOCHS}, 0.85123, ""),
        ("0.8100", {"fold0/log.csv": _EPOCHS, "fold1/log.csv": _ONE_FOLD}, 0.81, "different"),
        ("0.851", {"log.csv": _EPOCHS, "baseline/log.csv": _ONE_FOLD}, 0.851, ""),
        ("31.23", {"log.csv": "epoch,val_loss\n1,0.5\n2,0.3123\n"}, 31.23, "never have"),
        ("0.4000", {"batches.csv": "step,val_loss\n1,9.5\n2,7.5\n"}, 0.4, "never have"),
        (
            "0.4",
            {"log.jsonl": '{"epoch": 2, "val_loss": 0.4}\n{"epoch": 1, "val_loss": 0.9}\n'},
            0.4,
            "",
        ),
        ("", {"a.json": '{"val_loss": 0.2}', "config.json": '{"val_loss": 10}'}, None, "different"),
    ],
)
def test_a_log_settles_the_value_that_it_is_a_log_of(
    printed: str, logs: dict[str, str], value: float | None, note: str, tmp_path: Path
) -> None:
    script = tmp_path / "train.py"
    script.write_text(
        "import sys\nfrom pathlib import Path\n"
        f"for name, text in {logs!r}.items():\n"
        "    path = Path(sys.argv[1], name)\n"
        "    path.parent.mkdir(parents=True, exist_ok=True)\n"
        "    path.write_text(text)\n"
        f"print('val_loss={printed}' if {printed!r} else 'train_acc=0.5')\n"
    )
    trial = Trial(
        "",
        tmp_path / "trial",
        command=["python", str(script), "{folder}"],
        objectives=[{"metric": "val_loss", "goal": "minimize"}],
    )
    assert trial.ended.values.get("val_loss") == value
    said = [text for text in trial.notes if "log files" in text]
    assert bool(said) == bool(note)
    assert note in "".join(said)


def test_a_table_without_steps_and_a_best_value_settle_nothing(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(
        "import sys\nopen(sys.argv[1] + '/predictions.csv', 'w').write('id,loss\\n1,0.9\\n')\n"
        "open(sys.argv[1] + '/best.json', 'w').write('{\"loss\": 0.01}')\n"
        "print('loss=0.5')\n"
    )
    trial = Trial("", tmp_path / "trial", command=["python", str(script), "{folder}"])
    assert trial.ended.values["loss"] == 0.5
    assert not any("which counts" in note for note in trial.notes)


@pytest.mark.parametrize(
    ("value", "values"),
    [("best", [0.5, 0.2, 0.4]), ({"mean_last": 2}, [0.5, 0.2, 0.4]), ("last", [0.4])],
)
def test_the_course_of_a_metric_that_only_a_file_has(
    value: object, values: list[float], tmp_path: Path
) -> None:
    rows = "epoch,val_loss\\n1,0.5\\n2,0.2\\n3,0.4\\n"
    code = f"import sys; open(sys.argv[1] + '/log.csv', 'w').write('{rows}'); print('done: 1')"
    trial = Trial(
        "",
        tmp_path,
        command=["python", "-c", code, "{folder}"],
        objectives=[{"metric": "val_loss", "goal": "minimize", "value": value}],
    )
    reports = [report.values for report in trial.reports]
    reported = [known["val_loss"] for known in reports if "val_loss" in known]
    assert (trial.ended.state, reported) == ("complete", values), trial.ended.message


@pytest.mark.parametrize(
    ("written", "is_saved"),
    [
        ([("last.pt", 19.9)], True),  # saved before the report
        ([("last.pt", 10.5), ("log.csv", 19.9)], False),  # saved after the report before it
        ([("last.pt", 20.2)], True),  # saved after the report
        ([("last.pt", 20.95)], False),  # perhaps not complete
        ([], False),
    ],
)
def test_a_turn_ends_when_its_last_step_is_saved(
    written: list[tuple[str, float]], is_saved: bool
) -> None:
    assert has_saved(written, (10.0, 20.0), 21.0) == is_saved
