"""The names under which models are served."""

from __future__ import annotations

import pytest

from workbench.deploy.serving.served_models import name_bundles
from workbench.foundation.errors import ArgumentError


def test_the_next_step_can_be_copied_into_a_shell_where_a_folder_has_a_space() -> None:
    with pytest.raises(ArgumentError, match=r"Name it: NAME='rent model'$"):
        name_bundles(["rent model"])
    with pytest.raises(ArgumentError, match=r"Name one of them: NAME='my models/rent'$"):
        name_bundles(["rent", "my models/rent"])
