"""A first experiment for a script, from the options in its source."""

from __future__ import annotations

from pathlib import Path

import pytest

from workbench.errors import DataError
from workbench.experiment import Experiment
from workbench.experiment.command import expand
from workbench.runs.script_options import experiment_for, metrics_of, options_of

ARGPARSE = """
import argparse
parser = argparse.ArgumentParser()
parser.add_argument("--batch-size", type=int, default=64)
parser.add_argument("-e", "--epochs", type=int, default=3)
parser.add_argument("--lr", type=float, default=1e-3, help="learning rate (default: %(default)s)")
parser.add_argument("--dropout", type=float, default=0.1)
parser.add_argument("--optimizer", choices=["sgd", "adamw"], default="sgd")
parser.add_argument("--nesterov", action="store_true")
parser.add_argument("--no-cuda", action="store_true")
parser.add_argument("--data", default=default_folder())
parser.add_argument("positional")
raise SystemExit("this script must not be run")
print(f"epoch={epoch} train_loss={loss:.4f}")
print("Test set: val_acc: {:.2f}".format(accuracy))
"""
CLICK = """
import click
@click.command()
@click.option("--rate", default=0.1)
@click.option("--kind", type=click.Choice(["a", "b"]))
@click.option("--shuffle/--no-shuffle", default=True)
def main(rate, kind, shuffle): ...
"""


def test_the_options_of_argparse_become_ranges_to_edit(tmp_path: Path) -> None:
    script = tmp_path / "train it.py"
    script.write_text(ARGPARSE)
    text = experiment_for(script)
    found = Experiment.from_yaml(text)
    assert list(found.search.root) == ["batch-size", "lr", "dropout", "optimizer", "nesterov"]
    assert found.objectives[0].metric == "val_acc"
    assert found.objectives[0].goal == "maximize"
    assert "# epochs: 3" in text
    assert "# no-cuda:" in text
    params = {"batch-size": 32, "lr": 1e-4, "dropout": 0.0, "optimizer": "sgd", "nesterov": True}
    assert expand(found.command or "", params, {}) == [
        "python", str(script), "--nesterov", "--batch-size=32", "--lr=0.0001", "--dropout=0.0",
        "--optimizer=sgd",
    ]  # fmt: skip


def test_options_of_click_and_what_is_printed() -> None:
    assert [option.name for option in options_of(CLICK)] == ["rate", "kind", "shuffle"]
    assert options_of(CLICK)[1].choices == ("a", "b")
    assert metrics_of(ARGPARSE) == ["val_acc", "train_loss"]


def test_a_script_without_options_and_a_file_that_is_not_python(tmp_path: Path) -> None:
    script = tmp_path / "plain.py"
    script.write_text("print('loss: %f' % 1)")
    assert Experiment.from_yaml(experiment_for(script)).objectives[0].metric == "loss"
    script.write_text("def")
    with pytest.raises(DataError, match="not valid Python"):
        experiment_for(script)
    with pytest.raises(DataError, match="cannot read"):
        experiment_for(tmp_path / "missing.py")
