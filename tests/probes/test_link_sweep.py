"""Workers measure their links and what exchanges compute, and keep nothing of it."""

from __future__ import annotations

from typing import Any

import torch

from tests.services.process_group import run_together
from workbench.exchanges import EXCHANGES
from workbench.probes.link_sweep import SIZES_BYTES, describe_exchanges, sweep_all_reduces
from workbench.strategies.group import Group
from workbench.strategies.strategy import Worker

SHAPES = [(64, 32), (64,), (8, 64)]
NUM_VALUES = 64 * 32 + 64 + 8 * 64


def measure(rank: int, num_workers: int, meeting: str) -> tuple[dict[int, float], Any]:
    group = Group(rank, num_workers, None, meeting)
    worker = Worker(rank, num_workers, group=group)
    found = sweep_all_reduces(worker), describe_exchanges(worker, SHAPES)
    assert group.total(torch.ones(1)).item() == num_workers, "the group can still exchange something"
    group.close()
    return found


def test_every_exchange_is_described_by_what_it_sends() -> None:
    answers = run_together(measure, 2)
    for sweep, described in answers:
        assert list(sweep) == list(SIZES_BYTES)
        assert all(took_s > 0.0 for took_s in sweep.values())
        assert set(described) == set(EXCHANGES.names()) - {"hierarchical"}
        sent = {name: each["num_bytes"] for name, each in described.items()}
        assert sent["allreduce"] == sent["local"] == sent["server"] == 4 * NUM_VALUES
        assert sent["bf16"] == 2 * NUM_VALUES
        assert sent["onebit"] == NUM_VALUES / 8 + 4 * len(SHAPES)
        assert sent["topk"] == 8 * NUM_VALUES / 100
        # Two matrices of rank 4 as thin ones, and a vector as it is.
        assert sent["powersgd"] == 4 * (4 * (64 + 32) + 64 + 4 * (8 + 64))
        for name in ("bf16", "powersgd", "onebit", "topk"):
            assert described[name]["compute_s"] > 0.0
            assert not described[name]["is_exact"]
