from __future__ import annotations

import gzip
import importlib.util
import itertools
import json
import lzma
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.builders.language_models import CHATML, conversations, write_lines, write_tokenizer
from workbench.data import load
from workbench.data.chat_records import Conversation, read_conversations, read_preferences
from workbench.data.chat_tokens import ChatTokenizer
from workbench.data.conversations import ConversationsOptions, PreferencesOptions
from workbench.foundation.errors import DataError, MissingDependencyError

HELLO = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello"}]
# The answers end with other tokens than the conversation, as with Phi-3.
WITH_OTHER_END = (
    "{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\n' + m['content'] + '<|im_end|>\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}"
    "{% else %}{{ eos_token }}{% endif %}"
)
# Only the last answer shows its reasoning, as with Qwen3.
WITH_REASONING = (
    "{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\n' }}"
    "{% if loop.last and m['role'] == 'assistant' %}{{ '<think>\n\n</think>\n\n' }}{% endif %}"
    "{{ m['content'] + '<|im_end|>\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
MARKED = (
    "{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\n' }}"
    "{% if m['role'] == 'assistant' %}{% generation %}{{ m['content'] + '<|im_end|>' }}"
    "{% endgeneration %}{{ '\n' }}{% else %}{{ m['content'] + '<|im_end|>\n' }}{% endif %}"
    "{% endfor %}"
)
# It cannot write a prompt without a message, as with Qwen2.5.
LOOKS_AT_FIRST = (
    "{% if messages[0]['role'] == 'system' %}{{ '' }}{% else %}{{ '<s>' }}{% endif %}" + CHATML
)
NO_SYSTEM = "{% if messages[0]['role'] == 'system' %}{{ raise_exception('No system') }}{% endif %}x"


@pytest.fixture(scope="module")
def tokenizers(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tokenizers")
    write_tokenizer(folder / "chatml")
    write_tokenizer(folder / "plain", None)
    return folder


def options(folder: Path, records: list[dict[str, Any]], tokenizers: Path, **given: Any) -> Any:
    path = write_lines(folder / "train.jsonl", records)
    return ConversationsOptions(path=path, tokenizer=tokenizers / "chatml", **given)


@pytest.mark.parametrize(
    ("record", "expected"),
    [
        ({"messages": HELLO}, HELLO),
        (
            {
                "conversations": [
                    {"from": "human", "value": "Hi"},
                    {"from": "gpt", "value": "Hello"},
                ]
            },
            HELLO,
        ),
        ({"prompt": "Hi", "completion": "Hello"}, HELLO),
        ({"Question": "Hi", "Answer": "Hello"}, HELLO),
        ({"instruction": "Hi", "input": "", "output": "Hello"}, HELLO),
        (
            {"instruction": "Add", "input": "1 2", "output": "3"},
            [{"role": "user", "content": "Add\n\n1 2"}, {"role": "assistant", "content": "3"}],
        ),
        (
            {"system": "Be brief", "prompt": "Hi", "response": "Hello"},
            [{"role": "system", "content": "Be brief"}, *HELLO],
        ),
        ({"prompt": HELLO[:1], "completion": HELLO[1:]}, HELLO),
        ({"messages": json.dumps(HELLO)}, HELLO),
        (
            {"instruction": "Bye", "output": "Ciao", "history": [["Hi", "Hello"]]},
            [*HELLO, {"role": "user", "content": "Bye"}, {"role": "assistant", "content": "Ciao"}],
        ),
        (
            {
                "messages": [
                    HELLO[0],
                    {"role": "assistant", "content": [{"type": "text", "text": "Hello"}]},
                ]
            },
            HELLO,
        ),
    ],
)
def test_usual_columns_become_messages(record, expected, tmp_path):
    [read] = read_conversations(write_lines(tmp_path / "a.jsonl", [record]), field="data.path")
    assert list(read.messages) == expected


RECORD = {"prompt": "007\u2028 \U0001f600", "answer": "1,5"}
LINE = json.dumps(RECORD).encode()


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.csv", 'prompt,answer\n007\u2028 \U0001f600,"1,5"\n'.encode()),
        ("a.tsv", "\ufeffprompt\tanswer\r\n007\u2028 \U0001f600\t1,5\r\n".encode()),
        ("a.json", json.dumps({"data": [RECORD], "version": 1}).encode() + b"\n"),
        ("a.json", json.dumps(RECORD, indent=1).encode()),
        ("a.json", json.dumps({"messages": HELLO}).encode()),
        ("lines.json", LINE + b"\n\n" + LINE + b"\n"),
        ("a.jsonl", json.dumps(RECORD, ensure_ascii=False).encode() + b"\r\n\r\n"),
        ("a.ndjson", LINE),
        ("a.jsonl.gz", gzip.compress(LINE, mtime=0)),
        ("a.JSON.xz", lzma.compress(b"[" + LINE + b"]")),
    ],
)
def test_each_kind_of_file_is_read_as_lines_are(name, content, tmp_path):
    (tmp_path / name).write_bytes(content)
    read = read_conversations(tmp_path / name, field="data.path")
    expected = HELLO
    if b"Hello" not in content:
        texts = zip(("user", "assistant"), RECORD.values(), strict=True)
        expected = [{"role": role, "content": text} for role, text in texts]
    assert [list(item.messages) for item in read] == [expected] * (2 if "lines" in name else 1)


@pytest.mark.parametrize(
    ("name", "content", "problem"),
    [
        ("a.txt", LINE, "no file of conversations.*jsonl.gz"),
        ("a.parquet.gz", LINE, "no file of conversations"),
        ("a.jsonl", b"\n", "has no conversations.*a prompt and an answer"),
        (
            "a.jsonl",
            gzip.compress(LINE, mtime=0),
            "not UTF-8.*Name a compressed file after.*jsonl.gz",
        ),
        ("a.jsonl", b'{"text": "caf\xe9"}', "not UTF-8.*Save it as UTF-8"),
        ("a.jsonl.gz", gzip.compress(LINE, mtime=0)[:-9], "cannot be read.*Write the file again"),
        ("a.jsonl.gz", LINE, "cannot be read.*Write the file again"),
        ("a.jsonl.xz", lzma.compress(LINE)[:-9], "cannot be read.*Write the file again"),
        ("a.json", b"3", "a.json is a number"),
        ("a.json", b'[{"text": "a"}, {"text": "b\\ud83d"}]', "entry 1 has half a character"),
        ("a.json", LINE + b"\n{", "line 2 is not JSON"),
    ],
)
def test_a_file_that_cannot_be_read_says_what_to_do(name, content, problem, tmp_path):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(DataError, match=problem) as caught:
        read_conversations(tmp_path / name, field="data.path")
    assert caught.value.field == "data.path"


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ('{"prompt": "a"}', "line 1 has neither messages, nor a prompt and an answer"),
        ('{"messages": [{"role": "user"}]}', "line 1 has a message 0 without role and content"),
        ('{"messages": []}', "line 1 has no messages"),
        ('{"prompt": "a", "answer": " "}', "line 1: answer is empty"),
        ('{"prompt": "a", "answer": null}', "line 1: answer is empty"),
        ('{"text": ""}', "line 1: text is empty"),
        (
            '{"messages": [{"role": "assistant", "content": null}]}',
            "line 1: the answer in message 0 is empty. Fill it, or remove the entry",
        ),
        ("not json", "line 1 is not JSON"),
        ("[" * 100_000, "line 1 is not JSON: it is nested too deeply"),
        ("NaN", "line 1 is a number"),
        ("null", "line 1 is null"),
        ('{"prompt": "a \\uD83D", "answer": "b"}', "line 1 has half a character, '.ud83d'"),
        (
            '{"messages": [{"role": "user", "content": [{"image": "a.png"}]}]}',
            "content that is not text",
        ),
        (
            '{"messages": [{"role": "assistant", "content": "a", "weight": 0.5}]}',
            "message 0 with weight 0.5",
        ),
        (
            '{"messages": [{"role": "assistant", "content": "a", "train": "0"}]}',
            "message 0 with train '0'",
        ),
    ],
)
def test_a_record_that_is_no_conversation_is_refused_with_its_line(line, problem, tmp_path):
    (tmp_path / "a.jsonl").write_text(line + "\n")
    with pytest.raises(DataError, match=problem) as caught:
        read_conversations(tmp_path / "a.jsonl", field="data.path")
    assert caught.value.field == "data.path"


@pytest.mark.parametrize(
    "answer",
    [{"content": "", "weight": 0}, {"content": None, "tool_calls": [{"function": {"name": "f"}}]}],
)
def test_an_answer_may_be_empty_if_it_calls_a_tool_or_does_not_count(answer, tmp_path):
    record = {"messages": [HELLO[0], {"role": "assistant", **answer}]}
    [read] = read_conversations(write_lines(tmp_path / "a.jsonl", [record]), field="data.path")
    assert read.messages[1]["content"] == ""


def test_roles_that_are_not_usual_are_named(tmp_path, tokenizers):
    typo = [HELLO[0], {"role": "Asistant", "content": "Hello"}]
    records = [{"messages": typo}, *conversations(9)]
    [note] = [note for note in options(tmp_path, records, tokenizers).notes() if "role" in note]
    assert "The role asistant is not usual (1 message)" in note
    records = [{"messages": [{"role": "user", "content": str(number)}]} for number in range(4)]
    with pytest.raises(DataError, match="have the role assistant; the file has user"):
        options(tmp_path, records, tokenizers).notes()


ANSWER = {"role": "assistant", "content": "Hello"}
OTHER_ANSWER = {"role": "assistant", "content": "What?"}


@pytest.mark.parametrize(
    "record",
    [
        {"prompt": "Hi", "chosen": "Hello", "rejected": "What?"},
        {"Question": "Hi", "preferred": "Hello", "dispreferred": "What?"},
        {"prompt": HELLO[:1], "chosen": [ANSWER], "rejected": [OTHER_ANSWER]},
        {"chosen": HELLO, "rejected": [HELLO[0], OTHER_ANSWER]},
        # UltraFeedback repeats the prompt, and has scores.
        {
            "prompt": "Hi",
            "chosen": HELLO,
            "rejected": [HELLO[0], OTHER_ANSWER],
            "score_chosen": 8.0,
        },
    ],
)
def test_usual_pairs_of_answers_are_read(record, tmp_path):
    [pair] = read_preferences(write_lines(tmp_path / "a.jsonl", [record]), field="data.path")
    assert pair.chosen.messages == (HELLO[0], ANSWER)
    assert pair.rejected.messages == (HELLO[0], OTHER_ANSWER)
    assert pair.chosen.is_counted == pair.rejected.is_counted == (False, True)


def test_only_answers_that_differ_are_learned(tmp_path):
    before = [*HELLO, {"role": "user", "content": "And?"}]
    record = {"chosen": [*before, ANSWER], "rejected": [*before, OTHER_ANSWER]}
    [pair] = read_preferences(write_lines(tmp_path / "a.jsonl", [record]), field="data.path")
    assert pair.chosen.is_counted == pair.rejected.is_counted == (False, False, False, True)
    assert pair.identity == "user: hi assistant: hello user: and?"


@pytest.mark.parametrize(
    ("record", "problem"),
    [
        (
            {"prompt": "a", "chosen": "b"},
            "line 1 has no chosen and rejected answer: prompt, chosen",
        ),
        ({"chosen": "b", "rejected": "c"}, "line 1 has answers without a prompt"),
        ({"prompt": "a", "chosen": "b", "rejected": ""}, "line 1: rejected is empty"),
        ({"prompt": "a", "chosen": "b", "rejected": [ANSWER]}, "not both texts or both messages"),
        (
            {
                "chosen": [{"role": "user", "content": "hi"}, ANSWER],
                "rejected": [{"role": "user", "content": "bye"}, OTHER_ANSWER],
            },
            "line 1 has answers to different prompts",
        ),
    ],
)
def test_a_record_that_is_no_pair_is_refused_with_its_line(record, problem, tmp_path):
    path = write_lines(tmp_path / "a.jsonl", [record])
    with pytest.raises(DataError, match=problem) as caught:
        read_preferences(path, field="data.path")
    assert caught.value.field == "data.path"


def test_pairs_become_rows_of_two_answers(tmp_path, tokenizers):
    records = [
        {"prompt": f"say {number}", "chosen": "red " * (1 + number % 5), "rejected": "no"}
        for number in range(20)
        for _ in range(2)
    ]
    records += [
        {"prompt": "same", "chosen": "red", "rejected": "red"},
        {"prompt": "long " * 60, "chosen": "red", "rejected": "blue"},
    ]
    made = PreferencesOptions(
        path=write_lines(tmp_path / "pairs.jsonl", records),
        tokenizer=tokenizers / "chatml",
        sequence=64,
        validation_fraction=0.25,
    )
    datasets: Any = made.load(seed=3, cache=tmp_path)
    tokenizer = ChatTokenizer(tokenizers / "chatml")
    prompts = {}
    for part in ("train", "validation"):
        split = getattr(datasets, part)
        inputs, targets = split.batch(np.arange(len(split)))
        assert inputs["input_ids"].shape == targets.shape == (len(split), 2, targets.shape[2])
        prompts[part] = set()
        for tokens, wanted in zip(inputs["input_ids"], targets, strict=True):
            chosen, rejected = (tokenizer.loaded.decode(row[row >= 0]) for row in wanted)
            assert chosen.startswith("red")
            assert rejected == "no<|im_end|>\n"
            prompts[part].add(tokenizer.loaded.decode(tokens[0]).split("<|im_end|>")[0])
    assert len(prompts["train"]) + len(prompts["validation"]) == 20
    assert len(prompts["validation"]) >= 5
    assert not prompts["train"] & prompts["validation"]
    notes = "\n".join(made.notes())
    assert "1 pair left out: both answers are the same" in notes
    assert "1 pair left out: the answers do not differ within 64 tokens" in notes
    samples = "\n".join(made.samples())
    assert "<|im_start|>assistant\\n[[red " in samples
    assert "|| rejected: " in samples


def _counted_texts(folder: Path, messages: list[Any], are_counted: Any = None) -> list[str]:
    tokenizer = ChatTokenizer(folder)
    is_counted = are_counted or [item["role"] == "assistant" for item in messages]
    [tokens] = tokenizer.encode(
        [Conversation("here", tuple(messages), tuple(is_counted))], "answers"
    )
    edges = np.flatnonzero(np.diff(tokens.is_counted.astype(int))) + 1
    return [
        tokenizer.loaded.decode(tokens.ids[span])
        for span in np.split(np.arange(len(tokens.ids)), edges)
        if tokens.is_counted[span[0]]
    ]


# By hand, from what each template writes after its prompt for an answer.
@pytest.mark.parametrize(
    ("template", "first", "second"),
    [
        (CHATML, "Hello<|im_end|>\n", "Bye<|im_end|>\n"),
        (MARKED, "Hello<|im_end|>", "Bye<|im_end|>"),
        (WITH_OTHER_END, "Hello<|im_end|>\n", "Bye<|im_end|>\n</s>"),
        (WITH_REASONING, "Hello<|im_end|>\n", "<think>\n\n</think>\n\nBye<|im_end|>\n"),
        (None, "Hello</s>", "Bye</s>"),
    ],
    ids=["chatml", "marked", "other end", "reasoning", "no template"],
)
def test_all_answers_of_a_conversation_count_with_their_ends(template, first, second, tmp_path):
    write_tokenizer(tmp_path, template)
    messages = [
        {"role": "system", "content": "Hello"},
        *HELLO,
        {"role": "user", "content": "Hello Bye"},
        {"role": "assistant", "content": "Bye"},
    ]
    assert _counted_texts(tmp_path, messages) == [first, second]
    # An answer with weight 0 is read by the model, but not learned.
    assert _counted_texts(tmp_path, messages, [False] * 4 + [True]) == [second]


@pytest.mark.parametrize(
    ("template", "first", "second"),
    [
        (CHATML, "Welcome<|im_end|>\n", "Hello<|im_end|>\n"),
        (MARKED, "Welcome<|im_end|>", "Hello<|im_end|>"),
        (WITH_OTHER_END, "Welcome<|im_end|>\n", "Hello<|im_end|>\n</s>"),
        (LOOKS_AT_FIRST, "Welcome<|im_end|>\n", "Hello<|im_end|>\n"),
        (None, "Welcome</s>", "Hello</s>"),
    ],
    ids=["chatml", "marked", "other end", "looks at the first", "no template"],
)
def test_a_conversation_may_begin_with_an_answer(template, first, second, tmp_path):
    write_tokenizer(tmp_path, template)
    welcome = {"role": "assistant", "content": "Welcome"}
    assert _counted_texts(tmp_path, [welcome, *HELLO]) == [first, second]


CALL = {"function": {"name": "look", "arguments": {"at": "sky"}}}
WRITES_CALLS = (
    "{{ tools }}{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\n' + m['content'] }}"
    "{{ m['tool_calls'] }}{{ '<|im_end|>\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)


@pytest.mark.parametrize(
    ("left_out", "calls", "tools"),
    [("tool_calls", {"tool_calls": [CALL]}, None), ("tools", {}, [{"name": "look"}])],
)
@pytest.mark.parametrize("loss_on", ["answers", "all"])
def test_tools_that_the_template_leaves_out_are_refused(left_out, calls, tools, loss_on, tmp_path):
    messages = (HELLO[0], {"role": "assistant", "content": "Wait", **calls})
    given = [Conversation("here", messages, (False, True), tools=tools)]
    write_tokenizer(tmp_path / "plain")
    with pytest.raises(DataError, match=f"does not write the {left_out} of here"):
        ChatTokenizer(tmp_path / "plain").encode(given, loss_on)
    write_tokenizer(tmp_path / "whole", WRITES_CALLS)
    tokenizer = ChatTokenizer(tmp_path / "whole")
    [tokens] = tokenizer.encode(given, loss_on)
    assert "look" in tokenizer.loaded.decode(tokens.ids)


@pytest.mark.parametrize("packing", [False, True])
def test_tokens_that_are_no_target_do_not_count(packing, tmp_path, tokenizers):
    records = [{"text": f"{number} red green blue one two three"} for number in range(12)]
    given = options(tmp_path, records, tokenizers, sequence=12, packing=packing)
    datasets = given.load(seed=0, cache=tmp_path)
    _, targets = datasets.train.batch(np.arange(len(datasets.train)))
    num_targets = int((targets != -100).sum())
    assert datasets.train.num_tokens == num_targets
    assert datasets.tokens_per_sample == num_targets / len(datasets.train)
    notes = given.notes()
    assert any(f"{num_targets} tokens, of which {num_targets} count" in note for note in notes)
    assert all(": [[" not in sample for sample in given.samples())


def test_a_template_that_cannot_write_a_conversation_says_which(tmp_path):
    write_tokenizer(tmp_path, NO_SYSTEM)
    with pytest.raises(DataError, match="cannot write here: No system"):
        _counted_texts(tmp_path, [{"role": "system", "content": "a"}, *HELLO])


def test_a_text_counts_as_a_whole_and_continues_in_the_next_row(tmp_path, tokenizers):
    texts = [{"text": "red green blue " * 20}, {"text": "one two"}]
    given = options(tmp_path, texts, tokenizers, sequence=10, validation_fraction=0.5)
    datasets = given.load(seed=0, cache=tmp_path)
    known = ChatTokenizer(tokenizers / "chatml").loaded
    longer = max((datasets.train, datasets.validation), key=len)
    inputs, targets = zip(
        *(longer.batch(np.array([row])) for row in range(len(longer))), strict=True
    )
    whole = [*known(texts[0]["text"])["input_ids"], 1]
    rows = sorted((list(part["input_ids"][0]) for part in inputs), key=len, reverse=True)
    assert sorted(itertools.chain(*rows)) == sorted(whole[:-1])
    assert all((wanted != -100).all() for wanted in targets)


@pytest.mark.parametrize("packing", [False, True])
def test_no_duplicate_is_in_two_parts(packing, tmp_path, tokenizers):
    records = conversations(40)
    spaced = [
        {
            "messages": [
                {**item, "content": f" {item['content'].upper()} "} for item in record["messages"]
            ]
        }
        for record in records[:20]
    ]
    given = options(
        tmp_path, records + records[:10] + spaced, tokenizers, packing=packing, test_fraction=0.2
    )
    parts, _ = given._divided(read_conversations(given.path, field="data.path"), None, 3)
    texts = {name: {item.identity for item in part} for name, part in parts.items()}
    assert len(texts) == 3
    assert sum(map(len, texts.values())) == len(set.union(*texts.values()))
    assert sum(map(len, parts.values())) == 70


def test_conversations_of_the_validation_file_are_not_trained(tmp_path, tokenizers):
    records = conversations(12)
    held_out = write_lines(tmp_path / "val.jsonl", records[:4])
    given = options(tmp_path, records, tokenizers, validation=held_out)
    datasets = given.load(seed=0, cache=tmp_path)
    assert (len(datasets.train), len(datasets.validation)) == (8, 4)
    assert "4 conversations of train are left out" in given.notes()[0]


def test_conversations_without_an_answer_are_left_out_with_their_line(tmp_path, tokenizers):
    records = conversations(12)
    for number in (4, 9):
        records[number] = {"messages": records[number]["messages"][:1]}
    held_out = write_lines(tmp_path / "val.jsonl", conversations(20)[12:])
    given = options(tmp_path, records, tokenizers, validation=held_out)
    given.load(seed=0, cache=tmp_path)
    note = next(note for note in given.notes() if "left out" in note)
    assert "2 conversations left out, because no answer counts within 1,024 tokens" in note
    assert "the first is train.jsonl, line 5" in note


def test_packed_rows_hold_each_conversation_once_and_fit(tmp_path, tokenizers):
    records = conversations(80)
    plain, packed = (
        options(tmp_path, records, tokenizers, sequence=96, packing=packing).load(
            seed=0, cache=tmp_path
        )
        for packing in (False, True)
    )
    assert len(packed.train) < 0.8 * len(plain.train)
    inputs, targets = packed.train.batch(np.arange(len(packed.train)))
    assert inputs["input_ids"].shape == (len(packed.train), 96)
    rows = (packed.train.documents(row) for row in range(len(packed.train)))
    documents = sorted(tuple(ids) for row in rows for ids, _ in row)
    singles = (plain.train.documents(row) for row in range(len(plain.train)))
    assert documents == sorted(tuple(ids) for [(ids, _)] in singles)
    assert (targets != -100).sum() == sum(
        (plain.train.batch(np.array([row]))[1] != -100).sum() for row in range(len(plain.train))
    )
    # A document begins wherever positions do, and nothing is predicted across its end.
    begins = inputs["position_ids"][:, 1:] == 0
    opening = 3  # <|im_start|>, with which every conversation begins
    assert (inputs["input_ids"][:, 1:][begins] == opening).sum() > 10
    assert (targets[:, :-1][begins] != opening).all()


def test_rows_of_similar_length_follow_each_other(tmp_path, tokenizers):
    records = conversations(700)
    lengths: dict[bool, float] = {}
    for similar in (False, True):
        given = options(tmp_path, records, tokenizers, similar_lengths=similar)
        train = given.load(seed=0, cache=tmp_path).train
        from workbench.data.batches import global_batches

        batches = global_batches(
            len(train), global_batch=16, epoch=0, seed=0, shuffle=True, groups=train.shuffle_groups
        )
        sizes = [train.batch(rows)[1].size for rows in batches]
        lengths[similar] = sum(sizes) / train.num_tokens
    assert lengths[True] < 1.3 < lengths[False]


def test_two_samples_show_the_tokens_that_count_and_no_note_has_a_text(tmp_path, tokenizers):
    given = options(tmp_path, conversations(9), tokenizers)
    assert not any("say" in note for note in given.notes()), "notes are stored"
    shown = given.samples()
    assert len(shown) == 2
    for note in shown:
        assert "<|im_start|>user\\nsay " in note
        assert "<|im_start|>assistant\\n[[" in note


def test_data_without_a_tokenizer_says_where_to_get_one(tmp_path):
    path = write_lines(tmp_path / "a.jsonl", conversations(4))
    with pytest.raises(DataError, match="need the tokenizer") as caught:
        load("conversations", {"path": str(path)}, cache=tmp_path)
    assert caught.value.field == "data.tokenizer"


@pytest.mark.skipif(importlib.util.find_spec("lm_eval") is not None, reason="lm_eval is installed")
def test_tasks_without_lm_eval_say_how_to_install_it(tmp_path, tokenizers):
    made = options(tmp_path, conversations(10), tokenizers, lm_eval=["arc_easy"])
    with pytest.raises(MissingDependencyError, match="lm-eval"):
        made.check_source()
