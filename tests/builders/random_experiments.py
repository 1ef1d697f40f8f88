"""Random experiments, and what a person might do to one."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

from hypothesis import strategies as st

from tests.experiment.test_space import spaces
from workbench.experiment import Experiment
from workbench.experiment.pruners import PRUNERS, SHARED_SETTINGS, pruners_for_turns
from workbench.experiment.samplers import SAMPLERS
from workbench.foundation.errors import ExperimentError

_TURNS = ("turns", "length")  # only together, and only for trainings of steps
_LR = {"low": 1e-4, "high": 0.1, "log": True}
_DEPTH = {"low": 1, "high": 3}


names = st.text(max_size=8).map(
    lambda text: "n" + "".join(each for each in text if each.isprintable() and each not in "/\\")
)


_SECONDS = st.sampled_from(["90s", 0.5, 1e9])
_METRICS = st.sampled_from(["val_loss", "val_accuracy", 'a metric: of "mine"'])
_NUMBERS = st.sampled_from([-1.5, 0.0, 3.0, 1e-9])
# Those of populations check their options with the rest of the experiment.
_FREE_SAMPLERS = [name for name in SAMPLERS.names() if not SAMPLERS.load(name).is_population]
_JSON = st.sampled_from([{}, {"n": 3}, {"a": [1, None, "x"], "b": {"c": False}}])

SETTINGS: dict[str, dict[str, st.SearchStrategy[Any]]] = {
    "training": {
        "epochs": st.integers(5, 30),
        "samples": st.sampled_from([1.0, 0.25]),
        "tokens": st.sampled_from([None, 5000, "20M"]),
        "global_batch": st.sampled_from(["auto", 1, 96]),
        "reference_batch": st.integers(1, 512),
        "lr": st.sampled_from(["auto", 0.01]),
        "lr_rule": st.sampled_from(["auto", "linear", "adascale"]),
        "optimizer": st.just("sgd"),
        "momentum": st.sampled_from([0.0, 0.5]),
        "weight_decay": st.sampled_from([0.0, 1e-4]),
        "optimizer_options": _JSON,
        "parameter_groups": st.sampled_from(
            [
                {},
                {"bias|norm": {"weight_decay": 0.0}, "^body": {"frozen": True}},
                {"x": {"lr_factor": 0.5}},
            ]
        ),
        "schedule": st.sampled_from(["constant", "one_cycle", "plateau", "my.rates:Slow"]),
        "schedule_options": _JSON,
        "weights": st.sampled_from(
            [None, "net.pt", {"path": "a/b", "strict": False, "skip": ["^head"]}]
        ),
        "initialisation": st.sampled_from(["default", "he", "orthogonal"]),
        "augment": st.sampled_from([None, {"mixup": 0.2}, {"noise": 0.1, "crop": 0.25}]),
        "adapter": st.sampled_from([None, {"method": "lora", "rank": 4, "targets": ["q"]}]),
        "base_weights": st.sampled_from(["fp32", "bf16", "nf4"]),
        "warmup_epochs": st.sampled_from(["auto", 0, 2.5]),
        "private": st.sampled_from(
            [None, {"epsilon": 8.0}, {"epsilon": 1.0, "delta": 1e-6, "max_norm": 0.5}]
        ),
        "gradient_hook": st.sampled_from([None, "my.hooks:centralize"]),
        "gradient_hook_options": _JSON,
        "clip_norm": st.sampled_from([None, 0.5]),
        "average_decay": st.sampled_from([None, 0.99]),
        "average_start": st.sampled_from([None, 0.75]),
        "average_lr": st.sampled_from([None, 0.05]),
        "find_unused_parameters": st.sampled_from(["auto", True, False]),
        "evaluate_every": st.integers(1, 3),
        "evaluate_after": st.none() | _SECONDS,
        "checkpoint_every": st.integers(1, 3),
        "checkpoint_after": st.none() | _SECONDS,
        "measure_noise": st.booleans(),
    },
    "plan": {
        "workers": st.sampled_from(["auto", 1, 4]),
        "micro_batch": st.sampled_from(["auto", 8]),
        "accumulation": st.sampled_from(["auto", 2]),
        "precision": st.sampled_from(["auto", "fp32", "bf16"]),
        "recompute": st.sampled_from(["auto", "none", "blocks"]),
        "strategy": st.sampled_from(["auto", "ddp", "zero1", "fsdp"]),
        "compile": st.sampled_from(["auto", "none", "default", "cuda_graphs"]),
        "memory_format": st.sampled_from(["auto", "contiguous", "channels_last"]),
        "loaders": st.sampled_from(["auto", 0, 2]),
        "stages": st.sampled_from(["auto", 1, 2]),
        "tensor": st.sampled_from(["auto", 1, 2]),
        "bucket": st.sampled_from(["auto", "default", "50MB"]),
        "pipeline_schedule": st.sampled_from(["auto", "1f1b", "gpipe", "zero_bubble"]),
        "exchange": st.sampled_from(["auto", "allreduce", "powersgd"]),
        "exchange_rank": st.sampled_from(["auto", 2]),
        "exchange_compression": st.sampled_from(["auto", 10]),
        "exchange_period": st.sampled_from(["auto", 4]),
        "exchange_staleness": st.sampled_from(["auto", 0, 2]),
        "exchange_servers": st.sampled_from(["auto", 2]),
        "shard": st.sampled_from(["auto", 2]),
    },
    "budget": {
        "trials": st.none() | st.integers(1, 99),
        "time": st.none() | _SECONDS,
        "gpu_time": st.none() | _SECONDS,
        "energy": st.none() | st.sampled_from([12.5, "2kWh"]),
        "price": st.sampled_from(["2.50 EUR/h", "$1.80/GPU-h"]),
        "money": st.none() | st.sampled_from([12.5, "20"]),
        "plateau": st.none() | st.integers(1, 9),
        "gain": st.none()
        | st.fixed_dictionaries(
            {
                "at_least": st.sampled_from([0.001, 2.5]),
                "per": st.sampled_from(["30m", "1kWh"]),
            }
        ),
    },
    "early_stop": {
        "pruner": st.sampled_from(PRUNERS.names()),
        "unit": st.sampled_from([None, "epochs"]),
        "grace": st.integers(1, 5),
        "reduction_factor": st.integers(2, 5),
        "percentile": st.sampled_from([12.5, 100.0]),
        "startup_trials": st.integers(0, 9),
        "patience": st.integers(1, 9),
        "p_threshold": st.sampled_from([0.01, 0.5]),
        "turns": st.integers(2, 4),
        "length": st.sampled_from([60, 600]),
        "options": st.just({}),  # those of pruners that other packages register
    },
    "confirm": {
        "best": st.sampled_from([None, 3]),
        "trainings": st.integers(2, 9),
        "certainty": st.sampled_from([0.8, 0.99]),
    },
    "sampler": {"name": st.sampled_from(_FREE_SAMPLERS), "options": _JSON},
    "resources": {
        "concurrency": st.sampled_from(["auto", 3]),
        "autoscaling": st.booleans(),
        "cpus_per_worker": st.integers(1, 4),
        "gpus_per_worker": st.sampled_from(["auto", 0, 0.5, 1]),
        "per_gpu": st.sampled_from(["auto", 1, 3]),
        "placement": st.sampled_from(["auto", "pack", "spread"]),
        "priority": st.integers(-3, 3),
        "max_retries": st.integers(0, 3),
        "keep_best": st.sampled_from(["all", 1]),
        "max_checkpoints_size": st.sampled_from([None, "10GB", 1]),
        "trial_time": st.none() | _SECONDS,
        "advice": st.sampled_from(["auto", "always", "never"]),
        "worker": st.sampled_from(["warm", "fresh"]),
        "elastic": st.booleans(),
        "stop_grace": _SECONDS,
        "max_log_size": st.sampled_from(["1MB", 10]),
    },
}
"""By section, every setting with values that it may have."""

FEDERATED: dict[str, st.SearchStrategy[Any]] = {
    "clients": st.integers(1, 100),
    "fraction": st.sampled_from([0.05, 1.0]),
    "local_epochs": st.integers(1, 5),
    "partition": st.sampled_from(["iid", {"dirichlet": 0.3}, {"labels": 2}]),
    "server": st.just("fedyogi"),
    "server_lr": st.sampled_from(["auto", 0.1]),
    "server_momentum": st.sampled_from([0.0, 0.5]),
    "server_second_moment": st.sampled_from([0.9, 0.999]),
    "server_tau": st.sampled_from([1e-9, 0.1]),
    "proximal": st.sampled_from([0.0, 0.1]),
    "aggregation": st.just("mean"),
    "trim": st.just(0.1),
    "num_bad": st.just(1),
    "failures": st.sampled_from([0.0, 0.5]),
    "stragglers": st.sampled_from([0.0, 0.5]),
    "timeout": st.sampled_from([None, 30.0]),
    "target": st.sampled_from([None, {"metric": "val_accuracy", "at_least": 0.9}]),
    "secure": st.booleans(),
}
"""Every setting of a federation with values that it may have.

Those of one server and one aggregation.
"""
_NOT_PRIVATE = {"clip_norm", "gradient_hook", "gradient_hook_options", "augment", "lr_rule"}
_NOT_FEDERATED = {
    "training": {
        "private",
        "lr_rule",
        "average_decay",
        "average_start",
        "average_lr",
        "find_unused_parameters",
        "evaluate_after",
        "checkpoint_after",
        "measure_noise",
        "augment",
        "samples",
        "tokens",
    },
    "plan": {
        "strategy",
        "compile",
        "memory_format",
        "loaders",
        "stages",
        "tensor",
        "exchange",
        "exchange_rank",
        "exchange_compression",
        "exchange_period",
        "exchange_staleness",
        "exchange_servers",
        "shard",
    },
    "resources": {"advice", "elastic"},
}

_TOLD = {
    "to": st.none() | st.lists(st.sampled_from(["team", "mail"]), max_size=2, unique=True),
    "at_most": st.integers(1, 50),
}
RULES: dict[str, dict[str, st.SearchStrategy[Any]]] = {
    "target_reached": _TOLD,
    "run_ended": {
        **_TOLD,
        "states": st.lists(st.sampled_from(["failed", "lost"]), min_size=1, unique=True),
    },
    "diverged": _TOLD,
    "no_progress": {**_TOLD, "within": _SECONDS},
    "queue": {**_TOLD, "waiting": _SECONDS},
    "gpu_lost": _TOLD,
    "temperature": {**_TOLD, "above": st.sampled_from([70.5, 99.0])},
    "disk": {**_TOLD, "above": st.sampled_from([0.5, 1.0])},
    "log": {
        **_TOLD,
        "pattern": st.sampled_from(["NCCL WARN.*timeout", 'it\'s "over"\\b', "é: #|x"]),
        "action": st.sampled_from(["notify", "retry", "stop", "exclude_node"]),
    },
}
"""By kind of alert, every setting beside the kind."""


def _section(name: str, without: Iterable[str] = ()) -> st.SearchStrategy[dict[str, Any]]:
    optional = {key: values for key, values in SETTINGS[name].items() if key not in without}
    return st.fixed_dictionaries({}, optional=optional)


@st.composite
def _rules(draw: st.DrawFn) -> dict[str, Any]:
    kind = draw(st.sampled_from(sorted(RULES)))
    needed = {"pattern": RULES[kind]["pattern"]} if kind == "log" else {}
    optional = {key: values for key, values in RULES[kind].items() if key not in needed}
    return {"on": kind, **draw(st.fixed_dictionaries(needed, optional=optional))}


@st.composite
def _early_stops(draw: st.DrawFn) -> dict[str, Any]:
    pruner = draw(SETTINGS["early_stop"]["pruner"])
    unread = [name for name in SHARED_SETTINGS if name not in PRUNERS.load(pruner).reads]
    return {**draw(_section("early_stop", [*unread, *_TURNS, "pruner"])), "pruner": pruner}


@st.composite
def _turns(draw: st.DrawFn, fields: dict[str, Any]) -> dict[str, int]:
    """Draw turns for a training of steps, unless something else excludes them."""
    excluded = (
        fields["early_stop"].get("pruner", "none") not in pruners_for_turns()
        or fields["resources"].get("elastic", False)
        or fields["budget"].get("trials") is None
    )
    if excluded or draw(st.booleans()):
        return {}
    return {name: draw(SETTINGS["early_stop"][name]) for name in _TURNS}


@st.composite
def _constraints(draw: st.DrawFn) -> dict[str, Any]:
    return {
        "metric": draw(_METRICS),
        draw(st.sampled_from(["at_most", "at_least"])): draw(_NUMBERS),
    }


@st.composite
def _budgets(draw: st.DrawFn) -> dict[str, Any]:
    drawn = draw(_section("budget", ["price"]))
    return (
        drawn
        if drawn.get("money") is None
        else {**drawn, "price": draw(SETTINGS["budget"]["price"])}
    )


@st.composite
def _confirmations(draw: st.DrawFn) -> dict[str, Any]:
    best = draw(SETTINGS["confirm"]["best"])
    return (
        {}
        if best is None
        else {**draw(_section("confirm", ["trainings"])), "best": best, "trainings": 4}
    )


_OBJECTIVES = st.fixed_dictionaries(
    {"metric": _METRICS, "goal": st.sampled_from(["minimize", "maximize"])},
    optional={"target": st.none() | _NUMBERS},
)


@st.composite
def _federations(draw: st.DrawFn) -> dict[str, Any]:
    needed = {name: FEDERATED[name] for name in ("clients", "server")}
    # What another aggregation reads is refused.
    left_out = {*needed, "aggregation", "trim", "num_bad"}
    optional = {name: drawn for name, drawn in FEDERATED.items() if name not in left_out}
    return {"federated": draw(st.fixed_dictionaries(needed, optional=optional))}


@st.composite
def experiments(draw: st.DrawFn) -> Experiment:
    """Draw an experiment with a model and data, or with a train function or a command and any
    space.
    """
    fields: dict[str, Any] = {
        "name": draw(names),
        "seed": draw(st.integers(0, 2**32 - 1)),
        "repeats": draw(st.integers(1, 3)),
        "report_to": draw(
            st.lists(st.sampled_from(["tensorboard", "mlflow", "wandb"]), unique=True)
        ),
        "objectives": draw(
            st.lists(_OBJECTIVES, min_size=1, max_size=2, unique_by=lambda each: each["metric"])
        ),
        "goals": draw(
            st.dictionaries(
                st.sampled_from(["side", "a b"]),
                st.sampled_from(["maximize", "minimize"]),
                max_size=2,
            )
        ),
        "constraints": draw(
            st.lists(_constraints(), max_size=2, unique_by=lambda limit: limit["metric"])
        ),
        "budget": draw(_budgets()),
        "alerts": draw(st.lists(_rules(), max_size=2)),
    }
    if len(fields["objectives"]) == 1:
        fields |= {"early_stop": draw(_early_stops()), "sampler": draw(_section("sampler"))}
        if (fields["budget"].get("trials") or 0) >= 3:
            fields["confirm"] = draw(_confirmations())
    else:
        fields["budget"].pop("gain", None)  # the gain of several objectives is refused
    kind = draw(st.sampled_from(["model", "function", "command"]))
    resources = draw(_section("resources"))
    fields["resources"] = {
        name: value
        for name, value in resources.items()
        if kind == "command" or name not in ("stop_grace", "max_log_size")
    }
    if kind == "command":
        fields |= {
            "command": draw(
                st.sampled_from(["t {args}", "t 'a b' {folder} {args:json}", ["t", "{args}"]])
            )
        }
        fields |= {
            "metrics": draw(st.sampled_from([[], {"from": "wandb"}, {"csv": "{folder}/m.csv"}]))
        }
        fields |= {"step": draw(st.sampled_from([None, "epoch"])), "search": draw(spaces())}
        fields |= {"workdir": draw(st.sampled_from([None, "fresh", {"link": {"d": "a/b"}}]))}
        fields["early_stop"] = {**fields.get("early_stop", {}), "unit": None}
        fields["early_stop"] |= draw(_turns(fields))
    elif kind == "function":
        fields |= {
            "train": draw(st.sampled_from(["json:dumps", {"name": "m:f", "text": "a'b\"c"}]))
        }
        fields |= {"search": draw(spaces()), "plan": draw(st.sampled_from([{}, {"workers": 2}]))}
    else:
        search = draw(
            st.sampled_from([{}, {"lr": _LR}, {"lr": _LR, "num_layers": {"low": 1, "high": 3}}])
        )
        training = draw(_section("training", search))
        if training.get("gradient_hook") is None:
            training.pop("gradient_hook_options", None)
        fields |= {
            "model": draw(st.sampled_from(["mlp", "convnet", {"name": "mlp", "dropout": 0.5}])),
            "data": draw(st.sampled_from(["digits", {"name": "text", "context": 8}])),
            "loss": draw(st.sampled_from([None, "cross_entropy", {"name": "m:loss", "k": 1}])),
            "metrics": draw(
                st.sampled_from([[], ["accuracy"], ["accuracy", {"name": "m:f", "k": 3}]])
            ),
            "training": training | ({"optimizer": "sgd"} if "momentum" in training else {}),
            "plan": draw(_section("plan")),
            "search": search,
        }
        if training.get("private") is not None:
            fields["plan"] = {}
            fields["training"] = {
                key: value for key, value in fields["training"].items() if key not in _NOT_PRIVATE
            }
        if draw(st.integers(0, 3)) == 0:
            fields |= draw(_federations())
            for section, unread in _NOT_FEDERATED.items():
                fields[section] = {
                    key: value for key, value in fields[section].items() if key not in unread
                }
    try:
        return Experiment(**fields)
    except ExperimentError:  # what a random space may be and an experiment must not
        return Experiment(**{**fields, "search": {}})


_PATHS = [
    *(
        "name",
        "seed",
        "loss",
        "train",
        "model",
        "model.hidden_width",
        "model.options",
        "data",
        "data.path",
    ),
    *(
        "training.epochs",
        "training",
        "budget.time",
        "resources.max_checkpoints_size",
        "sampler.name",
        "sampler",
    ),
    *(
        "search",
        "search.lr",
        "search.lr.low",
        "search.lr.high",
        "search.lr.when",
        "search.p0.choices",
    ),
    *(
        "objectives",
        "objectives.0",
        "objectives.0.metric",
        "objectives.7",
        "constraints",
        "metrics.0",
        "metrics",
        "alerts",
        "alerts.0",
        "alerts.0.on",
    ),
]
_KEYS = [
    "low",
    "high",
    "step",
    "log",
    "type",
    "choices",
    "value",
    "when",
    "name",
    "metric",
    "on",
    "é",
]
paths = st.sampled_from(_PATHS) | st.text(alphabet="ab.0é \n", max_size=6)
values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats()
    | st.sampled_from(
        ["auto", "10m", "1e5", "convnet", "val_loss", "MyNet", math.inf, 1.7e308, -1.7e308]
    )
    | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(_KEYS),
            inner,
            max_size=4,
        )
    ),
    max_leaves=8,
)
