"""When to report, and what the loss of a window and of an epoch is."""

from __future__ import annotations

import pytest
import torch

from tests.builders.clock import Clock
from workbench.training.step_window import REPORT_INTERVAL_S, Window
from workbench.training.strategies.strategy import Worker


def test_losses_weigh_by_their_samples() -> None:
    window = Window(Worker())
    window.start_epoch()
    window.add(torch.tensor(1.0), 30)
    window.add(torch.tensor(4.0), 10)
    mean = window.read().mean_loss
    assert mean == window.epoch_mean() == pytest.approx(1.75)
    window.close()
    window.add(torch.tensor(8.0), 40)
    mean = window.read().mean_loss
    assert mean == pytest.approx(8.0)
    assert window.epoch_mean() == pytest.approx((30 + 40 + 320) / 80)


def test_the_mean_over_an_epoch_does_not_depend_on_when_somebody_looked() -> None:
    torch.manual_seed(0)
    losses = torch.rand(500)
    means: list[float] = []
    for interval in (1, 7, 500):
        window = Window(Worker())
        window.start_epoch()
        for step, loss in enumerate(losses, start=1):
            window.add(loss, 128)
            if step % interval == 0:
                window.read()
        window.read()
        means.append(window.epoch_mean())
    assert means[0] == means[1] == means[2]


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """The clock of the window."""
    clock = Clock()
    monkeypatch.setattr("workbench.training.step_window.perf_counter", clock)
    return clock


def test_a_window_is_due_about_twice_a_second(clock: Clock) -> None:
    window = Window(Worker())
    window.start_epoch()
    due_s: list[float] = []
    looks, started_s = 0, clock.now_s
    while clock.now_s - started_s < 3.2 * REPORT_INTERVAL_S:
        clock.sleep(0.004)
        if window.add(torch.tensor(1.0), 1):
            looks += 1
            if window.read().is_due:
                due_s.append(clock.now_s - started_s)
                window.close()
    assert due_s == pytest.approx([REPORT_INTERVAL_S * number for number in (1, 2, 3)], abs=0.02)
    assert looks <= 2 * len(due_s), "workers wait for each other at every look"


def test_what_is_paused_does_not_count_as_training(clock: Clock) -> None:
    window = Window(Worker())
    window.start_epoch()
    clock.sleep(2.0)
    window.add(torch.tensor(1.0), 1000)
    with window.paused():
        clock.sleep(30.0)
    assert window.close() == 500.0
