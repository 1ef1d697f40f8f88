from __future__ import annotations

import torch
from safetensors.torch import save

from tests.deploy.trained import experiment, trained
from workbench.data import load
from workbench.deploy.compression.trained_base import Base
from workbench.models.exits import EarlyExits


def test_early_exits_are_no_part_of_what_is_compressed() -> None:
    made = trained("mlp", load("digits", {}), exits=1, hidden_width=16)
    assert isinstance(made, EarlyExits)
    document = experiment("mlp", "digits").model_dump_json()
    params = {"exits": 1, "hidden_width": 16}
    base = Base(
        "run", 0, document, {}, params, save(made.state_dict()), b"", "val_loss", "minimize", {}
    )
    model, datasets = base.build()
    assert not any(isinstance(module, EarlyExits) for module in model.modules())
    inputs = torch.from_numpy(datasets.validation.batch(torch.arange(3).numpy())[0])
    with torch.no_grad():
        assert torch.equal(model(inputs), made(inputs))
