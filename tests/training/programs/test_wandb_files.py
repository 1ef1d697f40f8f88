"""What a program finds in `wandb.config`: read as wandb reads it, and by wandb itself."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from workbench.training.programs.wandb_files import wandb_configuration

NAMES = st.text(
    st.characters(max_codepoint=0xFFFF, exclude_categories=("Cs",)), min_size=1, max_size=6
)
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | NAMES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3),
    max_leaves=5,
)


@given(st.dictionaries(NAMES.filter(lambda name: name != "wandb_version"), VALUES, max_size=4))
def test_it_is_read_as_it_was_written(params: dict[str, Any]) -> None:
    read = yaml.safe_load(wandb_configuration(params))
    assert read.pop("wandb_version") == 1
    assert {name: entry["value"] for name, entry in read.items()} == params


def test_wandb_itself_reads_it(tmp_path: Path) -> None:
    pytest.importorskip("wandb")
    path = tmp_path / "wandb.yaml"
    path.write_text(wandb_configuration({"lr": 1e-05, "optimizer": {"name": "no"}}), "utf-8")
    code = (
        "import wandb; wandb.init(config={'lr': 1.0, 'epochs': 3});"
        "print(wandb.config.lr, wandb.config.epochs, wandb.config.optimizer['name'])"
    )
    variables = {
        "WANDB_MODE": "offline",
        "WANDB_SILENT": "true",
        "WANDB_SWEEP_PARAM_PATH": str(path),
    }
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=os.environ | variables,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.split() == ["1e-05", "3", "no"]
