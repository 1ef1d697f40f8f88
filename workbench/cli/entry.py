"""The entry point: the table of commands, and how errors are reported."""

from __future__ import annotations

import gc
import os
import signal
import sys
from collections.abc import Sequence
from types import FrameType
from typing import Any

import click

from workbench.cli.declarations import takes
from workbench.cli.errors import report, wants_json
from workbench.cli.exit_codes import INTERRUPTED, MEANINGS
from workbench.cli.lazy_groups import LazyGroup, typed_words
from workbench.cli.options import example
from workbench.cli.parameters import STORE
from workbench.foundation.errors import WorkbenchError, missing_part
from workbench.version import VERSION

COMMANDS = {
    "check": "workbench.cli.check:check",
    "automl": "workbench.cli.automl:automl",
    "advise": "workbench.cli.advise:advise",
    "sweep": "workbench.cli.run:sweep",
    "submit": "workbench.cli.submit:submit",
    "list": "workbench.cli.run_list:list_runs",
    "show": "workbench.cli.show:show",
    "compare": "workbench.cli.run_list:compare",
    "follow": "workbench.cli.run:follow",
    "delete": "workbench.cli.run_list:delete",
    "resume": "workbench.cli.run:resume",
    "extend": "workbench.cli.run:extend",
    "replay": "workbench.cli.run:replay",
    "report": "workbench.cli.export:report",
    "trace": "workbench.cli.export:trace",
    "export": "workbench.cli.export:export",
    "predict": "workbench.cli.predict:predict",
    "measure": "workbench.cli.measure:measure",
    "compress": "workbench.cli.compress:compress",
    "ensemble": "workbench.cli.ensemble:ensemble",
    "serve": "workbench.cli.serve:serve",
    "place": "workbench.cli.place:place",
    "drift": "workbench.cli.drift:drift",
    "import": "workbench.cli.export:import_sweep",
    "init": "workbench.cli.init:init",
    "what-if": "workbench.cli.what_if:what_if",
    "cluster": "workbench.cli.cluster:cluster",
    "alerts": "workbench.cli.alerts:alerts",
    "backup": "workbench.cli.backup:backup",
    "restore": "workbench.cli.backup:restore",
    "doctor": "workbench.cli.doctor:doctor",
    "shutdown": "workbench.cli.doctor:shutdown",
}
_GARBAGE_THRESHOLD = 10_000
"""So many objects more than before let Python look for garbage; its own is 700."""
_BEFORE_CONTROL = "follow"
"""The commands that follow from the table of actions are listed after this one."""


class _Root(LazyGroup):
    """All commands; errors are printed while the options of the command are still known."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        from workbench.cli.control import names_of_commands

        names = super().list_commands(ctx)
        at = names.index(_BEFORE_CONTROL) + 1
        return [*names[:at], *names_of_commands(), *names[at:]]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if (found := super().get_command(ctx, cmd_name)) is not None:
            return found
        from workbench.cli.control import make_command, names_of_commands

        return make_command(cmd_name) if cmd_name in names_of_commands() else None

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Exit codes"):
            formatter.write_dl([(str(code), meaning) for code, meaning in MEANINGS.items()])

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except (WorkbenchError, click.UsageError) as error:
            return report(error, as_json=wants_json(typed_words(ctx)))
        except ModuleNotFoundError as error:
            if (part := missing_part(error)) is None:
                raise
            return report(part, as_json=wants_json(typed_words(ctx)))


@click.group(cls=_Root, table=COMMANDS, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(VERSION, prog_name="workbench")
@takes(STORE)
@example(
    "workbench check search_spaces/digits.yaml",
    "workbench sweep search_spaces/digits.yaml --trials 20",
    "workbench show last",
)
def group() -> None:
    """Tune PyTorch models: define an experiment, sweep it, inspect the results.

    RUN is a run id, a prefix or a name that only one run has, or "last", the newest that is not
    advice.
    """


def main(arguments: Sequence[str] | None = None) -> None:
    """Run one command and end the process with its exit code.

    Args:
        arguments: The words after the program's name; None for those this process was started with.
    """
    # Most of what a command does is to import; looking for garbage meanwhile takes a seventh of the
    # time.
    gc.set_threshold(_GARBAGE_THRESHOLD)
    # Users name their own modules as `python -m` finds them: from the working directory.
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    interruptions: list[int] = []

    def interrupt(number: int, frame: FrameType | None) -> None:
        interruptions.append(number)
        signal.default_int_handler(number, frame)

    is_interruptible = signal.getsignal(signal.SIGINT) is not signal.SIG_IGN
    if is_interruptible:
        signal.signal(signal.SIGINT, interrupt)
    try:
        code = run_command(arguments)
    except (Exception, KeyboardInterrupt):
        # A package that is interrupted while it is imported may report that it is broken.
        if not interruptions:
            raise
        code = _report_interruption()
    if is_interruptible:
        signal.signal(
            signal.SIGINT, signal.SIG_DFL
        )  # from here on, an interruption just ends the process
    sys.exit(code)


def _report_interruption() -> int:
    click.echo("interrupted", err=True)
    return INTERRUPTED


def run_command(arguments: Sequence[str] | None = None) -> int:
    """Run one command; arguments as in `main`.

    Returns:
        Its exit code.
    """
    try:
        # https://no-color.org; None leaves the choice to whether a terminal reads.
        color = False if os.environ.get("NO_COLOR") else None
        code = group.main(arguments, prog_name="workbench", standalone_mode=False, color=color)
        sys.stdout.flush()
        return code if isinstance(code, int) else 0
    except click.exceptions.Exit as error:
        return error.exit_code
    except click.UsageError as error:
        return report(error, as_json=wants_json(sys.argv[1:] if arguments is None else arguments))
    except (click.Abort, KeyboardInterrupt):
        return _report_interruption()
    except BrokenPipeError:
        # The reader has closed the pipe; without this, Python complains again when it closes
        # stdout.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
