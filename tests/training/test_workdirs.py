"""Working folders of trials: what is copied and linked, and what an attempt finds again."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from workbench.cluster.remote.code_origin import Origin
from workbench.cluster.remote.kept_code import describe_workdir, find, unpack_here
from workbench.experiment import Experiment
from workbench.foundation.artifacts import open_artifacts
from workbench.foundation.errors import ExperimentError, RunError, WorkbenchError
from workbench.foundation.events import Event, Noted, TrialEnded
from workbench.sweeps.preflight import check_program
from workbench.training.mirrored_folder import take_over, written_files
from workbench.training.programs.kept_imports import VARIABLE
from workbench.training.programs.kept_scripts import Layout, lay_out
from workbench.training.trial import run_trial
from workbench.training.worker_task import TrialTask

SCRIPT = """\
import os, signal, sys
from beside import SCALE
assert open("data/rows.bin").read() == "3"
scale, path = float(sys.argv[1]), sys.argv[3] if "--resume" in sys.argv else None
os.makedirs("runs/first", exist_ok=bool(path))
first = int(open(path).read()) + 1 if path else 1
for step in range(first, 5):
    open("model.pt", "w").write(str(step))
    open("log.csv", "a").write("x")
    print(f"step={step} loss={SCALE * scale / step}", flush=True)
    if step == 2 and path is None and scale > 1:
        os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a script, what it needs, and what earlier runs of it have left."""
    folder = tmp_path / "project"
    contents = {
        "train.py": SCRIPT,
        "beside.py": "SCALE = 1",
        "conf/model/small.yaml": "width: 8",
        "vocab.txt": "a b",
        "data/rows.bin": "3",
        "model.pt": "9",
        "runs/old/hparams.yaml": "lr: 1",
        ".env": "KEY=secret",
    }
    for name, content in contents.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(content)
    (folder / "large.bin").write_bytes(bytes(2**21))
    monkeypatch.chdir(folder)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return folder


def experiment(**fields: Any) -> Experiment:
    return Experiment(
        **{
            "command": "python train.py {scale} --resume {resume_from:model.pt}",
            "search": {"scale": {"low": 1.0, "high": 9.0}},
            "workdir": {"link": ["data"]},
            "step": "step",
            "objectives": [{"metric": "loss", "goal": "minimize"}],
            **fields,
        }
    )


def trial(folder: Path, scale: float, **fields: Any) -> tuple[TrialEnded, list[Event]]:
    events: list[Event] = []
    task = TrialTask(
        "r",
        0,
        fields.pop("attempt", 0),
        experiment(**fields).model_dump_json(),
        folder=str(folder),
        params={"scale": scale},
        resume=True,
    )

    def take(event: Event) -> bool:
        events.append(event)
        return False

    return run_trial(task, take), events


@pytest.fixture
def kept(project: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    code = unpack_here(experiment())
    assert code is not None
    monkeypatch.setenv(VARIABLE, str(code))
    return code


def test_code_and_small_files_are_copied_and_nothing_else(project: Path) -> None:
    files = find(experiment(), Origin.here())
    assert sorted(files.workdir) == ["beside.py", "conf/model/small.yaml", "train.py"]
    named = "python train.py {scale} vocab.txt large.bin"
    files = find(experiment(command=named, workdir="fresh"), Origin.here())
    assert "vocab.txt" in files.workdir
    assert files.absent == {"data": 1, "large.bin": 2**21}


def test_check_says_what_is_copied_and_linked(project: Path) -> None:
    first, *others = describe_workdir(experiment())
    assert "a copy of 3 files" in first
    assert "with links to data (1 B)" in first
    assert others == []
    *_, last = describe_workdir(experiment(workdir="fresh"))
    assert "not in the folder, although code or command mention it: data (1 B)" in last
    with pytest.raises(ExperimentError, match=r"workdir.link.dat: there is no dat to link"):
        check_program(experiment(workdir={"link": ["dat"]}))


def test_the_kept_code_runs_in_the_folder_of_the_trial(kept: Path, project: Path) -> None:
    (project / "beside.py").write_text("SCALE = 100")  # edited while the run goes on
    for number in (1, 2):
        ended, _ = trial(project.parent / str(number), 1.0)
        assert ended.state == "complete", ended.message
        assert ended.values == {"loss": 0.25}
    assert sorted(path.name for path in project.iterdir() if path.name == "log.csv") == []
    assert (project / "model.pt").read_text() == "9"
    left = written_files(open_artifacts(project.parent / "1"))
    assert left == {"log.csv": 4, "model.pt": 1}
    assert (project.parent / "1/checkpoints/data").is_symlink()


def test_a_killed_attempt_is_continued_in_its_own_folder(kept: Path, project: Path) -> None:
    ended, _ = trial(project.parent / "one", 2.0)
    assert ended.state == "failed"
    ended, events = trial(project.parent / "one", 2.0, attempt=1)
    assert ended.values == {"loss": 0.5}
    notes = [event.message for event in events if isinstance(event, Noted)]
    assert notes == ["the program continues from model.pt"]
    assert (project.parent / "one/checkpoints/log.csv").read_text() == "xxxx"


def test_a_trial_that_continues_another_takes_only_what_its_program_wrote(
    kept: Path, project: Path
) -> None:
    trial(project.parent / "one", 2.0)
    task = TrialTask(
        "r",
        1,
        0,
        experiment().model_dump_json(),
        folder=str(project.parent / "other"),
        continued=str(project.parent / "one"),
    )
    take_over(task)
    assert sorted(task.checkpoints.sizes()) == ["log.csv", "model.pt"]


def test_metrics_are_read_from_a_file_in_the_folder_of_the_trial(kept: Path, project: Path) -> None:
    (project / "late.py").write_text("open('out.csv', 'w').write('step,loss\\n1,0.5\\n')")
    (project / "out.csv").write_text("step,loss\n1,7\n")
    ended, _ = trial(
        project.parent / "one", 1.0, command=["python", str(project / "late.py"), "{scale}"],
        metrics={"csv": "out.csv"},
    )  # fmt: skip
    assert ended.values == {"loss": 0.5}


def test_what_the_program_has_changed_stays_as_it_is(kept: Path, tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    first = lay_out(folder, {"data": "data"}, Layout())
    again = lay_out(folder, {"data": "data"}, Layout.read(first.write()))
    assert again == first
    assert list(again.others_in(folder)) == []
    (folder / "conf/model/small.yaml").write_text("width: 16")
    changed = lay_out(folder, {"data": "data"}, again)
    assert [path.name for path in changed.others_in(folder)] == ["small.yaml"]
    assert (folder / "conf/model/small.yaml").read_text() == "width: 16"


def test_another_version_of_the_code_replaces_the_one_before(
    kept: Path, project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    first = lay_out(folder, {}, Layout())
    (project / "beside.py").write_text("SCALE = 2")
    monkeypatch.setenv(VARIABLE, str(unpack_here(experiment())))
    lay_out(folder, {}, first)
    assert (folder / "beside.py").read_text() == "SCALE = 2"


def test_data_that_is_not_on_this_machine_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(RunError, match=r"workdir.link.data links, is not on this machine"):
        lay_out(tmp_path, {"data": "/no/such/folder"}, Layout())


def test_programs_keep_their_permission_to_run(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (project / "go").write_text("#!/bin/sh\necho step=1 loss=$1\n")
    (project / "go").chmod(0o755)
    own = {"command": "./go {scale}", "workdir": "fresh"}
    monkeypatch.setenv(VARIABLE, str(unpack_here(experiment(**own))))
    ended, _ = trial(project.parent / "one", 3.0, **own)
    assert ended.values == {"loss": 3.0}, ended.message
    assert os.access(project.parent / "one/checkpoints/go", os.X_OK)


@pytest.mark.parametrize(
    ("workdir", "part"),
    [
        ("new", "workdir: 'new' .* allowed: fresh, or "),
        ({"link": []}, "nothing to link"),
        ({"link": ["../data"]}, "Choose a name in the folder: {data: ../data}"),
        ({"link": ["/data"]}, "would be outside"),
        ({"copy": ["data"]}, "unknown key"),
    ],
)
def test_a_wrong_working_folder_is_an_error(workdir: Any, part: str) -> None:
    with pytest.raises(WorkbenchError, match=part):
        experiment(workdir=workdir)
    with pytest.raises(ExperimentError, match="only a command has this setting"):
        Experiment(
            model="mlp",
            data="digits",
            workdir="fresh",
            objectives=[{"metric": "val_loss", "goal": "minimize"}],
        )


def test_a_working_folder_is_written_and_read_again() -> None:
    for workdir in ("fresh", {"link": {"data": "/data"}}):
        written = experiment(workdir=workdir)
        assert Experiment.from_yaml(written.to_yaml()).hash() == written.hash()
        assert Experiment.model_validate_json(written.model_dump_json()) == written
        assert json.loads(written.model_dump_json())["workdir"] == workdir
    assert experiment(workdir=None).links is None
