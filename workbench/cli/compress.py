"""The command that makes a trained model smaller and faster: compress."""

from __future__ import annotations

from typing import Any

import click

from workbench.cli.declarations import takes
from workbench.cli.following import detached, waiting_for_the_driver
from workbench.cli.options import attach, described, named_trial
from workbench.cli.parameters import LAUNCH, RUN, options_of
from workbench.cli.remote import remote_capable
from workbench.cli.run import follow_run
from workbench.experiment.actions import ACTIONS


@click.command()
@remote_capable(attaches=True)
@takes(RUN, options_of("compress"), LAUNCH)
@described(
    ACTIONS["compress"],
    """The first trials use no compression, dynamic int8 and static int8. The next ones search
    with pruning, low rank and fine-tuning. Latencies are relative to the unchanged model in
    ONNX Runtime, on this machine or on the one of --device. Workbench never recommends a
    model that is slower, or whose metric drops by more than 0.5 %.""",
)
def compress(
    run_id: str,
    detach: bool,
    launcher: str,
    address: str | None,
    as_json: bool,
    **given: Any,
) -> int:
    """Compress a trial."""
    run_id, given["trial"] = named_trial(run_id, given["trial"])
    original = attach(run_id)
    with waiting_for_the_driver(original):
        wanted = {name: value for name, value in given.items() if value is not None}
        run = original.compress(**wanted, launcher=launcher, address=address)
    if detach:
        return detached(run, as_json=as_json)
    return follow_run(run, as_json=as_json, with_report=True)
