"""The model against steps that were measured on a cluster of 4 nodes with 4 GPUs each."""

from __future__ import annotations

import numpy as np
import pytest

from tests.benchmarks.advisor_step_time import (
    LIMITS,
    SPLITS,
    error_of,
    predict_by_nearest,
    predict_with_ours,
)
from tests.builders.measured import find_measured, read_placements

FOLDER = find_measured("step_time")
needs_measurements = pytest.mark.skipif(
    FOLDER is None,
    reason="no measurements: WORKBENCH_MEASURED names the folder that holds step_time/",
)


@pytest.mark.slow
@needs_measurements
@pytest.mark.parametrize("split", LIMITS)
def test_unseen_steps_are_predicted_within_the_limit_and_better_than_by_the_nearest_row(
    split: str,
) -> None:
    assert FOLDER is not None
    ours, nearest, covered = [], [], []
    for place in sorted(FOLDER.iterdir()):
        seen, unseen = SPLITS[split](read_placements(place), np.random.default_rng(11))
        truth = np.array([row.step_time_s for row in unseen])
        with_ours = predict_with_ours(seen, unseen)
        ours.append(error_of(with_ours[:, 0], truth))
        nearest.append(error_of(predict_by_nearest(seen, unseen), truth))
        covered.append(np.mean((with_ours[:, 1] <= truth) & (truth <= with_ours[:, 2])))
    assert np.mean(ours) <= LIMITS[split]
    assert np.mean(ours) < np.mean(nearest)
    assert np.mean(covered) >= 0.75
