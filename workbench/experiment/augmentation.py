"""How samples of training are changed at random.

What can be set and searched, and within which bounds.

Changing them is left to the data.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from workbench.experiment.setting_types import Section

_Share = Annotated[float, Field(ge=0, le=1)]


class Augmentation(Section):
    """Random changes of each training sample, new ones in each epoch; 0 leaves one out."""

    mixup: Annotated[float, Field(ge=0, le=10)] = Field(
        default=0.0,
        description=(
            "Mixes a sample and its targets with another one, by a share drawn from "
            "Beta(mixup, mixup)."
        ),
    )
    noise: Annotated[float, Field(ge=0, le=10)] = Field(
        default=0.0,
        description="Deviation of added noise, as a share of that of the sample's numbers.",
    )
    crop: Annotated[float, Field(ge=0, le=0.5)] = Field(
        default=0.0,
        description=(
            "Largest share of an image's side by which it is shifted, or of a series' beginning"
            " that is replaced by the value after it."
        ),
    )
    flip: _Share = Field(
        default=0.0, description="Probability that an image is mirrored left to right."
    )
    cutout: Annotated[float, Field(ge=0, le=0.9)] = Field(
        default=0.0,
        description="Side of a square that is blanked, as a share of that of the image.",
    )
    rand_augment: Annotated[float, Field(ge=0, le=10)] = Field(
        default=0.0,
        description=(
            "Magnitude of two changes of an image, drawn from rotation, shear, zoom, shift,"
            " contrast and brightness (RandAugment)."
        ),
    )

    @property
    def used(self) -> list[str]:
        """The names of the changes that are made."""
        return [name for name in type(self).model_fields if getattr(self, name) > 0]
