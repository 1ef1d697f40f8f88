"""Times an exported model on the device where it will run: this machine, or another by ssh.

A small runner (`device_runner`) is copied to the device with the model and one input. The system's
ssh and scp are used, with your keys and settings. The card stores the result for each machine.
"""

from __future__ import annotations

import base64
import io
import json
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import numpy as np

from workbench.deploy.card import MODEL, Card, Timing, read_card
from workbench.deploy.feeds import feeds_of
from workbench.deploy.predictor import Predictor, open_session
from workbench.foundation.errors import ArgumentError, RunError
from workbench.store.history.failure_text import headline
from workbench.training.programs.last_error import last_error

HERE = "here"
_TIMEOUT_S = 300.0
_NO_SUCH_COMMAND, _OF_SSH = 127, 255
"""The exit statuses of a shell that cannot find a program, and of ssh without a connection."""
RUNNER = "runner.py"
_TIMER = Path(__file__).with_name("device_runner.py")


def measure(
    folder: Path,
    device: str = HERE,
    *,
    threads: int = 1,
    batch: int = 1,
    num_calls: int = 1000,
    python: str = "python3",
) -> Timing:
    """Time the model of a bundle on a device, and keep the result in the card.

    Args:
        folder: The bundle.
        device: `here`, or ssh://[USER@]HOST[:PORT].
        threads: Number of threads that compute a call.
        batch: Samples in a call.
        num_calls: Number of calls that are timed, at most for 20 seconds.
        python: The Python of the other machine, which has numpy and onnxruntime.

    Returns:
        What was measured. An earlier measurement of the same machine, threads and batch is
        replaced.

    Raises:
        ArgumentError: If the device is unknown.
        RunError: If the machine cannot be reached, or the model cannot be run there.
    """
    card = read_card(folder)
    measured = time_model(
        folder / MODEL,
        example_feeds(card, folder, batch),
        device,
        threads=threads,
        num_calls=num_calls,
        python=python,
    )
    measured.pop("mean_s")
    place = "" if device == HERE else f" ({device})"
    host, processor = measured.pop("host"), measured.pop("processor")
    timing = Timing(
        machine=f"{host}, {processor}, {measured.pop('num_cores')} cores{place}",
        measured_at=datetime.now(timezone.utc).isoformat(timespec="seconds"),
        **measured,
    )
    same = (timing.machine, timing.runtime, timing.threads, timing.batch)
    others = [
        known
        for known in card.timings
        if (known.machine, known.runtime, known.threads, known.batch) != same
    ]
    card.model_copy(update={"timings": (*others, timing)}).write(folder)
    return timing


def time_model(
    model: Path,
    feeds: Mapping[str, np.ndarray],
    device: str = HERE,
    *,
    threads: int,
    num_calls: int,
    python: str = "python3",
    base: Path | None = None,
    samples: np.ndarray | None = None,
) -> dict[str, Any]:
    """Return the runner's measurement of a graph on a device. Errors as in `measure`.

    Args:
        model: The graph.
        feeds: Its inputs.
        device: As in `measure`.
        threads: Number of threads that compute a call.
        num_calls: As in `measure`.
        python: As in `measure`.
        base: Another graph with the same single input. Both are also called in turn, and the result
            has the fields of a `Comparison` as `in_turn`.
        samples: Samples for a graph with a single input. The result has its answers as the array
            `answers`.
    """
    with tempfile.TemporaryDirectory() as beside:
        parcel = Path(beside) / "workbench-measure"
        parcel.mkdir()
        (parcel / MODEL).write_bytes(model.read_bytes())
        (parcel / RUNNER).write_bytes(_TIMER.read_bytes())
        if base is not None:
            (parcel / "base.onnx").write_bytes(base.read_bytes())
        np.savez(parcel / "feeds.npz", **feeds)  # type: ignore[arg-type]
        if samples is not None:
            np.save(parcel / "samples.npy", samples)
        measured = run_parcel(parcel, device, [str(threads), str(num_calls)], python=python)
    if samples is not None:
        measured["answers"] = np.load(
            io.BytesIO(base64.b64decode(measured["answers"])), allow_pickle=False
        )
    return measured


def run_parcel(
    parcel: Path, device: str, words: Sequence[str] = (), *, python: str = "python3"
) -> dict[str, Any]:
    """Run the runner of a folder on a device, to which the folder is copied.

    Args:
        parcel: The folder with `RUNNER`. Its path on the device is the first argument of the
            runner.
        device: `here`, or ssh://[USER@]HOST[:PORT].
        words: Further arguments.
        python: The Python of the other machine.

    Returns:
        The last line of its output, parsed as JSON.

    Raises:
        ArgumentError: If the device is unknown.
        RunError: If the machine cannot be reached, or the runner fails.
    """
    if device == HERE:
        return _run([sys.executable, str(parcel / RUNNER), str(parcel), *words], "this machine")
    return _run_there(device, parcel, words, python)


def example_feeds(card: Card, folder: Path, batch: int) -> dict[str, np.ndarray]:
    """Return one input for the graph of a bundle, from the examples of the card."""
    columns: dict[str, Any] = {}
    for taken in card.inputs:
        if taken.kind == "array" and taken.example is None:
            columns[taken.name] = np.zeros((batch, *taken.shape))
        elif taken.kind == "array":
            columns[taken.name] = np.array([taken.example] * batch)
        else:
            columns[taken.name] = [taken.example] * batch
    predictor = Predictor(card, open_session(folder / MODEL, threads=1))
    shaped = predictor.shaped(feeds_of(card, columns)[0])
    return {
        name: values.astype(str) if values.dtype.kind == "O" else values
        for name, values in shaped.items()
    }


def _run_there(device: str, parcel: Path, words: Sequence[str], python: str) -> dict[str, Any]:
    url = urlsplit(device)
    host = url.hostname or ""
    if (
        url.scheme != "ssh"
        or not host
        or host.startswith("-")
        or (url.username or "").startswith("-")
    ):
        raise ArgumentError(
            f"{device!r} is not a device",
            field="device",
            allowed="here, ssh://[USER@]HOST[:PORT], or FILE:TIER",
        )
    target = f"{url.username}@{host}" if url.username else host
    # There is no terminal, so ssh must not ask questions.
    usual = ["-o", "BatchMode=yes", "-o", "ConnectTimeout=15"]
    ssh = ["ssh", *usual, *(["-p", str(url.port)] if url.port else []), target]
    scp = ["scp", "-q", "-r", *usual, *(["-P", str(url.port)] if url.port else [])]
    place = _call([*ssh, "mktemp -d"], target).strip()
    try:
        # For scp, the host ends at the first colon, unless it is in brackets.
        copied = target.replace(host, f"[{host}]") if ":" in host else target
        _call([*scp, str(parcel), f"{copied}:{place}/"], target)
        there = f"{place}/{parcel.name}"
        command = shlex.join([python, f"{there}/{RUNNER}", there, *words])
        return _run([*ssh, command], target)
    finally:
        subprocess.run(
            [*ssh, shlex.join(["rm", "-rf", place])],
            capture_output=True,
            timeout=_TIMEOUT_S,
            check=False,
        )


def _run(command: Sequence[str], where: str) -> dict[str, Any]:
    lines = _call(command, where).strip().splitlines()
    try:
        return dict(json.loads(lines[-1]))
    except (IndexError, ValueError) as error:
        raise RunError(f"the answer of {where} cannot be read", next_step="Try again.") from error


def _call(command: Sequence[str], where: str) -> str:
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False
        )
    except FileNotFoundError as error:
        raise RunError(
            f"there is no program {command[0]}", next_step=f"Install {command[0]}."
        ) from error
    except subprocess.TimeoutExpired as error:
        raise RunError(
            f"{where} did not answer within {_TIMEOUT_S:.0f} s", next_step="Try again."
        ) from error
    if done.returncode:
        problem = headline(last_error(done.stderr)) or f"{command[0]} ended with {done.returncode}"
        raise RunError(
            f"{where}: {problem}", next_step=_next_step(command, done.returncode, problem)
        )
    return done.stdout


def _next_step(command: Sequence[str], status: int, problem: str) -> str:
    """Return what to do about a command that failed there."""
    if status == _NO_SUCH_COMMAND or "No module named" in problem:
        return (
            "Install numpy and onnxruntime there, or name the Python that has them with --python."
        )
    if command[0] == "scp" or (command[0] == "ssh" and status == _OF_SSH):
        return f"Check that `{shlex.join(command[:-1])}` works without a password."
    return "Export the model again."
