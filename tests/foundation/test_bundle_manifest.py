"""A bundle is the files that were exported together, or it is refused."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest

from workbench.foundation.bundle_manifest import (
    add_manifest,
    check_file,
    files_of_bundle,
    read_configuration,
)
from workbench.foundation.errors import RunError


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "model.py").write_text("model")
    (tmp_path / "weights.safetensors").write_bytes(b"weights")
    (tmp_path / "card.json").write_text("{}")
    (tmp_path / "configuration.json").write_text('{"params": {"lr": 0.1}}')
    add_manifest(tmp_path)
    return tmp_path


def test_the_configuration_lists_every_file_with_its_sha256(bundle: Path) -> None:
    configuration = read_configuration(bundle)
    assert configuration["params"] == {"lr": 0.1}
    assert configuration["files"] == {
        "card.json": None,  # timings are added to it
        "code/model.py": hashlib.sha256(b"model").hexdigest(),
        "weights.safetensors": hashlib.sha256(b"weights").hexdigest(),
    }
    assert set(files_of_bundle(bundle)) == {"configuration.json", *configuration["files"]}


def test_weights_of_another_export_are_refused(bundle: Path) -> None:
    check_file(bundle, "weights.safetensors")
    (bundle / "weights.safetensors").write_bytes(b"others")
    with pytest.raises(RunError, match="SHA-256 differs"):
        check_file(bundle, "weights.safetensors")


@pytest.mark.parametrize(
    "files", [None, {}, [], "text", {"weights.safetensors": None}, {"weights.safetensors": 1}]
)
def test_an_entry_that_is_removed_does_not_switch_its_check_off(
    bundle: Path, files: object
) -> None:
    (bundle / "configuration.json").write_text(json.dumps({"params": {}, "files": files}))
    with pytest.raises(RunError, match=r"does not contain the SHA-256 of weights\.safetensors"):
        check_file(bundle, "weights.safetensors")


@pytest.mark.parametrize("text", ["", "[]", "1", "{", '"text"', "[" * 100_000])
def test_what_is_no_configuration_is_no_bundle(bundle: Path, text: str) -> None:
    (bundle / "configuration.json").write_text(text)
    assert files_of_bundle(bundle) == []
    with pytest.raises(RunError, match="is not a bundle"):
        read_configuration(bundle)


def test_files_outside_the_folder_are_never_those_of_a_bundle(bundle: Path) -> None:
    (bundle / "configuration.json").write_text(
        json.dumps({"files": {"../a": "", "/b": "", "c": ""}})
    )
    assert files_of_bundle(bundle) == ["configuration.json", "c"]
