"""Keras 3: a callback that reports each epoch, and models of the zoo with the weights of torch.

A model is built layer by layer like the module of the zoo, but takes images with channels last. Its
weights are copied in the order of the layers. Comparing the speed of both is left to the advisor.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any

import numpy as np

from workbench.bridges import Bridge, missing
from workbench.foundation.errors import ExperimentError, ResourcesError
from workbench.models.configurations import ModelConfiguration
from workbench.models.zoo import (
    ConvNetConfiguration,
    LSTMConfiguration,
    MLPConfiguration,
    ResNetConfiguration,
    TransformerConfiguration,
)

try:
    # Where Keras is not installed, pyright takes the name for this file.
    keras: Any = import_module("keras")
    from keras.callbacks import Callback  # pyright: ignore[reportMissingImports]
except ModuleNotFoundError as error:
    raise missing("keras") from error

if TYPE_CHECKING:
    from workbench.models.layers import LayerWeights

Array = np.ndarray[Any, Any]

_EPSILON = 1e-5
_MOMENTUM = 0.9
"""What torch's batch normalisation keeps of its means in a step. Torch calls the rest momentum."""
_MAX_GROUPS = 8
_LAST = "channels_last"
_STEP = "Pass your own model with --keras package.module:function."


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


def build_model(
    configuration: ModelConfiguration,
    *,
    input_shape: tuple[int, ...],
    num_outputs: int,
    vocabulary_size: int | None,
) -> Any:
    """Build a model of the zoo in Keras.

    Args:
        configuration: The configuration of the model.
        input_shape: Shape of one sample in torch: channels first.
        num_outputs: Number of outputs.
        vocabulary_size: Number of token ids, if the inputs are token ids.

    Returns:
        The model. It takes images of shape (height, width, channels).

    Raises:
        ExperimentError: If no such model can be built in Keras.
    """
    build = _BUILDERS.get(type(configuration))
    refused = _UNBUILT.get(type(configuration), _UNBUILT_ANYWHERE)
    unusual = [name for name in refused if getattr(configuration, name, None)]
    if build is None or unusual:
        what = " with ".join([configuration.name, *unusual[:1]])
        raise ExperimentError(
            f"{what} cannot be built in Keras",
            field="model",
            allowed=sorted(kind.name for kind in _BUILDERS),
            next_step=_STEP,
        )
    inputs, outputs = build(configuration, input_shape, num_outputs, vocabulary_size)
    return keras.Model(inputs, outputs)


def _mlp(
    options: Any, shape: tuple[int, ...], num_outputs: int, _vocabulary_size: int | None
) -> tuple[Any, Any]:
    inputs = keras.Input(shape)
    states = keras.layers.Flatten()(inputs)
    for _ in range(options.num_layers):
        states = keras.layers.Dense(options.hidden_width)(states)
        states = keras.layers.Activation(options.activation)(states)
        states = _dropped(states, options.dropout)
    return inputs, keras.layers.Dense(num_outputs)(states)


def _convnet(
    options: Any, shape: tuple[int, ...], num_outputs: int, _vocabulary_size: int | None
) -> tuple[Any, Any]:
    inputs = states = keras.Input(_channels_last(shape))
    size = min(shape[1:])
    for block in range(options.num_blocks):
        channels = options.width * 2**block
        for _ in range(options.convolutions_per_block):
            states = _convolution(states, channels)
            if options.normalisation == "batch":
                states = _batch_norm()(states)
            else:
                groups = math.gcd(_MAX_GROUPS, channels)
                states = keras.layers.GroupNormalization(groups, epsilon=_EPSILON)(states)
            states = keras.layers.Activation(options.activation)(states)
        if size >= 4:
            states = keras.layers.MaxPooling2D(2, data_format=_LAST)(states)
            size //= 2
    return inputs, _mean_and_output(states, options.dropout, num_outputs)


def _resnet(
    options: Any, shape: tuple[int, ...], num_outputs: int, _vocabulary_size: int | None
) -> tuple[Any, Any]:
    inputs = keras.Input(_channels_last(shape))
    states = _batch_norm()(_convolution(inputs, options.width))
    states = keras.layers.Activation("relu")(states)
    for stage in range(3):
        for block in range((options.depth - 2) // 6):
            states = _basic_block(
                states, options.width * 2**stage, stride=2 if stage > 0 and block == 0 else 1
            )
    return inputs, _mean_and_output(states, options.dropout, num_outputs)


def _basic_block(states: Any, channels: int, *, stride: int) -> Any:
    shortcut, num_new = states, channels - states.shape[-1]
    states = _batch_norm()(_convolution(states, channels, stride))
    states = keras.layers.Activation("relu")(states)
    states = _batch_norm()(_convolution(states, channels))
    if stride > 1:
        shortcut = shortcut[:, ::stride, ::stride, :]
    if num_new:
        before = num_new // 2
        widths = [[0, 0], [0, 0], [0, 0], [before, num_new - before]]
        shortcut = keras.ops.pad(shortcut, widths)
    return keras.layers.Activation("relu")(keras.layers.Add()([states, shortcut]))


def _lstm(
    options: Any, shape: tuple[int, ...], num_outputs: int, vocabulary_size: int | None
) -> tuple[Any, Any]:
    if vocabulary_size is None:
        inputs = states = keras.Input(shape)
    else:
        inputs = keras.Input(shape, dtype="int32")
        states = keras.layers.Embedding(vocabulary_size, options.embedding_width)(inputs)
    for number in range(options.num_layers):
        is_last = number == options.num_layers - 1
        at_every_position = not is_last or num_outputs == vocabulary_size
        layer = keras.layers.LSTM(options.hidden_width, return_sequences=at_every_position)
        states = _dropped(layer(states), options.dropout)
    return inputs, keras.layers.Dense(num_outputs)(states)


def _transformer(
    options: Any, shape: tuple[int, ...], num_outputs: int, vocabulary_size: int | None
) -> tuple[Any, Any]:
    inputs = keras.Input(shape, dtype="int32")
    width = options.width
    tokens = keras.layers.ReversibleEmbedding(vocabulary_size, width)
    states = Positions()(tokens(inputs))
    for _ in range(options.num_layers):
        states += _attention(keras.layers.LayerNormalization(epsilon=_EPSILON)(states), options)
        hidden = keras.layers.LayerNormalization(epsilon=_EPSILON)(states)
        hidden = keras.layers.Dense(width * options.feedforward_ratio)(hidden)
        states += keras.layers.Dense(width)(keras.layers.Activation("gelu")(hidden))
    states = keras.layers.LayerNormalization(epsilon=_EPSILON)(states)
    if num_outputs == vocabulary_size:
        return inputs, tokens(states, reverse=True)
    return inputs, keras.layers.Dense(num_outputs)(states[:, -1])


def _attention(states: Any, options: Any) -> Any:
    _, context, width = states.shape
    head_width = width // options.num_heads
    heads = keras.layers.Dense(3 * width)(states)
    heads = keras.layers.Reshape((context, 3, options.num_heads, head_width))(heads)
    query, key, value = (heads[:, :, number] for number in range(3))
    mixed = keras.ops.dot_product_attention(query, key, value, is_causal=True)
    return keras.layers.Dense(width)(keras.layers.Reshape((context, width))(mixed))


class Positions(keras.layers.Layer):
    """Adds a vector of each position. Keras has no such layer."""

    def build(self, input_shape: Sequence[int | None]) -> None:
        """Make the table, (positions, features)."""
        self.table = self.add_weight(shape=tuple(input_shape[1:]), name="table")

    def call(self, states: Any) -> Any:
        """Add the table to (batch, positions, features)."""
        return states + self.table


_BUILDERS: dict[type[ModelConfiguration], Callable[..., tuple[Any, Any]]] = {
    MLPConfiguration: _mlp,
    ConvNetConfiguration: _convnet,
    ResNetConfiguration: _resnet,
    LSTMConfiguration: _lstm,
    TransformerConfiguration: _transformer,
}
_UNBUILT_ANYWHERE = ("exits", "base_width")
# `keras.ops` has no dropout within attention.
_UNBUILT: dict[type[ModelConfiguration], tuple[str, ...]] = {
    TransformerConfiguration: (*_UNBUILT_ANYWHERE, "dropout")
}


def _channels_last(shape: tuple[int, ...]) -> tuple[int, ...]:
    return (*shape[1:], shape[0])


def _convolution(states: Any, channels: int, stride: int = 1) -> Any:
    # With a stride, "same" pads an image of even size on one side only. Torch pads both sides.
    padded = keras.layers.ZeroPadding2D(1, data_format=_LAST)(states)
    layer = keras.layers.Conv2D(channels, 3, stride, use_bias=False, data_format=_LAST)
    return layer(padded)


def _batch_norm() -> Any:
    return keras.layers.BatchNormalization(momentum=_MOMENTUM, epsilon=_EPSILON)


def _dropped(states: Any, probability: float) -> Any:
    return keras.layers.Dropout(probability)(states) if probability else states


def _mean_and_output(states: Any, dropout: float, num_outputs: int) -> Any:
    states = keras.layers.GlobalAveragePooling2D(data_format=_LAST)(states)
    return keras.layers.Dense(num_outputs)(_dropped(states, dropout))


def copy_weights(model: Any, layers: Sequence[LayerWeights]) -> None:
    """Give a Keras model the weights of a torch module, layer by layer.

    Args:
        model: The Keras model, built.
        layers: The layers of the module that have weights, in the order of the model's.

    Raises:
        ExperimentError: If the two models do not have the same layers in the same order.
    """
    wanted = list(_layers_with_weights(model))
    for layer, given in zip(wanted, layers, strict=False):
        torch_kinds, convert = _CONVERSIONS[type(layer).__name__]
        weights = convert(given.arrays) if given.kind in torch_kinds else []
        shapes = [tuple(weight.shape) for weight in layer.weights]
        if shapes != [weight.shape for weight in weights]:
            raise _other_layers(
                f"{layer.name} ({type(layer).__name__}) has weights of the shapes {shapes}, and"
                f" {given.name} ({given.kind}) of torch has"
                f" {[weight.shape for weight in given.arrays.values()]}"
            )
        layer.set_weights(weights)
    if len(wanted) != len(layers):
        raise _other_layers(
            f"the Keras model has {len(wanted)} layers with weights, and torch has {len(layers)}"
        )


def _other_layers(problem: str) -> ExperimentError:
    return ExperimentError(
        f"the weights cannot be copied: {problem}",
        field="--keras",
        allowed="a model with the layers of the torch model, in the same order",
    )


def _layers_with_weights(model: Any) -> Iterator[Any]:
    inner: set[int] = set()
    for layer in model._flatten_layers(include_self=False):
        if id(layer) in inner or not layer.weights:
            continue
        if type(layer).__name__ in _CONVERSIONS:
            inner |= {id(part) for part in layer._flatten_layers(include_self=False)}
            yield layer
        elif not list(layer._flatten_layers(include_self=False)):
            raise _other_layers(
                f"{layer.name} is a {type(layer).__name__}, and only weights of"
                f" {', '.join(_CONVERSIONS)} are known"
            )


def _kernel(weights: Mapping[str, Array]) -> list[Array]:
    """Convert (outputs, inputs, *window) to (*window, inputs, outputs)."""
    weight = weights["weight"]
    kernel = weight.transpose(*range(2, weight.ndim), 1, 0)
    return [kernel, weights["bias"]] if "bias" in weights else [kernel]


def _named(*names: str) -> Callable[[Mapping[str, Array]], list[Array]]:
    return lambda weights: [weights[name] for name in names if name in weights]


def _recurrent(weights: Mapping[str, Array]) -> list[Array]:
    # Both order the gates alike: input, forget, cell, output. Torch adds two biases.
    arrays = [weights["weight_ih"].T, weights["weight_hh"].T]
    if "bias_ih" in weights:
        arrays.append(weights["bias_ih"] + weights["bias_hh"])
    return arrays


_CONVOLUTIONS = ("Conv1d", "Conv2d", "Conv3d")
_CONVERSIONS: dict[str, tuple[tuple[str, ...], Callable[[Mapping[str, Array]], list[Array]]]] = {
    "Dense": (("Linear",), _kernel),
    "Conv1D": (_CONVOLUTIONS, _kernel),
    "Conv2D": (_CONVOLUTIONS, _kernel),
    "Conv3D": (_CONVOLUTIONS, _kernel),
    "BatchNormalization": (
        ("BatchNorm1d", "BatchNorm2d", "BatchNorm3d"),
        _named("weight", "bias", "running_mean", "running_var"),
    ),
    "LayerNormalization": (("LayerNorm",), _named("weight", "bias")),
    "GroupNormalization": (("GroupNorm",), _named("weight", "bias")),
    "Embedding": (("Embedding",), _named("weight")),
    "ReversibleEmbedding": (("Embedding",), _named("weight")),
    "Positions": (("Embedding",), _named("weight")),
    "LSTM": (("LSTM",), _recurrent),
}


class KerasSteps:
    """Steps of a Keras model, made by `fit` on samples in memory."""

    def __init__(
        self,
        model: Any,
        samples: tuple[Array, Array],
        *,
        batch: int,
        loss: str,
        optimizer: Any,
    ) -> None:
        """Choose loss and optimizer. Nothing is compiled before the first step.

        Args:
            model: The model.
            samples: Inputs and targets, at least one batch. Images may have their channels first.
            batch: Samples of a step.
            loss: The name of the loss.
            optimizer: An optimizer of Keras.

        Raises:
            ExperimentError: If Keras has no such loss here, or the model takes other samples.
        """
        if loss not in _LOSSES:
            raise ExperimentError(
                f"{loss} is not compared in Keras", field="loss", allowed=sorted(_LOSSES)
            )
        inputs, targets = samples
        self._inputs, self._targets = _as_taken_by(model, inputs), targets
        self._model, self._batch = model, batch
        self._step_s = 0.0
        reads = {"from_logits": True} if loss == "cross_entropy" else {}
        self._loss = getattr(keras.losses, _LOSSES[loss])(**reads)
        model.compile(optimizer=optimizer, loss=self._loss)

    def predict(self, num_samples: int) -> tuple[Array, float]:
        """Return the outputs of the first samples, and their mean loss, without training."""
        outputs = self._model(self._inputs[:num_samples], training=False)
        return np.asarray(outputs), float(self._loss(self._targets[:num_samples], outputs))

    def make_first(self, num_steps: int) -> None:
        """Make the first steps, each on its own."""
        for _ in range(num_steps):
            began_s = time.perf_counter()
            self._fit(1, 1)
            self._step_s = time.perf_counter() - began_s

    def make(self, longest_s: float) -> int:
        """Make steps for about some seconds, and return their number.

        `fit` spends time on each call and each epoch. So one call makes as many steps and epochs as
        there is time for.
        """
        num_possible = max(1, int(longest_s / self._step_s))
        num_steps = min(len(self._inputs) // self._batch, num_possible)
        epochs = num_possible // num_steps
        began_s = time.perf_counter()
        self._fit(num_steps, epochs)
        self._step_s = (time.perf_counter() - began_s) / (num_steps * epochs)
        return num_steps * epochs

    def _fit(self, num_steps: int, epochs: int) -> None:
        num_samples = num_steps * self._batch
        self._model.fit(
            self._inputs[:num_samples],
            self._targets[:num_samples],
            batch_size=self._batch,
            epochs=epochs,
            verbose=0,
        )


def _as_taken_by(model: Any, inputs: Array) -> Array:
    shape, wanted = inputs.shape[1:], tuple(model.input_shape[1:])
    if shape == wanted:
        return inputs
    if len(shape) > 1 and _channels_last(shape) == wanted:
        return np.ascontiguousarray(np.moveaxis(inputs, 1, -1))
    raise ExperimentError(
        f"the Keras model takes samples of shape {wanted}, and the data has {shape}",
        field="--keras",
        allowed=f"{shape}, or channels last",
    )


def make_optimizer(name: str, values: Mapping[str, Any]) -> Any:
    """Return the optimizer of Keras that makes updates like those of torch's, which take as long.

    Keras decays weights apart from the gradient, and torch's sgd and adam add the decay to it. In
    Adam, Keras adds epsilon before it corrects the bias.

    Args:
        name: Its name in torch, in small letters.
        values: lr, momentum, weight_decay, clip_norm, and options of torch's optimizer.

    Raises:
        ExperimentError: If Keras has no such optimizer here, or no such option.
    """
    if name not in _OPTIMIZERS:
        raise ExperimentError(
            f"{name} is not compared in Keras",
            field="training.optimizer",
            allowed=sorted(_OPTIMIZERS),
        )
    left = dict(values)
    given: dict[str, Any] = {
        "learning_rate": left.pop("lr"),
        "global_clipnorm": left.pop("clip_norm"),
    }
    momentum, decay = left.pop("momentum"), left.pop("weight_decay")
    if decay or name == "adamw":  # which has a decay of its own by default
        given["weight_decay"] = decay
    if name == "sgd":
        given["momentum"] = momentum
        given["nesterov"] = left.pop("nesterov", False)
    else:
        given["beta_1"], given["beta_2"] = left.pop("betas", (0.9, 0.999))
        given["epsilon"] = left.pop("eps", _ADAM_EPSILON)
        given["amsgrad"] = left.pop("amsgrad", False)
    if left:
        option = next(iter(left))
        raise ExperimentError(
            f"{option} of {name} is not compared in Keras",
            field=f"training.optimizer_options.{option}",
        )
    return getattr(keras.optimizers, _OPTIMIZERS[name])(**given)


def check_device(kind: str) -> None:
    """Check that Keras computes with JAX, on the device that torch uses.

    Args:
        kind: The kind of torch's device: cpu or cuda.

    Raises:
        MissingDependencyError: If JAX is not installed.
        ResourcesError: If JAX does not see the GPU.
    """
    try:
        jax: Any = import_module("jax")
    except ModuleNotFoundError as error:
        raise missing("jax") from error
    if kind == "cuda" and jax.default_backend() != "gpu":
        raise ResourcesError(
            "torch computes on the GPU, but JAX does not see it",
            next_step='Install JAX for GPUs: pip install "jax[cuda12]"',
        )
    # Torch multiplies in full precision by default, and JAX does not on GPUs.
    jax.config.update("jax_default_matmul_precision", "highest")


_ADAM_EPSILON = 1e-8
_LOSSES = {
    "cross_entropy": "SparseCategoricalCrossentropy",
    "mean_squared_error": "MeanSquaredError",
    "mean_absolute_error": "MeanAbsoluteError",
}
_OPTIMIZERS = {"sgd": "SGD", "adam": "Adam", "adamw": "AdamW"}
