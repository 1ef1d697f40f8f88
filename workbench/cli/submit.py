"""The command that sends a run to a remote cluster: submit."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from workbench.cli.declarations import takes
from workbench.cli.exit_codes import INTERRUPTED
from workbench.cli.options import described
from workbench.cli.output import echo, print_note, waiting
from workbench.cli.parameters import ADDRESS, DETACH, EXPERIMENT, STORED, TOKEN_FILE, options_of
from workbench.cli.remote import (
    print_how_to_return,
    print_line,
    print_unknown_outcome,
    remote_cluster,
)
from workbench.experiment.actions import ACTIONS, experiment_settings

if TYPE_CHECKING:
    from workbench.cluster.remote.job_package import JobPackage
    from workbench.runs.submission import Submission


@click.command()
@takes(EXPERIMENT, ADDRESS, TOKEN_FILE, options_of("submit"), DETACH, STORED)
@described(
    ACTIONS["submit"],
    """The experiment is sent with the files of this folder: its code, and the data that the
    experiment names. Files that git ignores, known secrets such as .env, .aws and
    private keys, and links are not sent; what is sent is listed. The run is kept in the
    store of the cluster, or in the database server that --store or WORKBENCH_STORE
    names. Ctrl-C leaves the run alive; repeating the command attaches to the run, or
    continues it if it was stopped. A changed experiment or changed code makes a new
    run.""",
    "stop, resume, show, follow, export and the other commands about runs take the same --address.",
    "The exit code is that of the run, as with sweep.",
)
def submit(
    *,
    file: str,
    address: str | None,
    token_file: Path | None,
    run_id: str | None,
    warm_start: tuple[str, ...],
    detach: bool,
    as_json: bool,
    **given: Any,
) -> int:
    """Submit a run to a remote cluster; the help is that of the action."""
    from workbench.cluster.remote.jobs import UnreachableError
    from workbench.runs import read_experiment
    from workbench.runs.submission import note_of_settings, send

    experiment = read_experiment(file, experiment_settings(ACTIONS["submit"].arguments, given))
    cluster = remote_cluster(address, token_file)
    words = [word for item in warm_start for word in ("--warm-start", item)]
    words += [*(["--detach"] if detach else []), *(["--json"] if as_json else [])]
    try:
        with waiting(f"sending {experiment.name} to {cluster.address}"):
            sent = send(cluster, experiment, run_id=run_id, words=words, announce=_print_package)
    except KeyboardInterrupt:
        print_unknown_outcome(cluster)
        return INTERRUPTED
    if (note := note_of_settings(cluster)) is not None:
        print_note(note)
    try:
        _print_sent(sent, cluster.address)
        answer = cluster.answer(sent.submission_id, print_line)
    except KeyboardInterrupt:
        print_how_to_return(sent.run_id, cluster)
        return INTERRUPTED
    except UnreachableError:
        print_how_to_return(sent.run_id, cluster)
        raise
    if answer.exit_code == INTERRUPTED:
        print_how_to_return(sent.run_id, cluster)
    return answer.exit_code


def _print_package(package: JobPackage) -> None:
    for line in package.describe():
        echo(line, err=True)


def _print_sent(sent: Submission, address: str) -> None:
    from workbench.foundation.formatting import format_bytes

    archive = sent.package.archive
    how = f"submitted with {archive.num_files} files, {format_bytes(len(archive.content))}"
    if sent.attached:
        how = "was submitted before: following it"
    click.echo(f"{sent.run_id} at {address} {how}", err=True)
