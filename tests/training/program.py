"""A program that behaves as its first argument states; the tests of programs start it."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path


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


def main(kind: str, *arguments: str) -> None:
    folder = Path(os.environ["WORKBENCH_FOLDER"])
    match kind:
        case "good":
            for step in range(1, 4):
                say(f"epoch={step} loss={float(arguments[0]) / step} - acc: {90 + step}%")
        case "attaches":
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
        case "silent":
            (folder / "started").touch()
            time.sleep(600)
        case "stubborn":
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            say("loss=1")
            time.sleep(600)
        case "forks":
            say("loss=1")
            for number in range(2):
                fork_away(folder, number=number)
            while len(list(folder.glob("left-*"))) < 2:
                time.sleep(0.01)
            if arguments[0] == "stay":
                say("loss=0.5")
                time.sleep(600)
        case "nan":
            say("loss=0.5")
            say("loss=nan")
            time.sleep(600)
        case "fails":
            say("loss=0.5")
            raise ValueError("boom")
        case "half":
            say('{"loss": 0.5, "epoch": 1}')
            sys.stdout.write('{"loss": 0.2')
        case "other":
            say("Epoch: 1 Loss: 0.5")
            say("that was it")
        case "long":
            sys.stdout.buffer.write(b"x" * 100_000 + b"\n" + os.urandom(1000) + b"\nloss=0.5\n")
        case "many":
            for step in range(1, 3001):
                sys.stdout.write(f"\rloss={1 / step}")
        case "environment":
            found = {
                name: text for name, text in os.environ.items() if name.startswith("WORKBENCH_")
            }
            found["config"] = json.loads(Path(os.environ["WORKBENCH_CONFIG"]).read_text())
            say(json.dumps({"loss": 1, "found": found, "arguments": arguments}))
        case "configured":
            import yaml

            found = yaml.safe_load(Path(os.environ["WANDB_SWEEP_PARAM_PATH"]).read_text())
            (folder / "found").write_text(json.dumps(found))
        case "reports":
            import workbench

            workbench.report(epoch=2, loss=0.5)
            print("loss=0.25", file=sys.stderr)
        case "resumes":
            done = folder / "done"
            first = int(done.read_text()) + 1 if "--resume" in arguments else 1
            for step in range(first, 5):
                done.write_text(str(step))
                say(f"step={step} loss={1 / step}")
                if step == 2 and first == 1:
                    os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    main(*sys.argv[1:])
