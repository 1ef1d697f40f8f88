"""Record tests/data/recorded_run.jsonl: 40 real trainings of scikit-learn's MLP on its digits.

    python tests/data/record_run.py

Trials are trained one after another and laid out on two slots by their measured durations; the
median of the reports so far prunes. One trial raises, some diverge, one worker is lost and tried
again.
"""

from __future__ import annotations

import heapq
import math
import random
import time
import traceback
import warnings
from pathlib import Path

import numpy as np
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from sklearn.neural_network import MLPClassifier

from workbench.experiment import Experiment
from workbench.experiment.space import Params
from workbench.foundation.events import (
    AttemptEnded,
    CheckpointSaved,
    DriverStarted,
    Event,
    RunStateChanged,
    TrialEnded,
    TrialProposed,
    TrialReported,
    TrialStarted,
    to_json,
)

FOLDER = Path(__file__).parent
EPOCHS, NUM_TRIALS, RUNGS, STARTUP = 18, 40, (2, 4, 8, 12), 5
TOO_FAST: Params = {
    "lr": 30.0,
    "width": 256,
    "depth": 3,
    "optimizer": "sgd",
    "momentum": 0.99,
    "weight_decay": 0.1,
    "global_batch": 32,
}


def train(params: Params, seed: int, images: list[np.ndarray]):
    """Yield (step, epoch, loss, accuracy, samples/s) of a real training, an epoch at a time."""
    train_x, valid_x, train_y, valid_y = images
    batch = int(params["global_batch"])
    model = MLPClassifier(
        hidden_layer_sizes=(int(params["width"]),) * int(params["depth"]),
        solver="sgd" if params["optimizer"] == "sgd" else "adam",
        learning_rate_init=float(params["lr"]) * (1.0 if params["optimizer"] == "sgd" else 0.1),
        momentum=float(params.get("momentum", 0.9)),
        alpha=float(params["weight_decay"]),
        batch_size=batch,
        random_state=seed,
    )
    order = np.random.default_rng(seed)
    for epoch in range(1, EPOCHS + 1):
        begun = time.perf_counter()
        shuffled = order.permutation(len(train_x))
        for start in range(0, len(shuffled), batch):
            chosen = shuffled[start : start + batch]
            model.partial_fit(train_x[chosen], train_y[chosen], classes=range(10))
        seconds = time.perf_counter() - begun
        chances = np.clip(model.predict_proba(valid_x), 1e-9, 1)
        loss = float(-np.log(chances[np.arange(len(valid_y)), valid_y]).mean())
        loss = loss if np.isfinite(model.coefs_[0]).all() else math.nan
        steps = epoch * math.ceil(len(train_x) / batch)
        yield steps, epoch, loss, float(model.score(valid_x, valid_y)), len(train_x) / seconds


class Recorder:
    """Runs the trials and keeps the events."""

    def __init__(self, experiment: Experiment) -> None:
        digits = load_digits()
        self.images = train_test_split(
            digits.data / 16.0, digits.target, test_size=0.25, random_state=0
        )
        self.experiment = experiment
        self.events: list[Event] = []
        self.rungs: dict[int, list[float]] = {rung: [] for rung in RUNGS}
        self.lost = False

    def prune(self, epoch: int, accuracy: float) -> bool:
        if epoch not in self.rungs:
            return False
        seen = self.rungs[epoch]
        seen.append(accuracy)
        return len(seen) > STARTUP and accuracy < float(np.median(seen))

    def trial(self, number: int, begin: float, params: Params) -> float:
        """Record one trial from `begin` on and return when it ended."""
        header = {"trial": number}
        seed = 1000 + number
        add = self.events.append
        add(
            TrialProposed(
                **header,
                time_unix_s=begin,
                params=params,
                configuration=number,
                seed=seed,
                source="enqueued" if params is TOO_FAST else "sampler",
            )
        )
        plan = {
            "workers": 1,
            "micro_batch": params["global_batch"],
            "accumulation": 1,
            "precision": "fp32",
        }
        attempt, now, step = 0, begin + 0.05, 0
        values: dict[str, float] = {}
        add(
            TrialStarted(
                **header, time_unix_s=now, attempt=0, worker_pids=[4000 + number], plan=plan
            )
        )
        started = now
        try:
            if number == 17:
                params = {**params, "width": 0}
            for step, epoch, loss, accuracy, speed in train(params, seed, self.images):
                now += len(self.images[0]) / speed + 0.02
                values = {"val_accuracy": accuracy, "val_loss": loss}
                report = {
                    "step": step,
                    "epoch": epoch,
                    "elapsed_s": now - started,
                    "samples_per_s": speed,
                }
                add(
                    TrialReported(
                        **header, time_unix_s=now, attempt=attempt, values=values, **report
                    )
                )
                ended = {
                    "attempt": attempt,
                    "values": values,
                    "step": step,
                    "time_unix_s": now + 0.01,
                }
                if math.isnan(loss):
                    message = f"val_loss became NaN at step {step}"
                    add(
                        TrialEnded(
                            **header, state="failed", reason="diverged", message=message, **ended
                        )
                    )
                    return now
                if self.prune(epoch, accuracy):
                    add(TrialEnded(**header, state="pruned", **ended))
                    return now
                if number > 20 and epoch == 6 and not self.lost:
                    self.lost = True
                    folder = f"trial-{number}/6"
                    add(
                        CheckpointSaved(
                            **header, time_unix_s=now, attempt=0, step=step, path=folder
                        )
                    )
                    now += 1.5
                    message = f"worker process {4000 + number} was killed by signal 9"
                    add(
                        AttemptEnded(
                            **header, time_unix_s=now, attempt=0, reason="lost", message=message
                        )
                    )
                    attempt, started, now = 1, now + 0.4, now + 0.4
                    again = {
                        "attempt": 1,
                        "worker_pids": [4100],
                        "plan": plan,
                        "resumed_from": folder,
                    }
                    add(TrialStarted(**header, time_unix_s=now, **again))
        except Exception as error:
            if "non-finite" in str(error):
                failed = {
                    "reason": "diverged",
                    "message": f"weights became NaN after step {step}",
                    "step": step,
                }
                add(
                    TrialEnded(
                        **header, time_unix_s=now + 0.1, attempt=attempt, state="failed", **failed
                    )
                )
                return now + 0.1
            failed = {"reason": "error", "message": f"{type(error).__name__}: {error}"}
            failed["traceback"] = traceback.format_exc().replace(str(FOLDER.parent.parent), "")
            add(
                TrialEnded(
                    **header, time_unix_s=now + 0.3, attempt=attempt, state="failed", **failed
                )
            )
            return now + 0.3
        add(TrialEnded(**header, state="complete", **ended))
        return now


def record() -> list[Event]:
    """Return the events of the whole run, oldest first."""
    experiment = Experiment.from_file(FOLDER / "recorded_run.yaml")
    recorder = Recorder(experiment)
    begin, rng = 1_790_000_000.0, random.Random(experiment.seed)
    versions = {"python": "3.11.2", "torch": "2.13.0", "ray": "2.60.0", "optuna": "5.0.0"}
    recorder.events += [
        DriverStarted(time_unix_s=begin, pid=3999, host="node-1", num_cpus=2, versions=versions),
        RunStateChanged(time_unix_s=begin + 0.01, state="running"),
    ]
    slots = [begin + 0.1, begin + 0.12]
    for number in range(NUM_TRIALS):
        begun = heapq.heappop(slots)
        params = TOO_FAST if number == 30 else experiment.search.sample(rng)
        heapq.heappush(slots, recorder.trial(number, begun, params) + 0.03)
    end = {"time_unix_s": max(slots) + 0.05, "state": "complete", "reason": "trials"}
    return [*sorted(recorder.events, key=lambda event: event.time_unix_s), RunStateChanged(**end)]


if __name__ == "__main__":
    warnings.filterwarnings("ignore")
    lines = [to_json(event) for event in record()]
    (FOLDER / "recorded_run.jsonl").write_text("\n".join(lines) + "\n")
