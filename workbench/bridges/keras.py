"""Keras 3: a callback that reports each epoch, and saves weights and optimizer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from workbench.bridges import Bridge, missing

try:
    from keras.callbacks import Callback  # pyright: ignore[reportMissingImports]
except ModuleNotFoundError as error:
    raise missing("keras") from error


class TrialCallback(Bridge, Callback):
    """Reports each epoch as a step, with the metrics in Keras' history, such as `val_loss`.

    To resume, call `model.fit(..., initial_epoch=callback.num_done)`. The model must be built.
    """

    def on_train_begin(self, logs: Mapping[str, Any] | None = None) -> None:
        """Load the checkpoint of an earlier attempt. See keras.callbacks.Callback."""
        del logs
        model: Any = self.model
        if self.resume_from is None:
            return
        if model.optimizer is not None and not model.optimizer.built:
            model.optimizer.build(model.trainable_variables)
        model.load_weights(self.resume_from)

    def on_epoch_end(self, epoch: int, logs: Mapping[str, Any] | None = None) -> None:
        """Report an epoch. See keras.callbacks.Callback."""
        model: Any = self.model
        if self.advance(epoch + 1, logs or {}, model.save_weights, suffix=".weights.h5"):
            model.stop_training = True
