from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.services.served import write_table_bundle
from workbench.cli.entry import run_command
from workbench.deploy.card import Statistics, read_card
from workbench.deploy.serving.client_rows import RowReader
from workbench.deploy.serving.drift import (
    DriftMonitor,
    KeptSamples,
    Watch,
    drift_of_kept,
    read_samples,
)
from workbench.foundation.errors import DataError

ANSWER = {"values": {"years": 3.0}}


def row_of(age: float, animal: str = "cat") -> dict[str, Any]:
    return {"age": age, "animal": animal, "note": "x", "born": None}


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    return write_table_bundle(tmp_path / "animals")


def test_kept_samples_are_read_back_in_their_order(bundle: Path) -> None:
    kept = KeptSamples(bundle, limit_bytes=10**6)
    for age in range(5):
        kept.keep(row_of(age), ANSWER, 0.25)
    kept.close()
    [file] = kept.folder.glob("*.jsonl")
    with file.open("a") as opened:
        opened.write('{"row": {"ag')  # the machine stopped just then
    assert [sample["row"]["age"] for sample in read_samples(bundle)] == list(range(5))
    assert (file.stat().st_mode & 0o777, kept.folder.stat().st_mode & 0o777) == (0o600, 0o700)


def test_the_oldest_samples_make_room_for_newer_ones(bundle: Path) -> None:
    kept = KeptSamples(bundle, limit_bytes=5000)
    for age in range(500):
        kept.keep(row_of(age), ANSWER, 0.25)
    kept.close()
    assert sum(path.stat().st_size for path in kept.folder.glob("*.jsonl")) <= 5000
    ages = [sample["row"]["age"] for sample in read_samples(bundle)]
    assert ages == list(range(500 - len(ages), 500))
    assert len(ages) > 10
    assert kept.num_dropped == 0


def test_a_folder_that_is_gone_drops_samples_and_disturbs_nobody(bundle: Path) -> None:
    kept = KeptSamples(bundle, limit_bytes=5000)
    kept.folder.rmdir()
    kept.keep(row_of(1), ANSWER, 0.25)
    kept.close()
    assert kept.num_dropped == 1
    with pytest.raises(DataError, match="--keep"):
        list(read_samples(bundle))


def test_drift_is_that_of_the_last_rows(bundle: Path) -> None:
    card = read_card(bundle)
    reader = RowReader(card)
    monitor = DriftMonitor(card, window_rows=100)

    def add(num_rows: int, *rows: dict[str, Any]) -> None:
        for number in range(num_rows):
            [row] = reader.read([rows[number % len(rows)]])
            monitor.add(row, {"values": {"years": 40.0 if number % 2 else 60.0}})

    usual = [row_of(age, animal) for age in (1, 3, 5, 7) for animal in ("cat", "dog")]
    add(200, *usual)
    assert {column.name: column.index < 0.01 for column in monitor.columns()} == {
        "age": True,
        "animal": True,
    }
    assert monitor.describe()["next_steps"] == []
    add(200, row_of(100, "bird"))
    assert [column.name for column in monitor.columns() if column.has_drifted] == ["animal", "age"]
    answers = monitor.answers()
    assert answers is not None
    assert not answers.has_drifted
    add(300, *usual)
    assert not monitor.describe()["drifted"]


def test_the_command_shows_drift_and_the_next_step(
    bundle: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_command(["drift", str(bundle)]) == 2
    assert "--keep 0.1" in capsys.readouterr().err
    card = read_card(bundle)
    watch = Watch(bundle, card, share=1.0, limit_bytes=10**6)
    given = [row_of(100, "bird")] * 100
    watch.add(given, RowReader(card).read(given), [ANSWER] * 100, 0.5)
    watch.kept.close()
    assert drift_of_kept(bundle)["columns"] == watch.monitor.describe()["columns"]
    assert run_command(["drift", str(bundle)]) == 1
    shown = capsys.readouterr().out
    assert "workbench extend 20261123-digits --more-trials 10" in shown
    assert "workbench sweep --warm-start 20261123-digits" in shown
    assert run_command(["drift", str(bundle), "--json"]) == 1
    found = json.loads(capsys.readouterr().out)
    assert found["models"]["animals"]["num_rows"] == 100


@pytest.mark.parametrize(
    ("usual", "other", "drifts"),
    [
        (
            {"classes": [["sky", "road"], ["sky", "sky"]]},
            {"classes": [["car", "car"], ["road", "car"]]},
            True,
        ),
        ({"boxes": [{"class": "sky"}, {"class": "road"}]}, {"boxes": [{"class": "car"}]}, True),
        ({"boxes": [{"class": "sky"}, {"class": "road"}]}, {"boxes": []}, True),
        (
            {"boxes": [{"class": "sky"}, {"class": "road"}]},
            {"boxes": [{"class": "road"}, {"class": "sky"}]},
            False,
        ),
    ],
)
def test_answers_for_places_and_boxes_drift_by_their_classes(
    bundle: Path, usual: dict[str, Any], other: dict[str, Any], drifts: bool
) -> None:
    trained = Statistics(categories=("sky", "road"), shares=(0.6, 0.4, 0.0))
    card = read_card(bundle).model_copy(update={"answers": trained})
    monitor = DriftMonitor(card, window_rows=300)
    [row] = RowReader(card).read([row_of(1)])
    for answer in (usual, other, other):
        for _ in range(300):
            monitor.add(row, answer)
    drifted = monitor.answers()
    assert drifted is not None
    assert drifted.has_drifted is drifts
