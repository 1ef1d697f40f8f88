"""What the tests of the study share: small experiments and a person who drives the study."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any

from workbench.experiment import Experiment
from workbench.foundation.events import Event, TrialEnded, TrialReported
from workbench.search import Proposal, Study
from workbench.search.importance import Importance
from workbench.search.study import ENDS


def make_experiment(**changes: Any) -> Experiment:
    """Make an experiment with one objective to minimize and one parameter."""
    fields: dict[str, Any] = {
        "train": "module:function",
        "objectives": [{"metric": "loss", "goal": "minimize"}],
        "search": {"x": {"low": 0.0, "high": 1.0}},
    }
    return Experiment(**fields | changes)


class Drive:
    """Drives a study as a run's driver does, and records the events."""

    def __init__(self, experiment: Experiment) -> None:
        self.experiment = experiment
        self.study = Study(experiment)
        self.events: list[Event] = []

    def ask(self, **options: bool) -> Proposal:
        proposal = self.study.ask(**options)
        assert proposal is not None
        self.events.append(proposal.event())
        return proposal

    def report(
        self,
        trial: int,
        rung: int,
        *,
        elapsed_s: float = 0.0,
        attempt: float = 0,
        memory_share: float | None = None,
        **values: float,
    ) -> bool:
        event = TrialReported(
            trial=trial,
            attempt=int(attempt),
            step=rung,
            elapsed_s=elapsed_s,
            memory_share=memory_share,
            values=values,
        )
        self.events.append(event)
        return self.study.take_report(event)

    def end(self, trial: int, state: str = "complete", **fields: Any) -> None:
        fields.setdefault("values", self.study.result(trial))
        event = TrialEnded.model_validate({"trial": trial, "attempt": 0, "state": state, **fields})
        self.events.append(event)
        self.study.tell(trial, event)

    def apply(self, event: Event) -> None:
        self.events.append(event)
        self.study.apply(event)

    def train(self, curve: Callable[[Mapping[str, Any], int], float], rungs: int = 1) -> Proposal:
        """Ask for a trial and train it to its end, or until it is pruned."""
        proposal = self.ask()
        for rung in range(1, rungs + 1):
            if self.report(proposal.trial, rung, loss=curve(proposal.params, rung)):
                self.end(proposal.trial, "pruned")
                return proposal
        self.end(proposal.trial)
        return proposal

    def rebuilt(self) -> Study:
        return Study.rebuild(self.experiment, self.events)

    def importance_from_ends(self) -> Importance:
        """Return the importance of a study that reads only the reports that it asks for."""
        reports = [event for event in self.events if isinstance(event, TrialReported)]
        ends = [event for event in self.events if event.type in ENDS]

        def read(numbers: Collection[int]) -> list[TrialReported]:
            assert len(numbers) <= 300
            return [event for event in reports if event.trial in numbers]

        return Study.rebuild(self.experiment, ends, reads_only=True).importance(read=read)
