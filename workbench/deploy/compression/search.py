"""The search of a compression: its experiment, its first configurations, and its verdict.

Only the verdict uses the test samples, once, for the recommended trial.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import JsonValue
from torch import nn

from workbench.deploy.card import MODEL
from workbench.deploy.compression.compression import FEW_SAMPLES, Compression
from workbench.deploy.compression.low_rank import can_factorise
from workbench.deploy.compression.pruning import scales_of, why_not_pruned
from workbench.deploy.compression.quantisers import CALIBRATIONS, QUANTISERS, why_not_aware
from workbench.deploy.compression.trained_base import Base, measure
from workbench.deploy.device import HERE
from workbench.experiment import Experiment
from workbench.experiment.components import embed
from workbench.foundation.errors import ArgumentError, ExperimentError
from workbench.foundation.events import Noted, RunStateChanged
from workbench.foundation.formatting import format_number, parse_bytes, parse_duration_s
from workbench.store.database import Store
from workbench.store.database.run_files import trial_folder
from workbench.store.history import History, Trial
from workbench.store.history.compression import (
    BASE_METRIC,
    BASE_RUN,
    BASE_TRIAL,
    BASE_VALUE,
    DEVICE,
    NOT_SEARCHED,
    compressed,
)

DEFAULT_TRIALS = 12
LIMITS = {"latency": "latency_s", "drop": "drop", "size": "size_bytes", "memory": "memory_bytes"}
"""The limits that users can set, with their metrics."""
DEFAULT_DROP = 0.005
_FASTER = {
    "metric": "latency_ratio_high",
    "at_most": 0.97,
}  # two equal files may differ by the rest
_PERCENT = re.compile(r"\s*([0-9.]+)\s*%\s*")
_EPOCHS = (0, 5, 10, 20)
_QAT_EPOCHS = (2, 5, 10)
_RANKS = (1.0, 0.5, 0.25)
_SLIMMING = (0.0, 1e-4, 1e-3)
_TUNED = {"lr": 3e-3, "distillation": 0.9, "slimming": 0.0}
_MUCH_PRUNED = 0.75


def experiment_for(
    base: Base,
    *,
    name: str,
    limits: Mapping[str, Any] | None = None,
    trials: int | None = None,
    time_s: float | None = None,
    threads: int = 1,
    seed: int = 0,
    device: str = HERE,
    python: str = "python3",
) -> tuple[Experiment, list[dict[str, Any]]]:
    """Create the experiment that searches the best way to compress a model.

    The latency is the first objective. Trials that are slower than the base or break a limit are
    infeasible, so the best trial is the fastest one that may be recommended.

    Args:
        base: The model.
        name: Name of the experiment.
        limits: Upper limits of `latency` (such as 5ms), `drop` (such as 0.5%), `size` (such as
            500KB) and `memory` of a process that runs the model (such as 100MB).
        trials: Maximum number of compressions.
        time_s: Maximum time of the run in seconds.
        threads: Number of threads of each call that is timed.
        seed: Seed of the run.
        device: The device on which the latency is measured: here, or ssh://[USER@]HOST[:PORT].
        python: The Python of another device, which has numpy and onnxruntime.

    Returns:
        The experiment and the first configurations. The experiment's notes say what is not searched
        and why.

    Raises:
        ArgumentError: If a limit is wrong.
    """
    model, datasets = base.build()
    notes: list[JsonValue] = []
    not_aware = why_not_aware(model)
    calibrated = ["static"] if not_aware else ["static", "qat"]
    search: dict[str, Any] = {
        "quantiser": {
            "choices": [
                quantiser for quantiser in QUANTISERS if quantiser != "qat" or not not_aware
            ]
        },
        "calibration": {"choices": list(CALIBRATIONS), "when": {"quantiser": calibrated}},
        "calibration_samples": {"choices": [64, 256, 512], "when": {"quantiser": calibrated}},
    }
    if not_aware:
        notes.append(f"quantisation-aware training is not searched: {not_aware}")
    else:
        search["qat_epochs"] = {"choices": list(_QAT_EPOCHS), "when": {"quantiser": "qat"}}
        search["qat_lr"] = {"low": 1e-5, "high": 3e-3, "log": True, "when": {"quantiser": "qat"}}
    if (reason := why_not_pruned(model)) is None:
        search["pruning"] = {"low": 0.0, "high": 0.75, "step": 0.125}
    else:
        notes.append(f"pruning is not searched: {reason}")
    shares = [share for share in _RANKS if share == 1.0 or can_factorise(model, share)]
    if len(shares) > 1:
        search["rank"] = {"choices": shares}
    else:
        notes.append("low rank is not searched: no linear layer would become smaller")
    if "pruning" in search or "rank" in search:
        tuned = {"epochs": [epochs for epochs in _EPOCHS if epochs]}
        search["epochs"] = {"choices": list(_EPOCHS)}
        search["lr"] = {"low": 1e-4, "high": 1e-2, "log": True, "when": tuned}
        search["distillation"] = {"choices": [0.0, 0.5, 0.9], "when": tuned}
        if "pruning" in search and scales_of(model):
            search["slimming"] = {"choices": list(_SLIMMING), "when": tuned}
        elif "pruning" in search:
            notes.append("slimming is not searched: no normalisation scales the channels")
    constraints = [_FASTER, *_constraints(limits or {})]
    if trials is None and time_s is None:
        trials = DEFAULT_TRIALS
    experiment = Experiment(
        name=name,
        train=embed(
            Compression(
                base,
                threads,
                seed=seed,
                measures_memory="memory" in (limits or {}),
                device=device,
                python=python,
            ),
            {
                BASE_RUN: base.run_id,
                BASE_TRIAL: base.trial,
                BASE_METRIC: base.metric,
                BASE_VALUE: base.values[base.metric],
                **({NOT_SEARCHED: notes} if notes else {}),
                **({} if device == HERE else {DEVICE: device}),
            },
        ),
        objectives=[
            {"metric": "latency_ratio", "goal": "minimize"},
            {"metric": base.metric, "goal": base.goal},
        ],
        constraints=constraints,
        search=search,
        budget={
            name: value
            for name, value in (("trials", trials), ("time", time_s))
            if value is not None
        },
        resources={"concurrency": 1},  # other trials would disturb the timings
        seed=seed,
    )
    has_convolutions = any(isinstance(module, nn.Conv1d | nn.Conv2d) for module in model.modules())
    return experiment, first_configurations(
        experiment, num_samples=len(datasets.train), has_convolutions=has_convolutions
    )


def first_configurations(
    experiment: Experiment, *, num_samples: int, has_convolutions: bool
) -> list[dict[str, Any]]:
    """Return the first configurations: no compression, the quantisers, and fewer channels.

    Args:
        experiment: An experiment of `experiment_for`.
        num_samples: Number of training samples. With many samples, there are fewer epochs, so that
            ten trials with 10,000 images take one or two minutes.
        has_convolutions: Whether the model has convolutions, which dynamic integers make slower.
    """
    is_few = num_samples <= FEW_SAMPLES
    qat_epochs, epochs, most_epochs = (5, 20, 20) if is_few else (2, 5, 10)
    calibrated = {"calibration": "minmax", "calibration_samples": 256}
    none, dynamic = {"quantiser": "none"}, {"quantiser": "dynamic"}
    static: dict[str, Any] = {"quantiser": "static", **calibrated}
    qat: dict[str, Any] = {
        "quantiser": "qat",
        **calibrated,
        "qat_epochs": qat_epochs,
        "qat_lr": 3e-4,
    }
    configurations: list[dict[str, Any]] = [
        {**quantiser, "pruning": 0.0, "rank": 1.0, "epochs": 0}
        for quantiser in (none, dynamic, static)
    ]
    if "pruning" in experiment.search.root:
        integers = qat if has_convolutions else dynamic
        configurations += [
            {
                **quantiser,
                "pruning": share,
                "rank": 1.0,
                **_TUNED,
                "epochs": most_epochs if share == _MUCH_PRUNED else epochs,
            }
            for share, quantiser in (
                (0.5, none),
                (0.5, integers),
                (0.625, none),
                (0.625, integers),
                (0.75, none),
                (0.375, integers),
            )
        ]
    elif "qat_lr" in experiment.search.root:
        configurations.append({**qat, "pruning": 0.0, "rank": 1.0, "epochs": 0})
    return [
        {key: value for key, value in quantiser.items() if key in experiment.search.root}
        for quantiser in configurations
    ]


def conclude(store: Store, run_id: str, ending: RunStateChanged) -> Noted:
    """Return the verdict of a run, with the test result of the recommended trial if the data has a
    test part.

    Args:
        store: The store of the run.
        run_id: Its id. No trial may be running.
        ending: The end of the run, which is not stored yet.
    """
    experiment = store.experiment(run_id)
    history = History.of(experiment, (stored.event for stored in store.events(run_id)))
    verdict = compressed(history)
    if verdict.recommended is None:
        return Noted(level="info", message=verdict.words)
    assert experiment.train is not None
    tested = measure_on_test(store, run_id, experiment.train.load(), verdict.recommended)
    return Noted(level="info", message=f"{verdict.words}; {tested}")


def measure_on_test(store: Store, run_id: str, compression: Compression, trial: Trial) -> str:
    """Return the scores of a trial's model and of the base on the test samples, in words.

    Args:
        store: The store of the run.
        run_id: Its id.
        compression: Its train function.
        trial: The trial.
    """
    base = compression.base
    _, datasets = base.build()
    if datasets.test is None:
        return "the data has no test samples"
    left = store.artifacts_of(run_id).below(f"{trial_folder(trial.number)}/checkpoints")
    with tempfile.TemporaryDirectory() as folder, left.as_file(MODEL) as path:
        original = Path(folder, MODEL)
        original.write_bytes(base.onnx)
        values, before = (
            measure(model, base.experiment, datasets, part="test") for model in (path, original)
        )
    metric = base.metric.replace("val_", "test_", 1)
    return (
        f"on the test samples, which were never used before, {metric} is"
        f" {format_number(values[metric])}, and {format_number(before[metric])} for the base"
    )


def _constraints(limits: Mapping[str, Any]) -> list[dict[str, Any]]:
    unknown = limits.keys() - LIMITS.keys()
    if unknown:
        raise ArgumentError(
            f"{sorted(unknown)[0]!r} cannot be limited", field="limits", allowed=list(LIMITS)
        )
    merged = {"drop": DEFAULT_DROP, **limits}
    return [
        {"metric": LIMITS[name], "at_most": _parse(name, value)} for name, value in merged.items()
    ]


def _parse(name: str, given: Any) -> float:
    """Return the number of a limit: seconds, a share, or bytes."""
    text = str(given)
    try:
        if name == "drop":
            match = _PERCENT.fullmatch(text)
            limit = float(match[1]) / 100 if match else float(text)
        elif name == "latency":
            limit = float(parse_duration_s(text))
        else:
            limit = float(text) if isinstance(given, int | float) else float(parse_bytes(text))
    except (ValueError, ExperimentError):
        limit = -1.0
    if not 0 <= limit < float("inf") or (limit == 0 and name != "drop"):
        examples = {"latency": "5ms", "drop": "0.5%", "size": "500KB", "memory": "100MB"}
        allowed = f"such as {examples[name]}"
        raise ArgumentError(f"{given!r} is not valid", field=f"limits.{name}", allowed=allowed)
    return limit
