from __future__ import annotations

import numpy as np
import pandas as pd

from workbench.data.unusual_rows import (
    PREDICTION,
    describe_unusual,
    numbers_in,
    ranges_of,
    unusual_values,
)


def learnt() -> pd.DataFrame:
    return pd.DataFrame(
        {"area": [20.0, 450.0, np.nan], "rooms": [1, 9, 3], "city": ["Rome", "Oslo", "Rome"]}
    )


def test_numbers_far_outside_are_found_by_row():
    ranges = ranges_of(learnt())
    assert ranges == {"area": (20.0, 450.0), "rooms": (1.0, 9.0)}
    new = pd.DataFrame({"area": [100.0, 9e6, 700.0, np.nan], "rooms": [2, 3, 40, 5]})
    numbers = {**numbers_in(new), PREDICTION: np.array([5e5, 2.59e8, 6e5, 4e5])}
    found = unusual_values(numbers, {**ranges, PREDICTION: (1e5, 3e6)})
    assert [(value.row, value.column) for value in found] == [
        (1, "area"),
        (1, "prediction"),
        (2, "rooms"),
    ]
    assert describe_unusual(found, 4) == (
        "2 rows of 4 are far outside of what was learned: row 1 (from 0) has prediction"
        " 259000000, learned were 100000 to 3000000. Do not rely on its prediction"
    )


def test_values_that_were_learned_and_other_samples_are_not_unusual():
    assert unusual_values(numbers_in(learnt()), ranges_of(learnt())) == []
    assert ranges_of(np.zeros((3, 4, 4))) == {}
    assert numbers_in(["a text"]) == {}
