"""A plan is one value; a dimension that is declared once is written, searched, advised, shown and
stored.
"""

from __future__ import annotations

import ast
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import workbench.experiment.plan
from workbench.experiment import PlanSettings
from workbench.experiment.plan import DIMENSIONS, NAMES, SIZES, Hardware, PartialPlan, Plan
from workbench.experiment.plan.dimensions import Dimension

PLAN = Plan(
    workers=2,
    micro_batch=32,
    accumulation=4,
    precision="bf16",
    strategy="ddp",
    recompute="blocks",
    compile="none",
)
STORED = {
    "workers": 2,
    "micro_batch": 32,
    "accumulation": 4,
    "global_batch": 256,
    "precision": "bf16",
    "strategy": "ddp",
    "recompute": "blocks",
    "compile": "none",
    "memory_format": "contiguous",
    "loaders": 0,
    "stages": 1,
    "tensor": 1,
    "bucket": "default",
    "pipeline_schedule": "1f1b",
    "exchange": "allreduce",
}

ROOT = Path(workbench.experiment.plan.__file__).parents[2]
READERS = ("planning", "training", "strategies", "exchanges")
ANCHOR = "\n\nDIMENSIONS: tuple["
DECLARATION = """
    buckets: int = declare(
        8,
        "Parts in which gradients are exchanged.",
        wording="{} buckets",
        unmentioned=8,
        aliases=("bucket_count",),
        advised_for="speed",
        candidates=lambda hardware: (8, 25),
    )
"""

# Runs with a module of dimensions that has the declaration, and the unchanged rest of the package.
WITH_BUCKETS = """
import sys
from importlib.machinery import SourceFileLoader
from pathlib import Path

sys.dont_write_bytecode = True  # others must not find the declaration
path, anchor, declaration = sys.argv[1:]
read = SourceFileLoader.get_data

def read_with_declaration(loader, name):
    if Path(name).name.startswith("dimensions.") and name.endswith(".pyc"):
        raise OSError("not the code that was compiled before")
    data = read(loader, name)
    if name != path:
        return data
    return data.replace(anchor.encode(), (declaration + anchor).encode(), 1)

SourceFileLoader.get_data = read_with_declaration

from workbench.advisor.open_settings import choices_of
from workbench.advisor.plans import enumerate_plans
from workbench.advisor.plan_variants import alternatives, plan_of, plan_with
from workbench.foundation.errors import ExperimentError
from workbench.foundation.events import TrialPlanned, from_json, to_json
from workbench.experiment import Experiment
from workbench.experiment.plan import Hardware, Plan
from workbench.training.planning.settings import resolve

FIELDS = dict(model="mlp", data="digits", objectives=[{"metric": "val_loss", "goal": "minimize"}])

# Written in an experiment, under either name, and checked.
written = Experiment(**FIELDS, plan={"buckets": 25})
assert Experiment.from_yaml(written.to_yaml()).hash() == written.hash()
assert Experiment(**FIELDS, plan={"bucket_count": 25}).hash() == written.hash()
assert resolve(written, {}).plan.buckets == 25
assert resolve(Experiment(**FIELDS), {}).plan.buckets == 8
try:
    Experiment(**FIELDS, plan={"buckets": 0})
except ExperimentError as error:
    assert error.field == "plan.buckets", error
else:
    raise AssertionError("0 buckets were accepted")

# Searched.
searched = Experiment(**FIELDS, search={"buckets": {"choices": [8, 50]}})
plan = resolve(searched, {"buckets": 50}).plan
assert plan.buckets == 50

# Enumerated by the advisor, as the experiment allows.
def advised(experiment):
    choices = choices_of(experiment, num_train_samples=1000, max_workers=2, hardware=Hardware())
    base = choices.usual_variant
    variants = [base, *alternatives(base, choices.options, "speed")]
    return {each.buckets for each in enumerate_plans(choices, variants)}

assert advised(Experiment(**FIELDS)) == {8, 25}
assert advised(searched) == {8, 50}
assert advised(written) == {25}

# Described, stored, and read back; plans that were stored before have the default.
assert plan.describe().endswith("50 buckets"), plan.describe()
event = from_json(to_json(TrialPlanned(trial=0, plan=plan.to_json())))
assert event.plan["buckets"] == 50
assert Plan.from_json(event.plan) == plan
del event.plan["buckets"]
assert Plan.from_json(event.plan).buckets == 8
print("proved")
"""


def test_a_dimension_that_is_declared_once_is_written_searched_advised_described_and_stored() -> (
    None
):
    program = WITH_BUCKETS
    source = str(Path(workbench.experiment.plan.__file__).with_name("dimensions.py"))
    done = subprocess.run(
        [sys.executable, "-c", program, source, ANCHOR, DECLARATION],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout == "proved\n", done.stderr


def test_a_plan_is_stored_with_its_global_batch_and_read_back() -> None:
    assert PLAN.to_json() == STORED
    assert list(PLAN.to_json()) == list(STORED)
    assert Plan.from_json(STORED) == PLAN
    assert pickle.loads(pickle.dumps(PLAN)) == PLAN


def test_a_plan_that_an_older_version_stored_has_the_defaults_of_what_it_lacks() -> None:
    older = {name: value for name, value in STORED.items() if name != "recompute"}
    assert Plan.from_json(older) == Plan(2, 32, 4, "bf16", "ddp", "none", "none")


def test_the_batch_is_divided_among_copies_of_the_model() -> None:
    plan = Plan(workers=8, micro_batch=16, accumulation=4, strategy="pipeline", stages=4)
    assert (plan.replicas, plan.global_batch) == (2, 128)
    assert (
        plan.describe() == "128 samples = 16 x 4 accumulated x 2 replicas, fp32, pipeline, 4 stages"
    )


def test_what_a_newer_version_or_nobody_can_have_stored_is_left_out() -> None:
    strange: dict[str, Any] = {
        **STORED,
        "buckets": 4,
        "precision": "fp4",
        "workers": True,
        "micro_batch": 0,
    }
    left_out = ("workers", "micro_batch", "global_batch", "precision")
    kept = {name: value for name, value in STORED.items() if name not in left_out}
    assert PartialPlan.from_json(strange).to_json() == kept
    assert PartialPlan.from_json(strange).complete() is None
    with pytest.raises(ValueError, match="workers, micro_batch, accumulation"):
        Plan.from_json(strange)


def test_a_plan_is_described_in_full() -> None:
    assert (
        PLAN.describe()
        == "256 samples = 32 x 4 accumulated x 2 workers, bf16, ddp, blocks recomputed"
    )
    assert PartialPlan.of(workers=3, precision="bf16").describe() == "3 workers"
    assert PartialPlan.of(workers=1).describe() == ""


def test_the_later_decision_wins() -> None:
    decided = PartialPlan.of(workers=2, micro_batch=16) | PartialPlan.of(
        micro_batch=8, accumulation=2
    )
    assert (decided.workers, decided.micro_batch, decided.global_batch) == (2, 8, 32)
    assert decided.without("accumulation").global_batch is None
    assert decided.only(["workers"]).to_json() == {"workers": 2}
    assert not PartialPlan.of(workers=None)
    with pytest.raises(ValueError, match="no 'gpus'"):
        PartialPlan.of(gpus=2)
    with pytest.raises(ValueError, match="precision"):
        PartialPlan.of(precision="fp4")


@given(st.dictionaries(st.sampled_from([*SIZES, "precision", "recompute"]), st.integers(-1, 9)))
def test_only_values_of_a_dimension_are_read(stored: dict[str, Any]) -> None:
    kept = {name: value for name, value in stored.items() if name in SIZES and value > 0}
    assert dict(PartialPlan.from_json(stored).values) == kept


def test_every_dimension_has_a_field_of_the_experiment_that_may_stay_open() -> None:
    assert tuple(PlanSettings.model_fields) == NAMES
    assert all(field.default == "auto" for field in PlanSettings.model_fields.values())
    assert not PlanSettings().decided
    assert PlanSettings(workers=2, recompute="none").decided == PartialPlan.of(
        workers=2, recompute="none"
    )


@pytest.mark.parametrize("dimension", DIMENSIONS, ids=lambda dimension: dimension.name)
def test_candidates_and_defaults_are_values_of_their_dimension(dimension: Any) -> None:
    assert dimension.accepts(dimension.default)
    for hardware in (Hardware(), Hardware(has_gpu=True), Hardware(has_gpu=True, has_bf16=True)):
        candidates = () if dimension.candidates is None else dimension.candidates(hardware)
        assert all(dimension.accepts(value) for value in candidates)


def test_a_dimension_without_a_value_for_where_it_is_open_is_refused() -> None:
    with pytest.raises(TypeError, match="The dimension buckets of a plan needs `candidates`"):
        Dimension("buckets", "Number of buckets.", 1)


def test_what_the_advisor_may_change_is_read_by_what_makes_steps() -> None:
    read = {
        name for room in READERS for file in (ROOT / room).rglob("*.py") for name in _read_in(file)
    }
    unread = {
        dimension.name for dimension in DIMENSIONS if dimension.advised_for != "nothing"
    } - read
    assert not unread, "their values would be measured beside each other, and change nothing"


def _read_in(file: Path) -> set[str]:
    """Return the attributes that a module reads, such as `loaders` in `plan.loaders`."""
    tree = ast.parse(file.read_text())
    return {
        node.attr
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load)
    }


def test_what_applies_of_a_plan_can_be_written_into_an_experiment() -> None:
    for complete in (Plan(workers=2), Plan(workers=2, exchange="powersgd", exchange_rank=4)):
        plan = PartialPlan.of_plan(complete).applicable()
        assert PlanSettings(**dict(plan.values)).decided == plan
        assert ("exchange_rank" in plan) == (complete.exchange == "powersgd")
