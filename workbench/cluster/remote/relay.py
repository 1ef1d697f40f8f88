"""Run a command as a job of a cluster for a remote client.

It is called as `python -m workbench.cluster.remote.relay -- COMMAND ...`.

The output of the command is written as marked lines. With `--bring`, the result in `PLACE` follows.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import IO

from workbench.cluster.remote.code_archive import MAX_BYTES, pack
from workbench.cluster.remote.job_package import MODULES_FOLDER
from workbench.cluster.remote.relayed_commands import PLACE, Stream, write_line, write_pieces
from workbench.foundation.formatting import format_bytes

_WRITING = threading.Lock()


def main(arguments: Sequence[str]) -> int:
    """Run a command and relay its output.

    Args:
        arguments: Optionally `--bring`, then `--` and the command.

    Returns:
        The exit code of the command.
    """
    options, words = arguments[: arguments.index("--")], arguments[arguments.index("--") + 1 :]
    # Ray also signals the command. The output that it writes while it ends is still relayed.
    signal.signal(signal.SIGTERM, lambda *_: None)
    if "--bring" not in options:
        return _run(words, Path.cwd())
    with tempfile.TemporaryDirectory(prefix="workbench-") as name:
        folder = Path(name).resolve()
        (folder / PLACE).parent.mkdir()
        code = _run(words, folder)
        if code == 0:
            code = _bring(folder)
        return code


def _run(words: Sequence[str], folder: Path) -> int:
    _write(write_line("place", str(folder / PLACE)))
    modules = Path(MODULES_FOLDER).absolute()
    paths = [*([str(modules)] if modules.is_dir() else []), os.environ.get("PYTHONPATH", "")]
    command = subprocess.Popen(
        [sys.executable, "-m", "workbench", *words],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        encoding="utf-8",
        errors="replace",
        cwd=folder,
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join(filter(None, paths)),
            "PYTHONIOENCODING": "utf-8",
        },
    )
    assert command.stdout is not None
    assert command.stderr is not None
    errors = threading.Thread(target=_relay, args=("stderr", command.stderr))
    errors.start()
    _relay("stdout", command.stdout)
    errors.join()
    return command.wait()


def _relay(stream: Stream, pipe: IO[str]) -> None:
    for line in pipe:
        _write(write_line(stream, line.removesuffix("\n")))


def _bring(folder: Path) -> int:
    place = (folder / PLACE).parent
    size_bytes = sum(path.stat().st_size for path in place.rglob("*") if path.is_file())
    if size_bytes > MAX_BYTES:
        refusal = (
            f"error: the result has {format_bytes(size_bytes)}, but at most"
            f" {format_bytes(MAX_BYTES)} can be transferred. Export it without weights, or on the"
            " cluster to a disk that both machines share."
        )
        _write(write_line("stderr", refusal))
        return 1
    for line in write_pieces(pack(place, whole=True).content):
        _write(line)
    return 0


def _write(line: str) -> None:
    with _WRITING:
        print(line, flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
