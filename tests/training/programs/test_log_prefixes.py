"""Tests of what loggers and launchers put in front of a line."""

from __future__ import annotations

import logging

import pytest

from workbench.training.programs.log_prefixes import without_log_prefix
from workbench.training.programs.printed_metrics import read_line

PREFIXES = (
    "I1130 12:00:00.123456 1234 train.py:55] ",
    "INFO:root:",
    "INFO:__main__:",
    "INFO: ",
    "[INFO] ",
    "2026-11-30 12:00:00,123:INFO: ",
    "2026-11-30 12:00:00,123 - my_model - INFO - ",
    "2026-11-30 12:00:00 INFO ",
    "2026-11-30T12:00:00.123+01:00 INFO - ",
    "11/30/2026 12:00:00 - INFO - __main__ - ",
    "11-30 12:00:00: ",
    "[11/30 12:00:00 d2.evaluation.testing]: ",
    "[2026-11-30 12:00:00,123][INFO][__main__] - ",
    "[2026-11-30 12:00:00,123] [INFO] [logging.py:96:log_dist] [Rank 0] ",
    "2026-11-30 12:00:00.123 | INFO     | __main__:main:45 - ",
    "(trainer:300) INFO: ",
    "[rank0]: ",
    "[rank1]:[2026-11-30 12:00:00,123] INFO: ",
    "[default0]:",
    "[1,0]<stdout>:",
    "(RayTrainWorker pid=123, ip=10.0.0.1) ",
)
BODIES = (
    ("{'step': 10, 'split': 'val', 'elbo': 0.5}", {"step": 10, "val_elbo": 0.5}),
    ('{"epoch": 2, "val": {"loss": 0.5}}', {"epoch": 2, "val.loss": 0.5}),
    ("- Train metrics: accuracy: 0.9 ; loss: 0.5", {"Train_accuracy": 0.9, "Train_loss": 0.5}),
    ("val loss: 0.5", {"val_loss": 0.5}),
    ("Epoch 3 | test acc 0.5", {"Epoch": 3, "test_acc": 0.5}),
)


@pytest.mark.parametrize("prefix", PREFIXES)
def test_a_line_behind_a_prefix_is_read_as_if_it_were_printed_alone(prefix: str) -> None:
    for body, metrics in BODIES:
        assert dict(read_line(body.encode())) == metrics
        stripped = without_log_prefix(f"{prefix}{body}")
        assert stripped.removeprefix("- ") == body.removeprefix("- ")
        assert dict(read_line(f"{prefix}{body}".encode())) == metrics


@pytest.mark.parametrize(
    "form",
    [
        logging.BASIC_FORMAT,
        "%(asctime)s %(levelname)s %(message)s",
        "%(asctime)s - %(name)s - %(levelname)s - %(message)s",
        "[%(asctime)s] %(levelname)s: %(message)s",
        "[%(levelname)s|%(filename)s:%(lineno)d] %(asctime)s %(message)s",
    ],
)
def test_what_logging_writes_is_stripped(form: str) -> None:
    record = logging.LogRecord(
        "my.model", logging.WARNING, "train.py", 3, "valid loss %.1f", (0.5,), None
    )
    line = logging.Formatter(form).format(record)
    assert without_log_prefix(line) == "valid loss 0.5"


@pytest.mark.parametrize(
    "line",
    [
        "Epoch 3 loss 0.5",
        "10:00:05  0.5  0.6",
        "ERROR: 0.5",
        "ERROR 0.5",
        "INFO = 0.5",
        "loss.train 0.5",
        "valid | loss 0.5",
        "[10/100] loss 0.5",
        "[train] loss 0.5",
        "  eval_loss = 0.5",
    ],
)
def test_a_line_without_a_prefix_stays_as_it_is(line: str) -> None:
    assert without_log_prefix(line) == line


def test_a_part_of_the_data_is_no_name_of_a_logger() -> None:
    line = "2026-11-30 12:00:00 | INFO | valid | loss 0.5"
    assert without_log_prefix(line) == "valid | loss 0.5"
    assert without_log_prefix("INFO:val:loss: 0.5") == "val:loss: 0.5"


def test_lines_keep_their_indentation_behind_a_prefix() -> None:
    assert without_log_prefix("INFO:root:   loss = 0.5") == "  loss = 0.5"
