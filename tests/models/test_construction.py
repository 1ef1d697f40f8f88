from __future__ import annotations

from typing import Any

import pytest
from torch import nn

from workbench.foundation.errors import ExperimentError
from workbench.models.adapters import construct


class Net(nn.Module):
    def __init__(self, hidden: int = 64, depth: int = 2) -> None:
        super().__init__()
        self.made_of = (hidden, depth)


class Required(nn.Module):
    def __init__(self, hidden, depth) -> None:
        super().__init__()
        self.made_of = (hidden, depth)


class Whole(nn.Module):
    def __init__(self, config: dict[str, Any] | None = None) -> None:
        super().__init__()
        self.made_of = config


def of_keywords(**values: Any) -> dict[str, Any]:
    return values


@pytest.mark.parametrize(
    ("model", "configuration", "made_of"),
    [
        (Net, {"lr": 0.1, "hidden": 8}, (8, 2)),
        (Net, {"lr": 0.1, "depth": 3}, (64, 3)),
        (Net, {"lr": 0.1}, (64, 2)),
        (Required, {"depth": 3, "hidden": 8, "global_batch": 32}, (8, 3)),
        (Whole, {"lr": 0.1, "hidden": 8}, {"lr": 0.1, "hidden": 8}),
    ],
)
def test_a_usual_constructor_receives_the_values_that_it_names(
    model: Any, configuration: dict[str, Any], made_of: Any
) -> None:
    assert construct(model, configuration).made_of == made_of


def of_both(config: Any, hidden: int = 64, *, depth: int = 2, other: int = 1) -> Any:
    return sorted(config), hidden, depth, other


def test_beside_the_configuration_parameters_receive_the_values_that_they_name() -> None:
    assert construct(of_both, {"lr": 0.1, "hidden": 8, "depth": 3}) == (
        ["depth", "hidden", "lr"],
        8,
        3,
        1,
    )
    assert construct(of_both, {"lr": 0.1}) == (["lr"], 64, 2, 1)


def test_keywords_receive_everything() -> None:
    assert construct(of_keywords, {"lr": 0.1, "hidden": 8}) == {"lr": 0.1, "hidden": 8}


def test_a_value_that_no_parameter_takes_is_refused_instead_of_ignored() -> None:
    with pytest.raises(
        ExperimentError, match=r"model: Net has no parameter hiden; allowed: depth, hidden"
    ):
        construct(Net, {"lr": 0.1, "hiden": 8})


def test_a_parameter_without_a_value_is_named_with_how_to_give_one() -> None:
    with pytest.raises(
        ExperimentError, match=r"Required needs depth, .*depth: VALUE.*build\(config\)"
    ):
        construct(Required, {"hidden": 8})
