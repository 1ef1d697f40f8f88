"""Controlling a run: stop it, change or extend its limits, add configurations, resume it.

Each of these is a command in the store. The run's driver carries it out and answers. If there is no
driver any more, a new one is launched. `sweeps` executes the commands. Every function takes the
arguments of the `Run` method with the same name, and returns the driver's answer, or None if there
is none yet.
"""

from __future__ import annotations

import getpass
import os
import socket
import time
from collections.abc import Mapping
from typing import Any, Literal

from pydantic import JsonValue

from workbench.experiment.actions import stored_payload, suggest
from workbench.experiment.aliases import resolve_parameters
from workbench.experiment.changes import (
    ENERGY,
    MONEY,
    SEARCH,
    change,
    merge_changes,
    values_of,
    with_changes,
)
from workbench.experiment.space import Space
from workbench.experiment.train_function import refuse_imported
from workbench.foundation.errors import ArgumentError, RunError
from workbench.foundation.events import FINISHED_RUN_STATES, CommandHandled, VersionJudged
from workbench.runs.descriptions import how_to_continue, why_not_resumed
from workbench.runs.stored_run import StoredRun
from workbench.runs.waiting import POLL_S, await_end
from workbench.store.history.history import no_such_trial

_ANSWER_TIMEOUT_S = 5.0
_WRITTEN: Mapping[str, str] = {ENERGY: "Wh", MONEY: ""}
"""The limits that commands carry as text, with their units."""


def stop(run: StoredRun, trial: int | None) -> str | None:
    """Stop a run, or one of its trials."""
    if trial is not None:
        return _stop_trial(run, trial)
    if run.state != "lost":
        return command(run, "stop", {})
    # Ray may still restart a driver that was killed.
    run.store.command(run.run_id, "stop", {})
    raise RunError(
        f"run {run.run_id} is not running, because its driver is gone. If Ray restarts it, it"
        " will stop then",
        next_step=suggest("resume", run.run_id, lead="To continue it"),
    )


def _stop_trial(run: StoredRun, trial: int) -> str | None:
    payload = stored_payload("stop_trial", {"trial": trial})
    if run.state == "lost":
        raise RunError(
            f"trial {trial} is not running: the driver of run {run.run_id} is gone",
            next_step=suggest("resume", run.run_id, lead="To continue it"),
        )
    record = run.history.trials.get(trial)
    if record is None:
        raise no_such_trial(run.history, trial)
    if record.finished:
        running = [str(item.number) for item in run.history.in_state("running", "waiting")]
        raise RunError(
            f"trial {trial} cannot be stopped: it is already {record.state}",
            allowed=running or None,
        )
    return command(run, "stop_trial", payload)


def judge(run: StoredRun, version: str, verdict: Literal["accepted", "reverted"]) -> str:
    """Store that a person accepted or reverted a version of the code."""
    versions = run.experiment.search.code_versions
    if version not in versions:
        raise ArgumentError(
            f"{version!r} is not a version of the code of {run.run_id}",
            field="version",
            allowed=", ".join(versions) or "runs with search.code",
        )
    if run.state not in (*FINISHED_RUN_STATES, "lost"):
        raise RunError(
            f"run {run.run_id} is {run.state}, so its decisions may still change",
            next_step=suggest("follow", run.run_id, lead="To wait for its end"),
        )
    person = getpass.getuser()
    with run.store.writer(
        run.run_id, owner_pid=os.getpid(), owner_host=socket.gethostname()
    ) as writer:
        writer.append(VersionJudged(version=version, verdict=verdict, by=person))
    return f"{person} {verdict} {version}"


def enqueue(run: StoredRun, params: Mapping[str, JsonValue]) -> str | None:
    """Let a given configuration be tried next."""
    refuse_imported(run.experiment, "continued")
    payload = stored_payload("enqueue", {"params": params})
    checked = _checked(run.history.in_force.search, params)
    return command(run, "enqueue", payload | {"params": checked})


def clone(
    run: StoredRun, trial: int, changes: Mapping[str, JsonValue], begins_from: str
) -> str | None:
    """Continue a trial in a copy with other values."""
    from workbench.sweeps.clones import check_clone  # reading a run needs none of it

    refuse_imported(run.experiment, "cloned")
    given = {"trial": trial, "set": changes, "from_": begins_from}
    payload = stored_payload("clone", given)
    if run.state not in FINISHED_RUN_STATES:
        check_clone(run.history, trial, payload["set"], payload["from_"])
    return command(run, "clone", payload)


def set_limits(run: StoredRun, limits: Mapping[str, Any]) -> str | None:
    """Change limits of a run while it is under way.

    Args:
        run: The run.
        limits: The arguments of `Run.set`. None leaves a limit as it is.
    """
    refuse_imported(run.experiment, "changed")
    settings = stored_payload("set", _with_units(limits))
    changes = _check_search(run, settings.pop(SEARCH, None))
    if settings or not changes:
        values = values_of(change(run.history.in_force, settings))
        settings = _as_stored({path: values[path] for path in settings})
    return command(run, "set", settings | changes)


def extend(
    run: StoredRun, more: Mapping[str, Any], *, launcher: str, address: str | None
) -> str | None:
    """Give a run a larger budget, and a new driver if it has ended.

    Args:
        run: The run.
        more: The arguments of `Run.extend`, except for `launcher` and `address`.
        launcher: As in `sweep`. Used if the run has ended.
        address: As in `sweep`. Used if the run has ended.
    """
    from workbench.sweeps.budget import extended

    refuse_imported(run.experiment, "extended")
    added = stored_payload("extend", _with_units(more))
    changes = _check_search(run, added.pop(SEARCH, None))
    code = added.pop("code", None)
    enqueued = added.pop("enqueue", None)
    params = None
    if enqueued is not None:
        params = _checked(_space_after(run, changes), enqueued)
    if params is not None and not added:
        added = {"budget.trials": 1}
    history = run.history
    limits = extended(history, added, history.now_unix_s(), has_new_code=code == "current")
    change(history.in_force, limits)
    row = run.row
    _request_code(run, code)
    # The driver adds to the limits of that moment, so two requests at once are both granted.
    number = run.store.command(run.run_id, "extend", added | changes)
    if params is not None:  # carried out after the other, whichever process drives
        run.store.command(run.run_id, "enqueue", {"params": params})
    if row.state in ("waiting", "running", "stopping"):
        answer = _answer(run, number, row.last_seq)
        if answer is not None or not run.finished:
            return answer
    run.await_leaving()
    _launch(run, launcher, address)
    if launcher == "inline":
        await_end(run)
    return _answer(run, number, row.last_seq)


def use_code(run: StoredRun, code: str) -> str | None:
    """Choose which code new trials of a run under way run."""
    checked = stored_payload("resume", {"code": code})
    if code != "current":
        return None
    return command(run, "code", checked)


def drive_again(run: StoredRun, *, launcher: str, address: str | None, code: str | None) -> None:
    """Give a run that has ended early a new driver."""
    refuse_imported(run.experiment, "resumed")
    code = stored_payload("resume", {"code": code}).get("code")
    run.await_leaving()
    if (problem := why_not_resumed(run.state, run.history)) is not None:
        next_step = how_to_continue(run.run_id, run.history)
        raise RunError(f"run {run.run_id} {problem}", next_step=next_step)
    _request_code(run, code)
    _launch(run, launcher, address)


def command(run: StoredRun, kind: str, arguments: Mapping[str, Any]) -> str | None:
    """Store a command for the driver, and wait for its answer unless it is gone."""
    row = run.row
    if row.state in FINISHED_RUN_STATES:
        next_step = suggest("resume", run.run_id, lead="To continue it")
        if row.state == "complete":
            next_step = how_to_continue(run.run_id, run.history)
        raise RunError(f"run {run.run_id} has ended ({row.state})", next_step=next_step)
    number = run.store.command(run.run_id, kind, arguments)
    if row.state == "lost":
        return None  # nobody is there to answer
    return _answer(run, number, row.last_seq)


def _answer(run: StoredRun, number: int, after: int) -> str | None:
    """Wait for the answer to a command, which comes after the event `after`."""
    until_s = time.monotonic() + _ANSWER_TIMEOUT_S
    while time.monotonic() < until_s:
        for stored in run.store.events(run.run_id, after=after):
            after = stored.seq
            if isinstance(stored.event, CommandHandled) and stored.event.command == number:
                if not stored.event.done:
                    raise RunError(f"the driver refused: {stored.event.message}")
                return stored.event.message
        time.sleep(POLL_S / 2)
    return None


def _launch(run: StoredRun, launcher: str, address: str | None) -> None:
    """Launch a driver, which ignores stops that were requested before."""
    from workbench.sweeps.launchers import launch

    handled = run.store.events(run.run_id, types=["command_handled"])
    known = {item.event.command for item in handled if isinstance(item.event, CommandHandled)}
    waiting = [item.kind for item in run.store.commands(run.run_id) if item.number not in known]
    if "stop" in waiting:
        run.store.command(run.run_id, "resume", {})
    launch(run.store, run.run_id, launcher=launcher, address=address)


def _request_code(run: StoredRun, code: str | None) -> None:
    """Let the driver keep the code as it is now, if the user asked or no trial has a result.

    Args:
        run: The run.
        code: `kept`, `current`, or None if the user leaves that open.
    """
    from workbench.sweeps.code_versions import has_changed

    if code is None and not run.is_under_way:
        trials = run.history.trials.values()
        has_results = any(trial.values or trial.reports for trial in trials)
        if not has_results and has_changed(run.store.artifacts_of(run.run_id)):
            code = "current"
    if code == "current":
        run.store.command(run.run_id, "code", {"code": "current"})


def _check_search(run: StoredRun, given: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return requested changes of the space as they are sent, if they are possible."""
    if not given:
        return {}
    merge_changes(run.experiment, run.history.search_changes, given)
    return {SEARCH: dict(given)}


def _space_after(run: StoredRun, changes: Mapping[str, Any]) -> Space:
    """Return the search space after requested changes."""
    history = run.history
    merged = merge_changes(run.experiment, history.search_changes, changes.get(SEARCH, {}))
    if not merged:
        return history.in_force.search
    return with_changes(run.experiment, merged).search


def _checked(space: Space, params: Mapping[str, JsonValue]) -> dict[str, JsonValue]:
    """Return a configuration with the names and the order of its space."""
    return space.check(resolve_parameters(params, space.root))


def _with_units(limits: Mapping[str, Any]) -> dict[str, Any]:
    """Return the limits that a user gave, those as text that may be given as numbers."""
    return {
        **limits,
        "energy": _as_text(limits["energy"], "Wh"),
        "money": _as_text(limits["money"]),
    }


def _as_stored(limits: Mapping[str, Any]) -> dict[str, Any]:
    """Return limits as commands carry them."""
    stored = dict(limits)
    for path, unit in _WRITTEN.items():
        if path in stored:
            stored[path] = _as_text(stored[path], unit)
    return stored


def _as_text(amount: float | str | None, unit: str = "") -> str | None:
    if isinstance(amount, float | int):
        return f"{amount:.17g}{unit}"
    return amount
