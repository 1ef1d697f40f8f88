"""The optimizers of torch that cannot train every model, with the reasons. Needs no torch."""

from __future__ import annotations

NEVER = {"lbfgs": "it evaluates the loss several times in a step, and the training loop only once"}
"""Optimizers that the training loop cannot use, in lower case, with the reason."""
CUSTOM_MODELS_ONLY = {
    "muon": "it updates matrices only, and the models of the zoo have biases and other vectors",
    "sparseadam": "it requires sparse gradients, and the models of the zoo have dense ones",
}
"""Optimizers that can only train some custom models, in lower case, with the reason."""


def why_unusable(optimizer: str, *, has_own_model: bool) -> str | None:
    """Return why an optimizer cannot be used, or None if it can, or might.

    Args:
        optimizer: The name in torch, in any case.
        has_own_model: Whether the model is a custom model, not one from the zoo.
    """
    name = optimizer.lower()
    return NEVER.get(name) or (None if has_own_model else CUSTOM_MODELS_ONLY.get(name))
