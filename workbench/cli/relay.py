"""`python -m workbench.cli.relay -- COMMAND ...`: a command as a job of a cluster, for somebody elsewhere.

What the command writes goes out in marked lines; with `--bring`, what it left in `PLACE` follows.
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

from workbench.advisor.quantities import format_bytes
from workbench.run.parcel import MODULES_FOLDER
from workbench.run.relayed import PLACE, Stream, write_line, write_pieces
from workbench.workers.code_archive import MOST_BYTES, pack

_WRITING = threading.Lock()


def main(arguments: Sequence[str]) -> int:
    """Run a command and pass on what it says.

    Args:
        arguments: `--bring` or not, `--`, the command.

    Returns:
        The exit code of the command.
    """
    options, words = arguments[: arguments.index("--")], arguments[arguments.index("--") + 1 :]
    # Ray tells the command as well; what it still says on being ended is to be passed on.
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
        [sys.executable, "-m", "workbench.cli", *words], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, text=True, encoding="utf-8", errors="replace", cwd=folder,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths)), "PYTHONIOENCODING": "utf-8"},
    )  # fmt: skip
    assert command.stdout is not None
    assert command.stderr is not None
    other = threading.Thread(target=_pass_on, args=("stderr", command.stderr))
    other.start()
    _pass_on("stdout", command.stdout)
    other.join()
    return command.wait()


def _pass_on(stream: Stream, pipe: IO[str]) -> None:
    for line in pipe:
        _write(write_line(stream, line.removesuffix("\n")))


def _bring(folder: Path) -> int:
    place = (folder / PLACE).parent
    size_bytes = sum(path.stat().st_size for path in place.rglob("*") if path.is_file())
    if size_bytes > MOST_BYTES:
        _write(write_line("stderr", (
            f"error: the result has {format_bytes(size_bytes)}, and {format_bytes(MOST_BYTES)} can be "
            "brought. Take it along without weights, or export it there, to a disk that both can reach."
        )))  # fmt: skip
        return 1
    for line in write_pieces(pack(place, whole=True).content):
        _write(line)
    return 0


def _write(line: str) -> None:
    with _WRITING:
        print(line, flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
