"""Reports errors in one style, and decides the exit code of errors and runs.

Errors are printed on stderr as text, and with `--json` on stdout as JSON. Errors of click become
errors of ours first.
"""

from __future__ import annotations

import itertools
import json
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from workbench.cli.options import write_for_shell
from workbench.cli.output import echo, print_json
from workbench.foundation.errors import (
    PROBLEMS_VARIABLE,
    ArgumentError,
    DataError,
    ExperimentError,
    ResourcesError,
    RunNotFoundError,
    Suggestion,
    WorkbenchError,
)

if TYPE_CHECKING:
    from workbench.foundation.events import RunState
    from workbench.store.history import History


_ALLOWED = "; allowed: "
DONE = 0
FAILED = 1
BAD_INPUT = 2
UNSCHEDULABLE = 3
NOTHING_COMPLETE = 4
SOME_FAILED = 5
INTERRUPTED = 130
EXIT_CODES = {
    DONE: "done",
    FAILED: (
        "failed, or the check found a problem: doctor found something broken, drift found drift,"
        " alerts found a sink that does not work"
    ),
    BAD_INPUT: (
        "your input is wrong: the command line, the experiment, the data, or a run that does not"
        " exist"
    ),
    UNSCHEDULABLE: "the request needs more hardware than there is",
    NOTHING_COMPLETE: "the run ended, but no trial is complete",
    SOME_FAILED: "the run ended with complete trials, but some of its trials failed",
    INTERRUPTED: "interrupted",
}


def wants_json(words: Sequence[str]) -> bool:
    """Return whether a command was called with `--json`.

    Args:
        words: What was typed after the program's name.
    """
    options = itertools.takewhile(lambda word: word != "--", words)
    return "--json" in options


def print_error(error: WorkbenchError) -> None:
    """Print an error on stderr, as text for a user or as JSON for another of our processes."""
    if PROBLEMS_VARIABLE in os.environ:
        from workbench.experiment.actions import write_for_panel

        click.echo(json.dumps(error.to_json(write_for_panel)), err=True)
        return
    echo(f"error: {error.describe(write_for_shell)}", err=True, fg="red")


def report(error: WorkbenchError | click.UsageError, *, as_json: bool) -> int:
    """Report an error that ends a command, and return the exit code.

    Args:
        error: The error.
        as_json: Whether the error is also printed on stdout, for a program that reads it.
    """
    if isinstance(error, click.exceptions.NoArgsIsHelpError):
        error.show()
        return BAD_INPUT
    if isinstance(error, click.UsageError):
        error = _translate(error)
    print_error(error)
    code = exit_code_of(error)
    if as_json:
        next_command = None
        if isinstance(error.next_step, Suggestion):
            next_command = ["workbench", *error.next_step.words]
        print_json(
            {
                "ok": False,
                "error": {
                    "type": type(error).__name__,
                    "field": error.field,
                    "message": error.describe(write_for_shell),
                    "next_command": next_command,
                    "exit_code": code,
                },
            }
        )
    return code


def _translate(error: click.UsageError) -> ArgumentError:
    """Return our error for an error of click."""
    if isinstance(error, click.NoSuchOption):
        return _translate_option(error)
    step = _where_to_look(error)
    if isinstance(error, click.MissingParameter):
        assert error.param is not None
        return ArgumentError("this is required", field=_name(error.param, error), next_step=step)
    if isinstance(error, click.BadParameter):
        problem, _, allowed = error.message.partition(_ALLOWED)
        field = None
        if error.param is not None:
            field = _name(error.param, error)
        elif isinstance(error.param_hint, str):
            field = error.param_hint
        elif error.param_hint is not None:
            field = " ".join(error.param_hint)
        return ArgumentError(
            problem.rstrip("."), field=field, allowed=allowed or None, next_step=step
        )
    if isinstance(error, click.BadOptionUsage):
        return ArgumentError(
            "a value must follow this option", field=error.option_name, next_step=step
        )
    text, _, allowed = error.format_message().partition(_ALLOWED)
    if text.endswith("?"):
        return ArgumentError(text, next_step=None)
    text = text.rstrip(".")
    return ArgumentError(text[:1].lower() + text[1:], allowed=allowed or None, next_step=step)


def _where_to_look(error: click.UsageError) -> Suggestion:
    words, lead = tuple(_path_of(error).split()[1:]), "To see its options"
    if error.ctx is None or isinstance(error.ctx.command, click.Group):
        lead = "To see all commands"
    return Suggestion(lead, " ".join(words), words=(*words, "--help"))


def _path_of(error: click.UsageError) -> str:
    if error.ctx is None:
        return "workbench"
    return error.ctx.command_path


def _translate_option(error: click.NoSuchOption) -> ArgumentError:
    path = _path_of(error)
    next_step = f"To see all options: {path} --help"
    if error.possibilities:
        similar = " or ".join(sorted(error.possibilities))
        next_step = f"Did you mean {similar}? {next_step}"
    if path.endswith(" init"):
        next_step += f". To pass it to your script: {path} 'train.py {error.option_name} VALUE'"
    return ArgumentError(f"{path} has no such option", field=error.option_name, next_step=next_step)


def _name(parameter: click.Parameter, error: click.UsageError) -> str:
    if isinstance(parameter, click.Option):
        return max(parameter.opts, key=len)
    assert error.ctx is not None
    return parameter.make_metavar(error.ctx).strip("[]")


def exit_code_of(error: WorkbenchError) -> int:
    """Return the exit code of an error."""
    if isinstance(error, ExperimentError | ArgumentError | DataError | RunNotFoundError):
        return BAD_INPUT
    if isinstance(error, ResourcesError):
        return UNSCHEDULABLE
    return FAILED


def exit_code_of_run(history: History, state: RunState) -> int:
    """Return the exit code of a run that has ended."""
    from workbench.store.history.failures import began_nothing

    if state == "lost" or (
        state == "failed" and history.reason != "failures" and not began_nothing(history)
    ):
        return FAILED
    if not history.in_state("complete"):
        return NOTHING_COMPLETE
    if history.in_state("failed"):
        return SOME_FAILED
    return DONE
