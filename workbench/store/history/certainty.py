"""Estimate how certain the best result of a run is, and what to expect if it is trained again.

The best of many results was lucky as well as good, so it is better than its configuration is on
average. Trainings of one configuration with different seeds show how large the luck is. A score on
few samples is also inexact, and the best of many scores on the same samples is too good.

This module has the statistics and describes the results in sentences, which the terminal, the
panel, the report and Python show. The study chooses the configurations to train again.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import NormalDist, fmean, median
from typing import TYPE_CHECKING

from workbench.experiment import Experiment
from workbench.experiment.metric_declarations import declaration_of
from workbench.experiment.train_function import importing_tool
from workbench.foundation.errors import WorkbenchError
from workbench.foundation.events import RepeatsInherited
from workbench.foundation.formatting import (
    counted_noun,
    format_count,
    format_duration,
    format_number,
    format_range,
)
from workbench.store.history.standings import RankedTrials
from workbench.store.history.trial import Trial

if TYPE_CHECKING:
    from workbench.store.history.noise_floor import NoiseFloor

INTERVAL = 0.9
"""The probability that the expected value is in its interval."""
_NUM_CONFIRMED = 3
"""How many of the best configurations to suggest for training again."""
MIN_DEGREES = 3
"""Degrees of freedom that the noise needs before a configuration can leave the race.

With fewer, two values may agree by chance.
"""
# The trainings of earlier runs do not count if chance explains with at most this probability that
# those of this run differ so much more, or so much less.
_UNLIKE = 0.02
CERTAINTY = 0.95
"""The probability that the interval of a rate contains the rate on all data of this kind."""
NUM_VALIDATION = "num_val_samples"
"""The metric by which a function or program reports its number of validation samples."""
NUM_TEST = "num_test_samples"
"""The metric by which a function or program reports its number of test samples."""


@dataclass(frozen=True)
class Noise:
    """How much trainings of one configuration differ.

    Attributes:
        variance: Variance of their values.
        num_degrees: Degrees of freedom of that estimate, above 0.
        is_inherited: Whether trainings of earlier runs are a part of it.
    """

    variance: float
    num_degrees: float
    is_inherited: bool = False

    def chance_greater(self, first: Sequence[float], second: Sequence[float]) -> float:
        """Return the probability that `first` comes from the configuration with the greater mean.

        Args:
            first: Values of one configuration.
            second: Values of another one.

        Source: Student, The probable error of a mean, 1908, with the variance pooled.
        """
        from scipy.special import stdtr

        difference = fmean(first) - fmean(second)
        error = math.sqrt(self.variance * (1 / len(first) + 1 / len(second)))
        if error <= abs(difference) * 1e-12:
            return 0.5 if difference == 0 else float(difference > 0)
        return float(stdtr(self.num_degrees, difference / error))

    def half_width(self, variance: float) -> float:
        """Return half the width of the interval around an estimate with this variance."""
        from scipy.special import stdtrit

        return float(stdtrit(self.num_degrees, (1 + INTERVAL) / 2)) * math.sqrt(variance)


def noise_of(groups: Sequence[Sequence[float]]) -> Noise | None:
    """Estimate the noise from trainings that share their configuration.

    Args:
        groups: The values of each configuration.

    Returns:
        The pooled variance within configurations, or None if none was trained twice.
    """
    num_degrees = sum(len(values) - 1 for values in groups if values)
    if num_degrees < 1:
        return None
    squares = math.fsum(
        (value - fmean(values)) ** 2 for values in groups if values for value in values
    )
    return Noise(squares / num_degrees, num_degrees)


def noise_with_inherited(
    groups: Sequence[Sequence[float]],
    inherited: RepeatsInherited | None,
    budget: int | None = None,
) -> Noise | None:
    """Estimate the noise from trainings of this run and of earlier ones.

    Earlier runs count like as many trainings as their noise floor is worth. They do not count if
    the trainings of this run contradict them.

    Args:
        groups: The values of each configuration of this run.
        inherited: Trainings of earlier runs.
        budget: The number of steps of a training of this run, for which the noise of the earlier
            ones is corrected. None if it is unknown.

    Returns:
        The noise, or None if no configuration was trained twice.

    Source: Smyth, Linear models and empirical Bayes methods, 2004 (moderated variance).
    """
    own = noise_of(groups)
    if inherited is None:
        return own
    from scipy.special import fdtrc

    earlier = tuple((tuple(group.values), group.num_steps) for group in inherited.groups)
    floor = _noise_floor(earlier, budget)
    if floor is None:
        return own
    variance = floor.deviation**2
    if own is None:
        return Noise(variance, floor.num_degrees, is_inherited=True)
    greater = float(fdtrc(own.num_degrees, floor.num_degrees, own.variance / variance))
    if min(greater, 1 - greater) < _UNLIKE:
        return own
    num_degrees = own.num_degrees + floor.num_degrees
    squares = own.variance * own.num_degrees + variance * floor.num_degrees
    return Noise(squares / num_degrees, num_degrees, is_inherited=True)


@functools.lru_cache(maxsize=8)  # a race asks for it at each of its trainings
def _noise_floor(
    groups: tuple[tuple[tuple[float, ...], int | None], ...], budget: int | None
) -> NoiseFloor | None:
    from workbench.store.history.noise_floor import RepeatedTrainings, noise_floor_of

    earlier = [RepeatedTrainings(values, num_steps) for values, num_steps in groups]
    return noise_floor_of(earlier, budget)


def shrink(means: Sequence[float], variances: Sequence[float], chosen: int) -> tuple[float, float]:
    """Return the expected value of one of several noisy means, shrunk towards all of them.

    Args:
        means: The observed means.
        variances: The variance of the noise in each of them, all above 0.
        chosen: The index of the mean. It may have been chosen because it is the best.

    Returns:
        The expected value and its variance.

    Source: Morris, Parametric empirical Bayes inference, 1983 (shrinkage and its variance);
    DerSimonian and Laird, Meta-analysis in clinical trials, 1986 (variance between means of unequal
    precision).
    """
    # The variance between configurations by the moments of DerSimonian and Laird: what the weighted
    # spread of the means exceeds its expectation by, if they differed only by noise.
    weights = [1 / variance for variance in variances]
    total = math.fsum(weights)
    middle = math.fsum(weight * mean for weight, mean in zip(weights, means, strict=True)) / total
    spread = math.fsum(
        weight * (mean - middle) ** 2 for weight, mean in zip(weights, means, strict=True)
    ) - (len(means) - 1)
    scale = total - math.fsum(weight**2 for weight in weights) / total
    between = max(0.0, spread / scale) if scale > 0 else 0.0
    # The best mean is moved towards the common middle, by the share of its variance that is noise.
    weights = [1 / (variance + between) for variance in variances]
    middle = math.fsum(
        weight * mean for weight, mean in zip(weights, means, strict=True)
    ) / math.fsum(weights)
    lost = variances[chosen] / (between + variances[chosen])
    distance = means[chosen] - middle
    variance = (1 - lost) * variances[chosen] + lost**2 / math.fsum(weights)
    # The variance between means is also an estimate, and a poor one if there are few means.
    variance += 2 / max(1, len(means) - 3) * (lost * distance) ** 2
    return means[chosen] - lost * distance, variance


@dataclass(frozen=True)
class Certainty:
    """How certain the best configuration of a run is.

    Attributes:
        metric: The objective.
        observed: Mean of the trainings of the best configuration.
        expected: Expected mean of further trainings.
        low: Lower end of the interval of `expected`.
        high: Its upper end.
        num_trainings: Number of trainings behind `expected`.
        is_retrained: Whether these came after the choice, so that luck played no part.
        num_compared: How many configurations the best is compared with.
        chance: Lower bound of the probability that none of them is better.
        is_unseeded: Whether all trainings of a configuration agree, and its command passes no seed,
            so that they may be one and the same training.
        num_inherited: Number of trainings of earlier runs that also show the noise.
        num_earlier_runs: Number of these runs.
    """

    metric: str
    observed: float
    expected: float
    low: float
    high: float
    num_trainings: int
    is_retrained: bool
    num_compared: int
    chance: float
    is_unseeded: bool = False
    num_inherited: int = 0
    num_earlier_runs: int = 0

    def describe(self) -> str:
        """Return it as sentences without the last full stop."""
        if self.is_unseeded:
            return (
                f"All trainings of a configuration have the same {self.metric}. If your program"
                " takes a seed, pass it {seed} in the command. Otherwise they repeat one training"
            )
        interval = format_range(self.low, self.high, format_number)
        basis = "corrected for being the best of many"
        if self.is_retrained:
            basis = (
                f"the mean of {format_count(self.num_trainings, 'training')} after it was chosen"
            )
        expected = f"Expect {self.metric} {format_number(self.expected)} ({interval}), {basis}"
        if self.low == self.high:
            expected = f"{self.metric} {format_number(self.expected)} does not depend on the seed"
        if self.num_inherited:
            runs = format_count(self.num_earlier_runs, "earlier run")
            trainings = format_count(self.num_inherited, "training")
            expected += f". {trainings} of {runs} show how much trainings differ"
        if not self.num_compared:
            return expected
        others = "the other one" if self.num_compared == 1 else f"the {self.num_compared} others"
        if self.is_retrained:
            others += f" that {counted_noun(self.num_compared, 'was', 'were')} trained again"
        if self.chance <= 0.5:
            rivals = others if self.num_compared == 1 else f"one of {others}"
            return f"{expected}. The ranking is open: {rivals} may be as good"
        percent = min(99, math.floor(100 * self.chance))
        return f"{expected}. It is better than {others} with at least {percent} % certainty"


def certainty_of(history: RankedTrials) -> Certainty | None:
    """Return how certain the best configuration of a run is.

    Configurations that were trained again after the search are compared only with each other, and
    their earlier results do not count for the expected value. The chance is a lower bound: the
    probabilities that each of the others is better are added up (Bonferroni).

    Args:
        history: The run.

    Returns:
        None with several objectives, if nothing is complete, or if no configuration was trained
        twice, neither in this run nor in earlier ones like it.
    """
    return _certainty_of(history, _trainings(history))


def _certainty_of(history: RankedTrials, groups: _Groups) -> Certainty | None:
    best = history.best()
    if best is None or len(history.objectives) > 1:
        return None
    inherited = history.inherited_repeats if _is_plain_search(history) else None
    if inherited is not None:
        inherited = inherited.without(_seeds_and_values(history))
    noise = noise_with_inherited(
        [group.values for group in groups.values()],
        inherited,
        budget=max(trial.last_step for trial in history.in_state("complete")) or None,
    )
    if noise is None:
        return None
    groups = dict(groups)
    of_best = groups.pop(history.key_of(best))
    values, later = of_best.values, of_best.later
    compared = [group.values for group in groups.values() if group.later or not later]
    if later:
        expected, variance = fmean(later), noise.variance / len(later)
    elif noise.variance > 0:
        all_values = [values, *(group.values for group in groups.values())]
        means = [fmean(repeats) for repeats in all_values]
        variances = [noise.variance / len(repeats) for repeats in all_values]
        expected, variance = shrink(means, variances, 0)
    else:
        expected, variance = fmean(values), 0.0
    sign = -1.0 if history.objectives[0].goal == "minimize" else 1.0
    chances = [
        noise.chance_greater([sign * value for value in values], [sign * value for value in others])
        for others in compared
    ]
    half = noise.half_width(variance)
    return Certainty(
        metric=history.objectives[0].metric,
        observed=fmean(values),
        expected=expected,
        low=expected - half,
        high=expected + half,
        num_trainings=len(later or values),
        is_retrained=bool(later),
        num_compared=len(compared),
        chance=max(0.0, 1.0 - math.fsum(1.0 - chance for chance in chances)),
        is_unseeded=noise.variance == 0 and not _passes_seed(history.experiment),
        **_inherited_counts(inherited if noise.is_inherited else None),
    )


def _passes_seed(experiment: Experiment) -> bool:
    """Return whether trainings get a seed. Models and functions do, a command has to pass it on."""
    return experiment.command is None or "{seed}" in str(experiment.command)


def _inherited_counts(inherited: RepeatsInherited | None) -> dict[str, int]:
    if inherited is None:
        return {}
    return {
        "num_inherited": sum(len(group.values) for group in inherited.groups),
        "num_earlier_runs": len(inherited.from_run_ids),
    }


def describe_luck(history: RankedTrials) -> str | None:
    """Describe how certain the best result is, as sentences without the last full stop.

    The text starts with the number of samples, and the score on test data. Then it says whether the
    result may be the best only because of its seed. If no configuration was trained twice, the
    noise is unknown. The text then says how far the best one leads, and what it costs to find out
    whether it was lucky.

    Args:
        history: The run.

    Returns:
        None if nothing can be said. That is the case with several objectives and for a result of
        AutoML. If the number of samples is unknown, it is also the case with fewer than two
        complete configurations and if trials continue each other.
    """
    return ". ".join(certainty_lines(history)) or None


def certainty_lines(history: RankedTrials) -> list[str]:
    """Return the text of `describe_luck` as a list of lines.

    Args:
        history: The run.
    """
    of_seed = _describe_seeds(history)
    return [*describe_evidence(history), *([] if of_seed is None else [of_seed])]


def num_to_confirm(history: RankedTrials) -> int:
    """Return how many of the best configurations to train again, to see if the best was lucky.

    Args:
        history: The run.

    Returns:
        0 if the ranking is clear, if something was trained again, or if that cannot help.
    """
    groups = _trainings(history)
    return _num_to_confirm(history, groups, _certainty_of(history, groups))


def _num_to_confirm(history: RankedTrials, groups: _Groups, certainty: Certainty | None) -> int:
    best, experiment = history.best(), history.experiment
    if best is None or len(history.objectives) > 1 or experiment.confirm.best:
        return 0
    if certainty is not None:
        is_open = certainty.num_compared > 0 and certainty.chance < INTERVAL
        if not is_open or any(len(group.values) > 1 for group in groups.values()):
            return 0
    elif len(groups) < 2 or experiment.repeats > 1 or not _is_plain_search(history):
        return 0
    return min(_NUM_CONFIRMED, len(groups))


def _describe_seeds(history: RankedTrials) -> str | None:
    groups = _trainings(history)
    certainty = _certainty_of(history, groups)
    num_best = _num_to_confirm(history, groups, certainty)
    if certainty is not None:
        described = certainty.describe()
        return f"{described}. {_way_to_know(history, num_best)}" if num_best else described
    best, experiment = history.best(), history.experiment
    if best is None or len(history.objectives) > 1 or experiment.repeats > 1:
        return None
    if not _is_plain_search(history):
        return None
    groups.pop(history.key_of(best), None)
    if not groups:
        return None
    objective = history.objectives[0]
    choose = min if objective.goal == "minimize" else max
    second = choose(value for group in groups.values() for value in group.values)
    value = best.values[objective.metric]
    once = "Each configuration was trained once, so"
    num_tied = sum(value in group.values for group in groups.values())
    if num_tied:
        others = counted_noun(num_tied, "Another configuration has", "other configurations have")
        number = "" if num_tied == 1 else f"{num_tied} "
        lead = f"{number}{others} {format_number(value)} too. {once} it is open which is best"
    else:
        lead = (
            f"It leads the second best, {format_number(second)}, by"
            f" {format_number(abs(value - second))}. {once} this may be luck"
        )
    if not num_best:  # the run has not come to its confirmation yet, or ended before
        return lead
    return f"{lead}. {_way_to_know(history, num_best)}"


def _way_to_know(history: RankedTrials, num_best: int) -> str:
    """Return what shows whether the best was lucky, if each configuration was trained once."""
    experiment = history.experiment
    if importing_tool(experiment) is not None:
        return "To know, train the best with other seeds in its own program, and import the results"
    num_times = experiment.confirm.trainings - experiment.repeats
    num = num_best * num_times
    times_s = [trial.duration_s for trial in history.in_state("complete") if trial.duration_s]
    duration = f", about {format_duration(num * median(times_s))} of training" if times_s else ""
    return (
        f"extend --confirm {num_best} would train the best {num_best} again with other seeds, each"
        f" at most {format_count(num_times, 'time')}: {format_count(num, 'training')}{duration}"
    )


def _seeds_and_values(history: RankedTrials) -> set[tuple[int, float]]:
    metric = history.objectives[0].metric
    complete = history.in_state("complete")
    return {(trial.seed, trial.values[metric]) for trial in complete if metric in trial.values}


def _is_plain_search(history: RankedTrials) -> bool:
    """Return whether the trials of a run are results of one search that do not build on others."""
    if history.result is not None or history.replay_of is not None:
        return False
    return not _has_population(history.experiment)


@dataclass
class _Trainings:
    """The values of the trainings of one configuration.

    Attributes:
        first: Those from which the best configuration was chosen.
        later: Those after the choice.
    """

    first: list[float] = field(default_factory=list)
    later: list[float] = field(default_factory=list)

    @property
    def values(self) -> list[float]:
        """The values of all trainings."""
        return self.first + self.later


_Groups = dict[tuple[int, str], _Trainings]


def _trainings(history: RankedTrials) -> _Groups:
    """Return the values of the complete, feasible trials, by configuration.

    Only trials with the same version of the code as the best one are comparable. A configuration
    that was proposed again has trained with the same seed, so this was no further training. If a
    command passes no seed, it was.
    """
    metric, best, experiment = history.objectives[0].metric, history.best(), history.experiment
    trainings: dict[tuple[int, str], _Trainings] = {}
    known: set[tuple[tuple[int, str], int]] = set()
    for trial in history.in_state("complete"):
        if not history.is_feasible(trial) or (best is not None and trial.program != best.program):
            continue
        key = history.key_of(trial)
        if (key, trial.repeat) in known and _passes_seed(experiment):
            continue
        known.add((key, trial.repeat))
        group = trainings.setdefault(key, _Trainings())
        values = group.first if trial.repeat < experiment.repeats else group.later
        values.append(trial.values[metric])
    return trainings


def survivors(
    groups: Mapping[int, Sequence[float]],
    racing: Sequence[int],
    *,
    certainty: float,
    num_rounds: int,
    inherited: RepeatsInherited | None = None,
) -> list[int]:
    """Return the configurations that may still be the best, after a round of trainings.

    The allowed error is divided among the other configurations and the rounds. Over the whole race,
    the best one then stays with a probability of at least `certainty`.

    Args:
        groups: Values of each configuration of the race, by its number. Larger is better.
        racing: The configurations that have not left the race. Each has at least one value.
        certainty: The probability that the race keeps the best configuration, from 0 to 1.
        num_rounds: How many rounds the race may have.
        inherited: Trainings of earlier runs, which also show the noise.

    Source: Maron and Moore, Hoeffding races, 1994, with Student's distribution instead of
    Hoeffding's bound.
    """
    noise = noise_with_inherited(list(groups.values()), inherited)
    if noise is None or noise.num_degrees < MIN_DEGREES:
        return list(racing)
    leader = max(racing, key=lambda number: (fmean(groups[number]), -number))
    share = (1.0 - certainty) / (max(1, len(groups) - 1) * num_rounds)
    return [
        number
        for number in racing
        if number == leader or noise.chance_greater(groups[number], groups[leader]) >= share
    ]


def _has_population(experiment: Experiment) -> bool:
    try:
        return experiment.sampler.kind.is_population
    except WorkbenchError:  # the sampler's package is gone, but the run can still be read
        return False


def rate_interval(
    rate: float, num_samples: int, certainty: float = CERTAINTY
) -> tuple[float, float]:
    """Return the interval around a share of samples, such as an accuracy.

    Args:
        rate: The share that was measured, from 0 to 1.
        num_samples: Number of independent samples, at least 1.
        certainty: The probability that the interval contains the share on all data of this kind.

    Returns:
        The lower and the upper end, both from 0 to 1.

    Source: Wilson, Probable inference, the law of succession, and statistical inference, 1927.

    Example:
        >>> low, high = rate_interval(1.0, 360)
        >>> round(low, 4), high
        (0.9894, 1.0)
    """
    quantile_sqr = NormalDist().inv_cdf((1 + certainty) / 2) ** 2
    scale = 1 + quantile_sqr / num_samples
    middle = (rate + quantile_sqr / (2 * num_samples)) / scale
    variance = rate * (1 - rate) / num_samples + quantile_sqr / (4 * num_samples**2)
    half = math.sqrt(quantile_sqr * variance) / scale
    # At the ends of the range the sum is exact in theory, but not in floating point.
    low = 0.0 if rate <= 0.0 else max(0.0, middle - half)
    high = 1.0 if rate >= 1.0 else min(1.0, middle + half)
    return low, high


def describe_rate(rate: float, num_samples: int) -> str:
    """Describe the interval around a share of samples.

    Args:
        rate: The share that was measured, from 0 to 1.
        num_samples: Number of independent samples, at least 1.
    """
    low, high = rate_interval(rate, num_samples)
    ends = [format_number(_outwards(low, math.floor)), format_number(_outwards(high, math.ceil))]
    return f"between {ends[0]} and {ends[1]} with {100 * CERTAINTY:.0f} % certainty"


def describe_evidence(history: RankedTrials) -> list[str]:
    """Return the evidence for the best score of a run, as sentences without their full stops.

    Args:
        history: The run.

    Returns:
        The sentences. There are none if no trial is complete, with several objectives, and for a
        result of AutoML or of a compression, which have their own test.
    """
    best = history.best()
    if best is None or len(history.objectives) > 1 or history.result is not None:
        return []
    metric = history.objectives[0].metric
    lines = [_of_validation(history, best, metric), _of_test(history, best, metric)]
    if lines[1] is None:
        lines[1] = _of_choice(history, best, metric)
    return [line for line in lines if line is not None]


def _of_validation(history: RankedTrials, best: Trial, metric: str) -> str | None:
    num_samples = _count(best, best.num_validation, NUM_VALIDATION)
    if num_samples is None or not _is_measured(history, metric):
        return None
    value = history.mean_values(best)[metric]
    counted = format_count(num_samples, "validation sample")
    if _is_rate(history, metric, value):
        return f"{metric} {format_number(value)} on {counted}: {describe_rate(value, num_samples)}"
    return f"{metric} {format_number(value)} was measured on {counted}"


def _of_test(history: RankedTrials, best: Trial, metric: str) -> str | None:
    """Describe the score on test samples, which did not influence any choice."""
    name = f"test_{metric.removeprefix('val_')}"
    values = [
        trial.test_values.get(name, trial.values.get(name)) for trial in history.repeats_of(best)
    ]
    known = [value for value in values if value is not None and math.isfinite(value)]
    if not known or name == metric:
        return None
    value = math.fsum(known) / len(known)
    num_samples = _count(best, best.num_test, NUM_TEST)
    of = "test samples" if num_samples is None else format_count(num_samples, "test sample")
    tested = f"On {of}, which were not used to choose it, {name} is {format_number(value)}"
    if num_samples is not None and _is_rate(history, metric, value):
        return f"{tested}: {describe_rate(value, num_samples)}"
    return tested


def _of_choice(history: RankedTrials, best: Trial, metric: str) -> str | None:
    """Warn that the best of many scores is too good, if there is no test score."""
    num_compared = len(
        {
            history.key_of(trial)
            for trial in history.trials.values()
            if trial.value_of(metric) is not None
        }
    )
    if num_compared < 2 or not _is_measured(history, metric):
        return None
    # Without a number of samples, the metric may not be measured on samples at all.
    if _count(best, best.num_validation, NUM_VALIDATION) is None:
        return None
    return (
        f"It was the best of {num_compared} on the same samples, so expect a somewhat worse score"
        " on new data. Test samples would show how much worse"
    )


def _is_measured(history: RankedTrials, metric: str) -> bool:
    """Return whether a metric is measured on samples, which the costs of a model are not."""
    if not history.experiment.trains_model:
        return True
    return metric.startswith("val_")


def _is_rate(history: RankedTrials, metric: str, value: float) -> bool:
    """Return whether a value is a share of samples, such as an accuracy.

    A training by the workbench says so itself. For a function or a program, it follows from the
    name of the metric, if the value can be a share.
    """
    if not 0.0 <= value <= 1.0:
        return False
    if history.experiment.trains_model:
        return metric in history.rates
    declaration = declaration_of(metric)
    return declaration is not None and declaration.is_rate


def _count(trial: Trial, known: int | None, reported: str) -> int | None:
    """Return a number of samples, as the training knows it or a function has reported it."""
    if known:
        return known
    value = trial.value_of(reported)
    if value is not None and value >= 1 and float(value).is_integer():
        return int(value)
    return None


def _outwards(end: float, towards: Callable[[float], int]) -> float:
    """Round the end of an interval to three decimals, away from its middle."""
    if end in (0.0, 1.0):
        return end
    return towards(end * 1000) / 1000
