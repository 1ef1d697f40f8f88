"""Commands on a remote cluster.

With `--address http://...` a command runs there and prints here.
"""

from __future__ import annotations

import dataclasses
import functools
import shlex
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import click

from workbench.cli.declarations import takes
from workbench.cli.errors import INTERRUPTED
from workbench.cli.lazy_groups import typed_words
from workbench.cli.output import print_note
from workbench.cli.parameters import ADDRESS, TOKEN_FILE, given_store
from workbench.foundation.errors import ArgumentError

if TYPE_CHECKING:
    from workbench.cluster.remote.relayed_commands import Answer, RemoteCluster, Stream

_OURS = ("--address", "--token-file", "--store")


class _Command(Protocol):
    __name__: str
    __doc__: str | None

    def __call__(self, *arguments: Any, **options: Any) -> Any: ...


def remote_capable(
    *, brings: Mapping[str, str | None] | None = None, attaches: bool = False
) -> Callable[[_Command], Callable[..., Any]]:
    """Let a command run on a cluster that takes jobs.

    Must be the outermost of its decorators, except `command`.

    Args:
        brings: The options for outputs, which are transferred here. Each has the file name that is
            used without the option, where `{run_id}` is replaced. None means no output.
        attaches: Whether the command also takes the address of a cluster to attach to.
    """

    def decorate(command: _Command) -> Callable[..., Any]:
        @functools.wraps(command)
        def carried_out(
            *arguments: Any, address: str | None, token_file: Path | None, **options: Any
        ) -> Any:
            from workbench.experiment.actions import is_jobs_address

            if address is None:
                if token_file is not None:
                    raise click.UsageError(
                        "--token-file needs --address, the cluster that the token is for."
                    )
            elif is_jobs_address(address) or not attaches:
                return _run_on_cluster(address, token_file, brings or {}, options)
            if attaches:
                options["address"] = address
            return command(*arguments, **options)

        return takes(ADDRESS, TOKEN_FILE)(carried_out)

    return decorate


def remote_cluster(address: str | None, token_file: Path | None) -> RemoteCluster:
    """Return the cluster of `--address`, and print notes about using it."""
    from workbench.cluster.remote.relayed_commands import RemoteCluster

    cluster = RemoteCluster(address, token_file=token_file, store=given_store())
    for note in cluster.notes:
        print_note(note)
    return cluster


def print_line(stream: Stream, line: str) -> None:
    """Print a line of a remote command as if the command ran here."""
    if stream in ("stdout", "stderr"):
        click.echo(line, err=stream == "stderr")


def print_how_to_return(run_id: str, cluster: RemoteCluster) -> None:
    """Print how to follow or stop a remote run that is no longer followed."""
    click.echo(
        "\nThe run continues on the cluster. To follow it: "
        f"{shlex.join(['workbench', 'follow', run_id, *cluster.words])}\n"
        f"To stop it: {shlex.join(['workbench', 'stop', run_id, *cluster.words])}",
        err=True,
    )


def print_unknown_outcome(cluster: RemoteCluster) -> None:
    """Print how to find out whether the cluster has carried a command out."""
    command = shlex.join(["workbench", "list", *cluster.words])
    click.echo(
        f"\nStopped waiting. The cluster may still carry the command out. To check: {command}",
        err=True,
    )


def _run_on_cluster(
    address: str | None,
    token_file: Path | None,
    brings: Mapping[str, str | None],
    options: dict[str, Any],
) -> int:
    from workbench.runs.submission import check_target, save_result

    words = without_options(typed_words(), _OURS)
    wanted = {
        name: value
        for name, usual in brings.items()
        if (value := _option(words, name) or (usual and usual.format(**options))) is not None
    }
    place = None
    if "--to" in wanted:
        place = Path(wanted["--to"])
        if words[0] == "report":
            _check_report(place)
        check_target(place, force=bool(options.get("force")))
    cluster = remote_cluster(address, token_file)
    cluster.jobs.check()
    try:
        answer = _run(cluster, words, wanted)
    except KeyboardInterrupt:
        if words[0] == "follow":
            print_how_to_return(options["run_id"], cluster)
        else:
            print_unknown_outcome(cluster)
        return INTERRUPTED
    if answer.exit_code == 0 and wanted:
        save_result(answer, place, wanted.get("--optuna"))
    if wanted:
        click.echo(answer.stdout, nl=False)
    return answer.exit_code


def _check_report(place: Path) -> None:
    from workbench.runs.run_figures import check_folder_of

    if place.is_dir():
        raise ArgumentError(
            f"{place} is a folder", field="--to", next_step="Give a file, such as report.html."
        )
    check_folder_of(place)


def _run(cluster: RemoteCluster, words: Sequence[str], wanted: Mapping[str, str]) -> Answer:
    """Run a command, and replace the paths of its outputs by their paths on this machine."""
    from workbench.cluster.remote.relayed_commands import PLACE, STUDY_PLACE
    from workbench.store.database.urls import hide_password

    if not wanted:
        return cluster.run(words, on_line=print_line)
    places = {"--to": PLACE, "--optuna": f"sqlite:///{STUDY_PLACE}"}
    given = [word for name in wanted for word in (name, places[name])]
    shown = {places["--optuna"]: hide_password(wanted.get("--optuna", ""))}

    def on_line(stream: Stream, line: str) -> None:
        if stream == "place":
            shown[line] = str(Path(wanted.get("--to", "")).absolute())
        elif stream == "stderr":
            print_line(stream, line)

    answer = cluster.run(
        [words[0], *given, *without_options(words[1:], list(wanted))], on_line=on_line, brings=True
    )
    stdout = answer.stdout
    for place, here in shown.items():
        stdout = stdout.replace(place, here)
    return dataclasses.replace(answer, stdout=stdout)


def without_options(words: Sequence[str], names: Sequence[str]) -> list[str]:
    """Return the words of a command without some options and their values."""
    remaining: list[str] = []
    rest = iter(words)
    for word in rest:
        if word == "--":
            return [*remaining, word, *rest]
        if word in names:
            next(rest, None)
        elif word.partition("=")[0] not in names:
            remaining.append(word)
    return remaining


def _option(words: Sequence[str], name: str) -> str | None:
    """Return the value of an option, or its last value if it is repeated."""
    value = None
    for index, word in enumerate(words):
        if word == name and index + 1 < len(words):
            value = words[index + 1]
        elif word.startswith(f"{name}="):
            value = word.partition("=")[2]
    return value
