from __future__ import annotations

import json
import subprocess
import urllib.request
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import workbench as wb
from tests.builders.recorded_runs import record_run
from tests.services.clusters import Cluster
from tests.services.postgresql import ESCAPED_PASSWORD, PASSWORD
from workbench.cluster.remote.job_package import make_package
from workbench.cluster.remote.relayed_commands import (
    Answer,
    RemoteCluster,
    join_pieces,
    read_line,
    write_line,
    write_pieces,
)
from workbench.foundation.errors import ArgumentError, DataError, RunError
from workbench.runs.submission import note_of_left_out, note_of_settings

CELL = """
import workbench as wb

def train_in_a_cell(config, report):
    report(step=1, loss=abs(config["x"] - 2))
"""


def make_experiment(**changes) -> wb.Experiment:
    document = {
        "name": "from a cell",
        "train": "mine:train",
        "sampler": "grid",
        "search": {"x": {"choices": [1.0, 2.0]}},
        "objectives": [{"metric": "loss", "goal": "minimize"}],
        **changes,
    }
    return wb.Experiment(**document)


def function_of_a_cell():
    made = {"__name__": "__main__"}
    exec(CELL, made)  # as a kernel does
    return made["train_in_a_cell"]


@pytest.mark.slow
@pytest.mark.ray
def test_what_was_made_in_a_cell_is_submitted_waited_for_and_brought_back(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("WORKBENCH_STORE", raising=False)
    experiment = make_experiment(train=function_of_a_cell())
    run = wb.submit(experiment, address=cluster.jobs_address, token_file=cluster.token)
    assert run.run_id.startswith("from-a-cell-")
    bundle = run.wait().export(tmp_path / "best")
    assert json.loads((bundle / "configuration.json").read_text())["values"] == {"loss": 0.0}
    assert [path.read_bytes() for path in (bundle / "objects").iterdir()] == [
        *experiment.payloads().values()
    ]


@pytest.mark.ray
@pytest.mark.slow
def test_a_run_in_the_store_of_a_team_is_seen_from_here_and_its_password_stays_here(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, postgresql_url: str
) -> None:
    monkeypatch.chdir(tmp_path)
    experiment = make_experiment(name="of the team", train=function_of_a_cell())
    with pytest.warns(UserWarning, match="the password of the store is not sent"):
        sent = wb.submit(
            experiment, address=cluster.jobs_address, token_file=cluster.token, store=postgresql_url
        )
    run = wb.attach(sent.run_id, store=postgresql_url).wait()
    assert run.best is not None
    assert run.best.params == {"x": 2.0}
    request = urllib.request.Request(
        f"{cluster.jobs_address}/api/jobs/", headers={"Authorization": f"Bearer {cluster.secret}"}
    )
    with urllib.request.urlopen(request) as answer:
        told = answer.read().decode()
    assert sent.run_id in told
    assert not any(password in told for password in (PASSWORD, ESCAPED_PASSWORD))


@given(text=st.text(), stream=st.sampled_from(["stdout", "stderr"]))
def test_what_a_command_says_arrives_as_it_was_said(text: str, stream) -> None:
    line = write_line(stream, text)
    assert line.isascii()
    assert len(line.splitlines()) == 1
    assert read_line(line) == (stream, text)


def test_a_password_in_a_command_is_not_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    there = RemoteCluster("http://127.0.0.1:9")
    with pytest.raises(ArgumentError, match="password") as caught:
        there.submit(
            ["export", "last", "--optuna", "postgresql://me:secret@db/x"], submission_id="j"
        )
    assert "secret" not in str(caught.value)


@given(content=st.binary(max_size=200_000))
def test_bytes_arrive_as_they_were_sent(content: bytes) -> None:
    read = [read_line(line) for line in write_pieces(content)]
    assert join_pieces(item[1] for item in read if item) == content


@pytest.mark.parametrize(
    "line", ["", "Running entrypoint for job x", "@workbench {", '@workbench ["x", "y"]']
)
def test_a_line_of_somebody_else_is_none_of_ours(line: str) -> None:
    assert read_line(line) is None


def test_what_failed_elsewhere_is_an_error_here() -> None:
    Answer(0, "fine", "error: not really").raise_for_failure()
    with pytest.raises(RunError, match=r"^there is no run 'x'$"):
        Answer(1, "", "note: wait\nerror: there is no run 'x'\n").raise_for_failure()


def test_a_damaged_piece_is_no_result() -> None:
    with pytest.raises(RunError, match="damaged"):
        join_pieces(["?"])


def test_the_same_code_is_the_same_run_and_changed_code_is_another(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("def train(config, report): ...")
    first = make_package(make_experiment(), tmp_path)
    assert make_package(make_experiment(), tmp_path) == first
    assert make_package(make_experiment(seed=7), tmp_path).run_id != first.run_id
    (tmp_path / "mine.py").write_text("def train(config, report): return 1")
    assert make_package(make_experiment(), tmp_path).run_id != first.run_id


def test_what_the_workbench_wrote_into_the_folder_and_other_experiments_are_no_code(
    tmp_path: Path,
) -> None:
    (tmp_path / "mine.py").write_text("def train(config, report): ...")
    first = make_package(make_experiment(), tmp_path)
    run = wb.attach(record_run(tmp_path), store=str(tmp_path / "store.sqlite"))
    run.export(tmp_path / "results" / "best")
    run.report(tmp_path / "page.html")
    run.export_study(f"sqlite:///{tmp_path / 'study.db'}")
    (tmp_path / "submitted.log").write_text("trial 0 complete")
    (tmp_path / "other.yaml").write_text(make_experiment(name="other").to_yaml())
    assert make_package(make_experiment(), tmp_path) == first
    for name in ("page.htm", "mine.yaml", "data.db", "best/configuration.json"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("a: 1")
        changed = make_package(make_experiment(), tmp_path)
        assert changed.archive.num_files == first.archive.num_files + 1
        (tmp_path / name).unlink()


def test_the_next_command_is_told_all_that_this_one_was(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("secret")
    token = tmp_path / "token"
    there = RemoteCluster("http://h:1", token_file=token, store="postgresql://me:secret@db/runs")
    assert there.words == [
        "--address",
        "http://h:1",
        "--store",
        "postgresql://me@db/runs",
        "--token-file",
        str(token),
    ]


def test_settings_that_do_not_hold_there_are_spoken_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WORKBENCH_SETTINGS", str(tmp_path / "settings.yaml"))
    (tmp_path / "settings.yaml").write_text("{}")
    assert note_of_settings(RemoteCluster("http://h:1")) is None
    (tmp_path / "settings.yaml").write_text("alerts: [{on: diverged}]")
    told = note_of_settings(RemoteCluster("http://h:1"))
    assert told is not None
    assert told.endswith("workbench alerts --address http://h:1")


def test_a_module_from_elsewhere_comes_along(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "here").mkdir()
    (tmp_path / "library" / "theirs").mkdir(parents=True)
    (tmp_path / "library" / "theirs" / "__init__.py").write_text("")
    (tmp_path / "library" / "theirs" / "net.py").write_text(
        "import numpy, shift\ndef train(config, report): ..."
    )
    (tmp_path / "library" / "shift.py").write_text("")
    (tmp_path / "library" / "unused.py").write_text("")
    monkeypatch.syspath_prepend(str(tmp_path / "library"))
    parcel = make_package(make_experiment(train="theirs.net:train"), tmp_path / "here")
    assert parcel.archive.num_files == 4, "the experiment, the package, and what it imports"


def test_data_outside_of_the_folder_or_nowhere_is_refused(tmp_path: Path) -> None:
    (tmp_path / "here").mkdir()
    (tmp_path / "houses.csv").write_text("a,b\n1,2\n")
    for path, problem in (
        ("../houses.csv", "lies outside"),
        ("flats.csv", "there is no flats.csv"),
    ):
        data = {"name": "table", "path": path, "target": "b"}
        experiment = wb.Experiment(
            name="x",
            model="mlp",
            data=data,
            search={"lr": 0.1},
            objectives=[{"metric": "val_loss", "goal": "minimize"}],
        )
        with pytest.raises(DataError, match=problem):
            make_package(experiment, tmp_path / "here")


def test_files_that_data_and_model_name_are_sent_even_if_git_ignores_them(tmp_path: Path) -> None:
    names = {"model/config.json", "train.jsonl", "held out.jsonl"}
    (tmp_path / "last").mkdir()  # which is no path, but how a table divides its rows
    (tmp_path / "model").mkdir()
    for name in ("last/other.npy", *names):
        (tmp_path / name).write_bytes(b"{}")
    (tmp_path / ".gitignore").write_text("*.json\n*.jsonl\n*.npy\n")
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    conversations = {"path": "train.jsonl", "validation": "held out.jsonl", "tokenizer": "model"}
    table = {"path": "train.jsonl", "validation": "last", "target": "b"}
    for model, data, sent in (
        ({"name": "hf", "path": "model"}, {"name": "conversations", **conversations}, names),
        ({"name": "mlp"}, {"name": "table", **table}, {"train.jsonl"}),
    ):
        experiment = wb.Experiment(
            name="x",
            model=model,
            data=data,
            search={"lr": 0.1},
            objectives=[{"metric": "val_loss", "goal": "minimize"}],
        )
        archive = make_package(experiment, tmp_path).archive
        assert {name for name in archive.names if not name.startswith(".")} == sent


def test_a_password_of_a_store_is_never_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(
        "WORKBENCH_STORE", "postgresql://me:secret@db/runs?password=hidden&sslmode=require"
    )
    monkeypatch.setenv("WORKBENCH_ARTIFACTS", "s3://bucket/runs")
    there = RemoteCluster("https://head:8265")
    assert there.environment == {
        "WORKBENCH_STORE": "postgresql://me@db/runs?sslmode=require",
        "WORKBENCH_ARTIFACTS": "s3://bucket/runs",
    }
    assert ["the password of the store is not sent" in note for note in there.notes] == [True]
    monkeypatch.setenv("WORKBENCH_ARTIFACTS", "s3://key:secret@bucket/runs")
    there = RemoteCluster("https://head:8265")
    assert "secret" not in str(there.environment)
    assert len(there.notes) == 2


def test_a_store_of_this_machine_stays_here_unless_it_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("WORKBENCH_ARTIFACTS", raising=False)
    monkeypatch.setenv("WORKBENCH_STORE", str(tmp_path / "mine.sqlite"))
    assert RemoteCluster("http://head:8265").environment == {}
    named = RemoteCluster("http://head:8265", store=str(tmp_path / "shared.sqlite"))
    assert named.environment == {"WORKBENCH_STORE": str(tmp_path / "shared.sqlite")}


@pytest.mark.parametrize(
    ("address", "listened"),
    [
        ("http://localhost:8265", False),
        ("http://127.0.0.1:8265", False),
        ("http://[::1]:8265", False),
        ("https://head:8265", False),
        ("http://head:8265", True),
    ],
)
def test_a_token_that_others_can_listen_to_is_spoken_of(
    address: str, listened: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("WORKBENCH_STORE", raising=False)
    (tmp_path / "token").write_text("secret")
    there = RemoteCluster(address, token_file=tmp_path / "token")
    assert ["unencrypted" in note for note in there.notes] == ([True] if listened else [])


def test_what_is_sent_and_what_is_left_out_is_listed(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("def train(config, report): ...")
    (tmp_path / ".env").write_text("TOKEN=1")
    (tmp_path / "link").symlink_to("/etc")
    package = make_package(make_experiment(), tmp_path)
    sent, *left_out = package.describe()
    assert sent.startswith("sends the experiment and 1 file of this folder")
    assert sent.endswith("mine.py")
    assert left_out == [
        "skipped 1 known secret: .env",
        "skipped 1 link, because links are not followed: link",
    ]
    assert note_of_left_out(package) == "; ".join(left_out)
    for number in range(30):
        (tmp_path / "many").mkdir(exist_ok=True)
        (tmp_path / "many" / f"{number}.py").write_text("")
    assert (
        make_package(make_experiment(), tmp_path)
        .describe()[0]
        .endswith("many/ (30 files), mine.py")
    )


@pytest.mark.parametrize("path", ["current.csv", "latest/train.csv"])
def test_data_behind_a_link_is_refused_with_what_it_leads_to(tmp_path: Path, path: str) -> None:
    (tmp_path / "v3").mkdir()
    (tmp_path / "v3" / "train.csv").write_text("x,y\n1,2\n")
    (tmp_path / "latest").symlink_to("v3")
    (tmp_path / "current.csv").symlink_to("v3/train.csv")
    changes = {
        "train": None,
        "model": "mlp",
        "data": {"name": "table", "path": path, "target": "y"},
    }
    objectives = [{"metric": "val_loss", "goal": "minimize"}]
    experiment = make_experiment(
        **changes, objectives=objectives, search={"lr": {"low": 0.1, "high": 1.0}}
    )
    with pytest.raises(
        DataError, match=r"links are not sent\. Use the path that it leads to: v3/train\.csv"
    ):
        make_package(experiment, tmp_path)
