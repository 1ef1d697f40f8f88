"""Tasks of lm_eval give a training what lm_eval's own model gives the exported weights."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

from tests.builders.language_models import conversations, write_lines, write_model
from workbench.experiment import Experiment
from workbench.foundation.errors import ExperimentError
from workbench.foundation.events import Event, TrialPlanned, TrialReported
from workbench.training.trained_model import write_language_model, write_weights
from workbench.training.trial import run_trial
from workbench.training.worker_task import TrialTask

lm_eval = pytest.importorskip("lm_eval")

TASKS = ("say_choice", "say_text", "say_answer")
GENERAL = """\
dataset_path: json
dataset_kwargs: {{data_files: {{test: {samples}}}}}
test_split: test
fewshot_split: test
"""
CHOICE = """\
task: say_choice
output_type: multiple_choice
doc_to_text: "Say {{word}} "
doc_to_choice: choices
doc_to_target: right
metric_list:
  - {metric: acc, aggregation: mean, higher_is_better: true}
  - {metric: acc_norm, aggregation: mean, higher_is_better: true}
"""
TEXT = """\
task: say_text
output_type: loglikelihood_rolling
doc_to_text: ""
doc_to_target: "{{text}}"
metric_list:
  - {metric: word_perplexity, aggregation: weighted_perplexity, higher_is_better: false}
"""
ANSWER = """\
task: say_answer
output_type: generate_until
doc_to_text: "Say {{word}} "
doc_to_target: word
generation_kwargs: {until: ["\\n"], do_sample: false, max_gen_toks: 5}
metric_list:
  - {metric: chrf, aggregation: chrf, higher_is_better: true}
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tasks")
    write_model(folder, initializer_range=0.3)
    write_lines(folder / "train.jsonl", conversations(80))
    draw = random.Random(0)
    words = ["red", "green", "blue house", "seven", "a longer tree"]
    samples = []
    for _ in range(23):
        choices = draw.sample(words, 3)
        right = draw.randrange(3)
        text = " ".join(draw.choices(words, k=draw.choice([1, 30, 90])))
        samples.append({"word": choices[right], "choices": choices, "right": right, "text": text})
    write_lines(folder / "samples.jsonl", samples)
    (folder / "tasks").mkdir()
    general = GENERAL.format(samples=json.dumps(str(folder / "samples.jsonl")))
    for name, task in zip(TASKS, (CHOICE, TEXT, ANSWER), strict=True):
        (folder / "tasks" / f"{name}.yaml").write_text(general + task)
    return folder


def experiment(folder: Path, objective: str = "lm_eval_say_choice_acc", **data: Any) -> Experiment:
    return Experiment(
        model={"name": "hf", "path": str(folder)},
        data={
            "name": "conversations",
            "path": str(folder / "train.jsonl"),
            "sequence": 64,
            "lm_eval": list(TASKS),
            "lm_eval_folder": str(folder / "tasks"),
            **data,
        },
        objectives=[{"metric": objective, "goal": "maximize"}],
        training={"epochs": 1, "global_batch": 8, "lr": 0.005, "lr_rule": "constant"},
        plan={"micro_batch": 4},
    )


def events_of(written: Experiment, folder: Path) -> list[Event]:
    events: list[Event] = []

    def report(event: Event) -> bool:
        events.append(event)
        return False

    task = TrialTask("run", 0, 0, written.model_dump_json(), folder=str(folder), seed=3)
    ended = run_trial(task, report)
    assert ended.state == "complete", ended
    return events


def measured(events: list[Event]) -> dict[str, float]:
    reports = [event.values for event in events if isinstance(event, TrialReported)]
    return {name: value for name, value in reports[-1].items() if name.startswith("lm_eval_")}


@pytest.mark.parametrize(("shots", "limit"), [(None, None), (2, 10)])
def test_a_training_measures_what_lm_eval_measures_of_its_export(shots, limit, folder, tmp_path):
    from lm_eval.models.huggingface import HFLM

    written = experiment(folder, lm_eval_shots=shots, lm_eval_limit=limit)
    events = events_of(written, tmp_path)
    values = measured(events)

    exported, weights = tmp_path / "exported", tmp_path / "model.safetensors"
    write_weights(tmp_path / "checkpoints" / "best.pt", weights)
    write_language_model(written, {}, weights, exported)
    answer = lm_eval.simple_evaluate(
        model=HFLM(pretrained=str(exported / "model"), dtype="float32", device="cpu"),
        tasks=list(TASKS),
        task_manager=lm_eval.tasks.TaskManager(include_path=str(folder / "tasks")),
        num_fewshot=shots,
        limit=limit,
        bootstrap_iters=0,
    )
    expected = {
        f"lm_eval_{task}_{key.partition(',')[0]}": value
        for task, metrics in answer["results"].items()
        for key, value in metrics.items()
        if "," in key and isinstance(value, float)
    }
    assert len(expected) == 4
    assert expected["lm_eval_say_answer_chrf"] > 0
    assert {name: values[name] for name in expected} == pytest.approx(expected, rel=1e-4)
    # The standard error of a share of n samples, with n - 1 as lm_eval takes it.
    num, share = limit or 23, values["lm_eval_say_choice_acc"]
    assert values["lm_eval_say_choice_acc_stderr"] == pytest.approx(
        (share * (1 - share) / (num - 1)) ** 0.5
    )
    planned = next(event for event in events if isinstance(event, TrialPlanned))
    assert planned.goals["lm_eval_say_text_word_perplexity"] == "minimize"


def test_a_metric_that_no_task_measures_is_refused_with_those_there_are(folder, tmp_path):
    written = experiment(folder, objective="lm_eval_say_choice_f1")
    task = TrialTask("run", 0, 0, written.model_dump_json(), folder=str(tmp_path), seed=3)
    ended = run_trial(task, lambda _: False)
    assert ended.state == "failed"
    assert "lm_eval_say_choice_acc_norm" in str(ended.message)


def test_a_task_that_is_not_there_is_refused(folder):
    from workbench.training.lm_eval_tasks import LanguageTaskMeter
    from workbench.training.loading import load_trial_data

    datasets = load_trial_data("run", experiment(folder, lm_eval=["say_nothing"]), 3)
    with pytest.raises(ExperimentError, match="say_nothing cannot be loaded"):
        LanguageTaskMeter(datasets.language_tasks)
