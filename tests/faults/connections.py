"""Connections that ask for nothing.

`python -m tests.faults connections` opens 4,300 to a real server.

They send nothing, a part of the headers, one byte now and then, a request without a token and no
body, or one request and then nothing. They come from one address, from a few or from many.
Meanwhile clients at another address, and at one of theirs, predict: every answer must come, and be
right. The token of the server may stand in none of its output.
"""

from __future__ import annotations

import argparse
import asyncio
import collections
import contextlib
import random
import resource
import sys
import tempfile
import time
from pathlib import Path

from tests.services.served import Connection, Server, body_of, write_array_bundle

NUM_HELD = 4300
NUM_ASKED = 40
PATIENCE_S = 120.0
HIGH = body_of({"inputs": [1, 2, 3, 4]})
PARTS = {
    "nothing": b"",
    "a part of the headers": b"POST /v1/sum/predict HTTP/1.1\r\nHost: localhost\r\nX-A",
    "one byte now and then": b"POST",
    "no token and no body": (
        b"POST /v1/sum/predict HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99\r\n\r\n"
    ),
    "one request": b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n",
}


async def hold(
    server: Server, kind: str, peers: list[str], held: list[asyncio.StreamWriter]
) -> None:
    """Open connections, and keep those that send a byte now and then busy."""
    host, port = server.url.removeprefix("http://").split(":")
    for number in range(NUM_HELD):
        with contextlib.suppress(OSError):
            address = (peers[number % len(peers)], 0)
            _, writer = await asyncio.open_connection(host, int(port), local_addr=address)
            writer.write(PARTS[kind])
            held.append(writer)
    while kind == "one byte now and then":
        await asyncio.sleep(1.0)
        for writer in held:
            with contextlib.suppress(OSError):
                writer.write(b"T")


async def ask(server: Server, peer: str, ends: collections.Counter[str]) -> float:
    """Predict again and again from an address, each time on a new connection.

    Return the longest wait.
    """
    longest_s = 0.0
    for _ in range(NUM_ASKED):
        connection = Connection(server, peer=peer)
        began_s = time.monotonic()
        try:
            status, _, answer = await asyncio.wait_for(
                connection.post("/v1/sum/predict", HIGH), PATIENCE_S
            )
            is_right = status == 200 and b'"high"' in answer
            ends["answered" if is_right else f"answered {status}: {answer[:60]!r}"] += 1
        except (OSError, asyncio.TimeoutError) as error:
            ends[f"{type(error).__name__} at {peer}"] += 1
        longest_s = max(longest_s, time.monotonic() - began_s)
        connection.close()
        await asyncio.sleep(0.05)
    return longest_s


async def attack(
    server: Server, kind: str, peers: list[str], ends: collections.Counter[str]
) -> float:
    """Hold connections, and ask meanwhile and afterwards."""
    held: list[asyncio.StreamWriter] = []
    holding = asyncio.create_task(hold(server, kind, peers, held))
    longest_s = 0.0
    while True:
        is_last = len(held) == NUM_HELD or holding.done()
        asked = await asyncio.gather(ask(server, "127.0.0.9", ends), ask(server, peers[0], ends))
        longest_s = max(longest_s, *asked)
        if is_last:
            break
    holding.cancel()
    for writer in held:
        writer.close()
    return longest_s


def main(words: list[str]) -> int:
    """Run the campaign and return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.faults connections", description=__doc__)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args(words)
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    is_right = True
    with tempfile.TemporaryDirectory(prefix="workbench-connections-") as name:
        folder = Path(name)
        write_array_bundle(folder / "sum")
        server = Server(folder, folder / "sum")
        try:
            for number in range(given.rounds):
                chance = random.Random(f"{given.seed}/{number}")
                kind = list(PARTS)[number % len(PARTS)]
                peers = [f"127.0.0.{10 + peer}" for peer in range(chance.choice((1, 4, 100)))]
                ends: collections.Counter[str] = collections.Counter()
                longest_s = asyncio.run(attack(server, kind, peers, ends))
                is_right = is_right and set(ends) == {"answered"}
                print(
                    f"{kind}, {len(peers)} addresses: {dict(ends)}, at most {longest_s:.2f} s",
                    flush=True,
                )
            is_right = is_right and server.token not in server.log.read_text()
        finally:
            server.close()
    return 0 if is_right else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
