"""Decide which version of a run's code each trial runs, and notice what has changed since.

A copy of the code is kept before the driver starts. Data, the program and the packages cannot be
kept: they are hashed once, in the background of the first trials. Before and after each trial their
sizes and times of change are compared, and only files that differ are hashed again.

Trials also write files whose names are in their configuration. A file that changes while a trial
runs is taken for such a file. If it changes only once, and a complete trial leaves it as it was, it
is data.
`programs.kept_imports` imports the kept code.

The place where a run was started is stored among its artifacts, so that a restarted driver finds
its modules. Code that was submitted to a cluster is stored as well, because Ray unpacks it on one
node only, and may remove it later.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import logging
import os
import threading
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from pydantic import JsonValue

from workbench.cluster.head import ray_environment
from workbench.cluster.remote.code_archive import pack
from workbench.cluster.remote.code_origin import ARCHIVE_NAME, Origin, kept_name
from workbench.cluster.remote.kept_code import (
    MAX_HASHED_BYTES,
    PACKAGES,
    SOURCE_SUFFIXES,
    Stamp,
    changed_files,
    changed_packages,
    hash_of,
    keep,
    others_of,
    stamp_of,
)
from workbench.cluster.remote.version_trees import keep_versions
from workbench.experiment import Experiment
from workbench.experiment.actions import suggest
from workbench.experiment.command import arguments_of
from workbench.foundation.artifacts import Artifacts, open_artifacts
from workbench.foundation.errors import ArtifactsError, RunError, WorkbenchError
from workbench.foundation.events import Event, KeptVersion, Noted, ProgramKept, TrialEnded
from workbench.foundation.formatting import format_count
from workbench.store.history import History, Trial
from workbench.store.history.programs import code_sha256_of, format_trials
from workbench.sweeps.fingerprints import (
    MAX_STORED_FILES,
    Fingerprints,
    WrittenFile,
    store_content,
    stored_content,
)
from workbench.training.programs.kept_imports import MANIFEST
from workbench.training.programs.kept_scripts import served_by_name

if TYPE_CHECKING:
    from workbench.sweeps.ledger import Ledger

logger = logging.getLogger(__name__)

HASH_PATIENCE_S = 5.0
"""How long a trial waits for the first hashes if something changed before they were taken."""
_MAX_NAMED = 3
_MAX_CHANGES = 2
"""A file that changes more often, such as a log, is no longer compared."""
_NEVER: Stamp = (-1, -1)
"""The stamp of a file that is not yet compared with its hash."""
FILE_NAME = "origin.json"
_VERSIONS_NAME = "code-versions.json"


class Program:
    """The versions of a run's code. Each trial runs one of them."""

    def __init__(self, ledger: Ledger, artifacts: Artifacts) -> None:
        """Read which code was kept.

        Args:
            ledger: The run's events.
            artifacts: The place of the run's files.
        """
        self._ledger = ledger
        self._artifacts = artifacts
        self._origin = read_origin(artifacts)
        self._here: Origin | None = None
        self._manifest: dict[str, Any] | None = None
        self._fingerprints = Fingerprints()
        self._times_changed: dict[str, int] = {}
        self._changed_during: dict[int, set[str]] = {}
        """For each running trial, the files that have changed since it started."""
        self._ran: set[int] = set()
        """The trials that have run since files were last compared."""
        self._interrupted: set[int] = set()
        """The trials that ran when an earlier driver ended, until files are first compared."""
        self._hashing: threading.Thread | None = None

    def begin(self) -> None:
        """Record the version with which the run starts."""
        try:
            self._here = self._origin.on_this_machine()
            self._read_manifest()
            self._fingerprint()
        except (WorkbenchError, OSError) as error:  # the trials report what is missing
            logger.warning("what the run depends on cannot be compared: %s", error)
        if not self._history.programs:
            started = ProgramKept(
                version=1,
                code_sha256=self._origin.kept_sha256,
                why="start",
                num_files=0 if self._manifest is None else len(self._manifest["files"]),
                choices=read_versions(self._artifacts),
            )
            self._ledger.record(started)

    def note_kept(self) -> None:
        """Record that a continued run uses its kept code, if the code on the disk has changed."""
        if len(self._history.drivers) > 1 and self._is_served and (changed := self.changed_code()):
            self._ledger.record(Noted(level="info", message=self._describe_kept(changed)))

    @property
    def _history(self) -> History:
        return self._ledger.history

    def _read_manifest(self) -> None:
        folder = self._origin.kept_folder()
        self._manifest = None
        if folder is not None:
            self._manifest = json.loads((folder / MANIFEST).read_text("utf-8"))

    # Which version a trial runs.

    def version_of(self, trial: Trial) -> int:
        """Return the version of the code that the next attempt of a trial runs.

        A trial keeps its version: once it has reported, its next attempts run the version with
        which it started. The repeats of its configuration do so as well, because their results are
        averaged.

        Args:
            trial: The trial.
        """
        programs = self._history.programs
        if not programs:
            return 1
        first = self._history.trainings_of(trial.configuration)[0]
        if trial.attempts and trial.number in programs[-1].continued:
            return trial.program
        if (
            trial.repeat
            and first.attempts
            and (first.finished or first.number in programs[-1].continued)
        ):
            return first.program
        return programs[-1].version

    def origin_of(self, version: int, params: Mapping[str, JsonValue]) -> Origin:
        """Return the origin from which a trial imports the user's code.

        Args:
            version: The version of the code, by number.
            params: The configuration, which chooses between versions if the code is searched.
        """
        sha256 = code_sha256_of(self._history, version, params)
        return dataclasses.replace(self._origin, kept_sha256=sha256 or self._origin.kept_sha256)

    # What has changed.

    def changed_code(self) -> list[str]:
        """Return the kept files that have since changed on the disk, if this machine has them."""
        if self._manifest is None or self._here is None or self._origin.archived is not None:
            return []
        if not os.path.isdir(self._here.directory):
            return []
        return changed_files(self._manifest)

    def _describe_kept(self, changed: list[str]) -> str:
        current = suggest(
            "resume", self._ledger.run_id, code="current", lead="To use it as it is now"
        )
        return (
            f"{self._named(changed)} changed on the disk since the run kept its code. Trials run"
            f" the kept code. {current}"
        )

    def explain_failure(self, ended: TrialEnded) -> TrialEnded:
        """Return a failure, with a remark if the code has changed since it started.

        Args:
            ended: How a trial ended.
        """
        if ended.state != "failed" or ended.reason not in ("error", "diverged"):
            return ended
        if not self._is_served or not (changed := self.changed_code()):
            return ended
        remark = (
            f"{self._named(changed)} changed since the run kept its code, which the trial ran. To"
            " use the new code, resume or extend with --code current"
        )
        # On the first line, which is all that short lists show.
        first, newline, rest = (ended.message or "failed").partition("\n")
        return ended.model_copy(update={"message": f"{first} ({remark}){newline}{rest}"})

    def _named(self, changed: Iterable[str]) -> str:
        names = [self._relative(path) for path in changed]
        shown = ", ".join(names[:_MAX_NAMED])
        if len(names) > _MAX_NAMED:
            shown += f" and {format_count(len(names) - _MAX_NAMED, 'other file')}"
        is_one = len(names) == 1 and not names[0].startswith(PACKAGES)
        return f"{shown} {'has' if is_one else 'have'}"

    def _relative(self, path: str) -> str:
        directory = Path((self._here or self._origin).directory)
        if not Path(path).is_relative_to(directory):
            return path
        return os.path.relpath(path, directory)

    # What does not run the kept code.

    def note_unserved(self, events: list[Event]) -> list[Event]:
        """Treat the code like data if a program has ended without running any kept code.

        Args:
            events: What a trial reported.

        Returns:
            The events, without notes about code that is already compared.
        """
        return [
            event
            for event in events
            if not (isinstance(event, Noted) and event.is_unserved) or self._compare_code()
        ]

    def _compare_code(self) -> bool:
        """Compare the files of the code from now on, and return whether that is new."""
        if self._hashing is not None:
            self._hashing.join(HASH_PATIENCE_S)
        unserved = self._unserved_files()
        files = {} if self._manifest is None else self._manifest["files"]
        new = [path for path in unserved if path not in self._fingerprints.hashes]
        for path in new:  # compared with what was kept, whenever it was edited
            self._fingerprints.stamps[path] = _NEVER
            self._fingerprints.hashes[path] = files[path]["sha256"]
        return bool(new)

    def _unserved_files(self) -> list[str]:
        """Return the kept files that a program reads from the disk instead of the copy."""
        command = self._ledger.experiment.command
        if self._manifest is None or self._here is None or command is None:
            return []
        copied = {entry["path"] for entry in self._manifest.get("workdir", {}).values()}
        by_name = {
            os.path.join(self._here.directory, name)
            for name in served_by_name(arguments_of(command))
        }
        return [
            path
            for path in self._manifest["files"]
            if path not in {*self._manifest["beside"], *by_name, *copied}
        ]

    @property
    def _is_served(self) -> bool:
        return self._fingerprints.hashes.keys().isdisjoint(self._unserved_files())

    # What cannot be kept.

    def _fingerprint(self) -> None:
        """Stamp the files that cannot be kept and hash them in a thread, or read what is stored."""
        assert self._here is not None
        stored = Fingerprints.read(self._artifacts)
        if stored is not None:
            self._fingerprints = stored
            self._interrupted = {
                trial.number
                for trial in self._history.trials.values()
                if not trial.finished or trial.interrupted  # its start may not be recorded
            }
            return
        others = others_of(self._ledger.experiment, self._here, self._manifest)
        self._fingerprints = Fingerprints.begin(others)
        self._hashing = threading.Thread(target=self._hash_all, name="fingerprints", daemon=True)
        self._hashing.start()

    def _hash_all(self) -> None:
        # Stored without hashes first: if the run ends before they are computed, the stamps still
        # show whether a file has changed.
        self._store_fingerprints()
        num_bytes = 0
        num_stored = 0
        hashes: dict[str, str] = {}
        for path, stamp in list(self._fingerprints.stamps.items()):
            num_bytes += 0 if stamp is None else stamp[0]
            if stamp is None or num_bytes > MAX_HASHED_BYTES:
                continue
            sha256 = hash_of(path)
            if path == PACKAGES or num_stored < MAX_STORED_FILES:
                self._store_content(path, sha256)
                num_stored += 1
            # A file that was edited meanwhile has no hash: it is unknown which version was read.
            if stamp_of(path) == stamp:
                hashes[path] = sha256
        self._fingerprints.hashes |= hashes
        self._store_fingerprints()

    def _store_content(self, path: str, sha256: str) -> None:
        try:
            store_content(self._artifacts, path, sha256)
        except (ArtifactsError, OSError) as error:
            logger.warning("%s cannot be stored for bundles: %s", path, error)

    def _store_fingerprints(self) -> None:
        try:
            self._fingerprints.write(self._artifacts)
        except (ArtifactsError, OSError) as error:
            logger.warning("the fingerprints of data and packages cannot be stored: %s", error)

    def compare(self) -> None:
        """Record a new version if data, the program or packages have changed."""
        differing = self._fingerprints.differing()
        if self._hashing is not None and differing:
            self._hashing.join(HASH_PATIENCE_S)
        if self._hashing is not None and not self._hashing.is_alive():
            self._hashing = None
        if differing and self._hashing is None:
            self._take_changes(differing)
        if self._hashing is None:
            self._ran = self._running()
        self._interrupted.clear()

    def start(self, trial: int) -> None:
        """Note that a trial starts, so that it is known which files change meanwhile.

        Args:
            trial: The number of the trial.
        """
        self._changed_during[trial] = set()
        self._ran.add(trial)

    def end(self, trial: int, *, is_complete: bool) -> None:
        """Learn from a trial that has ended which files trials do not write.

        Args:
            trial: The number of the trial.
            is_complete: Whether it came to its end, so that it has written what it writes.
        """
        changed = self._changed_during.pop(trial, None)
        if changed is None or not is_complete or self._hashing is not None:
            return
        fingerprints = self._fingerprints
        sure = {path for path, item in fingerprints.written.items() if item.is_sure}
        new = fingerprints.stamps.keys() - changed - fingerprints.unwritten - sure
        if not new:
            return
        fingerprints.unwritten |= new
        data = {path: fingerprints.written.pop(path) for path in new & fingerprints.written.keys()}
        if not data:
            self._store_fingerprints()
            return
        for path in data:
            fingerprints.hashes[path] = _hash_at(path, stamp_of(path))
            self._store_content(path, fingerprints.hashes[path])
        first = {number for item in data.values() for number in item.trials}
        later = {
            number
            for number, item in self._history.trials.items()
            if item.attempts and number > max(first, default=-1)
        }
        self._record_changes(
            {path: item.before for path, item in data.items()},
            f"while {format_trials(sorted(first))} ran, but trial {trial} did not change"
            f" {'it' if len(data) == 1 else 'them'}, so this is data",
            sorted(first | later),
        )

    def _take_changes(self, differing: list[str]) -> None:
        """Hash the files with another stamp, and record a new version if their content differs."""
        fingerprints = self._fingerprints
        changed: dict[str, str | None] = {}
        written: list[str] = []
        running = sorted(self._changed_during.keys() | self._interrupted)
        for paths in self._changed_during.values():
            paths.update(differing)
        for path in differing:
            stamp = stamp_of(path)
            fingerprints.stamps[path] = stamp
            if path in fingerprints.written and running:
                fingerprints.written[path] = fingerprints.written[path]._replace(is_sure=True)
                continue
            if path in fingerprints.written:
                before, now = fingerprints.written.pop(path).before, _hash_at(path, stamp)
            else:
                before, now = fingerprints.hashes.get(path), _hash_at(path, stamp)
            if before is not None and before == now:
                continue
            if running and self._may_be_written(path):
                fingerprints.written[path] = WrittenFile(before, running)
                fingerprints.hashes.pop(path, None)
                written.append(path)
                continue
            fingerprints.hashes[path] = now
            self._store_content(path, now)
            self._times_changed[path] = self._times_changed.get(path, 0) + 1
            if self._times_changed[path] > _MAX_CHANGES:
                del fingerprints.stamps[path]
                self._note(
                    f"changes of {self._relative(path)} are no longer noted, because there are many"
                )
                continue
            changed[path] = before
        if written:
            self._note_written(written, running)
        if not changed:
            self._store_fingerprints()
            return
        unsure = sorted(self._ran | self._running())
        self._record_changes(changed, "since the run started", unsure)

    def _running(self) -> set[int]:
        return {trial.number for trial in self._history.in_state("running")}

    def _may_be_written(self, path: str) -> bool:
        """Return whether trials may write a file that changes while they run."""
        return not (
            self._ledger.experiment.trains_model
            or path == PACKAGES
            or path in self._fingerprints.unwritten
            or Path(path).suffix.lower() in SOURCE_SUFFIXES
            or path in ({} if self._manifest is None else self._manifest["files"])
        )

    def _note_written(self, paths: list[str], running: list[int]) -> None:
        """Say once that changes of files do not count, because trials seem to make them."""
        message = (
            f"{self._named(paths)} changed while {format_trials(running)} ran. Trials seem to write"
            f" {'it' if len(paths) == 1 else 'them'}, so this makes no new version. A file that a"
            " later trial does not change counts as data"
        )
        self._ledger.record(Noted(level="info", message=message))

    def _record_changes(
        self, changed: Mapping[str, str | None], when: str, unsure: Sequence[int]
    ) -> None:
        """Record a new version.

        Args:
            changed: The hashes of the changed files before.
            when: When they changed, as the end of a clause.
            unsure: The trials that may have read either version.
        """
        named = [
            self._describe_packages(changed[path]) if path == PACKAGES else path for path in changed
        ]
        version = self._next_version("changed", named, self._origin.kept_sha256, 0)
        self._fingerprints.earlier[version.version] = dict(changed)
        self._store_fingerprints()
        self._ledger.study.change_program(version)
        self._ledger.record(version)
        either = f". {format_trials(unsure).capitalize()} may have read either version"
        self._note(
            f"{self._named(named)} changed {when}. There is no copy of the old content, so trials"
            f" from now on are version {version.version} and are not compared with earlier"
            f" ones{either if unsure else ''}"
        )

    def _describe_packages(self, before: str | None) -> str:
        """Return the packages that changed, as far as the list before is known."""
        with contextlib.suppress(WorkbenchError, OSError):
            first = stored_content(self._artifacts, before or "")
            second = stored_content(self._artifacts, self._fingerprints.hashes[PACKAGES])
            if (
                first is not None
                and second is not None
                and (names := changed_packages(first, second))
            ):
                shown = ", ".join(names[:_MAX_NAMED])
                if len(names) > _MAX_NAMED:
                    shown += f", {len(names) - _MAX_NAMED} more"
                return f"{PACKAGES} ({shown})"
        return PACKAGES

    def _note(self, message: str) -> None:
        self._ledger.record(Noted(level="warning", message=message))

    # Another version of the code.

    def use_current(self, events: list[Event]) -> str:
        """Keep the code as it is on the disk now, for the trials that start from now on.

        Args:
            events: Receives the events of the change.

        Returns:
            The answer to the user, as a sentence.

        Raises:
            RunError: If this machine does not have the folder of the run, or its code was
                submitted.
            ExperimentError: If later trials continue the training of earlier ones.
        """
        if self._ledger.experiment.search.code_versions:
            raise RunError(
                "the run compares versions of its code, which were kept when it started",
                next_step="Start another run.",
            )
        if self._origin.archived is not None:
            raise RunError(
                "the code of the run was submitted", next_step="Submit the experiment again."
            )
        here = self._here or self._origin.on_this_machine()
        if not os.path.isdir(here.directory):
            raise RunError(
                f"{here.directory} is not on the machine of the driver",
                next_step="Put it there, or start a new run.",
            )
        changed = self.changed_code()
        before = () if self._manifest is None else self._manifest["files"]
        kept_code = keep(self._ledger.experiment, here, before=before)
        sha256 = "" if kept_code is None else kept_code.sha256
        files = {} if self._manifest is None else self._manifest["files"]
        hashes = {} if kept_code is None else kept_code.hashes
        # The archives would differ, because each also contains a file of the workbench.
        if hashes == {path: entry["sha256"] for path, entry in files.items()}:
            return "the code has not changed since it was kept"
        if self._history.trials:
            self._ledger.study.check_program()
        if kept_code is not None:
            self._artifacts.write(kept_name(sha256), kept_code.content)
        version = self._next_version(
            "current", changed, sha256, 0 if kept_code is None else kept_code.num_files
        )
        self._origin = dataclasses.replace(
            self._origin, kept_sha256=sha256, archive_place=self._artifacts.url
        )
        write_latest_origin(self._artifacts, self._origin)
        self._read_manifest()
        self._ledger.study.change_program(version)
        events.append(version)
        named = f": {self._named(changed)} changed" if changed else ""
        return f"trials that start from now on run version {version.version} of the code{named}"

    def _next_version(
        self, why: Literal["changed", "current"], changed: list[str], sha256: str, num_files: int
    ) -> ProgramKept:
        history = self._history
        return ProgramKept(
            version=history.programs[-1].version + 1 if history.programs else 2,
            code_sha256=sha256,
            why=why,
            num_files=num_files,
            changed=[self._relative(path) for path in changed],
            continued=[
                trial.number
                for trial in history.trials.values()
                if not trial.finished
                and trial.attempts
                and (trial.state == "running" or trial.reports)
            ],
        )


def _hash_at(path: str, stamp: Stamp | None) -> str:
    return "" if stamp is None else hash_of(path)


def write_origin(
    artifacts: Artifacts, origin: Origin | None = None, *, experiment: Experiment | None = None
) -> None:
    """Store where a run was started and the code that it runs, unless both are stored.

    Args:
        artifacts: The artifacts of the run.
        origin: The origin of another run whose code this run also uses, or None for this process.
        experiment: The experiment whose code is kept.

    Raises:
        ArtifactsError: If it cannot be written there.
        RunError: If the submitted code is larger than the limit.
    """
    if artifacts.exists(FILE_NAME):
        return
    run_origin = origin or _keep_submitted_code(artifacts) or Origin.here()
    if run_origin.archived is not None and run_origin.archive_place != artifacts.url:
        artifacts.write(ARCHIVE_NAME, open_artifacts(run_origin.archive_place).read(ARCHIVE_NAME))
    if run_origin.kept_sha256:
        name = kept_name(run_origin.kept_sha256)
        artifacts.write(name, open_artifacts(run_origin.archive_place).read(name))
        if experiment is not None and experiment.search.code_versions:
            _copy_versions(open_artifacts(run_origin.archive_place), artifacts)
    elif experiment is not None and experiment.search.code_versions:
        versions = keep_versions(experiment, run_origin)
        for version in versions:
            artifacts.write(kept_name(version.code.sha256), version.code.content)
        _write_versions(artifacts, [version.event for version in versions])
        run_origin = dataclasses.replace(run_origin, kept_sha256=versions[0].code.sha256)
    elif (
        experiment is not None
        and (run_origin.archived is None or experiment.links is not None)
        and (code := keep(experiment, run_origin)) is not None
    ):
        artifacts.write(kept_name(code.sha256), code.content)
        run_origin = dataclasses.replace(run_origin, kept_sha256=code.sha256)
    write_latest_origin(artifacts, run_origin)


def _write_versions(artifacts: Artifacts, versions: Sequence[KeptVersion]) -> None:
    written = [version.model_dump(mode="json") for version in versions]
    artifacts.write(_VERSIONS_NAME, json.dumps(written).encode())


def read_versions(artifacts: Artifacts) -> list[KeptVersion]:
    """Return the versions of the code between which the trials of a run choose, if any.

    Args:
        artifacts: The artifacts of the run.

    Raises:
        ArtifactsError: If they cannot be reached.
    """
    if not artifacts.exists(_VERSIONS_NAME):
        return []
    return [KeptVersion(**entry) for entry in json.loads(artifacts.read(_VERSIONS_NAME))]


def _copy_versions(source: Artifacts, artifacts: Artifacts) -> None:
    """Take over the versions of another run."""
    versions = read_versions(source)
    for version in versions:
        name = kept_name(version.code_sha256)
        artifacts.write(name, source.read(name))
    _write_versions(artifacts, versions)


def write_latest_origin(artifacts: Artifacts, origin: Origin) -> None:
    """Store where a run was started, with the code that its next trials run.

    Args:
        artifacts: The artifacts of the run.
        origin: Where it was started. The code itself is among the artifacts.

    Raises:
        ArtifactsError: If it cannot be written there.
    """
    # The reader knows the location, and the URL may contain credentials.
    fields = {**dataclasses.asdict(origin), "archive_place": ""}
    artifacts.write(FILE_NAME, json.dumps(fields).encode())


def read_origin(artifacts: Artifacts) -> Origin:
    """Return where a run was started, or the origin of this process if that was not stored.

    Raises:
        ArtifactsError: If the run's artifacts cannot be reached.
    """
    if not artifacts.exists(FILE_NAME):
        return Origin.here()
    stored = json.loads(artifacts.read(FILE_NAME))
    return Origin(
        directory=stored["directory"],
        search_path=tuple(stored["search_path"]),
        archived=stored.get("archived"),
        archive_sha256=stored.get("archive_sha256", ""),
        archive_place=artifacts.url,
        kept_sha256=stored.get("kept_sha256", ""),
    )


def has_changed(artifacts: Artifacts) -> bool:
    """Return whether the kept code of a run differs from what is on the disk of this machine.

    Args:
        artifacts: The artifacts of the run.

    Raises:
        ArtifactsError: If they cannot be reached.
    """
    origin = read_origin(artifacts)
    folder = origin.kept_folder()
    if folder is None or not os.path.isdir(origin.directory):
        return False
    return bool(changed_files(json.loads((folder / MANIFEST).read_text("utf-8"))))


def _keep_submitted_code(artifacts: Artifacts) -> Origin | None:
    """Store the working folder of the Ray job that this process is, if it is one."""
    folder = ray_environment.job_folder()
    if folder is None:
        return None
    content = pack(folder, whole=True).content
    artifacts.write(ARCHIVE_NAME, content)
    return dataclasses.replace(
        Origin.here(),
        archived=str(folder),
        archive_sha256=hashlib.sha256(content).hexdigest(),
        archive_place=artifacts.url,
    )
