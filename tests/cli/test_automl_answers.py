"""The commands leaderboard, explain and model-card."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable
from types import SimpleNamespace

import pytest

from workbench.cli import automl_answers
from workbench.cli.entry import main
from workbench.runs.automl.held_out_analysis import TestAnalysis

BOARD = {
    "columns": ["model", "val_r2", "fit_s", "predict_s"],
    "rows": [
        {"model": "lightgbm", "val_r2": 0.75, "fit_s": 2.0, "predict_s": 0.004},
        {"model": "linear", "val_r2": 0.5, "fit_s": 0.1, "predict_s": 0.001},
    ],
}
ANALYSIS = {
    "importance": {
        "score": "mae",
        "columns": [{"column": "age", "mean": 2.5, "low": 2.0, "high": 3.0}],
        "num_left_out": 0,
    },
    "partial_dependence": [
        {"column": "age", "values": [20.0, 40.0], "means": {"prediction": [1.5, 3.5]}}
    ],
}


@pytest.fixture(autouse=True)
def finished(monkeypatch: pytest.MonkeyPatch) -> None:
    simple_namespace = SimpleNamespace(
        analysis=TestAnalysis(ANALYSIS),
        to_json=lambda: {"leaderboard": BOARD},
        model_card=lambda: "# Model card: houses\n",
    )
    monkeypatch.setattr(automl_answers, "_finished", lambda _run_id: simple_namespace)


@pytest.fixture
def called(capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    def call(*words: str) -> str:
        with contextlib.suppress(SystemExit):
            main(words)
        printed = capsys.readouterr()
        return printed.out + printed.err

    return call


def test_the_leaderboard_shows_both_times(called):
    text = called("leaderboard", "last")
    assert "training time" in text
    assert "time to predict 1,000 rows" in text
    assert "lightgbm" in text
    assert json.loads(called("leaderboard", "last", "--json")) == BOARD
    assert "and 1 more" in called("leaderboard", "last", "--limit", "1")


def test_explain_shows_what_the_model_needs_and_how_it_uses_a_column(called):
    assert "age" in called("explain", "last")
    shown = json.loads(called("explain", "last", "--column", "age", "--json"))
    assert shown == {
        "partial_dependence": [{"age": 20.0, "prediction": 1.5}, {"age": 40.0, "prediction": 3.5}]
    }
    wrong = called("explain", "last", "--column", "agee")
    assert "'agee' has no partial dependence" in wrong


def test_a_model_card_is_printed_or_written(called, tmp_path):
    assert called("model-card", "last") == "# Model card: houses\n\n"
    path = tmp_path / "CARD.md"
    assert called("model-card", "last", "--to", str(path)).strip() == str(path)
    assert path.read_text(encoding="utf-8") == "# Model card: houses\n"
