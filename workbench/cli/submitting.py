"""The command that sends a run to a cluster: submit."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from workbench.cli.elsewhere import come_back, elsewhere, say_unknown, tell, waiting_for_the_cluster
from workbench.cli.following import INTERRUPTED
from workbench.cli.options import (
    detach_option,
    example,
    json_option,
    read_settings,
    store_option,
    token_file_option,
)
from workbench.cli.printing import print_note

if TYPE_CHECKING:
    from workbench.run.submitting import Sent


@click.command()
@click.argument("file")
@click.option("--address", metavar="URL", help="Where Ray serves its dashboard, such as http://HOST:8265. "
              "[env: RAY_API_SERVER_ADDRESS]")  # fmt: skip
@token_file_option
@click.option("--set", "assignments", multiple=True, metavar="NAME=VALUE",
              help="Change a setting by its dotted path; the value is YAML.")  # fmt: skip
@click.option("--trials", type=int, help="Configurations to try: budget.trials.")
@click.option("--time", "time_limit", metavar="DURATION", help="Wall time, such as 10m: budget.time.")
@click.option("--name", help="What the run is called.")
@click.option("--run-id", help="The name of the run there; by default made of the experiment and the code.")
@click.option("--warm-start", multiple=True, metavar="RUN", help="Learn from an earlier run there.")
@detach_option
@store_option
@json_option
@example(
    "workbench submit digits.yaml --address http://head:8265",
    "workbench submit digits.yaml --address http://head:8265 --token-file token --detach",
    "workbench stop RUN --address http://head:8265",
)
def submit(
    file: str, address: str | None, token_file: Path | None, assignments: tuple[str, ...], trials: int | None,
    time_limit: str | None, name: str | None, run_id: str | None, warm_start: tuple[str, ...], detach: bool,
    as_json: bool,
) -> int:  # fmt: skip
    """Send a run to a Ray cluster that this machine is no part of, and follow it.

    The experiment goes there with this folder: its code, and the data that the experiment names; what git
    ignores stays here. The run is kept in the store of the cluster, or in the database server that --store or
    WORKBENCH_STORE names. It belongs to the cluster: Ctrl-C leaves it alive, and the same command attaches to
    it again, or goes on with it where it was stopped. A changed experiment or changed code is another run.

    stop, resume, show, follow, export and the other commands about runs take the same --address.

    The exit code is that of the run, as with sweep.
    """
    from workbench.run import read_experiment
    from workbench.run.submitting import note_of_settings, send
    from workbench.workers.jobs import UnreachableError

    given = {"name": name, "budget.trials": trials, "budget.time": time_limit}
    settings = read_settings(assignments) | {key: value for key, value in given.items() if value is not None}
    experiment = read_experiment(file, settings)
    there = elsewhere(address, token_file)
    words = [word for item in warm_start for word in ("--warm-start", item)]
    words += [*(["--detach"] if detach else []), *(["--json"] if as_json else [])]
    try:
        with waiting_for_the_cluster(f"sending {experiment.name} to {there.address}"):
            sent = send(there, experiment, run_id=run_id, words=words)
    except KeyboardInterrupt:
        say_unknown(there)
        return INTERRUPTED
    if (note := note_of_settings(there)) is not None:
        print_note(note)
    try:
        _say(sent, there.address)
        answer = there.answer(sent.submission_id, tell)
    except KeyboardInterrupt:
        come_back(sent.run_id, there)
        return INTERRUPTED
    except UnreachableError:
        come_back(sent.run_id, there)
        raise
    if answer.exit_code == INTERRUPTED:
        come_back(sent.run_id, there)
    return answer.exit_code


def _say(sent: Sent, address: str) -> None:
    from workbench.advisor.quantities import format_bytes

    archive = sent.parcel.archive
    how = "was submitted before: looking on" if sent.attached else (
        f"submitted with {archive.num_files} files, {format_bytes(len(archive.content))}"
    )  # fmt: skip
    click.echo(f"{sent.run_id} at {address} {how}", err=True)
