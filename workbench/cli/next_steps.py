"""The commands that a user may want next for a run, each with its purpose."""

from __future__ import annotations

import dataclasses

from workbench.cli.options import write_for_shell
from workbench.experiment.actions import suggest
from workbench.foundation.errors import Suggestion
from workbench.runs.descriptions import next_steps
from workbench.store.history import History


def next_commands(
    run_id: str, state: str, history: History, *, has_report: bool = False
) -> list[str]:
    """Return possible next commands, each with its purpose."""
    offers = next_steps(run_id, state, history)
    if history.best() is not None and not has_report:
        offers.append(suggest("report", run_id, lead="write the report"))
        if not history.is_imported:
            offers.append(suggest("export", run_id, lead="export the best", to="best"))
    width = max((len(offer.lead) for offer in offers), default=0)
    return [f"{offer.lead:<{width}}  {_command(offer)}" for offer in offers]


def _command(offer: Suggestion) -> str:
    return write_for_shell(dataclasses.replace(offer, lead=""))
