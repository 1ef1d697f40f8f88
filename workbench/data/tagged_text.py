"""Texts with a tag for each token: a file, or Python's standard library with roles of names."""

from __future__ import annotations

import ast
import io
import keyword
import sysconfig
import tokenize
from pathlib import Path

import numpy as np
from pydantic import Field

from workbench.data.cache import Cached, cached, file_stamp
from workbench.data.options import DatasetOptions, existing_path, held_out_field
from workbench.data.reading import Reading, some_of
from workbench.data.splits import ArraySplit, Datasets
from workbench.data.tokens import encode_texts, learn_vocabulary
from workbench.experiment.metric_declarations import Task
from workbench.experiment.setting_types import TokenKind
from workbench.foundation.errors import DataError

_SPACES: TokenKind = "spaces"
IGNORED = -100
"""The tag of padding, which losses and metrics ignore."""
_NUM_LINES = 12_000
_SIGNS = {tokenize.OP: "sign", tokenize.NUMBER: "number", tokenize.STRING: "string"}

Tagged = list[tuple[list[str], list[str]]]
"""Texts as tokens and their tags."""


class TaggedTextOptions(DatasetOptions):
    """Texts whose tokens have a tag each, such as the kinds of names in sentences.

    Each line of a file has a token as its first word and the tag as its last, and an empty line
    follows each text (CoNLL). The last texts are held out, and the vocabulary comes from the
    others. Without a path, the texts are lines of Python's standard library, and the tags are the
    roles of names: parameter, method, module, ...
    """

    searchable = {"vocabulary": {}}

    path: Path | None = Field(
        None, description="A file of tokens and tags. By default, Python source."
    )
    context: int = Field(32, ge=1, le=65_536, description="Tokens of a text that are read.")
    vocabulary: int = Field(
        5_000,
        ge=3,
        le=1_000_000,
        description="Number of the most frequent tokens that are told apart.",
    )
    validation_fraction: float = Field(
        0.2, gt=0.0, lt=1.0, description="Share of the texts held out."
    )
    test_fraction: float = held_out_field()

    def find_task(self) -> Task:
        """Return the task, as DatasetOptions.find_task does."""
        return "classification"

    def load(self, *, seed: int, cache: Path | None) -> Datasets:
        """Read, split and encode the texts. The seed changes nothing."""
        path = None
        version: object = sysconfig.get_python_version()
        if self.path is not None:
            path = existing_path(self.path)
            version = file_stamp(path)
        made_from = {
            "file": version,
            "options": self.model_dump(mode="json", exclude={"path"}),
        }
        code = [__file__, str(Path(__file__).with_name("tokens.py"))]
        made = cached("tagged_text", made_from, lambda: self._encode(path), code=code, folder=cache)
        inputs, targets = made.arrays["inputs"], made.arrays["targets"]
        num_train, end = made.facts["num_train"], made.facts["num_untested"]
        names = tuple(made.facts["class_names"])
        vocabulary = tuple(made.facts["vocabulary"])
        return Datasets(
            name="tagged_text",
            task="classification",
            train=ArraySplit(inputs[:num_train], targets[:num_train]),
            validation=ArraySplit(inputs[num_train:end], targets[num_train:end]),
            test=ArraySplit(inputs[end:], targets[end:]) if end < len(inputs) else None,
            input_shape=(self.context,),
            num_outputs=len(names),
            vocabulary_size=len(vocabulary),
            class_names=names,
            target_shape=(self.context,),
            token_names=vocabulary,
        )

    def reading(self, *, seed: int) -> Reading:
        """Return how tokens become numbers, as DatasetOptions.reading does."""
        datasets = self.load(seed=seed, cache=None)
        indices = some_of(min(len(datasets.train), 500))
        inputs = datasets.train.batch(indices)[0]
        return Reading({"text": inputs}, indices, vocabulary=datasets.token_names, tokens=_SPACES)

    def _encode(self, path: Path | None) -> Cached:
        texts = _lines_of_library() if path is None else _read(path)
        num_untested = len(texts) - round(len(texts) * self.test_fraction)
        num_train = num_untested - round(len(texts) * self.validation_fraction)
        if not 0 < num_train < num_untested:
            raise DataError(f"{len(texts)} texts are too few to hold some out", field="data.path")
        vocabulary = learn_vocabulary((tokens for tokens, _ in texts[:num_train]), self.vocabulary)
        names = sorted({tag for _, tags in texts for tag in tags})
        if len(names) < 2:
            raise DataError(f"every token has the tag {names[0]!r}", field="data.path")
        numbers = {name: number for number, name in enumerate(names)}
        # The padding behind a short text counts neither for the loss nor for metrics.
        targets = np.full((len(texts), self.context), IGNORED, dtype=np.int64)
        for row, (_, tags) in enumerate(texts):
            kept = tags[: self.context]
            targets[row, : len(kept)] = [numbers[tag] for tag in kept]
        inputs = encode_texts([tokens for tokens, _ in texts], vocabulary, self.context)
        facts = {
            "class_names": names,
            "vocabulary": list(vocabulary),
            "num_train": num_train,
            "num_untested": num_untested,
        }
        return Cached({"inputs": inputs, "targets": targets}, facts)


def _read(path: Path) -> Tagged:
    """Return the texts of a file of tokens and tags."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(
            f"{path} cannot be read as UTF-8 text: {error}",
            field="data.path",
            next_step="Convert the file.",
        ) from error
    texts: Tagged = [([], [])]
    for number, line in enumerate(lines, start=1):
        words = line.split()
        if not words:
            texts.append(([], []))
        elif len(words) == 1:
            raise DataError(
                f"line {number} of {path} has a token without a tag",
                field="data.path",
                allowed="a token and its tag on each line, and an empty line after each text",
            )
        else:
            texts[-1][0].append(words[0])
            texts[-1][1].append(words[-1])
    return [text for text in texts if text[0]]


def _lines_of_library() -> Tagged:
    """Return logical lines of Python's standard library, with the roles of their tokens."""
    texts: Tagged = []
    for file in sorted(Path(sysconfig.get_path("stdlib")).glob("*.py")):
        source = file.read_text(encoding="utf-8", errors="replace")
        if source.isascii():  # otherwise columns in bytes and in characters differ
            texts += _lines_of(source)
        if len(texts) >= _NUM_LINES:
            break
    return texts[:_NUM_LINES]


def _lines_of(source: str) -> Tagged:
    try:
        roles = _roles(ast.parse(source))
        tokens = list(tokenize.generate_tokens(io.StringIO(source).readline))
    except (SyntaxError, ValueError, tokenize.TokenError):
        return []
    lines: Tagged = [([], [])]
    for token in tokens:
        if token.type == tokenize.NEWLINE:
            lines.append(([], []))
        elif token.type in _SIGNS or token.type == tokenize.NAME:
            # A file of tokens separates them by spaces, so a token must not contain any.
            text = token.string
            if " " in text or "\n" in text:
                text = '"..."'
            before = lines[-1][0][-1] if lines[-1][0] else ""
            role = {"def": "function", "class": "class"}.get(before) or roles.get(
                token.start, "module"
            )
            if token.type == tokenize.NAME and keyword.iskeyword(token.string):
                role = "keyword"
            lines[-1][0].append(text)
            lines[-1][1].append(_SIGNS.get(token.type, role))
    return [line for line in lines if len(line[0]) > 2]


def _roles(tree: ast.AST) -> dict[tuple[int, int], str]:
    """Return the role of each name by its place. Names of imports have none."""
    roles: dict[tuple[int, int], str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Name):
            written = isinstance(node.ctx, ast.Store)
            roles.setdefault((node.lineno, node.col_offset), "assigned" if written else "variable")
        elif isinstance(node, ast.Attribute):
            roles.setdefault(_place_of(node), "attribute")
        elif isinstance(node, ast.arg):
            roles[node.lineno, node.col_offset] = "parameter"
        elif isinstance(node, ast.keyword) and node.arg:
            roles[node.lineno, node.col_offset] = "argument"
        elif isinstance(node, ast.Call):
            called = node.func
            if isinstance(called, ast.Name):
                roles[called.lineno, called.col_offset] = "call"
            elif isinstance(called, ast.Attribute):
                roles[_place_of(called)] = "method"
    return roles


def _place_of(node: ast.Attribute) -> tuple[int, int]:
    return node.end_lineno or node.lineno, (node.end_col_offset or 0) - len(node.attr)
