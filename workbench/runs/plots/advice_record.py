"""The record of advice: what a run measured and recommended, and the gradient noise of its trials.

A projection of events, as `history` and `series` are. What a figure shows of it is left to
`prepare_advice` and `prepare_learning`.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from typing import Any

import numpy as np

from workbench.advisor.stored_advice import mapping
from workbench.experiment import Experiment
from workbench.foundation.events import (
    AdviceGiven,
    AdviceRequested,
    CandidateTried,
    Event,
    PlanMeasured,
    RatesTested,
    TrialReported,
)
from workbench.hardware.performance.noise import GradientMoments
from workbench.runs.plots.series import THROUGHPUT, Curve, RunSeries
from workbench.store.history.reports import NumberColumn, Reports

NOISE_SCALE = "noise_scale"


class AdviceRecord:
    """The events of a run that concern advice."""

    def __init__(self, experiment: Experiment) -> None:
        """Begin before the first event of a run of `experiment`."""
        self.requested: AdviceRequested | None = None
        self.measured: list[PlanMeasured] = []
        self.rate_tests: list[RatesTested] = []
        self.candidates: list[CandidateTried] = []
        self.advice: Mapping[str, Any] = {}
        # Separate columns, so that noise is thinned, and rewound after lost attempts, like metrics.
        self._noise = RunSeries(experiment)

    def add(self, event: Event) -> None:
        """Process the next event of the run."""
        match event:
            case AdviceRequested():
                self.requested = event
            case PlanMeasured(by_trial=None):
                self.measured.append(event)
            case RatesTested():
                self.rate_tests.append(event)
            case CandidateTried():
                self.candidates.append(event)
            case AdviceGiven():
                self.advice = event.advice
            case TrialReported() if event.gradient_noise is not None:
                self.take_reports(event.trial, Reports.of([event.model_dump()]))
            case _:
                pass

    @property
    def exists(self) -> bool:
        """Whether advice was requested, measured for or given."""
        contents = self.measured or self.rate_tests or self.candidates or self.advice
        return self.requested is not None or bool(contents)

    @property
    def choice(self) -> Mapping[str, Any]:
        """The recommendation; empty until there is one."""
        return mapping(self.advice.get("choice"))

    def of_one_setting(self) -> list[PlanMeasured]:
        """Return the measurements of the setting that was measured most often.

        Only those are comparable.
        """
        often = Counter(event.setting for event in self.measured).most_common(1)
        return [event for event in self.measured if event.setting == often[0][0]]

    def noise_scales(self) -> list[Curve]:
        """Return the noise scale in samples of every trial that reported one, by trial number."""
        return self._noise.curves(NOISE_SCALE)

    def take_reports(self, trial: int, reports: Reports) -> None:
        """Add the next reports of one trial."""
        signals, noises = reports.numbers["gradient_signal_sqr"], reports.numbers["gradient_noise"]
        places = np.flatnonzero(signals.is_known & noises.is_known)
        if not len(places):
            return
        scales = np.full(len(reports), np.nan)
        for place in places:
            moments = GradientMoments(float(signals.values[place]), float(noises.values[place]))
            scales[place] = math.nan if (scale := moments.noise_scale()) is None else scale
        finite = np.flatnonzero(np.isfinite(scales))
        if len(finite):
            found = reports.at(finite)
            nothing = NumberColumn(scales[finite], np.zeros(len(finite), dtype=np.bool_))
            numbers = {**found.numbers, THROUGHPUT: nothing}
            values = {
                NOISE_SCALE: NumberColumn(scales[finite], np.ones(len(finite), dtype=np.bool_))
            }
            self._noise.add_reports(trial, Reports(found.attempts, numbers, values, {}))
