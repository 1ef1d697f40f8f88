"""Lightning: a callback that reports what a module logs, and saves the trainer's checkpoints."""

from __future__ import annotations

import importlib
import sys
from typing import Any

from workbench.bridges import Bridge, missing

_NAMES = ("lightning.pytorch", "pytorch_lightning")
"""The library has two packages. Classes of one do not work with the other."""


def _load_early_stopping() -> Any:
    for name in sorted(_NAMES, key=lambda name: name not in sys.modules):
        try:
            return importlib.import_module(f"{name}.callbacks").EarlyStopping
        except ModuleNotFoundError:
            continue
    raise missing("lightning")


_EarlyStopping = _load_early_stopping()


class _LastCallback(_EarlyStopping):
    """A callback that runs after the hooks of the module, when everything is logged.

    It is a subclass of early stopping, because Lightning runs such callbacks late.
    """

    def __init__(self) -> None:
        super().__init__(monitor="")

    def setup(self, *_: Any, **__: Any) -> None:
        pass

    def on_validation_end(self, *_: Any, **__: Any) -> None:
        pass

    def state_dict(self) -> dict[str, Any]:
        return {}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        pass


class TrialCallback(Bridge, _LastCallback):
    """Reports each epoch as a step, with every metric that the module has logged.

    To resume, call `trainer.fit(..., ckpt_path=callback.resume_from)`. With several workers, make
    one on each of them.
    """

    def on_train_epoch_end(self, trainer: Any, *_: Any) -> None:
        """Report an epoch. See lightning.pytorch.Callback."""
        stop = self.advance(
            trainer.current_epoch + 1,
            trainer.callback_metrics,
            trainer.save_checkpoint,
            suffix=".ckpt",
            is_first=trainer.is_global_zero,
        )
        trainer.should_stop = trainer.should_stop or stop
