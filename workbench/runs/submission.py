"""Runs on a remote cluster: submitted as a job, and queried by further jobs.

The run, its driver and its store belong to the cluster. Dropping the object here changes nothing
there. If this machine reaches the same store, `attach` returns the same run directly.
"""

from __future__ import annotations

import json
import shlex
import shutil
import tempfile
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from workbench.cluster.remote.code_archive import unpack
from workbench.cluster.remote.job_package import EXPERIMENT_NAME, JobPackage, make_package
from workbench.cluster.remote.relayed_commands import PLACE, STUDY_PLACE, Answer, RemoteCluster
from workbench.experiment import Experiment
from workbench.foundation.errors import ArgumentError, ExperimentError, RunError
from workbench.foundation.files import copy_into
from workbench.runs.experiment_file import read_experiment
from workbench.store.alerts import read_settings, settings_path
from workbench.store.database.rows import check_run_id

_RUN = "workbench_run"
_WORDS = "workbench_command"
_MAX_JOBS = 1000


@dataclass(frozen=True)
class Submission:
    """A run that was submitted as a job."""

    run_id: str
    submission_id: str
    package: JobPackage
    attached: bool
    """Whether the run had been submitted before, so that the job is an earlier one."""


class SubmittedRun:
    """A run on a remote cluster.

    Each query is a short job on the cluster, which takes a few seconds.
    """

    def __init__(
        self,
        run_id: str,
        address: str | None = None,
        *,
        token_file: str | Path | None = None,
        store: str | None = None,
    ) -> None:
        """Attach to a run that was submitted, by this process or another.

        Args:
            run_id: Its run id.
            address: The address it was submitted to, or None for RAY_API_SERVER_ADDRESS.
            token_file: A file that contains the cluster's token, or None for the places where Ray
                looks.
            store: The store that keeps it, or None for the cluster's own.

        Raises:
            ArgumentError: If the address does not take jobs, or the token cannot be read.
        """
        self.run_id = run_id
        self.sent: tuple[str, ...] = ()
        """The files that `submit` sent, or empty for a run that is attached to."""
        self._cluster = RemoteCluster(address, token_file=token_file, store=store)

    @property
    def address(self) -> str:
        """The address it was submitted to."""
        return self._cluster.address

    @property
    def state(self) -> str:
        """Its state."""
        return self.to_json()["state"]

    def to_json(self) -> dict[str, Any]:
        """Return what `workbench show --json` prints on the cluster.

        Its state, its best, its trials.

        Raises:
            RunError: If the cluster does not answer, or has no such run.
        """
        return json.loads(self._run("show", self.run_id, "--json").stdout)

    def wait(self) -> SubmittedRun:
        """Wait for the end of the run.

        Raises:
            RunError: If the run failed or was lost.
        """
        answer = self._cluster.run(["follow", self.run_id, "--json"])
        if not answer.stdout:
            answer.raise_for_failure()
        outcome = json.loads(answer.stdout)
        if outcome["state"] in ("failed", "lost"):
            problem = "failed"
            if outcome["state"] == "lost":
                problem = "was lost"
            if outcome.get("message"):
                problem += f": {outcome['message']}"
            raise RunError(
                f"run {self.run_id} {problem}",
                next_step="The results are stored. Continue it with its resume() method.",
            )
        return self

    def stop(self) -> str:
        """Stop it, and return its driver's answer."""
        return self._run("stop", self.run_id).stdout.strip()

    def resume(self) -> SubmittedRun:
        """Continue it with a new driver, if it was stopped, failed or lost."""
        self._run("resume", self.run_id, "--detach")
        return self

    def export(self, folder: str | Path, *, force: bool = False) -> Path:
        """Export its best trial to this machine as a bundle.

        Args:
            folder: A folder that is empty or does not exist.
            force: Write into a folder that is not empty.

        Returns:
            The folder.

        Raises:
            ArgumentError: If the folder is not empty.
            RunError: If no trial is complete, or the bundle is too large.
        """
        place = Path(folder)
        check_target(place, force=force)
        answer = self._cluster.run(["export", self.run_id, "--to", PLACE], brings=True)
        answer.raise_for_failure()
        save_result(answer, place)
        return place

    def _run(self, *words: str) -> Answer:
        answer = self._cluster.run(words)
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
    """Submit an experiment, with the code in this folder, to a cluster.

    Return when its run has a driver.

    The same experiment with the same code is the same run: submitting it again attaches to the run,
    and continues it if it was stopped.

    Args:
        experiment: What to tune: an experiment, the path of its file, or a mapping of its fields.
        address: Where Ray serves its dashboard, such as http://HOST:8265, or None for
            RAY_API_SERVER_ADDRESS.
        token_file: A file that contains the cluster's token, or None for the places where Ray
            looks.
        store: The store to use there, or None for the cluster's own, or a database server that
            WORKBENCH_STORE names here.
        run_id: The run id, or None for one made of the experiment and the code.

    Returns:
        The run.

    Raises:
        ExperimentError: If the experiment is wrong. Nothing was sent.
        RunError: If the cluster cannot be reached, refuses the token, or could not start the run.
    """
    if isinstance(experiment, str | Path):
        experiment = read_experiment(experiment)
    elif not isinstance(experiment, Experiment):
        experiment = Experiment(**experiment)
    cluster = RemoteCluster(address, token_file=token_file, store=store)
    for note in filter(None, [*cluster.notes, note_of_settings(cluster)]):
        warnings.warn(note, stacklevel=2)
    submission = send(cluster, experiment, run_id=run_id, words=["--detach"])
    if (note := note_of_left_out(submission.package)) is not None:
        warnings.warn(note, stacklevel=2)
    cluster.answer(submission.submission_id).raise_for_failure()
    run = SubmittedRun(submission.run_id, address, token_file=token_file, store=store)
    run.sent = submission.package.archive.names
    return run


def send(
    cluster: RemoteCluster,
    experiment: Experiment,
    *,
    run_id: str | None = None,
    words: Sequence[str] = (),
    announce: Callable[[JobPackage], None] = lambda _package: None,
) -> Submission:
    """Submit an experiment and the code in this folder as a job that sweeps it.

    If such a job is under way already, it is returned.

    Args:
        cluster: The cluster.
        experiment: What to tune.
        run_id: As in `submit`.
        words: Further words of the command `sweep`.
        announce: Called with what is to be sent, before anything is.

    Raises:
        StoreError: If `run_id` cannot name a run.
        ExperimentError: If the experiment is wrong. Nothing was sent.
        DataError: If the data is not where the experiment expects it.
        RunError: If the cluster cannot be reached or rejects the job.
    """
    from workbench.search import check as check_sampler
    from workbench.sweeps.preflight import check

    if run_id is not None:
        check_run_id(run_id)
    check(experiment, on_this_machine=False)
    check_sampler(experiment)
    package = make_package(experiment, Path.cwd())
    run_id = run_id or package.run_id
    cluster.jobs.check()
    command = ["sweep", EXPERIMENT_NAME, "--run-id", run_id, *words]
    about = {_RUN: run_id, _WORDS: " ".join(command)}
    ours = [job for job in cluster.jobs.jobs() if job.metadata.get(_RUN) == run_id]
    for job in ours:
        if not job.ended and job.metadata.get(_WORDS) == about[_WORDS]:
            return Submission(run_id, job.submission_id, package, attached=True)
    announce(package)
    uri = cluster.jobs.upload(package.archive.content, package.archive.identity)
    for number in range(len(ours) + 1, _MAX_JOBS):
        submission_id = f"{run_id}-{number}"
        if cluster.submit(command, submission_id=submission_id, working_dir=uri, metadata=about):
            return Submission(run_id, submission_id, package, attached=False)
        job = cluster.jobs.job(submission_id)  # another client was faster
        if job is not None and not job.ended and job.metadata.get(_WORDS) == about[_WORDS]:
            return Submission(run_id, submission_id, package, attached=True)
    raise RunError(
        f"run {run_id} was submitted {_MAX_JOBS} times",
        field="run_id",
        next_step="Choose another run id.",
    )


def note_of_left_out(package: JobPackage) -> str | None:
    """Return a note of the secrets and links that were not sent, or None if there are none."""
    left_out = [line for line in package.describe() if line.startswith("skipped")]
    return "; ".join(left_out) or None


def note_of_settings(cluster: RemoteCluster) -> str | None:
    """Return a note that this machine's settings do not apply to a remote run.

    None if it has none.
    """
    try:
        settings = read_settings()
    except ExperimentError:
        return None  # this run does not use them
    if not settings.sinks and not settings.run_rules:
        return None
    shown = shlex.join(["workbench", "alerts", *cluster.words])
    return (
        f"the sinks and rules in {settings_path()} are not sent, because they contain secrets. The"
        " alerts of this run follow the experiment and the settings of the cluster. To show those:"
        f" {shown}"
    )


def check_target(place: Path, *, force: bool) -> None:
    """Check the target of a result before the result is requested.

    Raises:
        ArgumentError: If it is a folder that is not empty.
    """
    if place.is_dir() and any(place.iterdir()) and not force:
        raise ArgumentError(
            f"{place} is not empty", next_step="Choose another folder, or allow it with force."
        )


def save_result(answer: Answer, place: Path | None, study_url: str | None = None) -> None:
    """Save the result that a command transferred.

    Args:
        answer: The result of the command.
        place: Where to save the file or the folder, or None for neither.
        study_url: The Optuna storage to copy the study to, or None for no study.

    Raises:
        RunError: If no result was transferred, or it cannot be written.
        ExperimentError: If the storage already has a study of that name.
        StoreError: If the storage cannot be written.
    """
    if answer.archive is None:
        raise RunError("the cluster sent no result", next_step="Repeat the command.")
    with tempfile.TemporaryDirectory() as name:
        unpack(answer.archive, Path(name) / "brought")
        sent = Path(name) / PLACE
        try:
            if place is not None and sent.is_dir():
                copy_into(sent, place)
            elif place is not None:
                place.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(sent, place)
        except OSError as error:
            raise RunError(f"cannot write {place}: {error.strerror}", field="--to") from error
        if study_url is not None:
            from workbench.search import copy_study_file

            copy_study_file(Path(name) / STUDY_PLACE, study_url)
