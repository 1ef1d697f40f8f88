"""The report of a compression.

Its verdict, what lost and why, and the base as a cross beside the front.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from tests.builders.report_pages import report_html
from tests.store.history.test_compression_verdict import EXPERIMENT, trial
from workbench.runs.plots.figures import pareto
from workbench.runs.plots.report_answers import error_slices
from workbench.runs.plots.run_data import RunData

EVENTS = [*trial(0, 1.0), *trial(1, 0.42, drop=0.003), *trial(2, 0.3, drop=0.02)]


def test_the_report_states_the_verdict_and_what_lost() -> None:
    page = report_html(EXPERIMENT, EVENTS)
    assert "trial 1 is recommended" in page
    assert "2 points less, but the limit is 0.5" in page
    assert "What was tried and is not recommended" in page


def test_the_base_is_a_cross_beside_the_front() -> None:
    figure: Any = pareto(RunData.of(EXPERIMENT, EVENTS))
    traces = {trace.name: trace for trace in figure.data}
    assert (list(traces["base"].x), list(traces["base"].y)) == ([1.0], [0.99])
    assert traces["base"].marker.symbol == "cross-thin"
    assert list(traces["Pareto front"].x) == [0.42]


def test_a_report_of_another_run_has_neither() -> None:
    other = EXPERIMENT.replace(train="package.module:other")
    assert "is not recommended" not in report_html(other, EVENTS)
    figure: Any = pareto(RunData.of(other, EVENTS))
    assert "base" not in {trace.name for trace in figure.data}


def test_the_report_shows_where_a_model_is_worst() -> None:
    part = {"column": "city", "value": "Oslo", "num_samples": 41, "mean": 0.29, "overall": 0.14}
    run: Any = SimpleNamespace(
        history=SimpleNamespace(
            result={
                "analysis": {
                    "confusion": {},
                    "slices": [{**part, "certain": True}, {**part, "value": "", "certain": False}],
                }
            }
        )
    )
    head, table = error_slices(run)
    assert head == "<h2>Where it is worst</h2>"
    assert '<td>Oslo</td><td class="number">41</td><td class="number">0.71</td><td></td>' in table
    assert table.count("may be chance") == 1
    assert "more mistakes than all of them (0.86)" in table
    run.history.result = {"analysis": {"errors": {}}}
    assert error_slices(run) == []
