"""Texts with a class each, and pairs of texts that belong together.

Columns of a table, or functions of Python's standard library by package.
"""

from __future__ import annotations

import ast
import sysconfig
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import Field, model_validator
from typing_extensions import Self

from workbench.data.cache import Cached, cached, file_stamp
from workbench.data.chat_tokens import load_tokenizer, tokenizer_files
from workbench.data.options import DatasetOptions, existing_path, held_out_field
from workbench.data.plain_frames import column_of
from workbench.data.reading import Reading, some_of
from workbench.data.splits import ArraySplit, Datasets, split_in_three, test_split
from workbench.data.table_files import read_table
from workbench.data.tables import number_classes
from workbench.data.tokens import encode_texts, learn_vocabulary, split_text
from workbench.experiment.metric_declarations import Task
from workbench.experiment.setting_types import TokenKind
from workbench.foundation.errors import DataError, ExperimentError
from workbench.foundation.formatting import format_count

_WORDS: TokenKind = "words"
_NUM_CLASSES = 8
_MAX_TEXTS_OF_CLASS = 600
_MIN_LINES = 4
_LEFT_OUT = ("test", "lib2to3", "distutils", "idlelib", "ensurepip")
"""Packages of tests, and packages that are missing in some versions or installations of Python."""


class LabelledTextOptions(DatasetOptions):
    """A table with a column of texts and one of their classes, to classify texts.

    A text becomes its words and signs, in small letters. The vocabulary is learned from the train
    texts. If a model of transformers is trained by its folder, a text becomes tokens of the model's
    tokenizer. Without a path, the texts are functions of Python's standard library, and the class
    of each is its package.
    """

    searchable = {
        "context": {},
        "vocabulary": {},
        "tokenizer": {},
    }

    path: Path | None = Field(
        None,
        description=(
            "A .csv, .tsv or .parquet file. By default, functions of the standard library."
        ),
    )
    text: str = Field(
        "text",
        min_length=1,
        description="The column of texts.",
        json_schema_extra={"column_of": "path"},
    )
    target: str = Field(
        "label",
        min_length=1,
        description="The column to predict.",
        json_schema_extra={"column_of": "path"},
    )
    context: int = Field(
        64, ge=1, le=65_536, description="Words, or tokens of a tokenizer, of a text that are read."
    )
    vocabulary: int = Field(
        5_000,
        ge=3,
        le=1_000_000,
        description="Number of the most frequent words that are told apart.",
    )
    tokenizer: Path | None = Field(
        None,
        description=(
            "The folder of a tokenizer of transformers. By default, the folder of the model if it"
            " is one of transformers, and otherwise texts become words."
        ),
    )
    validation_fraction: float = Field(
        0.2, gt=0.0, lt=1.0, description="Share of the texts of each class that is held out."
    )
    test_fraction: float = held_out_field()

    @model_validator(mode="after")
    def _check(self) -> Self:
        for option in ("text", "target"):
            if self.path is None and option in self.model_fields_set:
                raise ExperimentError(
                    "needs a table", field=option, next_step="Set path to a file."
                )
        if self.tokenizer is not None and "vocabulary" in self.model_fields_set:
            raise ExperimentError(
                "a tokenizer has its own vocabulary", field="vocabulary", next_step="Remove it."
            )
        return self

    def find_task(self) -> Task:
        """Return the task, as DatasetOptions.find_task does."""
        return "classification"

    def notes(self) -> tuple[str, ...]:
        """Return how many tokens the texts have, as DatasetOptions.notes does."""
        if self.tokenizer is None:
            return ()
        path = None if self.path is None else existing_path(self.path)
        return tuple(self._encode(path, 0, self._tokenizer()[0]).facts["notes"])

    def _tokenizer(self) -> tuple[Any, list[tuple[str, int, int]]]:
        """Return the tokenizer, or None for words, and the stamps of its files."""
        if self.tokenizer is None:
            return None, []
        folder = self.tokenizer.expanduser()
        return load_tokenizer(folder), [file_stamp(file) for file in tokenizer_files(folder)]

    def load(self, *, seed: int, cache: Path | None) -> Datasets:
        """Read, split and encode the texts, as DatasetOptions.load does."""
        path = None
        version: object = sysconfig.get_python_version()
        if self.path is not None:
            path = existing_path(self.path)
            version = file_stamp(path)
        tokenizer, files = self._tokenizer()
        made_from = {
            "file": version,
            "seed": seed,
            "tokenizer": files,
            "options": self.model_dump(mode="json", exclude={"path", "tokenizer"}),
        }
        code = [__file__, str(Path(__file__).with_name("tokens.py"))]
        made = cached(
            "labelled_text",
            made_from,
            lambda: self._encode(path, seed, tokenizer),
            code=code,
            folder=cache,
        )
        arrays = made.arrays
        names = tuple(made.facts["class_names"])
        if tokenizer is not None:
            parts = {
                part: TokenizedTexts.of(arrays, part)
                for part in ("train", "validation", "test")
                if f"{part}_inputs" in arrays
            }
            return Datasets(
                name="labelled_text",
                task="classification",
                train=parts["train"],
                validation=parts["validation"],
                test=parts.get("test"),
                input_shape=(self.context,),
                num_outputs=len(names),
                vocabulary_size=len(tokenizer),
                class_names=names,
            )
        vocabulary = tuple(made.facts["vocabulary"])
        return Datasets(
            name="labelled_text",
            task="classification",
            train=ArraySplit(arrays["train_inputs"], arrays["train_targets"]),
            validation=ArraySplit(arrays["validation_inputs"], arrays["validation_targets"]),
            test=test_split(arrays),
            input_shape=(self.context,),
            num_outputs=len(names),
            vocabulary_size=len(vocabulary),
            class_names=names,
            token_names=vocabulary,
        )

    def reading(self, *, seed: int) -> Reading | None:
        """Return how words become numbers, as DatasetOptions.reading does."""
        if self.tokenizer is not None:
            return None
        datasets = self.load(seed=seed, cache=None)
        indices = some_of(min(len(datasets.train), 500))
        return Reading(
            {self.text: datasets.train.batch(indices)[0]},
            indices,
            vocabulary=datasets.token_names,
            tokens=_WORDS,
            target=self.target,
        )

    def train_texts(self, seed: int) -> list[str]:
        """Return the texts of the train split, in its order.

        Args:
            seed: The seed of the split.
        """
        path = None if self.path is None else existing_path(self.path)
        texts, _, targets = self._texts(path)
        return [texts[place] for place in self._places(targets, seed)[0]]

    def _texts(self, path: Path | None) -> tuple[list[str], list[str], np.ndarray]:
        """Return the texts, the names of classes, and the class of each text."""
        return _functions() if path is None else self._read(path)

    def _places(self, targets: np.ndarray, seed: int) -> Sequence[np.ndarray]:
        """Return the places of the train, validation and test texts."""
        return split_in_three(
            len(targets),
            validation_fraction=self.validation_fraction,
            test_fraction=self.test_fraction,
            seed=seed,
            classes=targets,
        )

    def _encode(self, path: Path | None, seed: int, tokenizer: Any) -> Cached:
        texts, names, targets = self._texts(path)
        places = self._places(targets, seed)
        facts: dict[str, Any] = {"class_names": names}
        encoded: dict[str, np.ndarray] = {"targets": targets}
        if tokenizer is None:
            tokens = [split_text(text, _WORDS) for text in texts]
            vocabulary = learn_vocabulary((tokens[place] for place in places[0]), self.vocabulary)
            encoded["inputs"] = encode_texts(tokens, vocabulary, self.context)
            facts["vocabulary"] = list(vocabulary)
        else:
            encoded["inputs"], encoded["lengths"] = _tokenized(texts, tokenizer, self.context)
            facts["vocabulary"] = []
            facts["notes"] = _notes(texts, tokenizer, encoded["lengths"], places, self.context)
        arrays = {
            f"{part}_{name}": values[chosen]
            for part, chosen in zip(("train", "validation", "test"), places, strict=True)
            for name, values in encoded.items()
            if len(chosen)
        }
        return Cached(arrays, facts)

    def _read(self, path: Path) -> tuple[list[str], list[str], np.ndarray]:
        table = read_table(path)
        columns = [str(name) for name in table.columns]
        for option, name in (("text", self.text), ("target", self.target)):
            if name not in columns:
                raise DataError(
                    f"there is no column {name!r}", field=f"data.{option}", allowed=columns
                )
        table = table.rename(columns=str)
        texts, targets = column_of(table, self.text), column_of(table, self.target)
        missing = (texts.isna() | targets.isna()).to_numpy().nonzero()[0]
        if len(missing) or len(table) < 2:
            first = f", the first of them row {missing[0]} (from 0)" if len(missing) else ""
            raise DataError(
                f"{len(missing)} of {len(table)} rows have no text or no class{first}",
                field="data.path",
                allowed=(
                    "at least two rows, each with both. Empty cells, NA, None and null are missing"
                ),
                next_step="Remove these rows from the file, or write such a class as another word.",
            )
        return [str(text) for text in texts], *number_classes(targets)


class TextPairsOptions(DatasetOptions):
    """A table with two texts in each row that belong together, to learn embeddings of texts.

    A question and its answer, a search and the page that was opened, or two ways to say the same.
    Rows with a text in common stay together when a share is held out. The tokenizer comes from the
    folder of the model.
    """

    path: Path = Field(description="A .csv, .tsv or .parquet file.")
    first: str = Field(
        "anchor",
        min_length=1,
        description="The column of the first texts, such as questions.",
        json_schema_extra={"column_of": "path"},
    )
    second: str = Field(
        "positive",
        min_length=1,
        description="The column of the texts that belong to them.",
        json_schema_extra={"column_of": "path"},
    )
    context: int = Field(128, ge=1, le=65_536, description="Tokens of a text that are read.")
    tokenizer: Path | None = Field(
        None, description="The folder of a tokenizer. By default, the folder of the model."
    )
    validation_fraction: float = Field(
        0.1, gt=0.0, lt=1.0, description="Share of the pairs that is held out."
    )
    test_fraction: float = held_out_field()

    def find_task(self) -> Task:
        """Return the task, as DatasetOptions.find_task does."""
        return "text_pairs"

    def notes(self) -> tuple[str, ...]:
        """Return how many tokens the texts have, as DatasetOptions.notes does."""
        tokenizer = load_tokenizer(self._folder_of_tokenizer())
        return tuple(self._encode(existing_path(self.path), 0, tokenizer).facts["notes"])

    def _folder_of_tokenizer(self) -> Path:
        if self.tokenizer is None:
            raise DataError(
                "text_pairs need the tokenizer of the model",
                field="data.tokenizer",
                allowed="the folder of a tokenizer",
                next_step="Or train a model by its folder: model: {name: hf, path: FOLDER}.",
            )
        return self.tokenizer.expanduser()

    def load(self, *, seed: int, cache: Path | None) -> Datasets:
        """Read, split and encode the pairs, as DatasetOptions.load does."""
        folder = self._folder_of_tokenizer()
        tokenizer = load_tokenizer(folder)
        path = existing_path(self.path)
        made = cached(
            "text_pairs",
            {
                "file": file_stamp(path),
                "seed": seed,
                "tokenizer": [file_stamp(file) for file in tokenizer_files(folder)],
                "options": self.model_dump(mode="json", exclude={"path", "tokenizer"}),
            },
            lambda: self._encode(path, seed, tokenizer),
            code=[__file__],
            folder=cache,
        )
        parts = {
            part: TextPairs.of(made.arrays, part)
            for part in ("train", "validation", "test")
            if f"{part}_inputs" in made.arrays
        }
        return Datasets(
            name="text_pairs",
            task="text_pairs",
            train=parts["train"],
            validation=parts["validation"],
            test=parts.get("test"),
            input_shape=(self.context,),
            num_outputs=0,
            vocabulary_size=len(tokenizer),
        )

    def train_texts(self, seed: int) -> list[str]:
        """Return the texts of the train split, the two of a pair after each other.

        Args:
            seed: The seed of the split.
        """
        pairs, places = self._divided(existing_path(self.path), seed)
        return [text for place in places["train"] for text in pairs[place]]

    def _divided(
        self, path: Path, seed: int
    ) -> tuple[list[tuple[str, ...]], dict[str, np.ndarray]]:
        """Return the pairs, and the places of train, validation and test."""
        columns = _texts_of(read_table(path), {"first": self.first, "second": self.second})
        pairs = list(dict.fromkeys(zip(*columns, strict=True)))  # each once
        groups = _connected(pairs)
        if len(set(groups)) < 2:
            raise DataError(
                "all pairs are connected by texts in common, so none can be held out",
                field="data.path",
                allowed="at least two pairs without a text in common",
            )
        shares = (self.validation_fraction, self.test_fraction)
        return pairs, _divided_by_group(groups, shares, seed)

    def _encode(self, path: Path, seed: int, tokenizer: Any) -> Cached:
        pairs, places = self._divided(path, seed)
        texts = [text for pair in pairs for text in pair]
        inputs, lengths = _tokenized(texts, tokenizer, self.context)
        encoded = {
            "inputs": inputs.reshape(len(pairs), 2, -1),
            "lengths": lengths.reshape(len(pairs), 2),
        }
        arrays = {
            f"{part}_{name}": values[chosen]
            for part, chosen in places.items()
            for name, values in encoded.items()
            if len(chosen)
        }
        of_texts = [np.concatenate([2 * chosen, 2 * chosen + 1]) for chosen in places.values()]
        return Cached(arrays, {"notes": _notes(texts, tokenizer, lengths, of_texts, self.context)})


def _connected(pairs: Sequence[tuple[str, ...]]) -> list[int]:
    """Return the group of each pair. Pairs with a text in common are in one group."""
    owner: dict[str, str] = {}

    def root(text: str) -> str:
        while owner.setdefault(text, text) != text:
            owner[text] = owner[owner[text]]
            text = owner[text]
        return text

    for first, second in pairs:
        owner[root(first)] = root(second)
    numbers: dict[str, int] = {}
    return [numbers.setdefault(root(first), len(numbers)) for first, _ in pairs]


def _divided_by_group(
    groups: Sequence[int], shares: tuple[float, float], seed: int
) -> dict[str, np.ndarray]:
    """Return the places of train, validation and test. A group is in one of them."""
    of_group = np.asarray(groups)
    order = np.random.default_rng(seed).permutation(int(of_group.max()) + 1)
    sizes = np.bincount(of_group)[order]
    before = np.cumsum(sizes) - sizes
    ends = np.cumsum(np.asarray(shares) * len(of_group))
    part_of_group = np.zeros(len(order), dtype=np.int64)
    # The first groups in random order are held out: at least one, and never all.
    part_of_group[order[:-1]] = np.select(
        [(before < max(ends[0], 1))[:-1], (before < ends[1])[:-1]], [1, 2], 0
    )
    parts = part_of_group[of_group]
    return {
        part: np.flatnonzero(parts == number)
        for number, part in enumerate(("train", "validation", "test"))
    }


def _texts_of(table: Any, columns: Mapping[str, str]) -> list[list[str]]:
    """Return the texts of some columns of a table, by the options that name them."""
    names = [str(name) for name in table.columns]
    for option, name in columns.items():
        if name not in names:
            raise DataError(f"there is no column {name!r}", field=f"data.{option}", allowed=names)
    table = table.rename(columns=str)
    texts = [column_of(table, name) for name in columns.values()]
    missing = np.flatnonzero(np.any([item.isna().to_numpy() for item in texts], axis=0))
    if len(missing) or len(table) < 2:
        first = f", the first of them row {missing[0]} (from 0)" if len(missing) else ""
        raise DataError(
            f"{len(missing)} of {len(table)} rows lack a text{first}",
            field="data.path",
            allowed="at least two rows, each with both texts",
            next_step="Remove these rows from the file.",
        )
    return [[str(text) for text in item] for item in texts]


@dataclass(frozen=True)
class TextPairs:
    """Pairs of texts as tokens of a tokenizer.

    Attributes:
        inputs: Token ids of (pairs, 2, context), int32, of which each text ends with padding.
        lengths: How many ids of each text are its tokens, (pairs, 2).
    """

    inputs: np.ndarray = field(repr=False)
    lengths: np.ndarray = field(repr=False)

    @classmethod
    def of(cls, arrays: Mapping[str, np.ndarray], part: str) -> TextPairs:
        """Return a part of cached arrays: train, validation or test."""
        return cls(*(arrays[f"{part}_{name}"] for name in ("inputs", "lengths")))

    def __len__(self) -> int:
        return len(self.lengths)

    @property
    def num_tokens(self) -> int:
        """Tokens of all texts, without padding."""
        return int(self.lengths.sum())

    def batch(self, indices: np.ndarray) -> tuple[dict[str, np.ndarray], np.ndarray]:
        """Return `input_ids` and `attention_mask` of (pairs, 2, length), and numbers of pairs."""
        lengths = self.lengths[indices]
        width = int(lengths.max(initial=1))
        mask = np.arange(width) < lengths[..., None]
        named = {
            "input_ids": self.inputs[indices, :, :width].astype(np.int64),
            "attention_mask": mask.astype(np.int64),
        }
        return named, np.asarray(indices, dtype=np.int64)


@dataclass(frozen=True)
class TokenizedTexts:
    """Texts as tokens of a tokenizer, each with a class.

    Attributes:
        inputs: Token ids of (texts, context), int32, of which each row ends with padding.
        lengths: How many ids of each row are tokens of its text.
        targets: The class of each text.
    """

    inputs: np.ndarray = field(repr=False)
    lengths: np.ndarray = field(repr=False)
    targets: np.ndarray = field(repr=False)

    @classmethod
    def of(cls, arrays: Mapping[str, np.ndarray], part: str) -> TokenizedTexts:
        """Return a part of cached arrays: train, validation or test."""
        return cls(*(arrays[f"{part}_{name}"] for name in ("inputs", "lengths", "targets")))

    def __len__(self) -> int:
        return len(self.targets)

    @property
    def num_tokens(self) -> int:
        """Tokens of all texts, without padding."""
        return int(self.lengths.sum())

    def batch(self, indices: np.ndarray) -> tuple[dict[str, np.ndarray], np.ndarray]:
        """Return `input_ids` and `attention_mask`, as long as the longest text, and targets."""
        lengths = self.lengths[indices]
        width = int(lengths.max(initial=1))
        mask = np.arange(width) < lengths[:, None]
        named = {
            "input_ids": self.inputs[indices, :width].astype(np.int64),
            "attention_mask": mask.astype(np.int64),
        }
        return named, self.targets[indices]


def token_rows(texts: Sequence[str], tokenizer: Any, context: int) -> list[list[int]]:
    """Return the token ids of each text, as a tokenizer of transformers begins and ends it.

    Args:
        texts: The texts.
        tokenizer: The tokenizer.
        context: The most tokens of a text. The end of a longer one is cut.
    """
    return tokenizer(list(texts), truncation=True, max_length=context, verbose=False)["input_ids"]


def _notes(
    texts: Sequence[str],
    tokenizer: Any,
    lengths: np.ndarray,
    places: Iterable[np.ndarray],
    context: int,
) -> list[str]:
    """Return how many texts and tokens each part has, and how many texts are cut.

    Args:
        texts: The texts.
        tokenizer: The tokenizer.
        lengths: The numbers of tokens of the texts, shape [texts], or of pairs, [pairs, 2].
        places: The places of the texts of each part: train, validation and test.
        context: The most tokens of a text.
    """
    lengths = lengths.ravel()
    notes: list[str] = []
    for part, chosen in zip(("train", "validation", "test"), places, strict=False):
        if len(chosen):
            num_tokens = format_count(int(lengths[chosen].sum()), "token")
            notes.append(f"{part}: {format_count(len(chosen), 'text')}, {num_tokens}")
    full = [texts[int(place)] for place in np.flatnonzero(lengths == context)]
    whole = [len(row) for row in tokenizer(full, verbose=False)["input_ids"]] if full else []
    if cut := [length for length in whole if length > context]:
        notes.append(
            f"{format_count(len(cut), 'text has', 'texts have')} more than {context:,} tokens, the"
            f" longest {max(cut):,}. The rest is cut. To keep it, raise data.context"
        )
    return notes


def _tokenized(texts: Sequence[str], tokenizer: Any, context: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the token ids of texts, padded to the same length, and the length of each text."""
    rows = token_rows(texts, tokenizer, context)
    inputs = np.zeros((len(rows), context), dtype=np.int32)
    for number, row in enumerate(rows):
        inputs[number, : len(row)] = row
    lengths = np.array([len(row) for row in rows], dtype=np.int64)
    if not lengths.all():
        raise DataError(
            f"{(lengths == 0).sum()} texts have no token",
            field="data.path",
            next_step="Remove empty texts.",
        )
    return inputs, lengths


def _functions() -> tuple[list[str], list[str], np.ndarray]:
    """Return the functions of the largest packages of the standard library, and their packages."""
    folder = Path(sysconfig.get_path("stdlib"))
    functions = {
        package.name: [
            function
            for file in sorted(package.rglob("*.py"))
            if not {"test", "tests"} & set(file.parts)
            for function in _functions_of(file)
        ]
        for package in sorted(folder.iterdir())
        if (package / "__init__.py").exists() and package.name not in _LEFT_OUT
    }
    names = sorted(sorted(functions, key=lambda name: (-len(functions[name]), name))[:_NUM_CLASSES])
    texts: list[str] = []
    targets: list[int] = []
    for number, name in enumerate(names):
        kept = functions[name][:_MAX_TEXTS_OF_CLASS]
        texts += kept
        targets += [number] * len(kept)
    return texts, names, np.array(targets, dtype=np.int64)


def _functions_of(file: Path) -> list[str]:
    try:
        source = file.read_text(encoding="utf-8")
        nodes = list(ast.walk(ast.parse(source)))
    except (OSError, ValueError, SyntaxError):
        return []
    lines = source.splitlines()
    return [
        "\n".join(lines[node.lineno - 1 : node.end_lineno])
        for node in nodes
        if isinstance(node, ast.FunctionDef) and (node.end_lineno or 0) - node.lineno >= _MIN_LINES
    ]
