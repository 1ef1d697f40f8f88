"""Checkpoints of large models that workers divide.

A file of each, which any plan continues from.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from test_gang_training import FEW_STEPS, experiment, train, weights

from tests.builders.ways import OF_SEVERAL
from tests.services.process_group import run_together
from workbench.foundation.artifacts import Artifacts
from workbench.foundation.errors import RunError
from workbench.training import checkpoint
from workbench.training.strategies.capabilities import capabilities_of
from workbench.training.strategies.tensor_shards import StateParts
from workbench.training.strategies.worker_group import Group
from workbench.training.trained_model import write_weights

DIVIDED = tuple(name for name in OF_SEVERAL if not capabilities_of(name).holds_whole_model)


def text_of(strategy: str, workers: int, epochs: int = 3) -> str:
    return experiment(
        model="mlp",
        plan={"workers": workers, "strategy": strategy, "micro_batch": 60},
        training={**FEW_STEPS, "optimizer": "adamw", "average_decay": 0.9, "epochs": epochs},
    )


def train_in_parts(rank: int, num_workers: int, meeting: str, folder: str) -> list[Any]:
    """Train one epoch with each strategy in turn, from whole checkpoints and from those in
    parts.
    """
    results = []
    usual = checkpoint.IN_PARTS_FROM_BYTES
    for way, limit in (("whole", usual), ("parts", 0)):
        checkpoint.IN_PARTS_FROM_BYTES = limit
        for number, name in enumerate(DIVIDED):
            stop = f"checkpoint_saved {6 * (number + 1)}"
            at = f"{meeting}-{way}-{name}"
            ended, _ = train(
                rank, num_workers, at, text_of(name, num_workers), f"{folder}/{way}", stop_at=stop
            )
            results.append((ended.state, ended.step, ended.traceback))
    checkpoint.IN_PARTS_FROM_BYTES = usual
    return results


@pytest.mark.slow
def test_strategies_hand_a_training_over_in_parts(tmp_path: Path) -> None:
    for answer in run_together(train_in_parts, 2, str(tmp_path)):
        for number, (state, step, problem) in enumerate(answer):
            assert (state, step) == ("stopped", 6 * (number % len(DIVIDED) + 1)), problem
    files = {path.name for path in (tmp_path / "parts" / "checkpoints").glob("*.pt")}
    parts = {name for name in files if name.endswith(".part.pt")}
    assert files - parts == {"last.pt", "best.pt"}
    assert 2 <= len(parts) <= 4, "those that no checkpoint names are gone"
    expected = weights(tmp_path / "whole")
    for name, values in weights(tmp_path / "parts").items():
        torch.testing.assert_close(values, expected[name], rtol=1e-5, atol=1e-6)
    # What is exported is whole, and one worker continues.
    last = tmp_path / "parts" / "checkpoints" / "last.pt"
    write_weights(last, tmp_path / "weights.safetensors")
    exported = load_file(tmp_path / "weights.safetensors")
    assert exported.keys() == expected.keys()
    for way in ("whole", "parts"):
        ended, _ = train(0, 1, None, text_of("single", 1, epochs=4), str(tmp_path / way))
        assert ended.state == "complete", ended.traceback
    for name, values in weights(tmp_path / "parts").items():
        torch.testing.assert_close(values, weights(tmp_path / "whole")[name], rtol=1e-5, atol=1e-6)


def one_part() -> StateParts:
    return StateParts({("model", "weight"): ((2,), [((0,), torch.ones(2))])}, {}, {"optimizer": {}})


def test_a_part_that_is_damaged_or_missing_makes_the_checkpoint_unreadable(tmp_path: Path) -> None:
    path = checkpoint.save_in_parts(
        tmp_path, {"step": 1}, one_part(), Group(), last=True, best=False
    )
    assert torch.equal(checkpoint.read(path)["strategy"]["model"]["weight"], torch.ones(2))
    [part] = tmp_path.glob("*.part.pt")
    whole = part.read_bytes()
    for content in (whole[:-1], whole[: len(whole) // 2], b""):
        part.write_bytes(content)
        with pytest.raises(RunError):
            checkpoint.read(path)
    part.unlink()
    assert checkpoint.read_latest(tmp_path) is None


def test_what_a_worker_that_was_killed_left_is_removed_with_the_next_checkpoint(
    tmp_path: Path,
) -> None:
    checkpoint.save_in_parts(tmp_path, {"step": 1}, one_part(), Group(), last=False, best=True)
    (tmp_path / "0-1.part.pt").write_bytes(b"half")
    checkpoint.save_in_parts(tmp_path, {"step": 2}, one_part(), Group(), last=True, best=False)
    checkpoint.save_in_parts(tmp_path, {"step": 3}, one_part(), Group(), last=True, best=False)
    assert len(list(tmp_path.glob("*.part.pt"))) == 2
    assert checkpoint.read(tmp_path / "best.pt")["step"] == 1


def test_parts_are_fetched_with_a_checkpoint_that_is_stored_elsewhere(tmp_path: Path) -> None:
    from workbench.foundation.artifacts.remote import RemoteArtifacts

    place: Artifacts = RemoteArtifacts(f"file://{tmp_path}/there")
    checkpoint.save_in_parts(place, {"step": 1}, one_part(), Group(), last=True, best=True)
    latest = checkpoint.read_latest(place)
    assert latest is not None
    assert torch.equal(latest["strategy"]["model"]["weight"], torch.ones(2))
