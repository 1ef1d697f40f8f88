"""No group and no copy of a row is on both sides of a split, by code that knows only the table."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest

from workbench.foundation.errors import DataError
from workbench.runs.automl import preparation
from workbench.runs.automl.preparation import divide, prepare
from workbench.runs.automl.task_detection import Problem, read_problem

SEEDS = [
    *(_OF_PAIRS := (0, 1, 2, 3, 4, 5, 6, 19)),  # each two of the properties in `drawn`
    *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(50) if seed not in _OF_PAIRS),
]
Parts = list[tuple[set[int], set[int]]]


def drawn(seed: int) -> tuple[pd.DataFrame, dict[str, Any]]:
    """Return a table with a number for each row, in a column that is dropped."""
    random = np.random.default_rng(seed)
    num_rows = int(random.integers(60, 400))
    table = pd.DataFrame(random.normal(size=(num_rows, 4)), columns=list("abcd"))
    table["city"] = random.choice(np.array(["Bern", "Chur", "Genf", None]), num_rows)
    table.loc[random.random(num_rows) < 0.1, "b"] = np.nan
    table["y"] = table["a"] + random.normal(size=num_rows)
    if seed % 2:
        table["y"] = np.where(table["y"] > 0, "yes", "no")
    options: dict[str, Any] = {}
    groups = np.arange(num_rows)
    if seed % 3:
        groups = random.integers(0, max(6, num_rows // 5), num_rows)
        table["owner"] = pd.Series(groups, dtype=object).map("p{}".format)
        if seed % 3 == 2:
            table["owner"] = groups / 10  # numbers, some of them missing, with rounding errors
            table["owner"] *= 1 + random.choice([0, 2e-16, -3e-16], num_rows)
        table.loc[random.random(num_rows) < 0.05, "owner"] = np.nan
        options["group_column"] = "owner"
    if seed % 5 in (1, 2):
        table["day"] = pd.Timestamp("2020-01-01") + pd.to_timedelta(
            random.integers(0, 60, num_rows) if "owner" not in table else groups % 40, "D"
        )
        options["time_column"] = "day"
    elif seed % 4 != 3:
        copies = table.sample(num_rows // 4, random_state=seed)
        copies[list("acd")] *= 1 + random.choice([0, 2e-16, -2e-16], (len(copies), 3))
        table = pd.concat([table, copies], ignore_index=True)
    table = table.sample(frac=1.0, random_state=seed).reset_index(drop=True)
    return table, options


def parts_of(problem: Problem, seed: int, monkeypatch: pytest.MonkeyPatch) -> Parts:
    """Return the row names on both sides of the test and of each fold."""
    learning, test = divide(problem, seed)
    parts = [(learning, test)]
    encode = preparation._encode

    def recorded(
        problem: Problem, samples: Any, targets: Any, *fold: np.ndarray, **how: bool
    ) -> Any:
        if len(samples) == len(learning):
            parts.append((learning[fold[0]], learning[fold[1]]))
        return encode(problem, samples, targets, *fold, **how)

    monkeypatch.setattr(preparation, "_encode", recorded)
    monkeypatch.setattr(preparation, "_all_rows", lambda *_, **_how: None)
    _, held_out = prepare(problem, seed, [1, 2, 3, 4, 5])
    validated = np.concatenate([validation for _, validation in parts[1:]])
    blocks = held_out.blocks_of_validation(len(validated))
    assert blocks is not None
    assert blocks.groups is not None
    if problem.roles.blocks.groups is not None:
        of_problem = problem.roles.blocks.groups[validated]
        pairs = {*zip(of_problem.tolist(), blocks.groups.tolist(), strict=True)}
        assert len(pairs) == len(set(of_problem)) == len(set(blocks.groups))
    if problem.roles.blocks.times is not None:
        assert (blocks.times == problem.roles.blocks.times[validated]).all()
    names = problem.samples.index.to_numpy()
    return [(set(names[first]), set(names[second])) for first, second in parts]


def shared(table: pd.DataFrame, one: set[int], other: set[int]) -> list[Any]:
    """Return what is in rows of both sides: groups, and inputs up to rounding errors."""
    both: list[Any] = []
    if "owner" in table:
        known = table["owner"].map(
            lambda value: value if isinstance(value, str) else f"{value:.6g}"
        )
        sides = [set(known[list(side)]) - {"nan"} for side in (one, other)]
        both += sorted(sides[0] & sides[1])
    inputs = table.drop(columns=["y", "owner"], errors="ignore")
    texts = inputs.map(lambda value: f"{value:.6g}" if isinstance(value, float) else str(value))
    lines = texts.agg("|".join, axis=1)
    return both + sorted(set(lines[list(one)]) & set(lines[list(other)]))


@pytest.mark.parametrize("seed", SEEDS)
def test_no_group_and_no_copy_is_on_both_sides(seed, monkeypatch):
    table, options = drawn(seed)
    problem = read_problem(table, "y", **options)
    parts = parts_of(problem, seed, monkeypatch)
    assert len(parts) > 1
    for one, other in parts:
        assert one
        assert other
        assert not one & other
        assert shared(table, one, other) == []
        if "day" in table:
            assert table["day"][list(one)].max() < table["day"][list(other)].min()


@pytest.mark.parametrize("seed", range(10))
def test_own_parts_share_no_group_and_no_copy_with_rows_to_learn_from(seed, monkeypatch):
    table, options = drawn(6 * seed + 4)
    options.pop("time_column", None)
    own: dict[str, Any] = {"test": table.iloc[:6], "validation": table.iloc[4:14]}
    try:
        problem = read_problem(table.iloc[10:], "y", **options, **own)
    except DataError as error:
        pytest.skip(str(error))
    rows = [table.iloc[10:], own["validation"], own["test"]]
    everything = pd.DataFrame(pd.concat(rows, ignore_index=True))
    for one, other in parts_of(problem, seed, monkeypatch):
        assert shared(everything, one, other) == []
