"""The types of the form in the front end are those of the models."""

from __future__ import annotations

from pathlib import Path

import pytest

import workbench
from workbench.errors import ExperimentError
from workbench.forms.protocol import read_request
from workbench.forms.typescript import typescript

TYPES = Path(workbench.__file__).parents[1] / "extensions" / "src" / "forms" / "types.ts"


def test_the_types_of_the_form_are_those_of_the_models() -> None:
    assert TYPES.read_text(encoding="utf-8") == typescript(), (
        "run: python -m workbench.forms.typescript > extensions/src/forms/types.ts"
    )


def test_json_values_keep_their_type() -> None:
    assert "  changes: [string, JsonValue][];\n" in typescript()
    assert "export type JsonValue = null | boolean" in typescript()


@pytest.mark.parametrize(
    "message",
    [
        {},
        {"type": "quit", "number": 1},
        {"type": "undo"},
        {"type": "edit", "number": 1, "changes": [["a"]], "label": "edit"},
        {"type": "query", "number": 1, "topic": "horse", "query": 1},
        {"type": "save", "number": 1, "path": "a.yaml", "force": True},
    ],
)
def test_only_messages_of_the_protocol_are_read(message: dict[str, object]) -> None:
    with pytest.raises(ExperimentError, match="not a message of the form"):
        read_request(message)
