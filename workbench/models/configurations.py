"""The configuration of a model: typed, bounded, documented, and without torch.

It builds its model for the shape of the data. Only then torch is imported. The models of the
workbench are in `zoo`. Other packages add theirs by entry point. An early exit is a prediction that
a model makes before its end, for samples that are easy.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, NoReturn

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator
from typing_extensions import Self

from workbench.experiment.validation_errors import findings, refusal
from workbench.foundation.errors import ExperimentError
from workbench.models import MODELS, Aggregate

if TYPE_CHECKING:
    import numpy as np
    from torch import nn

    from workbench.models.staged_fitting import Growth

Activation = Literal["relu", "gelu", "silu", "tanh"]
Dropout = Annotated[float, Field(ge=0.0, lt=1.0)]
NumExits = Annotated[
    int, Field(ge=0, le=16, description="Number of early exits, for samples that are easy.")
]
Normalisation = Annotated[
    Literal["batch", "group"],
    Field(
        description=(
            "Normalise over the samples of a batch, or over groups of channels of each single"
            " sample, as private training requires."
        )
    ),
]


class ModelConfiguration(BaseModel, ABC):
    """The base of every configuration of the zoo."""

    # Strict, because "128" or true as a width is probably a mistake.
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, strict=True)

    name: ClassVar[str]
    why_no_exits: ClassVar[str] = ""
    """Why the model cannot have early exits. Empty if it can."""
    convolves_images: ClassVar[bool] = False
    """Whether the model mostly computes convolutions of images."""
    reads_tokenizer: ClassVar[bool] = False
    """Whether the model takes what a tokenizer gives, by name: token ids and a mask."""

    @property
    def fitted(self) -> FittedConfiguration | None:
        """This configuration, if it is fitted to all samples at once. None if steps train it."""
        return None

    def module_settings(self) -> dict[str, Any]:
        """Return the arguments of the module, without the options for exits and views."""
        return self.model_dump(exclude={"exits", "exit_weight", "views", "missing_views"})

    def rate_factors(self) -> dict[str, float]:
        """Return the factors of the learning rate, by patterns for names of parameters.

        Empty unless the model scales its rates with its width. See `widths`.
        """
        return {}

    @abstractmethod
    def build(
        self, *, input_shape: tuple[int, ...], num_outputs: int, vocabulary_size: int | None
    ) -> nn.Module:
        """Build the model for data of one shape.

        Args:
            input_shape: Shape of one sample, without the batch: (features,), (channels, height,
                width), (time, features), or (context,) for token ids.
            num_outputs: Classes, regression targets, or the vocabulary size for a language model.
            vocabulary_size: Number of token ids, if the inputs are token ids. If it equals
                `num_outputs`, the model is a language model and predicts at every position.

        Returns:
            The model, on the CPU, in float32.

        Raises:
            ExperimentError: If the model cannot take inputs of this shape.
        """

    def build_for_targets(
        self,
        *,
        input_shape: tuple[int, ...],
        num_outputs: int,
        vocabulary_size: int | None,
        target_shape: tuple[int, ...],
    ) -> nn.Module:
        """Build the model for samples that have several targets.

        Args:
            input_shape: Shape of one sample, as for `build`.
            num_outputs: Classes, or numbers to predict.
            vocabulary_size: Number of token ids.
            target_shape: (height, width) or (context,) if each pixel or token has a class.
                (horizon, series) for a forecast, whose `num_outputs` numbers are flat. (boxes, 5)
                for boxes.

        Raises:
            ExperimentError: If the model cannot predict targets of this shape.
        """
        if math.prod(target_shape) != num_outputs:
            raise ExperimentError(
                f"{self.name} makes one prediction for a sample, but its targets have the shape"
                f" {target_shape}",
                field="model",
                next_step=(
                    "Choose unet for masks, detector for boxes, or text_encoder for tagged texts."
                ),
            )
        return self.build(
            input_shape=input_shape, num_outputs=num_outputs, vocabulary_size=vocabulary_size
        )

    def refuse(
        self, input_shape: tuple[int, ...], vocabulary_size: int | None, allowed: str
    ) -> NoReturn:
        """Raise an error, because this model cannot take such inputs.

        Args:
            input_shape: Shape of one sample.
            vocabulary_size: Number of token ids, or None for numbers.
            allowed: The inputs that it can take.
        """
        kind = "numbers" if vocabulary_size is None else "token ids"
        raise ExperimentError(
            f"{self.name} cannot take {kind} of shape {tuple(input_shape)}",
            field="model",
            allowed=allowed,
            next_step="Choose another model or another data set.",
        )


class SequenceConfiguration(ModelConfiguration):
    """A model that is a sequence of pieces. Early exits can be added between them."""

    exits: NumExits = 0
    exit_weight: float = Field(0.3, ge=0.0, description="Factor of the loss of each early exit.")
    views: Aggregate | None = Field(
        None,
        description=(
            "Each sample has several views of one scene, the first dimension. They are joined like"
            " this after the first stage. Needs exits."
        ),
    )
    missing_views: float = Field(
        0.2, ge=0.0, lt=1.0, description="Probability that a view is missing in training."
    )

    @model_validator(mode="after")
    def _joins_after_a_stage(self) -> Self:
        if self.views is not None and not self.exits:
            raise ExperimentError(
                "views are joined after the first stage, and a model without exits has only one",
                field="views",
                next_step="Set exits to 1 or more.",
            )
        return self

    def shape_of_view(self, input_shape: tuple[int, ...]) -> tuple[int, ...]:
        """Return the shape of what the first stage takes.

        Args:
            input_shape: Shape of one sample: (views, ...) if it has several views.

        Raises:
            ExperimentError: If it should have several views, and has one.
        """
        if self.views is None:
            return input_shape
        if len(input_shape) < 2 or input_shape[0] < 2:
            raise ExperimentError(
                f"a sample of shape {tuple(input_shape)} does not have several views",
                field="views",
                allowed="samples of shape (views, ...), such as (3, 1, 8, 8) for three images",
                next_step="Let the data stack the views of a scene, or remove views.",
            )
        return input_shape[1:]

    def refuse_exits(self) -> None:
        """Raise an error if the model has early exits, whose outputs do not scale with the width.

        Raises:
            ExperimentError: If it has some.
        """
        if self.exits:
            raise ExperimentError(
                "a model that scales with its width has no early exits",
                field="base_width",
                next_step="Remove base_width, or set exits to 0.",
            )

    def with_exits(
        self,
        model: nn.Module,
        input_shape: tuple[int, ...],
        num_outputs: int,
        vocabulary_size: int | None = None,
        *,
        at_every_position: bool = False,
    ) -> nn.Module:
        """Return the model with its early exits, or the model itself if it has none.

        Args:
            model: The model.
            input_shape: Shape of one sample, as for `build`, with all its views.
            num_outputs: Number of outputs of every exit.
            vocabulary_size: Number of token ids, if the inputs are token ids.
            at_every_position: Whether the model predicts at every position of its input.

        Raises:
            ExperimentError: If it predicts at every position, or is too short.
        """
        if not self.exits:
            return model
        if at_every_position:
            raise ExperimentError(
                f"{self.name} predicts at every position of this data, but an early exit needs one"
                " prediction for each sample",
                field="exits",
                allowed="0",
                next_step="Choose data with one class for each sample.",
            )
        from workbench.models.exits import EarlyExits, SceneExits

        exits = EarlyExits(
            model,
            input_shape=self.shape_of_view(input_shape),
            num_outputs=num_outputs,
            num_exits=self.exits,
            weight=self.exit_weight,
            vocabulary_size=vocabulary_size,
        )
        if self.views is None:
            return exits
        return SceneExits(
            exits,
            input_shape=input_shape,
            aggregate=self.views,
            missing=self.missing_views,
            vocabulary_size=vocabulary_size,
        )


class FittedConfiguration(ModelConfiguration):
    """A model that is fitted to all samples at once, in rounds, instead of by optimizer steps."""

    patience: ClassVar[int | None] = None
    """Stop after this many rounds without improvement. None never stops early."""
    max_rounds: ClassVar[int] = 10
    """The most rounds. Each evaluates the model so far, which takes time."""
    round_ratio: ClassVar[float] = 1.0
    """Up to a round, it takes so many times the work up to the one before. 1 if rounds are alike,
    or if all of them are needed."""
    can_continue: ClassVar[bool] = False
    """Whether another process can continue the fit after a round. `grow` then takes a `growth`."""
    has_small_steps: ClassVar[bool] = False
    """Whether its steps are so small that threads would mostly wait for each other."""
    is_instant: ClassVar[bool] = False
    """Whether it is fitted faster than a trial starts, so that stopping it saves nothing."""

    @property
    def fitted(self) -> FittedConfiguration:
        """Itself. See ModelConfiguration.fitted."""
        return self

    @abstractmethod
    def describe(self, num_classes: int | None) -> str:
        """Return a description of the fitted model, as a phrase for messages.

        Args:
            num_classes: Number of classes, or None for a regression.
        """

    @abstractmethod
    def grow(
        self,
        inputs: np.ndarray,
        targets: np.ndarray,
        *,
        num_classes: int | None,
        num_rounds: int,
        seed: int,
        num_threads: int = 1,
        growth: Growth | None = None,
    ) -> Iterator[nn.Module]:
        """Fit the model to samples.

        Args:
            inputs: Training samples as (samples, features).
            targets: Class numbers, or numbers to predict.
            num_classes: Number of classes, or None for a regression.
            num_rounds: Maximum number of parts of the work.
            seed: Seed of everything random.
            num_threads: Threads for a library that ignores the limit of the process.
            growth: Where an earlier attempt was, and what to store for a later one.

        Yields:
            The model after each part.
        """

    def for_all_rows(self, models: Sequence[nn.Module]) -> FittedConfiguration:
        """Return the configuration for a fit to more samples, without validation.

        Args:
            models: The models of the folds, each at its best round.
        """
        return self


def configuration_type(model: str) -> type[ModelConfiguration]:
    """Return the type of the configuration of a zoo model.

    Args:
        model: A name in `MODELS`.

    Raises:
        UnknownNameError: If there is no such name.
    """
    return MODELS.load(model, field="model")


def configure(
    model: str, values: Mapping[str, Any], *, field: str = "search"
) -> ModelConfiguration:
    """Return the configuration of a zoo model with these values and the defaults for the rest.

    Args:
        model: A name in `MODELS`.
        values: Values by field. Every key must be a field of the model's configuration.
        field: The dotted path in which the user wrote the values.

    Raises:
        ExperimentError: If a key is unknown, or a value is not allowed. Its field is
            `<field>.<key>`.
    """
    kind = configuration_type(model)
    for key in values:
        if key == "exits" and kind.why_no_exits:
            raise ExperimentError(
                f"{model} has no early exits: {kind.why_no_exits}",
                field=f"{field}.{key}",
                next_step=(
                    "Remove the parameter, or choose a model that predicts one class for a sample."
                ),
            )
        if key not in kind.model_fields:
            raise ExperimentError(
                f"{model} has no such parameter",
                field=f"{field}.{key}",
                allowed=list(kind.model_fields),
            )
    try:
        return kind.model_validate(dict(values))
    except ValidationError as error:
        raise refusal(error, at=field) from error


def check_value(model: str, parameter: str, value: Any, *, field: str) -> None:
    """Check that a parameter of a zoo model can have a value.

    Args:
        model: A name in `MODELS`.
        parameter: A field of the model's configuration.
        value: The value.
        field: The dotted path in which the user wrote the value, such as `search.width.low`.

    Raises:
        ExperimentError: If the value is not allowed.
    """
    kind = configuration_type(model)
    try:
        kind.model_validate({parameter: value})
    except ValidationError as error:
        # An error about the whole configuration depends on other parameters, unknown here.
        if any(details["loc"] for details in error.errors(include_url=False)):
            raise findings(error)[0].about(field) from error
