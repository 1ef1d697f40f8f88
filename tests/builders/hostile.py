"""Input that no program would write.

Files and documents of a user with parts replaced, removed and added.

Each case uses the workbench with such an input as a user would. What a case may raise is a
WorkbenchError.
"""

from __future__ import annotations

import contextlib
import copy
import datetime
import io
import math
import random
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

from workbench.foundation.errors import WorkbenchError

_MODEL: dict[str, Any] = {
    "name": "digits",
    "model": {"name": "mlp", "dropout": 0.1},
    "data": {"name": "digits", "validation_fraction": 0.3},
    "loss": "cross_entropy",
    "metrics": ["accuracy"],
    "objectives": [
        {"metric": "val_accuracy", "goal": "maximize", "target": 0.9, "value": {"mean_last": 2}}
    ],
    "constraints": [{"metric": "val_loss", "at_most": 3}],
    "search": {
        "lr": {"low": 1e-4, "high": 1.0, "log": True},
        "hidden_width": {"low": 8, "high": 64, "step": 8},
        "optimizer": {"choices": ["sgd", "adamw"]},
        "momentum": {"low": 0.8, "high": 0.98, "when": {"optimizer": "sgd"}},
        "activation": "relu",
    },
    "training": {
        "epochs": 3,
        "global_batch": 64,
        "warmup_epochs": 1,
        "optimizer_options": {"eps": 1e-8},
    },
    "plan": {"workers": 1, "micro_batch": 32, "precision": "fp32", "strategy": "auto"},
    "budget": {"trials": 4, "time": "10m", "plateau": 3},
    "early_stop": {"pruner": "asha", "grace": 1, "reduction_factor": 2},
    "sampler": {"name": "tpe", "options": {"n_startup_trials": 3}},
    "resources": {
        "cpus_per_worker": 1,
        "max_checkpoints_size": "10GB",
        "trial_time": "5m",
        "keep_best": 3,
    },
    "alerts": [{"on": "no_progress", "within": "1h"}, {"on": "log", "pattern": "NaN|inf"}],
    "repeats": 2,
    "seed": 3,
}
_FUNCTION: dict[str, Any] = {
    "train": {"name": "json:dumps", "rows": [1, 2]},
    "objectives": [{"metric": "y", "goal": "minimize"}, {"metric": "z", "goal": "maximize"}],
    "search": {
        "x": {"low": -1.0, "high": 1.0},
        "n": {"low": 1, "high": 9, "log": True},
        "kind": {"choices": ["a", None, 2, [1, 2]]},
        "depth": {"low": 1, "high": 3, "when": {"kind": ["a", 2]}},
    },
    "sampler": "nsga2",
    "budget": {"trials": 3},
}
_SWEEP: dict[str, Any] = {
    "name": "sweep",
    "program": "train.py",
    "method": "bayes",
    "metric": {"name": "loss", "goal": "minimize", "target": 0.1},
    "run_cap": 10,
    "early_terminate": {"type": "hyperband", "max_iter": 27, "s": 2, "eta": 3},
    "parameters": {
        "lr": {"distribution": "log_uniform_values", "min": 1e-4, "max": 0.1},
        "batch": {"values": [16, 32]},
        "layers": {"min": 1, "max": 4},
        "dropout": {"distribution": "q_uniform", "min": 0.0, "max": 0.5, "q": 0.1},
        "decay": {"distribution": "log_uniform", "min": -9, "max": -2},
        "units": {"distribution": "q_log_uniform_values", "min": 8, "max": 64},
        "optimizer": {
            "parameters": {"name": {"value": "sgd"}, "momentum": {"min": 0.5, "max": 0.9}}
        },
    },
}
_STEPS = (
    "nodes,gpus,micro_batch,step_time_s,sync_time_s,gpus_per_node\n"
    "1,1,32,0.1,,\n1,2,32,0.12,0.01,\n1,2,64,0.2,0.01,\n2,8,32,0.3,0.2,4 + 4\n2,4,16.5,0.2,0,3+1\n"
)
_NOISE = "global_batch,progress,grad_sqr,grad_var\n64,10,1,2\n64,100,0.5,2\n64,1000,0.2,1\n"
_PLANS = "nodes,gpus,micro_batch,accumulation\n1,4,64,2\n2,16,32,1\n"

_EXTREMES: list[Any] = [
    *(0, -1, 1, 2, 10**400, -(10**400), 2**31, 2**53 + 1, 2**63, 2**64, 10**17),
    *(1e308, -1e308, 5e-324, 1.5, math.inf, -math.inf, math.nan),
    *(
        "",
        " ",
        "auto",
        "self",
        "\0",
        "\x1b[31m",
        "\ud800",
        "é" * 300,
        "a.b:c",
        ":",
        "m:",
        ":f",
        "a..b:c",
    ),
    *(
        "embedded:x@y",
        "1e400",
        "10m",
        "9" * 400,
        "9" * 30 + "h",
        "-5s",
        "nan",
        "1e5",
        "10GB",
        "../..",
        "~",
    ),
    [[[[]]]],
    *({"name": None}, {"low": 1, "high": 0}, {"choices": []}, {"value": {}}, {"when": {}}),
]
_FROM_YAML: list[Any] = [
    datetime.date(1, 1, 1),
    datetime.datetime(2026, 1, 1),
    b"\xff\xfe",
    (),
    {1: 2},
]
_PIECES = [
    *(
        b"",
        b",",
        b"\n",
        b"\r",
        b'"',
        b"'",
        b"\0",
        b"\xff",
        b"\xef\xbb\xbf",
        b"\xc3\xa9",
        b"\xe2\x80\xae",
    ),
    *(
        b"-1",
        b"0",
        b"1e400",
        b"nan",
        b"inf",
        b"9" * 400,
        b"9" * 17,
        b"1e-320",
        b"1e308",
        b"1+1+1",
        b"True",
    ),
    *(
        b":",
        b"- ",
        b"{",
        b"[",
        b"*a",
        b"&a ",
        b"!!binary x",
        b"2026-01-01",
        b"? ",
        b"|",
        b"%",
        b"\t",
        b" ",
    ),
    *(b";", b"1_000", b"0x1F"),
]
_NAMES = [
    *(
        "self",
        "cls",
        "__class__",
        "__init__",
        "fields",
        "model_config",
        "settings",
        "experiment",
        "hash",
    ),
    *(
        "name",
        "lr",
        "learning_rate",
        "batch_size",
        "num_workers",
        "max_epochs",
        "epochs",
        "workers",
        "seed",
    ),
    *(
        "type",
        "when",
        "value",
        "choices",
        "low",
        "high",
        "step",
        "log",
        "options",
        "on",
        "metric",
        "target",
    ),
    *(
        "model",
        "data",
        "train",
        "search",
        "training",
        "plan",
        "objectives",
        "micro_batch",
        "optimizer",
    ),
    *("", ".", "a.b", "0", "é", "a b", "\n", "\ud800", "x" * 300),
]
json_values = st.recursive(
    st.sampled_from(_EXTREMES)
    | st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=4),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(_NAMES), inner, max_size=3)
    ),
    max_leaves=4,
)
values = json_values | st.sampled_from(_FROM_YAML)


def _places(node: Any) -> Iterator[tuple[Any, Any]]:
    """Yield every container with each of its keys or indices."""
    items: list[tuple[Any, Any]] = []
    if isinstance(node, dict):
        items = list(node.items())
    elif isinstance(node, list):
        items = list(enumerate(node))
    for key, inner in items:
        yield node, key
        yield from _places(inner)


@st.composite
def documents(draw: st.DrawFn, bases: list[dict[str, Any]]) -> dict[str, Any]:
    """Draw a document with up to four parts replaced, removed, added or moved."""
    document = copy.deepcopy(draw(st.sampled_from(bases)))
    for _ in range(draw(st.integers(1, 4))):
        places = list(_places(document))
        if not places:
            break
        container, key = draw(st.sampled_from(places))
        match draw(st.sampled_from(["replace", "replace", "remove", "add", "move"])):
            case "replace":
                container[key] = copy.deepcopy(draw(values))
            case "remove":
                del container[key]
            case "add" if isinstance(container, dict):
                container[draw(st.sampled_from(_NAMES))] = copy.deepcopy(draw(values))
            case "add":
                container.insert(key, copy.deepcopy(draw(values)))
            case "move":
                other, place = draw(st.sampled_from(places))
                container[key] = copy.deepcopy(other[place])
    return document


@st.composite
def texts(draw: st.DrawFn, base: str) -> bytes:
    """Draw the bytes of a text with up to four pieces replaced, removed, repeated or exchanged."""
    content = base.encode()
    for _ in range(draw(st.integers(1, 4))):
        first = draw(st.integers(0, len(content)))
        last = min(len(content), first + draw(st.sampled_from([0, 0, 1, 1, 2, 5, 30])))
        piece = draw(
            st.sampled_from(_PIECES) | st.binary(max_size=3) | st.just(content[first:last] * 3)
        )
        content = content[:first] + piece + content[last:]
    return content


def use_experiment(document: dict[str, Any]) -> None:
    """Check an experiment, write it in every form, and propose a configuration of it."""
    from workbench.experiment import Experiment
    from workbench.experiment.trial_value import describe_value
    from workbench.search import Study
    from workbench.search import check as check_sampler
    from workbench.views.forms.draft import _check
    from workbench.views.forms.python_source import write_python

    experiment, problems = _check(document, {})
    for problem in problems:
        assert str(problem)
    if experiment is None:
        return
    assert Experiment.from_yaml(experiment.to_yaml()).hash() == experiment.hash()
    assert Experiment(**experiment.model_dump(mode="json")) == experiment
    write_python(experiment.model_dump(mode="json"), lambda name: None)
    describe_value(experiment)
    experiment.max_configurations()
    experiment.search.sample(random.Random(0))
    if not problems:
        check_sampler(experiment)
        Study(experiment).ask()


def use_experiment_file(content: bytes) -> None:
    """Run `workbench check` on a file."""
    with tempfile.TemporaryDirectory() as name:
        path = Path(name) / "file.yaml"
        path.write_bytes(content)
        run_command("check", str(path), "--no-step")


def use_sweep(document: dict[str, Any]) -> None:
    """Convert a sweep file of Weights & Biases."""
    from workbench.experiment.wandb_sweep import from_wandb_sweep

    from_wandb_sweep(document, train="json:dumps").to_yaml()


def use_sweep_file(content: bytes) -> None:
    """Run `workbench import sweep` on a sweep file."""
    with tempfile.TemporaryDirectory() as name:
        path = Path(name) / "sweep.yaml"
        path.write_bytes(content)
        run_command("import", "sweep", str(path), "--train", "json:dumps")


def use_form(edits: list[tuple[str, Any]]) -> None:
    """Edit a draft field by field and as text, and show it after each edit."""
    from workbench.experiment.yaml_file import write_yaml
    from workbench.views.forms import Draft
    from workbench.views.forms.fields import state_of
    from workbench.views.forms.protocol import to_message

    draft = Draft()
    for path, value in edits:
        refusal: WorkbenchError | None = None
        try:
            draft.edit([(path, value)])
            draft.rename("search.lr", str(value)[:40])
        except WorkbenchError as error:
            refusal = error
        to_message(state_of(draft, refusal=refusal))
        with contextlib.suppress(WorkbenchError):
            draft.write_yaml(write_yaml(draft.document))
        draft.write_python(draft.python)
    draft.undo()
    draft.write_python(str(edits))
    to_message(state_of(draft))


def use_message(content: dict[str, Any]) -> None:
    """Read a message as it may come from a browser."""
    from workbench.views.forms.protocol import read_request

    read_request(content)


def use_step_times(content: bytes) -> None:
    """Run `workbench what-if step-time` on a table of measured steps."""
    with tempfile.TemporaryDirectory() as name:
        measured, points = Path(name) / "steps.csv", Path(name) / "points.csv"
        measured.write_bytes(content)
        points.write_text(_PLANS)
        run_command("what-if", "step-time", "--measured", str(measured), "--points", str(points))


def use_points(content: bytes) -> None:
    """Run `workbench what-if step-time` on a table of plans."""
    with tempfile.TemporaryDirectory() as name:
        measured, points = Path(name) / "steps.csv", Path(name) / "points.csv"
        measured.write_text(_STEPS)
        points.write_bytes(content)
        run_command(
            "what-if", "step-time", "--measured", str(measured), "--points", str(points), "--json"
        )


def use_noise(content: bytes) -> None:
    """Run `workbench what-if batch` on a table of gradient noise."""
    with tempfile.TemporaryDirectory() as name:
        measured, noise = Path(name) / "steps.csv", Path(name) / "noise.csv"
        measured.write_text(_STEPS)
        noise.write_bytes(content)
        run_command(
            *("what-if", "batch", "--measured", str(measured), "--noise", str(noise)),
            *("--batches", "64,128,4096", "--gpus", "4", "--max-micro-batch", "64"),
        )


def use_table(content: bytes) -> None:
    """Read a table for `automl`, and as the data of an experiment."""
    from workbench.data.tables import TableOptions
    from workbench.runs.automl.task_detection import read_problem

    with tempfile.TemporaryDirectory() as name:
        path = Path(name) / "table.csv"
        path.write_bytes(content)
        for use in (
            lambda: TableOptions(path=path, target="price").find_task(),
            lambda: TableOptions(path=path, target="price").load(
                seed=0, cache=Path(name) / "cache"
            ),
            lambda: TableOptions(path=path, target="price").written_rows(3),
            lambda: read_problem(path, "price"),
        ):
            with contextlib.suppress(WorkbenchError):
                use()


def run_command(*words: str) -> None:
    """Run a command as the program does; only what it does not report itself is raised."""
    from workbench.cli.entry import run_command as run

    written = io.TextIOWrapper(io.BytesIO(), encoding="utf-8")
    with contextlib.redirect_stdout(written), contextlib.redirect_stderr(written):
        assert isinstance(run(words), int)


def _table() -> str:
    chance = random.Random(0)
    rows = ["town,size,sold,rooms,price"]
    for day in range(1, 29):
        town, size = chance.choice("abc"), chance.random()
        rows.append(f"{town},{size:.3f},2026-01-{day:02d},{chance.randint(1, 9)},{day * 1.5}")
    return "\n".join(rows) + "\n"


def _yaml(document: dict[str, Any]) -> str:
    from workbench.experiment.yaml_file import write_yaml

    return write_yaml(document)


_PATHS = [
    *(
        "training.epochs",
        "training",
        "search.lr",
        "search.lr.low",
        "search",
        "search.momentum",
        "model",
        "data",
    ),
    *(
        "data.path",
        "data.target",
        "objectives.0.metric",
        "objectives.0",
        "objectives",
        "metrics",
        "sampler",
    ),
    *(
        "loss",
        "sampler.name",
        "early_stop.pruner",
        "alerts",
        "alerts.0.on",
        "budget.time",
        "name",
        "seed",
        "plan",
    ),
]
_MESSAGES: list[dict[str, Any]] = [
    {"number": 1, "type": "hello", "parts": ["model", "space"]},
    {
        "number": 2,
        "type": "edit",
        "changes": [["training.epochs", 3]],
        "removals": ["loss"],
        "label": "x",
    },
    {"number": 3, "type": "rename", "path": "search.lr", "name": "rate"},
    {"number": 4, "type": "yaml", "text": "model: mlp"},
    {"number": 5, "type": "query", "topic": "samples", "query": 1, "arguments": {"time": "1m"}},
    {"number": 6, "type": "save", "path": "a.yaml", "overwrite": False},
]


@dataclass(frozen=True)
class Case:
    """A kind of input, and what is done with it."""

    inputs: st.SearchStrategy[Any]
    use: Callable[[Any], None]


CASES: dict[str, Case] = {
    "experiment": Case(documents([_MODEL, _FUNCTION]), use_experiment),
    "experiment file": Case(texts(_yaml(_MODEL)), use_experiment_file),
    "sweep of Weights & Biases": Case(documents([_SWEEP]), use_sweep),
    "sweep file": Case(texts(_yaml(_SWEEP)), use_sweep_file),
    "form": Case(
        st.lists(
            st.tuples(st.sampled_from(_PATHS + _NAMES) | st.text(max_size=5), json_values),
            min_size=1,
            max_size=2,
        ),
        use_form,
    ),
    "message": Case(documents(_MESSAGES), use_message),
    "measured steps": Case(texts(_STEPS), use_step_times),
    "plans": Case(texts(_PLANS), use_points),
    "gradient noise": Case(texts(_NOISE), use_noise),
    "table": Case(texts(_table()), use_table),
}


def survives(case: Case, given: Any) -> None:
    """Use an input; only an error that the workbench does not raise on purpose is raised."""
    with contextlib.suppress(WorkbenchError):
        case.use(copy.deepcopy(given))
