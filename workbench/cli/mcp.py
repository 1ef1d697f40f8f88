"""The commands for agents: the MCP server, and the sessions of their proposals."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import click

from workbench.cli.declarations import takes
from workbench.cli.options import example
from workbench.cli.output import echo, print_note
from workbench.cli.parameters import (
    AGENT,
    ALLOW,
    EXPERIMENT,
    LAUNCHER,
    MONEY,
    OPEN_TEST_DATA,
    PORT,
    PROTECT,
    SESSION,
    SESSION_NAME,
    STORE,
    TEST_DATA,
    TIME,
    TOKEN_FILE,
    TRIALS,
    given_store,
)
from workbench.foundation.errors import ArgumentError

if TYPE_CHECKING:
    from workbench.views.agents.permissions import Permission


@click.command("mcp")
@takes(
    EXPERIMENT(is_required=False),
    ALLOW(),
    TRIALS(),
    TIME(),
    MONEY(),
    AGENT(default="agent"),
    SESSION(),
    PROTECT(is_repeatable=True),
    TEST_DATA(is_repeatable=True),
    PORT(),
    TOKEN_FILE(),
    LAUNCHER(default="ray"),
    STORE(),
)
@example(
    "workbench mcp",
    "workbench mcp train.yaml --allow propose,control --trials 50",
    "workbench mcp train.yaml --allow propose,code --session night --protect evaluate.py",
)
def mcp(
    *,
    file: str | None,
    allow: str | None,
    trials: Any,
    time: Any,
    money: Any,
    agent: str,
    session: str | None,
    protect: tuple[Path, ...],
    test_data: tuple[Path, ...],
    port: int | None,
    token_file: Path | None,
    launcher: str,
) -> None:
    """Serve runs to agents by the Model Context Protocol.

    Without --allow, an agent only reads. With propose it enqueues, clones and decides. With control
    it starts FILE, and stops and extends runs. With code it trains changes of your code: give FILE
    and a --session.

    --trials, --time and --money limit what the agent may spend in total. With --session, a proposal
    cannot change FILE and its budget, the evaluation files of --protect, or the --test-data. This
    guards against mistakes, not against malice.

    The server uses standard input and output, as agents expect. With --port it serves HTTP on this
    machine, to clients that send the token in --token-file.
    """
    from workbench.experiment.budget_units import parse_money
    from workbench.foundation.formatting import parse_duration_s
    from workbench.runs.guarded_sessions import GuardedSession
    from workbench.runs.run import open_store
    from workbench.views.agents.acting import ActingTools, read_experiments
    from workbench.views.agents.permissions import Gate, Limits, check_agent
    from workbench.views.agents.reading import ReadingTools
    from workbench.views.agents.server import make_server, serve_http, serve_stdio

    check_agent(agent)
    experiments = read_experiments(() if file is None else (file,))
    guarded = None
    if session is not None:
        if not experiments:
            raise click.UsageError("--session needs FILE, the experiment of its proposals")
        guarded = GuardedSession(session, store=given_store())
        guarded.begin(next(iter(experiments.values())), protected=protect, test_data=test_data)
    elif protect or test_data:
        raise click.UsageError("--protect and --test-data need --session")
    limits = Limits(
        trials=None if trials is None else int(trials),
        time_s=None if time is None else parse_duration_s(time),
        money=None if money is None else parse_money(money, None),
    )
    store = open_store(given_store())
    acting = ActingTools(
        store,
        Gate(_permissions(allow), limits),
        agent=agent,
        experiments=experiments,
        session=guarded,
        launcher=launcher,
    )
    server = make_server(ReadingTools(store).tools(), acting.tools())
    if port is None:
        if token_file is not None:
            raise click.UsageError("--token-file needs --port")
        serve_stdio(server)
        return
    serve_http(server, port or _free_port(), token_file or store.folder("mcp").parent / "mcp-token")


@click.command("session")
@takes(SESSION_NAME(), OPEN_TEST_DATA(), STORE())
@example("workbench session night", "workbench session night --open-test-data")
def session(*, name: str, open_test_data: bool) -> None:
    """Show what a session protects, and what was proposed in it.

    --open-test-data prints the paths of its test data. It works once.
    """
    from workbench.runs.guarded_sessions import GuardedSession

    guarded = GuardedSession(name, store=given_store())
    if not open_test_data:
        for line in guarded.describe():
            echo(line)
        return
    paths = guarded.open_test_data()
    print_note("the test data is open: measure the accepted proposal with it once")
    for path in paths:
        echo(str(path))


def _permissions(allow: str | None) -> list[Permission]:
    from workbench.views.agents.permissions import PERMISSIONS

    names = [name.strip() for name in (allow or "").split(",") if name.strip()]
    for name in names:
        if name not in PERMISSIONS:
            raise ArgumentError(
                f"{name!r} is not a permission", field="allow", allowed=", ".join(PERMISSIONS)
            )
    return cast("list[Permission]", names)


def _free_port() -> int:
    with socket.socket() as opened:
        opened.bind(("127.0.0.1", 0))
        return opened.getsockname()[1]
