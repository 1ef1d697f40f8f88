"""`automl`: create and start the run for a data set."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from time import monotonic, sleep
from typing import TYPE_CHECKING, Any, Literal

from workbench.data.dates import DateOrder
from workbench.experiment.automl import HELD_OUT, MIN_TRIAL_TIME_S, concluding_s
from workbench.foundation.errors import WorkbenchError
from workbench.foundation.formatting import format_duration
from workbench.hardware.resources import processor_times
from workbench.runs.automl.presets import DEFAULT, PresetName
from workbench.runs.automl.request import Request
from workbench.runs.automl.targets import Task
from workbench.runs.waiting import waiting_for
from workbench.store.database import Store

if TYPE_CHECKING:
    from workbench.experiment import Experiment
    from workbench.runs.automl.preparation import HeldOut, LearningData
    from workbench.runs.automl.result import AutoML
    from workbench.runs.run import Run

# The newest runs of a store that are compared with a new one, and how many of them are used.
_MOST_COMPARED, _MOST_EARLIER = 50, 3
# On a machine that gives a thread less than this part of a processor, a run needs no driver if few
# seconds of a processor are left: Ray, workers and the start of each trial would take most of them.
_BUSY_SHARE, _LEAST_COMPUTED_S = 0.6, 60.0
# A driver gives a sign of life more often than this.
_LONGEST_SILENCE_S, _POLL_S = 30.0, 0.2


def automl(
    data: Any,
    target: str | Sequence[str] | None = None,
    *,
    time: float | str = "10m",
    task: Task | Literal["ordinal"] | None = None,
    metric: str | None = None,
    drop: Sequence[str] = (),
    group_column: str | None = None,
    time_column: str | None = None,
    test: Any = None,
    validation: Any = None,
    weight_column: str | None = None,
    query: str | None = None,
    dates: DateOrder | None = None,
    text_column: str | None = None,
    class_weights: str | Mapping[str, float] | None = None,
    quantiles: Sequence[float] = (),
    class_order: Sequence[str] = (),
    families: str | Sequence[str] = (),
    foundation_weights: Path | str | None = None,
    preset: PresetName = DEFAULT,
    limit: str | Mapping[str, float | str] | None = None,
    seed: int = 0,
    name: str | None = None,
    store: Store | str | None = None,
    launcher: str = "ray",
    address: str | None = None,
    wait: bool = False,
) -> AutoML:
    """Find a good model for a data set within a time budget, and test it once on held-out samples.

    This returns as soon as the run has been started. The run continues without this process.

    If a run of the same call has been interrupted, or has ended after less time, it continues with
    what it knows. A note says so.

    Args:
        data: A pair (X, y), where X is a data frame, an array (samples, features), images (samples,
            height, width[, channels]) or texts. With `target`, a data frame, the path of a table
            (.csv, .tsv, .parquet, .xlsx, .jsonl, .json, .feather, .sqlite, a .zip with one of
            them, or a folder with several), or the address of a database. A folder with a folder
            of images or texts (.txt) for each class. Or the name of a bundled data set.
        target: The column to predict, if data is a table. A list, or names with commas between
            them, for several columns, all of which are numbers, or labels that are 0 or 1.
        time: Time from this call until the result is chosen and tested, in seconds or such as 10m.
            At least 10 s. Reading data and starting processes take a few seconds of it, but at
            least 8 s are left for trials. A quarter of it, from 2.5 s to 2 min, is kept for
            choosing and testing, and for fitting the chosen models to all rows.
        task: classification, regression or ordinal, or None to detect it from the target. Ordinal
            means classes with an order, such as grades. So does an ordered Categorical of pandas.
        metric: What to optimise: log_loss, accuracy, balanced_accuracy, macro_f1, f1, mcc, roc_auc
            or average_precision for classes, also quadratic_kappa or class_distance for ordered
            ones, rmse, mae, r2, mape, median_absolute_error or pinball
            for numbers. None for log_loss, or the squared error. For f1, mcc, macro_f1 and
            balanced_accuracy, the probability that is enough for a class is chosen as well.
        drop: Columns of a table that must not be used, such as those that are not known when a
            prediction is made.
        group_column: The column that says which rows belong together, such as the patient. Rows of
            one group are never on both sides of a split, and the column is not an input. By
            default it is detected. "none" treats rows as independent.
        time_column: The column that says when a row was measured. The last rows are tested, and the
            last ones before them are used to choose. By default it is detected. "none" draws rows
            at random.
        test: Samples to test on, as `data` with targets. By default a fifth is held out.
        validation: Samples to choose by, as `data` with targets. By default some are held out.
        weight_column: The column with the weight of each row in training, choice and scores. It is
            not an input. A row of weight 0 is not used.
        query: What to select if `data` is the address of a database, such as SELECT * FROM orders.
            The rows are kept with the run. The address is not.
        dates: How to read dates such as 03/04/2024 if the table does not show it: day-first,
            month-first, or year-first for 24-03-04.
        text_column: Learn from this column of texts alone.
        class_weights: What a mistake in each class costs, such as {"yes": 5}, or "balanced" for
            classes that count the same however rare they are. Probabilities stay as they are, but
            the predicted class follows the costs.
        quantiles: The quantiles to predict of each row, such as (0.1, 0.5, 0.9), optimised for the
            pinball loss. `predict` then returns a column for each. With the metric pinball, the
            default is every tenth.
        class_order: Ordered classes from the lowest to the highest, such as ("low", "medium",
            "high"). Numbers and an ordered Categorical have their own order.
        families: Model families to try, such as "lightgbm,forest" or ["lightgbm", "forest"].
            "-neighbours" leaves one out. Empty for all that suit the data and are installed.
        foundation_weights: A folder with the weights of TabICL or TabPFN, which is then tried
            also. Nothing is downloaded.
        preset: fast for one model that predicts quickly, good for the usual compromise, best for
            more folds and a larger ensemble, which predicts more slowly.
        limit: How long the prediction of one row may take, such as "latency=1ms". The result says
            how long it takes. If no model is fast enough, the fastest one is used.
        seed: Seed of the split into train, validation and test, and of everything random in the
            run.
        name: Name of the run, or None to name it after the data.
        store: The store, or None for the one that WORKBENCH_STORE names, or else the user's own.
        launcher: As in `sweep`.
        address: As in `sweep`.
        wait: Whether to return only when the run has ended.

    Returns:
        A handle: `.wait()`, `.progress`, `.leaderboard()`, `.score()`, `.predict(X)`, `.run`.

    Raises:
        DataError: If the data cannot be read, or is not sufficient to train and test on.
        ArgumentError: If an argument is invalid.
        RunError: If the driver could not be started.

    Example:
        >>> automl = wb.automl("breast_cancer", time="10s", wait=True)
        >>> automl.has_result
        True
    """
    began_s, before = monotonic(), processor_times()
    request = Request(
        data=data,
        target=target,
        time=time,
        task=task,
        metric=metric,
        drop=drop,
        group_column=group_column,
        time_column=time_column,
        test=test,
        validation=validation,
        weight_column=weight_column,
        query=query,
        dates=dates,
        text_column=text_column,
        class_weights=class_weights,
        quantiles=quantiles,
        class_order=class_order,
        families=families,
        foundation_weights=foundation_weights,
        preset=preset,
        limit=limit,
        seed=seed,
        name=name,
    )
    handle = create(request, store=store, launcher=launcher, address=address)
    shown: contextlib.AbstractContextManager[Any] = contextlib.nullcontext()
    if wait:
        shown = waiting_for(handle.run.stored, lambda: handle.progress)
    with shown:
        where: dict[str, Any] = {"began_s": began_s, "launcher": launcher, "address": address}
        share = before.share_until(processor_times())
        here = reason_for_no_driver(handle, share, **where)
        start(handle, **where, here=here, wait=wait)
        if wait:
            handle.wait()
        return handle


def create(
    request: Request,
    *,
    store: Store | str | None = None,
    launcher: str = "ray",
    address: str | None = None,
) -> AutoML:
    """Read and split data, and store a run that waits for a driver, or find one to continue.

    Args:
        request: What the user asks for.
        store: As in `automl`.
        launcher: As in `sweep`.
        address: As in `sweep`.

    Raises:
        DataError: If the data cannot be read, or is not sufficient to train and test on.
        ArgumentError: If an argument is invalid.
    """
    from workbench.runs.automl.candidates import first_configurations
    from workbench.runs.automl.preparation import pack
    from workbench.runs.automl.result import AutoML
    from workbench.runs.launch import create as create_run
    from workbench.runs.run import open_store
    from workbench.store.database.run_files import write_objects

    time_s = request.check_time_s()
    experiment_in, learning, held_out = _prepared(request)
    sha256, payload = pack(held_out)
    experiment_in = functools.partial(experiment_in, held_out=sha256)
    experiment = experiment_in(time_s=time_s)
    opened = open_store(store)
    if (continued := _to_continue(opened, experiment, experiment_in)) is not None:
        return continued
    earlier = _earlier_runs(opened, experiment, sha256)
    run = create_run(experiment, store=opened, launcher=launcher, address=address)
    write_objects(opened.artifacts_of(run.run_id), {sha256: payload})
    num_train = len(learning.folds[0].train_targets)
    for params in first_configurations(experiment, num_train):
        opened.command(run.run_id, "enqueue", {"params": params})
    for run_id in earlier:
        opened.command(run.run_id, "warm_start", {"run_id": run_id})
    return AutoML(run)


def _prepared(request: Request) -> tuple[Callable[..., Experiment], LearningData, HeldOut]:
    """Read and split the data of a request.

    Returns:
        A function that makes the experiment from `held_out`, the SHA-256 of the test part, and
        `time_s`. The part to learn from. The test part.
    """
    from workbench.runs.automl.candidates import (
        check_families,
        check_foundation,
        experiment_for,
        missing_note,
    )
    from workbench.runs.automl.latency import check_limit
    from workbench.runs.automl.preparation import MAX_FOLDS, prepare
    from workbench.runs.automl.scores import note_of_positives
    from workbench.search.samplers import training_seed

    latency_limit_s = check_limit(request.limit)
    request.check_choices()
    problem = request.read()
    levels, metric = request.check_metric(problem)
    chosen = check_families(problem.kind, request.families)
    foundation = check_foundation(problem.kind, problem.task, chosen, request.foundation_weights)
    learning, held_out = prepare(
        problem,
        request.seed,
        [training_seed(request.seed, repeat) for repeat in range(MAX_FOLDS)],
        request.preset,
        class_weights=request.class_weights,
        quantiles=levels,
        metric=metric,
    )
    notes = [
        note_of_positives(metric, problem.class_names, problem.targets),
        None if chosen else missing_note(problem.kind),
        None if foundation is None else foundation.note,
    ]
    more = [note for note in notes if note]
    held_out = dataclasses.replace(held_out, notes=(*held_out.notes, *more))
    experiment_in = functools.partial(
        experiment_for,
        problem.kind,
        learning,
        seed=request.seed,
        name=request.name or request.name_after_data(problem),
        task=problem.task,
        metric=metric,
        families=chosen,
        foundation=foundation,
        preset=request.preset,
        latency_limit_s=latency_limit_s,
    )
    return experiment_in, learning, held_out


def _to_continue(
    store: Store, experiment: Experiment, experiment_in: Callable[..., Experiment]
) -> AutoML | None:
    """Return the newest run of the same call that was interrupted, or that more time makes better.

    Args:
        store: The store.
        experiment: What was asked for.
        experiment_in: Returns it for another time, `time_s`.
    """
    from workbench.runs.automl.result import AutoML, Continued
    from workbench.runs.run import Run

    assert experiment.data is not None
    assert experiment.budget.time is not None
    for row in store.runs(limit=_MOST_COMPARED):
        if row.name != experiment.name:
            continue
        known = store.experiment(row.run_id)
        if known.data is None or known.data.options != experiment.data.options:
            continue
        if experiment_in(time_s=known.budget.time).hash() != row.experiment_hash:
            continue
        run = Run(store, row.run_id)
        used_s = run.history.in_force.budget.time or 0.0
        more_s = max(0.0, experiment.budget.time - used_s)
        if run.state == "waiting" or (run.finished and not more_s):
            return None
        automl = AutoML(run)
        more = f" with {format_duration(more_s)} more" if more_s else ""
        automl.continued = Continued(
            f"run {row.run_id} is the same call: it continues{more} from what it knows. For a new"
            " run, give it another name",
            more_s,
        )
        return automl
    return None


def _earlier_runs(store: Store, experiment: Experiment, held_out: str) -> list[str]:
    """Return the newest runs on the same rows, from whose trials the sampler can learn.

    The rows were divided in the same way, so no trial has seen a test row.

    Args:
        store: The store.
        experiment: What will be run. Only runs of the same name are read.
        held_out: SHA-256 of the test part.
    """
    from workbench.sweeps.warm_start import prior_trials

    same = []
    for row in store.runs(limit=_MOST_COMPARED):
        if row.name != experiment.name or len(same) == _MOST_EARLIER:
            continue
        with contextlib.suppress(WorkbenchError):  # such as trials of other families only
            data = store.experiment(row.run_id).data
            if data is not None and data.options.get(HELD_OUT) == held_out:
                prior_trials(store, row.run_id, experiment)
                same.append(row.run_id)
    return same


def start(
    automl: AutoML,
    *,
    began_s: float,
    launcher: str = "ray",
    address: str | None = None,
    here: str | None = None,
    wait: bool = True,
) -> None:
    """Start the driver of a stored run. Its time budget counts from when the user began to wait.

    On a busy machine, its candidates are trained one after another instead: in this process, so
    that the run has ended when this returns, or in one of its own.

    Args:
        automl: The run.
        began_s: When the user began to wait, by `time.monotonic`.
        launcher: As in `sweep`.
        address: As in `sweep`.
        here: Why there is no driver, as `reason_for_no_driver` returns it.
        wait: Whether this process may train.

    Raises:
        RunError: If the driver could not be started.
    """
    from workbench.cluster.head.attachment import attached
    from workbench.runs.automl.conclusion import conclude_elsewhere, conclude_here
    from workbench.runs.launch import start as start_run

    if automl.continued is not None:
        automl.has_new_driver = not _is_alive(automl.run)
        if more_s := automl.continued.more_s:
            automl.run.extend(time=more_s, launcher=launcher, address=address)
        elif automl.has_new_driver:
            _drive_again(automl, launcher=launcher, address=address)
        return
    if here is not None:
        waited_s = monotonic() - began_s
        if wait:
            conclude_here(automl.run.store, automl.run.run_id, here, waited_s=waited_s)
        else:
            conclude_elsewhere(automl.run, here, waited_s=waited_s)
        return
    if launcher == "inline":  # it returns when the run has ended
        with attached(address):
            _count_wait(automl.run, began_s)
            start_run(automl.run, launcher=launcher, address=address)
    else:
        start_run(automl.run, launcher=launcher, address=address)
        _count_wait(automl.run, began_s)


def reason_for_no_driver(
    automl: AutoML,
    share: float | None,
    *,
    began_s: float,
    launcher: str = "ray",
    address: str | None = None,
) -> str | None:
    """Return why a run trains without a driver on a machine as busy as this one, or None.

    Args:
        automl: The run.
        share: The part of a processor that this thread got when it needed one, from 0 to 1, or None
            if that is unknown.
        began_s: As in `start`.
        launcher: As in `sweep`.
        address: As in `sweep`.
    """
    from workbench.cluster.head.ray_environment import cluster_address
    from workbench.runs.automl.candidates import are_fitted

    time_s = automl.run.experiment.budget.time
    if share is None or share >= _BUSY_SHARE or time_s is None or automl.continued is not None:
        return None
    if launcher != "ray" or cluster_address(address) is not None:
        return None
    left_s = time_s - (monotonic() - began_s)
    if left_s * share >= _LEAST_COMPUTED_S or not are_fitted(automl.run.experiment):
        return None
    return (
        f"this machine is busy: reading the data got {share:.0%} of a processor. Models are trained"
        " one after another in one process, because others would start too late"
    )


def _drive_again(automl: AutoML, *, launcher: str, address: str | None) -> None:
    """Give a run a new driver, unless its last one ends it meanwhile: then it has its result."""
    from workbench.runs.automl.result import Continued

    automl.run.await_leaving()
    if not automl.run.finished:
        automl.run.drive_again(launcher=launcher, address=address)
        return
    automl.has_new_driver = False
    automl.continued = Continued(
        f"run {automl.run.run_id} is the same call, and it has just ended: this is its result. For"
        " a new run, give it another name",
        0.0,
    )


def _is_alive(run: Run) -> bool:
    """Return whether a driver works on a run. A killed one owns it for some more seconds."""
    before = run.row.heartbeat_unix_s
    until_s = monotonic() + _LONGEST_SILENCE_S
    while run.is_under_way and monotonic() < until_s:
        if run.row.heartbeat_unix_s != before:
            return True
        sleep(_POLL_S)
    return run.is_under_way


def _count_wait(run: Run, began_s: float) -> None:
    """Let what the user has waited before the run was driven count as time of the run."""
    time_s = run.experiment.budget.time
    if time_s is not None and not run.finished:
        least_s = MIN_TRIAL_TIME_S + concluding_s(run.experiment)
        spent_s = max(0.0, min(monotonic() - began_s, time_s - least_s))
        history = run.history
        waited_s = max(0.0, spent_s - history.active_s(history.now_unix_s()))
        run.store.command(run.run_id, "count_wait", {"seconds": round(waited_s, 1)})
