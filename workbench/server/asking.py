"""What a browser may ask for: the same as on the command line, and by the same roads.

What is only left for a driver (stop, change, enqueue) is left here, in a thread. What starts processes or
loads much (start, resume, extend, replay, export, report) is done by the command line itself, in a process of
its own, so that the server stays small and quick.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from workbench.errors import ExperimentError, RunError
from workbench.run import Run
from workbench.store.urls import is_shared
from workbench.watch.protocol import Action, Done, ExperimentFile
from workbench.watch.same import folder_of, report_of, same_as, words_of
from workbench.watch.watch import Watch
from workbench.workers.jobs import check_address, is_jobs_address

_TIMEOUT_S = 180.0
_MAX_FILES = 200
_MAX_DEPTH = 3
_LIMITS = ("concurrency", "trials", "time", "plateau")
_SUFFIXES = (".yaml", ".yml")
_SKIPPED = frozenset({"node_modules", "site-packages", "__pycache__"})


class Asker:
    """Carries out what browsers ask for."""

    def __init__(self, watch: Watch, root: Path) -> None:
        """Ask of the runs of a store.

        Args:
            watch: Follows them.
            root: The folder below which experiment files may be started: that of the server.
        """
        self._watch = watch
        self._root = root.resolve()

    def do(self, action: Action) -> Done:
        """Do what is asked.

        Args:
            action: What.

        Raises:
            ExperimentError: If it is asked wrongly.
            RunError: If it cannot be done, or the driver refused.
        """
        arguments = dict(action.arguments)
        if action.kind == "start":
            return self._start(arguments)
        if action.run is None:
            raise ExperimentError("which run is not said", field="run", allowed="a run id, or last")
        run = Run(self._watch.store, self._watch.store.run(action.run).run_id)
        return self._ask(run, action.kind, arguments)

    def _ask(self, run: Run, kind: str, arguments: dict[str, Any]) -> Done:
        match kind:
            case "stop":
                return _done(run, kind, {}, run.stop())
            case "stop_trial":
                trial = _take_whole(arguments, "trial")
                return _done(run, kind, {"trial": trial}, run.stop(trial=trial))
            case "enqueue":
                params = arguments.pop("params", None)
                if not isinstance(params, dict):
                    raise ExperimentError("is no configuration", field="params", allowed="values by name")
                return _done(run, kind, {"params": params}, run.enqueue(params))
            case "set":
                limits = _limits(arguments)
                return _done(run, kind, limits, run.set(**limits))
            case "extend":
                limits = _limits(arguments, without=("concurrency",))
                found = self._command(*words_of(kind, run.run_id, limits), "--json")
                return _done(run, kind, limits, found.get("answer"))
            case "resume":
                self._command(*words_of(kind, run.run_id, {}), "--detach", "--json")
                return _done(run, kind, {}, "the run goes on")
            case "replay":
                found = self._command(*words_of(kind, run.run_id, {}), "--detach", "--json")
                done = _done(run, kind, {}, "the run is tried again")
                return done.model_copy(update={"run_id": found.get("run_id", run.run_id)})
            case "export":
                trial = _take_whole(arguments, "trial") if arguments.get("trial") is not None else None
                to, _ = self._take_place(arguments, folder_of(trial))
                return self._write(run, kind, {"to": to, **({} if trial is None else {"trial": trial})})
            case _:
                to, path = self._take_place(arguments, report_of(run.run_id))
                if path.exists():
                    raise ExperimentError(f"there is a {to} already", field="to", next_step="Name another.")
                return self._write(run, "save_report", {"to": to})

    def experiments(self) -> list[ExperimentFile]:
        """Return the experiment files below the server's folder, by path."""
        found = []
        for path in sorted(self._files(self._root, _MAX_DEPTH)):
            if len(found) >= _MAX_FILES:
                break
            if _looks_like_experiment(path):
                name = path.relative_to(self._root).as_posix()
                found.append(ExperimentFile(path=name, name=path.stem))
        return found

    def _files(self, folder: Path, depth: int) -> list[Path]:
        found: list[Path] = []
        try:
            entries = sorted(folder.iterdir())
        except OSError:
            return found
        for entry in entries:
            if entry.name.startswith(".") or entry.name in _SKIPPED or entry.is_symlink():
                continue
            if entry.is_dir() and depth > 1:
                found += self._files(entry, depth - 1)
            elif entry.suffix in _SUFFIXES:
                found.append(entry)
        return found

    def _start(self, arguments: dict[str, Any]) -> Done:
        given, settings = arguments.pop("path", None), arguments.pop("settings", {})
        name, address = arguments.pop("name", None), arguments.pop("address", None)
        words = all(item is None or isinstance(item, str) for item in (name, address))
        if not isinstance(given, str) or not isinstance(settings, dict) or not words or arguments:
            raise ExperimentError(
                "cannot be started so", field="arguments",
                allowed="path of an experiment file, settings by dotted path, name, address",
            )  # fmt: skip
        if not self._below_root(given).is_file():
            raise ExperimentError(f"there is no file {given}", field="path")
        if address:
            check_address(address)
        asked = {"path": given, "settings": settings, "name": name, "address": address}
        found = self._command(*words_of("start", "", asked), "--detach", "--json")
        run_id, answer = found.get("run_id"), "the run is on its way"
        if is_jobs_address(address) and not is_shared(self._watch.store.url):
            answer = f"{run_id} runs there. Look at it: workbench show {run_id} --address {address}"
            run_id = None  # this server shows what is in its own store
        return Done(run_id=run_id, answer=answer, **same_as("start", "", asked)._asdict())

    def _write(self, run: Run, kind: str, asked: dict[str, Any]) -> Done:
        self._command(*words_of(kind, run.run_id, asked))
        return _done(run, kind, asked, f"wrote {asked['to']}")

    def _take_place(self, arguments: dict[str, Any], otherwise: str) -> tuple[str, Path]:
        """Return where something is to be written, as it is shown and as it is, or refuse."""
        given = arguments.pop("to", None) or otherwise
        if not isinstance(given, str) or given.startswith("-"):
            raise ExperimentError(
                f"{given!r} is no place", field="to", allowed="a path below the server's folder"
            )
        path = self._below_root(given)
        return path.relative_to(self._root).as_posix(), path

    def _below_root(self, given: str) -> Path:
        """Return a path below the server's folder, or refuse: nothing else is a browser's business."""
        path = self._root.parent if "\0" in given else (self._root / given).resolve()
        if not path.is_relative_to(self._root):
            raise ExperimentError(
                f"{given!r} lies outside the folder of this server", field="path", allowed="a path below it"
            )
        return path

    def _command(self, *words: str) -> dict[str, Any]:
        """Run the command line, and return the document that it prints, if it prints one."""
        store = self._watch.store
        # By the environment: the address of a store may hold a password, and its path may be relative.
        environment = {"WORKBENCH_STORE": store.url, "WORKBENCH_ARTIFACTS": str(store.artifacts)}
        try:
            done = subprocess.run(
                [sys.executable, "-m", "workbench.cli", *words], cwd=self._root, capture_output=True,
                text=True, timeout=_TIMEOUT_S, check=False, stdin=subprocess.DEVNULL,
                env={**os.environ, **environment},
            )  # fmt: skip
        except subprocess.TimeoutExpired as error:
            raise RunError(f"workbench {words[0]} has not answered for {_TIMEOUT_S:g} s") from error
        if done.returncode != 0:
            lines = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
            problem = lines[-1].removeprefix("error: ") if lines else done.stderr.strip()[-500:]
            field, _, of_it = problem.partition(": ")
            if field == "address":  # the browser has a field for it
                raise RunError(of_it, field=field)
            raise RunError(problem or f"workbench {words[0]} ended with {done.returncode}")
        try:
            document = json.loads(done.stdout)
        except ValueError:
            return {}
        return document if isinstance(document, dict) else {}


def _looks_like_experiment(path: Path) -> bool:
    try:
        with path.open(encoding="utf-8", errors="replace") as file:
            keys = {line.partition(":")[0] for line in file.readlines(65_536) if line[:1].isalpha()}
    except OSError:
        return False
    return "objectives" in keys and bool(keys & {"model", "train"})


def _limits(arguments: Mapping[str, Any], without: Sequence[str] = ()) -> dict[str, Any]:
    allowed = [name for name in _LIMITS if name not in without]
    unknown = [name for name in arguments if name not in allowed]
    if unknown:
        raise ExperimentError("no limit is called so", field=unknown[0], allowed=allowed)
    return {name: value for name, value in arguments.items() if value is not None}


def _take_whole(arguments: dict[str, Any], name: str) -> int:
    value = arguments.pop(name, None)
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise ExperimentError(f"is {value!r}", field=name, allowed="a whole number from 0")
    return value


def _done(run: Run, kind: str, asked: Mapping[str, Any], answer: str | None) -> Done:
    return Done(run_id=run.run_id, answer=answer, **same_as(kind, run.run_id, asked)._asdict())
