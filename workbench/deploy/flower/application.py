"""Writes a trial of a federation as an application for Flower.

It writes the programs of the model, the settings and the clients. `learning` contains the
computation. `client_app` and `server_app` connect it with Flower. These modules and the modules of
the workbench that they use are copied and never imported here.
"""

from __future__ import annotations

import importlib.metadata
import inspect
import io
import json
import logging
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from workbench.data import Datasets, Split, sample_seeding
from workbench.deploy.flower import learning
from workbench.deploy.flower.learning import (
    CLIENT_FILE,
    EVALUATE,
    INITIAL,
    MODEL,
    SETTINGS,
    TRAIN,
    packed,
)
from workbench.experiment import Experiment
from workbench.experiment.federated import Federated, default_server_lr
from workbench.experiment.training_section import PLATEAU, is_own_schedule
from workbench.foundation.errors import DataError, RunError, first_line_of
from workbench.models.metrics import ACCURACY, BatchMetric, with_pairing
from workbench.models.model_calls import call_model
from workbench.models.pairing import Pairing
from workbench.training.assembly import assemble, build_trial_model
from workbench.training.federated import server
from workbench.training.federated.clients import clients_of
from workbench.training.loaders import as_tensors
from workbench.training.loading import load_trial_data
from workbench.training.loss_and_metrics import learned_pairing, loss_of, pairing_of
from workbench.training.optimizers import (
    grouped,
    groups_of,
    is_of_bitsandbytes,
    optimizer_factory,
    uses_muon,
)
from workbench.training.planning.settings import TrialSettings
from workbench.training.strategies.client_steps import ClientSteps
from workbench.training.strategies.strategy import Worker
from workbench.training.worker_task import TrialTask

FOLDER, CLIENTS = "flower", "clients"
_PACKAGE = "federation"
_CODE = (learning, server, sample_seeding)
_APPS = ("client_app", "server_app")
_FOR_PYRIGHT = "# pyright: reportMissingImports=false\n"
_TEXTS = {"pyproject.toml": "project.toml", "README.md": "README.md"}
"""Further files of the application, by the name of their template."""
_DRAWS = """
The trial simulated failures, stragglers and timeouts of clients. Here nothing is simulated. A
device that does not answer is skipped.
"""
_AS_IT_IS = "Export it without --format flower."


class _WithLoss(nn.Module):
    """A model that returns its loss, and the numbers of correct and of all predicted classes."""

    def __init__(self, model: nn.Module, loss: Any, pairing: Pairing, *, has_classes: bool) -> None:
        super().__init__()
        self.model = model
        self._loss, self._has_classes = loss, has_classes
        self._accuracy = with_pairing(ACCURACY, pairing)

    def forward(self, inputs: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        outputs = call_model(self.model, inputs)
        loss = self._loss(outputs, targets)
        if not self._has_classes:
            return loss, torch.zeros(2)
        assert isinstance(self._accuracy, BatchMetric)
        right, count = self._accuracy.measure(outputs, targets)
        return loss, torch.stack([right, torch.as_tensor(count)])


def write_application(folder: Path, task: TrialTask, name: str) -> None:
    """Write the federation of a trial as an application for Flower.

    Args:
        folder: Where to write it. It is made.
        task: The trial, as it was given to its worker.
        name: The name of the run.

    Raises:
        RunError: If Flower cannot do what the trial did.
        WorkbenchError: If the model cannot be built, or the data cannot be loaded.
    """
    experiment, params, seed = task.experiment, task.params, task.seed
    _check(experiment)
    parts = assemble(task, Worker())
    try:
        assert isinstance(parts.strategy, ClientSteps)
        initial = {key: value.clone() for key, value in parts.strategy.weights().items()}
        settings, rates = parts.settings, []
        for number in range(settings.training.epochs):
            rates.append(settings.lr * parts.schedule.factor(number))
            parts.schedule.after_step()
            parts.schedule.after_epoch()
    finally:
        parts.close()
    datasets = load_trial_data(task.run_id, experiment, seed, params)
    model = build_trial_model(experiment, params, settings, datasets)
    model.load_state_dict(initial)
    written = _settings(experiment, settings, datasets, model, rates=rates, seed=seed)
    package = folder / _PACKAGE
    package.mkdir(parents=True, exist_ok=True)
    (package / SETTINGS).write_text(json.dumps(written, indent=2) + "\n", encoding="utf-8")
    (package / MODEL).write_text(
        json.dumps(_programs(experiment, datasets, model, written["sent"])), encoding="utf-8"
    )
    for module_name, source in {"__init__": "", **_sources()}.items():
        (package / f"{module_name}.py").write_text(source, encoding="utf-8")
    for file, text in _texts(name, written, settings).items():
        (folder / file).write_text(text, encoding="utf-8")
    _write_clients(folder / CLIENTS, datasets, experiment, settings)


def _check(experiment: Experiment) -> None:
    training, federated = experiment.training, experiment.federated
    searched = set(experiment.search.root)
    reasons = {
        "the trial is not a federation": federated is None,
        "secure aggregation cannot be exported, because Flower has its own (SecAgg+)": (
            federated is not None and federated.secure
        ),
        "training.gradient_hook is code that the devices do not have": (
            training.gradient_hook is not None
        ),
        "training.optimizer is in a package that the devices lack": (
            ":" in training.optimizer or is_of_bitsandbytes(training)
        ),
        "training.optimizer: muon has no class of torch for a whole model": uses_muon(training),
        "training.schedule depends on values that are measured during the training": (
            training.schedule == PLATEAU or is_own_schedule(training.schedule)
        ),
        "training.private cannot be exported": training.private is not None,
        "plan.precision must be fp32, because devices compute in float32": (
            experiment.plan.precision not in ("auto", "fp32") or "precision" in searched
        ),
    }
    for reason, is_so in reasons.items():
        if is_so:
            raise RunError(
                f"this trial cannot be exported for Flower: {reason}", next_step=_AS_IT_IS
            )


def _settings(
    experiment: Experiment,
    settings: TrialSettings,
    datasets: Datasets,
    model: nn.Module,
    *,
    rates: list[float],
    seed: int,
) -> dict[str, Any]:
    federated, training = settings.federated, settings.training
    assert federated is not None
    server_lr = federated.server_lr
    if server_lr == "auto":
        server_lr = default_server_lr(federated.server)
    frozen = {name for name, item in model.named_parameters() if not item.requires_grad}
    trained = {name: item for name, item in model.named_parameters() if item.requires_grad}
    sent = [
        name
        for name, value in model.state_dict().items()
        if value.is_floating_point() and name not in frozen
    ]
    return {
        "clients": federated.clients,
        "fraction": federated.fraction,
        "rounds": training.epochs,
        "local_epochs": federated.local_epochs,
        "batch": settings.step_batch,
        "proximal": federated.proximal,
        "clip_norm": training.clip_norm,
        "rates": rates,
        "seed": seed,
        "optimizer": _optimizer(experiment, settings, trained),
        "server": {
            "rule": federated.server,
            "lr": server_lr,
            "momentum": federated.server_momentum,
            "second_moment": federated.server_second_moment,
            "tau": federated.server_tau,
        },
        "aggregation": federated.aggregation,
        "trim": federated.trim,
        "num_bad": federated.num_bad,
        "sent": sent,
        "trained": list(trained),
        "has_classes": _has_classes(experiment, datasets, model),
    }


def _has_classes(experiment: Experiment, datasets: Datasets, model: nn.Module) -> bool:
    """Return whether each prediction is of one class, so that it is right or wrong."""
    was_training = model.training
    try:
        return learned_pairing(experiment, datasets, model.eval()).form is not None
    except DataError:
        return False
    finally:
        model.train(was_training)


def _optimizer(
    experiment: Experiment, settings: TrialSettings, trained: Mapping[str, nn.Parameter]
) -> dict[str, Any]:
    """Return the class and, for each group of parameters, their names and all options."""
    names = {id(item): name for name, item in trained.items()}
    groups = groups_of(experiment, settings)
    given = grouped(trained.items(), groups, 1) if groups else list(trained.values())
    made = optimizer_factory(settings.training, settings.lr)(given)
    return {
        "name": type(made).__name__,
        "groups": [
            {
                "names": [names[id(item)] for item in group["params"]],
                "options": {key: value for key, value in group.items() if key != "params"},
            }
            for group in made.param_groups
        ],
    }


def _programs(
    experiment: Experiment, datasets: Datasets, model: nn.Module, sent: list[str]
) -> dict[str, str]:
    """Return the programs that train and evaluate the model, and its first weights."""
    examples = [
        as_tensors(part) for part in datasets.train.batch(np.arange(min(4, len(datasets.train))))
    ]
    if not all(isinstance(part, Tensor) for part in examples):
        raise RunError(
            "only a model with one input and one target can be exported for Flower",
            next_step=_AS_IT_IS,
        )
    pairing = pairing_of(experiment, datasets)
    with_loss = _WithLoss(
        model,
        loss_of(experiment, datasets, pairing),
        pairing,
        has_classes=_has_classes(experiment, datasets, model),
    )
    initial = {name: value.numpy() for name, value in model.state_dict().items() if name in sent}
    written = io.BytesIO()
    np.savez(written, **initial)
    programs = {INITIAL: packed(written.getvalue())}
    state = model.state_dict()
    for name in sent:  # every round brings them
        state[name].zero_()
    for name, is_training in ((TRAIN, True), (EVALUATE, False)):
        with_loss.train(is_training)
        programs[name] = packed(_exported(with_loss, (examples[0], examples[1])))
    return programs


def _exported(module: nn.Module, examples: tuple[Tensor, Tensor]) -> bytes:
    batch = torch.export.Dim("batch", min=1)
    content = io.BytesIO()
    try:
        with _quiet():
            program = torch.export.export(module, examples, dynamic_shapes=({0: batch}, {0: batch}))
            torch.export.save(program, content)
    except Exception as error:  # torch raises many kinds, which have no common base class
        raise RunError(
            f"torch cannot export the model as a program: {first_line_of(error)}",
            next_step=_AS_IT_IS,
        ) from error
    return content.getvalue()


@contextmanager
def _quiet() -> Iterator[None]:
    logger = logging.getLogger("torch.export")
    before = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(before)


def _sources() -> dict[str, str]:
    """Return the code of the application by module: what it computes, and its two apps."""
    folder = Path(__file__).parent
    sources = {_name_of(module): inspect.getsource(module) for module in _CODE}
    for name in _APPS:
        text = (folder / f"{name}.py").read_text(encoding="utf-8")
        sources[name] = text.removeprefix(_FOR_PYRIGHT)
    for module in _CODE:  # all of them are in one folder there
        imported = f"from {_PACKAGE}.{_name_of(module)} import"
        sources = {
            name: source.replace(f"from {module.__name__} import", imported)
            for name, source in sources.items()
        }
    return sources


def _name_of(module: ModuleType) -> str:
    return module.__name__.rpartition(".")[2]


def _texts(name: str, written: dict[str, Any], settings: TrialSettings) -> dict[str, str]:
    """Return the project file and the README of the application."""
    federated = settings.federated
    assert isinstance(federated, Federated)
    draws_clients = (
        federated.failures > 0 or federated.stragglers > 0 or federated.timeout is not None
    )
    words = {
        "NOTE": _DRAWS if draws_clients else "",
        "NUM": str(written["clients"]),
        "ROUNDS": str(written["rounds"]),
        "TORCH": importlib.metadata.version("torch").partition("+")[0],
        "NAME": name.replace('"', "'"),
    }
    texts = {}
    for file, template in _TEXTS.items():
        text = (Path(__file__).parent / template).read_text(encoding="utf-8")
        for word, value in words.items():
            text = text.replace(word, value)
        texts[file] = text
    return texts


def _write_clients(
    folder: Path, datasets: Datasets, experiment: Experiment, settings: TrialSettings
) -> None:
    """Write the samples of each client as the experiment divided them."""
    assert settings.federated is not None
    folder.mkdir(parents=True, exist_ok=True)
    clients = clients_of(datasets, settings.federated, experiment.seed)
    for number, (own, held) in enumerate(zip(clients.train, clients.validation, strict=True)):
        inputs, targets = _samples(datasets.train, own)
        val_inputs, val_targets = _samples(datasets.validation, held)
        np.savez(
            folder / CLIENT_FILE.format(number),
            inputs=inputs,
            targets=targets,
            val_inputs=val_inputs,
            val_targets=val_targets,
        )


def _samples(split: Split, numbers: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return samples and targets. They are empty arrays for a client without samples."""
    inputs, targets = split.batch(numbers if len(numbers) else np.arange(1))
    return np.asarray(inputs)[: len(numbers)], np.asarray(targets)[: len(numbers)]
