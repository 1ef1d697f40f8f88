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

OWLS = """
from typing import ClassVar

from optuna.pruners import ThresholdPruner
from optuna.samplers import PartialFixedSampler, RandomSampler
from workbench.experiment.pruners import PrunerOptions
from workbench.experiment.samplers import SamplerOptions


class Owl(SamplerOptions):
    factory: ClassVar[str] = "owls:make_sampler"
    x: float


class Hawk(PrunerOptions):
    factory: ClassVar[str] = "owls:make_pruner"
    upper: float


def make_sampler(options, request):
    return PartialFixedSampler(options, RandomSampler(request.seed))


def make_pruner(experiment, options):
    return ThresholdPruner(upper=options.upper)
"""
FIELDS = {
    "sampler": {"name": "owl", "options": {"x": 0.25}},
    "early_stop": {"pruner": "hawk", "options": {"upper": 3.0}},
}


@pytest.fixture
def owls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A package with a sampler and a pruner; what it installed can be removed."""
    site = tmp_path / "site"
    information = site / "owls-1.0.dist-info"
    information.mkdir(parents=True)
    (site / "owls.py").write_text(OWLS)
    (information / "METADATA").write_text("Metadata-Version: 2.1\nName: owls\nVersion: 1.0\n")
    (information / "entry_points.txt").write_text(
        "[workbench.samplers]\nowl = owls:Owl\n[workbench.pruners]\nhawk = owls:Hawk\n"
    )
    monkeypatch.syspath_prepend(str(site))
    _look_again(monkeypatch)
    yield information
    sys.modules.pop("owls", None)
    _look_again(monkeypatch)


def _look_again(monkeypatch: pytest.MonkeyPatch) -> None:
    for registry in (SAMPLERS, PRUNERS):
        monkeypatch.setattr(registry, "_found_at_s", None)


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
    code, _, err = shell("extend", run_id, "--trials", "1")
    assert code == 2
    assert "the sampler 'owl' is not installed here" in err
    assert "Install the package that provides it" in err
