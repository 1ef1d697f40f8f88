from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.builders.examples import examples
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


@pytest.mark.parametrize("unit", [1000.0, 953.7, 1e6, 1e9], ids=["MB", "MiB", "kB", "bytes"])
def test_peaks_in_another_unit_are_answered_in_it_and_still_fit_their_gpu(unit: float) -> None:
    plans = [replace(LARGE, micro_batch=batch, gpu_memory_gb=40.0) for batch in (1, 2)]
    in_gb = [replace(plan, memory_gb=1.1 * memory_of(plan)) for plan in plans]
    in_unit = [replace(plan, memory_gb=1.1 * unit * memory_of(plan)) for plan in plans]
    asked = [replace(LARGE, micro_batch=3, gpu_memory_gb=gpu) for gpu in (24.0, 80.0)]
    expected = fit_fine_tuning_law(in_gb).predict(asked)
    answers = fit_fine_tuning_law(in_unit).predict(asked)
    for answer, usual in zip(answers, expected, strict=True):
        assert answer.memory_gb == pytest.approx(unit * usual.memory_gb, rel=0.03)
        assert answer.low_gb == pytest.approx(unit * usual.low_gb, rel=0.03)
    assert [answer.fits for answer in answers] == [False, True]
    # The memory of the GPU may have the same unit.
    asked = [replace(LARGE, micro_batch=3, gpu_memory_gb=unit * gpu) for gpu in (24.0, 80.0)]
    assert [answer.fits for answer in fit_fine_tuning_law(in_unit).predict(asked)] == [False, True]


def test_plans_without_a_method_are_what_their_columns_say(tmp_path: Path) -> None:
    path = tmp_path / "plans.csv"
    path.write_text(
        "parameters_b,rank,adapted,weights\n8,16,q_proj,bf16\n8,16,q_proj,nf4\n8,,,\n8,,,int8\n"
    )
    with pytest.warns(UserWarning, match="no column method"):
        plans = read_fine_tunings(path)
    assert [plan.method for plan in plans] == ["lora", "qlora", "full", "qlora"]


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


@examples(40)
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


_SIZES: dict[str, st.SearchStrategy[float | None]] = {
    "parameters_b": st.floats(1e-3, 1e5),
    "hidden": st.none() | st.floats(8, 1e5),
    "layers": st.none() | st.floats(1, 1e3),
    "feed_forward": st.none() | st.floats(8, 1e6),
    "vocabulary": st.none() | st.floats(100, 1e6),
    "active_b": st.none() | st.floats(1e-3, 1e5),
}


@examples(60)
@given(
    st.fixed_dictionaries(_SIZES),
    st.sampled_from(["full", "lora", "qlora", "loha", "ia3", "waveft", "prompt_tuning"]),
    st.sampled_from([None, "bf16", "fp32", "int8", "nf4"]),
    st.floats(0.25, 4.0),
)
def test_no_plan_needs_less_than_its_weights_and_more_work_never_less(
    sizes: dict[str, Any], method: str, weights: str | None, unit: float
) -> None:
    plan = replace(LARGE, **sizes, method=method, weights=weights)
    own = fit_fine_tuning_law([replace(LARGE, memory_gb=22.0 * unit)])
    larger = [
        replace(plan, **{name: 3 * getattr(plan, name)})
        for name in ("sequence", "micro_batch", "rank")
    ]
    for law in (shipped_law(), own):
        prediction, *others = law.predict([plan, *larger])
        assert 0 < prediction.low_gb <= prediction.memory_gb <= prediction.high_gb < math.inf
        assert min(other.memory_gb for other in others) >= prediction.memory_gb
    default = "nf4" if method == "qlora" else "bf16"
    num_bytes = {"fp32": 4, "bf16": 2, "int8": 1, "nf4": 0.5}[weights or default]
    (prediction,) = shipped_law().predict([plan])
    assert prediction.low_gb >= num_bytes * plan.parameters_b  # pyright: ignore


def test_experts_cost_memory_but_no_time() -> None:
    dense = replace(FineTuningPlan(parameters_b=47.0, sequence=1024, micro_batch=1), method="lora")
    of_experts = replace(dense, active_b=13.0)
    measured = [replace(LARGE, memory_gb=22.0, seconds_per_step=1.0)]
    slow, fast = fit_fine_tuning_law(measured).predict([dense, of_experts])
    assert slow.seconds_per_step is not None
    assert fast.seconds_per_step == pytest.approx(slow.seconds_per_step * 13 / 47, rel=0.35)
    assert 94.0 < fast.memory_gb < slow.memory_gb


@pytest.mark.parametrize(
    ("row", "problem"),
    [
        (",7,1024", "column method"),
        ("lora,7e9,1024", "from 1e-09 to 100,000 billion parameters"),
        ("lora,1e300,1024", "100,000 billion parameters"),
        ("lora,7,1e300", "column sequence"),
        ("lora,7,0", "column sequence"),
        ("lora,inf,1024", "column parameters_b"),
    ],
)
def test_a_cell_that_no_plan_can_have_is_refused(row: str, problem: str, tmp_path: Path) -> None:
    path = tmp_path / "plans.csv"
    path.write_text(f"method,parameters_b,sequence\n{row}\n")
    with pytest.raises(DataError, match=problem):
        read_fine_tunings(path)


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
