"""The command that compares the rows that a model receives with its training data."""

from __future__ import annotations

import json
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path
from typing import Any

import click

from workbench.cli.declarations import takes
from workbench.cli.options import example
from workbench.cli.output import echo, make_console, make_table, print_json
from workbench.cli.parameters import JSON, SERVED, TOKEN_FILE
from workbench.foundation.errors import ArgumentError, RunError
from workbench.foundation.formatting import format_count, format_number, format_percent

_TIMEOUT_S = 30


@click.command()
@takes(SERVED, TOKEN_FILE, JSON)
@example("workbench drift best", "workbench drift http://127.0.0.1:8000")
def drift(served: str, token_file: Path | None, as_json: bool) -> int:
    """Compare what a model receives with its training data.

    BUNDLE is a bundle that was served with --keep. URL is a server that was started with --keep.
    The shift of a column is its population stability index. Above 0.2 it counts as drift, unless
    chance explains it.

    Exits with 1 if something has drifted.
    """
    if served.startswith(("http://", "https://")):
        models = _of_server(served, token_file)
    else:
        models = _of_bundle(served)
    drifted = any(model["drifted"] for model in models.values())
    if as_json:
        print_json({"drifted": drifted, "models": models})
        return int(drifted)
    for name, model in models.items():
        _print(name, model)
    return int(drifted)


def _print(name: str, model: dict[str, Any]) -> None:
    echo(f"{name}: {format_count(model['num_rows'], 'row')}", bold=True)
    if not model["num_rows"]:
        return
    table = make_table("", "shift", "drift above", "missing", "")
    columns = list(model["columns"])
    if model["answers"]:
        columns.append(model["answers"])
    for column in columns:
        table.add_row(
            column["name"],
            format_number(column["index"]),
            format_number(column["limit"]),
            format_percent(column["missing"]),
            "drift" if column["drifted"] else "",
        )
    make_console().print(table)
    if model.get("latency_ratio") is not None:
        echo(f"latency: {format_number(model['latency_ratio'])}x as long as at the start")
    for step in model["next_steps"]:
        echo(step)


def _of_bundle(folder: str) -> dict[str, Any]:
    from workbench.deploy.serving.drift import drift_of_kept

    path = Path(folder)
    return {path.absolute().name: drift_of_kept(path)}


def _of_server(url: str, token_file: Path | None) -> dict[str, Any]:
    from workbench.deploy.serving.tokens import read_token, token_path

    token = None
    if token_file is not None or token_path().exists():
        token = read_token(token_file or token_path()).secret
    models = [model["name"] for model in _get(url, "v1", token)["models"]]
    return {name: _get(url, f"v1/{urllib.parse.quote(name)}/drift", token) for name in models}


def _get(url: str, path: str, token: str | None) -> dict[str, Any]:
    headers = {}
    if token is not None:
        headers["Authorization"] = f"Bearer {token}"
    request = urllib.request.Request(f"{url.rstrip('/')}/{path}", headers=headers)
    opener = urllib.request.build_opener(_NoRedirect)
    try:
        with opener.open(request, timeout=_TIMEOUT_S) as answer:
            return json.load(answer)
    except urllib.error.HTTPError as error:
        with error:
            text = error.read().decode("utf-8", "replace")
        try:
            problem = json.loads(text)
        except ValueError:
            problem = {"problem": f"{error.code} {error.reason}"}
        if error.code == 401:
            raise ArgumentError(problem["problem"], field="--token-file") from error
        raise RunError(
            f"{url}: {problem['problem']}", next_step=problem.get("next_step")
        ) from error
    except (OSError, ValueError) as error:
        reason = getattr(error, "reason", error)
        raise RunError(
            f"{url} cannot be reached: {reason}", next_step="Check the address."
        ) from error


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """Follows no redirect: the token is only for the server that the user gave."""

    def redirect_request(self, *_: Any, **__: Any) -> None:
        return None
