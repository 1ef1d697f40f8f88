"""A link between two network devices on which every frame takes a while: `OUTSIDE INSIDE DELAY_S`.

Makes both devices, and carries frames between them until it is ended. Needs Linux and root; kernels
are often built without a queue that delays.
"""

from __future__ import annotations

import fcntl
import os
import select
import struct
import sys
import time
from collections import deque

_TUNSETIFF = 0x400454CA
_TAP_WITHOUT_HEADER = 0x0002 | 0x1000
_LARGEST_FRAME_BYTES = 65536
_MAX_AT_ONCE = 64


def make_device(name: str) -> int:
    """Make a device that hands its frames to this process."""
    device = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(device, _TUNSETIFF, struct.pack("16sH22x", name.encode(), _TAP_WITHOUT_HEADER))
    return device


def carry(outside: int, inside: int, delay_s: float) -> None:
    """Carry frames in both directions for ever; each leaves `delay_s` after it came."""
    other = {outside: inside, inside: outside}
    under_way: deque[tuple[float, int, bytes]] = deque()
    while True:
        wait_s = max(0.0, under_way[0][0] - time.monotonic()) if under_way else None
        for device in select.select(list(other), [], [], wait_s)[0]:
            for _ in range(_MAX_AT_ONCE):
                try:
                    frame = os.read(device, _LARGEST_FRAME_BYTES)
                except BlockingIOError:
                    break
                under_way.append((time.monotonic() + delay_s, other[device], frame))
        while under_way and under_way[0][0] <= time.monotonic():
            _, device, frame = under_way.popleft()
            try:
                os.write(device, frame)
            except OSError:  # the device is down: what was on the link is lost
                continue


if __name__ == "__main__":
    names, delay_s = sys.argv[1:3], float(sys.argv[3])
    outside, inside = (make_device(name) for name in names)
    print("ready", flush=True)
    carry(outside, inside, delay_s)
