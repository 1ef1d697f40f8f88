"""The HTTP interface of a model server: its addresses, access, and rejected requests.

`served_models` contains the queues and the models. `server_process` contains the process, its
signals and its socket.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from workbench.deploy.distributions import needs
from workbench.deploy.image_files import MEDIA_TYPES
from workbench.deploy.serving.access_token import Token
from workbench.deploy.serving.batching import QueueFullError
from workbench.deploy.serving.client_rows import (
    Asked,
    RequestError,
    RowReader,
    RowsError,
    parse_rows,
)
from workbench.deploy.serving.connections import Guard, describe_problem, respond, time_limit
from workbench.deploy.serving.metrics import ServerMetrics
from workbench.deploy.serving.openapi import describe_server
from workbench.deploy.serving.served_models import Limits, ServedModel
from workbench.foundation.errors import WorkbenchError, first_line_of

with needs("starlette"):
    from starlette.applications import Starlette
    from starlette.exceptions import HTTPException
    from starlette.requests import ClientDisconnect, Request
    from starlette.responses import FileResponse, Response
    from starlette.routing import Route
    from starlette.types import ASGIApp

STATIC = Path(__file__).parent / "static"
MAX_REQUESTS = 512
"""Requests that may be in progress at once, of all models."""
_JSON = "application/json"
_BODY_TIMEOUT_S = 30.0
_PAGE_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)


def make_app(service: Service) -> ASGIApp:
    """Return the application of a service. Its models answer while the application runs."""

    @contextlib.asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        tasks = [asyncio.create_task(model.queue.run()) for model in service.models.values()]
        yield
        for task in tasks:
            task.cancel()
        service.close()

    get, post = ["GET"], ["POST"]
    app = Starlette(
        routes=[
            Route("/v1/{name}/predict", service.predict, methods=post),
            Route("/v1/{name}/drift", service.show_drift, methods=get),
            Route("/v1/{name}/swap", service.swap, methods=post),
            Route("/v1/{name}", service.show_model, methods=get),
            Route("/v1", service.list_models, methods=get),
            Route("/health", service.health, methods=get),
            Route("/ready", service.ready, methods=get),
            Route("/metrics", service.write_metrics, methods=get),
            Route("/openapi.json", service.openapi, methods=get),
            Route("/", _page, methods=get),
            Route("/page.js", _script, methods=get),
            Route("/page.css", _style, methods=get),
        ],
        exception_handlers={HTTPException: _refuse, Exception: _fail},
        lifespan=lifespan,
    )
    return Guard(app, service.token)


class Service:
    """The models and metrics of a server, and whether it accepts requests."""

    def __init__(
        self,
        models: Iterable[ServedModel],
        limits: Limits,
        token: Token | None,
        *,
        is_copy: bool = False,
    ) -> None:
        """Make a service. It answers while its application runs.

        Args:
            models: The served models.
            limits: The limits of requests.
            token: The token that requests must have, or None if the server is open to everyone.
            is_copy: Whether it is one of several copies, which only their owner may change.
        """
        self.models = {model.name: model for model in models}
        self.token = token
        self._is_copy = is_copy
        self.is_stopping = False
        self.num_accepted = 0
        """Requests that were accepted and have no response yet."""
        self.num_answered = 0
        """Requests to predict that were carried out."""
        self._limits = limits
        self._decoding = ThreadPoolExecutor(limits.threads, thread_name_prefix="decode")
        self.metrics = ServerMetrics(self.models)

    def close(self) -> None:
        """End all threads. All kept samples are on disk after that."""
        self._decoding.shutdown(wait=False, cancel_futures=True)
        for model in self.models.values():
            model.close()

    async def predict(self, request: Request) -> Response:
        """Answer `POST /v1/NAME/predict`."""
        started_s = time.perf_counter()
        model = self._model(request)
        try:
            answers = await self._answer(model, request)
        except Refusal as refusal:
            self.metrics.count_refusal(model.name, refusal.status, refusal.reason)
            return respond(refusal.problem, refusal.status, refusal.headers)
        self.num_answered += 1
        self.metrics.count_answer(
            model.name, len(answers["answers"]), time.perf_counter() - started_s
        )
        return respond(answers)

    async def _answer(self, model: ServedModel, request: Request) -> dict[str, Any]:
        """Return the answers for the rows of a request.

        Raises:
            Refusal: If the request has no answer for any reason.
        """
        self._check_free()
        self.num_accepted += 1
        try:
            return await self._compute(model, request)
        except Refusal:
            raise
        except Exception as error:  # ONNX Runtime has no common base class for its errors
            raise _refusal_for(error, model) from error
        finally:
            self.num_accepted -= 1

    def _check_free(self) -> None:
        if self.is_stopping:
            problem = describe_problem(
                "the server is stopping", next_step="Send the request to another server."
            )
            raise Refusal(503, "stopping", problem, retry_after_s=1)
        if self.num_accepted >= MAX_REQUESTS:
            problem = describe_problem(
                f"{self.num_accepted} requests are being answered",
                next_step="Try again in 1 s, or send fewer requests.",
            )
            raise Refusal(429, "too_many", problem, retry_after_s=1)

    async def _compute(self, model: ServedModel, request: Request) -> dict[str, Any]:
        started_s = time.perf_counter()
        # Rejected before the body is read, so that a rejection is cheap.
        model.queue.check_room()
        rows, interval = await receive_rows(request, model.version.reader, self._limits.body_bytes)
        if len(rows) > model.queue.limit_rows:
            problem = describe_problem(
                f"there are {len(rows)} rows",
                field="rows",
                allowed=f"at most {model.queue.limit_rows} rows in a request",
            )
            raise Refusal(413, "too_many_rows", problem)
        version = model.version
        reader = version.reader
        if interval is not None and not version.card.outputs[0].errors:
            raise RequestError("this model has no intervals. Remove interval from the body")
        if reader.has_images(rows):
            # Decoding takes the longest, so other requests are answered meanwhile.
            loop = asyncio.get_running_loop()
            values = await loop.run_in_executor(self._decoding, reader.read, rows)
        else:
            values = reader.read(rows)
        answers = await model.queue.answer(values)
        for row, answer, given in zip(values, answers, rows, strict=True):
            if notes := reader.notes(row, answer, given):
                answer["notes"] = notes
        if model.watch is not None:
            model.watch.add(rows, values, answers, time.perf_counter() - started_s)
        if interval is not None:
            loop = asyncio.get_running_loop()
            ends = await loop.run_in_executor(self._decoding, version.intervals, values, interval)
            answers = [answer | pair for answer, pair in zip(answers, ends, strict=True)]
        return {"model": model.name, "version": version.sha256[:12], "answers": answers}

    async def swap(self, request: Request) -> Response:
        """Answer `POST /v1/NAME/swap`."""
        model = self._model(request)
        if self._is_copy:
            next_step = "Send SIGHUP to the serving process, which replaces all copies."
            problem = describe_problem(
                "this is one of several copies of the server", next_step=next_step
            )
            return respond(problem, 409)
        try:
            swapped = await model.swap()
        except WorkbenchError as error:
            return respond(error.to_json(), 409)
        return respond(
            {"model": model.name, "swapped": swapped, "version": model.version.sha256[:12]}
        )

    async def ready(self, request: Request) -> Response:
        """Answer `GET /ready`."""
        return respond({"ready": not self.is_stopping}, 503 if self.is_stopping else 200)

    async def health(self, request: Request) -> Response:
        """Answer `GET /health`."""
        return respond({"healthy": True})

    async def write_metrics(self, request: Request) -> Response:
        """Answer `GET /metrics`."""
        return Response(self.metrics.write(), media_type="text/plain; version=0.0.4")

    async def openapi(self, request: Request) -> Response:
        """Answer `GET /openapi.json`."""
        cards = {name: model.version.card for name, model in self.models.items()}
        return respond(describe_server(cards, has_token=self.token is not None))

    async def list_models(self, request: Request) -> Response:
        """Answer `GET /v1`."""
        return respond({"models": [describe_model(model) for model in self.models.values()]})

    async def show_model(self, request: Request) -> Response:
        """Answer `GET /v1/NAME`."""
        model = self._model(request)
        return respond(describe_model(model) | {"card": model.version.card.model_dump(mode="json")})

    async def show_drift(self, request: Request) -> Response:
        """Answer `GET /v1/NAME/drift`."""
        model = self._model(request)
        if model.watch is None:
            problem = describe_problem(
                "no samples are kept", next_step="Start the server with --keep 0.1."
            )
            return respond(problem, 409)
        return respond(model.watch.monitor.describe() | {"latency_ratio": model.queue.slower})

    def _model(self, request: Request) -> ServedModel:
        name = request.path_params["name"]
        if name not in self.models:
            raise HTTPException(
                404, f"no model is served as {name[:64]!r}; served: {', '.join(self.models)}"
            )
        return self.models[name]


def describe_model(model: ServedModel) -> dict[str, Any]:
    """Return the name, the version and the times of a model."""
    times = model.version.times
    return {
        "name": model.name,
        "version": model.version.sha256[:12],
        "run_id": model.version.card.run_id,
        "trained_on": model.version.card.trained_on,
        "one_row_s": times.seconds(1),
        "batch_rows": model.queue.batch_limit,
        "swaps": model.num_swaps,
    }


class Refusal(Exception):
    """A rejected request, with the response to it."""

    def __init__(
        self,
        status: int,
        reason: str,
        problem: Mapping[str, Any],
        *,
        retry_after_s: int | None = None,
    ) -> None:
        """Describe why.

        Args:
            status: The HTTP status.
            reason: One word for the metrics.
            problem: What the client receives.
            retry_after_s: When it may try again, in seconds.
        """
        super().__init__(reason)
        self.status, self.reason, self.problem = status, reason, problem
        self.headers = {} if retry_after_s is None else {"Retry-After": str(retry_after_s)}


async def receive_rows(request: Request, reader: RowReader, limit_bytes: int) -> Asked:
    """Return what a request asks for. An image as the body is one row.

    Args:
        request: The request.
        reader: The reader of the model.
        limit_bytes: Size of the body, at most.

    Raises:
        RequestError: If the body is not rows.
        Refusal: If it has another type, or is too large or too slow.
    """
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    # Web pages of other origins can only send these types with a permission (CORS) that the server
    # never gives.
    allowed = (_JSON,) if reader.image is None else (_JSON, *MEDIA_TYPES)
    if kind not in allowed:
        problem = describe_problem(
            f"the content type is {kind or 'missing'}",
            allowed=", ".join(allowed),
            next_step=f"Set the header, such as curl -H 'Content-Type: {_JSON}' for JSON.",
        )
        raise Refusal(415, "malformed", problem)
    body = await _read_body(request, limit_bytes)
    if kind == _JSON:
        return parse_rows(body)
    return Asked([{reader.image: base64.b64encode(body).decode()}])


async def _read_body(request: Request, limit_bytes: int) -> bytes:
    too_large = Refusal(
        413,
        "too_large",
        describe_problem(
            "the body is too large",
            allowed=f"{limit_bytes} bytes",
            next_step="Send fewer rows, or start the server with a larger --max-body.",
        ),
    )
    length = request.headers.get("content-length", "0")
    if length.isdigit() and int(length) > limit_bytes:
        raise too_large
    body = bytearray()
    with time_limit(_BODY_TIMEOUT_S) as limited:
        async for part in request.stream():
            body += part
            if len(body) > limit_bytes:
                raise too_large
    if limited.is_over:
        problem = describe_problem(f"the body did not arrive within {_BODY_TIMEOUT_S:g} s")
        raise Refusal(408, "slow", problem)
    return bytes(body)


def _refusal_for(error: Exception, model: ServedModel) -> Refusal:
    """Return the rejection of a request because of an error."""
    match error:
        case QueueFullError(retry_after_s=after_s):
            problem = describe_problem(
                f"the queue of {model.name} is full: {model.queue.num_waiting} rows wait",
                next_step=f"Try again in {after_s} s, or send fewer requests.",
            )
            return Refusal(429, "queue_full", problem, retry_after_s=after_s)
        case RequestError():
            problem = describe_problem(str(error), allowed='{"rows": [{...}]}')
            return Refusal(400, "malformed", problem)
        case RowsError():
            return Refusal(422, "invalid", error.to_json())
        case ClientDisconnect():
            return Refusal(499, "gone", describe_problem("the client closed the connection"))
    problem = describe_problem(f"the model could not compute this: {first_line_of(error)}")
    return Refusal(500, "failed", problem)


async def _refuse(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return respond(describe_problem(error.detail), error.status_code, error.headers)


async def _fail(request: Request, error: Exception) -> Response:
    return respond(describe_problem("the server failed. Its log has the reason"), 500)


def _static(name: str, kind: str) -> Callable[[Request], Awaitable[Response]]:
    async def answer(request: Request) -> Response:
        return FileResponse(
            STATIC / name,
            media_type=kind,
            headers={"Content-Security-Policy": _PAGE_POLICY, "Referrer-Policy": "no-referrer"},
        )

    return answer


_page = _static("page.html", "text/html")
_script = _static("page.js", "text/javascript")
_style = _static("page.css", "text/css")
