"""Random experiments, and what a person might do to one."""

from __future__ import annotations

import math
from typing import Any

from hypothesis import strategies as st

from tests.test_space import spaces
from workbench.errors import ExperimentError
from workbench.experiment import Experiment

_LR = {"low": 1e-4, "high": 0.1, "log": True}
_DEPTH = {"low": 1, "high": 3}


names = st.text(max_size=8).map(
    lambda text: "n" + "".join(each for each in text if each.isprintable() and each not in "/\\")
)


@st.composite
def experiments(draw: st.DrawFn) -> Experiment:
    """Draw an experiment with a model and data, or with a train function and any space."""
    fields: dict[str, Any] = {
        "name": draw(names),
        "seed": draw(st.integers(0, 2**32 - 1)),
        "repeats": draw(st.integers(1, 3)),
        "budget": {
            "trials": draw(st.integers(1, 99)),
            "time": draw(st.sampled_from([None, "90s", 0.5, 1e9])),
        },
        "early_stop": draw(st.sampled_from([{}, {"pruner": "asha", "grace": 2}, {"pruner": "median"}])),
        "objectives": [{"metric": "val_loss", "goal": draw(st.sampled_from(["minimize", "maximize"]))}],
    }
    if draw(st.booleans()):
        fields |= {"train": draw(st.sampled_from(["json:dumps", {"name": "m:f", "text": "a'b\"c"}]))}
        fields |= {"search": draw(spaces())}
    else:
        fields |= {
            "model": draw(st.sampled_from(["mlp", "convnet", {"name": "mlp", "dropout": 0.5}])),
            "data": draw(st.sampled_from(["digits", {"name": "text", "context": 8}])),
            "metrics": draw(st.sampled_from([[], ["accuracy"], ["accuracy", {"name": "m:f", "k": 3}]])),
            "training": {"epochs": draw(st.integers(1, 30)), "clip_norm": draw(st.sampled_from([None, 0.5]))},
            "plan": draw(st.sampled_from([{}, {"workers": 1, "precision": "fp32"}])),
            "search": draw(
                st.sampled_from([{}, {"lr": _LR}, {"lr": _LR, "num_layers": {"low": 1, "high": 3}}])
            ),
        }
    try:
        return Experiment(**fields)
    except ExperimentError:  # what a random space may be and an experiment must not
        return Experiment(**{**fields, "search": {}})


_PATHS = [
    *("name", "seed", "loss", "train", "model", "model.hidden_width", "model.options", "data", "data.path"),
    *(
        "training.epochs",
        "training",
        "budget.time",
        "resources.max_checkpoints_size",
        "sampler.name",
        "sampler",
    ),
    *("search", "search.lr", "search.lr.low", "search.lr.high", "search.lr.when", "search.p0.choices"),
    *(
        "objectives",
        "objectives.0",
        "objectives.0.metric",
        "objectives.7",
        "constraints",
        "metrics.0",
        "metrics",
    ),
]
_KEYS = ["low", "high", "step", "log", "type", "choices", "value", "when", "name", "metric", "é"]
paths = st.sampled_from(_PATHS) | st.text(alphabet="ab.0é \n", max_size=6)
values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats()
    | st.sampled_from(["auto", "10m", "1e5", "convnet", "val_loss", "MyNet", math.inf, 1.7e308, -1.7e308])
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
