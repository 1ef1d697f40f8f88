"""The machine of a tier as a device.

Where the models of its bundle, and any other, can be measured.
"""

from __future__ import annotations

from pathlib import Path

from workbench.deploy.device import HERE
from workbench.foundation.errors import ArgumentError
from workbench.tiers.placement.profile import read_profile
from workbench.tiers.placement.tiers_file import read_tiers


def find_device(text: str) -> str:
    """Return a device as `measure` takes it.

    Args:
        text: `here`, ssh://[USER@]HOST[:PORT], or FILE:TIER, a tier of a file of tiers.

    Raises:
        ExperimentError: If the file of tiers, or the profile that it names, cannot be read.
        ArgumentError: If there is no such tier, or it is not known how its machine is reached.
    """
    file, colon, name = text.rpartition(":")
    if not colon or "://" in text:
        return text
    path = Path(file)
    tiers = read_tiers(path).tiers
    if name not in tiers:
        raise ArgumentError(f"{file} has no tier {name!r}", field="device", allowed=list(tiers))
    machine = tiers[name].machine
    if machine == HERE:
        return HERE
    device = read_profile(path.parent / machine, field=f"tiers.{name}.machine").device
    if device in (None, HERE):
        raise ArgumentError(
            f"{machine} was measured on the machine itself, so how to reach it is not known",
            field="device",
            next_step=(
                "Name it as ssh://[USER@]HOST[:PORT], or measure the profile again with --device."
            ),
        )
    return device
