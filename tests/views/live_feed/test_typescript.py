"""The types of the front end are those of the models."""

from pathlib import Path

import pytest

import workbench
from workbench.experiment.changing import CHANGEABLE
from workbench.views.live_feed import (
    action_typescript,
    machine_typescript,
    run_list_typescript,
    run_typescript,
    tiers_typescript,
    typescript,
)

FRONT_END = Path(workbench.__file__).parents[1]
FILES = {
    "extensions/src/types.ts": (typescript.typescript, "typescript"),
    "extensions/src/machine_types.ts": (machine_typescript.typescript, "machine_typescript"),
    "extensions/src/run_types.ts": (run_typescript.typescript, "run_typescript"),
    "extensions/src/run_list_types.ts": (run_list_typescript.typescript, "run_list_typescript"),
    "extensions/src/action_types.ts": (action_typescript.typescript, "action_typescript"),
    "extensions/src/tiers/types.ts": (tiers_typescript.typescript, "tiers_typescript"),
}


@pytest.mark.parametrize("path", FILES)
def test_the_types_of_the_front_end_are_those_of_the_models(path: str):
    source, module = FILES[path]
    assert (FRONT_END / path).read_text(encoding="utf-8") == source(), (
        f"run: python -m workbench.views.live_feed.{module} > {path}"
    )


def test_a_field_with_a_default_may_be_missing():
    assert "  runs?: RunList | null;\n" in typescript.typescript()


def test_a_field_without_one_is_always_there():
    assert (
        '  state: "waiting" | "running" | "complete" | "pruned" | "stopped" | "failed";\n'
        in run_typescript.typescript()
    )


def test_only_names_that_there_are_stand_for_settings_of_an_experiment():
    names = " | ".join(f'"{name}"' for name in CHANGEABLE)
    assert f"  settings: Partial<Record<{names}, unknown>>;\n" in run_typescript.typescript()
