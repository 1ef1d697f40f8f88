"""Low-rank adapters: only they are trained, they are searched, stored and exported like other
parameters.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from tests.builders.ways import OF_REPLICAS
from tests.services.process_group import run_together
from workbench.experiment import Experiment
from workbench.foundation.errors import ExperimentError
from workbench.models import low_rank
from workbench.sweeps import preflight
from workbench.training import checkpoint
from workbench.training.trained_model import read_model, write_weights
from workbench.training.trial import run_trial
from workbench.training.worker_task import TrialTask

ADAPTER = {"method": "lora", "rank": 2, "unfrozen": ["^head"]}


class Net(nn.Module):
    def __init__(self, config: dict[str, Any]) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(30, 8), nn.ReLU(), nn.Linear(8, 8))
        self.head = nn.Linear(8, 2)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return self.head(self.body(inputs))


def experiment(**plan: Any) -> Experiment:
    adapters = [ADAPTER, {**ADAPTER, "rank": 4, "alpha": 4}, {"targets": ["0"]}, None]
    return Experiment(
        model=f"{__name__}:Net",
        data="breast_cancer",
        objectives=[{"metric": "val_loss", "goal": "minimize"}],
        search={"adapter": {"choices": adapters}},
        training={"epochs": 2, "lr": 0.01, "global_batch": 64},
        plan=plan,
    )


def train(
    folder: Path, adapter: Any, *, plan: dict[str, Any] | None = None, **task: Any
) -> dict[str, Any]:
    ended = run_trial(
        TrialTask(
            "run",
            0,
            0,
            experiment(**plan or {}).model_dump_json(),
            folder=str(folder),
            seed=5,
            params={"adapter": adapter},
            **task,
        ),
        lambda _: False,
    )
    assert ended.state == "complete", ended.traceback
    return checkpoint.read(folder / "checkpoints" / "last.pt")["strategy"]["model"]


def train_on_two(rank: int, num_workers: int, meeting: str, folder: str) -> None:
    for strategy in OF_REPLICAS:
        train(
            Path(folder, strategy),
            ADAPTER,
            plan={"workers": 2, "strategy": strategy},
            rank=rank,
            num_workers=num_workers,
            meeting=meeting + strategy,
        )


class TestWithPeft:
    @pytest.fixture(autouse=True)
    def _peft(self) -> None:
        pytest.importorskip("peft", reason="the extra lora is not installed")

    def test_only_the_adapter_and_what_is_unfrozen_are_trained(self, tmp_path: Path) -> None:
        torch.manual_seed(5)
        new = Net({}).state_dict()
        written = experiment()
        preflight.check(written)
        for number, adapter in enumerate((ADAPTER, {"targets": ["0"]})):
            folder = tmp_path / str(number)
            trained = train(folder, adapter)
            frozen = trained["body.0.base_layer.weight"]
            assert torch.equal(frozen, new["body.0.weight"])
            rank = adapter.get("rank", 8)
            assert trained["body.0.lora_A.default.weight"].shape == (rank, 30)
            assert trained["body.0.lora_B.default.weight"].abs().sum() > 0, (
                "it begins at 0 and is trained"
            )
            assert torch.equal(trained["head.weight"], new["head.weight"]) is (number == 1)
            write_weights(folder / "checkpoints" / "best.pt", folder / "weights.safetensors")
            model, _ = read_model(written, {"adapter": adapter}, folder / "weights.safetensors")
            assert "body.0.lora_A.default.weight" in model.state_dict()

    def test_workers_train_the_adapter_of_one(self, tmp_path: Path) -> None:
        alone = train(tmp_path / "one", ADAPTER)
        run_together(train_on_two, 2, str(tmp_path))
        for strategy in OF_REPLICAS:
            stored = checkpoint.read(tmp_path / strategy / "checkpoints" / "last.pt")["strategy"][
                "model"
            ]
            for name, value in alone.items():
                torch.testing.assert_close(stored[name], value, rtol=1e-3, atol=1e-3)

    def test_layers_that_do_not_exist_are_refused_with_those_that_do(self) -> None:
        from workbench.experiment.training_section import LowRankAdapter

        with pytest.raises(ExperimentError, match=r"body\.0, body\.2, head"):
            low_rank.add_adapter(Net({}), LowRankAdapter(targets=("q_proj",)))
        with pytest.raises(ExperimentError, match="unfrozen"):
            low_rank.add_adapter(Net({}), LowRankAdapter(unfrozen=("^classifier",)))


def test_without_peft_it_is_refused_with_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    from workbench.experiment.training_section import LowRankAdapter

    find_source = preflight.find_source
    monkeypatch.setattr(
        preflight, "find_source", lambda name: None if name == "peft" else find_source(name)
    )
    with pytest.raises(ExperimentError, match=r"search\.adapter.*\[lora\]"):
        preflight.check(experiment())
    preflight.check(experiment(), on_this_machine=False)
    monkeypatch.setitem(sys.modules, "peft", None)
    with pytest.raises(ExperimentError, match=r"\[lora\]"):
        low_rank.add_adapter(Net({}), LowRankAdapter())
