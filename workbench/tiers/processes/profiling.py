"""Stages and frames timed where a tier will run: on this machine, or on another that ssh reaches.

The modules that work in a tier are copied there and measured as they are.
`workbench.tiers.placement` defines profiles and uses them.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np

from workbench.deploy.card import MODEL, read_graph_card
from workbench.deploy.device import HERE, PROGRESS, RUNNER, example_feeds, run_parcel
from workbench.deploy.graph import Graph, onnx
from workbench.deploy.stages import Stages, read_stages
from workbench.foundation.files import sha256_of
from workbench.tiers.placement.graph_cut import cuttable
from workbench.tiers.placement.machine_profile import FrameTiming, GraphTiming, Profile, StageTiming
from workbench.tiers.processes.certificates import Authority
from workbench.tiers.processes.profile_runner import GRAPH, IDLE, RECEIVER, SENDER

_NUM_CALLS = 1000
_NUM_IDLE = 20
_PACKAGE = Path(__file__).parents[2]
_PACKAGES = (
    "__init__.py",
    "deploy/__init__.py",
    "foundation/__init__.py",
    "tiers/__init__.py",
    "tiers/placement/__init__.py",
    "tiers/processes/__init__.py",
)
_MODULES = (
    "deploy/device_runner.py",
    "tiers/processes/features.py",
    "tiers/placement/known_queues.py",
    "tiers/processes/frames.py",
    "tiers/processes/machines.py",
    "tiers/processes/tier_settings.py",
    "tiers/processes/stage_model.py",
    "tiers/processes/transport.py",
    "foundation/files.py",
)
"""What `profile_runner` imports of the package."""


def profile_stages(
    folder: Path,
    device: str = HERE,
    *,
    batches: tuple[int, ...] = (1,),
    threads: int = 1,
    python: str = "python3",
    num_calls: int = _NUM_CALLS,
    on_progress: Callable[[str], None] = lambda _: None,
) -> Profile:
    """Measure the stages of a bundle, and frames with what they take, on a device.

    Args:
        folder: A bundle with early exits.
        device: `here`, or ssh://[USER@]HOST[:PORT].
        batches: Numbers of samples in a call.
        threads: Number of threads that compute a call.
        python: The Python of the other machine, which has numpy and onnxruntime.
        num_calls: Number of calls that are timed of each stage and batch.
        on_progress: Receives what is measured.

    Raises:
        ArgumentError: If the device is unknown.
        RunError: If the bundle has no stages, or the machine cannot be reached.
    """
    stages = read_stages(folder)
    with tempfile.TemporaryDirectory() as beside:
        parcel = Path(beside) / "workbench-profile"
        _pack(parcel, folder, stages)
        request = {
            "threads": threads,
            "batches": batches,
            "num_calls": num_calls,
            "stages": [
                {"file": timing.file, "threshold": timing.threshold} for timing in stages.stages
            ],
            # What joins views is no part of a graph that is cut.
            "nodes": [] if stages.scene else _pack_graph(parcel, folder),
            "sent_sizes": [stage.wire_shape[0] for stage in stages.stages[:2]],
            "input": read_graph_card(folder).inputs[0].name,
            "progress": PROGRESS,
        }
        (parcel / "request.json").write_text(json.dumps(request), encoding="utf-8")
        measured = run_parcel(parcel, device, python=python, on_progress=on_progress)
    hashes = [sha256_of(folder / stage.file) for stage in stages.stages]
    timings = []
    for timing in measured["stages"]:
        number = timing.pop("stage")
        timings.append(
            StageTiming(file=stages.stages[number].file, sha256=hashes[number], **timing)
        )
    place = "" if device == HERE else f" ({device})"
    return Profile(
        machine=(
            f"{measured['host']}, {measured['processor']}, {measured['num_cores']} cores{place}"
        ),
        device=device,
        runtime=measured["runtime"],
        threads=threads,
        timings=tuple(timings),
        frames=tuple(FrameTiming(**timing) for timing in measured["frames"]),
        graphs=tuple(
            GraphTiming(sha256=sha256_of(folder / MODEL), **timing) for timing in measured["graphs"]
        ),
    )


def _pack_graph(parcel: Path, folder: Path) -> list[tuple[str, str]]:
    """Write the whole model as it is cut, and return its nodes, none where it cannot be cut."""
    graph = cuttable(folder / MODEL)
    if graph is None:
        return []
    onnx.save(graph.model, str(parcel / GRAPH))
    idle = Graph()
    value = idle.input("values", np.dtype("float32"), (1,))
    for _ in range(_NUM_IDLE):
        value = idle.add("Abs", value)
    onnx.save(idle.model(value, "idle", np.dtype("float32"), (1,)), str(parcel / IDLE))
    return graph.nodes


def _pack(parcel: Path, folder: Path, stages: Stages) -> None:
    """Write what the runner needs.

    Graphs, an input of each, certificates and the modules it imports.
    """
    for name in (*_PACKAGES, *_MODULES):
        target = parcel / "workbench" / name
        target.parent.mkdir(parents=True, exist_ok=True)
        # Packages import nothing there: what their own files import may be absent.
        target.write_bytes(b"" if name in _PACKAGES else (_PACKAGE / name).read_bytes())
    (parcel / RUNNER).write_bytes(Path(__file__).with_name("profile_runner.py").read_bytes())
    for stage in stages.stages:
        (parcel / stage.file).write_bytes((folder / stage.file).read_bytes())
    random = np.random.default_rng(0)
    first = next(iter(example_feeds(read_graph_card(folder), folder, 1).values()))[0]
    if stages.scene is not None:
        first = first[0]  # one view
    others = [
        random.normal(size=stage.input_shape).astype(stage.input_dtype)
        for stage in stages.stages[1:]
    ]
    inputs = {str(number): values for number, values in enumerate([first, *others])}
    np.savez(parcel / "inputs.npz", **inputs)  # type: ignore[arg-type]
    authority = Authority.create()
    for name in (SENDER, RECEIVER):
        authority.issue(name, parcel)
