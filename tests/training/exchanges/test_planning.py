"""An exchange is written, searched, checked, described and advised like any other dimension of a
plan.
"""

from __future__ import annotations

import random
from typing import Any

import pytest

from workbench.advisor.open_settings import choices_of
from workbench.advisor.plan_variants import alternatives, plan_with, variant_of
from workbench.experiment import Experiment
from workbench.experiment.plan import Hardware, Plan
from workbench.experiment.searched_fields import is_setting
from workbench.foundation.errors import ExperimentError
from workbench.sweeps.preflight import check
from workbench.training.exchanges import EXCHANGES
from workbench.training.planning.settings import resolve

FIELDS: dict[str, Any] = {
    "model": "mlp",
    "data": "digits",
    "objectives": [{"metric": "val_loss", "goal": "minimize"}],
}


def experiment(search: dict[str, Any] | None = None, **plan: Any) -> Experiment:
    return Experiment(**FIELDS, search=search or {}, plan=plan)


def plan_of(search: dict[str, Any] | None = None, **plan: Any) -> Plan:
    made = experiment(search, **plan)
    return resolve(made, made.search.sample(random.Random(0))).plan


def test_options_that_are_open_are_usual_and_those_that_do_not_apply_are_left_out() -> None:
    assert plan_of(workers=2).exchange == "allreduce"
    assert plan_of(workers=2).describe().endswith("fp32, ddp")
    plan = plan_of(workers=2, exchange="powersgd")
    assert (plan.exchange_rank, plan.exchange_compression) == (4, 0)
    assert plan.describe().endswith("ddp, powersgd exchange, rank 4")
    assert plan.to_json().keys() >= {"exchange", "exchange_rank"}
    assert "exchange_compression" not in plan.to_json()
    assert Plan.from_json(plan.to_json()) == plan
    assert (
        plan_of(workers=2, exchange="local")
        .describe()
        .endswith("ddp, local exchange, every 8 steps")
    )
    assert plan_of(workers=2, exchange="topk", exchange_compression=10).exchange_compression == 10
    assert (
        plan_of(workers=2, exchange="server").describe().endswith("ddp, server exchange, 1 server")
    )
    stale = plan_of(workers=2, exchange="server", staleness=3, servers=2)
    assert stale.describe().endswith("ddp, server exchange, up to 3 steps stale, 2 servers")
    assert Plan.from_json(stale.to_json()) == stale
    older = {
        key: value
        for key, value in plan.to_json().items()
        if key not in ("exchange", "exchange_rank")
    }
    assert Plan.from_json(older).exchange == "allreduce"


@pytest.mark.parametrize(
    ("fields", "field", "words"),
    [
        ({"workers": 2, "exchange": "bf16", "strategy": "fsdp"}, "plan.exchange", "ddp"),
        ({"workers": 1, "exchange": "bf16"}, "plan.workers", "2 or more"),
        ({"exchange": "bf16"}, "plan.workers", "2 or more"),
        ({"workers": 2, "exchange": "powersdg"}, "plan.exchange", "powersgd"),
        ({"workers": 2, "exchange_rank": 4}, "plan.exchange_rank", "powersgd"),
        ({"workers": 2, "exchange": "topk", "exchange_rank": 4}, "plan.exchange_rank", "powersgd"),
        (
            {"workers": 2, "exchange": "topk", "exchange_period": 4},
            "plan.exchange_period",
            "local, diloco",
        ),
        (
            {"workers": 2, "exchange": "server", "exchange_servers": 3},
            "plan.exchange_servers",
            "at most 2",
        ),
        (
            {"workers": 2, "exchange": "asynchronous", "exchange_staleness": 3},
            "plan.exchange_staleness",
            "server",
        ),
        (
            {"workers": 2, "exchange": "server", "exchange_staleness": -1},
            "plan.exchange_staleness",
            "0",
        ),
        (
            {"workers": 2, "exchange": "topk", "exchange_compression": 0},
            "plan.exchange_compression",
            "greater than 0",
        ),
        (
            {
                "search": {
                    "exchange": {"choices": ["topk", "powersgd"]},
                    "exchange_rank": {"choices": [1, 2]},
                },
                "workers": 2,
            },
            "search.exchange_rank",
            "when: {exchange: powersgd}",
        ),
    ],
)
def test_what_excludes_each_other_is_refused_with_the_field_and_what_is_allowed(
    fields: dict[str, Any], field: str, words: str
) -> None:
    with pytest.raises(ExperimentError) as caught:
        check(experiment(**fields), on_this_machine=False)
    assert caught.value.field == field
    assert words in str(caught.value)


def test_fp16_and_a_rate_that_follows_the_noise_need_exact_gradients() -> None:
    on_gpu = Hardware(has_gpu=True, has_bf16=True)
    for name in EXCHANGES.names():
        made = experiment(workers=2, exchange=name, precision="fp16")
        if name in ("powersgd", "onebit", "topk"):
            with pytest.raises(ExperimentError, match=r"plan\.exchange.*fp16"):
                resolve(made, {}, hardware=on_gpu)
        else:
            resolve(made, {}, hardware=on_gpu)
    noisy = Experiment(
        **FIELDS, training={"lr_rule": "adascale"}, plan={"workers": 2, "exchange": "onebit"}
    )
    with pytest.raises(ExperimentError, match=r"training\.lr_rule"):
        resolve(noisy, {})


def test_the_advisor_compares_only_the_exchanges_that_are_searched() -> None:
    def variants(
        search: dict[str, Any], *, full: bool = False, **plan: Any
    ) -> set[tuple[Any, ...]]:
        made, hardware = experiment(search, **plan), Hardware(has_full_nodes=full)
        choices = choices_of(made, num_train_samples=1000, max_workers=4, hardware=hardware)
        base = choices.usual_variant
        ways = [base, *alternatives(base, choices.options, "speed")]
        for variant in ways:
            assert choices.allows(variant)
            # What was measured belongs to the variant that was to be measured.
            assert variant_of(plan_with(variant, 2, 8)) == variant
        assert len(set(ways)) == len(ways)
        return {
            (way.get("exchange"), way.get("exchange_rank"), way.get("exchange_compression"))
            for way in ways
        }

    assert variants({}) == {("allreduce", 0, 0)}
    assert variants({}, exchange="powersgd") == {("powersgd", 4, 0)}
    # An exact one that sends less between nodes is compared where there is something to save.
    assert variants({}, full=True) == {("allreduce", 0, 0), ("hierarchical", 0, 0)}
    assert variants({}, full=True, exchange="allreduce") == {("allreduce", 0, 0)}
    exchanges = {"exchange": {"choices": ["allreduce", "topk", "powersgd"]}}
    assert variants(exchanges) == {("allreduce", 0, 0), ("topk", 0, 100), ("powersgd", 4, 0)}
    ranks = {"exchange_rank": {"choices": [1, 8], "when": {"exchange": "powersgd"}}}
    assert variants(exchanges | ranks) == {
        ("allreduce", 0, 0),
        ("topk", 0, 100),
        ("powersgd", 1, 0),
        ("powersgd", 8, 0),
    }


@pytest.mark.parametrize("choices", [[0, 2], [2, 0, 8], [2, 8], [0]])
def test_the_advisor_compares_every_bound_that_is_searched_also_none_at_all(
    choices: list[int],
) -> None:
    search = {"exchange_staleness": {"choices": choices}}
    made = experiment(search, workers=2, exchange="server")
    options = choices_of(made, num_train_samples=1000, max_workers=2, hardware=Hardware())
    base = options.usual_variant
    ways = [base, *alternatives(base, options.options, "speed")]
    assert sorted(each.get("exchange_staleness") or 0 for each in ways) == sorted(choices)
    assert all(options.allows(each) for each in ways)


def test_short_names_mean_the_plan_only_in_its_section() -> None:
    """Elsewhere they may be parameters of a model, such as the rank of an adapter."""
    given = experiment(
        {"rank": {"choices": [8, 16]}, "period": {"low": 1, "high": 4}},
        workers=2,
        exchange="powersgd",
        rank=2,
    )
    assert given.plan.exchange_rank == 2
    assert not any(is_setting(name) for name in given.search.root)
    with pytest.raises(
        ExperimentError, match=r"plan\.rank: it means the same as plan\.exchange_rank"
    ):
        experiment(rank=2, exchange_rank=4)
