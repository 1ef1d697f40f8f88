from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import workbench as wb
from tests.builders.recorded_runs import EXPERIMENT, append, begin, finish, trial_events
from workbench.foundation.errors import ExperimentError, RunNotFoundError


def record(store: wb.Store, name: str, *accuracies: float) -> str:
    run_id = store.create_run(wb.Experiment(**{**EXPERIMENT, "name": name}))
    trials = [
        trial_events(number, at_s=4 * number, accuracy=value)
        for number, value in enumerate(accuracies)
    ]
    append(
        store, run_id, [*begin(), *(event for events in trials for event in events), *finish(60)]
    )
    return run_id


def test_the_best_so_far_of_several_runs_stands_in_one_figure(tmp_path: Path) -> None:
    with wb.Store.open(str(tmp_path / "store.sqlite")) as store:
        first = wb.attach(record(store, "plain <b>", 0.5, 0.8), store=store)
        record(store, "convolutional", 0.9)
        record(store, "nothing")

        figure: Any = wb.compare(first, "convolutional", "nothing", store=store)

    lines = {line.name: line for line in figure.data}
    assert list(lines) == [
        "plain &lt;b&gt;: 0.8 (trial 1)",
        "convolutional: 0.9 (trial 0)",
        "nothing: nothing yet",
    ]
    line = lines["plain &lt;b&gt;: 0.8 (trial 1)"]
    assert [float(value) for value in line.y] == pytest.approx([0.25, 0.5, 0.8])
    assert [float(value) for value in line.x] == pytest.approx([1, 2, 6])
    assert figure.layout.xaxis.title.text == "run time (s)"
    assert "val_accuracy" in figure.layout.yaxis.title.text


def test_runs_of_one_name_are_told_apart_and_runs_that_are_not_there_refused(
    tmp_path: Path,
) -> None:
    with wb.Store.open(str(tmp_path / "store.sqlite")) as store:
        ids = [record(store, "same", 0.5), record(store, "same", 0.7)]
        twins: Any = wb.compare(*ids, store=store)
        assert [line.name.partition(":")[0] for line in twins.data] == [
            f"same ({run_id})" for run_id in ids
        ]
        empty: Any = wb.compare(record(store, "empty"), store=store)
        assert empty.layout.annotations[0].text == "No trial has reported anything yet."
        with pytest.raises(RunNotFoundError):
            wb.compare("other", store=store)
    with pytest.raises(ExperimentError, match="nothing to compare"):
        wb.compare()
