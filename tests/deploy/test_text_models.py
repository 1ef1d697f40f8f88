"""Language models of bundles answer as transformers does, at every door."""

from __future__ import annotations

import csv
import json
import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from click.testing import CliRunner
from safetensors.torch import save_file

import workbench as wb
from tests.builders.language_models import (
    CHATML,
    WORDS,
    conversations,
    write_encoder,
    write_lines,
    write_model,
    write_pairs,
)
from workbench.cli.exported_models import predict
from workbench.data.chat_tokens import PLAIN_TEMPLATE
from workbench.deploy import text_models
from workbench.deploy.card import Card, Exported, Input, Output, read_card
from workbench.deploy.device import measure
from workbench.deploy.predictor import Predictor
from workbench.deploy.serving.served_models import Limits, Version
from workbench.deploy.text_models import add_text_model
from workbench.experiment import Experiment
from workbench.foundation.errors import DataError, RunError, WorkbenchError
from workbench.foundation.files import sha256_of
from workbench.training.assembly import build_trial_model
from workbench.training.loading import load_trial_data
from workbench.training.planning.settings import resolve
from workbench.training.trained_model import write_language_model

CONTEXT = 24
CLASSES = ("bad", "good", "so so")
LONG = "sun moon red one " * 30
TEXTS = ("red cat", LONG, "", "one two three, four", "a " * 9, "sun", *WORDS)


def written_bundle(
    folder: Path, model: dict[str, Any], data: dict[str, Any], **training: Any
) -> Path:
    """Write a bundle of a model with drawn weights, as an export writes it."""
    experiment = Experiment(
        model={"name": "hf", **model},
        data=data,
        objectives=[{"metric": "val_loss", "goal": "minimize"}],
        training={"epochs": 1, "global_batch": 4, **training},
    )
    loaded: Any = load_trial_data("run", experiment, params={})
    settings = resolve(experiment, {}, num_train_samples=len(loaded.train))
    made = build_trial_model(experiment, {}, settings, loaded)
    torch.manual_seed(0)
    for item in made.parameters():
        if item.requires_grad and item.ndim > 1:
            torch.nn.init.normal_(item.data, std=0.4)
    bundle = folder / "bundle"
    bundle.mkdir()
    weights = bundle / "weights.safetensors"
    save_file({name: value.clone() for name, value in made.state_dict().items()}, weights)
    written = write_language_model(experiment, {}, weights, bundle)
    origin = Exported("mine", "mine-1", 0, "hf", "texts", loaded.task, {"val_loss": 0.5}, 40)
    add_text_model(bundle, written.model, written.datasets, experiment, params={}, origin=origin)
    (bundle / "configuration.json").write_text('{"params": {}, "values": {}}')
    return bundle


def write_reviews(path: Path) -> Path:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["id", "review", "stars"])
        for number in range(45):
            words = " ".join(WORDS[(number * step) % len(WORDS)] for step in range(1, 6))
            writer.writerow([number, f'"{words}", they said', CLASSES[number % 3]])
    return path


@pytest.fixture(scope="module", params=["encoder", "decoder", "adapter"])
def classifier(request, tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp(request.param)
    model = folder / "base"
    training = {}
    if request.param == "encoder":
        write_encoder(model)
    else:
        write_model(model, initializer_range=0.3)
    if request.param == "adapter":
        pytest.importorskip("peft")
        training = {"adapter": {"rank": 2}}
    data = {
        "name": "labelled_text",
        "path": str(write_reviews(folder / "reviews.csv")),
        "text": "review",
        "target": "stars",
        "context": CONTEXT,
    }
    return written_bundle(folder, {"path": str(model)}, data, **training)


def by_pipeline(bundle: Path, texts: Any) -> np.ndarray:
    """Return the probabilities of classes as transformers computes them for one text each."""
    from transformers import pipeline

    classify = pipeline("text-classification", str(bundle / "model"), device="cpu", top_k=None)
    answered: Any = classify(list(texts), truncation=True, max_length=CONTEXT, batch_size=1)
    scores = [{item["label"]: item["score"] for item in of_text} for of_text in answered]
    return np.array([[of_text[name] for name in CLASSES] for of_text in scores])


def test_a_classifier_answers_as_transformers_in_any_order_and_batch(classifier):
    filled = [text for text in TEXTS if text]
    expected = by_pipeline(classifier, filled)
    assert np.ptp(expected, axis=0).max() > 0.05  # the texts differ
    predictor = Predictor.open(classifier)
    answers: Any = predictor.predict({"review": filled})
    np.testing.assert_allclose(answers.probabilities, expected, atol=1e-5)
    many = [*filled * 20][::-1]
    repeated: Any = predictor.predict({"review": many})
    np.testing.assert_allclose(repeated.probabilities, np.tile(expected, (20, 1))[::-1], atol=1e-5)
    alone: Any = [predictor.predict({"review": [text]}).numbers for text in filled]
    np.testing.assert_allclose(np.concatenate(alone), expected, atol=1e-5)
    assert list(answers.classes) == [CLASSES[row.argmax()] for row in expected]


def test_a_missing_text_has_a_note_and_an_answer(classifier):
    answers: Any = wb.load_bundle(classifier).predict(["red cat", None, "NA"])
    assert "is missing in rows 1, 2" in answers.notes[0]
    assert np.isfinite(answers.probabilities).all()
    np.testing.assert_allclose(answers.probabilities[1], answers.probabilities[2], atol=1e-6)
    assert wb.load_bundle(classifier).predict(["red cat"]).notes == ()


def test_files_of_texts_are_read(classifier, tmp_path):
    texts = ["red, cat", "sun moon"]
    expected = by_pipeline(classifier, texts)
    lines = tmp_path / "texts.txt"
    lines.write_text("".join(f"{text}\n" for text in texts))
    records = tmp_path / "texts.jsonl"
    records.write_text("".join(json.dumps({"review": text}) + "\n" for text in texts))
    table = tmp_path / "texts.csv"
    table.write_text('review;id\n"red, cat";1\nsun moon;2\n')
    tabbed = tmp_path / "tabbed.txt"
    tabbed.write_text("id\treview\n1\tred, cat\n2\tsun moon\n")
    for path in (lines, records, table, tabbed):
        answers = wb.load_bundle(classifier).predict(path)
        assert answers.probabilities is not None
        np.testing.assert_allclose(answers.probabilities, expected, atol=1e-5, err_msg=path.name)
    to = tmp_path / "answers.csv"
    run = CliRunner().invoke(predict, [str(classifier), str(lines), "--to", str(to)])
    assert run.exit_code == 0, run.output
    with to.open(encoding="utf-8") as file:
        written = list(csv.DictReader(file))
    assert [*written[0]] == ["prediction", *(f"probability of {name}" for name in CLASSES)]
    shares = [[float(row[f"probability of {name}"]) for name in CLASSES] for row in written]
    np.testing.assert_allclose(shares, expected, atol=1e-5)
    with pytest.raises(DataError, match=r"Give a text in a list"):
        wb.load_bundle(classifier).predict("red cat")
    with pytest.raises(DataError, match="'review'"):
        wb.load_bundle(classifier).predict([{"text": "red cat"}])


def test_a_server_answers_texts_as_other_classifiers_do(classifier):
    version = Version.open(classifier, Limits(max_batch=2))
    rows = version.reader.read([{"review": "red cat"}, {"review": LONG}, {"review": None}])
    answered = version.predict(rows)
    expected = by_pipeline(classifier, ["red cat", LONG])
    for answer, row in zip(answered, expected, strict=False):
        assert answer["class"] == CLASSES[row.argmax()]
        np.testing.assert_allclose(list(answer["probabilities"].values()), row, atol=1e-5)
        assert list(answer["probabilities"]) == list(CLASSES)
    notes = [version.reader.notes(row, answer) for row, answer in zip(rows, answered, strict=True)]
    assert notes[:2] == [[], []]
    assert "is missing" in notes[2][0]
    assert len(version.sha256) == 64


def test_the_card_describes_the_input_and_what_was_learned(classifier):
    card: Any = read_card(classifier)
    (taken,) = card.inputs
    assert (taken.name, taken.kind) == ("review", "text")
    assert taken.example.endswith("they said")
    assert card.outputs[0].classes == CLASSES
    assert card.metrics[0].value == 0.5
    assert sum(card.answers.shares) == pytest.approx(1.0)
    assert card.statistics["review"].missing == 0.0
    with pytest.raises(RunError, match="only a model as ONNX"):
        measure(classifier)


def test_a_changed_model_is_refused(classifier, tmp_path):
    copied = shutil.copytree(classifier, tmp_path / "copied")
    config = copied / "model" / "config.json"
    config.write_text(config.read_text() + " ")
    with pytest.raises(RunError, match="its SHA-256 differs"):
        Predictor.open(copied)


@pytest.mark.parametrize("kind", ["encoder", "decoder"])
def test_vectors_are_those_of_the_written_model(kind, tmp_path):
    from transformers import AutoModel, AutoTokenizer

    folder = tmp_path / "base"
    if kind == "encoder":
        write_encoder(folder)
    else:
        write_model(folder, initializer_range=0.3)
    data = {
        "name": "text_pairs",
        "path": str(write_pairs(tmp_path / "pairs.csv")),
        "context": CONTEXT,
    }
    bundle = written_bundle(tmp_path, {"path": str(folder)}, data, reference_batch=4)
    texts = [text for text in TEXTS if text]
    answers: Any = wb.load_bundle(bundle).predict(texts)
    tokenizer = AutoTokenizer.from_pretrained(bundle / "model")
    model = AutoModel.from_pretrained(bundle / "model").eval()
    for text, vector in zip(texts, answers.values, strict=True):
        ids = tokenizer(text, truncation=True, max_length=CONTEXT, return_tensors="pt")
        with torch.no_grad():
            mean = model(ids["input_ids"])[0].mean(dim=1)[0]
        np.testing.assert_allclose(vector, mean / mean.norm(), atol=1e-5)
    of_table: Any = wb.load_bundle(bundle).predict(tmp_path / "pairs.csv")
    assert of_table.notes == ("the column 'anchor' is read",)
    assert of_table.values.shape == (60, 32)
    version = Version.open(bundle, Limits(max_batch=2))
    (answer,) = version.predict(version.reader.read([{"text": texts[0]}]))
    np.testing.assert_allclose(answer["values"], answers.values[0], atol=1e-5)
    sentences = pytest.importorskip("sentence_transformers")
    encoder = sentences.SentenceTransformer(str(bundle / "model"), device="cpu")
    np.testing.assert_allclose(encoder.encode(texts), answers.values, atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("template", [CHATML, None], ids=["chat template", "none"])
def test_answers_are_those_of_transformers_with_the_template(template, tmp_path, monkeypatch):
    from transformers import AutoModelForCausalLM, AutoTokenizer

    folder = tmp_path / "base"
    monkeypatch.setattr(text_models, "MOST_NEW_TOKENS", most := 20)
    write_model(folder, chat_template=template, initializer_range=0.3)
    talks = conversations(30)
    data = {
        "name": "conversations",
        "path": str(write_lines(tmp_path / "train.jsonl", talks)),
        "sequence": 64,
    }
    bundle = written_bundle(tmp_path, {"path": str(folder)}, data)
    tokenizer = AutoTokenizer.from_pretrained(bundle / "model")
    model = AutoModelForCausalLM.from_pretrained(bundle / "model").eval()
    asked = [talk["messages"][:1] for talk in talks[:12]]
    end = tokenizer.convert_tokens_to_ids("<|im_end|>" if template else "</s>")
    expected = []
    for messages in asked:
        ids: Any = tokenizer.apply_chat_template(
            messages,
            chat_template=template or PLAIN_TEMPLATE,
            add_generation_prompt=True,
            return_tensors="pt",
            return_dict=True,
        )["input_ids"]
        num_asked = ids.shape[1]
        with torch.no_grad():
            for _ in range(most):
                ids = torch.cat([ids, model(ids).logits[:, -1:].argmax(dim=-1)], dim=1)
        expected.append(ids[0, num_asked:].tolist())
    stop = expected[0][3]  # drawn weights end no answer by themselves
    loaded: Any = wb.load_bundle(bundle)
    session = loaded._predictor._session
    assert session._ends == {end, tokenizer.eos_token_id}
    session._ends.add(stop)
    ends = [ids.index(stop) if stop in ids else most for ids in expected]
    assert len({*ends}) > 1
    texts = [
        tokenizer.decode(ids[:at], skip_special_tokens=True)
        for ids, at in zip(expected, ends, strict=True)
    ]
    answers = loaded.predict([messages[0]["content"] for messages in asked])
    assert answers.texts == texts
    assert "is cut at" in answers.notes[0]
    assert [loaded.predict([messages]).texts[0] for messages in asked] == texts
    path = write_lines(tmp_path / "asked.jsonl", [{"messages": talk} for talk in asked])
    assert loaded.predict(path).texts == texts
    lines = tmp_path / "asked.txt"
    lines.write_text("".join(f"{messages[0]['content']}\n" for messages in asked))
    to = tmp_path / "answers.csv"
    run = CliRunner().invoke(predict, [str(bundle), str(lines), "--to", str(to)])
    assert run.exit_code == 0, run.output
    with to.open(encoding="utf-8", newline="") as file:
        written = [row["answer"] for row in csv.DictReader(file)]
    assert written == [tokenizer.decode(ids, skip_special_tokens=True) for ids in expected]
    halves = [tmp_path / f"{part}.txt" for part in range(2)]
    for half, part in zip(halves, (asked[:5], asked[5:]), strict=True):
        half.write_text("".join(f"{messages[0]['content']}\n" for messages in part))
    run = CliRunner().invoke(predict, [str(bundle), *map(str, halves), "--to", str(to)])
    assert run.exit_code == 0, run.output
    with to.open(encoding="utf-8", newline="") as file:
        assert [row["answer"] for row in csv.DictReader(file)] == written
    with pytest.raises(DataError, match=r"prompt 1 has .* tokens, and the model reads at most 512"):
        loaded.predict(["hi", LONG * 9])
    with pytest.raises(RunError, match="vllm serve"):
        Version.open(bundle, Limits())


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["blank.txt"], r"blank\.txt, line 2: prompt is empty"),
        (["none.txt"], r"none\.txt does not exist"),
        (["folder"], "folder is no file"),
        (["good.txt", "--to", "nowhere/answers.csv"], "there is no folder .*nowhere"),
    ],
)
def test_what_cannot_be_read_or_written_is_said_before_a_model_loads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], problem: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "blank.txt").write_text("hello\n\nyou\n")
    (tmp_path / "good.txt").write_text("hello\n")
    (tmp_path / "folder").mkdir()
    # There are no weights, so loading this model would be another error.
    bundle = tmp_path / "bundle"
    bundle.mkdir()
    Card(
        name="m",
        run_id="m-1",
        trained_on="",
        task="",
        model="",
        inputs=(Input(name="prompt", kind="text", dtype="string"),),
        outputs=(Output(name="answer", kind="texts"),),
    ).write(bundle)
    run = CliRunner().invoke(predict, ["bundle", *arguments])
    assert isinstance(run.exception, WorkbenchError)
    assert re.search(problem, str(run.exception))


def test_a_bundle_with_a_graph_of_tokens_still_answers_texts(classifier: Path, tmp_path: Path):
    bundle = shutil.copytree(classifier, tmp_path / "bundle")
    expected = wb.load_bundle(bundle).predict(["red cat", LONG])
    before = read_card(bundle)
    # What an export to ONNX leaves there: a card of tokens, a graph and a script.
    tokens = before.model_copy(
        update={
            "inputs": (before.inputs[0].model_copy(update={"name": "tokens", "kind": "array"}),),
            "text_model": None,
            "files": {},
            "guarantees": ("equal on 7 rows",),
        }
    )
    (bundle / "model.onnx").write_bytes(b"a graph of tokens")
    (bundle / "predict.py").write_text("raise SystemExit('reads no texts')")
    names = ("model.onnx", "predict.py")
    files = {name: sha256_of(bundle / name) for name in names}
    tokens = tokens.model_copy(update={"files": files})
    tokens.write(bundle)

    text_models.with_graph(bundle, before, tokens)
    card = read_card(bundle)
    assert card.files == {**before.files, "model.onnx": files["model.onnx"]}
    assert card.guarantees == (*before.guarantees, "model.onnx: equal on 7 rows")
    assert not (bundle / "predict.py").exists()
    answers: Any = wb.load_bundle(bundle).predict(["red cat", LONG])
    assert list(answers.classes) == list(expected.classes)
    np.testing.assert_array_equal(answers.probabilities, expected.probabilities)
