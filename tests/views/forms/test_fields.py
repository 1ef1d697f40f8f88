from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.builders.random_experiments import RULES
from workbench.experiment import Experiment
from workbench.views.forms.draft import Draft
from workbench.views.forms.fields import datasets, models, sections_of, state_of

DOCUMENT = {
    "model": {"name": "mlp", "dropout": 0.5},
    "data": {"name": "table", "path": "houses.csv"},
    "objectives": [{"metric": "val_loss", "goal": "minimize"}],
    "search": {"lr": {"low": 0.1, "high": 1.0}, "num_layers": 3},
    "budget": {"time": 5400.0},
    "training": {"checkpoint_after": None},
}


def fields(document: dict[str, Any]) -> dict[str, dict[str, Any]]:
    dumped = [section.model_dump(mode="json") for section in sections_of(document)]
    return {field["path"]: field for section in dumped for field in section["fields"]}


def chosen(field: dict[str, Any], **expected: Any) -> bool:
    return {name: field[name] for name in expected} == expected


def test_every_setting_of_an_experiment_but_its_space_and_function_has_a_field_with_help() -> None:
    by_path = fields(DOCUMENT)
    for section in ("training", "plan", "budget", "early_stop", "sampler", "resources"):
        for name in Experiment.model_fields[section].annotation.model_fields:  # type: ignore[union-attr]
            assert f"{section}.{name}" in by_path
    assert {
        "name",
        "seed",
        "repeats",
        "report_to",
        "model",
        "data",
        "loss",
        "metrics",
        "goals",
    } <= by_path.keys()
    without = {path for path, field in by_path.items() if not field["help"]}
    assert without == {"early_stop.pruner", "sampler.name", "objectives.0.goal"}


@pytest.mark.parametrize("kind", [{}, {"command": ["python", "train.py"]}, {"train": "mine:train"}])
def test_directions_of_further_metrics_have_a_field_for_any_training(kind: dict[str, Any]) -> None:
    document = DOCUMENT if not kind else {**kind, "objectives": DOCUMENT["objectives"]}
    assert chosen(fields(document)["goals"], kind="mapping", is_written=False)
    written = fields({**document, "goals": {"f1_loss": "minimize"}})["goals"]
    assert chosen(written, value={"f1_loss": "minimize"}, is_written=True)


def test_bounds_choices_and_units_come_from_the_types() -> None:
    by_path = fields(DOCUMENT)
    assert chosen(
        by_path["training.epochs"], kind="whole", unit="epochs", low=0, low_open=True, default=10
    )
    assert chosen(
        by_path["training.momentum"], kind="number", low=0, high=1, low_open=False, high_open=True
    )
    assert chosen(
        by_path["plan.micro_batch"], kind="whole", unit="samples", allows_auto=True, default="auto"
    )
    assert chosen(
        by_path["plan.precision"], kind="choice", choices=["auto", "fp32", "bf16", "fp16"]
    )
    assert chosen(by_path["training.measure_noise"], kind="switch", default=True, value=None)
    assert chosen(
        by_path["resources.max_checkpoints_size"], kind="size", unit="bytes", allows_none=True
    )
    assert chosen(by_path["resources.keep_best"], kind="whole", choices=["all"], default=10)
    assert chosen(by_path["training.optimizer_options"], kind="mapping")
    assert "fsdp" in by_path["plan.strategy"]["choices"]
    optimizers = by_path["training.optimizer"]["choices"]
    assert {"sgd", "adamw", "rmsprop", "muon"} <= set(optimizers)
    assert not {"lbfgs", "sparseadam"} & set(optimizers)
    assert "val_accuracy" in by_path["objectives.0.metric"]["choices"]


def test_the_chosen_model_and_data_bring_their_own_fields() -> None:
    by_path = fields(DOCUMENT)
    assert chosen(by_path["model"], value="mlp", is_written=True)
    assert chosen(by_path["model.dropout"], kind="number", value=0.5, default=0.0, high=1.0)
    assert chosen(by_path["data.path"], kind="text", value="houses.csv")
    assert chosen(by_path["data.drop"], kind="names", value=None, default=[])
    other = fields(DOCUMENT | {"model": "convnet", "data": "digits"})
    assert "model.num_blocks" in other
    assert "model.hidden_width" not in other
    assert "data.path" not in other


def test_values_are_as_people_write_them_and_a_written_nothing_is_told_from_a_default() -> None:
    by_path = fields(DOCUMENT)
    assert chosen(by_path["budget.time"], kind="duration", value="1h30m")
    assert chosen(by_path["training.checkpoint_after"], value=None, is_written=True, default="10m")
    assert chosen(by_path["budget.trials"], value=None, is_written=False)


def test_the_value_of_a_trial_is_chosen_or_typed() -> None:
    objective = {"metric": "val_loss", "goal": "minimize"}
    by_path = fields(
        DOCUMENT | {"objectives": [objective, objective | {"value": {"mean_last": 3}}]}
    )
    names = ["returned", "last", "best"]
    assert chosen(by_path["objectives.0.value"], choices=names, value=None, default="returned")
    assert chosen(by_path["objectives.1.value"], value="mean_last: 3", is_written=True)


def test_only_what_the_chosen_pruner_reads_applies() -> None:
    by_path = fields(DOCUMENT | {"early_stop": {"pruner": "patience", "percentile": 3.0}})
    applying = {path for path, field in by_path.items() if field.get("applies") is not False}
    assert {"early_stop.patience", "early_stop.grace", "early_stop.percentile"} <= applying
    assert not {"early_stop.reduction_factor", "early_stop.p_threshold"} & applying
    assert chosen(fields(DOCUMENT | {"early_stop": "asha"})["early_stop.pruner"], value="asha")


def test_what_is_searched_is_marked() -> None:
    by_path = fields(DOCUMENT)
    assert [path for path, field in by_path.items() if field["is_searched"]] == [
        "model.num_layers",
        "training.lr",
    ]


@pytest.mark.parametrize("wrong", [None, 3, "x", [], [1], {"name": 1}, {"name": "horse", "a": 1}])
def test_a_document_in_which_everything_is_wrong_still_has_its_fields(wrong: Any) -> None:
    by_path = fields(dict.fromkeys(Experiment.model_fields, wrong))
    assert {"training.epochs", "model", "seed"} <= by_path.keys()


def test_own_names_can_be_chosen_beside_the_zoo() -> None:
    section = next(one for one in sections_of(DOCUMENT, ["Net"]) if one.name == "model")
    assert {"mlp", "Net"} <= set(section.fields[0].choices or ())


def test_models_and_data_sets_are_listed_with_a_sentence() -> None:
    assert {"mlp", "transformer"} <= {model.name for model in models()}
    assert {"digits", "table"} <= {data.name for data in datasets()}
    assert all(one.help for one in models() + datasets())


def sections(document: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {section.name: section.model_dump(mode="json") for section in sections_of(document)}


def test_lists_say_what_their_next_item_begins_as_and_leave_to_a_person_what_only_they_know() -> (
    None
):
    by_name = sections(DOCUMENT)
    assert by_name["objectives"]["items"] == {
        "num_items": 1,
        "min_items": 1,
        "next": {"metric": "val_accuracy", "goal": "maximize"},
    }
    assert by_name["constraints"]["items"] == {
        "num_items": 0,
        "min_items": 0,
        "next": {"metric": "val_loss"},
    }
    other = sections(DOCUMENT | {"objectives": [{"metric": "val_accuracy", "goal": "maximize"}]})
    assert other["objectives"]["items"]["next"] == {"metric": "val_loss", "goal": "minimize"}


def test_an_alert_has_the_fields_of_its_kind_and_can_become_one_of_another() -> None:
    assert sections(DOCUMENT)["alerts"]["items"] == {
        "num_items": 0,
        "min_items": 0,
        "next": {"on": "run_ended"},
    }
    for kind, drawn in RULES.items():
        rule = {"on": kind, **({"pattern": "x"} if kind == "log" else {})}
        alert_fields = sections(DOCUMENT | {"alerts": [{"on": "disk"}, rule]})["alerts"]["fields"]
        names = [
            field["path"].removeprefix("alerts.1.")
            for field in alert_fields
            if "alerts.1." in field["path"]
        ]
        assert names[0] == "on"
        assert set(names[1:]) == drawn.keys()
        on = next(field for field in alert_fields if field["path"] == "alerts.1.on")
        assert chosen(on, kind="choice", value=kind)
        assert set(on["choices"]) == RULES.keys()
        assert on["help"]
    unknown = sections(DOCUMENT | {"alerts": [{"on": "noon", "x": 1}]})["alerts"]["fields"]
    assert [field["path"] for field in unknown] == ["alerts.0.on"]


def test_what_a_train_function_reports_is_not_guessed() -> None:
    by_name = sections({"train": "json:dumps", "objectives": [{"metric": "y", "goal": "minimize"}]})
    assert by_name["objectives"]["items"]["next"] == {"metric": ""}
    assert by_name["objectives"]["fields"][0]["choices"] == []


def test_what_the_advisor_may_choose_of_a_program_is_chosen_among_its_parameters() -> None:
    assert not [path for path in fields(DOCUMENT) if path.startswith("advise.")]
    program = {
        "command": "python x.py {args}",
        "search": {"batch-size": {"choices": [8, 32]}, "lr": 0.1},
    }
    by_path = fields(program | {"advise": {"batch": "batch-size"}})
    assert chosen(
        by_path["advise.batch"], kind="text", choices=["batch-size", "lr"], value="batch-size"
    )
    assert chosen(by_path["advise.lr"], choices=["batch-size", "lr"], allows_none=True)
    assert chosen(by_path["advise.workers"], kind="switch", default=False)
    assert "ms/step" in by_path["advise.unit"]["choices"]
    assert all(field["help"] for path, field in by_path.items() if path.startswith("advise."))
    assert chosen(fields({"train": "json:dumps"})["advise.batch"], choices=[], is_written=False)


def test_a_constraint_has_a_field_for_each_bound() -> None:
    by_path = fields(DOCUMENT | {"constraints": [{"metric": "train_loss", "at_most": 3.0}]})
    assert chosen(by_path["constraints.0.at_most"], kind="number", value=3.0, allows_none=True)
    assert chosen(by_path["constraints.0.at_least"], value=None, is_written=False)
    assert all(
        by_path[f"constraints.0.{name}"]["help"] for name in ("metric", "at_most", "at_least")
    )


def test_the_target_is_chosen_from_the_columns_of_the_table_that_is_named(tmp_path: Path) -> None:
    table = tmp_path / "houses.csv"
    table.write_text("rooms,town\n3,Ulm\n")

    def target(path: Path) -> dict[str, Any]:
        return fields(DOCUMENT | {"data": {"name": "table", "path": str(path)}})["data.target"]

    assert chosen(target(table), kind="choice", choices=["rooms", "town"])
    table.write_text("rooms,garden,town\n3,1,Ulm\n")
    assert chosen(target(table), choices=["rooms", "garden", "town"])
    for unreadable in (tmp_path / "absent.csv", tmp_path / "houses.xls", tmp_path):
        assert chosen(target(unreadable), kind="text", choices=None)


def test_what_an_own_model_reads_has_fields_and_a_first_search_by_its_name() -> None:
    document = {
        **DOCUMENT,
        "model": {"name": "mine:Net", "depth": 3, "unread": 1},
        "search": {"hidden": {"choices": [8, 16]}},
    }
    values = {"hidden": None, "depth": 2, "dropout": None, "act": "relu", "norm": True, "lr": 0.1}
    dumped = [s.model_dump(mode="json") for s in sections_of(document, (), {"model": values})]
    own = {f["path"]: f for s in dumped if s["name"] == "model" for f in s["fields"]}
    # `lr` is a setting of the training and has its field there.
    assert list(own) == [
        "model",
        "model.hidden",
        "model.depth",
        "model.dropout",
        "model.act",
        "model.norm",
        "model.unread",
    ]
    assert chosen(own["model.hidden"], is_searched=True, default=None)
    assert chosen(own["model.depth"], kind="whole", value=3, default=2, is_written=True)
    assert 3 in own["model.depth"]["initial_search"]["choices"]
    assert chosen(own["model.norm"], kind="switch", initial_search={"choices": [True, False]})
    assert chosen(own["model.act"], kind="text", initial_search={"choices": ["relu"]})
    assert own["model.dropout"]["initial_search"] == {"low": 0.0, "high": 0.5}
    assert own["model.hidden"]["initial_search"] == {"choices": [32, 64, 128]}
    assert "has no default" in own["model.hidden"]["help"]


def test_a_class_of_a_cell_brings_the_fields_of_what_it_reads() -> None:
    class Net:
        def __init__(self, config: dict[str, Any]) -> None:
            self.layers = [config["hidden"]] * config.get("depth", 2)

    Net.__module__ = "__main__"
    draft = Draft(namespace={"Net": Net})
    draft.edit([("model", "Net")])
    state = state_of(draft)
    assert state.models[0].name == "Net"
    fields = {field.path: field for section in state.sections for field in section.fields}
    assert fields["model.depth"].default == 2
    assert fields["model.hidden"].default is None
    draft.edit([("model", "mlp")])
    assert "model.hidden" not in {
        field.path for section in state_of(draft).sections for field in section.fields
    }
