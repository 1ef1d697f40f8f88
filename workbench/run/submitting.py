"""Runs on a cluster that this process is no part of: sent there as a job, asked about by jobs.

The run, its driver and its store are the cluster's: letting go of it here changes nothing there. Where this
machine reaches the same store, `attach` shows the same run directly.
"""

from __future__ import annotations

import json
import shlex
import shutil
import tempfile
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from workbench.alerts import read_settings, settings_path
from workbench.errors import ExperimentError, RunError
from workbench.experiment import Experiment
from workbench.run.experiment_file import read_experiment
from workbench.run.parcel import EXPERIMENT_NAME, Parcel, make_parcel
from workbench.run.relayed import PLACE, STUDY_PLACE, Answer, Elsewhere
from workbench.store.run_ids import check_run_id
from workbench.workers.code_archive import unpack

_RUN = "workbench_run"
_WORDS = "workbench_command"
_MOST_JOBS = 1000


@dataclass(frozen=True)
class Sent:
    """A run whose job is on its way."""

    run_id: str
    submission_id: str
    parcel: Parcel
    attached: bool
    """Whether somebody had submitted it before, and the job is theirs."""


class SubmittedRun:
    """A run on a cluster elsewhere; each question is a short job there, which takes a few seconds."""

    def __init__(
        self, run_id: str, address: str | None = None, *, token_file: str | Path | None = None,
        store: str | None = None,
    ) -> None:  # fmt: skip
        """Take hold of a run that was submitted, by this process or another.

        Args:
            run_id: Its run id.
            address: Where it was submitted; None for what RAY_API_SERVER_ADDRESS names.
            token_file: A file that holds the cluster's token; None for where Ray looks.
            store: The store that it is kept in, where that is not the cluster's own.

        Raises:
            RunError: If the address takes no jobs, or the token cannot be read.
        """
        self.run_id = run_id
        self._there = Elsewhere(address, token_file=token_file, store=store)

    @property
    def address(self) -> str:
        """Where it was submitted."""
        return self._there.address

    @property
    def state(self) -> str:
        """How far it is."""
        return self.to_json()["state"]

    def to_json(self) -> dict[str, Any]:
        """Return what `workbench show --json` prints there: its state, its best, its trials.

        Raises:
            RunError: If the cluster does not answer or knows no such run.
        """
        return json.loads(self._ask("show", self.run_id, "--json").stdout)

    def wait(self) -> SubmittedRun:
        """Wait for the end of the run.

        Raises:
            RunError: If the run failed or was lost.
        """
        answer = self._there.ask(["follow", self.run_id, "--json"])
        if not answer.stdout:
            answer.raise_for_failure()
        found = json.loads(answer.stdout)
        if found["state"] in ("failed", "lost"):
            raise RunError(
                f"run {self.run_id} {'was lost' if found['state'] == 'lost' else 'failed'}"
                + (f": {found['message']}" if found.get("message") else ""),
                next_step="What it found is stored; go on with its resume().",
            )
        return self

    def stop(self) -> str:
        """Ask its driver to end it, and return what that answered."""
        return self._ask("stop", self.run_id).stdout.strip()

    def resume(self) -> SubmittedRun:
        """Give it a new driver, if it was stopped, failed or lost."""
        self._ask("resume", self.run_id, "--detach")
        return self

    def export(self, folder: str | Path, *, force: bool = False) -> Path:
        """Bring its best trial here as a bundle.

        Args:
            folder: A folder that is empty or does not exist.
            force: Write into a folder that holds something.

        Returns:
            The folder.

        Raises:
            RunError: If no trial is complete, the folder holds something, or the bundle is too large.
        """
        place = Path(folder)
        check_place(place, force=force)
        answer = self._there.ask(["export", self.run_id, "--to", PLACE], brings=True)
        answer.raise_for_failure()
        put_down(answer, place)
        return place

    def _ask(self, *words: str) -> Answer:
        answer = self._there.ask(words)
        answer.raise_for_failure()
        return answer

    def __repr__(self) -> str:
        return f"SubmittedRun({self.run_id!r}, address={self.address!r})"


def submit(
    experiment: Experiment | str | Path | Mapping[str, Any],
    *,
    address: str | None = None,
    token_file: str | Path | None = None,
    store: str | None = None,
    run_id: str | None = None,
) -> SubmittedRun:
    """Send an experiment, with the code in this folder, to a cluster, and return when its run has a driver.

    The same experiment with the same code is the same run: sent again, it is attached to, and goes on if it
    had been stopped.

    Args:
        experiment: What to tune: an experiment, the path of its file, or a mapping of its fields.
        address: Where Ray serves its dashboard, such as http://HOST:8265; None for RAY_API_SERVER_ADDRESS.
        token_file: A file that holds the cluster's token; None for where Ray looks.
        store: The store to use there; None for the cluster's own, or a database server that WORKBENCH_STORE
            names here.
        run_id: What the run is called; None for a name made of the experiment and the code.

    Returns:
        The run.

    Raises:
        ExperimentError: If the experiment is wrong; nothing was sent.
        RunError: If the cluster cannot be reached, refuses the token, or could not start the run.
    """
    if isinstance(experiment, str | Path):
        experiment = read_experiment(experiment)
    elif not isinstance(experiment, Experiment):
        experiment = Experiment(**experiment)
    there = Elsewhere(address, token_file=token_file, store=store)
    for note in filter(None, [*there.notes, note_of_settings(there)]):
        warnings.warn(note, stacklevel=2)
    sent = send(there, experiment, run_id=run_id, words=["--detach"])
    there.answer(sent.submission_id).raise_for_failure()
    return SubmittedRun(sent.run_id, address, token_file=token_file, store=store)


def send(
    there: Elsewhere, experiment: Experiment, *, run_id: str | None = None, words: Sequence[str] = ()
) -> Sent:
    """Send an experiment and the code in this folder as a job that sweeps it, unless that is under way.

    Args:
        there: The cluster.
        experiment: What to tune.
        run_id: As in `submit`.
        words: More words for the command `sweep`.

    Raises:
        StoreError: If `run_id` cannot name a run.
        ExperimentError: If the experiment is wrong; nothing was sent.
        DataError: If data is not where the experiment says.
        RunError: If the cluster cannot be reached or refuses.
    """
    from workbench.study import check as check_sampler
    from workbench.sweeps.preflight import check

    if run_id is not None:
        check_run_id(run_id)
    check(experiment, on_this_machine=False)
    check_sampler(experiment)
    parcel = make_parcel(experiment, Path.cwd())
    run_id = run_id or parcel.run_id
    there.jobs.check()
    command = ["sweep", EXPERIMENT_NAME, "--run-id", run_id, *words]
    about = {_RUN: run_id, _WORDS: " ".join(command)}
    ours = [job for job in there.jobs.jobs() if job.metadata.get(_RUN) == run_id]
    for job in ours:
        if not job.ended and job.metadata.get(_WORDS) == about[_WORDS]:
            return Sent(run_id, job.submission_id, parcel, attached=True)
    uri = there.jobs.upload(parcel.archive.content, parcel.archive.identity)
    for number in range(len(ours) + 1, _MOST_JOBS):
        submission_id = f"{run_id}-{number}"
        if there.submit(command, submission_id=submission_id, working_dir=uri, metadata=about):
            return Sent(run_id, submission_id, parcel, attached=False)
        job = there.jobs.job(submission_id)  # somebody was quicker
        if job is not None and not job.ended and job.metadata.get(_WORDS) == about[_WORDS]:
            return Sent(run_id, submission_id, parcel, attached=True)
    raise RunError(f"run {run_id} was submitted too often", next_step="Give it another name: --run-id NAME.")


def note_of_settings(there: Elsewhere) -> str | None:
    """Say that settings of this machine do not hold for a run elsewhere; None where they say nothing."""
    try:
        settings = read_settings()
    except ExperimentError:
        return None  # they are not what this run goes by
    if not settings.sinks and not settings.alerts:
        return None
    shown = shlex.join(["workbench", "alerts", *there.words])
    return (
        f"the sinks and rules in {settings_path()} stay here, as their secrets do: the alerts of this run go "
        f"by the experiment and by the settings of the cluster, which are shown by: {shown}"
    )


def check_place(place: Path, *, force: bool) -> None:
    """Refuse a place for a result before it is asked for.

    Raises:
        RunError: If it holds something.
    """
    if place.is_dir() and any(place.iterdir()) and not force:
        raise RunError(f"{place} is not empty", next_step="Name another folder, or allow it with --force.")


def put_down(answer: Answer, place: Path | None, study_url: str | None = None) -> None:
    """Put what a command brought where it is wanted.

    Args:
        answer: What the command came to.
        place: Where the file or the folder goes; None where none was asked for.
        study_url: The Optuna storage that the study goes into; None where none was asked for.

    Raises:
        RunError: If nothing was brought, or it cannot be written there.
        ExperimentError: If the storage has a study of that name.
        StoreError: If the storage cannot be written.
    """
    if answer.brought is None:
        raise RunError("the cluster sent no result", next_step="Ask again.")
    with tempfile.TemporaryDirectory() as name:
        unpack(answer.brought, Path(name) / "brought")
        found = Path(name) / PLACE
        try:
            if place is not None and found.is_dir():
                shutil.copytree(found, place, dirs_exist_ok=True)
            elif place is not None:
                place.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(found, place)
        except OSError as error:
            raise RunError(f"cannot write {place}: {error.strerror}", field="--to") from error
        if study_url is not None:
            from workbench.study import copy_study_file

            copy_study_file(Path(name) / STUDY_PLACE, study_url)
