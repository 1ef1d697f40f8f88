from __future__ import annotations

import pandas as pd
import pytest

import workbench as wb
from workbench.errors import ExperimentError


@pytest.mark.parametrize(
    ("time_s", "part"),
    [("2s", "too short"), (5, "too short"), ("soon", "no duration"), (True, "no duration")],
)
def test_a_time_in_which_nothing_can_be_tried_is_refused(time_s, part) -> None:
    with pytest.raises(ExperimentError, match=part):
        wb.automl(pd.DataFrame({"x": range(40), "y": [0, 1] * 20}), "y", time=time_s)
