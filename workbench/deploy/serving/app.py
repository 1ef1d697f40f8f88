"""The HTTP interface of a server of models: its addresses, who may use them, and what is refused.

Queues and models are left to `served_models`; the process, its signals and its socket to `process`.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from workbench.deploy.packages import needs
from workbench.deploy.serving.batching import QueueFullError
from workbench.deploy.serving.bodies import Refusal, receive_rows
from workbench.deploy.serving.guard import Guard, describe_problem, respond
from workbench.deploy.serving.metrics import BATCH_BUCKETS, LATENCY_BUCKETS_S, Metrics, labelled
from workbench.deploy.serving.openapi import describe_server
from workbench.deploy.serving.rows import RequestError, RowsError
from workbench.deploy.serving.served_models import Limits, ServedModel
from workbench.deploy.serving.tokens import Token
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
_PAGE_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)


class Service:
    """The models of a server, what it counts, and whether it takes requests."""

    def __init__(
        self,
        models: Iterable[ServedModel],
        limits: Limits,
        token: Token | None,
        *,
        is_copy: bool = False,
    ) -> None:
        """Make a service; it answers while its application runs.

        Args:
            models: What is served.
            limits: What a request may cost.
            token: What a request must have; None if everybody who reaches the server may use it.
            is_copy: Whether it is one of several, which only their owner may change.
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
        self.metrics = Metrics()
        self._requests = self.metrics.counter(
            "workbench_requests_total", "Requests to predict, by status."
        )
        self._rejected = self.metrics.counter(
            "workbench_rejected_total", "Requests to predict that were refused, by reason."
        )
        self._rows = self.metrics.counter("workbench_rows_total", "Rows that were answered.")
        self._latency = self.metrics.histogram(
            "workbench_request_seconds", "Seconds from a request to its answer.", LATENCY_BUCKETS_S
        )
        self._batches = self.metrics.histogram(
            "workbench_batch_rows", "Rows in a batch.", BATCH_BUCKETS
        )
        self._computing = self.metrics.counter(
            "workbench_batch_seconds_total", "Seconds that batches were computed."
        )
        self.metrics.gauge(
            "workbench_queue_rows",
            "Rows that wait.",
            lambda: self._read(lambda model: model.queue.num_waiting),
        )
        self.metrics.gauge(
            "workbench_queue_limit_rows",
            "Rows that may wait.",
            lambda: self._read(lambda model: model.queue.limit_rows),
        )
        self.metrics.gauge(
            "workbench_batch_limit_rows",
            "Rows that a batch may have at the moment.",
            lambda: self._read(lambda model: model.queue.batch_limit),
        )
        self.metrics.gauge(
            "workbench_swaps",
            "Number of times that a newer bundle took over.",
            lambda: self._read(lambda model: model.num_swaps),
        )
        self.metrics.gauge(
            "workbench_latency_drift",
            "How much longer batches take than when the model was opened.",
            lambda: self._read(lambda model: model.queue.slower),
        )
        self._add_drift_metrics()
        self.metrics.gauge("workbench_model_info", "Which model is served.", self._read_versions)

    def close(self) -> None:
        """End its threads and those of its models; what was kept is on disk then."""
        self._decoding.shutdown(wait=False, cancel_futures=True)
        for model in self.models.values():
            model.close()

    def _add_drift_metrics(self) -> None:
        self.metrics.gauge(
            "workbench_drift",
            "Population stability index of a column; 0.2 and more is notable.",
            lambda: {
                labelled(model=name, column=each.name): each.index
                for name, model in self.models.items()
                if model.watch
                for each in model.watch.monitor.columns()
            },
        )
        self.metrics.gauge(
            "workbench_answer_drift",
            "Population stability index of the answers.",
            lambda: {
                labelled(model=name): found.index
                for name, model in self.models.items()
                if model.watch and (found := model.watch.monitor.answers())
            },
        )
        self.metrics.gauge(
            "workbench_drifted",
            "Whether a column or the answers have drifted more than chance explains.",
            lambda: {
                labelled(model=name): float(model.watch.monitor.describe()["drifted"])
                for name, model in self.models.items()
                if model.watch
            },
        )
        self.metrics.gauge(
            "workbench_kept_dropped",
            "Samples that could not be kept.",
            lambda: {
                labelled(model=name): model.watch.kept.num_dropped
                for name, model in self.models.items()
                if model.watch
            },
        )

    def count_batch(self, name: str, num_rows: int, seconds: float) -> None:
        """Count a batch that was computed."""
        self._batches.observe(labelled(model=name), num_rows)
        self._computing.add(labelled(model=name), seconds)

    async def predict(self, request: Request) -> Response:
        """Answer `POST /v1/NAME/predict`."""
        started_s = time.perf_counter()
        model = self._model(request)
        try:
            answers = await self._answer(model, request)
        except Refusal as refusal:
            self._requests.add(labelled(model=model.name, code=str(refusal.status)))
            self._rejected.add(labelled(model=model.name, reason=refusal.reason))
            return respond(refusal.problem, refusal.status, refusal.headers)
        self.num_answered += 1
        self._latency.observe(labelled(model=model.name), time.perf_counter() - started_s)
        self._requests.add(labelled(model=model.name, code="200"))
        self._rows.add(labelled(model=model.name), len(answers["answers"]))
        return respond(answers)

    async def _answer(self, model: ServedModel, request: Request) -> dict[str, Any]:
        started_s = time.perf_counter()
        if self.is_stopping:
            raise Refusal(
                503,
                "stopping",
                describe_problem(
                    "the server is stopping", next_step="Send the request to another server."
                ),
                retry_after_s=1,
            )
        if self.num_accepted >= MAX_REQUESTS:
            next_step = "Try again in 1 s, or send fewer requests."
            problem = f"{self.num_accepted} requests are being answered"
            raise Refusal(
                429, "too_many", describe_problem(problem, next_step=next_step), retry_after_s=1
            )
        self.num_accepted += 1
        try:
            # Refused before anything is read, so that refusing costs little.
            model.queue.check_room()
            rows = await receive_rows(request, model.version.reader, self._limits.body_bytes)
            if len(rows) > model.queue.limit_rows:
                raise Refusal(
                    413,
                    "too_many_rows",
                    describe_problem(
                        f"there are {len(rows)} rows",
                        field="rows",
                        allowed=f"at most {model.queue.limit_rows} rows in a request",
                    ),
                )
            version = model.version
            reader = version.reader
            if reader.has_images(rows):
                # Decoding takes longer than all else here, so that others are answered meanwhile.
                read = await asyncio.get_running_loop().run_in_executor(
                    self._decoding, reader.read, rows
                )
            else:
                read = reader.read(rows)
            answers = await model.queue.answer(read)
            for row, answer in zip(read, answers, strict=True):
                if notes := reader.notes(row):
                    answer["notes"] = notes
            if model.watch is not None:
                model.watch.add(rows, read, answers, time.perf_counter() - started_s)
            return {"model": model.name, "version": version.sha256[:12], "answers": answers}
        except QueueFullError as error:
            after_s = error.retry_after_s
            problem = f"the queue of {model.name} is full: {model.queue.num_waiting} rows wait"
            next_step = f"Try again in {after_s} s, or send fewer requests."
            raise Refusal(
                429,
                "queue_full",
                describe_problem(problem, next_step=next_step),
                retry_after_s=after_s,
            ) from error
        except RequestError as error:
            raise Refusal(
                400, "malformed", describe_problem(str(error), allowed='{"rows": [{...}]}')
            ) from error
        except RowsError as error:
            raise Refusal(422, "invalid", error.to_json()) from error
        except ClientDisconnect as error:
            raise Refusal(
                499, "gone", describe_problem("the client closed the connection")
            ) from error
        except (Refusal, asyncio.CancelledError):
            raise
        except Exception as error:  # ONNX Runtime has no common base class for its errors
            raise Refusal(
                500,
                "failed",
                describe_problem(f"the model could not compute this: {first_line_of(error)}"),
            ) from error
        finally:
            self.num_accepted -= 1

    async def swap(self, request: Request) -> Response:
        """Answer `POST /v1/NAME/swap`."""
        model = self._model(request)
        if self._is_copy:
            next_step = "Send SIGHUP to the process that serves: it replaces all copies."
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

    def _read(self, read: Callable[[ServedModel], float]) -> dict[Any, float]:
        return {labelled(model=name): read(model) for name, model in self.models.items()}

    def _read_versions(self) -> dict[Any, float]:
        return {
            labelled(
                model=name, version=model.version.sha256[:12], run=model.version.card.run_id
            ): 1.0
            for name, model in self.models.items()
        }


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


def make_app(service: Service) -> ASGIApp:
    """Return the application of a service; its models answer while the application runs."""

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


async def _refuse(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return respond(describe_problem(error.detail), error.status_code, error.headers)


async def _fail(request: Request, error: Exception) -> Response:
    return respond(describe_problem("the server failed; its log has the reason"), 500)


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
