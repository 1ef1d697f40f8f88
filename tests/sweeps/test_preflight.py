from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.builders.language_models import conversations, write_lines, write_tokenizer
from workbench.experiment import Experiment
from workbench.foundation.errors import DataError, ExperimentError, ResourcesError, WorkbenchError
from workbench.hardware.resources import inventory, processor_counters
from workbench.sweeps.preflight import check, check_program, find_problems

SEARCH_SPACES = Path(__file__).parents[2] / "search_spaces"
GOOD: dict[str, Any] = {
    "model": "convnet",
    "data": "digits",
    "objectives": [{"metric": "val_accuracy", "goal": "maximize"}],
    "search": {"lr": {"low": 1e-4, "high": 1.0, "log": True}},
}
VAL_LOSS = [{"metric": "val_loss", "goal": "minimize"}]
OWN: dict[str, Any] = {"train": "json:dumps", "objectives": [{"metric": "y", "goal": "minimize"}]}
TRAINED: dict[str, Any] = {**OWN, "model": None, "data": None, "search": {}}

# What is written instead, the field that the message must name, and a part of what it must say.
MALFORMED: list[tuple[dict[str, Any], str, str]] = [
    ({"serach": {}}, "serach", "Did you mean search?"),
    ({"self": 1}, "self", "unknown key"),
    ({"n[me": "a"}, "n[me", "Did you mean name?"),
    (
        {"training": {"global_batch": 10**400}},
        "training.global_batch",
        "at most 9,007,199,254,740,992",
    ),
    ({"plan": {"micro_batch": 10**400}}, "plan.micro_batch", "at most 9,007,199,254,740,992"),
    ({"resources": {"priority": -(10**400)}}, "resources.priority", "too large"),
    (
        {"resources": {"max_checkpoints_size": "9" * 400}},
        "resources.max_checkpoints_size",
        "too large",
    ),
    ({"model": None}, "model", "missing"),
    ({"data": None}, "data", "missing"),
    ({"model": "convnett"}, "model", "Did you mean convnet?"),
    ({"model": 3}, "model", "a name"),
    ({"model": {"width": 3}}, "model.name", "Add a name"),
    ({"model": {"name": "convnet", "widht": 3}}, "model.widht", "Did you mean width?"),
    ({"model": {"name": "convnet", "width": 0}}, "model.width", "0"),
    ({"model": "no_such_module:build"}, "model", "no module 'no_such_module'"),
    ({"model": "folder/net.py:build"}, "model", "as Python imports it: folder.net:build"),
    ({"model": "json:no_such_name"}, "model", "has no 'no_such_name'"),
    ({"data": "digitts"}, "data", "Did you mean digits?"),
    ({"data": {"name": "digits", "validation_fraction": 2}}, "data.validation_fraction", "2"),
    ({"data": {"name": "digits", "nope": 1}}, "data.nope", "allowed"),
    ({"data": {"name": "table", "target": "y"}}, "data.path", "path"),
    (
        {"data": {"name": "table", "target": "y", "path": "no_such.csv"}},
        "data.path",
        "does not exist",
    ),
    (
        {"data": {"name": "table", "path": "no_such.csv"}},
        "data.path",
        "the path no_such.csv does not exist",
    ),
    ({"train": "json:dumps"}, "model", "Remove model or train"),
    ({"objectives": []}, "objectives", "at least 1"),
    ({"objectives": [{"goal": "maximize"}]}, "objectives.0.metric", "missing"),
    (
        {"objectives": [{"metric": "val_accuracy", "goal": "max"}]},
        "objectives.0.goal",
        "'maximize'",
    ),
    (
        {"objectives": [{"metric": "val_acuracy", "goal": "maximize"}]},
        "objectives.0.metric",
        "val_accuracy",
    ),
    (
        {"objectives": [{"metric": "val_loss", "goal": "minimize"}] * 2},
        "objectives.1.metric",
        "already",
    ),
    (
        {"objectives": [{"metric": "val_loss", "goal": "minimize", "target": float("nan")}]},
        "objectives.0.target",
        "finite",
    ),
    (
        {
            "model": "forest",
            "objectives": [{"metric": "train_loss", "goal": "minimize"}],
            "search": {},
        },
        "objectives.0.metric",
        "val_accuracy",
    ),
    ({"metrics": ["json:dumps"]}, "objectives.0.metric", "val_dumps"),
    (
        {"metrics": ["mean_absolute_error", "accuracy"]},
        "metrics.0",
        "accuracy, top5_accuracy, perplexity",
    ),
    ({"loss": "huber"}, "loss", "the task of the data is classification; allowed: cross_entropy"),
    ({"training": {"optimizer": "lbfgs"}}, "training.optimizer", "several times in a step"),
    (
        {"search": {"optimizer": {"choices": ["sgd", "sparseadam"]}}},
        "search.optimizer",
        "sparse gradients",
    ),
    (
        {"objectives": [{"metric": "val_accuracy", "goal": "maximize", "target": 95}]},
        "objectives.0.target",
        "never above 1, got 95; allowed: from 0 to 1. Write 0.95.",
    ),
    (
        {"constraints": [{"metric": "val_accuracy", "at_least": 90}]},
        "constraints.0.at_least",
        "Write 0.9.",
    ),
    (
        {"federated": {"clients": 4, "target": {"metric": "val_accuracy", "at_least": 95}}},
        "federated.target.at_least",
        "never above 1, got 95; allowed: from 0 to 1. Write 0.95.",
    ),
    (
        {
            "federated": {
                "clients": 4,
                "target": {"metric": "val_accuracy_client_min", "at_least": 80},
            }
        },
        "federated.target.at_least",
        "Write 0.8.",
    ),
    ({"constraints": [{"metric": "val_loss"}]}, "constraints.0", "at_most or at_least"),
    (
        {"constraints": [{"metric": "val_los", "at_most": 1}]},
        "constraints.0.metric",
        "nothing reports",
    ),
    ({"search": {"lr": {"low": 1.0, "high": 0.1}}}, "search.lr.low", "Swap"),
    ({"search": {"lr": {"low": 0.0, "high": 0.1, "log": True}}}, "search.lr.low", "no logarithm"),
    ({"search": {"lr": {"low": 0.1}}}, "search.lr", "allowed"),
    (
        {"search": {"lr": {"low": 0.1, "high": 1.0, "lg": True}}},
        "search.lr.lg",
        "Did you mean log?",
    ),
    ({"search": {"lr": {"low": 0.1, "high": float("inf")}}}, "search.lr.high", "finite"),
    ({"search": {"lr": [0.001, 0.3]}}, "search.lr", "or {low: 0.001, high: 0.3}"),
    ({"search": {"width": [16, 32]}}, "search.width", "Write {choices: [16, 32]}"),
    (
        {"search": {"optimizer": ["sgd", "adamw"]}},
        "search.optimizer",
        'Write {choices: ["sgd", "adamw"]}.',
    ),
    ({"search": {"width": [[16], [32]]}}, "search.width", "Write {choices: [first, second]}."),
    (
        {"search": {"optimizer": {"choices": ["sgd"], "wen": {}}}},
        "search.optimizer.wen",
        "mean when?",
    ),
    ({"search": {"lr": {"low": -1.0, "high": 1.0}}}, "search.lr", "-1.0"),
    ({"search": {"width": {"low": 8, "high": 32, "step": 100}}}, "search.width.step", "up to 24"),
    (
        {"search": {"width": {"low": 8, "high": 32, "log": True, "step": 8}}},
        "search.width.step",
        "cannot have a step",
    ),
    ({"search": {"width": {"choices": []}}}, "search.width.choices", "at least 1"),
    ({"search": {"width": {"choices": [8, 8]}}}, "search.width.choices", "twice"),
    ({"search": {"width": {"choices": [8, "wide"]}}}, "search.width", "wide"),
    ({"search": {"widht": {"choices": [8]}}}, "search.widht", "Did you mean width?"),
    (
        {"search": {"momentum": {"low": 0.8, "high": 0.9, "when": {"optimiser": "sgd"}}}},
        "search.momentum.when",
        "optimiser is not searched",
    ),
    (
        {
            "search": {
                "optimizer": {"choices": ["sgd", "adamw"]},
                "momentum": {"low": 0.8, "high": 0.9, "when": {"optimizer": "adam"}},
            }
        },
        "search.momentum.when.optimizer",
        "'sgd', 'adamw'",
    ),
    (
        {
            "search": {
                "width": {"choices": [8], "when": {"dropout": 0}},
                "dropout": {"choices": [0], "when": {"width": 8}},
            }
        },
        "search.width.when",
        "depend on each other",
    ),
    ({"search": {"optimizer": {"choices": ["sgd", "adamm"]}}}, "search.optimizer", "adamm"),
    ({"search": {"epochs": {"low": 0, "high": 5}}}, "search.epochs", "0"),
    ({"search": {"workers": {"choices": [0, 1]}}}, "search.workers", "0"),
    ({"search": {"bad name": {"choices": [1]}}}, "search.bad name", "letters"),
    ({"training": {"lr": 0.1}}, "search.lr", "also searched"),
    ({"training": {"epoch": 5}}, "training.epoch", "Did you mean epochs?"),
    ({"training": {"epochs": 0}}, "training.epochs", "greater than 0"),
    ({"training": {"epochs": "many"}}, "training.epochs", "a whole number"),
    ({"training": {"global_batch": "many"}}, "training.global_batch", "a whole number, or 'auto'"),
    ({"resources": {"keep_best": True}}, "resources.keep_best", "a whole number, or 'all'"),
    ({"training": {"schedule": "cosin"}}, "training.schedule", "'cosine'"),
    ({"training": {"warmup_epochs": 99}}, "training.warmup_epochs", "from 0 to epochs"),
    ({"training": {"optimizer": "adamwx"}}, "training.optimizer", "adamw"),
    ({"training": {"global_batch": 64, "batch_size": 32}}, "training.batch_size", "Remove one"),
    ({"training": {"momentum": 1.5}}, "training.momentum", "less than 1"),
    ({"plan": {"workers": 0}}, "plan.workers", "greater than 0"),
    ({"plan": {"precision": "fp8"}}, "plan.precision", "'bf16'"),
    ({"plan": {"strategy": "dpd"}}, "plan.strategy", "single, ddp, zero1, fsdp"),
    ({"plan": {"schedule": "gpipes"}}, "plan.schedule", "gpipe"),
    ({"training": {"batch_size": 0}}, "training.batch_size", "greater than 0"),
    ({"search": {"batch_size": {"low": 8, "high": 4}, "lr": 0.1}}, "search.batch_size.low", "Swap"),
    (
        {
            "training": {"global_batch": 4},
            "plan": {
                "schedule": "zero_bubble",
                "recompute": "blocks",
                "workers": 2,
                "stages": 2,
                "strategy": "pipeline",
            },
        },
        "plan.schedule",
        "zero_bubble with plan.recompute",
    ),
    ({"plan": {"strategy": "single", "workers": 2}}, "plan.strategy", "auto, ddp, zero1, fsdp"),
    (
        {
            "training": {"global_batch": 100},
            "plan": {"micro_batch": 32, "accumulation": 2, "workers": 1},
        },
        "training.global_batch",
        "micro_batch",
    ),
    ({"budget": {"trials": 0}}, "budget.trials", "greater than 0"),
    ({"budget": {"time": "3 bananas"}}, "budget.time", "1h30m"),
    ({"budget": {"trails": 3}}, "budget.trails", "Did you mean trials?"),
    ({"sampler": "tpee"}, "sampler.name", "tpe, random"),
    ({"sampler": "grid"}, "search.lr", "Add a step"),
    ({"early_stop": {"pruner": "ash"}}, "early_stop.pruner", "none, asha"),
    ({"early_stop": {"pruner": "asha", "reduction_factor": 1}}, "early_stop.reduction_factor", "2"),
    (
        {
            "objectives": [
                {"metric": "val_loss", "goal": "minimize"},
                {"metric": "val_accuracy", "goal": "maximize"},
            ],
            "early_stop": {"pruner": "asha"},
        },
        "early_stop.pruner",
        "allowed: none, curves",
    ),
    ({"resources": {"placement": "pakc"}}, "resources.placement", "'pack'"),
    ({"repeats": 0}, "repeats", "greater than 0"),
    ({"seed": -1}, "seed", "greater than or equal to 0"),
    ({"loss": "cross_entropi"}, "loss", "cross_entropy"),
    ({"metrics": ["acuracy"]}, "metrics.0", "accuracy"),
    ({**TRAINED, "training": {"epochs": 5}}, "training.epochs", "decides this itself"),
    ({**TRAINED, "plan": {"precision": "bf16"}}, "plan.precision", "decides this itself"),
    ({**TRAINED, "metrics": ["accuracy"]}, "metrics", "reports its own"),
    ({"early_stop": {"pruner": "asha", "patience": 3}}, "early_stop.patience", "does not use it"),
    (
        {"early_stop": {"percentile": 50}},
        "early_stop.percentile",
        "the pruner none does not use it",
    ),
    ({"training": {"momentum": 0.5}}, "training.momentum", "only the optimizer sgd"),
    (
        {"search": {"momentum": {"choices": [0.1, 0.9]}}},
        "search.momentum",
        "only the optimizer sgd",
    ),
    (
        {**TRAINED, "plan": {"workers": 2}},
        "plan.workers",
        "a function with a parameter named worker",
    ),
    (
        {**TRAINED, "resources": {"elastic": True}},
        "resources.elastic",
        "train function",
    ),
    (
        {"resources": {"elastic": True}, "plan": {"strategy": "single"}},
        "resources.elastic",
        "a single worker only",
    ),
    (
        {"resources": {"elastic": True}, "search": {"workers": {"choices": [1, 2]}}},
        "resources.elastic",
        "is searched",
    ),
    (
        {"resources": {"elastic": True}, "plan": {"micro_batch": 16, "accumulation": 2}},
        "resources.elastic",
        "the same global batch",
    ),
    (
        {
            "resources": {"elastic": True},
            "plan": {"micro_batch": 64},
            "training": {"global_batch": 64},
        },
        "resources.elastic",
        "the same global batch",
    ),
    ({"resources": {"autoscaling": True}}, "resources.autoscaling", "concurrency as a number"),
    (
        {"resources": {"autoscaling": True, "concurrency": 4, "advice": "always"}},
        "resources.advice",
        "may not be there yet",
    ),
]


@pytest.mark.parametrize(
    ("change", "field", "part"), MALFORMED, ids=[field for _, field, _ in MALFORMED]
)
def test_a_malformed_experiment_is_refused_with_the_field_that_is_wrong(
    change: dict[str, Any], field: str, part: str
) -> None:
    with pytest.raises((ExperimentError, DataError)) as refusal:
        check(
            Experiment(
                **{key: value for key, value in (GOOD | change).items() if value is not None}
            )
        )
    message = str(refusal.value)
    assert message.startswith(f"{field}") or f"\n  {field}" in message, message
    assert part in message


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"resources": {"cpus_per_worker": 100_000}}, "resources.cpus_per_worker"),
        ({"resources": {"gpus_per_worker": 1000}}, "resources.gpus_per_worker"),
        ({"resources": {"gpus_per_worker": 0}, "budget": {"gpu_time": "1h"}}, "budget.gpu_time"),
        (
            {"resources": {"gpus_per_worker": 0}, "budget": {"money": 5, "price": "2 EUR/GPU-h"}},
            "budget.money",
        ),
        ({"plan": {"workers": 100_000}}, "plan.workers"),
        ({"search": {"workers": {"choices": [1, 64, 100_000]}}}, "search.workers"),
        ({"search": {"workers": {"low": 1, "high": 100_000}}}, "search.workers"),
    ],
)
def test_what_this_machine_can_never_give_is_refused(change: dict[str, Any], field: str) -> None:
    with pytest.raises(ResourcesError) as refusal:
        check(Experiment(**(GOOD | change)))
    assert str(refusal.value).startswith(field)
    check(Experiment(**(GOOD | change)), on_this_machine=False)


@pytest.mark.skipif(bool(inventory().gpus), reason="there is a GPU here")
@pytest.mark.parametrize(
    "change",
    [{"plan": {"precision": "fp16"}}, {"search": {"precision": {"choices": ["bf16", "fp16"]}}}],
)
def test_fp16_is_refused_where_no_worker_has_a_gpu(change: dict[str, Any]) -> None:
    with pytest.raises(ExperimentError, match="a CPU cannot train in fp16"):
        check(Experiment(**(GOOD | change)))
    check(Experiment(**(GOOD | change)), on_this_machine=False)
    with pytest.raises(ExperimentError, match="a CPU cannot train in fp16"):
        check(
            Experiment(**(GOOD | change), resources={"gpus_per_worker": 0}), on_this_machine=False
        )


@pytest.mark.skipif(bool(inventory().gpus), reason="there is a GPU here")
def test_a_machine_without_gpus_is_named_as_such() -> None:
    match = r"a worker needs 4 GPUs, but this machine has none: .*; allowed: 0 or auto"
    with pytest.raises(ResourcesError, match=match):
        check(Experiment(**(GOOD | {"resources": {"gpus_per_worker": 4}})))


@pytest.mark.skipif(
    bool(processor_counters() or inventory().gpus), reason="something meters energy here"
)
def test_an_energy_budget_is_refused_where_nothing_meters_energy() -> None:
    with pytest.raises(ResourcesError, match=r"budget.energy: .*this machine cannot meter energy"):
        check(Experiment(**(GOOD | {"budget": {"energy": "1kWh"}})))
    gain = {"gain": {"at_least": 0.1, "per": "1kWh"}}
    with pytest.raises(ResourcesError, match=r"budget.gain.per: .*can never end the run"):
        check(Experiment(**(GOOD | {"budget": gain})))
    model = {"model": "mlp", "data": "digits", "search": {"hidden_width": {"choices": [8, 16]}}}
    objectives = [
        {"metric": "val_accuracy", "goal": "maximize"},
        {"metric": "energy_wh", "goal": "minimize"},
    ]
    with pytest.raises(ResourcesError, match=r"objectives.1.metric: .*so it stays unknown"):
        check(Experiment(**model, objectives=objectives))


@pytest.mark.parametrize(
    ("prices", "measured"),
    [
        ("0.5,1.5,2.25,3.75", "val_mean_absolute_error"),
        ("1,2,1,2", "val_accuracy"),
        ("a,b,b,a", "val_accuracy"),
    ],
)
def test_objectives_follow_the_task_of_a_table(tmp_path: Path, prices: str, measured: str) -> None:
    path = tmp_path / "houses.csv"
    path.write_text("\n".join(["rooms,price", *(f"3,{price}" for price in prices.split(","))]))
    table = {"name": "table", "path": str(path), "target": "price"}
    for metric in ("val_accuracy", "val_mean_absolute_error"):
        objectives = [{"metric": metric, "goal": "minimize"}]
        experiment = Experiment(
            **(GOOD | {"model": "mlp", "data": table, "objectives": objectives})
        )
        if metric == measured:
            check(experiment)
        else:
            with pytest.raises(ExperimentError, match=f"nothing reports '{metric}'.*{measured}"):
                check(experiment)


def test_a_table_with_rows_without_a_target_is_refused_before_its_trials_fail(
    tmp_path: Path,
) -> None:
    path = tmp_path / "houses.csv"
    path.write_text("rooms,price\n3,0.5\n2,\n3,1.5\n4,?\n")
    experiment = Experiment(
        **(
            GOOD
            | {
                "model": "mlp",
                "data": {"name": "table", "path": str(path), "target": "price"},
                "objectives": [{"metric": "val_loss", "goal": "minimize"}],
            }
        )
    )
    with pytest.raises(DataError, match=r"data\.target: 2 of 4 rows have no 'price'"):
        check(experiment)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"target": "prize"}, "data.target: there is no column 'prize'; allowed: rooms, price"),
        ({"drop": ["size"]}, "data.drop: there is no column 'size'"),
    ],
)
def test_a_table_without_what_is_named_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: dict[str, Any], message: str
) -> None:
    (tmp_path / "houses.csv").write_text("rooms,price\n1,10.5\n2,20.5\n")
    monkeypatch.chdir(tmp_path)
    data = {
        "name": "table",
        "path": "houses.csv",
        "target": "price",
        "task": "regression",
        **options,
    }
    with pytest.raises(DataError, match=message):
        check(
            Experiment(
                model="mlp", data=data, objectives=[{"metric": "val_loss", "goal": "minimize"}]
            )
        )


def test_what_only_a_custom_model_can_be_trained_with_is_left_to_its_first_step() -> None:
    own = {"model": "json:loads", "training": {"optimizer": "sparseadam"}}
    check(Experiment(**(GOOD | own)))


@pytest.mark.parametrize("num_choices", [64, 65, 500])
def test_each_value_of_a_long_list_is_checked(num_choices: int) -> None:
    widths = [*range(8, 7 + num_choices)]
    check(Experiment(**{**GOOD, "search": {"width": {"choices": [*widths, 4]}}}))
    with pytest.raises(ExperimentError, match="-1") as caught:
        check(Experiment(**{**GOOD, "search": {"width": {"choices": [*widths, -1]}}}))
    assert caught.value.field == "search.width"


def test_good_experiments_pass() -> None:
    check(Experiment(**GOOD))
    check(Experiment(**OWN))
    examples = list(SEARCH_SPACES.glob("*.yaml"))
    assert examples
    for path in examples:
        check(Experiment.from_file(path))


def test_the_persons_code_is_looked_at_but_not_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "their_model.py").write_text(
        "raise SystemExit('was run')\ndef build(config): ...\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    check(Experiment(**(GOOD | {"model": "their_model:build"})))
    with pytest.raises(WorkbenchError, match="Did you mean build"):
        check(Experiment(**(GOOD | {"model": "their_model:biuld"})))


def test_checking_loads_neither_torch_nor_ray_nor_optuna() -> None:
    program = (
        "import sys; from workbench.experiment import Experiment\nfrom workbench.sweeps.preflight"
        f" import check\ncheck(Experiment.from_file('{SEARCH_SPACES}/digits.yaml'))\nassert not"
        " {'torch', 'ray', 'optuna', 'plotly', 'pandas'} & set(sys.modules), set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


@pytest.mark.parametrize("name", ["inside", "argument", "method", "each"])
def test_a_name_inside_a_function_is_no_name_of_the_module(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    function = "def train(argument):\n    inside = [each for each in argument]\n"
    (tmp_path / "persons_names.py").write_text(function + "class A:\n    def method(self): ...\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    check(Experiment(**{**OWN, "train": "persons_names:train"}))
    with pytest.raises(ExperimentError, match=f"has no '{name}'; allowed: A, train"):
        check(Experiment(**{**OWN, "train": f"persons_names:{name}"}))


def test_a_misspelt_function_is_compared_with_those_that_the_module_defines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "persons_slow.py").write_text(
        "import time, string\ndef slow(config, report): ...\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(ExperimentError, match=r"allowed: slow\. Did you mean slow\?"):
        check(Experiment(**{**OWN, "train": "persons_slow:slwo"}))


def test_a_name_bound_in_a_branch_is_a_name_of_the_module(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "persons_branch.py").write_text(
        "try:\n    import x\nexcept ImportError:\n    train = None\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    check(Experiment(**{**OWN, "train": "persons_branch:train"}))


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"plan": {"micro_batch": 16}, "training": {"global_batch": 64}},
        {"plan": {"strategy": "fsdp"}},
        {"search": {"micro_batch": {"choices": [16, 64]}}, "training": {"global_batch": 64}},
    ],
)
def test_trials_that_could_grow_may_be_elastic(fields: dict[str, Any]) -> None:
    check(Experiment(**GOOD | fields, resources={"elastic": True}))


def test_several_workers_are_for_functions_that_ask_which_they_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = (
        "def alone(config, report): ...\ndef together(config, report, worker): ...\nhidden ="
        " alone\n"
    )
    (tmp_path / "persons_workers.py").write_text(source)
    monkeypatch.syspath_prepend(str(tmp_path))
    in_a_cell = lambda config, report: None  # noqa: E731
    for train in ("persons_workers:alone", in_a_cell):
        check(Experiment(**{**OWN, "train": train}))
        with pytest.raises(
            ExperimentError, match=r"plan\.workers: 2 workers would all do the same"
        ):
            check(Experiment(**{**OWN, "train": train}, plan={"workers": 2}))
    search = {"workers": {"choices": [1, 2]}}
    with pytest.raises(ExperimentError, match=r"search\.workers: .* would receive this number"):
        check(Experiment(**{**OWN, "train": "persons_workers:together", "search": search}))
    for train in (
        "persons_workers:together",
        "persons_workers:hidden",
        lambda config, report, worker: None,
    ):
        check(Experiment(**{**OWN, "train": train}, plan={"workers": 2}))


@pytest.mark.parametrize(
    ("change", "part"),
    [
        ({"resources": {"per_gpu": 2, "gpus_per_worker": 1}}, "gpus_per_worker already sets"),
        ({"resources": {"per_gpu": "auto"}, "plan": {"workers": 2}}, "several workers"),
        (
            {"resources": {"per_gpu": 2}, "search": {"workers": {"choices": [1, 2]}}},
            "several workers",
        ),
        ({"resources": {"per_gpu": 2}, "plan": {"stages": 2}}, "several workers"),
        (
            {"resources": {"per_gpu": 2}, "search": {"tensor": {"choices": [1, 2]}}},
            "several workers",
        ),
        ({"resources": {"per_gpu": 2, "elastic": True}}, "elastic"),
        (
            {"resources": {"per_gpu": "auto", "autoscaling": True, "concurrency": 2}},
            "may not be there yet",
        ),
    ],
)
def test_trials_share_a_gpu_only_where_nothing_else_decides(
    change: dict[str, Any], part: str
) -> None:
    experiment = Experiment(**(GOOD | change))
    problems = [error for error in find_problems(experiment) if error.field == "resources.per_gpu"]
    assert [part in str(problem) for problem in problems] == [True]


@pytest.mark.parametrize(
    ("options", "fields", "is_refused"),
    [
        ("", {}, True),
        ("--out runs/{trial}", {}, True),
        ("--out {folder}", {}, False),
        ("--config {config}", {}, False),
        ("", {"workdir": "fresh"}, False),
    ],
)
def test_a_command_that_continues_from_a_file_must_know_its_folder(
    options: str,
    fields: dict[str, Any],
    is_refused: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text("print('val_loss: 1')\n")
    experiment = Experiment(
        command=f"python train.py --lr {{lr}} --resume {{resume_from:last.pt}} {options}",
        objectives=[{"metric": "val_loss", "goal": "minimize"}],
        search={"lr": {"low": 0.1, "high": 1.0}},
        **fields,
    )
    problems = [str(problem) for problem in find_problems(experiment)]
    assert any("does not know this folder" in problem for problem in problems) == is_refused
    (tmp_path / "train.py").write_text("import os; os.environ['WORKBENCH_FOLDER']\n")
    assert not list(find_problems(experiment))


def test_a_tokenizer_with_other_numbers_is_refused_unless_the_weights_are_new(
    tmp_path: Path,
) -> None:
    pytest.importorskip("transformers")
    write_tokenizer(tmp_path / "model")
    (tmp_path / "model" / "config.json").write_text("{}")
    write_tokenizer(tmp_path / "other_template", None)
    moved = json.loads((tmp_path / "model" / "tokenizer.json").read_text())
    vocabulary = moved["model"]["vocab"]
    last, before = sorted(vocabulary, key=vocabulary.__getitem__)[-2:]
    vocabulary[last], vocabulary[before] = vocabulary[before], vocabulary[last]
    shutil.copytree(tmp_path / "model", tmp_path / "moved")
    (tmp_path / "moved" / "tokenizer.json").write_text(json.dumps(moved))
    lines = write_lines(tmp_path / "train.jsonl", conversations(20))

    def check_with(tokenizer: str, *, from_scratch: bool = False) -> None:
        model = {"name": "hf", "path": str(tmp_path / "model"), "from_scratch": from_scratch}
        data = {"name": "conversations", "path": str(lines), "tokenizer": str(tmp_path / tokenizer)}
        changed = {"model": model, "data": data, "objectives": VAL_LOSS}
        problems = find_problems(Experiment(**{**GOOD, **changed}))
        for problem in problems:
            if problem.field == "data.tokenizer":
                raise problem

    check_with("other_template")
    check_with("moved", from_scratch=True)
    with pytest.raises(DataError, match=r"2 of 3[0-9]{2} tokens have another number") as raised:
        check_with("moved")
    assert raised.value.field == "data.tokenizer"


def _texts_with_tokenizers(
    folder: Path, model: dict[str, Any], *, are_searched: bool = True
) -> Experiment:
    """Return an experiment whose trials read texts with one of two tokenizers, or the first."""
    for name in ("model", "other"):
        write_tokenizer(folder / name)
    (folder / "model" / "config.json").write_text("{}")
    moved = json.loads((folder / "other" / "tokenizer.json").read_text())
    vocabulary = moved["model"]["vocab"]
    last, before = sorted(vocabulary, key=vocabulary.__getitem__)[-2:]
    vocabulary[last], vocabulary[before] = vocabulary[before], vocabulary[last]
    (folder / "other" / "tokenizer.json").write_text(json.dumps(moved))
    rows = [f"text {number},{'ab'[number % 2]}" for number in range(20)]
    (folder / "texts.csv").write_text("\n".join(["text,label", *rows]) + "\n")
    data = {"name": "labelled_text", "path": str(folder / "texts.csv"), "target": "label"}
    tokenizers = [str(folder / "model"), str(folder / "other")]
    if not are_searched:
        data["tokenizer"] = tokenizers[0]
    search = {"data.tokenizer": {"choices": tokenizers}} if are_searched else GOOD["search"]
    changed = {"model": model, "data": data, "search": search, "objectives": VAL_LOSS}
    return Experiment(**{**GOOD, **changed})


def test_a_tokenizer_is_searched_with_new_weights_and_refused_with_trained_ones(
    tmp_path: Path,
) -> None:
    pytest.importorskip("transformers")
    model = {"name": "hf", "path": str(tmp_path / "model")}
    new = _texts_with_tokenizers(tmp_path, {**model, "from_scratch": True})
    assert list(find_problems(new)) == []
    (problem,) = find_problems(_texts_with_tokenizers(tmp_path, model))
    assert "2 of 3" in str(problem)
    assert "have another number" in str(problem)


@pytest.mark.parametrize("are_searched", [True, False])
@pytest.mark.parametrize("model", ["text_encoder", "lstm"])
def test_a_model_that_learns_words_refuses_a_tokenizer(
    tmp_path: Path, model: str, *, are_searched: bool
) -> None:
    pytest.importorskip("transformers")
    field = "search.data.tokenizer" if are_searched else "data.tokenizer"
    experiment = _texts_with_tokenizers(tmp_path, {"name": model}, are_searched=are_searched)
    problems = [problem for problem in find_problems(experiment) if problem.field == field]
    assert [str(problem).split(";")[0] for problem in problems] == [
        f"{field}: {model} does not read the tokens of a tokenizer"
    ]


@pytest.mark.parametrize(
    "command", ["LR={lr} ./train", "A_1=2 LR={lr} python train.py", "é= ls {lr}"]
)
def test_a_variable_in_front_of_the_program_needs_env(command: str) -> None:
    experiment = Experiment(
        command=command, objectives=VAL_LOSS, search={"lr": {"low": 0.1, "high": 1.0}}
    )
    with pytest.raises(ExperimentError, match="stands where the program should be") as raised:
        check_program(experiment)
    assert f"env {command}" in str(raised.value)
    env = shutil.which("env")
    assert env is not None
    check_program(experiment.model_copy(update={"command": f"env {command}"}))
