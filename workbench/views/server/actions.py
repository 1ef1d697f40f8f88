"""Actions that browsers request.

Checked against the table of actions, and done as on the command line.

Actions of a driver are stored as commands, in a thread. Actions that start processes or import
large packages (start, resume, extend, replay, export, report) run the command line in a separate
process, so that the server stays small and responsive.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

from workbench.cluster.remote.job_package import is_of_bundle
from workbench.cluster.remote.jobs import check_address
from workbench.experiment.actions import (
    Action,
    Snippet,
    action_of,
    check_arguments,
    command_words,
    is_jobs_address,
    snippet_of,
)
from workbench.foundation.errors import PROBLEMS_VARIABLE, ArgumentError, RunError
from workbench.runs import Run
from workbench.store.database.urls import is_shared
from workbench.views.forms.presets import first_comment, first_comment_of_tiers, shipped
from workbench.views.live_feed import action_messages
from workbench.views.live_feed.action_messages import ActionSnippet, Done, ExperimentFile
from workbench.views.live_feed.feed import Feed

_TIMEOUT_S = 180.0
_POLL_S = 0.02
_MAX_FILES = 200
_MAX_DEPTH = 3
_BAD_INPUT = 2
"""The exit code of a command whose input was wrong."""
_SUFFIXES = (".yaml", ".yml")
_NOTEBOOK = ".ipynb"
_MAX_READ = 65_536
_SKIPPED = frozenset({"node_modules", "site-packages", "__pycache__"})


class ActionRunner:
    """Carries out the actions that browsers request for the runs of a store."""

    def __init__(self, feed: Feed, root: Path) -> None:
        """Create a runner of actions.

        Args:
            feed: Follows the runs.
            root: The server's folder: only experiment files below it can be started, and results
                are written below it.
        """
        self._feed = feed
        self._root = root.resolve()

    def do(self, request: action_messages.Action) -> Done:
        """Carry out an action.

        Args:
            request: The action and its arguments.

        Raises:
            ArgumentError: If there is no such action, or an argument is wrong.
            RunError: If it cannot be done, or the driver refused it.
        """
        action = action_of(request.kind, request.arguments)
        if action.subject == "file":
            return self._start(action, self._checked(action, "", request.arguments))
        run = self._run(request)
        arguments = self._checked(action, run.run_id, request.arguments)
        match action.done_by:
            case "driver":
                return _done(run.run_id, action, arguments, run.act(action.kind, arguments))
            case "store":
                done = _done(run.run_id, action, arguments, run.act(action.kind, arguments))
                self._feed.note_edit()
                return done
            case "process":
                return self._do_in_process(action, run, arguments)
            case _:
                raise ArgumentError(f"{action.kind!r} is not an action of the server", field="kind")

    def snippet(self, request: action_messages.Action) -> ActionSnippet:
        """Return the command and the Python code of an action that is being filled in.

        Args:
            request: The action and its arguments so far.

        Raises:
            ArgumentError: If there is no such action, or an argument is wrong.
        """
        action = action_of(request.kind, request.arguments)
        run_id = request.run or ""
        arguments = check_arguments(
            action.arguments, _with_defaults(action, run_id, request.arguments), from_browser=True
        )
        return ActionSnippet(**snippet_of(action.kind, run_id, arguments)._asdict())

    def experiments(self) -> list[ExperimentFile]:
        """Return what to start with: files of the server's folder, examples, files of bundles."""
        files: list[ExperimentFile] = []
        bundled: list[ExperimentFile] = []
        examples = {path.resolve(): name for name, path in shipped().items()}
        for path in sorted(self._files(self._root, _MAX_DEPTH)):
            if len(files) + len(bundled) >= _MAX_FILES:
                break
            name = path.relative_to(self._root).as_posix()
            if path.suffix == _NOTEBOOK:
                if _uses_workbench(path):
                    files.append(ExperimentFile(path=name, name=path.stem, kind="notebook"))
            elif (words := first_comment(path)) is not None:
                kind = "example"
                if examples.pop(path, None) is None:
                    kind = "experiment"
                file = ExperimentFile(path=name, name=path.stem, help=words, kind=kind)
                (bundled if is_of_bundle(path) else files).append(file)
            elif (words := first_comment_of_tiers(path)) is not None:
                files.append(ExperimentFile(path=name, name=path.stem, help=words, kind="tiers"))
        for path, name in examples.items():
            words = first_comment(path) or ""
            files.append(ExperimentFile(path=str(path), name=name, help=words, kind="example"))
        return [*files, *bundled]

    def file(self, given: str) -> Path:
        """Return a file below the server's folder.

        Args:
            given: Its path, relative to that folder.

        Raises:
            ArgumentError: If it is elsewhere, or does not exist.
        """
        path = self._below_root(given)
        if not path.is_file():
            raise ArgumentError(f"there is no file {given}", field="path")
        return path

    def environment(self) -> dict[str, str]:
        """Return the variables by which a process uses the store of this server."""
        store = self._feed.store
        # The address of a store may contain a password, and its path may be relative.
        return {
            **os.environ,
            "WORKBENCH_STORE": store.url,
            "WORKBENCH_ARTIFACTS": str(store.artifacts),
            PROBLEMS_VARIABLE: "1",
        }

    def _files(self, folder: Path, depth: int) -> list[Path]:
        files: list[Path] = []
        try:
            entries = sorted(folder.iterdir())
        except OSError:
            return files
        for entry in entries:
            if entry.name.startswith(".") or entry.name in _SKIPPED or entry.is_symlink():
                continue
            if entry.is_dir() and depth > 1:
                files += self._files(entry, depth - 1)
            elif entry.suffix in (*_SUFFIXES, _NOTEBOOK):
                files.append(entry)
        return files

    def _run(self, request: action_messages.Action) -> Run:
        if request.run is None:
            raise ArgumentError("a run is required", field="run", allowed="a run id, or last")
        return Run(self._feed.store, self._feed.store.run(request.run).run_id)

    def _checked(self, action: Action, run_id: str, given: Mapping[str, Any]) -> dict[str, Any]:
        """Return the arguments of an action, checked.

        A path is checked to lie below the server's folder.
        """
        values = check_arguments(
            action.arguments, _with_defaults(action, run_id, given), from_browser=True
        )
        for argument in action.arguments:
            if argument.kind in ("folder", "new_file") and argument.name in values:
                path = self._below_root(values[argument.name])
                values[argument.name] = path.relative_to(self._root).as_posix()
                if argument.kind == "new_file" and path.exists():
                    raise ArgumentError(
                        f"{values[argument.name]} already exists",
                        field=argument.name,
                        next_step="Choose another name.",
                    )
        return values

    def _start(self, action: Action, arguments: dict[str, Any]) -> Done:
        path = arguments["path"]
        address = arguments.get("address")
        if path not in {str(example.resolve()) for example in shipped().values()}:
            self.file(path)
        if address:
            check_address(address)
        announced = self._command(*command_words(action, "", arguments), "--detach", "--json")
        run_id, answer = announced.get("run_id"), action.answer
        if is_jobs_address(address) and not is_shared(self._feed.store.url):
            show = snippet_of("show", str(run_id), {}).command
            answer = f"{run_id} runs on that cluster. To see it: {show} --address {address}"
            run_id = None  # this server shows only the runs of its own store
        return _done(run_id, action, arguments, answer)

    def _do_in_process(self, action: Action, run: Run, arguments: Mapping[str, Any]) -> Done:
        words = command_words(action, run.run_id, arguments)
        document = self._command(*words, *(["--detach"] if action.detaches else []), "--json")
        answer = document.get("answer") or action.answer.format(**arguments) or None
        done = _done(run.run_id, action, arguments, answer)
        return done.model_copy(update={"run_id": document.get("run_id", run.run_id)})

    def _below_root(self, given: str) -> Path:
        """Return a path below the server's folder, or refuse it."""
        path = (self._root / given).resolve() if "\0" not in given else self._root.parent
        if not path.is_relative_to(self._root):
            raise ArgumentError(
                f"{given!r} is outside the server's folder", field="path", allowed="a path below it"
            )
        return path

    def _command(self, *words: str) -> dict[str, Any]:
        """Run the command line, and return the JSON document that it prints, if it prints one.

        A command that starts a new run is left to itself once the run is stored: how starting the
        driver ends is part of the run.
        """
        environment = self.environment()
        # Files, because nobody reads what a command prints that is left to itself.
        with tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as errors:
            process = subprocess.Popen(
                [sys.executable, "-m", "workbench", *words],
                cwd=self._root,
                stdout=output,
                stderr=errors,
                stdin=subprocess.DEVNULL,
                env=environment,
                start_new_session=True,
            )
            deadline_s = time.monotonic() + _TIMEOUT_S
            while process.poll() is None:
                if (announced := _announced(_text_of(errors))) is not None:
                    threading.Thread(target=process.wait, daemon=True).start()
                    return announced
                if time.monotonic() > deadline_s:
                    process.kill()
                    process.wait()
                    raise RunError(f"workbench {words[0]} did not finish within {_TIMEOUT_S:g} s")
                time.sleep(_POLL_S)
            if process.returncode != 0:
                raise _problem_of(words[0], process.returncode, _text_of(errors))
            return _document_in(_text_of(output)) or {}


def _with_defaults(action: Action, run_id: str, given: Mapping[str, Any]) -> dict[str, Any]:
    may_be_empty = {argument.name for argument in action.arguments if argument.may_be_empty}
    values = {name: value for name, value in given.items() if value != "" or name in may_be_empty}
    for argument in action.arguments:
        if argument.default is not None and values.get(argument.name) is None:
            values[argument.name] = argument.default(run_id, values)
    return values


def _problem_of(verb: str, code: int, errors: str) -> ArgumentError | RunError:
    """Return the error that a command reported as a line of JSON, or else the end of its error
    output.
    """
    for line in reversed(errors.splitlines()):
        document = _document_in(line)
        if document is not None and "problem" in document:
            return (ArgumentError if code == _BAD_INPUT else RunError)(**document)
    return RunError(errors.strip()[-500:] or f"workbench {verb} ended with exit code {code}")


def _announced(errors: str) -> dict[str, Any] | None:
    """Return the new run that a command has reported as a line of JSON, or None so far."""
    documents = (_document_in(line) for line in errors.splitlines() if line.startswith("{"))
    return next(
        (document for document in documents if document is not None and "run_id" in document), None
    )


def _document_in(text: str) -> dict[str, Any] | None:
    try:
        document = json.loads(text)
    except ValueError:
        return None
    if not isinstance(document, dict):
        return None
    return document


def _text_of(file: IO[bytes]) -> str:
    """Return what another process has written into a file so far."""
    return os.pread(file.fileno(), os.fstat(file.fileno()).st_size, 0).decode(errors="replace")


def _uses_workbench(notebook: Path) -> bool:
    try:
        with notebook.open(encoding="utf-8", errors="replace") as file:
            return "import workbench" in file.read(_MAX_READ)
    except OSError:
        return False


def _done(
    run_id: str | None, action: Action, arguments: Mapping[str, Any], answer: str | None
) -> Done:
    snippet: Snippet = snippet_of(action.kind, run_id or "", arguments)
    return Done(run_id=run_id, answer=answer, **snippet._asdict())
