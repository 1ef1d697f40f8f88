"""Numbers with separators: read where only one number can be meant, otherwise not at all."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workbench.training.programs.printed_metrics import read_line


@pytest.mark.parametrize(
    ("line", "values"),
    [
        ("loss: 1,234.5", {"loss": 1234.5}),
        ("params: 1,234,567", {"params": 1234567}),
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
        ("betas=0.9,0.999", {"betas": 0.9}),
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
