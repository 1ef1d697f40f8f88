from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.builders.advice import advice
from workbench.advisor.advice import apply_settings
from workbench.advisor.advice_card import card_of
from workbench.advisor.advice_lines import WIDTH, compare, lines_of, yaml_lines
from workbench.experiment.yaml_file import read_yaml
from workbench.foundation.errors import ExperimentError
from workbench.foundation.events import AdviceGiven, from_json, to_json

GOLDEN = """\
Advice for the least time to the target

global batch    256 samples = 128 x 1 accumulated x 2 workers
computing       bf16, ddp
learning rate   0.003, rule sqrt, warm-up over 1 epoch
samples/s       4,301  (3,982 to 4,645)
step time       59.5 ms  (55.1 ms to 64.3 ms)
epoch time      11.6 s  (10.8 s to 12.6 s)
memory          5.45 GiB of 8 GiB (68%) a worker, measured
time to target  7 min 29 s  (5 min 59 s to 9 min 21 s), beyond what was measured
noise scale     520 samples, measured
why             - two workers together do 1.65 times the samples of one, each at its best micro
                batch
                - the noise scale of 520 samples makes a step of 256 worth 1.7 steps of 128
                - a micro batch of 256 does not fit the memory of the device
runner-up       128 samples = 64 x 1 accumulated x 2 workers, bf16, ddp, lr 0.0021
                1.03 times the time to the target, 0.79 times the samples/s
without advice  32 samples = 32 x 1 accumulated x 1 worker, bf16, single, lr 0.001
                1.34 times the time to the target, 0.50 times the samples/s
measured        - 11 plans in one setting, 30 steps each
                - a rate range test at a global batch of 128, 2 seeds
                - the 2 best candidates beside each other for 60 s
measuring took  3 min 20 s
uncertain       - more than 2 workers: nothing was measured beyond 2
                - a noise scale below 200 samples: then 128 samples = 64 x 1 accumulated x 2 workers
                is faster

To use it, put this into your experiment, instead of searched values:
  plan: {workers: 2, micro_batch: 128, accumulation: 1, precision: bf16, strategy: ddp}
  training: {lr: 0.003, lr_rule: sqrt, warmup_epochs: 1.0}
(lr is the learning rate at training.reference_batch.)
"""

anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=150),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4)
    ),
    max_leaves=12,
)


def test_the_card_is_exactly_this():
    assert "\n".join(lines_of(advice())) + "\n" == GOLDEN


def test_the_card_of_a_stored_advice_is_that_of_the_advice():
    stored = from_json(to_json(AdviceGiven(advice=advice())))
    assert isinstance(stored, AdviceGiven)
    assert lines_of(stored.advice) == lines_of(advice())
    card = card_of(stored.advice)
    assert card.changes
    assert list(card.settings) == yaml_lines(card.changes)


def test_what_is_not_known_is_said_or_left_out():
    known = advice()
    known["choice"] |= {"memory_bytes": None, "time_to_target_s": None, "lr": "NaN"}
    known["choice"]["is_by_speed"] = True
    known |= {"runner_up": None, "noise": {"scale_samples": None, "status": "not estimable yet"}}
    known["choice"]["samples_per_s"] = {
        "value": math.inf,
        "low": 1.0,
        "high": 2.0,
        "extrapolated": False,
    }
    card = lines_of(known)
    assert "time to target  not predicted" in card
    assert "noise scale     not estimable yet" in card
    assert any("chosen by the speed of its steps alone" in line for line in card)
    rejected = {"written": "512", "samples_per_s": 9e3, "is_measured": True, "reason": "too large"}
    lines = lines_of(known | {"rejected": rejected})
    assert "fastest plan    512, 9,000 samples/s (measured)" in lines[:6]
    assert " " * 16 + "not recommended: too large" in lines
    known["choice"]["is_by_speed"] = False  # it was trained
    for text in (lines, lines_of(known)):
        assert not any("chosen by the speed of its steps alone" in line for line in text)
    assert "learning rate   unknown, rule sqrt, warm-up over 1 epoch" in card
    assert not any(line.startswith(("memory", "runner-up", "samples/s")) for line in card)


def test_a_measurement_that_took_longer_than_allowed_says_by_how_much_and_why():
    known = advice() | {"overrun": "(limit 3 min), mostly for trainings"}
    line = next(line for line in lines_of(known) if line.startswith("measuring took"))
    assert "3 min 20 s (limit 3 min), mostly for trainings" in line
    assert any(
        "measuring took 3 min 20 s (limit 3 min)" in text for text in card_of(known).measured
    )


def test_more_reasons_than_a_card_holds_are_counted():
    known = advice()
    known["choice"]["reasons"] = [f"reason {number}" for number in range(7)]
    assert " " * 16 + "and 4 more" in lines_of(known)


@pytest.mark.parametrize(
    ("objective", "said"),
    [
        ("time", "1.03 times the time to the target, 0.63 times the samples/s"),
        (
            "money",
            (
                "1.03 times the time to the target, 0.51 times the workers x time, 0.63 times the"
                " samples/s"
            ),
        ),
        ("throughput", "0.63 times the samples/s"),
    ],
)
def test_another_candidate_is_compared_by_what_was_asked_for(objective, said):
    known = advice()
    assert compare(known["others"][0], known["choice"], objective) == said


def test_a_plan_that_needed_no_advice_is_named_and_never_compared_with_itself():
    known = advice()
    known["reference"] = {**known["choice"], "lr": 0.001, "time_to_target_s": None}
    known["choice"]["samples_per_s"] = {
        "value": 9e4,
        "low": 17_703.0,
        "high": 9e4,
        "extrapolated": False,
    }
    known["reference"]["samples_per_s"] = known["choice"]["samples_per_s"]
    card = card_of(known)
    assert card.gain is None
    assert card.why[0] == "no plan is better than your current one"
    assert [other.compared for other in card.others if other.name == "without advice"] == [
        "the same plan"
    ]
    assert f"{'why':<16}- {card.why[0]}" in lines_of(known)
    known["reference"]["time_to_target_s"] = {"value": 900.0, "low": 800.0, "high": 990.0}
    gain = card_of(known).gain
    assert gain is not None, "the advised rate may be better"
    assert gain.words == "as fast to the target as without advice"
    known["reference"]["lr"] = known["choice"]["lr"]
    assert card_of(known).gain is None


def test_a_measured_value_beyond_what_the_model_expects_is_stated_as_such():
    known = advice()
    known["choice"]["samples_per_s"] = {
        "value": 9e4,
        "low": 17_703.0,
        "high": 9e4,
        "extrapolated": False,
    }
    known["choice"]["step_time_s"] = {
        "value": 0.001,
        "low": 0.001,
        "high": 0.005,
        "extrapolated": False,
    }
    card = lines_of(known)
    assert "samples/s       90,000  (measured, down to 17,703 expected)" in card
    assert "step time       1 ms  (measured, up to 5 ms expected)" in card


def test_a_rate_that_no_rule_changes_is_the_same_at_every_batch():
    known = advice()
    known["choice"] |= {"lr_rule": "constant", "warmup_epochs": None}
    assert "learning rate   0.003, the same at larger batches" in lines_of(known)


@given(
    st.dictionaries(
        st.sampled_from(
            ["choice", "runner_up", "reference", "noise", "measured", "settings", "objective"]
        ),
        anything,
    )
)
def test_no_advice_however_broken_breaks_the_card(broken: dict[str, Any]):
    card = lines_of({**advice(), **broken, "settings": {}})
    assert all(len(line) <= WIDTH and "\n" not in line for line in card)
    assert len(card) <= 45


@pytest.mark.parametrize(
    ("objective", "has_target", "said"),
    [
        ("time", True, "the least time to the target"),
        ("money", False, "the least money of a training"),
        ("throughput", False, "the most samples per second"),
    ],
)
def test_a_target_is_spoken_of_only_where_there_is_one(objective, has_target, said):
    lines = lines_of({**advice(), "objective": objective, "has_target": has_target})
    assert lines[0] == f"Advice for {said}"


def test_an_advice_is_applied_to_an_experiment_and_to_nothing_else():
    with pytest.raises(ExperimentError, match="applied to an experiment"):
        apply_settings("digits.yaml", {})  # pyright: ignore[reportArgumentType]


def test_settings_are_yaml_that_reads_back():
    settings = {f"training.a_rather_long_setting_{number}": number / 7 for number in range(8)}
    lines = yaml_lines({**settings, "plan.workers": 2, "seed": 3, "data.options.path": "a: b"})
    assert max(len(line) for line in lines) <= WIDTH
    assert read_yaml("\n".join(lines)) == {
        "training": {name.partition(".")[2]: value for name, value in settings.items()},
        "plan": {"workers": 2},
        "seed": 3,
        "data": {"options": {"path": "a: b"}},
    }
