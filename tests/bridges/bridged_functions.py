"""One small training with each library, written as its users would, in four epochs or rounds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

NUM_STEPS = 4


def samples() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    inputs = rng.normal(size=(64, 3)).astype(np.float32)
    return inputs, (inputs[:, 0] - 2 * inputs[:, 1] > 0).astype(np.float32)


def train_xgboost(config: dict[str, Any], report: Any, folder: Path) -> None:
    import xgboost

    from workbench.bridges.xgboost import TrialCallback

    callback = TrialCallback(report, folder, save_every=1)
    data = xgboost.DMatrix(*samples())
    xgboost.train(
        {"objective": "binary:logistic", "eta": 0.3, "nthread": 1},
        data,
        num_boost_round=callback.num_left(NUM_STEPS),
        evals=[(data, "train")],
        callbacks=[callback],
        xgb_model=callback.resume_from,
        verbose_eval=False,
    )


def train_lightgbm(config: dict[str, Any], report: Any, folder: Path) -> None:
    import lightgbm

    from workbench.bridges.lightgbm import TrialCallback

    callback = TrialCallback(report, folder, save_every=1)
    data = lightgbm.Dataset(*samples())
    lightgbm.train(
        {"objective": "binary", "num_threads": 1, "min_data_in_leaf": 4, "verbose": -1},
        data,
        num_boost_round=callback.num_left(NUM_STEPS),
        valid_sets=[data],
        valid_names=["train"],
        callbacks=[callback],
        init_model=callback.resume_from,
    )


def train_sklearn(config: dict[str, Any], report: Any, folder: Path) -> None:
    from sklearn.ensemble import GradientBoostingClassifier
    from sklearn.metrics import log_loss

    from workbench.bridges.sklearn import TrialCallback

    inputs, targets = samples()
    TrialCallback(report, folder).fit(
        GradientBoostingClassifier(n_estimators=8, max_depth=2, random_state=0),
        inputs,
        targets,
        measure=lambda fitted: {"log_loss": log_loss(targets, fitted.predict_proba(inputs))},
        num_stages=NUM_STEPS,
    )


def train_lightning(config: dict[str, Any], report: Any, folder: Path, worker: Any = None) -> None:
    import lightning
    import torch

    from workbench.bridges.lightning import TrialCallback

    class Line(lightning.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(3, 1)
            torch.nn.init.zeros_(self.layer.weight)
            torch.nn.init.zeros_(self.layer.bias)
            self.losses: list[float] = []

        def loss(self, batch: Any) -> Any:
            return torch.nn.functional.binary_cross_entropy_with_logits(
                self.layer(batch[0])[:, 0], batch[1]
            )

        def training_step(self, batch: Any, index: int) -> Any:
            loss = self.loss(batch)
            self.losses.append(loss.item())
            return loss

        def validation_step(self, batch: Any, index: int) -> None:
            self.log("val_loss", self.loss(batch))

        def on_train_epoch_end(self) -> None:
            self.log("last_loss", self.losses[-1])

        def configure_optimizers(self) -> Any:
            return torch.optim.SGD(self.parameters(), lr=0.1, momentum=0.9)

    data = torch.utils.data.TensorDataset(*map(torch.from_numpy, samples()))
    loader = torch.utils.data.DataLoader(data, batch_size=16)
    callback = TrialCallback(report, folder)
    trainer = lightning.Trainer(
        max_epochs=NUM_STEPS,
        accelerator="cpu",
        callbacks=[callback],
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        default_root_dir=folder,
        devices=1 if worker is None else worker.num_workers,
    )
    trainer.fit(Line(), loader, loader, ckpt_path=callback.resume_from)


def train_transformers(
    config: dict[str, Any], report: Any, folder: Path, worker: Any = None
) -> None:
    import torch
    import transformers

    from workbench.bridges.transformers import TrialCallback

    class Line(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(3, 1)
            torch.nn.init.zeros_(self.layer.weight)
            torch.nn.init.zeros_(self.layer.bias)

        def forward(self, inputs: Any, labels: Any) -> Any:
            outputs = self.layer(inputs)[:, 0]
            loss = torch.nn.functional.binary_cross_entropy_with_logits(outputs, labels)
            return {"loss": loss, "logits": outputs}

    data = [{"inputs": inputs, "labels": label} for inputs, label in zip(*samples(), strict=True)]
    callback = TrialCallback(report, folder)
    trainer = transformers.Trainer(
        model=Line(),
        args=transformers.TrainingArguments(
            output_dir=str(folder),
            num_train_epochs=NUM_STEPS,
            per_device_train_batch_size=16,
            learning_rate=0.1,
            eval_strategy="epoch",
            save_strategy="no",
            report_to=[],
            disable_tqdm=True,
            use_cpu=True,
        ),
        train_dataset=data,
        eval_dataset=data,
        callbacks=[callback],
    )
    trainer.train(resume_from_checkpoint=callback.resume_from)


def train_keras(config: dict[str, Any], report: Any, folder: Path) -> None:
    import os

    os.environ.setdefault("KERAS_BACKEND", "torch")
    import keras

    from workbench.bridges.keras import TrialCallback

    inputs, targets = samples()
    model = keras.Sequential(
        [keras.Input((3,)), keras.layers.Dense(1, activation="sigmoid", kernel_initializer="zeros")]
    )
    model.compile(keras.optimizers.SGD(0.1, momentum=0.9), "binary_crossentropy")
    callback = TrialCallback(report, folder)
    model.fit(
        inputs,
        targets,
        batch_size=16,
        shuffle=False,
        epochs=NUM_STEPS,
        validation_data=(inputs, targets),
        callbacks=[callback],
        initial_epoch=callback.num_done,
        verbose=0,
    )


def train_jax(config: dict[str, Any], report: Any, folder: Path) -> None:
    import jax
    import optax

    from workbench.bridges.jax import TrialCallback

    inputs, targets = samples()
    optimizer = optax.adam(0.1)

    def loss_of(weights: Any) -> Any:
        return optax.sigmoid_binary_cross_entropy(inputs @ weights, targets).mean()

    weights = jax.numpy.zeros(3)
    callback = TrialCallback(report, folder)
    weights, state = callback.restore((weights, optimizer.init(weights)))
    for step in range(callback.num_done + 1, NUM_STEPS + 1):
        loss, gradient = jax.value_and_grad(loss_of)(weights)
        updates, state = optimizer.update(gradient, state)
        weights = optax.apply_updates(weights, updates)
        if callback(step, (weights, state), loss=loss):
            return
