"""How errors are reported, click's own included: on stderr in one style, and with `--json` as JSON.

What is wrong is left to the code that raised the error.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence

import click

from workbench.cli.exit_codes import BAD_INPUT, exit_code_of
from workbench.cli.options import write_for_shell
from workbench.cli.output import echo, print_json
from workbench.foundation.errors import (
    PROBLEMS_VARIABLE,
    ArgumentError,
    Suggestion,
    WorkbenchError,
)

_ALLOWED = "; allowed: "


def wants_json(words: Sequence[str]) -> bool:
    """Return whether a command was called with `--json`.

    Args:
        words: What was typed after the program's name.
    """
    return "--json" in words[: words.index("--") if "--" in words else None]


def print_error(error: WorkbenchError) -> None:
    """Print an error on stderr: for a user, or as JSON for another process of ours."""
    if PROBLEMS_VARIABLE in os.environ:
        from workbench.experiment.actions import write_for_panel

        click.echo(json.dumps(error.to_json(write_for_panel)), err=True)
        return
    echo(f"error: {error.describe(write_for_shell)}", err=True, fg="red")


def report(error: WorkbenchError | click.UsageError, *, as_json: bool) -> int:
    """Report an error that ends a command, and return the exit code.

    Args:
        error: The error.
        as_json: Whether a program reads stdout, which then receives the error as well.
    """
    if isinstance(error, click.exceptions.NoArgsIsHelpError):
        error.show()
        return BAD_INPUT
    ours = _translate(error) if isinstance(error, click.UsageError) else error
    print_error(ours)
    code = exit_code_of(ours)
    if as_json:
        step = ours.next_step
        print_json(
            {
                "ok": False,
                "error": {
                    "type": type(ours).__name__,
                    "field": ours.field,
                    "message": ours.describe(write_for_shell),
                    "next_command": (
                        ["workbench", *step.words] if isinstance(step, Suggestion) else None
                    ),
                    "exit_code": code,
                },
            }
        )
    return code


def _translate(error: click.UsageError) -> ArgumentError:
    """Return our error for one of click: what is wrong, what is allowed, and where to look."""
    path = "workbench" if error.ctx is None else error.ctx.command_path
    words = tuple(path.split()[1:])
    step = Suggestion("To see its options", " ".join(words), words=(*words, "--help"))
    if isinstance(error, click.NoSuchOption):
        problem = f"{path} has no such option"
        close = sorted(error.possibilities or ())
        hint = f"Did you mean {' or '.join(close)}? " if close else ""
        return ArgumentError(
            problem,
            field=error.option_name,
            next_step=f"{hint}To see all options: {path} --help",
        )
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


def _name(parameter: click.Parameter, error: click.UsageError) -> str:
    if isinstance(parameter, click.Option):
        return max(parameter.opts, key=len)
    assert error.ctx is not None
    return parameter.make_metavar(error.ctx).strip("[]")
