from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from workbench.experiment import Component
from workbench.experiment.train_function import (
    check_kind,
    check_train_function,
    kind_of,
    plan_call,
    signature_of,
)
from workbench.foundation.errors import ExperimentError

VALUES = {"config": {"lr": 0.1}, "report": print, "seed": 7, "folder": Path("x"), "worker": None}
SEARCHED = {"lr", "width"}

ACCEPTED = {
    "def train(config, report): return config, report": ("config", "report"),
    "def train(config): return (config,)": ("config",),
    "def train(cfg): return (cfg,)": ("config",),
    "def train(config, seed): return config, seed": ("config", "seed"),
    "def train(config, *, report): return config, report": ("config", "report"),
    "def train(*, config, report): return config, report": ("config", "report"),
    "def train(report, config): return config, report": ("config", "report"),
    "def train(report, settings): return settings, report": ("config", "report"),
    "def train(config, /, report): return config, report": ("config", "report"),
    "def train(a, b, /): return a, b": ("config", "report"),
    "def train(*args): return args": ("config", "report"),
    "def train(config, *args): return config, *args": ("config", "report"),
    "def train(config, **more): return config, *more": ("config",),
    "def train(config, verbose=False): return config, verbose": ("config", False),
    "def train(config, epochs=10): return config, epochs": ("config", 10),
    "def train(config, tune_report=None): return config, tune_report": ("config", "report"),
    "def train(config, report=None): return config, report": ("config", "report"),
    "def train(config, report, verbose=0): return config, report, verbose": ("config", "report", 0),
    "def train(lr, report): return lr, report": ("config", "report"),
    "def train(config, report, lr=3): return config, report, lr": ("config", "report", 0.1),
    "def train(config, *, lr=3): return config, lr": ("config", 0.1),
    "def train(config, width=3): return config, width": ("config", 3),
    "def train(config, report, folder, seed, worker): return config, report, folder, worker": (
        "config",
        "report",
        "folder",
        "worker",
    ),
    "train = lambda config: (config,)": ("config",),
    "def f(config, report, more): return config, report\ntrain = partial(f, more=1)": (
        "config",
        "report",
    ),
    "class T:\n  def __call__(self, config): return (config,)\ntrain = T()": ("config",),
    "class T:\n  def m(self, config, report): return config, report\ntrain = T().m": (
        "config",
        "report",
    ),
    "train = print": (),
}
REFUSED = {
    "def train(): ...": "has no parameter that receives the configuration",
    "def train(report): ...": "has no parameter that receives the configuration",
    "def train(**options): ...": "has no parameter that receives the configuration",
    "def train(config, report, data): ...": "has no value for `data`",
    "def train(config, report, data, other): ...": "has no value for `data` and `other`",
    "def train(config, report, *, data): ...": "has no value for `data`",
    "def train(lr): ...": "would receive the whole configuration as `lr`",
    "def train(lr, width): ...": "would receive the whole configuration as `lr`",
    "def train(config, lr): ...": "has no value for `lr`",
    "async def train(config, report): ...": "is an async function",
    "async def train(config):\n  yield 1": "is an async function",
    "def train(config, report): yield 1": "is a generator",
    "class train:\n  def __init__(self, config, report): ...": "is a class",
    "train = 3": "is a value of type int",
    "class T:\n  async def __call__(self, config): ...\ntrain = T()": "is an async function",
    "async def base(config, x): ...\ntrain = partial(base, x=1)": "is an async function",
}
IN_SOURCE = [code for code in (*ACCEPTED, *REFUSED) if "train =" not in code]


def made(code: str) -> Any:
    namespace: dict[str, Any] = {"partial": functools.partial}
    exec(code, namespace)
    return namespace["train"]


def check(train: Callable[..., Any]) -> tuple[Any, ...]:
    """Check a function as a trial does, and return what it received, as the words of the call."""
    check_kind(kind_of(train), "train", type(train).__name__)
    arguments, named = plan_call(signature_of(train), "train", SEARCHED).arguments(VALUES)
    if train is print:
        return ()
    words = {id(value): word for word, value in VALUES.items()}
    return tuple(words.get(id(value), value) for value in train(*arguments, **named))


@pytest.mark.parametrize("code", ACCEPTED)
def test_a_function_receives_what_its_parameters_stand_for(code: str) -> None:
    assert check(made(code)) == ACCEPTED[code]


@pytest.mark.parametrize("code", REFUSED)
def test_what_cannot_be_called_is_refused_in_words(code: str) -> None:
    with pytest.raises(ExperimentError, match=REFUSED[code]) as caught:
        check(made(code))
    assert caught.value.field == "train"
    assert caught.value.next_step


@pytest.mark.parametrize("code", IN_SOURCE)
def test_the_source_of_a_module_says_the_same_before_it_is_imported(
    code: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "my_training.py").write_text(f"raise RuntimeError('imported')\n{code}\n")
    component = Component.model_validate("my_training:train")
    if code in ACCEPTED:
        check_train_function(component, SEARCHED)
    else:
        with pytest.raises(ExperimentError, match=REFUSED[code]):
            check_train_function(component, SEARCHED)


def test_what_is_decorated_is_left_to_the_trial(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "my_training.py").write_text("@with_report\ndef train(): ...\n")
    check_train_function(Component.model_validate("my_training:train"), SEARCHED)
    check_train_function(Component.model_validate("my_training:missing"), SEARCHED)
