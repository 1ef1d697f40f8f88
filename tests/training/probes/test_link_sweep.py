"""Workers measure their links and what exchanges compute, and keep nothing of it."""

from __future__ import annotations

from typing import Any

import torch

from tests.services.process_group import run_together
from workbench.training.exchanges import EXCHANGES
from workbench.training.probes.link_sweep import (
    SIZES_BYTES,
    LinkSweeps,
    describe_exchanges,
    sweep_links,
)
from workbench.training.strategies.strategy import Worker
from workbench.training.strategies.worker_group import Group

SHAPES = [(64, 32), (64,), (8, 64)]
NUM_VALUES = 64 * 32 + 64 + 8 * 64


def measure(rank: int, num_workers: int, meeting: str) -> tuple[LinkSweeps, Any]:
    group = Group(rank, num_workers, None, meeting)
    worker = Worker(rank, num_workers, group=group)
    links = sweep_links(worker, ["here"] * num_workers), describe_exchanges(worker, SHAPES)
    assert group.total(torch.ones(1)).item() == num_workers, (
        "the group can still exchange something"
    )
    group.close()
    return links


def test_every_exchange_is_described_by_what_it_sends() -> None:
    answers = run_together(measure, 2)
    for sweep, described in answers:
        assert list(sweep.whole) == list(SIZES_BYTES)
        assert all(took_s > 0.0 for took_s in sweep.whole.values())
        assert sweep.inside == sweep.between == {}
        assert set(described) == set(EXCHANGES.names())
        sent = {name: exchange["num_bytes"] for name, exchange in described.items()}
        assert (
            sent["allreduce"]
            == sent["hierarchical"]
            == sent["local"]
            == sent["server"]
            == 4 * NUM_VALUES
        )
        assert sent["bf16"] == 2 * NUM_VALUES
        assert sent["onebit"] == NUM_VALUES / 8 + 4 * len(SHAPES)
        assert sent["topk"] == 8 * NUM_VALUES / 100
        # Two matrices of rank 4 as thin ones, and a vector as it is.
        assert sent["powersgd"] == 4 * (4 * (64 + 32) + 64 + 4 * (8 + 64))
        for name in ("bf16", "powersgd", "onebit", "topk"):
            assert described[name]["compute_s"] > 0.0
            assert not described[name]["is_exact"]


def sweep_nodes(
    rank: int, num_workers: int, meeting: str, cases: list[list[str]]
) -> list[LinkSweeps]:
    group = Group(rank, num_workers, None, meeting)
    worker = Worker(rank, num_workers, group=group)
    links = [sweep_links(worker, nodes) for nodes in cases]
    assert group.total(torch.ones(1)).item() == num_workers, (
        "the group can still exchange something"
    )
    group.close()
    return links


def test_links_inside_nodes_and_between_them_are_swept_apart() -> None:
    cases = [["small", "large", "large"], ["large", "large", "small"], ["a", "b", "c"]]
    answers = run_together(sweep_nodes, 3, cases)
    for answer in answers:
        for sweeps in answer[:2]:
            assert list(sweeps.inside) == list(sweeps.between) == list(SIZES_BYTES)
            assert all(
                took_s > 0.0 for took_s in (*sweeps.inside.values(), *sweeps.between.values())
            )
            stored = sweeps.stored()
            assert set(stored) == {"all_reduce_s", "inside_nodes_s", "between_nodes_s"}
            assert stored["inside_nodes_s"]["4096"] == sweeps.inside[4096]
        assert answer[2].inside == answer[2].between == {}, "each node holds one worker"
    # What one worker waited for the others is part of what all report.
    assert [sweeps.inside for sweeps in answers[0][:2]] == [
        sweeps.inside for sweeps in answers[2][:2]
    ]
