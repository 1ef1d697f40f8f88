"""What users write about a run, and how to delete it.

The events and the experiment stay as they are.
"""

from __future__ import annotations

from collections.abc import Sequence

from workbench.experiment.actions import suggest
from workbench.experiment.automl import is_automl
from workbench.foundation.errors import ArgumentError, RunError
from workbench.runs.view import RunView
from workbench.store.database import labels
from workbench.store.database.removal import RunSize, delete_run, measure_run, refuse_under_way
from workbench.store.history.history import check_choice, describe_choice


class LabelledRun(RunView):
    """A run with its name, tags and notes, which can be changed at any moment."""

    @property
    def tags(self) -> tuple[str, ...]:
        """Its tags, in the order in which they were added."""
        return self.row.tags

    @property
    def notes(self) -> str:
        """What users wrote about it; empty if nothing."""
        return self.row.notes

    @property
    def size(self) -> RunSize:
        """How many bytes its files and its events take up."""
        return measure_run(self.store, self.run_id)

    def rename(self, name: str) -> str:
        """Give the run another name; its id and its experiment stay as they are.

        Args:
            name: The new name; empty for that of the experiment.

        Returns:
            What was done.

        Raises:
            ExperimentError: If it cannot be a name.

        Example:
            >>> run.rename("baseline")
            'its name is baseline'
            >>> run.name
            'baseline'
        """
        return f"its name is {labels.rename(self.store, self.run_id, name)}"

    def tag(self, add: str | Sequence[str] = (), *, remove: str | Sequence[str] = ()) -> str:
        """Add tags to the run, or remove some.

        Args:
            add: A tag, or several.
            remove: A tag, or several; those that it does not have are ignored.

        Returns:
            The tags that it has now, in words.

        Raises:
            ArgumentError: If a text cannot be a tag, or there would be too many.

        Example:
            >>> run.tag(["baseline", "small"])
            'tags: baseline, small'
            >>> run.tag(remove="small")
            'tags: baseline'
        """
        found = labels.change_tags(self.store, self.run_id, _listed(add), _listed(remove))
        return f"tags: {', '.join(found)}" if found else "it has no tags"

    def note(self, text: str) -> str:
        """Replace the notes of the run.

        Args:
            text: The notes; empty to remove them.

        Returns:
            What was done.

        Raises:
            ArgumentError: If they are too long or contain control characters.

        Example:
            >>> run.note("The first one with warm-up.")
            'the notes are stored'
            >>> run.notes
            'The first one with warm-up.'
        """
        labels.write_notes(self.store, self.run_id, text)
        return "the notes are stored" if text.strip() else "the notes are removed"

    def pin(self, *, undo: bool = False) -> str:
        """Let lists show the run first.

        Args:
            undo: Show it in its place again.

        Returns:
            What was done.

        Example:
            >>> run.pin()
            'pinned'
        """
        labels.set_pinned(self.store, self.run_id, not undo)
        return "no longer pinned" if undo else "pinned"

    def choose(self, trial: int | None = None, *, undo: bool = False) -> str:
        """Choose a trial by hand: it is taken, instead of the best, wherever no trial is named.

        `best`, `export`, `compress` and RUN/best of a command take it; the search goes on as
        before.

        Args:
            trial: The number of a complete trial that keeps all constraints.
            undo: Take the best again; no trial is named then.

        Returns:
            What was done; with several objectives, also what the trial gives up.

        Raises:
            ArgumentError: If the trial cannot be chosen, or both or none of the arguments are
                given.
            RunError: If the run is automatic: its result is a model of its own, not a trial.

        Example:
            >>> run.choose(run.history.ranked()[-1].number).startswith("trial")
            True
            >>> run.choose(undo=True)
            'no trial is chosen: the best is taken'
        """
        if (trial is None) != undo:
            raise ArgumentError(
                "give either a trial or undo", field="trial", allowed="a number, or undo=True"
            )
        if trial is not None and is_automl(self.experiment):
            raise RunError(
                f"the result of {self.run_id} is a model that was built after its trials; none can"
                " be chosen",
                next_step=suggest("export", self.run_id, lead="To export the result", to="best"),
            )
        if trial is not None:
            check_choice(self.history, trial)
        labels.set_chosen(self.store, self.run_id, trial)
        if trial is None:
            return "no trial is chosen: the best is taken"
        return f"trial {trial} is chosen: {describe_choice(self.history)}"

    def archive(self, *, undo: bool = False) -> str:
        """Let lists leave the run out; nothing of it is deleted.

        Args:
            undo: Show it in lists again.

        Returns:
            What was done.

        Example:
            >>> run.archive()
            'archived'
            >>> run.archive(undo=True)
            'no longer archived'
        """
        labels.set_archived(self.store, self.run_id, not undo)
        return "no longer archived" if undo else "archived"

    def refuse_deletion_under_way(self) -> None:
        """Raise RunError if the run is under way: it cannot be deleted then."""
        refuse_under_way(self.row)

    def delete(self) -> str:
        """Delete the run with its events, checkpoints and other files; `size` is what that frees.

        Returns:
            What was freed, in words.

        Raises:
            RunError: If the run is under way.
            ArtifactsError: If its files cannot be removed; the run is kept.

        Example:
            >>> scratch = wb.sweep(experiment, launcher="inline")
            >>> scratch.delete().startswith("freed ")
            True
        """
        return f"freed {delete_run(self.store, self.run_id).describe()}"


def _listed(given: str | Sequence[str]) -> list[str]:
    return [given] if isinstance(given, str) else list(given)
