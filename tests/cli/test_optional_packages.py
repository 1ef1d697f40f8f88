"""The doctor says which optional packages are missing, and how to install them."""

from __future__ import annotations

import importlib.metadata
import tomllib
from pathlib import Path

import pytest

from workbench.cli.doctor import OPTIONAL_PACKAGES, find_optional_packages
from workbench.foundation.errors import install_command

PROJECT = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text("utf-8"))[
    "project"
]


def test_every_extra_installs_the_package_that_it_is_named_for() -> None:
    for name, (_, extra) in OPTIONAL_PACKAGES.items():
        if extra is not None:
            needed = PROJECT["optional-dependencies"][extra]
            assert any(line.startswith((f"{name}>", f"{name}[")) for line in needed), name


def test_a_missing_package_has_the_command_that_installs_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def version(name: str) -> str:
        if name == "peft":
            raise importlib.metadata.PackageNotFoundError(name)
        return "1.2.3"

    monkeypatch.setattr(importlib.metadata, "version", version)
    findings = {item.subject: item for item in find_optional_packages()}
    assert (findings["lightgbm"].state, findings["lightgbm"].text) == ("fine", "1.2.3")
    assert findings["peft"].state == "missing"
    assert findings["peft"].text.endswith(install_command("hf"))
