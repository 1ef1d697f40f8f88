"""The entry point: the tables of commands, and how errors are reported."""

from __future__ import annotations

import atexit
import contextlib
import errno
import gc
import os
import signal
import sys
import threading
from collections.abc import Sequence
from types import FrameType
from typing import Any, NoReturn

import click

from workbench.cli.declarations import takes
from workbench.cli.errors import EXIT_CODES, INTERRUPTED, report, wants_json
from workbench.cli.lazy_groups import LazyGroup, typed_words
from workbench.cli.options import example
from workbench.cli.output import warnings_as_notes
from workbench.cli.parameters import STORE
from workbench.foundation.errors import ArgumentError, WorkbenchError, missing_part
from workbench.version import VERSION

MADE_FROM_ACTIONS = ""
"""The place of a command that is made from the table of actions."""
COMMANDS = {
    "Run": {
        "init": "workbench.cli.check:init",
        "import": "workbench.cli.imports:imports",
        "check": "workbench.cli.check:check",
        "advise": "workbench.cli.advise:advise",
        "sweep": "workbench.cli.run:sweep",
        "automl": "workbench.cli.automl:automl",
        "submit": "workbench.cli.submit:submit",
        "follow": "workbench.cli.run:follow",
        "set": MADE_FROM_ACTIONS,
        "enqueue": MADE_FROM_ACTIONS,
        "clone": MADE_FROM_ACTIONS,
        "stop": MADE_FROM_ACTIONS,
        "resume": "workbench.cli.run:resume",
        "extend": "workbench.cli.run:extend",
        "replay": "workbench.cli.run:replay",
    },
    "Results": {
        "list": "workbench.cli.run_list:list_runs",
        "show": "workbench.cli.show:show",
        "compare": "workbench.cli.run_list:compare",
        "decide": "workbench.cli.decide:decide",
        "leaderboard": "workbench.cli.automl_answers:leaderboard",
        "explain": "workbench.cli.automl_answers:explain",
        "report": "workbench.cli.export:report",
        "trace": "workbench.cli.export:trace",
        "choose": MADE_FROM_ACTIONS,
        "accept": MADE_FROM_ACTIONS,
        "revert": MADE_FROM_ACTIONS,
        "pin": MADE_FROM_ACTIONS,
        "rename": MADE_FROM_ACTIONS,
        "tag": MADE_FROM_ACTIONS,
        "note": MADE_FROM_ACTIONS,
        "archive": MADE_FROM_ACTIONS,
        "delete": "workbench.cli.run_list:delete",
    },
    "Models": {
        "export": "workbench.cli.export:export",
        "model-card": "workbench.cli.automl_answers:model_card",
        "ensemble": "workbench.cli.export:ensemble",
        "compress": "workbench.cli.run:compress",
        "predict": "workbench.cli.exported_models:predict",
        "measure": "workbench.cli.exported_models:measure",
        "serve": "workbench.cli.serve:serve",
        "drift": "workbench.cli.exported_models:drift",
    },
    "Agents": {
        "mcp": "workbench.cli.mcp:mcp",
        "session": "workbench.cli.mcp:session",
    },
    "Clusters": {
        "what-if": "workbench.cli.entry:what_if",
        "cluster": "workbench.cli.entry:cluster",
        "place": "workbench.cli.place:place",
    },
    "Housekeeping": {
        "doctor": "workbench.cli.doctor:doctor",
        "alerts": "workbench.cli.alerts:alerts",
        "backup": "workbench.cli.run_list:backup",
        "restore": "workbench.cli.run_list:restore",
        "shutdown": "workbench.cli.doctor:shutdown",
    },
}
"""The module and the object of each command, by its heading in the help."""
QUESTIONS = {
    "step-time": "workbench.cli.what_if_tables:step_time",
    "memory": "workbench.cli.what_if_tables:memory",
    "capacity": "workbench.cli.what_if_tables:what_if_capacity",
    "plan": "workbench.cli.what_if_plan:what_if_plan",
    "exchange": "workbench.cli.what_if_tables:what_if_exchange",
    "scale": "workbench.cli.what_if_plan:what_if_scale",
    "batch": "workbench.cli.what_if_batch:what_if_batch",
    "budget": "workbench.cli.what_if_batch:what_if_budget",
    "lr": "workbench.cli.what_if_batch:what_if_lr",
    "fine-tuning": "workbench.cli.what_if_fine_tuning:what_if_fine_tuning",
    "adapter": "workbench.cli.what_if_fine_tuning:what_if_adapter",
    "ladder": "workbench.cli.what_if_fine_tuning:what_if_ladder",
}
"""The commands of `what-if`. They load neither torch nor Ray."""
_CLUSTER_COMMANDS = {
    "plan": "workbench.cli.cluster_plan:plan",
    "clouds": "workbench.cli.cluster_plan:clouds",
    "template": "workbench.cli.cluster_template:template",
    "simulate": "workbench.cli.cluster_simulate:simulate_cluster",
}
"""The commands of `cluster`. They rent nothing, and load neither torch nor Ray."""
_TABLE = {name: place for group in COMMANDS.values() for name, place in group.items()}
_GARBAGE_THRESHOLD = 10_000
"""Python looks for garbage after this many new objects. Its default is 700."""


class _Root(LazyGroup):
    """All commands. Errors are printed while the options of the command are still known."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        from workbench.cli.control import names_of_commands

        return list(dict.fromkeys([*super().list_commands(ctx), *names_of_commands()]))

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if _TABLE.get(cmd_name, MADE_FROM_ACTIONS) != MADE_FROM_ACTIONS:
            return super().get_command(ctx, cmd_name)
        from workbench.cli.control import make_command, names_of_commands

        if cmd_name not in names_of_commands():
            return None
        return make_command(cmd_name)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        names = self.list_commands(ctx)
        groups = {heading: list(group) for heading, group in COMMANDS.items()}
        groups["Run"] += [name for name in names if name not in _TABLE]
        width = max(map(len, names))
        for heading, group in groups.items():
            rows = []
            for name in group:
                command = self.get_command(ctx, name)
                assert command is not None
                rows.append((f"{name:<{width}}", command.get_short_help_str(formatter.width)))
            with formatter.section(heading):
                formatter.write_dl(rows)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Exit codes"):
            formatter.write_dl([(str(code), meaning) for code, meaning in EXIT_CODES.items()])

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except ArgumentError as error:
            error = error.about(self._option_of(ctx, error.field))
            return report(error, as_json=wants_json(typed_words(ctx)))
        except (WorkbenchError, click.UsageError) as error:
            return report(error, as_json=wants_json(typed_words(ctx)))
        except ModuleNotFoundError as error:
            if (part := missing_part(error)) is None:
                raise
            return report(part, as_json=wants_json(typed_words(ctx)))
        except BrokenPipeError:
            # click would end with exit code 1.
            return _end_without_reader()

    def _option_of(self, ctx: click.Context, field: str | None) -> str | None:
        """Return the option for an argument of Python, such as `--trial` for `trial`."""
        words = typed_words(ctx)
        command = self.get_command(ctx, words[0]) if words else None
        if command is not None:
            for parameter in command.params:
                if isinstance(parameter, click.Option) and parameter.name == field:
                    return parameter.opts[-1]
        return field


@click.group(cls=_Root, table=_TABLE, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(VERSION, prog_name="workbench")
@takes(STORE)
@example(
    "workbench check search_spaces/digits.yaml",
    "workbench sweep search_spaces/digits.yaml --trials 20",
    "workbench show last",
)
def group() -> None:
    """Tune PyTorch models: define an experiment, sweep it, inspect the results.

    RUN is a run id, the start of one, a name, or "last" for your newest run, not counting advice.
    """


@click.group(
    "what-if",
    cls=LazyGroup,
    table=QUESTIONS,
    context_settings={"help_option_names": ["-h", "--help"]},
)
@example("workbench what-if lr --optimizer adamw --lr 3e-4 --from-batch 128 --to-batch 1024")
@click.pass_context
def what_if(context: click.Context) -> None:
    """Predict from measurements, without training.

    You can ask about another plan, step times, memory, more workers, the best batch size, the
    learning rate, or the next run.
    """
    context.with_resource(warnings_as_notes())


@click.group(
    "cluster",
    cls=LazyGroup,
    table=_CLUSTER_COMMANDS,
    context_settings={"help_option_names": ["-h", "--help"]},
)
@example(
    "workbench cluster plan mine.yaml --time 6h --money 40USD",
    "workbench cluster template slurm mine.yaml --environment /shared/venv",
)
def cluster() -> None:
    """Compare machines to rent, and write files for their launchers.

    Also simulates a shared cluster.
    """


def main(arguments: Sequence[str] | None = None) -> None:
    """Run one command and end the process with its exit code.

    Args:
        arguments: The words after the program's name. Without them, the words this process was
            started with.
    """
    # A command spends most of its time importing, and looking for garbage takes a seventh of that.
    gc.set_threshold(_GARBAGE_THRESHOLD)
    # Users refer to modules in the working directory, as with `python -m`.
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
        # An interrupted import may raise any error.
        if not interruptions:
            raise
        code = _report_interruption()
    if is_interruptible:
        # From here on, Ctrl-C ends the process at once.
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    sys.exit(code)


def end_process(code: int) -> NoReturn:
    """End this process after its threads and functions at exit, and leave its memory to the system.

    To free what torch and scikit-learn hold takes longer than a second of a processor.

    Args:
        code: The exit code.
    """
    threading._shutdown()  # pyright: ignore[reportAttributeAccessIssue]
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    os._exit(code)


def _report_interruption() -> int:
    click.echo("interrupted", err=True)
    return INTERRUPTED


def run_command(arguments: Sequence[str] | None = None) -> int:
    """Run one command.

    Args:
        arguments: As in `main`.

    Returns:
        Its exit code.
    """
    if arguments is None:
        arguments = sys.argv[1:]
    color = None  # if the output is a terminal
    if os.environ.get("NO_COLOR"):  # https://no-color.org
        color = False
    try:
        code = group.main(arguments, prog_name="workbench", standalone_mode=False, color=color)
        sys.stdout.flush()
        return int(code or 0)
    except click.exceptions.Exit as error:
        return error.exit_code
    except click.UsageError as error:
        return report(error, as_json=wants_json(arguments))
    except (click.Abort, KeyboardInterrupt):
        return _report_interruption()
    except BrokenPipeError:
        return _end_without_reader()
    except OSError as error:
        if not _is_full_output(error):
            raise
        return _end_of_full_output(error)


def _end_without_reader() -> int:
    """Return the exit code of a command whose reader has closed the pipe, such as `head`."""
    _drop_output()
    return 0


def _is_full_output(error: OSError) -> bool:
    """Return whether the output goes to a full disk. Errors of other files have their name."""
    return error.filename is None and error.errno in (errno.ENOSPC, errno.EDQUOT)


def _end_of_full_output(error: OSError) -> int:
    """Report that the output could not be written, and return the exit code."""
    _drop_output()
    return report(
        WorkbenchError(
            f"the output cannot be written: {error.strerror}",
            next_step="Free space where it goes, or redirect it to another place.",
        ),
        as_json=False,
    )


def _drop_output() -> None:
    """Write nothing more. Without this, Python complains again when it closes stdout."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
