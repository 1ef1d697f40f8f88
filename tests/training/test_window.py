"""When to report, and what the loss of a window and of an epoch is."""

from __future__ import annotations

import time

import pytest
import torch

from workbench.strategies.strategy import Worker
from workbench.training.window import REPORT_INTERVAL_S, Window


def test_losses_weigh_by_their_samples() -> None:
    window = Window(Worker())
    window.start_epoch()
    window.add(torch.tensor(1.0), 30)
    window.add(torch.tensor(4.0), 10)
    mean = window.look().mean_loss
    assert mean == window.epoch_mean() == pytest.approx(1.75)
    window.close()
    window.add(torch.tensor(8.0), 40)
    mean = window.look().mean_loss
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
                window.look()
        window.look()
        means.append(window.epoch_mean())
    assert means[0] == means[1] == means[2]


def test_a_window_is_due_about_twice_a_second() -> None:
    window = Window(Worker())
    window.start_epoch()
    reports = looks = 0
    started_s = time.perf_counter()
    while time.perf_counter() - started_s < 3.2 * REPORT_INTERVAL_S:
        time.sleep(0.004)
        if window.add(torch.tensor(1.0), 1):
            looks += 1
            if window.look().is_due:
                reports += 1
                window.close()
    assert 1 <= reports <= 3
    assert looks <= 30


def test_what_is_paused_does_not_count_as_training() -> None:
    window = Window(Worker())
    window.start_epoch()
    window.add(torch.tensor(1.0), 1000)
    with window.paused():
        time.sleep(0.2)
    assert window.close() > 1000 / 0.2
