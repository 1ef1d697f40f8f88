from __future__ import annotations

import json
import math
import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.builders.advice import EXPERIMENT, advice, events, plan
from tests.builders.examples import examples
from workbench.foundation.events import (
    AdviceGiven,
    CandidateTried,
    Event,
    PlanMeasured,
    RatesTested,
    from_json,
    to_json,
)
from workbench.runs.plots.figures import FIGURES
from workbench.runs.plots.figures_advice import ADVICE_FIGURES
from workbench.runs.plots.report_answers import advice_card
from workbench.runs.plots.run_data import RunData

STRANGE = [None, math.nan, math.inf, -math.inf, 0.0, -1.0, 5e-324, 1e-300, 1e300, 0.7, 12.0]


@pytest.fixture(scope="module")
def example() -> RunData:
    return RunData.of(EXPERIMENT, events())


def names_of(figure: Any) -> set[str]:
    return {trace.name for trace in figure.data if trace.name and trace.showlegend is not False}


def test_every_figure_of_advice_is_listed_with_all_others():
    assert set(ADVICE_FIGURES) <= set(FIGURES)


@pytest.mark.parametrize(
    ("name", "named"),
    [
        ("throughput_by_batch", {"1 worker", "2 workers", "4 workers", "recommended"}),
        ("step_time", {"1 worker", "2 workers", "4 workers", "recommended"}),
        (
            "scaling",
            {
                "ideal",
                "micro batch 8, measured",
                "micro batch 128, measured",
                "micro batch 128, trials",
            },
        ),
        ("memory", {"estimated", "measured", "does not fit", "recommended, measured"}),
        ("noise", {"other trials", "noise scale, trial 0", "critical batch so far"}),
        ("time_to_target", {"predicted, with interval", "choice", "runner-up", "without advice"}),
        ("predictions", {"within 10%", "exact prediction", "probes of the advice", "trials"}),
        ("rates", {"global batch 128", "suggested 0.0021"}),
        (
            "candidates",
            {
                "256 samples = 128 x 1 accumulated x 2 workers, lr 0.003",
                "128 samples = 64 x 1 accumulated x 2 workers, lr 0.0021",
            },
        ),
    ],
)
def test_a_figure_shows_what_it_promises(name, named, example):
    figure = FIGURES[name](example)
    assert names_of(figure) == named
    document = json.loads(figure.to_json(), parse_constant=pytest.fail)
    layout = document["layout"]
    assert layout["title"]["text"]
    assert layout["title"]["subtitle"]["text"]
    assert layout["xaxis"]["title"]["text"]
    assert layout["yaxis"]["title"]["text"]


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("memory", "device memory 8 GiB"),
        ("noise", "global batch 256"),
        ("noise", "the advice is based on 520"),
        ("rates", "highest stable 0.016"),
        ("candidates", "target 0.92"),
    ],
)
def test_levels_say_what_they_are(name, said, example):
    assert said in [annotation.text for annotation in FIGURES[name](example).layout.annotations]


def test_what_was_not_measured_is_dashed(example):
    dashes = {
        trace.name: trace.line.dash
        for trace in FIGURES["step_time"](example).data
        if trace.mode == "lines" and trace.line.dash
    }
    assert dashes["2 workers, fitted"] == "solid"
    assert dashes["2 workers, beyond what was measured"] == "dash"
    assert dashes["4 workers"] == "dash"


@pytest.mark.parametrize("name", ADVICE_FIGURES)
def test_an_empty_figure_is_a_sentence(name):
    run = RunData.of(EXPERIMENT, [])
    figure = FIGURES[name](run)
    assert len(figure.data) == 0
    assert figure.layout.annotations[0].text == ADVICE_FIGURES[name].prepare(run).empty


def spoil(stored: Any, draw: random.Random) -> Any:
    """Put strange numbers in the place of some."""
    if isinstance(stored, dict):
        return {key: spoil(value, draw) for key, value in stored.items()}
    if isinstance(stored, list):
        return [spoil(value, draw) for value in stored]
    is_number = isinstance(stored, int | float) and not isinstance(stored, bool)
    return draw.choice(STRANGE) if is_number and draw.random() < 0.3 else stored


@examples(12)
@given(seed=st.integers(0, 2**32))
def test_no_number_however_strange_breaks_a_figure(seed):
    draw = random.Random(seed)
    given_events: list[Event] = [
        PlanMeasured(
            setting="a",
            plan=spoil(plan(workers, size), draw),
            fits=draw.random() < 0.8,
            step_time_s=draw.choice(STRANGE),
            step_time_spread_s=draw.choice(STRANGE),
            samples_per_s=draw.choice(STRANGE),
            peak_bytes=draw.choice([None, 0, 2**40]),
        )
        for workers in (1, 2)
        for size in (8, 16, 32)
    ]
    known = [value for value in STRANGE if value is not None]
    given_events.append(
        RatesTested(
            setting="a",
            global_batch=8,
            rates=draw.choices(known, k=5),
            losses=draw.choices(known, k=5),
            num_seeds=1,
            suggested=draw.choice(STRANGE),
            highest_stable=draw.choice(STRANGE),
        )
    )
    given_events += [
        CandidateTried(
            plan=spoil(plan(1, 8), draw),
            lr=draw.choice(known),
            elapsed_s=draw.choice(known),
            step=1,
            epoch=1.0,
            values={"val_accuracy": draw.choice(known)},
            reached_target=draw.random() < 0.5,
        )
        for _ in range(4)
    ]
    given_events.append(from_json(to_json(AdviceGiven(advice=spoil(advice(), draw)))))
    run = RunData.of(EXPERIMENT, given_events)
    for name in ADVICE_FIGURES:
        json.loads(str(FIGURES[name](run).to_json()), parse_constant=pytest.fail)
    advice_card(run)


def test_noise_that_is_not_finite_is_not_drawn():
    spoiled = [
        event.model_copy(update={"gradient_noise": math.inf})
        if event.type == "trial_reported"
        else event
        for event in events()
    ]
    assert len(FIGURES["noise"](RunData.of(EXPERIMENT, spoiled)).data) == 0
