from __future__ import annotations

import json
import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

import workbench as wb
from workbench.foundation.errors import ExperimentError
from workbench.foundation.events import (
    AlertRaised,
    CommandHandled,
    Event,
    Noted,
    TrialEnded,
    TrialProposed,
    TrialReported,
    from_json,
    to_json,
)
from workbench.foundation.formatting import printable
from workbench.foundation.outside_text import (
    MAX_CHARS,
    MAX_LINE_CHARS,
    escaped,
    storable,
    storable_name,
)

TEXT = st.text(st.characters())  # with lone surrogates and control characters
LONG = "x" * 2**20


@given(TEXT)
def test_any_text_is_stored_as_what_utf_8_and_postgresql_hold(text: str) -> None:
    stored = storable(text)
    assert stored.encode().decode() == stored
    assert "\0" not in stored
    assert storable(stored) == stored


@given(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=500))
def test_ordinary_text_stays_as_it_is(text: str) -> None:
    assert storable(text) == storable_name(text) == text


@given(st.binary(max_size=40).filter(lambda name: b"\0" not in name))
def test_names_of_files_are_stored_whatever_their_bytes(name: bytes) -> None:
    storable(os.fsdecode(name)).encode()


def test_each_kind_of_broken_text_is_written_so_that_it_can_be_read() -> None:
    assert escaped("a\udcffb\0c\ud83d") == r"a\xffb\x00c\ud83d"
    assert escaped("\ud83d\ude00") == "\U0001f600"  # two halves of one character


def test_lines_and_texts_without_end_are_cut_and_say_so() -> None:
    line = storable(f"first\n{LONG}\nlast")
    assert line.startswith("first\nxxx")
    assert line.endswith("... (cut: this line has 1,048,576 characters)\nlast")
    many = storable("\n".join(["one line"] * 200_000))
    assert "characters omitted" in many
    assert many.startswith("one line\n")
    assert many.endswith("\none line")
    assert max(len(line), len(many)) < MAX_CHARS + MAX_LINE_CHARS
    assert len(storable_name(LONG)) < MAX_LINE_CHARS


@given(TEXT, TEXT)
def test_an_event_with_any_text_can_be_stored_and_read(text: str, name: str) -> None:
    events: list[Event] = [
        Noted(level="info", message=text),
        TrialEnded(
            trial=0, attempt=0, state="failed", message=text, traceback=text, values={name: 1.0}
        ),
        TrialReported(trial=0, step=1, values={name: 0.5, "loss": 0.25}),
        TrialProposed(
            trial=0, params={"choice": text, name: 1}, configuration=0, seed=0, source="sampler"
        ),
        CommandHandled(command=1, kind="note", done=False, message=text),
        AlertRaised(alert=0, on="log", rule="0", cause=text, level="error", message=text),
    ]
    for event in events:
        written = to_json(event)
        json.loads(written.encode())
        read = from_json(written)
        assert to_json(read) == written


@given(
    text=st.text(
        st.sampled_from("a\n\t\x1b[]2J;\x07\u202e\u2066\u200f\u061c\x9b\udc80"), max_size=30
    )
)
def test_nothing_that_steers_a_terminal_is_printed(text: str) -> None:
    shown = printable(storable(text))
    assert all(character.isprintable() or character in "\n\t" for character in shown)


@pytest.mark.parametrize(
    "changes",
    [
        {"search": {"x": {"choices": ["a\udcff", "b"]}}},
        {"search": {"x\udcff": {"low": 0.0, "high": 1.0}}},
        {"objectives": [{"metric": "loss\ud83d", "goal": "minimize"}]},
        {"train": {"name": "mine:train", "folder": "\udce9t\udce9"}},
        {"train": {"name": "mine:train", "options\udce9": 1}},
        {"name": "caf\udce9"},
    ],
)
def test_an_experiment_with_text_that_no_file_holds_is_refused_by_its_place(changes: dict) -> None:
    document = {
        "train": "mine:train",
        "search": {"x": {"low": 0.0, "high": 1.0}},
        "objectives": [{"metric": "loss", "goal": "minimize"}],
        **changes,
    }
    with pytest.raises(ExperimentError, match="is not Unicode text") as caught:
        wb.Experiment(**document)
    assert (caught.value.field or "").startswith(next(iter(changes)))
    str(caught.value).encode()
