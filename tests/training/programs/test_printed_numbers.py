"""Values as numpy, torch, jax, TensorFlow and R print them: read as their number, or not at all."""

from __future__ import annotations

import math
from decimal import Decimal
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from workbench.training.programs.documents import read_json
from workbench.training.programs.printed_metrics import may_have_metrics, pattern_reader, read_line
from workbench.training.programs.printed_numbers import number_of_text, with_plain_values
from workbench.training.programs.written_metrics import csv_rows, json_lines

QUARTER = [
    "0.25",
    "2.5e-1",
    ".25",
    "+0.25",
    "np.float64(0.25)",
    "numpy.float32(0.25)",
    "array(0.25)",
    "array([0.25])",
    "array([[0.25]], dtype=float32)",
    "tensor(0.25)",
    "tensor(0.2500, device='cuda:0')",
    "tensor(0.25, device='cuda:0', grad_fn=<NllLossBackward0>)",
    "tensor([0.25], requires_grad=True)",
    "torch.tensor(0.25, dtype=torch.float64)",
    "Decimal('0.25')",
    "Fraction(1, 4)",
    "np.str_('0.25')",
    "Array(0.25, dtype=float32, weak_type=True)",
    "jnp.array(0.25)",
    "tf.Tensor(0.25, shape=(), dtype=float32)",
    "<tf.Tensor: shape=(), dtype=float32, numpy=0.25>",
    "masked_array(data=0.25, mask=False, fill_value=1e+20)",
    "np.ma.masked_array(data=[0.25], mask=[False], fill_value=1e+20)",
]


@pytest.mark.parametrize("written", QUARTER)
def test_one_number_is_read_in_every_form_and_nothing_beside_it(written: str) -> None:
    for line in (
        f"loss={written}",
        f"loss: {written}, acc: 0.5",
        f"{{'loss': {written}, 'acc': {written}}}",
        f"Epoch 3 - loss: {written} - acc: 0.5",
    ):
        values = read_line(line.encode())
        assert values["loss"] == 0.25
        assert set(values) <= {"loss", "acc", "Epoch"}
    assert number_of_text(written) == 0.25


NO_NUMBER = [
    "tensor([0.1, 0.2])",
    "array([0.1, 0.2])",
    "array([], dtype=float64)",
    "tensor([0.1, 0.2], device='cuda:0')",
    "tensor([0.1,",
    "tensor(True)",
    "np.True_",
    "np.bool_(True)",
    "True",
    "None",
    "NA",
    "NULL",
    "masked",
    "--",
    "np.complex128(0.25+0.5j)",
    "tensor(0.25+0.5j)",
    "(0.25+0.5j)",
    "0.25+0.5j",
    "0.25-1e-3i",
    "0.5j",
    "masked_array(data=[--], mask=[True], fill_value=1e+20)",
    "masked_array(data=--, mask=True, fill_value=1e+20)",
    "datetime.timedelta(seconds=3)",
    "np.timedelta64(3,'D')",
    "Timestamp('2026-01-01 00:00:00')",
    "<tf.Tensor: shape=(2,), dtype=float32, numpy=array([0.1, 0.2], dtype=float32)>",
    "[0.25]",
    "[0.1, 0.2]",
    "device(type='cuda', index=0)",
]


@pytest.mark.parametrize("written", NO_NUMBER)
def test_what_is_not_one_number_is_not_read_and_neither_are_its_parts(written: str) -> None:
    assert read_line(f"loss={written}".encode()) == {}
    assert read_line(f"acc=0.5 loss: {written}".encode()) == {"acc": 0.5}
    assert number_of_text(written) is None


@pytest.mark.parametrize(
    ("written", "number"),
    [
        ("nan", math.nan),
        ("NaN", math.nan),
        ("-nan", math.nan),
        ("np.float64(nan)", math.nan),
        ("tensor(nan, device='cuda:0')", math.nan),
        ("Inf", math.inf),
        ("-Inf", -math.inf),
        ("-inf", -math.inf),
        ("tensor(-inf)", -math.inf),
        ("Infinity", math.inf),
        ("Decimal('NaN')", math.nan),
        ("1e-3", 0.001),
        ("1e+05", 1e5),
        ("1,234.5", 1234.5),
        ("25%", 25.0),
        ("np.int64(3)", 3.0),
        ("tensor(3.)", 3.0),
        ("tensor(1.2e-05, dtype=torch.float64)", 1.2e-5),
        ("1.#QNAN", math.nan),
        ("-1.#IND", math.nan),
        ("-nan(ind)", math.nan),
    ],
)
def test_a_final_nan_is_read_as_one(written: str, number: float) -> None:
    assert read_line(f"loss: {written}".encode())["loss"] == pytest.approx(number, nan_ok=True)
    assert read_line(f"loss={written} acc=0.5".encode())["loss"] == pytest.approx(
        number, nan_ok=True
    )


@pytest.mark.parametrize(
    ("line", "values"),
    [
        ("Using device: cuda:0", {}),
        ("        0.3], device='cuda:0', dtype=torch.float64)", {}),
        ("       fill_value=1e+20)", {}),
        ("/job:localhost/replica:0/task:0/device:GPU:0", {}),
        ('[1] "Epoch 3: loss = 0.25"', {"Epoch": 3, "loss": 0.25}),
        ('[1] "loss 0.25"', {"loss": 0.25}),
        ("[1] 0.25", {}),
        ("loss Inf", {"loss": math.inf}),
        ("loss tensor(0.25, device='cuda:0') acc tensor(0.5)", {"loss": 0.25, "acc": 0.5}),
        ("Namespace(lr=0.1, epochs=3)", {}),
        ("cpu: 35% loss: 0.5 gpu: 20", {"cpu": 35, "loss": 0.5, "gpu": 20}),
        ("Name: 0, Length: 3, dtype: float64", {}),
        ("lr: 1.#INF f1: -1.#INF00", {"lr": math.inf, "f1": -math.inf}),
        ("loss: 2.5*10^-3 lr: 10^-4 a: 2.5\u00d710 b: 3 \u00b7 10 c: 2**3 acc: 0.5", {"acc": 0.5}),
        ("loss: 0.25\u00b10.01 acc: 0.5 +- 0.1 f1: 0.5*", {"loss": 0.25, "acc": 0.5, "f1": 0.5}),
        ("Test: [ 10/20] Acc@1 72.5 (71.0)", {"Test_Acc@1": 72.5}),
    ],
)
def test_lines_of_r_and_names_of_devices(line: str, values: dict[str, float]) -> None:
    assert read_line(line.encode()) == values
    assert may_have_metrics(line.encode()) or not values


@given(
    st.floats(width=32),
    st.sampled_from((np.float64, np.float32, torch.tensor, np.array, Decimal, str)),
)
def test_what_libraries_print_is_read_back(value: float, kind: type) -> None:
    written = repr(kind(value)) if kind is not str else f"{value}"
    torch.set_printoptions(precision=10)
    line = read_line(f"loss={written} acc=0.5".encode())
    assert line["acc"] == 0.5
    assert line["loss"] == pytest.approx(value, rel=1e-4, nan_ok=True)


def test_fractions_are_their_quotient() -> None:
    assert with_plain_values(f"loss={Fraction(-3, 8)!r}") == "loss=-0.375"


def test_words_in_the_place_of_a_metric_are_kept_beside_the_numbers() -> None:
    metrics = frozenset({"loss", "val_loss"})
    words = {
        "loss=None acc=0.5": {"loss": "None"},
        "val loss: NA": {"val_loss": "NA"},
        "loss NA": {"loss": "NA"},
        '{"loss": null}': {"loss": "null"},
        '{"loss": true, "ok": true}': {"loss": "True"},
        "loss: tensor([0.1, 0.2])": {"loss": "an array or another object"},
        "loss: (0.5+0.1j), val_loss=0.5": {"loss": "(0.5+0.1j)"},
        "loss: [nan]": {"loss": "[nan]"},
        "loss: 1,234": {"loss": "1,234"},
        "the loss is None": {},
        "other=None": {},
        "loss: 0.5": {},
        "train loss: 0.5 - best val loss: None": {},
        "loss of 5 batches: none": {},
    }
    for line, expected in words.items():
        values = read_line(line.encode(), metrics)
        assert values.words == expected, line
        assert not values.words.keys() & values.keys()


def test_documents_keep_booleans_and_numbers_as_text() -> None:
    json = read_json(
        b'{"loss": "np.float64(0.25)", "ok": true, "lr": "1e-05", "name": "x", "big": 1e999, "n":'
        b" null}"
    )
    assert json == {"loss": 0.25, "ok": True, "lr": 1e-5, "big": math.inf}
    assert json["ok"] is True
    assert json.words == {"n": "null"}


def test_a_pattern_reads_what_a_library_prints() -> None:
    read = pattern_reader((r"loss (?P<loss>\S+)",))
    assert read(b"loss tensor(0.25, device='cuda:0')") == {"loss": 0.25}
    assert read(b"loss None").words == {"loss": "None"}
    assert read(b"loss is fine") == {}


def test_rows_with_words_and_quoted_cells(tmp_path: Path) -> None:
    path = tmp_path / "metrics.csv"
    file = csv_rows(path)
    path.write_text(
        '"epoch","loss","note"\n1,0.5,"one, two"\n2,NA,NA\n3,NaN,x\n'
        "4,\"tensor(0.25, device='cuda:0')\",\n,,\n"
    )
    rows = [values for values, _ in file.poll(at_end=True)]
    assert rows[0] == {"epoch": 1, "loss": 0.5}
    assert (rows[1], rows[1].words) == ({"epoch": 2}, {"loss": "NA", "note": "NA"})
    assert math.isnan(rows[2]["loss"])
    assert rows[3] == {"epoch": 4, "loss": 0.25}
    assert len(rows) == 4


@pytest.mark.parametrize("separator", [",", ";", "\t"])
@pytest.mark.parametrize("begin", ["", "\ufeff"])
def test_columns_may_be_separated_as_spreadsheets_do(
    separator: str, begin: str, tmp_path: Path
) -> None:
    file = csv_rows(tmp_path / "log.csv")
    comma = "." if separator == "," else ","
    rows = [["loss", "epoch"], [f"0{comma}5", "1"], [f"1{comma}25e-1", "2"]]
    (tmp_path / "log.csv").write_text(
        begin + "".join(f"{separator.join(row)}\n" for row in rows), "utf-8"
    )
    found = [values for values, _ in file.poll(at_end=True)]
    assert found == [{"loss": 0.5, "epoch": 1}, {"loss": 0.125, "epoch": 2}]


def test_of_two_columns_of_one_name_none_is_read(tmp_path: Path) -> None:
    file = csv_rows(tmp_path / "log.csv")
    (tmp_path / "log.csv").write_text("epoch,loss,loss\n1,0.5,9\n")
    assert [values for values, _ in file.poll(at_end=True)] == [{"epoch": 1}]


def test_a_list_takes_the_place_of_a_number(tmp_path: Path) -> None:
    assert read_json(b'{"loss": [0.5, 0.25], "name": "x"}').words == {"loss": "a list"}
    file = csv_rows(tmp_path / "log.csv")
    (tmp_path / "log.csv").write_text('epoch,loss\n1,0.5\n2,"[0.25, 0.3]"\n')
    first, last = (values for values, _ in file.poll(at_end=True))
    assert (first, last, last.words) == (
        {"epoch": 1, "loss": 0.5},
        {"epoch": 2},
        {"loss": "[0.25, 0.3]"},
    )
    assert read_line(b'{"msg": "loss: 0.5", "tags": ["a"]}', ("loss",)) == {"loss": 0.5}


@pytest.mark.parametrize(
    "history", ['{"loss": [0.5, 0.25], "lr": 0.1}', "{'loss': [0.5], 'best': {'lr': 0.1}}"]
)
def test_a_history_that_is_printed_at_last_costs_no_training(history: str) -> None:
    line = read_line(history.encode(), ("loss",))
    assert "loss" not in line
    assert not line.words


def test_lines_of_json_with_only_a_null_are_taken(tmp_path: Path) -> None:
    file = json_lines(tmp_path / "log.jsonl")
    (tmp_path / "log.jsonl").write_text('{"loss": null}\n{"name": "x"}\n')
    [(values, _)] = list(file.poll(at_end=True))
    assert values.words == {"loss": "null"}


@pytest.mark.parametrize(
    ("line", "values"),
    [
        ("loss: 1,234.5", {"loss": 1234.5}),
        ("score: 1,234,567", {"score": 1234567}),
        ("loss: 1'000", {"loss": 1000}),
        ("loss: 12\u202f345,6", {"loss": 12345.6}),
        ("loss: 1.234.567,8", {"loss": 1234567.8}),
        ("loss: 0,3", {"loss": 0.3}),
        ("loss: 0,123", {"loss": 0.123}),
        ("loss = 1,5 acc = 98,5%", {"loss": 1.5, "acc": 98.5}),
        ("| loss 1,234.5 | ppl 2,5 |", {"loss": 1234.5, "ppl": 2.5}),
        ("step: 1,234 loss: 0.5", {"step": 1234, "loss": 0.5}),
        ("step 1,234 of 10,000 loss 0.5", {"step": 1234, "loss": 0.5}),
        ("Step [12,345/20,000], loss=0.5", {"Step": 12345, "loss": 0.5}),
        ("epoch 3,loss 0.5", {"epoch": 3, "loss": 0.5}),
        ("kernel=3,3 stride: 1,1 loss=0.5", {"loss": 0.5}),
        ("| kernel 3,3 | layers 2,2 |", {}),
        ("loss_weights=1,1 step=3,3 val_loss=0.5", {"val_loss": 0.5}),
        ("loss.train: 0,25 - lr: 0,001", {"loss.train": 0.25, "lr": 0.001}),
        ("betas=0.9,0.999 loss: 0.5", {"betas": 0.9, "loss": 0.5}),
        ("Epoch: 1 100%|##| 9/9, loss=0.5", {"Epoch": 1, "loss": 0.5}),
    ],
)
def test_what_can_only_be_one_number_is_read(line: str, values: dict[str, float]) -> None:
    assert read_line(line.encode()) == values


@pytest.mark.parametrize(
    "text", ["1,234", "1.234,5", "12 345.6", "1,2,3", "1,234,56", "1,5abc", "1'00", "12,34.5"]
)
def test_what_may_be_another_number_is_not_read(text: str) -> None:
    assert read_line(f"loss: {text}".encode()) == {}


@given(
    st.integers(-(10**12), 10**12),
    st.integers(0, 99),
    st.sampled_from((", ", ",", " ", "; ", " | ")),
)
def test_thousands_are_read_beside_other_pairs(whole: int, part: int, between: str) -> None:
    line = f"loss={whole:,}.{part:02}{between}acc=0.5"
    assert read_line(line.encode()) == {"loss": float(f"{whole}.{part:02}"), "acc": 0.5}


@given(
    st.dictionaries(
        st.sampled_from("abcd"), st.integers(-(10**6), 10**6) | st.floats(-1e9, 1e9), min_size=1
    ),
    st.sampled_from((",", ", ", " ", " - ")),
)
def test_commas_between_pairs_are_no_part_of_numbers(
    values: dict[str, float], between: str
) -> None:
    assert (
        read_line(between.join(f"{name}={value}" for name, value in values.items()).encode())
        == values
    )


METRICS = st.sampled_from(("loss", "val_acc", "train/f1", "RMSE", "score_test"))
OTHERS = st.sampled_from(("kernel", "stride", "size", "gpus", "loss_weights", "k"))
PAIRS = st.tuples(st.integers(0, 999), st.integers(0, 99))


@given(
    st.dictionaries(OTHERS, PAIRS, min_size=1),
    METRICS,
    st.floats(0, 1e6),
    st.sampled_from((" ", ", ", " - ")),
)
def test_lists_of_two_are_never_numbers_beside_decimal_points(
    lists: dict[str, tuple[int, int]], metric: str, value: float, between: str
) -> None:
    written = [
        *(f"{name}={first},{second}" for name, (first, second) in lists.items()),
        f"{metric}={value}",
    ]
    assert read_line(between.join(written).encode()) == {metric: value}
    assert read_line(between.join(written[:-1]).encode()) == {}


@given(METRICS, st.dictionaries(OTHERS, PAIRS), PAIRS, st.sampled_from((" ", " - ", "; ")))
def test_decimal_commas_are_read_where_a_metric_has_one(
    metric: str, others: dict[str, tuple[int, int]], own: tuple[int, int], between: str
) -> None:
    values = {metric: own, **others}
    written = between.join(f"{name}={whole},{part:02}" for name, (whole, part) in values.items())
    expected = {name: float(f"{whole}.{part:02}") for name, (whole, part) in values.items()}
    assert read_line(written.encode()) == expected


def test_what_the_experiment_names_is_a_metric_in_any_language() -> None:
    assert read_line(b"verlust=0,3 rate=0,001") == {}
    assert read_line(b"verlust=0,3 rate=0,001", {"verlust"}) == {"verlust": 0.3, "rate": 0.001}
