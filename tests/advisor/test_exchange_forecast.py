"""Steps of every exchange follow from one sweep of the links.

Compared with steps that were measured.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

from tests.advisor.test_plans import make_experiment
from tests.builders.recorded_runs import append
from tests.services.shell import Shell
from workbench.advisor.exchange_forecast import (
    ExchangeForecast,
    forecast_exchanges,
    has_swept_links,
    worth_timing,
)
from workbench.experiment.plan import PartialPlan
from workbench.foundation.errors import RunError
from workbench.foundation.events import PlanMeasured, RunStateChanged
from workbench.hardware.performance.exchange_time import Link
from workbench.store.database import Store
from workbench.training.exchanges import EXCHANGES
from workbench.training.exchanges.capabilities import with_options
from workbench.training.exchanges.exchange import KnowsTraffic
from workbench.training.probes.link_sweep import SIZES_BYTES

RESULTS = Path(__file__).parents[1] / "benchmarks" / "results" / "exchanges.json"
MEASURED_S: dict[str, dict[str, float]] = json.loads(RESULTS.read_text())["seconds_per_step"]
SHAPES = [(1024, 256), (1024,), (1024, 1024), (1024,), (1024, 1024), (1024,), (768, 1024), (768,)]
"""Those of the model of that benchmark."""
PERIOD = 8
COMPUTES_S = MEASURED_S["no limit"]["local"]
"""Replicas that agree every eighth step on a link without a limit hardly do anything but
compute.
"""
NAMES = [name for name in EXCHANGES.names() if name != "hierarchical"]
"""Those that were measured, where each node held one worker."""


def exchanges() -> dict[str, dict[str, Any]]:
    """What each sends, and what it computes: what a step took longer on a link without a limit.

    There the usual exchange only adds and copies, which another one that hides behind the backward
    pass does, too, with as many bytes as it sends.
    """
    found: dict[str, dict[str, Any]] = {}
    unlimited_s = MEASURED_S["no limit"]
    moves_s_per_byte = (unlimited_s["allreduce"] - COMPUTES_S) / (4 * sum(map(math.prod, SHAPES)))
    for name in NAMES:
        options = {"exchange_period": PERIOD} if name in ("local", "diloco") else {}
        named = PartialPlan.of(workers=2, micro_batch=1, accumulation=1, exchange=name, **options)
        plan = with_options(named).complete()
        assert plan is not None
        exchange = EXCHANGES.load(name)(plan)
        assert isinstance(exchange, KnowsTraffic)
        traffic = exchange.traffic(SHAPES)
        longer_s = unlimited_s[name] - COMPUTES_S
        if traffic.is_overlapped:
            longer_s -= moves_s_per_byte * traffic.num_bytes
        found[name] = {
            **vars(traffic),
            "is_exact": exchange.capabilities.is_exact,
            "compute_s": max(0.0, longer_s) * traffic.period,
        }
    return found


def measured(link: str, *, is_swept: bool = True, **plan: Any) -> PlanMeasured:
    bytes_per_s = {"1 Gbit/s": 1e9 / 8, "200 Mbit/s": 200e6 / 8}[link]
    true = Link(2e-4, 1.0 / bytes_per_s)
    step_s = MEASURED_S[link][plan.get("exchange", "allreduce")]
    stored = {
        "workers": 2,
        "micro_batch": 64,
        "accumulation": 1,
        "precision": "fp32",
        "strategy": "ddp",
        **plan,
    }
    return PlanMeasured(
        setting="s",
        plan=stored,
        workers_per_node=[1, 1],
        step_time_s=step_s,
        num_train_samples=1000,
        parts_s={"communication": step_s - COMPUTES_S},
        all_reduce_s=(
            {str(size): true.seconds("reduce", size, 2) for size in SIZES_BYTES} if is_swept else {}
        ),
        exchanges=exchanges() if is_swept else {},
    )


@pytest.mark.parametrize("link", ["1 Gbit/s", "200 Mbit/s"])
def test_steps_are_predicted_as_they_were_measured_on_limited_links(link: str) -> None:
    forecasts = {each.exchange: each for each in forecast_exchanges([measured(link)])}
    assert set(forecasts) == set(NAMES)
    for name, each in forecasts.items():
        took_s = MEASURED_S[link][name]
        assert each.step_time_s.value == pytest.approx(took_s, rel=0.2), name
        step = each.step_time_s
        assert each.is_measured == (name == "allreduce")
        assert each.is_measured or COMPUTES_S <= step.low < step.value < step.high
    fastest = min(forecasts.values(), key=lambda each: each.step_time_s.value).exchange
    best_s = min(MEASURED_S[link][name] for name in NAMES)
    assert MEASURED_S[link][fastest] <= 1.1 * best_s
    for slower in ("allreduce", "server"):
        for faster in ("powersgd", "onebit", "topk", "local"):
            assert forecasts[faster].step_time_s.value < forecasts[slower].step_time_s.value


def test_what_was_timed_replaces_its_prediction_and_the_fastest_comes_first() -> None:
    events = [measured("200 Mbit/s"), measured("200 Mbit/s", is_swept=False, exchange="bf16")]
    forecasts = forecast_exchanges(events)
    assert [forecast.step_time_s.value for forecast in forecasts] == sorted(
        each.step_time_s.value for each in forecasts
    )
    by_name: dict[str, ExchangeForecast] = {forecast.exchange: forecast for forecast in forecasts}
    assert {name for name, forecast in by_name.items() if forecast.is_measured} == {
        "allreduce",
        "bf16",
    }
    assert by_name["bf16"].step_time_s.value == MEASURED_S["200 Mbit/s"]["bf16"]
    assert by_name["powersgd"].plan.exchange_rank == 4
    assert {name for name, forecast in by_name.items() if forecast.is_exact} == {"allreduce"}


def test_a_run_has_swept_links_only_where_an_all_reduce_was_timed() -> None:
    assert has_swept_links([measured("1 Gbit/s")])
    assert not has_swept_links([measured("1 Gbit/s", is_swept=False)])


def test_predictions_are_no_more_certain_than_the_step_that_they_rest_on() -> None:
    for spread_s in (0.03, 3.0):  # also of a step of fewer seconds
        event = measured("1 Gbit/s").model_copy(update={"step_time_spread_s": spread_s})
        for each in forecast_exchanges([event]):
            step = each.step_time_s
            assert step.high >= step.value + spread_s
            assert 0.0 < step.low <= step.value / (1.0 + spread_s / step.value)


def test_waiting_for_a_slow_worker_speaks_for_no_exchange() -> None:
    quiet = measured("1 Gbit/s")
    expected = {each.exchange: each.step_time_s.value for each in forecast_exchanges([quiet])}
    late_s, step_s = 0.5, quiet.step_time_s or 0.0
    disturbed = quiet.model_copy(
        update={
            "step_time_s": step_s + late_s,
            "straggling_s": late_s,
            "parts_s": {"communication": quiet.parts_s["communication"] + late_s},
        }
    )
    forecasts = {
        each.exchange: each.step_time_s.value - late_s for each in forecast_exchanges([disturbed])
    }
    # What travels while the next step is computed hides behind a longer one.
    assert forecasts.pop("asynchronous") < expected.pop("asynchronous")
    assert forecasts == pytest.approx(expected)


def test_values_that_travel_beside_the_next_step_take_time_only_where_it_is_shorter() -> None:
    (forecast,) = (
        each
        for each in forecast_exchanges([measured("200 Mbit/s")])
        if each.exchange == "asynchronous"
    )
    beside = exchanges()["asynchronous"]
    travels_s = Link(2e-4, 8 / 200e6).seconds("serve", beside["num_bytes"], 2)
    assert forecast.step_time_s.value == pytest.approx(travels_s + beside["compute_s"], rel=0.05)


def test_only_exchanges_that_may_be_the_fastest_are_worth_timing() -> None:
    every = [*NAMES, "of another package"]
    slow, fast = measured("200 Mbit/s"), measured("1 Gbit/s")
    always = {"allreduce", "of another package"}
    ranked = [each.exchange for each in forecast_exchanges([slow]) if not each.is_exact]
    assert worth_timing([slow], every) == always | set(ranked[:3])
    assert worth_timing([slow], ["allreduce", "powersgd", "server"]) == {"allreduce", "powersgd"}
    no_link = {str(size): 1e-5 for size in SIZES_BYTES}
    quick = fast.model_copy(
        update={
            "all_reduce_s": no_link,
            "step_time_s": COMPUTES_S,
            "parts_s": {"communication": 0.0},
        }
    )
    compressed = ["bf16", "powersgd", "onebit", "topk", "server"]
    assert worth_timing([quick], ["allreduce", *compressed]) == {"allreduce"}
    assert worth_timing([], every) == set(every), "nothing is known"


def test_of_several_sweeps_the_undisturbed_times_count() -> None:
    quiet = measured("200 Mbit/s")
    disturbed = quiet.model_copy(
        update={"all_reduce_s": {size: 3.0 * took_s for size, took_s in quiet.all_reduce_s.items()}}
    )
    assert forecast_exchanges([quiet, disturbed]) == forecast_exchanges([quiet])


def test_agreeing_by_way_of_nodes_is_predicted_where_their_links_were_swept_apart() -> None:
    inside, between = Link(1e-5, 1e-10), Link(2e-4, 8e-9)
    num_bytes, computes_s = 4.0 * 10**6, 0.02
    traffic = {
        "num_bytes": num_bytes,
        "num_rounds": 1,
        "period": 1,
        "num_servers": 1,
        "compute_s": 0.0,
        "is_exact": True,
    }
    flat_s = between.seconds("reduce", num_bytes, 4)
    swept = measured("1 Gbit/s").model_copy(
        update={
            "plan": {**measured("1 Gbit/s").plan, "workers": 4},
            "workers_per_node": [2, 2],
            "step_time_s": computes_s + flat_s,
            "parts_s": {"communication": flat_s},
            "all_reduce_s": {str(size): between.seconds("reduce", size, 4) for size in SIZES_BYTES},
            "inside_nodes_s": {
                str(size): inside.seconds("reduce", size, 2) for size in SIZES_BYTES
            },
            "between_nodes_s": {
                str(size): between.seconds("reduce", size, 2) for size in SIZES_BYTES
            },
            "exchanges": {
                "allreduce": {**traffic, "way": "reduce", "is_overlapped": True},
                "hierarchical": {**traffic, "way": "nodes", "is_overlapped": False},
            },
        }
    )
    fastest, other = forecast_exchanges([swept])
    expected_s = computes_s + 4 * (1e-5 + num_bytes / 2 * 1e-10) + 2 * (2e-4 + num_bytes / 2 * 8e-9)
    assert (fastest.exchange, other.exchange) == ("hierarchical", "allreduce")
    assert fastest.step_time_s.value == pytest.approx(expected_s, rel=1e-3)
    assert fastest.step_time_s.low < fastest.step_time_s.value < fastest.step_time_s.high
    assert fastest.is_exact
    assert not fastest.is_measured
    alone = swept.model_copy(update={"inside_nodes_s": {}, "between_nodes_s": {}})
    assert [each.exchange for each in forecast_exchanges([alone])] == ["allreduce"]


def test_without_a_sweep_it_is_stated_what_to_run() -> None:
    with pytest.raises(RunError, match=r"no links between workers were measured.*workbench advise"):
        forecast_exchanges([measured("1 Gbit/s", is_swept=False)])
    with pytest.raises(RunError, match="no step of ddp was timed on 2 workers"):
        forecast_exchanges([measured("1 Gbit/s", strategy="fsdp")])


def test_a_run_shows_the_exchanges(
    tmp_path: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WORKBENCH_STORE", str(tmp_path / "store.sqlite"))
    shell = Shell(tmp_path, capsys)
    with Store.open(None) as store:
        run_id = store.create_run(make_experiment())
        append(store, run_id, [measured("200 Mbit/s"), RunStateChanged(state="complete")])
    answer = shell.json("what-if", "exchange", run_id)["exchanges"]
    assert {row["exchange"] for row in answer} == set(NAMES)
    assert answer[0]["step_time_s"] < 0.1 < 0.5 < answer[-1]["step_time_s"]
    code, out, err = shell("what-if", "exchange", run_id)
    assert code == 0, err
    assert [
        word for word in ("powersgd", "approximate", "predicted", "measured") if word not in out
    ] == []
