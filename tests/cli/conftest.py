from __future__ import annotations

from pathlib import Path

import pytest

from tests.services.shell import Shell


@pytest.fixture
def shell(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Shell:
    monkeypatch.setenv("WORKBENCH_STORE", str(tmp_path / "store.sqlite"))
    return Shell(tmp_path, capsys)
