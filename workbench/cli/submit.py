"""The command that sends a run to a remote cluster: submit."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from workbench.cli.declarations import takes
from workbench.cli.errors import INTERRUPTED
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
    """The experiment is sent with the files of this folder: your code, and the data that the
    experiment uses. Files that git ignores, links, and known secrets such as .env, .aws
    and private keys are not sent. You see a list of what is sent.""",
    """The run is stored on the cluster, or in the database server of --store or
    WORKBENCH_STORE. Ctrl-C does not stop the run. If you repeat the command, you follow the
    same run again, or continue it if it was stopped. If the experiment or the code has
    changed, a new run starts.""",
    "stop, resume, show, follow, export and the other commands about runs take the same --address.",
    "The exit code is the exit code of the run, as with sweep.",
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
    """Submit a run to a remote cluster."""
    from workbench.cluster.remote.jobs import UnreachableError
    from workbench.runs import read_experiment
    from workbench.runs.submission import note_of_settings, send

    experiment = read_experiment(file, experiment_settings(ACTIONS["submit"].arguments, given))
    cluster = remote_cluster(address, token_file)
    words = [word for item in warm_start for word in ("--warm-start", item)]
    flags = {"--detach": detach, "--json": as_json}
    words += [flag for flag, is_given in flags.items() if is_given]
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
    from workbench.foundation.formatting import format_bytes, format_count

    archive = sent.package.archive
    size = f"{format_count(archive.num_files, 'file')}, {format_bytes(len(archive.content))}"
    text = f"submitted {sent.run_id} to {address}: {size}"
    if sent.attached:
        text = f"{sent.run_id} was already submitted to {address}. Following it"
    click.echo(text, err=True)
