"""Tiny language models in folders, as transformers writes them, and conversations to train them."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

CHATML = (
    "{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\n' + m['content'] + '<|im_end|>\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
WORDS = ("red", "blue", "green", "one", "two", "three", "cat", "dog", "sun", "moon")
SIZES: dict[str, Any] = {
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 320,
    "max_position_embeddings": 512,
    "bos_token_id": 0,
    "eos_token_id": 1,
    "pad_token_id": 2,
}
OPTIONS: dict[str, dict[str, Any]] = {
    "LlamaConfig": {},
    "Qwen2Config": {},
    "Qwen3Config": {"head_dim": 8},
    "MistralConfig": {"sliding_window": 8},
    "Gemma2Config": {"head_dim": 8, "sliding_window": 8, "query_pre_attn_scalar": 8},
    "Gemma3TextConfig": {"head_dim": 8, "sliding_window": 8},
    "CohereConfig": {},
    "GraniteConfig": {"logits_scaling": 3.0},
}


def write_tokenizer(folder: Path, chat_template: str | None = CHATML) -> Any:
    """Write a tokenizer of bytes and a few pairs, and return it."""
    pytest.importorskip("transformers")
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=SIZES["vocab_size"],
        special_tokens=["<s>", "</s>", "<pad>", "<|im_start|>", "<|im_end|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator([" ".join(WORDS)] * 3 + ["user assistant say"] * 3, trainer)
    made = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, bos_token="<s>", eos_token="</s>", pad_token="<pad>"
    )
    if chat_template is not None:
        made.chat_template = chat_template
    made.save_pretrained(folder)
    return made


def write_model(
    folder: Path, config: str = "LlamaConfig", chat_template: str | None = CHATML, **changed: Any
) -> Any:
    """Write a tiny model with its tokenizer, and return it."""
    transformers = pytest.importorskip("transformers")
    import torch

    options = {**SIZES, **OPTIONS.get(config, {}), **changed}
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = transformers.AutoModelForCausalLM.from_config(
            getattr(transformers, config)(**options)
        )
    model.save_pretrained(folder)
    write_tokenizer(folder, chat_template)
    return model.eval()


def write_encoder(folder: Path) -> None:
    """Write a tiny BERT, which reads texts in both directions, with its tokenizer."""
    transformers = pytest.importorskip("transformers")
    import torch

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = transformers.BertModel(transformers.BertConfig(**SIZES))
    model.save_pretrained(folder)
    write_tokenizer(folder, None)


def conversations(num: int = 60) -> list[dict[str, Any]]:
    """Return conversations of one to three turns, in which the assistant repeats the user."""
    draw = random.Random(0)
    made = []
    for _ in range(num):
        messages = []
        for _ in range(draw.randint(1, 3)):
            said = " ".join(draw.choice(WORDS) for _ in range(draw.randint(1, 6)))
            messages.append({"role": "user", "content": f"say {said}"})
            messages.append({"role": "assistant", "content": said})
        made.append({"messages": messages})
    return made


def preferences(num: int = 60) -> list[dict[str, Any]]:
    """Return prompts with two answers: the words of the user, and the same words backwards."""
    draw = random.Random(0)
    made = []
    for _ in range(num):
        said = [draw.choice(WORDS) for _ in range(draw.randint(2, 6))]
        said[-1] = next(word for word in WORDS if word != said[0])
        made.append(
            {
                "prompt": f"say {' '.join(said)}",
                "chosen": " ".join(said),
                "rejected": " ".join(reversed(said)),
            }
        )
    return made


def write_pairs(path: Path, num: int = 60) -> Path:
    """Write a table of texts and the same words in another order."""
    draw = random.Random(0)
    rows = ["anchor,positive"]
    for number in range(num):
        said = [draw.choice(WORDS) for _ in range(draw.randint(2, 6))]
        rows.append(f"say {number} {' '.join(said)},{' '.join(reversed(said))} {number}")
    path.write_text("\n".join(rows) + "\n", encoding="utf-8")
    return path


def write_lines(path: Path, records: list[dict[str, Any]]) -> Path:
    """Write records as JSON, one on each line."""
    path.write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")
    return path
