from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from workbench.data import summary_of
from workbench.experiment import Experiment
from workbench.experiment.components import Component
from workbench.foundation.errors import DataError, ExperimentError
from workbench.training.probes.data_summary import picture_data

OBJECTIVES = [{"metric": "val_loss", "goal": "minimize"}]


def of(data: Any, **fields: Any) -> Experiment:
    return Experiment(model="mlp", data=data, objectives=OBJECTIVES, **fields)


def test_rows_of_a_table_are_shown_as_they_are_written(tmp_path: Path) -> None:
    path = tmp_path / "houses.csv"
    lines = [
        f"{number},{'north' if number % 2 else ''},{number / 10},{number}" for number in range(200)
    ]
    path.write_text("\n".join(["price,side,area,id", *lines]))
    data = {
        "name": "table",
        "path": str(path),
        "target": "price",
        "task": "regression",
        "drop": ["id"],
    }
    seen = picture_data(of(data), num_samples=2)
    assert seen["samples"] == [
        {"kind": "row", "cells": {"side": "", "area": "0.0"}, "target": "0"},
        {"kind": "row", "cells": {"side": "north", "area": "0.1"}, "target": "1"},
    ]
    assert seen["sizes"] == {"train": 160, "validation": 40, "test": None}
    assert sum(seen["target_histogram"]["counts"]) == 160


def test_what_is_notable_of_a_table_is_noted_as_check_does(tmp_path: Path) -> None:
    path = tmp_path / "houses.csv"
    lines = [
        f'house-{number},"{number + 900:,}",{"?" if number == 7 else number},{number}'
        for number in range(200)
    ]
    path.write_text("\n".join(["name,cost,area,price", *lines]))
    data = {"name": "table", "path": str(path), "target": "price", "task": "regression"}
    seen = picture_data(of(data))
    table = summary_of(
        Component(name="table", options={name: data[name] for name in ("path", "target", "task")})
    )
    assert table is not None
    assert seen["contents"] == table.lines()
    assert seen["warnings"][-len(table.notes) :] == [*table.notes]
    assert "data: {drop: [name]}" in str(seen["warnings"])
    assert "thousands separators: cost" in str(seen["warnings"])
    assert "1 of 600 values are missing" in seen["contents"][0]


def test_data_that_is_made_in_a_notebook_goes_along() -> None:
    def made(options: Any) -> Any:
        samples = [([float(number), 0.0], number % 3) for number in range(options["num"])]
        return samples, samples

    seen = picture_data(of({"name": made, "num": 120, "task": "classification", "num_outputs": 3}))
    assert seen["class_counts"] == [40, 40, 40]


def test_errors_say_what_of_the_data_is_wrong() -> None:
    with pytest.raises(DataError, match=r"data\.path: .*does not exist"):
        picture_data(of({"name": "images", "path": "/no/such/folder"}))
    with pytest.raises(ExperimentError, match="train"):
        picture_data(
            Experiment(train="json:dumps", objectives=[{"metric": "y", "goal": "minimize"}])
        )
