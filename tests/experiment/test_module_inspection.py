from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from workbench.experiment import Component
from workbench.experiment.components import embed
from workbench.experiment.module_inspection import configuration_of

SOURCE = """
import os

class Kept:
    def __init__(self, config, depth=2):
        self.config, self.other = config, {}
        self.settings = config
        self.width = config["width"]
        self.drop = self.settings.get("dropout", 0.1)
        self.home = os.environ.get("HOME", "")
        config["written"] = 1

    def forward(self, x):
        return x * self.settings.get("scale", 1.5) + self.other["no"]

class Named:
    def __init__(self, width=16, *, act="relu", norm=True, sizes=(1, 2), kind=None):
        pass

class Nothing:
    pass

def build(config):
    chosen = config
    return chosen.pop("layers", 3), config["rate"], config.get("rate", 0.5)

def passes_on(config):
    return build(config)

def train(config, report, seed, momentum=0.9):
    report(loss=config.get("lr", 0.1))
"""


@pytest.fixture
def _own_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "own_read.py").write_text(SOURCE)
    monkeypatch.syspath_prepend(tmp_path)


@pytest.mark.usefixtures("_own_code")
@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("Kept", {"width": None, "dropout": 0.1, "scale": 1.5, "depth": 2}),
        ("Named", {"width": 16, "act": "relu", "norm": True, "sizes": None, "kind": None}),
        ("Nothing", {}),
        ("build", {"layers": 3, "rate": 0.5}),
        ("passes_on", {}),
        ("train", {"lr": 0.1, "momentum": 0.9}),
        ("absent", {}),
    ],
)
def test_what_own_code_reads_from_its_configuration_is_found_in_its_source(
    name: str, expected: dict[str, Any]
) -> None:
    configuration = configuration_of(Component(name=f"own_read:{name}"))
    assert configuration == expected
    assert list(configuration) == list(expected)


def test_what_a_class_of_a_cell_reads_is_found_in_its_source_too() -> None:
    class Net:
        def __init__(self, config: dict[str, Any]) -> None:
            self.config = config
            self.hidden = config["hidden"]

        def forward(self, x: float) -> float:
            return x * self.config.get("scale", 2)

    embedded = embed(Net, {})
    assert embedded.payload_hash
    assert configuration_of(embedded) == {"hidden": None, "scale": 2}
    # Its bytes may be in another process.
    assert configuration_of(Component(name=embedded.name)) == {}
