"""Turns conversations into tokens, and finds the tokens that a model learns to write.

The chat template of the tokenizer decides how a conversation is written. The loss counts the
answers: for each message of the assistant, everything that the template writes after the prompt for
it, up to its end. Templates that mark answers themselves (`{% generation %}`) decide alone.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np

from workbench.data.chat_records import ANSWERS, Conversation
from workbench.foundation.errors import (
    DataError,
    MissingDependencyError,
    first_line_of,
    install_command,
)

LossOn = Literal["answers", "all"]
PLAIN_TEMPLATE = (
    "{{ bos_token }}"
    "{% for message in messages %}"
    "{% if not loop.first %}{{ '\\n\\n' }}{% endif %}"
    "{{ '### ' + message['role'] | capitalize + ':\\n' + message['content'] }}"
    "{% if message['role'] == 'assistant' %}{{ eos_token }}{% endif %}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '\\n\\n### Assistant:\\n' }}{% endif %}"
)
"""How conversations are written if the tokenizer has no chat template."""
_MARKS_ANSWERS = re.compile(r"\{%-?\s*generation\b")
_AT_ONCE = 1000
_OTHER_CONTENT = "\u2603 another answer \u2603"
"""Replaces an answer, to find out where the template writes it. No answer begins like it."""


class Tokens(NamedTuple):
    """One conversation as tokens.

    Attributes:
        ids: Token ids, int32.
        is_counted: Whether the loss of predicting each token counts.
    """

    ids: np.ndarray
    is_counted: np.ndarray


def padding_of(tokenizer: Any) -> int:
    """Return the token id of padding: the own one, or else the end of a text, or else 0.

    Args:
        tokenizer: A tokenizer of transformers.
    """
    known = (tokenizer.pad_token_id, tokenizer.eos_token_id, 0)
    return int(next(token for token in known if token is not None))


def load_tokenizer(folder: Path, *, field: str = "data.tokenizer") -> Any:
    """Return the tokenizer of transformers in a folder. Nothing is downloaded, and no code runs.

    Args:
        folder: The folder of a model of transformers, or of a tokenizer.
        field: The dotted field that contains the folder.

    Raises:
        DataError: If the folder has no tokenizer that can be read.
        MissingDependencyError: If transformers is not installed.
    """
    try:
        from transformers import AutoTokenizer
    except ImportError as error:
        raise MissingDependencyError(
            f"tokens of a folder need the package transformers: {first_line_of(error)}",
            field=field,
            next_step=f"Install it: {install_command('hf')}",
        ) from error
    if not folder.is_dir():
        raise DataError(
            f"{folder} is not a folder",
            field=field,
            allowed="the folder of a tokenizer of transformers",
            next_step=f"Relative paths start in {Path.cwd()}. Nothing is downloaded.",
        )
    try:
        return AutoTokenizer.from_pretrained(
            str(folder), local_files_only=True, trust_remote_code=False
        )
    except Exception as error:  # of many libraries, by kind of tokenizer
        raise DataError(
            f"{folder} has no tokenizer that can be read: {first_line_of(error)}",
            field=field,
            allowed="a folder with tokenizer.json and tokenizer_config.json",
        ) from error


def check_tokenizer_of_model(tokenizer: Path, model: Path) -> None:
    """Check that a tokenizer gives its tokens the numbers with which a model was trained.

    Another chat template and additional tokens are allowed.

    Args:
        tokenizer: The folder of the tokenizer.
        model: The folder of the model. Without a tokenizer in it, nothing is checked.

    Raises:
        DataError: If one of them cannot be read, or tokens have other numbers.
    """
    if tokenizer.resolve() == model.resolve() or not (model / "tokenizer_config.json").is_file():
        return
    given, own = (load_tokenizer(folder).get_vocab() for folder in (tokenizer, model))
    common = given.keys() & own.keys()
    num_moved = sum(given[token] != own[token] for token in common)
    if num_moved or not common:
        problem = f"{num_moved:,} of {len(common):,} tokens have another number"
        if not common:
            problem = "no token is"
        raise DataError(
            f"{tokenizer} is not the tokenizer of the model: {problem} in {model}",
            field="data.tokenizer",
            next_step="Use the tokenizer that belongs to the model, or set from_scratch: true to"
            " train new weights.",
        )


def tokenizer_files(folder: Path) -> list[Path]:
    """Return the files of a folder that a tokenizer may consist of."""
    names = ("tokenizer*", "*.jinja", "special_tokens_map.json", "vocab*", "merges*", "config.json")
    return sorted({file for name in names for file in folder.glob(name) if file.is_file()})


class ChatTokenizer:
    """The tokenizer of a model, with its chat template."""

    def __init__(self, folder: Path, *, field: str = "data.tokenizer") -> None:
        """Load a tokenizer from a folder. Nothing is downloaded, and no code in it runs.

        Args:
            folder: The folder of a model of transformers, or of a tokenizer.
            field: The dotted field that contains the folder.

        Raises:
            DataError: If the folder has no tokenizer that can be read.
            MissingDependencyError: If transformers is not installed.
        """
        loaded = load_tokenizer(folder, field=field)
        self.loaded = loaded
        self._field = field
        self.is_plain = not loaded.chat_template
        """Whether the tokenizer has no chat template, so that `PLAIN_TEMPLATE` is used."""
        if self.is_plain:
            loaded.chat_template = PLAIN_TEMPLATE
        self._special_tokens = sorted(loaded.get_added_vocab(), key=len, reverse=True)
        self._marks_answers = bool(_MARKS_ANSWERS.search(str(loaded.chat_template)))
        if loaded.eos_token_id is None:
            raise DataError(
                f"the tokenizer in {folder} has no token for the end of a text",
                field=field,
                next_step="Set eos_token in its tokenizer_config.json.",
            )

    @property
    def padding(self) -> int:
        """The token id of padding, whose loss never counts."""
        return padding_of(self.loaded)

    @property
    def num_tokens(self) -> int:
        """The number of token ids."""
        return len(self.loaded)

    def text_of(self, ids: Sequence[int]) -> str:
        """Return the text of token ids, without those that mark the ends of messages."""
        return self.loaded.decode(list(ids), skip_special_tokens=True)

    def encode_prompt(self, prompt: Conversation) -> list[int]:
        """Return the tokens after which the model writes its answer.

        Args:
            prompt: Messages of which the last is not the assistant's, or a text to continue.

        Raises:
            DataError: If the chat template cannot write it.
        """
        if prompt.messages:
            text = self._render(prompt, list(prompt.messages), add_generation_prompt=True)
            return self.loaded(text, add_special_tokens=False, verbose=False)["input_ids"]
        ids = self.loaded(prompt.text, verbose=False)["input_ids"]
        while ids and ids[-1] == self.loaded.eos_token_id:
            ids.pop()
        return ids

    def ends(self) -> set[int]:
        """Return the tokens that end an answer: of a text, and of the chat template."""
        talk = [{"role": "user", "content": "a"}, {"role": ANSWERS, "content": "b"}]
        text = self._render(Conversation("an example", tuple(talk)), talk)
        special = set(self.loaded.get_added_vocab().values())
        ids = self.loaded(text, add_special_tokens=False, verbose=False)["input_ids"]
        return {int(self.loaded.eos_token_id), *[item for item in ids if item in special][-1:]}

    def encode(self, conversations: Sequence[Conversation], loss_on: LossOn) -> list[Tokens]:
        """Return conversations as tokens.

        Args:
            conversations: The conversations.
            loss_on: Count the loss of answers only, or of all tokens. All tokens of a plain text
                count.

        Raises:
            DataError: If the chat template cannot write a conversation, or its answers cannot be
                told apart from the rest.
        """
        encoded: list[Tokens] = []
        for first in range(0, len(conversations), _AT_ONCE):
            encoded += self._encode(conversations[first : first + _AT_ONCE], loss_on)
        return encoded

    def _encode(self, conversations: Sequence[Conversation], loss_on: LossOn) -> list[Tokens]:
        written = [self._written(conversation, loss_on) for conversation in conversations]
        chats = [place for place, item in enumerate(conversations) if item.messages]
        texts = [place for place, item in enumerate(conversations) if not item.messages]
        made: dict[int, Tokens] = {}
        needs_offsets = loss_on == "answers"
        for places, is_text in ((chats, False), (texts, True)):
            if not places:
                continue
            encoded = self.loaded(
                [written[place][0] for place in places],
                add_special_tokens=is_text,  # templates write them themselves
                return_attention_mask=False,
                return_offsets_mapping=needs_offsets and not is_text,
                verbose=False,
            )
            for number, place in enumerate(places):
                ids = np.asarray(encoded["input_ids"][number], dtype=np.int32)
                is_counted = np.ones(len(ids), dtype=bool)
                if is_text and (not len(ids) or ids[-1] != self.loaded.eos_token_id):
                    ids = np.append(ids, np.int32(self.loaded.eos_token_id))
                    is_counted = np.ones(len(ids), dtype=bool)
                elif needs_offsets and not is_text:
                    is_counted = _inside(encoded["offset_mapping"][number], written[place][1])
                made[place] = Tokens(ids, is_counted)
        return [made[place] for place in range(len(conversations))]

    def _written(
        self, conversation: Conversation, loss_on: LossOn
    ) -> tuple[str, list[tuple[int, int]]]:
        """Return a conversation as text, and where the answers that count begin and end in it."""
        if not conversation.messages:
            return conversation.text, []
        messages = list(conversation.messages)
        self._check_tools(conversation, messages)
        if loss_on == "all":
            return self._render(conversation, messages), []
        if not self.loaded.is_fast:
            raise DataError(
                "this tokenizer does not say where its tokens are in a text, so answers cannot be"
                " told apart",
                field="data.loss_on",
                allowed="all",
                next_step="Use a folder with a tokenizer.json.",
            )
        if self._marks_answers:
            text, spans = self._marked(conversation, messages)
        else:
            text = self._render(conversation, messages)
            spans = [
                self._answer(conversation, messages, number, text)
                for number, message in enumerate(messages)
                if message["role"] == ANSWERS
            ]
        are_counted = [
            is_counted
            for message, is_counted in zip(messages, conversation.is_counted, strict=True)
            if message["role"] == ANSWERS
        ]
        if len(are_counted) != len(spans):  # a template may write several answers as one
            if not all(are_counted):
                self._refuse_answers(conversation, "the template joins several answers")
            return text, spans
        return text, [
            span for span, is_counted in zip(spans, are_counted, strict=True) if is_counted
        ]

    def _check_tools(self, conversation: Conversation, messages: list[Any]) -> None:
        """Check that the template writes the tools of a conversation, and the calls of them.

        Raises:
            DataError: If it leaves them out. The model would learn other answers than the file has.
        """
        plain = [
            {key: value for key, value in message.items() if key != "tool_calls"}
            for message in messages
        ]
        problem = None
        if plain != messages and self._writes_same(conversation, messages, plain):
            problem = "tool_calls"
        elif conversation.tools and self._writes_same(conversation, messages, tools=None):
            problem = "tools"
        if problem is not None:
            raise DataError(
                f"the chat template does not write the {problem} of {conversation.place}",
                field="data.path",
                next_step=(
                    f"Use a tokenizer whose template writes them, or remove {problem} from the"
                    " file."
                ),
            )

    def _writes_same(
        self,
        conversation: Conversation,
        messages: list[Any],
        others: list[Any] | None = None,
        **how: Any,
    ) -> bool:
        """Return whether other messages, or the same in another way, give the same text."""
        text = self._render(conversation, messages)
        try:
            return self._render(conversation, others or messages, **how) == text
        except DataError:  # the template needs what was left out
            return False

    def _render(self, conversation: Conversation, messages: list[Any], **how: Any) -> str:
        try:
            return self.loaded.apply_chat_template(
                messages, tokenize=False, **{"tools": conversation.tools, **how}
            )
        except Exception as error:  # a template may fail in any way, and often says why
            raise DataError(
                f"the chat template cannot write {conversation.place}: {first_line_of(error)}",
                field="data.path",
                next_step="Change the roles or the order of its messages.",
            ) from error

    def _marked(
        self, conversation: Conversation, messages: list[Any]
    ) -> tuple[str, list[tuple[int, int]]]:
        from transformers.utils.chat_template_utils import render_jinja_template

        try:
            texts, marks = render_jinja_template(
                conversations=[messages],
                tools=conversation.tools,
                chat_template=self.loaded.get_chat_template(),
                return_assistant_tokens_mask=True,
                **self.loaded.special_tokens_map,
            )
        except Exception as error:
            raise DataError(
                f"the chat template cannot write {conversation.place}: {first_line_of(error)}",
                field="data.path",
                next_step="Change the roles or the order of its messages.",
            ) from error
        return texts[0], [(int(first), int(end)) for first, end in marks[0]]

    def _answer(
        self, conversation: Conversation, messages: list[Any], number: int, text: str
    ) -> tuple[int, int]:
        """Return where an answer begins and ends in the text of its conversation."""
        after = self._render(conversation, messages[: number + 1])
        prompt = self._prompt(conversation, messages[:number])
        is_known = bool(prompt) and text.startswith(prompt) and text.startswith(after)
        if is_known and len(after) > len(prompt):
            return len(prompt), len(after)
        # The template writes the last answer or the prompt for it in another way than here, such as
        # with its reasoning. So a replaced answer shows where this one is.
        first, end = _place_of_change(text, self._render(conversation, _replaced(messages, number)))
        header = ""
        if number:
            before = self._render(conversation, messages[:number])
            header = prompt[_num_shared(before, prompt) :]
            shared = _num_shared(prompt, text)
            if shared >= _num_shared(before, prompt):
                first = min(first, shared)
        upto = messages[: number + 1]
        _, end_alone = _place_of_change(after, self._render(conversation, _replaced(upto, number)))
        ending = self._shared_ending(after[end_alone:], text[end:])
        if not ending:  # the last answer of all ends with another token than earlier ones
            ending = self._ending_before(header, text[end:])
        if first >= end + ending:
            self._refuse_answers(conversation, "the template writes one without its content")
        return first, end + ending

    def _prompt(self, conversation: Conversation, before: list[Any]) -> str:
        """Return what the template writes before an answer.

        Empty if the answer is the first message, and the template can write no prompt for it.
        """
        if before:
            return self._render(conversation, before, add_generation_prompt=True)
        from transformers.utils.chat_template_utils import render_jinja_template

        try:
            texts, _ = render_jinja_template(
                conversations=[[]],
                tools=conversation.tools,
                chat_template=self.loaded.get_chat_template(),
                add_generation_prompt=True,
                **self.loaded.special_tokens_map,
            )
        except Exception:  # many templates look at the first message
            return ""
        return texts[0]

    def _shared_ending(self, ending: str, rest: str) -> int:
        """Return how many characters two texts share, without a part of a special token."""
        num = _num_shared(ending, rest)
        for token in self._special_tokens:
            for first in range(max(0, num - len(token) + 1), num):
                if rest.startswith(token, first):
                    return first
        return num

    def _ending_before(self, header: str, rest: str) -> int:
        """Return the length of the special token that ends a message, or 0 if there is none.

        Args:
            header: What the template writes before each answer.
            rest: The text from the end of the content on.
        """
        opening = next((t for t in self._special_tokens if t and header.startswith(t)), None)
        ending = next((t for t in self._special_tokens if t and rest.startswith(t)), None)
        if opening is None or ending in (None, opening):
            return 0
        is_last_token = rest[len(ending) :].lstrip().startswith(opening)
        return len(ending) if is_last_token else 0

    def _refuse_answers(self, conversation: Conversation, problem: str) -> None:
        raise DataError(
            f"the answers in {conversation.place} cannot be told apart: {problem}",
            field="data.loss_on",
            allowed="all",
            next_step=(
                "Put {% generation %} and {% endgeneration %} around the answers in the chat"
                " template of the tokenizer."
            ),
        )


def _replaced(messages: list[Any], number: int) -> list[Any]:
    """Return messages with other content in one of them."""
    changed = {**messages[number], "content": _OTHER_CONTENT}
    return [*messages[:number], changed, *messages[number + 1 :]]


def _place_of_change(text: str, changed: str) -> tuple[int, int]:
    """Return where the part of a text begins and ends that differs from a changed text."""
    first = _num_shared(text, changed)
    longest = min(len(text), len(changed)) - first
    same_at_end = min(_num_shared(text[::-1], changed[::-1]), longest)
    return first, len(text) - same_at_end


def _num_shared(text: str, other: str) -> int:
    """Return how many characters two texts share at their beginning."""
    length = min(len(text), len(other))
    if text[:length] == other[:length]:
        return length
    return next(place for place in range(length) if text[place] != other[place])


def _inside(offsets: Sequence[tuple[int, int]], spans: Sequence[tuple[int, int]]) -> np.ndarray:
    """Return which tokens belong to one of some spans of characters.

    A token that begins before its span belongs to it, because the model must write it. One that
    ends after its span is the beginning of the next message.
    """
    places = np.asarray(offsets, dtype=np.int64).reshape(-1, 2)
    is_inside = np.zeros(len(places), dtype=bool)
    for first, end in spans:
        is_inside |= (places[:, 1] <= end) & (places[:, 1] > first)
    return is_inside
