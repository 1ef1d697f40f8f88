"""Front ends without a browser: they show a run, take every frame at once and count the bytes.

`python -m tests.benchmarks.live_clients SERVER TOKEN RUN CLIENTS SECONDS`.
"""

from __future__ import annotations

import asyncio
import json
import struct
import sys

from tornado.websocket import websocket_connect

LOOK = {"runs": {"limit": 100}, "chart": {}, "table": {"limit": 40}, "log_after": 0}


async def show(url: str, run_id: str, until_s: float) -> int:
    """Show a run as the page does, and return how many bytes came."""
    loop = asyncio.get_running_loop()
    connection = await websocket_connect(url, max_message_size=1 << 28)
    await connection.write_message(
        json.dumps({"type": "subscribe", "number": 1, "subscription": {**LOOK, "run": run_id}})
    )
    num_bytes = 0
    while (left_s := until_s - loop.time()) > 0:
        try:
            frame = await asyncio.wait_for(connection.read_message(), left_s)
        except TimeoutError:
            break
        assert isinstance(frame, bytes), "the server has closed the connection"
        num_bytes += len(frame)
        (length,) = struct.unpack_from("<I", frame)
        number = json.loads(frame[4 : 4 + length])["frame"]
        await connection.write_message(json.dumps({"type": "acknowledge", "frame": number}))
    connection.close()
    return num_bytes


async def show_many(
    server: str, token: str, run_id: str, num_clients: int, for_s: float
) -> list[int]:
    """Show a run in so many front ends at once."""
    url = f"{server.replace('http', 'ws', 1)}workbench/api/live?token={token}"
    until_s = asyncio.get_running_loop().time() + for_s
    print("ready", flush=True)
    return await asyncio.gather(*(show(url, run_id, until_s) for _ in range(num_clients)))


if __name__ == "__main__":
    address, secret, run, clients, seconds = sys.argv[1:]
    print(json.dumps(asyncio.run(show_many(address, secret, run, int(clients), float(seconds)))))
