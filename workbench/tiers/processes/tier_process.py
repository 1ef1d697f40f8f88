"""The process of a tier: `python -m workbench.tiers.processes.tier_process SETTINGS`.

Prints one line of JSON when it listens. When SIGTERM or SIGINT ends it, it prints another, which
counts its work.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import selectors
import signal
import sys
from pathlib import Path

from workbench.tiers.processes.relay import end_with_input
from workbench.tiers.processes.tier import Tier
from workbench.tiers.processes.tier_settings import TierSettings, read_settings
from workbench.tiers.processes.transport import bind

_SWITCH_S = 1e-3
"""How long a thread may keep another waiting.

The default, 5 ms, is longer than most models compute.
"""


def main(words: list[str]) -> int:
    """Run a tier until it is ended.

    Args:
        words: The file of its settings.

    Returns:
        The exit code.
    """
    if len(words) != 1:
        print("usage: python -m workbench.tiers.processes.tier_process SETTINGS", file=sys.stderr)
        return 2
    sys.setswitchinterval(_SWITCH_S)
    # Unlike epoll, select waits for less than a millisecond, too.
    loop = asyncio.SelectorEventLoop(selectors.SelectSelector())
    asyncio.set_event_loop(loop)
    try:
        loop.run_until_complete(_run(read_settings(Path(words[0]))))
    finally:
        loop.close()
    return 0


async def _run(settings: TierSettings) -> None:
    bound = bind(settings.host, settings.port)
    tier = Tier(settings)
    loop = asyncio.get_running_loop()
    ended = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, ended.set)
    if settings.ends_with_input:
        end_with_input(loop, ended)
    work = [asyncio.ensure_future(tier.run()), asyncio.ensure_future(tier.listener.listen(bound))]
    await asyncio.sleep(0)
    print(json.dumps({"name": settings.name, "port": bound.getsockname()[1]}), flush=True)
    waiting = asyncio.ensure_future(ended.wait())
    try:
        await asyncio.wait({waiting, *work}, return_when=asyncio.FIRST_COMPLETED)
        for future in work:
            if future.done():
                future.result()  # raises what ended it
    finally:
        for future in (waiting, *work):
            future.cancel()
        await asyncio.gather(waiting, *work, return_exceptions=True)
        bound.close()
        with contextlib.suppress(BrokenPipeError):
            print(json.dumps({**tier.status(), "refused": dict(tier.listener.refused)}), flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
