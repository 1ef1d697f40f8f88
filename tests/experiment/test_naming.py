from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workbench.experiment import Experiment
from workbench.experiment.experiment import check_name
from workbench.foundation.errors import ExperimentError


def named(name: str) -> Experiment:
    return Experiment(
        name=name, train="module:function", objectives=[{"metric": "y", "goal": "minimize"}]
    )


@pytest.mark.parametrize(
    "name", ["digits", "a b", "..a", "größer 2", "数字", '<b> & "c"', "x" * 80]
)
def test_a_name_is_any_printable_line(name: str) -> None:
    assert named(name).name == name


@pytest.mark.parametrize(
    ("name", "part"),
    [
        ("", "name: '' is not valid; allowed: text of at least 1 characters"),
        (
            "../../etc/passwd",
            "name: '../../etc/passwd' contains /, like a path; allowed: one line of",
        ),
        ("C:\\temp", "like a path"),
        (" ..", "has no visible characters"),
        ("a\nb", r"U\+000A \(a character without a name\), which is invisible"),
        ("a\x00b", r"U\+0000"),
        (
            "invoice\u202egpj.exe",
            r"'invoice\\u202egpj.exe' contains U\+202E \(right-to-left override\)",
        ),
        ("a\u2066b", "left-to-right isolate"),
        ("x" * 10_000, "text of at most 80 characters"),
    ],
)
def test_what_is_no_name_is_refused_in_few_words(name: str, part: str) -> None:
    with pytest.raises(ExperimentError, match=part) as caught:
        named(name)
    assert len(str(caught.value)) < 300
    assert str(caught.value).isprintable()


@given(st.text(max_size=80))
def test_what_may_be_a_name_is_seen_whole_and_is_no_path(name: str) -> None:
    try:
        check_name(name)
    except ExperimentError:
        return
    assert name.isprintable()
    assert not set(name) & {"/", "\\"}
