"""The command shows what was found to fit each device."""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.services.shell import Shell
from workbench.experiment import Experiment
from workbench.hardware.performance.memory import MARGIN
from workbench.training.probes.capacity import Capacity

LIMIT_BYTES = int((1 - MARGIN) * 10**9)
FITTING = [
    Capacity(LIMIT_BYTES, "depth", 8, {"torch": 30, "none": 31, "blocks": 64}, 64, 47, 0.4),
    Capacity(LIMIT_BYTES, "batch", 256, {"torch": 99, "none": 99}, 2**20),
]


@pytest.fixture
def questions(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What is asked of the process that traces, whose answer is `FITTING`."""
    asked: list[Any] = []

    def answer(module: str, experiment: Experiment, question: Any, **others: Any) -> Any:
        asked.append(question)
        return [dataclasses.asdict(row) for row in FITTING]

    monkeypatch.setattr("workbench.training.probes.capacity.query", answer)
    return asked


def write(folder: Path) -> str:
    path = folder / "deep.yaml"
    path.write_text(
        "name: deep\nmodel: {name: mlp, num_layers: 8}\ndata: digits\n"
        "objectives: [{metric: val_loss, goal: minimize}]\nplan: {micro_batch: 256}\n"
    )
    return str(path)


def test_the_largest_sizes_are_shown_by_device(
    shell: Shell, tmp_path: Path, questions: list[Any]
) -> None:
    words = ("what-if", "capacity", write(tmp_path), "--memory", "1GB")
    code, out, err = shell(*words)
    assert code == 0, err
    assert "64 or more" in out
    assert "40% at 47" in out
    assert "no blocks" in err
    assert questions[0]["depth"] == {"name": "num_layers", "now": 8, "values": list(range(1, 65))}
    assert questions[0]["limits_bytes"] == [LIMIT_BYTES]
    assert questions[0]["params"]["global_batch"] == "auto", (
        "that of FILE may be divided among workers"
    )
    [device] = shell.json(*words)["devices"]
    assert device["memory_bytes"] == 10**9
    assert device["largest"][0]["largest"] == FITTING[0].largest


def test_a_terminal_shows_what_is_waited_for(
    shell: Shell, tmp_path: Path, questions: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ("what-if", "capacity", write(tmp_path), "--memory", "1GB")
    assert "tracing" not in shell(*words)[2], "no terminal reads it"
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    assert "tracing steps of deep" in shell(*words)[2]


def test_only_depths_that_the_model_can_have_are_tried(
    shell: Shell, tmp_path: Path, questions: list[Any]
) -> None:
    path = tmp_path / "residual.yaml"
    path.write_text(
        "model: {name: resnet, depth: 20}\ndata: digits\nobjectives: [{metric: val_loss, goal:"
        " minimize}]\n"
    )
    code, _, err = shell("what-if", "capacity", str(path), "--memory", "1GB", "--depth", "depth")
    assert code == 0, err
    assert questions[0]["depth"] == {"name": "depth", "now": 20, "values": list(range(8, 1203, 6))}


@pytest.mark.parametrize(
    "words", [("--memory", "much"), ("--memory", "0"), ("--memory", "16"), ("--depth", "layers")]
)
def test_what_is_not_a_size_or_a_number_of_layers_is_refused(
    shell: Shell, tmp_path: Path, questions: list[Any], words: tuple[str, str]
) -> None:
    code, _, err = shell("what-if", "capacity", write(tmp_path), *words)
    assert code != 0
    assert words[0] in err
    assert not questions
