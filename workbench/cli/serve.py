"""The command that serves exported models."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from workbench.cli.options import Count, FiniteRange, example, json_option
from workbench.cli.output import print_json, print_note


@click.command()
@click.argument("bundles", metavar="BUNDLE...", nargs=-1, required=True)
@click.option("--host", default="127.0.0.1", show_default=True, help="Listen on this address.")
@click.option(
    "--port",
    type=Count(0, 65535),
    default=8000,
    show_default=True,
    help="Listen on this port; 0 takes any that is free.",
)
@click.option(
    "--threads",
    type=Count(1, 1024),
    default=1,
    show_default=True,
    metavar="N",
    help="Compute each batch on this many threads.",
)
@click.option(
    "--max-batch",
    type=Count(1, 65536),
    default=64,
    show_default=True,
    metavar="N",
    help="Compute at most this many rows at once.",
)
@click.option(
    "--latency",
    default="20ms",
    show_default=True,
    metavar="TIME",
    help="Make batches only as large as are computed within this time.",
)
@click.option(
    "--queue",
    type=Count(1, 10_000_000),
    default=1000,
    show_default=True,
    metavar="N",
    help="Let at most this many rows of a model wait; further requests get 429.",
)
@click.option(
    "--max-body",
    default="8MiB",
    show_default=True,
    metavar="SIZE",
    help="Refuse requests with a larger body.",
)
@click.option(
    "--keep",
    type=FiniteRange(0, 1),
    default=0.0,
    metavar="SHARE",
    help="Keep this share of the rows and their answers in the bundle, and watch them for drift.",
)
@click.option(
    "--keep-limit",
    default="1GB",
    show_default=True,
    metavar="SIZE",
    help="Keep at most this much of each model; the oldest is removed.",
)
@click.option(
    "--token-file",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Read the token from this file; it is made if it does not exist.",
)
@click.option("--no-token", is_flag=True, help="Serve everybody on this machine; only on a loopback address.")
@json_option
@example(
    "workbench serve best",
    "workbench serve digits=models/current --port 8080 --queue 500",
    "workbench serve best --host 0.0.0.0 --token-file /run/secrets/token",
)  # fmt: skip
def serve(
    bundles: tuple[str, ...], host: str, port: int, threads: int, max_batch: int, latency: str, queue: int,
    max_body: str, keep: float, keep_limit: str, token_file: Path | None, no_token: bool, as_json: bool,
) -> None:  # fmt: skip
    """Serve exported models over HTTP.

    BUNDLE is a folder that `export --format onnx` wrote, or NAME=FOLDER; it is served as /v1/NAME/predict.

    SIGTERM ends the server when everything that was accepted is answered. SIGHUP opens the bundles again, so
    that a link to a newer one takes over without a failed request.
    """
    from workbench.deploy.serving import process
    from workbench.deploy.serving.served_models import Limits, name_bundles
    from workbench.deploy.serving.tokens import is_loopback_name, read_or_make_token, token_path
    from workbench.errors import ArgumentError
    from workbench.formatting import duration_argument_s, parse_bytes

    process.check_packages()
    folders = name_bundles(bundles)
    limits = Limits(
        threads=threads, max_batch=max_batch, queue_rows=queue, body_bytes=int(parse_bytes(max_body)),
        keep_share=keep, keep_bytes=int(parse_bytes(keep_limit)),
        latency_s=duration_argument_s(latency, field="--latency"),
    )  # fmt: skip
    if no_token and token_file is not None:
        raise click.UsageError("--no-token and --token-file exclude each other.")
    is_private = is_loopback_name(host)
    if no_token and not is_private:
        raise ArgumentError(
            f"others can reach {host}, so the server needs a token",
            field="--no-token", allowed="only with a loopback address, such as 127.0.0.1",
        )  # fmt: skip
    versions = process.open_versions(folders, limits)
    listener = process.listen(host, port)
    token = None if no_token else read_or_make_token(token_file or token_path())
    shown_host, shown_port = process.address_of(listener)
    address = f"http://{shown_host}:{shown_port}"
    if as_json:
        file = None if token is None else str(token.path.absolute())
        print_json({"url": address, "models": list(folders), "token_file": file})
    else:
        for name, version in versions.items():
            shown = version.sha256[:12] or "unknown"
            click.echo(f"serving  {name}, version {shown}: {address}/v1/{name}/predict")
        click.echo(f"page     {address}/")
        if token is not None:
            click.echo(f"token    {token.path}" + (f": {token.secret}" if token.is_new else ""))
    if not is_private:
        print_note(
            "requests and their token travel unencrypted: put a proxy with HTTPS in front of the server"
        )
    sys.stdout.flush()
    process.serve(folders, versions, limits, listener=listener, token=token, notify=print_note)
