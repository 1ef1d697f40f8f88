"""The event of a run that chooses and tests a model of its own accord when its trials have
ended.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field, JsonValue

from workbench.foundation.events.header import EventHeader


class ModelChosen(EventHeader):
    """An automatic run has chosen a model from its trials, and tested it."""

    type: Literal["model_chosen"] = "model_chosen"
    result: dict[str, JsonValue] = Field(description="As `wb.AutoML.to_json` returns it.")
