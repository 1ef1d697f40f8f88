from __future__ import annotations

import pytest

from tests.builders.recorded_runs import append
from tests.services.shell import Shell
from workbench.cli.errors import BAD_INPUT, FAILED
from workbench.experiment import Experiment
from workbench.foundation.events import (
    Event,
    RunStateChanged,
    TokenCounts,
    TrialEnded,
    TrialPlanned,
    TrialProposed,
    TrialReported,
    TrialStarted,
)
from workbench.store.database import Store


def chinchilla(parameters: float, tokens: float) -> float:
    return 1.82 + 482.0 / parameters**0.348 + 2085.0 / tokens**0.366


def write_run(
    context: int = 64, *, metric: str = "val_loss", counts: bool = True, **training: object
) -> str:
    """A sweep over sizes and lengths. Every second trial of a size has a bad rate."""
    experiment = Experiment(
        model="transformer",
        data={"name": "text", "context": context},
        objectives=[{"metric": metric, "goal": "minimize"}],
        search={"width": {"choices": [16, 32]}},
        training=training,
    )
    events: list[Event] = []
    sizes = [(10**7, 200), (10**7, 800), (4 * 10**7, 400), (4 * 10**7, 1600), (10**8, 4000)]
    for number, (parameters, num_samples) in enumerate(size for size in sizes for _ in range(2)):
        tokens = TokenCounts(
            per_sample=1e6, num_samples=num_samples, num_parameters=parameters if counts else None
        )
        loss = chinchilla(parameters, num_samples * 1e6) + (number % 2)
        events += [
            TrialProposed(trial=number, configuration=number, seed=0, params={"width": 16}),
            TrialStarted(trial=number, attempt=0, worker_pids=[1]),
            TrialPlanned(trial=number, plan={}, tokens=tokens),
            TrialReported(trial=number, step=1, epoch=1.0, values={metric: loss}),
            TrialEnded(trial=number, attempt=0, state="complete", step=1, values={metric: loss}),
        ]
    with Store.open(None) as store:
        run_id = store.create_run(experiment)
        append(store, run_id, [*events, RunStateChanged(state="complete")])
    return run_id


def test_the_best_training_of_each_size_predicts_a_large_one(shell: Shell) -> None:
    run_id = write_run()
    answer = shell.json("what-if", "ladder", run_id, "--parameters", "1B", "--tokens", "20B")
    assert len(answer["trainings"]) == 5
    assert answer["low"] <= chinchilla(1e9, 2e10) <= answer["high"]
    assert answer["loss"] == pytest.approx(chinchilla(1e9, 2e10), rel=0.03)
    code, out, err = shell("what-if", "ladder", run_id, "--parameters", "100B", "--tokens", "2T")
    assert code == 0
    assert "100B parameters on 2T tokens: val_loss" in out
    assert "start with AdamW at a batch of" in out
    assert "times the operations of your largest training" in " ".join(err.split())


def test_runs_that_cannot_be_compared_are_refused(shell: Shell) -> None:
    first, other = write_run(), write_run(context=32)
    options = ("--parameters", "1B", "--tokens", "20B")
    code, _, err = shell("what-if", "ladder", first, other, *options)
    assert code == FAILED
    assert "have different data" in err
    accuracy = write_run(metric="val_error")
    assert "do not measure one loss" in shell("what-if", "ladder", accuracy, *options)[2]
    uncounted = write_run(counts=False)
    assert "counted its tokens and its parameters" in " ".join(
        shell("what-if", "ladder", uncounted, *options)[2].split()
    )
    tuned = write_run(weights={"path": "pretrained.safetensors"})
    _, _, err = shell("what-if", "ladder", tuned, *options)
    assert "starts from pretrained weights" in " ".join(err.split())
    assert shell("what-if", "ladder", first, "--parameters", "-1B", "--tokens", "1")[0] == BAD_INPUT
