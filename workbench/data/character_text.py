"""Text as a sequence of characters: a file, a folder, or Python's standard library."""

from __future__ import annotations

import sysconfig
from pathlib import Path

import numpy as np
from pydantic import Field, model_validator
from typing_extensions import Self

from workbench.data.cache import Cached, cached, file_stamp
from workbench.data.options import DatasetOptions, existing_path, held_out_field
from workbench.data.reading import Reading, some_of
from workbench.data.splits import Datasets, TokenSplit
from workbench.experiment.metric_declarations import Task
from workbench.foundation.errors import DataError, ExperimentError
from workbench.foundation.files import visible_below


class TextOptions(DatasetOptions):
    """A language model's corpus, in windows of characters. The targets are the next characters.

    The vocabulary is every character that occurs. The end of the text is held out, so that no
    window of validation overlaps one of train.
    """

    searchable = {
        "context": {"score_all": True},
        "stride": {},
    }

    path: Path | None = Field(
        None, description="A text file or a folder of them. By default, Python's standard library."
    )
    pattern: str = Field(
        "*", min_length=1, description="Which files of a folder, subfolders included, to read."
    )
    context: int = Field(64, ge=1, le=1_048_576, description="Characters in a window.")
    stride: int | None = Field(
        None,
        ge=1,
        description="Characters from one window to the next in train. By default, the context.",
    )
    max_characters: int = Field(1_000_000, ge=4, description="Characters that are read.")
    validation_fraction: float = Field(
        0.1, gt=0.0, lt=1.0, description="Share of the text that is held out."
    )
    score_all: bool = Field(
        False,
        description=(
            "Score all held-out characters, also those after the last whole window. This is set if"
            " the context is searched, so that all trials are scored on the same text."
        ),
    )
    test_fraction: float = held_out_field()

    @model_validator(mode="after")
    def _check_pattern(self) -> Self:
        if self.path is None and self.pattern != "*":
            raise ExperimentError(
                "needs a folder", field="pattern", next_step="Set path to a folder."
            )
        return self

    def find_task(self) -> Task:
        """Return the task, as DatasetOptions.find_task does."""
        return "language_model"

    def load(self, *, seed: int, cache: Path | None) -> Datasets:
        """Read and split the text. The seed changes nothing."""
        files = self._files()
        made = cached(
            "text",
            {"files": [file_stamp(file) for file in files], "max_characters": self.max_characters},
            lambda: _encode(files, self.max_characters),
            code=[__file__],
            folder=cache,
        )
        tokens = made.arrays["tokens"]
        # In the order of the text: train, validation, test. Random windows would overlap, and the
        # model would be validated on text that it has seen.
        end = len(tokens) - round(len(tokens) * self.test_fraction)
        num_train = round(len(tokens) * (1 - self.validation_fraction - self.test_fraction))
        train = TokenSplit(tokens[:num_train], self.context, self.stride or self.context)
        validation = self._scored(tokens[num_train:end])
        test = self._scored(tokens[end:])
        for part, split in (("train", train), ("validation", validation), ("test", test)):
            if not len(split) and (part != "test" or self.test_fraction):
                raise DataError(
                    f"{len(split.tokens)} characters of {part} are too few for a window of"
                    f" {self.context}",
                    field="data.context",
                    next_step=(
                        "Shorten context, raise max_characters or validation_fraction, or add text."
                    ),
                )
        vocabulary = tuple(made.facts["vocabulary"])
        return Datasets(
            name="text",
            task="language_model",
            train=train,
            validation=validation,
            test=test if len(test) else None,
            input_shape=(self.context,),
            num_outputs=len(vocabulary),
            vocabulary_size=len(vocabulary),
            class_names=vocabulary,
            bytes_per_target=_bytes_per_target(validation, vocabulary),
        )

    def _scored(self, tokens: np.ndarray) -> TokenSplit:
        return TokenSplit(tokens, self.context, self.context, self.score_all)

    def reading(self, *, seed: int) -> Reading:
        """Return the characters of the token ids, as DatasetOptions.reading does."""
        datasets = self.load(seed=seed, cache=None)
        indices = some_of(min(len(datasets.train), 100))
        return Reading(
            {"inputs": datasets.train.batch(indices)[0]}, indices, vocabulary=datasets.class_names
        )

    def _files(self) -> list[Path]:
        if self.path is None:
            return sorted(Path(sysconfig.get_path("stdlib")).glob("*.py"))
        path = existing_path(self.path)
        files = [path] if path.is_file() else visible_below(path, self.pattern)
        if not files:
            raise DataError(
                f"{path} holds no file that matches {self.pattern!r}", field="data.path"
            )
        return files


def _bytes_per_target(split: TokenSplit, vocabulary: tuple[str, ...]) -> float:
    """Return the bytes of the characters that a split predicts, on average."""
    end = len(split.tokens) if split.is_whole else len(split) * split.context + 1
    num_bytes = np.array([len(character.encode()) for character in vocabulary])
    return float(num_bytes[split.tokens[1:end]].mean())


def _encode(files: list[Path], max_characters: int) -> Cached:
    parts: list[str] = []
    num_missing = max_characters
    for file in files:
        try:
            with file.open(encoding="utf-8") as opened:
                parts.append(opened.read(num_missing))
        except (OSError, UnicodeDecodeError) as error:
            raise DataError(
                f"{file} cannot be read as UTF-8 text: {error}",
                field="data.path",
                next_step="Convert the file, move it away, or set pattern so that it is skipped.",
            ) from error
        num_missing -= len(parts[-1])
        if num_missing <= 0:
            break
    characters = np.frombuffer("".join(parts).encode("utf-32-le"), dtype="<u4")
    if not len(characters):
        raise DataError("the text is empty", field="data.path")
    vocabulary, tokens = np.unique(characters, return_inverse=True)
    # One byte per character, for up to 256 different ones.
    smallest = np.min_scalar_type(len(vocabulary) - 1)
    return Cached(
        {"tokens": tokens.astype(smallest)}, {"vocabulary": [chr(code) for code in vocabulary]}
    )
