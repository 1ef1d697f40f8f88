"""Models of transformers from a local folder: language models with their own loss, and others.

Nothing is downloaded, weights are read from safetensors only, and code in the folder runs only if
the user asks for it. The scores of a large vocabulary are the largest tensor of a step, so the loss
is computed for some tokens at a time, and they never exist as a whole. Others classify or embed
texts. Low-rank additions are left to `low_rank`.
"""

from __future__ import annotations

import contextlib
import json
import shutil
from collections.abc import Iterator, Mapping, Sequence
from inspect import signature
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch._guards import detect_fake_mode
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from workbench.foundation.errors import (
    ExperimentError,
    MissingDependencyError,
    first_line_of,
    install_command,
)
from workbench.hardware.performance.memory import SCORES_AT_ONCE
from workbench.models.low_rank import (
    can_write_adapter,
    merge_adapter,
    without_adapter,
    write_adapter,
)
from workbench.models.model_calls import AnswerRewards, EmbeddedPairs, TokenLosses
from workbench.models.pairing import IGNORED

FIELD = "model.path"
StoredWeights = Literal["fp32", "bf16", "nf4"]
_NUM_TRIED = 8
_TOLERANCE = 1e-3
_SAME_EXACT = 5e-5
"""Hidden states in single precision with at most this relative difference count as equal."""
_SAME_ROUNDED = 0.05
"""The same for weights in lower precision."""
_OF_TOKENIZERS = (
    "tokenizer*",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.*",
    "merges.txt",
    "chat_template*",
)
"""The files of a tokenizer in the folder of a model."""


_ENCODING = "sentence_transformers.models"
"""Where sentence-transformers has the parts of a model."""

PREFIX = "inner."
"""Where the names of weights of a `LanguageModel` differ from those that transformers gives."""


class FolderModel(nn.Module):
    """A model of transformers in a folder.

    Attributes:
        inner: The model of transformers. It has no values before `load`.
    """

    _KIND = ""
    """The class of transformers that builds the model, and the task of its adapter in PEFT."""
    _PEFT_TASK = ""

    def __init__(self, folder: Path, *, num_classes: int | None = None, **how: Any) -> None:
        """Build the model without its weights.

        Args:
            folder: The folder of the model.
            num_classes: The classes that it tells apart, if it is a classifier.
            **how: The arguments of `_from_config`.

        Raises:
            ExperimentError: If the folder holds no such model.
            MissingDependencyError: If transformers is not installed.
        """
        super().__init__()
        self._folder = folder
        self._how = {**how, "kind": self._KIND}
        self._config = read_config(folder, runs_code=how["runs_code"])
        if num_classes is not None:
            self._config.num_labels = num_classes
        is_fake = detect_fake_mode() is not None
        with contextlib.nullcontext() if is_fake else torch.device("meta"):
            self.inner: Any = _from_config(self._config, folder, **self._how)

    @property
    def config(self) -> Any:
        """The configuration of transformers."""
        return self._config

    def check_data(self, length: int, num_tokens: int) -> None:
        """Check that the model can read rows of tokens.

        Args:
            length: The most tokens of a row.
            num_tokens: Number of token ids of the tokenizer.

        Raises:
            ExperimentError: If it has too few positions, or no embedding for some token ids.
        """
        config = self._config_of_text
        longest = getattr(config, "max_position_embeddings", None)
        if longest is not None and length > longest:
            raise ExperimentError(
                f"the model reads at most {longest:,} tokens at once, but rows may have up to"
                f" {length:,}",
                field="data.sequence",
                allowed=f"at most {longest}",
            )
        if num_tokens > config.vocab_size:
            raise ExperimentError(
                f"the tokenizer has {num_tokens:,} tokens, but the model knows"
                f" {config.vocab_size:,}",
                field="data.tokenizer",
                next_step="Use the tokenizer that belongs to the model.",
            )

    def load(self, stored: StoredWeights = "fp32", *, is_pretrained: bool = True) -> str:
        """Give the model its weights. A model whose tensors are fake keeps them.

        Args:
            stored: How the weights are stored.
            is_pretrained: Whether to read the weights in the folder, or draw new ones.

        Returns:
            A line for the log of the trial.

        Raises:
            ExperimentError: If the weights cannot be read.
        """
        dtype = torch.bfloat16 if stored == "bf16" else torch.float32
        if detect_fake_mode() is not None:
            self.inner.to(dtype)
            return "weights: none, because only shapes are computed"
        if is_pretrained:
            how = {**self._how, "dtype": dtype}
            if stored == "nf4":
                how["quantization_config"] = _in_four_bits()
            self.inner = _pretrained(self._folder, self._config, **how)
            note = f"weights: {self._folder}"
            if stored != "fp32":
                note += f" in {stored}"
        else:
            self.inner = _from_config(self._config, self._folder, **self._how).to(dtype)
            note = "weights: new values"
        return note

    def train_in_single_precision(self) -> None:
        """Keep trained weights in single precision, whatever those below an adapter are stored in.

        Small updates would be lost to rounding otherwise.
        """
        for item in self.parameters():
            if item.requires_grad:
                item.data = item.data.float()

    def store_only_trained(self) -> None:
        """Leave the weights that are not trained out of checkpoints, as they are in the folder."""
        trained = {name for name, item in self.named_parameters() if item.requires_grad}

        def leave_out(_: nn.Module, state: dict[str, Any], prefix: str, __: Any) -> None:
            for name in [name for name in state if name.removeprefix(prefix) not in trained]:
                del state[name]

        def expect_no_others(_: nn.Module, keys: Any) -> None:
            keys.missing_keys[:] = [name for name in keys.missing_keys if name in trained]

        self.register_state_dict_post_hook(leave_out)
        self.register_load_state_dict_post_hook(expect_no_others)

    def write(self, folder: Path, *, has_adapter: bool, is_of_folder: bool = True) -> str:
        """Write the model and its tokenizer as transformers does, and its adapter as PEFT does.

        Args:
            folder: A folder. The model is written to `model`, an adapter also to `adapter`.
            has_adapter: Whether the model has an adapter. It is merged into the model.
            is_of_folder: Whether the weights that were not trained are those in the folder of the
                model.

        Returns:
            What was written, for readers.
        """
        about = "`model/` is the trained model for transformers."
        if has_adapter:
            about += " The adapter is merged into it"
            reason = None
            if not is_of_folder:
                reason = "it was trained on other weights than those in the folder of the model"
            elif not can_write_adapter(self.inner):
                reason = "other weights were trained as well, and PEFT cannot store them"
            if reason is None:
                (folder / "adapter").mkdir(parents=True)
                where = folder / "adapter"
                write_adapter(self.inner, where, self._folder.absolute(), self._PEFT_TASK)
                about += ", and also stored alone in `adapter/`, for PEFT."
            else:
                about += f". There is no folder with it alone, because {reason}."
            merge_adapter(self.inner)
        with _without_bars():
            self.inner.save_pretrained(str(folder / "model"))
        for name in _OF_TOKENIZERS:
            for file in self._folder.glob(name):
                shutil.copy2(file, folder / "model" / file.name)
        return about

    @property
    def _config_of_text(self) -> Any:
        return self._config.get_text_config()


class LanguageModel(FolderModel):
    """A model of transformers that predicts the next token, and the loss of its predictions.

    Attributes:
        computes_losses: Whether a call with labels returns `TokenLosses`. Otherwise it returns
            scores.
        beta: What turns differences of log-likelihoods into rewards, for pairs of answers.
    """

    _KIND = "AutoModelForCausalLM"
    _PEFT_TASK = "CAUSAL_LM"

    def __init__(self, folder: Path, *, beta: float = 0.1, **how: Any) -> None:
        """Build the model without its weights. See FolderModel."""
        super().__init__(folder, **how)
        self.computes_losses = True
        self.beta = beta
        self._heads = _ScoreRules.of(self._config)

    def load(self, stored: StoredWeights = "fp32", *, is_pretrained: bool = True) -> str:
        """Give the model its weights. See FolderModel.load."""
        note = super().load(stored, is_pretrained=is_pretrained)
        if detect_fake_mode() is None and self.computes_losses and not self._has_known_head():
            self.computes_losses = False
            note += "; the loss keeps all scores at once, as this model has its own rule for them"
        return note

    def check_packing(self) -> None:
        """Check with a few tokens that documents in a row do not see each other.

        Many models cannot begin positions again, such as recurrent ones, and those that derive
        positions from a mask. They read a row as a single document.

        Raises:
            ExperimentError: If the outputs of the second document of a row depend on the first, or
                are not those of the same document alone.
        """
        if detect_fake_mode() is not None:
            return
        was_training = self.inner.training
        self.inner.eval()
        problem = "they see each other"
        try:
            with torch.no_grad(), self._attention_of_any_device():
                # Where experts are chosen, rounding alone may choose others, but not each time.
                if any(self._separates(seed) for seed in range(3)):
                    return
        except (AttributeError, NotImplementedError, RuntimeError, TypeError) as error:
            problem = f"a test of whether they see each other failed: {first_line_of(error)}"
        finally:
            self.inner.train(was_training)
        raise ExperimentError(
            f"{type(self.inner).__name__} cannot train several conversations in a row: {problem}",
            field="data.packing",
            allowed="false",
            next_step="Set packing: false.",
        )

    def _separates(self, seed: int) -> bool:
        """Return whether the second of two documents gets the outputs that it gets alone."""
        device = next(self.inner.parameters()).device
        longest = getattr(self._config_of_text, "max_position_embeddings", None) or 2 * _NUM_TRIED
        length = max(1, min(_NUM_TRIED, longest // 2))
        draw = torch.Generator().manual_seed(seed)
        size = (3, length)
        tokens = torch.randint(self._config_of_text.vocab_size, size, generator=draw).to(device)
        first, other, second = tokens.split(1)
        rows = torch.cat([torch.cat([first, other]), second.expand(2, -1)], dim=1)
        positions = torch.arange(length, device=device).repeat(2, 2)
        given = {"input_ids": rows, "position_ids": positions, "use_cache": False}
        packed = self.inner.base_model(**given)[0][:, length:].float()
        alone = self.inner.base_model(input_ids=second, use_cache=False)[0].float()
        is_exact = all(item.dtype == torch.float32 for item in self.inner.parameters())
        limit = (_SAME_EXACT if is_exact else _SAME_ROUNDED) * float(alone.abs().max())
        return not bool((packed - alone).abs().max() > limit)

    @contextlib.contextmanager
    def _attention_of_any_device(self) -> Iterator[None]:
        """Compute attention in a way that needs no GPU."""
        chosen = self._attention
        if chosen in (None, "eager", "sdpa"):
            yield
            return
        self.inner.set_attn_implementation("eager")
        try:
            yield
        finally:
            self.inner.set_attn_implementation(chosen)

    @property
    def _attention(self) -> str | None:
        """How transformers computes attention."""
        return getattr(self.inner.config, "_attn_implementation", None)

    def forward(
        self,
        input_ids: Tensor,
        position_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        labels: Tensor | None = None,
        *,
        num_scores: int | None = None,
    ) -> Any:
        """Return the losses of the labels, or the scores of the next token at each position.

        Args:
            input_ids: Token ids of (batch, length). Or of (batch, 2, length) for pairs of answers,
                with labels of the same shape.
            position_ids: Positions of (batch, length). Where they begin again at 0, another
                document begins, which does not see the one before.
            attention_mask: 1 for tokens and 0 for padding, of (batch, length).
            labels: The next token at each position, -100 where it does not count.
            num_scores: How many of the last positions need scores. Some models compute all of them
                anyway. By default, all do.

        Returns:
            `AnswerRewards` for pairs of answers, `TokenLosses` with labels, and otherwise the
            outputs of transformers with `logits`.
        """
        if input_ids.ndim == 3:
            assert labels is not None
            return self._rewards(input_ids.flatten(0, 1), labels.flatten(0, 1))
        given: dict[str, Any] = {"input_ids": input_ids, "use_cache": False}
        if position_ids is not None:
            given["position_ids"] = position_ids
        if attention_mask is not None:
            given["attention_mask"] = attention_mask
        if position_ids is not None and "flash" in (self._attention or ""):
            # It only separates the documents of a batch with a single row. All rows can be one,
            # because positions begin again with each.
            given |= {name: given[name].reshape(1, -1) for name in ("input_ids", "position_ids")}
        if num_scores is not None and "logits_to_keep" in signature(self.inner.forward).parameters:
            given["logits_to_keep"] = num_scores
        if labels is None or not self.computes_losses:
            outputs = self.inner(**given)
            if given["input_ids"].shape != input_ids.shape:
                outputs.logits = outputs.logits.reshape(*input_ids.shape, -1)
            return outputs
        hidden = self.inner.base_model(**given)[0]
        return self._losses(hidden.flatten(0, 1), labels.flatten())

    def _rewards(self, tokens: Tensor, labels: Tensor) -> AnswerRewards:
        """Return the rewards of pairs of answers, which are neighbours of (2 pairs, length).

        The reference is the model without its adapter.
        """
        trained = self._log_likelihoods(tokens, labels)
        with torch.no_grad(), without_adapter(self.inner):
            reference = self._log_likelihoods(tokens, labels)
        rewards = (self.beta * (trained - reference)).view(-1, 2)
        # Copies, because the hooks of fsdp do not work on views.
        return AnswerRewards(rewards[:, 0].clone(), rewards[:, 1].clone())

    def _log_likelihoods(self, tokens: Tensor, labels: Tensor) -> Tensor:
        """Return the log-likelihood of the labels that count in each row, in nats."""
        wanted = labels.flatten()
        if self.computes_losses:
            hidden = self.inner.base_model(input_ids=tokens, use_cache=False)[0]
            losses, _ = self._token_losses(hidden.flatten(0, 1), wanted)
        else:
            scores = self.inner(input_ids=tokens, use_cache=False).logits.flatten(0, 1).float()
            losses = _token_losses(scores, wanted)
        return -losses.view(labels.shape).sum(dim=1)

    def _losses(self, hidden: Tensor, labels: Tensor) -> TokenLosses:
        losses, is_right = self._token_losses(hidden, labels)
        return TokenLosses(losses.sum(), (labels != IGNORED).sum(), is_right.sum())

    def _token_losses(self, hidden: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        """Return the loss of each token, and whether it has the best score, for some at a time."""
        head = self.inner.get_output_embeddings()
        size = max(1, SCORES_AT_ONCE // self._config_of_text.vocab_size)
        parts = []
        for first in range(0, len(labels), size):
            some, wanted = hidden[first : first + size], labels[first : first + size]
            if len(labels) > size and torch.is_grad_enabled():
                # The scores are computed again in the backward pass.
                parts.append(checkpoint(self._part, head, some, wanted, use_reentrant=False))
            else:
                parts.append(self._part(head, some, wanted))
        losses, are_right = (torch.cat(column) for column in zip(*parts, strict=True))
        return losses, are_right

    def _part(self, head: nn.Module, hidden: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        """Return the loss of some tokens, and whether each has the best score."""
        scores = self._heads.scores(head, hidden).float()
        return _token_losses(scores, labels), scores.detach().argmax(dim=-1) == labels

    def _has_known_head(self) -> bool:
        """Return whether scores are computed as `_ScoreRules` says, from a few tokens."""
        tokens = torch.arange(_NUM_TRIED).reshape(1, -1) % self._config_of_text.vocab_size
        was_training = self.inner.training
        self.inner.eval()
        try:
            with torch.no_grad():
                wanted = self.inner(input_ids=tokens, use_cache=False).logits.float()
                hidden = self.inner.base_model(input_ids=tokens, use_cache=False)[0]
                scores = self._heads.scores(self.inner.get_output_embeddings(), hidden).float()
        except (AttributeError, TypeError, RuntimeError):
            return False
        finally:
            self.inner.train(was_training)
        scale = max(1.0, float(wanted.abs().max()))
        return scores.shape == wanted.shape and bool(
            (scores - wanted).abs().max() <= _TOLERANCE * scale
        )


class TextClassifier(FolderModel):
    """A model of transformers that gives a text scores of classes, by a new last layer."""

    _KIND = "AutoModelForSequenceClassification"
    _PEFT_TASK = "SEQ_CLS"

    def __init__(self, folder: Path, num_classes: int, **how: Any) -> None:
        """Build the model without its weights. See FolderModel."""
        super().__init__(folder, num_classes=num_classes, **how)
        # Decoders find the end of a text by its padding.
        text = self._config_of_text
        if getattr(text, "pad_token_id", None) is None:
            ending = getattr(text, "eos_token_id", None)
            first = ending[0] if isinstance(ending, list) else ending
            text.pad_token_id = first or 0
        self._config.use_cache = False

    def name_classes(self, names: Sequence[str]) -> None:
        """Give classes the names that transformers shows.

        Args:
            names: The name of each class, by number.
        """
        self.inner.config.id2label = dict(enumerate(names))
        self.inner.config.label2id = {name: number for number, name in enumerate(names)}

    @property
    def head(self) -> tuple[str, ...]:
        """The names of the parameters after the part that is common to models of its kind."""
        below = f"{self.inner.base_model_prefix}."
        names = [name for name, _ in self.inner.named_parameters()]
        return tuple(name for name in names if not name.startswith(below))

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        """Return the scores of classes, (batch, classes).

        Args:
            input_ids: Token ids of (batch, length).
            attention_mask: 1 for tokens and 0 for padding, of (batch, length).
        """
        padding = self._config_of_text.pad_token_id
        tokens = input_ids.masked_fill(attention_mask == 0, padding)
        return self.inner(input_ids=tokens, attention_mask=attention_mask).logits.float()


class TextEncoder(FolderModel):
    """A model of transformers that turns a text into a vector: the mean of its last hidden states.

    It is written such that sentence-transformers does the same.
    """

    _KIND = "AutoModel"
    _PEFT_TASK = "FEATURE_EXTRACTION"

    def __init__(self, folder: Path, temperature: float, *, context: int, **how: Any) -> None:
        """Build the model without its weights. See FolderModel.

        Args:
            folder: The folder of the model.
            temperature: By which cosines are divided.
            context: The most tokens of a text.
            **how: As in FolderModel.
        """
        super().__init__(folder, **how)
        self._config.use_cache = False
        self._temperature = temperature
        self._context = context

    def write(self, folder: Path, *, has_adapter: bool, is_of_folder: bool = True) -> str:
        """Write the model. See FolderModel.write."""
        about = super().write(folder, has_adapter=has_adapter, is_of_folder=is_of_folder)
        written = folder / "model"
        pooling = {
            "word_embedding_dimension": self._config_of_text.hidden_size,
            "pooling_mode_cls_token": False,
            "pooling_mode_mean_tokens": True,
            "pooling_mode_max_tokens": False,
        }
        reading = {"max_seq_length": self._context, "do_lower_case": False}
        modules = [
            {"idx": number, "name": str(number), "path": path, "type": f"{_ENCODING}.{kind}"}
            for number, (path, kind) in enumerate(
                (("", "Transformer"), ("1_Pooling", "Pooling"), ("2_Normalize", "Normalize"))
            )
        ]
        for name, content in (
            ("modules.json", modules),
            ("sentence_bert_config.json", reading),
            ("1_Pooling/config.json", pooling),
        ):
            file = written / name
            file.parent.mkdir(exist_ok=True)
            file.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
        (written / "2_Normalize").mkdir(exist_ok=True)
        return f"{about} sentence-transformers loads it as well."

    def load(self, stored: StoredWeights = "fp32", *, is_pretrained: bool = True) -> str:
        """Give the model its weights. See FolderModel.load."""
        note = super().load(stored, is_pretrained=is_pretrained)
        for name, item in self.inner.named_parameters():
            if "pooler" in name:  # another summary of a text, which is not used here
                item.requires_grad_(False)
        return note

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> EmbeddedPairs:
        """Return pairs of texts as vectors of length 1.

        Args:
            input_ids: Token ids of (pairs, 2, length).
            attention_mask: 1 for tokens and 0 for padding, of the same shape.
        """
        vectors = self.vectors(input_ids.flatten(0, 1), attention_mask.flatten(0, 1))
        vectors = vectors.view(len(input_ids), 2, -1)
        temperature = torch.tensor(self._temperature, device=vectors.device)
        return EmbeddedPairs(vectors[:, 0].clone(), vectors[:, 1].clone(), temperature)

    def vectors(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        """Return texts as vectors of length 1, (texts, size).

        Args:
            input_ids: Token ids of (texts, length).
            attention_mask: 1 for tokens and 0 for padding, of the same shape.
        """
        hidden = self.inner(input_ids=input_ids, attention_mask=attention_mask)[0].float()
        weights = attention_mask[..., None].to(hidden)
        mean = (hidden * weights).sum(dim=1) / weights.sum(dim=1)
        return functional.normalize(mean, dim=1)


def _token_losses(scores: Tensor, labels: Tensor) -> Tensor:
    """Return the negative log-likelihood of each label, and 0 for those that do not count."""
    return functional.cross_entropy(scores, labels, reduction="none", ignore_index=IGNORED)


class _ScoreRules:
    """How a model turns hidden states into scores, from its configuration."""

    def __init__(self, factor: float, cap: float | None) -> None:
        self._factor = factor
        self._cap = cap

    @classmethod
    def of(cls, config: Any) -> _ScoreRules:
        """Return the rules of a configuration: those of Gemma, Cohere, Granite and Falcon."""
        text = config.get_text_config()
        factor = float(getattr(text, "logit_scale", None) or 1.0)
        factor /= float(getattr(text, "logits_scaling", None) or 1.0)
        factor *= float(getattr(text, "lm_head_multiplier", None) or 1.0)
        return cls(factor, getattr(text, "final_logit_softcapping", None))

    def scores(self, head: nn.Module, hidden: Tensor) -> Tensor:
        """Return the scores of the tokens of some hidden states."""
        scores = head(hidden)
        if self._factor != 1.0:
            scores = scores * self._factor
        if self._cap is not None:
            scores = torch.tanh(scores / self._cap) * self._cap
        return scores


def read_config(folder: Path, *, runs_code: bool = False) -> Any:
    """Return the configuration of a model in a folder.

    Args:
        folder: The folder.
        runs_code: Whether code in the folder may run.

    Raises:
        ExperimentError: If the folder has no configuration that transformers knows.
        MissingDependencyError: If transformers is not installed.
    """
    with _explained(folder, runs_code=runs_code):
        from transformers import AutoConfig

        return AutoConfig.from_pretrained(
            str(folder), local_files_only=True, trust_remote_code=runs_code
        )


def _from_config(config: Any, folder: Path, *, runs_code: bool, attention: str, kind: str) -> Any:
    with _explained(folder, runs_code=runs_code):
        import transformers

        return (
            getattr(transformers, kind)
            .from_config(config, trust_remote_code=runs_code, **_attention(attention))
            .float()
        )


def _in_four_bits() -> Any:
    """Return how transformers stores weights in 4 bits.

    Source: Dettmers et al., QLoRA: Efficient Finetuning of Quantized LLMs (2023).
    """
    from transformers import BitsAndBytesConfig

    has_bf16 = torch.cuda.is_available() and torch.cuda.is_bf16_supported(including_emulation=False)
    return BitsAndBytesConfig(
        load_in_4bit=True,
        bnb_4bit_quant_type="nf4",
        bnb_4bit_use_double_quant=True,
        bnb_4bit_compute_dtype=torch.bfloat16 if has_bf16 else torch.float32,
    )


def _pretrained(
    folder: Path, config: Any, *, runs_code: bool, attention: str, kind: str, **how: Any
) -> Any:
    with _explained(folder, runs_code=runs_code):
        import transformers

        loaded: Any = getattr(transformers, kind).from_pretrained(
            str(folder),
            config=config,
            local_files_only=True,
            use_safetensors=True,
            trust_remote_code=runs_code,
            output_loading_info=True,
            **_attention(attention),
            **how,
        )
    model, loading = loaded
    missing = sorted(loading["missing_keys"])
    if kind == TextClassifier._KIND:  # its last layer is new
        below = f"{model.base_model_prefix}."
        missing = [name for name in missing if name.startswith(below)]
    if kind != LanguageModel._KIND:
        missing = [name for name in missing if "pooler" not in name]
    if missing:
        raise ExperimentError(
            f"{folder} lacks weights of the model: {', '.join(missing[:3])}"
            f"{' ...' if len(missing) > 3 else ''}",
            field=FIELD,
            next_step="Give the folder of a whole model. A part of one is not enough.",
        )
    return model


def _attention(attention: str) -> dict[str, str]:
    return {} if attention == "auto" else {"attn_implementation": attention}


@contextlib.contextmanager
def _explained(folder: Path, *, runs_code: bool) -> Iterator[None]:
    """Say what is wrong with the folder of a model, instead of the error of transformers."""
    if not (folder / "config.json").is_file():
        raise ExperimentError(
            f"{folder} has no config.json",
            field=FIELD,
            allowed="the folder of a model of transformers",
            next_step=f"Relative paths start in {Path.cwd()}. Nothing is downloaded.",
        )
    config = _json(folder / "config.json")
    if "auto_map" in config and "model_type" not in config and not runs_code:
        raise _needs_code(folder)
    try:
        with _without_bars():
            yield
    except ImportError as error:
        raise MissingDependencyError(
            f"models in folders need transformers: {first_line_of(error)}",
            field=FIELD,
            next_step=f"Install it: {install_command('hf')}",
        ) from error
    except Exception as error:  # of many kinds, by model
        if "trust_remote_code" in str(error):
            raise _needs_code(folder) from error
        next_step = None
        if not list(folder.glob("*.safetensors")):
            next_step = "Convert the weights to safetensors. Pickled weights are not read."
        raise ExperimentError(
            f"transformers cannot read the model in {folder}: {first_line_of(error)}",
            field=FIELD,
            next_step=next_step,
        ) from error


@contextlib.contextmanager
def _without_bars() -> Iterator[None]:
    """Keep progress bars and reports of transformers out of the output of a command."""
    from transformers.utils import logging

    were_shown, verbosity = logging.is_progress_bar_enabled(), logging.get_verbosity()
    logging.disable_progress_bar()
    logging.set_verbosity_error()
    try:
        yield
    finally:
        logging.set_verbosity(verbosity)
        if were_shown:
            logging.enable_progress_bar()


def _needs_code(folder: Path) -> ExperimentError:
    return ExperimentError(
        f"the model in {folder} comes with its own code, which does not run by itself",
        field="model.runs_code",
        next_step="Read the .py files in the folder. If you trust them, set runs_code: true.",
    )


def _json(path: Path) -> Mapping[str, Any]:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ExperimentError(f"{path} is not JSON: {first_line_of(error)}", field=FIELD) from error
