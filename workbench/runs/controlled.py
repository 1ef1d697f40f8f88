"""Controlling a run: stop it, change or extend its limits, add configurations, resume it.

Each of these is a command in the store, which the run's driver carries out and answers; where there
is no driver any more, a new one is launched. What a driver does with a command is left to `sweeps`.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from pydantic import JsonValue
from typing_extensions import Self

from workbench.experiment.actions import stored_payload, suggest
from workbench.experiment.aliases import resolve_parameters
from workbench.experiment.changing import DURATIONS, ENERGY, MONEY, change, values_of
from workbench.experiment.energy_units import parse_energy_wh
from workbench.experiment.money_units import parse_money
from workbench.experiment.search_changes import SEARCH, merge_changes, with_changes
from workbench.experiment.setting_types import Auto
from workbench.experiment.space import Space
from workbench.foundation.errors import RunError
from workbench.foundation.events import FINISHED_RUN_STATES, CommandHandled
from workbench.foundation.formatting import duration_argument_s
from workbench.runs.descriptions import how_to_continue, why_not_resumed
from workbench.runs.labelled import LabelledRun
from workbench.runs.view import POLL_S
from workbench.store.history import History

_ANSWER_TIMEOUT_S = 5.0


class ControlledRun(LabelledRun):
    """A run that can be stopped, changed, extended and resumed, by whichever process drives it."""

    def stop(self, trial: int | None = None) -> str | None:
        """Stop the run, or one of its trials, and wait up to five seconds for the driver's answer.

        Args:
            trial: The number of the trial; None for the whole run.

        Returns:
            The driver's answer; None if it has not answered yet, and will carry the command out
            when it can.

        Raises:
            ArgumentError: If `trial` is not a number of a trial.
            RunError: If the run has ended or was lost, or no such trial is under way.

        Example:
            >>> answer = running.stop()
            >>> running.wait().state
            'stopped'
        """
        to_continue = suggest("resume", self.run_id, lead="To continue it")
        if trial is None:
            if self.state != "lost":
                return self.command("stop", {})
            self.store.command(
                self.run_id, "stop", {}
            )  # Ray may still restart a driver that was killed
            raise RunError(
                f"run {self.run_id} is not running: its driver is gone, and only one that Ray"
                " restarts would still carry the stop out",
                next_step=to_continue,
            )
        payload = stored_payload("stop_trial", {"trial": trial})
        if self.state == "lost":
            raise RunError(
                f"trial {trial} is not running: the driver of run {self.run_id} is gone",
                next_step=to_continue,
            )
        record = self.history.trials.get(trial)
        if record is None or record.finished:
            problem = (
                "there is no such trial" if record is None else f"it is already {record.state}"
            )
            running = [str(item.number) for item in self.history.in_state("running", "waiting")]
            raise RunError(f"trial {trial} cannot be stopped: {problem}", allowed=running or None)
        return self.command("stop_trial", payload)

    def enqueue(self, params: Mapping[str, JsonValue]) -> str | None:
        """Try a given configuration next, and wait up to five seconds for the driver's answer.

        Args:
            params: The value of every searched parameter, by name; those with a single value may be
                left out.

        Returns:
            The driver's answer; None if it has not answered yet, and will carry the command out
            when it can.

        Raises:
            ExperimentError: If the configuration does not lie in the search space.
            RunError: If the run has ended.

        Example:
            >>> answer = running.enqueue({"lr": 0.01})
        """
        payload = stored_payload("enqueue", {"params": params})
        checked = _checked(self.history.in_force.search, params)
        return self.command("enqueue", payload | {"params": checked})

    def set(
        self,
        *,
        concurrency: int | Auto | None = None,
        trials: int | None = None,
        time: float | str | None = None,
        gpu_time: float | str | None = None,
        energy: float | str | None = None,
        money: float | str | None = None,
        plateau: int | None = None,
        search: Mapping[str, Any] | None = None,
    ) -> str | None:
        """Change limits of the run while it is under way.

        Limits that are left out stay as they are.

        The experiment and its hash do not change. A limit that the run has already passed ends it.

        Args:
            concurrency: Most trials at once, or `auto` for as many as the hardware holds; those
                under way are not stopped.
            trials: Configurations in total.
            time: Time of the run in total, in seconds or such as 1h30m.
            gpu_time: Time that all trials together hold GPUs, in seconds or such as 50h.
            energy: Energy that all trials together use, in watt-hours or such as 2kWh.
            money: What the run may cost, in the currency of its price or such as 20 EUR.
            plateau: Configurations in a row without a better one after which the run ends.
            search: Parameters that are searched differently from now on, by name: a value freezes
                one, a range or choices replace its own; of a range one end suffices.

        Returns:
            The driver's answer; None if it has not answered yet, and will carry the command out
            when it can.

        Raises:
            ArgumentError: If a limit is not valid.
            ExperimentError: If no limit is given, or the experiment cannot have it.
            RunError: If the run has ended.

        Example:
            >>> answer = running.set(concurrency=1, time="10m")
        """
        settings = stored_payload(
            "set",
            {
                "concurrency": concurrency,
                "trials": trials,
                "time": time,
                "gpu_time": gpu_time,
                "energy": _as_text(energy, "Wh"),
                "money": _as_text(money),
                "plateau": plateau,
                "search": search,
            },
        )
        changes = self._check_search(settings.pop(SEARCH, None))
        if settings or not changes:
            values = values_of(change(self.history.in_force, settings))
            settings = _as_stored({path: values[path] for path in settings})
        return self.command("set", settings | changes)

    def _check_search(self, given: Mapping[str, Any] | None) -> dict[str, Any]:
        """Return requested changes of the space as they are sent, if they are possible."""
        if not given:
            return {}
        merge_changes(self.experiment, self.history.search_changes, given)
        return {SEARCH: dict(given)}

    def _space_after(self, changes: Mapping[str, Any]) -> Space:
        """Return the search space after requested changes."""
        history = self.history
        merged = merge_changes(self.experiment, history.search_changes, changes.get(SEARCH, {}))
        return with_changes(self.experiment, merged).search if merged else history.in_force.search

    def extend(
        self,
        *,
        trials: int | None = None,
        time: float | str | None = None,
        gpu_time: float | str | None = None,
        energy: float | str | None = None,
        money: float | str | None = None,
        plateau: int | None = None,
        search: Mapping[str, Any] | None = None,
        code: str | None = None,
        enqueue: Mapping[str, JsonValue] | None = None,
        launcher: str = "ray",
        address: str | None = None,
    ) -> str | None:
        """Give the run a larger budget; a run that has ended continues with a new driver.

        The study proposes what it would have proposed with the larger budget from the beginning.

        Args:
            trials: Number of additional configurations.
            time: Additional time, in seconds or such as 1h30m.
            gpu_time: Additional time that trials hold GPUs, in seconds or such as 50h.
            energy: Additional energy, in watt-hours or such as 2kWh.
            money: Additional money, in the currency of its price or such as 20 EUR.
            plateau: Number of additional configurations without a better one.
            search: Parameters that are searched differently from now on, as in `set`.
            code: `kept`: trials run the code that the run kept. `current`: trials that begin from
                here on run it as it is on the disk now, and the sampler takes those before for
                another, related run. None for `kept`, and for `current` where no trial has a result
                yet.
            enqueue: A configuration to try next, as in `enqueue`; without a limit the run gets one
                more trial.
            launcher: As in `sweep`; used where the run has ended.
            address: As in `sweep`; used where the run has ended.

        Returns:
            The driver's answer; None if it has not answered yet, and will carry the command out
            when it can.

        Raises:
            ArgumentError: If an argument is not valid.
            ExperimentError: If the run has no such limit, would end at once anyway, or the
                configuration does not lie in the search space.
            RunError: If the run is about to end; with the launcher `inline`, also if it failed.

        Example:
            >>> answer = run.extend(trials=1)
            >>> run.wait().state
            'complete'
        """
        more = stored_payload(
            "extend",
            {
                "trials": trials,
                "time": time,
                "gpu_time": gpu_time,
                "energy": _as_text(energy, "Wh"),
                "money": _as_text(money),
                "plateau": plateau,
                "search": search,
                "code": code,
                "enqueue": enqueue,
            },
        )
        for path in DURATIONS & more.keys():
            more[path] = duration_argument_s(more[path], field=path.removeprefix("budget."))
        if ENERGY in more:
            more[ENERGY] = parse_energy_wh(more[ENERGY])
        if MONEY in more:
            more[MONEY] = parse_money(more[MONEY], self.history.in_force.budget.price)
        changes, code = self._check_search(more.pop(SEARCH, None)), more.pop("code", None)
        enqueued = more.pop("enqueue", None)
        params = None if enqueued is None else _checked(self._space_after(changes), enqueued)
        if params is not None and not more:
            more = {"budget.trials": 1}
        limits = _longer_limits(self.history, more, has_new_code=code == "current")
        row = self.row
        self._request_code(code)
        number = self.store.command(self.run_id, "extend", limits | changes)
        if params is not None:  # carried out after the other, whichever process drives
            self.store.command(self.run_id, "enqueue", {"params": params})
        if row.state in ("waiting", "running", "stopping"):
            answer = self._answer(number, row.last_seq)
            if answer is not None or not self.finished:
                return answer
        self.await_leaving()
        self._launch(launcher, address)
        self.ended_by(launcher)
        return self._answer(number, row.last_seq)

    def resume(
        self, *, launcher: str = "ray", address: str | None = None, code: str | None = None
    ) -> Self:
        """Continue a run that was stopped, failed or lost with a new driver.

        Finished trials are kept.

        A run that is under way is left alone. If its driver is about to leave it, this waits until
        it has. A stop that was requested earlier, and that no driver has carried out, is void.

        Args:
            launcher: As in `sweep`.
            address: As in `sweep`.
            code: As in `extend`.

        Raises:
            RunError: If the run is complete or has no trial left, or no new driver can be started;
                with the launcher `inline`, also if it failed.
        """
        if self.is_under_way:
            if code is not None:
                self.use_code(code)
            return self
        self.drive_again(launcher=launcher, address=address, code=code)
        return self.ended_by(launcher)

    def use_code(self, code: str) -> str | None:
        """Choose which code the trials of a run under way run that begin from here on.

        Args:
            code: As in `extend`.

        Returns:
            The driver's answer; None if it has not answered yet, or the code stays that which was
            kept.

        Raises:
            ArgumentError: If `code` is neither `kept` nor `current`.
            RunError: If the driver refused.
        """
        checked = stored_payload("resume", {"code": code})
        return self.command("code", checked) if code == "current" else None

    def _request_code(self, code: str | None) -> None:
        """Let the driver keep the code as it is now, where that was requested or there is no result
        yet.
        """
        from workbench.sweeps.origin_file import has_changed

        if code is None and not self.is_under_way:
            trials = self.history.trials.values()
            has_results = any(trial.values or trial.reports for trial in trials)
            code = (
                "current"
                if not has_results and has_changed(self.store.artifacts_of(self.run_id))
                else None
            )
        if code == "current":
            self.store.command(self.run_id, "code", {"code": "current"})

    def drive_again(
        self, *, launcher: str = "ray", address: str | None = None, code: str | None = None
    ) -> None:
        """Give a run that has ended early a new driver, as `resume` does, whatever comes of it.

        Args:
            launcher: As in `sweep`.
            address: As in `sweep`.
            code: As in `extend`.

        Raises:
            ArgumentError: If `code` is neither `kept` nor `current`.
            RunError: If the run is complete or has no trial left, or no new driver can be started.
        """
        code = stored_payload("resume", {"code": code}).get("code")
        self.await_leaving()
        if (problem := why_not_resumed(self.state, self.history)) is not None:
            next_step = how_to_continue(self.run_id, self.history)
            raise RunError(f"run {self.run_id} {problem}", next_step=next_step)
        self._request_code(code)
        self._launch(launcher, address)

    def ended_by(self, launcher: str) -> Self:
        """Return the run after a launch; one that was driven in this process has ended by then.

        Args:
            launcher: The launcher that started its driver.

        Raises:
            RunError: If it was driven in this process and failed, as nobody asks a run that has
                ended.
        """
        return self.wait() if launcher == "inline" else self

    def _launch(self, launcher: str, address: str | None) -> None:
        """Launch a driver; it carries out no stop that was requested before."""
        from workbench.sweeps.launchers import launch

        handled = self.store.events(self.run_id, types=["command_handled"])
        known = {item.event.command for item in handled if isinstance(item.event, CommandHandled)}
        waiting = [
            item.kind for item in self.store.commands(self.run_id) if item.number not in known
        ]
        if "stop" in waiting:
            self.store.command(self.run_id, "resume", {})
        launch(self.store, self.run_id, launcher=launcher, address=address)

    def command(self, kind: str, arguments: Mapping[str, Any]) -> str | None:
        """Store a command for the driver, and wait up to five seconds for its answer unless it is
        gone.

        Args:
            kind: What to do.
            arguments: The payload, as JSON values.

        Returns:
            The driver's answer; None if it has not answered yet.

        Raises:
            RunError: If the run has ended, or the driver refused.
        """
        row = self.row
        if row.state in FINISHED_RUN_STATES:
            raise RunError(
                f"run {self.run_id} has ended ({row.state})",
                next_step=(
                    how_to_continue(self.run_id, self.history)
                    if row.state == "complete"
                    else suggest("resume", self.run_id, lead="To continue it")
                ),
            )
        number = self.store.command(self.run_id, kind, arguments)
        return None if row.state == "lost" else self._answer(number, row.last_seq)

    def _answer(self, number: int, after: int) -> str | None:
        """Wait for the answer to a command, which comes after the event `after`."""
        until = time.monotonic() + _ANSWER_TIMEOUT_S
        while time.monotonic() < until:
            for stored in self.store.events(self.run_id, after=after):
                after = stored.seq
                if isinstance(stored.event, CommandHandled) and stored.event.command == number:
                    if not stored.event.done:
                        raise RunError(f"the driver refused: {stored.event.message}")
                    return stored.event.message
            time.sleep(POLL_S / 2)
        return None


_WRITTEN: Mapping[str, str] = {ENERGY: "Wh", MONEY: ""}
"""The limits that commands carry as text, with their units."""


def _as_text(amount: float | str | None, unit: str = "") -> str | None:
    return f"{amount:.17g}{unit}" if isinstance(amount, float | int) else amount


def _as_stored(limits: Mapping[str, Any]) -> dict[str, Any]:
    """Return limits as commands carry them."""
    return {
        path: _as_text(value, _WRITTEN[path]) if path in _WRITTEN else value
        for path, value in limits.items()
    }


def _checked(space: Space, params: Mapping[str, JsonValue]) -> dict[str, JsonValue]:
    """Return a configuration as its space orders and names it."""
    return space.check(resolve_parameters(params, space.root))


def _longer_limits(
    history: History, more: Mapping[str, Any], *, has_new_code: bool
) -> dict[str, Any]:
    """Return the limits of an extended run; an extension that is not possible raises an error."""
    from workbench.sweeps.budget import extended

    limits = extended(history, more, history.now_unix_s(), has_new_code=has_new_code)
    change(history.in_force, limits)
    return _as_stored(limits)
