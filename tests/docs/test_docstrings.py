"""The examples in the docstrings of the public Python API, with one short run for those that need
one.
"""

from __future__ import annotations

import doctest
import inspect
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import workbench as wb

EXPERIMENT = wb.Experiment(
    model="mlp",
    data="breast_cancer",
    objectives=[{"metric": "val_loss", "goal": "minimize"}],
    search={"lr": {"low": 0.001, "high": 0.1, "log": True}},
    training={"epochs": 2},
    budget={"trials": 2},
)
# They measure or train for seconds; notebooks, which every suite runs, call them too.
SLOW = {"advise", "automl", "AutoML", "Run.compress", "Run.extend", "Run.replay"}
# What has no example, and why.
WITHOUT = {
    "Budget",
    "Confirm",
    "EarlyStop",
    "PlanSettings",
    "Resources",
    "Sampler",
    "Training",  # sections
    "SubmittedRun",
    "submit",  # need another cluster: docs/guides/submit.md
    "__version__",
    "widgets",
}


def _wait(config: dict[str, float], report: Callable[..., bool]) -> None:
    for _ in range(100):
        report(val_loss=config["lr"])
        time.sleep(0.1)


def _documented() -> Iterator[tuple[str, Any]]:
    for name in wb.__all__:
        documented = getattr(wb, name)
        if callable(documented):
            yield name, documented
        if inspect.isclass(documented):
            ours = [base for base in documented.__mro__ if base.__module__.startswith("workbench.")]
            for attribute, member in {
                k: v for our in reversed(ours) for k, v in vars(our).items()
            }.items():
                function = getattr(member, "__func__", member)
                if inspect.isfunction(function) and not attribute.startswith("_"):
                    yield f"{name}.{attribute}", function


def _examples() -> list[doctest.DocTest]:
    parser = doctest.DocTestParser()
    examples = [
        parser.get_doctest(inspect.getdoc(what) or "", {}, name, inspect.getsourcefile(what), 0)
        for name, what in _documented()
    ]
    # What stops a run under way comes last.
    last = ("Run.set", "Run.enqueue", "Run.stop")
    return sorted(
        (test for test in examples if test.examples),
        key=lambda test: last.index(test.name) + 1 if test.name in last else 0,
    )


EXAMPLES = _examples()


def _source(test: doctest.DocTest) -> str:
    return "".join(example.source for example in test.examples)


def _needs_run(test: doctest.DocTest) -> bool:
    return any(word in _source(test) for word in ("run.", "(run", "running", "wb.sweep", *SLOW))


def _parameters(with_run: bool) -> list[Any]:
    return [
        pytest.param(test, id=test.name, marks=[pytest.mark.slow] if test.name in SLOW else [])
        for test in EXAMPLES
        if _needs_run(test) == with_run
    ]


def _carry_out(test: doctest.DocTest, names: dict[str, Any]) -> None:
    lines: list[str] = []
    test.globs = {"wb": wb, "Plan": wb.Plan, "experiment": EXPERIMENT, **names}
    failed = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS).run(test, out=lines.append).failed
    assert not failed, "".join(lines)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory of an example."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture(scope="module")
def usual_store(ray_head: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """A store and a Ray head that examples find by themselves."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("WORKBENCH_HOME", str(ray_head))
        patch.setenv("WORKBENCH_STORE", str(tmp_path_factory.mktemp("store") / "store.sqlite"))
        yield


@pytest.fixture(scope="module")
def run(usual_store: None) -> wb.Run:
    """A finished run."""
    return wb.sweep(EXPERIMENT, launcher="inline")


@pytest.fixture(scope="module")
def running(usual_store: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[wb.Run]:
    """A run under way, until an example stops it; its trials leave the cores to others.

    It is in a store and a folder of its own. How far it is and what examples write there depend on
    the speed of the machine, and the last run of the usual store is part of their output.
    """
    folder = tmp_path_factory.mktemp("running")
    experiment = wb.Experiment(
        train=_wait,
        objectives=EXPERIMENT.objectives,
        search=EXPERIMENT.search,
        budget={"trials": 1000},
        resources={"concurrency": 1},
    )
    with wb.Store.open(str(folder / "store.sqlite")) as store:
        with pytest.MonkeyPatch.context() as patch:
            patch.chdir(folder)
            run = wb.sweep(experiment, store=store)
        yield run
        if not run.finished:
            run.stop()


@pytest.mark.parametrize("test", _parameters(with_run=False))
def test_an_example_shows_what_happens(
    test: doctest.DocTest, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WORKBENCH_STORE", str(folder / "store.sqlite"))
    _carry_out(test, {})


@pytest.mark.slow
@pytest.mark.ray
@pytest.mark.parametrize("test", _parameters(with_run=True))
def test_an_example_about_a_run_shows_what_happens(
    test: doctest.DocTest, run: wb.Run, request: pytest.FixtureRequest, folder: Path
) -> None:
    under_way = (
        {"running": request.getfixturevalue("running")} if "running" in _source(test) else {}
    )
    _carry_out(test, {"run": run, **under_way})


def test_everything_public_has_an_example() -> None:
    shown = {test.name.partition(".")[0] for test in EXAMPLES}
    assert {name for name in wb.__all__ if name not in shown} == WITHOUT
