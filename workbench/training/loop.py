"""The training loop for all strategies: steps, evaluations, checkpoints and reports.

The loop knows its rank, but not how workers exchange anything. It only exchanges values at steps
that all workers agree on, or one of them would wait forever. Between reports it neither waits for
the device nor reads a loss. Making model, data and optimizer is left to `assembly`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from time import perf_counter
from typing import Any

import torch

from workbench.data.loader_arguments import notes_on
from workbench.data.ordered_splits import OrderedSplit
from workbench.experiment.training_section import EPSILON_METRIC
from workbench.experiment.trial_value import TrialValue, find_divergence
from workbench.foundation.artifacts import Artifacts, open_artifacts
from workbench.foundation.errors import ExperimentError
from workbench.foundation.events import Event, Noted, TrialReported
from workbench.foundation.formatting import format_count, format_duration
from workbench.training import checkpoint
from workbench.training.assembly import Parts, assemble, notes_on_assembly
from workbench.training.attempt_events import AttemptEvents, Report
from workbench.training.device import HeldMemory, join_trial
from workbench.training.evaluation import (
    ModelCosts,
    answer,
    measure_kept,
    measure_split,
    renew_statistics,
)
from workbench.training.exchanges.capabilities import capabilities_of as exchange_capabilities
from workbench.training.first_batch import check_first_batch, note_on_mixed_samples
from workbench.training.kept_attachments import KeptAttachments
from workbench.training.loaders import named_losses
from workbench.training.mirrored_folder import (
    branch_at,
    keep_trunk,
    mark_kept,
    read_trunk,
    take_over,
)
from workbench.training.optimizers import take_hyperparameters
from workbench.training.outcome import Outcome, diverged
from workbench.training.step_window import NoiseMeter, RankTimes, Window
from workbench.training.strategies.strategy import (
    NoiseMeasuring,
    RateSetting,
    StepCounting,
    WritableInParts,
    num_compiled,
)
from workbench.training.tensor_source import WorkerBatch
from workbench.training.worker_task import TrialTask


def train(task: TrialTask, report: Report) -> Outcome:
    """Train the model of one trial.

    Args:
        task: The order.
        report: Receives events, and returns whether the trial should stop. Called on rank 0 only.

    Returns:
        How the training ended.

    Raises:
        WorkbenchError: If the experiment cannot be trained with this configuration.
    """
    started_s = perf_counter()
    worker = join_trial(task)
    with named_losses():
        try:
            parts = assemble(task, worker)
            try:
                # Between two turns, neither the model nor the data change.
                is_checked = task.turn is not None and task.turn.number > 1
                check_first_batch(parts, is_checked=is_checked)
                return _Loop(task, parts, report, started_s).run()
            finally:
                parts.close()
        finally:
            worker.group.close()


class _Loop:
    """One attempt at a trial, and its position in the training."""

    def __init__(self, task: TrialTask, parts: Parts, report: Report, started_s: float) -> None:
        self._task = task
        self._parts = parts
        self._report = report
        self._started_s = started_s
        self._events = AttemptEvents(task, report, parts.worker, started_s=started_s)
        self._attachments = KeptAttachments(task, report)
        self._memory = HeldMemory(parts.worker.device, task.experiment)
        self._step = 0
        self._epochs_done = 0
        self._steps_of_epoch = 0
        self._epoch_so_far: tuple[float, int] = (0.0, 0)
        self._saved_s = self._evaluated_s = started_s
        self._reads_again = False
        """Whether the epoch continues with new requests to the loaders."""
        self._value = TrialValue(task.experiment)
        self._values: dict[str, float] = {}
        # The step whose weights are the best so far, if this attempt has saved them.
        self._kept_step: int | None = None
        self._costs = ModelCosts(task.experiment, parts.model_bytes)
        self._window = Window(parts.worker)
        settings = parts.settings
        self._rank_times = RankTimes(parts.worker)
        self._noise = NoiseMeter(
            parts.worker,
            settings.plan,
            enabled=settings.training.measure_noise
            and parts.privacy is None
            and isinstance(parts.strategy, NoiseMeasuring)
            and exchange_capabilities(settings.plan.exchange).is_exact,
            mixes_samples=parts.mixes_samples or parts.loss.division == "none",
        )
        if settings.follows_noise and not self._noise.measures:
            raise ExperimentError(
                "adascale needs the noise of the gradients, which cannot be measured here: the"
                " model is divided among workers, or a step has only one part and its loss cannot"
                " be divided",
                field="training.lr_rule",
                next_step=(
                    "Set plan.accumulation to 2 or more, plan.stages and plan.tensor to 1, or"
                    " choose another rule."
                ),
            )
        if settings.training.evaluate_after is not None:
            _check_evaluations_within_epochs(parts)
        self._peak_lr = settings.lr
        self._last_epoch = settings.training.epochs
        if task.segment is not None:
            self._last_epoch = task.segment.end
        self._turn_epoch = self._last_epoch
        if task.turn is not None and task.turn.end is not None:
            self._turn_epoch = min(self._last_epoch, task.turn.end)
        self._compiles = settings.plan.compile == "default"
        self._num_compiled = num_compiled() if self._compiles else 0
        self._compile_s: float | None = None
        self._began: tuple[int, float] | None = None
        """The step and the epochs of the checkpoint, if that of another trial was loaded."""
        self._trunk_s: float | None = None
        """How long another trial has trained what this one took over from it, or None."""
        self._steps_per_epoch = parts.train.num_batches(settings.plan.global_batch)

    def run(self) -> Outcome:
        """Train until the end or a stop, and return how it ended."""
        if self._task.resume:
            self._resume()
        self._note_assembly()
        parts = self._parts
        begins: dict[str, Any] = {}
        if self._began is not None and (self._task.clone is not None or self._trunk_s is not None):
            begins = {"begins_step": self._began[0], "begins_epoch": self._began[1]}
        if self._trunk_s is not None:
            begins |= {"trunk_of": self._task.trunk_of, "saved_s": self._trunk_s}
        planned = self._events.planned(
            parts.settings.plan,
            parts.datasets,
            parts.metrics,
            peak_rate=parts.settings.peak_rate,
            tokens=parts.tokens,
            memory_limit_bytes=self._memory.limit_bytes,
            has_blocks=parts.has_blocks,
            divides_batch=parts.loss.division != "none",
            **begins,
        )
        if parts.language_tasks is not None:
            goals = {**planned.goals, **parts.language_tasks.goals}
            planned = planned.model_copy(update={"goals": goals})
        ended = self._send(planned)
        if ended is not None:
            return ended
        parts.strategy.train(True)
        while self._epochs_done < self._turn_epoch:
            ended = self._train_epoch() or self._finish_epoch()
            if ended is not None:
                return ended
        if self._epochs_done < self._last_epoch:
            return Outcome("stopped", self._step, self._value.result(), ends_turn=True)
        measure_kept(
            self._task, self._parts, self._report, has_kept_weights=self._kept_step == self._step
        )
        return Outcome("complete", self._step, self._value.result())

    def _note_assembly(self) -> None:
        """Report notes on how the training was assembled.

        The first trial of a run also reports which options of your loaders work differently here,
        and whether the samples of a batch affect each other.
        """
        task, parts = self._task, self._parts
        for note in notes_on_assembly(task, parts):
            self._report(note)
        if not self._is_first_of_run:
            return
        notes = notes_on(
            parts.datasets.loading,
            global_batch=parts.settings.plan.global_batch,
            num_loaders=parts.settings.plan.loaders,
            draws_samples=parts.privacy is not None,
        )
        for message in (*notes, note_on_mixed_samples(parts)):
            if message is not None:
                self._report(Noted(level="warning", message=message))

    def _train_epoch(self) -> Outcome | None:
        self._window.start_epoch(*self._epoch_so_far)
        self._reads_again, ended = True, None
        while self._reads_again and ended is None:
            self._reads_again = False
            ended = self._train_steps()
        return ended

    def _train_steps(self) -> Outcome | None:
        """Train until the end of the epoch, or until it must be read again."""
        parts, window = self._parts, self._window
        strategy, profiler = parts.strategy, parts.profiler
        # Looked up once, because checking a protocol at each step takes too long.
        rate_setting = strategy if isinstance(strategy, RateSetting) else None
        counting: StepCounting | None = None
        if parts.loss.is_counted and isinstance(strategy, StepCounting):
            counting = strategy
        for batch in parts.train.ahead(self._coming_steps()):
            profiler.start_step()
            began_s = perf_counter()
            # Some strategies update parameters within `forward_backward`, and need the rate now.
            if rate_setting is not None:
                rate_setting.set_rate(self._lr())
            if batch.is_measured:
                assert isinstance(strategy, NoiseMeasuring)
                measured = strategy.measure(batch)
                loss = measured.loss
                self._noise.add(measured)
                self._follow_noise()
            else:
                loss = strategy.forward_backward(batch)
            strategy.update(self._lr())
            # The rate of a step belongs to its number before it is counted.
            self._parts.schedule.after_step()
            self._step += 1
            self._steps_of_epoch += 1
            is_due = window.add(loss, batch.num_samples, counting.step_count if counting else None)
            if self._compiles:
                self._note_compiling(loss, began_s, batch.num_samples)
            if self._step in self._task.branches and self._is_within_epoch:
                window.read()  # the checkpoint holds the loss of the epoch so far
                self._keep_branch()
            if is_due:
                ended = self._read_window()
                if ended is not None or self._reads_again:
                    return ended
        return None

    def _coming_steps(self) -> Iterator[WorkerBatch]:
        """Yield the remaining steps of the epoch.

        Loaders read ahead of the training, so this must not depend on the results of steps.
        """
        parts, worker = self._parts, self._parts.worker
        batches = parts.train.batches(
            global_batch=parts.settings.plan.global_batch,
            epoch=self._epochs_done,
            seed=self._task.seed,
            start=self._steps_of_epoch,
            sample_rate=parts.privacy.sample_rate if parts.privacy is not None else None,
        )
        for step, indices in enumerate(batches, start=self._step):
            measured_micro_batch = self._noise.micro_batch(step, len(indices))
            yield WorkerBatch(
                parts.train,
                indices,
                micro_batch=measured_micro_batch or parts.settings.plan.micro_batch,
                replica=worker.replica,
                num_replicas=worker.num_replicas,
                is_measured=measured_micro_batch is not None,
            )

    def _note_compiling(self, loss: torch.Tensor, began_s: float, num_samples: int) -> None:
        """Exclude a step that has compiled something from the measured speed."""
        if num_compiled() == self._num_compiled:
            return
        loss.item()  # waits for the GPU, which may still be computing the step
        elapsed_s = perf_counter() - began_s
        self._num_compiled, self._compile_s = num_compiled(), (self._compile_s or 0.0) + elapsed_s
        self._window.exclude(elapsed_s, num_samples)
        self._parts.profiler.close_window()
        if self._is_first_of_run:
            message = f"compiled in {elapsed_s:.1f} s, which is not counted in the speed"
            self._report(Noted(level="info", message=message, trial=self._task.trial))

    @property
    def _is_first_of_run(self) -> bool:
        """Whether this worker writes the notes that are the same for all trials of the run."""
        return not (self._parts.worker.rank or self._task.trial or self._task.attempt)

    def _lr(self) -> float:
        return self._peak_lr * self._parts.schedule.factor(self._step)

    def _follow_noise(self) -> None:
        """Update the rate of adascale after a measured step.

        All other readings of the noise come with the reports, so they depend on the clock. The rate
        must not, or a resumed training would differ.
        """
        settings = self._parts.settings
        if settings.follows_noise:
            self._noise.read()
            self._peak_lr = settings.peak_lr(self._noise.noise_scale())

    def _read_window(self) -> Outcome | None:
        """Read the window, as all workers do at this step, and report it if it is old enough."""
        # Clocks differ between workers. Reading the window also agrees on whether to save now.
        training = self._parts.settings.training
        reading = self._window.read(
            saves=_is_over(training.checkpoint_after, self._saved_s),
            evaluates=_is_over(training.evaluate_after, self._evaluated_s),
        )
        self._noise.read()
        if not math.isfinite(reading.mean_loss):
            return diverged("train_loss", reading.mean_loss, self._step, self._values)
        ended = None
        if reading.is_due:
            epoch = self._step / self._steps_per_epoch
            ended = self._send(self._report_event({"train_loss": reading.mean_loss}, epoch))
        if ended is not None or not self._is_within_epoch:
            return ended
        is_best = False
        if reading.is_evaluation_requested:
            ended, is_best = self._evaluate()
            # Loaders have dropped what they had read ahead, to read the validation data.
            self._reads_again = self._parts.loaders is not None
        is_last = reading.is_save_requested and ended is None
        if is_last or is_best:
            ended = self._save(last=is_last, best=is_best) or ended
        return ended

    @property
    def _is_within_epoch(self) -> bool:
        return self._steps_of_epoch < self._steps_per_epoch

    def _finish_epoch(self) -> Outcome | None:
        self._epochs_done += 1
        self._parts.schedule.after_epoch()
        self._steps_of_epoch = 0
        self._epoch_so_far = (0.0, 0)
        mean_loss = self._window.read().mean_loss
        self._noise.read()
        if not math.isfinite(mean_loss):
            return diverged("train_loss", mean_loss, self._step, self._values)
        training = self._parts.settings.training
        is_last = self._epochs_done == self._last_epoch
        ended, is_best = None, False
        if is_last or self._epochs_done % training.evaluate_every == 0:
            ended, is_best = self._evaluate()
        # Report first, then save. A crash in between repeats an epoch. In the other order, a crash
        # would lose the report.
        is_kept = self._epochs_done in self._task.kept_epochs
        is_turn = self._epochs_done == self._turn_epoch
        is_due = ended is None and (
            is_turn or is_kept or self._epochs_done % training.checkpoint_every == 0
        )
        if is_due or is_best:
            ended = self._save(last=is_due, best=is_best) or ended
        if is_kept and is_due:
            self._keep_trunk()
        if self._step in self._task.branches:
            self._keep_branch()
        return ended

    def _evaluate(self) -> tuple[Outcome | None, bool]:
        parts = self._parts
        # Close the window before evaluating, so that the speed is the speed of training.
        is_end = self._steps_of_epoch == 0
        epoch = self._epochs_done + self._steps_of_epoch / self._steps_per_epoch
        speeds = self._report_event({}, epoch)
        values = {"train_loss": self._window.epoch_mean()}
        plan, worker = parts.settings.plan, parts.worker
        with self._window.paused():
            if is_end:
                batches = parts.train.batches(
                    global_batch=plan.global_batch,
                    epoch=self._epochs_done - 1,
                    seed=self._task.seed,
                )
                renew_statistics(
                    parts.strategy,
                    parts.train,
                    batches,
                    micro_batch=plan.micro_batch,
                    worker=worker,
                )
            measured = measure_split(parts, parts.validation)
            answers = answer(parts)
            values |= self._costs.measure(parts.strategy, parts.validation, worker)
            if parts.language_tasks is not None:
                values |= parts.language_tasks.measure(
                    parts.strategy, worker, batch=plan.micro_batch
                )
        values |= {f"val_{name}": value for name, value in measured.items()}
        if parts.privacy is not None:
            values[EPSILON_METRIC] = parts.privacy.spent_epsilon(self._step)
        self._values = values
        if is_end:  # the rate must not follow the clock
            self._parts.schedule.after_evaluation(values)
        is_best = self._value.report(values, step=self._step)
        # If the value of a trial is its last evaluation, the last weights are kept, not the best.
        if not self._value.follows_best:
            is_best = self._epochs_done == self._last_epoch
        self._evaluated_s = perf_counter()
        elapsed_s = self._evaluated_s - self._started_s
        event = speeds.model_copy(update={"values": values, "elapsed_s": elapsed_s})
        ended = self._send(event)
        if answers is not None:
            self._attachments.take(self._step, answers)
            self._attachments.close()
        name = find_divergence(self._task.experiment, values)
        if name is not None:
            return diverged(name, values[name], self._step, values), False
        return ended, is_best

    def _report_event(self, values: dict[str, float], epoch: float) -> TrialReported:
        """Close the window and return its speed as an event."""
        samples_per_s = self._window.close()
        noise = self._noise.moments()
        compile_s, self._compile_s = self._compile_s, None
        parts_s = self._parts.profiler.close_window()
        slowest = self._rank_times.add(parts_s)
        return self._events.reported(
            self._step,
            values,
            epoch=epoch,
            samples_per_s=samples_per_s,
            memory_share=self._memory.share(),
            compile_s=compile_s,
            parts_s=parts_s,
            slowest_rank=None if slowest is None else slowest.rank,
            slowest_rank_factor=None if slowest is None else slowest.factor,
            gradient_signal_sqr=None if noise is None else noise.signal_sqr,
            gradient_noise=None if noise is None else noise.noise,
        )

    def _send(self, event: Event) -> Outcome | None:
        """Report, and return how the training ended if it was stopped. See AttemptEvents.send."""
        stop = self._events.send(event)
        if not stop:
            return None
        return Outcome("stopped", self._step, self._value.result())

    def _save(self, *, last: bool, best: bool) -> Outcome | None:
        with self._window.paused():
            path = self._write(self._task.checkpoints, last=last, best=best)
            self._saved_s = perf_counter()
        if best:
            self._kept_step = self._step
        return self._send(self._events.saved(self._step, path, best=best))

    def _write(self, folder: Artifacts, *, last: bool, best: bool) -> str:
        """Write a checkpoint of this step. Every worker must call it.

        Returns:
            Its path on rank 0, and "" on the other ranks.
        """
        strategy, worker = self._parts.strategy, self._parts.worker
        content = {
            "step": self._step,
            "epochs_done": self._epochs_done,
            "steps_of_epoch": self._steps_of_epoch,
            "epoch_so_far": self._window.epoch_so_far() if self._steps_of_epoch else (0.0, 0),
            "global_batch": self._parts.settings.plan.global_batch,
            "value": self._value.state(),
            "values": self._values,
            "noise": self._noise.state_dict(),
            "schedule": self._parts.schedule.state_dict(),
            "random": worker.group.gather(checkpoint.random_states()),
        }
        # `state` gathers the whole model on rank 0, which may not have room for a large one.
        is_large = self._parts.model_bytes >= checkpoint.IN_PARTS_FROM_BYTES
        if is_large and worker.num_workers > 1 and isinstance(strategy, WritableInParts):
            return checkpoint.save_in_parts(
                folder, content, strategy.parts(), worker.group, last=last, best=best
            )
        content["strategy"] = strategy.state()
        if worker.rank != 0:
            return ""
        # Between two turns, the process trains other trials and then continues this one.
        ends_turn = last and self._epochs_done == self._turn_epoch < self._last_epoch
        return checkpoint.save(folder, content, last=last, best=best, is_read_soon=ends_turn)

    def _keep_branch(self) -> None:
        """Keep a checkpoint of this step, from which a clone of the trial will continue."""
        with self._window.paused():
            branch = branch_at(self._task.artifacts, self._step)
            self._write(branch.below("checkpoints"), last=True, best=False)
            if self._parts.worker.rank == 0:
                mark_kept(branch)

    def _keep_trunk(self) -> None:
        """Keep the checkpoints for trials that train the same until now, and then decay."""
        if self._parts.worker.rank:
            return
        trained_s = perf_counter() - self._started_s + (self._trunk_s or 0.0)
        about: dict[str, Any] = {
            "plan": self._parts.settings.plan.to_json(),
            "trained_s": trained_s,
        }
        keep_trunk(self._task.artifacts, self._epochs_done, about)

    def _note_trunk(self, epochs: int) -> None:
        if self._parts.worker.rank:
            return
        message = (
            f"trial {self._task.trial} begins with the first {format_count(epochs, 'epoch')} of"
            f" trial {self._task.trunk_of}, which are the same:"
            f" {format_duration(self._trunk_s or 0.0)} saved"
        )
        self._report(Noted(level="info", message=message, trial=self._task.trial))

    def _can_take_trunk(self) -> bool:
        """Return whether another trial has trained by this trial's plan, as all workers see it.

        Other plans round differently.
        """
        assert self._task.continued is not None
        about = read_trunk(open_artifacts(self._task.continued))
        if about is None or about["plan"] != self._parts.settings.plan.to_json():
            return False
        self._trunk_s = float(about["trained_s"])
        return True

    def _resume(self) -> None:
        before = self._task.continued_checkpoints
        if self._task.trunk_of is not None and not self._can_take_trunk():
            before = None
        # Without a segment or a clone, this is the same training as before, in another trial. It
        # takes over the checkpoints as if they were its own.
        is_same = self._task.segment is None and self._task.clone is None
        if before is not None and is_same:
            take_over(self._task)
            self._parts.worker.group.gather(None)  # no rank reads before the files are there
            before = None
        content = checkpoint.read_latest(self._task.checkpoints)
        is_own = content is not None or before is None
        if before is not None and not is_own:
            content = self._read_continued(before)
            self._began = content["step"], content["step"] / self._steps_per_epoch
        if content is None:
            self._trunk_s = None
            if self._parts.worker.rank == 0 and self._task.last_checkpoint is not None:
                message = "the trial starts again, because its checkpoint is damaged"
                self._report(Noted(level="warning", message=message, trial=self._task.trial))
            return
        self._parts.strategy.load(content["strategy"])
        self._step = content["step"]
        if self._trunk_s is not None:
            self._began = self._step, self._step / self._steps_per_epoch
            self._note_trunk(content["epochs_done"])
        self._epochs_done = content["epochs_done"]
        self._steps_of_epoch = content["steps_of_epoch"]
        self._epoch_so_far = tuple(content["epoch_so_far"])
        if is_own:
            self._values = content["values"]
            self._value.load(content["value"])
        self._parts.schedule.load_state_dict(content["schedule"])
        self._noise.load_state_dict(content["noise"])
        self._follow_noise()
        rank = self._parts.worker.rank
        if rank < len(content["random"]):
            checkpoint.set_random_states(content["random"][rank])
        else:  # the checkpoint is from a training with fewer workers
            torch.manual_seed(self._task.seed + rank + self._step)

    def _read_continued(self, folder: Artifacts) -> dict[str, Any]:
        """Return the checkpoint of the continued trial, with this trial's hyperparameters."""
        content = checkpoint.read_latest(folder)
        if content is None:
            raise self._task.nothing_to_continue()
        strategy = self._parts.strategy
        # Only hyperparameters are read from it. If possible, avoid `state`, which would assemble
        # the whole model.
        own = strategy.parts().rest if isinstance(strategy, WritableInParts) else strategy.state()
        take_hyperparameters(
            content["strategy"].get("optimizer"),
            own.get("optimizer"),
            self._parts.settings.training,
        )
        # With another batch size, an epoch has another number of steps.
        batch = self._parts.settings.plan.global_batch
        steps = round(content["steps_of_epoch"] * content.get("global_batch", batch) / batch)
        steps = min(steps, self._steps_per_epoch - 1)
        if self._task.clone is not None and content["epochs_done"] >= self._last_epoch:
            raise self._task.nothing_left()
        return content | {
            "step": content["epochs_done"] * self._steps_per_epoch + steps,
            "steps_of_epoch": steps,
        }


def _is_over(limit_s: float | None, began_s: float) -> bool:
    return limit_s is not None and perf_counter() - began_s > limit_s


def _check_evaluations_within_epochs(parts: Parts) -> None:
    """Check that an evaluation within an epoch does not disturb it.

    Raises:
        ExperimentError: If it would.
    """
    training = parts.settings.training
    field, problem, next_step = "training.evaluate_after", None, "Remove it, or remove the mean."
    is_averaged = training.average_decay is not None or training.average_start is not None
    if is_averaged and parts.mixes_samples:
        problem = "mean weights of a model with batch normalisation need a whole epoch of samples"
    elif parts.loaders is not None and isinstance(parts.datasets.train, OrderedSplit):
        problem = "loaders cannot continue a stream after they have read the validation data"
        next_step = "Remove it, or set plan.loaders: 0."
    if problem is not None:
        raise ExperimentError(problem, field=field, allowed="null", next_step=next_step)
