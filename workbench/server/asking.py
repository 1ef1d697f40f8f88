"""What a browser may ask for: the same as on the command line, and by the same roads.

What is only left for a driver (stop, change, enqueue) is left here, in a thread. What starts processes or
loads much (start, resume, extend, replay, export) is done by the command line itself, in a process of its
own, so that the server stays small and quick.
"""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from workbench.errors import ExperimentError, RunError
from workbench.run import Run
from workbench.watch.offers import enqueue, stop_trial
from workbench.watch.protocol import Action, Done
from workbench.watch.watch import Watch

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
        match action.kind:
            case "stop":
                return _done(run, "stop", [], "stop()", run.stop())
            case "stop_trial":
                trial = _take_whole(arguments, "trial")
                command, python = stop_trial(run.run_id, trial)
                return Done(run_id=run.run_id, answer=run.stop(trial=trial), command=command, python=python)
            case "enqueue":
                params = arguments.pop("params", None)
                if not isinstance(params, dict):
                    raise ExperimentError("is no configuration", field="params", allowed="values by name")
                command, python = enqueue(run.run_id, params)
                answer = run.enqueue(params)
                return Done(run_id=run.run_id, answer=answer, command=command, python=python)
            case "set":
                limits = _limits(arguments)
                return _done(run, "set", _options(limits), f"set({_python(limits)})", run.set(**limits))
            case "extend":
                limits = _limits(arguments, without=("concurrency",))
                found = self._command("extend", run.run_id, *_options(limits), "--json")
                told = f"extend({_python(limits)})"
                return _done(run, "extend", _options(limits), told, found.get("answer"))
            case "resume":
                self._command("resume", run.run_id, "--detach", "--json")
                return _done(run, "resume", [], "resume()", "the run goes on")
            case "replay":
                found = self._command("replay", run.run_id, "--detach", "--json")
                done = _done(run, "replay", [], "replay()", "the run is tried again")
                return done.model_copy(update={"run_id": found.get("run_id", run.run_id)})
            case "export":
                return self._export(run, arguments)
            case "report":
                path = self._below_root(f"{run.name}-report.html")
                self._command("report", run.run_id, "--to", str(path))
                return _done(
                    run, "report", ["--to", path.name], f"report({path.name!r})", f"wrote {path.name}"
                )

    def experiments(self) -> list[dict[str, str]]:
        """Return the experiment files below the server's folder, by path."""
        found = []
        for path in sorted(self._files(self._root, _MAX_DEPTH)):
            if len(found) >= _MAX_FILES:
                break
            if _looks_like_experiment(path):
                name = path.relative_to(self._root).as_posix()
                found.append({"path": name, "name": path.stem})
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
        given = arguments.pop("path", None)
        settings, name = arguments.pop("settings", {}), arguments.pop("name", None)
        named = name is None or isinstance(name, str)
        if not isinstance(given, str) or not isinstance(settings, dict) or not named or arguments:
            raise ExperimentError(
                "cannot be started so", field="arguments",
                allowed="path of an experiment file, settings by dotted path, name",
            )  # fmt: skip
        path = self._below_root(given)
        if not path.is_file():
            raise ExperimentError(f"there is no file {given}", field="path")
        words = [word for key, value in settings.items() for word in ("--set", f"{key}={json.dumps(value)}")]
        words += ["--name", str(name)] if name else []
        found = self._command("sweep", given, *words, "--detach", "--json")
        shown = " ".join(["workbench sweep", *(shlex.quote(word) for word in (given, *words))])
        return Done(
            run_id=found.get("run_id"), answer="the run is on its way", command=shown,
            python=f"wb.sweep({given!r})" if not settings
            else f"wb.sweep(wb.read_experiment({given!r}, {settings!r}))",
        )  # fmt: skip

    def _export(self, run: Run, arguments: dict[str, Any]) -> Done:
        trial = _take_whole(arguments, "trial") if arguments.get("trial") is not None else None
        given = arguments.pop("to", None) or f"{run.name}-best"
        if not isinstance(given, str) or given.startswith("-"):
            raise ExperimentError(
                f"{given!r} is no folder", field="to", allowed="a path below the server's folder"
            )
        to = self._below_root(given)
        name = to.relative_to(self._root).as_posix()
        words = ["--to", name, *(["--trial", str(trial)] if trial is not None else [])]
        self._command("export", run.run_id, *words)
        python = f"export({name!r})" if trial is None else f"export({name!r}, trial={trial})"
        return _done(run, "export", words, python, f"wrote {name}")

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


def _options(limits: Mapping[str, Any]) -> list[str]:
    return [word for name, value in limits.items() for word in (f"--{name}", str(value))]


def _python(limits: Mapping[str, Any]) -> str:
    return ", ".join(f"{name}={value!r}" for name, value in limits.items())


def _done(run: Run, command: str, words: Sequence[str], python: str, answer: str | None) -> Done:
    shown = " ".join(["workbench", command, run.run_id, *(shlex.quote(word) for word in words)])
    return Done(run_id=run.run_id, answer=answer, command=shown, python=f"wb.attach({run.run_id!r}).{python}")
