"""Conversations and pairs of answers for a language model: split, and cut into rows of tokens.

A row is what a batch counts: one conversation, or with packing as many as fit, or a pair of
answers. Conversations in a row never see each other, because positions begin again at 0 with each
of them. Reading files is left to `chat_records`, and tokens to `chat_tokens`.
"""

from __future__ import annotations

import hashlib
import heapq
import importlib.util
import json
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import numpy as np
from pydantic import Field
from typing_extensions import Self

from workbench.data.batches import Groups, epoch_indices
from workbench.data.cache import Cached, cached, file_stamp
from workbench.data.chat_records import (
    ANSWERS,
    USUAL_ROLES,
    Conversation,
    Preference,
    read_conversations,
    read_preferences,
    unusual_roles,
)
from workbench.data.chat_tokens import ChatTokenizer, LossOn, Tokens, tokenizer_files
from workbench.data.options import DatasetOptions, existing_path, held_out_field
from workbench.data.splits import IGNORED, Datasets, LanguageTasks, Prompt
from workbench.experiment.metric_declarations import Task
from workbench.foundation.errors import DataError, MissingDependencyError, install_command
from workbench.foundation.formatting import format_count
from workbench.foundation.model_config import max_positions, read_model_config

_NUM_OF_SIMILAR_LENGTH = 256
"""Rows of similar length that an epoch visits one after the other, so that padding stays short."""
_PARTS = ("train", "validation", "test")
_NUM_SHOWN = 2
_MAX_SHOWN_CHARACTERS = 600
_NO_TEMPLATE = (
    "The tokenizer has no chat template. Conversations are written as ### User: and ### Assistant:"
    " with an end-of-text token after each answer."
)
_Record = TypeVar("_Record", Conversation, Preference)


class _RowsOptions(DatasetOptions):
    """Options of conversations and of pairs of answers, which both become rows of tokens."""

    path: Path = Field(
        description="A .jsonl, .json, .parquet, .csv or .tsv file. Text may be compressed."
    )
    tokenizer: Path | None = Field(
        None, description="The folder of a tokenizer. By default, the folder of the model."
    )
    sequence: int = Field(
        1024, ge=2, le=1_048_576, description="The most tokens of a row. Longer ones are cut."
    )
    validation: Path | None = Field(
        None, description="A file to validate with. By default, a share of path is held out."
    )
    validation_fraction: float = Field(
        0.1, gt=0.0, lt=1.0, description="Share of the conversations that is held out."
    )
    test_fraction: float = held_out_field()
    similar_lengths: bool = Field(
        True, description="Without packing, put rows of similar length into a batch."
    )
    answers: int = Field(
        0,
        ge=0,
        le=20,
        description="Held-out prompts that the model answers after each evaluation, to be read.",
    )
    answer_tokens: int = Field(64, ge=1, le=4096, description="The most tokens of such an answer.")
    lm_eval: tuple[str, ...] = Field(
        (),
        description=(
            "Tasks of lm_eval that the model is measured on at each evaluation, such as [arc_easy]."
        ),
    )
    lm_eval_folder: Path | None = Field(
        None, description="A folder with your own tasks, in the format of lm_eval."
    )
    lm_eval_limit: int | None = Field(
        None, ge=1, description="The most samples of each task of lm_eval. By default, all."
    )
    lm_eval_shots: int | None = Field(
        None,
        ge=0,
        le=100,
        description="Solved examples in each prompt of lm_eval. By default, the task decides.",
    )
    lm_eval_chat: bool = Field(
        False, description="Write the prompts of lm_eval by the chat template."
    )

    _kind: ClassVar[Task] = "language_model"
    _name: ClassVar[str] = ""

    def find_task(self) -> Task:
        """Return the task, as DatasetOptions.find_task does."""
        return self._kind

    def check_source(self) -> None:
        """Reject missing files, as DatasetOptions.check_source does."""
        existing_path(self.path)
        if self.validation is not None:
            existing_path(self.validation, field="data.validation")
        if self.lm_eval and importlib.util.find_spec("lm_eval") is None:
            raise MissingDependencyError(
                "tasks of lm_eval need the package lm_eval",
                field="data.lm_eval",
                next_step=f"Install it: {install_command('lm-eval')}",
            )
        if self.lm_eval_folder is not None:
            existing_path(self.lm_eval_folder, field="data.lm_eval_folder")

    def load(self, *, seed: int, cache: Path | None) -> Datasets:
        """Read, split and encode the file, as DatasetOptions.load does."""
        made = self._cached(seed, cache)
        parts = {part: self._split(made, part) for part in _PARTS if part in made.facts}
        size = int(made.facts["vocabulary"])
        return Datasets(
            name=self._name,
            task=self._kind,
            train=parts["train"],
            validation=parts["validation"],
            test=parts.get("test"),
            input_shape=(self.sequence,),
            num_outputs=size,
            vocabulary_size=size,
            prompts=self._prompts(parts["validation"]),
            language_tasks=self._language_tasks(),
        )

    def _language_tasks(self) -> LanguageTasks | None:
        if not self.lm_eval:
            return None
        tokenizer = self._tokenizer()
        assert self.tokenizer is not None
        folder = self.tokenizer.expanduser()
        positions = None
        if (folder / "config.json").is_file():
            positions = max_positions(read_model_config(folder))
        return LanguageTasks(
            names=self.lm_eval,
            folder=self.lm_eval_folder,
            limit=self.lm_eval_limit,
            num_shots=self.lm_eval_shots,
            uses_chat=self.lm_eval_chat,
            tokenizer=tokenizer.loaded,
            max_tokens=positions or self.sequence,
        )

    def _prompts(self, split: ConversationSplit) -> tuple[Prompt, ...]:
        if not self.answers:
            return ()
        # Rows are sorted by length, so these are prompts of different lengths.
        rows = np.unique(np.linspace(0, len(split) - 1, self.answers).round().astype(int))
        decode = self._tokenizer().text_of
        prompts = []
        for row in rows:
            prompt, expected = _divided_at_answer(*split.documents(int(row))[0])
            most_tokens = max(1, min(self.answer_tokens, self.sequence - len(prompt)))
            prompts.append(Prompt(prompt, expected, most_tokens, decode))
        return tuple(prompts)

    def notes(self) -> tuple[str, ...]:
        """Return how the file is read, as DatasetOptions.notes does."""
        return tuple(self._cached(0, None).facts["notes"])

    def samples(self) -> tuple[str, ...]:
        """Return two samples as the model sees them."""
        split = self._split(self._cached(0, None), "train")
        tokenizer = self._tokenizer()
        places = [len(split) // 2, 0][: min(_NUM_SHOWN, len(split))]
        return tuple(
            f"Sample {number}, with the tokens that count in [[ ]]: "
            f"{split.describe(place, tokenizer)}"
            for number, place in enumerate(places, start=1)
        )

    @abstractmethod
    def _split(self, made: Cached, part: str) -> ConversationSplit:
        """Return a part of the encoded file."""

    @abstractmethod
    def _encode(self, files: list[Path], tokenizer: ChatTokenizer, seed: int) -> Cached:
        """Read and encode the file, and the validation file if there is one."""

    def _tokenizer(self) -> ChatTokenizer:
        if self.tokenizer is None:
            raise DataError(
                f"{self._name} need the tokenizer of the model",
                field="data.tokenizer",
                allowed="the folder of a tokenizer",
                next_step="Or train a model by its folder: model: {name: hf, path: FOLDER}.",
            )
        return ChatTokenizer(self.tokenizer.expanduser())

    def _cached(self, seed: int, cache: Path | None) -> Cached:
        files = [existing_path(self.path)]
        if self.validation is not None:
            files.append(existing_path(self.validation, field="data.validation"))
        tokenizer = self._tokenizer()  # before the cache, so that its errors are the same each time
        assert self.tokenizer is not None
        made_from = {
            "files": [file_stamp(file) for file in files],
            "tokenizer": [
                file_stamp(file) for file in tokenizer_files(self.tokenizer.expanduser())
            ],
            "seed": seed,
            "options": self.model_dump(
                mode="json",
                exclude={
                    "path",
                    "tokenizer",
                    "validation",
                    "similar_lengths",
                    "answers",
                    "answer_tokens",
                    "lm_eval",
                    "lm_eval_folder",
                    "lm_eval_limit",
                    "lm_eval_shots",
                    "lm_eval_chat",
                },
            ),
        }
        here = Path(__file__)
        code = [str(here.with_name(name)) for name in ("chat_records.py", "chat_tokens.py")]
        return cached(
            self._name,
            made_from,
            lambda: self._encode(files, tokenizer, seed),
            code=[__file__, *code],
            folder=cache,
        )

    def _divided(
        self, records: list[_Record], held_out: list[_Record] | None, seed: int
    ) -> tuple[dict[str, list[_Record]], list[str]]:
        """Divide the records of a file such that no duplicate is in two parts."""
        notes: list[str] = []
        divided: dict[str, list[_Record]] = {}
        if held_out is not None:
            known = {_digest(item) for item in held_out}
            kept = [item for item in records if _digest(item) not in known]
            if num_left_out := len(records) - len(kept):
                notes.append(
                    f"{format_count(num_left_out)} {self._name} of train are left out, because"
                    " they are also in the validation file."
                )
            records = kept
        groups: dict[bytes, list[int]] = {}
        for number, item in enumerate(records):
            groups.setdefault(_digest(item), []).append(number)
        shares = {"validation": self.validation_fraction, "test": self.test_fraction}
        if held_out is not None:
            shares["validation"] = 0.0
        parts = _parts_of_groups(list(groups.values()), len(records), shares, seed)
        for part in _PARTS:
            if chosen := [records[number] for number in sorted(parts.get(part, []))]:
                divided[part] = chosen
        if held_out is not None:
            divided["validation"] = held_out
        missing = [part for part in ("train", "validation") if part not in divided]
        if missing:
            raise DataError(
                f"there are too few different {self._name} for {missing[0]}: {len(groups)}",
                field="data.path",
                allowed="at least two that differ",
                next_step="Add some, or give a file in validation.",
            )
        return {part: divided[part] for part in _PARTS if part in divided}, notes


class ConversationsOptions(_RowsOptions):
    """Conversations, prompts with answers, or texts, to train a language model.

    Each line of a .jsonl file is one conversation: messages with role and content, a prompt and an
    answer, or a text. The tokenizer and its chat template come from the folder of the model.
    """

    packing: bool = Field(
        False,
        description="Put several conversations into a row. They do not see each other.",
    )
    loss_on: LossOn = Field(
        "answers", description="Count the loss of the assistant's messages only, or of all tokens."
    )

    _name = "conversations"

    def _split(self, made: Cached, part: str) -> ConversationSplit:
        width = self.sequence if self.packing else None
        return ConversationSplit.of(
            made, part, width=width, similar_lengths=self.similar_lengths and not self.packing
        )

    def _encode(self, files: list[Path], tokenizer: ChatTokenizer, seed: int) -> Cached:
        conversations = read_conversations(files[0], field="data.path")
        held_out: list[Conversation] | None = None
        if len(files) > 1:
            held_out = read_conversations(files[1], field="data.validation")
        divided, notes = self._divided(conversations, held_out, seed)
        notes += _notes_on_roles([*conversations, *(held_out or [])])
        if tokenizer.is_plain and any(item.messages for item in conversations):
            notes.append(_NO_TEMPLATE)
        arrays: dict[str, np.ndarray] = {}
        facts: dict[str, Any] = {"vocabulary": tokenizer.num_tokens}
        for part, some in divided.items():
            documents, of_part = _documents(
                tokenizer.encode(some, self.loss_on), some, self.sequence
            )
            if not documents:
                raise DataError(
                    f"no conversation of {part} has a token that counts within {self.sequence}"
                    " tokens",
                    field="data.sequence",
                    next_step=(
                        f"Raise it, or set loss_on: all. Answers have the role {ANSWERS}; the file"
                        f" has {_roles_of(some)}."
                    ),
                )
            notes += [f"{part}: {note}" for note in of_part]
            made = _arrays(documents, self.sequence if self.packing else None)
            arrays |= {f"{part}_{name}": array for name, array in made.items()}
            facts[part] = _counts(made)
            notes.append(
                f"{part}: {format_count(len(documents), 'conversation')} in"
                f" {format_count(len(made['row_firsts']) - 1, 'row')},"
                f" {format_count(facts[part]['tokens'], 'token')}, of which"
                f" {format_count(facts[part]['counted'])} count."
            )
        facts["padding"] = tokenizer.padding
        return Cached(arrays, facts | {"notes": notes})


class PreferencesOptions(_RowsOptions):
    """Pairs of answers to a prompt, of which one is preferred, to train a language model by DPO.

    Each line of a .jsonl file has a prompt with `chosen` and `rejected`, or two conversations of
    these names. Pairs of the same prompt stay together. The tokenizer and its chat template come
    from the folder of the model.
    """

    _name = "preferences"
    _kind = "preferences"

    def _split(self, made: Cached, part: str) -> PreferenceSplit:
        return PreferenceSplit.of(made, part, width=None, similar_lengths=self.similar_lengths)

    def _encode(self, files: list[Path], tokenizer: ChatTokenizer, seed: int) -> Cached:
        pairs = read_preferences(files[0], field="data.path")
        held_out: list[Preference] | None = None
        if len(files) > 1:
            held_out = read_preferences(files[1], field="data.validation")
        divided, notes = self._divided(pairs, held_out, seed)
        if tokenizer.is_plain:
            notes.append(_NO_TEMPLATE)
        arrays: dict[str, np.ndarray] = {}
        facts: dict[str, Any] = {"vocabulary": tokenizer.num_tokens}
        for part, some in divided.items():
            sides = (
                tokenizer.encode([pair.chosen for pair in some], "answers"),
                tokenizer.encode([pair.rejected for pair in some], "answers"),
            )
            kept, of_part = _pairs(list(zip(*sides, strict=True)), self.sequence)
            if not kept:
                raise DataError(
                    f"no pair of {part} has two answers that differ within {self.sequence} tokens",
                    field="data.sequence",
                    next_step="Raise it, or check the answers in the file.",
                )
            notes += [f"{part}: {note}" for note in of_part]
            made = _arrays_of_pairs(kept)
            arrays |= {f"{part}_{name}": array for name, array in made.items()}
            facts[part] = _counts(made)
            notes.append(
                f"{part}: {format_count(len(kept), 'pair')},"
                f" {format_count(facts[part]['tokens'])} tokens, of which"
                f" {format_count(facts[part]['counted'])} count."
            )
        facts["padding"] = tokenizer.padding
        return Cached(arrays, facts | {"notes": notes})


def _divided_at_answer(ids: np.ndarray, is_counted: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the tokens before the first answer of a document, and those of the answer.

    Of a plain text, half is the prompt.
    """
    counted = np.flatnonzero(is_counted)
    first, last = int(counted[0]), int(counted[-1]) + 1
    gaps = np.flatnonzero(~is_counted[first:last])
    if len(gaps):
        last = first + int(gaps[0])
    if first <= 1:  # nothing comes before it
        first = max(1, len(ids) // 2)
    return ids[:first], ids[first : max(last, first + 1)]


def _parts_of_groups(
    groups: list[list[int]], num: int, shares: dict[str, float], seed: int
) -> dict[str, list[int]]:
    """Give groups of duplicates in random order to the parts until each has its share."""
    order = np.random.default_rng(seed).permutation(len(groups))
    parts: dict[str, list[int]] = {"train": [], "validation": [], "test": []}
    num_left = len(groups)
    for number in order:
        group = groups[number]
        part = "train"
        for name, share in shares.items():
            wanted = max(round(num * share), 1) if share else 0
            if len(parts[name]) < wanted and num_left > 1:
                part = name
                break
        if part != "train":
            num_left -= 1
        parts[part] += group
    return parts


def _notes_on_roles(conversations: Sequence[Conversation]) -> list[str]:
    return [
        f"The role {role} is not usual ({format_count(num, 'message')}). The model reads such"
        f" messages, and does not learn them. Usual are {', '.join(USUAL_ROLES)}."
        for role, num in unusual_roles(conversations).items()
    ]


def _roles_of(conversations: Sequence[Conversation]) -> str:
    roles = (item["role"] for conversation in conversations for item in conversation.messages)
    return ", ".join(dict.fromkeys(roles)) or "texts"


def _digest(record: Conversation | Preference) -> bytes:
    tools = json.dumps(record.tools, sort_keys=True, default=str)
    return hashlib.sha256(f"{record.identity}\n{tools}".encode()).digest()


def _documents(
    encoded: Sequence[Tokens], conversations: Sequence[Conversation], sequence: int
) -> tuple[list[Tokens], list[str]]:
    """Cut what is too long, and drop what has no token that counts.

    A plain text continues in the next document. A conversation is cut at its end.
    """
    documents: list[Tokens] = []
    num_cut = 0
    dropped: list[str] = []
    for tokens, conversation in zip(encoded, conversations, strict=True):
        pieces = list(_pieces(tokens, sequence))
        if conversation.messages:
            num_cut += len(pieces) > 1
            pieces = pieces[:1]
        kept = [piece for piece in pieces if piece.is_counted.any()]
        if not kept:
            dropped.append(conversation.place)
        documents += kept
    notes = []
    if num_cut:
        notes.append(
            f"{format_count(num_cut, 'conversation')} of {format_count(len(encoded))} cut at the"
            f" end, after {format_count(sequence)} tokens. To keep more, raise data.sequence."
        )
    if dropped:
        first = dropped[0] if len(dropped) == 1 else f"the first is {dropped[0]}"
        notes.append(
            f"{format_count(len(dropped), 'conversation')} left out, because no answer counts"
            f" within {format_count(sequence)} tokens: {first}."
        )
    return documents, notes


def _pairs(
    encoded: Sequence[tuple[Tokens, Tokens]], sequence: int
) -> tuple[list[tuple[Tokens, Tokens]], list[str]]:
    """Cut the ends of long answers, and drop pairs from which nothing can be learned."""
    kept: list[tuple[Tokens, Tokens]] = []
    num_cut = num_dropped = num_same = 0
    for pair in encoded:
        num_cut += any(len(tokens.ids) > sequence for tokens in pair)
        chosen, rejected = (next(_pieces(tokens, sequence)) for tokens in pair)
        if np.array_equal(pair[0].ids, pair[1].ids):
            num_same += 1
        elif _differ(chosen, rejected):
            kept.append((chosen, rejected))
        else:
            num_dropped += 1
    notes = []
    if num_cut:
        notes.append(
            f"{format_count(num_cut)} of {format_count(len(encoded), 'pair')} are longer than"
            f" {sequence} tokens, and the ends of their answers are cut. To keep more, raise"
            " data.sequence."
        )
    if num_dropped:
        notes.append(
            f"{format_count(num_dropped, 'pair')} left out: the answers do not differ within"
            f" {sequence} tokens."
        )
    if num_same:
        notes.append(f"{format_count(num_same, 'pair')} left out: both answers are the same.")
    return kept, notes


def _differ(chosen: Tokens, rejected: Tokens) -> bool:
    """Return whether two answers that may have been cut have tokens, and not the same ones."""
    has_tokens = chosen.is_counted.any() and rejected.is_counted.any()
    return bool(has_tokens) and not np.array_equal(chosen.ids, rejected.ids)


def _pieces(tokens: Tokens, sequence: int) -> Iterator[Tokens]:
    # The last token of a piece is only a target there, so the next piece begins with it.
    step = sequence - 1
    for first in range(0, max(len(tokens.ids) - 1, 1), step):
        is_counted = tokens.is_counted[first : first + sequence].copy()
        is_counted[:1] = False  # nothing predicts it here
        yield Tokens(tokens.ids[first : first + sequence], is_counted)


def _arrays(documents: Sequence[Tokens], width: int | None) -> dict[str, np.ndarray]:
    """Return documents and rows as flat arrays. The longest rows come first.

    Memory is estimated with the first rows, so these must be the largest.
    """
    lengths = np.array([len(document.ids) for document in documents], dtype=np.int64)
    order = np.argsort(-lengths, kind="stable")
    lengths = lengths[order]
    rows = [[number] for number in range(len(order))]
    if width is not None:
        rows = _packed(lengths - 1, width)
    return _flat([documents[number] for number in order], rows)


def _arrays_of_pairs(pairs: Sequence[tuple[Tokens, Tokens]]) -> dict[str, np.ndarray]:
    """Return pairs as flat arrays: a row has two documents, first the chosen answer."""
    longest = np.array([max(len(tokens.ids) for tokens in pair) for pair in pairs])
    order = np.argsort(-longest, kind="stable")
    documents = [tokens for number in order for tokens in pairs[number]]
    return _flat(documents, [[2 * number, 2 * number + 1] for number in range(len(pairs))])


def _flat(documents: Sequence[Tokens], rows: Sequence[Sequence[int]]) -> dict[str, np.ndarray]:
    lengths = np.array([len(document.ids) for document in documents], dtype=np.int64)
    return {
        "tokens": np.concatenate([document.ids for document in documents]),
        "is_counted": np.concatenate([document.is_counted for document in documents]),
        "firsts": np.concatenate([[0], np.cumsum(lengths)]),
        "rows": np.concatenate([np.array(row, dtype=np.int64) for row in rows]),
        "row_firsts": np.concatenate([[0], np.cumsum([len(row) for row in rows])]),
    }


def _counts(made: dict[str, np.ndarray]) -> dict[str, int]:
    # Nothing predicts the first token of a document, so it is no target.
    num_documents = len(made["firsts"]) - 1
    return {
        "tokens": len(made["tokens"]) - num_documents,
        "counted": int(made["is_counted"].sum()),
    }


def _packed(lengths: np.ndarray, width: int) -> list[list[int]]:
    """Put documents into rows of a width: each into the row with the least room that is enough.

    Source: best-fit decreasing bin packing, Johnson, Near-Optimal Bin Packing Algorithms (1973).

    Args:
        lengths: Length of each document, in descending order.
        width: Length of a row.
    """
    rows: list[list[int]] = []
    of_room: dict[int, list[int]] = {}  # rows by the room that is left in them
    rooms: list[int] = []  # all rooms that have occurred, sorted
    for number, length in enumerate(lengths.tolist()):
        room = next((room for room in rooms if room >= length and of_room.get(room)), None)
        if room is None:
            rows.append([number])
            row, left = len(rows) - 1, width - length
        else:
            row = heapq.heappop(of_room[room])
            rows[row].append(number)
            left = room - length
        if left not in of_room:
            of_room[left] = []
            rooms.append(left)
            rooms.sort()
        heapq.heappush(of_room[left], row)
    return rows


@dataclass(frozen=True)
class ConversationSplit:
    """Rows of tokens.

    Attributes:
        tokens: The token ids of all documents, one after the other.
        is_counted: Whether the loss of predicting each token counts.
        firsts: Where each document begins in `tokens`, and the end of the last one.
        rows: The documents of all rows, one row after the other.
        row_firsts: Where each row begins in `rows`, and the end of the last one.
        padding: The token id after the end of a row.
        width: Length of all rows if they are packed. Otherwise, rows are as long as the longest of
            their batch.
        shuffle_groups: Rows of similar length, which an epoch visits together, or None.
    """

    tokens: np.ndarray = field(repr=False)
    is_counted: np.ndarray = field(repr=False)
    firsts: np.ndarray = field(repr=False)
    rows: np.ndarray = field(repr=False)
    row_firsts: np.ndarray = field(repr=False)
    padding: int
    width: int | None
    shuffle_groups: Groups | None = field(default=None, repr=False)

    @classmethod
    def of(cls, made: Cached, part: str, *, width: int | None, similar_lengths: bool) -> Self:
        """Return a part of an encoded file.

        Args:
            made: All parts.
            part: Which part.
            width: Length of all rows if they are packed.
            similar_lengths: Whether an epoch visits rows of similar length together.
        """
        names = ("tokens", "is_counted", "firsts", "rows", "row_firsts")
        arrays = {name: made.arrays[f"{part}_{name}"] for name in names}
        groups = None
        if similar_lengths:
            # Rows are sorted by length, so neighbours have similar lengths. In groups of which two
            # may be in use at once, a group is shuffled and then left.
            num_rows = len(arrays["row_firsts"]) - 1
            groups = Groups(np.arange(num_rows) // _NUM_OF_SIMILAR_LENGTH, 2)
        return cls(**arrays, padding=int(made.facts["padding"]), width=width, shuffle_groups=groups)

    def __len__(self) -> int:
        return len(self.row_firsts) - 1

    @property
    def num_samples(self) -> int:
        """The conversations of all rows. A packed row has several."""
        return len(self.firsts) - 1

    @property
    def num_tokens(self) -> int:
        """Tokens of all rows that are predicted, without padding and the first of each document."""
        return len(self.tokens) - (len(self.firsts) - 1)

    def documents(self, row: int) -> list[tuple[np.ndarray, np.ndarray]]:
        """Return the token ids of each document of a row, and which of them count."""
        numbers = self.rows[self.row_firsts[row] : self.row_firsts[row + 1]]
        spans = [slice(self.firsts[number], self.firsts[number + 1]) for number in numbers]
        return [(self.tokens[span], self.is_counted[span]) for span in spans]

    def batch(self, indices: np.ndarray) -> tuple[dict[str, np.ndarray], np.ndarray]:
        """Return inputs and targets of rows, int64 of shape (rows, length).

        The inputs are `input_ids`, `labels`, which are the targets, and with packing
        `position_ids`. A target is the next token, or -100 if it does not count.
        """
        rows = [self.documents(int(index)) for index in indices]
        width = self.width
        if width is None:
            width = max(sum(len(ids) - 1 for ids, _ in row) for row in rows)
        shape = (len(rows), width)
        inputs = np.full(shape, self.padding, dtype=np.int64)
        targets = np.full(shape, IGNORED, dtype=np.int64)
        positions = np.empty(shape, dtype=np.int64)
        for number, row in enumerate(rows):
            first = 0
            for ids, is_counted in row:
                end = first + len(ids) - 1
                inputs[number, first:end] = ids[:-1]
                targets[number, first:end] = np.where(is_counted[1:], ids[1:], IGNORED)
                positions[number, first:end] = np.arange(end - first)
                first = end
            positions[number, first:] = np.arange(width - first)  # padding sees only itself
        named = {"input_ids": inputs, "labels": targets}
        if self.width is not None:
            named["position_ids"] = positions
        return named, targets

    def describe(self, row: int, tokenizer: ChatTokenizer) -> str:
        """Return the beginning of a row as text, with the tokens that count in double brackets."""
        texts = [_as_text(*document, tokenizer) for document in self.documents(row)]
        return _shortened(" || ".join(texts), _MAX_SHOWN_CHARACTERS)


class PreferenceSplit(ConversationSplit):
    """Rows of two answers to the same prompt: first the chosen one, then the rejected one."""

    @property
    def num_samples(self) -> int:
        """The pairs."""
        return len(self)

    def batch(self, indices: np.ndarray) -> tuple[dict[str, np.ndarray], np.ndarray]:
        """Return inputs and targets of pairs, int64 of shape (pairs, 2, length).

        The inputs are `input_ids` and `labels`, which are the targets. A target is the next token,
        or -100 if it does not count.
        """
        answers = [document for index in indices for document in self.documents(int(index))]
        width = max(len(ids) for ids, _ in answers) - 1
        inputs = np.full((len(answers), width), self.padding, dtype=np.int64)
        targets = np.full((len(answers), width), IGNORED, dtype=np.int64)
        for number, (ids, is_counted) in enumerate(answers):
            inputs[number, : len(ids) - 1] = ids[:-1]
            targets[number, : len(ids) - 1] = np.where(is_counted[1:], ids[1:], IGNORED)
        shape = (len(indices), 2, width)
        named = {"input_ids": inputs.reshape(shape), "labels": targets.reshape(shape)}
        return named, named["labels"]

    def describe(self, row: int, tokenizer: ChatTokenizer) -> str:
        """Return the beginnings of both answers of a pair. See ConversationSplit.describe."""
        chosen, rejected = (
            _shortened(_as_text(*document, tokenizer), _MAX_SHOWN_CHARACTERS // 2)
            for document in self.documents(row)
        )
        return f"chosen: {chosen} || rejected: {rejected}"


def _as_text(ids: np.ndarray, is_counted: np.ndarray, tokenizer: ChatTokenizer) -> str:
    """Return a document as text, with the tokens that count in double brackets."""
    parts: list[str] = []
    edges = np.flatnonzero(np.diff(is_counted.astype(np.int8))) + 1
    for span in np.split(np.arange(len(ids)), edges):
        text = tokenizer.loaded.decode(ids[span], skip_special_tokens=False)
        parts.append(f"[[{text}]]" if is_counted[span[0]] else text)
    return "".join(parts).replace("\n", "\\n")


def _shortened(text: str, num_characters: int) -> str:
    if len(text) <= num_characters:
        return text
    return text[:num_characters] + "..."


class RepeatedRows:
    """Rows in random order, pass after pass, of which each epoch takes the next ones.

    Every pass has each row once. Where it is cut into epochs does not change the order.
    """

    draws_samples = False

    def __init__(self, split: Any, num_rows: int) -> None:
        """Let epochs have another length than a pass.

        Args:
            split: The rows: conversations, or some of them.
            num_rows: Rows of an epoch.
        """
        self._split = split
        self._num_rows = num_rows
        self._order = np.arange(num_rows) % len(split)

    def __len__(self) -> int:
        return self._num_rows

    @property
    def num_tokens(self) -> float:
        """Tokens of an epoch on average, without padding."""
        return self._split.num_tokens / len(self._split) * self._num_rows

    def begin(self, epoch: int, seed: int) -> None:
        """Take the next rows. See OrderedSplit.begin."""
        first, size = epoch * self._num_rows, len(self._split)
        passes = range(first // size, (first + self._num_rows - 1) // size + 1)
        order = [
            epoch_indices(
                size, epoch=number, seed=seed, shuffle=True, groups=self._split.shuffle_groups
            )
            for number in passes
        ]
        skipped = first - passes[0] * size
        self._order = np.concatenate(order)[skipped : skipped + self._num_rows]

    def batch(self, indices: np.ndarray) -> tuple[dict[str, np.ndarray], np.ndarray]:
        """Return inputs and targets of rows of this epoch. See ConversationSplit.batch."""
        return self._split.batch(self._order[indices])
