from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any, get_args

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import workbench as wb
from tests.builders.examples import examples
from tests.builders.random_experiments import FEDERATED, RULES, SETTINGS, experiments, paths, values
from workbench.experiment import Experiment
from workbench.experiment.alert_rules import AlertRule
from workbench.experiment.federated import Federated
from workbench.experiment.setting_types import Section
from workbench.foundation.errors import DataError, WorkbenchError
from workbench.runs import read_experiment
from workbench.search import Study
from workbench.views.forms import Draft
from workbench.views.forms.fields import state_of
from workbench.views.forms.presets import preset_path
from workbench.views.forms.protocol import to_message


def digits() -> Draft:
    return Draft(
        Experiment(
            name="digits",
            model="mlp",
            data="digits",
            objectives=[{"metric": "val_accuracy", "goal": "maximize"}],
            search={
                "lr": {"low": 0.5, "high": 1.5},
                "num_layers": {"low": 1, "high": 4},
                "optimizer": {"choices": ["sgd", "adamw"]},
                "momentum": {"low": 0.8, "high": 0.98, "when": {"optimizer": "sgd"}},
            },
        )
    )


def fields_of(draft: Draft) -> list[str | None]:
    return [problem.field for problem in draft.problems]


@examples(25)
@given(experiments())
def test_the_way_through_yaml_and_python_and_back_changes_nothing(experiment: Experiment) -> None:
    draft = Draft(experiment)
    yaml, python, hashed = draft.yaml, draft.python, experiment.hash()
    assert Experiment.from_yaml(yaml) == experiment

    executed: dict[str, Any] = {}
    exec(python, executed)
    assert executed["experiment"] == experiment

    draft.write_yaml(yaml)
    draft.write_python(python)
    assert (draft.yaml_problems, draft.python_problems) == ((), ())
    assert (draft.yaml, draft.python, draft.experiment) == (yaml, python, experiment)
    assert draft.experiment.hash() == hashed
    assert draft.undo_label is None

    other = Draft()
    other.write_python(python)
    again = Draft(Experiment.from_yaml(other.yaml))
    assert again.experiment == experiment
    assert again.experiment.hash() == hashed


def test_experiments_are_drawn_with_every_setting_that_there_is() -> None:
    for name, drawn in SETTINGS.items():
        section = Experiment.model_fields[name].annotation
        assert issubclass(section, Section)
        assert drawn.keys() == section.model_fields.keys(), name
    assert FEDERATED.keys() == Federated.model_fields.keys()
    rules = {
        get_args(rule.model_fields["on"].annotation)[0]: rule.model_fields.keys() - {"on"}
        for rule in get_args(get_args(AlertRule)[0])
    }
    assert {kind: drawn.keys() for kind, drawn in RULES.items()} == rules
    others = {
        "name",
        "model",
        "data",
        "train",
        "command",
        "step",
        "workdir",
        "advise",
        "federated",
        "loss",
        "metrics",
        "objectives",
        "goals",
        "constraints",
        "search",
    }
    assert Experiment.model_fields.keys() == SETTINGS.keys() | others | {
        "alerts",
        "fidelity",
        "repeats",
        "report_to",
        "seed",
    }


edits = st.lists(
    st.one_of(
        st.tuples(
            st.just("edit"),
            st.lists(st.tuples(paths, values), max_size=3),
            st.lists(paths, max_size=2),
        ),
        st.tuples(st.just("rename"), paths, st.sampled_from(["lr", "x", "a b", ""])),
        st.tuples(
            st.sampled_from(["write_yaml", "write_python"]), st.text(max_size=20) | values.map(str)
        ),
        st.tuples(st.sampled_from(["undo", "redo"])),
    ),
    max_size=8,
)


def act(draft: Draft, action: tuple[Any, ...]) -> None:
    match action:
        case ("edit", changes, removals):
            draft.edit(changes, removals=removals)
        case (name, *arguments):
            getattr(draft, name)(*arguments)


@pytest.mark.slow
@examples(40)
@given(edits)
@example([("write_yaml", "1: 2")])
@example([("write_yaml", "name: 2020-99-99\nmodel: 1")])
@example([("write_yaml", "[" * 5000)])
@example([("write_python", "(" * 5000)])
@example([("write_python", "x = " + "9" * 5000)])
@example([("write_python", "\0")])
@example([("edit", [("search.lr", {"low": 0, "high": 10**30})], [])])
@example([("edit", [("search.lr", {"low": 0.0, "high": 1.0, "step": 5e-324})], [])])
@example([("edit", [("search.lr", {"low": -1.7e308, "high": 1.7e308})], [])])
@example([("edit", [("name", "\ud800")], [])])
def test_whatever_is_done_nothing_breaks_and_the_last_right_experiment_is_kept(
    actions: list[Any],
) -> None:
    draft = Draft()
    for action in actions:
        before = draft.experiment
        try:
            act(draft, action)
        except WorkbenchError:
            assert draft.experiment == before
        if draft.hash is None:
            assert draft.problems
        else:
            assert draft.document == draft.experiment.model_dump(mode="json")
    json.dumps(to_message(state_of(draft)), allow_nan=False)


@examples(30)
@given(edits)
def test_undo_takes_back_everything_and_redo_does_it_again(actions: list[Any]) -> None:
    draft = Draft()
    first = json.dumps(draft.document)
    for action in actions:
        if action[0] not in ("undo", "redo"):
            try:
                act(draft, action)
            except WorkbenchError:
                continue
    last, num_steps = json.dumps(draft.document), 0
    while draft.undo_label is not None:
        draft.undo()
        num_steps += 1
    assert json.dumps(draft.document) == first
    for _ in range(num_steps):
        assert draft.can_redo
        draft.redo()
    assert json.dumps(draft.document) == last
    assert not draft.can_redo


def test_a_wrong_value_is_told_at_its_field_and_the_experiment_stays() -> None:
    draft = digits()
    before = draft.experiment
    draft.edit([("training.epochs", "many"), ("budget.time", "soon"), ("search.lr.low", 7)])
    assert fields_of(draft) == ["search.lr.low", "training.epochs", "budget.time"]
    assert draft.hash is None
    assert draft.experiment is before
    draft.edit([("training.epochs", 3), ("budget.time", "2m"), ("search.lr.high", 9)])
    assert fields_of(draft) == []
    assert draft.experiment.budget.time == 120
    assert draft.hash == draft.experiment.hash()


def test_a_rule_of_another_kind_leaves_what_that_does_not_know_behind() -> None:
    draft = digits()
    draft.edit([("alerts", [{"on": "no_progress", "within": "10m", "to": ["jupyter"]}])])
    draft.edit([("alerts.0.on", "disk")])
    assert draft.document["alerts"] == [{"to": ["jupyter"], "on": "disk"}]
    assert draft.problems == []
    draft.edit([("alerts.0.on", "noon")])
    assert fields_of(draft) == ["alerts.0.on"]
    draft.undo()
    draft.undo()
    assert draft.document["alerts"][0]["within"] == 600.0


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("model", "mlpp"),
        ("model.hidden_width", 0),
        ("data.validation_fraction", 1.5),
        ("plan.strategy", "horse"),
        ("training.lr_rule", "horse"),
        ("objectives.0.metric", "val_horse"),
        ("search.horse", {"low": 1, "high": 2}),
    ],
)
def test_what_could_not_run_is_told_at_its_field(path: str, value: Any) -> None:
    draft = digits()
    draft.edit([(path, value)])
    assert fields_of(draft) == [path]
    assert draft.hash is None


def test_the_objective_follows_the_task_of_the_data(tmp_path: Path) -> None:
    path = tmp_path / "houses.csv"
    path.write_text(
        "\n".join(["rooms,price", *(f"{rooms},{rooms * 1.5}" for rooms in range(1, 30))])
    )
    draft = digits()
    draft.edit([("objectives.0.target", 0.9), ("objectives.0.value", "last")])
    draft.edit([("data", "table")])
    assert draft.document["objectives"][0]["metric"] == "val_accuracy"
    draft.edit([("data.path", str(path)), ("data.target", "price")])
    objective = {"metric": "val_mean_absolute_error", "goal": "minimize", "value": "last"}
    assert (draft.document["objectives"], draft.problems) == ([objective], [])
    assert "val_accuracy is not measured for this data" in draft.notes[0]
    draft.edit([("data", "digits")])
    assert draft.document["objectives"] == [
        {"metric": "val_accuracy", "goal": "maximize", "value": "last"}
    ]
    draft.undo()
    assert draft.document["objectives"] == [objective]
    draft.edit([("objectives.0.metric", "val_accuracy")])
    assert fields_of(draft) == ["objectives.0.metric"]


def test_a_momentum_that_is_searched_beside_optimizers_exists_with_sgd_only() -> None:
    draft = digits()
    draft.edit([], removals=["search.momentum"])
    draft.edit([("search.momentum", {"low": 0.8, "high": 0.9})])
    assert draft.document["search"]["momentum"]["when"] == {"optimizer": "sgd"}
    draft.edit(
        [("search.optimizer", {"choices": ["sgd"]}), ("search.momentum", {"low": 0.5, "high": 0.9})]
    )
    assert "when" not in draft.document["search"]["momentum"]


def test_a_range_of_numbers_stays_one_where_its_bounds_are_whole() -> None:
    draft = digits()
    draft.edit([("search.lr.low", 1), ("search.lr.high", 2)])
    assert draft.experiment.search.root["lr"] == wb.Float(low=1, high=2)
    draft.edit([("search.num_layers.low", 1.5)])
    assert fields_of(draft) == ["search.num_layers.low"]


def test_conditions_follow_a_parameter_that_is_renamed() -> None:
    draft = Draft(
        Experiment(
            train="json:dumps",
            objectives=[{"metric": "y", "goal": "minimize"}],
            search={
                "a": {"choices": [1, 2]},
                "b": {"low": 0.0, "high": 1.0, "type": "float", "when": {"a": 1}},
            },
        )
    )
    draft.rename("search.a", "kind")
    assert list(draft.experiment.search.root) == ["kind", "b"]
    assert draft.experiment.search.root["b"].when == {"kind": 1}
    with pytest.raises(WorkbenchError, match="already"):
        draft.rename("search.b", "kind")


def test_removing_several_parts_of_a_list_removes_those_that_were_meant() -> None:
    draft = digits()
    draft.edit([("metrics", ["accuracy", "top5_accuracy", "perplexity"])])
    draft.edit([], removals=["metrics.0", "metrics.2"])
    assert draft.document["metrics"] == ["top5_accuracy"]


def test_all_problems_of_a_text_are_listed_together() -> None:
    draft = digits()
    draft.write_yaml(
        "model: mlp\ntraining: {epochs: 0, momentum: 7}\nbudget: {trials: -1}\ndat: 1\n"
        "objectives: [{metric: val_loss}]"
    )
    fields = {problem.to_problem().field for problem in draft.yaml_problems}
    assert fields >= {"training.epochs", "training.momentum", "budget.trials", "dat"}
    wrong = "training={'epochs': 0}, budget={'trials': -1}"
    draft.write_python(f"import workbench as wb\n\nexperiment = wb.Experiment({wrong})\n")
    assert {problem.to_problem().field for problem in draft.python_problems} >= {
        "training.epochs",
        "budget.trials",
    }


def test_a_text_that_is_wrong_stays_as_it_was_typed_until_something_else_is_changed() -> None:
    draft = digits()
    before = draft.document
    draft.write_yaml("model: mlp\ntraining: {epochs: 0}")
    assert draft.yaml == "model: mlp\ntraining: {epochs: 0}"
    assert "training.epochs" in str(draft.yaml_problems[-1])
    assert draft.document == before
    assert draft.hash is not None
    draft.edit([("training.epochs", 4)])
    assert draft.yaml_problems == ()
    assert "epochs: 4" in draft.yaml


def test_a_text_that_is_right_keeps_its_comments_until_something_else_is_changed() -> None:
    draft = digits()
    text = f"# why\n{draft.yaml.replace('name: digits', 'name: mine')}"
    draft.write_yaml(text)
    assert draft.yaml == text
    assert draft.experiment.name == "mine"
    assert 'name="mine"' in draft.python
    draft.undo()
    assert draft.experiment.name == "digits"
    assert "why" not in draft.yaml


def test_what_is_saved_is_opened_again_and_never_overwrites_by_accident(tmp_path: Path) -> None:
    draft = digits()
    path = tmp_path / "mine.yaml"
    draft.save(path)
    assert draft.is_saved
    draft.edit([("training.epochs", 3)])
    assert not draft.is_saved
    with pytest.raises(DataError, match="already"):
        draft.save(path)
    with pytest.raises(DataError, match=r"Choose another file, or .*overwrite=True"):
        draft.save(path)
    assert read_experiment(path).hash() != draft.hash
    draft.save(path, overwrite=True)
    opened = Draft()
    opened.open(path)
    assert opened.experiment == draft.experiment
    assert opened.hash == draft.hash
    assert opened.is_saved
    with pytest.raises(DataError):
        draft.save(tmp_path / "nowhere" / "mine.yaml")


def test_what_was_saved_proposes_what_the_form_would_propose(tmp_path: Path) -> None:
    draft = digits()
    draft.edit([("search.lr.log", True), ("seed", 7)])
    draft.save(tmp_path / "mine.yaml")
    clicked, headless = Study(draft.experiment), Study(read_experiment(tmp_path / "mine.yaml"))
    first = [clicked.ask().params for _ in range(5)]
    assert [headless.ask().params for _ in range(5)] == first
    assert len({json.dumps(params) for params in first}) == 5


def test_a_wrong_draft_is_not_saved(tmp_path: Path) -> None:
    draft = digits()
    draft.edit([("training.epochs", 0)])
    with pytest.raises(WorkbenchError, match=r"training\.epochs"):
        draft.save(tmp_path / "mine.yaml")
    assert not (tmp_path / "mine.yaml").exists()


def test_those_who_listen_are_told_until_they_do_not_want_it() -> None:
    draft, heard = digits(), []
    stop = draft.listen(lambda: heard.append(draft.revision))
    draft.edit([("training.epochs", 3)])
    draft.write_yaml("nonsense")
    draft.undo()
    assert len(heard) == 3
    stop()
    draft.redo()
    assert len(heard) == 3


def test_a_preset_is_a_beginning_that_can_be_undone(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    draft = digits()
    before = draft.document
    draft.preset("breast_cancer")
    assert draft.experiment.repeats == 3
    draft.undo()
    assert draft.document == before
    with pytest.raises(WorkbenchError, match="breast_cancer"):
        draft.preset("horse")


def test_a_text_that_is_given_up_says_again_what_the_form_says() -> None:
    draft = digits()
    yaml, python = draft.yaml, draft.python
    draft.write_yaml("nonsense")
    draft.write_python("nonsense")
    assert draft.yaml_problems
    draft.write_yaml("")
    draft.write_python(" ")
    assert (draft.yaml, draft.yaml_problems) == (yaml, ())
    assert (draft.python, draft.python_problems) == (python, ())


def test_pictures_are_told_from_those_of_what_was_right_last() -> None:
    draft = digits()
    draft.edit([("objectives.0.metric", "val_horse")])
    assert draft.problems
    assert state_of(draft).is_experiment is True
    draft.edit([("training.epochs", "many")])
    assert state_of(draft).is_experiment is False


def test_a_wrong_objective_is_said_at_its_field_alone() -> None:
    draft = digits()
    draft.edit([("objectives.0.target", "abc")])
    assert fields_of(draft) == ["objectives.0.target"]
    draft.edit([], removals=["objectives.0"])
    assert fields_of(draft) == ["objectives"]


def test_an_example_is_offered_until_something_is_changed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    draft = Draft()
    offered = state_of(draft).example
    assert offered is not None
    draft.edit([("seed", 1)])
    assert state_of(draft).example is None
    assert state_of(Draft(draft.experiment)).example is None
    draft.preset(offered.name)
    assert draft.problems == []
    assert draft.experiment.budget.time is not None  # it ends by itself
    shutil.copy(preset_path("text"), tmp_path / f"{offered.name}.yaml")
    assert state_of(Draft()).example is None  # the name now means another experiment


def test_what_the_advisor_may_choose_is_set_renamed_and_removed_again() -> None:
    draft = Draft(
        Experiment(
            train="json:dumps",
            objectives=[{"metric": "loss", "goal": "minimize"}],
            search={"batch-size": {"choices": [8, 32]}, "lr": {"low": 0.1, "high": 1.0}},
        )
    )
    draft.edit([("advise.batch", "batch-size")])
    draft.edit([("advise.lr", "lr")])
    draft.rename("search.batch-size", "samples")
    assert (fields_of(draft), draft.experiment.advise.batch) == ([], "samples")  # type: ignore[union-attr]
    draft.edit([("advise.batch", "rate")])
    assert fields_of(draft) == ["advise.batch"]
    draft.edit([], removals=["advise.batch", "advise.lr"])
    assert fields_of(draft) == []
    assert "advise" not in draft.document
