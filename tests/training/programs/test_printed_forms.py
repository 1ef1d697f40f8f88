"""Values in other forms than a name and a number."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workbench.training.programs.printed_metrics import PrintedMetrics, read_line
from workbench.training.programs.printed_numbers import with_pairs

counts = st.integers(1, 10**6)
losses = st.integers(0, 10**6).map(lambda value: value / 10**4)


@given(part=counts, more=counts, word=st.sampled_from(["Accuracy", "acc", "top1", "HellaSwag"]))
def test_the_result_of_a_share_counts(part: int, more: int, word: str) -> None:
    share = round(part / (part + more), 4)
    line = f"{word}: {part}/{part + more} = {share}"
    assert read_line(line.encode()) == {word: share}


@given(part=counts, more=counts)
def test_an_accuracy_without_a_result_is_a_share(part: int, more: int) -> None:
    line = f"Accuracy: {part} / {part + more}"
    assert read_line(line.encode()) == pytest.approx({"Accuracy": part / (part + more)})


def test_a_position_and_a_loss_are_no_shares() -> None:
    assert read_line(b"step 10/100 = 10% loss: 0.5") == {"step": 10, "loss": 0.5}
    assert with_pairs("loss: 3/10") == "loss: 3/10"
    assert with_pairs("accuracy: 10/5") == "accuracy: 10/5"


@pytest.mark.parametrize(
    ("line", "values"),
    [
        (
            "Epoch 1/4 loss=0.5 (val: 0.61) acc=91.2% (val: 88.0%)",
            {"Epoch": 1, "loss": 0.5, "val_loss": 0.61, "acc": 91.2, "val_acc": 88.0},
        ),
        (
            "train_loss: 0.5 (val 0.6) train_acc: 0.9 (val 0.8)",
            {"train_loss": 0.5, "val_loss": 0.6, "train_acc": 0.9, "val_acc": 0.8},
        ),
        ("rmse 12.5 (held out 160.1)", {"rmse": 12.5, "holdout_rmse": 160.1}),
        ("mse=3.2 (Validation: 4.5), lr=0.1", {"mse": 3.2, "validation_mse": 4.5, "lr": 0.1}),
        ("loss 0.5 (0.6) acc 0.7 (0.8)", {"loss": 0.5, "acc": 0.7}),  # averages in brackets
    ],
)
def test_a_value_of_other_data_in_brackets_belongs_to_the_metric_before_it(
    line: str, values: dict[str, float]
) -> None:
    assert read_line(line.encode()) == values


@pytest.mark.parametrize(
    ("line", "values"),
    [
        ("accuracy train: 0.91 test: 0.80", {"accuracy_train": 0.91, "accuracy_test": 0.80}),
        ("Accuracy: train 0.91, val 0.83", {"Accuracy_train": 0.91, "Accuracy_val": 0.83}),
        ("Epoch 3 rmse train 1.5 valid 2.5", {"Epoch": 3, "rmse_train": 1.5, "rmse_valid": 2.5}),
        ("7: tr 0.52 va 0.61", {"tr": 0.52, "va": 0.61}),
        ("train 0.5 | val 0.6 | test 0.7", {"train": 0.5, "val": 0.6, "test": 0.7}),
        ("loss: 0.5 train 0.6 val 0.7", {"loss": 0.5, "train": 0.6, "val": 0.7}),
    ],
)
def test_a_metric_in_front_of_several_parts_of_the_data_belongs_to_all_of_them(
    line: str, values: dict[str, float]
) -> None:
    assert read_line(line.encode()) == values


@pytest.mark.parametrize(
    ("line", "values"),
    [
        ("Evaluation over 10 episodes: 123.4", {"Evaluation": 123.4}),
        ("Average return over the last 100 episodes = 12.5", {"Average_return": 12.5}),
        ("eval over 5 seeds: mean reward 7.5", {"eval_mean_reward": 7.5}),
        ("5-way 1-shot acc: 55.20%", {"acc": 55.2}),
        ("Accuracy on the 500 test images: 91 %", {"test_Accuracy": 91}),
    ],
)
def test_how_many_values_a_mean_is_of_is_no_part_of_its_name(
    line: str, values: dict[str, float]
) -> None:
    assert read_line(line.encode()) == values


@pytest.mark.parametrize(
    "change",
    [
        "val_loss improved from {old} to {new}, saving model to best.h5",
        "val_loss decreased ({old} --> {new}).  Saving model ...",
        "val_loss has decreased from {old} to {new}",
        "val_loss: {old} -> {new}",
        "'val_loss' reached {new}",
    ],
)
@given(old=losses, new=losses)
def test_of_a_change_in_words_the_new_value_counts(change: str, old: float, new: float) -> None:
    line = change.format(old=f"{old:.4f}", new=f"{new:.4f}")
    assert read_line(line.encode()) == {"val_loss": new}


@given(psnr=losses)
def test_decibels_are_a_unit(psnr: float) -> None:
    for unit in ("dB", " dB", ""):
        line = f"<epoch:  3, iter:   5,000, Average PSNR : {psnr:.2f}{unit}"
        assert read_line(line.encode())["Average_PSNR"] == float(f"{psnr:.2f}")
    assert read_line(b"val psnr 30.12dB ssim 0.93") == {"val_psnr": 30.12, "val_ssim": 0.93}


def test_without_an_improvement_there_is_no_new_value() -> None:
    assert read_line(b"Epoch 3: val_loss did not improve from 0.51200") == {}


@pytest.mark.parametrize(
    "line",
    [
        "loss (train/val): {train:.4f}/{val:.4f}",
        "loss (train, val): {train:.4f}, {val:.4f}",
        "train/val loss: {train:.4f} / {val:.4f}",
        "train/val loss {train:.4f}/{val:.4f}",
    ],
)
@given(train=losses, val=losses)
def test_the_parts_of_the_data_have_a_value_each(line: str, train: float, val: float) -> None:
    written = line.format(train=train, val=val)
    assert read_line(written.encode()) == {"train_loss": train, "val_loss": val}


def test_names_in_words_and_in_tuples() -> None:
    assert read_line(b"Metric: val_loss, Value: 0.5") == {"val_loss": 0.5}
    assert read_line(b"Key: dropout, Value: 0.5") == {}
    assert read_line(b"(train_loss, val_loss) = (0.5, 0.75)") == {
        "train_loss": 0.5,
        "val_loss": 0.75,
    }
    assert read_line(b"loss = 0.25f0 rmse = 1.5f-3") == {"loss": 0.25, "rmse": 0.0015}


@pytest.mark.parametrize("sign", ["$", "\u20ac", "\u00a3", "~", "\u2248 "])
@given(value=losses)
def test_a_currency_or_a_rounded_value_is_a_number(sign: str, value: float) -> None:
    assert read_line(f"cost: 1.5 loss: {sign}{value}".encode())["loss"] == value


@given(value=losses.filter(bool))
def test_a_minus_of_a_typographer_is_a_minus(value: float) -> None:
    assert read_line(f"loss: \u2212{value}".encode()) == {"loss": -value}


@pytest.mark.parametrize(
    "word",
    [
        *("<0.001", "<= 1e-3", "\u22650.5", "n/a", "N/A", "-", "\u2014", "1,234"),
        *("3/12", "0.5 / 0.6", "7 of 10", "1.5 * 1000", "1.5e+01*1e3", "1.5 e-3", "1.50 k"),
        "1.2 million",
    ],
)
def test_what_is_no_number_is_a_word(word: str) -> None:
    """The value before it must not be taken for the last one."""
    values = read_line(f"epoch: 2, loss: {word}".encode(), ["loss"])
    assert (dict(values), values.words) == ({"epoch": 2.0}, {"loss": word})


@given(step=st.integers(10, 10**6), value=losses)
def test_a_step_between_a_name_and_its_value(step: int, value: float) -> None:
    line = f"Validation loss {step}:  {value:.4f}"
    assert read_line(line.encode()) == {"step": step, "Validation_loss": value}
    line = f"train loss {step}: {value:.4f}, val loss {step}: 0.25"
    assert read_line(line.encode()) == {"step": step, "train_loss": value, "val_loss": 0.25}
    line = f"Train loss {step} {value:.4f} Grad Norm 0.8"
    assert read_line(line.encode()) == {"step": step, "Train_loss": value}


def test_numbers_that_say_which_value_it_is_are_no_steps() -> None:
    assert "step" not in read_line(b"loss 1: 0.5 loss 2: 0.6")
    assert "step" not in read_line(b"acc 5: 0.9")


def test_a_dash_between_a_metric_and_its_number_is_a_sign() -> None:
    assert read_line(b" * LOSS - 0.512, TOP-5 ACCURACY - 0.734, BLEU-4 - 0.2345") == {
        "LOSS": 0.512,
        "TOP-5_ACCURACY": 0.734,
        "BLEU-4": 0.2345,
    }
    assert read_line(b"Epoch 3 - loss: 0.5 - acc: 0.9") == {"Epoch": 3, "loss": 0.5, "acc": 0.9}


@pytest.mark.parametrize(
    "form", ["validation loss for step 500, set {}: {}", "for step 500, set {}, validation_loss={}"]
)
def test_each_set_of_data_has_a_metric_of_its_own(form: str) -> None:
    for name, value in (("pile", 2.103), ("web", 2.31)):
        line = form.format(name, value)
        assert read_line(line.encode()) == {"step": 500, f"validation_loss_{name}": value}


def test_brackets_around_a_metric_or_its_step() -> None:
    assert read_line(b"[Valid loss]: 0.512") == {"Valid_loss": 0.512}
    assert read_line(b"[Valid accuracy]: 80/100 : 80.0%")["Valid_accuracy"] == 0.8
    line = b"Test set (epoch 3): Average loss: 0.512, Accuracy: 50/100 (50.00%)"
    assert read_line(line) == {"epoch": 3, "Test_Average_loss": 0.512, "Test_Accuracy": 50.0}


@pytest.mark.parametrize("form", ["EP{} reward=0.5", "Epoch{} reward 0.5", "[Epoch{}] reward: 0.5"])
def test_a_number_at_the_word_of_a_count_is_no_part_of_a_name(form: str) -> None:
    names = {frozenset(read_line(form.format(n).encode())) - {"Epoch", "EP"} for n in (3, 12)}
    assert names == {frozenset(["reward"])}


def test_names_of_parts_of_the_data_between_tabs() -> None:
    line = b"7\tT_sample 0.25\ttrain_R_avg 1.5\teval_R_avg 2.5"
    assert read_line(line) == {"train_R_avg": 1.5, "eval_R_avg": 2.5}
    assert read_line(b"It took val_data 0.5 of the memory") == {}


def test_a_title_may_have_a_count() -> None:
    metrics = PrintedMetrics()
    lines = (b"Validation Results - Epoch: 3", b"mAP: 68.5%", b"Epoch[4] Iteration[1/9] Loss: 0.5")
    assert [dict(metrics.read(line)) for line in lines] == [
        {"Epoch": 3.0},
        {"Validation_mAP": 68.5},
        {"Epoch": 4.0, "Iteration": 1.0, "Loss": 0.5},
    ]


MARKS = (
    *(
        "*",
        " *",
        " **",
        " <- best",
        " <-- best!",
        " \u2190 best so far",
        " \u2713",
        " \u2714 saved",
    ),
    *(" \u2b50", " (saved)", " [best]", " (best so far)", " -> saved", " new best!", " best"),
)
ROWS = (
    ("epoch  tr_loss  va_loss", "5 0.8986 0.7986", ""),
    ("ep   tr_loss   va_loss   va_acc", " 5    0.8986    0.7986   96.80%", ""),
    ("| epoch | loss | val_loss |", "| 5 | 0.6 | 0.5000", " |"),
    ("epoch,loss,val_loss", "4,0.7,0.5", ""),
    ("epoch\tloss\tval_loss", "4\t0.7\t0.5", ""),
    ("", "epoch 4 | train loss 0.7 | val loss 0.5", ""),
    ("", "epoch 4: loss=0.7 val_loss=0.5", ""),
)


@pytest.mark.parametrize("mark", MARKS)
@pytest.mark.parametrize(("head", "row", "end"), ROWS)
def test_a_mark_of_the_best_epoch_changes_nothing(head: str, row: str, end: str, mark: str) -> None:
    plain, marked = PrintedMetrics(), PrintedMetrics()
    for reader in (plain, marked):
        reader.read(head.encode())
    values = dict(plain.read(f"{row}{end}".encode()))
    assert len(values) >= 3
    assert dict(marked.read(f"{row}{mark}{end}".encode())) == values


def test_a_deviation_behind_a_number_is_left_out() -> None:
    assert dict(PrintedMetrics().read("round 3 | auc 0.8 \u00b1 0.01".encode())) == {
        "round": 3.0,
        "auc": 0.8,
    }
