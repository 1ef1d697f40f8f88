"""The command that serves exported models."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import click

from workbench.cli.declarations import takes
from workbench.cli.options import example
from workbench.cli.output import print_json, print_note
from workbench.cli.parameters import (
    ADDRESS,
    BUNDLES,
    HOST,
    JSON,
    KEEP,
    KEEP_LIMIT,
    LATENCY,
    MAX_BATCH,
    MAX_BODY,
    NO_TOKEN,
    ON,
    PORT,
    QUEUE,
    REPLICAS,
    THREADS,
    TOKEN_FILE,
    TRUSTED_PROXY,
)

if TYPE_CHECKING:
    from workbench.deploy.serving.access_token import Token
    from workbench.deploy.serving.served_models import Version


@click.command()
@takes(
    BUNDLES(is_required=True, is_repeatable=True),
    HOST(default="127.0.0.1"),
    PORT(default=8000),
    THREADS(default=1),
    MAX_BATCH(default=64),
    LATENCY(default="20ms"),
    QUEUE(default=1000),
    MAX_BODY(default="8MiB"),
    KEEP(default=0.0),
    KEEP_LIMIT(default="1GB"),
    TOKEN_FILE,
    TRUSTED_PROXY(is_repeatable=True),
    NO_TOKEN,
    ON(default="here"),
    REPLICAS,
    ADDRESS,
    JSON,
)
@example(
    "workbench serve best",
    "workbench serve digits=models/current --port 8080 --queue 500",
    "workbench serve best --host 0.0.0.0 --token-file /run/secrets/token",
    "workbench serve best --on ray --replicas 4",
)
def serve(
    *,
    bundles: tuple[str, ...],
    host: str,
    port: int,
    threads: int,
    max_batch: int,
    latency: float,
    queue: int,
    max_body: int,
    keep: float,
    keep_limit: int,
    token_file: Path | None,
    no_token: bool,
    place: str,
    replicas: int | None,
    address: str | None,
    trusted_proxies: tuple[str, ...],
    as_json: bool,
) -> None:
    """Serve exported models over HTTP.

    BUNDLE is a folder that `export --format onnx` wrote, or NAME=FOLDER to choose the name. The
    model is served as /v1/NAME/predict.

    SIGTERM ends the server after it has answered all accepted requests. SIGHUP opens the bundles
    again: if a folder is a link and you changed it, the newer bundle takes over without a failed
    request.

    With --on ray, copies of the server run on a Ray cluster until this command ends.
    """
    from workbench.deploy.serving import server_process
    from workbench.deploy.serving.access_token import (
        is_loopback_name,
        read_or_make_token,
        token_path,
    )
    from workbench.deploy.serving.drift_alerts import DriftAlerts
    from workbench.deploy.serving.served_models import Limits, name_bundles
    from workbench.store.alerts import Settings, read_settings

    _check_place(
        place,
        replicas=replicas,
        address=address,
        port=port,
        keep=keep,
        trusted_proxies=trusted_proxies,
    )
    server_process.check_packages()
    from workbench.deploy.serving.connections import read_networks

    networks = read_networks(trusted_proxies)
    folders = name_bundles(bundles)
    limits = Limits(
        threads=threads,
        max_batch=max_batch,
        queue_rows=queue,
        body_bytes=max_body,
        keep_share=keep,
        keep_bytes=keep_limit,
        latency_s=latency,
    )
    _check_token(host, token_file, no_token=no_token)
    versions = server_process.open_versions(folders, limits)
    token = None
    if not no_token:
        token = read_or_make_token(token_file or token_path())

    def show(shown_host: str, shown_port: int) -> None:
        _show(f"http://{shown_host}:{shown_port}", versions, token, as_json=as_json)
        if not is_loopback_name(host):
            print_note(
                "requests and their token are not encrypted. Put a proxy with HTTPS in front of the"
                " server"
            )
        sys.stdout.flush()

    if place == "ray":
        from workbench.cluster.head.served_application import ServedApplication
        from workbench.deploy.serving import on_ray
        from workbench.deploy.serving.app import MAX_REQUESTS

        application = ServedApplication(
            on_ray.APPLICATION,
            address=address,
            host=host,
            port=port,
            replicas=replicas or 1,
            cpus=threads,
            max_requests=2 * MAX_REQUESTS,
        )
        on_ray.serve(
            folders,
            versions,
            limits,
            application=application,
            token=token,
            notify=print_note,
            started=lambda: show(host, port),
        )
        return
    settings = Settings()
    if keep:
        settings = read_settings()
    listener = server_process.listen(host, port)
    shown_host, shown_port = server_process.address_of(listener)
    show(shown_host, shown_port)
    alerts = DriftAlerts(settings, url=f"http://{shown_host}:{shown_port}", notify=print_note)
    server_process.serve(
        folders,
        versions,
        limits,
        listener=listener,
        token=token,
        notify=print_note,
        alerts=alerts,
        trusted_proxies=networks,
    )


def _check_token(host: str, token_file: Path | None, *, no_token: bool) -> None:
    """Raise an error if a server that others can reach would ask for no token."""
    from workbench.deploy.serving.access_token import is_loopback_name
    from workbench.foundation.errors import ArgumentError

    if not no_token:
        return
    if token_file is not None:
        raise click.UsageError("you cannot combine --no-token and --token-file")
    if not is_loopback_name(host):
        raise ArgumentError(
            f"others can reach {host}, so the server needs a token",
            field="--no-token",
            allowed="only with a loopback address, such as 127.0.0.1",
        )


def _check_place(
    place: str,
    *,
    replicas: int | None,
    address: str | None,
    port: int,
    keep: float,
    trusted_proxies: tuple[str, ...],
) -> None:
    """Raise an error for options that have no effect on the place to serve."""
    if place == "here":
        for option, given in (("--replicas", replicas), ("--address", address)):
            if given is not None:
                raise click.UsageError(f"{option} needs --on ray.")
        return
    if port == 0:
        raise click.UsageError(
            "--on ray needs a port: all nodes of the cluster listen on the same one"
        )
    if trusted_proxies:
        raise click.UsageError("you cannot combine --trusted-proxy and --on ray")
    if keep:
        raise click.UsageError(
            "you cannot combine --keep and --on ray: rows are kept on one machine"
        )


def _show(
    address: str, versions: Mapping[str, Version], token: Token | None, *, as_json: bool
) -> None:
    if as_json:
        file = None
        if token is not None:
            file = str(token.path.absolute())
        print_json({"url": address, "models": list(versions), "token_file": file})
        return
    for name, version in versions.items():
        shown = version.sha256[:12] or "unknown"
        click.echo(f"serving  {name}, version {shown}: {address}/v1/{name}/predict")
    click.echo(f"page     {address}/")
    if token is not None:
        line = f"token    {token.path}"
        # A new token is shown only on a terminal, so that it does not get into a log.
        if token.is_new and sys.stdout.isatty():
            line += f": {token.secret}"
        click.echo(line)
