"""Sessions whose evaluation, test data and budget are fixed: a proposal changes the training only.

The code, the evaluation files and the experiment are copied or hashed when a session begins. Each
proposal is a patch of that code. It is refused if it changes an evaluation file, or if its folder
would contain test data. The test data is opened once, after the decisions.

Without a sandbox, this guards against mistakes. A program that wants to can read any file that you
can read.
"""

from __future__ import annotations

import hashlib
import json
import re
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path

import filelock

from workbench.experiment import Experiment
from workbench.experiment.code_versions import CODE
from workbench.foundation.errors import ArgumentError, RunError, StoreError
from workbench.foundation.files import sha256_of, write_atomically
from workbench.runs.experiment_file import change_experiment
from workbench.store.decision_sessions import check_session_name, sessions_folder

_LOCK_TIMEOUT_S = 60.0
_BASELINE = "baseline"
_MAX_PATCH_CHARS = 2_000_000


@dataclass
class _State:
    """What is stored of a session."""

    experiment: str
    directory: str
    protected: dict[str, str]
    """The SHA-256 of each evaluation file, by its path relative to the directory."""
    test_data: dict[str, str]
    """The SHA-256 of each file of test data, by its path."""
    runs: dict[str, str] = field(default_factory=dict)
    """The run of each proposal, by its name."""
    titles: dict[str, str] = field(default_factory=dict)
    test_opened_unix_s: float | None = None


@dataclass(frozen=True)
class CheckedProposal:
    """A proposal that changes nothing that is fixed.

    Attributes:
        name: What it is called: the version of the code in its run.
        experiment: The experiment that trains it.
    """

    name: str
    experiment: Experiment


class GuardedSession:
    """A session in which the evaluation is fixed.

    Example:
        >>> from workbench.runs.guarded_sessions import GuardedSession
        >>> GuardedSession("night").exists
        False
    """

    def __init__(self, name: str, *, store: str | None = None) -> None:
        """Name a session. It may not have begun yet.

        Args:
            name: Its name, which its decisions have as well.
            store: The address of the store next to which it is kept.

        Raises:
            ArgumentError: If the name is not allowed.
        """
        check_session_name(name)
        self.name = name
        self._folder = sessions_folder(store) / f"{name}-code"
        self._path = self._folder / "session.json"

    @property
    def exists(self) -> bool:
        """Whether it has begun."""
        return self._path.exists()

    def begin(
        self,
        experiment: Experiment,
        *,
        protected: Iterable[str | Path] = (),
        test_data: Iterable[str | Path] = (),
    ) -> None:
        """Fix the evaluation. If the session has begun, check that nothing has changed.

        Args:
            experiment: What each proposal is trained with. Its budget is that of each proposal.
            protected: Files or folders of the evaluation, in this folder.
            test_data: Files or folders that no proposal may see.

        Raises:
            ArgumentError: If a file is missing, or the session began with something else.
            ExperimentError: If the experiment has versions of its code already.
            RunError: If the test data would be copied into the folders of proposals.
        """
        from workbench.cluster.remote.code_origin import Origin
        from workbench.cluster.remote.version_trees import copy_code

        if experiment.search.code_versions:
            raise ArgumentError(
                "the proposals are the versions of the code",
                field="search.code",
                next_step="Remove search.code from the experiment.",
            )
        directory = Path.cwd()
        hashes = _hashes(protected, directory, "protect")
        given = _State(
            experiment=experiment.to_yaml(),
            directory=str(directory),
            protected={_relative(path, directory): sha for path, sha in hashes.items()},
            test_data=_hashes(test_data, directory, "test-data"),
        )
        with self._locked():
            if self.exists:
                self._compare(self._read(), given)
                return
            copy_code(experiment, Origin.here(), self._base)
            self._write(given)
        try:
            self._check(self._experiment_of(_BASELINE, None, given), given)
        except (ArgumentError, RunError):
            self._path.unlink()
            raise

    def baseline(self) -> CheckedProposal:
        """Return the code with which the session began, to be trained like a proposal."""
        state = self._verified()
        return CheckedProposal(_BASELINE, self._experiment_of(_BASELINE, None, state))

    def propose(self, title: str, patch: str) -> CheckedProposal:
        """Check a proposal and keep it.

        Args:
            title: What it changes, for people.
            patch: A unified diff of the code with which the session began.

        Raises:
            ArgumentError: If it changes an evaluation file, or names test data.
            ExperimentError: If it does not apply, or changes nothing that the trials run.
            RunError: If an evaluation file has changed on the disk.
        """
        if len(patch) > _MAX_PATCH_CHARS:
            raise ArgumentError(
                f"the patch has {len(patch):,} characters",
                field="patch",
                allowed=f"at most {_MAX_PATCH_CHARS:,}",
            )
        state = self._verified()
        for path in state.test_data:
            if Path(path).name in patch:
                raise ArgumentError(
                    f"the proposal mentions the test data {Path(path).name}",
                    field="patch",
                    next_step="Leave the test data to the referee.",
                )
        with self._locked():
            state = self._read()
            number = len(state.titles) + 1
            name = f"proposal-{number}"
            place = self._folder / f"{name}.diff"
            place.write_text(patch if patch.endswith("\n") else f"{patch}\n", "utf-8")
            experiment = self._experiment_of(name, place, state)
            try:
                self._check(experiment, state)
            except Exception:
                place.unlink()
                raise
            state.titles[name] = re.sub(r"\s+", " ", title).strip()[:200]
            self._write(state)
        return CheckedProposal(name, experiment)

    def add_run(self, name: str, run_id: str) -> None:
        """Note which run trains a proposal, or the baseline.

        Args:
            name: The name of the proposal.
            run_id: The run.
        """
        with self._locked():
            state = self._read()
            state.runs[name] = run_id
            self._write(state)

    def side(self, name: str) -> str:
        """Return a proposal or the baseline as `decide` takes it, such as `RUN/proposal-1`.

        Args:
            name: The name of the proposal.

        Raises:
            ArgumentError: If it was not trained.
        """
        runs = self._verified().runs
        if name not in runs:
            raise ArgumentError(
                f"{name} has no run", field="proposal", allowed=", ".join(runs) or "none yet"
            )
        return f"{runs[name]}/{name}"

    def open_test_data(self) -> list[Path]:
        """Return the files of the test data, once.

        Raises:
            RunError: If they were opened before, or have changed.
        """
        with self._locked():
            state = self._read()
            if state.test_opened_unix_s is not None:
                opened = time.strftime("%Y-%m-%d %H:%M", time.localtime(state.test_opened_unix_s))
                raise RunError(
                    f"the test data of the session {self.name} was opened on {opened}",
                    next_step="A second look would choose by the test data. Use new test data.",
                )
            _check_hashes(state.test_data, Path(state.directory), "the test data")
            state.test_opened_unix_s = time.time()
            self._write(state)
        return [Path(path) for path in state.test_data]

    def describe(self) -> list[str]:
        """Return lines of text about what is fixed and what was proposed."""
        state = self._read()
        lines = [f"session {self.name} in {state.directory}"]
        lines += [f"evaluation file {name}" for name in state.protected]
        opened = "opened" if state.test_opened_unix_s is not None else "not opened"
        lines += [f"test data {path} ({opened})" for path in state.test_data]
        lines += [
            f"{name}: {title} (run {state.runs.get(name, 'none')})"
            for name, title in state.titles.items()
        ]
        return lines

    @property
    def _base(self) -> Path:
        return self._folder / "base"

    def _experiment_of(self, name: str, patch: Path | None, state: _State) -> Experiment:
        version = {"folder": str(self._base), "name": name}
        if patch is not None:
            version["patch"] = str(patch)
        experiment = Experiment.from_yaml(state.experiment)
        title = f"{experiment.name[:60]}-{name}"
        return change_experiment(
            experiment, {"name": title, f"search.{CODE}": {"versions": [version]}}
        )

    def _check(self, experiment: Experiment, state: _State) -> None:
        """Raise an error if the code of a proposal is not what the session fixed."""
        from workbench.cluster.remote.code_origin import Origin
        from workbench.cluster.remote.version_trees import keep_versions

        origin = Origin(state.directory, (state.directory,))
        (version,) = keep_versions(experiment, origin)
        for name, sha256 in state.protected.items():
            path = str(Path(state.directory, name))
            kept = version.code.hashes.get(path)
            is_of_code = (self._base / name).exists()
            if kept != sha256 and (kept is not None or is_of_code):
                verb = "changes" if kept is not None else "removes"
                raise ArgumentError(
                    f"the proposal {verb} {name}, which evaluates it",
                    field="patch",
                    allowed="a change of other files",
                    next_step="Do not change this file.",
                )
        secret = {sha256: path for path, sha256 in state.test_data.items()}
        for path, sha256 in version.code.hashes.items():
            if sha256 in secret:
                raise RunError(
                    f"the test data {path} would be copied into the folders of proposals",
                    next_step="Move it out of the folder of the code.",
                )
        for name, target in (experiment.links or {}).items():
            place = Path(state.directory, target).resolve()
            inside = [path for path in state.test_data if Path(path).is_relative_to(place)]
            if inside:
                raise RunError(
                    f"workdir.link.{name} would link the test data {inside[0]}",
                    next_step="Move it out of the folder that is linked.",
                )

    def _verified(self) -> _State:
        """Return the state, if the evaluation files on the disk are as they were."""
        state = self._read()
        _check_hashes(state.protected, Path(state.directory), "the evaluation file")
        return state

    def _compare(self, before: _State, given: _State) -> None:
        for field_name, words in (
            ("experiment", "experiment, with its budget,"),
            ("protected", "evaluation"),
            ("test_data", "test data"),
            ("directory", "folder"),
        ):
            if getattr(before, field_name) != getattr(given, field_name):
                raise ArgumentError(
                    f"the {words} of the session {self.name} has changed since it began",
                    field="session",
                    next_step="Restore it, or start a session with another name.",
                )

    @contextmanager
    def _locked(self) -> Iterator[None]:
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            with filelock.FileLock(self._folder / "lock", timeout=_LOCK_TIMEOUT_S):
                yield
        except (OSError, filelock.Timeout) as error:
            raise StoreError(
                f"the session {self.name} cannot be kept: {error}",
                next_step=f"Check the folder {self._folder}.",
            ) from error

    def _read(self) -> _State:
        if not self.exists:
            raise ArgumentError(
                f"the session {self.name} has not begun",
                field="session",
                next_step="Start it: workbench mcp EXPERIMENT --session NAME --protect FILE.",
            )
        return _State(**json.loads(self._path.read_text("utf-8")))

    def _write(self, state: _State) -> None:
        write_atomically(self._path, json.dumps(asdict(state), indent=1))


def _hashes(given: Iterable[str | Path], directory: Path, field_name: str) -> dict[str, str]:
    hashes: dict[str, str] = {}
    for path in given:
        whole = (directory / Path(path).expanduser()).resolve()
        if not whole.exists():
            raise ArgumentError(
                f"{path} does not exist", field=field_name, allowed="files or folders"
            )
        files = [whole] if whole.is_file() else _files_below(whole)
        hashes |= {str(file): sha256_of(file) for file in files}
    return hashes


def _files_below(folder: Path) -> Sequence[Path]:
    return [
        path
        for path in sorted(folder.rglob("*"))
        if path.is_file() and "__pycache__" not in path.parts
    ]


def _relative(path: str, directory: Path) -> str:
    if not Path(path).is_relative_to(directory.resolve()):
        raise ArgumentError(
            f"{path} is outside of {directory}",
            field="protect",
            allowed="files in the folder of the code",
        )
    return Path(path).relative_to(directory.resolve()).as_posix()


def _check_hashes(hashes: dict[str, str], directory: Path, kind: str) -> None:
    for name, sha256 in hashes.items():
        path = directory / name
        now = hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else None
        if now != sha256:
            raise RunError(
                f"{kind} {name} has changed since the session began",
                next_step="Restore it, or start a session with another name.",
            )
