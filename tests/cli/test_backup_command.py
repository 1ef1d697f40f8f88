from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.builders.recorded_runs import record_run
from workbench.cli.entry import run_command
from workbench.store.database import Store


@pytest.fixture
def store_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.delenv("WORKBENCH_ARTIFACTS", raising=False)
    record_run(tmp_path)
    return str(tmp_path / "store.sqlite")


def test_a_store_is_backed_up_restored_and_shown_by_doctor(
    store_path: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, target = str(tmp_path / "monday"), str(tmp_path / "there" / "store.sqlite")
    assert run_command(["backup", "--to", folder, "--store", store_path]) == 0
    assert capsys.readouterr().out.startswith("backed up 1 run with ")
    assert run_command(["backup", "--to", folder, "--store", store_path]) == 2
    assert "contains an earlier backup" in capsys.readouterr().err
    assert run_command(["backup", "--to", folder, "--store", store_path, "--force", "--json"]) == 0
    made = json.loads(capsys.readouterr().out)
    assert (made["path"], made["store"]) == (folder, store_path)

    assert run_command(["restore", folder, "--store", target, "--json"]) == 0
    restored = json.loads(capsys.readouterr().out)
    assert restored["last_events"] == made["last_events"]
    with Store.open(store_path) as before, Store.open(target) as after:
        (run_id,) = made["last_events"]
        assert list(after.event_rows(run_id)) == list(before.event_rows(run_id))
    assert run_command(["restore", folder, "--store", target]) == 1
    assert "already has 1 run of the backup" in capsys.readouterr().err
    assert run_command(["show", "last", "--store", target]) == 0
    assert run_command(["restore", str(tmp_path), "--store", target]) == 2
    assert "is not a backup" in capsys.readouterr().err

    from workbench.cli.doctor import _check_backup

    assert _check_backup(store_path, 1).state == "fine"
    assert _check_backup("/another/store.sqlite", 1).state == "missing"
    (tmp_path / "monday" / "backup.json").unlink()
    assert "not there now" in _check_backup(store_path, 1).text
