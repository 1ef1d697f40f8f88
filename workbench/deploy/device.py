"""Times an exported model on the device where it will run: this machine, or another by ssh.

A small runner (`device_runner`) is copied to the device with the model and one input. The system's
ssh and scp are used, with your keys and settings. The card stores the result for each machine.

A compressed and the unchanged model are called in turn. Their measurements are stored in the user's
data folder, and reused for a day if both files are the same. This helps if a model is compressed
again, or if several trials create the same file.
"""

from __future__ import annotations

import base64
import hashlib
import io
import json
import shlex
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import numpy as np

from workbench.deploy.card import MODEL, Card, Timing, read_card, read_graph_card
from workbench.deploy.device_runner import Comparison
from workbench.deploy.feeds import feeds_of
from workbench.deploy.predictor import Predictor, open_session
from workbench.foundation.artifacts.local import make_private
from workbench.foundation.errors import ArgumentError, RunError
from workbench.foundation.files import write_atomically
from workbench.store.database.urls import user_data_folder
from workbench.store.history.failure_text import headline
from workbench.training.programs.last_error import last_error

HERE = "here"
_TIMEOUT_S = 300.0
_NO_SUCH_COMMAND, _OF_SSH = 127, 255
"""The exit statuses of a shell that cannot find a program, and of ssh without a connection."""
RUNNER = "runner.py"
PROGRESS = "progress: "
"""With this, a runner begins a line of stderr that says what it measures."""
_TIMER = Path(__file__).with_name("device_runner.py")
_REUSED_FOR_S = 24 * 3600.0
"""Older measurements are not reused, because programs on the device may have changed."""
_MAX_KEPT = 1000
_NUM_CALLS = 500


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
    if card.text_model is None or not (folder / MODEL).is_file():
        card = read_graph_card(folder)
        feeds = example_feeds(card, folder, batch)
    else:
        feeds = _token_feeds(folder, card.text_model.context, batch)
    measured = time_model(
        folder / MODEL,
        feeds,
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
    parcel: Path,
    device: str,
    words: Sequence[str] = (),
    *,
    python: str = "python3",
    on_progress: Callable[[str], None] = lambda _: None,
) -> dict[str, Any]:
    """Run the runner of a folder on a device, to which the folder is copied.

    Args:
        parcel: The folder with `RUNNER`. Its path on the device is the first argument of the
            runner.
        device: `here`, or ssh://[USER@]HOST[:PORT].
        words: Further arguments.
        python: The Python of the other machine.
        on_progress: Receives what the runner writes to stderr after `PROGRESS`.

    Returns:
        The last line of its output, parsed as JSON.

    Raises:
        ArgumentError: If the device is unknown.
        RunError: If the machine cannot be reached, or the runner fails.
    """
    if device == HERE:
        command = [sys.executable, str(parcel / RUNNER), str(parcel), *words]
        return _run(command, "this machine", on_progress)
    return _run_there(device, parcel, words, python, on_progress)


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


def _token_feeds(folder: Path, context: int, batch: int) -> dict[str, np.ndarray]:
    """Return the longest texts that a graph of transformers can be asked for, as tokens."""
    return {
        taken.name: np.ones(
            (batch, *(size if isinstance(size, int) else context for size in taken.shape[1:])),
            dtype=np.bool_ if taken.type == "tensor(bool)" else np.int64,
        )
        for taken in open_session(folder / MODEL, threads=1).get_inputs()
    }


def _run_there(
    device: str,
    parcel: Path,
    words: Sequence[str],
    python: str,
    on_progress: Callable[[str], None],
) -> dict[str, Any]:
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
        return _run([*ssh, command], target, on_progress)
    finally:
        subprocess.run(
            [*ssh, shlex.join(["rm", "-rf", place])],
            capture_output=True,
            timeout=_TIMEOUT_S,
            check=False,
        )


def _run(command: Sequence[str], where: str, on_progress: Callable[[str], None]) -> dict[str, Any]:
    lines = _call(command, where, on_progress).strip().splitlines()
    try:
        return dict(json.loads(lines[-1]))
    except (IndexError, ValueError) as error:
        raise RunError(f"the answer of {where} cannot be read", next_step="Try again.") from error


def _call(
    command: Sequence[str], where: str, on_progress: Callable[[str], None] = lambda _: None
) -> str:
    try:
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
    except FileNotFoundError as error:
        raise RunError(
            f"there is no program {command[0]}", next_step=f"Install {command[0]}."
        ) from error
    with process:
        try:
            output, errors = _read_both(process, on_progress)
        except subprocess.TimeoutExpired as error:
            raise RunError(
                f"{where} did not answer within {_TIMEOUT_S:.0f} s", next_step="Try again."
            ) from error
        finally:
            # Also if the user interrupts it, after which `with` hardly waits.
            process.kill()
            process.wait()
    if process.returncode:
        problem = headline(last_error(errors)) or f"{command[0]} ended with {process.returncode}"
        raise RunError(
            f"{where}: {problem}", next_step=_next_step(command, process.returncode, problem)
        )
    return output


def _read_both(
    process: subprocess.Popen[str], on_progress: Callable[[str], None]
) -> tuple[str, str]:
    """Return what a process writes to stdout and stderr until it ends.

    Raises:
        subprocess.TimeoutExpired: If that takes too long.
    """
    output: list[str] = []
    errors: list[str] = []

    def read_output() -> None:
        assert process.stdout is not None
        output.append(process.stdout.read())

    def read_errors() -> None:
        assert process.stderr is not None
        for line in process.stderr:
            if line.startswith(PROGRESS):
                on_progress(line.removeprefix(PROGRESS).strip())
            else:
                errors.append(line)

    readers = [threading.Thread(target=read, daemon=True) for read in (read_output, read_errors)]
    for reader in readers:
        reader.start()
    process.wait(timeout=_TIMEOUT_S)
    for reader in readers:
        reader.join()
    return "".join(output), "".join(errors)


def _next_step(command: Sequence[str], status: int, problem: str) -> str:
    """Return what to do about a command that failed there."""
    if status == _NO_SUCH_COMMAND or "No module named" in problem:
        return (
            "Install numpy and onnxruntime there, or name the Python that has them with --python."
        )
    if command[0] == "scp" or (command[0] == "ssh" and status == _OF_SSH):
        return f"Check that `{shlex.join(command[:-1])}` works without a password."
    return "Export the model again."


@dataclass(frozen=True)
class OnDevice:
    """The measurement on a device.

    Attributes:
        compared: The latency, compared with the unchanged model in turn.
        machine: The machine, its processor and number of cores.
        runtime: What ran the models, with its version.
        p95_s: 95 of 100 calls of the model alone were at most this long, in seconds.
        memory_bytes: Peak memory of a process that only runs the model.
        energy_j: The energy of all processors of the machine for a call, in joules, or None if it
            is not counted.
        measured_unix_s: The time of the measurement.
        values: The scores of its answers there, by metric. Empty if no samples were given.
    """

    compared: Comparison
    machine: str
    runtime: str
    p95_s: float
    memory_bytes: int
    energy_j: float | None
    measured_unix_s: float
    values: Mapping[str, float] = field(default_factory=dict)


def measure_there(
    model: Path,
    base: Path,
    feeds: Mapping[str, np.ndarray],
    *,
    device: str,
    python: str,
    threads: int,
    samples: np.ndarray | None = None,
    evaluate: Callable[[np.ndarray], Mapping[str, float]] | None = None,
) -> OnDevice:
    """Measure a model and its base on a device, or return a measurement of both of the last day.

    Args:
        model: The compressed model.
        base: The unchanged model.
        feeds: The input of the model.
        device: ssh://[USER@]HOST[:PORT].
        python: The Python there, which has numpy and onnxruntime.
        threads: Number of threads that compute a call.
        samples: Inputs that the model also answers there, or None for none.
        evaluate: Returns the scores of these answers, by metric.

    Raises:
        ArgumentError: If the device is unknown.
        RunError: If the machine cannot be reached, or a model cannot be run there.
    """
    [inputs] = feeds.values()
    parts = [model.read_bytes(), base.read_bytes(), f"{python} {threads} {inputs.shape}".encode()]
    if samples is not None:
        parts.append(np.ascontiguousarray(samples).tobytes())
    key = hashlib.sha256(b"".join(hashlib.sha256(part).digest() for part in parts)).hexdigest()
    path = kept_file(device)
    kept = _read(path)
    known = kept.get(key)
    if known is not None and 0 <= time.time() - known["measured_unix_s"] < _REUSED_FOR_S:
        return OnDevice(**{**known, "compared": Comparison(**known["compared"])})
    timing = time_model(
        model,
        feeds,
        device,
        threads=threads,
        num_calls=_NUM_CALLS,
        python=python,
        base=base,
        samples=samples,
    )
    values = {} if samples is None or evaluate is None else dict(evaluate(timing["answers"]))
    kept[key] = {
        "compared": timing["in_turn"],
        "runtime": timing["runtime"],
        "machine": f"{timing['host']}, {timing['processor']}, {timing['num_cores']} cores",
        "p95_s": timing["p95_s"],
        "memory_bytes": timing["memory_bytes"],
        "energy_j": timing["energy_j"],
        "measured_unix_s": time.time(),
        "values": values,
    }
    _write(path, dict(list(kept.items())[-_MAX_KEPT:]))
    return OnDevice(**{**kept[key], "compared": Comparison(**kept[key]["compared"])})


def kept_file(device: str) -> Path:
    """Return the file that stores the measurements of a device."""
    name = hashlib.sha256(device.encode()).hexdigest()[:16]
    return user_data_folder() / "devices" / f"{name}.json"


def _read(path: Path) -> dict[str, Any]:
    try:
        kept = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):  # an unreadable file only means that models are measured again
        return {}
    return kept if isinstance(kept, dict) else {}


def _write(path: Path, kept: Mapping[str, Any]) -> None:
    make_private(path.parent)
    write_atomically(path, json.dumps(kept))
