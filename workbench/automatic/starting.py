"""`automl`: from data to a run that is on its way."""

from __future__ import annotations

import math
import re
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any

from workbench.automatic.question import Question, read_question
from workbench.automatic.targets import Asked
from workbench.errors import ExperimentError
from workbench.experiment.sections import parse_duration_s
from workbench.store import Store

if TYPE_CHECKING:
    from workbench.automatic.result import AutoML

SHORTEST_S = 10.0
# However long the start took, this much is left to try in: enough for the first models where data is small.
LEAST_TRYING_S = 8.0


def automl(
    data: Any,
    target: str | None = None,
    *,
    time: float | str = "10m",
    asked: Asked | None = None,
    seed: int = 0,
    name: str | None = None,
    store: Store | str | None = None,
    launcher: str = "ray",
    address: str | None = None,
    wait: bool = False,
) -> AutoML:
    """Find a good model for data: tries sensible ones for a while, and tests the result once, honestly.

    It returns as soon as the run is on its way; the run goes on without this process.

    Args:
        data: A pair (X, y), X being a frame, an array (samples, features), images (samples, height, width[,
            channels]) or texts; a frame or the path of a .csv, .tsv or .parquet file, with `target`; or the
            name of a bundled data set.
        target: The column to predict, where data is a table.
        time: How long it may take from this call until nothing more is tried, in seconds or such as 10m; at
            least 10 s. Of that, reading data and starting processes take some seconds, but at least 8 s are
            left to try in. The result is chosen and tested when it is first asked for, which takes a few
            seconds more.
        asked: classification or regression; None to find out from the target.
        seed: Seed of the division into train, validation and test, and of everything random in the run.
        name: What the run is called; None to name it after the data.
        store: Where it is kept; None for what WORKBENCH_STORE names, or else the user's own store.
        launcher: As in `sweep`.
        address: As in `sweep`.
        wait: Return at the end rather than at once.

    Returns:
        A handle: `.wait()`, `.progress`, `.leaderboard()`, `.score()`, `.predict(X)`, `.run`.

    Raises:
        DataError: If the data cannot be read, or nothing could be learnt from it or tested on it.
        ExperimentError: If an argument is wrong.
        RunError: If the driver could not be started.
    """
    began_s = monotonic()
    found = create(
        data, target, time=time, asked=asked, seed=seed, name=name, store=store, launcher=launcher,
        address=address,
    )  # fmt: skip
    start(found, began_s=began_s, launcher=launcher, address=address)
    return found.wait() if wait else found


def create(
    data: Any, target: str | None = None, *, time: float | str = "10m", asked: Asked | None = None,
    seed: int = 0, name: str | None = None, store: Store | str | None = None, launcher: str = "ray",
    address: str | None = None,
) -> AutoML:  # fmt: skip
    """Read and divide data, and store a run that waits for a driver; arguments and errors as in `automl`."""
    from workbench.automatic.candidates import experiment_for, first_configurations
    from workbench.automatic.preparation import MOST_FOLDS, pack, prepare
    from workbench.automatic.result import AutoML
    from workbench.run.attached import open_store
    from workbench.run.starting import create as create_run
    from workbench.store.objects import write_objects
    from workbench.study.samplers import training_seed

    time_s = _check_time(time)
    if asked not in (None, "classification", "regression"):
        raise ExperimentError(f"{asked!r} is not known", field="asked", allowed="classification, regression")
    question = read_question(data, target, asked=asked)
    seeds = [training_seed(seed, repeat) for repeat in range(MOST_FOLDS)]
    learning, held_out = prepare(question, seed, seeds)
    sha256, payload = pack(held_out)
    experiment = experiment_for(
        question.kind, learning, held_out=sha256, time_s=time_s, seed=seed,
        name=name or _name_of(data, question),
    )  # fmt: skip
    opened = open_store(store)
    run = create_run(experiment, store=opened, launcher=launcher, address=address)
    write_objects(opened.artifacts_of(run.run_id), {sha256: payload})
    for params in first_configurations(experiment):
        opened.command(run.run_id, "enqueue", {"params": params})
    return AutoML(run)


def start(found: AutoML, *, began_s: float, launcher: str = "ray", address: str | None = None) -> None:
    """Start the driver of a stored run, and count the time from when a person began to wait.

    Args:
        found: The run.
        began_s: When that was, by `time.monotonic`.
        launcher: As in `sweep`.
        address: As in `sweep`.

    Raises:
        RunError: If the driver could not be started.
    """
    from workbench.run.starting import start as start_run

    run = found.run
    start_run(run, launcher=launcher, address=address)
    time_s = run.experiment.budget.time
    if time_s is not None and not run.finished:
        left_s = max(LEAST_TRYING_S, time_s - (monotonic() - began_s))
        run.store.command(run.run_id, "set", {"budget.time": round(left_s, 1)})


def _check_time(given: float | str) -> float:
    time_s = parse_duration_s(given)
    if isinstance(time_s, bool) or not isinstance(time_s, int | float) or not math.isfinite(time_s):
        raise ExperimentError(f"{given!r} is no duration", field="time", allowed="such as 90s, 10m, 1h")
    if time_s < SHORTEST_S:
        raise ExperimentError(
            f"{time_s:g} s are too short to try anything",
            field="time",
            allowed=f"at least {SHORTEST_S:g} s",
            next_step='Small data is well served by "1m".',
        )
    return float(time_s)


def _name_of(data: Any, question: Question) -> str:
    source = Path(data).name.split(".")[0] if isinstance(data, str | Path) else question.target_name
    text = re.sub(r"[^A-Za-z0-9_-]+", "-", source or question.kind).strip("-")
    return f"automl-{text or question.kind}"[:80]
