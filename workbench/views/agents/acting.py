"""Tools with which an agent acts, within the permissions and limits of its server."""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

from pydantic import JsonValue, StrictInt

from workbench.experiment import Experiment
from workbench.foundation.errors import ArgumentError, LeaseError
from workbench.foundation.events import FINISHED_RUN_STATES, VersionDecided
from workbench.foundation.formatting import format_count
from workbench.runs.decisions import Judgement, Limits
from workbench.runs.experiment_file import change_experiment
from workbench.runs.guarded_sessions import GuardedSession
from workbench.runs.launch import create, start
from workbench.runs.run import Run
from workbench.runs.trial_decisions import decide_from_runs
from workbench.store.database import Store, acting_as
from workbench.views.agents.answers import Acted, Decided, RunName, TrialNumber
from workbench.views.agents.permissions import Gate, check_agent
from workbench.views.agents.reading import ReadingTools, decided

_CHANGEABLE = (
    "budget.trials",
    "budget.time",
    "budget.plateau",
    "sampler",
    "early_stop",
    "seed",
    "repeats",
    "confirm",
)
"""Settings that an agent may change without running new code."""
_BASELINE = "baseline"
_STORED_OF_DECISIONS = ("decision", "probability", "effect", "low", "high", "more_runs")


class ActingTools:
    """The tools that propose, control and decide."""

    def __init__(
        self,
        store: Store,
        gate: Gate,
        *,
        agent: str = "agent",
        experiments: Mapping[str, Experiment] | None = None,
        session: GuardedSession | None = None,
        launcher: str = "ray",
    ) -> None:
        """Act on the runs of a store.

        Args:
            store: The store.
            gate: What the agent may do.
            agent: Its name, which events show.
            experiments: What it may start, by name.
            session: The session of its proposals, or None.
            launcher: What starts the drivers of its runs.
        """
        self._store = store
        self._gate = gate
        self._agent = check_agent(agent)
        self._experiments = dict(experiments or {})
        self._session = session
        self._launcher = launcher
        self._reading = ReadingTools(store)
        self._started: set[str] = set()
        """The runs whose trials were counted when they started."""

    def tools(self) -> list[Callable[..., Any]]:
        """Return the tools that the permissions allow."""
        by_permission: dict[str, list[Callable[..., Any]]] = {
            "propose": [self.enqueue, self.clone, self.decide],
            "control": [self.start_run, self.stop, self.extend],
            "code": [self.propose_code],
        }
        allowed = self._gate.permissions
        return [tool for name, tools in by_permission.items() if name in allowed for tool in tools]

    def enqueue(self, run: RunName, params: dict[str, JsonValue]) -> Acted:
        """Let a running run try a configuration next. Values must be within its search space."""
        self._gate.need("propose")
        opened = self._open(run, "Call extend with these params: the run continues with them.")
        with self._spending(opened.experiment.repeats, opened):
            done = opened.enqueue(params)
        return self._acted(opened, done or "the configuration is sent", "list_trials")

    def clone(
        self,
        run: RunName,
        trial: TrialNumber,
        params: dict[str, JsonValue],
        begins_from: Literal["weights", "start"] = "weights",
    ) -> Acted:
        """Try a trial again with some parameters changed, from its weights or from the start.

        From the weights needs a checkpoint. A clone counts as one more configuration.
        """
        self._gate.need("propose")
        opened = self._open(run, "Call extend with all params of the clone to train it again.")
        # If the run has no room, a clone raises its limit, so it is not a part of its budget.
        with self._spending(1):
            self._gate.check_money(opened.experiment)
            done = opened.clone(trial, set=params, from_=begins_from)
        return self._acted(opened, done or "the clone is sent", "list_trials")

    def start_run(self, experiment: str, settings: dict[str, JsonValue] | None = None) -> Acted:
        """Start a run of an experiment that the server was started with.

        `settings` changes budget.trials, budget.time, sampler, early_stop, seed, repeats or
        confirm.
        """
        self._gate.need("control")
        chosen = self._experiments.get(experiment)
        if chosen is None:
            raise ArgumentError(
                f"{experiment!r} is not an experiment of this server",
                field="experiment",
                allowed=", ".join(self._experiments) or "none: start the server with a file",
            )
        for name in settings or {}:
            if not any(
                name == changeable or name.startswith(f"{changeable}.")
                for changeable in _CHANGEABLE
            ):
                raise ArgumentError(
                    f"an agent cannot change {name}",
                    field=f"settings.{name}",
                    allowed=", ".join(_CHANGEABLE),
                )
        if settings:
            chosen = change_experiment(chosen, settings)
        run = self._start(chosen, f"started {experiment}")
        return self._acted(run, f"the run {run.run_id} has started", "show_run")

    def stop(self, run: RunName, trial: TrialNumber | None = None) -> Acted:
        """Stop a run, or one of its trials. Results are kept."""
        self._gate.need("control")
        opened = self._open(run, "Nothing is left to stop. Call show_run to see its results.")
        with acting_as(self._agent):
            done = opened.stop(trial)
        return self._acted(opened, done or "the request is sent", "show_run")

    def extend(
        self,
        run: RunName,
        more_trials: StrictInt = 0,
        confirm: StrictInt = 0,
        params: dict[str, JsonValue] | None = None,
    ) -> Acted:
        """Let a run try more configurations than its limit, also if it has ended.

        `params` is one of them, which is tried next. `confirm` trains so many of the best
        configurations again with new seeds, to see if they were lucky.
        """
        self._gate.need("control")
        for name, value in (("more_trials", more_trials), ("confirm", confirm)):
            if value < 0:
                raise ArgumentError(f"{value} is not possible", field=name, allowed="0 or more")
        opened = self._reading.find(run)
        experiment = opened.experiment
        more = max(more_trials, int(params is not None))
        again = experiment.confirm.model_copy(update={"best": confirm or None})
        confirming = experiment.model_copy(update={"confirm": again})
        count = more * experiment.repeats + confirming.max_confirmations()
        if not count:
            raise ArgumentError("nothing to extend by", allowed="more_trials, confirm or params")
        with self._spending(count):
            self._gate.check_money(experiment)
            opened.extend(
                trials=more or None,
                confirm=confirm or None,
                enqueue=params,
                launcher=self._launcher,
            )
        return self._acted(opened, f"{format_count(count, 'more trial')} may start", "show_run")

    def propose_code(self, title: str, patch: str) -> Acted:
        """Train a change of the code: a unified diff of the code with which the session began.

        The evaluation files of the session must stay as they are. An empty patch trains the
        baseline. Call decide with the name of the proposal when the run is complete.
        """
        self._gate.need("code")
        session = self._need_session()
        proposal = session.baseline() if not patch.strip() else session.propose(title, patch)
        run = self._start(proposal.experiment, f"trains {proposal.name}: {title}"[:200])
        session.add_run(proposal.name, run.run_id)
        answer = self._acted(run, f"{proposal.name} is trained in run {run.run_id}", "show_run")
        step = f"Wait until run {run.run_id} is complete, then call decide with {proposal.name}."
        return answer.model_copy(update={"next_step": step})

    def decide(self, candidate: str, baseline: str = _BASELINE) -> Decided:
        """Decide whether a proposal of the session is better than the baseline.

        Names are those of proposals, such as proposal-1. Each decision spends a part of the error
        of the session, and asking again about the same proposal spends nothing more.
        """
        self._gate.need("propose")
        session = self._need_session()
        judgement = decide_from_runs(
            session.side(baseline),
            session.side(candidate),
            limits=Limits(session=session.name, store=self._store.url),
            store=self._store,
        )
        answer = decided(judgement)
        self._record(candidate, baseline, judgement)
        if judgement.decision != "more":
            return answer
        step = "Tell the person that it is undecided: more confirm.trainings would decide it."
        return answer.model_copy(update={"next_step": step})

    def _record(self, candidate: str, baseline: str, judgement: Judgement) -> None:
        """Store a decision in the run of the proposal, where a person accepts or reverts it."""
        run_id, _, version = self._need_session().side(candidate).partition("/")
        decided_now = VersionDecided(
            version=version,
            baseline=baseline,
            **{name: getattr(judgement, name) for name in _STORED_OF_DECISIONS},
            words=judgement.sentence,
            by=self._agent,
        )
        # A LeaseError means that the run is driven at the moment, so its trainings go on.
        with (
            contextlib.suppress(LeaseError),
            self._store.writer(
                run_id, owner_pid=os.getpid(), owner_host=socket.gethostname()
            ) as writer,
        ):
            writer.append(decided_now)

    def _need_session(self) -> GuardedSession:
        if self._session is None:
            raise ArgumentError(
                "the server has no session",
                field="session",
                next_step="Ask the person to start it with --session NAME and an experiment.",
            )
        return self._session

    def _open(self, run: str, next_step: str) -> Run:
        """Return a run that has not ended."""
        opened = self._reading.find(run)
        if opened.state in FINISHED_RUN_STATES:
            raise ArgumentError(
                f"run {opened.run_id} has ended ({opened.state})", field="run", next_step=next_step
            )
        return opened

    @contextlib.contextmanager
    def _spending(self, count: int, run: Run | None = None) -> Iterator[None]:
        """Count trials, and give them back if the request fails. Events show who made it.

        Args:
            count: How many may start.
            run: The run within whose budget they start, or None if they add to it. If this server
                started the run, its whole budget has been counted.
        """
        if run is not None:
            self._gate.check_money(run.experiment)
            count = 0 if run.run_id in self._started else count
        self._gate.reserve_trials(count)
        try:
            with acting_as(self._agent):
                yield
        except BaseException:
            self._gate.reserve_trials(-count)
            raise

    def _start(self, experiment: Experiment, why: str) -> Run:
        limited = self._gate.reserve(experiment)
        try:
            run = create(limited, store=self._store, launcher=self._launcher)
            with acting_as(self._agent):
                self._store.command(run.run_id, "start", {"why": why})
            if limited.max_trainings() is not None:
                self._started.add(run.run_id)
            start(run, launcher=self._launcher)
        except BaseException:
            self._gate.release(limited)
            raise
        return run

    def _acted(self, run: Run, done: str, tool: str) -> Acted:
        return Acted(
            run=run.run_id,
            done=done,
            trials_left=self._gate.left_trials(),
            next_step=f"Call {tool} with run {run.run_id} to see the effect.",
        )


def read_experiments(paths: tuple[str, ...]) -> dict[str, Experiment]:
    """Return the experiments of files, by their names.

    Args:
        paths: The files.

    Raises:
        ExperimentError: If a file is not an experiment.
        ArgumentError: If two have the same name.
    """
    experiments: dict[str, Experiment] = {}
    for path in paths:
        experiment = Experiment.from_file(Path(path))
        if experiment.name in experiments:
            raise ArgumentError(
                f"two experiments are called {experiment.name}",
                field="EXPERIMENT",
                next_step="Give one of them another name.",
            )
        experiments[experiment.name] = experiment
    return experiments
