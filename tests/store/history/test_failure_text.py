from __future__ import annotations

import traceback
from pathlib import Path
from types import ModuleType
from typing import Any

import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st

from workbench.experiment import Experiment
from workbench.foundation.errors import WorkbenchError
from workbench.foundation.events import DriverStarted, TrialEnded, TrialProposed, TrialStarted
from workbench.store.history import History
from workbench.store.history.failure_text import (
    cause_in,
    exceptions_in,
    failure_message,
    failure_place,
    headline,
    without_variable_parts,
)
from workbench.store.history.failures import failure_groups, failure_line, systematic_failure

CUDA = (
    "CUDA error: device-side assert triggered\nCUDA kernel errors might be asynchronously reported"
    " at some other API call, so the stacktrace below might be incorrect.\nFor debugging consider"
    " passing CUDA_LAUNCH_BLOCKING=1\nCompile with `TORCH_USE_CUDA_DSA` to enable device-side"
    " assertions.\n"
)


class _Options(pydantic.BaseModel):
    lr: float = pydantic.Field(0.1, gt=0)
    width: int = 1


class _UnwritableError(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no message")


class _OwnError(Exception):
    pass


def validation(**options: object) -> Exception:
    with pytest.raises(pydantic.ValidationError) as caught:
        _Options(**options)  # pyright: ignore[reportArgumentType]
    return caught.value


@pytest.mark.parametrize(
    ("error", "shown"),
    [
        (ValueError("too wide\nfor this layer"), "ValueError: too wide"),
        (ValueError("\n\n   too wide\nfor this layer"), "ValueError: too wide"),
        (RuntimeError(CUDA), "RuntimeError: CUDA error: device-side assert triggered"),
        (KeyError("lr"), "KeyError: 'lr'"),
        (AssertionError(), "AssertionError"),
        (_OwnError(), "_OwnError"),
        (_OwnError("   "), "_OwnError"),
        (_UnwritableError(), "_UnwritableError: its message cannot be written"),
        (SystemExit(3), "SystemExit: 3"),
        (SystemExit("no data"), "SystemExit: no data"),
        (ValueError("no caf\udce9.csv"), r"ValueError: no caf\xe9.csv"),
        (
            RuntimeError("Error(s) in loading state_dict for Net:\n\tMissing key(s): a.weight"),
            "RuntimeError: Error(s) in loading state_dict for Net: Missing key(s): a.weight",
        ),
        (
            RuntimeError(
                "Error in call to target '__main__.Net':\nValueError('bad')\nfull_key: model"
            ),
            "RuntimeError: Error in call to target '__main__.Net': ValueError('bad')",
        ),
    ],
)
def test_a_failure_is_shown_by_its_type_and_the_first_line_of_its_message(
    error: BaseException, shown: str
) -> None:
    assert headline(failure_message(error)) == shown


def test_what_pydantic_refuses_is_shown_with_its_field() -> None:
    assert (
        headline(failure_message(validation(lr=-1.0)))
        == "ValidationError: 1 validation error for _Options: lr: Input should be greater than 0"
    )


def test_a_group_of_exceptions_is_shown_with_its_first_member() -> None:
    group = pytest.importorskip("builtins").__dict__.get("ExceptionGroup")
    if group is None:
        pytest.skip("Python 3.10 has no groups of exceptions")
    message = failure_message(
        group("tasks", [group("inner", [ValueError("bad\nmore")]), KeyError("lr")])
    )
    assert (
        headline(message)
        == "ExceptionGroup: tasks (2 sub-exceptions): ExceptionGroup: inner (1 sub-exception):"
        " ValueError: bad"
    )
    assert "KeyError: 'lr'" in message


def raised(raise_it: object, *arguments: object) -> str:
    try:
        raise_it(*arguments)  # pyright: ignore[reportCallIssue]
    except BaseException as error:
        return "".join(traceback.format_exception(error))
    raise AssertionError("nothing was raised")


def fail(error: BaseException, cause: BaseException | None = None) -> None:
    if cause is None:
        raise error
    try:
        raise cause
    except BaseException as first:
        raise error from first


def test_the_exceptions_of_a_printed_traceback_are_read_with_their_messages() -> None:
    text = raised(fail, RuntimeError("the trial failed"), ValueError("\nlr is too high\nby far"))
    assert exceptions_in(text) == [
        "ValueError: lr is too high\nby far",
        "RuntimeError: the trial failed",
    ]
    assert cause_in(text) == "ValueError: lr is too high"
    assert cause_in(raised(fail, RuntimeError("alone"))) is cause_in(None) is None


@given(
    st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1, max_size=60).filter(
        str.strip
    )
)
def test_a_message_is_read_from_a_traceback_as_it_was_raised(message: str) -> None:
    [text] = exceptions_in(raised(fail, ValueError(message)))
    assert headline(text).split() == headline(failure_message(ValueError(message))).split()


def history_of(*errors: tuple[str, str | None]) -> History:
    """A run in which each trial failed with a message and a traceback."""
    history = History(
        Experiment(
            train="mine:train",
            search={"x": {"low": 0.0, "high": 1.0}},
            objectives=[{"metric": "loss", "goal": "minimize"}],
        )
    )
    for number, (message, text) in enumerate(errors):
        history.apply(
            TrialProposed(
                trial=number,
                params={"x": number / 10},
                configuration=number,
                seed=0,
                source="sampler",
            )
        )
        history.apply(TrialStarted(trial=number, attempt=0, worker_pids=[1]))
        history.apply(
            TrialEnded(
                trial=number,
                attempt=0,
                state="failed",
                reason="error",
                message=message,
                traceback=text,
            )
        )
    return history


def groups_of(*messages: str) -> list[int]:
    return [
        len(group.trials)
        for group in failure_groups(history_of(*((text, None) for text in messages)))
    ]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("ValueError: lr 0.1 is too high", "ValueError: lr -3e-05 is too high"),
        ("RuntimeError: <Net object at 0x7f3acd10>", "RuntimeError: <Net object at 0x55d0ffe0>"),
        (
            "OSError: cannot open /tmp/tmp8a_3kd0x/best.pt",
            "OSError: cannot open /home/me/runs/7/best.pt",
        ),
        ("OSError: no 'runs/a-1/best.pt'", "OSError: no 'runs/b-22/best.pt'"),
        (
            "ValueError: shape (64, 3, 8) is not (64, 10)",
            "ValueError: shape (32, 3, 9) is not (7, 2)",
        ),
        ("RuntimeError: run 1f0c9ab2e4d7 is gone", "RuntimeError: run 90ab12cdef34 is gone"),
        ("ValueError: loss is nan", "ValueError: loss is inf"),
        (
            "RuntimeError: job 0f8fad5b-d9cb-469f-a165-70867728950e",
            "RuntimeError: job 7c9e6679-7425-40de-944b-e07fc1f90ae7",
        ),
    ],
)
def test_one_error_is_one_group_whatever_varies_in_it(one: str, other: str) -> None:
    assert groups_of(one, other) == [2]


HINT = "\nFor further information visit https://errors.pydantic.dev/2.11/v/greater_than"


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("ValueError: too wide" + HINT, "KeyError: 'lr'" + HINT),
        ("ValueError: too wide", "TypeError: too wide"),
        ("OSError: cannot open /data/train.csv", "OSError: cannot open /data/test.csv"),
        ("ValueError: unknown optimizer 'sgd'", "ValueError: unknown optimizer 'adam'"),
        (failure_message(validation(lr=-1.0)), failure_message(validation(width="wide"))),
        ("KeyError: 'x1'", "KeyError: 'y1'"),
    ],
)
def test_unrelated_errors_are_not_grouped_by_what_follows_them(one: str, other: str) -> None:
    assert groups_of(one, other) == [1, 1]


def test_errors_that_were_raised_from_others_are_shown_and_grouped_with_these() -> None:
    causes = [ValueError("lr 1 is too high"), ValueError("lr 2 is too high"), KeyError("width")]
    texts = [raised(fail, RuntimeError("the trial failed"), cause) for cause in causes]
    history = history_of(*(("RuntimeError: the trial failed", text) for text in texts))
    assert [len(group.trials) for group in failure_groups(history)] == [2, 1]
    assert (
        failure_line(history.trials[2]) == "RuntimeError: the trial failed (from KeyError: 'width')"
    )


def test_a_run_ends_for_one_error_that_its_trials_share_and_not_for_several() -> None:
    started = DriverStarted(pid=1, host="here", num_cpus=2, time_unix_s=0.0)

    def systematic(errors: list[BaseException], causes: list[BaseException | None]) -> str | None:
        texts = [raised(fail, error, cause) for error, cause in zip(errors, causes, strict=True)]
        history = history_of(
            *((failure_message(error), text) for error, text in zip(errors, texts, strict=True))
        )
        history.apply(started)
        return systematic_failure(history)

    alike: list[BaseException] = [ValueError(f"lr {number} is too high") for number in range(3)]
    none: list[BaseException | None] = [None] * 3
    found = systematic(alike, none)
    assert found is not None
    assert found.endswith(
        "failed with the same error before reporting loss: ValueError: lr 0 is too high"
    )
    assert systematic([*alike[:2], KeyError("lr")], none) is None
    wrapped: list[BaseException] = [RuntimeError("the trial failed") for _ in range(3)]
    assert systematic(wrapped, [KeyError("a"), KeyError("b"), KeyError("c")]) is not None
    assert systematic(wrapped, [KeyError("a"), ValueError("b"), KeyError("c")]) is None


@given(st.text())
def test_any_message_has_one_line_that_shows_it_and_one_by_which_it_is_grouped(text: str) -> None:
    shown = headline(text)
    assert len(shown.splitlines()) <= 1
    without_variable_parts(shown)


def test_the_panel_the_report_and_the_terminal_show_the_same_line() -> None:
    from workbench.runs.descriptions import failures_of, first_line

    message = failure_message(RuntimeError(CUDA))
    text = raised(fail, RuntimeError(CUDA))
    history = history_of((message, text))
    place = f"{Path(__file__).relative_to(Path.cwd())}"
    assert first_line(message) == failure_groups(history)[0].message
    [line] = failures_of(history)
    assert line.startswith(f"{first_line(message)} ({place}:")


def test_the_terminal_names_the_trials_of_one_error_together() -> None:
    from workbench.runs.descriptions import failures_of

    messages = [f"ValueError: lr 0.{number} is too high" for number in range(4)]
    history = history_of(*((message, None) for message in [*messages, "KeyError: 'lr'"]))
    assert failures_of(history) == {
        f"{messages[0]} (values differ)": [0, 1, 2, 3],
        "KeyError: 'lr'": [4],
    }


@pytest.fixture
def loop(tmp_path: Path) -> ModuleType:
    """A module of a user that fails in each of its functions."""
    path = tmp_path / "loop.py"
    path.write_text(
        "import json\n"
        "def own(): raise ValueError('too wide')\n"
        "def in_a_library(): json.loads('{')\n"
        "def chained(translate):\n"
        "    try: own()\n"
        "    except ValueError as error: translate(error)\n"
    )
    module = ModuleType("loop")
    exec(compile(path.read_text(), str(path), "exec"), module.__dict__)
    return module


def traceback_of(call: Any, *arguments: Any) -> str:
    try:
        call(*arguments)
    except Exception as error:
        return "".join(traceback.format_exception(error))
    raise AssertionError("the call did not fail")


def test_the_place_is_the_innermost_line_of_the_user(loop: ModuleType, tmp_path: Path) -> None:
    assert failure_place(traceback_of(loop.own)) == f"{tmp_path}/loop.py:2"
    assert failure_place(traceback_of(loop.in_a_library)) == f"{tmp_path}/loop.py:3"


def test_of_chained_exceptions_the_last_one_counts(loop: ModuleType, tmp_path: Path) -> None:
    def translate(error: Exception) -> None:
        raise WorkbenchError("translated") from error

    text = traceback_of(loop.chained, translate).replace(
        __file__, "/usr/lib/python3.13/translate.py"
    )
    assert failure_place(text) == f"{tmp_path}/loop.py:6"


@pytest.mark.parametrize(
    ("path", "place"),
    [
        ("/opt/conda/lib/python3.12/site-packages/torch/nn/modules/module.py", None),
        ("/srv/tools/workbench/training/functions.py", None),
        ("/home/me/workbench/loop.py", "/home/me/workbench/loop.py:7"),
        ("/tmp/ipykernel_4711/2468.py", "notebook cell:7"),
        ("<frozen importlib._bootstrap>", None),
    ],
)
def test_lines_of_packages_are_not_the_users(path: str, place: str | None) -> None:
    assert failure_place(f'Traceback:\n  File "{path}", line 7, in train\nValueError: x') == place


def test_without_a_traceback_there_is_no_place() -> None:
    assert failure_place(None) is failure_place("") is None
