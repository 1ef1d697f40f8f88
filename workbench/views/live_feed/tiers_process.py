"""The session of a file of tiers as a process.

`python -m workbench.views.live_feed.tiers_process FILE`.

Requests are lines of JSON on the standard input, messages are lines of JSON on the standard output.
It ends with its input. A server that shows tiers thus imports neither ONNX Runtime nor torch.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from pathlib import Path

from workbench.foundation.errors import WorkbenchError
from workbench.tiers.placement.tiers_file import read_tiers
from workbench.views.live_feed.tiers_picture import TiersMessage, TiersRun
from workbench.views.live_feed.tiers_session import TiersSession

_END_S = 10.0


def main(words: list[str]) -> int:
    """Serve the views of a file until the input ends.

    Args:
        words: The file.

    Returns:
        The exit code.
    """
    output = os.fdopen(os.dup(sys.stdout.fileno()), "w", encoding="utf-8")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # what libraries print is no message
    lock = threading.Lock()

    def send(message: TiersMessage) -> None:
        with lock:
            output.write(message.model_dump_json() + "\n")
            output.flush()

    path = Path(words[0])
    try:
        session = TiersSession(path, read_tiers(path), send)
    except WorkbenchError as error:
        problem = TiersRun(state="idle", problem=error.to_problem())
        for _ in sys.stdin:
            send(problem)
        return 0
    for line in sys.stdin:
        session.receive(json.loads(line))
    session.close()
    session.work.join(_END_S)  # its processes are ended with it
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
