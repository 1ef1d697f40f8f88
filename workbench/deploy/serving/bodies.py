"""The body of a request to predict: its type, how large and how slow it may be, and the rows in it.

What is wrong with the values of the rows is left to `rows`.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from workbench.deploy.image_files import MEDIA_TYPES
from workbench.deploy.serving.guard import describe_problem, time_limit
from workbench.deploy.serving.rows import RowReader, parse_rows

if TYPE_CHECKING:
    from starlette.requests import Request

_JSON = "application/json"
_TIMEOUT_S = 30.0


class Refusal(Exception):
    """A request that is not carried out, with the response to it."""

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


async def receive_rows(request: Request, reader: RowReader, limit_bytes: int) -> list[Any]:
    """Return the rows of a request, unchecked; an image as the body is one row.

    Args:
        request: The request.
        reader: That of the model.
        limit_bytes: Size of the body, at most.

    Raises:
        RequestError: If the body is not rows.
        Refusal: If it is of another type, too large or too slow.
    """
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    # Pages of other origins cannot send these types without a permission that the server never
    # gives.
    allowed = (_JSON,) if reader.image is None else (_JSON, *MEDIA_TYPES)
    if kind not in allowed:
        problem = describe_problem(
            f"the content type is {kind or 'missing'}",
            allowed=", ".join(allowed),
            next_step=f"Name it in a header: curl -H 'Content-Type: {_JSON}' sends JSON.",
        )
        raise Refusal(415, "malformed", problem)
    body = await _read_body(request, limit_bytes)
    if kind == _JSON:
        return parse_rows(body)
    return [{reader.image: base64.b64encode(body).decode()}]


async def _read_body(request: Request, limit_bytes: int) -> bytes:
    too_large = Refusal(
        413,
        "too_large",
        describe_problem(
            "the body is too large",
            allowed=f"{limit_bytes} bytes",
            next_step="Send less at once, or start the server with a larger --max-body.",
        ),
    )
    length = request.headers.get("content-length", "0")
    if length.isdigit() and int(length) > limit_bytes:
        raise too_large
    body = bytearray()
    with time_limit(_TIMEOUT_S) as limited:
        async for part in request.stream():
            body += part
            if len(body) > limit_bytes:
                raise too_large
    if limited.is_over:
        problem = describe_problem(f"the body did not arrive within {_TIMEOUT_S:g} s")
        raise Refusal(408, "slow", problem)
    return bytes(body)
