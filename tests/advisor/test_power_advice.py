from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workbench.advisor.advice import PowerAdvice, PowerStep
from workbench.advisor.advice_lines import describe_power
from workbench.advisor.recommend import power_advice_of
from workbench.foundation.events import PlanMeasured

# An A40 as in figure 2 of the Zeus paper: the lowest limit is slow, the highest one wasteful.
STEPS = [
    PowerStep(300.0, 0.100, 28.0),
    PowerStep(250.0, 0.104, 25.0),
    PowerStep(200.0, 0.115, 22.0),
    PowerStep(150.0, 0.150, 21.5),
    PowerStep(100.0, 0.240, 24.0),
]
steps = st.lists(
    st.builds(
        PowerStep,
        limit_w=st.floats(50, 700),
        step_time_s=st.floats(1e-4, 10),
        step_j=st.floats(1e-3, 1e4),
    ),
    min_size=1,
    max_size=8,
)


@pytest.mark.parametrize(
    ("bound", "limit_w"), [(0.01, 300.0), (0.05, 250.0), (0.2, 200.0), (0.5, 150.0), (1.0, 150.0)]
)
def test_the_limit_that_saves_most_energy_within_the_bound_is_advised(
    bound: float, limit_w: float
) -> None:
    assert PowerAdvice.of(STEPS, bound).limit_w == limit_w


@given(steps, st.floats(0.01, 1.0))
def test_no_allowed_limit_takes_less_energy(tried: list[PowerStep], bound: float) -> None:
    advised = PowerAdvice.of(tried, bound)
    assert advised.now_w == tried[0].limit_w
    assert advised.slowdown <= bound + 1e-9
    for step in tried:
        if step.step_time_s / tried[0].step_time_s <= 1 + bound - 1e-9:
            assert 1 - step.step_j / tried[0].step_j <= advised.saved + 1e-9


def test_measurements_become_energy_per_step() -> None:
    measured = [
        PlanMeasured(
            setting="",
            plan={},
            fits=True,
            step_time_s=step_s,
            power_w=power_w,
            power_limit_w=limit_w,
        )
        for limit_w, step_s, power_w in ((400.0, 0.1, 390.0), (300.0, 0.11, 295.0))
    ]
    advised = power_advice_of(measured, 0.2)
    assert advised is not None
    assert [step.step_j for step in advised.steps] == pytest.approx([39.0, 32.45])
    assert (advised.limit_w, advised.slowdown) == (300.0, pytest.approx(0.1))
    assert advised.saved == pytest.approx(1 - 32.45 / 39)
    assert power_advice_of([], 0.2) is None


def test_the_card_says_what_a_limit_brings_and_how_to_set_it() -> None:
    def written(bound: float) -> str:
        advised = PowerAdvice.of(STEPS, bound)
        return describe_power({"power": vars(advised)})

    assert written(0.2) == (
        "200 W instead of 300 W: steps take 21% less energy and 15% longer (at most 20%)."
        " To set it: sudo nvidia-smi -pl 200"
    )
    assert written(0.01).startswith("300 W, unchanged: no lower limit saves energy")
    assert describe_power({}) == ""
