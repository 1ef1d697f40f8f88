"""Runs that choose between versions of their code, and the decision about them."""

from __future__ import annotations

import getpass
from pathlib import Path

import pytest

import workbench as wb
from tests.builders.studies import Drive
from tests.cluster.remote.test_version_trees import SCRIPT, WIDER, experiment
from workbench.experiment import Experiment
from workbench.foundation.errors import ArgumentError, ExperimentError
from workbench.foundation.events import VersionJudged
from workbench.runs.trial_decisions import decide_versions
from workbench.store.history.programs import code_of, describe_versions
from workbench.training.mirrored_folder import written_files
from workbench.views.live_feed.run_summaries import run_detail
from workbench.views.live_feed.run_tail import RunTail

FUNCTION = """\
def train(config, report):
    try:
        from extra import BONUS
    except ImportError:
        BONUS = 0.0
    report(loss=config["lr"] - BONUS, num_names=len(config))
"""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "train.py").write_text(SCRIPT)
    (folder / "layer.py").write_text("def gain():\n    return 1.0\n")
    (folder / "wider.diff").write_text(WIDER)
    monkeypatch.chdir(folder)
    return folder


@pytest.mark.ray
def test_each_trial_runs_the_version_that_was_copied_when_the_run_started(
    project: Path, tmp_path: Path, ray_head: Path
) -> None:
    choices = {"code": {"versions": [{"folder": "."}, {"patch": "wider.diff"}]}, "lr": 0.0}
    grid = experiment(search=choices, sampler="grid", budget={}, confirm={})
    store = str(tmp_path / "store.sqlite")
    run = wb.sweep(grid, store=store, launcher="inline")
    loss = {trial.params["code"]: trial.values["loss"] for trial in run.history.trials.values()}
    assert loss == {"current": 1.0, "wider.diff": 0.5}
    (project / "wider.diff").unlink()
    (project / "layer.py").write_text("def gain():\n    return 5.0\n")
    replay = run.replay(launcher="inline")
    values = sorted(trial.values["loss"] for trial in replay.history.trials.values())
    assert values == [0.5, 1.0]
    assert "+2 -1 lines in layer.py; trial" in describe_versions(run.history)[1]
    best = run.best
    assert best is not None
    hashes = {item.name: item.code_sha256 for item in run.history.programs[0].choices}
    assert code_of(run.history, best) == hashes["wider.diff"]
    assert not written_files(run.store.artifacts_of(run.run_id).below(f"trials/{best.number}"))
    run.export(tmp_path / "bundle")
    assert "scale = 2" in (tmp_path / "bundle" / "code" / "layer.py").read_text()
    assert "code" not in Experiment.from_file(tmp_path / "bundle" / "experiment.yaml").search.root
    report = run.report(tmp_path / "report.html").read_text()
    assert "wider.diff compared with current" in report
    (decision,) = decide_versions(run)
    assert decision.decision == "more"
    assert (decision.baseline, decision.candidate) == ("current", "wider.diff")
    assert_a_person_has_the_last_word(run)


def assert_a_person_has_the_last_word(run: wb.Run) -> None:
    person = getpass.getuser()
    with pytest.raises(ArgumentError, match=r"version: 'wider' is not a version .* wider\.diff"):
        run.accept("wider")
    assert run.revert("wider.diff") == f"{person} reverted wider.diff"
    assert run.act("accept", {"version": "wider.diff"}) == f"{person} accepted wider.diff"
    stored = [item.event for item in run.store.events(run.run_id, types=["version_judged"])]
    verdicts = [event.verdict for event in stored if isinstance(event, VersionJudged)]
    assert verdicts == ["reverted", "accepted"]
    (decision,) = decide_versions(run)
    assert decision.describe().endswith(f". {person} accepted it")
    tail = RunTail(run.store, run.run_id)
    tail.catch_up()
    (shown,) = run_detail(tail).decisions
    assert (shown.version, shown.decision, shown.verdict) == ("wider.diff", "more", "accepted")
    assert shown.by == person
    assert {"accept", "revert"} <= {offer.kind for offer in run_detail(tail).offers}


@pytest.mark.ray
def test_a_function_imports_its_version_and_nothing_that_the_version_lacks(
    project: Path, tmp_path: Path, ray_head: Path
) -> None:
    (project / "mine.py").write_text(FUNCTION)
    (project / "extra.py").write_text("BONUS = 10.0\n")
    (project / "plain").mkdir()
    (project / "plain" / "mine.py").write_text(FUNCTION)
    both = Experiment(
        train="mine:train",
        objectives=[{"metric": "loss", "goal": "minimize"}],
        search={
            "code": {"versions": [{"folder": "."}, {"folder": "plain"}]},
            "lr": {"choices": [1.0]},
        },
        sampler="grid",
    )
    run = wb.sweep(both, store=str(tmp_path / "store.sqlite"), launcher="inline")
    loss = {trial.params["code"]: trial.values["loss"] for trial in run.history.trials.values()}
    assert loss == {"current": -9.0, "plain": 1.0}
    assert {trial.values["num_names"] for trial in run.history.trials.values()} == {1.0}


def test_the_best_of_each_version_is_trained_again_and_only_that_decides() -> None:
    chosen = experiment({"git": "main"}, {"git": "next"}, confirm={"best": 1, "trainings": 3})
    drive = Drive(chosen)
    names: list[tuple[object, int]] = []
    for _ in range(4):
        proposal = drive.train(lambda params, _rung: params["lr"])
        names.append((proposal.params["code"], proposal.repeat))
    while drive.study.has_confirmations:
        proposal = drive.ask(repeats_only=True)
        drive.report(proposal.trial, 1, loss=0.5)
        drive.end(proposal.trial)
        names.append((proposal.params["code"], proposal.repeat))
    versions = {name for name, _ in names[:4]}
    assert set(names[4:]) == {(name, repeat) for name in versions for repeat in (1, 2)}
    assert len(names) == 4 + 2 * len(versions)


def test_versions_are_trained_again_unless_you_say_otherwise() -> None:
    both = ({"git": "main"}, {"git": "next"})
    assert experiment(*both).confirm.best == 1
    unconfirmed = experiment(*both, confirm={})
    assert unconfirmed.confirm.best is None
    assert Experiment.from_yaml(unconfirmed.to_yaml()) == unconfirmed
    assert experiment(*both, budget={"time": "1h"}).confirm.best is None
    assert experiment(*both).max_trainings() == 4 + 2 * 4


def test_what_has_no_versions_is_refused() -> None:
    versions = {"code": {"versions": [{"git": "main"}]}}
    objectives = [{"metric": "val_loss", "goal": "minimize"}]
    with pytest.raises(ExperimentError, match="need a command or a train function"):
        Experiment(model="mlp", data="digits", objectives=objectives, search=versions)
    with pytest.raises(ExperimentError, match="values of one parameter"):
        experiment(search={"version": {"versions": [{"git": "main"}]}, "lr": 0.1})
