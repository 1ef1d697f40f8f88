"""A program that behaves as its first argument states; the tests of programs start it."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any


def say(text: str) -> None:
    print(text, flush=True)


def fork_away(folder: Path, *, number: int) -> None:
    """Leave a process behind that is in another session, has another parent, and ignores
    SIGTERM.
    """
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            (folder / f"left-{number}").write_text(str(os.getpid()))
            time.sleep(600)
        os._exit(0)


def good(_folder: Path, scale: str, *_: str) -> None:
    for step in range(1, 4):
        say(f"epoch={step} loss={float(scale) / step} - acc: {90 + step}%")


def attaches(folder: Path, *_: str) -> None:
    import workbench as wb

    (folder / "dot.gif").write_bytes(b"GIF89a rest")
    for epoch in (1, 2):
        wb.report(
            epoch=epoch,
            loss=0.5 / epoch,
            image=folder / "dot.gif",
            sample=f"epoch {epoch} <b>",
            other=object(),
        )


def silent(folder: Path, *_: str) -> None:
    (folder / "started").touch()
    time.sleep(600)


def stubborn(_folder: Path, *_: str) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    say("loss=1")
    time.sleep(600)


def forks(folder: Path, ending: str, *_: str) -> None:
    say("loss=1")
    for number in range(2):
        fork_away(folder, number=number)
    while len(list(folder.glob("left-*"))) < 2:
        time.sleep(0.01)
    if ending == "stay":
        say("loss=0.5")
        time.sleep(600)


def nan(_folder: Path, *_: str) -> None:
    say("loss=0.5")
    say("loss=nan")
    time.sleep(600)


def fails(_folder: Path, *_: str) -> None:
    say("loss=0.5")
    raise ValueError("boom")


def half(_folder: Path, *_: str) -> None:
    say('{"loss": 0.5, "epoch": 1}')
    sys.stdout.write('{"loss": 0.2')


def other(_folder: Path, *_: str) -> None:
    say("Epoch: 1 Loss: 0.5")
    say("that was it")


def long(_folder: Path, *_: str) -> None:
    sys.stdout.buffer.write(b"x" * 100_000 + b"\n" + os.urandom(1000) + b"\nloss=0.5\n")


def many(_folder: Path, *_: str) -> None:
    for step in range(1, 3001):
        sys.stdout.write(f"\rloss={1 / step}")


def environment(_folder: Path, *arguments: str) -> None:
    seen: dict[str, Any] = {
        name: text for name, text in os.environ.items() if name.startswith("WORKBENCH_")
    }
    seen["config"] = json.loads(Path(os.environ["WORKBENCH_CONFIG"]).read_text())
    say(json.dumps({"loss": 1, "found": seen, "arguments": arguments}))


def configured(folder: Path, *_: str) -> None:
    import yaml

    settings = yaml.safe_load(Path(os.environ["WANDB_SWEEP_PARAM_PATH"]).read_text())
    (folder / "found").write_text(json.dumps(settings))


def reports(_folder: Path, *_: str) -> None:
    import workbench

    workbench.report(epoch=2, loss=0.5)
    print("loss=0.25", file=sys.stderr)


def resumes(folder: Path, *arguments: str) -> None:
    done = folder / "done"
    first = int(done.read_text()) + 1 if "--resume" in arguments else 1
    for step in range(first, 5):
        done.write_text(str(step))
        say(f"step={step} loss={1 / step}")
        if step == 2 and first == 1:
            os.kill(os.getpid(), signal.SIGKILL)


def saves(folder: Path, *arguments: str) -> None:
    """Count and save steps, from `--resume PATH`. Without it, be killed at the third."""
    path = arguments[arguments.index("--resume") + 1] if "--resume" in arguments else None
    first = int(Path(path).read_text()) + 1 if path else 1
    for step in range(first, 5):
        (folder / f"ckpt_{step + 8}.pt").write_text(str(step))
        (folder / "model.pt").write_text(str(step))
        say(f"step={step} loss={1 / step}")
        if step == 3 and path is None:
            (folder / "ckpt_99.pt").touch()  # as a program leaves it that is killed while it writes
            os.kill(os.getpid(), signal.SIGKILL)


KINDS: dict[str, Callable[..., None]] = {
    function.__name__: function
    for function in (
        good,
        attaches,
        silent,
        stubborn,
        forks,
        nan,
        fails,
        half,
        other,
        long,
        many,
        environment,
        configured,
        reports,
        resumes,
        saves,
    )
}


if __name__ == "__main__":
    KINDS[sys.argv[1]](Path(os.environ["WORKBENCH_FOLDER"]), *sys.argv[2:])
