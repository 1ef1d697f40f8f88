"""Operations of a step, counted by hand, and which part of a peak they use."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
from torch import nn
from torch.nn import functional

from workbench.hardware.performance.flops import (
    count_flops,
    cpu_peak_flops_per_s,
    flops_per_token,
    gpu_peak_flops_per_s,
    peak_flops_per_s,
    utilisation,
)
from workbench.models.transformer import Transformer
from workbench.training.strategies.recompute import recompute_blocks


def test_two_linear_layers_need_five_products() -> None:
    """512-2048-512 with 64 samples.

    Two products forward, three backward, as inputs need no gradient.
    """
    model = nn.Sequential(nn.Linear(512, 2048), nn.ReLU(), nn.Linear(2048, 512))
    flops = count_flops(model, functional.mse_loss, torch.zeros(64, 512), torch.zeros(64, 512))
    assert flops == 5 * 2 * 64 * 512 * 2048 == 671088640
    assert all(parameter.grad is None for parameter in model.parameters())


def test_a_convolution_counts_its_products() -> None:
    model = nn.Conv2d(3, 8, 3, bias=False)
    flops = count_flops(
        model, functional.mse_loss, torch.zeros(2, 3, 10, 10), torch.zeros(2, 8, 8, 8)
    )
    assert flops == 2 * (2 * 2 * 8 * 8 * 8 * 3 * 9)  # forward, and backward to the weights


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(()))

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return functional.scaled_dot_product_attention(*[inputs * self.scale] * 3)


def test_attention_counts_whatever_kernel_would_compute_it() -> None:
    inputs = torch.ones(2, 4, 16, 8)
    flops = count_flops(Attention(), functional.mse_loss, inputs, torch.zeros_like(inputs))
    assert flops == 6 * (2 * 2 * 4 * 16 * 16 * 8)  # two products forward, four backward


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.cells = nn.LSTM(8, 16, batch_first=True)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return self.cells(inputs)[0]


def test_a_recurrent_layer_counts_every_step() -> None:
    flops = count_flops(
        Recurrent(), functional.mse_loss, torch.ones(2, 5, 8), torch.zeros(2, 5, 16)
    )
    of_inputs, of_hidden = 2 * 2 * 64 * 8, 2 * 2 * 64 * 16
    # Forward and to the weights at five steps; to the hidden state at the four that have one before
    # them.
    assert flops == 2 * 5 * (of_inputs + of_hidden) + 4 * of_hidden


def test_what_is_computed_again_is_not_what_the_model_needs() -> None:
    plain = nn.Sequential(*[nn.Linear(16, 16) for _ in range(4)])
    batch = torch.zeros(4, 16), torch.zeros(4, 16)
    needed = count_flops(plain, functional.mse_loss, *batch)
    assert needed == (4 + 7) * 2 * 4 * 16 * 16
    recompute_blocks(plain)
    assert count_flops(plain, functional.mse_loss, *batch) > needed, "so it is counted before that"


@pytest.mark.parametrize(
    ("name", "precision", "teraflops"),
    [
        ("NVIDIA A100-SXM4-80GB", "bf16", 312.0),
        ("NVIDIA A100 80GB PCIe", "fp32", 19.5),
        ("NVIDIA H100 80GB HBM3", "bf16", 989.5),
        ("NVIDIA H100 80GB HBM3 MIG 1g.10gb", "bf16", None),
        ("NVIDIA H100 PCIe", "fp16", 756.5),
        ("NVIDIA H200", "fp32", 67.0),
        ("NVIDIA H200 NVL", "fp32", 60.0),
        ("Tesla V100-SXM2-16GB", "fp16", 125.0),
        ("NVIDIA L4", "bf16", 121.0),
        ("NVIDIA L40S", "bf16", 362.0),
        ("Tesla V100-SXM2-16GB", "bf16", None),
        ("NVIDIA A10G", "bf16", None),
        ("NVIDIA L40", "bf16", None),
        ("Some other device", "fp32", None),
    ],
)
def test_peaks_are_those_of_data_sheets(name: str, precision: str, teraflops: float | None) -> None:
    peak = gpu_peak_flops_per_s(name, precision)
    assert peak == (None if teraflops is None else pytest.approx(teraflops * 1e12))


def test_the_peak_of_a_cpu_is_measured_once() -> None:
    first = cpu_peak_flops_per_s("fp32")
    assert 1e8 < first < 1e14
    assert peak_flops_per_s(torch.device("cpu"), "fp32") == first


def test_utilisation_is_a_part_of_all_devices_and_unknown_without_a_peak() -> None:
    assert utilisation(100.0, 2.0, 50.0) == pytest.approx(1.0)
    assert utilisation(100.0, 2.0, 50.0, num_workers=4) == pytest.approx(0.25)
    assert utilisation(500.0, 2.0, 50.0) == 1.0
    assert utilisation(100.0, 2.0, None) is None


def test_the_operations_of_a_token_follow_from_the_layers() -> None:
    model = Transformer(
        context=64,
        num_outputs=50,
        vocabulary_size=50,
        width=32,
        num_layers=2,
        dropout=0.0,
        num_heads=4,
        feedforward_ratio=4,
    )
    tokens = torch.randint(0, 50, (3, 64))

    def loss(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        return functional.cross_entropy(outputs.flatten(0, 1), targets.flatten())

    counted = count_flops(model, loss, tokens, tokens) / tokens.numel()
    assert flops_per_token(model, 64) == pytest.approx(counted, rel=1e-6)


def test_frozen_matrices_need_no_gradient_and_unused_experts_nothing() -> None:
    model = nn.Sequential(nn.Linear(8, 16), nn.Linear(16, 4))
    assert flops_per_token(model, 10) == 6 * (8 * 16 + 16 * 4)
    model[0].requires_grad_(False)
    assert flops_per_token(model, 10) == 4 * 8 * 16 + 6 * 16 * 4

    class Sparse(nn.Module):
        def __init__(self, used: int | None) -> None:
            super().__init__()
            self.config = SimpleNamespace(
                num_experts=8,
                num_experts_per_tok=used,
                num_hidden_layers=3,
                num_attention_heads=2,
                head_dim=4,
            )
            self.router = nn.Linear(16, 8)
            self.experts = nn.ModuleList(nn.Linear(16, 16) for _ in range(8))

    attention = 12 * 10 * 3 * 2 * 4
    assert flops_per_token(Sparse(2), 10) == 6 * (16 * 8 + 2 * 16 * 16) + attention
    assert flops_per_token(Sparse(None), 10) is None
    assert flops_per_token(nn.ReLU(), 10) is None
