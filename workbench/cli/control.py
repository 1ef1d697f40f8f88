"""Commands that are made from the table of actions, without any further code."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click

from workbench.cli.declarations import takes
from workbench.cli.options import attach, command_line, example
from workbench.cli.output import echo, print_json
from workbench.cli.parameters import RUN, STORED, options_of
from workbench.cli.remote import remote_capable
from workbench.experiment.actions import ACTIONS, Action

if TYPE_CHECKING:
    from workbench.runs import Run

_UNANSWERED = "the driver has not answered yet. It will carry the command out when it can"
_KEPT = "the driver is gone. The command is carried out when the run is resumed"
_NEXT_STEPS = {
    "choose": ("export", "To export it", {"to": "best"}),
    "enqueue": ("attach", "To follow the run", {}),
    "clone": ("attach", "To follow the run", {}),
    "set": ("attach", "To follow the run", {}),
    "stop": ("resume", "To continue it later", {}),
}
"""What a user may want next, by the kind of the action."""


def names_of_commands() -> list[str]:
    """Return the names of the commands that are made here, in the order of the table."""
    names = (action.command_name for action in ACTIONS.values() if _is_made_here(action))
    return list(dict.fromkeys(names))


def make_command(name: str) -> click.Command:
    """Return a command that is made from its actions.

    Args:
        name: One of `names_of_commands`.
    """
    actions = [
        action
        for action in ACTIONS.values()
        if action.command_name == name and _is_made_here(action)
    ]
    first = actions[0]

    def carry_out(run_id: str, as_json: bool, **given: Any) -> None:
        run = attach(run_id)
        action = _chosen(actions, given)
        names = {argument.name for argument in action.arguments}
        answer = run.act(action.kind, {name: given[name] for name in given if name in names})
        print_answer(action, run, answer, given, as_json=as_json)

    carry_out.__doc__ = first.help
    command = example(*first.examples)(carry_out)
    options = options_of(*(action.kind for action in actions))
    command = takes(RUN, options, STORED)(command)
    return click.command(name)(remote_capable()(command))


def print_answer(
    action: Action, run: Run, answer: str | None, given: Mapping[str, Any], *, as_json: bool
) -> None:
    """Print what a driver or the store answered to an action.

    Args:
        action: The action.
        run: Its run.
        answer: The answer, or None if there is none yet.
        given: The arguments of the action, by name.
        as_json: Whether one JSON document is printed.
    """
    if as_json:
        document: Mapping[str, Any] = given
        if any(argument.setting for argument in action.arguments):
            document = {"settings": run.to_json()["settings"]}
        print_json({"run_id": run.run_id, **document, "message": answer})
        return
    target = run.run_id
    if given.get("trial") is not None:
        target = f"trial {given['trial']} of {target}"
    if not answer and run.state == "lost":
        answer = _KEPT
    echo(f"{action.command_name} {target}: {answer or _UNANSWERED}")
    if answer and action.kind in _NEXT_STEPS:
        verb, lead, arguments = _NEXT_STEPS[action.kind]
        click.echo(f"{lead}: {command_line(verb, run.run_id, **arguments)}", err=True)


def _is_made_here(action: Action) -> bool:
    if action.is_dangerous and action.done_by == "store":
        return False  # it asks first
    return action.done_by in ("driver", "store")


def _chosen(actions: list[Action], given: Mapping[str, Any]) -> Action:
    """Return the action that takes the arguments that were given."""
    names = {name for name, value in given.items() if value is not None}
    if not names and all(_required(action) for action in actions):
        options = [f"--{name}" for action in actions for name in _required(action)]
        raise click.UsageError(f"give {' or '.join(options)}")
    for action in actions:
        if names == set(_required(action)):
            return action
    if not any(names <= {argument.name for argument in action.arguments} for action in actions):
        raise click.UsageError(
            f"you cannot combine {' and '.join(f'--{name}' for name in sorted(names))}"
        )
    return actions[0]


def _required(action: Action) -> list[str]:
    return [argument.name for argument in action.arguments if argument.is_required]
