"""Reads conversations from files: messages, prompts with answers, plain texts, or pairs of answers.

The names of columns that people use are known here. How a conversation becomes tokens is left to
`chat_tokens`.
"""

from __future__ import annotations

import bz2
import csv
import gzip
import io
import json
import lzma
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NoReturn

from workbench.foundation.errors import DataError, first_line_of

ENDINGS = (".jsonl", ".ndjson", ".json", ".parquet", ".csv", ".tsv")
"""The endings of files with conversations. Text may also be compressed, as in .jsonl.gz."""
_OPENERS: dict[str, Callable[..., Any]] = {".gz": gzip.open, ".bz2": bz2.open, ".xz": lzma.open}
_BEGINNINGS = {
    b"\x1f\x8b": "Name a compressed file after what it contains, such as train.jsonl.gz.",
    b"BZh": "Name a compressed file after what it contains, such as train.jsonl.bz2.",
    b"\xfd7zXZ": "Name a compressed file after what it contains, such as train.jsonl.xz.",
    b"PAR1": "Name a Parquet file train.parquet.",
}
"""What files of other kinds start with, and what to do with them."""
_MESSAGES = ("messages", "conversations", "conversation", "dialogue", "dialog", "chat", "turns")
_PROMPTS = ("prompt", "instruction", "question", "query", "user", "input", "problem")
_ANSWERS = (
    "completion",
    "response",
    "answer",
    "output",
    "chosen",
    "assistant",
    "target",
    "solution",
    "reply",
)
_CHOSEN = ("chosen", "preferred", "accepted")
_REJECTED = ("rejected", "dispreferred")
_CONTEXTS = ("input", "context")
_TEXTS = ("text", "content", "document")
_FILLED = frozenset((*_MESSAGES, *_PROMPTS, *_ANSWERS, *_TEXTS))
"""The columns that must not be empty if an entry has nothing else."""
_ROLE_KEYS = ("role", "from", "speaker")
_CONTENT_KEYS = ("content", "value", "text")
_WEIGHT_KEYS = ("weight", "train")
_ROLES = {
    "human": "user",
    "prompter": "user",
    "customer": "user",
    "gpt": "assistant",
    "bot": "assistant",
    "model": "assistant",
    "chatbot": "assistant",
    "chatgpt": "assistant",
    "ai": "assistant",
}
_ALLOWED = (
    "messages with role and content, a prompt and an answer, or a text. Known names:"
    f" {', '.join(_MESSAGES)}; {', '.join(_PROMPTS)} with {', '.join(_ANSWERS)};"
    f" {', '.join(_TEXTS)}"
)
_ALLOWED_PAIRS = (
    "a prompt with chosen and rejected, or chosen and rejected as whole conversations. Known names:"
    f" {', '.join(_PROMPTS)}; {', '.join(_CHOSEN)}; {', '.join(_REJECTED)}"
)
_NO_ANSWER = "?"
"""Stands for the answer of a prompt that has none yet."""
ANSWERS = "assistant"
"""The role of messages that a model learns to write."""
USUAL_ROLES = ("system", "developer", "user", ANSWERS, "tool")
"""The roles that most chat templates know."""
_OF_ANSWERS = ("tool_calls", "function_call", "reasoning_content", "reasoning", "thinking")
"""What an answer may have instead of content."""
_ESCAPED_HALF = "\\ud"
"""How JSON writes halves of a character such as an emoji. Two halves in a row are one character."""
_KINDS = {"str": "a text", "int": "a number", "float": "a number", "NoneType": "null"}
_KINDS["bool"] = "true or false"
"""What values of Python are called in a file."""


@dataclass(frozen=True)
class Conversation:
    """One conversation, or one plain text.

    Attributes:
        place: Where it is written, such as train.jsonl, line 3.
        messages: Its messages, each with `role` and `content`. Empty for a plain text.
        is_counted: For each message, whether its loss may count.
        text: The plain text, if it has no messages.
        tools: The tools that the assistant may call, as the chat template takes them.
    """

    place: str
    messages: tuple[dict[str, Any], ...] = ()
    is_counted: tuple[bool, ...] = ()
    text: str = ""
    tools: Any = None

    @property
    def identity(self) -> str:
        """The text of the conversation without case and spacing, to find duplicates."""
        parts = [self.text]
        for item in self.messages:
            parts.append(f"{item['role']}: {item['content']}")
            parts += [json.dumps(item[name], default=str) for name in _OF_ANSWERS if name in item]
        return " ".join(" ".join(parts).casefold().split())


@dataclass(frozen=True)
class Preference:
    """Two answers to the same prompt, of which people or a model prefer one.

    Attributes:
        chosen: The conversation with the better answer. Only messages after the prompt count.
        rejected: The conversation with the other answer.
    """

    chosen: Conversation
    rejected: Conversation

    @property
    def identity(self) -> str:
        """The text of the prompt without case and spacing. Pairs of one prompt are related."""
        return Conversation("", self.chosen.messages[: self._num_shared]).identity

    @property
    def tools(self) -> Any:
        """The tools that the assistant may call."""
        return self.chosen.tools

    @property
    def _num_shared(self) -> int:
        return _num_shared(self.chosen.messages, self.rejected.messages)


def read_conversations(path: Path, *, field: str) -> list[Conversation]:
    """Read all conversations of a file.

    Args:
        path: A file with one of `ENDINGS`.
        field: The dotted field that contains the path.

    Raises:
        DataError: If the file cannot be read, or an entry is no conversation.
    """
    conversations = [
        _conversation(record, place, field) for record, place in _records(path, field=field)
    ]
    if not conversations:
        raise DataError(f"{path} has no conversations", field=field, allowed=_ALLOWED)
    return conversations


def read_prompts(path: Path) -> list[Conversation]:
    """Read what a model is to answer: prompts, conversations without their last answer, or texts.

    Args:
        path: A file as `read_conversations` takes it, or a .txt file with a prompt on each line.

    Raises:
        DataError: If it cannot be read, or an entry is no prompt. It contains the place.
    """
    if path.suffix.lower() == ".txt":
        lines = path.read_text(encoding="utf-8-sig").splitlines()
        given = [(line, f"{path.name}, line {number}") for number, line in enumerate(lines, 1)]
        return [prompt_of(line, place) for line, place in given]
    return [prompt_of(record, place) for record, place in _records(path, field="")]


def prompt_of(record: Any, place: str) -> Conversation:
    """Return what a model is to answer. An answer at the end is left out.

    Args:
        record: A prompt, a list of messages, or a mapping as in a file of conversations.
        place: Where it is written.

    Raises:
        DataError: If it is none of these. It contains the place.
    """
    if isinstance(record, str) or record is None:
        record = {"prompt": record}
    if isinstance(record, Mapping):
        filled = {
            name: None if isinstance(value, str) and not value.strip() else value
            for name, value in record.items()
        }
        if not {str(name).lower() for name in filled if filled[name] is not None} & {*_ANSWERS}:
            filled["answer"] = _NO_ANSWER
        record = filled
    conversation = _conversation(record, place, "")
    messages = list(conversation.messages)
    while messages and messages[-1]["role"] == ANSWERS:
        messages.pop()
    if not messages and not conversation.text:
        _refuse(place, "has no message before the answer", "")
    return replace(conversation, messages=tuple(messages), is_counted=(False,) * len(messages))


def unusual_roles(conversations: Iterable[Conversation]) -> dict[str, int]:
    """Return the roles that are not in `USUAL_ROLES`, with their numbers of messages."""
    roles = (item["role"] for conversation in conversations for item in conversation.messages)
    return {role: num for role, num in Counter(roles).items() if role not in USUAL_ROLES}


def read_preferences(path: Path, *, field: str) -> list[Preference]:
    """Read all pairs of answers of a file.

    Args:
        path: A file with one of `ENDINGS`.
        field: The dotted field that contains the path.

    Raises:
        DataError: If the file cannot be read, or an entry is no pair of answers.
    """
    pairs = [_preference(record, place, field) for record, place in _records(path, field=field)]
    if not pairs:
        raise DataError(f"{path} has no pairs of answers", field=field, allowed=_ALLOWED_PAIRS)
    return pairs


def _preference(record: Any, place: str, field: str) -> Preference:
    if not isinstance(record, Mapping):
        _refuse(place, f"is {_kind_of(record)}", field, _ALLOWED_PAIRS)
    names = {str(name).lower(): name for name in record}
    values = {low: record[name] for low, name in names.items() if record[name] is not None}
    chosen = next((name for name in _CHOSEN if name in values), None)
    rejected = next((name for name in _REJECTED if name in values), None)
    if chosen is None or rejected is None:
        given = ", ".join(values) or "no columns"
        _refuse(place, f"has no chosen and rejected answer: {given}", field, _ALLOWED_PAIRS)
    context = {
        name: values[name] for name in (*_PROMPTS, *_CONTEXTS, "system", "tools") if name in values
    }
    for name in (chosen, rejected):
        if isinstance(values[name], str) and not values[name].strip():
            _refuse_empty(place, name, field)
    pair = [_with_answer(context, values[name], place, field) for name in (chosen, rejected)]
    shared = _num_shared(*(conversation.messages for conversation in pair))
    if not shared:
        _refuse(place, "has answers to different prompts", field, _ALLOWED_PAIRS)
    # Answers that both conversations contain are part of the prompt.
    return Preference(
        *(replace(item, is_counted=(False,) * shared + item.is_counted[shared:]) for item in pair)
    )


def _with_answer(context: Mapping[str, Any], answer: Any, place: str, field: str) -> Conversation:
    """Return the conversation that ends with one answer of a pair."""
    if _is_whole(answer):
        others = {name: context[name] for name in ("system", "tools") if name in context}
        return _conversation({**others, "messages": answer}, place, field)
    if not any(name in context for name in _PROMPTS):
        _refuse(place, "has answers without a prompt", field, _ALLOWED_PAIRS)
    return _conversation({**context, "chosen": answer}, place, field)


def _is_whole(answer: Any) -> bool:
    """Return whether the answer of a pair is a conversation that begins with its prompt."""
    if not isinstance(answer, list) or not answer or not isinstance(answer[0], Mapping):
        return False
    role_key = next((key for key in _ROLE_KEYS if answer[0].get(key) is not None), None)
    return role_key is not None and _role_of(answer[0], role_key) != ANSWERS


def _num_shared(messages: Sequence[Any], others: Sequence[Any]) -> int:
    """Return how many messages two conversations share at their beginning."""
    pairs = zip(messages, others, strict=False)
    return next(
        (number for number, (message, other) in enumerate(pairs) if message != other),
        min(len(messages), len(others)),
    )


def _records(path: Path, *, field: str) -> Iterator[tuple[Any, str]]:
    """Yield the entries of a file, and where each is written."""
    ending = _ending_of(path)
    if ending not in ENDINGS:
        raise DataError(
            f"{path} is no file of conversations",
            field=field,
            allowed=f"{', '.join(ENDINGS)}. Text may be compressed, such as .jsonl.gz",
        )
    try:
        if ending == ".parquet":
            import pyarrow.parquet as parquet

            for number, record in enumerate(parquet.read_table(path).to_pylist()):
                yield record, f"{path.name}, row {number}"
            return
        is_table = ending in (".csv", ".tsv")
        opener = _OPENERS.get(path.suffix.lower(), open)
        with opener(path, "rt", encoding="utf-8-sig", newline="" if is_table else None) as file:
            if is_table:
                reader = csv.DictReader(file, delimiter="\t" if ending == ".tsv" else ",")
                for record in reader:
                    yield record, f"{path.name}, line {reader.line_num}"
            elif ending == ".json":
                yield from _entries_of(file.read(), path, field)
            else:
                yield from _lines_of(file, path, field)
    except UnicodeDecodeError as error:
        with path.open("rb") as opened:
            beginning = opened.read(8)
        steps = [step for mark, step in _BEGINNINGS.items() if beginning.startswith(mark)]
        raise DataError(
            f"{path} is not UTF-8 text: {first_line_of(error)}",
            field=field,
            next_step=steps[0] if steps else "Save it as UTF-8.",
        ) from error
    except (EOFError, OSError, ValueError, csv.Error, lzma.LZMAError, zlib.error) as error:
        raise DataError(
            f"{path} cannot be read: {first_line_of(error)}",
            field=field,
            next_step="Write the file again from its source.",
        ) from error


def _ending_of(path: Path) -> str:
    """Return the ending of a file that says what it contains, in lower case."""
    ending = path.suffix.lower()
    if ending not in _OPENERS:
        return ending
    inner = Path(path.stem).suffix.lower()
    return "" if inner == ".parquet" else inner  # only text is compressed as a whole


def _lines_of(lines: Iterable[str], path: Path, field: str) -> Iterator[tuple[Any, str]]:
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        place = f"{path.name}, line {number}"
        record = _parsed(line, place, field, "Write one JSON object per line.")
        if _ESCAPED_HALF in line.lower():
            _check_characters(record, place, field)
        yield record, place


def _entries_of(text: str, path: Path, field: str) -> Iterator[tuple[Any, str]]:
    first_line, _, others = text.strip().partition("\n")
    if others and first_line.startswith("{") and first_line.rstrip().endswith("}"):
        # Many programs write one object per line, and call it .json.
        yield from _lines_of(io.StringIO(text), path, field)
        return
    content = _parsed(text, str(path), field, "Write a list of JSON objects.")
    if isinstance(content, Mapping):  # such as {"data": [...]}, or a single entry
        lists = [value for value in content.values() if isinstance(value, list)]
        content = lists[0] if len(lists) == 1 and not _has_roles(lists[0]) else [content]
    if not isinstance(content, list):
        raise DataError(f"{path} is {_kind_of(content)}", field=field, allowed=_ALLOWED)
    for number, record in enumerate(content):
        place = f"{path.name}, entry {number}"
        if _ESCAPED_HALF in text.lower():
            _check_characters(record, place, field)
        yield record, place


def _has_roles(given: Any) -> bool:
    """Return whether a value is a list of messages."""
    return (
        isinstance(given, list)
        and bool(given)
        and isinstance(given[0], Mapping)
        and any(given[0].get(key) is not None for key in _ROLE_KEYS)
    )


def _parsed(text: str, place: str, field: str, next_step: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        problem = first_line_of(error)
        if isinstance(error, json.JSONDecodeError):
            problem = error.msg
        elif isinstance(error, RecursionError):
            problem = "it is nested too deeply"
        raise DataError(f"{place} is not JSON: {problem}", field=field, next_step=next_step) from (
            error
        )


def _check_characters(record: Any, place: str, field: str) -> None:
    """Check that no text of an entry has half a character, which no tokenizer can read."""
    try:
        json.dumps(record, ensure_ascii=False).encode()
    except UnicodeEncodeError as error:
        half = error.object[error.start]
        raise DataError(
            f"{place} has half a character, {half!a}",
            field=field,
            next_step="The text was cut inside of an emoji. Cut it elsewhere, or remove the half.",
        ) from error


def _kind_of(value: Any) -> str:
    name = type(value).__name__
    return _KINDS.get(name, f"a {name}")


def _conversation(record: Any, place: str, field: str) -> Conversation:
    if isinstance(record, list):
        record = {"messages": record}
    if not isinstance(record, Mapping):
        _refuse(place, f"is {_kind_of(record)}", field)
    names = {str(name).lower(): name for name in record}
    values = {low: record[name] for low, name in names.items() if record[name] is not None}
    tools = values.get("tools") or None
    lists = (_listed(values.get(name)) for name in _MESSAGES)
    listed = next((some for some in lists if some is not None), None)
    if listed is not None:
        messages = _messages(listed, place, field)
        if isinstance(values.get("system"), str) and values["system"].strip():
            messages.insert(0, ({"role": "system", "content": values["system"]}, False))
    else:
        answer = next((name for name in _ANSWERS if name in values), None)
        prompt = next((name for name in _PROMPTS if name in values and name != answer), None)
        if answer is None or prompt is None:
            empty = next((low for low in names if low not in values and low in _FILLED), None)
            return _plain_text(values, place, field, empty)
        messages = _prompt_and_answer(values, prompt, answer, place, field)
    if not messages:
        _refuse(place, "has no messages", field)
    return Conversation(
        place,
        tuple(message for message, _ in messages),
        tuple(is_counted for _, is_counted in messages),
        tools=tools,
    )


def _listed(given: Any) -> list[Any] | None:
    """Return a list, which a table may hold as JSON."""
    if isinstance(given, str) and given.lstrip().startswith("["):
        try:
            given = json.loads(given)
        except (ValueError, RecursionError):
            return None
    return given if isinstance(given, list) else None


def _plain_text(
    values: Mapping[str, Any], place: str, field: str, empty: str | None
) -> Conversation:
    """Return a text as a conversation.

    Args:
        values: The columns with a value, by their names in lower case.
        place: Where they are written.
        field: The dotted field of the file.
        empty: A column of a prompt, an answer or messages that has no value, if there is one.
    """
    name = next((name for name in _TEXTS if isinstance(values.get(name), str)), None)
    if name is None and empty is not None:
        _refuse_empty(place, empty, field)
    if name is None:
        names = ", ".join(values) or "no columns"
        _refuse(
            place, f"has neither messages, nor a prompt and an answer, nor a text: {names}", field
        )
    if not values[name].strip():
        _refuse_empty(place, name, field)
    return Conversation(place, text=values[name])


_Message = tuple[dict[str, Any], bool]


def _prompt_and_answer(
    values: Mapping[str, Any], prompt: str, answer: str, place: str, field: str
) -> list[_Message]:
    asked, answered = values[prompt], values[answer]
    if isinstance(asked, list) and isinstance(answered, list):
        # The prompt may contain earlier answers, which the model has already read.
        before = [(message, False) for message, _ in _messages(asked, place, field)]
        return before + _messages(answered, place, field)
    if not isinstance(asked, str) or not isinstance(answered, str):
        _refuse(place, f"has {prompt} and {answer} that are not both texts or both messages", field)
    if not answered.strip():
        _refuse_empty(place, answer, field)
    context = next(
        (name for name in _CONTEXTS if name not in (prompt, answer) and name in values), ""
    )
    if context and isinstance(values[context], str) and values[context].strip():
        asked = f"{asked}\n\n{values[context]}"
    messages: list[_Message] = []
    if isinstance(values.get("system"), str) and values["system"].strip():
        messages.append(({"role": "system", "content": values["system"]}, False))
    for question, reply in [*_turns_before(values.get("history")), (asked, answered)]:
        messages.append(({"role": "user", "content": question}, False))
        messages.append(({"role": ANSWERS, "content": reply}, True))
    return messages


def _turns_before(history: Any) -> list[list[str]]:
    """Return earlier prompts with their answers, as files in the format of Alpaca have them."""
    is_list = isinstance(history, list) and all(
        isinstance(turn, list) and [type(text) for text in turn] == [str, str] for turn in history
    )
    return history if is_list else []


def _messages(given: list[Any], place: str, field: str) -> list[_Message]:
    messages = []
    for number, item in enumerate(given):
        where = f"message {number}"
        if not isinstance(item, Mapping):
            _refuse(place, f"has a {where} that is not an object", field)
        role_key = next((key for key in _ROLE_KEYS if item.get(key) is not None), None)
        content_key = next((key for key in _CONTENT_KEYS if key in item), None)
        if role_key is None or (content_key is None and "tool_calls" not in item):
            _refuse(place, f"has a {where} without role and content", field)
        role = _role_of(item, role_key)
        content = item[content_key] if content_key is not None else None
        others = {
            key: value
            for key, value in item.items()
            if key not in (role_key, content_key, *_WEIGHT_KEYS) and value is not None
        }
        is_learned = _is_learned(item, where, place, field)
        message = {**others, "role": role, "content": _text_of(content, where, place, field)}
        is_counted = role == ANSWERS and is_learned
        has_more = any(others.get(name) for name in _OF_ANSWERS)
        if is_counted and not message["content"].strip() and not has_more:
            _refuse_empty(place, f"the answer in {where}", field)
        messages.append((message, is_counted))
    return messages


def _role_of(message: Mapping[str, Any], role_key: str) -> str:
    role = str(message[role_key]).strip().lower()
    return _ROLES.get(role, role)


def _is_learned(item: Mapping[str, Any], where: str, place: str, field: str) -> bool:
    """Return whether a message may count, from its weight. By default, it may."""
    for key in _WEIGHT_KEYS:
        weight = item.get(key)
        if weight is None:
            continue
        if isinstance(weight, str) or weight not in (0, 1):
            raise DataError(
                f"{place} has a {where} with {key} {weight!r}",
                field=field,
                allowed="0 or 1, false or true",
                next_step="Write 0 for answers that the model reads without learning them.",
            )
        return bool(weight)
    return True


def _text_of(content: Any, where: str, place: str, field: str) -> str:
    """Return the text of a message, which may be written in parts."""
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    if isinstance(content, list) and all(
        isinstance(part, Mapping) and isinstance(part.get("text"), str) for part in content
    ):
        return "".join(part["text"] for part in content)
    _refuse(place, f"has a {where} with content that is not text", field)


def _refuse(place: str, problem: str, field: str, allowed: str = _ALLOWED) -> NoReturn:
    raise DataError(f"{place} {problem}", field=field, allowed=allowed)


def _refuse_empty(place: str, name: str, field: str) -> NoReturn:
    raise DataError(
        f"{place}: {name} is empty", field=field, next_step="Fill it, or remove the entry."
    )
