"""The types of the form in the front end are those of the models."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

import pytest

import workbench
from workbench.foundation.errors import ExperimentError
from workbench.views.forms import request_typescript, typescript
from workbench.views.forms.protocol import read_request

FOLDER = Path(workbench.__file__).parents[1] / "extensions" / "src" / "forms"


@pytest.mark.parametrize(
    ("module", "file"), [(typescript, "types.ts"), (request_typescript, "request_types.ts")]
)
def test_the_types_of_the_form_are_those_of_the_models(module: ModuleType, file: str) -> None:
    assert (FOLDER / file).read_text(encoding="utf-8") == module.typescript(), (
        f"run: python -m {module.__name__} > extensions/src/forms/{file}"
    )


def test_json_values_keep_their_type() -> None:
    assert "  changes: [string, JsonValue][];\n" in request_typescript.typescript()
    assert "export type JsonValue = null | boolean" in request_typescript.typescript()
    assert 'import type { JsonValue } from "./request_types";\n' in typescript.typescript()


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
