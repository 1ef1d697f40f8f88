"""What an action is: its wording, what it takes, which process carries it out, and when it is
possible.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from workbench.experiment.actions.arguments import Argument
from workbench.foundation.events import RunState, TrialState

_ALIVE: frozenset[RunState] = frozenset({"waiting", "running", "stopping"})


@dataclass(frozen=True)
class Standing:
    """What decides whether an action is possible: the state of a run and of a trial of it."""

    state: RunState
    is_advice: bool = False
    is_replay: bool = False
    num_trials: int = 0
    has_best: bool = False
    has_nothing_left: bool = False
    """Whether all trials that its budget allows have failed, so that only a larger one continues
    it.
    """
    trains_model: bool = False
    """Whether its trials train a model of torch, and leave its weights."""
    pinned: bool = False
    archived: bool = False
    has_choice: bool = False
    """Whether a trial of the run was chosen by hand; of a trial, whether it is this one."""
    can_be_chosen: bool = False
    trial_state: TrialState | None = None
    is_silent: bool = False
    """Whether its driver has given no sign since its lease expired, and is not known to be gone."""

    @property
    def is_alive(self) -> bool:
        """Whether the run has not ended."""
        return self.state in _ALIVE

    @property
    def is_sweep(self) -> bool:
        """Whether the run tries configurations."""
        return not self.is_advice

    @property
    def is_trial_unfinished(self) -> bool:
        """Whether the trial can still be stopped."""
        return self.trial_state in ("waiting", "running")


Condition = Callable[[Standing], bool]


@dataclass(frozen=True)
class Action:
    """One thing that can be done with a run, with one of its trials, or with an experiment file."""

    kind: str
    label: str
    """The name of its button."""
    help: str
    """The help of its command, imperative; the list of commands shows its first sentence."""
    done_by: Literal["driver", "store", "process", "page", "nobody"]
    """`driver`: a command is stored, which the driver carries out.

    `store`: what users write about the run is changed at once. `process`: the command line does it
    in a process of its own. `page`: the browser opens a page. `nobody`: there is only something to
    copy.
    """
    explanation: str = ""
    """What a dialog explains before it is done."""
    command: str = ""
    """The command of the command line; empty: the kind."""
    method: str | None = ""
    """The method of `Run`; empty: the kind; None: the run itself."""
    subject: Literal["run", "file"] = "run"
    arguments: tuple[Argument, ...] = ()
    for_run: Condition | None = None
    """Whether it is offered for a run; None: never."""
    for_trial: Condition | None = None
    """Whether it is offered for a trial; None: never."""
    label_for_trial: str = ""
    is_dangerous: bool = False
    """Whether it takes something away that does not come back."""
    asks_first: bool = False
    """Whether a dialog requires confirmation, also where there is nothing to fill in."""
    frees_space: bool = False
    """Whether its dialog shows what it would free."""
    may_launch: bool = False
    """Whether it may start a driver: its command takes a launcher and the address of a cluster."""
    detaches: bool = False
    """Whether its command follows the run unless it is called with --detach."""
    answer: str = ""
    """What is answered when a process has done it; the arguments may stand in braces."""
    examples: tuple[str, ...] = ()
    """Examples in the help of its command."""

    @property
    def command_name(self) -> str:
        """The command of the command line."""
        return self.command or self.kind

    @property
    def fields(self) -> tuple[Argument, ...]:
        """The arguments that a dialog has fields for."""
        return tuple(one for one in self.arguments if one.label)
