"""Metrics with only space before their values.

Read where training loops print them, never out of prose.
"""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workbench.training.programs.metric_names import is_metric, is_option, objectives_in, split_of
from workbench.training.programs.printed_metrics import may_have_metrics, read_line

METRICS = (
    "loss",
    "acc",
    "val_loss",
    "train/acc",
    "valAccuracy",
    "test_f1",
    "Acc@1",
    "mAP",
    "rmse",
    "ppl",
)
OTHERS = ("lr", "time", "grad_norm", "samples", "mem", "beta2")
PROGRESS = ("epoch", "Epoch", "step", "iter", "Iteration", "batch", "episode")
PROSE = (
    "loaded",
    "images",
    "in",
    "saved",
    "checkpoint",
    "version",
    "python",
    "torch",
    "of",
    "seconds",
    "s",
    "GB",
    "files",
    "from",
    "using",
    "device",
    "took",
    "seed",
    "step",
    "epoch",
    "epochs",
    "workers",
    "ran",
    "rank",
)
numbers = st.one_of(st.integers(-(10**6), 10**6), st.floats(-1e9, 1e9, allow_nan=False))
reals = st.floats(-1e9, 1e9, allow_nan=False).map(lambda value: f"{value:.4f}")


@pytest.mark.parametrize(
    ("line", "values"),
    [
        ("epoch 3 loss 0.1 acc 0.9", {"epoch": 3, "loss": 0.1, "acc": 0.9}),
        ("loss: .1, acc .9", {"loss": 0.1, "acc": 0.9}),
        ("Epoch [3/10] loss=0.1", {"Epoch": 3, "loss": 0.1}),
        ("Epoch [3/10], Step [100/600], Loss: 0.2345", {"Epoch": 3, "Step": 100, "Loss": 0.2345}),
        (
            "epoch 3 of 10 train loss 0.5 val acc 98%",
            {"epoch": 3, "train_loss": 0.5, "val_acc": 98},
        ),
        ("  *   Acc@1 75.124 Acc@5 92.380", {"Acc@1": 75.124, "Acc@5": 92.38}),
        (
            "Epoch: [0][  1/50]\tTime  4.5 ( 4.5)\tLoss 7.01e+00 (7.02e+00)\tAcc@1   0.39 (  0.40)",
            {"Epoch": 0, "Loss": 7.02, "Acc@1": 0.4},
        ),
        ("2024-01-02 12:00:00,123 - root - INFO - epoch 3 loss 0.1", {"epoch": 3, "loss": 0.1}),
        ("[12:00:01] INFO loss 0.25 time 12.3ms", {"loss": 0.25, "time": 0.0123}),
        ("episode 10 reward 200", {"episode": 10, "reward": 200}),
        ("best epoch 3, loss=0.1", {"loss": 0.1}),
    ],
)
def test_lines_of_training_loops(line: str, values: dict[str, float]) -> None:
    assert read_line(line.encode()) == values


@pytest.mark.parametrize(
    "line",
    [
        "loaded 500 images in 3 s",
        "step 3 of 10",
        "epoch 3",
        "python 3.11 torch 2.1",
        "saved to run 3 with loss 0.5",
        "loss after epoch 3 is 0.5",
        "loss 2024-01-02",
        "acc 1.2.3",
        "loss 12:30",
        "loss 3",
        "error 404",
        "return 1",
        "precision 16 epochs 10",
        "0.5 loss",
        "the loss 0.5",
    ],
)
def test_prose_versions_and_dates_are_not_metrics(line: str) -> None:
    assert read_line(line.encode()) == {}


@pytest.mark.parametrize(
    "name",
    ["success_rate", "win_rate", "f1_macro", "f1_weighted", "error_rate", "P@1", "val_hit_rate"],
)
def test_a_rate_of_successes_and_an_averaged_score_are_no_options(name: str) -> None:
    assert is_metric(name)
    assert not is_option(name)
    assert read_line(f"{name}: 0.5".encode()) == {name: 0.5}
    assert objectives_in([name]) == [name]


def test_what_diverges_is_read() -> None:
    assert math.isnan(read_line(b"epoch 3 loss nan")["loss"])
    assert read_line(b"loss -inf") == {"loss": -math.inf}


@given(
    progress=st.one_of(st.none(), st.tuples(st.sampled_from(PROGRESS), st.integers(0, 10**6))),
    metrics=st.dictionaries(st.sampled_from(METRICS), reals, min_size=1),
    others=st.dictionaries(st.sampled_from(OTHERS), numbers.map(str)),
    between=st.sampled_from((" ", "  ", ", ", " | ", "\t", " - ")),
    total=st.sampled_from(("", "/9000000", " of 9000000")),
)
def test_pairs_are_read_whatever_stands_between_them(
    progress: tuple[str, int] | None,
    metrics: dict[str, str],
    others: dict[str, str],
    between: str,
    total: str,
) -> None:
    head = [] if progress is None else [f"{progress[0]} {progress[1]}{total}"]
    line = between.join(
        [*head, *(f"{name} {value}" for name, value in (metrics | others).items())]
    ).encode()
    expected = {name: float(value) for name, value in metrics.items()} | dict(
        [progress] if progress else []
    )
    values = read_line(line)
    assert may_have_metrics(line)
    assert {name: values.get(name) for name in expected} == expected
    assert values.keys() <= {*expected, *others}


@given(
    st.lists(
        st.one_of(
            st.sampled_from(PROSE), numbers.map(str), st.just("3.11.2"), st.just("2024-01-02")
        )
    )
)
def test_words_and_numbers_without_the_name_of_a_metric_are_none(words: list[str]) -> None:
    assert read_line(" ".join(words).encode()) == {}


PARTS = [
    "Train: (loss = {0}, acc = {1})   Test: (loss = {2}, acc = {3})",
    "Train(loss={0}, acc={1}) Test(loss={2}, acc={3})",
    "Train={{'loss': {0}, 'acc': {1}}} Test={{'loss': {2}, 'acc': {3}}}",
    "epoch 3 Train: loss {0} acc {1} Test: loss {2} acc {3}",
    "Train loss {0} acc {1} | Test loss {2} acc {3}",
    "Train [loss: {0}, acc: {1}] Test [loss: {2}, acc: {3}]",
]
four = st.tuples(*[st.integers(1, 10**6).map(lambda value: value / 10**4)] * 4)


@pytest.mark.parametrize("line", PARTS)
@given(values=four)
def test_a_part_of_the_data_belongs_to_what_follows_it(
    line: str, values: tuple[float, ...]
) -> None:
    read = read_line(line.format(*(f"{value:.4f}" for value in values)).encode())
    read.pop("epoch", None)
    names = ("Train_loss", "Train_acc", "Test_loss", "Test_acc")
    assert read == dict(zip(names, values, strict=True))


@pytest.mark.parametrize("label", ["EMA", "ade20k", "teacher", "c4", "LOC", "Fold 2"])
@pytest.mark.parametrize("form", ["[{}] ", "{}: "])
@pytest.mark.parametrize("rest", ["val_loss: 0.5 val_acc: 0.75", "val_loss=0.5, val_acc=0.75"])
def test_a_label_belongs_to_all_metrics_after_it(label: str, form: str, rest: str) -> None:
    name = label.replace(" ", "_")
    line = form.format(label) + rest
    assert read_line(line.encode()) == {f"{name}_val_loss": 0.5, f"{name}_val_acc": 0.75}


@pytest.mark.parametrize(
    "words",
    ["INFO", "rank0", "trainer", "Results", "Final results", "Finally", "main.py", "Epoch 3"],
)
def test_a_log_level_a_process_or_a_title_is_no_label(words: str) -> None:
    values = read_line(f"[{words}] loss: 0.5 acc: 0.75".encode())
    assert values.items() >= {"loss": 0.5, "acc": 0.75}.items()


def test_words_of_a_line_are_kept_where_a_name_would_have_two_values() -> None:
    assert read_line(b"D loss: 0.5 acc: 0.75 G loss: 0.25 acc: 0.5") == {
        "D_loss": 0.5,
        "D_acc": 0.75,
        "G_loss": 0.25,
        "G_acc": 0.5,
    }
    assert read_line(b"kl loss: 0.5 acc: 0.75") == {"kl_loss": 0.5, "acc": 0.75}
    assert read_line(b"ema val_loss=0.5 val_acc=0.75") == {"ema_val_loss": 0.5, "ema_val_acc": 0.75}


def test_a_label_before_a_colon_may_have_brackets_or_be_the_name_of_a_metric() -> None:
    assert read_line(b"mmlu (5-shot): acc 0.5") == {"mmlu_5-shot_acc": 0.5}
    assert read_line(b"xnli[en-de]: acc 0.5") == {"xnli_en-de_acc": 0.5}
    assert read_line(b"PER: precision 0.5 f1 0.75") == {"PER_precision": 0.5, "PER_f1": 0.75}


@pytest.mark.parametrize(
    ("name", "split"),
    [
        ("held-out_rmse", "validation"),
        ("held_out loss", "validation"),
        ("val_held-out_loss", "validation"),
        ("hold-out acc", "validation"),
        ("threshold_out_loss", ""),
        ("household_outlier_error", ""),
    ],
)
def test_held_out_data_is_validation_data(name: str, split: str) -> None:
    assert split_of(name) == split
