"""Language models by folder follow a plain loop, however a step is divided."""

from __future__ import annotations

import contextlib
import itertools
import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.builders.language_models import (
    conversations,
    preferences,
    write_encoder,
    write_lines,
    write_model,
    write_pairs,
)
from tests.builders.ways import OF_REPLICAS
from tests.services.process_group import run_together
from workbench.data.batches import global_batches
from workbench.experiment import Component, Experiment, Objective
from workbench.experiment.training_section import LowRankAdapter
from workbench.foundation.attachments import read_table
from workbench.foundation.events import Event, TrialReported
from workbench.training import assembly, checkpoint
from workbench.training.attempt_events import AttemptEvents
from workbench.training.loading import load_trial_data
from workbench.training.strategies.strategy import Worker
from workbench.training.trained_model import read_model, write_language_model, write_weights
from workbench.training.trial import run_trial
from workbench.training.worker_task import TrialTask

SEED = 5
BATCH = 8
LR = 0.005


def experiment(
    folder: Path,
    *,
    data: dict[str, Any] | None = None,
    plan: dict[str, Any] | None = None,
    **training: Any,
) -> Experiment:
    return Experiment(
        model={"name": "hf", "path": str(folder)},
        data={
            "name": "conversations",
            "path": str(folder / "train.jsonl"),
            "sequence": 128,
            **(data or {}),
        },
        objectives=[{"metric": "val_loss", "goal": "minimize"}],
        training={
            "epochs": 2,
            "global_batch": BATCH,
            "lr": LR,
            "lr_rule": "constant",
            "schedule": "constant",
            "warmup_epochs": 0,
            **training,
        },
        plan=plan or {},
    )


def train(written: Experiment, folder: Path, **task: Any) -> dict[str, float]:
    """Train a trial and return its last reported values."""
    events: list[Event] = []

    def report(event: Event) -> bool:
        events.append(event)
        return False

    made = TrialTask("run", 0, 0, written.model_dump_json(), folder=str(folder), seed=SEED, **task)
    ended = run_trial(made, report)
    assert ended.state == "complete", ended
    reports = [event.values for event in events if isinstance(event, TrialReported)]
    return next((values for values in reversed(reports) if "val_loss" in values), {})


def plain_losses(model: Any, split: Any, rows: Any) -> tuple[torch.Tensor, int]:
    """Return the total loss of rows and the number of tokens, for each conversation alone."""
    totals, num = [], 0
    for row in rows:
        for ids, is_counted in split.documents(int(row)):
            tokens = torch.tensor(ids, dtype=torch.int64)[None]
            labels = torch.where(torch.tensor(is_counted)[None], tokens, -100)
            count = int((labels[:, 1:] != -100).sum())
            totals.append(model(input_ids=tokens, labels=labels).loss * count)
            num += count
    return torch.stack(totals).sum(), num


def plain_loop(model: Any, datasets: Any, epochs: int, lr: float = LR) -> list[float]:
    """Train a model of transformers as anybody would, and return the loss of each step."""
    trained = [item for item in model.parameters() if item.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=lr, weight_decay=0.0)
    split, losses = datasets.train, []
    model.train()
    for epoch in range(epochs):
        for rows in global_batches(
            len(split),
            global_batch=BATCH,
            epoch=epoch,
            seed=SEED,
            shuffle=True,
            groups=split.shuffle_groups,
        ):
            total, num = plain_losses(model, split, rows)
            (total / num).backward()
            optimizer.step()
            optimizer.zero_grad()
            losses.append(float(total.detach() / num))
    return losses


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("model")
    # Large enough that low-rank additions alone can learn, although the head is frozen.
    write_model(folder, initializer_range=0.3)
    write_lines(folder / "train.jsonl", conversations(80))
    return folder


WAYS: dict[str, dict[str, Any]] = {
    "whole steps": {"data": {"packing": False}},
    "micro batches of packed rows": {"data": {"packing": True}, "plan": {"micro_batch": 2}},
}

LENGTHS = pytest.mark.parametrize(
    ("num_steps", "remaining"), [(10, 0.9), pytest.param(50, 0.5, marks=pytest.mark.slow)]
)
"""About how many steps a training has, and which part of its first loss is left at most."""


@LENGTHS
@pytest.mark.parametrize("way", WAYS)
def test_a_training_follows_a_plain_loop(way, num_steps, remaining, folder, tmp_path):
    from transformers import AutoModelForCausalLM

    epochs = num_steps // (5 if way.startswith("micro") else 10)
    written = experiment(folder, epochs=epochs, **WAYS[way])
    values = train(written, tmp_path)
    datasets = load_trial_data("run", written, SEED)
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    losses = plain_loop(model, datasets, epochs)
    assert losses[-1] < remaining * losses[0]
    model.eval()
    with torch.no_grad():
        total, num = plain_losses(model, datasets.validation, np.arange(len(datasets.validation)))
    assert values["val_loss"] == pytest.approx(float(total / num), abs=1e-4)
    stored = checkpoint.read(tmp_path / "checkpoints" / "last.pt")["strategy"]["model"]
    for name, value in model.state_dict().items():
        torch.testing.assert_close(stored[f"inner.{name}"], value, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("packing", [False, True])
def test_samples_are_conversations_and_not_rows(packing, folder):
    written = experiment(folder, data={"packing": packing})
    datasets = load_trial_data("run", written, SEED)
    task = TrialTask("run", 0, 0, written.model_dump_json())
    events = AttemptEvents(task, lambda event: False, Worker(), started_s=0.0)
    plan = assembly.trial_settings(task, torch.device("cpu"), datasets).plan
    planned = events.planned(plan, datasets, {})
    assert planned.num_validation == 8
    assert (len(datasets.validation) < 8) is packing


def test_answers_are_those_that_transformers_generates(folder, tmp_path):
    from transformers import AutoModelForCausalLM

    written = experiment(folder, epochs=4, data={"answers": 3, "answer_tokens": 8})
    train(written, tmp_path)
    prompts = load_trial_data("run", written, SEED).prompts
    model: Any = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    stored = checkpoint.read(tmp_path / "checkpoints" / "last.pt")["strategy"]["model"]
    model.load_state_dict({name.removeprefix("inner."): item for name, item in stored.items()})
    files = sorted((tmp_path / "attachments").glob("*answers.json"))
    assert len(files) == 4, "one for each evaluation"
    table = read_table(files[-1].read_bytes())
    assert table.columns == ["prompt", "answer", "expected"]
    assert len(table.rows) == len(prompts) == 3
    for prompt, (asked, answer, expected) in zip(prompts, table.rows, strict=True):
        tokens = torch.tensor(prompt.tokens.tolist())[None]
        made = model.generate(
            tokens,
            do_sample=False,
            max_new_tokens=8,
            eos_token_id=int(prompt.expected[-1]),
            pad_token_id=2,
        )
        assert answer == prompt.decode(made[0, tokens.shape[1] :].tolist())
        assert f"say {expected.strip()}" in asked, "the assistant repeats the user"


def test_a_model_that_cannot_be_packed_is_trained_in_single_rows_only(tmp_path):
    write_model(tmp_path, "OPTConfig", ffn_dim=64, word_embed_proj_dim=32)
    write_lines(tmp_path / "train.jsonl", conversations(80))
    with pytest.raises(AssertionError, match="Set packing: false"):
        train(experiment(tmp_path, data={"packing": True}, epochs=1), tmp_path / "packed")
    assert train(experiment(tmp_path, epochs=1), tmp_path / "single")["val_loss"] > 0


PACKED_ADAPTER: dict[str, Any] = {
    "data": {"packing": True},
    "epochs": 1,
    "adapter": {"rank": 4, "alpha": 8},
}


def pairs_experiment(folder: Path, **changes: Any) -> Experiment:
    """Return an experiment that learns embeddings from pairs of texts."""
    # The last step of an epoch has a single pair, so one of two workers has none.
    path = write_pairs(folder / "pairs.csv", 55)
    written = experiment(folder, **{"epochs": 1, "plan": {"micro_batch": BATCH}} | changes)
    return written.replace(data={"name": "text_pairs", "path": str(path), "context": 48})


def of_workers(folder: Path, num_workers: int, strategy: str) -> dict[str, Experiment]:
    """Return what several workers train like one, by name."""
    plan: dict[str, Any] = {"workers": num_workers}
    if num_workers > 1:
        plan["strategy"] = strategy
    whole = {**plan, "micro_batch": BATCH // num_workers}
    made = {
        "all": experiment(folder, epochs=1, plan=plan),
        "preferences": preference_experiment(folder, epochs=1, plan=plan),
        "pairs": pairs_experiment(folder, plan=whole),
    }
    if strategy == "ddp":
        made["adapter"] = experiment(
            folder, **PACKED_ADAPTER, plan={**plan, "micro_batch": 1 if num_workers > 1 else BATCH}
        )
    else:
        made["muon"] = experiment(folder, epochs=1, optimizer="muon", plan=plan)
    return made


def train_on_two(
    rank: int, num_workers: int, meeting: str, folders: tuple[str, str], strategies: list[str]
) -> None:
    model, folder = map(Path, folders)
    for strategy in strategies:
        for way, written in of_workers(model, 2, strategy).items():
            train(
                written,
                folder / f"{strategy}-{way}",
                rank=rank,
                num_workers=num_workers,
                meeting=f"{meeting}{strategy}{way}",
            )


@pytest.mark.parametrize(
    "strategies", [["ddp"], pytest.param(sorted({*OF_REPLICAS} - {"ddp"}), marks=pytest.mark.slow)]
)
def test_two_workers_train_what_one_does(strategies, folder, tmp_path):
    ways = of_workers(folder, 1, strategies[0])
    for way, written in ways.items():
        train(written, tmp_path / f"one-{way}")
    run_together(train_on_two, 2, (str(folder), str(tmp_path)), strategies)
    for strategy, way in itertools.product(strategies, ways):
        alone, stored = (
            checkpoint.read(tmp_path / name / "checkpoints" / "last.pt")["strategy"]["model"]
            for name in (f"one-{way}", f"{strategy}-{way}")
        )
        assert stored.keys() == alone.keys()
        # Muon makes updates orthogonal in bf16.
        tolerance = 2e-3 if way == "muon" else 1e-4
        for name, value in alone.items():
            torch.testing.assert_close(stored[name], value, rtol=1e-3, atol=tolerance)


@pytest.mark.slow
@pytest.mark.parametrize(
    "changes",
    [
        {"data": {"packing": True}, "adapter": {"rank": 4, "dropout": 0.3}},
        {"data": {"packing": False}, "plan": {"micro_batch": 2}},
        # An epoch of 3,000 tokens begins and ends within a pass over the conversations.
        {"data": {"packing": False}, "adapter": {"rank": 4}, "tokens": 6000},
    ],
    ids=["packed rows", "rows of similar length", "parts of passes"],
)
def test_an_epoch_of_conversations_continues_where_it_was_stopped(
    changes, folder, tmp_path, monkeypatch
):
    # Every step is reported and may be saved, whatever the clock says.
    monkeypatch.setattr("workbench.training.step_window.REPORT_INTERVAL_S", 0.0)
    written = experiment(folder, checkpoint_after=1e-9, **changes)
    whole = train(written, tmp_path / "whole")
    steps_of_epoch = checkpoint.read(tmp_path / "whole" / "checkpoints" / "last.pt")["step"] // 2
    assert steps_of_epoch >= 3
    stopped_at = steps_of_epoch + 2

    def stop(event: Event) -> bool:
        return event.type == "checkpoint_saved" and event.step == stopped_at

    made = TrialTask(
        "run", 0, 0, written.model_dump_json(), folder=str(tmp_path / "parts"), seed=SEED
    )
    assert run_trial(made, stop).state == "stopped"
    stored = checkpoint.read(tmp_path / "parts" / "checkpoints" / "last.pt")
    assert (stored["epochs_done"], stored["steps_of_epoch"]) == (1, 2)
    resumed = train(written, tmp_path / "parts", resume=True)
    assert resumed == whole
    first, second = (
        checkpoint.read(tmp_path / name / "checkpoints" / "last.pt") for name in ("whole", "parts")
    )
    assert first["step"] == second["step"]
    for name, value in first["strategy"]["model"].items():
        assert torch.equal(second["strategy"]["model"][name], value)


ADAPTERS: dict[str, dict[str, Any]] = {
    "lora": {"kind": "lora", "rank": 8, "alpha": 12},
    "dora": {"kind": "dora", "rank": 4, "targets": "all-linear"},
    "rslora": {"kind": "rslora", "rank": 4, "alpha": 4, "targets": "all-linear"},
}


def with_peft(folder: Path, kind: str, **others: Any) -> Any:
    """Return a model with an adapter of PEFT, as its documentation makes one."""
    peft = pytest.importorskip("peft")
    from transformers import AutoModelForCausalLM

    adapter = ADAPTERS[kind]
    config = peft.LoraConfig(
        r=adapter["rank"],
        lora_alpha=adapter.get("alpha", 2 * adapter["rank"]),
        target_modules=adapter.get("targets", "all-linear"),
        use_dora=kind == "dora",
        use_rslora=kind == "rslora",
        task_type="CAUSAL_LM",
    )
    base = AutoModelForCausalLM.from_pretrained(folder, **{"dtype": torch.float32, **others})
    torch.manual_seed(SEED)
    return peft.get_peft_model(base, config)


@contextlib.contextmanager
def beginning_with(values: dict[str, torch.Tensor]) -> Iterator[None]:
    """Let adapters begin with these values. PEFT draws others for another order of layers."""
    add_adapter = assembly.add_adapter

    def add(model: Any, *given: Any, **named: Any) -> Any:
        add_adapter(model, *given, **named)
        with torch.no_grad():
            for name, item in model.state_dict().items():
                if name in values:
                    item.copy_(values[name])
        return model

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(assembly, "add_adapter", add)
        yield


@LENGTHS
@pytest.mark.parametrize(
    "kind", ["lora", *(pytest.param(kind, marks=pytest.mark.slow) for kind in ("dora", "rslora"))]
)
def test_an_adapter_follows_a_plain_loop_with_peft(kind, num_steps, remaining, folder, tmp_path):
    epochs = math.ceil(num_steps / 8)
    written = experiment(folder, epochs=epochs, adapter=ADAPTERS[kind], lr=0.01)
    datasets = load_trial_data("run", written, SEED)
    model = with_peft(folder, kind)
    begins = {
        name.removeprefix("base_model.model."): value.clone()
        for name, value in model.state_dict().items()
        if "lora_" in name
    }
    with beginning_with(begins):
        values = train(written, tmp_path)
    losses = plain_loop(model, datasets, epochs, lr=0.01)
    assert losses[-1] < remaining * losses[0]
    model.eval()
    with torch.no_grad():
        total, num = plain_losses(model, datasets.validation, np.arange(len(datasets.validation)))
    assert values["val_loss"] == pytest.approx(float(total / num), abs=1e-4)
    stored = checkpoint.read(tmp_path / "checkpoints" / "last.pt")["strategy"]["model"]
    assert stored.keys() == {f"inner.{name}" for name in begins}, "only the adapter is stored"


def plain_dpo(model: Any, split: Any, rows: Any, beta: float) -> torch.Tensor:
    """Return the margin of the rewards of each pair, as the paper defines it, one by one."""

    def log_likelihood(ids: np.ndarray, is_counted: np.ndarray) -> torch.Tensor:
        tokens = torch.tensor(ids, dtype=torch.int64)
        scores = model(input_ids=tokens[None]).logits[0, :-1].log_softmax(dim=-1)
        chosen = scores.gather(1, tokens[1:, None])[:, 0]
        return chosen[torch.tensor(is_counted[1:])].sum()

    margins = []
    for row in rows:
        chosen, rejected = split.documents(int(row))
        trained = log_likelihood(*chosen) - log_likelihood(*rejected)
        with torch.no_grad(), model.disable_adapter():
            reference = log_likelihood(*chosen) - log_likelihood(*rejected)
        margins.append(beta * (trained - reference))
    return torch.stack(margins)


def preference_experiment(folder: Path, **changes: Any) -> Experiment:
    path = folder / "pairs.jsonl"
    if not path.exists():
        write_lines(path, preferences(80))
    changes.setdefault("adapter", ADAPTERS["lora"])
    return experiment(folder, data={"name": "preferences", "path": str(path)}, **changes)


@pytest.mark.slow
@LENGTHS
@pytest.mark.parametrize(
    "way", [({}, 0.1), ({"micro_batch": 2}, 0.5)], ids=["whole steps", "micro batches"]
)
def test_preferences_follow_a_plain_loop_with_peft(way, num_steps, remaining, folder, tmp_path):
    plan, beta = way
    epochs = num_steps // 8
    written = preference_experiment(folder, epochs=epochs, plan=plan)
    datasets = load_trial_data("run", written, SEED)
    model = with_peft(folder, "lora")
    begins = {
        name.removeprefix("base_model.model."): value.clone()
        for name, value in model.state_dict().items()
        if "lora_" in name
    }
    with beginning_with(begins):
        values = train(written, tmp_path, params={"beta": beta})
    split: Any = datasets.train
    trained = [item for item in model.parameters() if item.requires_grad]
    optimizer, losses = torch.optim.AdamW(trained, lr=LR, weight_decay=0.0), []
    for epoch in range(epochs):
        batches = global_batches(
            len(split),
            global_batch=BATCH,
            epoch=epoch,
            seed=SEED,
            shuffle=True,
            groups=split.shuffle_groups,
        )
        for rows in batches:
            loss = -torch.log(torch.sigmoid(plain_dpo(model, split, rows, beta))).mean()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            losses.append(float(loss.detach()))
    assert losses[0] == pytest.approx(math.log(2.0), abs=1e-5)
    assert losses[-1] < remaining * losses[0]
    with torch.no_grad():
        places = np.arange(len(datasets.validation))
        margins = plain_dpo(model, datasets.validation, places, beta)
    loss = float(torch.log1p(torch.exp(-margins)).mean())
    assert values["val_loss"] == pytest.approx(loss, abs=1e-4)
    assert values["val_reward_margin"] == pytest.approx(float(margins.mean()), abs=1e-3)
    assert values["val_reward_accuracy"] == pytest.approx(float((margins > 0).float().mean()))
    stored = checkpoint.read(tmp_path / "checkpoints" / "last.pt")["strategy"]["model"]
    assert stored.keys() == {f"inner.{name}" for name in begins}, "the adapter is still trained"


@pytest.mark.parametrize(
    ("training", "step"),
    [({"adapter": None}, "Add training.adapter"), ({"adapter": {"unfrozen": ["norm"]}}, "Remove")],
    ids=["all weights", "unfrozen weights"],
)
def test_preferences_need_weights_that_stay(training, step, folder, tmp_path):
    with pytest.raises(AssertionError, match=step):
        train(preference_experiment(folder, **training), tmp_path)


def plain_vectors(model: Any, split: Any, rows: Any) -> list[torch.Tensor]:
    """Return the vectors of both texts of each pair, one text after the other."""
    vectors = []
    for side in range(2):
        means = [
            model(torch.tensor(split.inputs[row, side, : split.lengths[row, side]])[None].long())[0]
            .mean(dim=1)
            .squeeze(0)
            for row in rows
        ]
        vectors.append(torch.stack([mean / mean.norm() for mean in means]))
    return vectors


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["encoder", "decoder"])
def test_embeddings_follow_a_plain_loop(kind, tmp_path):
    from transformers import AutoModel, AutoTokenizer

    folder = tmp_path / "base"
    if kind == "encoder":
        write_encoder(folder)
        config = json.loads((folder / "config.json").read_text())
        config |= {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
        (folder / "config.json").write_text(json.dumps(config))
    else:
        write_model(folder, initializer_range=0.3)
    path = write_pairs(tmp_path / "pairs.csv")
    written = experiment(folder, epochs=4, plan={"micro_batch": BATCH}).replace(
        data={"name": "text_pairs", "path": str(path), "context": 48}
    )
    values = train(written, tmp_path, params={"temperature": 0.1})
    datasets: Any = load_trial_data("run", written, SEED)
    model = AutoModel.from_pretrained(folder, dtype=torch.float32)
    model.eval()
    trained = [item for name, item in model.named_parameters() if "pooler" not in name]
    optimizer = torch.optim.AdamW(trained, lr=LR, weight_decay=0.0)

    def loss_of(split: Any, rows: Any) -> tuple[torch.Tensor, torch.Tensor]:
        first, second = plain_vectors(model, split, rows)
        scores = first @ second.T / 0.1
        return -(scores.diag() - scores.logsumexp(dim=1)).mean(), scores

    losses = []
    for epoch in range(4):
        for rows in global_batches(
            len(datasets.train), global_batch=BATCH, epoch=epoch, seed=SEED, shuffle=True
        ):
            loss, _ = loss_of(datasets.train, rows)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            losses.append(float(loss.detach()))
    assert losses[-1] < 0.5 * losses[0]
    with torch.no_grad():
        loss, scores = loss_of(datasets.validation, np.arange(len(datasets.validation)))
    assert values["val_loss"] == pytest.approx(float(loss), abs=1e-3)
    is_right = scores.argmax(dim=1) == torch.arange(len(scores))
    assert values["val_recall_at_1"] == pytest.approx(float(is_right.float().mean()))
    weights = tmp_path / "weights.safetensors"
    write_weights(tmp_path / "checkpoints" / "last.pt", weights)
    write_language_model(written, {"temperature": 0.1}, weights, tmp_path)
    exported = AutoModel.from_pretrained(tmp_path / "model").eval()
    tokens = torch.arange(5, 25)[None]
    with torch.no_grad():
        torch.testing.assert_close(exported(tokens)[0], model(tokens)[0], rtol=1e-2, atol=1e-2)
    modules = json.loads((tmp_path / "model" / "modules.json").read_text())
    kinds = [module["type"].rpartition(".")[2] for module in modules]
    assert kinds == ["Transformer", "Pooling", "Normalize"]
    assert all((tmp_path / "model" / module["path"]).is_dir() for module in modules)
    texts = ["say 7 red sun", "sun red 7 " * 40]  # one is longer than the context
    sentences = pytest.importorskip("sentence_transformers")
    encoder = sentences.SentenceTransformer(str(tmp_path / "model"), device="cpu")
    tokenizer = AutoTokenizer.from_pretrained(folder)
    for text, vector in zip(texts, encoder.encode(texts), strict=True):
        ids = tokenizer(text, truncation=True, max_length=48, return_tensors="pt")["input_ids"]
        with torch.no_grad():
            mean = exported(ids)[0].mean(dim=1)[0]
        np.testing.assert_allclose(vector, mean / mean.norm(), atol=1e-5)


def test_a_contrastive_loss_is_not_divided(tmp_path):
    folder = tmp_path / "base"
    write_encoder(folder)
    data = {"name": "text_pairs", "path": str(write_pairs(tmp_path / "pairs.csv"))}
    written = experiment(folder, epochs=1, plan={"micro_batch": 4}).replace(data=data)
    with pytest.raises(AssertionError, match="on one worker at once"):
        train(written, tmp_path)


@pytest.mark.slow
def test_an_adapter_on_weights_in_half_precision_follows_peft(folder, tmp_path):
    # One conversation at a time in bf16 is slow without a GPU.
    write_lines(tmp_path / "few.jsonl", conversations(32))
    few = {"path": str(tmp_path / "few.jsonl")}
    written = experiment(folder, data=few, epochs=2, adapter=ADAPTERS["lora"], base_weights="bf16")
    datasets = load_trial_data("run", written, SEED)
    model = with_peft(folder, "lora", dtype=torch.bfloat16)
    begins = {
        name.removeprefix("base_model.model."): value.clone()
        for name, value in model.state_dict().items()
        if "lora_" in name
    }
    with beginning_with(begins):
        values = train(written, tmp_path)
    losses = plain_loop(model, datasets, 2)
    assert min(losses[-2:]) < losses[0]
    model.eval()
    with torch.no_grad():
        total, num = plain_losses(model, datasets.validation, np.arange(len(datasets.validation)))
    # Rounding of bf16 depends on the order of sums, so it is not the same for packed batches.
    assert values["val_loss"] == pytest.approx(float(total / num), abs=0.02)
    stored = checkpoint.read(tmp_path / "checkpoints" / "last.pt")["strategy"]["model"]
    assert {value.dtype for value in stored.values()} == {torch.float32}
    assert stored.keys() == {f"inner.{name}" for name in begins}


@pytest.mark.parametrize(
    ("training", "step"),
    [
        ({"base_weights": "bf16"}, "remove base_weights"),
        ({"base_weights": "nf4", "adapter": {}}, "Use bf16, or a GPU"),
        (
            {"base_weights": "bf16", "adapter": {"unfrozen": ["norm"]}},
            "remove unfrozen or base_weights",
        ),
    ],
)
def test_weights_that_cannot_be_stored_in_fewer_bits_are_refused(training, step, folder, tmp_path):
    with pytest.raises(AssertionError, match=step):
        train(experiment(folder, **training), tmp_path)


def test_epochs_are_equal_parts_of_a_number_of_tokens(folder, tmp_path):
    whole: Any = load_trial_data("run", experiment(folder), SEED).train
    written = experiment(folder, tokens=round(2.5 * whole.num_tokens), epochs=5)
    part: Any = load_trial_data("run", written, SEED).train
    assert len(part) == len(whole) // 2
    rows = []
    for epoch in range(5):
        part.begin(epoch, SEED)
        rows += list(part._order)
    assert sorted(rows[: len(whole)]) == sorted(rows[len(whole) : 2 * len(whole)])
    assert sorted(rows[: len(whole)]) == list(range(len(whole)))
    assert rows[: len(whole)] != rows[len(whole) : 2 * len(whole)]
    values = train(written, tmp_path)
    assert values["val_loss"] < 6.0
    longer = experiment(folder, tokens="1M", epochs=4)
    longer_part: Any = load_trial_data("run", longer, SEED).train
    assert 4 * longer_part.num_tokens == pytest.approx(1_000_000, rel=0.01)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("config", "options", "adapter", "is_alone"),
    [
        ("LlamaConfig", {}, ADAPTERS["dora"], True),
        # The head is the same weight as the embedding.
        (
            "LlamaConfig",
            {"tie_word_embeddings": True},
            {"unfrozen": ["norm", "embed_tokens"]},
            True,
        ),
        ("GPT2Config", {"n_positions": 512}, {"rank": 4}, True),  # its linear layers are own ones
        ("Qwen2Config", {}, {"unfrozen": ["bias$"]}, False),  # biases of adapted layers
    ],
    ids=["dora", "whole modules", "GPT-2", "parts of adapted layers"],
)
def test_an_exported_adapter_is_merged_for_transformers_and_alone_for_peft(
    config, options, adapter, is_alone, tmp_path
):
    peft = pytest.importorskip("peft")
    from transformers import AutoModelForCausalLM, AutoTokenizer

    folder = tmp_path / "base"
    write_model(folder, config, initializer_range=0.3, **options)
    write_lines(folder / "train.jsonl", conversations(40))
    written = experiment(folder, epochs=1, adapter=adapter, lr=0.05)
    train(written, tmp_path)
    weights = tmp_path / "weights.safetensors"
    write_weights(tmp_path / "checkpoints" / "best.pt", weights)
    trained, _ = read_model(written, {}, weights)
    tokens = torch.tensor([[3, 40, 50, 60]])
    with torch.no_grad():
        expected = trained(tokens).logits
    about = write_language_model(written, {}, weights, tmp_path).about
    merged = AutoModelForCausalLM.from_pretrained(tmp_path / "model").eval()
    base = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    with torch.no_grad():
        before = base(tokens).logits
        torch.testing.assert_close(merged(tokens).logits, expected, rtol=1e-4, atol=1e-4)
    assert not torch.allclose(before, expected, atol=1e-2)
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "model")
    assert tokenizer.chat_template == AutoTokenizer.from_pretrained(folder).chat_template
    assert (tmp_path / "adapter").exists() is is_alone
    if not is_alone:
        assert "no folder with it alone, because other weights were trained as well" in about
        biases = [name for name, _ in base.named_parameters() if name.endswith("bias")]
        changed = merged.state_dict()
        assert biases
        assert not any(torch.equal(changed[name], base.get_parameter(name)) for name in biases)
        return
    assert "stored alone in `adapter/`" in about
    alone = peft.PeftModel.from_pretrained(base, tmp_path / "adapter").eval()
    with torch.no_grad():
        torch.testing.assert_close(alone(tokens).logits, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("given", "is_alone"),
    [("{base}", True), ("linked/model.safetensors", True), ("other", False)],
    ids=["the folder", "a link to its file", "other weights"],
)
def test_only_an_adapter_on_the_weights_of_the_folder_is_stored_alone(
    given, is_alone, folder, tmp_path, monkeypatch
):
    pytest.importorskip("peft")
    monkeypatch.chdir(tmp_path)
    write_model(tmp_path / "other", initializer_range=0.1)
    (tmp_path / "linked").symlink_to(folder)
    adapted = {"adapter": {"rank": 2}, "weights": {"path": given.format(base=folder)}}
    written = experiment(folder, epochs=1, **adapted)
    train(written, tmp_path)
    weights = tmp_path / "weights.safetensors"
    write_weights(tmp_path / "checkpoints" / "best.pt", weights)
    about = write_language_model(written, {}, weights, tmp_path).about
    assert ("other weights" in about) is not is_alone
    assert (tmp_path / "adapter").exists() is is_alone


def test_patterns_and_files_have_the_names_of_transformers(folder, tmp_path):
    from safetensors.torch import load_file

    groups = {"^model.embed": {"frozen": True}, "^lm_head": {"lr_factor": 1e-9}}
    written = experiment(folder, epochs=1, weights={"path": str(folder)}, parameter_groups=groups)
    values = train(written, tmp_path / "first")
    weights = tmp_path / "weights.safetensors"
    write_weights(tmp_path / "first" / "checkpoints" / "last.pt", weights)
    write_language_model(written, {}, weights, tmp_path)
    before, after = (load_file(path / "model.safetensors") for path in (folder, tmp_path / "model"))
    name = "model.embed_tokens.weight"
    assert torch.equal(after[name], before[name])
    torch.testing.assert_close(after["lm_head.weight"], before["lm_head.weight"])
    assert not torch.allclose(after["model.norm.weight"], before["model.norm.weight"])
    for number, path in enumerate((weights, tmp_path, tmp_path / "model")):
        again = experiment(folder, epochs=1, lr=1e-12, weights={"path": str(path)})
        started = train(again, tmp_path / f"from-{number}")
        assert started["val_loss"] == pytest.approx(values["val_loss"], abs=1e-5)


def train_adapter_on_two(
    rank: int, num_workers: int, meeting: str, folders: tuple[str, str], strategy: str
) -> None:
    model, folder = map(Path, folders)
    plan = {"workers": 2, "strategy": strategy}
    written = experiment(model, plan=plan, epochs=1, adapter=ADAPTERS["lora"])
    train(written, folder / strategy, rank=rank, num_workers=num_workers, meeting=meeting)


@pytest.mark.slow
@pytest.mark.parametrize("strategy", ["fsdp", "zero1"])
def test_two_workers_that_divide_the_weights_train_the_adapter_of_one(strategy, folder, tmp_path):
    train(experiment(folder, epochs=1, adapter=ADAPTERS["lora"]), tmp_path / "one")
    alone = checkpoint.read(tmp_path / "one" / "checkpoints" / "last.pt")["strategy"]["model"]
    run_together(train_adapter_on_two, 2, (str(folder), str(tmp_path)), strategy)
    path = tmp_path / strategy / "checkpoints" / "last.pt"
    stored = checkpoint.read(path)["strategy"]["model"]
    assert stored.keys() == alone.keys()
    for name, value in alone.items():
        torch.testing.assert_close(stored[name], value, rtol=1e-3, atol=1e-4)


def classified_texts(folder: Path) -> Experiment:
    """Return an experiment that tells texts with a colour from texts with an animal."""
    words = ("one", "two", "three")
    lines = ["text,label"]
    for number in range(120):
        filling = " ".join(words[(number + place) % 3] for place in range(number % 4 + 1))
        word, label = (("red", "colour"), ("cat", "animal"))[number % 2]
        lines.append(f"{filling} {word},{label}")
    (folder / "texts.csv").write_text("\n".join(lines))
    return experiment(folder).model_copy(
        update={
            "data": Component(
                name="labelled_text",
                options={
                    "path": str(folder / "texts.csv"),
                    "tokenizer": str(folder),
                    "context": 16,
                },
            ),
            "objectives": (Objective(metric="val_accuracy", goal="maximize"),),
        }
    )


# Llama finds the last token of a text by its padding, and BERT hides padding by a mask.
@pytest.mark.slow
@pytest.mark.parametrize(
    ("config", "adapter"), [("LlamaConfig", {"rank": 4}), ("BertConfig", None)], ids=str
)
def test_a_classifier_learns_and_loads_in_plain_transformers_and_peft(config, adapter, tmp_path):
    from transformers import AutoModelForSequenceClassification

    folder = tmp_path / "base"
    if config == "BertConfig":
        write_encoder(folder)
    else:
        write_model(folder, config, initializer_range=0.3)
    written = classified_texts(folder)
    training = written.training.model_copy(
        update={"epochs": 4, "adapter": adapter and LowRankAdapter(**adapter)}
    )
    written = written.model_copy(update={"training": training})
    values = train(written, tmp_path)
    assert values["val_accuracy"] == 1.0
    weights = tmp_path / "weights.safetensors"
    write_weights(tmp_path / "checkpoints" / "best.pt", weights)
    trained, _ = read_model(written, {}, weights)
    inputs, _ = load_trial_data("run", written, SEED).validation.batch(np.arange(20))
    batch = {name: torch.from_numpy(part) for name, part in inputs.items()}
    assert not bool(batch["attention_mask"].all())
    with torch.no_grad():
        expected = trained(**batch)
    write_language_model(written, {}, weights, tmp_path)
    merged = AutoModelForSequenceClassification.from_pretrained(tmp_path / "model").eval()
    assert merged.config.id2label == {0: "animal", 1: "colour"}
    alone = []
    if adapter:
        peft = pytest.importorskip("peft")
        base = AutoModelForSequenceClassification.from_pretrained(folder, num_labels=2)
        base.config.pad_token_id = merged.config.pad_token_id
        alone = [peft.PeftModel.from_pretrained(base, tmp_path / "adapter").eval()]
    for model in (merged, *alone):
        with torch.no_grad():
            for row in range(20):  # one text at a time needs no padding
                length = int(batch["attention_mask"][row].sum())
                scores = model(input_ids=batch["input_ids"][row : row + 1, :length]).logits
                torch.testing.assert_close(scores[0], expected[row], rtol=1e-4, atol=1e-4)
