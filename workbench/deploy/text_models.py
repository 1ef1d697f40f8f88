"""Language models of a bundle, which transformers runs: they classify, embed or answer texts.

`model/` of the bundle has the weights and the tokenizer. Here its card is written, and it is run.
How texts are read from files is left to `rows`.
"""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from workbench.data import Datasets, check_options, with_searched_options
from workbench.data.chat_records import Conversation
from workbench.data.chat_tokens import ChatTokenizer, load_tokenizer, padding_of
from workbench.data.labelled_text import LabelledTextOptions, TextPairsOptions, token_rows
from workbench.deploy.card import MODEL, Card, Exported, Input, Output, Statistics, TextModel
from workbench.deploy.distributions import describe_samples, of_numbers, of_texts
from workbench.foundation.bundle_manifest import PREDICT
from workbench.foundation.errors import (
    DataError,
    ExperimentError,
    MissingDependencyError,
    RunError,
)
from workbench.foundation.files import sha256_of
from workbench.foundation.model_config import max_positions, read_model_config
from workbench.models.folder_models import FolderModel, LanguageModel, TextClassifier, TextEncoder

if TYPE_CHECKING:
    from pydantic import JsonValue

    from workbench.experiment import Experiment

FOLDER = "model"
"""The folder of the model in a bundle."""
MOST_NEW_TOKENS = 512
"""The most tokens of an answer."""
_TOKENS_AT_ONCE, _TEXTS_AT_ONCE, _PROMPTS_AT_ONCE = 8192, 64, 8
_TOLERANCE = 1e-5
_NUM_DESCRIBED = 200
"""How many texts of the training data are compared, and described for drift."""


@dataclass(frozen=True)
class Taken:
    """An input of a session, as ONNX Runtime describes it."""

    name: str
    shape: tuple[int | str, ...] = ("n", 1)


class TextSession:
    """Runs a model on texts. It is called as a session of ONNX Runtime."""

    def __init__(self, name: str, model: FolderModel, tokenizer: Any, context: int) -> None:
        """Take a model with its weights.

        Args:
            name: The name of the input.
            model: The model.
            tokenizer: Its tokenizer.
            context: The most tokens of a text that are read.
        """
        self._name = name
        self._model = model.eval()
        self._tokenizer = tokenizer
        self._context = context
        self._alone = threading.Lock()  # tokenizers keep how they cut and pad

    def get_inputs(self) -> list[Taken]:
        """Return what the model takes."""
        return [Taken(self._name)]

    def run(self, _: None, feeds: Mapping[str, np.ndarray]) -> list[np.ndarray]:
        """Return probabilities or vectors, the text first.

        Args:
            feeds: Texts of (n, 1), by the name of the input.
        """
        texts = feeds[self._name].reshape(-1).tolist()
        with self._alone:
            rows = token_rows(texts, self._tokenizer, self._context) if texts else []
        # An empty text may have no token, but a model needs one.
        rows = [row or [padding_of(self._tokenizer)] for row in rows]
        order = sorted(range(len(rows)), key=lambda place: len(rows[place]))
        with torch.inference_mode():
            answered = [
                self._answer([rows[place] for place in places]) for places in _batches(order, rows)
            ]
        if not answered:
            return [np.zeros((0, 1), dtype=np.float32)]
        sorted_answers = np.concatenate(answered)
        outputs = np.empty_like(sorted_answers)
        outputs[order] = sorted_answers
        return [outputs]

    def _answer(self, rows: Sequence[Sequence[int]]) -> np.ndarray:
        width = max(map(len, rows))
        device = next(self._model.parameters()).device
        tokens = torch.tensor([[*row, *[0] * (width - len(row))] for row in rows], device=device)
        lengths = torch.tensor([len(row) for row in rows], device=device)
        mask = (torch.arange(width, device=device) < lengths[:, None]).long()
        if isinstance(self._model, TextEncoder):
            return self._model.vectors(tokens, mask).cpu().numpy()
        return self._model(tokens, mask).softmax(dim=-1).cpu().numpy()


class AnswerSession:
    """Lets a model write an answer to each prompt. It takes the most likely token each time."""

    def __init__(self, name: str, model: LanguageModel, tokenizer: ChatTokenizer) -> None:
        """Take a model with its weights, the name of its input, and its tokenizer."""
        self._name = name
        self._model = model.inner.eval()
        self._tokenizer = tokenizer
        self._ends = tokenizer.ends()
        self._most = max_positions(vars(model.config.get_text_config()))
        self._alone = threading.Lock()

    def get_inputs(self) -> list[Taken]:
        """Return what the model takes."""
        return [Taken(self._name)]

    def run(self, _: None, feeds: Mapping[str, np.ndarray]) -> list[np.ndarray]:
        """Return the answers, and whether each ends before its end.

        Args:
            feeds: Prompts as `rows.read_samples` writes them, (n, 1), by the name of the input.

        Raises:
            DataError: If a prompt is too long for the model.
        """
        prompts = [Conversation(**json.loads(text)) for text in feeds[self._name].reshape(-1)]
        with self._alone:
            rows = [self._tokenizer.encode_prompt(prompt) for prompt in prompts]
        for prompt, row in zip(prompts, rows, strict=True):
            if self._most is not None and len(row) >= self._most:
                raise DataError(
                    f"{prompt.place} has {len(row):,} tokens, and the model reads at most"
                    f" {self._most:,} together with its answer",
                    next_step="Shorten it.",
                )
        answers = np.empty(len(rows), dtype=object)
        are_cut = np.zeros(len(rows), dtype=bool)
        order = sorted(range(len(rows)), key=lambda place: len(rows[place]))
        for places in self._batches(order, rows):
            written = self._write([rows[place] for place in places])
            for place, ids in zip(places, written, strict=True):
                end = next((at for at, item in enumerate(ids) if item in self._ends), None)
                answers[place], are_cut[place] = self._tokenizer.text_of(ids[:end]), end is None
        return [answers, are_cut]

    def _batches(self, order: Sequence[int], rows: Sequence[list[int]]) -> Iterator[list[int]]:
        """Yield places in batches. Where a batch would shorten answers, each is alone."""
        for first in range(0, len(order), _PROMPTS_AT_ONCE):
            places = list(order[first : first + _PROMPTS_AT_ONCE])
            width = len(rows[places[-1]])
            if self._most is not None and width + MOST_NEW_TOKENS > self._most:
                yield from ([place] for place in places)
            else:
                yield places

    def _write(self, rows: Sequence[list[int]]) -> list[list[int]]:
        """Return the tokens that the model writes after each row."""
        width = max(map(len, rows))
        padding = self._tokenizer.padding
        device = self._model.device
        tokens = torch.tensor([[padding] * (width - len(row)) + row for row in rows], device=device)
        mask = torch.tensor([[0] * (width - len(row)) + [1] * len(row) for row in rows])
        most = MOST_NEW_TOKENS if self._most is None else min(MOST_NEW_TOKENS, self._most - width)
        with torch.inference_mode():
            written = self._model.generate(
                input_ids=tokens,
                attention_mask=mask.to(device),
                do_sample=False,
                num_beams=1,
                use_cache=True,
                max_new_tokens=most,
                eos_token_id=sorted(self._ends),
                pad_token_id=padding,
            )
        return written[:, width:].tolist()


def _batches(order: Sequence[int], rows: Sequence[Sequence[int]]) -> Iterator[list[int]]:
    """Yield places in batches with a limit on their tokens. Their lengths increase."""
    batch: list[int] = []
    for place in order:
        is_full = len(batch) == _TEXTS_AT_ONCE
        if batch and (is_full or (len(batch) + 1) * len(rows[place]) > _TOKENS_AT_ONCE):
            yield batch
            batch = []
        batch.append(place)
    if batch:
        yield batch


Session = TextSession | AnswerSession


def open_session(folder: Path, card: Card, *, threads: int | None = None) -> Session:
    """Load the model of a bundle, on a GPU if there is one.

    Args:
        folder: The bundle.
        card: Its card.
        threads: Number of threads that compute one call, or None for all cores.

    Raises:
        RunError: If the model cannot be loaded.
        MissingDependencyError: If transformers is not installed.
    """
    described = card.text_model
    assert described is not None
    if threads is not None:
        torch.set_num_threads(threads)
    name = card.inputs[0].name
    with _explained(folder):
        model = _model_in(folder / FOLDER, card)
        if torch.cuda.is_available():
            model.cuda()
        if isinstance(model, LanguageModel):
            return AnswerSession(name, model, ChatTokenizer(folder / FOLDER))
        return TextSession(name, model, load_tokenizer(folder / FOLDER), described.context)


def _model_in(folder: Path, card: Card) -> FolderModel:
    assert card.text_model is not None
    how: dict[str, Any] = {"runs_code": False, "attention": "auto"}
    model: FolderModel
    if card.text_model.task == "classification":
        model = TextClassifier(folder, len(card.outputs[0].classes), **how)
    elif card.text_model.task == "generation":
        model = LanguageModel(folder, **how)
        model.computes_losses = False  # nothing is trained
    else:
        model = TextEncoder(folder, 1.0, context=card.text_model.context, **how)
    stored = "bf16" if model.config.dtype == torch.bfloat16 else "fp32"
    model.load(stored)
    return model


@contextlib.contextmanager
def _explained(folder: Path) -> Iterator[None]:
    """Say what is wrong with the model of a bundle, in which no experiment has a field."""
    try:
        yield
    except MissingDependencyError as error:
        raise MissingDependencyError(error.problem, next_step=error.next_step) from error
    except (ExperimentError, DataError) as error:
        raise RunError(
            f"the model in {folder} cannot be loaded: {error.problem}",
            next_step="Copy the bundle again, or export the model again.",
        ) from error


def add_text_model(
    folder: Path,
    model: FolderModel,
    data: Datasets,
    experiment: Experiment,
    *,
    params: Mapping[str, JsonValue],
    origin: Exported,
) -> Card | None:
    """Write the card of a language model in a bundle, if its answers are those of the training.

    Args:
        folder: The bundle, with the model in `model/`.
        model: The trained model, on the CPU.
        data: The data that it was trained on.
        experiment: The experiment of the trial.
        params: The configuration of the trial.
        origin: What the card says about it.

    Returns:
        The card. None if the data does not say how to read texts, or the model needs its own code.

    Raises:
        RunError: If the written model answers otherwise than the trained one.
    """
    assert experiment.data is not None
    component = with_searched_options(experiment.data, params)
    if component.is_reference or "auto_map" in read_model_config(folder / FOLDER):
        return None
    options = check_options(component.name, component.options)
    if isinstance(model, LanguageModel):
        described = TextModel(task="generation", context=data.input_shape[0])
        taken = Input(name="prompt", kind="text", dtype="string")
        output = Output(name="answer", kind="texts")
    elif isinstance(options, LabelledTextOptions | TextPairsOptions):
        taken, output, described = _description(options, model, data)
    else:
        return None
    written = folder / FOLDER
    card = Card(
        name=origin.name,
        run_id=origin.run_id,
        trial=origin.trial,
        model=origin.model,
        trained_on=origin.trained_on,
        task=origin.task,
        inputs=(taken,),
        outputs=(output,),
        metrics=origin.metrics,
        files={
            file.relative_to(folder).as_posix(): sha256_of(file)
            for file in sorted(written.rglob("*"))
            if file.is_file()
        },
        num_train_samples=origin.num_train_samples,
        text_model=described,
    )
    if isinstance(options, LabelledTextOptions | TextPairsOptions):
        texts = options.train_texts(experiment.seed)[:_NUM_DESCRIBED]
        assert options.tokenizer is not None
        tokenizer = load_tokenizer(options.tokenizer.expanduser())
        trained = TextSession(taken.name, model, tokenizer, described.context)
        card = _compared(card, folder, trained, texts)
    card.write(folder)
    return card


def with_graph(folder: Path, card: Card, graph: Card) -> Card:
    """Let a bundle answer texts again, after the graph of its model was added.

    The graph takes tokens, so a script that reads rows for it would read no texts.

    Args:
        folder: The bundle.
        card: The card by which it answers texts.
        graph: The card that was written with the graph.

    Returns:
        The card by which it answers texts, with the files of the graph.
    """
    (folder / PREDICT).unlink()
    files = {name: digest for name, digest in graph.files.items() if name != PREDICT}
    checked = (f"{MODEL}: {words}" for words in graph.guarantees)
    card = card.model_copy(
        update={"files": {**card.files, **files}, "guarantees": (*card.guarantees, *checked)}
    )
    card.write(folder)
    return card


def _compared(card: Card, folder: Path, trained: TextSession, texts: Sequence[str]) -> Card:
    """Return a card with how texts and answers are distributed, if the answers are the same."""
    taken = card.inputs[0].model_copy(update={"example": texts[0]})
    card = card.model_copy(update={"inputs": (taken,)})
    feeds = {taken.name: np.array(texts, dtype=object)}
    (answered,) = open_session(folder, card).run(None, feeds)[:1]
    (expected,) = trained.run(None, feeds)
    difference = float(np.abs(answered - expected).max())
    if not difference <= _TOLERANCE:
        raise RunError(
            f"the exported model differs from the trained one by {difference:.2g}",
            next_step="Check that the folder of its tokenizer is the same as in training.",
        )
    return card.model_copy(
        update={
            "guarantees": (
                f"within {_TOLERANCE:g} of the trained model for {len(texts)} texts of the train"
                " split, on the exporting machine",
            ),
            "statistics": describe_samples(card, {taken.name: texts}),
            "answers": _distribution(card, answered),
        }
    )


def _distribution(card: Card, answered: np.ndarray) -> Statistics:
    """Return how classes, or the means of vectors, are distributed."""
    classes = card.outputs[0].classes
    if classes:
        return of_texts([classes[number] for number in answered.argmax(axis=1)])
    return of_numbers(answered.mean(axis=1))


def _description(
    options: LabelledTextOptions | TextPairsOptions, model: FolderModel, data: Datasets
) -> tuple[Input, Output, TextModel]:
    """Return what a model takes, what it answers, and how it reads texts."""
    (context,) = data.input_shape
    if isinstance(options, LabelledTextOptions):
        name = options.text
        output = Output(
            name="probabilities",
            kind="classes",
            shape=(data.num_outputs,),
            classes=data.class_names,
            targets=(options.target,),
        )
        described = TextModel(task="classification", context=context)
    else:
        name = "text"
        size = model.config.get_text_config().hidden_size
        output = Output(name="vector", kind="outputs", shape=(size,))
        columns = tuple(column for column in (options.first, options.second) if column != name)
        described = TextModel(task="embedding", context=context, columns=columns)
    return Input(name=name, kind="text", dtype="string"), output, described
