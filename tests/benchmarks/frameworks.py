"""Milliseconds of a training step of the zoo's models.

The workbench beside the loops of frameworks.

Run `make bench WHAT=frameworks`, which installs Lightning, Accelerate, Keras and jax. What is
missing is left out. A `resnet` reads images of 32 x 32 pixels, a `transformer` texts of 64 tokens,
in batches of 32 to 128. Each framework trains the same model on the same samples with AdamW, as its
documentation shows, on one thread.

In a turn each framework trains all of these in a process of its own, and turns alternate. Printed
are medians over the turns of a step's median time, of its processor time, which other programs
disturb less, and of the ratio of the latter to plain torch in the same turn, with the least and the
largest.

Keras trains torch modules on its torch backend. On jax it can have only what is written again from
its own layers, so it trains other code there: a network of the same shape. That says what the
backend costs.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

RESULTS = Path(__file__).parent / "results" / "frameworks.json"
BATCHES = (32, 64, 128)
NUM_CLASSES, VOCABULARY, CONTEXT, PIXELS = 10, 128, 64, 32
CASES = [(model, batch) for model in ("resnet", "transformer") for batch in BATCHES]
LR = 1e-3
SKIPPED_STEPS = 5
MODELS: dict[str, dict[str, Any]] = {
    "resnet": {"width": 16, "depth": 8},
    "transformer": {"width": 64, "num_layers": 2, "num_heads": 4},
}


@dataclass
class Steps:
    """Notes when steps end."""

    ended_s: list[tuple[float, float]]
    """On the clock, and in seconds of the processor."""

    def note(self, *_: Any) -> None:
        self.ended_s.append((time.perf_counter(), time.process_time()))

    @property
    def medians_ms(self) -> tuple[float, float]:
        times_s = np.diff(np.array(self.ended_s[SKIPPED_STEPS:]), axis=0)
        wall_s, processor_s = np.median(times_s, axis=0)
        return float(wall_s) * 1e3, float(processor_s) * 1e3


def make_samples(model: str, num_samples: int) -> tuple[np.ndarray, np.ndarray]:
    """Return inputs and targets; what is in them does not matter here."""
    rng = np.random.default_rng(0)
    if model == "resnet":
        inputs = rng.standard_normal((num_samples, 3, PIXELS, PIXELS), dtype=np.float32)
        return inputs, rng.integers(NUM_CLASSES, size=num_samples)
    tokens = rng.integers(VOCABULARY, size=(num_samples, CONTEXT + 1))
    return tokens[:, :-1].copy(), tokens[:, 1:].copy()


def load_samples(options: Any) -> Any:
    """Return the same samples as the data of an experiment."""
    from workbench.data import Datasets
    from workbench.data.splits import ArraySplit

    inputs, targets = make_samples(options["model"], options["num_samples"])
    is_image = options["model"] == "resnet"
    return Datasets(
        name="samples",
        task="classification" if is_image else "language_model",
        train=ArraySplit(inputs, targets),
        validation=ArraySplit(inputs[:32], targets[:32]),
        input_shape=inputs.shape[1:],
        num_outputs=NUM_CLASSES if is_image else VOCABULARY,
        vocabulary_size=None if is_image else VOCABULARY,
    )


def build_torch(model: str) -> Any:
    """Return the model of the zoo."""
    from workbench.models.adapters import build_model

    if model == "resnet":
        return build_model(
            model, MODELS[model], input_shape=(3, PIXELS, PIXELS), num_outputs=NUM_CLASSES
        )
    return build_model(
        model,
        MODELS[model],
        input_shape=(CONTEXT,),
        num_outputs=VOCABULARY,
        vocabulary_size=VOCABULARY,
    )


def loss_of(outputs: Any, targets: Any) -> Any:
    """Return the mean cross-entropy over samples, or over tokens."""
    import torch

    return torch.nn.functional.cross_entropy(
        outputs.reshape(-1, outputs.shape[-1]), targets.reshape(-1)
    )


def torch_loader(model: str, batch: int, num_steps: int) -> Any:
    """Return a DataLoader over the samples."""
    import torch
    from torch.utils.data import DataLoader, TensorDataset

    inputs, targets = make_samples(model, batch * num_steps)
    dataset = TensorDataset(torch.from_numpy(inputs), torch.from_numpy(targets))
    return DataLoader(dataset, batch, shuffle=True)


def train_with_workbench(model: str, batch: int, num_steps: int, steps: Steps) -> None:
    """Train through `run_trial`, with everything that it reports and measures by default."""
    from torch.optim.optimizer import register_optimizer_step_post_hook

    from workbench.experiment import Experiment
    from workbench.training.trial import run_trial
    from workbench.training.worker_task import TrialTask

    hook = register_optimizer_step_post_hook(steps.note)
    experiment = Experiment(
        model={"name": model, **MODELS[model]},
        data={
            "name": "tests.benchmarks.frameworks:load_samples",
            "model": model,
            "num_samples": batch * num_steps,
        },
        objectives=[{"metric": "val_loss", "goal": "minimize"}],
        training={"epochs": 1, "global_batch": batch, "lr": LR, "optimizer": "adamw"},
    )
    with tempfile.TemporaryDirectory() as folder:
        ended = run_trial(
            TrialTask("r", 0, 0, experiment.model_dump_json(), folder=folder), lambda _: False
        )
    hook.remove()
    assert ended.state == "complete", ended


def train_with_torch(model: str, batch: int, num_steps: int, steps: Steps) -> None:
    """Train with a plain loop."""
    import torch

    network = build_torch(model)
    optimizer = torch.optim.AdamW(network.parameters(), lr=LR, fused=True)
    for inputs, targets in torch_loader(model, batch, num_steps):
        loss_of(network(inputs), targets).backward()
        optimizer.step()
        optimizer.zero_grad()
        steps.note()


def train_with_accelerate(model: str, batch: int, num_steps: int, steps: Steps) -> None:
    """Train with Accelerate."""
    import torch
    from accelerate import Accelerator

    accelerator = Accelerator(cpu=True)
    network = build_torch(model)
    network, optimizer, loader = accelerator.prepare(
        network,
        torch.optim.AdamW(network.parameters(), lr=LR, fused=True),
        torch_loader(model, batch, num_steps),
    )
    for inputs, targets in loader:
        accelerator.backward(loss_of(network(inputs), targets))
        optimizer.step()
        optimizer.zero_grad()
        steps.note()


def train_with_lightning(model: str, batch: int, num_steps: int, steps: Steps) -> None:
    """Train with a LightningModule, without loggers and checkpoints."""
    import lightning
    import torch

    class Module(lightning.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.network = build_torch(model)

        def training_step(self, batch: Any, batch_idx: int) -> Any:
            return loss_of(self.network(batch[0]), batch[1])

        def configure_optimizers(self) -> Any:
            return torch.optim.AdamW(self.network.parameters(), lr=LR, fused=True)

        def on_train_batch_end(self, outputs: Any, batch: Any, batch_idx: int) -> None:
            steps.note()

    trainer = lightning.Trainer(
        max_epochs=1,
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(Module(), torch_loader(model, batch, num_steps))


def train_with_keras_on_torch(model: str, batch: int, num_steps: int, steps: Steps) -> None:
    """Train the same torch module in Keras."""
    import keras
    import torch

    class Module(keras.Model):
        def __init__(self) -> None:
            super().__init__()
            self.network = keras.layers.TorchModuleWrapper(build_torch(model))

        def call(self, inputs: Any, training: bool | None = None) -> Any:
            return self.network(inputs if model == "resnet" else inputs.long())

    _fit_in_keras(Module(), torch_loader(model, batch, num_steps), loss_of_keras(torch), steps)


def loss_of_keras(torch: Any) -> Callable[[Any, Any], Any]:
    """Return the loss with the arguments in the order of Keras."""
    return lambda targets, outputs: loss_of(outputs, targets.to(torch.int64))


def train_with_keras_on_jax(model: str, batch: int, num_steps: int, steps: Steps) -> None:
    """Train a network of the same shape, made of layers of Keras."""
    import keras

    inputs, targets = make_samples(model, batch * num_steps)
    if model == "resnet":
        inputs = inputs.transpose(0, 2, 3, 1).copy()  # what its convolutions take on a CPU
    network = keras_resnet(keras) if model == "resnet" else keras_transformer(keras)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    _fit_in_keras(network, (inputs, targets, batch), loss, steps)


def keras_resnet(keras: Any) -> Any:
    """Return three stages of a residual block, with shortcuts that skip pixels and pad channels."""
    layers, ops, width = keras.layers, keras.ops, MODELS["resnet"]["width"]

    def convolve(hidden: Any, channels: int, stride: int = 1) -> Any:
        if stride > 1:
            hidden = layers.ZeroPadding2D(1)(hidden)
        padding = "valid" if stride > 1 else "same"
        hidden = layers.Conv2D(channels, 3, stride, padding=padding, use_bias=False)(hidden)
        return layers.BatchNormalization()(hidden)

    given = keras.Input((PIXELS, PIXELS, 3))
    hidden = layers.Activation("relu")(convolve(given, width))
    for number in range(3):
        channels, stride = width * 2**number, 1 if number == 0 else 2
        inner = layers.Activation("relu")(convolve(hidden, channels, stride))
        inner = convolve(inner, channels)
        if stride > 1:
            added = channels // 4
            hidden = ops.pad(hidden[:, ::2, ::2], [[0, 0], [0, 0], [0, 0], [added, added]])
        hidden = layers.Activation("relu")(inner + hidden)
    return keras.Model(given, layers.Dense(NUM_CLASSES)(layers.GlobalAveragePooling2D()(hidden)))


def keras_transformer(keras: Any) -> Any:
    """Return a decoder of the width, depth and heads of the zoo's, with an output layer of its
    own.
    """
    layers, options = keras.layers, MODELS["transformer"]
    width, num_heads = options["width"], options["num_heads"]

    class Places(layers.Layer):
        def __init__(self) -> None:
            super().__init__()
            self.table = layers.Embedding(CONTEXT, width)

        def call(self, hidden: Any) -> Any:
            return hidden + self.table(keras.ops.arange(CONTEXT))

    given = keras.Input((CONTEXT,), dtype="int32")
    hidden = Places()(layers.Embedding(VOCABULARY, width)(given))
    for _ in range(options["num_layers"]):
        normed = layers.LayerNormalization()(hidden)
        attention = layers.MultiHeadAttention(num_heads, width // num_heads)
        hidden = hidden + attention(normed, normed, use_causal_mask=True)
        inner = layers.Dense(4 * width, activation="gelu")(layers.LayerNormalization()(hidden))
        hidden = hidden + layers.Dense(width)(inner)
    outputs = layers.Dense(VOCABULARY, use_bias=False)(layers.LayerNormalization()(hidden))
    return keras.Model(given, outputs)


def _fit_in_keras(network: Any, data: Any, loss: Any, steps: Steps) -> None:
    import keras

    class Noting(keras.callbacks.Callback):
        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            float(logs["loss"])  # jax computes in the background until a value is needed
            steps.note()

    network.compile(optimizer=keras.optimizers.AdamW(LR), loss=loss)
    given = (
        {"x": data[0], "y": data[1], "batch_size": data[2]}
        if isinstance(data, tuple)
        else {"x": data}
    )
    network.fit(**given, epochs=1, verbose=0, callbacks=[Noting()])


@dataclass(frozen=True)
class Framework:
    """A framework, the packages that it needs, and how it trains."""

    packages: tuple[str, ...]
    train: Callable[[str, int, int, Steps], None]
    environment: dict[str, str]


FRAMEWORKS = {
    "torch": Framework((), train_with_torch, {}),
    "workbench": Framework((), train_with_workbench, {}),
    "Accelerate": Framework(("accelerate",), train_with_accelerate, {}),
    "Lightning": Framework(("lightning",), train_with_lightning, {}),
    "Keras on torch": Framework(("keras",), train_with_keras_on_torch, {"KERAS_BACKEND": "torch"}),
    "Keras on jax": Framework(("keras", "jax"), train_with_keras_on_jax, {"KERAS_BACKEND": "jax"}),
}


def train_all(name: str, num_steps: int) -> list[tuple[float, float]]:
    """Train every case in this process, on one thread.

    Return a step's milliseconds and processor time.
    """
    import torch

    torch.set_num_threads(1)
    losses: list[tuple[float, float]] = []
    for model, batch in CASES:
        torch.manual_seed(0)
        steps = Steps([])
        FRAMEWORKS[name].train(model, batch, num_steps, steps)
        losses.append(steps.medians_ms)
    return losses


def main() -> None:
    """Train in turns, print the table, write the result."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--one", metavar="FRAMEWORK", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.one:
        print(json.dumps(train_all(given.one, given.steps)))
        return
    missing = [
        name
        for name, framework in FRAMEWORKS.items()
        if not all(importlib.util.find_spec(package) for package in framework.packages)
    ]
    names = [name for name in FRAMEWORKS if name not in missing]
    losses: dict[str, list[list[tuple[float, float]]]] = {name: [] for name in names}
    loads = [os.getloadavg()[0]]
    rows: list[dict[str, Any]] = []
    for turn in range(given.turns):
        for name in names[:: 1 if turn % 2 == 0 else -1]:
            losses[name].append(_in_process(name, given.steps))
            print(name, *(f"{wall:.1f}/{used:.1f}" for wall, used in losses[name][-1]), flush=True)
        loads.append(os.getloadavg()[0])
        rows = [_row(place, model, batch, losses) for place, (model, batch) in enumerate(CASES)]
        report = {
            "turns": turn + 1,
            "steps": given.steps,
            "cores": os.cpu_count(),
            "load": loads,
            "left_out": missing,
            "versions": _versions(),
            "models": MODELS,
            "rows": rows,
        }
        RESULTS.write_text(
            json.dumps(report, indent=2) + "\n"
        )  # an interruption leaves the turns before it
        print(f"turn {turn + 1} of {given.turns} is in {RESULTS}", flush=True)
    for row in rows:
        print(f"\n{row['model']}, batch {row['batch']} (medians of {given.turns})")
        for name, one in row["frameworks"].items():
            least, most = one["ratio_interval"]
            print(
                f"  {name:<16}{one['ms']:8.2f} ms, processor {one['processor_ms']:8.2f} ms, "
                f"{one['ratio_to_torch']:5.2f} of torch ({least:.2f} to {most:.2f})"
            )
    print(f"\nleft out, as they are not installed: {', '.join(missing) or 'none'}")


def _in_process(name: str, num_steps: int) -> list[tuple[float, float]]:
    threads = {"OMP_NUM_THREADS": "1", "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false"}
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "tests.benchmarks.frameworks",
            "--steps",
            str(num_steps),
            "--one",
            name,
        ],
        env={**os.environ, **threads, **FRAMEWORKS[name].environment},
        capture_output=True,
        text=True,
    )
    if done.returncode:
        sys.exit(f"{name} failed:\n{done.stderr[-3000:]}")
    return json.loads(done.stdout.splitlines()[-1])


def _row(
    place: int, model: str, batch: int, found: dict[str, list[list[tuple[float, float]]]]
) -> dict[str, Any]:
    """Return what was measured of one case."""
    plain = [turn[place][1] for turn in found["torch"]]
    by_name: dict[str, Any] = {}
    for name, turns in found.items():
        used = [turn[place][1] for turn in turns]
        ratios = [own / other for own, other in zip(used, plain, strict=True)]
        by_name[name] = {
            "ms": statistics.median(turn[place][0] for turn in turns),
            "processor_ms": statistics.median(used),
            "each": [turn[place] for turn in turns],
            "ratio_to_torch": statistics.median(ratios),
            "ratio_interval": [min(ratios), max(ratios)],
        }
    return {"model": model, "batch": batch, "frameworks": by_name}


def _versions() -> dict[str, str]:
    from importlib.metadata import PackageNotFoundError, version

    versions: dict[str, str] = {}
    for package in ("torch", "accelerate", "lightning", "keras", "jax"):
        try:
            versions[package] = version(package)
        except PackageNotFoundError:
            continue
    return versions


if __name__ == "__main__":
    main()
