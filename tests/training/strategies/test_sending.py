"""What one worker sends to another, which may take as long as its computation."""

from __future__ import annotations

import datetime
import time

import pytest
import torch

from tests.services.process_group import run_together
from workbench.training.strategies import group as groups
from workbench.training.strategies.group import Group

CONNECT_S = 3.0


def send_late(rank: int, num_workers: int, meeting: str) -> list[float]:
    """Send two tensors, the second of a known form, each after the time in which workers must
    connect.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(groups, "CONNECT_TIMEOUT", datetime.timedelta(seconds=CONNECT_S))
        group = Group(rank, num_workers, None, meeting)
    try:
        values = torch.arange(3.0)
        if rank == 1:
            time.sleep(CONNECT_S + 1.0)
            group.send(values, 0).wait()
            time.sleep(CONNECT_S + 1.0)
            group.send(values, 0, is_known=True).wait()
            return []
        return [*group.receive(1).tolist(), *group.receive(1, values).tolist()]
    finally:
        group.close()


def test_a_worker_waits_longer_for_another_than_for_its_connection() -> None:
    assert run_together(send_late, 2) == [[0.0, 1.0, 2.0, 0.0, 1.0, 2.0], []]
