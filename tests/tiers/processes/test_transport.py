from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import stat
from collections.abc import AsyncIterator
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.services.recorded_link import recorded_link
from workbench.tiers.processes.certificates import Authority
from workbench.tiers.processes.frames import Frame, Kind, encode
from workbench.tiers.processes.transport import Connection, Identity, Listener, bind, connect

SECRET = np.frombuffer(b"the patient of room 7 " * 20, dtype=np.uint8)
AUTHORITY = Authority.create()
"""One for all tests of the file: making keys is not what they are about."""


def identity(folder: Path, name: str, authority: Authority = AUTHORITY, **times: Any) -> Identity:
    authority.issue(name, folder, **times)
    return Identity.in_folder(folder, name)


async def echo(connection: Connection) -> None:
    while True:
        connection.send(await connection.receive())
        await connection.drain()


@contextlib.asynccontextmanager
async def serving(known: Identity | None, **options: int) -> AsyncIterator[tuple[Listener, int]]:
    listener, bound = (
        Listener(echo, identity=known, accepts={"end"}, **options),
        bind("127.0.0.1", 0),
    )
    task = asyncio.create_task(listener.listen(bound))
    await asyncio.sleep(0)
    try:
        yield listener, bound.getsockname()[1]
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
        bound.close()


async def until(listener: Listener, reason: str, number: int = 1) -> None:
    while listener.refused[reason] < number:
        await asyncio.sleep(0.005)


async def exchange(port: int, known: Identity | None, frame: Frame, name: str = "cloud") -> Frame:
    connection = await connect("127.0.0.1", port, identity=known, name=name)
    try:
        connection.send(frame)
        return await connection.receive()
    finally:
        connection.close()


def test_tiers_of_one_authority_exchange_frames(tmp_path: Path) -> None:
    async def main() -> None:
        async with serving(identity(tmp_path, "cloud")) as (listener, port):
            answer = await exchange(port, identity(tmp_path, "end"), Frame(Kind.REQUEST, 5, SECRET))
            assert answer.request == 5
            assert (answer.tensor == SECRET).all()
            assert not listener.refused

    asyncio.run(main())


def test_only_the_owner_can_read_a_key(tmp_path: Path) -> None:
    known = identity(tmp_path, "end")
    assert stat.S_IMODE(known.key.stat().st_mode) == 0o600
    assert b"PRIVATE" not in b"".join(path.read_bytes() for path in tmp_path.glob("*.pem"))


def outsiders(folder: Path) -> dict[str, tuple[Identity, str]]:
    """Certificates that must not get in, each with the reason under which it is counted."""
    past = datetime.now(timezone.utc) - timedelta(days=3)
    old = Authority(AUTHORITY.certificate, AUTHORITY.key)
    made = {}
    foreign = identity(folder / "foreign", "end", Authority.create())
    mixed = Identity(foreign.certificate, foreign.key, identity(folder, "other").authority)
    made["foreign"] = mixed, "certificate"
    old.issue("end", folder / "old", now=past, valid_s=3600)
    made["expired"] = Identity.in_folder(folder / "old", "end"), "certificate"
    old.issue("end", folder / "future", now=datetime.now(timezone.utc) + timedelta(hours=2))
    made["not yet valid"] = Identity.in_folder(folder / "future", "end"), "certificate"
    made["of another tier"] = identity(folder / "sibling", "stranger"), "tier"
    return made


@pytest.mark.parametrize("kind", ["foreign", "expired", "not yet valid", "of another tier"])
def test_a_wrong_certificate_is_refused_and_counted(tmp_path: Path, kind: str) -> None:
    known, reason = outsiders(tmp_path)[kind]

    async def main() -> None:
        async with serving(identity(tmp_path, "cloud")) as (listener, port):
            with pytest.raises((OSError, asyncio.IncompleteReadError)):
                await exchange(port, known, Frame(Kind.REQUEST, 1, SECRET))
            await asyncio.wait_for(until(listener, reason), 120)
            assert dict(listener.refused) == {reason: 1}

    asyncio.run(main())


@pytest.mark.parametrize("kind", ["foreign", "expired", "of another tier"])
def test_a_server_with_a_wrong_certificate_gets_nothing(tmp_path: Path, kind: str) -> None:
    known, _ = outsiders(tmp_path)[kind]

    async def main() -> None:
        async with serving(known) as (_, port):
            with pytest.raises(ssl.SSLError):
                await exchange(
                    port, identity(tmp_path, "end"), Frame(Kind.REQUEST, 1, SECRET), "cloud"
                )

    asyncio.run(main())


def test_without_a_certificate_or_with_an_older_tls_nobody_gets_in(tmp_path: Path) -> None:
    async def main() -> None:
        known = identity(tmp_path, "end")
        async with serving(identity(tmp_path, "cloud")) as (listener, port):
            with pytest.raises((OSError, asyncio.IncompleteReadError)):
                await exchange(port, None, Frame(Kind.REQUEST, 1, SECRET))
            await asyncio.wait_for(until(listener, "handshake"), 120)
            nameless = ssl.create_default_context(cafile=str(known.authority))
            reader, _ = await asyncio.open_connection(
                "127.0.0.1", port, ssl=nameless, server_hostname="cloud"
            )
            with pytest.raises((OSError, asyncio.IncompleteReadError)):
                await reader.readexactly(1)
            await asyncio.wait_for(until(listener, "certificate"), 120)
            older = known.context(is_server=False)
            older.minimum_version = older.maximum_version = ssl.TLSVersion.TLSv1_2
            with pytest.raises(OSError):  # noqa: PT011 - which one depends on who closes first
                await asyncio.open_connection("127.0.0.1", port, ssl=older, server_hostname="cloud")
            await asyncio.wait_for(until(listener, "handshake", 2), 120)
            assert dict(listener.refused) == {"handshake": 2, "certificate": 1}

    asyncio.run(main())


@pytest.mark.parametrize("is_encrypted", [True, False])
def test_captured_traffic_holds_no_plaintext(tmp_path: Path, is_encrypted: bool) -> None:
    async def main() -> None:
        server = identity(tmp_path, "cloud") if is_encrypted else None
        client = identity(tmp_path, "end") if is_encrypted else None
        async with serving(server) as (_, port), recorded_link(port) as link:
            frame = Frame(Kind.REQUEST, 1, SECRET)
            assert (await exchange(link.port, client, frame)).request == 1
            captured = bytes(link.captured)
            assert len(captured) > 2 * SECRET.nbytes
            # Without TLS the capture holds it, so looking for it proves something.
            assert (b"the patient" in captured) is not is_encrypted
            assert (encode(frame)[:8] in captured) is not is_encrypted

    asyncio.run(main())


def test_a_frame_that_is_changed_on_its_way_is_refused_and_counted(tmp_path: Path) -> None:
    async def main() -> None:
        client = identity(tmp_path, "end")
        async with (
            serving(identity(tmp_path, "cloud")) as (listener, port),
            recorded_link(port) as link,
        ):
            connection = await connect("127.0.0.1", link.port, identity=client, name="cloud")
            connection.send(Frame(Kind.REQUEST, 1, SECRET))
            assert (await connection.receive()).request == 1
            link.change = lambda piece: piece[:100] + bytes([piece[100] ^ 1]) + piece[101:]
            connection.send(Frame(Kind.REQUEST, 2, SECRET))
            with pytest.raises((OSError, asyncio.IncompleteReadError)):
                await connection.receive()
            assert dict(listener.refused) == {"tampered": 1}
            assert (await exchange(link.port, client, Frame(Kind.REQUEST, 3, SECRET))).request == 3

    asyncio.run(main())


def test_frames_that_are_malformed_too_large_or_cut_are_refused_and_counted() -> None:
    good = encode(Frame(Kind.REQUEST, 1, SECRET))

    def send(port: int, sent: bytes) -> bytes:
        with socket.create_connection(("127.0.0.1", port), timeout=120) as connected:
            connected.sendall(sent)
            connected.shutdown(socket.SHUT_WR)
            with contextlib.suppress(ConnectionResetError):
                return connected.recv(10)
        return b""

    async def main() -> None:
        async with serving(None, max_bytes=SECRET.nbytes) as (listener, port):
            large = encode(Frame(Kind.REQUEST, 1, np.zeros(SECRET.nbytes + 1, dtype=np.uint8)))
            wrong = {"malformed": b"GET / HTTP/1.1\r\n" * 10, "too_large": large, "cut": good[:-1]}
            for reason, sent in wrong.items():
                assert await asyncio.to_thread(send, port, sent) == b""
                await asyncio.wait_for(until(listener, reason), 120)
            assert dict(listener.refused) == dict.fromkeys(wrong, 1)
            assert (await exchange(port, None, Frame(Kind.REQUEST, 9, SECRET))).request == 9

    asyncio.run(main())
