"""The metrics that a script prints, as its source shows."""

from __future__ import annotations

import ast

import pytest

from workbench.runs.scripts.script_metrics import metrics_of, printed_names, texts_of_dicts
from workbench.training.programs.printed_metrics import read_line


@pytest.mark.parametrize(
    "line",
    [
        "print('Fold scores:', scores)",
        "print(f'fold accuracy: {accs}')\nfor acc in accs: pass",
        "losses = []\nprint('loss:', losses)",
        "kept = cross_val_score(model, x, y)\nprint('accuracy:', kept)",
        "print('accuracy:', [round(x, 2) for x in kept])",
        "print(f'loss: {history[1:]}')",
    ],
)
def test_what_holds_several_values_is_not_a_metric(line: str) -> None:
    assert metrics_of(line) == []
    assert metrics_of(f"{line}\nprint('Mean accuracy: %.3f' % mean)") == ["Mean_accuracy"]


def test_the_mean_of_the_folds_comes_before_the_value_of_one() -> None:
    source = (
        "for number, (train, held_out) in enumerate(folds.split(x)):\n"
        "    print(f'fold {number}: accuracy={accuracy:.3f}')\n"
        "print('mean accuracy:', np.mean(scores))\n"
    )
    assert metrics_of(source) == ["mean_accuracy", "accuracy"]
    assert metrics_of("print(f'Fold {k}: acc {a:.3f}')\nprint('CV accuracy: %.3f' % m)") == [
        "CV_accuracy",
        "acc",
    ]


def test_a_number_with_a_format_comes_before_what_may_be_anything() -> None:
    assert metrics_of("print('score:', found)\nprint(f'error: {rate:.4f}')") == ["error", "score"]
    assert metrics_of("print(f'loss: {loss:.3f} val_loss: {other}')") == ["val_loss", "loss"]


FUNCTION = (
    "def evaluate(model):\n    found = {'val_loss': a}\n    found['val_acc'] = b\n    return"
    " found\n"
)
TRAINER = """
import numpy as np
from transformers import Trainer, TrainingArguments

def compute_metrics(predicted):
    right = predicted.predictions.argmax(-1) == predicted.label_ids
    return {"accuracy": right.mean(), "by_class": [1, 2]}

trainer = Trainer(model, TrainingArguments("out"), eval_dataset=b, compute_metrics=compute_metrics)
trainer.train()
"""


@pytest.mark.parametrize(
    ("source", "metrics"),
    [
        (
            "print({'loss': loss, 'eval_accuracy': right, 'epoch': float(e)})",
            ["eval_accuracy", "loss"],
        ),
        ("print(json.dumps({'loss': loss, 'scores': [1, 2]}))", ["loss"]),
        (
            "print(json.dumps({'split': 'train', 'loss': a}))\nprint({'split': 'val', 'loss': b})",
            ["val_loss", "train_loss"],
        ),
        (
            "logs = dict(loss=loss)\nlogs['val_loss'] = b\nprint(f'epoch {e}: {logs}')",
            ["val_loss", "loss"],
        ),
        ("logs = {'step': 1}\nlogs.update({'loss': loss})\nlogger.info(logs)", ["loss"]),
        (FUNCTION + "print({'loss': loss, **evaluate(model)})", ["val_loss", "val_acc", "loss"]),
        (
            FUNCTION
            + "for epoch in range(3):\n    metrics = evaluate(model)\n    print(epoch, metrics)",
            ["val_loss", "val_acc"],
        ),
        ("history = {'loss': [], 'acc': []}\nprint(history)", []),
        ("weights = {'loss': 0.5}", []),
    ],
)
def test_names_in_printed_dicts_are_metrics(source: str, metrics: list[str]) -> None:
    assert metrics_of(source) == metrics


def test_what_the_trainer_of_hugging_face_prints_is_found_and_a_run_reads_it() -> None:
    assert metrics_of(TRAINER) == ["eval_accuracy", "eval_loss", "loss"]
    for line in (
        b"{'eval_loss': 0.5, 'eval_accuracy': 0.8, 'epoch': 1.0}",
        b"{'eval_loss': '0.5', 'eval_accuracy': '0.8', 'epoch': '1'}",  # since transformers 5
    ):
        assert read_line(line) == {"eval_loss": 0.5, "eval_accuracy": 0.8, "epoch": 1.0}


def test_a_trainer_without_evaluation_prints_its_loss_only() -> None:
    source = "from trl import SFTTrainer\nSFTTrainer(model, train_dataset=data).train()"
    assert metrics_of(source) == ["loss"]
    assert metrics_of(source.replace("(model", "(model, eval_dataset=b")) == ["eval_loss", "loss"]
    assert metrics_of("from lightning import Trainer\nTrainer(max_epochs=3).fit(model)") == []


def test_a_score_of_the_library_evaluate_has_its_name() -> None:
    source = TRAINER.replace(
        'return {"accuracy": right.mean(), "by_class": [1, 2]}',
        "return metric.compute(predictions=right)\n\nmetric = evaluate.load('f1')",
    )
    assert metrics_of(source) == ["eval_f1", "eval_loss", "loss"]


def test_a_printed_dict_that_names_its_part_of_the_data_has_a_name_for_each_part() -> None:
    source = """
sets = {"train": load("train"), "valid": load("validation")}
for step in range(10):
    for split, data in sets.items():
        logging.info({"step": step, "split": split, "elbo": -loss(data).item()})
"""
    assert metrics_of(source) == ["valid_elbo", "train_elbo"]


def test_items_that_are_joined_belong_to_the_text_that_they_are_put_into() -> None:
    source = """
means = {"accuracy": mean(accuracies), "loss": mean(losses)}
text = " ; ".join("{}: {:.3f}".format(name, value) for name, value in means.items())
logging.info("- Eval metrics : " + text)
"""
    own = texts_of_dicts(ast.parse(source))
    assert set(printed_names(source, {}, own)) == {"Eval_accuracy", "Eval_loss"}
