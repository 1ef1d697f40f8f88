"""The types of the front end are those of the models."""

from pathlib import Path

import workbench
from workbench.experiment.changes import CHANGEABLE
from workbench.views.typescript import typescript

TYPES = Path(workbench.__file__).parents[1] / "extensions" / "src" / "types.ts"


def test_the_types_of_the_front_end_are_those_of_the_models() -> None:
    assert TYPES.read_text(encoding="utf-8") == typescript(), (
        "run: make front-end, or python -m workbench.views.typescript > extensions/src/types.ts"
    )


def test_a_field_with_a_default_may_be_missing() -> None:
    assert "  runs?: RunList | null;\n" in typescript()


def test_a_field_without_one_is_always_there() -> None:
    assert (
        '  state: "waiting" | "running" | "complete" | "pruned" | "stopped" | "failed";\n'
        in typescript()
    )


def test_only_names_that_there_are_stand_for_settings_of_an_experiment() -> None:
    names = " | ".join(f'"{name}"' for name in CHANGEABLE)
    assert f"  settings: Partial<Record<{names}, unknown>>;\n" in typescript()


def test_json_values_keep_their_type() -> None:
    assert "  changes: [string, JsonValue][];\n" in typescript()
    assert "export type JsonValue = null | boolean" in typescript()
