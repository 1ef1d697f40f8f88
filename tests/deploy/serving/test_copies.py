"""A copy of the server is built from the files of its bundles, wherever it starts."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest

from tests.services.served import write_array_bundle
from workbench.deploy.serving.on_ray import Copy
from workbench.deploy.serving.served_models import Limits


def test_a_copy_leaves_nothing_on_its_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bundle = write_array_bundle(tmp_path / "sum")
    node = tmp_path / "node"
    node.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(node))

    Copy.of({"sum": bundle}, Limits(), None).build()

    assert list(node.iterdir()) == []
