"""The command about alerts: it lists your sinks and rules, and tests a sink."""

from __future__ import annotations

import time
from typing import Any

import click

from workbench.cli.declarations import takes
from workbench.cli.errors import print_error
from workbench.cli.options import command_line, example, open_existing_store
from workbench.cli.output import echo, print_json
from workbench.cli.parameters import LOST, STORED, TRY
from workbench.cli.remote import remote_capable
from workbench.foundation.errors import WorkbenchError


@click.command()
@remote_capable()
@takes(TRY, LOST, STORED)
@example(
    "workbench alerts",
    "workbench alerts --try team",
    "workbench alerts --lost",
    "workbench alerts --address http://head:8265",
)
def alerts(sink: str | None, lost: bool, as_json: bool) -> int:
    """Show the sinks and rules of your settings, or test a sink.

    Exits with 1 if a sink cannot be used.

    The settings apply to the models that this machine serves, and to the runs whose driver runs
    here. Use --address to see the settings of a cluster.
    """
    from workbench.store.alerts import JUPYTER, read_settings, settings_path

    if lost:
        return _notify_of_lost(as_json)
    settings, path = read_settings(), settings_path()
    if sink is not None:
        return _try(sink, as_json)
    rules = [rule.model_dump(mode="json") for rule in settings.alerts]
    problems = settings.problems()
    if as_json:
        print_json(
            {
                "settings_file": str(path),
                "exists": path.exists(),
                "rules": rules,
                "problems": problems,
                "sinks": (
                    {name: configured.kind for name, configured in settings.sinks.items()}
                    | {JUPYTER: JUPYTER}
                ),
            }
        )
        return int(bool(problems))
    if path.exists():
        click.echo(f"settings  {path}")
    else:
        click.echo(f"settings  {path} (does not exist yet)")
    for name, configured in settings.sinks.items():
        attempt = command_line("alerts", **{"try": name})
        click.echo(f"sink      {name} ({configured.kind}). To test it: {attempt}")
    click.echo(f"sink      {JUPYTER}: notifications in JupyterLab, for runs it follows")
    for rule in rules:
        click.echo(f"rule      {_describe_rule(rule)}")
    for name, problem in problems.items():
        print_error(WorkbenchError(f"cannot be used: {problem}", field=f"sinks.{name}"))
    return int(bool(problems))


def _describe_rule(rule: dict[str, Any]) -> str:
    """Return an alert rule in words: when it fires, with which options, and for what."""
    options = ", ".join(f"{name}: {value}" for name, value in rule.items() if name != "on")
    condition = rule["on"]
    if options:
        condition += f" ({options})"
    if rule["on"] == "drift":
        return f"{condition}, for every model served with --keep"
    return f"{condition}, for every run"


def _notify_of_lost(as_json: bool) -> int:
    from workbench.store.alerts.delivery import notify_of_lost

    with open_existing_store() as store:
        notified = notify_of_lost(store)
    answers = [(run_id, answer) for run_id, sent in notified.items() for answer in sent]
    if as_json:
        rows = [
            {"run_id": run_id, "sink": answer.sink, "sent": answer.sent, "message": answer.message}
            for run_id, answer in answers
        ]
        print_json({"run_ids": list(notified), "notified": rows})
    else:
        for run_id in notified:
            click.echo(f"{run_id} is lost")
        for run_id, answer in answers:
            if answer.sent:
                echo(f"{run_id}: {answer.sink} was notified")
            else:
                echo(f"{run_id}: {answer.sink} could not be notified: {answer.message}")
    return int(any(not answer.sent for _, answer in answers))


def _try(name: str, as_json: bool) -> int:
    from workbench.foundation.errors import ArgumentError
    from workbench.store.alerts import JUPYTER, read_settings, settings_path
    from workbench.store.alerts.sinks import SinkError, send

    sinks = read_settings().sinks
    if name not in sinks:
        problem = f"there is no sink {name}"
        next_step: str | None = f"Add it to {settings_path()}."
        if name == JUPYTER:
            problem = "JupyterLab needs no test: it shows the alerts of the run that it follows"
            next_step = None
        elif not sinks:
            problem = f"no sinks are configured in {settings_path()}"
            next_step = "Add one to that file."
        raise ArgumentError(
            problem, field="--try", allowed=list(sinks) or None, next_step=next_step
        )
    alert = {
        "text": "workbench: this is a test of the sink",
        "run_id": None,
        "name": None,
        "alert": None,
        "on": "test of a sink",
        "level": "info",
        "message": "this is a test of the sink",
        "trial": None,
        "node": None,
        "action": "notify",
        "time_unix_s": time.time(),
        "look": "workbench alerts",
    }
    problem = None
    try:
        send(sinks[name], alert)
    except SinkError as error:
        problem = error.problem
    if as_json:
        print_json({"sink": name, "sent": problem is None, "message": problem})
    elif problem is None:
        click.echo(f"{name} received the message")
    else:
        click.echo(f"{name} could not be reached: {problem}")
    return int(problem is not None)
