from __future__ import annotations

import asyncio
import pickle
import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from workbench.tiers.processes.frames import (
    HEADER_BYTES,
    Frame,
    FrameError,
    Kind,
    decode,
    encode,
    read_frame,
)

DTYPES = ("float32", "uint8", "int8", "float16", "float64", "int32", "int64", "bool", ">f4", ">i8")
tensors = st.sampled_from(DTYPES).flatmap(
    lambda dtype: arrays.arrays(
        dtype, arrays.array_shapes(min_dims=0, max_dims=6, min_side=0, max_side=4)
    )
)
frames = st.builds(
    Frame,
    kind=st.sampled_from(Kind),
    request=st.integers(0, 2**64 - 1),
    tensor=tensors,
    sender=st.integers(0, 2**16 - 1),
    stage=st.integers(0, 255),
    scale=st.floats(width=32, allow_nan=False, allow_infinity=False),
    zero=st.floats(width=32, allow_nan=False, allow_infinity=False),
)


async def read(sent: bytes, **limits: int) -> Frame:
    reader = asyncio.StreamReader()
    reader.feed_data(sent)
    reader.feed_eof()
    return await read_frame(reader, **limits)


def same(one: Frame, other: Frame) -> bool:
    values = ("kind", "request", "sender", "stage", "scale", "zero")
    return (
        all(getattr(one, name) == getattr(other, name) for name in values)
        and one.tensor.shape == other.tensor.shape
        and one.tensor.dtype.newbyteorder("<") == other.tensor.dtype.newbyteorder("<")
        and one.tensor.astype(one.tensor.dtype.newbyteorder("=")).tobytes()
        == other.tensor.astype(other.tensor.dtype.newbyteorder("=")).tobytes()
    )


@given(frames)
def test_a_frame_arrives_as_it_was_sent(frame: Frame) -> None:
    sent = encode(frame)
    assert len(sent) == HEADER_BYTES + frame.tensor.nbytes
    assert same(decode(sent), frame)
    assert same(asyncio.run(read(sent)), frame)


@given(st.binary(max_size=400))
def test_arbitrary_bytes_are_refused_and_raise_nothing_else(found: bytes) -> None:
    with pytest.raises(FrameError):
        decode(found)


@given(frames, st.data())
def test_a_frame_with_changed_bytes_is_refused_or_a_frame_of_the_same_size(
    frame: Frame, data: st.DataObject
) -> None:
    sent = bytearray(encode(frame))
    for place in data.draw(st.lists(st.integers(0, HEADER_BYTES - 1), min_size=1, max_size=4)):
        sent[place] ^= data.draw(st.integers(1, 255))
    try:
        decoded = decode(bytes(sent))
    except FrameError:
        return
    assert decoded.tensor.nbytes == len(sent) - HEADER_BYTES


@given(frames, st.integers(0, HEADER_BYTES + 40))
def test_a_frame_that_is_cut_is_never_read(frame: Frame, length: int) -> None:
    sent = encode(frame)
    if length >= len(sent):
        return
    with pytest.raises(FrameError):
        decode(sent[:length])
    with pytest.raises(asyncio.IncompleteReadError) as ended:
        asyncio.run(read(sent[:length]))
    assert bool(ended.value.partial) == (length > 0)


def test_an_empty_tensor_with_lengths_that_no_array_has_is_refused() -> None:
    sent = encode(Frame(Kind.REQUEST, 1, np.zeros((0, 3, 3, 3, 3, 3), dtype=np.float32)))
    assert decode(sent).tensor.shape == (0, 3, 3, 3, 3, 3)
    length = struct.pack("<I", 3)
    huge = sent.replace(length * 5, struct.pack("<I", 2**31) * 5)
    assert huge != sent
    with pytest.raises(FrameError, match="0 bytes for a tensor of shape"):
        decode(huge)


def test_a_frame_that_is_too_large_is_refused_before_its_payload_is_read() -> None:
    header = encode(Frame(Kind.REQUEST, 1, np.zeros(100, dtype=np.uint8)))[:HEADER_BYTES]
    with pytest.raises(FrameError, match="100 bytes, but the limit is 99") as refused:
        asyncio.run(read(header, max_bytes=99))
    assert refused.value.reason == "too_large"


def test_objects_and_texts_are_never_sent() -> None:
    for values in (np.array([{}], dtype=object), np.array(["text"])):
        with pytest.raises(ValueError, match="cannot be sent"):
            encode(Frame(Kind.REQUEST, 1, values))
    with pytest.raises(FrameError, match="not a frame"):
        decode(pickle.dumps(np.zeros(100)))
    with pytest.raises(ValueError, match="out of its range"):
        encode(Frame(Kind.REQUEST, -1))
