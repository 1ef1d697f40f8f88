"""The page of benchmarks shows the numbers of the stored results."""

from __future__ import annotations

import json
import re
from functools import reduce
from typing import Any

import pytest

from tests.docs.code_blocks import ROOT

PAGE = ROOT / "docs" / "benchmarks.md"
RESULTS = ROOT / "tests" / "benchmarks" / "results"
# The section, the start of a row, and the stored numbers that its cells show, each with its format.
ROWS = [
    (
        "Overhead of a trial",
        "trial returns a number",
        "sweep_overhead",
        [("tasks/noop/ours/steady_ms", ".1f"), ("tasks/noop/tune documented/steady_ms", ",.0f")],
    ),
    (
        "Overhead of a trial",
        "trial trains a small model",
        "sweep_overhead",
        [("tasks/real/ours/steady_ms", ".1f"), ("tasks/real/tune documented/steady_ms", ",.0f")],
    ),
    (
        "Start of a run",
        "Ray is running",
        "run_start",
        [("starts/warm/medians/trial_started", ".1f")],
    ),
    (
        "Start of a run",
        "Ray has to start",
        "run_start",
        [("starts/cold/medians/trial_started", ".1f")],
    ),
    (
        "Start of a trial on two workers",
        "two workers",
        "gang_start",
        [("cases/two workers/ours/median_s", ".2f"), ("cases/two workers/ray/median_s", ".1f")],
    ),
    (
        "Start of a script",
        "Workbench, `command`",
        "script_start",
        [
            ("tasks/plain/our command/first_report_s", ".2f"),
            ("tasks/torch/our command/first_report_s", ".2f"),
        ],
    ),
    (
        "Training step",
        "`ddp`",
        "step_time",
        [
            ("results/ddp, pool against torchrun/ours_ms", ".1f"),
            ("results/ddp, pool against torchrun/wall_ratio", ".2f"),
        ],
    ),
    (
        "Training step",
        "**`fsdp`**",
        "step_time",
        [
            ("results/fsdp, pool against torchrun/ours_ms", ".1f"),
            ("results/fsdp, pool against torchrun/wall_ratio", ".2f"),
        ],
    ),
    (
        "Advice",
        "mean",
        "advisor_choice",
        [("means/ours", ".2f"), ("means/Ray Tune", ".2f"), ("means/Lightning", ".2f")],
    ),
    (
        "Search",
        "`auto`",
        "search_50_trials",
        [
            ("trials/50 trials, 1 at once/auto/regret/50", ".2f"),
            ("trials/50 trials, 4 at once/auto/regret/50", ".2f"),
        ],
    ),
    (
        "Search",
        "Optuna's TPE",
        "search_50_trials",
        [
            ("trials/50 trials, 1 at once/optuna tpe/regret/50", ".2f"),
            ("trials/50 trials, 4 at once/optuna tpe/regret/50", ".2f"),
        ],
    ),
    (
        "Early stopping",
        "`curves`",
        "pruning",
        [
            ("results_by_pruner/curves/epochs_share", ".0%"),
            ("results_by_pruner/curves/lost_share", ".0%"),
            ("results_by_pruner/curves/regret", ".3f"),
        ],
    ),
    (
        "Early stopping",
        "`asha`",
        "pruning",
        [("results_by_pruner/asha/epochs_share", ".0%"), ("results_by_pruner/asha/regret", ".3f")],
    ),
    (
        "Cheap trials",
        "`auto` with levels",
        "fidelity",
        [
            ("results_by_method/auto, levels/regret/0.5", ".2f"),
            ("results_by_method/auto, levels/regret/1.0", ".2f"),
        ],
    ),
    (
        "Importance of parameters",
        "larger of two effects",
        "importance",
        [("workbench/right_order", ".0%"), ("fanova/right_order", ".0%")],
    ),
    (
        "Decisions",
        "Workbench",
        "decisions",
        [
            ("scores/workbench/accepted", ".1%"),
            ("scores/workbench/missed", ".1%"),
            ("scores/workbench/num_runs", ".1f"),
        ],
    ),
    (
        "Decisions",
        "t-test",
        "decisions",
        [("scores/t-test/accepted", ".1%"), ("scores/t-test/missed", ".1%")],
    ),
    (
        "AutoML on tables",
        "wage",
        "automl_tables",
        [
            ("cells/wage, ours, 60 s/loss", ".2f"),
            ("cells/wage, AutoGluon good, 60 s/loss", ".2f"),
            ("cells/wage, CatBoost, 0 s/loss", ".2f"),
        ],
    ),
    (
        "AutoML on tables",
        "restaurants",
        "automl_tables",
        [
            ("cells/restaurants, ours, 60 s/loss", ".3f"),
            ("cells/restaurants, AutoGluon good, 60 s/loss", ".3f"),
            ("cells/restaurants, LightGBM, 0 s/loss", ".3f"),
        ],
    ),
    (
        "Federated learning",
        "FedAvg, 5 local epochs",
        "federated_rounds",
        [
            ("cases/FedAvg, 5 local epochs/median/rounds_to_0.9", ".0f"),
            ("cases/FedAvg, 5 local epochs/median/rounds_to_0.95", ".0f"),
        ],
    ),
    (
        "Live view",
        "10",
        "live_view",
        [("live/10/median_ms", ".0f"), ("rivals/plotly FigureWidget/live/10/median_ms", ".0f")],
    ),
    (
        "Live view",
        "1,000",
        "live_view",
        [("live/1000/median_ms", ".0f"), ("rivals/plotly FigureWidget/live/1000/median_ms", ".0f")],
    ),
]


@pytest.mark.parametrize(("section", "row", "result", "cells"), ROWS)
def test_a_row_shows_what_is_stored(
    section: str, row: str, result: str, cells: list[tuple[str, str]]
) -> None:
    stored = json.loads((RESULTS / f"{result}.json").read_text(encoding="utf-8"))
    [line] = rows_of(section, row)[:1]
    for path, form in cells:
        value = reduce(lambda found, key: found[key], path.split("/"), stored)
        assert written(value, form) in re.findall(r"-?[\d,.]*\d(?: %)?", line), (line, path, value)


def rows_of(section: str, start: str) -> list[str]:
    """Return the rows of a section that start with a text."""
    text = PAGE.read_text(encoding="utf-8")
    part = text.split(f"\n## {section}\n", 1)[1].split("\n## ", 1)[0]
    return [line for line in part.splitlines() if line.startswith(f"| {start}")]


def written(value: Any, form: str) -> str:
    """Return a number as the page writes it."""
    return f"{value:{form}}".replace("%", " %")


def test_every_command_measures_something_that_exists() -> None:
    from tests.benchmarks.__main__ import SUBJECTS

    names = re.findall(r"`make bench WHAT=(\w+)`", PAGE.read_text(encoding="utf-8"))
    assert len(names) > 20
    modules = {path.stem for path in (ROOT / "tests" / "benchmarks").glob("*.py")}
    assert [name for name in names if name not in modules | set(SUBJECTS)] == []
