from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.builders.measured import find_measured
from workbench.advisor.fine_tuning_costs import (
    METHOD_KINDS,
    FineTuningPlan,
    fit_fine_tuning_law,
    read_fine_tunings,
    shipped_law,
)
from workbench.foundation.errors import DataError

# Llama-3.1-8B by its model card.
LARGE = FineTuningPlan(
    parameters_b=8.03,
    hidden=4096,
    layers=32,
    heads=32,
    kv_heads=8,
    feed_forward=14336,
    vocabulary=128_256,
    tied=False,
    rank=16,
    adapted="q_proj+v_proj",
    sequence=1024,
    micro_batch=1,
)


def memory_of(plan: FineTuningPlan) -> float:
    (prediction,) = shipped_law().predict([plan])
    return prediction.memory_gb


def test_more_of_anything_needs_more_memory() -> None:
    base = memory_of(LARGE)
    for change in (
        {"micro_batch": 2},
        {"sequence": 2048},
        {"rank": 256},
        {"adapted": "all-linear"},
        {"layers": 40, "parameters_b": 9.8},
        {"weights": "fp32"},
        {"method": "full"},
    ):
        assert memory_of(replace(LARGE, **change)) > base, change
    assert memory_of(replace(LARGE, recompute=True)) < base


def test_four_bits_save_most_of_the_weights_but_not_the_embedding() -> None:
    whole = memory_of(replace(LARGE, sequence=1, weights="bf16"))
    quantised = memory_of(replace(LARGE, sequence=1, weights="nf4"))
    embedding = 128_256 * 4096
    # Of 2 bytes, 9/16 remain for all but the embedding.
    assert whole - quantised == pytest.approx((8.03e9 - embedding) * (2 - 0.5625) / 1e9, rel=0.05)


def test_qlora_has_weights_of_four_bits_unless_they_are_given() -> None:
    implied = memory_of(replace(LARGE, method="qlora"))
    assert implied == memory_of(replace(LARGE, method="qlora", weights="nf4"))
    assert implied < memory_of(replace(LARGE, method="qlora", weights="bf16"))


def test_an_optimizer_of_eight_bits_saves_states_of_a_full_training() -> None:
    full = replace(LARGE, method="full")
    assert memory_of(replace(full, optimizer="adamw_8bit")) < 0.85 * memory_of(full)


@pytest.mark.parametrize("factor", [1.0, 1 / 1.0737])  # GB and GiB
def test_measurements_decide_the_unit_and_the_factors_of_a_library(factor: float) -> None:
    plans = [
        replace(LARGE, micro_batch=batch, adapted=adapted)
        for batch in (1, 2, 4)
        for adapted in ("q_proj+v_proj", "all-linear")
    ]
    # A library that needs a quarter more than the law says.
    measured = [replace(plan, memory_gb=1.25 * factor * memory_of(plan)) for plan in plans]
    asked = replace(LARGE, micro_batch=3)
    (prediction,) = fit_fine_tuning_law(measured).predict([asked])
    assert prediction.memory_gb == pytest.approx(1.25 * factor * memory_of(asked), rel=0.04)
    assert prediction.low_gb < prediction.memory_gb < prediction.high_gb


def test_what_did_not_fit_teaches_that_more_is_needed() -> None:
    measured = [replace(LARGE, micro_batch=1, memory_gb=memory_of(LARGE))]
    failed = [
        replace(LARGE, micro_batch=batch, gpu_memory_gb=48.0, out_of_memory=True)
        for batch in (2, 3, 4)
    ]
    asked = replace(LARGE, micro_batch=2, gpu_memory_gb=48.0)
    (before,) = fit_fine_tuning_law(measured).predict([asked])
    (after,) = fit_fine_tuning_law([*measured, *failed]).predict([asked])
    assert before.fits is True
    assert after.memory_gb > 1.2 * before.memory_gb


def test_times_follow_those_of_similar_methods() -> None:
    measured = [
        replace(LARGE, method=method, memory_gb=20.0, seconds_per_step=seconds)
        for method, seconds in (
            ("lora", 1.0),
            ("adalora", 1.1),
            ("lokr", 1.6),
            ("oft", 1.5),
            ("fourierft", 2.4),
        )
    ]
    asked = [replace(LARGE, method=method) for method in ("vblora", "loha", "waveft")]
    fast, middle, slow = (
        prediction.seconds_per_step or math.nan
        for prediction in fit_fine_tuning_law(measured).predict(asked)
    )
    assert fast == pytest.approx(1.05, rel=0.1)
    assert middle == pytest.approx(1.55, rel=0.15)
    assert slow > middle
    (twice,) = fit_fine_tuning_law(measured).predict([replace(asked[0], micro_batch=2)])
    assert twice.seconds_per_step == pytest.approx(2 * fast, rel=0.15)


def test_without_times_there_is_no_time() -> None:
    law = fit_fine_tuning_law([replace(LARGE, memory_gb=20.0)])
    assert law.predict([LARGE])[0].seconds_per_step is None


def test_a_plan_without_a_peak_is_no_measurement() -> None:
    with pytest.raises(DataError, match="no plan has a measured peak") as caught:
        fit_fine_tuning_law([LARGE])
    assert "Leave out --measured" in str(caught.value)


@settings(deadline=None, max_examples=40)
@given(
    method=st.sampled_from(sorted(name for names in METHOD_KINDS.values() for name in names)),
    parameters_b=st.none() | st.floats(0.05, 700),
    micro_batch=st.none() | st.integers(1, 64),
    sequence=st.none() | st.integers(1, 32_768),
    hidden=st.none() | st.integers(64, 16_384),
    adapted=st.none() | st.sampled_from(["q_proj", "all-linear", "query+mlp+head", "unknown"]),
    gpu_memory_gb=st.none() | st.floats(1, 200),
)
def test_what_is_not_known_is_estimated(gpu_memory_gb: float | None, **known: object) -> None:
    plan = FineTuningPlan(**known, gpu_memory_gb=gpu_memory_gb)  # pyright: ignore
    (prediction,) = shipped_law().predict([plan])
    assert 0 < prediction.low_gb <= prediction.memory_gb <= prediction.high_gb < math.inf
    assert (prediction.fits is None) == (gpu_memory_gb is None)


def test_an_unknown_method_counts_as_low_rank_and_is_named(tmp_path: Path) -> None:
    path = tmp_path / "plans.csv"
    path.write_text("method,parameters_b\nlora,1\nnewest,1\n")
    with pytest.warns(UserWarning, match="newest"):
        known, unknown = read_fine_tunings(path)
    assert known.kind == unknown.kind == "low-rank"


@pytest.mark.filterwarnings("ignore:.*unknown columns", "ignore:.*layers that are not known")
def test_public_adapters_and_models_that_are_left_out_are_predicted() -> None:
    from tests.benchmarks.fine_tuning_costs import read_names, score_left_out

    folder = find_measured("fine_tuning")
    if folder is None:
        pytest.skip("needs the public measurements")
    models = read_fine_tunings(folder / "fine_tuning_memory.csv")
    score = score_left_out(models, read_names(folder / "fine_tuning_memory.csv"))
    assert sum(map(abs, score.memory)) / len(score.memory) < 0.10
    assert sum(score.right) / len(score.right) >= 0.95
    adapters = read_fine_tunings(folder / "adapter_costs.csv")
    score = score_left_out(adapters, range(len(adapters)))
    assert sum(map(abs, score.memory)) / len(score.memory) < 0.045
    assert sum(map(abs, score.seconds)) / len(score.seconds) < 0.15
    assert 0.8 <= sum(score.in_interval) / len(score.in_interval) <= 0.97


def test_an_interval_is_wider_where_a_size_is_not_known() -> None:
    law = shipped_law()
    known, *unknown = law.predict(
        [LARGE, replace(LARGE, sequence=None), replace(LARGE, micro_batch=None), FineTuningPlan()]
    )
    for prediction in unknown:
        assert prediction.high_gb / prediction.low_gb > 1.3 * known.high_gb / known.low_gb
    # What all plans lack is the same for all.
    measured = [
        replace(LARGE, sequence=None, micro_batch=batch, memory_gb=20.0 + batch)
        for batch in (1, 2, 4)
    ]
    asked = replace(LARGE, sequence=None, micro_batch=3)
    (prediction,) = fit_fine_tuning_law(measured).predict([asked])
    assert prediction.high_gb / prediction.low_gb < 1.6


def test_a_layer_that_is_not_known_is_named(tmp_path: Path) -> None:
    path = tmp_path / "plans.csv"
    path.write_text("method,adapted\nlora,q_proj+qq_proj\n")
    with pytest.warns(UserWarning, match="qq_proj"):
        read_fine_tunings(path)
