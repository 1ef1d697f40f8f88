"""Decides what `prior: auto` means, before a run starts: where lr and the rank of an adapter begin.

With a language model in a folder, the law of adapters answers, for the rate and for the rank. With
new weights and a number of tokens, Step Law answers for the rate (see `ladder`). Other models begin
at the default rate of their optimizer. What no rule covers is refused. The sampler
relies on a prior less with every result, so trials may contradict it.

The law was fitted to trainings with alpha 32. With another alpha, the prior is wider (see
`adapter_rates`).

Source: "LoRA without regret" (Thinking Machines Lab, 2025) for full training, which needs a tenth
of the rate of an adapter.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from workbench.advisor.adapter_rates import (
    ALPHA_POWER,
    LAW_ALPHA,
    AdapterPoint,
    BestAdapter,
    shipped_law,
)
from workbench.advisor.ladder import where_to_begin
from workbench.advisor.language_models import read_language_model
from workbench.experiment import Experiment
from workbench.experiment.domain import Choice, Domain, Fixed, Prior
from workbench.experiment.space import Space
from workbench.foundation.errors import DataError, ExperimentError
from workbench.foundation.formatting import compact_count, format_count, format_number
from workbench.foundation.model_config import read_model_config
from workbench.training.planning.learning_rate import default_lr, scaled_lr

_POWER_WITHIN = 0.15
"""How far from `ALPHA_POWER` the power is in half of all cases."""
_LAW_BATCH = 128
_FULL_SHARE = 0.1
"""The best rate of a full training divided by that of an adapter."""
_FULL_WITHIN = 2.0
_TRANSFER_WITHIN = 1.5
"""The law saw one dataset, one length and one batch. Others move the best rate by about this."""
_OTHER_WITHIN = 3.0
"""How far from the default of an optimizer the best rate is in half of all cases, as a factor."""
_INSTRUCT = re.compile(r"instruct|chat|[-_]it\b|assistant|rlhf|dpo|sft", re.IGNORECASE)
_DEFAULT_RANK = 8
RATE, RANK = "lr", "adapter.rank"


@dataclass(frozen=True)
class KnownModel:
    """What the law of adapters needs to know about a language model.

    Attributes:
        parameters_b: All parameters, in billions.
        active_b: The parameters that one token uses, in billions.
        is_base: Whether it was only pretrained, not tuned to follow instructions.
        name: Its name, which says its family, or None.
    """

    parameters_b: float
    active_b: float
    is_base: bool
    name: str | None = None

    def best(self, ranks: Sequence[int]) -> BestAdapter:
        """Return where an adapter of one of these ranks begins, at alpha 32."""
        return _best(self, tuple(ranks))

    def describe(self) -> str:
        """Write its size and kind: `a base model of 1.24B parameters`."""
        kind = "a base model" if self.is_base else "an instruction-tuned model"
        active = ""
        if self.active_b < self.parameters_b:
            active = f", {compact_count(self.active_b * 1e9)} of them active"
        return f"{kind} of {compact_count(self.parameters_b * 1e9)} parameters{active}"


@lru_cache(maxsize=64)
def _best(model: KnownModel, ranks: tuple[int, ...]) -> BestAdapter:
    point = AdapterPoint(
        model.parameters_b, model.active_b, model.is_base, 1e-3, 1, model=model.name
    )
    return shipped_law().best(point, ranks)


def rate_at(best: BestAdapter, alpha: float) -> tuple[float, float]:
    """Return the rate at which an adapter begins, and how sure that is.

    Args:
        best: Where the adapter begins at alpha 32.
        alpha: The alpha of the adapter, above 0. For rsLoRA, alpha times the root of the rank.

    Returns:
        The rate, and the factor within which the best rate is in half of all cases.
    """
    ratio = LAW_ALPHA / alpha
    own = math.log(best.high / best.low) / 2
    within = math.exp(math.hypot(own, math.log(_TRANSFER_WITHIN)))
    power_within = max(ratio, 1 / ratio) ** _POWER_WITHIN
    return best.learning_rate * ratio**ALPHA_POWER, within * power_within


def read_known_model(folder: Path) -> KnownModel:
    """Read what kind of language model is in a folder. No weights are opened.

    A model counts as tuned to follow instructions if its name says so, or if it has a chat template
    and its name does not say that it is a base model.

    Args:
        folder: The folder of a model of transformers.

    Raises:
        DataError: If it has no `config.json`, or one without the sizes.
    """
    plan = read_language_model(folder)
    config = read_model_config(folder)
    name = f"{config.get('_name_or_path') or ''} {folder.resolve().name}"
    parameters_b = plan.parameters_b or 0.0
    is_tuned = bool(_INSTRUCT.search(name))
    if not is_tuned and not re.search(r"base|\bpt\b", name, re.IGNORECASE):
        is_tuned = _has_chat_template(folder)
    active_b = _active_b(config, parameters_b, plan.hidden)
    own_name = str(config.get("_name_or_path") or folder.resolve().name)
    return KnownModel(parameters_b, active_b, not is_tuned, own_name)


def _has_chat_template(folder: Path) -> bool:
    if (folder / "chat_template.jinja").exists() or (folder / "chat_template.json").exists():
        return True
    try:
        written = json.loads((folder / "tokenizer_config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    return isinstance(written, dict) and bool(written.get("chat_template"))


def _active_b(config: Any, parameters_b: float, hidden: float | None) -> float:
    """Return the parameters without the experts that a token does not use, in billions."""
    num_experts = config.get("num_local_experts") or config.get("num_experts") or 0
    used = config.get("num_experts_per_tok") or num_experts
    width = config.get("moe_intermediate_size") or config.get("intermediate_size") or 0
    layers = config.get("num_hidden_layers") or 0
    if not num_experts or not hidden:
        return parameters_b
    unused = max(0, num_experts - used) * layers * 3 * hidden * width / 1e9
    return max(parameters_b - unused, 0.0)


def with_auto_priors(experiment: Experiment) -> Experiment:
    """Return an experiment whose priors all have values.

    Args:
        experiment: An experiment. Without `prior: auto` it is returned as it is.

    Raises:
        ExperimentError: If nothing is known about a parameter with `prior: auto`.
    """
    names = [
        name
        for name, domain in experiment.search.root.items()
        if not isinstance(domain, Fixed) and domain.prior == "auto"
    ]
    if not names:
        return experiment
    searched = dict(experiment.search.root)
    beginning = _Beginning(experiment)
    for name in names:
        domain: Any = searched[name]
        searched[name] = domain.model_copy(update={"prior": beginning.prior_of(name, domain)})
    return experiment.model_copy(update={"search": Space(searched)})


def describe_priors(experiment: Experiment) -> list[str]:
    """Return one line for each prior that workbench decided.

    Args:
        experiment: As `with_auto_priors` returns it.
    """
    lines = []
    for name, domain in experiment.search.root.items():
        prior = None if isinstance(domain, Fixed) else domain.prior
        if not isinstance(prior, Prior) or prior.because is None:
            continue
        within = ""
        if prior.within is not None and getattr(domain, "log", False):
            within = f", in half of all cases within a factor of {prior.within:.2g}"
        lines.append(f"prior of {name}: {_written(prior.near)}{within}: {prior.because}")
    return lines


def _written(value: Any) -> str:
    return format_number(value) if isinstance(value, int | float) else str(value)


class _Beginning:
    """What is known about the training of one experiment."""

    def __init__(self, experiment: Experiment) -> None:
        self._experiment = experiment
        self._training, self._searched = experiment.training, experiment.search.root

    def prior_of(self, name: str, domain: Domain) -> Prior:
        """Return the prior of a parameter, at a value of its domain."""
        if name not in (RATE, RANK):
            raise ExperimentError(
                "nothing is known about this parameter before the first trial",
                field=f"search.{name}.prior",
                allowed=f"auto for {RATE} and {RANK}",
                next_step="Give a value that is probably good: prior: {near: ...}.",
            )
        folder = language_model_folder(self._experiment)
        if folder is None or self._is_new():
            return self._of_other_model(name, domain)
        self._check_optimizer(name)
        try:
            model = read_known_model(folder)
        except DataError as error:
            raise ExperimentError(
                f"no prior can be derived from {folder}: {error}",
                field=f"search.{name}.prior",
                next_step="Give a value that is probably good: prior: {near: ...}.",
            ) from error
        best = model.best(self._ranks())
        if name == RANK:
            because = f"by trainings of 18 language models, for {model.describe()}"
            if best.rank == max(self._ranks()):
                because += (
                    ". Higher ranks reached a lower loss, so the first trials rarely try others"
                )
            return Prior(near=_nearest(domain, best.rank), because=because)
        rate, within = rate_at(best, LAW_ALPHA)
        how = f"by trainings of 18 language models, for {model.describe()}"
        if self._has_adapter():
            alpha = self._alpha(best.rank)
            rate, within = rate_at(best, alpha)
            how += f", rank {best.rank} and alpha {format_number(alpha)}"
        else:
            rate *= _FULL_SHARE
            within *= _FULL_WITHIN
            how += ", with a tenth of the rate of an adapter because all weights are trained"
        at_reference = scaled_lr(
            rate,
            optimizer=self._training.optimizer,
            rule=self._training.lr_rule if self._training.lr_rule != "adascale" else "auto",
            from_batch=_LAW_BATCH,
            to_batch=self._training.reference_batch,
        )
        return _prior_near(domain, at_reference, within, how)

    def _of_other_model(self, name: str, domain: Domain) -> Prior:
        """Return the prior of a model that is not a language model, where a rule is known."""
        if name == RANK or self._has_adapter():
            raise ExperimentError(
                "priors of adapters are only known for language models of transformers, from the"
                " config.json in their folder",
                field=f"search.{name}.prior",
                next_step=(
                    "Name the folder in model.path or training.weights, or give a value:"
                    " prior: {near: ...}."
                ),
            )
        if "optimizer" in self._searched:
            raise self._refusal(name, "optimizer", "each optimizer has its own default rate")
        optimizer = self._training.optimizer
        if (pretraining := self._of_pretraining(domain)) is not None:
            return pretraining
        why = f"the usual rate of {optimizer}, because no law is known for this kind of model"
        return _prior_near(domain, default_lr(optimizer), _OTHER_WITHIN, why)

    def _of_pretraining(self, domain: Domain) -> Prior | None:
        """Return the prior of a language model that is trained from new weights, if it is known."""
        folder, tokens = language_model_folder(self._experiment), self._training.tokens
        if folder is None or tokens is None or "adam" not in self._training.optimizer.lower():
            return None
        parameters_b = read_known_model(folder).parameters_b
        rate = where_to_begin(parameters_b * 1e9, float(tokens)).learning_rate
        size = f"{compact_count(parameters_b * 1e9)} parameters"
        how = f"by Step Law, for a pretraining of {size} on {format_count(tokens)} tokens"
        return _prior_near(domain, rate, _FULL_WITHIN, how)

    def _check_optimizer(self, name: str) -> None:
        if "optimizer" in self._searched:
            raise self._refusal(name, "optimizer", "the rates are known for Adam only")
        if "adam" not in self._training.optimizer.lower():
            raise ExperimentError(
                f"the rates of language models are known for Adam, not for"
                f" {self._training.optimizer}",
                field=f"search.{name}.prior",
                next_step="Use adamw, or give a value: prior: {near: ...}.",
            )

    def _is_new(self) -> bool:
        """Return whether the model begins with new weights, about which the law says nothing."""
        model = self._experiment.model
        return model is not None and bool(model.options.get("from_scratch"))

    def _has_adapter(self) -> bool:
        """Return whether every trial trains an adapter.

        Raises:
            ExperimentError: If only some trials do.
        """
        searched = self._searched.get("adapter")
        options = [name for name in self._searched if name.startswith("adapter.")]
        if searched is None:
            return bool(options) or self._training.adapter is not None
        values = searched.values() or []
        num_without = sum(value is None for value in values)
        if 0 < num_without < len(values):
            raise self._refusal(RATE, "adapter", "trials without an adapter need another rate")
        return num_without == 0

    def _alpha(self, rank: int) -> float:
        """Return the alpha that scales additions as much as `alpha / rank` does."""
        if "adapter.alpha" in self._searched:
            raise self._refusal(RATE, "adapter.alpha", "the best rate depends on alpha")
        if "adapter.kind" in self._searched:
            raise self._refusal(RATE, "adapter.kind", "each kind scales its additions differently")
        for options in self._adapters():
            alpha = options.get("alpha")
            own_rank = options.get("rank", rank)
            alpha = float(2 * own_rank if alpha is None else alpha)
            # rsLoRA divides by the square root of the rank, so its additions are larger.
            return alpha * math.sqrt(own_rank) if options.get("kind") == "rslora" else alpha
        return 2.0 * rank

    def _ranks(self) -> Sequence[int]:
        """Return the ranks that trials may have."""
        domain = self._searched.get(RANK)
        if domain is not None:
            low, high = getattr(domain, "low", None), getattr(domain, "high", None)
            if low is not None and high is not None:
                powers = [2**power for power in range(11)]
                return [int(low), *(rank for rank in powers if low < rank < high), int(high)]
            ranks = [value for value in domain.values() or [] if isinstance(value, int)]
        else:
            ranks = [options.get("rank", _DEFAULT_RANK) for options in self._adapters()]
        return ranks or [_DEFAULT_RANK]

    def _adapters(self) -> list[dict[str, Any]]:
        """Return the options of every adapter that trials may train."""
        searched = self._searched.get("adapter")
        given = [self._training.adapter] if searched is None else list(searched.values() or [])
        return [
            dict(item) if isinstance(item, dict) else item.model_dump(exclude_unset=True)  # type: ignore[union-attr]
            for item in given
            if item is not None
        ]

    def _refusal(self, name: str, other: str, why: str) -> ExperimentError:
        return ExperimentError(
            f"{other} is searched, and {why}",
            field=f"search.{name}.prior",
            next_step=f"Fix {other}, or give a value: prior: {{near: ...}}.",
        )


def language_model_folder(experiment: Experiment) -> Path | None:
    """Return the folder of the language model that an experiment trains, or None.

    Args:
        experiment: The experiment. `model: hf` names the folder, or else `training.weights` does.
    """
    model = experiment.model
    if model is not None and model.name == "hf" and model.options.get("path"):
        return Path(str(model.options["path"])).expanduser()
    weights = experiment.training.weights
    if weights is None:
        return None
    folder = Path(weights.path).expanduser()
    return folder if (folder / "config.json").is_file() else None


def _prior_near(domain: Domain, value: float, within: float, because: str) -> Prior:
    """Return a prior at the nearest value of a domain."""
    near = _nearest(domain, value)
    if isinstance(domain, Choice | Fixed):
        return Prior(near=near, because=because)
    # On a linear scale, the distance is that of the factor at the value.
    return Prior(
        near=near,
        within=max(within, 1.05) if domain.log else value * (within - 1),
        because=because,
    )


def _nearest(domain: Domain, value: float) -> Any:
    """Return the value of a domain with the smallest ratio to a number."""
    if domain.contains(value):
        return value
    values = domain.values()
    if values is None:
        return min(max(value, domain.low), domain.high)  # type: ignore[union-attr]
    numbers = [item for item in values if isinstance(item, int | float) and item > 0]
    if not numbers:
        raise ExperimentError(
            "the choices have no number above 0", allowed="numbers", field="prior"
        )
    return min(numbers, key=lambda item: abs(math.log(item / value)))
