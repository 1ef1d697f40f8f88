"""Frames that tiers exchange: a fixed header, then one tensor as raw bytes.

Nothing is ever unpickled.

The header names everything that is needed to read the tensor, so a frame is rejected before its
payload is read if it is malformed or too large. Who may send one is left to `transport`, what is
done with it to `tier`.
"""

from __future__ import annotations

import asyncio
import enum
import math
import struct
import sys
from dataclasses import dataclass, field

import numpy as np

MAGIC = b"WBTF"
VERSION = 2
MAX_DIMS = 6
MAX_PAYLOAD_BYTES = 16 * 2**20
"""The largest tensor that is accepted unless another limit is given."""

# magic, version, kind, dtype, number of dimensions, request, sender, stage, shape, scale, zero,
# payload bytes
_HEADER = struct.Struct(f"<4sBBBBQHBx{MAX_DIMS}IffI")
HEADER_BYTES = _HEADER.size
_DTYPES = tuple(
    np.dtype(name) for name in ("<f4", "|u1", "|i1", "<f2", "<f8", "<i4", "<i8", "|b1", "<u2")
)  # the place of a type in this list is its code on the wire
_CODES = {dtype: code for code, dtype in enumerate(_DTYPES)}


def _nothing() -> np.ndarray:
    return np.zeros(0, dtype=np.float32)


class FrameError(Exception):
    """A frame that is rejected.

    Attributes:
        reason: `malformed` or `too_large`, under which it is counted.
    """

    def __init__(self, problem: str, reason: str = "malformed") -> None:
        super().__init__(problem)
        self.reason = reason


class Kind(enum.IntEnum):
    """The kind of a frame."""

    REQUEST = 1
    """A sample, or features of one, to be answered."""
    ANSWER = 2
    """The probabilities of the classes."""
    FAILURE = 3
    """The request is not answered here: the queue is full, or the model cannot compute it."""
    HEARTBEAT = 4
    """Whether the receiver is alive."""
    ALIVE = 5
    """The answer to a heartbeat. Its tensor is the load of the tier."""
    FALLBACK = 6
    """The probabilities of the classes, by a tier that would have sent the request further."""
    EARLY = 7
    """The probabilities of groups of classes. The answer follows."""


@dataclass(frozen=True, eq=False)
class Frame:
    """A frame.

    Attributes:
        kind: The kind of the frame.
        request: The number of the request, which its answer repeats.
        tensor: The values. The sample is not a separate dimension.
        sender: For a request, the number of the device. For an answer, the number of the tier.
        stage: For a request, the stage that uses the tensor. For an answer, the stage of the exit.
        scale: The factor of quantised values.
        zero: What is then added to them.
    """

    kind: Kind
    request: int = 0
    tensor: np.ndarray = field(default_factory=_nothing)
    sender: int = 0
    stage: int = 0
    scale: float = 1.0
    zero: float = 0.0


@dataclass(frozen=True)
class Header:
    """A checked header, with the fields of `Frame`."""

    kind: Kind
    request: int
    sender: int
    stage: int
    dtype: np.dtype
    shape: tuple[int, ...]
    scale: float
    zero: float
    num_bytes: int


def encode(frame: Frame) -> bytes:
    """Return a frame as bytes.

    Args:
        frame: The frame. Its tensor has at most six dimensions.

    Raises:
        ValueError: If its tensor or one of its numbers has no place in a frame.

    Example:
        >>> import numpy as np
        >>> sent = encode(Frame(Kind.ANSWER, 7, np.array([0.25, 0.75], dtype=np.float32)))
        >>> decode(sent).tensor
        array([0.25, 0.75], dtype=float32)
    """
    tensor = np.asarray(frame.tensor)
    code = _CODES.get(tensor.dtype.newbyteorder("<"))
    if code is None:
        raise ValueError(f"a tensor of {tensor.dtype} cannot be sent")
    if tensor.ndim > MAX_DIMS:
        raise ValueError(
            f"a tensor with {tensor.ndim} dimensions cannot be sent: the limit is {MAX_DIMS}"
        )
    payload = np.ascontiguousarray(tensor, dtype=_DTYPES[code]).tobytes()
    shape = (*tensor.shape, *(0,) * (MAX_DIMS - tensor.ndim))
    try:
        header = _HEADER.pack(
            MAGIC,
            VERSION,
            frame.kind,
            code,
            tensor.ndim,
            frame.request,
            frame.sender,
            frame.stage,
            *shape,
            frame.scale,
            frame.zero,
            len(payload),
        )
    except (struct.error, OverflowError) as error:
        raise ValueError(f"a number of the frame is out of its range: {error}") from error
    return header + payload


def decode_header(content: bytes, *, max_bytes: int = MAX_PAYLOAD_BYTES) -> Header:
    """Check the header of a frame.

    Args:
        content: Its first bytes, `HEADER_BYTES` of them.
        max_bytes: How large the tensor may be.

    Raises:
        FrameError: If it is not a header of this version, contradicts itself, or the tensor is too
            large.
    """
    if len(content) != HEADER_BYTES:
        raise FrameError(f"a header has {HEADER_BYTES} bytes, not {len(content)}")
    magic, version, kind, code, num_dims, request, sender, stage, *rest = _HEADER.unpack(content)
    dims, (scale, zero, num_bytes) = rest[:MAX_DIMS], rest[MAX_DIMS:]
    if magic != MAGIC:
        raise FrameError("this is not a frame of this protocol")
    if version != VERSION:
        raise FrameError(f"the frame has version {version}, and this tier speaks version {VERSION}")
    if kind not in Kind.__members__.values() or code >= len(_DTYPES) or num_dims > MAX_DIMS:
        raise FrameError(f"an unknown frame: kind {kind}, type {code}, {num_dims} dimensions")
    # Lengths of dimensions that there are not must be 0, so that a frame has one form only.
    if any(dims[num_dims:]) or not (math.isfinite(scale) and math.isfinite(zero)):
        raise FrameError("the header contradicts itself")
    if num_bytes > max_bytes:
        raise FrameError(
            f"the tensor has {num_bytes} bytes, but the limit is {max_bytes}", "too_large"
        )
    dtype, shape = _DTYPES[code], tuple(dims[:num_dims])
    # Before anything is allocated: the header comes from the network.
    # NumPy multiplies the other dimensions even if one is 0, and their product may be no length.
    is_too_large = math.prod(dim or 1 for dim in shape) * dtype.itemsize > sys.maxsize
    if is_too_large or math.prod(shape) * dtype.itemsize != num_bytes:
        raise FrameError(f"{num_bytes} bytes for a tensor of shape {shape} and type {dtype}")
    return Header(
        kind=Kind(kind),
        request=request,
        sender=sender,
        stage=stage,
        dtype=dtype,
        shape=shape,
        scale=scale,
        zero=zero,
        num_bytes=num_bytes,
    )


def decode(content: bytes, *, max_bytes: int = MAX_PAYLOAD_BYTES) -> Frame:
    """Return the frame that bytes hold, and nothing but it.

    Args:
        content: Header and payload.
        max_bytes: How large the tensor may be.

    Raises:
        FrameError: If they are anything else.
    """
    header = decode_header(content[:HEADER_BYTES], max_bytes=max_bytes)
    if len(content) - HEADER_BYTES != header.num_bytes:
        raise FrameError(
            f"the payload has {len(content) - HEADER_BYTES} bytes instead of {header.num_bytes}"
        )
    return _frame(header, content[HEADER_BYTES:])


async def read_frame(reader: asyncio.StreamReader, *, max_bytes: int = MAX_PAYLOAD_BYTES) -> Frame:
    """Read the next frame of a connection.

    Args:
        reader: The connection. After an error its position in the stream is unknown, so it must be
            closed.
        max_bytes: How large the tensor may be: of a larger one only the header is read.

    Raises:
        FrameError: If the frame is rejected.
        asyncio.IncompleteReadError: If the connection ends. `partial` is empty if it ends between
            frames.
    """
    header = decode_header(await reader.readexactly(HEADER_BYTES), max_bytes=max_bytes)
    try:
        return _frame(header, await reader.readexactly(header.num_bytes))
    except (
        asyncio.IncompleteReadError
    ) as error:  # an empty payload must not look like an orderly end
        raise asyncio.IncompleteReadError(
            b"\0" * HEADER_BYTES + error.partial, error.expected
        ) from error


def _frame(header: Header, payload: bytes) -> Frame:
    tensor = np.frombuffer(payload, dtype=header.dtype).reshape(header.shape)
    return Frame(
        kind=header.kind,
        request=header.request,
        tensor=tensor,
        sender=header.sender,
        stage=header.stage,
        scale=header.scale,
        zero=header.zero,
    )
