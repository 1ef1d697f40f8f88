"""What follows when an attempt runs out of memory, and when the way that was tried instead is
refused.
"""

from __future__ import annotations

from typing import Literal

from workbench.experiment.plan import PartialPlan
from workbench.foundation.events import TrialEnded, TrialPlanned
from workbench.sweeps.coordinator import OtherWays
from workbench.training.planning.equivalent_plans import WAYS

PLAN = {"workers": 2, "micro_batch": 1, "accumulation": 8, "strategy": "ddp", "recompute": "none"}


def ended(reason: Literal["oom", "error"], message: str = "no memory") -> TrialEnded:
    return TrialEnded(trial=0, attempt=1, state="failed", reason=reason, message=message)


def begin(*tried: PartialPlan) -> OtherWays:
    ways = OtherWays(WAYS, tried)
    ways.take(TrialPlanned(trial=0, plan=dict(PLAN), has_blocks=True))
    return ways


def test_a_refused_way_is_undone_and_the_next_one_tried() -> None:
    ways = begin()
    assert ways.after(ended("oom"))[1] == PartialPlan.of(recompute="blocks")
    lost, changes = ways.after(ended("error", "it cannot be computed twice"))
    assert changes == PartialPlan.of(recompute="none", strategy="zero1")
    assert lost.message is not None
    assert lost.message.startswith("no memory. An attempt with blocks that are recomputed")
    assert (
        "failed: it cannot be computed twice. It continues with the strategy zero1 instead of ddp"
        in lost.message
    )


def test_each_way_names_what_it_replaces_even_if_the_attempt_never_knew_its_plan() -> None:
    ways = begin(PartialPlan.of(recompute="blocks"))
    messages = [ways.after(ended("oom"))[0].message for _ in range(3)]
    assert [str(message).partition("continues with ")[2] for message in messages] == [
        "the strategy zero1 instead of ddp, which gives the same result",
        "the strategy fsdp instead of zero1, which gives the same result",
        "",
    ]


def test_where_the_last_way_is_refused_the_trial_ran_out_of_memory() -> None:
    ways = begin(PartialPlan.of(recompute="blocks"), PartialPlan.of(strategy="zero1"))
    assert ways.after(ended("oom"))[1] == PartialPlan.of(strategy="fsdp")
    end, changes = ways.after(ended("error", "its parameters cannot be cut"))
    assert (changes, end.reason) == (None, "oom")
    assert "fsdp instead of ddp" in str(end.message)
    assert "its parameters cannot be cut" in str(end.message)


def test_an_error_of_an_attempt_that_has_trained_is_its_own() -> None:
    ways = begin()
    ways.after(ended("oom"))
    ways.report()
    failed = ended("error", "a bad sample")
    assert ways.after(failed) == (failed, None)
    assert begin().after(failed) == (failed, None)


def test_nothing_is_tried_before_anything_is_known() -> None:
    ways = OtherWays(WAYS, ())
    assert ways.after(ended("oom"))[1] is None
