from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.experiment.test_space import spaces
from workbench.experiment import Experiment
from workbench.foundation.errors import ExperimentError, RunError
from workbench.foundation.formatting import parse_duration_s

WRITTEN = """
name: digits-convnet
model: convnet
data: digits
objectives: [{metric: val_accuracy, goal: maximize, target: 0.98}]
search:
  lr: {low: 1e-4, high: 1.0, log: true}
  width: {choices: [16, 32, 64]}
  optimizer: {choices: [sgd, adamw]}
  momentum: {low: 0.8, high: 0.99, when: {optimizer: sgd}}
training: {epochs: 20, global_batch: auto, reference_batch: 128, lr_rule: auto, warmup_epochs: auto}
plan: {workers: auto, micro_batch: auto, precision: auto, strategy: auto}
budget: {trials: 40, time: 30m}
early_stop: {pruner: asha, grace: 3}
resources: {concurrency: auto, placement: auto}
seed: 0
"""


def experiment(**changes: Any) -> Experiment:
    return Experiment.from_yaml(WRITTEN).replace(**changes)


def test_yaml_and_python_are_two_faces_of_one_experiment() -> None:
    written = Experiment.from_yaml(WRITTEN)
    built = Experiment(
        name="digits-convnet",
        model="convnet",
        data="digits",
        objectives=[{"metric": "val_accuracy", "goal": "maximize", "target": 0.98}],
        search={
            "lr": {"low": 1e-4, "high": 1.0, "log": True},
            "width": {"choices": [16, 32, 64]},
            "optimizer": {"choices": ["sgd", "adamw"]},
            "momentum": {"low": 0.8, "high": 0.99, "when": {"optimizer": "sgd"}},
        },
        training={"epochs": 20},
        budget={"trials": 40, "time": 1800},
        early_stop={"pruner": "asha", "grace": 3},
    )
    assert written == built
    assert written.hash() == built.hash()
    assert Experiment.from_yaml(written.to_yaml()) == written
    assert Experiment.from_yaml(written.to_yaml()).hash() == written.hash()


@example({"p0": {"choices": ["\x85", "a\u2028b", "x\ny", "\u00fc", ""]}}, 0, "tpe", 1)
@given(spaces(), st.integers(0, 2**32 - 1), st.sampled_from(["tpe", "random"]), st.integers(1, 5))
def test_no_setting_is_lost_on_the_way_through_yaml(
    space: Any, seed: int, sampler: str, repeats: int
) -> None:
    try:
        first = Experiment(
            train="module:function",
            objectives=[{"metric": "y", "goal": "minimize"}],
            search=space,
            seed=seed,
            sampler=sampler,
            repeats=repeats,
        )
    except ExperimentError:
        return
    again = Experiment.from_yaml(first.to_yaml())
    assert again == first
    assert again.hash() == first.hash()


def test_the_hash_is_the_same_in_another_process() -> None:
    program = "import sys, workbench; print(workbench.Experiment.from_yaml(sys.argv[1]).hash())"
    environment = os.environ | {"PYTHONHASHSEED": "7"}
    done = subprocess.run(
        [sys.executable, "-c", program, WRITTEN],
        check=True,
        capture_output=True,
        text=True,
        env=environment,
    )
    assert done.stdout.strip() == experiment().hash()


def test_the_hash_follows_the_meaning_and_not_the_name() -> None:
    assert experiment(name="another").hash() == experiment().hash()
    assert experiment(seed=1).hash() != experiment().hash()
    assert experiment(training={"epochs": 21}).hash() != experiment().hash()


@pytest.mark.parametrize(
    ("written", "section", "field", "value"),
    [
        ({"training": {"batch_size": 32}}, "training", "global_batch", 32),
        ({"training": {"learning_rate": 0.1}}, "training", "lr", 0.1),
        ({"training": {"num_train_epochs": 3}}, "training", "epochs", 3),
        ({"training": {"per_device_train_batch_size": 8}}, "plan", "micro_batch", 8),
        ({"training": {"gradient_accumulation_steps": 4}}, "plan", "accumulation", 4),
        ({"plan": {"accumulate_grad_batches": 4}}, "plan", "accumulation", 4),
        ({"gradient_clip_val": 1.0}, "training", "clip_norm", 1.0),
    ],
)
def test_names_that_people_know_are_accepted(
    written: Any, section: str, field: str, value: Any
) -> None:
    made = Experiment(
        model="mlp",
        data="digits",
        objectives=[{"metric": "val_loss", "goal": "minimize"}],
        **written,
    )
    assert getattr(getattr(made, section), field) == value


def test_a_searched_parameter_may_bear_a_name_that_people_know() -> None:
    made = Experiment(
        model="mlp",
        data="digits",
        objectives=[{"metric": "val_loss", "goal": "minimize"}],
        search={
            "learning_rate": {"low": 0.1, "high": 1.0},
            "x": {"choices": [1], "when": {"batch_size": 8}},
            "batch_size": {"choices": [8, 16]},
        },
    )
    assert set(made.search.root) == {"lr", "x", "global_batch"}
    assert made.search.root["x"].when == {"global_batch": 8}


def test_a_train_function_gets_its_parameters_by_the_names_that_it_knows() -> None:
    made = Experiment(
        train="json:dumps",
        objectives=[{"metric": "y", "goal": "minimize"}],
        search={"learning_rate": {"low": 0.1, "high": 1.0}, "batch_size": 8},
    )
    assert set(made.search.root) == {"learning_rate", "batch_size"}


def test_early_stop_may_be_the_name_of_a_pruner() -> None:
    base = {"train": "m:f", "objectives": [{"metric": "loss", "goal": "minimize"}]}
    assert Experiment(**base, early_stop="asha") == Experiment(
        **base, early_stop={"pruner": "asha"}
    )
    with pytest.raises(
        ExperimentError, match=r"early_stop\.pruner: unknown pruner 'ash'; allowed: .*asha"
    ):
        Experiment(**base, early_stop="ash")


def test_everything_that_is_wrong_is_listed_at_once() -> None:
    with pytest.raises(ExperimentError) as refusal:
        experiment().replace(training={"epochs": 0, "momentum": 2}, budget={"trials": -1})
    for field in ("training.epochs", "training.momentum", "budget.trials"):
        assert field in str(refusal.value)


def test_a_command_line_as_train_is_pointed_to_command() -> None:
    with pytest.raises(
        ExperimentError, match="If this is a command line, write it as command"
    ) as caught:
        Experiment(
            train="python train.py --lr {lr}", objectives=[{"metric": "loss", "goal": "minimize"}]
        )
    assert caught.value.field == "train"


def test_a_function_that_others_can_import_is_written_by_its_path() -> None:
    made = experiment(model=parse_duration_s)
    assert made.model is not None
    assert made.model.name == "workbench.foundation.formatting:parse_duration_s"
    assert made.payloads() == {}


def test_a_function_that_only_this_process_knows_travels_beside_the_experiment() -> None:
    def build(config: Any) -> int:
        return int(config["x"]) + 1

    made = experiment(model=build)
    assert made.model is not None
    assert made.model.name.startswith("embedded:build@")
    opened = Experiment.from_yaml(made.to_yaml())
    assert opened.hash() == made.hash()
    assert opened.model is not None
    with pytest.raises(RunError, match="its bytes are not available here"):
        opened.model.load()
    restored = opened.with_payloads(made.payloads())
    assert restored.model is not None
    assert restored.model.load()({"x": 1}) == 2
    with pytest.raises(RunError, match="the stored bytes of"):
        opened.with_payloads(dict.fromkeys(made.payloads(), b"something else"))


def test_replacing_a_model_leaves_the_options_of_the_one_before() -> None:
    before = Experiment(
        model={"name": "mlp", "hidden_width": 8, "num_layers": 3},
        data="digits",
        objectives=[{"metric": "val_loss", "goal": "minimize"}],
    )

    wider = before.replace(model={"hidden_width": 16}).model
    other = before.replace(model={"name": "convnet", "width": 4}).model
    assert wider is not None
    assert other is not None
    assert (wider.name, wider.options) == ("mlp", {"hidden_width": 16, "num_layers": 3})
    assert (other.name, other.options) == ("convnet", {"width": 4})


def test_the_schema_tells_editors_what_may_be_written() -> None:
    schema = Experiment.model_json_schema()
    assert schema["additionalProperties"] is False
    assert "epochs" in schema["$defs"]["Training"]["properties"]
    assert schema["$defs"]["Training"]["properties"]["epochs"]["description"]


@pytest.mark.parametrize("text", ["- a\n- b", "just text", "a: [", ""])
def test_what_is_no_mapping_is_refused(text: str) -> None:
    with pytest.raises(ExperimentError):
        Experiment.from_yaml(text)


@pytest.mark.parametrize(
    ("written", "size_bytes"),
    [
        ("10GB", 10**10),
        ("500 MB", 5 * 10**8),
        ("1.5TiB", 3 * 2**39),
        ("64kib", 2**16),
        ("100", 100),
        (7, 7),
    ],
)
def test_sizes_are_read_as_people_write_them(written: object, size_bytes: int) -> None:
    changed = experiment(resources={"max_checkpoints_size": written})
    assert changed.resources.max_checkpoints_size == size_bytes


def test_a_size_of_buckets_may_be_a_number_of_bytes() -> None:
    assert experiment(plan={"bucket": 5_000_000}).plan.bucket == "5000000B"
    with pytest.raises(ExperimentError, match=r"plan\.bucket.*number of bytes"):
        experiment(plan={"bucket": 0})


@pytest.mark.parametrize("written", ["much", "10 GBit", "-5GB", "0GB", "GB", True, [1]])
def test_sizes_that_are_none_are_refused(written: object) -> None:
    with pytest.raises(ExperimentError, match=r"resources\.max_checkpoints_size"):
        experiment(resources={"max_checkpoints_size": written})


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"training": {"num_workers": 4}}, "training.num_workers"),
        ({"num_workers": 4}, "num_workers"),
        ({"search": {"num_workers": {"choices": [1, 2]}}}, "search.num_workers"),
    ],
)
def test_workers_of_data_loaders_never_become_processes_of_training(
    changes: dict[str, Any], field: str
) -> None:
    with pytest.raises(ExperimentError, match=r"plan\.loaders.*plan\.workers") as caught:
        experiment(**changes)
    assert caught.value.field == field


def test_loader_processes_can_be_written_under_the_name_that_trainers_use() -> None:
    assert experiment(training={"dataloader_num_workers": 4}).plan.loaders == 4
    assert experiment(dataloader_num_workers=0).plan.loaders == 0


def test_names_of_parameters_may_contain_dashes_and_dots() -> None:
    search = {"learning-rate": {"low": 0.1, "high": 1.0}, "optimizer.lr": {"low": 0.1, "high": 1.0}}
    made = Experiment(
        train="m:f", objectives=[{"metric": "loss", "goal": "minimize"}], search=search
    )
    assert list(made.search.root) == list(search)
    assert Experiment.from_yaml(made.to_yaml()) == made


@pytest.mark.parametrize("name", ["", "a b", "a.", "-a", "a..b", "7", "a=b"])
def test_names_that_paths_cannot_hold_are_refused(name: str) -> None:
    with pytest.raises(ExperimentError, match="not a valid name for a parameter"):
        Experiment(
            train="m:f", objectives=[{"metric": "loss", "goal": "minimize"}], search={name: 1}
        )


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({"early_stop": {"unit": "samples"}}, "the training of a model is not counted in samples"),
        ({"train": "m:f", "early_stop": {"unit": "loss"}}, "loss is an objective"),
    ],
)
def test_a_unit_in_which_nothing_is_counted_is_refused(changes: dict[str, Any], match: str) -> None:
    fields = {"objectives": [{"metric": "loss", "goal": "minimize"}], **changes}
    if "train" not in changes:
        fields |= {"model": "mlp", "data": "digits"}
    with pytest.raises(ExperimentError, match=match) as caught:
        Experiment(**fields)
    assert caught.value.field == "early_stop.unit"
