"""One trial of a compression: prune, lower the rank, fine-tune, export, quantise, and measure.

It is the train function of a compression's experiment. Scores are measured with ONNX Runtime and
the file that would be deployed, not with torch.

Fine-tuning trains the smaller model on the targets and on the outputs of the whole model
(distillation).
"""

from __future__ import annotations

import copy
import dataclasses
import json
import math
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from workbench.data import Datasets
from workbench.data.splits import ArraySplit, Split
from workbench.deploy import device_runner
from workbench.deploy.card import MODEL
from workbench.deploy.compression.low_rank import factorise
from workbench.deploy.compression.pruning import prune, scales_of
from workbench.deploy.compression.quantisers import quantise, rounding
from workbench.deploy.compression.trained_base import (
    Base,
    example_of,
    measure,
    measure_answers,
    quality_of,
    write_model,
)
from workbench.deploy.device import HERE, OnDevice, measure_there, time_model
from workbench.deploy.onnx_export import feeds_for, given_to
from workbench.deploy.predictor import open_session
from workbench.store.history.compression import RATIO_HERE
from workbench.training.loss_and_metrics import loss_of, pairing_of
from workbench.training.tensor_source import Source

_TEMPERATURE = 2.0
_WEIGHT_DECAY = 1e-4
_WARM_UP = 0.1
_MAX_KEPT_NUMBERS = 2**24
MEASURED = "compression.json"
_BATCH, _SMALL_BATCH = 64, 32
FEW_SAMPLES = 4000
"""With fewer training samples than this, each step of the fine-tuning uses a smaller batch."""
_BY_TORCH = ("pruning", "rank", "epochs", "lr", "distillation", "slimming")
_UNCHANGED = {"pruning": 0.0, "rank": 1.0, "epochs": 0}
_NUM_MADE = 8
_MAX_SENT_BYTES = 64 * 2**20
"""The largest size of the samples that are sent to another device, with their answers."""
_DISTILLATION = 0.9
_last_made: dict[str, tuple[nn.Module, bytes]] = {}
"""A cache of pruned and fine-tuned models as ONNX, because several quantisers are tried on each."""


class Teacher:
    """The outputs of the whole model. They are cached, unless samples change by augmentation."""

    def __init__(self, model: nn.Module, split: Split) -> None:
        """Hold a model.

        Args:
            model: The whole model.
            split: The training samples.
        """
        self._model = model.eval()
        self._num_samples = len(split)
        self._is_kept = isinstance(split, ArraySplit)
        self._outputs: Tensor | None = None
        self._is_known = torch.zeros(len(split), dtype=torch.bool)

    def outputs(self, indices: np.ndarray, inputs: Any) -> Tensor:
        """Return the outputs for samples.

        Args:
            indices: Their numbers.
            inputs: Their inputs.
        """
        places = torch.from_numpy(indices)
        if self._outputs is None or not bool(self._is_known[places].all()):
            with torch.no_grad():
                outputs = self._model(*given_to(self._model, inputs))
            if not self._is_kept or outputs[0].numel() * self._num_samples > _MAX_KEPT_NUMBERS:
                return outputs
            if self._outputs is None:
                self._outputs = torch.empty(self._num_samples, *outputs.shape[1:])
            self._outputs[places] = outputs
            self._is_known[places] = True
        return self._outputs[places]


def fine_tune(
    model: nn.Module,
    teacher: Teacher,
    source: Source,
    loss: Callable[[Any, Any], Tensor],
    *,
    epochs: int,
    lr: float,
    distillation: float,
    batch: int,
    classes: bool,
    seed: int,
    report: Callable[[int, float], bool],
    quality: Callable[[], float] | None = None,
    scales: Sequence[Tensor] = (),
    slimming: float = 0.0,
    scores: Callable[[Any], Tensor] | None = None,
) -> bool:
    """Train a model with AdamW and a rate that falls to zero. The best of the later epochs is kept.

    Args:
        model: The model. It is changed.
        teacher: The outputs of the whole model, which are also learned.
        source: The training samples.
        loss: A function of (outputs, targets).
        epochs: How often all samples are seen.
        lr: The highest rate.
        distillation: The weight of the teacher's outputs, from 0 to 1. The targets have the rest.
        batch: Samples of a step.
        classes: Whether outputs are scores of classes.
        seed: Seed of the order of the samples.
        report: Receives the epoch and its mean loss, and returns whether to stop.
        quality: Returns the score of the model in evaluation mode. None keeps the last epoch.
        scales: Parameters of which as many as possible should become zero.
        scores: Moves the classes of scores to the last dimension, or None if they are there.
        slimming: The weight of the sum of their sizes in the loss.

    Returns:
        Whether it was stopped.
    """
    steps = source.num_batches(batch) * epochs
    optimizer = torch.optim.AdamW(model.parameters(), lr=lr, weight_decay=_WEIGHT_DECAY, fused=True)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: _factor(step, steps))
    layout = _layout_of(model)
    model.to(memory_format=layout)  # pyright: ignore[reportCallIssue] (torch declares it for tensors only)
    stops = False
    best, kept = -math.inf, None
    for epoch in range(epochs):
        model.train()
        total = count = 0.0
        for indices in source.batches(global_batch=batch, epoch=epoch, seed=seed):
            inputs, targets = source.fetch(indices)
            outputs = model(*(_laid(tensor, layout) for tensor in given_to(model, inputs)))
            value = loss(outputs, targets)
            if distillation > 0:
                wanted = teacher.outputs(indices, inputs)
                answers = outputs
                if scores is not None:
                    answers, wanted = scores(outputs), scores(wanted)
                distance = _distance(answers, wanted, classes)
                value = (1 - distillation) * value + distillation * distance
            if scales:
                value = (
                    value + slimming * torch.stack([scale.abs().sum() for scale in scales]).sum()
                )
            optimizer.zero_grad(set_to_none=True)
            value.backward()
            optimizer.step()
            schedule.step()
            total += value.item() * len(indices)
            count += len(indices)
        if report(epoch + 1, total / count):
            stops = True
            break
        if quality is not None and epoch >= epochs // 2:
            model.eval()
            reached = quality()
            if reached >= best:  # of equal epochs, the last one
                best, kept = reached, copy.deepcopy(model.state_dict())
    if kept is not None:
        model.load_state_dict(kept)
    model.to(memory_format=torch.contiguous_format)  # pyright: ignore[reportCallIssue]
    model.eval()
    return stops


def _laid(tensor: Tensor, layout: torch.memory_format) -> Tensor:
    return tensor.contiguous(memory_format=layout) if tensor.dim() == 4 else tensor


def _layout_of(model: nn.Module) -> torch.memory_format:
    """Return the memory format in which a model trains fastest on a CPU."""
    has_images = any(isinstance(module, nn.Conv2d) for module in model.modules())
    return torch.channels_last if has_images else torch.contiguous_format


def _factor(step: int, steps: int) -> float:
    warm_up = max(1, round(_WARM_UP * steps))
    if step < warm_up:
        return (step + 1) / warm_up
    return 0.5 * (1 + math.cos(math.pi * (step - warm_up) / max(1, steps - warm_up)))


def _distance(outputs: Tensor, wanted: Tensor, classes: bool) -> Tensor:
    """Return the distance from the teacher's outputs. Probabilities of classes are softened."""
    if not classes:
        return functional.mse_loss(outputs, wanted)
    outputs, wanted = outputs.flatten(0, -2) / _TEMPERATURE, wanted.flatten(0, -2) / _TEMPERATURE
    divergence = functional.kl_div(
        outputs.log_softmax(-1), wanted.log_softmax(-1), log_target=True, reduction="batchmean"
    )
    return _TEMPERATURE**2 * divergence


_last_built: tuple[str, nn.Module, Datasets, Teacher] | None = None


@dataclass(frozen=True)
class Compression:
    """Compresses a base as a configuration describes. It is called as a train function.

    Attributes:
        base: The trained model.
        threads: Number of threads of each call that is timed.
        batch: Samples of each call that is timed.
        seed: Seed of the fine-tuning.
        measures_memory: Whether to measure the memory of a process that only runs the model. This
            takes a second.
        device: The device on which the latency is measured: here, or ssh://[USER@]HOST[:PORT].
        python: The Python of another device.
    """

    base: Base
    threads: int = 1
    batch: int = 1
    seed: int = 0
    measures_memory: bool = False
    device: str = HERE
    python: str = "python3"

    def __call__(
        self, config: Mapping[str, Any], report: Callable[..., bool], folder: Path, seed: int
    ) -> dict[str, float] | None:
        """Compress the base, keep the file in the folder of the trial, and return what was
        measured.

        Args:
            config: The way to compress.
            report: Receives the progress of the fine-tuning, and returns whether to stop.
            folder: Where the file is written.
            seed: Seed of the choice of samples for a calibration.

        Returns:
            The measured values by name, or None if the trial was stopped.
        """
        base = self.base
        model, datasets, teacher = _build(base)
        path = folder / MODEL
        with tempfile.TemporaryDirectory() as temporary:
            exported, original = Path(temporary, "float.onnx"), Path(temporary, "base.onnx")
            original.write_bytes(base.onnx)
            content = self._smaller(model, datasets, teacher, config, report)
            if content is None:
                return None
            exported.write_bytes(content)
            quantise(
                exported,
                path,
                config.get("quantiser", "none"),
                calibration=config.get("calibration", "minmax"),
                samples=_samples(exported, datasets, config.get("calibration_samples", 0), seed),
            )
            values = measure(path, base.experiment, datasets)
            here = self._compare(path, original, datasets)
            there = self._measure_there(path, original, datasets, values)
        compared = here if there is None else there.compared
        if there is not None and there.values:
            # The score of the device counts, because its processor may compute other answers.
            values = {**values, **there.values, f"{base.metric}_here": values[base.metric]}
        measured = {
            **values,
            "drop": base.drop(values[base.metric]),
            "latency_ratio": compared.ratio,
            "latency_ratio_low": compared.low,
            "latency_ratio_high": compared.high,
            "latency_s": compared.candidate_s,
            "base_latency_s": compared.base_s,
            "size_bytes": float(path.stat().st_size),
            "size_ratio": path.stat().st_size / len(base.onnx),
        }
        if there is not None:
            measured |= {
                RATIO_HERE: here.ratio,
                "latency_here_s": here.candidate_s,
                "latency_p95_s": there.p95_s,
                "memory_bytes": float(there.memory_bytes),
                **({} if there.energy_j is None else {"energy_j": there.energy_j}),
            }
        elif self.measures_memory:
            feeds = self._feeds(open_session(path), datasets)
            alone = time_model(path, feeds, threads=self.threads, num_calls=1)
            measured["memory_bytes"] = float(alone["memory_bytes"])
        self._keep(folder, config, measured, compared, there)
        return measured

    def check_device(self) -> None:
        """Measure the unchanged model on the device, to detect early if it cannot be used.

        Raises:
            ArgumentError: If the device is unknown.
            RunError: If it cannot be reached, or the model cannot be run there.
        """
        _, datasets = self.base.build()
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, MODEL)
            path.write_bytes(self.base.onnx)
            self._measure_there(path, path, datasets, self.base.values)

    def _smaller(
        self,
        model: nn.Module,
        datasets: Datasets,
        teacher: Teacher,
        config: Mapping[str, Any],
        report: Callable[..., bool],
    ) -> bytes | None:
        """Return the pruned and fine-tuned model as ONNX, or None if the trial was stopped."""
        way = {**_UNCHANGED, **{name: config[name] for name in _BY_TORCH if name in config}}
        is_aware = config.get("quantiser") == "qat"
        if way == _UNCHANGED and not is_aware:
            return self.base.onnx
        key = f"{self.base.sha256} {self.seed} {sorted(way.items())}"
        if key not in _last_made:
            num_slimming = way["epochs"] // 2 if way.get("slimming") else 0
            if num_slimming:
                model = copy.deepcopy(model)
                how = {**way, "epochs": num_slimming}
                if self._fine_tune(model, datasets, teacher, how, report, slimming=way["slimming"]):
                    return None
            example = given_to(model, example_of(datasets.train))
            smaller = factorise(prune(model, way["pruning"], example), way["rank"])
            how = {**way, "epochs": way["epochs"] - num_slimming}
            if how["epochs"] and self._fine_tune(
                smaller, datasets, teacher, how, report, after=num_slimming
            ):
                return None
            while len(_last_made) >= _NUM_MADE:
                _last_made.pop(next(iter(_last_made)))
            _last_made[key] = smaller, _as_onnx(smaller, datasets)
        smaller, content = _last_made[key]
        if not is_aware:
            return content
        aware = copy.deepcopy(smaller)
        how = {
            "epochs": config["qat_epochs"],
            "lr": config["qat_lr"],
            "distillation": _DISTILLATION,
        }
        with rounding(aware):
            is_stopped = self._fine_tune(aware, datasets, teacher, how, report, after=way["epochs"])
        return None if is_stopped else _as_onnx(aware, datasets)

    def _fine_tune(
        self,
        smaller: nn.Module,
        datasets: Datasets,
        teacher: Teacher,
        way: Mapping[str, Any],
        report: Callable[..., bool],
        *,
        after: int = 0,
        slimming: float = 0.0,
    ) -> bool:
        # The seed is the same for all trials, so that quantisers are compared on equal weights.
        torch.manual_seed(self.seed)
        batch = _SMALL_BATCH if len(datasets.train) <= FEW_SAMPLES else _BATCH
        pairing = pairing_of(self.base.experiment, datasets)
        return fine_tune(
            smaller,
            teacher,
            Source(datasets.train, torch.device("cpu"), order=datasets.order),
            loss_of(self.base.experiment, datasets, pairing),
            epochs=way["epochs"],
            lr=way["lr"],
            distillation=way["distillation"],
            batch=batch,
            seed=self.seed,
            scores=pairing.scores,
            classes=datasets.task in ("classification", "language_model"),
            report=lambda epoch, loss: report(step=after + epoch, fine_tuning_loss=loss),
            quality=None if slimming else lambda: quality_of(smaller, self.base, datasets),
            scales=scales_of(smaller) if slimming else (),
            slimming=slimming,
        )

    def _compare(self, path: Path, original: Path, datasets: Datasets) -> device_runner.Comparison:
        sessions = [open_session(model, threads=self.threads) for model in (path, original)]
        candidate, base = (
            device_runner.calls(session, self._feeds(session, datasets)) for session in sessions
        )
        return device_runner.compare(candidate, base)

    def _measure_there(
        self, path: Path, original: Path, datasets: Datasets, values: Mapping[str, float]
    ) -> OnDevice | None:
        """Return the measurement on another device, or None if the device is this machine.

        Args:
            path: The compressed model.
            original: The unchanged model.
            datasets: The data.
            values: The scores of the compressed model on this machine, on all validation samples.
        """
        if self.device == HERE:
            return None
        feeds = self._feeds(open_session(path), datasets)
        sent = _sent_samples(datasets, path)

        def evaluate(answers: np.ndarray) -> dict[str, float]:
            # If only some samples were sent, the difference on these is added to the score here.
            assert sent is not None
            experiment = self.base.experiment
            there = measure_answers(answers, sent.targets, experiment, datasets)
            here = measure_answers(sent.answers, sent.targets, experiment, datasets)
            return {name: values[name] + (there[name] - here[name]) for name in values}

        return measure_there(
            path,
            original,
            feeds,
            device=self.device,
            python=self.python,
            threads=self.threads,
            samples=None if sent is None else sent.inputs,
            evaluate=evaluate,
        )

    def _feeds(self, session: Any, datasets: Datasets) -> dict[str, np.ndarray]:
        return feeds_for(session, example_of(datasets.validation, self.batch))

    def _keep(
        self,
        folder: Path,
        config: Mapping[str, Any],
        values: Mapping[str, float],
        compared: device_runner.Comparison,
        there: OnDevice | None,
    ) -> None:
        document = {
            "base": {
                "run_id": self.base.run_id,
                "trial": self.base.trial,
                "sha256": self.base.sha256,
                "values": dict(self.base.values),
            },
            "config": dict(config),
            "values": dict(values),
            "latency": dataclasses.asdict(compared),
            "threads": self.threads,
            "batch": self.batch,
            "device": {
                "address": self.device,
                **({} if there is None else dataclasses.asdict(there)),
            },
        }
        (folder / MEASURED).write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")


def _build(base: Base) -> tuple[nn.Module, Datasets, Teacher]:
    """Return the model of a base, its data and its outputs.

    They are cached, so that trials of a run on a warm worker share them.
    """
    global _last_built
    if _last_built is None or _last_built[0] != base.sha256:
        _last_built = None
        model, datasets = base.build()
        _last_built = (base.sha256, model, datasets, Teacher(model, datasets.train))
    return _last_built[1:]


def _as_onnx(model: nn.Module, datasets: Datasets) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, MODEL)
        write_model(model, datasets.train, path)
        return path.read_bytes()


@dataclass(frozen=True)
class _SentSamples:
    """Validation samples that another device also answers, and the answers of this machine."""

    inputs: np.ndarray
    targets: np.ndarray
    answers: np.ndarray


def _sent_samples(datasets: Datasets, path: Path) -> _SentSamples | None:
    """Return as many validation samples as can be sent.

    None if inputs or targets are not one array. Then only the time is measured there.
    """
    source = Source(datasets.validation, torch.device("cpu"))
    session = open_session(path)
    name = session.get_inputs()[0].name
    given = source.fetch(np.arange(1))[0]
    if not isinstance(given, Tensor):
        return None
    first = given.numpy()
    sample_bytes = first.nbytes + session.run(None, {name: first})[0].nbytes
    number = max(1, min(len(source), _MAX_SENT_BYTES // max(1, sample_bytes)))
    chosen = np.unique(np.linspace(0, len(source) - 1, number).astype(int))
    inputs, targets = source.fetch(chosen)
    if not isinstance(targets, torch.Tensor):
        return None
    parts = [inputs[begin : begin + _BATCH].numpy() for begin in range(0, len(inputs), _BATCH)]
    answers = np.concatenate([session.run(None, {name: part})[0] for part in parts])
    return _SentSamples(inputs.numpy(), targets.numpy(), answers)


def _samples(
    path: Path, datasets: Datasets, number: int, seed: int
) -> dict[str, np.ndarray] | None:
    """Return inputs of a graph for a calibration, drawn from the training samples, or None."""
    if not number:
        return None
    size = len(datasets.train)
    chosen = np.sort(np.random.default_rng(seed).permutation(size)[: min(number, size)])
    inputs = Source(datasets.train, torch.device("cpu")).fetch(chosen)[0]
    return feeds_for(open_session(path), inputs)
