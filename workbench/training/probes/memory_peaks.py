"""What trainings of several configurations would hold in memory, before any of them runs.

As `memory_estimate`, in one child process for all of them, which loads the data once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from time import perf_counter
from typing import Any

from workbench.experiment import Experiment
from workbench.experiment.plan import PartialPlan
from workbench.experiment.space import Params
from workbench.foundation.errors import WorkbenchError
from workbench.training.probes.child_process import answer, query
from workbench.training.probes.memory_estimate import NUM_STEPS

_TIMEOUT_S = 60.0
_ENOUGH_S = 30.0
"""Seconds after which no further configuration is looked at.

A tracing of a deep model takes some.
"""
_DIVISION = ("micro_batch", "accumulation")


def estimate_peaks(
    experiment: Experiment,
    trials: Sequence[tuple[Params, PartialPlan]],
    *,
    num_first: int,
    limit_bytes: float,
) -> list[int | None]:
    """Estimate the least that one worker holds at the peak of a step of each trial.

    A trial that runs out of memory divides its batch, so that the smallest micro batch counts,
    except where it is searched.

    Args:
        experiment: The experiment; it trains a model.
        trials: Configurations, each with what is decided of its plan.
        num_first: Where all of the first ones fit, no others are looked at.
        limit_bytes: What fits.

    Returns:
        Bytes, of all trials or of the first ones, or of fewer where that takes long; None for one
        whose memory cannot be estimated. A trial that keeps more than `plan.recompute` allows is as
        much too large for what fits.

    Raises:
        WorkbenchError: If the data cannot be read, or the process ends without an answer.
    """
    question = {
        "trials": [[dict(params), plan.to_json()] for params, plan in trials],
        "num_first": num_first,
        "limit_bytes": limit_bytes,
        "enough_s": _ENOUGH_S,
    }
    return query(
        __name__,
        experiment,
        question,
        purpose="memory could not be predicted",
        timeout_s=_TIMEOUT_S,
    )


def peaks_here(experiment: Experiment, question: Mapping[str, Any]) -> list[int | None]:
    """Estimate in this process, which should be one of its own.

    Arguments as in `estimate_peaks`.
    """
    from workbench.training.loading import load_trial_data
    from workbench.training.probes.fake_steps import FakeTrial
    from workbench.training.strategies.kept_blocks import KeepsTooMuchError

    began_s = perf_counter()
    datasets = load_trial_data("estimate", experiment)
    found: list[int | None] = []
    for number, (params, plan) in enumerate(question["trials"]):
        if (
            number == question["num_first"]
            and max(filter(None, found), default=0) <= question["limit_bytes"]
        ):
            break
        if perf_counter() - began_s > question["enough_s"]:
            break
        try:
            trial = FakeTrial(experiment, params, PartialPlan.from_json(plan), datasets=datasets)
            micro_batch = trial.micro_batch if any(name in params for name in _DIVISION) else 1
            step = trial.step_memory(micro_batch, NUM_STEPS)
            found.append(max(step.compute_peak_bytes, step.update_peak_bytes))
        except KeepsTooMuchError as error:
            found.append(
                None if error.excess is None else int(error.excess * question["limit_bytes"])
            )
        except WorkbenchError:
            found.append(None)
    return found


if __name__ == "__main__":
    answer(peaks_here)
