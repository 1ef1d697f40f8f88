from __future__ import annotations

from collections.abc import Iterator

import pytest

from workbench.tiers.placement import scheduler_plans


@pytest.fixture(scope="module", autouse=True)
def coarse_plans() -> Iterator[None]:
    """Draw few resamples, which only the interval of a plan depends on, and try few thresholds.

    Each of the usual forty places thousands of requests.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(scheduler_plans, "_NUM_RESAMPLES", 4)
        patch.setattr(scheduler_plans, "_NUM_THRESHOLDS", 9)
        yield
