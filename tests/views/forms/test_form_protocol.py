"""The types of the form in the front end are those of the models."""

from __future__ import annotations

import pytest

from workbench.foundation.errors import ExperimentError
from workbench.views.forms.protocol import read_request


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
