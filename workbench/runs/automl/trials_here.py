"""Train the candidates of a run in this process, one after another.

On a busy machine, the processes of Ray need most of a short time to start. Here, the first
candidate is trained at once. Trials, events and checkpoints are those of a driver, so that the
result is chosen in the same way, and a driver can continue the run.
"""

from __future__ import annotations

import os
import socket
import time
from typing import Any, Literal

from workbench.experiment import Experiment
from workbench.experiment.automl import concluding_s
from workbench.foundation.events import (
    CommandHandled,
    Event,
    TrialEnded,
    TrialEnqueued,
    TrialReported,
    TrialStarted,
)
from workbench.hardware.resources import processor_times
from workbench.runs.automl.candidates import in_order_of_time
from workbench.search import Proposal, Study
from workbench.store.database import Command, RunWriter, Store
from workbench.store.database.run_files import trial_folder
from workbench.store.history.failure_text import failure_message
from workbench.training.trial import run_trial
from workbench.training.worker_task import TrialTask

# Seconds of a processor that choosing, testing and fitting to all rows take at least. What is told
# about the model beyond its score takes 3 s, but ends when the time is over.
_CONCLUDED_S = 2.0
# Trials may take this part of their time in any case. The share of the processor is uncertain.
_LEAST_PART = 0.5
_INTERRUPTED = failure_message(KeyboardInterrupt())


Ending = Literal["stopped", "late", "tried"]
"""Why no further trial starts: the user stopped the run, its time is over, or all were tried."""


def train_here(store: Store, run_id: str, writer: RunWriter, *, left_s: float) -> Ending:
    """Train the first configurations of a run on all of their folds, until the time is over.

    A training that is under way then is cut short. Its best weights are kept. The first one is
    trained to its end in any case: it takes about a second of a processor, and there is no result
    without it.

    Args:
        store: The store of the run.
        run_id: Its id.
        writer: Its writer.
        left_s: How many seconds trials may take, if any. Less if the machine is so busy that
            choosing among them needs some of it.

    Returns:
        Why it ended.

    Raises:
        LeaseError: If another process drives the run.
        KeyboardInterrupt: If the user interrupted this process.
    """
    return _Trials(store, run_id, writer, left_s).run()


class _Trials:
    def __init__(self, store: Store, run_id: str, writer: RunWriter, left_s: float) -> None:
        self._store, self._run_id, self._writer = store, run_id, writer
        self._experiment: Experiment = store.experiment(run_id)
        self._study = Study(self._experiment)
        self._left_s, self._began_s = left_s, time.monotonic()
        self._began = processor_times()
        self._last_command = 0
        self._is_stopped = False

    def run(self) -> Ending:
        self._enqueue([command for command in self._commands() if command.kind == "enqueue"])
        study = self._study
        while study.num_enqueued or study.has_waiting_repeats:
            proposal = study.ask()
            if proposal is None:
                break
            self._train(proposal)
            if self._is_over():
                return "stopped" if self._is_stopped else "late"
        return "tried"

    def _commands(self) -> list[Command]:
        commands = self._store.commands(self._run_id, after=self._last_command)
        if commands:
            self._last_command = commands[-1].number
        return commands

    def _enqueue(self, commands: list[Command]) -> None:
        """Take the configurations that the run was created with."""
        events: list[Event] = []
        given: list[dict[str, Any]] = [command.arguments["params"] for command in commands]
        for params in in_order_of_time(given):
            self._study.enqueue(params)
            events.append(TrialEnqueued(params=params))
        events += [
            _handled(command, "the configuration is next in the queue") for command in commands
        ]
        if events:
            self._writer.append(*events)

    def _is_over(self, *, is_first: bool = False) -> bool:
        """Return whether no training may go on: the user stopped the run, or its time is over.

        Args:
            is_first: Whether the first training is under way, for which there is always time.
        """
        for command in self._commands():
            if command.kind == "stop":
                self._writer.append(_handled(command, "the run is stopping"))
                self._is_stopped = True
        share = self._began.share_until(processor_times())
        needed_s = _CONCLUDED_S / share if share else 0.0
        missing_s = max(0.0, needed_s - concluding_s(self._experiment))
        trials_s = max(_LEAST_PART * self._left_s, self._left_s - missing_s)
        return self._is_stopped or (not is_first and time.monotonic() > self._began_s + trials_s)

    def _train(self, proposal: Proposal) -> None:
        number, artifacts = proposal.trial, self._store.artifacts_of(self._run_id)
        self._writer.append(
            proposal.event(),
            TrialStarted(
                trial=number,
                attempt=0,
                worker_pids=[os.getpid()],
                hosts=[socket.gethostname()],
            ),
        )
        task = TrialTask(
            self._run_id,
            number,
            0,
            self._experiment.model_dump_json(),
            objects=artifacts.below("objects").url,
            params=dict(proposal.params),
            seed=proposal.seed,
            folder=artifacts.below(trial_folder(number)).url,
        )
        is_pruned = False

        def report(event: Event) -> bool:
            nonlocal is_pruned
            self._writer.append(event)
            if not isinstance(event, TrialReported):
                return False
            is_pruned = self._study.take_report(event)
            return is_pruned or self._is_over(is_first=number == 0)

        ended = run_trial(task, report)
        is_interrupted = ended.state == "failed" and ended.message == _INTERRUPTED
        if is_interrupted:
            ended = TrialEnded(trial=number, attempt=0, state="stopped", message="interrupted")
        elif ended.state == "stopped" and is_pruned:
            why = self._study.why_pruned(number)
            ended = ended.model_copy(update={"state": "pruned", "message": why})
        self._study.tell(number, ended)
        self._writer.append(ended)
        if is_interrupted:
            raise KeyboardInterrupt


def _handled(command: Command, message: str) -> CommandHandled:
    return CommandHandled(
        command=command.number, kind=command.kind, done=True, message=message, by=command.by
    )
