from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workbench.foundation.errors import StoreError
from workbench.foundation.events import (
    Noted,
    RunStateChanged,
    TrialReported,
    from_json,
    to_json,
)


@given(st.dictionaries(st.text(max_size=8), st.floats(), max_size=4), st.integers(0, 2**40))
def test_every_number_survives_the_trip_through_json(values: dict[str, float], step: int) -> None:
    event = TrialReported(trial=3, step=step, values=values)
    again = from_json(to_json(event))
    assert isinstance(again, TrialReported)
    assert again.step == step
    assert again.values.keys() == values.keys()
    for name, value in values.items():
        assert again.values[name] == value or (math.isnan(value) and math.isnan(again.values[name]))


def test_non_finite_numbers_are_written_as_texts_that_strict_parsers_read() -> None:
    text = to_json(
        TrialReported(trial=0, step=1, values={"a": math.nan, "b": math.inf, "c": -math.inf})
    )
    assert '"a":"NaN","b":"Infinity","c":"-Infinity"' in text


def test_a_reader_ignores_fields_that_a_newer_version_added() -> None:
    text = to_json(Noted(level="info", message="hello"))
    assert from_json(text[:-1] + ',"new_field":1}') == from_json(text)


def test_an_unknown_event_is_refused_with_the_next_step() -> None:
    with pytest.raises(StoreError, match="newer version"):
        from_json('{"type":"comet_seen","time_unix_s":1}')


def test_events_are_frozen() -> None:
    event = RunStateChanged(state="running")
    with pytest.raises(ValueError, match="frozen"):
        event.state = "failed"  # type: ignore[misc]


def test_pruners_compare_epochs_where_there_are_epochs_and_steps_elsewhere() -> None:
    assert TrialReported(trial=0, step=120, epoch=3.0).rung == 3
    assert TrialReported(trial=0, step=120).rung == 120
