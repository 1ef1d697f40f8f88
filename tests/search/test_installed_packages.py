"""Samplers and pruners of other packages, as those packages register them."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.builders.recorded_runs import append, begin, finish, trial_events
from tests.builders.studies import Drive, make_experiment
from tests.services.shell import Shell
from workbench.experiment import Experiment
from workbench.experiment.pruners import PRUNERS
from workbench.experiment.samplers import SAMPLERS
from workbench.foundation.errors import ExperimentError
from workbench.runs import Run
from workbench.search import check
from workbench.store.database import Store
from workbench.store.history import History
from workbench.sweeps.budget import extended
from workbench.sweeps.conclusion import natural_end

OWLS = """
from typing import ClassVar

from optuna.pruners import ThresholdPruner
from optuna.samplers import GridSampler, PartialFixedSampler, RandomSampler
from workbench.experiment.pruners import PrunerOptions
from workbench.experiment.samplers import SamplerOptions


class Owl(SamplerOptions):
    factory: ClassVar[str] = "owls:make_sampler"
    x: float


class Lattice(SamplerOptions):
    factory: ClassVar[str] = "owls:make_lattice_sampler"
    keeps_notes: ClassVar[bool] = True
    size: int


class Plain:
    factory = "owls:make_sampler"


class Hawk(PrunerOptions):
    factory: ClassVar[str] = "owls:make_pruner"
    upper: float


def make_sampler(options, request):
    return PartialFixedSampler(options, RandomSampler(request.seed))


def make_lattice_sampler(options, request):
    steps = [step / (options["size"] - 1) for step in range(options["size"])]
    return GridSampler({"x": steps}, seed=request.experiment_seed)


def make_pruner(experiment, options):
    return ThresholdPruner(upper=options.upper)
"""
FIELDS = {
    "sampler": {"name": "owl", "options": {"x": 0.25}},
    "early_stop": {"pruner": "hawk", "options": {"upper": 3.0}},
}


@pytest.fixture
def owls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A package with samplers and a pruner; what it installed can be removed."""
    site = tmp_path / "site"
    information = site / "owls-1.0.dist-info"
    information.mkdir(parents=True)
    (site / "owls.py").write_text(OWLS)
    (information / "METADATA").write_text("Metadata-Version: 2.1\nName: owls\nVersion: 1.0\n")
    (information / "entry_points.txt").write_text(
        "[workbench.samplers]\nowl = owls:Owl\nlattice = owls:Lattice\n"
        "plain = owls:Plain\n"
        "[workbench.pruners]\nhawk = owls:Hawk\n"
    )
    monkeypatch.syspath_prepend(str(site))
    _look_again(monkeypatch)
    yield information
    sys.modules.pop("owls", None)
    _look_again(monkeypatch)


def _look_again(monkeypatch: pytest.MonkeyPatch) -> None:
    for registry in (SAMPLERS, PRUNERS):
        monkeypatch.setattr(registry, "_scanned_at_s", None)


@pytest.mark.usefixtures("owls")
def test_another_package_adds_a_sampler_and_a_pruner() -> None:
    drive = Drive(make_experiment(**FIELDS))
    assert [drive.ask().params["x"] for _ in range(2)] == [0.25, 0.25]
    assert [drive.report(0, step, loss=loss) for step, loss in ((1, 2.0), (2, 4.0))] == [
        False,
        True,
    ]
    with pytest.raises(
        ExperimentError, match=r"sampler\.options\.y: the sampler owl has no such option"
    ):
        check(make_experiment(sampler={"name": "owl", "options": {"x": 1, "y": 2}}))
    with pytest.raises(ExperimentError, match=r"early_stop\.options\.lower"):
        make_experiment(early_stop={"pruner": "hawk", "options": {"upper": 1.0, "lower": 0.0}})


@pytest.mark.usefixtures("owls")
def test_a_sampler_whose_options_are_no_options_is_refused_with_what_they_lack() -> None:
    with pytest.raises(
        ExperimentError, match=r"sampler 'plain', but has no is_population, model_fields"
    ):
        check(make_experiment(sampler="plain"))


def lattice(**fields: object) -> Experiment:
    """An experiment whose sampler calls `Study.stop` when the last of four points has begun."""
    return make_experiment(sampler={"name": "lattice", "options": {"size": 4}}, **fields)


@pytest.mark.usefixtures("owls")
@pytest.mark.parametrize("num_at_once", [1, 3])
def test_a_sampler_that_stops_the_study_has_nothing_left_to_propose(num_at_once: int) -> None:
    drive = Drive(lattice(budget={"trials": 9}))
    running: list[int] = []
    tried: list[object] = []
    while not drive.study.exhausted:
        if len(running) < num_at_once and (proposal := drive.study.ask()) is not None:
            drive.events.append(proposal.event())
            tried.append(proposal.params["x"])
            running.append(proposal.trial)
            continue
        trial = running.pop(0)
        drive.report(trial, 1, loss=trial / 9)
        drive.end(trial)
        assert drive.rebuilt().exhausted == drive.study.exhausted
    # Optuna counts a grid as used up when its last point has begun, so none runs twice beside it.
    assert sorted(set(tried)) == [0.0, 1 / 3, 2 / 3, 1.0]
    assert len(tried) - 4 < num_at_once
    assert drive.study.is_stopped_by_sampler
    assert drive.study.ask() is None
    for trial in running:
        drive.report(trial, 1, loss=trial / 9)
        drive.end(trial)
    assert drive.study.best_trials() == [0]


@pytest.mark.usefixtures("owls")
def test_what_users_enqueue_and_repeats_are_tried_after_the_sampler_has_stopped() -> None:
    drive = Drive(lattice(repeats=2))
    for _ in range(8):
        trial = drive.ask().trial
        drive.report(trial, 1, loss=1.0)
        drive.end(trial)
    assert drive.study.exhausted
    drive.study.enqueue({"x": 0.9})
    assert not drive.study.exhausted
    assert drive.ask().params == {"x": 0.9}
    assert drive.study.ask() is None


@pytest.mark.usefixtures("owls")
def test_the_run_of_a_sampler_that_stops_ends_with_a_clear_state() -> None:
    history = History(lattice(budget={"trials": 9}))
    history.apply(natural_end(history, True, is_stopped_by_sampler=True))
    assert (history.state, history.reason) == ("complete", "exhausted")
    assert history.message == "the sampler has nothing left to propose"
    with pytest.raises(ExperimentError, match="nothing left to propose"):
        extended(history, {"budget.trials": 5}, now_unix_s=0.0)


def test_a_run_can_be_read_but_not_run_once_its_sampler_is_gone(
    owls: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WORKBENCH_STORE", str(tmp_path / "store.sqlite"))
    shell = Shell(tmp_path, capsys)
    experiment = Experiment(
        name="owls",
        model="convnet",
        data="digits",
        budget={"trials": 5},
        **FIELDS,
        objectives=[{"metric": "val_accuracy", "goal": "maximize"}],
        search={"lr": {"low": 0.1, "high": 1.0}},
    )
    with Store.open(str(shell.folder / "store.sqlite")) as store:
        run_id = store.create_run(experiment)
        append(store, run_id, [*begin(), *trial_events(0, at_s=0), *finish(1, state="stopped")])
    (owls / "entry_points.txt").unlink()
    sys.modules.pop("owls", None)
    _look_again(monkeypatch)

    assert "owls" in shell("list")[1]
    code, out, err = shell("show", run_id)
    assert (code, err) == (0, "")
    assert "Best: trial 0" in out
    assert json.loads(shell("show", run_id, "--json")[1])["settings"]["budget.trials"] == 5
    assert shell("report", run_id)[0] == 0
    with Store.open(str(shell.folder / "store.sqlite")) as store:
        read = store.experiment(run_id)
        assert (read.hash(), read.to_yaml()) == (experiment.hash(), experiment.to_yaml())
        assert read.replace(budget={"trials": 7}).sampler.name == "owl"
        with pytest.raises(ExperimentError, match="the sampler 'owl' is not installed here"):
            Run(store, run_id).resume(launcher="inline")
    code, _, err = shell("extend", run_id, "--more-trials", "1")
    assert code == 2
    assert "the sampler 'owl' is not installed here" in err
    assert "Install the package that provides it" in err
