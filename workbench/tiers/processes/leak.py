"""Measure how much of the inputs can be recovered after the first tier, and the cost of noise.

Everybody who receives features can train a decoder on samples of their own. That is done here:
decoders learn to turn what is sent back into inputs, and are judged on samples that they never saw.
What they recover is a lower bound: a better decoder may recover more. How values are sent is left
to `features`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from workbench.deploy.stages import Stages
from workbench.foundation.errors import RunError
from workbench.tiers.processes.decoders import Pairs, best_decoder
from workbench.tiers.processes.features import Outgoing, received
from workbench.tiers.processes.frames import encode
from workbench.tiers.processes.stage_model import StageModel, StageModels
from workbench.tiers.processes.tier_settings import StageSettings

COMPARED_NOISE = (0.0, 0.3, 1.0)
"""Noise that is compared in every report, in standard deviations of what is sent."""
_MAX_KNOWN = 4_000
_MAX_HELD_OUT = 2_000
_NUM_RESAMPLES = 400
_BATCH = 256


@dataclass(frozen=True)
class Leak:
    """What one way of sending features gives away, and what it costs.

    Attributes:
        features: How features are sent, `float32` or `uint8`.
        noise: Standard deviation of added noise, relative to the standard deviation of the values.
        recovered: Share of the variance of the inputs that a decoder recovers, on samples it never
            saw.
        low: Lower end of the 95 % interval of `recovered`.
        high: Upper end.
        decoder: The decoder that recovers most, `linear` or `network`.
        accuracy: Share of correct answers if what does not leave at the first exit is sent in this
            way.
        bytes_per_sample: Bytes of a frame with features, its header included.
    """

    features: str
    noise: float
    recovered: float
    low: float
    high: float
    decoder: str
    accuracy: float
    bytes_per_sample: int


@dataclass(frozen=True)
class Samples:
    """Samples of a data set.

    Attributes:
        inputs: (samples, ...), as the first stage takes them.
        targets: (samples,): the right classes.
    """

    inputs: np.ndarray
    targets: np.ndarray

    def first(self, number: int) -> Samples:
        """Return at most that many of them."""
        return Samples(self.inputs[:number], self.targets[:number])


def measure_leak(
    bundle: Path,
    stages: Stages,
    known: Samples,
    held_out: Samples,
    *,
    noise: float = 0.0,
    seed: int = 0,
    on_progress: Callable[[str], None] = lambda _: None,
) -> list[Leak]:
    """Measure what features give away in every way of sending them.

    Args:
        bundle: The bundle with the stages.
        stages: Its stages, two or more.
        known: Samples of the training split, from which decoders learn.
        held_out: Samples of the validation split, on which decoders and the model are judged.
        noise: Noise to measure in addition to `COMPARED_NOISE`, in standard deviations of the
            values.
        seed: Seed of the noise and of the decoders.
        on_progress: Receives what is measured.

    Returns:
        One `Leak` for each format of features and amount of noise.

    Raises:
        RunError: If the model has no stage after the first, so that no features are sent, or its
            inputs are texts.
    """
    if len(stages.stages) < 2:
        raise RunError(
            "the model has only one stage, so its inputs are sent unchanged and can all be read",
            next_step="Train a model with exits, such as convnet with the parameter exits: 1.",
        )
    if np.issubdtype(known.inputs.dtype, np.integer):
        raise RunError(
            "leaks of texts cannot be measured, because words with close numbers have nothing in"
            " common",
            next_step="Remove privacy.report_leak, and assume that texts can be read.",
        )
    first = StageModel(_settings(bundle, stages)[0], threads=1)
    rest = StageModels(_settings(bundle, stages)[1:], threads=1)
    known, held_out = known.first(_MAX_KNOWN), held_out.first(_MAX_HELD_OUT)
    # Decoders learn from one split and are judged on another. On the same samples, a network
    # would recover what it has memorised.
    _, known_features = _first_stage(first, known.inputs)
    answers, features = _first_stage(first, held_out.inputs)
    leaves = answers.max(axis=1) >= stages.stages[0].threshold
    leaks: list[Leak] = []
    kinds, amounts = ("float32", "uint8"), sorted({*COMPARED_NOISE, noise})
    for kind in kinds:
        for amount in amounts:
            way = f"way {len(leaks) + 1} of {len(kinds) * len(amounts)}"
            on_progress(f"measuring what features give away, {way}")
            # The same seed for each way, so that ways differ by the way and not by the draws.
            outgoing = Outgoing(kind, amount, np.random.default_rng(seed))
            sent = received(features, outgoing, stage=1)
            decoder, share, low, high = _recovered(
                Pairs.flat(received(known_features, outgoing, stage=1), known.inputs),
                Pairs.flat(sent, held_out.inputs),
                seed,
            )
            classes = answers.argmax(axis=1)
            classes[~leaves] = _classes(rest, sent[~leaves])
            num_bytes = len(encode(outgoing.request(0, features[0], sender=0, stage=1)))
            accuracy = float(np.mean(classes == held_out.targets))
            leaks.append(
                Leak(
                    features=kind,
                    noise=amount,
                    recovered=share,
                    low=low,
                    high=high,
                    decoder=decoder,
                    accuracy=accuracy,
                    bytes_per_sample=num_bytes,
                )
            )
    return leaks


def _settings(bundle: Path, stages: Stages) -> list[StageSettings]:
    return [
        StageSettings(number, str(bundle / stage.file), stage.threshold)
        for number, stage in enumerate(stages.stages)
    ]


def _first_stage(model: StageModel, inputs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the answers of the first exit and the features of all samples."""
    results = [model.run(part.astype(model.dtype, copy=False)) for part in _batches(inputs)]
    answers = [scores for scores, _ in results if scores is not None]
    return np.concatenate(answers), np.concatenate([features for _, features in results])


def _batches(values: np.ndarray) -> Iterator[np.ndarray]:
    for first in range(0, len(values), _BATCH):
        yield values[first : first + _BATCH]


def _classes(rest: StageModels, sent: np.ndarray) -> list[int]:
    results = rest.predict([(1, features, None, 0, None) for features in sent]) if len(sent) else []
    return [int(result.probabilities.argmax()) for result in results]


def _recovered(known: Pairs, held_out: Pairs, seed: int) -> tuple[str, float, float, float]:
    """Return the best decoder, the share of variance that it recovers, and its interval."""
    decoder = best_decoder(known, seed=seed)
    missed = np.square(decoder.decode(held_out.sent) - held_out.inputs).sum(axis=1)
    spread = np.square(held_out.inputs - known.inputs.mean(axis=0)).sum(axis=1)
    drawn = np.random.default_rng(seed).integers(len(missed), size=(_NUM_RESAMPLES, len(missed)))
    shares = _share(missed[drawn].sum(axis=1), spread[drawn].sum(axis=1))
    low, high = np.quantile(shares, [0.025, 0.975])
    return decoder.name, float(_share(missed.sum(), spread.sum())), float(low), float(high)


def _share(missed: np.ndarray, spread: np.ndarray) -> np.ndarray:
    return np.maximum(0.0, 1.0 - missed / np.maximum(spread, np.finfo(np.float64).tiny))


def sentences(leaks: Sequence[Leak], *, features: str, noise: float, first_tier: str) -> list[str]:
    """Return in sentences what is given away now, and what less of it would cost.

    Args:
        leaks: What was measured.
        features: How features are sent, as the file of tiers says.
        noise: The noise that it adds.
        first_tier: The name of the tier that sends.
    """
    now = next(leak for leak in leaks if (leak.features, leak.noise) == (features, noise))
    lines = [
        f"From what {first_tier} sends now, a decoder can recover at least {now.recovered:.0%} of"
        " the variance of the inputs. Encryption protects it on the way, but not from the receiver."
    ]
    # A way within the interval of today's may recover as much.
    fewer = [leak for leak in leaks if leak.recovered < now.low]
    if fewer:
        best = max(fewer, key=lambda leak: (leak.accuracy, -leak.bytes_per_sample))
        lines.append(
            f"With privacy.noise: {best.noise:g} and features: {best.features} it recovers"
            f" {best.recovered:.0%}, and the accuracy is {best.accuracy:.4f} instead of"
            f" {now.accuracy:.4f}."
        )
    return lines
