"""The way in: the table of commands, and what becomes of errors.

Exit codes: 0 done; 1 anything else that went wrong; 2 bad experiment, data or usage; 3 cannot be scheduled;
4 ended with no trial complete; 5 some trials failed; 130 interrupted.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Sequence
from types import FrameType
from typing import Any

import click

from workbench import __version__
from workbench.cli.lazy import LazyGroup
from workbench.cli.options import example, store_option
from workbench.cli.printing import print_error
from workbench.errors import DataError, ExperimentError, ResourcesError, WorkbenchError

COMMANDS = {
    "check": "workbench.cli.reading:check",
    "automl": "workbench.cli.automatic:automl",
    "advise": "workbench.cli.advising:advise",
    "sweep": "workbench.cli.running:sweep",
    "submit": "workbench.cli.submitting:submit",
    "list": "workbench.cli.reading:list_runs",
    "show": "workbench.cli.reading:show",
    "follow": "workbench.cli.running:follow",
    "stop": "workbench.cli.asking:stop",
    "enqueue": "workbench.cli.asking:enqueue",
    "set": "workbench.cli.asking:set_limits",
    "extend": "workbench.cli.asking:extend",
    "resume": "workbench.cli.running:resume",
    "replay": "workbench.cli.running:replay",
    "report": "workbench.cli.taking:report",
    "export": "workbench.cli.taking:export",
    "import": "workbench.cli.taking:import_sweep",
    "what-if": "workbench.cli.what_if:what_if",
    "cluster": "workbench.cli.cluster:cluster",
    "alerts": "workbench.cli.alerting:alerts",
    "doctor": "workbench.cli.machine:doctor",
    "shutdown": "workbench.cli.machine:shutdown",
}
INTERRUPTED = 130


class _Root(LazyGroup):
    """Says what went wrong while it is still known what the command was given."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except WorkbenchError as error:
            print_error(str(error))
            return exit_code_of(error)


@click.group(cls=_Root, table=COMMANDS, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="workbench")
@store_option
@example(
    "workbench check search_spaces/digits.yaml",
    "workbench sweep search_spaces/digits.yaml --trials 20",
    "workbench show last",
)
def group() -> None:
    """Tune PyTorch models: define an experiment, sweep it, see what came out.

    RUN is a run id, a beginning that only one run has, or "last".
    """


def main(arguments: Sequence[str] | None = None) -> None:
    """Run one command and end the process with its exit code.

    Args:
        arguments: What follows the name of the program; None for what this process was started with.
    """
    # People name their own modules as `python -m` would find them: from where they are.
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
        # What is interrupted while it is imported may say that it is broken.
        if not interruptions:
            raise
        code = _say_interrupted()
    if is_interruptible:
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # what ends needs not be interrupted in words
    sys.exit(code)


def _say_interrupted() -> int:
    click.echo("interrupted", err=True)
    return INTERRUPTED


def run_command(arguments: Sequence[str] | None = None) -> int:
    """Run one command; arguments as in `main`.

    Returns:
        Its exit code.
    """
    try:
        code = group.main(arguments, prog_name="workbench", standalone_mode=False)
        sys.stdout.flush()
        return code if isinstance(code, int) else 0
    except click.exceptions.Exit as error:
        return error.exit_code
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except (click.Abort, KeyboardInterrupt):
        return _say_interrupted()
    except BrokenPipeError:
        # Whoever read has seen enough; without this Python complains once more when it closes stdout.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0


def exit_code_of(error: WorkbenchError) -> int:
    """Return the exit code that stands for an error."""
    if isinstance(error, ExperimentError | DataError):
        return 2
    return 3 if isinstance(error, ResourcesError) else 1
