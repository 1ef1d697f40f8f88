"""What the choice of a model needs is loaded while trials run."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

import pytest

from workbench.experiment.automl import HELD_OUT
from workbench.runs.automl.conclusion import NEEDED
from workbench.sweeps import conclusion
from workbench.sweeps.conclusion import Preparation


def experiment(time_s: float | None, *options: str) -> Any:
    data = SimpleNamespace(options=dict.fromkeys(options, "0"))
    return SimpleNamespace(data=data, train=None, budget=SimpleNamespace(time=time_s))


@pytest.fixture
def now_s(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The time, which is the last of these numbers."""
    times_s = [100.0]
    monkeypatch.setattr(conclusion, "time", SimpleNamespace(monotonic=lambda: times_s[-1]))
    return times_s


@pytest.fixture
def loaded(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, threading.Thread]]:
    """The loaded modules, and the thread that has loaded each."""
    modules: list[tuple[str, threading.Thread]] = []

    def load(name: str) -> Any:
        modules.append((name, threading.current_thread()))
        return SimpleNamespace(NEEDED=NEEDED)

    monkeypatch.setattr(conclusion, "import_module", load)
    return modules


@pytest.mark.parametrize(
    ("time_s", "has_result", "due_s"),
    [(60.0, True, 10.0), (20.0, True, 4.0), (60.0, False, 30.0), (20.0, False, 10.0)],
)
def test_modules_are_loaded_once_when_they_are_due_by_the_thread_that_proposes(
    now_s: list[float],
    loaded: list[tuple[str, threading.Thread]],
    time_s: float,
    has_result: bool,
    due_s: float,
) -> None:
    preparation = Preparation(experiment(time_s, HELD_OUT))
    now_s.append(100.0 + due_s - 0.1)
    preparation.tick(has_result=has_result)
    assert not loaded
    now_s.append(100.0 + due_s)
    for _ in range(3):
        preparation.tick(has_result=has_result)
    names, threads = zip(*loaded, strict=True)
    assert names == ("workbench.runs.automl.conclusion", *NEEDED)
    assert set(threads) == {threading.current_thread()}


@pytest.mark.parametrize("given", [experiment(60.0), experiment(None, HELD_OUT)])
def test_nothing_is_loaded_for_a_run_without_a_choice_or_a_limit_on_time(
    now_s: list[float], loaded: list[tuple[str, threading.Thread]], given: Any
) -> None:
    preparation = Preparation(given)
    now_s.append(1e6)
    preparation.tick(has_result=True)
    assert not loaded
