"""What a program writes into files counts to its end, however much it is at once."""

from __future__ import annotations

import json
import struct
from pathlib import Path

import pytest

from workbench.training.programs.written_metrics import (
    EventFolder,
    FinalValues,
    csv_rows,
    json_lines,
)

MIB = 2**20


def test_rows_that_come_all_at_once_are_read_to_the_last(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    file = json_lines(path)
    filler = "x" * 1000
    rows = [json.dumps({"loss": 1 / step, "note": filler}) for step in range(1, 10_001)]
    path.write_text("\n".join(rows) + "\n")
    assert path.stat().st_size > 9 * MIB

    losses = [values["loss"] for values, _ in file.poll(at_end=True)]

    assert losses == [1 / step for step in range(1, 10_001)]


def test_a_long_file_of_an_earlier_attempt_does_not_count(tmp_path: Path) -> None:
    path = tmp_path / "metrics.csv"
    path.write_text("loss,note\n" + f"9,{'x' * 1000}\n" * 10_000)
    file = csv_rows(path)

    assert list(file.poll()) == []
    with path.open("a") as appended:
        appended.write("0.5,end\n")
    assert [values["loss"] for values, _ in file.poll(at_end=True)] == [0.5]


def test_a_record_of_any_size_hides_none_of_those_after_it(tmp_path: Path) -> None:
    folder = EventFolder(tmp_path)
    path = tmp_path / "events.out.tfevents.1"
    for size in (1000, 5 * MIB, 65 * MIB):
        with path.open("ab") as file:
            file.write(_record(_scalar(1, 0.5)))
            file.write(_record(_picture(size)))
            file.write(_record(_scalar(2, 0.25)))

        read = [(step, values["loss"]) for values, step in folder.poll(at_end=True)]

        assert read == [(1, 0.5), (2, 0.25)], size


@pytest.mark.parametrize("places", [("loss_train", "loss_val"), ("loss/train", "loss/val")])
def test_curves_of_one_picture_are_two_metrics(places: tuple[str, str], tmp_path: Path) -> None:
    folder = EventFolder(tmp_path)
    for place in places:  # PyTorch and tensorboardX choose different folders
        (tmp_path / place).mkdir(parents=True)
        (tmp_path / place / "events.out.tfevents.1").write_bytes(_record(_scalar(1, 0.5)))
    (tmp_path / "events.out.tfevents.1").write_bytes(_record(_scalar(1, 0.25)))

    read = {name: value for values, _ in folder.poll(at_end=True) for name, value in values.items()}

    assert read == {"loss/train": 0.5, "loss/val": 0.5, "loss": 0.25}


def test_a_record_that_is_half_written_waits_for_its_rest(tmp_path: Path) -> None:
    folder = EventFolder(tmp_path)
    path = tmp_path / "events.out.tfevents.1"
    whole = _record(_scalar(1, 0.5))
    for cut in (5, 11, 12, len(whole) - 1):
        path.write_bytes(whole[:cut])
        assert list(folder.poll(at_end=True)) == []
    path.write_bytes(whole)
    assert [step for _, step in folder.poll(at_end=True)] == [1]


def _varint(number: int) -> bytes:
    written = b""
    while number > 0x7F:
        written += bytes([number & 0x7F | 0x80])
        number >>= 7
    return written + bytes([number])


def _field(number: int, content: bytes) -> bytes:
    return _varint(number << 3 | 2) + _varint(len(content)) + content


def _scalar(step: int, value: float) -> bytes:
    number = _varint(2 << 3 | 5) + struct.pack("<f", value)
    return _varint(2 << 3) + _varint(step) + _field(5, _field(1, _field(1, b"loss") + number))


def _picture(num_bytes: int) -> bytes:
    image = _field(1, b"picture") + _field(4, bytes(num_bytes))
    return _varint(2 << 3) + _varint(1) + _field(5, _field(1, image))


def _record(content: bytes) -> bytes:
    return struct.pack("<Q", len(content)) + bytes(4) + content + bytes(4)


def test_means_of_json_lines_that_have_only_a_time_are_read(tmp_path: Path) -> None:
    final = FinalValues(tmp_path, [])
    rows = [
        {"Loss/loss": {"num": 8, "mean": mean, "std": 0.1}, "timestamp": time}
        for time, mean in ((1.5, 0.75), (2.5, 0.25))
    ]
    (tmp_path / "stats.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    logged, _ = final.read()
    assert logged["Loss/loss"].values == [0.75, 0.25]
    assert logged["Loss/loss.std"].values == [0.1, 0.1]


def test_switches_of_a_kept_configuration_are_no_results(tmp_path: Path) -> None:
    final = FinalValues(tmp_path, [])
    for name in ("config.json", "copy.json"):
        (tmp_path / name).write_text(json.dumps({"amsgrad": True, "lr": 0.5}))
    logged, documents = final.read()
    assert logged == {}
    assert documents.keys() == {"lr"}
    assert documents["lr"].values == [0.5]
