"""How the best learning rate of an adapter changes with alpha, on a small transformer.

Run `python -m tests.benchmarks.adapter_alpha`. It takes about 15 minutes on one core. A decoder of
two layers learns a text of characters. Then adapters of rank 8 on all its layers learn the same
text backwards, in 200 steps of AdamW from each of several rates. The best rate of each alpha is the
lowest point of a parabola through the three rates around the best.

On tinyshakespeare, the best rates were 0.028, 0.011 and 0.0029 at alpha 4, 32 and 256: the power of
alpha is -0.54. The derivation in `workbench.advisor.auto_priors` allows -1/2 to -1.
"""

from __future__ import annotations

import argparse
import math
from itertools import pairwise
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional

from tests.builders.measured import find_measured
from workbench.models.transformer import Transformer

_CONTEXT, _BATCH, _RANK = 64, 16, 8
_CHARACTERS = 128
_STEPS, _FIRST_STEPS = 200, 1000
_RATES = {
    4: (0.004, 0.008, 0.016, 0.032, 0.064),
    32: (0.001, 0.002, 0.004, 0.008, 0.016, 0.032),
    256: (0.0005, 0.001, 0.002, 0.004, 0.008),
}


class Adapted(nn.Module):
    """A linear layer with low-rank additions, as PEFT begins them."""

    def __init__(self, layer: nn.Linear, alpha: float) -> None:
        """Freeze a layer, and add to it."""
        super().__init__()
        self.layer = layer.requires_grad_(False)
        self.down = nn.Parameter(torch.empty(_RANK, layer.in_features))
        nn.init.kaiming_uniform_(self.down, a=math.sqrt(5))
        self.up = nn.Parameter(torch.zeros(layer.out_features, _RANK))
        self.scale = alpha / _RANK

    def forward(self, inputs: Tensor) -> Tensor:
        """Return the outputs of the layer and of the additions."""
        return self.layer(inputs) + self.scale * (inputs @ self.down.T) @ self.up.T


def _model() -> Transformer:
    return Transformer(
        context=_CONTEXT,
        num_outputs=_CHARACTERS,
        vocabulary_size=_CHARACTERS,
        width=128,
        num_layers=2,
        dropout=0.0,
        num_heads=4,
        feedforward_ratio=4,
    )


def _adapt(model: nn.Module, alpha: float) -> None:
    model.requires_grad_(False)
    layers = [name for name, module in model.named_modules() if isinstance(module, nn.Linear)]
    for name in layers:
        parent, _, own = name.rpartition(".")
        if parent:  # not the head
            holder = model.get_submodule(parent)
            setattr(holder, own, Adapted(model.get_submodule(name), alpha))  # type: ignore[arg-type]


def _loss(model: nn.Module, windows: Tensor) -> Tensor:
    scores = model(windows[:, :-1])
    return functional.cross_entropy(scores.flatten(0, 1), windows[:, 1:].flatten())


def _train(model: nn.Module, text: Tensor, steps: int, lr: float) -> None:
    random = torch.Generator().manual_seed(2)
    trained = [item for item in model.parameters() if item.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=lr, betas=(0.9, 0.95), weight_decay=0.0)
    for step in range(steps):
        for group in optimizer.param_groups:
            group["lr"] = lr * (1 - step / steps)
        starts = torch.randint(0, len(text) - _CONTEXT - 1, (_BATCH,), generator=random).tolist()
        loss = _loss(model, torch.stack([text[start : start + _CONTEXT + 1] for start in starts]))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def best_rate(rates: tuple[float, ...], losses: list[float]) -> float:
    """Return the lowest point of a parabola in the logarithm of rates that double."""
    at = min(range(1, len(rates) - 1), key=lambda place: losses[place])
    before, here, after = losses[at - 1 : at + 2]
    shift = 0.5 * (before - after) / (before - 2 * here + after)
    return rates[at] * 2**shift


def main() -> None:
    """Train all adapters, and print the power of alpha."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--text", type=Path, help="A text file of about a million characters.")
    path = parser.parse_args().text
    folder = find_measured("datasets")
    if path is None and folder is None:
        parser.error("give --text, or set WORKBENCH_MEASURED to the public measurements")
    path = path or folder / "tinyshakespeare" / "input.txt"  # type: ignore[operator]
    torch.set_num_threads(1)
    text = torch.tensor(list(path.read_bytes()), dtype=torch.long).clamp(max=_CHARACTERS - 1)
    torch.manual_seed(0)
    pretrained = _model()
    _train(pretrained, text, _FIRST_STEPS, 3e-3)
    backwards = text.flip(0)
    held_out, train = backwards[: len(text) // 10], backwards[len(text) // 10 :]
    places = range(0, len(held_out) - _CONTEXT - 1, len(held_out) // 256)
    windows = torch.stack([held_out[place : place + _CONTEXT + 1] for place in places])
    best = {}
    for alpha, rates in _RATES.items():
        losses = []
        for rate in rates:
            torch.manual_seed(1)
            model = _model()
            model.load_state_dict(pretrained.state_dict())
            _adapt(model, alpha)
            _train(model, train, _STEPS, rate)
            with torch.no_grad():
                losses.append(float(_loss(model, windows)))
            print(f"alpha {alpha:3d}  rate {rate:.4f}  loss {losses[-1]:.4f}", flush=True)
        best[alpha] = best_rate(rates, losses)
        print(f"alpha {alpha:3d}  best rate {best[alpha]:.4f}")
    for first, second in [*pairwise(best), (min(best), max(best))]:
        power = math.log(best[second] / best[first]) / math.log(second / first)
        print(f"alpha {first} to {second}: power {power:.2f}")


if __name__ == "__main__":
    main()
