"""Makes the first step of a few trials in a child process, to check that they can start.

It runs as `python -m workbench.training.probes.first_step`. A model makes one optimizer step and
predicts one batch of the validation data. A fitted model or a train function runs until its first
report. Nothing is stored. Settings have been checked before.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import resource
import signal
import tempfile
import traceback
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from time import perf_counter, time
from types import FrameType
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import psutil
from pydantic import JsonValue

from workbench.experiment import Experiment
from workbench.experiment.goals import trained_metrics
from workbench.experiment.space import Params
from workbench.experiment.trial_value import find_divergence
from workbench.foundation.errors import ExperimentError, WorkbenchError
from workbench.foundation.events import Event, Noted, TrialReported
from workbench.foundation.formatting import format_params
from workbench.training.planning.typical_configurations import configurations_to_try
from workbench.training.probes.child_process import NoAnswerInTimeError, answer, query
from workbench.training.worker_task import TrialTask

if TYPE_CHECKING:
    from workbench.experiment.plan import Plan
    from workbench.training.outcome import Outcome as TrialOutcome
    from workbench.training.planning.settings import TrialSettings


LIMIT_S = 30.0
_MAX_FOLDERS, _MAX_WRITTEN = 500, 3
_LONGER_S = 2.0
"""For how long the first trial of a program is followed after its first report."""
_MARGIN_S = 15.0
"""How many seconds after the time limit the child process is killed."""
_MOST_TIMES = 10.0
"""By how much the time limit may be exceeded while other processes have the processor."""
_SOON_S = 0.05
_SPENT_PART = 1 / 3
"""After this part of the time limit, no further configuration is tried."""
_USABLE_PART = 0.8
"""The part of the available memory that the child process may use."""
Outcome = Literal["fine", "out of time", "out of memory", "several workers"]


@dataclass(frozen=True)
class _Findings:
    """The findings of a first step.

    Attributes:
        outcome: Whether the step was made, or why that remains unknown.
        unreported: Objectives that are missing in the first report of a train function.
        reported: The metrics in that report.
        not_finite: Metrics whose values in the first report of a train function or program would
            end the trial as diverged: NaN, or an infinite objective.
        num_empty_clients: Clients of a federation that hold no training sample.
        notes: Settings of your loaders that work differently here.
    """

    outcome: Outcome
    unreported: tuple[str, ...] = ()
    reported: tuple[str, ...] = ()
    not_finite: tuple[str, ...] = ()
    num_empty_clients: int = 0
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class FirstStep(_Findings):
    """The first step of a configuration.

    Attributes:
        which: The configuration in words, such as "a sample".
        params: The configuration.
        elapsed_s: Seconds that the step took.
    """

    which: str
    params: dict[str, JsonValue]
    elapsed_s: float


def try_first_steps(experiment: Experiment, *, limit_s: float = LIMIT_S) -> list[FirstStep]:
    """Make the first step of a sampled configuration of an experiment.

    If that is cheap, also make the first steps at both ends of its search space.

    Args:
        experiment: The experiment, which has passed all other checks.
        limit_s: Time limit in seconds. Time in which the step waits for a processor that others
            use does not count.

    Returns:
        The steps that were tried. It may remain unknown whether the last one can start.

    Raises:
        ExperimentError: If a step fails. The message says with which configuration.
        DataError: If the data cannot be read.
        RunError: If the child process ends without an answer.
    """
    question = {"limit_s": limit_s}
    purpose = "the first step of a trial could not be made"
    timeout_s = _MOST_TIMES * limit_s + _MARGIN_S
    try:
        answers = query(__name__, experiment, question, purpose=purpose, timeout_s=timeout_s)
    except NoAnswerInTimeError:
        which, params = next(configurations_to_try(experiment))
        return [FirstStep("out of time", which=which, params=params, elapsed_s=timeout_s)]
    names = ("unreported", "reported", "not_finite", "notes")
    steps = [FirstStep(**step | {name: tuple(step[name]) for name in names}) for step in answers]
    _check_that_a_report_is_finite(experiment, [step for step in steps if step.outcome == "fine"])
    return steps


def _check_that_a_report_is_finite(experiment: Experiment, made: list[FirstStep]) -> None:
    """Raise an error if the first report is NaN or infinite in all configurations."""
    if not made or not all(step.not_finite for step in made):
        return
    tried = [f"{step.which}: {format_params(step.params)}" for step in made]
    step = "Correct it, then check again."
    if made[0].params:
        step = f"It was tried with {'; '.join(tried)}."
    raise ExperimentError(
        f"the first report of {', '.join(made[0].not_finite)} is not a finite number: such a trial"
        " fails as diverged",
        field="train" if experiment.command is None else "command",
        next_step=step,
    )


class _OutOfTimeError(BaseException):
    """The time limit has passed. Not an Exception, so that user code does not catch it."""


class _SharedNameError(ExperimentError):
    """The program prints different numbers as one metric."""


class _ReportedError(BaseException):
    """The first report was made. Not an Exception, so that user code does not catch it."""

    def __init__(
        self, report: TrialReported, *, is_partial: bool, notes: tuple[str, ...] = ()
    ) -> None:
        """Take the report, whether objectives may be missing because they come later, and notes."""
        super().__init__()
        self.notes = notes
        self.values, self.returned, self.is_partial = report.values, report.returned, is_partial


def _answer(experiment: Experiment, question: dict[str, Any]) -> list[dict[str, Any]]:
    """Make the steps in this process, which should be a child process."""
    limit = _Limit(question["limit_s"])
    # The alarm interrupts Python code. If a library blocks, the parent kills this process later.
    signal.signal(signal.SIGALRM, limit.end)
    signal.setitimer(signal.ITIMER_REAL, limit.limit_s)
    _limit_memory()
    tried: list[FirstStep] = []
    failed: list[FirstStepFailure] = []
    with (
        tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as name,
        contextlib.suppress(_OutOfTimeError),
    ):
        for which, params in configurations_to_try(experiment):
            started_s = perf_counter()
            num_tried = len(tried) + len(failed)
            if num_tried and limit.spent_s > _SPENT_PART * limit.limit_s:
                break
            try:
                findings = _try(_task(experiment, params, Path(name), trial=num_tried))
            except _SharedNameError:  # it does not depend on the configuration
                raise
            except ExperimentError as error:
                # Continue: the message is better if it says which configurations succeed.
                failed.append(FirstStepFailure(which, params, error))
                continue
            elapsed_s = perf_counter() - started_s
            tried.append(
                FirstStep(**asdict(findings), which=which, params=params, elapsed_s=elapsed_s)
            )
            if findings.outcome != "fine":
                break
    signal.setitimer(signal.ITIMER_REAL, 0)
    if failed:
        made = {step.which: step.params for step in tried if step.outcome == "fine"}
        raise describe_failures(failed, made)
    return [asdict(step) for step in tried]


class _Limit:
    """A time limit that does not count the time in which this process waits for a processor."""

    def __init__(self, limit_s: float) -> None:
        self.limit_s = limit_s
        self._began_s, self._waited_s = perf_counter(), _waited_s()

    @property
    def spent_s(self) -> float:
        """Seconds that count."""
        return perf_counter() - self._began_s - (_waited_s() - self._waited_s)

    def end(self, _: int, frame: FrameType | None) -> None:
        """End the current step if the limit has passed, or else set the alarm again.

        An import ends first: half a NumPy can neither be used nor be imported again, and a library
        may hide the interruption and go on without it.
        """
        left_s = self.limit_s - self.spent_s
        is_last = perf_counter() - self._began_s > _MOST_TIMES * self.limit_s
        if not (is_last or left_s <= _SOON_S):
            signal.setitimer(signal.ITIMER_REAL, left_s)
        elif _is_importing(frame):
            signal.setitimer(signal.ITIMER_REAL, _SOON_S)
        else:
            raise _OutOfTimeError


def _is_importing(frame: FrameType | None) -> bool:
    """Return whether a module is imported by this frame, or by a frame that waits for it."""
    while frame is not None:
        if frame.f_code.co_filename == "<frozen importlib._bootstrap>":
            return True
        frame = frame.f_back
    return False


def _waited_s() -> float:
    """Return for how long this process has waited for a processor. 0 if the system does not say.

    While a library computes in other threads, this one waits for the slowest of them.
    """
    tasks = Path("/proc/self/task")
    own = tasks / str(os.getpid())
    others = (_waited_of(task) for task in tasks.glob("*") if task != own)
    return _waited_of(own) + max(others, default=0.0)


def _waited_of(thread: Path) -> float:
    """Return for how many seconds a thread has waited. 0 if it has ended in the meantime."""
    try:
        return float((thread / "schedstat").read_text(encoding="ascii").split()[1]) / 1e9
    except (OSError, ValueError, IndexError):
        return 0.0


def _limit_memory() -> None:
    """Let this process run out of memory before the machine does."""
    usable_bytes = int(psutil.virtual_memory().available * _USABLE_PART)
    with contextlib.suppress(ValueError, OSError):  # a stricter limit is set already
        resource.setrlimit(
            resource.RLIMIT_DATA, (usable_bytes, resource.getrlimit(resource.RLIMIT_DATA)[1])
        )


def _task(
    experiment: Experiment, params: dict[str, JsonValue], folder: Path, *, trial: int
) -> TrialTask:
    """Return the task of a trial, with the embedded objects of the experiment in a folder."""
    objects = folder / "objects"
    objects.mkdir(exist_ok=True)
    for sha256, payload in experiment.payloads().items():
        (objects / sha256).write_bytes(payload)
    return TrialTask(
        run_id="check",
        trial=trial,
        attempt=0,
        experiment_json=experiment.model_dump_json(),
        objects=str(objects),
        params=params,
        seed=experiment.seed,
        folder=str(folder / f"trial-{trial}"),
    )


def _try(task: TrialTask) -> _Findings:
    """Make the first step of a trial, or raise a WorkbenchError."""
    from workbench.training.outcome import describe, ran_out_of_memory

    try:
        return _start(task)
    except _ReportedError as reported:
        values = reported.values
        missing: list[str] = []
        if not reported.is_partial:
            needed = trained_metrics(task.experiment.objectives)
            missing = [name for name in needed if name not in values]
        if missing and reported.returned:  # no other report follows
            raise ExperimentError(
                f"the function reports nothing and returns {', '.join(values)}, but not"
                f" {', '.join(missing)}",
                field="objectives",
                allowed=list(values),
                next_step=(
                    f"Return {', '.join(missing)} as well, or choose a returned name as objective."
                ),
            ) from None
        infinite = tuple(
            name
            for name, value in values.items()
            if find_divergence(task.experiment, {name: value})
        )
        return _Findings(
            "fine",
            unreported=tuple(missing),
            reported=tuple(values),
            not_finite=infinite,
            notes=reported.notes,
        )
    except _OutOfTimeError:
        return _Findings("out of time")
    except WorkbenchError:
        raise
    except (Exception, SystemExit) as error:  # user code
        if ran_out_of_memory(error):
            return _Findings("out of memory")
        raise ExperimentError(
            f"the first step of a trial fails: {describe(error)}{_place_of(error)}",
            field=_field_of(error, task.experiment),
        ) from error


def _field_of(error: BaseException, experiment: Experiment) -> str:
    """Return the field of the code in which an error was raised."""
    from workbench.training.loading import load_trial_data

    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    if any(frame.f_code is load_trial_data.__code__ for frame in frames):
        return "data"
    if experiment.trains_model:
        return "model"
    return "train"


def _start(task: TrialTask) -> _Findings:
    """Start a trial of any kind, and end it after its first step or report."""
    from workbench.training.planning.settings import fitted_of

    experiment = task.experiment
    if not experiment.trains_model:
        if experiment.plan.decided.workers not in (None, 1):
            return _Findings("several workers")
        if experiment.command is not None:
            return _Findings(_start_program(task))
        from workbench.training.functions import run_function as run
    elif fitted_of(experiment, task.params, loads_code=True) is not None:
        from workbench.training.fitting import fit as run
    else:
        return _make_step(task)
    run(task, _end_at_report)
    return _Findings("fine")


def _start_program(task: TrialTask) -> Outcome:
    """Start a program, and end it as soon as it has written an objective."""
    from workbench.training.program_trial import NO_STEP, SHARED_NAME, run_program

    metrics = {objective.metric for objective in task.experiment.objectives}
    first: list[TrialReported] = []
    notes: list[str] = []
    ends_s: list[float] = []

    def take(event: Event) -> bool:
        if isinstance(event, Noted) and event.message.startswith((SHARED_NAME, NO_STEP)):
            notes.append(event.message)
        if isinstance(event, TrialReported) and metrics & event.values.keys() and not first:
            first.append(event)
            # The next lines may give the metric of the first trial another value.
            ends_s.append(perf_counter() + _LONGER_S * (task.trial == 0))
        return end_in_time()

    def reported() -> _ReportedError:
        said = (*notes, *_note_on_shared_files(task.experiment, started_unix_s))
        return _ReportedError(first[0], is_partial=True, notes=said)

    def end_in_time() -> bool:
        if ends_s and perf_counter() >= ends_s[0]:
            raise reported()
        return False

    started_unix_s = time()
    with _without_output():
        ended = run_program(task, take, end_in_time)
        if ended.state == "failed" and (ended.message or "").startswith(SHARED_NAME):
            raise _SharedNameError(str(ended.message), field="objectives")
        if first:
            raise reported()
    return _outcome_of(ended)


def _outcome_of(ended: TrialOutcome) -> Outcome:
    """Return how a program ended that has written no objective, or raise an error."""
    if ended.reason == "oom":
        return "out of memory"
    if ended.state == "failed":
        raise ExperimentError(f"the first trial fails: {ended.message}", field="command")
    return "fine"


def _note_on_shared_files(experiment: Experiment, since_unix_s: float) -> tuple[str, ...]:
    """Return a note if a program has written files in the working folder, which trials share."""
    if experiment.links is not None:
        return ()
    written: list[str] = []
    for folder, inner, names in itertools.islice(os.walk("."), _MAX_FOLDERS):
        inner[:] = sorted(name for name in inner if not name.startswith((".", "__")))
        for path in (Path(folder, name) for name in sorted(names)):
            with contextlib.suppress(OSError):
                if path.suffix != ".pyc" and path.stat().st_mtime >= since_unix_s:
                    written.append(path.as_posix())
    if not written:
        return ()
    more = f" and {len(written) - _MAX_WRITTEN} more" if len(written) > _MAX_WRITTEN else ""
    return (
        f"a trial has written {', '.join(written[:_MAX_WRITTEN])}{more} in the working folder,"
        " where other trials overwrite it. Write workdir: fresh, or let it write below {folder}",
    )


@contextlib.contextmanager
def _without_output() -> Iterator[None]:
    """Drop the output of a program, which would become part of the answer."""
    kept, nothing = os.dup(1), os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nothing, 1)
        yield
    finally:
        os.dup2(kept, 1)
        os.close(kept)
        os.close(nothing)


def _end_at_report(event: Event) -> bool:
    if isinstance(event, TrialReported):
        raise _ReportedError(event, is_partial=False)
    return False


def _make_step(task: TrialTask) -> _Findings:
    """Make one step of one worker, then predict and measure one batch.

    For a federation, also count the clients without samples.
    """
    import dataclasses

    from workbench.data.loader_arguments import notes_on
    from workbench.experiment.plan import PartialPlan
    from workbench.models.metrics import WholeMetric
    from workbench.training.assembly import assemble
    from workbench.training.device import join_trial
    from workbench.training.evaluation import in_parts_and_whole, measure_own
    from workbench.training.federated.clients import clients_of
    from workbench.training.first_batch import check_first_batch
    from workbench.training.loading import load_trial_data
    from workbench.training.planning.equivalent_plans import with_workers
    from workbench.training.planning.settings import resolve
    from workbench.training.strategies.capabilities import capabilities_of
    from workbench.training.tensor_source import WorkerBatch

    plan = resolve(task.experiment, task.params).plan
    # This process is a single worker. Its micro batch is the plan's, so it sees what each worker
    # of the plan would see.
    if plan.workers > 1:
        whole = {"stages": 1, "tensor": 1, "shard": 0}
        decided = with_workers(dataclasses.replace(plan, workers=plan.replicas, **whole), 1)
        assert decided is not None
        decided |= type(decided).of(**whole)
        if not capabilities_of(plan.strategy).holds_whole_model:
            decided |= type(decided).of(strategy="single")
        task = dataclasses.replace(task, plan=decided)
    if plan.precision == "fp16":  # only GPUs can train in it, and this runs on the CPU
        task = dataclasses.replace(task, plan=task.plan | PartialPlan.of(precision="fp32"))
    worker, num_empty_clients = join_trial(task), 0
    try:
        parts = assemble(task, worker)
        if (federated := parts.settings.federated) is not None:
            datasets = load_trial_data(task.run_id, task.experiment, task.seed, task.params)
            clients = clients_of(datasets, federated, task.experiment.seed)
            num_empty_clients = sum(not len(samples) for samples in clients.train)
        if plan.workers_per_replica > 1:
            _check_division(task, parts.settings, plan)
        size = parts.settings.plan.micro_batch
        check_first_batch(parts, plan=plan)
        notes = notes_on(
            parts.datasets.loading,
            global_batch=plan.global_batch,
            num_loaders=parts.settings.plan.loaders,
            draws_samples=parts.privacy is not None,
        )
        parts.strategy.train(True)
        parts.strategy.forward_backward(
            WorkerBatch(parts.train, parts.train.all_indices[:size], micro_batch=size)
        )
        parts.strategy.update(parts.settings.lr)
        parts.strategy.train(False)
        indices = parts.validation.all_indices[:size]
        # Metrics over all outputs only see the outputs of one batch here.
        means, _ = in_parts_and_whole(parts.metrics)
        kept: list[tuple[Any, Any]] = []
        totals, counts = measure_own(
            parts.strategy, parts.validation, means, indices, batch=size, worker=worker, kept=kept
        )
        for whole in parts.metrics.values():
            if isinstance(whole, WholeMetric):
                # Only `update`: the value itself may need more samples than one batch has.
                whole.begin().update(*kept[0])
        for name, metric in means.items():
            metric.finish(float(totals[name]) / float(counts[name]))
    finally:
        worker.group.close()  # the next configuration may need another group
    return _Findings("fine", num_empty_clients=num_empty_clients, notes=tuple(notes))


def _check_division(task: TrialTask, settings: TrialSettings, plan: Plan) -> None:
    """Check that a model can be divided as planned, and that its pieces compute the same."""
    import torch

    from workbench.models.model_calls import call_model, output_in
    from workbench.training.assembly import build_trial_model
    from workbench.training.loading import load_trial_data
    from workbench.training.strategies.sequence import pieces_of
    from workbench.training.strategies.tensor import prepare_cut
    from workbench.training.tensor_source import Source

    datasets = load_trial_data(task.run_id, task.experiment, task.seed, task.params)
    model = build_trial_model(
        task.experiment, task.params, settings, datasets, pretrained=False
    ).eval()
    if plan.tensor > 1:
        prepare_cut(model, plan.tensor)
        return
    source = Source(datasets.train, torch.device("cpu"))
    inputs, _ = source.fetch(source.all_indices[:2])
    with torch.no_grad():
        output = inputs
        for piece in pieces_of(model, plan.stages):
            output = piece.call(output)
        expected = output_in(call_model(model, inputs))
    try:
        torch.testing.assert_close(output_in(output), expected)
    except AssertionError as error:
        raise ExperimentError(
            "the pieces of the model do not compute the same as the model",
            field="plan.stages",
            next_step="Return every step of forward from pieces, in the same order.",
        ) from error


def _place_of(error: BaseException) -> str:
    """Return where your code failed, or "" if the error is not in your code."""
    ours = str(Path(__file__).parents[2])
    for frame in reversed(list(_frames(error))):
        if not frame.filename.startswith((ours, "<")) and "site-packages" not in frame.filename:
            return f" ({Path(frame.filename).name}, line {frame.lineno})"
    return ""


def _frames(error: BaseException) -> Iterator[traceback.FrameSummary]:
    yield from traceback.extract_tb(error.__traceback__)


class FirstStepFailure(NamedTuple):
    """A configuration whose first step fails."""

    which: str
    params: Params
    error: ExperimentError


def describe_failures(
    failed: Sequence[FirstStepFailure], made: Mapping[str, Params]
) -> ExperimentError:
    """Return the first error, with the configurations that fail and those that succeed.

    Args:
        failed: The configurations that fail, at least one.
        made: The configurations that succeed, by description.
    """
    error, has_params = failed[0].error, bool(failed[0].params)
    if not has_params:
        if error.next_step:
            return error
        return _with_step(error, "Correct it, then check again.")
    step = f"It fails with {_describe({failure.which: failure.params for failure in failed})}"
    step += f", and succeeds with {_describe(made)}." if made else "."
    if error.next_step:
        step = f"{error.next_step} {step}"
    elif made:
        step += " Correct it, or remove the values that fail from the search space."
    return _with_step(error, step)


def _with_step(error: ExperimentError, next_step: str) -> ExperimentError:
    return type(error)(error.problem, field=error.field, allowed=error.allowed, next_step=next_step)


def _describe(configurations: Mapping[str, Params]) -> str:
    return "; ".join(
        f"{which}: {format_params(params)}" for which, params in configurations.items()
    )


if __name__ == "__main__":
    answer(_answer)
