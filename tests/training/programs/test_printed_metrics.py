"""Metrics in what programs print and write: every format, torn, mixed with anything else."""

from __future__ import annotations

import json
import math
import pprint
import random
import struct
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workbench.training.programs.printed_metrics import (
    Lines,
    PrintedMetrics,
    may_have_metrics,
    pattern_reader,
    read_line,
)
from workbench.training.programs.wandb_files import WandbFolder
from workbench.training.programs.written_metrics import EventFolder, csv_rows, json_lines


@pytest.mark.parametrize(
    ("line", "values"),
    [
        ("loss=0.5", {"loss": 0.5}),
        ("Epoch 3 - loss: 1e-3 - val_acc: 98.5%", {"Epoch": 3, "loss": 0.001, "val_acc": 98.5}),
        (
            "Test set: Average loss: 0.0563, Accuracy: 9820/10000 (98%)",
            {"Test_Average_loss": 0.0563, "Test_Accuracy": 98.2},
        ),
        ("Train Epoch: 1 [0/60000 (0%)]\tLoss: 2.300", {"Epoch": 1, "Train_Loss": 2.3}),
        ("{'loss': 0.25, 'lr': '1e-05'}", {"loss": 0.25, "lr": 1e-5}),
        (
            '{"loss": 0.25, "deep": {"acc": 1}, "name": "x", "ok": true}',
            {"loss": 0.25, "deep.acc": 1},
        ),
        ("\x1b[32mval/loss = -0.5\x1b[0m", {"val/loss": -0.5}),
        ("12:30:01 http://127.0.0.1:80/ version=1.2.3 sha=1f3 a.py:12: x", {}),
        (
            "iter 10: loss 3.2141, time 12.30ms, mfu 1.25%",
            {"iter": 10, "loss": 3.2141, "time": 0.0123, "mfu": 1.25},
        ),
        ("step 0: train loss 4.2, val loss 4.3", {"step": 0, "train_loss": 4.2, "val_loss": 4.3}),
        (
            (
                "| epoch   1 |   200/ 2983 batches | lr 20.00 | ms/batch  5.20 | loss  7.61 | ppl "
                " 2000.10"
            ),
            {"epoch": 1, "lr": 20, "ms/batch": 5.2, "loss": 7.61, "ppl": 2000.1},
        ),
        (
            "| end of epoch   1 | time: 12.34s | valid loss  5.10 | valid ppl   164.02",
            {"epoch": 1, "time": 12.34, "valid_loss": 5.1, "valid_ppl": 164.02},
        ),
        (
            "32/32 - 0s - 3ms/step - accuracy: 0.9100 - loss: 0.3000 - val_accuracy: 0.9000",
            {"accuracy": 0.91, "loss": 0.3, "val_accuracy": 0.9},
        ),
        ("100%|####| 10/10 [00:01<00:00,  9.81it/s, loss=0.12]", {"loss": 0.12}),
        (
            "Epoch 0: 100%|####| 9/9 [00:01<00:00, 9.81it/s, v_num=0, train_loss=0.12]",
            {"Epoch": 0, "v_num": 0, "train_loss": 0.12},
        ),
        ("There are 3 files, and the last of them has 20 lines", {}),
        ('{"loss": 0.2', {}),
        ("nothing of interest", {}),
    ],
)
def test_lines(line: str, values: dict[str, float]) -> None:
    assert read_line(line.encode()) == values


@pytest.mark.parametrize(
    ("line", "values"),
    [
        (
            "Epoch 1/4 - train loss: 0.5 - val loss: 0.1",
            {"Epoch": 1, "train_loss": 0.5, "val_loss": 0.1},
        ),
        ("Train loss: 0.5, Test loss: 0.1", {"Train_loss": 0.5, "Test_loss": 0.1}),
        ("Train acc: 91% | Val acc: 88%", {"Train_acc": 91, "Val_acc": 88}),
        ("[1] Train Loss: 0.5 | Valid Loss: 0.1", {"Train_Loss": 0.5, "Valid_Loss": 0.1}),
        ("Best epoch: 3, best val loss=0.1", {"Best_epoch": 3, "best_val_loss": 0.1}),
        ("(train loss: 0.5, avg loss: 0.25)", {"train_loss": 0.5, "train_avg_loss": 0.25}),
        ("saved model, loss: 3", {"loss": 3}),
    ],
)
def test_names_before_a_sign_keep_the_word_before_them(line: str, values: dict[str, float]) -> None:
    assert read_line(line.encode()) == values


@pytest.mark.parametrize(
    ("line", "values"),
    [
        ("loss: 0.6 (kl loss: 0.2)", {"loss": 0.6, "kl_loss": 0.2}),
        ("class loss: 0.2, box loss: 0.3", {"class_loss": 0.2, "box_loss": 0.3}),
        (
            "Multiple R-squared: 0.75,\tAdjusted R-squared: 0.74",
            {"Multiple_R-squared": 0.75, "Adjusted_R-squared": 0.74},
        ),
        (
            "[10]\ttraining's auc: 0.9\tvalid_1's auc: 0.8",
            {"training_auc": 0.9, "valid_1_auc": 0.8},
        ),
        ("[10]\tvalid_0's auc: 0.8", {"valid_0_auc": 0.8}),
        ("epoch 1 loss: 0.3 epoch 2 loss: 0.2", {"epoch": 2, "loss": 0.2}),
        (
            (
                "Trial 3 finished with value: 0.93 and params: {'lr': 0.1}. Best is trial 2 with"
                " value: 0.95."
            ),
            {"value": 0.93, "best_value": 0.95},
        ),
        ("train Loss: 0.5 Acc: 0.8", {"train_Loss": 0.5, "train_Acc": 0.8}),
        ("epoch 1 train loss 0.5, acc 0.8", {"epoch": 1, "train_loss": 0.5, "train_acc": 0.8}),
        ("val Loss: 0.4 Acc: 0.9", {"val_Loss": 0.4, "val_Acc": 0.9}),
        (
            "Train Loss: 0.5, lr: 0.1, Val Loss: 0.4, Acc: 0.9",
            {"Train_Loss": 0.5, "lr": 0.1, "Val_Loss": 0.4, "Val_Acc": 0.9},
        ),
    ],
)
def test_values_of_one_name_are_told_apart_by_the_word_before_them(
    line: str, values: dict[str, float]
) -> None:
    found = read_line(line.encode(), ("loss", "Acc", "auc"))
    assert found == values
    assert not found.words


@pytest.mark.parametrize(
    ("line", "values"),
    [
        ("current: loss=0.25; best so far: loss=0.2", {"loss": 0.25, "best_loss": 0.2}),
        ("Best so far: loss=0.2; current: loss=0.25", {"loss": 0.25, "best_loss": 0.2}),
        ("Best model: loss=0.2, acc=0.9 | lr=0.1", {"best_loss": 0.2, "best_acc": 0.9, "lr": 0.1}),
        ("Best: {'loss': 0.2}", {"best_loss": 0.2}),
        ("Best epoch: 3, loss=0.1", {"Best_epoch": 3, "loss": 0.1}),
        ("New best! loss: 0.2", {"loss": 0.2}),
        ("Best val loss so far: 0.2 (epoch 3)", {"Best_val_loss": 0.2}),
        ("New worst loss = 0.2", {"New_worst_loss": 0.2}),
        ("test loss: 0.2", {"test_loss": 0.2}),
    ],
)
def test_the_best_values_so_far_are_not_those_of_this_moment(
    line: str, values: dict[str, float]
) -> None:
    assert read_line(line.encode()) == values


@pytest.mark.parametrize("word", ["baseline", "Initial", "previous", "target", "Max", "random"])
@pytest.mark.parametrize("sign", [": ", "=", " "])
def test_a_value_of_something_else_is_not_that_of_the_metric(word: str, sign: str) -> None:
    assert read_line(f"{word} accuracy{sign}0.5".encode()) == {f"{word}_accuracy": 0.5}


@pytest.mark.parametrize(
    ("line", "value"),
    [
        ("val_loss: 0.5 --> 0.4", 0.4),
        ("epoch 3 val_loss 0.5 -> 0.4", 0.4),
        ("val_loss: 50% \u2192 40%", 40),
        ("val_loss: 0.5 -> saved", 0.5),
        ("val_loss: 0.5 => 1.ckpt", 0.5),
    ],
)
def test_of_a_change_the_new_value_counts(line: str, value: float) -> None:
    assert read_line(line.encode())["val_loss"] == value


@pytest.mark.parametrize("value", ["2024-01-02", "01/02/2024", "1.2.2024", "1\u066b5"])
def test_a_part_of_a_date_or_of_another_script_is_not_a_number(value: str) -> None:
    assert read_line(f"loss: {value}".encode()) == {}


@pytest.mark.parametrize(
    ("line", "values"),
    [
        ("Train Epoch: 12 [640/6000 (1%)]\tLoss: 0.3", {"Epoch": 12, "Train_Loss": 0.3}),
        ("[eval @ step 30] loss: 0.3", {"step": 30, "eval_loss": 0.3}),
        ("1|10|Loss: 0.3: 100%|###| 10/10 [00:21<00:00,  2.1s/it]", {"Loss": 0.3}),
        ("Test: 12 [30/40] Loss: 0.3", {"Test_Loss": 0.3}),
        ("Train: loss=0.3 acc=0.5 lr=0.1", {"Train_loss": 0.3, "Train_acc": 0.5, "lr": 0.1}),
        ("train | loss: 0.3 | acc 0.5", {"train_loss": 0.3, "train_acc": 0.5}),
        ("[train] epoch 3, loss 0.3", {"epoch": 3, "train_loss": 0.3}),
        ("val: loss: 0.3", {"val_loss": 0.3}),
        ("training time: 3s loss: 0.3", {"training_time": 3, "loss": 0.3}),
        ("Training: 50%|###| 1/2 [00:01<00:01, loss=0.3]", {"Training_loss": 0.3}),
    ],
)
def test_a_word_about_the_whole_line_belongs_to_its_metrics(
    line: str, values: dict[str, float]
) -> None:
    assert read_line(line.encode()) == values


NESTED = {"loss": 0.5, "best": {"loss": 0.1, "epochs": [1, {"loss": 3}]}, "name": "a {b"}


@pytest.mark.parametrize(
    "text",
    [
        json.dumps(NESTED),
        "result: " + json.dumps(NESTED),
        f"metrics = {NESTED}",
        json.dumps(NESTED, indent=2),
        json.dumps(NESTED, indent=4).replace('"name"', '"x": NaN, "name"'),
        pprint.pformat(NESTED, width=20),
    ],
)
def test_a_value_within_a_mapping_is_not_the_one_outside_of_it(text: str) -> None:
    lines = Lines(may_have_metrics)
    data = text.encode()
    found = [line for at in range(0, len(data), 7) for line in lines.feed(data[at : at + 7])]
    read = [values for line in [*found, *lines.end()] if (values := read_line(line))]
    assert [(values["loss"], values["best.loss"]) for values in read] == [(0.5, 0.1)]


@pytest.mark.parametrize(
    ("text", "losses"),
    [
        ('{"loss": 0.2\n{"loss": 0.5}\nloss=0.3', [0.5, 0.3]),
        ("{\nhello\nloss=0.3\n", [0.3]),
        ("void f() {\n loss=0.3;\n}\nloss=0.1", [0.3, 0.1]),
        ('{\n "loss": 0.5,', [0.5]),
    ],
)
def test_what_only_looks_like_a_mapping_is_read_line_by_line(
    text: str, losses: list[float]
) -> None:
    lines = Lines(may_have_metrics)
    read = [read_line(line) for line in [*lines.feed(text.encode()), *lines.end()]]
    assert [values["loss"] for values in read if values] == losses


def test_words_and_booleans_within_a_mapping_of_mappings_are_kept_for_the_metric() -> None:
    line = read_line(b"{'loss': None, 'ok': True, 'best': {'loss': 0.1}}", ("loss",))
    assert (line, list(line.words)) == ({"best.loss": 0.1}, ["loss"])


def test_not_a_number_is_a_value() -> None:
    values = read_line(b"loss=nan acc: -inf") | read_line(b'{"x": NaN}')
    assert math.isnan(values["loss"])
    assert math.isnan(values["x"])
    assert values["acc"] == -math.inf


@given(st.binary(max_size=300))
def test_anything_can_be_printed(data: bytes) -> None:
    lines = Lines(may_have_metrics)
    for line in [*lines.feed(data), *lines.end()]:
        assert all(isinstance(value, float) for value in read_line(line).values())


@pytest.mark.parametrize("opened", ["a=(", "{a: ", "Config(x={b=", "A(loss="])
def test_a_line_of_very_many_open_brackets_is_read(opened: str) -> None:
    # Each bracket was followed to the end of the line. That would take an hour.
    read_line((opened * 20_000).encode())


def test_noise_is_not_a_metric() -> None:
    noise = random.Random(0).randbytes(100_000)
    lines = Lines(may_have_metrics)
    names = {name for line in lines.feed(noise + b"\nloss=0.5\n") for name in read_line(line)}
    assert "loss" in names
    assert len(names) < 20


@given(st.lists(st.integers(1, 30), max_size=20))
def test_lines_arrive_in_pieces(sizes: list[int]) -> None:
    text = b"\rstep=1 loss=0.5\rstep=2 loss=0.25\r\nloss=0.125"
    lines, read, place = Lines(), [], 0
    for size in [*sizes, len(text)]:
        read += lines.feed(text[place : place + size])
        place += size
    assert [read_line(line)["loss"] for line in [*read, *lines.end()]] == [0.5, 0.25, 0.125]


def test_the_source_in_a_traceback_is_not_read() -> None:
    text = (
        b'Traceback (most recent call last):\n  File "a.py"\n    loss=0.5\nValueError:'
        b" x\nloss=0.25\n"
    )
    assert [read_line(line) for line in Lines().feed(text)][-1] == {"loss": 0.25}
    assert len(Lines().feed(text)) == 2


def test_patterns() -> None:
    read = pattern_reader((r"step (?P<step>\d+): val loss (?P<val_loss>\S+)", r"acc (?P<acc>\S+)"))
    assert read(b"step 20: val loss 1.5, acc 0.5") == {"step": 20, "acc": 0.5}
    assert read(b"step 20: val loss nan") == pytest.approx(
        {"step": 20, "val_loss": math.nan}, nan_ok=True
    )
    assert read(b"val loss: high") == {}


def test_files_of_lines(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    path.write_text('{"loss": 9}\n')
    file = json_lines(path)
    assert list(file.poll()) == []
    with path.open("a") as stream:
        stream.write('{"loss": 0.5}\n{"loss": 0.')
        stream.flush()
        assert list(file.poll()) == [({"loss": 0.5}, None)]
        stream.write('25}\n{"loss": 0.1')
    assert list(file.poll(at_end=True)) == [({"loss": 0.25}, None)]


def test_a_file_that_is_written_anew_is_not_counted_twice(tmp_path: Path) -> None:
    path = tmp_path / "metrics.csv"
    file = csv_rows(path)
    assert list(file.poll()) == []
    path.write_text("epoch,loss,name\n1,0.5,a\n")
    assert list(file.poll()) == [({"epoch": 1, "loss": 0.5}, None)]
    path.write_text("epoch,loss,acc\n1,0.5,\n2,0.25,0.9\n3,0.1")
    assert list(file.poll(at_end=True)) == [({"epoch": 2, "loss": 0.25, "acc": 0.9}, None)]


def test_event_files_of_tensorboard(tmp_path: Path) -> None:
    # Not where tests are collected: loading it takes a second.
    from tensorboardX import SummaryWriter

    with SummaryWriter(str(tmp_path / "old")) as writer:
        writer.add_scalar("loss", 9.0, 1)
    folder = EventFolder(tmp_path)
    with SummaryWriter(str(tmp_path / "new")) as writer:
        writer.add_scalar("val/loss", 0.5, 3)
        writer.add_text("note", "loss=1", 3)
        writer.add_scalar("val/loss", 0.25, 4)
    (events,) = (tmp_path / "new").iterdir()
    whole = events.read_bytes()
    events.write_bytes(whole[:-5])
    first = list(folder.poll(at_end=True))
    events.write_bytes(whole)
    read = first + list(folder.poll(at_end=True))
    assert [(values, step) for values, step in read if "val/loss" in values] == [
        ({"val/loss": 0.5}, 3),
        ({"val/loss": 0.25}, 4),
    ]
    assert len(first) < len(read)


def test_a_log_of_wandb(tmp_path: Path) -> None:
    """The file is written here as wandb writes it.

    Reading one of wandb itself was tried by hand.
    """
    folder = WandbFolder(tmp_path)
    path = tmp_path / "wandb" / "offline-run-1" / "run-1.wandb"
    path.parent.mkdir(parents=True)
    records = [_history(step, {"loss": 1 / step, "text": "x" * 500}) for step in range(1, 101)]
    path.write_bytes(b":W&B\xe1\xbe\x00" + _blocks(records, first=7))
    read = [(values["loss"], step) for values, step in folder.poll(at_end=True)]
    assert read == [(1 / step, step) for step in range(1, 101)]


def _field(number: int, content: bytes) -> bytes:
    return _varint(number << 3 | 2) + _varint(len(content)) + content


def _varint(number: int) -> bytes:
    encoded = bytearray()
    while number > 127:
        encoded.append(number & 127 | 128)
        number >>= 7
    return bytes([*encoded, number])


def _history(step: int, values: dict[str, object]) -> bytes:
    items = {**values, "_step": step}
    return _field(
        2,
        b"".join(
            _field(1, _field(1, name.encode()) + _field(16, json.dumps(value).encode()))
            for name, value in items.items()
        ),
    )


def _blocks(records: list[bytes], first: int) -> bytes:
    written = b""
    for record in records:
        is_first = True
        while True:
            left = 32768 - (first + len(written)) % 32768
            if left < 7:
                written += b"\0" * left
                continue
            part, record = record[: left - 7], record[left - 7 :]
            # A whole record, or its first, a middle or its last part.
            kind = {(True, True): 1, (True, False): 2, (False, False): 3, (False, True): 4}[
                is_first, not record
            ]
            written += struct.pack("<IHB", 0, len(part), kind) + part
            is_first = False
            if not record:
                break
    return written


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("val loss: [0.5, 0.25]", [{"val_loss": 0.25}]),
        ("step: 3\tval loss: [0.5 0.25]", [{"step": 3.0, "val_loss": 0.25}]),
        ("val_loss = array([1.5e-1])", [{"val_loss": 0.15}]),
        ("val loss: [0.5 0.25\n 0.125 0.0625]", [{}, {"val_loss": 0.0625}]),
        (
            "val loss: [0.5\n 0.25\n 0.125]\nval loss: [2.0]",
            [{}, {}, {"val_loss": 0.125}, {"val_loss": 2.0}],
        ),
        ("val loss: 0.5\nval loss: [0.5, 0.5]", [{"val_loss": 0.5}, {}]),  # its history
        ("val loss: []", [{}]),
        ("val loss: [3/4]", [{}]),
        ("val loss: [(1, 2)]", [{}]),
        ("other: [0.5, 0.25]", [{}]),
        ("val loss: [0.5,\nepoch: 3\nval loss: 0.25", [{}, {"epoch": 3.0}, {"val_loss": 0.25}]),
    ],
)
def test_of_a_list_in_the_place_of_a_metric_the_last_number_counts(
    text: str, values: list[dict[str, float]]
) -> None:
    reader = PrintedMetrics(["val_loss"])
    assert [reader.read(line.encode()) for line in text.splitlines()] == values
    assert all(
        "val_loss" not in read_line(line.encode()) for line in text.splitlines() if ": [" in line
    )


@pytest.mark.parametrize(
    ("line", "values"),
    [
        ("cfg {'lr': 0.05, 'l1': 0.001}", {}),
        ("cfg {'optim': {'lr': 0.05, 'every': 5}, 'l1': 0.001}", {}),
        ("settings {'optimizer': {'lr': 0.5, 'nesterov': True}, 'epochs': 8}", {}),
        ("hp {'lr': 0.2, 'layers': [8, 8], 'decay': {'rate': 0.99}}", {}),
        ("using {'alpha': 0.01, 'l1_ratio': 0.5, 'cv': 4}", {}),
        ("best model with {'val_loss': 0.5, 'depth': 3}", {"val_loss": 0.5, "depth": 3.0}),
        ("results {'test': {'loss': 0.5}, 'speed': 3}", {"test.loss": 0.5, "speed": 3.0}),
    ],
)
def test_a_printed_mapping_of_options_has_no_metrics(line: str, values: dict[str, float]) -> None:
    assert read_line(line.encode()) == values


@pytest.mark.parametrize(
    "duration",
    ["3m12s", "3m 12s", "1h02m", "1h 2m 3s", "2 days, 3 hours 4 min 5 s", "1:23:45", "3min 12sec"],
)
@pytest.mark.parametrize(
    "form",
    [
        "epoch 3 {} loss 0.25 acc 0.5",
        "epoch 3 loss 0.25 acc 0.5 {}",
        "epoch 3 loss 0.25 acc 0.5 time {}",
        "epoch 3 loss 0.25 acc 0.5 (took {})",
        "epoch 3: time={} loss=0.25 acc=0.5",
        "epoch 3 | {} | loss 0.25 | acc 0.5",
        "epoch 3 loss 0.25 {} acc 0.5",
    ],
)
def test_a_duration_hides_no_metric(form: str, duration: str) -> None:
    values = read_line(form.format(duration).encode())
    assert {name: values[name] for name in ("epoch", "loss", "acc")} == {
        "epoch": 3,
        "loss": 0.25,
        "acc": 0.5,
    }


@pytest.mark.parametrize(
    "line", ["loss 0.25 time 12.5s", "loss=0.25 time=12.5s", "loss 0.25 12.5s"]
)
def test_a_duration_with_a_name_is_a_value(line: str) -> None:
    values = read_line(line.encode())
    assert values["loss"] == 0.25
    assert values.get("time") == (12.5 if "time" in line else None)


def test_of_meters_the_means_are_read() -> None:
    meters = b"Test: [78/78] Time: 0.1 (0.2) Loss: 5.5 (5.75) Acc@1: 10.0 (11.25)"
    assert dict(read_line(meters)) == {
        "Test_Time": 0.2,
        "Test_Loss": 5.75,
        "Test_Acc@1": 11.25,
    }
    assert read_line(b"val loss: 0.5 (0.25)")["val_loss"] == 0.5


@pytest.mark.parametrize(
    ("row", "is_lost"),
    [
        ("1  0.5  0.25  0.125  8", True),
        ("1  0.5", True),
        ("1  0.5  0.25", False),
        ("kept 3 of 5 checkpoints", False),
    ],
)
def test_a_row_that_is_not_read_below_the_name_of_a_metric_is_kept_once(
    row: str, is_lost: bool
) -> None:
    reader = PrintedMetrics({"val_loss"})
    others = PrintedMetrics({"other"})
    for line in ("epoch  train_loss  val_loss", row, "2  0.5  0.25  1  1"):
        reader.read(line.encode())
        others.read(line.encode())
    assert (reader.unread_row == ("val_loss", row)) is is_lost
    assert others.unread_row is None


@pytest.mark.parametrize("width", [10, 11, 13])
def test_columns_as_wide_as_their_names_are_told_apart(width: int) -> None:
    names = ("Epoch", "Train loss", "Val loss")
    reader = PrintedMetrics()
    header = f"{names[0]:>6}" + "".join(f" {name:>{width}}" for name in names[1:])
    reader.read(header.encode())
    for epoch in (1, 2):
        row = f"{epoch:6d} {0.5 / epoch:{width}.4f} {0.75 / epoch:{width}.4f}"
        values = {"Epoch": epoch, "Train_loss": 0.5 / epoch, "Val_loss": 0.75 / epoch}
        assert reader.read(row.encode()) == pytest.approx(values)


@pytest.mark.parametrize("count", ["[ep 004/12]", "ep 4/12 |", "ep: 4", "(ep 4)", "ep [4/12]"])
def test_ep_counts_epochs(count: str) -> None:
    assert read_line(f"{count} train mse 0.5 val rmse 0.25".encode())["ep"] == 4
