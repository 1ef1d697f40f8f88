"""Which options of a script are worth a search, and in which ranges.

Names are compared by whole words: `--criterion` has nothing to do with "iter". The type of an
option decides whether its range is of integers. At most ten options are searched, those with the
highest scores, in which the uses of an option count as well as its name: `option_scores`.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from workbench.runs.scripts.option_scores import score_of
from workbench.runs.scripts.script_options import ScriptOption, name_words, words_of

MAX_SEARCHED = 10


def _table(text: str) -> frozenset[str]:
    return frozenset(text.split())


_NEVER = _table(
    "tolerance tol seed seeds epoch epochs iter iters iteration iterations interval log logs"
    " logging save print worker workers thread threads port device devices gpu gpus cuda mps"
    " cpu debug verbose verbosity resume load eval evaluate evaluation test val valid"
    " validation world path dir directory file filename name names project version freq"
    " frequency every vocab image images img input inputs crop buffer cache pause sleep wait"
    " epoches timeout quiet silent progress shuffle plot show report profile profiler wandb"
    " tensorboard mlflow comet download overwrite no not out output outputs mode split data"
    " dataset datasets task phase backend format color colour tag tags note notes user host"
    " url jobs proc pin dry steps step class classes labels nclasses num_classes tokens"
    " checkpoint checkpoints ckpt time minutes hours seconds nodes node dist distributed local"
    " accelerator precision dtype dtypes compile deterministic benchmark env envs"
    " nsamples nthread nthreads ncpu tpu"
    " channels_last prefetch memory mem visualize video render track capture entity exp"
    " experiment run id eps epsilon adam_epsilon patience start end begin total max min early"
    " stop fp16 bf16 fp32 tf32 jit torchscript hub push token api key revision trust export"
    " profile dump prompt template vocab length len seq context block window resolution height"
    " width_px fps port master init initial_checkpoint pretrained samples examples subset"
    " fraction_data limit hidden_act torch opset onnx target source lang language instance"
    " mean std interpolation nproc root folder restore warm_start algo category categories sync"
    " syncbn fft hop mels overfit quantize launcher cv fold folds splits rows imgsz ctx shot shots"
    " way ways qry query flip_y class_sep holdout heldout ignore niter beam reset multiple prep"
    " horizon transparent greyscale grayscale idx index indices pad bos eos unk digits"
)
_OF_OTHER_GROUPS = _table(
    "sampling sample inference generation generate eval evaluation test validation val"
    " logging logger audio"
)
"""Groups of a configuration that do not influence the training."""
_SHAPES = _table("channels channel ch features dim dims")
"""What data and neighbouring layers decide, as `in_channels` and `data.channels`."""
_DATA = _table(
    "data dataset datasets loader loaders synthetic toy fold folds kfold split splitter cross"
    " transform transforms preprocess preprocessing"
)
_MAKES_DATA = re.compile(
    r"(?:^|\.)(?:load|generate|simulate"
    r"|make_(?:\w*(?:classification|regression|blobs|moons|circles|quantiles|friedman\d|curve"
    r"|roll|uncorrelated|matrix|signal|clusters|board|10_2)|data\w*))$",
    re.IGNORECASE,
)
"""Functions that make or load data, such as those of scikit-learn."""
_STORES = re.compile(r"(?:load|restore)_(?:weights|state|checkpoint)|save_")
"""Functions that read or write a model."""
_SAYS_DATA = re.compile(
    r"^\W*(?:the )?(?:number|dimension|dim|size|resolution) of (?:the )?"
    r"(?:(?:input|output|domain|target|raw) )*(?:labels|classes|images?|speakers|data)\b",
    re.IGNORECASE,
)
"""What the help of an option says if the data decide its value."""
_SAYS_HELD_OUT = re.compile(
    r"\b(?:share|fraction|proportion|percent(?:age)?|ratio|portion)\b.*"
    r"\b(?:val|valid|validation|test|testing|hold-?out|held[- ]out)\b",
    re.IGNORECASE,
)
"""What the help of an option says if it divides the data: a trial with few validation samples would
win by luck.
"""
_DIVIDERS = _table("frac fraction ratio share percent pct portion proportion part size split")
"""What divides the data next to the name of a part, as in `train_fraction`."""
_OF_TRAINING_DATA = _table(
    "batch batchsize bs aug augment augmentation augmentations randaug randaugment mixup cutmix"
    " cutout erase erasing jitter flip smoothing dropout mask masking accumulation accum lr"
)
"""What a training does with its data, which is searched wherever it is: `data.batch_size`."""
_PLACES = _table("dir folder path file")
_NEVER_LAST = _table("k p n config tokenizer pattern impl schema recipe")
_MAX_CHOICES = 12
"""Maximum number of choices of what is searched: a list of all known models is not."""
_ALLOWED_DESPITE = (
    ("warmup",),
    ("warmdown",),
    ("cooldown",),
    ("anneal",),
    ("annealing",),
    ("lr",),
    ("learning", "rate"),
    ("weight", "decay"),
    ("max", "depth"),
    ("max", "features"),
    ("max", "leaf"),
    ("max", "leaves"),
    ("max", "bin"),
    ("max", "norm"),
    ("max", "grad"),
    ("max", "gradient"),
    ("max", "delta"),
    ("min", "child"),
    ("min", "samples"),
    ("min", "data"),
    ("min", "split"),
    ("batch", "size"),
    ("minibatches",),
    ("num", "steps"),
    ("n", "steps"),
    ("n", "step"),
    ("multi", "step"),
    ("noise", "std"),
    ("noisy", "std"),
    ("update", "epochs"),
    ("update", "interval"),
    ("update", "freq"),
    ("update", "frequency"),
    ("bagging", "freq"),
    ("ppo", "epoch"),
    ("ppo", "epochs"),
    ("k", "epoch"),
    ("node", "dim"),
    ("n", "epochs"),
    ("k", "epochs"),
    ("num", "block"),
    ("n", "block"),
    ("nb", "block"),
    ("time", "filter"),
    ("time", "dim"),
    ("policy", "freq"),
    ("policy", "delay"),
    ("update", "step"),
    ("update", "steps"),
    ("inner", "steps"),
    ("step", "size"),
    ("drop", "path"),
    ("d", "model"),
    ("batch",),
    ("batchsize",),
    ("jitter",),
    ("accumulation",),
    ("accumulate",),
    ("accum",),
    ("tau",),
    ("discount",),
    ("temp",),
    ("temperature",),
    ("clip",),
    ("clipping",),
    ("clipnorm",),
    ("test", "size"),
    ("dropout",),
    ("kl",),
    ("t", "horizon"),
)
"""Words that make a name worth a search although another of its words usually does not."""
_SWITCH = re.compile(
    r"nesterov|amsgrad|bias|norm|noise|schedul|resid|pretrain|augment|mixup|cutmix|cosine|anneal|decay|balanc"
    r"|freez|smooth|attention|bidirect|dropout|rotary|rope|tied?$|weight"
)
"""Names of flags that influence training. Most flags are about everything else."""
_NOT_OF_MODELS = _table(
    "cpu cuda gpu gpus device mps tpu distributed dist parallel ddp fp16 bf16 fp32 half amp mixed"
    " precision compile jit torchscript deterministic benchmark checkpoint checkpointing debug"
    " verbose quiet silent log logging save load resume restore eval evaluate test val predict"
    " inference train training data dataset return output outputs plot show print pretrained"
    " visualize wandb tensorboard cache download overwrite export profile onnx flash"
    " efficient memory"
)
"""Words of flags that a model is made with, but that do not change what it learns."""
_SWITCH_WORDS = _table(
    "aug amp ema swa clip half skip flip gated tie tied pool mirror rslora dora packing bn"
    " gae adv double dueling per augmentation warmup"
)
_LEARNING_RATE = re.compile(
    r"^(?:.*_)?(?:lr|learning_rate|learningrate|eta|step_size)\d?(?:_.*)?$", re.IGNORECASE
)
_RATE_WORDS = _table(
    "temp lr rate c reg l1 l2 alpha lambda lam decay wd temperature cost penalty"
    " regularization regularisation regularizer coef coefficient coeff eta nu tau ent entropy"
    " weight kl multiplier mult noise sigma scale"
)
"""What is searched by its order of magnitude."""
_PART_WORDS = _table(
    "discount dropout drop mask mixup cutmix smoothing smooth ratio prob probability frac"
    " fraction momentum gamma beta beta1 beta2 betas subsample colsample bytree rho ema"
    " percent pct split p dropath path_drop rate_drop jitter"
)
"""What lies between 0 and 1."""
_SCALES = _table("gamma")
"""Names of parameters that are shares if they are near 1, as the discount of rewards is. Otherwise
they are scales, such as the scale of a kernel.
"""
_SIZE_WORDS = _table(
    "batchsize hid ff batch width hidden dim dims size layer layers nlayers nhid nhead nheads"
    " emsize embd embed embedding emb channel channels unit units depth filter filters rank r"
    " head heads kernel neurons nodes features leaves estimators trees neighbors minibatches"
    " ch nf feat stacks bs steps epoch epochs lstm fc mlp feats accumulation accumulate accum cells"
    " ngf ndf ndim capacity"
    " expansion bins degree growth"
    " components clusters hops samples nz l lin d_model"
    " warmup warmdown cooldown anneal annealing bag ksize blocks block nstep inner nh ni"
    " levels level stages"
)
_SIZE_PAIRS = (
    ("max", "depth"),
    ("min", "child"),
    ("lora", "alpha"),
    ("d", "model"),
    ("grad", "acc"),
    ("n", "step"),
    ("multi", "step"),
    ("update", "interval"),
    ("update", "freq"),
    ("update", "frequency"),
    ("policy", "freq"),
    ("policy", "delay"),
)
_COUNTED = _table("layer layers nlayers depth block blocks head heads nhead nheads")
"""Sizes that are small numbers."""
_CUTS = _table("clip clipping clipnorm")
"""Limits of gradients, which are real numbers even if a file has 10."""
_CLIPS = _table("clip clipping clipnorm norm delta")
_NEAR_ONE = 0.8
"""From here on a part, such as a momentum, is searched by its distance from 1."""
_VERY_NEAR_ONE = 0.95
"""From here on that holds for each part that is none of a whole, whatever its name."""
_NEAR_ONE_WORDS = _table(
    "momentum beta beta1 beta2 b1 b2 gamma discount ema decay lambda lam rho gae"
)
_SMALLEST_DELTA = 1e-3
_SMALL = 0.1
"""Below it a number is searched on a logarithmic scale, whatever its name."""
_NOT_CHOSEN = _table(
    "quantize quantization attn impl attention opset strategy reporter logger sampler metric"
    " metrics objective obj recipe splits loss level"
)
_JOINED = re.compile(r"(dropout)\w|w(drop)|n(layers|heads|hid)")
"""A word and what belongs to it, written together."""
_TWO_WORDS = re.compile(
    r"([a-z]{2,})(width|depth|layers|heads|units|channels|filters|hidden|dim|size|dropout|prob)"
)
_OF_POLICIES = _table("gae discount rollout ppo ent entropy")
_ACTS = _table("env envs episode episodes actor critic policy replay reward rewards tau")
"""Words of programs in which gamma is the discount of rewards."""
_USUAL: tuple[tuple[str, ...], ...] = (
    ("lr",),
    ("learning", "rate"),
    ("eta",),
    ("step", "size"),
    ("batch",),
    ("bs",),
    ("batchsize",),
    ("weight", "decay"),
    ("wd",),
    ("wdecay",),
    ("optimizer",),
    ("optim",),
    ("opt",),
    ("dropout",),
    ("drop", "path"),
    ("drop",),
    ("warmup",),
    ("hidden",),
    ("width",),
    ("layers",),
    ("layer",),
    ("depth",),
    ("dim",),
    ("embd",),
    ("d", "model"),
    ("ff",),
    ("d", "inner"),
    ("hid",),
    ("nh",),
    ("heads",),
    ("head",),
    ("momentum",),
    ("alpha",),
    ("c",),
    ("l2",),
    ("lambda",),
    ("lam",),
    ("max", "depth"),
    ("estimators",),
    ("leaves",),
    ("lora", "r"),
    ("lora",),
    ("gamma",),
    ("discount",),
    ("tau",),
    ("ent", "coef"),
    ("clip", "grad"),
    ("clip",),
    ("clipping",),
    ("temperature",),
    ("temp",),
    ("rank",),
    ("coef",),
    ("grad", "norm"),
    ("grad", "clip"),
    ("beta",),
    ("filters",),
    ("channels",),
    ("kl",),
    ("weight",),
    ("norm",),
    ("margin",),
    ("n", "step"),
    ("multi", "step"),
    ("noise",),
    ("minibatches",),
    ("smoothing",),
    ("growth",),
    ("mixup",),
    ("cutmix",),
    ("accumulation",),
    ("accumulate",),
    ("accum",),
    ("scheduler",),
    ("sched",),
    ("b1",),
    ("beta1",),
    ("b2",),
    ("beta2",),
)
_TURNS_ON = _table("use enable enabled do with is apply add active on opt flag")
"""What a switch has besides the name of what it turns on."""
_GENERAL = _table(
    "train training test eval val model data batch learning lr log save gpu cuda wandb max min num"
    " n loss optimizer weight step size image input output layer"
)
"""Words that name no part of a program that may be off: `train_batch_size` is not about
`--do-train`.
"""
_SAID = re.compile(
    r"\b(?:learning rate|batch ?size|weight decay|momentum|dropout|warm ?up|optimizer|temperature"
    r"|hidden (?:size|dim|units)|embedding (?:size|dim)"
    r"|(?:number of|num) (?:hidden )?(?:layers|heads|units|channels|filters)"
    r"|label smoothing|neighbou?rs)\b"
)
"""What the help of an option of a single letter may say that it is."""
_NOT_ONE = _table("rank channel channels feat feature features input inputs")
"""Sizes of which 1 is decided by something else, such as the channels of images."""
_OF_IMAGES = _table("channel channels")
_COLOURS = (1, 3)
_FAMILY = _table("resnet wrn wideresnet preresnet resnext densenet vgg efficientnet dla")
_DEPTHS = frozenset((18, 34, 50, 56, 101, 110, 121, 152, 164))
"""Depths of families of models. Of other depths there is usually no model."""
_FREE = _table("temp temperature c noise sigma penalty cost")
"""What is searched by its order of magnitude, and may be above 1."""
_OF_ALL = _table(
    "subsample colsample bytree bylevel bynode bagging fraction frac feature features mixup cutmix"
    " decay"
)
"""What may be 1: the share of all rows and columns, the parameter of a distribution, no decay."""
_SHARES = _OF_ALL - {"decay"} | _table("dropout drop keep prob probability ratio split")
_SHARE_OF_ALL = _table("mixup cutmix prob probability p frac fraction")
"""What is often 1, its highest value, without a search."""
_OF_RETURNS = _table("lambda lam gae td trace return")
"""Words of the lambda of rewards. Any other one is the weight of a term: `lambda_cls`."""
_NEVER_ABOVE_ONE = _table("momentum dropout discount smoothing ema lam lambda")
_PERCENT = _table("percent pct")
_NEUTRAL = _table(
    "per gpu device train training max total size rate ratio prob p dim dims coef coefficient"
    " value num steps type name factor norm layers channels units eps 1 2 3 iters epochs fraction"
)
"""Words that do not make a detail of what they follow: `batch_size`, `warmup_steps`."""
_DETAILS = _table(
    "warmup min final end noise cycle initial init scaling stop layerwise multiplier mul mult"
    " chunk chunks"
)


def searched_domains(
    options: Iterable[ScriptOption], refusals: Iterable[str] = ()
) -> dict[str, str]:
    """Return what is searched at first: the domain of each option in YAML, at most ten.

    Args:
        options: All options of a script. The result has their order.
        refusals: What the script says if it refuses values. A flag that is mentioned there with
            another option is not searched, because not all pairs of values would be accepted.
    """
    options = [option for option in options if not option.takes_seed]
    off = _switched_off(options)
    domains = {
        option.name: domain
        for option in options
        if option.name not in off and (domain := domain_of(_meant(option))) is not None
    }
    others = [o for o in options if o.name not in {*off, *domains} and not _is_in_code(o)]
    for option in options:
        if option.name in domains and _is_replaced(option, options):
            del domains[option.name]
    _keep_heads_divisible(options, domains)
    _leave_doubles(options, domains)
    _leave_unused(options, domains)
    if {"topk", "topp"} & {"".join(name_words(option.name)) for option in options}:
        # With them, the temperature is that of sampling, which trains nothing.
        domains.pop("temperature", None)
    all_words = {word for option in options for word in words_in(option.name)}
    acts = bool(all_words & _ACTS) or {"clip", "ratio"} <= all_words
    is_of_policy = bool(all_words & _OF_POLICIES) or ("gamma" in all_words and acts)
    # Passes over the same rollout are searched. Elsewhere it is the length of the training.
    defaults = {option.name: option.default for option in options}
    domains = {
        name: domain
        for name, domain in domains.items()
        if not _is_length(words_in(name.rpartition(".")[2]), defaults[name], is_of_policy)
    }
    if is_of_policy:
        domains |= _passes_of_policies(options)
    for refusal in refusals:
        mentioned = {word.strip("-") for word in re.findall(r"[\w-]+", refusal)} & domains.keys()
        flags = {option.name for option in options if option.is_flag} & mentioned
        if len(mentioned) == 1:  # it must fit another value, unless it is a usual word
            flags = {name for name in flags if len(name_words(name)) > 1}
        if flags:
            domains = {name: domain for name, domain in domains.items() if name not in flags}
    order = {option.name: place for place, option in enumerate(options)}
    meant = {option.name: _meant(option).name for option in options}
    rates = [name for name in domains if is_learning_rate(name)]
    if all(set(words_in(name)) & _DETAILS for name in rates):
        # Without another rate, the first one is meant: `learning_rate_init`.
        meant |= {name: re.sub(r"_init(?:ial)?\b|\binit(?:ial)?_", "", name) for name in rates}
    by_name = {option.name: option for option in options}
    flags = {option.name for option in options if option.is_flag}
    needs = {option.name: option.needs for option in options if option.needs is not None}
    # Without effect unless the other option is searched.
    idle = {name for name, (other, values) in needs.items() if defaults.get(other) not in values}
    domains = {n: d for n, d in domains.items() if n not in idle or needs[n][0] in domains}
    scores = {
        name: score_of(by_name[name], _words_of_known(meant[name]))
        + _usualness(meant[name], is_flag=name in flags)
        for name in domains
    }
    if len(domains) > 1:
        unknown = _of_unknown_names(others)
        scores |= {name: score_of(by_name[name], own_words(name)) for name in unknown}
        domains |= unknown
    ranked = sorted(domains, key=lambda name: (name in idle, -scores[name], order[name]))[
        :MAX_SEARCHED
    ]
    needs = {name: needed for name, needed in needs.items() if needed[0] in ranked}
    return {
        name: _if_needed(domains[name], needs.get(name))
        for name in domains
        if name in ranked and (name not in idle or name in needs)
    }


def _of_unknown_names(options: list[ScriptOption]) -> dict[str, str]:
    """Return domains of numbers with names of their own, which no table has: `--n-critic 5`."""
    known = {option.name: _of_unknown(option) for option in options}
    return {name: domain for name, domain in known.items() if domain is not None}


def _words_of_known(name: str) -> list[str]:
    """Return the words of an option with a domain: what counts epochs is no length then."""
    return [word for word in own_words(name) if word not in ("epoch", "epochs")]


def _usualness(name: str, *, is_flag: bool) -> float:
    """Return how much the name of an option with a usual domain adds to its score."""
    place = _rank(name, is_flag=is_flag)[0]
    return _KNOWN + _USUAL_FIRST * max(-1, 1 - place / len(_USUAL))


_KNOWN = 1.5
"""What a usual domain adds to the score of an option."""
_USUAL_FIRST = 3.0
"""What the most usual name adds as well. The last one adds nothing, a detail may take it away."""


def _if_needed(domain: str, needs: tuple[str, tuple[Any, ...]] | None) -> str:
    """Return a domain with the condition under which an option has an effect."""
    if needs is None:
        return domain
    name, values = needs
    wanted = json.dumps(values[0] if len(values) == 1 else values)
    return f"{domain[:-1]}, when: {{{name}: {wanted}}}}}"


def _passes_of_policies(options: list[ScriptOption]) -> dict[str, str]:
    """Return the domain of the epochs of a policy with a clipped ratio, as PPO has it.

    A few epochs are passes over one rollout there, and not the length of the training.
    """
    words = [set(words_in(option.name)) for option in options]
    if not any("clip" in own and own & {"ratio", "epsilon", "eps", "coef"} for own in words):
        return {}
    passes = {
        option.name: option.default
        for option in options
        if words_in(option.name) in (["epochs"], ["epoch"]) and isinstance(option.default, int)
    }
    return {
        name: f"{{choices: {json.dumps([number // 2, number, number * 2])}}}"
        for name, number in passes.items()
        if 1 < number <= _MAX_PASSES
    }


_MAX_PASSES = 20


def _is_length(words: list[str], default: Any, is_of_policy: bool) -> bool:
    """Return whether a number is that of the epochs or steps of a whole training."""
    is_number = isinstance(default, int)
    if words in (["n", "epochs"], ["k", "epochs"]):
        return not is_of_policy or (is_number and default > _MAX_PASSES)
    return (
        not is_of_policy
        and is_number
        and default > _LARGEST
        and words in (["n", "steps"], ["num", "steps"])
    )


def _filled_up(options: list[ScriptOption], chosen: Mapping[str, str]) -> dict[str, str]:
    """Return domains of other numbers of a program that searches few, such as `--n-critic 5`.

    They have names of their own, which no table has, and are what its algorithm is about.
    """
    domains: dict[str, str] = {}
    for option in sorted(options, key=lambda option: not _is_of_model(option)):
        num_free = (MAX_SEARCHED if _is_of_model(option) else _FILLED) - len(chosen) - len(domains)
        if num_free > 0 and option.name not in chosen:
            domain = _of_unknown(option)
            domains |= {option.name: domain} if domain is not None else {}
    return domains


def _is_of_model(option: ScriptOption) -> bool:
    """Return whether the model of a program is made with a number."""
    return option.is_of_model or option.name.startswith(("model.", "net.", "network."))


def may_be_searched(option: ScriptOption) -> bool:
    """Return whether values of an option could be tried at all, whether that is useful or not."""
    if option.way == "fixed" or option.takes_seed or not option.has_effect:
        return False
    if option.is_flag:
        return True
    if option.choices:
        return 2 <= len(option.choices) <= _MAX_CHOICES
    if option.default is None:
        return option.kind in ("int", "float") and not option.is_required
    return isinstance(option.default, int | float) and math.isfinite(option.default)


def _is_in_code(option: ScriptOption) -> bool:
    """Return whether an option is a value in a call or a signature: `Adam.lr`."""
    return option.file is not None and option.file.suffix == ".py" and "." in option.name


_FILLED = 8
"""Up to this number, other options of a program are searched, and those of its model up to ten."""


def _of_unknown(option: ScriptOption) -> str | None:
    """Return a domain around a number whose name says nothing, or None if it is none."""
    default, own = option.default, own_words(option.name)
    is_number = isinstance(default, int | float) and not option.is_flag
    if not is_number or option.way in ("fixed", "variable") or option.is_required:
        return None
    if not option.has_effect:
        return None
    if any(_contains(own, length) for length in _LENGTHS):
        return _shorter(own, default)
    if not own or _is_of_data(option.name, set(own)) or _is_never(own, option):
        return None
    if (
        own[-1] in ("epoch", "epochs")
        or _is_of_noise(own, default)
        or default <= 0
        or not math.isfinite(default)
    ):
        return None
    if default in _DEPTHS and set(own) & {"depth", "layers"}:
        return None
    if default in _COLOURS and set(own) & _OF_IMAGES:
        return None
    if option.kind != "float" and (option.kind in ("int", "any") or isinstance(default, int)):
        number = int(default)
        is_size = number == default and 2 <= number <= _LARGEST
        return f"{{choices: [{number // 2}, {number}, {number * 2}]}}" if is_size else None
    high = min(1.0, default * 4) if default < 1 else default * 4
    return f"{{low: {_number(default / 4)}, high: {_number(high)}, log: true}}"


def _shorter(own: list[str], default: float) -> str | None:
    """Return the domain of how much of the data a model sees at once.

    It is never longer than the default, because data, positions and memory may end there.
    """
    number = int(default)
    if number != default or number < _SHORTEST or set(own) & _OF_TARGETS:
        return None
    return f"{{choices: [{number // 4}, {number // 2}, {number}]}}"


_SHORTEST = 16
_OF_TARGETS = _table(
    "pred label target horizon eval test val valid validation sample generate generation output"
    " out log smooth smoothing average avg mean metric image img fft hop shift stride save"
    " stop early patience reward"
)
_LENGTHS = (
    ("block", "size"),
    ("seq", "len"),
    ("seq", "length"),
    ("sequence", "length"),
    ("context", "length"),
    ("context", "len"),
    ("context", "size"),
    ("bptt",),
    ("window",),
)
_LARGEST = 512
"""A larger number with an unknown name is more likely one of data or of time."""


def _meant(option: ScriptOption) -> ScriptOption:
    """Return an option by the name that its help gives, if its own says nothing.

    It is a single letter, such as `-b` for the batch size, or has no word that is known.
    """
    words = [word for word in _plain_words(option.name) if word not in ("n", "num")]
    if len(option.name) > 1 and ("." in option.name or any(map(_is_known, words))):
        return option
    said = _SAID.search(option.text.lower().replace("_", " ").replace("-", " "))
    return option if said is None else replace(option, name=said[0].replace(" ", "_"))


def _switched_off(options: list[ScriptOption]) -> set[str]:
    """Return the options that have no effect, because what they are about is off.

    `ema_decay` is about `--ema`, `lora_rank` about `--use-lora`, and `ema.decay` about
    `ema.enabled`.
    """
    off: set[str] = set()
    for flag in options:
        group, _, last = flag.name.rpartition(".")
        words = list(name_words(last))
        if flag.default in _IS_OFF and words[-1:] in (["type"], ["mode"], ["method"]):
            words = words[:-1]  # `distillation-type` with the default "none"
        elif flag.default == [] and words[-1:] in (["layers"], ["modules"], ["targets"]):
            words = words[:-1]  # `lora_layers` with none
        elif not flag.is_flag or flag.default is not False:
            continue
        if group and len(words) == 1 and words[0] in _TURNS_ON:
            off |= {o.name for o in options if o.name.startswith(f"{group}.")} - {flag.name}
            continue
        stem = [word for word in words if word not in _TURNS_ON]
        if not stem or set(stem) <= _GENERAL:
            continue
        # Of `e2e_ttt` and the like, the last word is what the others are named after.
        ends = [stem[-1:]] if len(stem) > 1 and not _is_known(stem[-1]) else []
        for other in options:
            other_group, _, name = other.name.rpartition(".")
            own = [word for word in name_words(name) if word not in ("num", "n")]
            if other is flag or other.is_flag or other_group != group:
                continue
            if any(own[: len(part)] == part and len(own) > len(part) for part in (stem, *ends)):
                off.add(other.name)
    return off


_IS_OFF = ("none", "None", "off")


def _is_known(word: str) -> bool:
    tables = (_NEVER, _RATE_WORDS, _PART_WORDS, _SIZE_WORDS, _SWITCH_WORDS, _CLIPS, _NEUTRAL)
    usual = {part for words in _USUAL for part in words}
    return any(word in table for table in (*tables, _GENERAL, usual))


def _is_replaced(option: ScriptOption, options: list[ScriptOption]) -> bool:
    """Return whether another option is searched instead: with `lr`, `lr-base` has no effect."""
    if words_in(option.name)[-1:] != ["base"]:
        return False
    return any(other.name == option.name[:-5] for other in options)


def _leave_doubles(options: list[ScriptOption], domains: dict[str, str]) -> None:
    """Leave values of a configuration alone that an option of the same name replaces."""
    own = {name_words(o.name) for o in options if o.way == "option" and "." not in o.name}
    for option in options:
        is_in_file = option.way in ("assigned", "constant") and "." in option.name
        if is_in_file and name_words(option.name.rpartition(".")[2]) in own:
            domains.pop(option.name, None)


def _leave_unused(options: list[ScriptOption], domains: dict[str, str]) -> None:
    """Leave values alone that have no effect as the options are."""
    defaults = {option.name: option.default for option in options}
    is_adam = any(
        "adam" in str(option.default).lower()
        for option in options
        if words_of(option.name) & _OPTIMIZERS
    )
    in_code = {option.name for option in options if _is_in_code(option)}
    unused = {name for name in domains if _is_in_lists_next_to_it(name, defaults)}
    variants: dict[tuple[str, str], list[str]] = {}
    for name in domains:
        parent, _, last = name.rpartition(".")
        if name not in in_code:
            variants.setdefault((parent.rpartition(".")[0], last), []).append(name)
        is_no_rate = last == "eta" and defaults[name] == 0
        if is_no_rate or (is_adam and words_in(last) == ["momentum"]):
            unused.add(name)
    for names in variants.values():
        # A configuration with the same value for each kind of model uses only one of them.
        if len(names) >= _NUM_VARIANTS:
            unused.update(names)
    unused.update(_of_other_families(domains))
    unused.update(_of_read_weights(options, domains))
    for name in unused:
        del domains[name]


def _is_in_lists_next_to_it(name: str, defaults: Mapping[str, Any]) -> bool:
    """Return whether a number of layers also decides lists next to it: `out_indices: [0, 3]`."""
    parent, number = name.rpartition(".")[0], defaults[name]
    if not parent or type(number) is not int or not set(own_words(name)) & _LISTED:
        return False
    lists = [
        value
        for other, value in defaults.items()
        if other.rpartition(".")[0] == parent and isinstance(value, list) and value
    ]
    return any(len(value) == number or value[-1] == number - 1 for value in lists)


_LISTED = _table("layer layers stage stages level levels block blocks depth")


def _of_other_families(domains: Mapping[str, str]) -> list[str]:
    """Return what belongs to other models than the first: `xgb__eta`, with `lgbm__num_leaves`.

    A program with parameters for several kinds of models trains one of them at a time.
    """
    families: dict[str, list[str]] = {}
    for name in domains:
        words = words_in(name.rpartition(".")[2])
        if len(words) > 1 and words[0] in _FAMILIES:
            families.setdefault(words[0], []).append(name)
    rated = [f for f, names in families.items() if any(map(is_learning_rate, names))]
    if len(families) < _NUM_VARIANTS or not rated:
        return []
    return [name for family, names in families.items() if family != rated[0] for name in names]


def _of_read_weights(options: list[ScriptOption], domains: Mapping[str, str]) -> list[str]:
    """Return the sizes and switches of parts of a model whose weights are read from a file.

    With `first_stage.ckpt_path: model.ckpt`, another `first_stage.width` fits no such file.
    """
    parts = {
        option.name.rpartition(".")[0]
        for option in options
        if isinstance(option.default, str)
        and option.default
        and words_of(option.name.rpartition(".")[2]) & _WEIGHTS
        and words_of(option.name.rpartition(".")[2]) & _PLACES
    } - {""}
    return [
        name
        for name in domains
        if any(name.startswith(f"{part}.") for part in parts)
        and not set(own_words(name)) & _OF_TRAINING_DATA - {"dropout"}
        and not set(own_words(name)) & {"decay", "momentum"}
    ]


_WEIGHTS = _table("ckpt checkpoint pretrained weights")
_FAMILIES = _table(
    "lgbm lgb lightgbm xgb xgboost catboost cat cb rf forest svc svm nn mlp knn ridge lasso lr"
    " logreg nb et gbm gbdt"
)
"""Words in front of the parameters of one of several kinds of models."""
_OPTIMIZERS = frozenset(("optimizer", "optim", "opt"))
_NUM_VARIANTS = 3


def _keep_heads_divisible(options: list[ScriptOption], domains: dict[str, str]) -> None:
    """Leave the number of heads alone unless all choices divide all choices of the width."""
    widths = [
        option.default
        for option in options
        if option.name in domains
        and isinstance(option.default, int)
        and {"embd", "embed", "dim", "hidden", "emsize", "model", "embedding", "emb"}
        & set(words_in(option.name))
        and "head" not in words_in(option.name)
    ]
    for option in options:
        words = set(words_in(option.name))
        if option.name not in domains or not words & {"head", "heads", "nhead", "nheads"}:
            continue
        heads = option.default
        if words & {"dim", "size"} or not isinstance(heads, int):
            continue
        # Those of keys and values divide those of the queries.
        if "kv" in words or any((width // 2) % (heads * 2) for width in widths):
            del domains[option.name]


def is_usual(name: str) -> bool:
    """Return whether an option is one of those that are searched most.

    Example:
        >>> from workbench.runs.scripts.option_domains import is_usual
        >>> is_usual("Adam.lr"), is_usual("fit.batch_size"), is_usual("plot.size")
        (True, True, False)
    """
    return _rank(name, is_flag=False)[0] < len(_USUAL)


def is_learning_rate(name: str) -> bool:
    """Return whether an option is a learning rate.

    Example:
        >>> from workbench.runs.scripts.option_domains import is_learning_rate
        >>> is_learning_rate("optim.base_lr"), is_learning_rate("lr0"), is_learning_rate("alr")
        (True, True, False)
    """
    return _LEARNING_RATE.match("_".join(name_words(name.rpartition(".")[2]))) is not None


def words_in(name: str) -> list[str]:
    """Return the words of a name in lower case, in their order.

    Example:
        >>> from workbench.runs.scripts.option_domains import words_in
        >>> words_in("optimizer.learningRate")
        ['optimizer', 'learning', 'rate']
    """
    return list(name_words(name))


def domain_of(option: ScriptOption) -> str | None:
    """Return the first domain of an option in YAML, or None if it is not worth a search.

    Args:
        option: The option.
    """
    if option.way == "fixed" or option.kind == "path" or not option.has_effect:
        return None
    words = words_in(option.name)
    last = option.name.rpartition(".")[2]
    own = own_words(option.name)
    given = [value for value in option.choices if isinstance(value, str | int | float)]
    plain = list(dict.fromkeys(given))  # a help may mention one twice
    if len(plain) > 1 and own[-1:] in (["name"], ["type"]) and set(own[:-1]) - _UNCHOSEN:
        own = own[:-1]  # `optimizer_name` is an optimizer
    is_place = words_of(last) & _PLACES and not _contains(list(own), ("drop", "path"))
    if _is_of_data(option.name, set(own)) or is_place or _is_never(own, option):
        return None
    is_batch = bool(set(own) & {"batch", "batchsize", "bs"})
    if not is_batch and (_SAYS_DATA.search(option.text) or _SAYS_HELD_OUT.search(option.text)):
        return None
    if option.is_flag:
        return _of_flag(option, own)
    if len(plain) > 1:
        return _of_choices(own, plain)
    if isinstance(option.default, str) or option.kind == "str":
        return None
    return _of_value(option, words, own)


def _of_value(option: ScriptOption, words: list[str], own: list[str]) -> str | None:
    default = option.default
    if _is_of_noise(own, default):
        return None
    if default is None:
        kind = "float" if option.kind is None and option.way == "python" else option.kind
        return _without_default(own, kind)
    if not isinstance(default, int | float) or not math.isfinite(default):
        return None
    return _of_number(option, words, own, default)


def _of_flag(option: ScriptOption, own: list[str]) -> str | None:
    is_switch = _SWITCH.search("_".join(own)) or set(own) & _SWITCH_WORDS
    is_layer = own[0] == "use" and bool(own[1:]) and set(own[1:]) <= _LAYER_WORDS
    is_switch = (is_switch and own[0] not in ("use", "no")) or is_layer or _is_of_model(option)
    return "{choices: [true, false]}" if is_switch else None


_LAYER_WORDS = _table(
    "batch layer group instance spectral weight norm batchnorm bn dropout attention"
)
"""What a switch such as `--use-batch-norm` adds to a model."""


def _of_number(
    option: ScriptOption, words: list[str], own: list[str], default: float
) -> str | None:
    if _is_in_code(option) and default == 1 and "batch" in own:
        return None  # one row at a time is how a model answers, not how it is trained
    if option.kind in ("int", "any") or (isinstance(default, int) and option.kind != "float"):
        return _of_integer(words, own, default)
    is_clip = bool(set(own) & _CUTS) or _contains(own, ("grad", "norm"))
    if default == 0 and "threshold" in own:
        return None  # it is off
    if default == 0 and is_clip:  # 0 is no clipping, which is no lowest value of a range
        return "{low: 0.1, high: 10, log: true}"
    return _range(own, float(default))


def _is_of_noise(words: list[str], default: Any) -> bool:
    """Return whether a beta is an end of a schedule of noise, as diffusion has it.

    Those of Adam are near 1.
    """
    is_end = words[:1] == ["beta"] and words[1:2] and words[1] in _ENDS_OF_NOISE
    return bool(is_end) and isinstance(default, float) and default < _SMALL


_ENDS_OF_NOISE = _table("0 1 t start end min max")


def makes_data(name: str) -> bool:
    """Return whether a function makes data, as those of scikit-learn do.

    Example:
        >>> from workbench.runs.scripts.option_domains import makes_data
        >>> makes_data("make_moons"), makes_data("make_model")
        (True, False)
    """
    return name.startswith("make_") and _MAKES_DATA.search(name) is not None


def _is_of_data(name: str, own: set[str]) -> bool:
    """Return whether data, sampling or an evaluation decide a value, or neighbouring layers."""
    place = name.rpartition(".")[0]
    group = words_of(place)
    if group & _OF_OTHER_GROUPS and not group & {"train", "training"}:
        return True
    if group & _DATA and not own & _OF_TRAINING_DATA:
        return True
    if _MAKES_DATA.search(place) and "batch" not in own:
        return True
    if _STORES.match(place.rpartition(".")[2]):
        return True
    if own & {"train", "training"} and own & _DIVIDERS and "batch" not in own:
        return True
    is_rate = {"sample", "rate"} <= own or {"sampling", "rate"} <= own
    is_rate = is_rate or {"lr", "flip"} <= own  # from left to right
    is_rate = is_rate or own == {"loss", "scale"}  # of small numbers with half precision
    # `skip_out_channels` are those of a part of the model.
    is_of_part = bool(own - _SHAPES - _table("in out n num model net size"))
    is_shape = own & {"in", "out"} and not (is_of_part and "in" not in own)
    return is_rate or bool(own & _SHAPES and (is_shape or "data" in group))


def usual_domain(name: str) -> str | None:
    """Return the first domain in YAML of a value of which only the name is known.

    Args:
        name: The name.

    Returns:
        None if the name says nothing.

    Example:
        >>> from workbench.runs.scripts.option_domains import usual_domain
        >>> usual_domain("hidden"), usual_domain("num_layers"), usual_domain("dropout")
        ('{choices: [32, 64, 128]}', '{choices: [1, 2, 4]}', '{low: 0.0, high: 0.5}')
    """
    words = set(words_in(name))
    sizes = words & _SIZE_WORDS
    if sizes:
        return domain_of(ScriptOption(name, 2 if sizes & _COUNTED else 64))
    if words & _PART_WORDS:
        return domain_of(ScriptOption(name, kind="float")) or domain_of(ScriptOption(name, 0.1))
    return domain_of(ScriptOption(name, kind="float"))


_UNCHOSEN = _GENERAL - {"optimizer"}


def _of_choices(words: list[str], plain: list[Any]) -> str | None:
    is_mode = {"train", "training", "fit"} & {str(value).lower() for value in plain}
    # `batch_type` says what a batch counts.
    is_mode = is_mode or (words[-1:] == ["type"] and set(words[:-1]) <= _UNCHOSEN)
    if is_mode or set(words) & _NOT_CHOSEN or len(plain) > _MAX_CHOICES:
        return None
    return f"{{choices: {json.dumps(plain)}}}"


def kind_of_value(name: str, value: Any) -> str | None:
    """Return the type of a value in a file: what has no type there is known by its name.

    Example:
        >>> from workbench.runs.scripts.option_domains import kind_of_value
        >>> kind_of_value("weight_decay", 0), kind_of_value("num_layers", 1)
        ('float', 'int')
    """
    if not isinstance(value, bool | int | float | str):
        return None
    own = set(name_words(name.rpartition(".")[2]))
    is_real = value in (0, 1) and own & (_RATE_WORDS | _PART_WORDS)
    if type(value) is int and (is_real or own & _CUTS or {"grad", "norm"} <= own):
        return "float"
    return type(value).__name__


def own_words(name: str) -> list[str]:
    """Return the words of an option itself, without those of its group.

    A group gives a general word its meaning: `warmup.epochs`, `randaug.n`.
    """
    group, _, last = name.rpartition(".")
    own = list(_plain_words(last))
    if group and len(own) == 1 and own[0] in _GENERAL_LAST:
        above = list(_plain_words(group.rpartition(".")[2]))
        return [*[word for word in above if word in _MEANT_BY_GROUP][-1:], *own]
    return own


_GENERAL_LAST = _table(
    "epoch epochs step steps iters ratio n m magnitude prob p multiplier rate factor"
)
_MEANT_BY_GROUP = _table(
    "warmup randaug randaugment augment augmentation aug mixup cutmix lr decay learning dropout"
    " drop"
)


def _is_never(words: list[str], option: ScriptOption) -> bool:
    """Return whether the words of a name say that it is hardly ever searched."""
    joined = set(words)
    is_number = isinstance(option.default, int | float) and not option.is_flag
    if is_number and option.default >= _EXPLORES and joined & {"eps", "epsilon"}:
        joined -= {"eps", "epsilon"}  # of exploration or smoothing, not of Adam
    if is_number and joined & {"target"} and joined & _REPLACES:
        return False  # how often the target network becomes the other one
    if joined & {"randaug", "randaugment"}:
        return False
    if "base" in joined and words[-1] in ("size", "base") and len(words) > 2:
        return True  # what the base of a rate refers to
    if is_number and isinstance(option.default, float) and option.default > 0:
        joined -= {"init"}  # the scale of the first weights
    if {"max", "norm"} <= joined and joined & {"grad", "gradient", "gradients"}:
        return False
    # The number of classes, or the delta of differential privacy.
    is_private = is_number and words == ["delta"] and option.default < _SMALLEST_DELTA
    if is_private or joined in ({"num", "cls"}, {"n", "cls"}):
        return True
    if any(_contains(words, allowed) for allowed in _ALLOWED_DESPITE):
        return _is_hindered(words)
    if _is_of_model(option) and option.is_flag:
        return bool(joined & _NOT_OF_MODELS)
    return _is_vetoed(joined, words, option)


def _is_vetoed(joined: set[str], words: list[str], option: ScriptOption) -> bool:
    """Return whether one word of a name speaks against a search, in spite of how it is used."""
    if option.is_of_model and type(option.default) is int:
        return bool(joined & (_NEVER - _allowed_in_models(joined)))
    is_way = option.is_of_model and len(option.choices) > 1  # in which a model works
    return (
        bool(joined & (_NEVER - {"mode"} if is_way else _NEVER))
        or words[-1:] == []
        or words[-1] in _NEVER_LAST
    )


def _allowed_in_models(words: set[str]) -> frozenset[str]:
    """Return which words of a size do not speak against a search, if a model is made with it.

    A name may say more than one thing: the `len` of features is their number, and that of a
    sequence is decided by the data.
    """
    allowed = _OF_MODELS
    if words & _PARTS_OF_MODELS:
        allowed |= _table("len length")
    if words & _SHAPES and not words & _table("dim dims"):
        allowed |= _table("out output")
    return allowed


_OF_MODELS = _table("max min step steps start end k p n")
_PARTS_OF_MODELS = _table("fea feat feature features emb embed embedding hidden vec vector filter")


def _is_hindered(words: list[str]) -> bool:
    """Return whether a name with a word that is searched has another one that is not."""
    joined = set(words)
    left = joined & _table(
        "log save print eval evaluation path dir file name seed no start end min gpu test val"
        " validate validation testing"
        " interpolation valid inference sample sampling caching cache multiple"
    )
    if _contains(words, ("max", "length")):
        return True  # longer rows are left out
    if _contains(words, ("drop", "path")):
        left -= {"path"}
    if joined & {"lr", "kl"}:  # where a schedule begins and ends
        left -= {"start", "end", "min"}
    if _contains(words, ("per", "gpu")):
        left -= {"gpu"}
    if _contains(words, ("clip", "val")):
        left -= {"val"}
    if _contains(words, ("batch", "size")):
        left -= {"min"}
    return bool(left - {"min"} if _contains(words, ("min",)) and _is_tree(words) else left)


_EXPLORES = 0.01
_REPLACES = _table("replace update sync freq interval period")


def _is_tree(words: list[str]) -> bool:
    return any(_contains(words, ("min", word)) for word in ("child", "samples", "data", "split"))


def _contains(words: list[str], part: tuple[str, ...]) -> bool:
    num = len(part)
    return any(tuple(words[place : place + num]) == part for place in range(len(words) - num + 1))


def _of_integer(words: list[str], own: list[str], default: float) -> str | None:
    # `hidden1` is the first of several sizes, and `l1` a layer.
    is_size = bool({word.rstrip("0123456789") or word for word in own} & _SIZE_WORDS) or any(
        _contains(own, named) for named in _SIZE_PAIRS
    )
    if default == 0 and "lora" in own and set(own) & {"dim", "r", "rank"}:
        return "{choices: [4, 8, 16]}"  # 0 is no adapter
    is_size = is_size or bool(set(own) & _CUTS)
    if default < 1 or not is_size or (default == 1 and set(own) & _NOT_ONE):
        return None
    number = int(default)
    if number in _COLOURS and set(own) & _OF_IMAGES:
        return None
    if set(own) & {"depth", "layers"} and (set(own) & _FAMILY or number in _DEPTHS):
        return None
    least = 2 if _contains(own, ("samples", "split")) else 1  # one row cannot be split
    return f"{{choices: {json.dumps(sorted({max(least, number // 2), number, number * 2}))}}}"


def _without_default(words: list[str], kind: str | None) -> str | None:
    """Return the usual range of an option whose default is not known."""
    name = "_".join(words)
    if kind == "float":
        if _LEARNING_RATE.match(name) and len(words) < 4:
            return "{low: 1.0e-05, high: 0.1, log: true}"
        if _contains(words, ("weight", "decay")) or words == ["wd"]:
            return "{low: 1.0e-06, high: 0.1, log: true}"
        if "dropout" in words:
            return "{low: 0.0, high: 0.5}"
        if words == ["momentum"]:
            return "{low: 0.5, high: 0.99}"
        if words[-1] in ("prob", "probability"):
            return "{low: 0.0, high: 0.5}"
    if kind == "int" and name in ("batch_size", "batch", "bs", "batchsize"):
        return "{choices: [16, 32, 64]}"
    return None


def _range(words: list[str], default: float) -> str | None:
    """Return a range of real numbers around a default.

    None if its name and value do not suggest any.
    """
    named = set(words) if len(words) < 3 else set(words) - {"c"}
    is_rate = bool(named & _RATE_WORDS) or _contains(words, ("step", "size"))
    is_part = 0 <= default < 1
    is_near = default >= _NEAR_ONE and bool(named & _NEAR_ONE_WORDS)
    is_near = is_near or (default >= _VERY_NEAR_ONE and not named & (_FREE | _SHARES))
    if is_part and is_near:
        low = max(0.0, round(1 - 5 * (1 - default), 9))
        return f"{{low: {_number(low)}, high: {_number(1 - (1 - default) / 5)}}}"
    if default > 0 and "init" in named and not named & (_RATE_WORDS | _PART_WORDS):
        # Weights that begin at 0 never differ.
        return f"{{low: {_number(default / 10)}, high: {_number(default * 10)}, log: true}}"
    if default > 0 and named & _SCALES:
        high = default * 10 if default > 1 else min(1.0, default * 10)
        return f"{{low: {_number(default / 10)}, high: {_number(high)}, log: true}}"
    if default > 0 and named & _CLIPS:  # 0 would stop the training
        is_share = default < 1 and bool(named & (_RATE_WORDS | {"ratio", "range"}))
        high = min(1.0, default * 10) if is_share else default * 10
        return f"{{low: {_number(default / 10)}, high: {_number(high)}, log: true}}"
    if is_rate and default > 1 and _LEARNING_RATE.match("_".join(words)):
        return f"{{low: {_number(default / 10)}, high: {_number(default * 2)}, log: true}}"
    if is_part and default > 0 and _contains(words, ("max", "features")):
        return f"{{low: {_number(min(0.1, default))}, high: 1.0}}"
    if is_part and default > 0.5 and ("decay" in named or not is_rate):
        high = 1.0 if named & _OF_ALL else 1 - (1 - default) / 5
        return f"{{low: {_number(default / 2)}, high: {_number(high)}}}"
    if is_part and (named & _PART_WORDS or (not is_rate and not 0 < default < _SMALL)):
        return f"{{low: 0.0, high: {0.5 if default <= 0.25 else 0.9}}}"
    return _of_size(named, default, is_rate=is_rate)


def _of_size(named: set[str], default: float, *, is_rate: bool) -> str | None:
    """Return a range of numbers that are neither clipped nor a share."""
    if default == 1 and named & {"subsample", "colsample", "bytree", "bylevel"}:
        return "{low: 0.5, high: 1.0}"
    is_weight = named & {"lambda", "lam"} and not named <= _OF_RETURNS
    if default == 1 and named & _NEVER_ABOVE_ONE and not is_weight:
        return "{low: 0.5, high: 1.0}"
    if default == 1 and named & _SHARE_OF_ALL:
        return "{low: 0.1, high: 1.0}"
    if default >= 1 and named & _PART_WORDS and not named & (_PERCENT | _SHARE_OF_ALL):
        # It is no share then, but a weight: the beta of an autoencoder, the ratio of two widths.
        return f"{{low: {_number(default / 4)}, high: {_number(default * 4)}, log: true}}"
    if default >= 1 and "warmup" in named:  # in epochs, of which there may be a part
        return f"{{low: {_number(default / 2)}, high: {_number(default * 2)}}}"
    if is_rate and default == 0:
        return "{choices: [0.0, 0.0001, 0.01]}"
    if default > 0 and (is_rate or default < _SMALL):
        # A share or a weight between two terms, as `scale=0.5`, must not be above 1.
        is_share = default < 1 and (not named & _FREE or "decay" in named)
        high = min(1.0, default * 10) if is_share else default * 10
        return f"{{low: {_number(default / 10)}, high: {_number(high)}, log: true}}"
    return None


def _rank(name: str, *, is_flag: bool) -> tuple[int, int]:
    """Return how usual it is to search an option: the lowest first."""
    words = words_in(name)
    if is_flag:
        return len(_USUAL) + 1, len(words)
    own = own_words(name)
    for place, usual in enumerate(_USUAL):
        if _contains(own, usual):
            others = [word for word in own if word not in usual]
            # `lr_noise_pct` is about a detail of the rate, `matrix_lr` is a rate.
            behind = own[_place_of(own, usual) + len(usual) :]
            num_details = len([word for word in behind if word not in _NEUTRAL])
            num_details += 4 * len([word for word in others if word in _DETAILS])
            num_details += int(own == ["head", "dim"])
            num_details += 4 * int("min" in others or _contains(own, ("warmup", "lr")))
            others = [word for word in others if word not in _NEUTRAL and len(word) > 1]
            return place + 9 * num_details + 4 * len(others), len(words)
    return len(_USUAL), len(words)


def _plain_words(name: str) -> Iterator[str]:
    """Yield the words of a name as they usually are: `nlayers` are layers, `dropouth` a dropout.

    Two words may be written as one, as in `netdepth`.
    """
    joined_name = re.sub(r"(?i)(warm|drop)[-_](up|out)", r"\1\2", name)
    for word in name_words(joined_name):
        joined = _JOINED.fullmatch(word)
        pair = None if _is_known(word) else _TWO_WORDS.fullmatch(word)
        if re.fullmatch(r"lr\d", word):
            yield "lr"
        elif joined is not None:
            yield next(part for part in joined.groups() if part)
        elif pair is not None:
            yield from pair.groups()
        else:
            yield word


def _place_of(words: list[str], part: tuple[str, ...]) -> int:
    num = len(part)
    return next(n for n in range(len(words)) if tuple(words[n : n + num]) == part)


def _number(value: float) -> str:
    """Return a number as YAML reads it: with a dot also where it has an exponent."""
    text = f"{value:.6g}"
    mantissa, sign, exponent = text.partition("e")
    if not sign or "." in mantissa:
        return text
    return f"{mantissa}.0e{exponent}"
