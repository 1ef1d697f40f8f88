"""The command that writes a first experiment file for a script."""

from __future__ import annotations

import shlex
from pathlib import Path

import click

from workbench.cli.declarations import takes
from workbench.cli.options import example
from workbench.cli.output import print_json
from workbench.cli.parameters import JSON, SCRIPT, TO


@click.command("init")
@takes(SCRIPT, TO, JSON)
@example("workbench init train.py --to experiment.yaml")
def init(script: Path, to: Path | None, as_json: bool) -> None:
    """Write a first experiment file for a script, from its options."""
    from workbench.foundation.errors import ArgumentError
    from workbench.foundation.formatting import counted_noun
    from workbench.runs.scripts.first_experiment import experiment_for

    found = experiment_for(script)
    path = script.with_suffix(".yaml") if to is None else to
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(found.text)
    except FileExistsError as error:
        raise ArgumentError(
            f"{path} already exists",
            field="--to",
            next_step="Name another file with --to, or remove it.",
        ) from error
    except OSError as error:
        raise ArgumentError(f"cannot write {path}: {error.strerror}", field="--to") from error
    needed = found.values_to_write
    if as_json:
        print_json({"path": str(path), "values_to_write": list(needed)})
    else:
        first = ""
        if needed:
            first = f"write the {counted_noun(len(needed), 'value')} of {', '.join(needed)}, "
        check = shlex.join(["workbench", "check", str(path)])
        click.echo(f"wrote {path}; {first}edit it, then check it with: {check}")
